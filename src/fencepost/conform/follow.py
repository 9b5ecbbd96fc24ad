"""Follows a protocol along steps that somebody else says were taken.

The author's Python is run as everywhere: a step reads, chooses and writes the state. A choice is not explored: it is taken as the trace says.
What was read and written is kept as a path of a decision trie, one for each action with its parameters and picks, as the compiler
does; whoever comes the same way again walks the trie, whichever trace it is, and no Python of the author is run.
"""

from __future__ import annotations

import linecache
import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from fencepost.errors import FencepostError
from fencepost.spec.context import Disabled, Event, Slot, current
from fencepost.spec.protocol import Declared, Protocol
from fencepost.spec.values import NotAValue, Record, Value, freeze, show
from fencepost.step.state import State, Store, encode_path

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_LANGUAGE = tuple(os.path.join(_PACKAGE, room, "") for room in ("spec", "conform", "step"))


@dataclass(frozen=True)
class Like:
    """Picks a record by some of its fields, each named by its path, such as ``entry.id``; the fields and their values."""

    fields: tuple[tuple[str, Value], ...]

    def matches(self, value: Any) -> bool:
        """Whether a value has these fields."""
        for path, wanted in self.fields:
            found = value
            for name in path.split("."):
                if not isinstance(found, Record):
                    return False
                found = getattr(found, name, None)
            if found != wanted:
                return False
        return True

    def __str__(self) -> str:
        return " and ".join(f"{path}={show(value)}" for path, value in self.fields)


@dataclass(frozen=True)
class Has:
    """A set that has a value, and perhaps others."""

    value: Value

    def matches(self, value: Any) -> bool:
        """Whether the value is in this set."""
        return isinstance(value, frozenset) and self.value in value

    def __str__(self) -> str:
        return f"it has {show(self.value)}"


def like(**fields: Value) -> Like:
    """Picks the record with these fields; ``entry__id`` names the field ``id`` of ``entry``."""
    return Like(tuple((name.replace("__", "."), value) for name, value in sorted(fields.items())))


Pick: TypeAlias = Hashable
"""What is to be chosen: a value, or a record that is :class:`Like` something."""


@dataclass(frozen=True)
class Refused:
    """Why a step can not be taken. ``where``: the file and the line of what refused it, ``asked``: the text of that line."""

    reason: str
    where: str = ""
    asked: str = ""

    def __str__(self) -> str:
        return f"{self.reason}{f' at {self.where}' if self.where else ''}{f': {self.asked}' if self.asked else ''}"


@dataclass(frozen=True)
class Taken:
    """What a step does: the slots that it writes, with their new values by number; what it chose, and what it told."""

    writes: tuple[tuple[int, int], ...]
    labels: tuple[Value, ...]
    events: tuple[Event, ...]


class _Unhashed(Store):
    """Slots and values without fingerprints, which nobody asks for here."""

    def _hash(self, slot: Slot, value: Value) -> int:
        return 0


class _Unpicked(BaseException):
    """A choice has no option as it was to be picked."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class _Cursor:
    """One evaluation of an action in a row, with its choices picked."""

    every_choice = True
    """Choices of a single option are asked for too."""

    def __init__(self, store: Store, row: list[int], picks: Sequence[Pick]) -> None:
        self.store = store
        self.row = row
        self.picks = picks
        self.disabled = False
        self.trail: dict[int, int] = {}
        self.writes: dict[int, int] = {}
        self.labels: list[Value] = []
        self.events: list[Event] = []

    def read(self, slot: Slot) -> Value:
        index = self.store.slot(slot)
        number = self.writes.get(index)
        if number is None:
            row = self.row
            if index >= len(row):
                row.extend([0] * (len(self.store.slots) - len(row)))
            number = self.trail[index] = row[index]
        return self.store.values[index][number]

    def write(self, slot: Slot, value: Value) -> None:
        self.read(slot)
        index = self.store.slot(slot)
        try:
            self.writes[index] = self.store.intern(index, freeze(value))
        except NotAValue as error:
            raise NotAValue(f"{slot.name} is assigned {error}") from None

    def choose(self, options: Sequence[Value]) -> Value:
        if len(self.labels) == len(self.picks):
            if len(options) == 1:
                return options[0]
            raise _Unpicked(f"the conformance does not say which of {len(options):,} options to pick: {_some(options)}")
        wanted = self.picks[len(self.labels)]
        if type(wanted) is not Like:
            if wanted in options:  # of a range that is known without a look at each
                self.labels.append(wanted)
                return wanted
        else:
            for option in options:
                if wanted.matches(option):
                    self.labels.append(option)
                    return option
        raise _Unpicked(f"there is no {_said(wanted)} among {_some(options)}")

    def tell(self, event: Event) -> None:
        self.events.append(event)


def _said(wanted: Pick) -> str:
    return str(wanted) if type(wanted) is Like else show(wanted)


def _some(options: Sequence[Value]) -> str:
    named = ", ".join(show(option) for option in list(options)[:5])
    return f"{named}, and {len(options) - 5:,} more" if len(options) > 5 else named


class Follower:
    """A protocol with its constants, and all that was learnt of its steps. It can follow one trace after another.

    ``evaluations``: how often the author's Python was run; ``walked``: how often it was not. ``fingerprints``: whether somebody will ask for those of states.
    """

    def __init__(self, protocol: Protocol, fingerprints: bool = False) -> None:
        self.protocol = protocol
        self.store: Store = Store(protocol) if fingerprints else _Unhashed(protocol)
        self.actions: dict[str, Declared] = {declared.name: declared for declared in protocol.declared("action")}
        self.evaluations = self.walked = 0
        self._tries: dict[Hashable, Any] = {}
        self._places: dict[tuple[Any, ...], int] = {}

    def initial(self) -> list[int]:
        """The row of the initial state, in which everything is as declared."""
        setups = self.protocol.declared("initial")
        row: list[int] = [0] * len(self.store.slots)
        for setup in setups[:1]:
            found = self._evaluate(setup, row, {}, ())
            if isinstance(found, Refused):
                raise FencepostError(f"the initial state is not to be had: {found}")
            self.apply(row, found[0].writes)
        return row

    def step(self, row: list[int], action: str, parameters: tuple[tuple[str, Value], ...], picks: tuple[Pick, ...]) -> Taken | Refused:
        """What an action does in a state, which stays as it is; or why it can not be taken.

        Raises :class:`fencepost.FencepostError` if there is no such action.
        """
        key = (action, parameters, picks)
        node = self._tries.get(key)
        while type(node) is _Node:
            slot = node.slot
            child = node.children.get(row[slot] if slot < len(row) else 0)
            if child is None:
                break
            node = child
        else:
            if node is not None:
                self.walked += 1
                return node  # type: ignore[no-any-return]
        declared = self.actions.get(action)
        if declared is None:
            raise FencepostError(f"{self.protocol.name} has no action {action}")
        found = self._evaluate(declared, row, dict(parameters), picks)
        if isinstance(found, Refused):
            self._learn(key, found, self._trail)
            return found
        self._learn(key, found[0], found[1])
        return found[0]

    def apply(self, row: list[int], writes: tuple[tuple[int, int], ...]) -> list[tuple[int, int]]:
        """Write to a row; what was there before, to write it back."""
        before = []
        for slot, number in writes:
            if slot >= len(row):
                row.extend([0] * (len(self.store.slots) - len(row)))
            before.append((slot, row[slot]))
            row[slot] = number
        return before

    def value(self, row: list[int], path: tuple[Any, ...]) -> Value:
        """What a part of a state holds; ``path`` names it, as in ``("client", c1, "lac")``. Raises ``KeyError`` if there is none."""
        index = self._places.get(path)
        if index is None:
            index = self._places[path] = self.store._index[encode_path(path)]
        return self.store.values[index][row[index] if index < len(row) else 0]

    def state(self, row: list[int]) -> State:
        """A row as a state for people."""
        return State(self.store, row)

    def _learn(self, key: Hashable, leaf: Taken | Refused, trail: Mapping[int, int]) -> None:
        """Enter a path into its trie."""
        if not trail:
            self._tries[key] = leaf
            return
        read = list(trail.items())
        node: Any = self._tries.get(key)
        if node is None:
            node = self._tries[key] = _Node(read[0][0])
        for depth, (slot, number) in enumerate(read):
            if node.slot != slot:
                raise FencepostError(f"{key} is not deterministic: it must depend on the state alone")
            child = node.children.get(number)
            if child is None:
                child = _Node(read[depth + 1][0]) if depth + 1 < len(read) else leaf
                node.children[number] = child
            node = child

    def _evaluate(
        self, declared: Declared, row: list[int], parameters: dict[str, Value], picks: tuple[Pick, ...]
    ) -> tuple[Taken, dict[int, int]] | Refused:
        self.evaluations += 1
        cursor = _Cursor(self.store, row, picks)
        self._trail = cursor.trail
        token = current.set(cursor)
        try:
            declared.function(self.protocol.bound_to(cursor), **parameters)
        except Disabled as disabled:
            return _refusal(disabled, "is not enabled")
        except _Unpicked as unpicked:
            return _refusal(unpicked, unpicked.reason)
        finally:
            current.reset(token)
        if len(cursor.labels) < len(picks):
            return Refused(f"nothing is chosen where {_said(picks[len(cursor.labels)])} was to be picked")
        before = cursor.trail
        writes = tuple((slot, number) for slot, number in cursor.writes.items() if before[slot] != number)
        return Taken(writes, tuple(cursor.labels), tuple(cursor.events)), before


class _Node:
    """A slot that is read, and where to go on by the number of its value."""

    __slots__ = ("children", "slot")

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.children: dict[int, Any] = {}


def _refusal(raised: BaseException, reason: str) -> Refused:
    """Which line of the author asked for something that is not so."""
    frame, found = raised.__traceback__, None
    while frame is not None:
        name = frame.tb_frame.f_code.co_filename
        if not name.startswith(_LANGUAGE):
            found = name, frame.tb_lineno
        frame = frame.tb_next
    if found is None:
        return Refused(reason)
    above = next((folder for folder in (os.path.dirname(_PACKAGE), os.getcwd()) if found[0].startswith(os.path.join(folder, ""))), "")
    where = os.path.relpath(found[0], above) if above else found[0]
    return Refused(reason, f"{where}:{found[1]}", linecache.getline(*found).strip())


