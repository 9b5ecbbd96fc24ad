"""The public API of ``import fencepost``: :func:`fencepost.check` and its result, :func:`fencepost.connect` and its
client.
"""
