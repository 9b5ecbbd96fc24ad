"""Validates traces while they are written, with a bounded memory.

Events come in any order between nodes, and some come late. So nothing is decided when it comes: the events of a subject
are kept, and validated anew when enough have been added. A step that cannot be taken waits for what may still come
before it. Its causes happened before it did, and so they come within the time that events take from where they happen
to here: once a step has been refused for longer than that, which is ``patience``, the trace is rejected.

The memory is bounded by ``most`` events: of the subject that has the most of them when there are more, nothing more is
said than that it was too long. Validating anew whenever a trace has grown by a share of its size costs, in all, a
constant number of times what validating it once costs; what was learnt of the protocol makes the second time cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from fencepost.errors import ProtocolRaised
from fencepost.semantics.authors import brief
from fencepost.traces.event import ENDED
from fencepost.traces.validation.conformance import Event
from fencepost.traces.validation.outcome import Explain, Outcome, judged
from fencepost.traces.validation.traces import in_order
from fencepost.traces.validation.validate import Validator

Answer = TypeVar("Answer")

SHARE = 4
"""A trace is validated anew when a part of it as large as one in so many is new."""

PAUSE = 1.0
"""Seconds after which it is, however little is new."""


class Limits(msgspec.Struct, frozen=True):
    """``patience``: seconds that a refused step waits for its causes. ``idle``: seconds without an event after which a
    subject is let go of. ``most``: events that are kept.
    """

    patience: float = 5.0
    idle: float = 60.0
    most: int = 500_000


class Open(msgspec.Struct):
    """A subject whose trace goes on. ``failing``: since when what could come next was refused, by what it is."""

    events: list[Event] = []
    since: float = 0.0
    validated: int = 0
    validated_at: float = 0.0
    failing: dict[str, float] = {}


class Kept(msgspec.Struct):
    """All that is remembered of a run, or of a share of its subjects: ``common`` are the events that are about all
    subjects, ``reported`` (encoded as ``told``) the subjects whose verdict was reported: their events are passed over.
    """

    common: list[Event] = []
    subjects: dict[str, Open] = {}
    reported: set[str] = msgspec.field(name="told", default_factory=set)


class Watch:
    """Watches a run, or a share of its subjects. ``now`` is any clock's time in seconds, which only goes forward."""

    def __init__(
        self, validator: Validator, run: str, limits: Limits, kept: Kept | None = None, explain: Explain | None = None
    ) -> None:
        self.validator = validator
        self.run = run
        self.limits = limits
        self.kept = kept if kept is not None else Kept()
        self._explain = explain

    def feed(self, events: Iterable[Event], now: float) -> None:
        """Take events, in any order."""
        kept = self.kept
        for event in events:
            if event.subject is None:
                kept.common.append(event)
            elif event.subject not in kept.reported:
                subject = kept.subjects.setdefault(event.subject, Open())
                subject.events.append(event)
                subject.since = now

    def look(self, now: float) -> list[Outcome]:
        """The verdicts that are certain by now: traces that are rejected, or have ended. Each is reported once."""
        ended = {(event.node, event.incarnation) for event in self.kept.common if event.action == ENDED}
        found = [outcome for name in list(self.kept.subjects) if (outcome := self._look(name, now, ended)) is not None]
        self.kept.common = list(self._asked(self.validator.conformance.still_needed, self.kept.common))
        found += self._too_long()
        return found

    def finish(self, now: float) -> list[Outcome]:
        """The verdicts of all traces that are left when the watch ends. A trace that still waits is not finished."""
        found = []
        for name in list(self.kept.subjects):
            failing = self.kept.subjects[name].failing
            outcome = self._judged(name, self._explain)
            is_certain = bool(failing) and now - min(failing.values()) >= self.limits.patience
            outcome.finished = self._is_over(name) if outcome.accepted else is_certain or outcome.raised
            found.append(self._reported(name, outcome))
        return found

    @property
    def is_waiting(self) -> bool:
        """Whether there is a subject to look at again, even if nothing comes."""
        return bool(self.kept.subjects)

    def _look(self, name: str, now: float, ended: set[tuple[str, int]]) -> Outcome | None:
        subject, limits = self.kept.subjects[name], self.limits
        grew = len(subject.events) - subject.validated
        last = {event.node: event.incarnation for event in in_order(subject.events)}
        is_over = all(life in ended for life in last.items())
        is_idle = now - subject.since >= limits.idle
        if grew * SHARE < len(subject.events) and not subject.failing and not is_over and not is_idle and (
            not grew or now - subject.validated_at < PAUSE
        ):  # fmt: skip
            return None
        outcome = self._judged(name)
        subject.validated, subject.validated_at = len(subject.events), now
        if outcome.accepted:
            subject.failing = {}
            if is_over or is_idle:
                outcome.finished = is_over or self._is_over(name)
                return self._reported(name, outcome)
            return None
        refused = [f"{r.node} {r.incarnation} {r.seq} {r.step}" for r in outcome.refusals] or [outcome.problem]
        subject.failing = {what: subject.failing.get(what, now) for what in refused}
        if now - min(subject.failing.values()) >= limits.patience:
            return self._reported(name, self._judged(name, self._explain))
        return None

    def _judged(self, name: str, explain: Explain | None = None) -> Outcome:
        events = in_order([*self.kept.common, *self.kept.subjects[name].events])
        return judged(self.validator, self.run, name, lambda: events, None, explain)

    def _is_over(self, name: str) -> bool:
        events: Sequence[Event] = self.kept.subjects[name].events
        return bool(self._asked(self.validator.conformance.is_over, events))

    def _asked(self, question: Callable[[Sequence[Event]], Answer], events: Sequence[Event]) -> Answer:
        """What the conformance answers. Raises :class:`fencepost.ProtocolRaised` if it raises."""
        try:
            return question(events)
        except (Exception, SystemExit) as error:
            raise ProtocolRaised(f"the conformance raised {brief(error)}") from error

    def _reported(self, name: str, outcome: Outcome) -> Outcome:
        """Let go of a subject."""
        del self.kept.subjects[name]
        self.kept.reported.add(name)
        return outcome

    def _too_long(self) -> list[Outcome]:
        """Let go of the longest traces until there is room."""
        found, subjects = [], self.kept.subjects
        count = len(self.kept.common) + sum(len(subject.events) for subject in subjects.values())
        while count > self.limits.most and subjects:
            name = max(subjects, key=lambda name: len(subjects[name].events))
            outcome = self._judged(name, self._explain)
            count -= len(subjects[name].events)
            if outcome.accepted:
                outcome.finished = False
            found.append(self._reported(name, outcome))
        return found
