"""Finds out whether a view only selects parts of the state, and which."""

from __future__ import annotations

import dis
from collections.abc import Callable
from typing import Any

from fencepost.language.context import Looking, Slot
from fencepost.language.fields import PerKeyView, RecordView, TableView, path_of
from fencepost.language.network import Network
from fencepost.language.seam import Model


def picked_parts(view: Callable[..., Any], protocol: Model) -> list[tuple[Any, ...]] | None:
    """The paths of the parts of the state that a view selects. None if it does anything else, or raises."""
    picker = _Picker()
    try:
        paths = _picked_paths(view(protocol.bound_to(picker)))
    except Exception:
        return None
    # A part that it read but did not return affects the result.
    return paths if paths is not None and _only_picks(view) and picker.read_paths <= set(paths) else None


class _Picked:
    """A placeholder for the value of a slot while a view is analysed. It can only be returned."""

    def __init__(self, path: tuple[Any, ...]) -> None:
        self.path = path

    def _used(self, *_: object) -> Any:
        raise TypeError

    __bool__ = __eq__ = __ne__ = __hash__ = _used


class _PickedCell:
    """A placeholder for the content of a slot that appears late. A table's value can be read, but not whether it
    exists. A channel of a network cannot be read.
    """

    def __init__(self, path: tuple[Any, ...]) -> None:
        self.path = path

    __bool__ = __iter__ = __len__ = _Picked._used

    def __getitem__(self, place: int) -> _Picked:
        return _Picked(self.path)


class _Picker(Looking):
    """A cursor that returns placeholders. A view that computes with one is not a mere selection."""

    def __init__(self) -> None:
        self.read_paths: set[tuple[Any, ...]] = set()

    def read(self, slot: Slot) -> Any:
        self.read_paths.add(slot.path)
        return _Picked(slot.path) if slot.constant else _PickedCell(slot.path)


def _only_picks(view: Callable[..., Any]) -> bool:
    """Whether a view's code only loads and groups values. ``x is None`` or a branch, for example, does more."""
    harmless = ("LOAD_", "BUILD_", "RETURN_", "RESUME", "COPY_FREE_VARS", "BINARY_SUBSCR", "EXTENDED_ARG", "NOP")
    return all(op.opname.startswith(harmless) for op in dis.get_instructions(view))


def _picked_paths(viewed: Any) -> list[tuple[Any, ...]] | None:
    if isinstance(viewed, _Picked):
        return [viewed.path]
    if isinstance(viewed, (RecordView, PerKeyView, TableView, Network)):
        return [path_of(viewed)]
    if type(viewed) in (tuple, list):
        parts = [_picked_paths(v) for v in viewed]
        return None if any(p is None for p in parts) else [path for p in parts for path in p or ()]
    return None
