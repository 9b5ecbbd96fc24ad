"""How a test waits for what another process or thread does: for a condition, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 600.0
"""Seconds after which what is waited for is taken never to come. Nothing waits longer than it needs, and a slow machine
that compiles every loop for the first time needs minutes.
"""


def until(condition: Callable[[], object], what: str) -> None:
    """Wait until ``condition`` is true; ``what`` says in vain for what, if it never is."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.02)
