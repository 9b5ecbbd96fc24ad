"""The tasks that trim the graph of a search on Spark for one temporal property, until the embedded judge has room for
the rest.

Every task reads the sets of all partitions and writes those of its own. Each stage says which states it removes; no
state of a fair cycle is among them.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from fencepost.compiler.arrays import Array
from fencepost.liveness.graph import Measures, Property
from fencepost.spark import trim_loops
from fencepost.spark.graph import (
    NOWHERE,
    Bits,
    GraphPlan,
    GraphStage,
    Partition,
    States,
    StatesWritten,
    StepFile,
    StepsWritten,
    empty_set,
    has,
    mask_of,
    read_mask,
    read_set,
    read_states,
    read_steps,
    row_of_each,
    set_mask,
    within,
    write_mask,
    write_steps,
)
from fencepost.spark.stages import OneStage
from fencepost.storage import Storage

PASSES = 8
"""Passes of a task over its own steps in one round, at most."""


class PropertySets(NamedTuple):
    """Sets of states of a property (bool): ``region``, where the property can be violated for ever; ``must``, of which
    such a cycle must visit one; ``pending``, where leads-to begins to be awaited; and ``stutter``, where a behaviour
    can stay and violate the property, because nothing that is to be fair is enabled.
    """

    region: Array
    must: Array
    pending: Array
    stutter: Array


def sets_of(states: States, property: Property, terms: Measures) -> PropertySets:
    """The sets of a property among some states, as the embedded judge has them."""
    everywhere = np.ones(len(states.levels), bool)
    first = has(states.truths, property.predicates[0])
    region, must, pending = ~first, everywhere, ~everywhere
    if property.kind == "eventually_always":
        region, must = everywhere, ~first
    elif property.kind == "leads_to":
        region = ~has(states.truths, property.predicates[1])
        pending = first & region
    idle = (states.enabled & (terms.weak | terms.strong) == 0).all(axis=1)
    return PropertySets(region, must, pending, region & must & idle)


Obligation = tuple[str, int]
"""An obligation of every fair cycle: ``("must", 0)``, to visit a state that the property names; ``("weak", n)``, to
take a step of fairness condition n or to visit a state in which it is not enabled; ``("strong", n)``, to take a step
of condition n.
"""


# -- reports ----------------------------------------------------------------------------------------------------------


class RegionFound(msgspec.Struct, tag="region"):
    """The states of a partition where the property can be violated for ever. ``pending``: levels with states in which
    leads-to begins to be awaited; ``stutter``: the nearest level at which a behaviour can stay in a state, and never
    satisfy the property.
    """

    partition: int
    bits: str
    states: int
    pending: list[int]
    stutter: int


class AwaitedFound(msgspec.Struct, tag="awaited"):
    """The states of a partition in which leads-to is awaited after one more step. ``stutters``: whether a behaviour can
    stay in one of them.
    """

    partition: int
    frontier: str
    reached: str
    found: int
    stutters: bool


class Trimmed(msgspec.Struct, tag="trimmed"):
    """The rest of a partition: its steps; the first level that a step back leads to (``low``) and the last level that
    one leads out of (``high``); the fairness conditions of which there are steps (``stepped``), that are not enabled
    in some state (``missing``) and that are enabled in some (``somewhere``); how many states are in ``must``.
    """

    partition: int
    bits: str
    states: int
    steps: int
    low: int
    high: int
    stepped: list[int]
    missing: list[int]
    somewhere: list[int]
    must: int
    out: StepFile | None
    into: StepFile | None


class Grown(msgspec.Struct, tag="grown"):
    """A set of states that has grown by ``more`` in a partition."""

    partition: int
    bits: str
    more: int


class Gathered(msgspec.Struct, tag="gathered"):
    """The rest of a partition, in a file for the judge."""

    partition: int
    file: str
    states: int
    steps: int


Report = StatesWritten | StepsWritten | RegionFound | AwaitedFound | Trimmed | Grown | Gathered
report_decoder = msgspec.msgpack.Decoder(Report)


# -- the tasks --------------------------------------------------------------------------------------------------------


class PropertyStage(GraphStage, OneStage):
    """The only stage of a round: its tasks work on the states of a partition and the sets of a property there."""

    def __init__(self, plan: GraphPlan, property: Property) -> None:
        super().__init__(plan)
        self.property = property

    def _read(self, number: int) -> tuple[Storage, Partition, States, PropertySets]:
        """The storage, the partition, its states, and the sets of the property."""
        storage, partition, terms = self.plan.storage, self.plan.partitions[number], self.plan.terms
        states = read_states(storage, partition, terms)
        return storage, partition, states, sets_of(states, self.property, terms)


class FindRegion(PropertyStage):
    """Finds the states where the property can be violated for ever."""

    def task(self, number: int) -> RegionFound:
        storage, partition, states, sets = self._read(number)
        pending = np.unique(states.levels[sets.pending]).tolist()
        name = write_mask(storage, self._name("region", number), partition, sets.region)
        nearest = int(states.levels[sets.stutter].min()) if sets.stutter.any() else NOWHERE
        return RegionFound(number, name, int(sets.region.sum()), pending, nearest)


class FindAwaited(PropertyStage):
    """Finds the states of a partition in which leads-to is awaited from ``distance`` steps after the start on: pending
    states of that level, and those one step after the last ones (``frontier``).
    """

    def __init__(
        self, plan: GraphPlan, property: Property, distance: int, frontier: Bits | None, reached: Bits | None
    ) -> None:
        super().__init__(plan, property)
        self.distance, self.frontier, self.reached = distance, frontier, reached

    def task(self, number: int) -> AwaitedFound:
        plan = self.plan
        storage, partition, states, sets = self._read(number)
        reached = np.zeros(partition.size, bool)
        if self.reached is not None:
            reached = read_mask(storage, partition, self.reached[number])
        new = sets.pending & (states.levels == self.distance) & ~reached
        if self.frontier is not None:
            words = read_set(storage, plan.partitions, self.frontier)
            before, open_ = words.copy(), np.zeros(len(words), np.uint64)
            set_mask(open_, partition, sets.region & ~reached)
            steps = read_steps(storage, plan.into[number], False)
            # One step, and no more: the states that are added here lead nowhere yet.
            trim_loops.one_step(steps.rows, steps.starts, steps.others, partition.first, open_, before, words)
            new |= mask_of(words, partition) & ~mask_of(before, partition)
        frontier = write_mask(storage, self._name("frontier", number), partition, new)
        every = write_mask(storage, self._name("reached", number), partition, reached | new)
        stutters = bool((new & sets.stutter).any())
        return AwaitedFound(number, frontier, every, int(new.sum()), stutters)


class Cut(NamedTuple):
    """The states that can be on a fair cycle: of levels from ``low`` to ``high``, which steps back span; in which no
    strong condition without steps (``starved``) is enabled; and in the set ``keep``, or where the condition
    ``spared`` is not enabled.
    """

    low: int
    high: int
    starved: Array
    keep: Bits | None = None
    spared: int | None = None


class Trim(PropertyStage):
    """Removes from the set ``alive`` states that are on no fair cycle within it: those that are not in a ``cut``, and,
    again and again, those that no step leads into or out of.
    """

    def __init__(self, plan: GraphPlan, property: Property, alive: Bits, cut: Cut) -> None:
        super().__init__(plan, property)
        self.alive, self.cut = alive, cut

    def task(self, number: int) -> Trimmed:
        plan, cut, terms = self.plan, self.cut, self.plan.terms
        storage, partition, states, sets = self._read(number)
        words = read_set(storage, plan.partitions, self.alive)
        left = mask_of(words, partition) & (states.levels >= cut.low) & (states.levels <= cut.high)
        left &= (states.enabled & cut.starved == 0).all(axis=1)
        if cut.keep is not None:
            kept = read_mask(storage, partition, cut.keep[number])
            left &= kept if cut.spared is None else kept | ~has(states.enabled, cut.spared)
        set_mask(words, partition, left)
        out, into = read_steps(storage, plan.out[number], True), read_steps(storage, plan.into[number], False)
        for _ in range(PASSES):
            if not sum(
                trim_loops.trim_rows(steps.rows, steps.starts, steps.others, partition.first, words)
                for steps in (out, into)
            ):
                break
        left = mask_of(words, partition)
        out, into = within(out, partition, words), within(into, partition, words)
        smaller: list[StepFile | None] = [None, None]
        if 2 * int(left.sum()) < plan.out[number].rows or 2 * len(out.others) < plan.out[number].steps:
            smaller = [
                write_steps(storage, self._name(name, number), steps) for name, steps in (("out", out), ("into", into))
            ]
        high = states.levels[row_of_each(out)[out.back > 0]]
        low = states.levels[row_of_each(into)[into.back > 0]]
        enabled = states.enabled[left]
        return Trimmed(
            number, write_mask(storage, self._name("left", number), partition, left), int(left.sum()), len(out.others),
            int(low.min()) if len(low) else NOWHERE, int(high.max()) if len(high) else 0,
            np.bitwise_or.reduce(terms.masks[np.unique(out.kinds)], axis=0).tolist(),
            np.bitwise_or.reduce(~enabled, axis=0).tolist(), np.bitwise_or.reduce(enabled, axis=0).tolist(),
            int((left & sets.must).sum()), *smaller,
        )  # fmt: skip


class Seed(PropertyStage):
    """Finds the states of a set, ``alive``, that meet an obligation, or from which a step within the set does."""

    def __init__(self, plan: GraphPlan, property: Property, alive: Bits, obligation: Obligation) -> None:
        super().__init__(plan, property)
        self.alive, self.obligation = alive, obligation

    def task(self, number: int) -> Grown:
        plan, (kind, condition) = self.plan, self.obligation
        storage, partition, states, sets = self._read(number)
        words = read_set(storage, plan.partitions, self.alive)
        if kind == "must":
            seeds = sets.must
        else:
            out = within(read_steps(storage, plan.out[number], True), partition, words)
            seeds = np.zeros(partition.size, bool)
            seeds[row_of_each(out)[has(plan.terms.masks, condition)[out.kinds]]] = True
            if kind == "weak":
                seeds |= ~has(states.enabled, condition)
        seeds &= mask_of(words, partition)
        name = write_mask(storage, self._name("seed", number), partition, seeds)
        return Grown(number, name, int(seeds.sum()))


class Grow(GraphStage, OneStage):
    """Adds to the set ``grown`` the states of ``alive`` from which a step leads into it, or, ``onward``, into which one
    leads from it.
    """

    def __init__(self, plan: GraphPlan, alive: Bits, grown: Bits, onward: bool) -> None:
        super().__init__(plan)
        self.alive, self.grown, self.onward = alive, grown, onward

    def task(self, number: int) -> Grown:
        plan, storage, partition = self.plan, self.plan.storage, self.plan.partitions[number]
        alive, grown = (read_set(storage, plan.partitions, bits) for bits in (self.alive, self.grown))
        steps = read_steps(storage, (plan.into if self.onward else plan.out)[number], False)
        more = 0
        for _ in range(PASSES):
            added = trim_loops.grow_rows(steps.rows, steps.starts, steps.others, partition.first, alive, grown)
            more += added
            if not added:
                break
        name = write_mask(storage, self._name("grown", number), partition, mask_of(grown, partition))
        return Grown(number, name, more)


class Gather(PropertyStage):
    """Writes the rest of a partition, and the first ``most`` of the nearest states in which a behaviour can stay: those
    of the ``level``, or of the set ``frontier``.
    """

    def __init__(
        self, plan: GraphPlan, property: Property, alive: Bits | None, level: int, frontier: Bits | None, most: int
    ) -> None:
        super().__init__(plan, property)
        self.alive, self.level, self.frontier, self.most = alive, level, frontier, most

    def task(self, number: int) -> Gathered:
        plan = self.plan
        storage, partition, states, sets = self._read(number)
        words = empty_set(plan.partitions)
        if self.alive is not None:
            words = read_set(storage, plan.partitions, self.alive)
        if self.frontier is not None:
            near = read_mask(storage, partition, self.frontier[number])
        else:
            near = states.levels == self.level
        stutter = np.flatnonzero(near & sets.stutter)
        stutter = stutter[np.lexsort((states.fingerprints[stutter], states.levels[stutter]))][: self.most]
        chosen = mask_of(words, partition)
        out = within(read_steps(storage, plan.out[number], True), partition, words)
        chosen[stutter] = True
        rows = np.flatnonzero(chosen)
        name = self._name("judged", number)
        storage.write(
            name, rows + partition.first, states.fingerprints[rows], states.levels[rows].astype(np.int64),
            np.ascontiguousarray(states.enabled[rows]), np.ascontiguousarray(states.truths[rows]),
            row_of_each(out).astype(np.int64) + partition.first, out.others.astype(np.int64), out.kinds,
        )  # fmt: skip
        return Gathered(number, name, len(rows), len(out.others))
