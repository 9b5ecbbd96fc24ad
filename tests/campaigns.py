"""Campaigns: the slow rows of a table of tests, and the part of all campaigns that a run takes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from fencepost.api.check import SMALL

THOROUGH = bool(os.environ.get("FENCEPOST_THOROUGH"))
"""Whether generated tests try many more examples."""

MANY_STATES = 20_000
"""A larger state space takes a second or longer."""


def campaign_if(takes_long: Callable[[Any], object], rows: Iterable[Any]) -> list[Any]:
    """The rows. Slow rows are marked as campaigns."""
    return [_campaign(row) if takes_long(row) else row for row in rows]


def campaigns_but_every(nth: int, rows: Iterable[Any]) -> list[Any]:
    """The rows. All but the first, and each nth after it, are marked as campaigns."""
    return [_campaign(row) if place % nth else row for place, row in enumerate(rows)]


def part_of(part: str, files: Iterable[str]) -> set[str]:
    """The files of a part of all campaigns: part ``2/4`` has the second file, the sixth and so on. A file stays whole,
    as its tests share what they explore. Raises ValueError if there is no such part.
    """
    nth, of = (int(number) for number in part.split("/"))
    if not 1 <= nth <= of:
        raise ValueError(f"there is no part {part}")
    return set(sorted(set(files))[nth - 1 :: of])


def engine_for(states: int) -> str:
    """The engine for a space of this many states. `auto` would interpret the first of them and begin anew, which takes
    as long again.
    """
    return "embedded" if states > SMALL["states"] else "auto"


def _campaign(row: Any) -> Any:
    return pytest.param(*(row if isinstance(row, tuple) else (row,)), marks=pytest.mark.campaign)
