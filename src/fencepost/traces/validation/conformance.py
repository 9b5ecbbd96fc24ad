"""The base classes of conformance files, which map the events of a trace to the steps of a protocol.

A conformance is Python, and stands beside its protocol. It knows the events of the system and the actions of the
protocol. The validator knows neither: it orders steps by the messages that they send and receive and the versions that
they read and write, and replays them against the protocol.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, TypeVar

import msgspec

from fencepost.language.protocol import Protocol
from fencepost.traces.foreign import Mapped
from fencepost.traces.validation.steps import Step

S = TypeVar("S")
V = TypeVar("V")

_UNSEEN = {"lose", "loses", "lost", "drop", "drops", "crash", "crashes", "timeout", "timeouts", "time out", "times out"}
"""Words in the names of actions that systems do not report."""


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


def _is_unseen(action: str) -> bool:
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", action)]
    return not _UNSEEN.isdisjoint(words) or not _UNSEEN.isdisjoint(map(" ".join, pairwise(words)))


@dataclass(frozen=True)
class Objection:
    """An event that must not happen after what the trace shows, and the reason in words."""

    event: Event
    why: str

    def __post_init__(self) -> None:
        if not isinstance(self.event, Event) or not isinstance(self.why, str):
            raise TypeError(f"an objection is of an event and a text: {self!r}")


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

    ``name``: the protocol's name for users. ``protocol``: its class, or the file of a specification in TLA+, whose
    ``configuration`` is the file beside it for None. ``subjects``: a regular expression that matches the protocol's
    subjects; events of other subjects belong to other protocols, and are left out. ``heeds``: the actions of other
    subjects whose events each trace of the run has too, because events of the subject follow from them. ``events``:
    all events about the subject or about all subjects, node by node, each node's in order. A subclass may look
    ahead in them.
    """

    name: ClassVar[str]
    protocol: ClassVar[type[Protocol] | str]
    configuration: ClassVar[str | None] = None
    subjects: ClassVar[str] = ".*"
    heeds: ClassVar[tuple[str, ...]] = ()

    def __init__(self, subject: str, events: Sequence[Event]) -> None:
        self.subject = subject
        self.events = events

    @classmethod
    def of(cls, subject: str, events: Sequence[Event]) -> Conformance:
        """The conformance for this trace: one of this class, or of a class that knows the trace's writer better."""
        return cls(subject, events)

    def constants(self) -> Mapping[str, Any]:
        """The constants of the protocol for this trace, if it has others than the declared ones. For TLA+: numbers,
        texts of values, and lists of these. Traces with equal constants share one replayer's cache.
        """
        return {}

    def bind(self, protocol: Any) -> None:
        """Called with the protocol that has these constants, to bind its model values to names in the trace."""
        return

    @abstractmethod
    def steps(self, event: Event) -> Iterable[Step]:
        """The steps of one event, in order; none for an event that the protocol does not model."""

    def hidden(self, protocol: Any) -> Iterable[Step]:
        """The steps that the system may take without an event. Validation finds them. A parameter that such a step does
        not name may have any value, and its choices any options. What else a :class:`Step` has is of no use here.

        By default, these are the actions of the protocol whose names say that something is lost or dropped, crashes,
        or times out. Of these, an action that the trace reports itself is never taken without an event.
        """
        return [Step(each.name) for each in protocol.declared("action") if _is_unseen(each.name)]

    def in_order(self) -> Sequence[Event]:
        """The events in the order in which each node took their steps. Override it where a node traces in another
        order.
        """
        return self.events

    def objections(self) -> Iterable[Objection]:
        """The objections of a monitor, which looks at the events and not at the replay. Override it where the system
        and its protocol share code: a replay does not notice a fault that both have.
        """
        return ()

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
        """Of the events about all subjects, those that any verdict may still depend on. The others are kept for no
        trace, which bounds memory.
        """
        return events

    @classmethod
    def chooses(cls) -> bool:
        """Whether :meth:`still_needed` may leave out events."""
        return getattr(cls.still_needed, "__func__", None) is not vars(Conformance)["still_needed"].__func__

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> Mapped:
        """The event that a record of another system reports, as a :class:`fencepost.traces.foreign.ReadEvent`; several,
        in their order; or None for a record that is no event. Only a conformance that defines it can read records: an
        object of JSON, a log record or span of OpenTelemetry, a row of CSV or Parquet.
        """
        raise NotImplementedError
