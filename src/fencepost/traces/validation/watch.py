"""Validates traces while they are written, in bounded memory.

Events of different nodes arrive in any order, and some arrive late. So no event is judged on arrival: the events of a
subject are kept, and the whole trace is validated again once enough have been added. A refused step waits for its
causes. They happened before it, so they arrive within the time that an event takes to get here. Once a step has been
refused for longer than that time, ``patience``, the trace is rejected.

Memory is bounded by ``most`` events. Beyond that, the subject with the most events is dropped, with the verdict so far.
Validating again whenever a trace has grown by a share of its size costs, in total, a constant multiple of validating it
once. The cached steps make each repetition cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from fencepost.errors import FencepostError, ProtocolRaised
from fencepost.semantics.authors import brief
from fencepost.traces.event import ENDED
from fencepost.traces.validation.conformance import Event
from fencepost.traces.validation.outcome import Explain, Outcome, judged
from fencepost.traces.validation.traces import in_order
from fencepost.traces.validation.validate import Validator, all_of, refuse_unless

Answer = TypeVar("Answer")

SHARE = 4
"""A trace is validated again when one in ``SHARE`` of its events is new."""

PAUSE = 1.0
"""Seconds after which a trace with any new event is validated again. If the patience is shorter, it is validated sooner
while it is short.
"""

FOR_EACH = 0.0002
"""The seconds for each event of a trace that pass before it is validated again, up to :data:`PAUSE`. Validating one
takes a third of that.
"""


class Limits(msgspec.Struct, frozen=True):
    """``patience``: seconds that a refused step waits for its causes. ``idle``: seconds without an event after which a
    subject is finished. ``most``: the most events that are kept.
    """

    patience: float = 5.0
    idle: float = 60.0
    most: int = 500_000


class OpenTrace(msgspec.Struct):
    """A trace that is still open. ``lives``, ``ended``: the latest incarnation of each node, and the latest that has
    ended its part. ``failing``: the time since when each next step has been refused, by step.
    """

    events: list[Event] = []
    lives: dict[str, int] = {}
    ended: dict[str, int] = {}
    since: float = 0.0
    validated: int = 0
    validated_at: float = 0.0
    failing: dict[str, float] = {}

    def add(self, event: Event, now: float) -> None:
        """Take an event, in any order."""
        self.events.append(event)
        self.since = now
        node, incarnation = event.node, event.incarnation
        self.lives[node] = max(incarnation, self.lives.get(node, 0))
        if event.action == ENDED:
            self.ended[node] = max(incarnation, self.ended.get(node, 0))


class WatchState(msgspec.Struct):
    """The state of a watch on a run, or on a share of its subjects. ``common``: the events about all subjects.
    ``reported`` (encoded as ``told``): subjects whose verdict was reported; their later events are ignored.
    """

    common: list[Event] = []
    subjects: dict[str, OpenTrace] = {}
    reported: set[str] = msgspec.field(name="told", default_factory=set)


class Watch:
    """Watches a run, or a share of its subjects. ``now``: seconds of any monotonic clock."""

    def __init__(
        self,
        validator: Validator,
        run: str,
        limits: Limits,
        state: WatchState | None = None,
        explain: Explain | None = None,
    ) -> None:
        self.validator = validator
        self.run = run
        self.limits = limits
        self.state = state if state is not None else WatchState()
        self._explain = explain

    def feed(self, events: Iterable[Event], now: float) -> None:
        """Take events, in any order."""
        state = self.state
        for event in events:
            if event.subject is None or event.action in self.validator.conformance.heeds:
                state.common.append(event)
            elif event.subject not in state.reported:
                state.subjects.setdefault(event.subject, OpenTrace()).add(event, now)

    def look(self, now: float) -> list[Outcome]:
        """The verdicts that are certain by now, of traces that are rejected or have ended. Each is reported once."""
        ended = {(event.node, event.incarnation) for event in self.state.common if event.action == ENDED}
        found = [outcome for name in list(self.state.subjects) if (outcome := self._look(name, now, ended)) is not None]
        conformance, common = self.validator.conformance, self.state.common
        self.state.common = self._ask(
            lambda: all_of(Event, conformance.still_needed(common), conformance, "still_needed")
        )
        found += self._too_long()
        return found

    def finish(self, now: float) -> list[Outcome]:
        """The verdicts of all remaining traces at the end of the watch. A trace whose next step still waits is not
        finished.
        """
        found = []
        for name in list(self.state.subjects):
            failing = self.state.subjects[name].failing
            outcome = self._judged(name, self._explain)
            is_certain = bool(failing) and now - min(failing.values()) >= self.limits.patience
            outcome.finished = self._is_over(name) if outcome.accepted else is_certain or outcome.raised
            found.append(self._reported(name, outcome))
        return found

    def unfinished(self) -> list[Outcome]:
        """All remaining traces as not finished, with what is known of them. Nothing is validated for that."""
        return [
            Outcome(
                self.run, name, not subject.failing, events=len(subject.events), finished=False,
                problem=f"a step still waits: {', '.join(subject.failing)}" if subject.failing else "",
            )
            for name, subject in self.state.subjects.items()
        ]  # fmt: skip

    @property
    def is_waiting(self) -> bool:
        """Whether any subject must be looked at again even without new events."""
        return bool(self.state.subjects)

    def _look(self, name: str, now: float, ended: set[tuple[str, int]]) -> Outcome | None:
        subject, limits = self.state.subjects[name], self.limits
        grew = len(subject.events) - subject.validated
        is_over = all(life in ended or life in subject.ended.items() for life in subject.lives.items())
        is_idle = now - subject.since >= limits.idle
        if grew * SHARE < len(subject.events) and not subject.failing and not is_over and not is_idle and (
            not grew or now - subject.validated_at < min(PAUSE, max(limits.patience, len(subject.events) * FOR_EACH))
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
        refused = [f"{o.node} {o.incarnation} {o.seq} {o.why}" for o in outcome.objections]
        refused += [f"{r.node} {r.incarnation} {r.seq} {r.step}" for r in outcome.refusals]
        refused = refused or [outcome.problem]
        subject.failing = {what: subject.failing.get(what, now) for what in refused}
        if now - min(subject.failing.values()) >= limits.patience:
            return self._reported(name, self._judged(name, self._explain))
        return None

    def _judged(self, name: str, explain: Explain | None = None) -> Outcome:
        events = in_order([*self.state.common, *self.state.subjects[name].events])
        return judged(self.validator, self.run, name, lambda: events, None, explain)

    def _is_over(self, name: str) -> bool:
        conformance, events = self.validator.conformance, self.state.subjects[name].events
        found = self._ask(lambda: conformance.is_over(events))
        refuse_unless(found, bool, conformance, "is_over", "True or False")
        return found

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        """Ask the conformance. Raises :class:`fencepost.ProtocolRaised` if it raises."""
        try:
            return question()
        except FencepostError:
            raise
        except (Exception, SystemExit) as error:
            raise ProtocolRaised(f"the conformance raised {brief(error)}") from error

    def _reported(self, name: str, outcome: Outcome) -> Outcome:
        """Drop a subject whose verdict is reported."""
        del self.state.subjects[name]
        self.state.reported.add(name)
        return outcome

    def _too_long(self) -> list[Outcome]:
        """Drop the longest traces until the rest is within the limit."""
        found, subjects = [], self.state.subjects
        count = len(self.state.common) + sum(len(subject.events) for subject in subjects.values())
        while count > self.limits.most and subjects:
            name = max(subjects, key=lambda name: len(subjects[name].events))
            outcome = self._judged(name, self._explain)
            count -= len(subjects[name].events)
            if outcome.accepted:
                outcome.finished = False
            found.append(self._reported(name, outcome))
        return found
