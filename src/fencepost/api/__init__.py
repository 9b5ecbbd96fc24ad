"""What ``import fencepost`` gives: :func:`fencepost.check` with its result, and :func:`fencepost.connect` with its
client.
"""
