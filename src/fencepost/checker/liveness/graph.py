"""The explored graph as arrays: states, the steps between them, and what fairness and temporal properties need of both.

Engines record it level by level in a :class:`Recording`. States are numbered by level and, within a level, by
fingerprint. The numbers are the same for every engine, and a smaller number is never farther from the start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fencepost.checker.liveness.automaton import Automaton, Fact, automaton
from fencepost.errors import SystemFailure
from fencepost.language.declarations import TEMPORAL
from fencepost.language.temporal import Enabled, Leaf
from fencepost.semantics import PREDICATE, STEP_PREDICATE, FairnessCondition, Promise, Root, Stepper

Array = np.ndarray[Any, Any]

CHUNK = 1 << 20
"""Steps processed at once where an intermediate result would be larger than the graph."""

MOST_STEPS = (1 << 31) - 1
MOST_KINDS = (1 << 16) - 1


@dataclass(frozen=True)
class Property:
    """A temporal property with its parameters bound. ``predicates`` are the numbers of its predicates in
    :class:`Terms`. ``refuting``: the automaton of a formula's negation.
    """

    promise: Promise
    predicates: tuple[int, ...]
    refuting: Automaton | None = None

    @property
    def kind(self) -> str:
        """The kind of the property."""
        return self.promise.kind

    @property
    def name(self) -> str:
        """The property's name."""
        return self.promise.name

    @property
    def title(self) -> str:
        """The name with its parameters."""
        return self.promise.title


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
    made of predicates. ``step_predicates``: roots that are true or false of a step. They mark steps for fairness
    conditions and formulas.

    Formulas ask about steps of some actions, and where these are enabled, as fairness conditions do. So each such
    question and each step predicate has a bit, behind those of the fairness conditions. Actions whose steps have the
    same bits have the same **kind**: ``kind_of[root]`` (uint16). ``masks[kind]`` has these bits, in ``words`` 64-bit
    words (uint64). ``weak`` and ``strong`` are masks of all conditions of that sort. The truths of predicates take
    ``truth_words`` such words.

    Raises :class:`fencepost.NotAProtocol` for a formula whose automaton would be too large.
    """

    def __init__(self, stepper: Stepper) -> None:
        self.conditions: list[FairnessCondition] = stepper.fairness_conditions()
        self.predicates: list[Root] = stepper.of_kind(*TEMPORAL, PREDICATE)
        place = {root.index: number for number, root in enumerate(self.predicates)}
        sets = [condition.roots for condition in self.conditions]
        self.step_predicates = stepper.of_kind(STEP_PREDICATE)
        marked = {root.index: 0 for root in self.step_predicates}
        self.enabling: list[tuple[int, int]] = []
        """The fairness conditions that are enabled where a predicate is true, each with the number of that one."""
        facts: dict[Leaf, Fact] = {}
        for bit, condition in enumerate(self.conditions):
            if condition.step is not None and condition.enabled is not None:
                marked[condition.step.index] = bit
                self.enabling.append((bit, place[condition.enabled.index]))
        for leaf, of in ((leaf, of) for p in stepper.promises for leaf, of in (p.leaves or {}).items()):
            if isinstance(of, Root) and of.kind == PREDICATE:
                facts[leaf] = ("true", place[of.index])
                continue
            facts[leaf] = ("enabled" if isinstance(leaf, Enabled) else "stepped", len(sets))
            if isinstance(of, Root):
                marked[of.index] = len(sets)
            sets.append(frozenset() if isinstance(of, Root) else of)
        self.properties = [
            Property(
                p,
                tuple(place[part.index] for part in p.parts),
                None if p.formula is None else automaton(p.formula, True, facts.__getitem__),
            )
            for p in stepper.promises
        ]
        self.marked_bits = list(marked.values())
        """The bit of each step predicate."""
        self.words = len(sets) // 64 + 1
        self.truth_words = len(self.predicates) // 64 + 1
        self.weak, self.strong = (
            mask([n for n, condition in enumerate(self.conditions) if condition.strong == strong], self.words)
            for strong in (False, True)
        )
        kinds: dict[tuple[int, ...], int] = {}
        self._marked: dict[tuple[int, bytes], int] = {}
        self.kind_of = np.zeros(len(stepper.roots), np.uint16)
        for root in stepper.of_kind("action"):
            bits = tuple(bit for bit, roots in enumerate(sets) if root.index in roots)
            if len(kinds) > MOST_KINDS:
                raise SystemFailure(
                    f"fairness tells more than {MOST_KINDS:,} kinds of steps apart: declare it per fewer parameters"
                )
            self.kind_of[root.index] = kinds.setdefault(bits, len(kinds))
        self.masks = np.array([mask(bits, self.words) for bits in kinds] or [mask((), self.words)])

    def marked(self, kinds: Array, marks: Array) -> Array:
        """The kinds of steps, with the bits of the step predicates that are true: ``marks`` has a column for each
        (bool). New kinds are added to ``masks``.
        """
        if not len(kinds):
            return kinds
        pairs, which = np.unique(np.column_stack([kinds, np.packbits(marks, axis=1)]), axis=0, return_inverse=True)
        numbers = np.array([self._marked_kind(int(pair[0]), pair[1:]) for pair in pairs], np.uint16)
        return numbers[which.reshape(-1)]

    def _marked_kind(self, kind: int, packed: Array) -> int:
        known = self._marked.get((kind, packed.tobytes()))
        if known is None:
            true = np.unpackbits(packed.astype(np.uint8), count=len(self.marked_bits))
            bits = [bit for bit, is_true in zip(self.marked_bits, true, strict=True) if is_true]
            known = self._marked[kind, packed.tobytes()] = len(self.masks) if bits else kind
            if known > MOST_KINDS:
                raise SystemFailure(f"fairness and formulas tell more than {MOST_KINDS:,} kinds of steps apart")
            if bits:
                self.masks = np.vstack([self.masks, self.masks[kind] | mask(bits, self.words)])
        return known

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

    terms: Measures
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
        self,
        fingerprints: Array,
        counts: Array,
        children: Array,
        kinds: Array,
        enabled: Array,
        truths: Array,
        marks: Array | None = None,
    ) -> None:
        """Add the next level. For each state: its fingerprint (64 bits), the number of its steps, the fairness
        conditions enabled, and the predicates true. For each step, state by state: the fingerprint of its target, its
        kind, and the step predicates true. The steps of a state are sorted by the first two and distinct.
        """
        if marks is not None and self.terms.step_predicates:
            kinds = self.terms.marked(kinds, marks)
        for bit, predicate in self.terms.enabling:
            true = truths[:, predicate >> 6] >> np.uint64(predicate & 63) & np.uint64(1)
            enabled[:, bit >> 6] |= true << np.uint64(bit & 63)
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
            self.terms.measures,
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
