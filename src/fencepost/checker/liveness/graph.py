"""The explored graph as arrays: states, the steps between them, and what fairness and temporal properties need of both.

Engines record it level by level in a :class:`Recording`. States are numbered by level and, within a level, by
fingerprint. The numbers are the same for every engine, and a smaller number is never farther from the start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fencepost.errors import SystemFailure
from fencepost.language.declarations import TEMPORAL
from fencepost.semantics import FairnessCondition, Root, Stepper

Array = np.ndarray[Any, Any]

CHUNK = 1 << 20
"""Steps processed at once where an intermediate result would be larger than the graph."""

MOST_STEPS = (1 << 31) - 1
MOST_KINDS = (1 << 16) - 1


@dataclass(frozen=True)
class Property:
    """A temporal property with its parameters bound. ``predicates`` are the numbers of its predicates in
    :class:`Terms`.
    """

    kind: str
    name: str
    title: str
    predicates: tuple[int, ...]


class Measures(NamedTuple):
    """The numeric part of :class:`Terms`, which can be sent to another process."""

    words: int
    truth_words: int
    weak: Array
    strong: Array
    masks: Array


class Terms:
    """A protocol's fairness conditions and temporal properties, numbered.

    ``conditions``: the fairness conditions. ``predicates``: roots that are true or false in a state. ``properties``:
    made of predicates. Actions whose steps belong to the same fairness conditions have the same **kind**:
    ``kind_of[root]`` (uint16). ``masks[kind]`` has one bit for each of those conditions, in ``words`` 64-bit words
    (uint64). ``weak`` and ``strong`` are masks of all conditions of that sort. The truths of predicates take
    ``truth_words`` such words.
    """

    def __init__(self, stepper: Stepper) -> None:
        self.conditions: list[FairnessCondition] = stepper.fairness_conditions()
        self.predicates: list[Root] = stepper.of_kind(*TEMPORAL)
        self.properties: list[Property] = []
        for place, root in enumerate(self.predicates):
            if not root.part:
                parts = (place, place + 1) if root.kind == "leads_to" else (place,)
                self.properties.append(Property(root.kind, root.name, root.title, parts))
        self.words = len(self.conditions) // 64 + 1
        self.truth_words = len(self.predicates) // 64 + 1
        self.weak, self.strong = (
            mask([n for n, condition in enumerate(self.conditions) if condition.strong == strong], self.words)
            for strong in (False, True)
        )
        kinds: dict[tuple[int, ...], int] = {}
        self.kind_of = np.zeros(len(stepper.roots), np.uint16)
        for root in stepper.of_kind("action"):
            of = tuple(n for n, condition in enumerate(self.conditions) if root.index in condition.roots)
            if len(kinds) > MOST_KINDS:
                raise SystemFailure(
                    f"fairness tells more than {MOST_KINDS:,} kinds of steps apart: declare it per fewer parameters"
                )
            self.kind_of[root.index] = kinds.setdefault(of, len(kinds))
        self.masks = np.array([mask(of, self.words) for of in kinds] or [mask((), self.words)])

    @property
    def measures(self) -> Measures:
        """The numeric part."""
        return Measures(self.words, self.truth_words, self.weak, self.strong, self.masks)


def mask(bits: Any, words: int) -> Array:
    """A bit set in 64-bit words."""
    found = np.zeros(words, np.uint64)
    for bit in bits:
        found[bit >> 6] |= np.uint64(1 << (bit & 63))
    return found


@dataclass(frozen=True)
class Graph:
    """The graph. State n has the fingerprint ``fingerprints[n]`` and the steps ``starts[n]`` to ``starts[n + 1]``, each
    with a target and a kind. ``levels``: the number of the first state of each level, and then the number of states.

    Steps between the same two states are adjacent, one for each kind. Steps that change nothing and steps to states
    outside a constraint are left out. ``enabled[n]``: the fairness conditions with a possible step in state n,
    whatever the constraints. ``truths[n]``: the predicates true in state n.
    """

    terms: Terms
    fingerprints: Array
    levels: Array
    starts: Array
    targets: Array
    kinds: Array
    enabled: Array
    truths: Array

    def __len__(self) -> int:
        return len(self.fingerprints)

    def true(self, predicate: int) -> Array:
        """A mask of the states in which a predicate is true."""
        bit = np.uint64(1 << (predicate & 63))
        return np.asarray(self.truths[:, predicate >> 6] & bit != 0)


@dataclass
class Level:
    """The record of a level, or of some of its states; see :meth:`Recording.add`."""

    fingerprints: Array
    counts: Array
    children: Array
    kinds: Array
    enabled: Array
    truths: Array


class Recording:
    """An engine's record of each level, sorted by fingerprint. :meth:`graph` builds the graph from it."""

    def __init__(self, stepper: Stepper) -> None:
        self.terms = Terms(stepper)
        self.states = 0
        self.steps = 0
        self._levels: list[Level] = []

    def add(
        self, fingerprints: Array, counts: Array, children: Array, kinds: Array, enabled: Array, truths: Array
    ) -> None:
        """Add the next level. For each state: its fingerprint (64 bits), the number of its steps, the fairness
        conditions enabled, and the predicates true. For each step, state by state: the fingerprint of its target, and
        its kind. The steps of a state are sorted by these two and distinct.
        """
        self._levels.append(Level(fingerprints, counts, children, kinds, enabled, truths))
        self.states += len(counts)
        self.steps += len(children)

    def take(self) -> list[Level]:
        """Move all levels out of the recording, which is empty afterwards."""
        levels, self._levels = self._levels, []
        self.states = self.steps = 0
        return levels

    @property
    def needs(self) -> int:
        """The most bytes that building the graph and judging it take, beyond those of the recording."""
        return needs(self.terms, self.states, self.steps)

    def graph(self) -> Graph:
        """The graph. The recording is empty afterwards.

        Raises :class:`fencepost.SystemFailure` if there are too many steps to number.
        """
        if self.steps > MOST_STEPS:
            raise SystemFailure(f"the graph has {self.steps:,} steps, and liveness can be judged on {MOST_STEPS:,}")
        levels = self._levels
        self._levels = []
        sizes = [len(level.counts) for level in levels]
        fingerprints = _joined([level.fingerprints for level in levels], np.uint64)
        find = _Finder(fingerprints)
        starts = np.zeros(len(fingerprints) + 1, np.int64)
        targets, kinds = [], []
        at = 1
        for level in levels:
            found = find(level.children)
            inside = found >= 0
            counts = level.counts
            if not inside.all():
                owners = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
                counts = np.bincount(owners[inside], minlength=len(counts))
                found, level.kinds = found[inside], level.kinds[inside]
            targets.append(found)
            kinds.append(level.kinds)
            starts[at : at + len(counts)] = counts
            at += len(counts)
            level.children = level.fingerprints = level.counts = np.zeros(0)
        np.cumsum(starts, out=starts)
        return Graph(
            self.terms,
            fingerprints,
            np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]),
            starts,
            _joined(targets, np.int32),
            _joined(kinds, np.uint16),
            np.concatenate([level.enabled for level in levels]),
            np.concatenate([level.truths for level in levels]),
        )


def needs(terms: Terms, states: int, steps: int) -> int:
    """The most bytes that building and judging a graph of this size take."""
    return steps * 48 + states * (56 + 32 * terms.words + 8 * terms.truth_words) + 64 * CHUNK


def _joined(parts: list[Array], dtype: Any) -> Array:
    """Join the parts into one array. Each part is freed as soon as it is copied."""
    whole = np.empty(sum(map(len, parts)), dtype)
    at = 0
    for place, part in enumerate(parts):
        whole[at : at + len(part)] = part
        at += len(part)
        parts[place] = part[:0]
    return whole


class _Finder:
    """Finds the numbers of many states by their fingerprints.

    Fingerprints are uniform, so their leading bits give their index in the sorted list to within a few. This is several
    times faster than binary search.
    """

    def __init__(self, fingerprints: Array) -> None:
        order = np.argsort(fingerprints, kind="stable")
        self.numbers = np.append(order.astype(np.int32), np.int32(-1))
        ordered = fingerprints[order]
        if (ordered[1:] == ordered[:-1]).any():
            raise SystemFailure("two states have the same 64 bits of fingerprint, by which liveness is judged")
        bits = max(1, len(ordered).bit_length())
        self.shift = np.uint64(64 - bits)
        firsts = np.arange(1 << bits, dtype=np.uint64) << self.shift
        self.begins = np.searchsorted(ordered, firsts).astype(np.int32)
        self.ordered = np.append(ordered, np.uint64((1 << 64) - 1))

    def __call__(self, wanted: Array) -> Array:
        found = np.empty(len(wanted), np.int32)
        for begin in range(0, len(wanted), CHUNK):
            found[begin : begin + CHUNK] = self._find(wanted[begin : begin + CHUNK])
        return found

    def _find(self, wanted: Array) -> Array:
        places = self.begins[wanted >> self.shift]
        behind = np.flatnonzero(self.ordered[places] < wanted)
        while len(behind):
            places[behind] += 1
            behind = behind[self.ordered[places[behind]] < wanted[behind]]
        return np.where(self.ordered[places] == wanted, self.numbers[places], np.int32(-1))
