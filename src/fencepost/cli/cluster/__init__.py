"""The views of ``fencepost cluster``, and its background process."""
