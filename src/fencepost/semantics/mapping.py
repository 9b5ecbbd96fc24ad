"""The mapping of a refinement: a state of one protocol as a state of another one, slot by slot.

A part of the other protocol's state comes from one of three sources: a part of this state with another name, a function
of this state, or a network whose messages are mapped one by one. The sources are resolved once. Values are read on
demand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fencepost.errors import Misbehaved, NotAProtocol, OptionError
from fencepost.language import refinement as spec
from fencepost.language.context import Cursor, Event, Slot, slot_name
from fencepost.language.fields import PerKeyShape, Shape, Struct, TableShape
from fencepost.language.network import CONNECTED, IN_FLIGHT, LOST, PROCESSED, NetworkShape
from fencepost.language.protocol import Protocol
from fencepost.language.seam import Model
from fencepost.language.values import Map, Message, NotAValue, Set, Value, freeze, show
from fencepost.semantics.state import ValueTable, encode_path
from fencepost.text.plain import meant


def wrong(name: str, what: str) -> NotAProtocol:
    """An error about the refinement of this name. ``what`` completes the sentence."""
    return NotAProtocol(f"refinement {name} {what}")


@dataclass(frozen=True)
class _Same:
    """A part that equals a part of this protocol's state, slot by slot. ``other`` and ``own`` are their paths."""

    other: tuple[Any, ...]
    own: tuple[Any, ...]
    shape: Shape


@dataclass(frozen=True, eq=False)
class Part:
    """A part that a function computes from this protocol's state and the keys on the path."""

    name: str
    function: Callable[..., Any]
    keys: tuple[Value, ...]
    other: tuple[Any, ...]
    shape: Shape


class _Route(NamedTuple):
    """A kind of message of the other protocol to which one of this protocol is mapped. ``there`` maps a message, and
    ``back`` is the inverse, if it is needed.
    """

    kind: type[Message]
    there: Callable[[Any], Any]
    back: Callable[[Any], Any] | None


@dataclass(frozen=True, eq=False)
class _Messages:
    """A network whose messages are mapped from those of a network of this protocol."""

    other: tuple[Any, ...]
    own: tuple[Any, ...]
    shape: NetworkShape
    own_shape: NetworkShape
    routes: dict[type[Message], list[_Route]]


_Source = _Same | Part | _Messages
_Counterpart = tuple[Shape, tuple[Any, ...]] | str
"""The part of this protocol's state with the same name as a part of the other one's, with its path. Or the reason why
there is none.
"""


class _Collector:
    """A cursor that collects assignments to a variable, starting from its declared value."""

    disabled = False

    def __init__(self) -> None:
        self.held: dict[bytes, tuple[Slot, Value]] = {}

    def read(self, slot: Slot) -> Value:
        held = self.held.get(encode_path(slot.path))
        return slot.default if held is None else held[1]

    def write(self, slot: Slot, value: Value) -> None:
        try:
            self.held[encode_path(slot.path)] = slot, freeze(value)
        except NotAValue as error:
            raise NotAValue(f"{slot.name} comes to {error}") from None

    def choose(self, options: Sequence[Value]) -> Value:
        raise NotAValue("a mapping cannot choose")

    def emit(self, event: Event) -> None:
        raise NotAValue("a mapping cannot send")


class StateMapping:
    """The mapping that a refinement of ``protocol`` declares. ``store`` and ``others`` are the value tables of the two
    protocols.

    ``parts`` are the computed parts. ``numbers`` are the numbers of their roots, which the caller sets. Raises
    :class:`fencepost.NotAProtocol` if the mapping does not fit the two protocols, and :class:`fencepost.OptionError` if
    their constants do not fit.
    """

    def __init__(
        self, declared: spec.Refinement, protocol: Model, store: ValueTable, other: Protocol, others: ValueTable
    ) -> None:
        self.name = declared.name
        self.given = declared.mapping
        self.protocol = protocol
        self.store = store
        self.other = other
        self.others = others
        self.parts: list[Part] = []
        self.numbers: dict[Part, int] = {}
        self._used: set[str] = set()
        self._sources: dict[bytes, _Source] = {}
        self._own: dict[bytes, list[_Same | _Messages]] = {}
        for name, shape in other.shapes.items():
            own = protocol.shapes.get(name)
            self._resolve(
                shape, (name,), (name,), (), f"{protocol.name} has no {name}" if own is None else (own, (name,))
            )
        unused = [key for key in self.given if key not in self._used]
        if unused:
            raise self._wrong(
                f"maps {unused[0]}, which is no part of a state of {other.name}: {meant(unused[0], self._places())}"
            )
        self._of: dict[int, _Source] = {}
        self._own_slots: dict[int, Slot] = {}
        self._touched: dict[int, tuple[int, ...]] = {}

    # -- resolving -----------------------------------------------------------------------------------------------------

    def _wrong(self, what: str) -> NotAProtocol:
        return wrong(self.name, what)

    def _places(self) -> list[str]:
        """Every part of the other protocol's state that the mapping can name."""
        names: list[str] = []

        def walk(shape: Shape, where: str) -> None:
            names.append(where)
            if isinstance(shape, Struct):
                for name, part in shape.parts.items():
                    walk(part, f"{where}.{name}")
            elif isinstance(shape, PerKeyShape) and shape.elements:
                inner = next(iter(shape.elements.values()))
                walk(inner, where)

        for name, shape in self.other.shapes.items():
            walk(shape, name)
        return list(dict.fromkeys(names))

    def _resolve(
        self, shape: Shape, path: tuple[Any, ...], where: tuple[str, ...], keys: tuple[Value, ...], own: _Counterpart
    ) -> None:
        """Resolve the source of a part of the other protocol's state. ``where`` names it, without the ``keys`` on the
        path.
        """
        name = ".".join(where)
        item = self.given.get(name)
        if item is not None:
            self._used.add(name)
        if isinstance(shape, PerKeyShape):
            # A mapping for the map applies to each element.
            if not shape.elements:
                self._used |= {below for below in self.given if below.startswith(f"{name}.")}
            for key, element in shape.elements.items():
                self._resolve(element, (*path, key), where, (*keys, key), self._element(own, key))
            return
        if isinstance(item, Mapping):
            self._map_messages(shape, path, name, item)
        elif callable(item):
            self._compute(shape, path, Part(_titled(name, keys), item, keys, path, shape))
        elif item is not None and not isinstance(item, str):
            raise self._wrong(
                f"maps {name} by {item!r}: give it a function of the state, or the name of a variable here"
            )
        else:
            own = own if item is None else self._named(item, keys, name)
            if isinstance(shape, Struct):
                for field, part in shape.parts.items():
                    self._resolve(part, (*path, field), (*where, field), keys, self._field(own, field))
            else:
                self._same(shape, path, name, own)

    def _element(self, own: _Counterpart, key: Value) -> _Counterpart:
        if isinstance(own, str):
            return own
        shape, path = own
        if not isinstance(shape, PerKeyShape):
            return f"{slot_name(path)} of {self.protocol.name} is {_kind(shape)} there"
        element = shape.element(key)
        if element is None:
            return (
                f"{show(key)} is no key of {slot_name(path)} of {self.protocol.name}, so that the constants do not fit"
            )
        return element, (*path, key)

    def _field(self, own: _Counterpart, field: str) -> _Counterpart:
        if isinstance(own, str):
            return own
        shape, path = own
        if not isinstance(shape, Struct) or field not in shape.parts:
            return f"{slot_name(path)} of {self.protocol.name} has no {field}"
        return shape.parts[field], (*path, field)

    def _named(self, target: str, keys: tuple[Value, ...], name: str) -> tuple[Shape, tuple[Any, ...]]:
        """A variable of this protocol, or a field of one, by its name and the keys on the path to a part of the other
        protocol.
        """
        first, *fields = target.split(".")
        shape = self.protocol.shapes.get(first)
        if shape is None:
            raise self._wrong(
                f"maps {name} to {target}, and {self.protocol.name} has no variable"
                f" {first}: {meant(first, self.protocol.shapes)}"
            )
        path: tuple[Any, ...] = (first,)
        left = list(keys)
        for field in (*fields, None):
            while isinstance(shape, PerKeyShape) and left:
                element = shape.element(left[0])
                if element is None:
                    raise OptionError(
                        f"refinement {self.name}: {show(left[0])} is no key of {target} of {self.protocol.name}"
                    )
                path, shape = (*path, left.pop(0)), element
            if field is None:
                break
            if not isinstance(shape, Struct) or field not in shape.parts:
                raise self._wrong(
                    f"maps {name} to {target}, and there is no {field} in {slot_name(path)} of {self.protocol.name}"
                )
            path, shape = (*path, field), shape.parts[field]
        return shape, path

    def _compute(self, shape: Shape, path: tuple[Any, ...], part: Part) -> None:
        """Make a function the source of everything at ``path`` and below."""
        if part not in self.parts:
            self.parts.append(part)
        if isinstance(shape, Struct):
            for field, inner in shape.parts.items():
                self._compute(inner, (*path, field), part)
        elif isinstance(shape, PerKeyShape):
            for key, inner in shape.elements.items():
                self._compute(inner, (*path, key), part)
        elif isinstance(shape, NetworkShape):
            raise self._wrong(
                f"maps {path[0]} by a function: of a network, say what each kind of message is, {{Kind: OtherKind}}"
            )
        else:
            self._sources[encode_path(path)] = part

    def _same(self, shape: Shape, path: tuple[Any, ...], name: str, own: _Counterpart) -> None:
        """Make the counterpart here the source of a part of the other protocol's state, slot by slot."""
        instead = f"map it, {{{name!r}: a function of the state}}"
        if isinstance(own, str):
            raise self._wrong(f"does not say what {name} of {self.other.name} is, and {own}: {instead}")
        mine, its_path = own
        if type(mine) is not type(shape):
            both = f"{_kind(mine)}, the other {_kind(shape)}"
            raise self._wrong(
                f"takes {slot_name(its_path)} for {name} of {self.other.name}, and the one is {both}: {instead}"
            )
        if isinstance(shape, NetworkShape) and isinstance(mine, NetworkShape):
            self._alike(mine, shape, name)
        source = _Same(path, its_path, mine)
        self._sources[encode_path(path)] = source
        self._own.setdefault(encode_path(its_path), []).append(source)

    def _alike(self, mine: NetworkShape, its: NetworkShape, name: str) -> None:
        """Raises unless two networks have the same kinds, ends and rules."""
        for kind, (sources, dests) in mine.routes.items():
            ends = its.routes.get(kind)
            if ends is None or not set(sources) <= set(ends[0]) or not set(dests) <= set(ends[1]):
                what = "does not know" if ends is None else "has other ends for"
                raise self._wrong(
                    f"takes {name} for that of {self.other.name}, which {what} {kind.__name__}: say what each kind is"
                    " there, {Kind: OtherKind}"
                )
        self._same_rules(mine, its, name)

    def _same_rules(self, mine: NetworkShape, its: NetworkShape, name: str) -> None:
        for rule in ("ordered", "remember", "can_be_cut", "loses"):
            if getattr(mine, rule) != getattr(its, rule):
                word = "lossy" if rule == "loses" else rule
                raise self._wrong(f"cannot map {name}: of the two networks one is {word}, and the other is not")

    def _map_messages(self, shape: Shape, path: tuple[Any, ...], name: str, items: Mapping[Any, Any]) -> None:
        """Make a network of this protocol the source of a network's channels, message by message."""
        if not isinstance(shape, NetworkShape):
            raise self._wrong(f"maps {name} by a dictionary, and it is {_kind(shape)}: give it a function of the state")
        networks = [
            (n, s)
            for n, s in self.protocol.shapes.items()
            if isinstance(s, NetworkShape) and set(s.routes) >= set(items)
        ]
        networks.sort(key=lambda one: one[0] != name)
        if not networks:
            raise self._wrong(f"maps messages for {name}, and {self.protocol.name} has no network with these kinds")
        own_name, mine = networks[0]
        self._same_rules(mine, shape, name)
        routes: dict[type[Message], list[_Route]] = {}
        for kind, (sources, dests) in mine.routes.items():
            if kind not in items:
                raise self._wrong(
                    f"does not say what {kind.__name__} is in {name} of {self.other.name}: another kind, or None"
                )
            for route in self._routes(kind, items[kind], shape.remember):
                ends = shape.routes.get(route.kind)
                if ends is None:
                    raise self._wrong(
                        f"maps {kind.__name__} to {route.kind.__name__}, which is no kind of message of {name} of"
                        f" {self.other.name}"
                    )
                if not set(sources) <= set(ends[0]) or not set(dests) <= set(ends[1]):
                    raise OptionError(
                        f"refinement {self.name}: {route.kind.__name__} of {self.other.name} has not all the ends of"
                        f" {kind.__name__}"
                    )
                if kind.topic is not None or route.kind.topic is not None:
                    raise self._wrong(
                        f"maps {kind.__name__} to {route.kind.__name__}, and a kind with a topic cannot be mapped"
                    )
                routes.setdefault(kind, []).append(route)
        fed = [route.kind for of_kind in routes.values() for route in of_kind]
        if shape.ordered and len(set(fed)) < len(fed):
            raise self._wrong(
                f"maps two kinds of messages to one of {name} of {self.other.name}, which is ordered: their order is"
                " not known"
            )
        source = _Messages(path, (own_name,), shape, mine, routes)
        self._sources[encode_path(path)] = source
        self._own.setdefault(encode_path((own_name,)), []).append(source)

    def _routes(self, kind: type[Message], item: Any, remember: bool) -> Iterator[_Route]:
        for one in item if isinstance(item, list) else [] if item is None else [item]:
            target, there, back = one, None, None
            if isinstance(one, tuple):
                target, there, back = (*one, None, None)[:3]
            if not (isinstance(target, type) and issubclass(target, Message)):
                raise self._wrong(
                    f"maps {kind.__name__} to {target!r}: give it a kind of message of {self.other.name}, or None"
                )
            if there is None:
                if set(target._fields) != set(kind._fields):
                    raise self._wrong(
                        f"maps {kind.__name__} to {target.__name__}, which has other fields: give a function too,"
                        f" ({target.__name__}, function)"
                    )
                there, back = _as(target), _as(kind)
            if remember and back is None:
                raise self._wrong(
                    f"maps {kind.__name__} to {target.__name__} by a function, and {self.other.name} remembers"
                    f" messages: give a function back too, ({target.__name__}, function, back)"
                )
            yield _Route(target, there, back)

    # -- a mapped state -----------------------------------------------------------------------------------------------

    def source(self, index: int) -> _Source:
        """The source of a slot of the other protocol."""
        known = self._of.get(index)
        if known is None:
            path = self.others.slots[index].path
            for end in range(len(path), 0, -1):
                known = self._sources.get(encode_path(path[:end]))
                if known is not None:
                    break
            assert known is not None, path
            self._of[index] = known
        return known

    def own_slot(self, index: int, source: _Same) -> Slot:
        """The slot of this protocol that is the source of a slot of the other one."""
        known = self._own_slots.get(index)
        if known is None:
            slot = self.others.slots[index]
            rest = slot.path[len(source.other) :]
            if isinstance(source.shape, TableShape):
                known = (
                    source.shape.keys(source.own)
                    if isinstance(rest[0], type)
                    else source.shape.cell(source.own, rest[0])
                )
            else:
                known = Slot((*source.own, *rest), slot.default, constant=False)
            self._own_slots[index] = known
        return known

    def touched(self, own: int) -> tuple[int, ...]:
        """The slots of the other protocol that may change if this slot does, without those of computed parts."""
        known = self._touched.get(own)
        if known is None:
            known = self._touched[own] = tuple(dict.fromkeys(self._find_touched(self.store.slots[own])))
        return known

    def _find_touched(self, slot: Slot) -> Iterator[int]:
        for end in range(len(slot.path), 0, -1):
            for source in self._own.get(encode_path(slot.path[:end]), ()):
                if isinstance(source, _Same):
                    yield self.others.slot(self._other_slot(source, slot))
                else:
                    yield from map(self.others.slot, _channels(source, slot))

    def _other_slot(self, source: _Same, slot: Slot) -> Slot:
        path = (*source.other, *slot.path[len(source.own) :])
        shape = self._shape_at(source.other)
        if isinstance(shape, TableShape):
            return shape.keys(source.other) if isinstance(path[-1], type) else shape.cell(source.other, path[-1])
        if isinstance(shape, NetworkShape):
            return Slot(path, slot.default, constant=False)
        (leaf,) = shape.slots(source.other)
        return leaf

    def _shape_at(self, path: tuple[Any, ...]) -> Shape:
        shape: Any = self.other.shapes[path[0]]
        for part in path[1:]:
            shape = shape.element(part)
        return shape  # type: ignore[no-any-return]

    def compute(self, part: Part, cursor: Cursor) -> dict[int, int]:
        """The content of a computed part, as numbers of values by slot of the other protocol."""
        collector = _Collector()
        try:
            part.shape.set(collector, part.other, part.function(self.protocol.bound_to(cursor), *part.keys))
        except NotAValue as error:
            raise Misbehaved(f"comes to no {part.name} of {self.other.name}: {error}") from None
        return {
            self.others.slot(slot): self.others.intern(self.others.slot(slot), value)
            for slot, value in collector.held.values()
        }


class Side:
    """The mapped state before or after a step, read on demand through a cursor."""

    def __init__(self, mapping: StateMapping, cursor: Cursor) -> None:
        self.mapping = mapping
        self.cursor = cursor
        self._numbers: dict[int, int] = {}
        self._parts: dict[Part, dict[int, int]] = {}

    def number(self, index: int) -> int:
        """The number of the value in a slot of the other protocol."""
        number = self._numbers.get(index)
        if number is None:
            number = self._numbers[index] = self._number(index)
        return number

    def _number(self, index: int) -> int:
        mapping = self.mapping
        source, others = mapping.source(index), mapping.others
        if isinstance(source, Part):
            return self.part(source).get(index, 0)
        slot = others.slots[index]
        if isinstance(source, _Same):
            return others.intern(index, self.cursor.read(mapping.own_slot(index, source)))
        return others.intern(index, _in_channel(source, slot, self.cursor))

    def part(self, part: Part) -> dict[int, int]:
        """The content of a computed part, as :meth:`StateMapping.compute` returns it."""
        held = self._parts.get(part)
        if held is None:
            held = self._parts[part] = self.mapping.compute(part, self.cursor)
        return held

    def row(self, ids: Sequence[int]) -> tuple[int, ...]:
        """The whole mapped state. ``ids`` are the numbers of this protocol's values. Only those that are not defaults
        matter.
        """
        mapping, others = self.mapping, self.mapping.others
        for own, number in enumerate(ids):
            if number:
                mapping.touched(own)
        for part in mapping.parts:
            self.part(part)
        return others.normal([self.number(index) for index in range(len(others.slots))])


# -- channels ---------------------------------------------------------------------------------------------------------


def _channels(source: _Messages, slot: Slot) -> Iterator[Slot]:
    """The slots of the other network that depend on a slot of this one."""
    part = source.own_shape.part(slot)
    if part == CONNECTED:
        yield source.shape.connection(source.other, *slot.path[-2:])
        return
    if part == PROCESSED:
        *_, sender, receiver, message = slot.path
        for route in source.routes.get(type(message), ()):
            there = _translated(route, message)
            if there is not None:
                yield source.shape.processed(source.other, there, sender, receiver)
        return
    kind, sender, receiver = slot.path[-3:]
    for route in source.routes.get(kind, ()):
        if part == LOST:
            yield source.shape.lost(source.other, route.kind, sender, receiver)
        elif part == IN_FLIGHT:
            yield source.shape.in_flight(source.other, route.kind, sender, receiver)


def _translated(route: _Route, message: Any) -> Any:
    """A message as one of the other protocol. None if it maps to nothing."""
    there = route.there(message)
    if there is not None and type(there) is not route.kind:
        raise NotAValue(f"{show(message)} comes to {there!r}, which is no {route.kind.__name__}")
    return None if there is None else freeze(there)


def _in_channel(source: _Messages, slot: Slot, cursor: Cursor) -> Value:
    """The content of a slot of the other network."""
    part, mine, path = source.shape.part(slot), source.own_shape, source.own
    if part == CONNECTED:
        return cursor.read(mine.connection(path, *slot.path[-2:]))
    if part == PROCESSED:
        *_, sender, receiver, message = slot.path
        for _, route in _feeding(source, type(message), sender, receiver):
            assert route.back is not None
            back = route.back(message)
            if back is not None and cursor.read(mine.processed(path, freeze(back), sender, receiver)):
                return True
        return False
    target, sender, receiver = slot.path[-3:]
    held: dict[Any, int] = {}
    queue: list[Any] = []
    for kind, route in _feeding(source, target, sender, receiver):
        own = mine.lost(path, kind, sender, receiver) if part == LOST else mine.in_flight(path, kind, sender, receiver)
        messages: Any = cursor.read(own)
        for message in messages:
            there = _translated(route, message)
            if there is not None:
                queue.append(there)
                copies = messages[message] if isinstance(messages, Mapping) else 1
                held[there] = held.get(there, 0) + copies if source.shape.duplicates else 1
    if part == LOST:
        return Set(held)
    return tuple(queue) if source.shape.ordered else Map(held)


def _feeding(
    source: _Messages, target: type[Message], sender: Any, receiver: Any
) -> Iterator[tuple[type[Message], _Route]]:
    for kind, routes in source.routes.items():
        senders, receivers = source.own_shape.routes[kind]
        if sender in senders and receiver in receivers:
            for route in routes:
                if route.kind is target:
                    yield kind, route


# -- helpers ----------------------------------------------------------------------------------------------------------


def _as(kind: type[Message]) -> Callable[[Any], Any]:
    """A function that converts a message to another kind with the same fields."""
    return lambda message: kind(**{name: getattr(message, name) for name in kind._fields})


def _titled(name: str, keys: Sequence[Value]) -> str:
    return f"{name}({', '.join(map(show, keys))})" if keys else name


def _kind(shape: Shape) -> str:
    if isinstance(shape, Struct):
        return f"a record {shape.record.__name__}"
    return {PerKeyShape: "a map over keys", TableShape: "a table", NetworkShape: "a network"}.get(
        type(shape), "one value"
    )
