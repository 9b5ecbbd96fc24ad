"""Holds the trace of one subject to a protocol: orders its steps, and follows the protocol along them."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from random import Random
from typing import Any

from fencepost.language.protocol import Protocol
from fencepost.language.values import encode, freeze, same, show
from fencepost.traces.validation.conformance import Conformance, Event, NotCovered, Step
from fencepost.traces.validation.follow import MOST_LEARNT, Follower, Has, Refused, Taken
from fencepost.traces.validation.order import PartialOrder, lines_of


@dataclass(frozen=True)
class Refusal:
    """A step that could not be taken where the trace ends: the event that tells of it, and why."""

    event: Event
    step: Step
    why: Refused


@dataclass
class Verdict:
    """The verdict on one trace.

    ``accepted``, or how far it got: ``taken`` of ``steps`` steps. ``refusals``: what could have come next, and why none
    of it can; ``problem``: why the trace could not be followed at all, which says nothing about the system if it is not
    ``covered`` by the conformance. ``path``: the steps that were taken. ``follower``:
    who has followed it, ``refused``: how often an action was refused at a line, for the time being or for good;
    ``names``: what the model values stand for, as far as the trace got there.
    """

    subject: str
    accepted: bool
    events: int
    steps: int
    taken: int = 0
    skipped: int = 0
    refusals: list[Refusal] = field(default_factory=list)
    problem: str = ""
    path: list[tuple[Event, Step, Taken]] = field(default_factory=list)
    row: list[int] = field(default_factory=list)
    covered: bool = True
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    follower: Follower | None = None
    names: Mapping[str, str] = field(default_factory=dict)


def collect_rarely() -> None:
    """Let this process look for cycles of garbage less often than Python does: what is learnt stays, and looking
    through all of it takes a third of the time.
    """
    gc.set_threshold(100_000, 50, 100)


class Validator:
    """Validates traces of one conformance, one after another. What it has learnt of a protocol with its constants
    serves all of them.

    After ``most_learnt`` evaluations that is forgotten which was asked for the longest ago, and learnt anew: that
    bounds the memory.

    ``follower``: of a protocol whose constants are not those of the traces, which have to stay within its bounds.
    """

    def __init__(self, conformance: type[Conformance], follower: Follower | None = None) -> None:
        self.conformance = conformance
        self.most_learnt = MOST_LEARNT
        self._fixed = follower
        self.followers: dict[tuple[Any, ...], Follower] = {}
        """By protocol and constants; that which was asked for last is the last."""

    def follower(self, constants: dict[str, Any], conformance: type[Conformance]) -> Follower:
        """The protocol of a conformance with some constants; or the one with those that were given."""
        if self._fixed is not None:
            return self._fixed
        learnt = sum(follower.evaluations for follower in self.followers.values())
        while learnt > self.most_learnt:
            learnt -= self.followers.pop(next(iter(self.followers))).evaluations
        made = conformance.protocol
        key = (made, encode(freeze(tuple(sorted(constants.items())))))
        follower = self.followers.pop(key, None)
        if follower is None:
            protocol: Protocol = made(**constants)
            follower = Follower(protocol, most_learnt=self.most_learnt)
        self.followers[key] = follower
        return follower

    def validate(self, subject: str, events: Sequence[Event], shuffle: int | None = None) -> Verdict:
        """Hold a trace to the protocol. ``shuffle``: the seed of another order that the causes allow, instead of the
        first one.
        """
        if not events:
            return Verdict(subject, False, 0, 0, problem="the trace is empty")
        try:
            return self._validate(subject, events, shuffle)
        except NotCovered as problem:
            return Verdict(subject, False, len(events), 0, problem=str(problem), covered=False)

    def _validate(self, subject: str, events: Sequence[Event], shuffle: int | None) -> Verdict:
        conformance = self.conformance.of(subject, events)
        follower = self.follower(dict(conformance.constants()), type(conformance))
        conformance.bind(follower.protocol)
        verdict = Verdict(subject, False, len(events), 0, follower=follower, names=conformance.names())
        steps: list[Step] = []
        sources: list[Event] = []
        for event in conformance.in_order():
            for step in conformance.steps(event):
                steps.append(step)
                sources.append(event)
        verdict.steps = sum(step.action is not None for step in steps)
        if not verdict.steps and not conformance.is_untouched():
            verdict.problem = "no event of the trace is a step of the protocol"
            return verdict
        order = PartialOrder(steps, list(lines_of([event.node for event in sources])))
        circle = order.cycle()
        if circle:
            circular = ", ".join(
                f"{sources[n].node} {sources[n].seq} {steps[n].action or sources[n].action}" for n in circle
            )
            verdict.problem = (
                "what happened cannot be ordered, each of these comes before the next, and the last before the first:"
                f" {circular}"
            )
            return verdict
        _Walk(follower, steps, sources, order, verdict).run(shuffle)
        return verdict


@dataclass
class _Walk:
    """One walk along a trace. Steps that are refused wait for others that may come before them."""

    follower: Follower
    steps: Sequence[Step]
    sources: Sequence[Event]
    order: PartialOrder
    verdict: Verdict

    def __post_init__(self) -> None:
        self.row = self.follower.initial()

    def run(self, shuffle: int | None) -> None:
        waits, after = self.order.waits, self.order.after
        ready = [(_rank(number, shuffle), number) for number in self.order.first()]
        heapify(ready)
        refused: list[tuple[int, int]] = []
        left = len(self.steps)
        while ready or refused:
            if ready:
                rank, number = heappop(ready)
                if not self._take(number):
                    refused.append((rank, number))
                    continue
            else:
                # Nothing else can be taken: whatever the system may have ignored, it has.
                ignored = next((item for item in sorted(refused) if self._may_skip(item[1])), None)
                if ignored is None:
                    break
                refused.remove(ignored)
                self.verdict.skipped += 1
                number = ignored[1]
            left -= 1
            for other in after[number]:
                waits[other] -= 1
                if not waits[other]:
                    heappush(ready, (_rank(other, shuffle), other))
            if refused:
                for item in refused:
                    heappush(ready, item)
                refused.clear()
        verdict = self.verdict
        verdict.row = self.row
        verdict.accepted = not left
        for _, number in refused:
            why = self._why(number)
            verdict.refusals.append(Refusal(self.sources[number], self.steps[number], why))

    def _may_skip(self, number: int) -> bool:
        """Whether the system may have ignored a step: not what it has received from nobody."""
        return self.steps[number].may_skip and number not in self.order.unsent

    def _take(self, number: int) -> bool:
        step = self.steps[number]
        if number in self.order.unsent or (step.before and self._holds_not(step.before, "before")):
            return False
        if step.action is None:
            return not self._differs(step, _NOTHING)
        taken = self.follower.step(self.row, step.action, step.parameters, step.picks)
        if type(taken) is Refused:
            self.verdict.refused[step.action, _place(taken)] += 1
            return False
        assert isinstance(taken, Taken)
        before = self.follower.apply(self.row, taken.writes)
        if (step.after or step.tells or step.to is not None) and self._differs(step, taken):
            self.follower.apply(self.row, tuple(before))
            return False
        self.verdict.taken += 1
        self.verdict.path.append((self.sources[number], step, taken))
        return True

    def _differs(self, step: Step, taken: Taken) -> str:
        """The difference of the step from the trace, in words; empty if there is none."""
        differs = self._holds_not(step.after, "then")
        if differs:
            return differs
        sent_to = frozenset(event.dest for event in taken.events if event.kind == "send")
        if step.to is not None and sent_to != step.to:
            return f"the protocol sends to {show(sent_to)}, and the trace says to {show(step.to)}"
        for kind, wanted in step.tells:
            events = [event for event in taken.events if event.kind == kind]
            if not any(wanted.matches(message) for event in events for message in event.passed):
                did = "; ".join(event.text for event in events) or "nothing"
                return f"the protocol {kind}s {did}, and the trace says {wanted}"
        return ""

    def _holds_not(self, parts: Sequence[tuple[tuple[Any, ...], Any]], when: str) -> str:
        """The first part of the state that is not as the trace tells, in words; empty if there is none."""
        for path, expected in parts:
            found = self.follower.value(self.row, path)
            if not (expected.matches(found) if type(expected) is Has else same(found, expected)):
                traced = expected if type(expected) is Has else show(expected)
                return f"{'.'.join(map(str, path))} is {show(found)} {when}, and the trace says {traced}"
        return ""

    def _why(self, number: int) -> Refused:
        step = self.steps[number]
        if number in self.order.unsent:
            return Refused("nobody has sent what it receives, or not so often")
        reason = self._holds_not(step.before, "before")
        if reason:
            return Refused(reason)
        if step.action is None:
            return Refused(self._differs(step, _NOTHING))
        found = self.follower.step(self.row, step.action, step.parameters, step.picks)
        if isinstance(found, Refused):
            return found
        before = self.follower.apply(self.row, found.writes)
        reason = self._differs(step, found)
        self.follower.apply(self.row, tuple(before))
        return Refused(reason)


def _place(refused: Refused) -> str:
    """The line that refuses a step."""
    return f"{refused.where}: {refused.asked}" if refused.where else refused.reason


_NOTHING = Taken((), (), ())


def _rank(number: int, shuffle: int | None) -> int:
    return number if shuffle is None else Random(shuffle << 32 | number).getrandbits(32)
