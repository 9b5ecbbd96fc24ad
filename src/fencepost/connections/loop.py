"""The event loop of processes that serve."""

from __future__ import annotations

from typing import Any


def loop_factory() -> Any:
    """A function that makes uvloop's event loop, where that is installed."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop
