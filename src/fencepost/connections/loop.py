"""The event loop of server processes."""

from __future__ import annotations

from typing import Any


def loop_factory() -> Any:
    """The factory of uvloop's event loop if uvloop is installed, else None."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop
