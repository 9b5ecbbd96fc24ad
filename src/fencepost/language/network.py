"""A network: one channel per kind of message, sender and receiver.

Each channel has separate parts of the state: one for its messages in flight, one for its lost messages, and one for
each message that it remembers as processed. So an action that checks for a timeout does not depend on the messages in
flight, and a history that only grows does not multiply states. If a kind of message has a topic, its messages in flight
have one part per topic.

The declaration of a network chooses its semantics, so it can follow both families of published specifications.
BookKeeper's: a message may be lost, is sent at most once ever, and is remembered after processing. KRaft's: only
messages in flight on a connection that is cut are lost, and a message may be sent again.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar, cast

from fencepost.errors import FencepostError
from fencepost.language.context import Cursor, Event, Slot, one_of, require, slot_name
from fencepost.language.fields import Shape, View, resolve
from fencepost.language.truths import truth
from fencepost.language.values import (
    Map,
    Message,
    ModelValue,
    NotAValue,
    Record,
    Set,
    Value,
    canonical,
    finite,
    freeze,
    full_name,
    kind_of,
    order_key,
    refuse_equal,
    show,
)

M = TypeVar("M", bound=Message)
Flag = bool | Callable[[Any], bool]

DELIVERED = "delivered"
LOST = "lost"
IN_FLIGHT = "in flight"
PROCESSED = "processed"
CONNECTED = "connected"
TOPICS = "topics"

FATES = (DELIVERED, LOST)
"""The options of a choice whether a message is lost."""

_NO_TOPIC: Any = object()


class Channel(Record):
    """The messages of one channel, collected for display. See :meth:`NetworkShape.channels`.

    ``in_flight``: messages that can be received, as a map from message to number of copies. For an ordered channel it
    is a tuple, oldest first. ``processed``: received messages, if the network remembers them. ``lost``: lost messages
    whose sender has not timed out yet.
    """

    in_flight: Any = Map()
    processed: frozenset[Any] = Set()
    lost: frozenset[Any] = Set()


@dataclasses.dataclass(frozen=True)
class Envelope(Generic[M]):
    """A message with its sender and its receiver."""

    message: M
    source: ModelValue
    dest: ModelValue


@dataclasses.dataclass(frozen=True, eq=False)
class NetworkOf:
    """A declaration by :func:`network`, before the constants are known."""

    routes: Mapping[type[Message], tuple[Any, Any]]
    lossy: Any
    timeouts: Any
    once: Any
    duplicates: Any
    remember: Any
    ordered: Any
    can_be_cut: Any


def network(
    routes: Mapping[type[Any], tuple[Any, Any]],
    *,
    lossy: Flag = False,
    timeouts: Flag = True,
    once: Flag = False,
    duplicates: Flag = False,
    remember: Flag = False,
    ordered: Flag = False,
    can_be_cut: Flag = False,
) -> Any:
    """A network over ``routes``: for each kind of message, its senders and its receivers (constants or model values).

    ``lossy``: a send is explored twice, as delivered and as lost. A lost message stays in the state, where its sender
    sees it as a timeout. If ``timeouts`` is false, a lost message leaves no trace, and the state space is smaller.
    ``once``: an action that sends a message already known to the channel is not enabled. Known means in flight, lost,
    or processed and remembered. ``duplicates``: a message sent again while in flight can be received once more. Without
    it, the second send changes nothing. ``remember``: processed messages stay known. ``ordered``: a channel is a queue.
    ``can_be_cut``: connections can be cut and healed, see :meth:`Network.cut`. Each option may be a boolean, a boolean
    constant of the protocol, or a function of the protocol.
    """
    return NetworkOf(routes, lossy, timeouts, once, duplicates, remember, ordered, can_be_cut)


def short_names(classes: Iterable[type]) -> dict[type, str]:
    """The shortest unique name of each class."""
    classes = list(classes)
    shortest = {cls: full_name(cls) for cls in classes}
    for attribute in ("__qualname__", "__name__"):
        names = collections.Counter(getattr(cls, attribute) for cls in classes)
        shortest |= {cls: name for cls in classes if names[name := getattr(cls, attribute)] == 1}
    return shortest


class NetworkShape(Shape):
    """A network with its constants known. ``names``: the names of the kinds of messages, for display."""

    def __init__(self, declared: NetworkOf, protocol: Any) -> None:
        def ends(end: Any) -> tuple[ModelValue, ...]:
            resolved = resolve(end, protocol)
            if isinstance(resolved, ModelValue):
                return (resolved,)
            if isinstance(resolved, str) or not isinstance(resolved, Iterable):
                raise NotAValue(f"{show(resolved)} as an end of its messages; name ends by model_values(...)")
            return tuple(e for part in finite(resolved, "one end of a route of a network(...)") for e in ends(part))

        def flag(name: str) -> bool:
            return truth(resolve(getattr(declared, name), protocol), f"cannot be declared with {name}=")

        self.routes = {kind: (ends(s), ends(d)) for kind, (s, d) in declared.routes.items()}
        self.lossy = flag("lossy")
        self.timeouts = flag("timeouts")
        self.once = flag("once")
        self.duplicates = flag("duplicates")
        self.remember = flag("remember")
        self.ordered = flag("ordered")
        self.can_be_cut = flag("can_be_cut")
        self.loses = self.lossy and self.timeouts
        self.empty: Any = () if self.ordered else Map()
        self.names = short_names(self.routes)
        self.looked_into = self.ordered
        """Whether more in flight may do less: a message waits behind it, or Python has looked at what is there."""
        self._slots: dict[tuple[Any, ...], Slot] = {}

    def forget(self, held: Collection[tuple[Any, ...]]) -> None:
        self._slots = {at: slot for at, slot in self._slots.items() if slot.path in held}  # `value` reads all

    def route(self, path: tuple[Any, ...], kind: type[Message]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The senders and the receivers of messages of ``kind``."""
        route = self.routes.get(kind)
        if route is None:
            raise FencepostError(f"{kind.__name__} is not a kind of message of {'.'.join(map(str, path))}")
        return route

    def ends(self, path: tuple[Any, ...], kind: type[Message], source: Any, dest: Any) -> None:
        """Raises :class:`fencepost.FencepostError` if there is no such channel."""
        route = self.route(path, kind)
        if source not in route[0] or dest not in route[1]:
            raise FencepostError(f"{kind.__name__} has no channel from {show(source)} to {show(dest)}")

    def _slot(self, path: tuple[Any, ...], default: Value) -> Slot:
        known = self._slots.get(path)
        return known if known is not None else self._slots.setdefault(path, Slot(path, default, constant=False))

    def in_flight(
        self, path: tuple[Any, ...], kind: type[Message], source: Any, dest: Any, topic: Any = _NO_TOPIC
    ) -> Slot:
        """The slot of a channel's messages in flight. If the kind has a topic, of those on ``topic``."""
        if (topic is _NO_TOPIC) != (kind.topic is None):
            which = "has no topic" if kind.topic is None else f"has a topic, {kind.topic}: say which, topic=..."
            raise FencepostError(f"{kind.__name__} {which}")
        channel: tuple[Any, ...] = (*path, kind, source, dest)
        at = channel
        if topic is not _NO_TOPIC:
            topic = freeze(topic)
            code = kind_of(topic)
            at = (*channel, code) if isinstance(code, bytes) else (*channel, code, topic)
        known = self._slots.get(at)
        if known is not None:
            return known
        self.ends(path, kind, source, dest)
        slot = Slot(channel if topic is _NO_TOPIC else (*channel, topic), self.empty, constant=False)
        return self._slots.setdefault(at, slot)

    def topics(self, path: tuple[Any, ...], kind: type[Message], source: Any, dest: Any) -> Slot:
        """The slot of the topics on which a channel has messages in flight. It exists if connections can be cut, since
        a cut must find all of them.
        """
        return self._slot((*path, TOPICS, kind, source, dest), Set())

    def lost(self, path: tuple[Any, ...], kind: type[Message], source: Any, dest: Any) -> Slot:
        """The slot of a channel's lost messages."""
        return self._slot((*path, LOST, kind, source, dest), Set())

    def processed(self, path: tuple[Any, ...], message: Message, source: Any, dest: Any) -> Slot:
        """The slot that says whether a channel remembers one message as processed."""
        return self._slot((*path, PROCESSED, source, dest, message), False)

    def connection(self, path: tuple[Any, ...], one: Any, other: Any) -> Slot:
        """The slot that says whether two ends are connected."""
        if not self.can_be_cut:
            raise FencepostError(f"{'.'.join(map(str, path))} was not declared with can_be_cut=True")
        known = self._slots.get((*path, CONNECTED, one, other))
        if known is not None:
            return known
        slot = self._slot((*path, CONNECTED, *canonical([one, other])), True)
        return self._slots.setdefault((*path, CONNECTED, one, other), slot)

    def slots(self, path: tuple[Any, ...]) -> Iterator[Slot]:
        for kind, source, dest in self._ends():
            if kind.topic is None:
                yield self.in_flight(path, kind, source, dest)
            if self.loses:
                yield self.lost(path, kind, source, dest)

    @staticmethod
    def part(slot: Slot) -> str:
        """The part of a network that a slot holds: ``in flight``, ``lost``, ``processed``, ``connected`` or
        ``topics``.
        """
        return slot.path[1] if isinstance(slot.path[1], str) else IN_FLIGHT

    def channels(self, slots: Iterable[tuple[Slot, Value]]) -> dict[tuple[Any, ...], Channel]:
        """The channels that are not empty, by (kind, source, dest), from slots of a network with their values."""
        channels: dict[tuple[Any, ...], Channel] = {}
        for slot, value in slots:
            what = self.part(slot)
            if value == slot.default or what in (CONNECTED, TOPICS):
                continue
            if what == PROCESSED:
                *_, source, dest, message = slot.path
                ends = (type(message), source, dest)
            else:
                ends = slot.path[1:4] if what == IN_FLIGHT else slot.path[-3:]
            held = channels.get(ends, Channel(in_flight=self.empty))
            if what == PROCESSED:
                channels[ends] = held.replace(processed=held.processed | {message})
            elif what == LOST:
                channels[ends] = held.replace(lost=value)
            else:
                both = (*held.in_flight, *value) if self.ordered else held.in_flight | value
                channels[ends] = held.replace(in_flight=both)
        return {ends: channels[ends] for ends in self._ends() if ends in channels}

    def _ends(self) -> Iterator[tuple[Any, ...]]:
        for kind, (sources, dests) in self.routes.items():
            yield from itertools.product([kind], sources, dests)

    def get(self, cursor: Cursor, path: tuple[Any, ...]) -> Network:
        return Network(self, cursor, path)

    def set(self, cursor: Cursor, path: tuple[Any, ...], value: Any) -> None:
        raise NotAValue("a network cannot be assigned; send and receive messages")

    def value(self, read: Callable[[Slot], Value], path: tuple[Any, ...]) -> Value:
        # A fixed order: slots that appear late (remembered messages, topics) come last.
        slots = {id(slot): slot for slot in (*self.slots(path), *self._connections(path), *self._slots.values())}
        return self.held([(slot, read(slot)) for slot in slots.values()])

    def _connections(self, path: tuple[Any, ...]) -> Iterator[Slot]:
        if self.can_be_cut:
            for _, source, dest in self._ends():
                if source != dest:
                    yield self.connection(path, source, dest)

    def held(self, slots: Iterable[tuple[Slot, Value]]) -> Value:
        """The channels that are not empty, by (kind, sender, receiver), and ("cut", one, other) for each cut
        connection.
        """
        slots = list(slots)
        result: dict[tuple[Any, Any, Any], Value] = {
            (self.names[k], s, d): held for (k, s, d), held in self.channels(slots).items()
        }
        for slot, value in slots:
            if self.part(slot) == CONNECTED and not value:
                result[("cut", *slot.path[-2:])] = True
        return Map(result)

    def permuted(self, path: tuple[Any, ...], swap: Mapping[ModelValue, ModelValue]) -> tuple[Any, ...]:
        path = super().permuted(path, swap)
        # Both directions of a connection share one slot.
        return (*path[:-2], *canonical(path[-2:])) if path[1] == CONNECTED else path

    def place(self, path: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*path[:-2], frozenset(path[-2:])) if path[1] == CONNECTED else path


class Network(View):
    """A network in the state. Each method reads only the channels that its arguments name."""

    __slots__ = ()

    _shape: NetworkShape

    # -- sending ------------------------------------------------------------------------------------------------------

    def send(self, message: Message, source: ModelValue, dest: ModelValue) -> None:
        """Send one message. On a lossy network it is delivered or lost. Over a cut connection it is lost."""
        message = freeze(message)
        shape = self._shape
        slot = self._slot_for(message, source, dest)
        in_flight = self._cursor.read(slot)
        if shape.once:
            require(not self._knows(in_flight, message, source, dest))
        fate = DELIVERED
        if shape.can_be_cut and not self.connected(source, dest):
            fate = LOST
        elif shape.lossy:
            fate = one_of(FATES)
        self._cursor.emit(Event("send", source, dest, (message,), lost=fate == LOST))
        if fate == DELIVERED:
            self._put(slot, message, source, dest, in_flight, self._with(in_flight, message))
        elif shape.loses:
            lost = shape.lost(self._path, type(message), source, dest)
            self._cursor.write(lost, self._cursor.read(lost) | {message})

    def send_all(self, messages: Iterable[tuple[Message, ModelValue]], source: ModelValue) -> None:
        """Send each message to its receiver. Each is delivered or lost independently of the others."""
        pairs = list(messages)
        if len(pairs) > 1:
            first = pairs[0][0]
            is_one = all(message is first for message, _ in pairs)
            pairs.sort(key=(lambda pair: order_key(pair[1])) if is_one else order_key)
        for message, dest in pairs:
            self.send(message, source, dest)

    def reply(self, envelope: Envelope[Any], message: Message) -> None:
        """Send ``message`` to the sender of ``envelope``."""
        self.send(message, envelope.dest, envelope.source)

    # -- receiving ----------------------------------------------------------------------------------------------------

    def receive(
        self,
        kind: type[M],
        *,
        to: ModelValue,
        source: ModelValue | None = None,
        topic: Value = _NO_TOPIC,
        where: Callable[[M], bool] | None = None,
    ) -> Envelope[M]:
        """Take one message of ``kind`` that ``to`` can receive. If there is none, the action is not enabled.

        The sender, if not given, is chosen first, and only that channel is read. Then one of its messages that satisfy
        ``where`` is chosen. On an ordered network only the oldest message can be received. If the kind has a topic,
        ``topic`` must be given.
        """
        if source is None:
            sources, dests = self._shape.route(self._path, kind)
            if to not in dests:
                raise FencepostError(f"{kind.__name__} has no channel to {show(to)}")
            source = one_of(sources)
        slot = self._shape.in_flight(self._path, kind, source, to, topic)
        in_flight: Any = self._cursor.read(slot)
        receivable = in_flight[:1] if self._shape.ordered else in_flight
        message = one_of(
            [m for m in receivable if where is None or truth(where(m), "received by a where=... that returned")]
        )
        self._cursor.emit(Event("receive", source, to, (message,)))
        self._put(slot, message, source, to, in_flight, _without(in_flight, message))
        self._remember(message, source, to)
        return Envelope(message, source, to)

    # -- looking ------------------------------------------------------------------------------------------------------

    def in_flight(
        self, kind: type[M], source: ModelValue, dest: ModelValue, *, topic: Value = _NO_TOPIC
    ) -> tuple[M, ...]:
        """The messages that can still be received from this channel, in canonical order (oldest first if ordered)."""
        self._shape.looked_into = True
        return tuple(cast(Any, self._cursor.read(self._shape.in_flight(self._path, kind, source, dest, topic))))

    def lost(self, kind: type[M], source: ModelValue, dest: ModelValue) -> frozenset[M]:
        """The lost messages of this channel that are not forgotten. Their sender sees them as a timeout."""
        self._shape.ends(self._path, kind, source, dest)
        self._shape.looked_into = True
        if not self._shape.loses:
            return Set()
        return cast("frozenset[M]", self._cursor.read(self._shape.lost(self._path, kind, source, dest)))

    def is_known(self, message: Message, source: ModelValue, dest: ModelValue) -> bool:
        """Whether the channel knows this message: it is in flight, lost, or processed and remembered."""
        message = freeze(message)
        self._shape.looked_into = True
        return self._knows(self._cursor.read(self._slot_for(message, source, dest)), message, source, dest)

    def lose(self, kind: type[Message], source: ModelValue, dest: ModelValue) -> None:
        """Lose the messages in flight on this channel, as if they had been lost when they were sent. For a receiver
        that crashes.
        """
        for slot in self._parts(kind, source, dest):
            in_flight: Any = self._cursor.read(slot)
            if in_flight:
                self._cursor.write(slot, self._shape.empty)
                if self._shape.loses:
                    lost = self._shape.lost(self._path, kind, source, dest)
                    self._cursor.write(lost, self._cursor.read(lost) | set(in_flight))

    def forget_lost(self, kind: type[M], source: ModelValue, dest: ModelValue) -> None:
        """The sender acted on its timeout: lost messages of this channel become processed."""
        lost = self.lost(kind, source, dest)
        if lost:
            self._cursor.emit(Event("timeout", source, dest, tuple(lost)))
            self._cursor.write(self._shape.lost(self._path, kind, source, dest), Set())
            for message in lost:
                self._remember(message, source, dest)

    def __value__(self) -> Value:
        self._shape.looked_into = True
        return super().__value__()

    def _knows(self, in_flight: Any, message: Message, source: ModelValue, dest: ModelValue) -> bool:
        if message in in_flight:
            return True
        shape = self._shape
        if shape.remember and self._cursor.read(shape.processed(self._path, message, source, dest)):
            return True
        return message in self.lost(type(message), source, dest)

    def _slot_for(self, message: Message, source: ModelValue, dest: ModelValue) -> Slot:
        kind = type(message)
        topic = _NO_TOPIC if kind.topic is None else getattr(message, kind.topic)
        return self._shape.in_flight(self._path, kind, source, dest, topic)

    def _put(self, slot: Slot, message: Message, source: ModelValue, dest: ModelValue, before: Any, after: Any) -> None:
        """Set a channel's messages in flight to ``after``, on the topic of ``message``, which ``slot`` is for."""
        self._cursor.write(slot, after)
        kind = type(message)
        if kind.topic is not None and self._shape.can_be_cut and bool(before) != bool(after):
            slot, topic = self._shape.topics(self._path, kind, source, dest), getattr(message, kind.topic)
            topics = self._cursor.read(slot)
            refuse_equal(topics, topic, slot_name(slot.path))
            self._cursor.write(slot, topics | {topic} if after else topics - {topic})

    def _remember(self, message: Message, source: ModelValue, dest: ModelValue) -> None:
        if self._shape.remember:
            self._cursor.write(self._shape.processed(self._path, message, source, dest), True)

    # -- connections --------------------------------------------------------------------------------------------------

    def connected(self, one: ModelValue, other: ModelValue) -> bool:
        """Whether two ends are connected. An end is always connected to itself, and to all ends if connections cannot
        be cut.
        """
        if one == other or not self._shape.can_be_cut:
            return True
        return bool(self._cursor.read(self._shape.connection(self._path, one, other)))

    def cut(self, one: ModelValue, other: ModelValue) -> None:
        """Cut a connection. Messages in flight on it, in both directions, are never received. They count as
        processed.
        """
        self._cursor.write(self._shape.connection(self._path, one, other), False)
        self.drop(one, other)

    def heal(self, one: ModelValue, other: ModelValue) -> None:
        """Connect two ends again."""
        self._cursor.write(self._shape.connection(self._path, one, other), True)

    def drop(self, one: ModelValue, other: ModelValue) -> None:
        """Drop the messages in flight between two ends, in both directions."""
        for kind, (sources, dests) in self._shape.routes.items():
            for source, dest in ((one, other), (other, one)):
                if source in sources and dest in dests:
                    for slot in self._parts(kind, source, dest):
                        in_flight: Any = self._cursor.read(slot)
                        if in_flight:
                            self._cursor.write(slot, self._shape.empty)
                            for message in in_flight:
                                self._remember(message, source, dest)

    def _parts(self, kind: type[Message], source: ModelValue, dest: ModelValue) -> list[Slot]:
        """The slots of all messages that a channel has in flight. The set of its topics is cleared."""
        if kind.topic is None:
            return [self._shape.in_flight(self._path, kind, source, dest)]
        if not self._shape.can_be_cut:
            raise FencepostError(
                f"{kind.__name__} has a topic: all of it is only found on a network that can be cut, can_be_cut=True"
            )
        slot = self._shape.topics(self._path, kind, source, dest)
        topics = self._cursor.read(slot)
        self._cursor.write(slot, Set())
        return [self._shape.in_flight(self._path, kind, source, dest, topic) for topic in topics]

    def _with(self, in_flight: Any, message: Message) -> Any:
        if self._shape.ordered:
            return (*in_flight, message) if self._shape.duplicates or message not in in_flight else in_flight
        copies = in_flight.get(message, 0) + 1 if self._shape.duplicates else 1
        return in_flight.set(message, copies)


def _without(in_flight: Any, message: Message) -> Any:
    if isinstance(in_flight, tuple):
        return in_flight[1:]
    copies = in_flight[message] - 1
    return in_flight.set(message, copies) if copies else in_flight.without(message)
