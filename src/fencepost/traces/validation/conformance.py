"""The base classes of conformance files, which map the events of a trace to the steps of a protocol.

A conformance is Python, and stands beside its protocol. It knows the events of the system and the actions of the
protocol. The validator knows neither: it orders steps by the messages that they send and receive and the versions that
they read and write, and replays them against the protocol.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias, TypeVar

import msgspec

from fencepost.language.protocol import Protocol
from fencepost.language.values import Value
from fencepost.traces.validation.replay import Has, Like, Pick

S = TypeVar("S")
V = TypeVar("V")

Message: TypeAlias = Hashable
"""The name of a message, the same for its sender and its receiver. Messages of the same name are received in the order
in which they were sent.
"""

Version: TypeAlias = tuple[Hashable, int]
"""One version of an object that is replaced as a whole: the object's name and the version number."""


class Event(msgspec.Struct, frozen=True):
    """One event of a node: a :class:`fencepost.TraceEvent` with its parameters as values.

    ``seq`` counts the events of one ``incarnation`` of a ``node`` from 1, without gaps. ``subject``: the object that
    the event is about, which is the unit of validation; None for all subjects. ``actor``: the role within the node.
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
    """One step of the protocol that an event reports.

    ``parameters``: of the action. ``picks``: the options that its choices take, in order. ``receives``, ``sends``:
    messages; a receipt comes after its send. ``writes``, ``reads``: versions; a version is written after all reads of
    the version before it. ``after``: values that parts of the state, named by their paths, must have after the step;
    ``before``: values just before it. ``to``: all receivers of its messages. ``tells``: for a kind of message event
    (``send``, ``receive``), the fields that a message of the step must have. ``may_skip``: the system may have ignored
    the step, so it is skipped where it is not enabled. ``wrong``: how the event contradicts the rest of the trace; such
    a step is refused. Without ``action``: the event takes part in the order, and ``after`` must hold.
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
    wrong: str = ""

    @property
    def title(self) -> str:
        """The action with its parameters."""
        bound = ", ".join(f"{name}={value}" for name, value in self.parameters)
        return f"{self.action}({bound})" if self.action else "no step"


def rounded(number: int, least: int = 4) -> int:
    """``number`` rounded up to ``least`` times a power of two. Fewer distinct constants mean that more traces share one
    replayer and its cache.
    """
    size = least
    while size < number:
        size *= 2
    return size


def by_action(table: Mapping[str, S]) -> dict[str, S]:
    """A table by action, from one whose keys are names of several actions, separated by spaces."""
    return {action: held for actions, held in table.items() for action in actions.split()}


class NotCovered(Exception):
    """A trace has an event that the conformance cannot map to the protocol."""


def known(values: Callable[[Any], V], event: Event, field: str, told: Any = None) -> V:
    """A field of an event as one of the values of an enumeration: ``values`` maps what the trace says to the value.
    ``told``: what the trace says, if it is not the field itself. Raises :class:`NotCovered` if there is no such value.
    """
    told = event.parameters[field] if told is None else told
    try:
        return values(told)
    except (KeyError, ValueError):
        raise NotCovered(
            f"{event.node} {event.seq} {event.action} has the {field} {told!r}, which the protocol does not know"
        ) from None


class Conformance(ABC):
    """Maps the trace of one subject in one run to the steps of a protocol.

    ``name``: the protocol's name for users. ``subjects``: a regular expression that matches the protocol's subjects;
    events of other subjects belong to other protocols, and are left out. ``heeds``: the actions of other subjects whose
    events each trace of the run has too, because events of the subject follow from them. ``events``: all events about
    the subject or about all subjects, node by node, each node's in order. A subclass may look ahead in them.
    """

    name: ClassVar[str]
    protocol: ClassVar[type[Protocol]]
    subjects: ClassVar[str] = ".*"
    heeds: ClassVar[tuple[str, ...]] = ()

    def __init__(self, subject: str, events: Sequence[Event]) -> None:
        self.subject = subject
        self.events = events

    @classmethod
    def of(cls, subject: str, events: Sequence[Event]) -> Conformance:
        """The conformance for this trace: one of this class, or of a class that knows the trace's writer better."""
        return cls(subject, events)

    @abstractmethod
    def constants(self) -> Mapping[str, Any]:
        """The constants of the protocol for this trace. Traces with equal constants share one replayer's cache."""

    @abstractmethod
    def bind(self, protocol: Protocol) -> None:
        """Called with the protocol that has these constants, to bind its model values to names in the trace."""

    @abstractmethod
    def steps(self, event: Event) -> Iterable[Step]:
        """The steps of one event, in order; none for an event that the protocol does not model."""

    def in_order(self) -> Sequence[Event]:
        """The events in the order in which each node took their steps. Override it where a node traces in another
        order.
        """
        return self.events

    def is_untouched(self) -> bool:
        """Whether the events show that nothing was done to the subject. A trace without a step is accepted only if this
        is true.
        """
        return False

    def names(self) -> Mapping[str, str]:
        """The names in the trace that model values stand for, for reports."""
        return {}

    @classmethod
    def is_over(cls, events: Sequence[Event]) -> bool:
        """Whether no further event of a subject can matter, given its events: the subject is closed, say. Used where
        traces are validated while they are written.
        """
        return False

    @classmethod
    def still_needed(cls, events: Sequence[Event]) -> Iterable[Event]:
        """Of the events about all subjects, those that any verdict may still depend on. Used to bound memory."""
        return events
