"""The tasks that trim the graph of a search on Spark for one temporal property, until the embedded judge can hold what
is left.

Every stage reads the sets of all parts and writes those of its own; what may be taken out, and why no fair cycle is
lost, is said with each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from fencepost.compiler.arrays import Array
from fencepost.liveness.graph import Property
from fencepost.spark import sweeps
from fencepost.spark.graph import (
    NOWHERE,
    Ask,
    Bits,
    First,
    Laid,
    Placed,
    States,
    Steps,
    has,
    own,
    owners,
    put,
    read_bits,
    read_part_bits,
    read_states,
    read_steps,
    report,
    true,
    within,
    write_bits,
    write_steps,
)

SWEEPS = 8
"""How often a task goes through its own steps in one round, at most."""


class Where(NamedTuple):
    """Of some states: where a property can be violated for ever, what must be visited there, where leads-to begins to
    be awaited, and where a behaviour can stay and violate it, because nothing that is to be fair is enabled.
    """

    region: Array
    must: Array
    pending: Array
    stay: Array


def where(states: States, property: Property, ask: Ask) -> Where:
    """What `judge` says of a property, in states."""
    terms = ask.terms
    everywhere = np.ones(len(states.levels), bool)
    first = true(states, property.predicates[0])
    region, must, pending = ~first, everywhere, ~everywhere
    if property.kind == "eventually_always":
        region, must = everywhere, ~first
    elif property.kind == "leads_to":
        region = ~true(states, property.predicates[1])
        pending = first & region
    idle = (states.enabled & (terms.weak | terms.strong) == 0).all(axis=1)
    return Where(region, must, pending, region & must & idle)


Need = tuple[str, int]
"""What a fair cycle must come by: ``("must", 0)`` a state that the property says; ``("weak", n)`` a step that demand n
asks for, or a state in which it is not enabled; ``("strong", n)`` a step that demand n asks for.
"""


# -- what tasks tell --------------------------------------------------------------------------------------------------


class Begun(msgspec.Struct, tag="begun"):
    """Where a property can be violated for ever, in a part. ``pending``: levels with states in which leads-to begins to
    be awaited; ``stay``: the nearest level at which a behaviour can stay where it is, and never satisfy the property.
    """

    part: int
    bits: str
    states: int
    pending: list[int]
    stay: int


class Spread(msgspec.Struct, tag="spread"):
    """What of a part is awaited after one more step. ``stays``: whether a behaviour can stay in one of those."""

    part: int
    frontier: str
    reached: str
    found: int
    stays: bool


class Trimmed(msgspec.Struct, tag="trimmed"):
    """What is left of a part, and what is true of it: its steps; the first level that a step back leads to and the last
    that one leads out of; which demands steps meet, which are not enabled in some state and which are in some; how many
    states are of those that must be visited.
    """

    part: int
    bits: str
    states: int
    steps: int
    low: int
    high: int
    stepped: list[int]
    missing: list[int]
    somewhere: list[int]
    must: int
    out: Steps | None
    into: Steps | None


class Grown(msgspec.Struct, tag="grown"):
    """A set of states that has grown by ``more`` in a part."""

    part: int
    bits: str
    more: int


class Gathered(msgspec.Struct, tag="gathered"):
    """What is left of a part, in a file for the judge."""

    part: int
    file: str
    states: int
    steps: int


Told = Placed | Laid | Begun | Spread | Trimmed | Grown | Gathered
reports = msgspec.msgpack.Decoder(Told)


# -- the tasks --------------------------------------------------------------------------------------------------------


class Begin(First):
    """Finds where a property can be violated for ever."""

    def __init__(self, ask: Ask, property: Property) -> None:
        super().__init__(ask)
        self.property = property

    def task(self, number: int) -> Iterator[pa.RecordBatch]:
        storage, part = self.ask.storage, self.ask.parts[number]
        states = read_states(storage, part, self.ask.terms)
        at = where(states, self.property, self.ask)
        pending = np.unique(states.levels[at.pending]).tolist()
        name = write_bits(storage, self._name("region", number), part, at.region)
        nearest = int(states.levels[at.stay].min()) if at.stay.any() else NOWHERE
        yield report(number, Begun(number, name, int(at.region.sum()), pending, nearest))


class SpreadOn(First):
    """Finds the states of a part in which leads-to is awaited from ``distance`` steps after the start on: those where
    it begins to be, of that level, and those one step after the last ones (``frontier``).
    """

    def __init__(
        self, ask: Ask, property: Property, distance: int, frontier: Bits | None, reached: Bits | None
    ) -> None:
        super().__init__(ask)
        self.property, self.distance, self.frontier, self.reached = property, distance, frontier, reached

    def task(self, number: int) -> Iterator[pa.RecordBatch]:
        ask, storage, part = self.ask, self.ask.storage, self.ask.parts[number]
        states = read_states(storage, part, ask.terms)
        at = where(states, self.property, self.ask)
        reached = np.zeros(part.size, bool)
        if self.reached is not None:
            reached = read_part_bits(storage, part, self.reached[number])
        new = at.pending & (states.levels == self.distance) & ~reached
        if self.frontier is not None:
            words = read_bits(storage, ask.parts, self.frontier)
            before, open_ = words.copy(), np.zeros(len(words), np.uint64)
            put(open_, part, at.region & ~reached)
            ways = read_steps(storage, ask.into[number], False)
            # One step, and no more: what is added here leads nowhere yet.
            sweeps.one_step(ways.rows, ways.starts, ways.others, part.first, open_, before, words)
            new |= own(words, part) & ~own(before, part)
        frontier = write_bits(storage, self._name("frontier", number), part, new)
        every = write_bits(storage, self._name("reached", number), part, reached | new)
        stays = bool((new & at.stay).any())
        yield report(number, Spread(number, frontier, every, int(new.sum()), stays))


class Trim(First):
    """Takes out of a set what is on no fair cycle within it: states outside the levels that steps back span; states in
    which a strong demand is enabled that no step meets (``starved``); states that are not in ``keep`` (unless
    ``spared`` is a demand that is not enabled there); and, again and again, states that no step leads into or out of.
    """

    def __init__(
        self,
        ask: Ask,
        property: Property,
        alive: Bits,
        low: int,
        high: int,
        starved: Array,
        keep: Bits | None,
        spared: int | None,
    ) -> None:
        super().__init__(ask)
        self.property, self.alive, self.low, self.high = property, alive, low, high
        self.starved, self.keep, self.spared = starved, keep, spared

    def task(self, number: int) -> Iterator[pa.RecordBatch]:
        ask, storage, part = self.ask, self.ask.storage, self.ask.parts[number]
        terms = ask.terms
        states = read_states(storage, part, terms)
        words = read_bits(storage, ask.parts, self.alive)
        left = own(words, part) & (states.levels >= self.low) & (states.levels <= self.high)
        left &= (states.enabled & self.starved == 0).all(axis=1)
        if self.keep is not None:
            kept = read_part_bits(storage, part, self.keep[number])
            left &= kept if self.spared is None else kept | ~has(states.enabled, self.spared)
        put(words, part, left)
        out, into = read_steps(storage, ask.out[number], True), read_steps(storage, ask.into[number], False)
        for _ in range(SWEEPS):
            if not sum(
                sweeps.trim_rows(ways.rows, ways.starts, ways.others, part.first, words) for ways in (out, into)
            ):
                break
        left = own(words, part)
        out, into = within(out, part, words), within(into, part, words)
        smaller: list[Steps | None] = [None, None]
        if 2 * int(left.sum()) < ask.out[number].rows or 2 * len(out.others) < ask.out[number].steps:
            smaller = [
                write_steps(storage, self._name(name, number), ways) for name, ways in (("out", out), ("into", into))
            ]
        high = states.levels[owners(out)[out.back > 0]]
        low = states.levels[owners(into)[into.back > 0]]
        enabled = states.enabled[left]
        yield report(number, Trimmed(
            number, write_bits(storage, self._name("left", number), part, left), int(left.sum()), len(out.others),
            int(low.min()) if len(low) else NOWHERE, int(high.max()) if len(high) else 0,
            np.bitwise_or.reduce(terms.masks[np.unique(out.kinds)], axis=0).tolist(),
            np.bitwise_or.reduce(~enabled, axis=0).tolist(), np.bitwise_or.reduce(enabled, axis=0).tolist(),
            int((left & where(states, self.property, self.ask).must).sum()), *smaller,
        ))  # fmt: skip


class Seed(First):
    """The states of a set, ``alive``, that meet a need, or from which a step within the set does."""

    def __init__(self, ask: Ask, property: Property, alive: Bits, need: Need) -> None:
        super().__init__(ask)
        self.property, self.alive, self.need = property, alive, need

    def task(self, number: int) -> Iterator[pa.RecordBatch]:
        ask, storage, part = self.ask, self.ask.storage, self.ask.parts[number]
        what, demand = self.need
        states = read_states(storage, part, ask.terms)
        words = read_bits(storage, ask.parts, self.alive)
        if what == "must":
            seeds = where(states, self.property, self.ask).must
        else:
            out = within(read_steps(storage, ask.out[number], True), part, words)
            seeds = np.zeros(part.size, bool)
            seeds[owners(out)[has(ask.terms.masks, demand)[out.kinds]]] = True
            if what == "weak":
                seeds |= ~has(states.enabled, demand)
        seeds &= own(words, part)
        yield report(
            number, Grown(number, write_bits(storage, self._name("seed", number), part, seeds), int(seeds.sum()))
        )


class Grow(First):
    """Adds to a set the states of ``alive`` from which a step leads into it, or, ``onward``, into which one leads from
    it.
    """

    def __init__(self, ask: Ask, alive: Bits, grown: Bits, onward: bool) -> None:
        super().__init__(ask)
        self.alive, self.grown, self.onward = alive, grown, onward

    def task(self, number: int) -> Iterator[pa.RecordBatch]:
        ask, storage, part = self.ask, self.ask.storage, self.ask.parts[number]
        alive, grown = (read_bits(storage, ask.parts, bits) for bits in (self.alive, self.grown))
        ways = read_steps(storage, (ask.into if self.onward else ask.out)[number], False)
        more = 0
        for _ in range(SWEEPS):
            come = sweeps.grow_rows(ways.rows, ways.starts, ways.others, part.first, alive, grown)
            more += come
            if not come:
                break
        name = write_bits(storage, self._name("grown", number), part, own(grown, part))
        yield report(number, Grown(number, name, more))


class Gather(First):
    """Writes what is left of a part, and the first ``most`` of the nearest states in which a behaviour can stay: those
    of the ``level``, or of the set ``frontier``.
    """

    def __init__(
        self, ask: Ask, property: Property, alive: Bits | None, level: int, frontier: Bits | None, most: int
    ) -> None:
        super().__init__(ask)
        self.property, self.alive, self.level, self.frontier, self.most = property, alive, level, frontier, most

    def task(self, number: int) -> Iterator[pa.RecordBatch]:
        ask, storage, part = self.ask, self.ask.storage, self.ask.parts[number]
        states = read_states(storage, part, ask.terms)
        at = where(states, self.property, self.ask)
        words = np.zeros(ask.parts[-1].first // 64 + ask.parts[-1].words, np.uint64)
        if self.alive is not None:
            words = read_bits(storage, ask.parts, self.alive)
        if self.frontier is not None:
            near = own(read_bits(storage, ask.parts, self.frontier), part)
        else:
            near = states.levels == self.level
        stay = np.flatnonzero(near & at.stay)
        stay = stay[np.lexsort((states.fingerprints[stay], states.levels[stay]))][: self.most]
        chosen = own(words, part)
        out = within(read_steps(storage, ask.out[number], True), part, words)
        chosen[stay] = True
        rows = np.flatnonzero(chosen)
        name = self._name("judged", number)
        storage.write(
            name, rows + part.first, states.fingerprints[rows], states.levels[rows].astype(np.int64),
            np.ascontiguousarray(states.enabled[rows]), np.ascontiguousarray(states.truths[rows]),
            owners(out).astype(np.int64) + part.first, out.others.astype(np.int64), out.kinds,
        )  # fmt: skip
        yield report(number, Gathered(number, name, len(rows), len(out.others)))
