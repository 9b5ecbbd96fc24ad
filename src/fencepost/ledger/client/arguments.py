"""Checks arguments of callers before anything is done with them. An argument of the wrong type or out of range raises
:class:`fencepost.OptionError`, which says what to pass instead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fencepost.errors import OptionError

LARGEST = (1 << 63) - 1
"""The largest id of a ledger or an entry."""

CUSTOM_LIMIT = 500_000
"""The most bytes of custom metadata. A metadata service takes about 1,000,000 for all metadata of a ledger."""


def whole(name: str, value: Any, least: int, most: int = LARGEST) -> int:
    """Check a whole number from ``least`` to ``most``."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise OptionError(f"{name} is {_shown(value)}: give a whole number")
    number = value.__index__()
    if not least <= number <= most:
        raise OptionError(f"{name} is {number}: give {f'at least {least}' if number < least else f'at most {most}'}")
    return int(number)


def seconds(name: str, value: Any, *, may_be_none: bool = True) -> float:
    """Check a time in seconds. ``may_be_none``: it may be 0."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < 0 or (value == 0 and not may_be_none):
        least = "0 or more" if may_be_none else "more than 0"
        raise OptionError(f"{name} is {_shown(value)}: give seconds, {least}")
    return float(value)


def ledger_id(value: Any) -> int:
    """Check the id of a ledger."""
    return whole("ledger", value, 0)


def password(value: Any) -> bytes:
    """A password as bookies use it. Text becomes UTF-8."""
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes | bytearray | memoryview):
        raise OptionError(f"password is of type {type(value).__name__}: give bytes or a text")
    return bytes(value)


def custom_metadata(value: Any) -> tuple[tuple[str, bytes], ...]:
    """Check the caller's own metadata. Gives the pairs sorted by name."""
    pairs = {} if value is None else value
    if not isinstance(pairs, Mapping):
        raise OptionError(f"custom_metadata is {_shown(value)}: give texts with their bytes")
    for key, each in pairs.items():
        if not isinstance(key, str) or not isinstance(each, bytes | bytearray | memoryview):
            raise OptionError(f"custom_metadata has {_shown(key)} with {_shown(each)}: give a text with bytes")
    custom = tuple(sorted((key, bytes(each)) for key, each in pairs.items()))
    size = sum(len(key.encode(errors="replace")) + len(each) for key, each in custom)
    if size > CUSTOM_LIMIT:
        raise OptionError(f"custom_metadata has {size:,} bytes: give at most {CUSTOM_LIMIT:,}")
    return custom


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}..."
