"""The arguments that callers give, looked at before anything is done with them: each has the type and the range that it
needs, or :class:`fencepost.OptionError` says what to give.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fencepost.errors import OptionError

LARGEST = (1 << 63) - 1
"""The largest id of a ledger, and of an entry."""

CUSTOM_LIMIT = 500_000
"""Bytes of custom metadata, at most: a metadata service takes some 1,000,000 for all of a ledger's metadata."""


def whole(name: str, value: Any, least: int, most: int = LARGEST) -> int:
    """A whole number."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise OptionError(f"{name} is {_shown(value)}: give a whole number")
    number = value.__index__()
    if not least <= number <= most:
        raise OptionError(f"{name} is {number}: give {f'at least {least}' if number < least else f'at most {most}'}")
    return int(number)


def seconds(name: str, value: Any, *, may_be_none: bool = True) -> float:
    """A time in seconds. ``may_be_none``: it may be 0."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < 0 or (value == 0 and not may_be_none):
        least = "0 or more" if may_be_none else "more than 0"
        raise OptionError(f"{name} is {_shown(value)}: give seconds, {least}")
    return float(value)


def ledger_id(value: Any) -> int:
    """The id of a ledger."""
    return whole("ledger", value, 0)


def password(value: Any) -> bytes:
    """A password as bookies know it: UTF-8 if it is a text."""
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes | bytearray | memoryview):
        raise OptionError(f"password is of type {type(value).__name__}: give bytes or a text")
    return bytes(value)


def custom_metadata(value: Any) -> tuple[tuple[str, bytes], ...]:
    """Metadata of the caller's own, sorted by their names."""
    given = {} if value is None else value
    if not isinstance(given, Mapping):
        raise OptionError(f"custom_metadata is {_shown(value)}: give texts with their bytes")
    for key, each in given.items():
        if not isinstance(key, str) or not isinstance(each, bytes | bytearray | memoryview):
            raise OptionError(f"custom_metadata has {_shown(key)} with {_shown(each)}: give a text with bytes")
    made = tuple(sorted((key, bytes(each)) for key, each in given.items()))
    size = sum(len(key.encode(errors="replace")) + len(each) for key, each in made)
    if size > CUSTOM_LIMIT:
        raise OptionError(f"custom_metadata has {size:,} bytes: give at most {CUSTOM_LIMIT:,}")
    return made


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}..."
