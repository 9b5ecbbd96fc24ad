"""Copies of roles, so that one role can go several ways from its state."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec

from fencepost.store.entries import Digests
from fencepost.store.roles.adds import Adds, PlainLoops
from fencepost.store.roles.bookie import Bookie
from fencepost.store.roles.metadata import MetadataView
from fencepost.store.roles.reader import Reader
from fencepost.store.roles.recoverer import Recoverer
from fencepost.store.roles.writer import Writer

_OBJECTS = (Writer, Recoverer, Reader, Bookie, Adds, MetadataView)
"""Classes whose objects change, and are copied field by field."""

_SHARED = (Digests, PlainLoops)
"""Classes whose objects stay as they are."""


class Numbers(Iterator[int]):
    """Numbers from 1 on, as :func:`itertools.count` gives them, which can be copied."""

    def __init__(self, last: int = 0) -> None:
        self.last = last

    def __next__(self) -> int:
        self.last += 1
        return self.last


def copied(role: Any) -> Any:
    """A copy of a role that goes on by itself. Values that can not change are shared by both."""
    return _copied(role, {})


def _copied(value: Any, known: dict[int, Any]) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    found = known.get(id(value))
    if found is not None:
        return found
    copy: Any
    if kind is dict:
        copy = known[id(value)] = {}
        for key, each in value.items():
            copy[key] = _copied(each, known)
    elif kind is list or kind is deque:
        copy = known[id(value)] = kind()
        copy.extend(_copied(each, known) for each in value)
    elif kind is set or kind is array:
        copy = known[id(value)] = value.__class__(value) if kind is set else value[:]
    elif kind is Numbers:
        copy = known[id(value)] = Numbers(value.last)
    elif kind in _OBJECTS:
        copy = known[id(value)] = object.__new__(kind)
        for name, each in value.__dict__.items():
            copy.__dict__[name] = _copied(each, known)
    elif isinstance(value, msgspec.Struct) and not value.__struct_config__.frozen:
        # Its own copy function copies it shallowly; then each field is copied.
        copy = known[id(value)] = value.__copy__()  # type: ignore[attr-defined]
        for name in value.__struct_fields__:
            setattr(copy, name, _copied(getattr(value, name), known))
    else:
        return value
    return copy


_PLAIN = {int, str, bytes, bool, type(None), tuple, frozenset, float, *_SHARED}
