"""Which rows of a table of tests are campaigns: those that take long."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def campaign_if(takes_long: Callable[[Any], object], rows: Iterable[Any]) -> list[Any]:
    """The rows, those that take long marked as campaigns."""
    return [
        pytest.param(*(row if isinstance(row, tuple) else (row,)), marks=pytest.mark.campaign)
        if takes_long(row)
        else row
        for row in rows
    ]
