"""The tasks that trim the graph of a search on Spark for one temporal property, until the embedded judge can judge the
rest.

Every task reads the sets of all partitions and writes those of its own. Each task says which states it removes. They
are never on a fair cycle that violates the property.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from fencepost.checker.compiler.arrays import Array
from fencepost.checker.liveness.graph import Measures, Property
from fencepost.files.storage import Storage
from fencepost.spark import trim_loops
from fencepost.spark.graph import (
    NOWHERE,
    Bits,
    GraphPlan,
    Partition,
    States,
    StatesWritten,
    StepFile,
    StepsWritten,
    empty_set,
    has,
    mask_of,
    new_name,
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

PASSES = 8
"""The most passes of a task over its own steps in one round."""


class PropertySets(NamedTuple):
    """Sets of states of a property (bool). ``region``: where the property can be violated forever. ``must``: such a
    cycle visits at least one of these. ``pending``: where the wait of leads-to begins. ``stutter``: where a behaviour
    can stay and violate the property, because no fairness condition is enabled.
    """

    region: Array
    must: Array
    pending: Array
    stutter: Array


def sets_of(states: States, property: Property, terms: Measures) -> PropertySets:
    """The sets of a property among some states, as in the embedded judge."""
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
"""An obligation of every fair cycle. ``("must", 0)``: visit a state of ``must``. ``("weak", n)``: take a step of
fairness condition n, or visit a state that does not enable it. ``("strong", n)``: take a step of condition n.
"""


# -- reports ----------------------------------------------------------------------------------------------------------


class RegionFound(msgspec.Struct, tag="region"):
    """The states of a partition where the property can be violated forever. ``pending``: levels with states in which
    the wait of leads-to begins. ``stutter``: the nearest level at which a behaviour can stay in a state and never
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
    """The rest of a partition. ``low``: the first level that a step back leads to. ``high``: the last level that one
    leads out of. ``stepped``: the fairness conditions with a step; ``missing``: those that some state does not enable;
    ``somewhere``: those that some state enables. ``must``: the number of states in that set.
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


def _read(plan: GraphPlan, property: Property, number: int) -> tuple[Storage, Partition, States, PropertySets]:
    """The storage, a partition, its states, and the sets of the property in it."""
    storage, partition, terms = plan.storage, plan.partitions[number], plan.terms
    states = read_states(storage, partition, terms)
    return storage, partition, states, sets_of(states, property, terms)


def find_region(plan: GraphPlan, property: Property, number: int) -> RegionFound:
    """Find the states where the property can be violated forever."""
    storage, partition, states, sets = _read(plan, property, number)
    pending = np.unique(states.levels[sets.pending]).tolist()
    name = write_mask(storage, new_name("region", number), partition, sets.region)
    nearest = int(states.levels[sets.stutter].min()) if sets.stutter.any() else NOWHERE
    return RegionFound(number, name, int(sets.region.sum()), pending, nearest)


def find_awaited(
    plan: GraphPlan, property: Property, distance: int, frontier: Bits | None, reached: Bits | None, number: int
) -> AwaitedFound:
    """Find the states of a partition in which leads-to is awaited ``distance`` steps after the start: pending states of
    that level, and those one step after the last ones found (``frontier``).
    """
    storage, partition, states, sets = _read(plan, property, number)
    known = np.zeros(partition.size, bool) if reached is None else read_mask(storage, partition, reached[number])
    new = sets.pending & (states.levels == distance) & ~known
    if frontier is not None:
        words = read_set(storage, plan.partitions, frontier)
        before, open_ = words.copy(), np.zeros(len(words), np.uint64)
        set_mask(open_, partition, sets.region & ~known)
        steps = read_steps(storage, plan.into[number], False)
        # One step only: states added here must not lead to more.
        trim_loops.one_step(steps.rows, steps.starts, steps.others, partition.first, open_, before, words)
        new |= mask_of(words, partition) & ~mask_of(before, partition)
    last = write_mask(storage, new_name("frontier", number), partition, new)
    every = write_mask(storage, new_name("reached", number), partition, known | new)
    return AwaitedFound(number, last, every, int(new.sum()), bool((new & sets.stutter).any()))


class Cut(NamedTuple):
    """The states that can be on a fair cycle: those of levels from ``low`` to ``high``, the span of the steps back,
    that enable no strong condition without steps (``starved``). They must also be in the set ``keep``, or not enable
    the condition ``spared``.
    """

    low: int
    high: int
    starved: Array
    keep: Bits | None = None
    spared: int | None = None


def trim(plan: GraphPlan, property: Property, alive: Bits, cut: Cut, number: int) -> Trimmed:
    """Remove states from the set ``alive`` that are on no fair cycle within it: those outside ``cut`` and, repeatedly,
    those without a step into or out of them.
    """
    terms = plan.terms
    storage, partition, states, sets = _read(plan, property, number)
    words = read_set(storage, plan.partitions, alive)
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
            write_steps(storage, new_name(name, number), steps) for name, steps in (("out", out), ("into", into))
        ]
    high = states.levels[row_of_each(out)[out.back > 0]]
    low = states.levels[row_of_each(into)[into.back > 0]]
    enabled = states.enabled[left]
    return Trimmed(
        number, write_mask(storage, new_name("left", number), partition, left), int(left.sum()), len(out.others),
        int(low.min()) if len(low) else NOWHERE, int(high.max()) if len(high) else 0,
        np.bitwise_or.reduce(terms.masks[np.unique(out.kinds)], axis=0).tolist(),
        np.bitwise_or.reduce(~enabled, axis=0).tolist(), np.bitwise_or.reduce(enabled, axis=0).tolist(),
        int((left & sets.must).sum()), *smaller,
    )  # fmt: skip


def seed(plan: GraphPlan, property: Property, alive: Bits, obligation: Obligation, number: int) -> Grown:
    """Find the states of the set ``alive`` that meet an obligation, or from which a step within the set meets it."""
    kind, condition = obligation
    storage, partition, states, sets = _read(plan, property, number)
    words = read_set(storage, plan.partitions, alive)
    if kind == "must":
        seeds = sets.must
    else:
        out = within(read_steps(storage, plan.out[number], True), partition, words)
        seeds = np.zeros(partition.size, bool)
        seeds[row_of_each(out)[has(plan.terms.masks, condition)[out.kinds]]] = True
        if kind == "weak":
            seeds |= ~has(states.enabled, condition)
    seeds &= mask_of(words, partition)
    name = write_mask(storage, new_name("seed", number), partition, seeds)
    return Grown(number, name, int(seeds.sum()))


def grow(plan: GraphPlan, alive: Bits, grown: Bits, onward: bool, number: int) -> Grown:
    """Add to the set ``grown`` the states of ``alive`` with a step into it or, ``onward``, with a step from it."""
    storage, partition = plan.storage, plan.partitions[number]
    inside, words = (read_set(storage, plan.partitions, bits) for bits in (alive, grown))
    steps = read_steps(storage, (plan.into if onward else plan.out)[number], False)
    more = 0
    for _ in range(PASSES):
        added = trim_loops.grow_rows(steps.rows, steps.starts, steps.others, partition.first, inside, words)
        more += added
        if not added:
            break
    name = write_mask(storage, new_name("grown", number), partition, mask_of(words, partition))
    return Grown(number, name, more)


def gather(
    plan: GraphPlan, property: Property, alive: Bits | None, level: int, frontier: Bits | None, most: int, number: int
) -> Gathered:
    """Write the rest of a partition, and the first ``most`` of the nearest states in which a behaviour can stay: those
    of ``level``, or of the set ``frontier``.
    """
    storage, partition, states, sets = _read(plan, property, number)
    words = empty_set(plan.partitions)
    if alive is not None:
        words = read_set(storage, plan.partitions, alive)
    if frontier is not None:
        near = read_mask(storage, partition, frontier[number])
    else:
        near = states.levels == level
    stutter = np.flatnonzero(near & sets.stutter)
    stutter = stutter[np.lexsort((states.fingerprints[stutter], states.levels[stutter]))][:most]
    chosen = mask_of(words, partition)
    out = within(read_steps(storage, plan.out[number], True), partition, words)
    chosen[stutter] = True
    rows = np.flatnonzero(chosen)
    name = new_name("judged", number)
    storage.write(
        name, rows + partition.first, states.fingerprints[rows], states.levels[rows].astype(np.int64),
        np.ascontiguousarray(states.enabled[rows]), np.ascontiguousarray(states.truths[rows]),
        row_of_each(out).astype(np.int64) + partition.first, out.others.astype(np.int64), out.kinds,
    )  # fmt: skip
    return Gathered(number, name, len(rows), len(out.others))
