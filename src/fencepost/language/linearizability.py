"""Linearizability: whether concurrent clients of an object see results that are possible if they take turns.

Herlihy and Wing, "Linearizability: a correctness condition for concurrent objects" (1990): every call takes effect at
one moment between its beginning and its end. A protocol keeps a :class:`History` in its state and records there when a
call begins and ends:

    class Store(Protocol):
        clients = model_values("c", 2)
        history: History = history(Register(None))

        @action(c=clients)
        def begins_to_read(self, c):
            self.history.invoke(c, "read")

        @action(c=clients)
        def has_read(self, c):
            self.history.respond(c, value)

        @invariant
        def linearizable(self):
            return self.history.is_linearizable

The history keeps only the linearizations that are still possible. Histories with the same possible futures are then one
value, and the state space stays small.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fencepost.errors import Misbehaved
from fencepost.language.fields import Table, state, table
from fencepost.language.values import Map, Record, Set, Value, encode, freeze, show

# -- objects ----------------------------------------------------------------------------------------------------------


class Sequential(Record):
    """A sequential object: the effects of its operations with only one client. Derive from this class to declare one.

    An operation is a method. It returns the object after the operation and the result, or None if it cannot take effect
    yet: then its caller waits.
    """


class Register(Sequential):
    """A register: ``read()`` returns the value of the last ``write(value)``. ``write`` returns None."""

    value: Value = None

    def read(self) -> tuple[Register, Value]:
        return self, self.value

    def write(self, value: Value) -> tuple[Register, Value]:
        return self.replace(value=value), None


class Queue(Sequential):
    """A queue: ``dequeue()`` removes and returns the oldest item of ``enqueue(item)``, or returns None if the queue is
    empty.
    """

    items: tuple[Value, ...] = ()

    def enqueue(self, item: Value) -> tuple[Queue, Value]:
        return self.replace(items=(*self.items, item)), None

    def dequeue(self) -> tuple[Queue, Value]:
        return (self.replace(items=self.items[1:]), self.items[0]) if self.items else (self, None)


class Log(Sequential):
    """A log: ``append(entry)`` returns the entry's offset, from 0. ``read(offset)`` returns the entry there, or None
    beyond the end. ``size()`` returns the number of entries.
    """

    entries: tuple[Value, ...] = ()

    def append(self, entry: Value) -> tuple[Log, Value]:
        return self.replace(entries=(*self.entries, entry)), len(self.entries)

    def read(self, offset: int) -> tuple[Log, Value]:
        return self, self.entries[offset] if 0 <= offset < len(self.entries) else None

    def size(self) -> tuple[Log, Value]:
        return self, len(self.entries)


# -- histories --------------------------------------------------------------------------------------------------------


class Call(Record):
    """A call that has begun and not ended."""

    operation: str
    arguments: tuple[Value, ...]


class Linearization(Record):
    """One order of the calls that explains all results so far. It keeps only the object after these calls, and the
    result of each call that has taken effect and not ended, by client.
    """

    object: Sequential
    results: Map[Value, Value] = Map()


class History(Record):
    """The calls of an object's clients and the results that they saw. See :func:`history`. A client has one call at a
    time.

    ``calls``: the calls that have begun and not ended, by client. Such a call may or may not have taken effect.
    ``linearizations``: the shortest possible ones. All others extend them by calls that take effect later.
    """

    calls: Table[Value, Call] = table()
    linearizations: Set[Linearization] = Set()

    def invoke(self, client: Value, operation: str, *arguments: Value) -> None:
        """A client calls an operation of the object."""
        if client in self.calls:
            raise Misbehaved(f"begins a call of {show(client)}, whose {self.calls[client].operation} has not ended")
        for possible in self.linearizations:
            _must_have(possible.object, operation)
        self.calls[client] = Call(operation, arguments)

    def respond(self, client: Value, result: Value) -> None:
        """The call of a client ends with this result. Only linearizations in which it took effect with this result
        remain.
        """
        if client not in self.calls:
            raise Misbehaved(f"ends a call of {show(client)}, which has begun none")
        calls = dict(self.calls.items())
        ended = {
            Linearization(possible.object, possible.results.without(client))
            for possible in _closed(self.linearizations, calls)
            if client in possible.results and encode(possible.results[client]) == encode(freeze(result))
        }
        del self.calls[client], calls[client]
        self.linearizations = Set(ended - {longer for possible in ended for longer in _longer(possible, calls)})

    @property
    def is_linearizable(self) -> bool:
        """Whether some order of the calls explains the results that all clients saw."""
        return bool(self.linearizations)


def history(of: Sequential) -> Any:
    """A state variable that holds the history of an object, which is ``of`` at first: ``history: History =
    history(Register(0))``.

    Linearizability is local: give each of several objects its own history.
    """
    return state(History(linearizations=Set({Linearization(of)})))


def _closed(linearizations: Iterable[Linearization], calls: dict[Value, Call]) -> list[Linearization]:
    """All linearizations that extend the given ones by calls that take effect one after the other, each once.

    This is the search of Wing and Gong (1993) with the memory of Lowe, "Testing for linearizability" (2017): an object
    and a set of calls that have taken effect are searched once, whatever the order of the calls.
    """
    reached = dict.fromkeys(linearizations)
    waiting = list(reached)
    while waiting:
        for longer in _longer(waiting.pop(), calls):
            if longer not in reached:
                reached[longer] = None
                waiting.append(longer)
    return list(reached)


def _longer(possible: Linearization, calls: dict[Value, Call]) -> Iterator[Linearization]:
    """The linearizations with one more call that takes effect."""
    for client, call in calls.items():
        if client not in possible.results:
            outcome = getattr(possible.object, call.operation)(*call.arguments)
            if outcome is not None:
                after, result = outcome
                yield Linearization(after, possible.results.set(client, freeze(result)))


def _must_have(object: Sequential, operation: str) -> None:
    kind = type(object)
    operations = [name for name in vars(kind) if not name.startswith("_") and callable(getattr(kind, name))]
    if operation not in operations:
        raise Misbehaved(
            f"calls {operation}, which is no operation of a {kind.__name__}: it has {', '.join(operations)}"
        )
