"""Results of checks."""

from __future__ import annotations

from typing import Any

from fencepost import Protocol, check
from fencepost.api.result import Result

RESULTS: dict[str, Result] = {}


def result_of(protocol: Protocol, **options: Any) -> Result:
    """The result of checking ``protocol``, with options of :func:`check`. Each protocol is checked once."""
    if repr(protocol) not in RESULTS:
        RESULTS[repr(protocol)] = check(protocol, **options)
    return RESULTS[repr(protocol)]
