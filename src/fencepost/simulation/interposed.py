"""Replaces the operating system's clocks and random sources during a run.

All code gets its time and random bytes from the run's schedule and seed, so the run depends on nothing else.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

from fencepost.simulation.schedule import Schedule

EPOCH = 1_750_000_000_000_000
"""The start of a run, in microseconds since 1970."""


@contextmanager
def interposed(schedule: Schedule, seed: str) -> Iterator[None]:
    """Replace clocks and random sources within this context, for this thread. Others keep their own."""
    drawn, rolled = random.Random(f"{seed} bytes"), random.Random(seed)
    instead: list[tuple[Any, str, Any]] = [
        (time, "time", lambda: (EPOCH + schedule.now) / 1_000_000),
        (time, "time_ns", lambda: (EPOCH + schedule.now) * 1_000),
        (time, "monotonic", lambda: schedule.now / 1_000_000),
        (time, "monotonic_ns", lambda: schedule.now * 1_000),
        (os, "urandom", drawn.randbytes),
        (random, "_urandom", drawn.randbytes),  # used by SystemRandom, and so by secrets
    ]
    # The functions of the module are methods of one generator, which all threads share.
    instead += [(random, name, getattr(rolled, name)) for name in random.__all__ if hasattr(rolled, name)]
    before = [(module, name, getattr(module, name)) for module, name, _ in instead]
    here = get_ident()
    try:
        for (module, name, value), (_, _, real) in zip(instead, before, strict=True):
            setattr(module, name, _in_thread(here, value, real))
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def _in_thread(thread: int, here: Callable[..., Any], elsewhere: Callable[..., Any]) -> Callable[..., Any]:
    """What calls ``here`` in one thread, and ``elsewhere`` in all others."""
    return lambda *args, **options: (here if get_ident() == thread else elsewhere)(*args, **options)
