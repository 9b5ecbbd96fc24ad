"""Validates the trace of one subject: orders its steps by causality, and replays them against a protocol."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from random import Random
from typing import Any

from fencepost.errors import ProtocolRaised
from fencepost.language.protocol import Protocol
from fencepost.language.values import encode, freeze, same, show
from fencepost.traces.validation.conformance import Conformance, Event, NotCovered, Step
from fencepost.traces.validation.order import PartialOrder, lines_of
from fencepost.traces.validation.replay import CACHE_LIMIT, Has, Refused, Replayer, Taken


@dataclass(frozen=True)
class Refusal:
    """A step that could not be taken when the replay ended: the event that reports it, and the reason."""

    event: Event
    step: Step
    why: Refused


@dataclass
class Verdict:
    """The verdict on one trace.

    ``accepted``: whether all steps were taken or skipped. Otherwise ``taken`` of ``steps`` steps show how far the
    replay got. ``skipped``: the steps that the system may have ignored, and that were left out. ``refusals``: the steps
    that could have come next, and why each was refused. ``problem``: why the trace could not be replayed at all; if it
    is not ``covered`` by the conformance, that says nothing about the system. ``path``: the steps taken. ``row``: the
    state after them. ``replayer``: the replayer used. ``refused``: how often each action was refused at each line,
    temporarily or permanently. ``names``: the names that model values stand for, as far as the replay got.
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
    replayer: Replayer | None = None
    names: Mapping[str, str] = field(default_factory=dict)


def collect_rarely() -> None:
    """Collect cyclic garbage less often in this process. The cache is long-lived, and scanning it takes a third of the
    time of a validation.
    """
    gc.set_threshold(100_000, 50, 100)


class Validator:
    """Validates traces of one conformance, one after another. Traces with the same constants share one replayer's
    cache.

    After ``cache_limit`` evaluations the least recently used replayers are dropped. This bounds memory.

    ``replayer``: a fixed one, with constants of its own. Traces must stay within its bounds.
    """

    def __init__(self, conformance: type[Conformance], replayer: Replayer | None = None) -> None:
        self.conformance = conformance
        self.cache_limit = CACHE_LIMIT
        self._fixed = replayer
        self.replayers: dict[tuple[Any, ...], Replayer] = {}
        """By protocol and constants, the most recently used last."""

    def replayer(self, constants: dict[str, Any], conformance: type[Conformance]) -> Replayer:
        """The replayer for a conformance's protocol with these constants, or the fixed one."""
        if self._fixed is not None:
            return self._fixed
        cached = sum(replayer.evaluations for replayer in self.replayers.values())
        while cached > self.cache_limit:
            cached -= self.replayers.pop(next(iter(self.replayers))).evaluations
        made = conformance.protocol
        key = (made, encode(freeze(tuple(sorted(constants.items())))))
        replayer = self.replayers.pop(key, None)
        if replayer is None:
            protocol: Protocol = made(**constants)
            replayer = Replayer(protocol, cache_limit=self.cache_limit)
        self.replayers[key] = replayer
        return replayer

    def validate(self, subject: str, events: Sequence[Event], shuffle: int | None = None) -> Verdict:
        """Validate a trace. ``shuffle``: the seed of another order that causality allows, instead of the default."""
        if not events:
            return Verdict(subject, False, 0, 0, problem="the trace is empty")
        try:
            return self._validate(subject, events, shuffle)
        except NotCovered as problem:
            return Verdict(subject, False, len(events), 0, problem=str(problem), covered=False)

    def _validate(self, subject: str, events: Sequence[Event], shuffle: int | None) -> Verdict:
        conformance = self.conformance.of(subject, events)
        replayer = self.replayer(dict(conformance.constants()), type(conformance))
        conformance.bind(replayer.protocol)
        verdict = Verdict(subject, False, len(events), 0, replayer=replayer, names=conformance.names())
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
        cycle = order.cycle()
        if cycle:
            circular = ", ".join(
                f"{sources[n].node} {sources[n].seq} {steps[n].action or sources[n].action}" for n in cycle
            )
            verdict.problem = (
                "what happened cannot be ordered, each of these comes before the next, and the last before the first:"
                f" {circular}{_hint(sources)}"
            )
            return verdict
        _Replay(replayer, steps, sources, order, verdict).run(shuffle)
        return verdict


@dataclass
class _Replay:
    """One replay of a trace. A refused step is tried again after another step, which may have to come before it."""

    replayer: Replayer
    steps: Sequence[Step]
    sources: Sequence[Event]
    order: PartialOrder
    verdict: Verdict

    def __post_init__(self) -> None:
        self.row = self.replayer.initial()

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
                # No step can be taken: skip one that the system may have ignored.
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
        """Whether the system may have ignored a step. A receipt without a send is never skipped."""
        return self.steps[number].may_skip and number not in self.order.unsent

    def _take(self, number: int) -> bool:
        """Take a step, if the protocol allows it and agrees with the trace about it. Returns whether it was taken.

        Raises :class:`fencepost.ProtocolRaised`, which names the event, if the step is none of the protocol, or its
        Python raises.
        """
        try:
            return self._is_taken(number)
        except ProtocolRaised as error:
            event, step = self.sources[number], self.steps[number]
            what = f"{step.title}, for event {event.seq} ({event.action}) of node {event.node}"
            raise ProtocolRaised(f"{error}; the step was {what}", where=error.where) from error

    def _is_taken(self, number: int) -> bool:
        step = self.steps[number]
        if step.wrong or number in self.order.unsent or (step.before and self._mismatch(step.before, "before")):
            return False
        if step.action is None:
            return not self._difference(step, _NOTHING)
        taken = self.replayer.step(self.row, step.action, step.parameters, step.picks)
        if type(taken) is Refused:
            self.verdict.refused[step.action, _where_refused(taken)] += 1
            return False
        assert isinstance(taken, Taken)
        before = self.replayer.apply(self.row, taken.writes)
        if (step.after or step.tells or step.to is not None) and self._difference(step, taken):
            self.replayer.apply(self.row, tuple(before))
            return False
        self.verdict.taken += 1
        self.verdict.path.append((self.sources[number], step, taken))
        return True

    def _difference(self, step: Step, taken: Taken) -> str:
        """The first difference between the step and the trace, in words; empty if there is none."""
        difference = self._mismatch(step.after, "then")
        if difference:
            return difference
        sent_to = frozenset(event.dest for event in taken.events if event.kind == "send")
        if step.to is not None and sent_to != step.to:
            return f"the protocol sends to {show(sent_to)}, and the trace says to {show(step.to)}"
        for kind, wanted in step.tells:
            events = [event for event in taken.events if event.kind == kind]
            if not any(wanted.matches(message) for event in events for message in event.passed):
                did = "; ".join(event.text for event in events) or "nothing"
                return f"the protocol {kind}s {did}, and the trace says {wanted}"
        return ""

    def _mismatch(self, parts: Sequence[tuple[tuple[Any, ...], Any]], when: str) -> str:
        """The first part of the state that does not match the trace, in words; empty if all match."""
        for path, expected in parts:
            try:
                found = self.replayer.value(self.row, path)
            except KeyError:
                named = ".".join(map(str, path))
                raise ProtocolRaised(f"{self.replayer.protocol.name} has no part {named} in its state") from None
            if not (expected.matches(found) if isinstance(expected, Has) else same(found, expected)):
                traced = expected if isinstance(expected, Has) else show(expected)
                return f"{'.'.join(map(str, path))} is {show(found)} {when}, and the trace says {traced}"
        return ""

    def _why(self, number: int) -> Refused:
        """The reason why a step cannot be taken now."""
        step = self.steps[number]
        if step.wrong:
            return Refused(step.wrong)
        if number in self.order.unsent:
            return Refused("nobody has sent what it receives, or not so often")
        reason = self._mismatch(step.before, "before")
        if reason:
            return Refused(reason)
        if step.action is None:
            return Refused(self._difference(step, _NOTHING))
        found = self.replayer.step(self.row, step.action, step.parameters, step.picks)
        if isinstance(found, Refused):
            return found
        before = self.replayer.apply(self.row, found.writes)
        reason = self._difference(step, found)
        self.replayer.apply(self.row, tuple(before))
        return Refused(reason)


def _hint(sources: Sequence[Event]) -> str:
    """What may be wrong where events have no order: two runs that have one name."""
    again = {event.node: event.incarnation for event in sources if event.incarnation > 1}
    if not again:
        return ""
    node, times = next(iter(again.items()))
    return (
        f". Node {node} was started {times} times: if these are runs of their own, give each another run name, or"
        " another folder"
    )


def _where_refused(refused: Refused) -> str:
    """The line that refused a step, or the reason."""
    return f"{refused.where}: {refused.asked}" if refused.where else refused.reason


_NOTHING = Taken((), (), ())


def _rank(number: int, shuffle: int | None) -> int:
    """The priority of a step among those that may come next: its place in the trace, or a random number."""
    return number if shuffle is None else Random(shuffle << 32 | number).getrandbits(32)
