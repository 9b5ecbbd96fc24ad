"""A quorum of metadata services as processes that are killed, stopped, cut off, wiped and replaced while clients work,
and judged.
"""
