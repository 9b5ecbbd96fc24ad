"""Everything that imports pyspark: the engine for state spaces that outgrow one machine, and state spaces as tables."""

from fencepost.spark.engine import explore
from fencepost.spark.sql import edges, query, states

__all__ = ["edges", "explore", "query", "states"]
