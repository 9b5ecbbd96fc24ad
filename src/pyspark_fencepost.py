"""Spark looks for modules that are named so, and then knows the format ``fencepost`` without being told."""

from contextlib import suppress

with suppress(ImportError):  # of a PySpark before 4.2, whose sessions are to go on as they are
    from fencepost.spark.ledgers.source import FencepostSource as DefaultSource  # noqa: F401
