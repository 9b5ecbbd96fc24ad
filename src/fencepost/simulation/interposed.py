"""Replaces the operating system's clocks and random sources during a run.

All code gets its time and random bytes from the run's schedule and seed, so the run depends on nothing else.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fencepost.simulation.schedule import Schedule

EPOCH = 1_750_000_000_000_000
"""The start of a run, in microseconds since 1970."""


@contextmanager
def interposed(schedule: Schedule, seed: str) -> Iterator[None]:
    """Replace clocks and random sources within this context. Nothing else may run in the process meanwhile."""
    drawn = random.Random(f"{seed} bytes")
    instead: list[tuple[Any, str, Any]] = [
        (time, "time", lambda: (EPOCH + schedule.now) / 1_000_000),
        (time, "time_ns", lambda: (EPOCH + schedule.now) * 1_000),
        (time, "monotonic", lambda: schedule.now / 1_000_000),
        (time, "monotonic_ns", lambda: schedule.now * 1_000),
        (os, "urandom", drawn.randbytes),
        (random, "_urandom", drawn.randbytes),  # used by SystemRandom, and so by secrets
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in instead]
    state = random.getstate()
    try:
        random.seed(seed)
        for module, name, value in instead:
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
        random.setstate(state)
