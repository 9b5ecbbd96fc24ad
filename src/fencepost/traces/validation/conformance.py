"""The contents of a conformance file: which events of a trace are which steps of a protocol.

It stands beside its protocol, in Python, and knows what the system writes and what the protocol's author means. The
machinery around it knows neither: it orders steps by what they send, receive, read and write, and follows the protocol
along them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias, TypeVar

import msgspec

from fencepost.language.protocol import Protocol
from fencepost.language.values import Value
from fencepost.traces.validation.follow import Has, Like, Pick

S = TypeVar("S")

Message: TypeAlias = Hashable
"""The name of a message, by which its sender and its receiver know it. Of several with one name, the first that is sent
is received first.
"""

Version: TypeAlias = tuple[Hashable, int]
"""One version of something that is replaced as a whole: its name and the number of the version."""


class Event(msgspec.Struct, frozen=True):
    """One thing that a node of a running system did: a :class:`fencepost.TraceEvent` with its parameters as values.

    ``seq`` counts the events of one ``incarnation`` of a ``node`` from 1 on, without gaps. ``subject``: what it is
    about, the unit that is validated; None for all. ``actor``: the role within the node.
    """

    node: str
    incarnation: int
    seq: int
    action: str
    subject: str | None
    parameters: Mapping[str, Any]
    actor: str = ""

    @property
    def place(self) -> tuple[str, int, int]:
        """Node, incarnation and number."""
        return self.node, self.incarnation, self.seq


class Step(msgspec.Struct, gc=False):
    """One step of the protocol that an event says was taken.

    ``parameters`` and ``picks``: of the action, and what it chooses, in order. ``receives``, ``sends``: messages, which
    order steps of several nodes. ``writes``, ``reads``: versions, which do so too: a version is written after the one
    before it was read. ``after``: what parts of the state must hold then, by their paths, and ``before`` what must hold
    just before. ``to``: all whom it sends something. ``tells``: for kinds of events (``send``, ``receive``) what the
    step must tell of them. ``may_skip``: a step that the system may have ignored: it is left out where it is not
    enabled. No ``action``: the event takes part in the order, and ``after`` must hold.
    """

    action: str | None
    parameters: tuple[tuple[str, Value], ...] = ()
    picks: tuple[Pick, ...] = ()
    receives: Message | None = None
    sends: tuple[Message, ...] = ()
    reads: Version | None = None
    writes: Version | None = None
    after: tuple[tuple[tuple[Any, ...], Value | Has], ...] = ()
    before: tuple[tuple[tuple[Any, ...], Value | Has], ...] = ()
    to: frozenset[Value] | None = None
    tells: tuple[tuple[str, Like], ...] = ()
    may_skip: bool = False

    @property
    def title(self) -> str:
        """The action with its parameters."""
        bound = ", ".join(f"{name}={value}" for name, value in self.parameters)
        return f"{self.action}({bound})" if self.action else "no step"


def rounded(number: int, least: int = 4) -> int:
    """A number that is at least as high, of which there are few, and at least ``least``: traces with the same constants
    are followed faster together.
    """
    size = least
    while size < number:
        size *= 2
    return size


def by_action(table: Mapping[str, S]) -> dict[str, S]:
    """What stands in a table for each action; its keys are names of actions, with spaces between them."""
    return {action: held for actions, held in table.items() for action in actions.split()}


class NotCovered(Exception):
    """A trace has something that the conformance does not know how to hold to the protocol."""


class Conformance(ABC):
    """How the trace of one subject in one run is held to a protocol.

    ``name``: of the protocol that a user names. ``subjects``: a regular expression of all subjects that the protocol is
    about; others in the same trace belong to other protocols, and are left out. ``events``: all of them that are about
    the subject or about all subjects, node by node in their order. A subclass may look ahead in them.
    """

    name: ClassVar[str]
    protocol: ClassVar[type[Protocol]]
    subjects: ClassVar[str] = ".*"

    def __init__(self, subject: str, events: Sequence[Event]) -> None:
        self.subject = subject
        self.events = events

    @classmethod
    def of(cls, subject: str, events: Sequence[Event]) -> Conformance:
        """The conformance that holds this trace to a protocol: this one, or one that knows its writer better."""
        return cls(subject, events)

    @abstractmethod
    def constants(self) -> Mapping[str, Any]:
        """The constants of the protocol for this trace. Traces with the same constants are followed faster together."""

    @abstractmethod
    def bind(self, protocol: Protocol) -> None:
        """The protocol with these constants: the values that its model values stand for can be bound."""

    @abstractmethod
    def steps(self, event: Event) -> Iterable[Step]:
        """The steps of one event, in order; none for an event that the protocol does not know of."""

    def in_order(self) -> Sequence[Event]:
        """The events in the order in which each node took their steps, where that differs from the order in which it
        traced them.
        """
        return self.events

    def is_untouched(self) -> bool:
        """Whether nothing was done to the subject, as far as its events tell. Asked of a trace without a step, which is
        a behaviour only then.
        """
        return False

    def names(self) -> Mapping[str, str]:
        """The names of the things that model values stand for, for people."""
        return {}

    @classmethod
    def is_over(cls, events: Sequence[Event]) -> bool:
        """Whether nothing that matters is to come of a subject, given its events: it is closed, say. Asked where traces
        are validated while they are written.
        """
        return False

    @classmethod
    def still_needed(cls, events: Sequence[Event]) -> Iterable[Event]:
        """Those events, of all that are about all subjects, that the verdict on any subject still depends on. Asked
        where memory is to be bounded.
        """
        return events
