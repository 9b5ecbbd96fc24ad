"""Which rows of a table of tests are campaigns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

MANY_STATES = 200_000
"""A state space with more of them takes a second or longer."""


def campaign_if(takes_long: Callable[[Any], object], rows: Iterable[Any]) -> list[Any]:
    """The rows, with the mark of a campaign on those that take long."""
    return [
        pytest.param(*(row if isinstance(row, tuple) else (row,)), marks=pytest.mark.campaign)
        if takes_long(row)
        else row
        for row in rows
    ]
