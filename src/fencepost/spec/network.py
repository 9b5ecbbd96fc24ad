"""A network: one channel per kind of message, sender and receiver, each a part of the state of its own.

The semantics are chosen where the network is declared, so that both families of published specifications can be written:
BookKeeper's (a message may be lost, is sent at most once ever, and is remembered after it was processed) and KRaft's (nothing
is lost but what is in flight when a connection is cut; a message may be sent again).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar, cast

from fencepost.errors import FencepostError
from fencepost.spec.context import Cursor, Event, Slot, one_of, require
from fencepost.spec.fields import Shape, View, _resolve
from fencepost.spec.values import Map, Message, ModelValue, NotAValue, Record, Set, Value, canonical, freeze, show

M = TypeVar("M", bound=Message)

DELIVERED = "delivered"
LOST = "lost"


class Channel(Record):
    """What one channel holds.

    ``in_flight``: messages that can be received; a map from message to copies, or for ordered channels a tuple, oldest first.
    ``processed``: messages that were received, where the network remembers them.
    ``lost``: messages that were lost and whose sender has not timed out yet.
    """

    in_flight: Any = Map()
    processed: frozenset[Any] = Set()
    lost: frozenset[Any] = Set()


@dataclasses.dataclass(frozen=True)
class Envelope(Generic[M]):
    """A message with the ends of the channel it came through."""

    message: M
    source: ModelValue
    dest: ModelValue


@dataclasses.dataclass(frozen=True, eq=False)
class NetworkOf:
    """What :func:`network` declares, until the constants are known."""

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
    lossy: bool = False,
    timeouts: bool = True,
    once: bool = False,
    duplicates: bool = False,
    remember: bool = False,
    ordered: bool = False,
    can_be_cut: bool = False,
) -> Any:
    """A network over ``routes``: for each kind of message, who sends it and who receives it (constants or model values).

    ``lossy``: a send is explored twice, delivered and lost; a lost message is kept as lost, which is how a timeout is seen,
    unless ``timeouts`` is false: then it is as if it had never been sent, and the space is smaller.
    ``once``: an action that sends a message already known to the channel is not enabled (known: in flight, lost, or
    processed and remembered). ``duplicates``: a message sent again while in flight can be received once more; without it
    the second send changes nothing. ``remember``: processed messages stay known. ``ordered``: a channel is a queue.
    ``can_be_cut``: connections can be cut and healed, see :meth:`Network.cut`. Each may be a boolean constant of the protocol.
    """
    return NetworkOf(routes, lossy, timeouts, once, duplicates, remember, ordered, can_be_cut)


class NetworkShape(Shape):
    """A network with its constants known."""

    def __init__(self, declared: NetworkOf, protocol: Any) -> None:
        def ends(end: Any) -> tuple[ModelValue, ...]:
            resolved = _resolve(end, protocol)
            return (resolved,) if isinstance(resolved, ModelValue) else tuple(cast(Any, resolved))

        def flag(value: Any) -> bool:
            return bool(_resolve(value, protocol))

        self.routes = {kind: (ends(s), ends(d)) for kind, (s, d) in declared.routes.items()}
        self.lossy = flag(declared.lossy)
        self.timeouts = flag(declared.timeouts)
        self.once = flag(declared.once)
        self.duplicates = flag(declared.duplicates)
        self.remember = flag(declared.remember)
        self.ordered = flag(declared.ordered)
        self.can_be_cut = flag(declared.can_be_cut)
        self.empty = Channel(in_flight=() if self.ordered else Map())
        self._channels: dict[tuple[Any, ...], Slot] = {}

    def route(self, path: tuple[Any, ...], kind: type[Message]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Who sends messages of ``kind``, and who receives them."""
        route = self.routes.get(kind)
        if route is None:
            raise FencepostError(f"{kind.__name__} is not a kind of message of {'.'.join(map(str, path))}")
        return route

    def channel(self, path: tuple[Any, ...], kind: type[Message], source: Any, dest: Any) -> Slot:
        known = self._channels.get((path, kind, source, dest))
        if known is not None:
            return known
        route = self.route(path, kind)
        if source not in route[0] or dest not in route[1]:
            raise FencepostError(f"{kind.__name__} has no channel from {show(source)} to {show(dest)}")
        slot = Slot((*path, kind, source, dest), self.empty, constant=False)
        return self._channels.setdefault((path, kind, source, dest), slot)

    def connection(self, path: tuple[Any, ...], one: Any, other: Any) -> Slot:
        if not self.can_be_cut:
            raise FencepostError(f"{'.'.join(map(str, path))} was not declared with can_be_cut=True")
        at = (path, "connected", one, other)
        known = self._channels.get(at)
        if known is None:
            first, second = canonical([one, other])
            known = self._channels.setdefault(at, Slot((*path, "connected", first, second), True, constant=False))
        return known

    def slots(self, path: tuple[Any, ...]) -> Iterator[Slot]:
        for kind, (sources, dests) in self.routes.items():
            for source in sources:
                for dest in dests:
                    yield self.channel(path, kind, source, dest)

    def get(self, cursor: Cursor, path: tuple[Any, ...]) -> Network:
        return Network(self, cursor, path)

    def set(self, cursor: Cursor, path: tuple[Any, ...], value: Any) -> None:
        raise NotAValue("a network can not be assigned; send and receive messages")

    def value(self, read: Callable[[Slot], Value], path: tuple[Any, ...]) -> Value:
        """The channels that hold something, by (kind, sender, receiver), and ("cut", one, other) for each cut connection."""
        found: dict[tuple[Any, Any, Any], Value] = {}
        for slot in self.slots(path):
            kind, source, dest = slot.path[-3:]
            held = read(slot)
            if held != self.empty:
                found[(kind.__name__, source, dest)] = held
            if self.can_be_cut and source != dest:
                connection = self.connection(path, source, dest)
                if not read(connection):
                    found[("cut", *connection.path[-2:])] = True
        return Map(found)


class Network(View):
    """A network that lives in the state. Every method reads only the channels that its arguments name."""

    __slots__ = ("_cursor", "_path", "_shape")

    def __init__(self, shape: NetworkShape, cursor: Cursor, path: tuple[Any, ...]) -> None:
        self._shape = shape
        self._cursor = cursor
        self._path = path

    # -- sending ------------------------------------------------------------------------------------------------------

    def send(self, message: Message, source: ModelValue, dest: ModelValue) -> None:
        """Send one message. On a lossy network it is delivered or lost; over a cut connection it is lost."""
        message = freeze(message)
        slot = self._shape.channel(self._path, type(message), source, dest)
        channel: Channel = self._cursor.read(slot)
        if self._shape.once:
            require(not _known(channel, message))
        fate = DELIVERED
        if self._shape.can_be_cut and not self.connected(source, dest):
            fate = LOST
        elif self._shape.lossy:
            fate = one_of((DELIVERED, LOST))
        self._cursor.tell(Event("send", source, dest, (message,), lost=fate == LOST))
        if fate == LOST:
            if self._shape.lossy and self._shape.timeouts:
                self._cursor.write(slot, channel.replace(lost=channel.lost | {message}))
        else:
            self._cursor.write(slot, channel.replace(in_flight=self._with(channel.in_flight, message)))

    def send_all(self, messages: Iterable[tuple[Message, ModelValue]], source: ModelValue) -> None:
        """Send each message to its receiver; every one is delivered or lost independently of the others."""
        for message, dest in canonical(messages):
            self.send(message, source, dest)

    def reply(self, envelope: Envelope[Any], message: Message) -> None:
        """Send ``message`` back to where ``envelope`` came from."""
        self.send(message, envelope.dest, envelope.source)

    # -- receiving ----------------------------------------------------------------------------------------------------

    def receive(
        self,
        kind: type[M],
        *,
        to: ModelValue,
        source: ModelValue | None = None,
        where: Callable[[M], bool] | None = None,
    ) -> Envelope[M]:
        """Take one message of ``kind`` that can be received by ``to``; not enabled if there is none.

        The sender is chosen first (if not given), and only that channel is read; then one of its messages that satisfy
        ``where``. On an ordered network only the oldest can be received.
        """
        if source is None:
            sources, dests = self._shape.route(self._path, kind)
            if to not in dests:
                raise FencepostError(f"{kind.__name__} has no channel to {show(to)}")
            source = one_of(sources)
        slot = self._shape.channel(self._path, kind, source, to)
        channel: Channel = self._cursor.read(slot)
        candidates = [m for m in _receivable(channel.in_flight, self._shape.ordered) if where is None or where(m)]
        message = one_of(candidates)
        self._cursor.tell(Event("receive", source, to, (message,)))
        processed = channel.processed | {message} if self._shape.remember else channel.processed
        self._cursor.write(slot, channel.replace(in_flight=_without(channel.in_flight, message), processed=processed))
        return Envelope(message, source, to)

    # -- looking ------------------------------------------------------------------------------------------------------

    def in_flight(self, kind: type[M], source: ModelValue, dest: ModelValue) -> tuple[M, ...]:
        """The messages that can still be received from this channel, in canonical order (oldest first if ordered)."""
        return tuple(self._read(kind, source, dest).in_flight)

    def lost(self, kind: type[M], source: ModelValue, dest: ModelValue) -> frozenset[M]:
        """The messages of this channel that were lost and not forgotten: a sender sees them as a timeout."""
        return self._read(kind, source, dest).lost

    def known(self, kind: type[M], source: ModelValue, dest: ModelValue) -> frozenset[M]:
        """Every message this channel knows: in flight, lost, or processed and remembered."""
        channel = self._read(kind, source, dest)
        return cast("frozenset[M]", Set((*channel.in_flight, *channel.processed, *channel.lost)))

    def forget_lost(self, kind: type[M], source: ModelValue, dest: ModelValue) -> None:
        """The sender acted on its timeout: lost messages of this channel become processed ones."""
        slot = self._shape.channel(self._path, kind, source, dest)
        channel: Channel = self._cursor.read(slot)
        if channel.lost:
            self._cursor.tell(Event("timeout", source, dest, tuple(channel.lost)))
            processed = channel.processed | channel.lost if self._shape.remember else channel.processed
            self._cursor.write(slot, channel.replace(lost=Set(), processed=processed))

    def _read(self, kind: type[Message], source: ModelValue, dest: ModelValue) -> Channel:
        return cast(Channel, self._cursor.read(self._shape.channel(self._path, kind, source, dest)))

    # -- connections --------------------------------------------------------------------------------------------------

    def connected(self, one: ModelValue, other: ModelValue) -> bool:
        """Whether two ends can talk to each other; everyone can talk to itself."""
        return one == other or bool(self._cursor.read(self._shape.connection(self._path, one, other)))

    def cut(self, one: ModelValue, other: ModelValue) -> None:
        """Cut a connection. What is in flight on it, either way, is never received; it counts as processed."""
        self._cursor.write(self._shape.connection(self._path, one, other), False)
        self.drop(one, other)

    def heal(self, one: ModelValue, other: ModelValue) -> None:
        """Let two ends talk again."""
        self._cursor.write(self._shape.connection(self._path, one, other), True)

    def drop(self, one: ModelValue, other: ModelValue) -> None:
        """Drop what is in flight between two ends, either way."""
        for kind, (sources, dests) in self._shape.routes.items():
            for source, dest in ((one, other), (other, one)):
                if source in sources and dest in dests:
                    slot = self._shape.channel(self._path, kind, source, dest)
                    channel: Channel = self._cursor.read(slot)
                    if channel.in_flight:
                        dropped = Set(channel.in_flight)
                        processed = channel.processed | dropped if self._shape.remember else channel.processed
                        self._cursor.write(slot, channel.replace(in_flight=self._shape.empty.in_flight, processed=processed))

    def _with(self, in_flight: Any, message: Message) -> Any:
        if self._shape.ordered:
            return (*in_flight, message) if self._shape.duplicates or message not in in_flight else in_flight
        copies = in_flight.get(message, 0) + 1 if self._shape.duplicates else 1
        return in_flight.set(message, copies)


def _known(channel: Channel, message: Message) -> bool:
    return message in channel.in_flight or message in channel.processed or message in channel.lost


def _receivable(in_flight: Any, ordered: bool) -> list[Any]:
    return list(in_flight[:1]) if ordered else list(in_flight)


def _without(in_flight: Any, message: Message) -> Any:
    if isinstance(in_flight, tuple):
        return in_flight[1:]
    copies = in_flight[message] - 1
    return in_flight.set(message, copies) if copies else in_flight.without(message)
