"""Follows a protocol along steps that somebody else says were taken.

The author's Python is run as everywhere: a step reads, chooses and writes the state. A choice is not explored: it is
taken as the trace says. The reads and writes of a step are kept as a path of a decision trie, one trie for each action
with its parameters and picks, as the compiler does. A later step that comes the same way, of whichever trace, walks the
trie, and no Python of the author is run.
"""

from __future__ import annotations

import linecache
import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import inf
from operator import itemgetter
from typing import Any, TypeAlias

from fencepost.errors import ProtocolRaised
from fencepost.language.context import Disabled, Event, InOrder, Slot, current
from fencepost.language.declarations import Declared
from fencepost.language.fields import EachOf, Leaf, PerKeyShape, Shape, Struct
from fencepost.language.protocol import Protocol
from fencepost.language.values import NotAValue, Record, Value, encode, freeze, kind_of, same, show, show_call
from fencepost.semantics.authors import failure_text
from fencepost.semantics.state import ValueTable, encode_path

MOST_LEARNT = 500_000
"""Evaluations of the author's Python after which what was learnt is forgotten: of the store, each takes some 3 KiB."""

PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LANGUAGE = tuple(os.path.join(PACKAGE, room, "") for room in ("language", "semantics", "traces"))
"""Folders whose frames are not the author's: a refusal is reported at the last frame outside of them."""


@dataclass(frozen=True)
class Like:
    """Picks a record by some of its fields, each named by its path, such as ``entry.id``; the fields and their
    values.
    """

    fields: tuple[tuple[str, Value], ...]

    def matches(self, value: Any) -> bool:
        """Whether a value has these fields."""
        for path, wanted in self.fields:
            found = value
            for name in path.split("."):
                if not isinstance(found, Record):
                    return False
                found = getattr(found, name, None)
            if not same(found, wanted):
                return False
        return True

    def __hash__(self) -> int:
        return hash(self.fields)

    def __str__(self) -> str:
        return " and ".join(f"{path}={show(value)}" for path, value in self.fields)


@dataclass(frozen=True)
class Has:
    """A set that has a value, and perhaps others."""

    value: Value

    def matches(self, value: Any) -> bool:
        """Whether the value is in this set."""
        held = frozenset.__iter__(value) if isinstance(value, frozenset) and self.value in value else ()
        return any(same(each, self.value) for each in held)

    def __str__(self) -> str:
        return f"it has {show(self.value)}"


def like(**fields: Value) -> Like:
    """Picks the record with these fields; ``entry__id`` names the field ``id`` of ``entry``."""
    return Like(tuple([(_path(name), fields[name]) for name in sorted(fields)]))


@cache
def _path(name: str) -> str:
    return name.replace("__", ".")


Pick: TypeAlias = Hashable
"""A choice that is wanted: a value, or a record that is :class:`Like` something."""


@dataclass(frozen=True)
class Refused:
    """Why a step cannot be taken. ``where``: the file and the line of what refused it, ``asked``: the text of that
    line.
    """

    reason: str
    where: str = ""
    asked: str = ""

    def __str__(self) -> str:
        return f"{self.reason}{f' at {self.where}' if self.where else ''}{f': {self.asked}' if self.asked else ''}"


@dataclass(frozen=True, slots=True)
class Taken:
    """A step that was taken: the slots that it writes, with their new values by number; its choices, and its events."""

    writes: tuple[tuple[int, int], ...]
    labels: tuple[Value, ...]
    events: tuple[Event, ...]


class _AsTouched(ValueTable):
    """Slots that are numbered when a step touches them, of thousands that a trace may never touch; without
    fingerprints, which nobody asks for.
    """

    def _declare(self) -> None:
        pass

    def _hash(self, slot: Slot, value: Value) -> int:
        return 0


class _Unpicked(BaseException):
    """A choice has no option as it was to be picked."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Evaluation:
    """One evaluation of an action in a row, with its choices picked."""

    every_choice = True
    """Choices of a single option are asked for too."""

    def __init__(self, store: ValueTable, row: list[int], picks: Sequence[Pick]) -> None:
        self.store = store
        self.numbered = store.numbered
        self.row = row
        self.picks = picks
        self.disabled = False
        self.trail: dict[int, int] = {}
        self.writes: dict[int, int] = {}
        self.labels: list[Value] = []
        self.events: list[Event] = []

    def read(self, slot: Slot) -> Value:
        known = self.numbered.get(id(slot))
        index = known[0] if known is not None else self.store.slot(slot)
        number = self.writes.get(index)
        if number is None:
            row = self.row
            number = self.trail[index] = row[index] if index < len(row) else 0
        return self.store.values[index][number]

    def write(self, slot: Slot, value: Value) -> None:
        known = self.numbered.get(id(slot))
        index = known[0] if known is not None else self.store.slot(slot)
        if index not in self.writes:
            row = self.row
            self.trail[index] = row[index] if index < len(row) else 0
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
            if _offers(options, wanted):
                self.labels.append(wanted)
                return wanted
        else:
            for option in options:
                if wanted.matches(option):
                    self.labels.append(option)
                    return option
        raise _Unpicked(f"there is no {_said(wanted)} among {_some(options)}")

    def emit(self, event: Event) -> None:
        self.events.append(event)


def _offers(options: Sequence[Value], wanted: Value) -> bool:
    """Whether this value is an option, by type and content. Of a range, and of what its author made for that, it is
    known without a look at each.
    """
    if type(options) in (tuple, list, InOrder):
        return any(same(option, wanted) for option in options)
    return wanted in options and (type(wanted) is int or not isinstance(options, range))


def _kind_of_pick(wanted: Pick) -> type | bytes:
    return encode(wanted.fields) if type(wanted) is Like else kind_of(wanted)


def _said(wanted: Pick) -> str:
    return str(wanted) if type(wanted) is Like else show(wanted)


def _some(options: Sequence[Value]) -> str:
    named = ", ".join(show(option) for option in list(options)[:5])
    return f"{named}, and {len(options) - 5:,} more" if len(options) > 5 else named


class Follower:
    """A protocol with its constants, and all that was learnt of its steps. It can follow one trace after another.

    ``evaluations``: how often the author's Python was run; ``walked``: how often it was not. The tries are
    forgotten after ``most_learnt`` evaluations, also within a trace. ``fingerprints``: whether somebody will ask for
    those of states.
    """

    def __init__(self, protocol: Protocol, fingerprints: bool = False, most_learnt: int = MOST_LEARNT) -> None:
        self.protocol = protocol
        self.store: ValueTable = ValueTable(protocol) if fingerprints else _AsTouched(protocol)
        self.actions: dict[str, Declared] = {declared.name: declared for declared in protocol.declared("action")}
        self.evaluations = self.walked = 0
        self.most_learnt = most_learnt
        self._learnt = 0
        self._tries: dict[Hashable, Any] = {}
        self._readers: dict[tuple[int, ...], tuple[tuple[int, ...], Callable[[list[int]], Any]]] = {}
        self._places: dict[tuple[Any, ...], int] = {}

    def initial(self) -> list[int]:
        """The row of the initial state, in which everything is as declared."""
        setups = self.protocol.declared("initial")
        row: list[int] = [0] * len(self.store.slots)
        for setup in setups[:1]:
            found = self.evaluate(setup, row, {}, ())
            if isinstance(found, Refused):
                raise ProtocolRaised(f"the initial state is not to be had: {found}")
            self.apply(row, found[0].writes)
        return row

    def step(
        self, row: list[int], action: str, parameters: tuple[tuple[str, Value], ...], picks: tuple[Pick, ...]
    ) -> Taken | Refused:
        """The effects of an action in a state, which stays as it is; or the reason why it cannot be taken.

        Raises :class:`fencepost.ProtocolRaised` if there is no such action, or if its own Python does.
        """
        key = (action, parameters, picks, *[kind_of(value) for _, value in parameters], *map(_kind_of_pick, picks))
        if len(row) < len(self.store.slots):
            row.extend([0] * (len(self.store.slots) - len(row)))
        node = self._tries.get(key)
        while type(node) is _Node:
            node = node.children.get(row[node.slot])
        if type(node) is _Chain:
            node = node.leaf if node.read(row) == node.numbers else None
        if node is not None:
            self.walked += 1
            return node  # type: ignore[no-any-return]
        declared = self.actions.get(action)
        if declared is None:
            raise ProtocolRaised(f"{self.protocol.name} has no action {action}")
        found = self.evaluate(declared, row, dict(parameters), picks)
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
        """The value of a part of a state; ``path`` names it, as in ``("client", c1, "lac")``. Raises ``KeyError`` if
        there is none.
        """
        index = self._places.get(path)
        if index is None:
            known = self.store.index_of(path)
            index = self._places[path] = known if known is not None else self.store.slot(self._slot(path))
        return self.store.values[index][row[index] if index < len(row) else 0]

    def in_order(self, changes: Iterable[tuple[Slot, Value, Value]]) -> list[tuple[Slot, Value, Value]]:
        """Changes of a state with its parts as they are declared. Those that appear when they are touched come last, in
        that order.
        """
        return sorted(changes, key=lambda change: self._rank(change[0].path))

    def _rank(self, path: tuple[Any, ...]) -> tuple[float, ...]:
        """The place of a part of the state among all that are declared."""
        names = list(self.protocol.shapes)
        if path[0] not in names:
            return (inf,)
        rank: list[float] = [names.index(path[0])]
        shape, depth = self.protocol.shapes[path[0]], 1
        while isinstance(shape, PerKeyShape | Struct):
            parts = shape.elements if isinstance(shape, PerKeyShape) else shape.parts
            keys = parts.keys_of if isinstance(parts, EachOf) else list(parts)
            rank.append(keys.index(path[depth]))
            shape, depth = parts[path[depth]], depth + 1
        if depth < len(path):
            places = {encode_path(slot.path): place for place, slot in enumerate(shape.slots(path[:depth]))}
            place = places.get(encode_path(path))
            return (inf,) if place is None else (*rank, place)
        return tuple(rank)

    def _slot(self, path: tuple[Any, ...]) -> Slot:
        """A part of the state that every state has. Raises ``KeyError`` if there is none of this path."""
        shape: Shape = self.protocol.shapes[path[0]]
        for key in path[1:]:
            part = shape.element(key)
            if part is None:
                raise KeyError(path)
            shape = part
        if not isinstance(shape, Leaf):
            raise KeyError(path)
        return next(shape.slots(path))

    def _learn(self, key: tuple[Any, ...], leaf: Taken | Refused, trail: Mapping[int, int]) -> None:
        """Enter a path into its trie."""
        self._learnt += 1
        if self._learnt > self.most_learnt:
            self._tries.clear()
            self._readers.clear()
            self._learnt = 1
        slots, numbers = tuple(trail), tuple(trail.values())
        children: dict[Any, Any] = self._tries
        at: Any = key
        depth = 0
        while (node := children.get(at)) is not None:
            if type(node) is _Chain:
                rest = self._chain(node.slots[1:], node.numbers[1:] if len(node.slots) > 1 else (), node.leaf)
                first = node.numbers[0] if len(node.slots) > 1 else node.numbers
                node = children[at] = _Node(node.slots[0])
                node.children[first] = rest
            if type(node) is not _Node or depth == len(slots) or node.slot != slots[depth]:
                raise ProtocolRaised(f"{key[:3]} is not deterministic: it must depend on the state alone")
            children, at = node.children, numbers[depth]
            depth += 1
        children[at] = self._chain(slots[depth:], numbers[depth:], leaf)

    def _chain(
        self, slots: tuple[int, ...], numbers: tuple[int, ...], leaf: Taken | Refused
    ) -> _Chain | Taken | Refused:
        """The rest of a path that no other evaluation has come."""
        if not slots:
            return leaf
        known = self._readers.get(slots)
        if known is None:
            known = self._readers[slots] = (slots, itemgetter(*slots))
        return _Chain(*known, numbers if len(slots) > 1 else numbers[0], leaf)

    def evaluate(
        self, declared: Declared, row: list[int], parameters: dict[str, Value], picks: tuple[Pick, ...]
    ) -> tuple[Taken, dict[int, int]] | Refused:
        self.evaluations += 1
        cursor = Evaluation(self.store, row, picks)
        self._trail = cursor.trail
        token = current.set(cursor)
        try:
            declared.function(self.protocol.bound_to(cursor), **parameters)
        except Disabled as disabled:
            return _refusal(disabled, "is not enabled")
        except _Unpicked as unpicked:
            return _refusal(unpicked, unpicked.reason)
        except (Exception, SystemExit) as error:
            title = show_call(declared.name, parameters)
            raise ProtocolRaised(f"{declared.kind} {title}{failure_text(error)}", where=title) from error
        finally:
            current.reset(token)
        if len(cursor.labels) < len(picks):
            return Refused(f"nothing is chosen where {_said(picks[len(cursor.labels)])} was to be picked")
        before = cursor.trail
        writes = tuple((slot, number) for slot, number in cursor.writes.items() if before[slot] != number)
        return Taken(writes, tuple(cursor.labels), tuple(cursor.events)), before


@dataclass(slots=True, eq=False)
class _Node:
    """A slot that is read, and where to go on by the number of its value."""

    slot: int
    children: dict[int, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Chain:
    """The rest of a path that only one evaluation has come: slots with the numbers of their values (of one slot, the
    number), and the end.
    """

    slots: tuple[int, ...]
    read: Callable[[list[int]], Any]
    numbers: Any
    leaf: Taken | Refused


def short(file: str, folders: Iterable[str]) -> str:
    """The path of a file from the first of these folders that it is in."""
    above = next((folder for folder in folders if file.startswith(os.path.join(folder, ""))), None)
    return file if above is None else os.path.relpath(file, above)


def _refusal(raised: BaseException, reason: str) -> Refused:
    """The refusal, with the line of the author that asked for something that is not so."""
    frame, found = raised.__traceback__, None
    while frame is not None:
        name = frame.tb_frame.f_code.co_filename
        if not name.startswith(LANGUAGE):
            found = name, frame.tb_lineno
        frame = frame.tb_next
    if found is None:
        return Refused(reason)
    where = short(found[0], (os.path.dirname(PACKAGE), os.getcwd()))
    return Refused(reason, f"{where}:{found[1]}", linecache.getline(*found).strip())
