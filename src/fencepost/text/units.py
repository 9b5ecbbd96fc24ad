"""Sizes and times as people write them: ``16GiB``, ``500ms``."""

from __future__ import annotations

import argparse
import math

_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def size(text: str) -> int:
    """Bytes. ``K``, ``M``, ``G``, ``T`` and ``KiB`` ... are powers of 1024, ``KB`` ... powers of 1000. Raises
    :class:`argparse.ArgumentTypeError` for what is no size or less than a byte.
    """
    lower = text.strip().lower().replace(" ", "")
    number = lower.rstrip("kmgtib")
    unit = lower[len(number) :]
    base = 1000 if len(unit) == 2 and unit.endswith("b") else 1024
    power = _UNITS.get(unit.removesuffix("ib") if unit.endswith("ib") and len(unit) == 3 else unit.removesuffix("b"))
    try:
        count = float(number) * base**power if power is not None else -1.0
    except ValueError:
        count = -1.0
    if power is None or not math.isfinite(count) or count < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: write 16GiB or 500M")
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text} is too small")
    return int(count)


_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(text: str) -> float:
    """Seconds, or a time with its unit: ``10``, ``10s``, ``500ms``, ``2m``, ``1.5h``, ``7d``. Raises
    :class:`argparse.ArgumentTypeError` for what is no time or not above 0.
    """
    number = text.strip().lower().rstrip("mshdin")
    unit = text.strip().lower()[len(number) :] or "s"
    try:
        seconds = float(number) * _SECONDS[unit]
    except (KeyError, ValueError):
        seconds = math.nan
    if not math.isfinite(seconds):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds: write 10, 10s, 500ms, 2m or 1h")
    if seconds <= 0:
        raise argparse.ArgumentTypeError(f"{text} is too short: give more than 0 seconds")
    return seconds
