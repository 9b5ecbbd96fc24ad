"""Replays the steps of a trace against a protocol.

A step runs the author's Python, which reads, chooses and writes the state. Its choices take the options that the trace
names. Where the trace leaves a parameter or a choice open, the step is a list of steps that name one value each. The
reads and writes of a step are cached as a path in a decision trie, as the compiler does it, with one trie for each
action with its parameters and picks. A later step that reads the same values, of any trace, is answered from the trie
without running Python.
"""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from inspect import unwrap
from itertools import product
from math import inf, prod
from operator import itemgetter
from types import FrameType
from typing import Any, TypeAlias

import msgspec

from fencepost.errors import ProtocolRaised, naming_extra
from fencepost.language.context import Disabled, Event, InOrder, Slot, current
from fencepost.language.declarations import Declared
from fencepost.language.fields import EachOf, Leaf, PerKeyShape, Shape, Struct
from fencepost.language.network import FATES, NetworkShape
from fencepost.language.protocol import Protocol
from fencepost.language.values import (
    ModelValue,
    NotAValue,
    Record,
    Value,
    encode,
    freeze,
    kind_of,
    same,
    show,
    show_call,
)
from fencepost.semantics.authors import failure_text
from fencepost.semantics.state import ValueTable, encode_path
from fencepost.text.plain import meant
from fencepost.traces.validation.steps import ANY, Like, Matcher, Parameters, Pick, Step, Way

MOST_OPEN = 10_000
"""The most values that a part of a step may have where the trace leaves it open."""

CACHE_LIMIT = 250_000
"""Evaluations after which the cache is cleared. One evaluation of the store's protocol takes some 3 KiB. For 3,000 runs
of the store's simulator, 100,000 cost a quarter more time, and 500,000 save none.
"""

RARE = 8
"""A cache that has answered fewer than one in as many steps, over :data:`MANY` evaluations, is cleared: each step of a
long trace is about entries of its own.
"""

MANY = 20_000

PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LANGUAGE = tuple(os.path.join(PACKAGE, room, "") for room in ("language", "semantics", "traces"))
"""Folders whose frames are not the author's: a refusal is reported at the last frame outside of them."""


@dataclass(frozen=True)
class Refused:
    """Why a step cannot be taken. ``where``: file and line of the condition that failed; ``asked``: the text of that
    line.
    """

    reason: str
    where: str = ""
    asked: str = ""

    def __str__(self) -> str:
        return f"{self.reason}{f' at {self.where}' if self.where else ''}{f': {self.asked}' if self.asked else ''}"


Writes: TypeAlias = tuple[tuple[int, int], ...]
"""The slots that a step writes, with the numbers of their new values."""


class Taken(msgspec.Struct, frozen=True, gc=False):
    """A replayed step: the slots that it writes with the numbers of their new values, its choices, and its events."""

    writes: Writes
    labels: tuple[Value, ...]
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Open:
    """What a step may be where the trace leaves a part of it open: the action, parameters and picks of each.
    ``is_fate``: what is open is whether a message is lost; the first way delivers it.
    """

    ways: tuple[Way, ...]
    is_fate: bool = False


class _LazySlots(ValueTable):
    """A table that numbers slots when a step first touches them: a trace touches few of thousands. It computes no
    fingerprints. Slots with the same default share their values, since a long trace has many slots, each of few values.
    """

    def _declare(self) -> None:
        self._domains: dict[bytes, tuple[dict[bytes, int], list[int], list[Value]]] = {}

    def _domain(self, slot: Slot) -> tuple[dict[bytes, int], list[int], list[Value]]:
        code = encode(slot.default)
        return self._domains.setdefault(code, ({code: 0}, [0], [slot.default]))

    def _hash(self, slot: Slot, value: Value) -> int:
        return 0

    @property
    def size(self) -> int:
        """How many slots and values it has."""
        return len(self.slots) + sum(len(values) for _, _, values in self._domains.values())

    def reduced(
        self, rows: Sequence[list[int]], writes: Sequence[Writes]
    ) -> tuple[_LazySlots, list[list[int]], list[Writes]]:
        """A table of what rows and writes hold, and these with its numbers. The other slots hold their default, as all
        do that no table has yet.
        """
        made = _LazySlots(self.protocol)
        held = {index for row in rows for index, number in enumerate(row) if number}
        held.update(index for some in writes for index, _ in some)
        places = [0] * len(self.slots)
        domains: dict[int, tuple[tuple[dict[bytes, int], list[int], list[Value]], dict[int, int]]] = {}
        for index, path in enumerate(self._index):
            if index in held:
                slot, ids = self.slots[index], self._ids[index]
                domain = domains.get(id(ids))
                if domain is None:
                    domain = domains[id(ids)] = made._domain(slot), {0: 0}
                places[index] = made._index[path] = len(made.slots)
                made.slots.append(slot)
                for each, mine in zip((made._ids, made.hashes, made.values), domain[0], strict=True):
                    each.append(mine)  # type: ignore[attr-defined]

        def numbered(index: int, number: int) -> int:
            known = domains[id(self._ids[index])][1]
            if number not in known:
                known[number] = made.intern(places[index], self.values[index][number])
            return known[number]

        fresh = [[0] * len(made.slots) for _ in rows]
        for row, mine in zip(rows, fresh, strict=True):
            for index, number in enumerate(row):
                if number:
                    mine[places[index]] = numbered(index, number)
        return made, fresh, [tuple((places[index], numbered(index, n)) for index, n in some) for some in writes]


class _Unpicked(BaseException):
    """A choice does not offer the option to pick, or the conformance does not name one."""

    def __init__(self, reason: str, wants_less: bool = False) -> None:
        self.reason = reason
        self.wants_less = wants_less
        """Whether fewer options may do."""


class _LeftOpen(BaseException):
    """A choice whose option is left open. ``before``: what the choices before it took; ``rest``: the picks after it."""

    def __init__(self, options: Sequence[Value], before: tuple[Pick, ...], rest: tuple[Pick, ...]) -> None:
        self.picks = [(*before, option, *rest) for option in options]
        self.is_fate = options is FATES


class Evaluation:
    """One evaluation of an action in a state (a row of value numbers), with the options that its choices take. After it
    has ended, :meth:`begin` makes it the next one.
    """

    __slots__ = (
        "chosen", "disabled", "events", "labels", "numbered", "picks", "row", "stopped", "store", "trail", "writes",
    )  # fmt: skip

    every_choice = True
    """:meth:`choose` is called for choices of a single option too."""

    def __init__(self, store: ValueTable, row: list[int], picks: Sequence[Pick]) -> None:
        self.store = store
        self.numbered = store.numbered
        self.begin(row, picks)

    def begin(self, row: list[int], picks: Sequence[Pick]) -> None:
        """Begin an evaluation in this state. What the one before came to is the caller's."""
        self.row = row
        self.picks = picks
        self.disabled = False
        self.stopped: _Unpicked | _LeftOpen | None = None
        """A choice that could not be taken. It ends the evaluation, even if the author's Python goes on."""
        self.trail: dict[int, int] = {}
        self.writes: dict[int, int] = {}
        self.labels: list[Value] = []
        self.chosen: list[Value] = []
        """What its choices took, with those that had a single option."""
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
        place = len(self.labels)
        wanted = self.picks[place] if place < len(self.picks) else ...
        if wanted is ...:
            if len(options) == 1:
                self.chosen.append(options[0])
                return options[0]
            if place < len(self.picks) or options is FATES:
                raise self._left_open(options, place)
            raise self._stop(
                _Unpicked(
                    f"the conformance does not say which of {len(options):,} options to pick: {_some(options)}",
                    wants_less=True,
                )
            )
        if wanted is ANY:
            raise self._left_open(options, place + 1)
        if options is FATES and wanted not in FATES:
            raise self._left_open(options, place)
        if not isinstance(wanted, Matcher):
            if options is FATES or _offers(options, wanted):
                self.labels.append(wanted)
                self.chosen.append(wanted)
                return wanted
        else:
            matching = [option for option in options if wanted.matches(option)]
            if len(matching) > 1:
                raise self._left_open(matching, place + 1)
            for option in matching:
                self.labels.append(option)
                self.chosen.append(option)
                return option
        raise self._stop(_Unpicked(f"there is no {_shown(wanted)} among {_some(options)}"))

    def _left_open(self, options: Sequence[Value], rest: int) -> BaseException:
        if len(options) > MOST_OPEN:
            return self._stop(
                _Unpicked(
                    f"a choice of {len(options):,} options is left open, and at most {MOST_OPEN:,} are tried",
                    wants_less=True,
                )
            )
        return self._stop(_LeftOpen(options, tuple(self.chosen), tuple(self.picks[rest:])))

    def _stop(self, reason: _Unpicked | _LeftOpen) -> BaseException:
        self.stopped = self.stopped or reason
        return reason

    def emit(self, event: Event) -> None:
        self.events.append(event)


def _offers(options: Sequence[Value], wanted: Value) -> bool:
    """Whether this value is an option, by type and content. Ranges and the author's own collections answer without
    iteration.
    """
    if type(options) in (tuple, list, InOrder):
        return any(same(option, wanted) for option in options)
    return wanted in options and (type(wanted) is int or not isinstance(options, range))


def _kind(wanted: Pick) -> Hashable:
    kind = type(wanted)
    if kind in _PLAIN:
        return kind
    if isinstance(wanted, Matcher):
        return wanted.code
    return kind if wanted is ANY or wanted is ... else kind_of(wanted)


_PLAIN = frozenset((int, str, bool, ModelValue))
"""Types of values that no value of another type in here contains."""


def _shown(wanted: Pick) -> str:
    return str(wanted) if isinstance(wanted, Matcher) else show(wanted)


def _some(options: Sequence[Value]) -> str:
    named = ", ".join(show(option) for option in options[:5])
    return f"{named}, and {len(options) - 5:,} more" if len(options) > 5 else named


Evaluated: TypeAlias = tuple[Taken, dict[int, int]] | Refused | _LeftOpen
"""What an evaluation comes to: its effects and what it reads, why it cannot be, or a choice that is left open."""


class Replayer:
    """Replays traces against a protocol with fixed constants, one after another, and caches evaluated steps.

    ``evaluations``: how often the author's Python ran; ``cache_hits``: how often a step came from the cache. The cache
    is cleared after ``cache_limit`` evaluations, even within a trace. ``fingerprints``: whether fingerprints of states
    are needed.
    """

    def __init__(self, protocol: Protocol, fingerprints: bool = False, cache_limit: int = CACHE_LIMIT) -> None:
        self.protocol = protocol
        self.store: ValueTable = ValueTable(protocol) if fingerprints else _LazySlots(protocol)
        self.actions: dict[str, Declared] = {declared.name: declared for declared in protocol.declared("action")}
        self._setups = protocol.declared("initial")
        self._networks = [shape for shape in protocol.shapes.values() if isinstance(shape, NetworkShape)]
        self._found = set[tuple[str, bool]]()
        """The paths of ``like(...)`` that something may have; whether messages may."""
        self._wants_less = False
        self.is_thorough = self.has_passed_over = False
        """Whether no way is passed over; whether one that loses a message has been."""
        self.evaluations = self.cache_hits = 0
        self.cache_limit = cache_limit
        self._remembered = self._hits_before = 0
        self.remembers, self.is_useless = True, False
        """Whether steps are cached; whether the cache has been of no use for the present trace."""
        self._bound: tuple[Evaluation, Any] | None = None
        """An evaluation, and the protocol that is bound to it. What is looked at in one is found at once in the next.
        """
        self._origin: ValueTable | None = None
        """The table of the replayer that this one is apart from. They share the protocol."""
        self._tries: dict[Hashable, Any] = {}
        self._readers: dict[tuple[int, ...], tuple[tuple[int, ...], Callable[[list[int]], Any]]] = {}
        self._places: dict[tuple[Any, ...], int] = {}
        self._members: dict[str, Mapping[str, Sequence[Value]]] = {}
        """The values of each parameter, by action."""
        self.footprints: dict[Hashable, tuple[dict[Any, set[int]], dict[int, dict[Any, None]]]] = {}
        """For some hidden steps: the slots that each has written, by action and parameters, and the other way round."""

    def initial(self) -> list[int]:
        """The row of the initial state, the first if there are several."""
        return next(self.initials())

    def initials(self) -> Iterator[list[int]]:
        """The rows of the initial states, in the order of their choices."""
        self.is_useless = False
        setups = self._setups
        if not setups:
            yield [0] * len(self.store.slots)
            return
        left: list[tuple[Pick, ...]] = [(...,)]
        known = set[tuple[int, ...]]()
        refused: Refused | None = None
        while left:
            row: list[int] = [0] * len(self.store.slots)
            picks = left.pop()
            found = self.evaluate(setups[0], row, {}, picks)
            if isinstance(found, _LeftOpen):
                left += reversed(found.picks)
            elif isinstance(found, Refused):
                refused = found
            else:
                self.apply(row, found[0].writes)
                normal = self.store.normal(row)
                if normal not in known:
                    known.add(normal)
                    yield row
        if not known:
            raise ProtocolRaised(f"the initial state is not to be had: {refused}")

    def step(
        self, row: list[int], action: str, parameters: Parameters, picks: tuple[Pick, ...]
    ) -> Taken | Refused | Open:
        """The effects of an action in a state, the reason why it cannot be taken, or what it may be where a parameter
        or a choice is left open. The state is not changed.

        Raises :class:`fencepost.ProtocolRaised` if there is no such action, or if the action raises.
        """
        if len(row) < len(self.store.slots):
            row.extend([0] * (len(self.store.slots) - len(row)))
        try:
            key = _key(action, parameters, picks) if self.remembers else ()
            node = self._tries.get(key)
        except TypeError as error:
            raise ProtocolRaised(f"a parameter or a pick of {action} is no value: {error}") from error
        while type(node) is _Node:
            node = node.children.get(row[node.slot])
        if type(node) is _Chain:
            node = node.leaf if node.read(row) == node.numbers else None
        if node is not None:
            self.cache_hits += 1
            return node  # type: ignore[no-any-return]
        several = self._with(parameters) if action is ANY else self.alternatives(action)
        if several:
            opened = Open(tuple((each, self.complete(each, parameters), picks or (...,)) for each in several))
            self._remember(key, opened, {})
            return opened
        declared = self.declared(action, parameters)
        if any(value is ANY or isinstance(value, Matcher) for _, value in parameters):
            opened = Open(tuple((action, each, picks) for each in self._bindings(declared, parameters)))
            self._remember(key, opened, {})
            return opened
        found = self.evaluate(declared, row, dict(parameters), picks)
        if isinstance(found, _LeftOpen):
            opened = Open(tuple((action, parameters, each) for each in found.picks), found.is_fate)
            self._remember(key, opened, self._trail)
            return opened
        if isinstance(found, Refused):
            self._remember(key, found, self._trail)
            return found
        self._remember(key, found[0], found[1])
        return found[0]

    def ways(
        self, row: list[int], action: str, parameters: Parameters, picks: tuple[Pick, ...]
    ) -> Iterator[tuple[Way, Taken | Refused]]:
        """Every way to take an action in a state, with nothing left open; but none that loses a message as long as
        that cannot help. Raises as :meth:`step`.
        """
        found = self.step(row, action, parameters, picks)
        if isinstance(found, Open):
            for way in found.ways:
                yield from self.ways(row, *way)
                if found.is_fate and not self.losses_matter:
                    self.has_passed_over = True
                    break
        else:
            yield (action, parameters, picks), found

    @property
    def losses_matter(self) -> bool:
        """Whether a step has been evaluated that may need a message to be lost. Others can do all the more, the more
        is in flight.
        """
        return self.is_thorough or self._wants_less or any(network.looked_into for network in self._networks)

    def reads(self, row: list[int], action: str, parameters: Parameters, picks: tuple[Pick, ...]) -> set[int]:
        """The slots that a step reads or writes in a state. Raises as :meth:`step`."""
        self.remembers = True
        self.step(row, action, parameters, picks)
        node = self._tries.get(_key(action, parameters, picks))
        found = set[int]()
        while type(node) is _Node:
            found.add(node.slot)
            node = node.children.get(row[node.slot])
        return found.union(node.slots) if type(node) is _Chain else found

    def all_reads(self, row: list[int], action: str, parameters: Parameters, picks: tuple[Pick, ...]) -> set[int]:
        """The slots that a step reads or writes in a state, in any of the ways that are left open. Raises as
        :meth:`step`.
        """
        found = self.step(row, action, parameters, picks)
        reads = self.reads(row, action, parameters, picks)
        return reads.union(*(self.all_reads(row, *way) for way in found.ways)) if isinstance(found, Open) else reads

    def adapted(self, step: Step) -> Step:
        """A step of a conformance as this replays it."""
        return step

    def unknown(self, step: Step) -> str:
        """What a step names that nothing can be or have, whatever a system does: a field of records that it picks or
        compares, a receiver. In words; empty if there is none.
        """
        found = ""
        for _, wanted in step.tells:
            found = found or self._unknown_field(wanted, True)
        for pick in step.picks:
            if type(pick) is Like:
                found = found or self._unknown_field(pick, False)
        for parts in (step.parameters, step.before, step.after):
            for _, value in parts:
                if type(value) is Like:
                    found = found or self._unknown_field(value, False)
        for end in step.to or ():
            if not isinstance(end, ModelValue):
                return f"{end!r} as a receiver (to), and the ends of networks are model values"
        return found

    def _unknown_field(self, wanted: Matcher, is_message: bool) -> str:
        for path, value in wanted.fields if isinstance(wanted, Like) else ():
            if (path, is_message) not in self._found:
                if problem := self._lacking(path, is_message):
                    return f"like({path.replace('.', '__')}={show(value)}), {problem}"
                self._found.add((path, is_message))
        return ""

    def _lacking(self, path: str, is_message: bool) -> str:
        """That no record has a field of this path; for a message, that none of the networks has. Else nothing."""
        name, protocol = self.protocol.name, type(self.protocol)
        messages = [kind for network in self._networks for kind in network.routes]
        own = [kind for kind in _records() if kind.__module__ == protocol.__module__]
        for place, part in enumerate(path.split(".")):
            if not any(_may_have(kind, part) for kind in (messages if is_message and not place else _records())):
                what = "record" if place else "message" if is_message else "message and no other record"
                fields = dict.fromkeys(field for kind in (not place and messages) or own for field in kind._fields)
                return f"and no {what} of {name} has a field {part}: there are {', '.join(fields) or 'none'}"
        return ""

    def alternatives(self, action: str) -> list[str]:
        """The actions that a name stands for, if it is none of an action. There are none in Python."""
        return []

    def complete(self, action: str, parameters: Parameters) -> Parameters:
        """The parameters of an action, where those that are not given may have any value."""
        given = dict(parameters)
        return (*parameters, *((name, ANY) for name in self.names(action) if name not in given))

    def names(self, action: str) -> Collection[str]:
        """The names of an action's parameters. None if there is no such action."""
        declared = self.actions.get(action)
        return declared.domains if declared is not None else ()

    def _with(self, parameters: Parameters) -> list[str]:
        """The actions that have these parameters, and maybe more."""
        return [each for each in self.actions if {name for name, _ in parameters} <= set(self.names(each))]

    def declared(self, action: str, parameters: Parameters) -> Declared:
        """An action of the protocol. Raises :class:`fencepost.ProtocolRaised` if it has none with these parameters."""
        declared = self.actions.get(action)
        if declared is None:
            raise ProtocolRaised(f"{self.protocol.name} has no action {action}: {meant(action, self.actions)}")
        names = self.names(action)
        if {name for name, _ in parameters} != set(names):
            raise ProtocolRaised(
                f"action {action} has the parameters {_listed(names)}, and the conformance gives"
                f" {_listed(name for name, _ in parameters)}"
            )
        return declared

    def _bindings(self, declared: Declared, parameters: Parameters) -> Iterator[Parameters]:
        """The parameters with every combination of values for those that are left open."""
        every = self._members.get(declared.name)
        if every is None:
            every = self._members[declared.name] = declared.members(self.protocol)
        open_to = [
            every[name] if value is ANY else [each for each in every[name] if value.matches(each)]
            if isinstance(value, Matcher) else (value,)
            for name, value in parameters
        ]  # fmt: skip
        count = prod(map(len, open_to))
        if count > MOST_OPEN:
            raise ProtocolRaised(
                f"action {declared.name} has {count:,} values of the parameters that are left open, and at most"
                f" {MOST_OPEN:,} are tried"
            )
        for values in product(*open_to):
            yield tuple(zip((name for name, _ in parameters), values, strict=True))

    def apply(self, row: list[int], writes: Writes) -> list[tuple[int, int]]:
        """Write to a row. Returns the old values, which undo the write."""
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
        index = self.place(path)
        return self.store.values[index][row[index] if index < len(row) else 0]

    def place(self, path: tuple[Any, ...]) -> int:
        """The slot of a part of a state. Raises as :meth:`value`."""
        index = self._places.get(path)
        if index is None:
            network = self.protocol.shapes.get(path[0]) if path else None
            if isinstance(network, NetworkShape):
                network.looked_into = True
            known = self.store.index_of(path)
            index = self._places[path] = known if known is not None else self.store.slot(self._slot(path))
        return index

    def in_order(self, changes: Iterable[tuple[Slot, Value, Value]]) -> list[tuple[Slot, Value, Value]]:
        """Changes of a state in the order of declaration. Parts that exist only once touched come last, in their
        order.
        """
        return sorted(changes, key=lambda change: self._rank(change[0].path))

    def _rank(self, path: tuple[Any, ...]) -> tuple[float, ...]:
        """A sort key: the position of a part of the state in its declaration."""
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
        """The slot of a declared part of the state. Raises ``KeyError`` if there is none at this path."""
        shape: Shape = self.protocol.shapes[path[0]]
        for key in path[1:]:
            part = shape.element(key)
            if part is None:
                raise KeyError(path)
            shape = part
        if not isinstance(shape, Leaf):
            raise KeyError(path)
        return next(shape.slots(path))

    def _remember(self, key: tuple[Any, ...], leaf: Taken | Refused | Open, trail: Mapping[int, int]) -> None:
        """Add a path to its trie."""
        if not self.remembers:
            return
        self._remembered += 1
        is_useless = not self._remembered % MANY and (self.cache_hits - self._hits_before) * RARE < MANY
        if is_useless or self._remembered > self.cache_limit:
            self.is_useless |= is_useless
            self._tries.clear()
            self._readers.clear()
            self._remembered = 1
        if self._remembered % MANY == 1:
            self._hits_before = self.cache_hits
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
        self, slots: tuple[int, ...], numbers: tuple[int, ...], leaf: Taken | Refused | Open
    ) -> _Chain | Taken | Refused | Open:
        """The rest of a path that no other evaluation shares."""
        if not slots:
            return leaf
        known = self._readers.get(slots)
        if known is None:
            known = self._readers[slots] = (slots, itemgetter(*slots))
        return _Chain(*known, numbers if len(slots) > 1 else numbers[0], leaf)

    # -- long traces ---------------------------------------------------------------------------------------------------

    def can_forget(self) -> bool:
        """Whether :meth:`apart` and :meth:`forget` are possible: what is asked about states is asked of rows alone."""
        return type(self) is Replayer and type(self.store) is _LazySlots

    def apart(self) -> Replayer:
        """Another replayer in the same state, which caches no steps and may forget. What this one knows stays."""
        made = Replayer(self.protocol, cache_limit=self.cache_limit)
        made.store, made.remembers, made._origin = self.store, False, self.store
        made._wants_less, made.is_thorough, made.has_passed_over = (
            self._wants_less,
            self.is_thorough,
            self.has_passed_over,
        )
        return made

    def forget(self, rows: Sequence[list[int]], writes: Sequence[Writes]) -> tuple[list[list[int]], list[Writes]]:
        """Forget the slots and values that are not in rows or writes. Returns these with the numbers that they have
        now. All other numbers are void.
        """
        assert isinstance(self.store, _LazySlots)
        self.store, rows, writes = self.store.reduced(rows, writes)
        self._tries.clear()
        self._readers.clear()
        self._places.clear()
        self._bound = None
        known = (*self.store.slots, *(self._origin.slots if self._origin is not None else ()))
        held = {slot.path for slot in known if not slot.constant}
        for shape in self.protocol.shapes.values():
            shape.forget(held)
        return rows, writes

    @property
    def size(self) -> int:
        """How many slots and values are known."""
        assert isinstance(self.store, _LazySlots)
        return self.store.size

    def evaluate(
        self, declared: Declared, row: list[int], parameters: dict[str, Value], picks: tuple[Pick, ...]
    ) -> Evaluated:
        """One evaluation of an action: its effects and what it reads, why it cannot be taken, or a choice that is left
        open.
        """
        self.evaluations += 1
        if self._bound is None:
            cursor = Evaluation(self.store, row, picks)
            self._bound = cursor, self.protocol.bound_to(cursor)
        cursor, bound = self._bound
        cursor.begin(row, picks)
        self._trail = cursor.trail
        token = current.set(cursor)
        try:
            declared.function(bound, **parameters)
        except (_Unpicked, _LeftOpen):
            pass  # the cursor keeps it
        except Disabled as disabled:
            if cursor.stopped is None:
                return _refusal(disabled, "is not enabled")
        except (Exception, SystemExit) as error:
            if cursor.stopped is None:
                title = show_call(declared.name, parameters)
                raise ProtocolRaised(f"{declared.kind} {title}{failure_text(error)}", where=title) from error
        finally:
            current.reset(token)
        if cursor.stopped is not None:
            return self._at_choice(cursor.stopped)
        if cursor.disabled:  # and the author's Python went on
            return Refused("is not enabled")
        if len(cursor.labels) < len(picks) and picks[len(cursor.labels)] is not ...:
            return self._chooses_less(declared, row, parameters, picks, len(cursor.labels))
        before = cursor.trail
        writes = tuple((slot, number) for slot, number in cursor.writes.items() if before[slot] != number)
        return Taken(writes, tuple(cursor.labels), tuple(cursor.events)), before

    def _at_choice(self, stopped: _Unpicked | _LeftOpen) -> Refused | _LeftOpen:
        """What an evaluation comes to that ends at a choice."""
        if isinstance(stopped, _LeftOpen):
            return stopped.with_traceback(None)  # its frames hold it, and so each other
        self._wants_less = self._wants_less or stopped.wants_less
        return _refusal(stopped, stopped.reason)

    def _chooses_less(
        self, declared: Declared, row: list[int], parameters: dict[str, Value], picks: tuple[Pick, ...], chosen: int
    ) -> Refused:
        """The refusal of an action that ended before it had offered all choices. It is evaluated again, to learn at
        which line it ends.
        """
        code, ended = unwrap(declared.function).__code__, 0

        def watch(frame: FrameType, what: str, value: Any) -> None:
            nonlocal ended
            if what == "return" and frame.f_code is code:
                ended = frame.f_lineno

        cursor = Evaluation(self.store, row, picks)
        token, before = current.set(cursor), sys.getprofile()
        sys.setprofile(watch)
        try:
            declared.function(self.protocol.bound_to(cursor), **parameters)
        finally:
            sys.setprofile(before)
            current.reset(token)
        choices = f"{chosen} choice{'' if chosen == 1 else 's'}" if chosen else "no choice"
        return Refused(
            f"{declared.name} offers {choices} here and ends, and the trace picks {_shown(picks[chosen])}",
            *_place(code.co_filename, ended),
        )


@dataclass(slots=True, eq=False)
class _Node:
    """A slot that is read, and the next node for each number of its value."""

    slot: int
    children: dict[int, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Chain:
    """The rest of a path that only one evaluation took: its slots, the numbers of their values (the bare number for one
    slot), and the result.
    """

    slots: tuple[int, ...]
    read: Callable[[list[int]], Any]
    numbers: Any
    leaf: Taken | Refused | Open


def _records(of: type[Record] = Record) -> Iterator[type[Record]]:
    """All classes of records that this process knows."""
    for each in of.__subclasses__():
        yield each
        yield from _records(each)


def _may_have(kind: type[Record], name: str) -> bool:
    """Whether records of a class may have a field, or another attribute, such as a property."""
    return name in kind._fields or hasattr(kind, name) or hasattr(kind, "__getattr__")


def specifications(file: str) -> Any:
    """What replays traces against specifications such as this file. Raises :class:`fencepost.OptionError` where the
    parser of TLA+ is not installed.
    """
    with naming_extra(file, "tla"):
        return import_module("fencepost.tla.replaying")


def _key(action: str, parameters: Parameters, picks: tuple[Pick, ...]) -> tuple[Any, ...]:
    """What one trie is for. It distinguishes values that Python takes for equal."""
    return (action, parameters, picks, *[_kind(value) for _, value in parameters], *map(_kind, picks))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def short(file: str, folders: Iterable[str]) -> str:
    """The path of a file relative to the first of these folders that contains it."""
    above = next((folder for folder in folders if file.startswith(os.path.join(folder, ""))), None)
    return file if above is None else os.path.relpath(file, above)


def _refusal(raised: BaseException, reason: str) -> Refused:
    """The refusal, with the author's line whose condition failed."""
    frame, found = raised.__traceback__, None
    while frame is not None:
        name = frame.tb_frame.f_code.co_filename
        if not name.startswith(LANGUAGE):
            found = name, frame.tb_lineno
        frame = frame.tb_next
    if found is None:
        return Refused(reason)
    return Refused(reason, *_place(*found))


def _place(file: str, line: int) -> tuple[str, str]:
    """A line as ``FILE:LINE``, and its text."""
    where = short(file, (os.path.dirname(PACKAGE), os.getcwd()))
    return f"{where}:{line}", linecache.getline(file, line).strip()
