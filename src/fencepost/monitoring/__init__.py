"""What operators see of a running part: health and metrics over HTTP, and logs as JSON.

:mod:`.table` defines every metric.
"""
