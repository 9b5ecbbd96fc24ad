"""Compares what a system shows with a state of its protocol."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence, Set
from enum import Enum
from typing import Any

from fencepost.language.fields import View
from fencepost.language.values import Foreign, ModelValue, Record, Value


def matches(expected: Value, actual: Any) -> bool:
    """Whether a value of a system is a value of the protocol.

    Besides equal values: a string is the model value of that name; a name of an enum's member, or one of another enum
    with that name, is the member; a list is a tuple, or the set of its members; any set or mapping is one with matching
    members; a dictionary, or an object with these attributes, is a record with its fields.
    """
    if isinstance(expected, Foreign):
        expected = expected.python()
    if isinstance(expected, View):  # what `expected` took from the state, as it is there
        expected = expected.__value__()
    if isinstance(expected, ModelValue):
        return actual == expected if isinstance(actual, ModelValue) else str(actual) == expected.name
    if isinstance(expected, Enum):
        return expected is actual or expected.name == (actual.name if isinstance(actual, Enum) else actual)
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(expected, Record):
        return expected is actual or _fields_match(expected.__parts__(), actual)
    if isinstance(expected, Mapping):
        return isinstance(actual, Mapping) and _all_match(expected.items(), actual.items())
    if isinstance(expected, Set):
        return isinstance(actual, Set | list) and _all_match(expected, actual)
    if isinstance(expected, tuple | list):
        is_row = isinstance(actual, Sequence) or hasattr(actual, "popleft")
        return (
            is_row
            and not isinstance(actual, str | bytes)
            and len(expected) == len(actual)
            and all(map(matches, expected, actual))
        )
    return bool(expected == actual)


def _fields_match(parts: Mapping[str, Value], actual: Any) -> bool:
    if isinstance(actual, Mapping):
        return parts.keys() == actual.keys() and all(matches(part, actual[name]) for name, part in parts.items())
    if dataclasses.is_dataclass(actual) and {field.name for field in dataclasses.fields(actual)} != {*parts}:
        return False
    return all(hasattr(actual, name) and matches(part, getattr(actual, name)) for name, part in parts.items())


def _all_match(expected: Any, actual: Any) -> bool:
    """Whether each member has one that matches it, and no other is left."""
    left = list(actual)
    for member in expected:
        place = next((place for place, other in enumerate(left) if matches(member, other)), None)
        if place is None:
            return False
        del left[place]
    return not left
