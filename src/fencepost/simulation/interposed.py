"""The clocks and the chances of the operating system, which are a run's own while it goes on.

Whatever code asks for the time or for random bytes gets what the seed says, so that a run depends on nothing else.
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
"""Microseconds from 1970 to the beginning of a run."""


@contextmanager
def interposed(schedule: Schedule, seed: str) -> Iterator[None]:
    """Have all that this process asks for be those of a run. Nothing else may go on in the process meanwhile."""
    drawn = random.Random(f"{seed} bytes")
    instead: list[tuple[Any, str, Any]] = [
        (time, "time", lambda: (EPOCH + schedule.now) / 1_000_000),
        (time, "time_ns", lambda: (EPOCH + schedule.now) * 1_000),
        (time, "monotonic", lambda: schedule.now / 1_000_000),
        (time, "monotonic_ns", lambda: schedule.now * 1_000),
        (os, "urandom", drawn.randbytes),
        (random, "_urandom", drawn.randbytes),  # of SystemRandom, and so of secrets
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
