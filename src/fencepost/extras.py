"""The optional parts of Fencepost: which extra brings a library that is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fencepost.errors import OptionError

EXTRAS = {
    "query": ("pyarrow", "duckdb", "sqlglot"),
    "spark": ("pyspark", "py4j", "pyarrow", "pandas", "duckdb"),
    "explore": ("starlette", "uvicorn", "anyio"),
    "store": ("kazoo", "google", "google_crc32c", "prometheus_client", "uvloop"),
}


def loop_factory() -> Any:
    """A function that makes uvloop's event loop, where that is installed."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop


@contextmanager
def named(what: str, by: str = "") -> Iterator[None]:
    """Raises :class:`fencepost.OptionError` if ``what`` needs a library that an extra would have brought: ``by``, or
    the first that has it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        extras = [extra for extra, libraries in EXTRAS.items() if missing in libraries]
        if not extras:
            raise
        extra = by if by in extras else extras[0]
        raise OptionError(f"{what} needs {missing}, which is not installed: {install(extra)}") from error


def install(extra: str) -> str:
    """What to type to get an extra. No package index has Fencepost."""
    return f"in a checkout of Fencepost, pip install '.[{extra}]'"
