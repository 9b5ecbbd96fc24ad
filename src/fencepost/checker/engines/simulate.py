"""Simulation: random walks on all cores, for state spaces that are too large to exhaust.

The driver here runs the walks of `walks`, asks Python where no path is known, and reports what the walks met. The seed
and its number determine a walk, so every finding can be reproduced. A simulation never reports that something *holds*.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from enum import Enum
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from fencepost.behaviours.formatting import kind_of
from fencepost.behaviours.lasso import fair_violation
from fencepost.behaviours.shorten import LassoShortening, Shortening
from fencepost.checker.compiler import encoding
from fencepost.checker.compiler.arrays import Array
from fencepost.checker.compiler.memory import reserve
from fencepost.checker.compiler.native import move_fields
from fencepost.checker.compiler.profile import exploding, profile
from fencepost.checker.compiler.tables import Question, Tables
from fencepost.checker.engines import kernel, walks
from fencepost.checker.engines.announcing import announced, compiling
from fencepost.checker.engines.conclusion import without_states
from fencepost.checker.engines.interface import Exploration, Found, Progress, Report, Walks
from fencepost.checker.engines.kernel import QUESTIONS, Work
from fencepost.checker.engines.lanes import arena_for, cells_for, lanes_for, walkers_for, work_for
from fencepost.checker.engines.options import SimulationOptions
from fencepost.checker.engines.resources import limit_reached, memory_limit, peak_memory, resident_memory, uncollected
from fencepost.checker.engines.search import TICK, end_recorded
from fencepost.checker.engines.walks import Plan, Temporal, Walkers
from fencepost.checker.engines.witnesses import reported_as, sought
from fencepost.checker.engines.workspace import Rounds, awaited
from fencepost.checker.liveness.graph import Terms
from fencepost.errors import NOT_REPLAYED, READ_OTHERWISE, ProtocolRaised, SystemFailure
from fencepost.language.declarations import TEMPORAL
from fencepost.language.values import Value, encode
from fencepost.semantics import PREDICATE, Promise, Root, Stepper
from fencepost.semantics.roots import MAPPING, PROPERTIES, START_PROPERTIES, STEP_PROPERTIES
from fencepost.semantics.state import LOW
from fencepost.text import numbers

WALKS = 10_000
DEPTH = 100
UNLIMITED = 1 << 62
NOWHERE: Array = np.zeros(0, np.int32)
"""Used where the path of a walk is not needed."""


def explore(stepper: Stepper, options: SimulationOptions, report: Report | None = None) -> Exploration:
    """Walk at random until enough walks are done or a property is violated. Limits and errors of the protocol end it
    early.

    Raises :class:`fencepost.SystemFailure` if the protocol outgrows the engine's tables or the machine.
    """
    with uncollected(), announced(report) as timed:
        simulation = Simulation(stepper, options, report)
        try:
            return timed(simulation.run())
        finally:
            simulation.close()


def key_of(root: Root, whole: bool) -> int:
    """A 64-bit hash of an action's name and, for the ``whole`` root, of its parameters."""
    parameters = b"".join(encode(v) for v in root.parameters.values()) if whole else b""
    return int.from_bytes(blake2b(root.name.encode() + b"\0" + parameters, digest_size=8).digest(), "little")


def estimate(sketch: Array) -> float:
    """The number of distinct fingerprints in a sketch, to about 0.4 %; exact while they are few.

    HyperLogLog with the estimator of Ertl, "New cardinality estimation algorithms for HyperLogLog sketches" (2017).
    """
    size = len(sketch)
    counts = np.bincount(sketch, minlength=66).tolist()
    if counts[0] == size:
        return 0.0
    z = 0.0
    for count in reversed(counts[1:]):
        z = (z + count) / 2
    x = counts[0] / size
    sigma, power = x, 1.0
    while x:
        x *= x
        sigma, before, power = sigma + x * power, sigma, power * 2
        if sigma == before:
            break
    return float(size * size / (2 * math.log(2) * (z + size * sigma)))


class _Met(NamedTuple):
    """How a walk violated a property, or met a ``sometimes`` property: after how many steps, and at which step its loop
    began, if it was a loop.
    """

    walk: int
    step: int
    root: int
    loop: int
    kind: str
    name: str


class Simulation:
    """One simulation: its tables, lanes and workers."""

    def __init__(self, stepper: Stepper, options: SimulationOptions, report: Report | None) -> None:
        self.stepper = stepper
        self.options = options
        self.report = report
        self.started = time.monotonic()
        self._reported_at = 0.0
        self.seconds = {"python": 0.0, "complete": 0.0, "walk": 0.0}
        self.result = Exploration()
        self.seed = secrets.randbelow(1 << 32) if options.seed is None else options.seed
        self.depth = options.depth or DEPTH
        self.only = options.walk
        self.workers = 1 if self.only is not None else max(1, options.workers)
        self.memory_limit = memory_limit(options.max_memory)
        self.tables = Tables(stepper)
        with stepper.deadline.limits(self.limit_reached):
            self.starts = stepper.initial_states()
        self.lanes = 1 if self.only is not None else lanes_for(self.depth, self.workers)
        self.terms = Terms(stepper)
        self.sought: frozenset[str] = frozenset()
        if self.only is None:
            self.sought = sought(stepper, options, reported_as(stepper, None))
        self.seeking = bool(self.sought)
        self.first_start = 2 * self.lanes * self.workers
        self.arena = arena_for(self.first_start + len(self.starts), self.tables.layout.words)
        self.plan = self._plan(np.zeros(0, np.int64))
        self.work = [work_for(self.lanes, len(stepper.roots)) for _ in range(self.workers)]
        self.walkers = [self._walkers(t, self.lanes) for t in range(self.workers)]
        self.counted = list(self.walkers)
        self.control = np.zeros(encoding.CONTROLS, np.int64)
        self.pool = ThreadPoolExecutor(self.workers)
        self.compiled = self.tables.compiled()
        self.known = self.tables.renewed
        """How often tries had begun anew when they last knew the steps out of the states of all walks."""
        self.questions: list[Question] = []
        self.raised: tuple[int, int] | None = None

    def close(self) -> None:
        """Stop the workers."""
        self.control[encoding.STOP] = 1
        self.pool.shutdown()

    # -- memory -------------------------------------------------------------------------------------------------------

    def _walkers(self, worker: int, lanes: int) -> Walkers:
        """Idle lanes. Each has two states in the arena. The initial states follow those of all lanes."""
        return walkers_for(2 * lanes * worker, lanes, len(self.stepper.roots), self.plan.temporal, self.depth)

    def _plan(self, starts: Array) -> Plan:
        """The plan common to all walks. ``starts``: the positions of the initial states."""
        roots, kind = self.stepper.roots, self.tables.root_kind
        return Plan(
            seed=np.uint64(self.seed),
            starts=starts,
            depth=self.depth,
            action_key=np.array([key_of(r, False) for r in roots], np.uint64),
            root_key=np.array([key_of(r, True) for r in roots], np.uint64),
            properties=int((kind == encoding.STATE_PROPERTY).sum()),
            sought=np.array([r.kind == "sometimes" for r in roots] + [False]),
            cutting=bool(((kind == encoding.STEP_PROPERTY) & self.tables.is_constraint[:-1]).any()),
            deadlock=self.options.deadlock,
            keep_going=self.options.keep_going,
            temporal=self._temporal(),
        )

    def _temporal(self) -> Temporal:
        terms = self.terms
        properties = [
            (TEMPORAL.index(p.kind), terms.predicates[p.predicates[0]].index, p.predicates[0], p.predicates[-1])
            for p in terms.properties
        ]
        return Temporal(
            predicates=np.array([r.index for r in terms.predicates], np.int64),
            masks=terms.masks[terms.kind_of],
            weak=terms.weak,
            strong=terms.strong,
            properties=np.array(properties, np.int64).reshape(-1, 4),
        )

    def _fit(self) -> None:
        """Make room in rows for new values and slots, and update all rows."""
        moves = self.tables.fit()
        kept = self.arena.cells
        if self.tables.layout.words > kept.shape[1]:
            self.arena = self.arena._replace(cells=cells_for(len(kept), self.tables.layout.words))
            self.arena.cells[:, : kept.shape[1]] = kept
        if len(moves):
            move_fields(self.arena.cells, 0, len(kept), moves)

    # -- the walks ----------------------------------------------------------------------------------------------------

    def run(self) -> Exploration:
        """Walk, and return the findings."""
        result, options = self.result, self.options
        first, last = 0, options.walks or (UNLIMITED if options.timeout is not None else WALKS)
        if self.only is not None:
            first, last = self.only, self.only + 1
        with end_recorded(result, self.stepper), self.stepper.deadline.limits(self.limit_reached):
            self._begin()
            over = (result.found and not options.keep_going) or (self.seeking and not self.sought)
            if self.plan.starts.size and self.raised is None and not over:
                self.walk(first, last)
        if self.stepper.deadline.reached is not None:
            self.questions.clear()
        self._count()
        assert result.walks is not None
        result.walks = replace(result.walks, unseen=self._unseen())
        self._report_found()
        found = result.found or (self.seeking and not self._unmet())
        if self.plan.starts.size and not (
            result.limit or found or result.raised or result.interrupted or result.failure
        ):
            result.limit = f"the limit of {numbers.plural(last - first, 'walk')}"
        explained = (found, result.limit, result.failure, result.interrupted, result.raised, result.witnesses)
        if not result.distinct and not any(explained):
            result.raised = without_states(self.stepper)
        result.seconds = time.monotonic() - self.started
        result.evaluations = self.stepper.evaluations
        result.peak_memory = peak_memory()
        result.profile = {**profile(self.tables), "seconds": dict(self.seconds)}
        return result

    def _begin(self) -> None:
        """Complete and judge all initial states, so that no walk has to find a violation in one."""
        self._fit()
        positions = np.arange(len(self.starts)) + self.first_start
        for position, state in zip(positions, self.starts, strict=True):
            self.arena.cells[position] = self.tables.rows([state.ids])[0]
            self.arena.fp[position] = state.fingerprint & LOW
        self.arena.ref[positions], self.arena.meta[positions] = encoding.INITIAL, encoding.PARKED
        # Treat each as the first state of a walk of that number.
        walkers = self._walkers(0, len(self.starts))
        work = work_for(len(self.starts), len(self.stepper.roots))
        walkers.walk[:], walkers.at[:] = np.arange(len(self.starts)), positions
        self.control[encoding.END] = UNLIMITED
        self._complete([(work, walkers)])
        for one in [*self._violations([walkers]), *self._witnesses([walkers])]:
            self.result.add(Found(one.kind, one.name, self.starts[one.walk], []))
        self.sought -= {witness.name for witness in self.result.witnesses}
        self._judge_starts()
        if self.raised is not None:
            self.result.raised_at = Found("raised", "", self.starts[self.raised[0]], [])
        self.plan = self._plan(positions[self.arena.meta[positions] >= 0])

    def _judge_starts(self) -> None:
        """Judge the initial states by what holds in them alone."""
        for root in self.stepper.of_kind(*START_PROPERTIES):
            for number, state in enumerate(self.starts):
                try:
                    if self.stepper.outcomes(root, state.ids):
                        self.result.add(Found(root.kind, root.name, state, []))
                        break
                except ProtocolRaised as error:
                    self.raised = (number, 0)
                    self.result.raised, self.result.raised_at = error, Found("raised", "", state, [])
                    return

    def walk(self, first: int, last: int) -> None:
        """Take the walks from number ``first`` up to ``last``, unless a limit is reached first."""
        self.control[encoding.NEXT], self.control[encoding.END] = first, last
        self.advance()

    def advance(self) -> None:
        """Run the walks in progress, and those still to begin, to their ends."""
        groups = list(zip(self.work, self.walkers, strict=True))
        while self.result.limit is None:
            self._run_workers()
            self._complete(groups)
            self._end_when_met()
            if self.hands_over():
                self.control[encoding.END] = min(self.control[encoding.END], self.control[encoding.NEXT])
            if self.control[encoding.NEXT] >= self.control[encoding.END] and all(
                (w.walk < 0).all() for w in self.walkers
            ):
                break

    def hands_over(self) -> bool:
        """Whether to begin no more walks here."""
        return False

    def end(self, last: int) -> int:
        """The number before which walks still matter: ``last``, or less if a walk ended the simulation."""
        ends = [] if self.options.keep_going else [violation.walk for violation in self._violations(self.counted)]
        if self.raised is not None:
            ends.append(self.raised[0])
        if self.seeking and not self._unmet():
            ends.append(max((w.walk for w in self._witnesses(self.counted) if w.name in self.sought), default=-1))
        return min([last, *(number + 1 for number in ends)])

    def _end_when_met(self) -> None:
        """Begin no more walks once all witnesses are met, if nothing else is looked for."""
        if self.seeking:
            self.control[encoding.END] = self.end(int(self.control[encoding.END]))

    def _unmet(self) -> frozenset[str]:
        """The properties sought, if nothing else is, that neither an initial state nor a walk has met yet."""
        return self.sought - {witness.name for witness in self._witnesses(self.counted)}

    def _run_workers(self) -> None:
        """Let every worker walk until it returns. Watches limits meanwhile."""
        begin = time.monotonic()
        self.control[encoding.STOP] = 0
        futures: list[Future[None]] = [
            self.pool.submit(walks.wander, self.compiled, self.arena, work, walkers, self.plan, self.control, NOWHERE)
            for work, walkers in zip(self.work, self.walkers, strict=True)
        ]

        def look() -> None:
            self.watch()
            self._end_when_met()
            # Parked walks have waited long enough.
            if self.hands_over() or any(w.counts[encoding.PARKS] for w in self.work):
                self.control[encoding.STOP] = 1

        awaited(futures, self.control[encoding.STOP :], look)
        self.seconds["walk"] += time.monotonic() - begin
        self.watch()

    def _complete(self, groups: Sequence[tuple[Work, Walkers]], patient: bool = False) -> None:
        """Complete parked states, asking Python for unknown paths. Returns early at a limit, unless ``patient``."""
        begin = time.monotonic()
        python = 0.0
        asks = np.zeros((QUESTIONS, 3), np.int64)
        rounds = Rounds()
        while True:
            asked = time.monotonic()
            # A question stays in the list until it is answered, so an interrupt loses none.
            while self.questions:
                # If it raises, the walks that need the answer stay parked until no other questions are left.
                with contextlib.suppress(ProtocolRaised):
                    self.tables.ask(self.questions[-1])
                self.questions.pop()
                self.watch()
                if self.result.limit is not None and not patient:
                    return
            self._fit()
            python += time.monotonic() - asked
            self.compiled = self.tables.compiled()
            for work, walkers in groups:
                n = walks.complete_walks(
                    self.compiled, self.tables.growing(), self.arena, work, walkers, self.plan, self.control, asks
                )
                self.questions += [
                    Question(int(r), self.tables.ids(self.arena.cells[p]), int(s)) for r, p, s in asks[:n]
                ]
            if not self.questions:
                break
            rounds.note([*self.questions])
            if rounds.are_in_vain:
                raise SystemFailure(f"an action or a property {READ_OTHERWISE}", "checking")
        self._know_steps(groups)
        for work, walkers in groups:
            work.counts[encoding.PARKS] = 0
            for lane in np.flatnonzero((walkers.walk >= 0) & (self.arena.meta[walkers.at] == encoding.PARKED)):
                # It needs an evaluation that raised.
                number, step = int(walkers.walk[lane]), int(walkers.step[lane])
                if self.raised is None or number < self.raised[0]:
                    self.raised = (number, step)
                    self.result.raised = self._error(self.tables.ids(self.arena.cells[walkers.at[lane]]))
                self.control[encoding.END] = min(self.control[encoding.END], number + 1)
                walkers.walk[lane] = -1
        self.seconds["python"] += python
        self.seconds["complete"] += time.monotonic() - begin - python

    def _know_steps(self, groups: Sequence[tuple[Work, Walkers]]) -> None:
        """Have tries of step properties know the steps out of the initial states and those of walks, if some began anew
        after the states were built.
        """
        if self.known == self.tables.renewed:
            return
        for work, walkers in groups:
            at = np.append(self.plan.starts, walkers.at[walkers.walk >= 0])
            at = at[self.arena.meta[at] >= 0]
            if not kernel.know_steps(self.compiled, self.tables.growing(), self.arena, work, at):
                raise SystemFailure(f"a step property {READ_OTHERWISE}", "checking")
        self.known = self.tables.renewed

    def _error(self, ids: list[int]) -> ProtocolRaised:
        """The error of the first root that raises in this state."""
        try:
            for root in self.stepper.of_kind(*PROPERTIES, MAPPING, "action", *TEMPORAL, PREDICATE):
                self.stepper.evaluate(root, ids)
            for root in self.stepper.of_kind("action"):
                for outcome in self.stepper.outcomes(root, ids):
                    for judge in self.stepper.of_kind(*STEP_PROPERTIES):
                        self.stepper.evaluate(judge, ids, self.stepper.apply(ids, outcome))
        except ProtocolRaised as error:
            return error
        raise SystemFailure(
            "an evaluation raised, and did not when it was run again: run with {checking} to find out why", "checking"
        )

    # -- findings -----------------------------------------------------------------------------------------------------

    def _violations(self, walkers: Sequence[Walkers]) -> list[_Met]:
        """For each violated property, how the lowest walk violated it; sorted by walk."""
        return self._met(walkers, ~self.plan.sought)

    def _witnesses(self, walkers: Sequence[Walkers]) -> list[_Met]:
        """For each ``sometimes`` property that was met, how the lowest walk met it; sorted by walk."""
        return self._met(walkers, self.plan.sought)

    def _met(self, walkers: Sequence[Walkers], which: Array) -> list[_Met]:
        properties = [*((root.kind, root.reported) for root in self.stepper.roots), ("deadlock", "deadlock")]
        found: dict[str, _Met] = {}
        for w in walkers:
            for root in np.flatnonzero((w.lowest >= 0) & which).tolist():
                kind, name = properties[root]
                this = _Met(int(w.lowest[root]), int(w.lowest_step[root]), root, int(w.lowest_loop[root]), kind, name)
                found[name] = min(this, found.get(name, this))
        return sorted(found.values())

    def _report_found(self) -> None:
        """Repeat the walks that violated something or raised. Unless it is to keep going, only the first finding of the
        lowest walk counts.
        """
        result, going_on = self.result, self.options.keep_going
        violations = self._violations(self.counted)
        if self.raised is not None and violations and not going_on:
            if self.raised < violations[0][:2]:
                violations = []
            else:
                self.raised = result.raised = None
        # What is known of higher walks depends on the workers.
        end = self.end(UNLIMITED)
        witnesses = [witness for witness in self._witnesses(self.counted) if witness.walk < end]
        known = {found.name for found in [*result.found, *result.witnesses]}
        for one in [*(violations if going_on else violations[:1]), *witnesses]:
            if one.name not in known:
                found = self._found(one.kind, one.name, one.walk, one.step)
                if one.kind in TEMPORAL:
                    found = self._lasso(found, one)
                elif self.only is None:
                    shortening = Shortening(self.stepper, found.kind, found.name, found.initial.ids)
                    found = replace(found, path=shortening.run(found.path))
                result.add(found)
        if self.raised is not None and result.raised is not None and result.raised_at is None:
            result.raised_at = self._found("raised", result.raised.where, *self.raised)
        if self.only is not None and result.depth:
            result.walk = self._found("walk", "", self.only, result.depth - 1)

    def _lasso(self, found: Found, violation: _Met) -> Found:
        """A walk that ended in a loop, judged once more by the author's Python, with the reasons why the loop is fair.
        It is shortened, unless a single walk was requested.
        """
        stepper = self.stepper
        of = next(p for p in self.terms.properties if self.terms.predicates[p.predicates[0]].index == violation.root)
        found = self._fair(replace(found, loop=violation.loop), of.promise)
        if self.only is not None or found.loop is None:
            return found
        shortening = LassoShortening(stepper, of.promise, self.terms.conditions, found.initial.ids)
        path, loop = shortening.run(found.path, found.loop)
        return self._fair(replace(found, path=path, loop=loop), of.promise)

    def _fair(self, found: Found, promise: Promise) -> Found:
        """Add to a lasso the reasons why its loop is fair. Raises :class:`SystemFailure` if it is not fair or does not
        violate the property.
        """
        stepper, rows, loop = self.stepper, [found.initial.ids], found.loop or 0
        for number, choices in found.path:
            outcome = next(o for o in stepper.outcomes(stepper.roots[number], rows[-1]) if o.choices == tuple(choices))
            rows.append(stepper.apply(rows[-1], outcome))
        fairness = fair_violation(stepper, promise, self.terms.conditions, rows, loop)
        if fairness is None:
            raise SystemFailure(f"the walk that violates {found.name} {NOT_REPLAYED}", "checking")
        return replace(found, fairness=fairness)

    def _found(self, kind: str, name: str, number: int, steps: int) -> Found:
        """The first ``steps`` steps of a walk, which is repeated alone to record its path."""
        path, walkers = reserve(self.depth, np.int32), self._walkers(0, 1)
        self.control[encoding.NEXT], self.control[encoding.END] = number, number + 1
        self._know_steps([(self.work[0], walkers)])
        while self.control[encoding.NEXT] <= number or walkers.walk[0] >= 0:
            self.control[encoding.STOP] = 0
            walks.wander(self.compiled, self.arena, self.work[0], walkers, self.plan, self.control, path)
            if walkers.step[0] >= steps:
                break
            self._complete([(self.work[0], walkers)], patient=True)
        start = self.starts[walks.start_of(self.plan, number) - self.first_start]
        taken = [(int(self.tables.outcome_root[o]), self.tables.outcome_choices[o]) for o in path[:steps]]
        return Found(kind, name, start, taken, walk=number, walked=steps + 1)

    # -- limits and counts --------------------------------------------------------------------------------------------

    def limit_reached(self) -> str | None:
        """The limit on time or memory that is reached, or None."""
        return limit_reached(self.stepper.deadline, self.options.timeout, self.memory_limit)

    def watch(self, stage: str = "") -> None:
        """Check the limits, and report progress. ``stage``: the stage of the job, if a cluster walks."""
        result = self.result
        now = time.monotonic()
        memory = resident_memory()
        if result.limit is None:
            result.limit = self.limit_reached()
        if result.limit is not None:
            self.control[encoding.STOP] = 1
        if self.report is not None and now - self._reported_at >= TICK:
            self._reported_at = now
            self._count()
            self.report(
                Progress(
                    generated=result.generated,
                    distinct=result.distinct,
                    depth=result.depth,
                    seconds=now - self.started,
                    memory=memory,
                    evaluations=self.stepper.evaluations,
                    exploding=exploding(self.tables),
                    doing="" if stage else compiling(),
                    walks=result.walks.walks if result.walks else 0,
                    stage=stage,
                )
            )

    def _count(self) -> None:
        """Update the counts of the result from those of the workers."""
        tables, result = self.tables, self.result
        chosen = np.sum([w.chosen[: tables.outcomes] for w in self.counted], axis=0)
        steps = int(chosen[1:].sum())
        result.taken = dict(
            enumerate(
                np.bincount(tables.outcome_root[1 : tables.outcomes], chosen[1:], len(self.stepper.roots))
                .astype(int)
                .tolist()
            )
        )
        result.generated = steps + max(int(chosen[encoding.INITIAL]), len(self.starts))
        result.distinct = round(estimate(np.max([w.sketch for w in self.counted], axis=0)))
        result.depth = max(int(w.longest[0]) for w in self.counted)
        result.walks = Walks(self.seed, self.depth, int(chosen[encoding.INITIAL]), steps, {})

    def _unseen(self) -> dict[str, tuple[Value, ...]]:
        """For the parts of the state that start with a truth value or an enum member, the values that no walk has seen
        there.
        """
        tables, store = self.tables, self.stepper.store
        taken = np.flatnonzero(np.any([w.chosen[: tables.outcomes] for w in self.counted], axis=0))
        seen: dict[int, set[int]] = {}
        for state in self.starts:
            for slot, number in enumerate(state.ids):
                seen.setdefault(slot, set()).add(number)
        for outcome in taken.tolist():
            span = slice(int(tables.write_start[outcome]), int(tables.write_start[outcome + 1]))
            for slot, number in zip(tables.write_slot[span].tolist(), tables.write_value[span].tolist(), strict=True):
                seen.setdefault(slot, set()).add(number)
        found: dict[str, tuple[Value, ...]] = {}
        for index, part in enumerate(store.slots):
            default = part.default
            if not isinstance(default, (bool, Enum)) or kind_of(self.stepper.protocol, part) != "value":
                continue
            values = {encode(store.values[index][number]) for number in seen.get(index, ())} | {encode(default)}
            domain: Sequence[Value] = (False, True) if isinstance(default, bool) else list(type(default))
            missing = tuple(v for v in domain if encode(v) not in values)
            if missing:
                found[part.name] = missing
        return found
