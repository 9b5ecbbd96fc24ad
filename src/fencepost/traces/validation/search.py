"""Finds a path of a protocol that is the trace: its steps in an order that causality allows, and hidden ones between.

A trace that leaves nothing open is followed step by step. A step that is refused is tried again after another one, and
nothing is taken back: the order of causes decides, and steps without an order do not depend on each other. So a long
trace needs no more than its last state. Once the cache of steps has been of no use, all but the last moves are let go,
and parts of the state that are back at their default are forgotten. A caller that asks for the path has it taken again.

Where a conformance has hidden steps, or leaves parameters or choices open, there are several ways to go on. The first
one is taken: the next steps as they are, and only if none can be taken, some hidden steps (:data:`FOR_EACH`) and then
one of the trace. Where no way goes on, the last step is taken back for its next way. It remembers the states from which
no way leads on, for each set of steps that are left, so it tries each once.

A hidden step is tried where it matters: directly before a step that it does not commute with, by what they read and
write. Elsewhere it could as well come later. So a hidden step is looked for from the step of the trace that needs it.
The refused step has read some parts of the state before it was refused. A hidden step that writes one of them may help,
and so may one that writes what such a step reads. The search goes first to where the step of the trace reads farthest
before it is refused.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from random import Random
from typing import Any, NamedTuple, TypeAlias

from msgspec.structs import replace

from fencepost.errors import ProtocolRaised
from fencepost.language.values import same, show
from fencepost.traces.validation.conformance import Event
from fencepost.traces.validation.order import PartialOrder
from fencepost.traces.validation.replay import MANY, Open, Refused, Replayer, Taken
from fencepost.traces.validation.steps import Matcher, Step, Way
from fencepost.traces.validation.verdict import Entry, Front, Refusal, Verdict

FOR_EACH = 3
"""The most hidden steps for each step of the trace so far, and before the first one."""

MOST_TRIED = 200_000
"""The most steps that are tried, beyond those of the trace, to find the ones that a trace leaves out. This bounds
memory too: a state that is kept counts as one for each :data:`SLOTS_A_TRY` slots.
"""

SLOTS_A_TRY = 100

MOST_REASONS = 3
"""The most reasons that are given for one step which may be taken in several ways."""

LAST = 1_000
"""How many of the last moves of a long trace are kept, for the report."""

GROWTH = 1.25
"""What is known of the state is looked through, and what is not needed is forgotten, once it has grown by this
factor.
"""

TOLD_EVERY = 256
"""Moves between two reports of how far a search is."""

MOST_FRONTS = 20
"""The most places that are explained, of those where no way goes on."""


Report: TypeAlias = Callable[[int, int], None]


class _Bound(Exception):
    """The most steps have been tried."""


class _Hidden(NamedTuple):
    """A hidden step, the slots that it reads or writes, and those that it writes."""

    step: Step
    taken: Taken
    reads: set[int]
    writes: set[int]


class _Offered(NamedTuple):
    """A hidden step that can be taken in some state, and may help. ``distance``: how many others it has to help for
    that.
    """

    way: Way
    taken: Taken
    reads: set[int]
    writes: set[int]
    distance: int = 0


class _Met(NamedTuple):
    """A hidden step in some state. ``taken``: None if it cannot be taken there. ``may_write``: what it writes there or,
    if it cannot be taken, wrote elsewhere; None if that is not known.
    """

    way: Way
    taken: Taken | None
    reads: set[int]
    may_write: set[int] | None


@dataclass(slots=True, order=True)
class _Lead:
    """Hidden steps towards a step of the trace. It is refused after them, after it has read ``-read`` slots."""

    read: int
    cost: int
    place: int
    chain: tuple[_Hidden, ...] = field(compare=False)
    row: list[int] = field(compare=False)
    wanted: set[int] = field(compare=False)
    """The slots that it has read."""


@dataclass(slots=True, eq=False)
class _Move:
    """One step of the trace, with the hidden ones before it. ``step``: None if it is skipped. ``others``: the ways
    that are left to try in place of this one; None if that is not known yet.
    """

    number: int
    step: Step | None
    taken: Taken
    hidden: tuple[_Hidden, ...] = ()
    undo: Sequence[tuple[int, int]] = ()
    others: Iterator[_Move] | None = None


@dataclass
class Search:
    """One search for a path. ``hidden``: the steps that may be taken without an event. ``report``: called now and then
    with how many of the steps are taken, and how many there are.
    """

    replayer: Replayer
    steps: Sequence[Step]
    sources: Sequence[Event]
    order: PartialOrder
    verdict: Verdict
    hidden: Sequence[Step] = ()
    most_tried: int = MOST_TRIED
    shuffle: int | None = None
    report: Report | None = None
    tried: int = 0
    moves: list[_Move] = field(default_factory=list)
    refused: list[tuple[int, int]] = field(default_factory=list)

    def run(self) -> None:
        """Search, and complete the verdict."""
        verdict = self.verdict
        self.starts = self.replayer.initials()
        self.row = next(self.starts)
        self.start, self.later = list(self.row), next(self.starts, None)
        self.replayer.is_thorough, self.replayer.has_passed_over = self.later is not None, False
        self.may_turn = bool(self.hidden) or self.later is not None
        """Whether there may be another way than the one that is taken."""
        self.settled = 0
        """The number of moves that were made before there was another way. They cannot be taken back."""
        self.ready = [(self._rank(number), number) for number in self.order.first()]
        self.open = {number for _, number in self.ready}
        """The steps that could come next by their order."""
        heapify(self.ready)
        self.dead: set[tuple[frozenset[int], tuple[int, ...]]] = set()
        """The states from which no way leads on, each with the steps that could come next."""
        self.why: Refused | None = None
        """What refused the step that was tried last."""
        self.hidden_taken = 0
        named = tuple((each.action, each.parameters, each.picks) for each in self.hidden)
        self.footprints, self.writers = self.replayer.footprints.setdefault(named, ({}, {}))
        self.fronts: list[Front] = []
        self.farthest = -1
        self.past = array("i")
        """The steps of the moves that were let go, in their order; ``~number`` for one that was skipped."""
        self.base: list[int] | None = None
        """The state after them; None as long as all moves are kept."""
        self.most_known = 0
        verdict.accepted = True
        turns = 0
        while self._count_moves() < len(self.steps):
            turns += 1
            if not turns % TOLD_EVERY and self.report is not None:
                self.report(self._count_moves(), len(self.steps))
            try:
                if not self.may_turn:
                    self._let_go()
                if not self._go_on() and not self._turn():
                    verdict.accepted = False
                    break
            except _Bound:
                verdict.accepted = False
                verdict.problem = (
                    f"{self.most_tried:,} steps were tried in vain for the ones that the trace leaves out, and no more"
                    " are: say more in the trace or its conformance, or let more be tried"
                )
                verdict.undecided = True
                self._note_front()
                break
        if verdict.accepted:
            verdict.base, verdict.last, verdict.row = self._from(), self._path(), self.row
            verdict.skipped = self._count_skipped()
        else:
            first, verdict.fronts = self.fronts[0], self.fronts
            verdict.base, verdict.last, verdict.row = first.start, first.path, first.row
            verdict.refusals = first.refusals
        verdict.taken = sum(event is not None for event, _, _ in verdict.last)
        verdict.hidden = len(verdict.last) - verdict.taken
        if self.past:
            verdict.retake = self._retaken
            verdict.taken += sum(number >= 0 and self.steps[number].action is not None for number in self.past)

    def _rank(self, number: int) -> int:
        """The priority of a step among those that may come next: its place in the trace, or a random number."""
        return number if self.shuffle is None else Random(self.shuffle << 32 | number).getrandbits(32)

    def _from(self) -> list[int]:
        """The state where the moves that are kept begin."""
        return self.start if self.base is None else self.base

    def _count_moves(self) -> int:
        return len(self.past) + len(self.moves)

    def _count_skipped(self) -> int:
        return sum(number < 0 for number in self.past) + sum(move.step is None for move in self.moves)

    def _path(self) -> list[Entry]:
        path: list[Entry] = []
        for move in self.moves:
            path += [(None, each.step, each.taken) for each in move.hidden]
            if move.step is not None and move.step.action is not None:
                path.append((self.sources[move.number], move.step, move.taken))
        return path

    # -- long traces ---------------------------------------------------------------------------------------------------

    def _let_go(self) -> None:
        """Let all but the last moves of a long trace go, if there are many. If much more is known than after this was
        done before, forget what is not needed.
        """
        if self.base is None:
            if not self.replayer.is_useless or not self.replayer.can_forget():
                return
            self.base = list(self.start)
            self.replayer = self.verdict.replayer = self.replayer.apart()
        elif len(self.moves) <= 2 * LAST:
            return
        for move in self.moves[:-LAST]:
            self.replayer.apply(self.base, move.taken.writes)
            self.past.append(~move.number if move.step is None else move.number)
        del self.moves[:-LAST]
        if self.replayer.size > self.most_known:
            writes = [move.taken.writes for move in self.moves]
            (self.row, self.base), writes = self.replayer.forget((self.row, self.base), writes)
            for move, mine in zip(self.moves, writes, strict=True):
                move.taken = Taken(mine, move.taken.labels, move.taken.events)
            self.most_known = int(self.replayer.size * GROWTH) + MANY

    def _retaken(self) -> tuple[list[int], list[Entry]]:
        """The initial state, and the path to where the moves that are kept begin, taken again."""
        start = self.replayer.initial()
        row, path = list(start), list[Entry]()
        for number in self.past:
            step = self.steps[number]
            if number >= 0 and step.action is not None:
                taken = self.replayer.step(row, step.action, step.parameters, step.picks)
                assert type(taken) is Taken
                self.replayer.apply(row, taken.writes)
                path.append((self.sources[number], step, taken))
        return start, path

    # -- going on ------------------------------------------------------------------------------------------------------

    def _go_on(self) -> bool:
        """Take the first of the next steps that can be taken as it is. Returns whether there is one."""
        if self._is_dead():
            return False
        while self.ready:
            item = heappop(self.ready)
            number = item[1]
            step = self.steps[number]
            way = self._as_it_is(number, step)
            if way is None:
                way = next((_Move(number, *each) for each in self._ways(number, self.row)), None)
            if type(way) is _Move:
                self._do(way)
                return True
            if step.action is not None and self.why is not None and self.why.where and not self.tried:
                self.verdict.refused[step.action, f"{self.why.where}: {self.why.asked}"] += 1
            self.refused.append(item)
        return False

    def _as_it_is(self, number: int, step: Step) -> _Move | Refused | None:
        """What :meth:`_ways` comes to for the steps that most traces are made of: nothing is open or compared.
        None for others.
        """
        if step.action is None or step.before or step.after or step.tells or step.wrong or step.to is not None:
            return None
        if number in self.order.unsent:
            return None
        try:
            found = self.replayer.step(self.row, step.action, step.parameters, step.picks)
        except ProtocolRaised as error:
            raise self._named(error, number) from error
        if type(found) is Taken:
            return _Move(number, step, found)
        if type(found) is not Refused:
            return None
        self.why = found
        return found

    def _is_dead(self) -> bool:
        return bool(self.dead) and self._key() in self.dead

    def _do(self, move: _Move) -> None:
        """Take a step, after its hidden ones."""
        apply, row = self.replayer.apply, self.row
        if move.hidden:
            writes = [each.taken.writes for each in move.hidden]
            move.undo = [before for some in (*writes, move.taken.writes) for before in apply(row, some)]
            self.hidden_taken += len(move.hidden)
        else:
            undo = apply(row, move.taken.writes)
            if self.may_turn:
                move.undo = undo
        self.moves.append(move)
        waits = self.order.waits
        self.open.discard(move.number)
        for other in self.order.after[move.number]:
            waits[other] -= 1
            if not waits[other]:
                self.open.add(other)
                heappush(self.ready, (self._rank(other), other))
        if self.refused:
            for item in self.refused:
                heappush(self.ready, item)
            self.refused.clear()

    def _named(self, error: ProtocolRaised, number: int) -> ProtocolRaised:
        event, step = self.sources[number], self.steps[number]
        what = f"{step.title}, for event {event.seq} ({event.action}) of node {event.node}"
        return ProtocolRaised(f"{error}; the step was {what}", where=error.where)

    def _ways(self, number: int, row: list[int]) -> Iterator[tuple[Step, Taken]]:
        """The ways to take a step of the trace in a state, with nothing left open, that agree with the trace. The
        state is not changed. ``why``: what refuses it, if none does.

        Raises :class:`fencepost.ProtocolRaised`, which names the event, if the step is none of the protocol, or its
        Python raises.
        """
        step = self.steps[number]
        self.why = None
        if step.wrong:
            self.why = Refused(step.wrong)
            return
        if number in self.order.unsent:
            self.why = Refused("nobody has sent what it receives, or not so often")
            return
        try:
            reason = self._mismatch(step.before, "before", row) if step.before else ""
            if reason:
                self.why = Refused(reason)
            elif step.action is None:
                reason = self._difference(step, _NOTHING, row)
                if reason:
                    self.why = Refused(reason)
                else:
                    yield step, _NOTHING
            else:
                yield from self._ways_of(step, row)
        except ProtocolRaised as error:
            raise self._named(error, number) from error

    def _ways_of(self, step: Step, row: list[int]) -> Iterator[tuple[Step, Taken]]:
        assert step.action is not None
        found = self.replayer.step(row, step.action, step.parameters, step.picks)
        if type(found) is not Open:
            if self._agrees(step, found, row):
                yield step, found  # type: ignore[misc]
            return
        if not self.may_turn:
            self.may_turn, self.settled = True, len(self.moves)
        refused: list[Refused] = []
        for named, each in self.replayer.ways(row, step.action, step.parameters, step.picks):
            way = _as(step, named)
            if self._agrees(way, each, row):
                yield way, each  # type: ignore[misc]
            elif self.why is not None and self.why not in refused:
                refused.append(self.why)
        self.why = _all_of(refused) if refused else Refused("the protocol has no such values of its parameters")

    def _agrees(self, step: Step, found: Taken | Refused | Open, row: list[int]) -> bool:
        """Whether a step can be taken, and the protocol agrees with the trace about it."""
        if type(found) is not Taken:
            assert type(found) is Refused
            self.why = found
            return False
        if not (step.after or step.tells or step.to is not None):
            return True
        before = self.replayer.apply(row, found.writes)
        reason = self._difference(step, found, row)
        self.replayer.apply(row, tuple(before))
        self.why = Refused(reason) if reason else None
        return not reason

    def _difference(self, step: Step, taken: Taken, row: list[int]) -> str:
        """The first difference between the step and the trace, in words; empty if there is none."""
        difference = self._mismatch(step.after, "then", row)
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

    def _mismatch(self, parts: Sequence[tuple[tuple[Any, ...], Any]], when: str, row: list[int]) -> str:
        """The first part of the state that does not match the trace, in words; empty if all match."""
        for path, expected in parts:
            try:
                found = self.replayer.value(row, path)
            except (KeyError, TypeError):  # a part that is no key
                named = ".".join(map(str, path))
                raise ProtocolRaised(f"{self.replayer.protocol.name} has no part {named} in its state") from None
            if not (expected.matches(found) if isinstance(expected, Matcher) else same(found, expected)):
                named = ".".join(map(str, path))
                if isinstance(expected, list):  # of JSON, say: no state has one
                    raise ProtocolRaised(f"{named} is compared with the list {expected}: give a tuple")
                traced = expected if isinstance(expected, Matcher) else show(expected)
                return f"{named} is {show(found)} {when}, and the trace says {traced}"
        return ""

    # -- other ways ----------------------------------------------------------------------------------------------------

    def _turn(self) -> bool:
        """Take another way, where no next step can be taken as it is. Returns whether there is one."""
        if not self.may_turn:
            skipped = next(self._skipped(), None)
            if skipped is None:
                self._note_front()
                return False
            self._do(skipped)
            self._settle()
            return True
        others = iter(()) if self._is_dead() else self._others(None)
        while True:
            move = next(others, None)
            if move is not None:
                move.others = others
                self._do(move)
                self._settle()
                return True
            if not self._is_dead():
                self._note_front()
                self.dead.add(self._key())
                self._count_state()
            if len(self.moves) == self.settled:
                return self._lose_messages() or self._start_anew()
            last = self._undo()
            others = last.others if last.others is not None else self._others(last)

    def _lose_messages(self) -> bool:
        """Search again, with the losses that were passed over until a step was met that may need them. Returns whether
        there are any.
        """
        if not (self.replayer.has_passed_over and self.replayer.losses_matter):
            return False
        self.replayer.has_passed_over = False
        self.dead.clear()
        self._settle()
        return True

    def _start_anew(self) -> bool:
        """Begin with the next initial state. Returns whether there is one."""
        if not self.moves and self.base is None:  # all was taken back, so nothing is left of it
            normal = self.replayer.store.normal
            assert (normal(self.row), self.hidden_taken) == (normal(self.start), 0)
        if self.later is None:
            return False
        self.row, self.start = list(self.later), self.later
        self.later = next(self.starts, None)
        self._count()
        self._settle()
        return True

    def _settle(self) -> None:
        """Take the steps that could come next for ones that have not been tried."""
        self.ready = [(self._rank(number), number) for number in self.open]
        heapify(self.ready)
        self.refused.clear()

    def _undo(self) -> _Move:
        """Take the last step back."""
        move = self.moves.pop()
        self.hidden_taken -= len(move.hidden)
        self.replayer.apply(self.row, tuple(reversed(move.undo)))
        waits = self.order.waits
        for other in self.order.after[move.number]:
            if not waits[other]:
                self.open.discard(other)
            waits[other] += 1
        self.open.add(move.number)
        return move

    def _key(self) -> tuple[frozenset[int], tuple[int, ...]]:
        """What decides how it can go on. The steps that could come next say which have been taken."""
        return frozenset(self.open), self.replayer.store.normal(self.row)

    def _others(self, first: _Move | None) -> Iterator[_Move]:
        """The moves from here, but for those that go on as it is; ``first``: the one of these that was taken."""
        ready = sorted(self.open, key=self._rank)
        if first is not None and first.step is not None:
            ways = self._ways(first.number, self.row)
            next(ways)
            yield from (_Move(first.number, *way) for way in ways)
            mine = self._touched(first.number, first.step, first.taken, self.row)
            for number in ready:
                if number != first.number:
                    for step, taken in self._ways(number, self.row):
                        if _depend(mine, self._touched(number, step, taken, self.row)):
                            yield _Move(number, step, taken)
        yield from self._with_hidden(ready, first)
        if first is None:
            yield from self._skipped()

    def _skipped(self) -> Iterator[_Move]:
        """Moves that skip a step which the system may have ignored. A receipt without a send is never skipped."""
        for number in sorted(self.open, key=self._rank):
            if self.steps[number].may_skip and number not in self.order.unsent:
                yield _Move(number, None, _NOTHING)

    def _with_hidden(self, ready: Sequence[int], first: _Move | None) -> Iterator[_Move]:
        """The moves that begin with hidden steps: first with those known to write what is wanted, then with all."""
        if self.hidden:
            yield from self._led(ready, first, self._known_to_help)
            yield from self._led(ready, first, self._that_may_help)

    def _led(
        self, ready: Sequence[int], first: _Move | None, helpful: Callable[..., Iterator[_Offered]]
    ) -> Iterator[_Move]:
        """The moves that begin with ``helpful`` hidden steps. The steps of the trace take turns, each with its best
        lead.
        """
        longest = FOR_EACH * (len(self.moves) + 1) - self.hidden_taken
        leads: dict[int, list[_Lead]] = {}
        seen: dict[int, set[tuple[int, ...]]] = {}
        normal = self.replayer.store.normal
        places = count()
        for number in ready:
            if number not in self.order.unsent and not self.steps[number].wrong:
                row = list(self.row)
                wanted = self._wanted(number, row)
                leads[number] = [_Lead(-len(wanted), 0, next(places), (), row, wanted)]
                seen[number] = {normal(row)}
        while leads:
            for number in list(leads):
                lead = heappop(leads[number])
                overwritten = {slot for slot, _ in first.taken.writes} if first and first.number == number else set()
                for each in helpful(lead.row, lead.wanted, overwritten) if len(lead.chain) < longest else ():
                    after = list(lead.row)
                    self.replayer.apply(after, each.taken.writes)
                    if (there := normal(after)) in seen[number]:
                        continue
                    seen[number].add(there)
                    self._count_state()
                    chain = (*lead.chain, _Hidden(_as(self.hidden[0], each.way), each.taken, each.reads, each.writes))
                    for way, taken in self._ways(number, after):
                        if self._matter(chain, self._touched(number, way, taken, after)):
                            yield _Move(number, way, taken, chain)
                    wanted = self._wanted(number, after)
                    made = _Lead(-len(wanted), lead.cost + 1 + each.distance, next(places), chain, after, wanted)
                    heappush(leads[number], made)
                if not leads[number]:
                    del leads[number]

    def _known_to_help(self, row: list[int], wanted: set[int], _: set[int]) -> Iterator[_Offered]:
        """The hidden steps that write what is wanted, among those that did so before; then those that write what such
        a step reads.
        """
        asked, distance = dict[Way, None](), 0
        while distance < FOR_EACH:
            new = [way for slot in sorted(wanted) for way in self.writers.get(slot, ()) if way not in asked]
            asked |= dict.fromkeys(new)
            needed = set[int]()
            for pattern in dict.fromkeys(new):
                for way, taken in self.replayer.ways(row, *pattern):
                    self._count()
                    reads = self.replayer.reads(row, *way)
                    needed |= reads
                    if type(taken) is Taken:
                        writes = {slot for slot, _ in taken.writes}
                        if not writes.isdisjoint(wanted):
                            yield _Offered(way, taken, reads, writes, distance)
            if needed <= wanted:
                return
            wanted = wanted | needed
            distance += 1

    def _that_may_help(self, row: list[int], wanted: set[int], overwritten: set[int]) -> Iterator[_Offered]:
        """The hidden steps that write what is wanted, or read what would be overwritten; then those that write what
        such a step reads, and so on; then all others, since what they would write in another state is not known.
        """
        left, distance = self._every_hidden(row), 0
        while left:
            near, far = list[_Met](), list[_Met]()
            for each in left:
                may_write = each.may_write
                helps = may_write is None or not may_write.isdisjoint(wanted)
                (near if helps or not each.reads.isdisjoint(overwritten) else far).append(each)
            for each in near or far:
                if each.taken is not None and each.may_write:
                    yield _Offered(each.way, each.taken, each.reads, each.may_write, distance)
            left, overwritten = far if near else [], set()
            wanted = wanted.union(*(each.reads for each in near))
            distance += 1

    def _every_hidden(self, row: list[int]) -> list[_Met]:
        """All hidden steps in a state."""
        found = []
        for step in self.hidden:
            assert step.action is not None
            for way, taken in self.replayer.ways(row, step.action, step.parameters, step.picks):
                self._count()
                reads = self.replayer.reads(row, *way)
                action, parameters, _ = way
                known = self.footprints.get((action, parameters))
                if type(taken) is not Taken:
                    found.append(_Met(way, None, reads, known))
                    continue
                writes = {slot for slot, _ in taken.writes}
                found.append(_Met(way, taken, reads, writes))
                if known is None or not writes <= known:
                    self.footprints[action, parameters] = writes | (known or set())
                    for slot in writes:
                        self.writers.setdefault(slot, {})[action, parameters, step.picks] = None
        return found

    def _wanted(self, number: int, row: list[int]) -> set[int]:
        """The slots that a step of the trace reads in a state, and those in which it is compared."""
        step = self.steps[number]
        found = {self.replayer.place(path) for path, _ in (*step.before, *step.after)}
        if step.action is not None:
            found |= self.replayer.all_reads(row, step.action, step.parameters, step.picks)
        return found

    def _count_state(self) -> None:
        self._count(1 + len(self.row) // SLOTS_A_TRY)

    def _count(self, tried: int = 1) -> None:
        self.tried += tried
        if self.tried > self.most_tried:
            raise _Bound

    def _touched(self, number: int, step: Step, taken: Taken, row: list[int]) -> tuple[set[int], set[int]]:
        """The slots that a step of the trace reads or writes, with those that it is compared in, and those that it
        writes.
        """
        reads = set[int]()
        if step.action is not None:
            reads = self.replayer.reads(row, step.action, step.parameters, step.picks)
        for path, _ in (*step.before, *step.after):
            reads.add(self.replayer.place(path))
        return reads, {slot for slot, _ in taken.writes}

    def _matter(self, chain: Sequence[_Hidden], last: tuple[set[int], set[int]]) -> bool:
        """Whether each hidden step of a chain has to be before what follows it."""
        after = [last]
        for each in reversed(chain):
            mine = each.reads, each.writes
            if not any(_depend(mine, other) for other in after):
                return False
            after.append(mine)
        return True

    # -- explaining ----------------------------------------------------------------------------------------------------

    def _note_front(self) -> None:
        """Remember this place if no way has led farther."""
        if self._count_moves() > self.farthest:
            self.farthest = self._count_moves()
            self.fronts = []
            self.verdict.more_fronts = 0
            self.verdict.skipped = self._count_skipped()
        if self._count_moves() < self.farthest:
            return
        if len(self.fronts) == MOST_FRONTS:
            self.verdict.more_fronts += 1
            return
        refusals = []
        for number in sorted(self.open, key=self._rank):
            for _ in self._ways(number, self.row):
                break
            why = self.why or Refused("it can be taken here, and nothing fits after it")
            refusals.append(Refusal(self.sources[number], self.steps[number], why))
        self.fronts.append(Front(self._from(), self._path(), list(self.row), refusals))


def _as(step: Step, way: Way) -> Step:
    """The step with nothing left open."""
    action, parameters, picks = way
    return replace(step, action=action, parameters=parameters, picks=picks)


def _depend(one: tuple[set[int], set[int]], other: tuple[set[int], set[int]]) -> bool:
    """Whether one of two steps writes what the other one reads or writes."""
    return not (one[0].isdisjoint(other[1]) and one[1].isdisjoint(other[0]))


def _all_of(refused: Sequence[Refused]) -> Refused:
    """One reason for all ways to take a step. A way that can be taken, and differs from the trace, says most."""
    first = next((each for each in refused if not each.where), refused[0])
    reasons = list(dict.fromkeys((first.reason, *(each.reason for each in refused))))
    more = f"; or {len(reasons) - MOST_REASONS:,} others" if len(reasons) > MOST_REASONS else ""
    return Refused("; or ".join(reasons[:MOST_REASONS]) + more, first.where, first.asked)


_NOTHING = Taken((), (), ())
