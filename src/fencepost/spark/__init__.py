"""Everything that imports pyspark: the engine for state spaces that outgrow one machine, state spaces as tables, and
ledgers as DataFrames.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.spark.engine import explore
    from fencepost.spark.ledgers.registration import register
    from fencepost.spark.sql import edges, query, states

__all__ = ["edges", "explore", "query", "register", "states"]

_MODULES = {
    "edges": "fencepost.spark.sql",
    "explore": "fencepost.spark.engine",
    "query": "fencepost.spark.sql",
    "register": "fencepost.spark.ledgers.registration",
    "states": "fencepost.spark.sql",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use: Spark's Python workers that read ledgers do not need the engine."""
    import importlib

    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'fencepost.spark' has no attribute {name!r}")
