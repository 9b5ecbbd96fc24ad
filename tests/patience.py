"""How a test waits for another process or thread: for a condition, never for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 600.0
"""Seconds after which a wait fails. It is long because a slow machine that compiles every loop for the first time needs
minutes.
"""


def until(condition: Callable[[], object], what: str) -> None:
    """Wait until ``condition`` is true. ``what`` names it in the error after :data:`PATIENCE` seconds."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.02)
