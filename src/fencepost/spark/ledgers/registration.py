"""Registers the format ``fencepost`` in a Spark session."""

from __future__ import annotations

from typing import Any

from fencepost.errors import SystemFailure, naming_extra

PYSPARK = (4, 2)
"""The oldest PySpark whose streams have read limits."""


def register(spark: Any) -> None:
    """Register the data source ``fencepost`` in a session.

    A session whose Python has Fencepost installed has it already: Spark finds the module ``pyspark_fencepost``. Raises
    :class:`fencepost.SystemFailure` for a PySpark before 4.2.
    """
    with naming_extra("the data source fencepost", "spark"):
        import pyspark
    if tuple(map(int, pyspark.__version__.split(".")[:2])) < PYSPARK:
        needed = ".".join(map(str, PYSPARK))
        raise SystemFailure(
            f"the data source fencepost needs PySpark {needed} or newer, and this is {pyspark.__version__}"
        )
    from fencepost.spark.ledgers.source import FencepostSource

    spark.dataSource.register(FencepostSource)
