"""A protocol as integer tables: decision tries, leaves, outcomes, and the roots that each outcome can affect.

An engine's driver grows :class:`Tables` one recorded evaluation at a time, and its compiled loops read them. Everything
in them is an array of integers. The stepper knows their meaning (slots, values, actions, choices). The tables record
choices, so that a path can be reported afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from fencepost.checker.compiler import encoding, native
from fencepost.checker.compiler.arrays import Array, Compiled, Entries, Growing
from fencepost.checker.compiler.layout import Layout, packed
from fencepost.checker.compiler.memory import reserve
from fencepost.checker.compiler.programs import Programs
from fencepost.checker.liveness.graph import mask
from fencepost.errors import READ_OTHERWISE, ProtocolRaised, SystemFailure
from fencepost.language.context import FROM_HERE, Universe
from fencepost.semantics import NO_BRANCH, Branch, Fork, Leaf, Outcome, RanOtherwise, Read, Rest, Stepper, Symmetry
from fencepost.semantics.roots import MAPPING, STEP_PREDICATE
from fencepost.semantics.slots import CHANGE, reads_after, reads_of, slot_of_step
from fencepost.semantics.state import LOW, BeginAgain, Outgrown

ENTRIES_AT_ONCE = 1 << 20
"""New outcomes are spread, see :meth:`Tables.spread`, in batches that add at most this many entries. Room is made
before each.
"""


MANY_LATE = 100
"""The fewest members that appear late for which a search begins again."""

STATES_PER_EVALUATION = 1_000
"""About how many states are explored in the time of one evaluation."""


class Question(NamedTuple):
    """What a root comes to in a state, or for the step ``step`` (an outcome) out of it. ``ids``: the value numbers of
    the state, slot by slot.
    """

    root: int
    ids: Sequence[int]
    step: int = encoding.NO_STEP


class _Column:
    """Arrays of :class:`Tables` with the same kind of rows. ``kind``: their type; ``most``: the most rows; ``count``:
    the name of the number of rows in use; ``words``: the name of the number of words of a row, if that varies.
    """

    def __init__(self, kind: Any, most: int, count: str, words: str = "") -> None:
        self.kind, self.most, self.count, self.words = kind, most, count, words
        self.names: list[str] = []

    def __set_name__(self, owner: type, name: str) -> None:
        self.names.append(name)

    def reserve(self, tables: Tables) -> Array:
        """Reserve memory for one array."""
        if not self.words:
            return reserve(self.most, self.kind)
        words = getattr(tables, self.words)
        return reserve(self.most * words, self.kind).reshape(self.most, words)


def _column(kind: Any, most: int, count: str, words: str = "") -> Array:
    """A column of the class. On an instance, the same name is an array."""
    return cast("Array", _Column(kind, most, count, words))


class Tables:
    """The compiled form of one protocol, growing as new paths are recorded.

    Leaf numbers below ``len(roots)`` mean "this property is violated" ("is true" for a ``sometimes`` property); the
    others are leaves of actions. Raises :class:`fencepost.SystemFailure` when a protocol outgrows the numbering.
    """

    pool = _column(np.int32, encoding.MAX_WORDS, "words")
    roots = trie_root = trie_change = older = _column(np.int32, encoding.MAX_TRIES, "tries")
    trie_known = _column(np.uint64, encoding.MAX_TRIES, "tries", "slot_words")
    entry_outcome = entry_trie = _column(np.int32, encoding.MAX_ENTRIES, "entries")
    known_start = write_start = choice_start = _column(np.int64, encoding.MAX_OUTCOMES + 1, "starts")
    known_slot = known_old = known_new = _column(np.int32, encoding.MAX_ENTRIES, "known")
    write_slot = write_value = _column(np.int32, encoding.MAX_ENTRIES, "written")
    choice = _column(np.int32, encoding.MAX_ENTRIES, "choices")
    change = like = outcome_root = _column(np.int32, encoding.MAX_OUTCOMES, "outcomes")
    delta = delta_high = _column(np.uint64, encoding.MAX_OUTCOMES, "outcomes")
    twin = _column(np.uint8, encoding.MAX_OUTCOMES, "outcomes")
    changed = _column(np.uint64, encoding.MAX_OUTCOMES, "outcomes", "slot_words")
    drop = _column(np.uint64, encoding.MAX_OUTCOMES, "outcomes", "root_words")
    leaf_root = _column(np.int32, encoding.MAX_OUTCOMES, "leaves")
    leaf_span = _column(np.int64, encoding.MAX_OUTCOMES, "leaves")

    def __init__(self, stepper: Stepper, symmetry: Symmetry | None = None) -> None:
        self.stepper = stepper
        self.store = stepper.store
        self.symmetry = symmetry
        self.permutations = symmetry.images if symmetry else 0
        roots = len(stepper.roots)
        self.root_kind = np.array([encoding.KIND[r.kind] for r in stepper.roots], np.int8)
        self.is_constraint = np.array([r.kind in ("constraint", "step_constraint") for r in stepper.roots] + [False])
        self.slot_words = 2 + len(self.store.slots) // 32
        self.root_words = roots // 64 + 1
        self.is_predicate = np.array([r.kind == STEP_PREDICATE for r in stepper.roots] + [False])
        self.refines = np.array([r.kind == "refinement" for r in stepper.roots] + [False])
        self.stepwise = bool((self.root_kind == encoding.STEP_PROPERTY).any())
        # With step properties, even a step that changes nothing has to be checked. Refinements need no such check: the
        # step changes nothing that they map. A predicate is false of such a step.
        quiet = (self.refines | self.is_predicate)[:-1]
        self.knows_change = np.array([stepper.knows_changes(r) for r in stepper.roots] + [False])
        judged = self.root_kind == encoding.STEP_PROPERTY
        self.idle = np.array([*(judged & ~quiet & ~self.knows_change[:-1]), False])
        self._busy: set[int] = set()
        """The step properties that are not true of every idle step, since the last :meth:`spread`."""
        self.keeps_loops = bool((judged & ~quiet).any())
        for column in COLUMNS:
            for name in column.names:
                setattr(self, name, column.reserve(self))
        self.top = np.array([1], np.int64)
        self.tries = np.array([max(roots, 1)], np.int64)
        self.trie_root[:roots] = np.arange(roots)
        self.residual_keys = np.zeros(1 << 16, np.uint64)
        self.residual_tries = np.zeros(1 << 16, np.int32)
        self.root_slots = np.zeros((max(roots, 1), self.slot_words), np.uint64)
        self.entries = np.zeros(1, np.int64)
        self.image_delta, self.image_delta_high = (self.images_of(encoding.MAX_OUTCOMES) for _ in range(2))
        self._programs = Programs(symmetry) if symmetry is not None and symmetry.labelling is not None else None
        self._image_hashes: dict[tuple[int, int], Array] = {}
        self.leaf_weight: list[int] = [0] * roots
        self.leaf_root[:roots] = np.arange(roots)
        self.leaves = roots
        self.outcomes = 0
        self.outcome_choices: list[tuple[int, ...]] = []
        self.outcome_weight: list[int] = []
        # The most leaves and outcomes that one state can have, by root, as far as seen. They bound the room that states
        # need.
        self.most_leaves, self.most_outcomes = [0] * roots, [0] * roots
        self.below: dict[int, tuple[int, int]] = {}
        """The most leaves and outcomes of one state below a fork, and below the cell of each of its options."""
        self.branch_of: dict[int, tuple[int, ...]] = {}
        """The number of each option's branch, by the fork in the pool."""
        self._branches: dict[tuple[int, ...], tuple[int, ...]] = {}  # each one once
        self.same_effect: dict[tuple[tuple[int, int, int], ...], list[int]] = {}
        """The outcomes by their effect, without what a view hides."""
        self._alike: dict[tuple[tuple[tuple[int, int], ...], tuple[int, ...]], int] = {}
        """The first outcome that leaves these values known and writes these slots."""
        self.layout = Layout()
        self._row_delta, self._laid_out = np.zeros((0, 0), np.uint64), (-1, 0)
        # For one word at a time, a memoryview is several times faster than an array in Python.
        self._pool, self._top, self._root_words = self.pool.data, self.top.data, self.roots.data
        self.slots_read: list[set[int]] = [set() for _ in range(roots)]
        self._gained: dict[int, set[int]] = {}
        """The slots that each root has begun to read since the last :meth:`spread`."""
        self.spread_outcomes = 0
        """The number of outcomes that have been spread."""
        self._linked: tuple[tuple[int, int], Entries] | None = None
        """The entries as last laid out, and the numbers of outcomes and entries at that time."""
        self.forks: set[int] = set()
        """The roots that fork."""
        self.evaluations_by_root = [0] * roots
        self._marked: dict[tuple[int, int], list[int]] = {}
        """The nodes of master tries that read the marker of a universe, by root and test."""
        self._settled = self.store.grown
        """The number of slots in universes that exist in every state."""
        self._grown = 0
        """The number of slots in universes when the tries were last completed."""
        self.renewed = 0
        """How often the residual tries of a step property began anew."""
        self._add_initial()
        self._take_over()

    # -- growing ------------------------------------------------------------------------------------------------------

    def growing(self) -> Growing:
        """The arrays for growing. Call it again after every :meth:`spread`."""
        return Growing(*(getattr(self, name) for name in Growing._fields))

    def _add_initial(self) -> None:
        self._add_outcome(-1, Outcome((), (), {}), 1, {}, ())
        self.spread_outcomes = self.outcomes
        for root in range(len(self.stepper.roots)):
            if self._is_followed(root):
                n = int(self.entries[0])
                trie = root
                if self.idle[root]:
                    trie = int(self.tries[0])
                    self.trie_root[trie] = root
                    self.tries[0] = trie + 1
                self.entry_outcome[n], self.entry_trie[n] = encoding.INITIAL, trie
                self.entries[0] = n + 1
                self.drop[encoding.INITIAL, root >> 6] |= np.uint64(1 << (root & 63))

    def _take_over(self) -> None:
        """Record what another engine has had evaluated."""
        for each in self.stepper.take_kept():
            self._record(each.root, each.tree, each.ids, each.after)
        self.fit()

    def recall(self, outcomes: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Number outcomes as an earlier exploration did, so that its links can be read. They are used for nothing
        else.
        """
        for root, choices in outcomes[1:]:
            self._add_outcome(-1, Outcome(tuple(choices), (), {}), 0, {}, ())
            self.outcome_root[self.outcomes - 1] = root
        self.spread_outcomes = self.outcomes

    def _record(self, root: int, branch: Branch, ids: Sequence[int], after: Sequence[int] | None) -> None:
        """Add the evaluation of a root in one state (for a step property, one step) to its master trie."""
        self.evaluations_by_root[root] += 1
        self._grow()
        read: set[int] = set()
        self._insert(encoding.root_cell(root), branch, root, {}, read, (), (ids, after))
        if self.stepper.roots[root].reads_step:
            read = set(map(slot_of_step, read))
        if self._is_followed(root) and not read <= self.slots_read[root]:
            self._gained.setdefault(root, set()).update(read - self.slots_read[root])
            self.slots_read[root] |= read

    def weigh_beginning_again(self, found: int) -> None:
        """Begin again if most members have appeared late, unless it takes long to find ``found`` states again. Each
        time more have appeared than before, since some cannot be there from the start. Raises :class:`BeginAgain`.
        """
        late = self.store.grown - self._settled
        if (
            late > max(MANY_LATE, self._settled, self.stepper.grown_before)
            and found < self.stepper.evaluations * STATES_PER_EVALUATION
        ):
            raise BeginAgain

    def _is_followed(self, root: int) -> bool:
        """Whether outcomes have entries for a root by what it reads."""
        return bool(self.root_kind[root] in (encoding.STATE_PROPERTY, encoding.ACTION) or self.idle[root])

    def spread(self) -> None:
        """Work out which roots each new outcome can affect, and which outcomes affect a slot that a root has begun to
        read.
        """
        self._grow()
        self._make_room(self.spread_outcomes)
        for root, slots in self._gained.items():
            step = self.root_kind[root] == encoding.STEP_PROPERTY
            native.widen_root(self.growing(), root, mask(slots, self.slot_words), self.spread_outcomes, step)
            self._make_room(self.spread_outcomes)
        for root in sorted(root for root in self._busy if self.idle[root]):
            native.judge_idle(self.growing(), root, self.spread_outcomes)
            self._make_room(self.spread_outcomes)
            self._linked = None
        self._note_changes()
        self._gained, self._busy = {}, set()
        self.stepper.deadline.check()
        at_once = max(1, ENTRIES_AT_ONCE // max(1, len(self.root_kind)))
        while self.spread_outcomes < self.outcomes:
            end = min(self.spread_outcomes + at_once, self.outcomes)
            self._make_room((end - self.spread_outcomes) * len(self.root_kind))
            native.add_outcomes(self.growing(), self.spread_outcomes, end, self.root_kind)
            self.spread_outcomes = end
            self.stepper.deadline.check()

    def _grow(self) -> None:
        """Complete the tries of roots that rely on a universe which has grown. What was recorded before is right about
        states without its new slots, and about no others.
        """
        if self._grown == self.store.grown:
            return
        self._grown = self.store.grown
        for root, relied in self.stepper.relied.items():
            for each in relied.values():
                grown = each.grown()
                if grown:
                    self._rely(root, each.universe, grown)

    def _rely(self, root: int, universe: Universe, slots: Sequence[int]) -> None:
        """Have the master trie of a root ask for what may be different with these slots, which have appeared in a
        universe. Where they hold their defaults, it goes on as before. Its residual tries begin anew.
        """
        self._make_room(0)
        of_step = self.stepper.roots[root].reads_step
        if not universe.markers:
            for test in (test for slot in slots for test in reads_of(slot, of_step)):
                self._test_next(encoding.root_cell(root), test)
        for place, marker in universe.markers.items():
            for lane, read in enumerate(reads_of(self.store.slot(marker), of_step)):
                for node in self._marked.get((root, read), ()):
                    cell = encoding.node_cell(node, 0)
                    if place == FROM_HERE:
                        for slot in slots:
                            self._test_next(cell, reads_of(slot, of_step)[lane])
                    elif self._pool[cell] == encoding.DISABLED:
                        self._pool[cell] = encoding.MISS
        residual = self.trie_root[len(self.root_kind) : self.tries[0]] == root
        self.roots[len(self.root_kind) : self.tries[0]][residual] = encoding.MISS
        self.renewed += self.root_kind[root] == encoding.STEP_PROPERTY
        if self._is_followed(root) and not self.slots_read[root].issuperset(slots):
            self._gained.setdefault(root, set()).update(set(slots) - self.slots_read[root])
            self.slots_read[root].update(slots)
        self._linked = None

    def _test_next(self, cell: int, test: int) -> None:
        word = self._pool[cell] if cell >= 0 else self._root_words[encoding.cell_root(cell)]
        if word not in (encoding.MISS, encoding.PENDING):
            node = self._new_node(test, 2)
            self._pool[encoding.node_cell(node, 0)] = word
            self._put(cell, node)

    def _note_changes(self) -> None:
        """Number the changes of new outcomes, as roots that know changes see them. Renumber the change of an outcome
        that writes a slot which a mapping has begun to read.
        """
        if not self.knows_change.any():
            return
        for outcome in range(max(self.spread_outcomes, 1), self.outcomes):
            self.change[outcome] = self._number_of_change(outcome)
        gained: set[int] = set()
        for root, slots in self._gained.items():
            if self.stepper.roots[root].kind == MAPPING:
                self.stepper.changes.read.setdefault(root, set()).update(slots)
                gained |= slots
        touched = (self.changed[: self.outcomes] & mask(gained, self.slot_words)).any(axis=1)
        renewed = np.zeros(self.outcomes, np.bool_)
        for outcome in np.flatnonzero(touched).tolist():
            number = self._number_of_change(outcome)
            renewed[outcome] = number != self.change[outcome]
            self.change[outcome] = number
        if renewed.any():
            self._make_room(int(renewed.sum()) * int(self.knows_change.sum()))
            native.renew(self.growing(), renewed)
            self._linked = None

    def _number_of_change(self, outcome: int) -> int:
        written = self.write_slot[self.write_start[outcome] : self.write_start[outcome + 1]]
        # Only a refinement asks which action it was.
        action = int(self.outcome_root[outcome]) if self.refines.any() else -1
        return self.stepper.changes.number(action, frozenset(written.tolist()))

    def _insert(
        self,
        cell: int,
        branch: Branch,
        root: int,
        known: dict[int, int],
        read: set[int],
        within: tuple[tuple[int, int], ...],
        rows: tuple[Sequence[int], Sequence[int] | None],
    ) -> None:
        """Add a branch at a cell. ``known``: the values read before it. ``within``: the forks around it, each with the
        cell of its option. ``rows``: the state, and that after the step.
        """
        pool = self._pool
        while True:
            while isinstance(branch, Read) and branch.slot in known:
                branch = branch.then
            held = pool[cell] if cell >= 0 else self._root_words[encoding.cell_root(cell)]
            if held > 0 and self._may_wait(root, pool[held], branch):
                # The evaluation reads this slot later, or not at all.
                branch = Read(pool[held], _held(pool[held], rows), branch)
            if isinstance(branch, Leaf):
                if held in (encoding.MISS, encoding.PENDING):
                    self._put(cell, self._leaf(root, branch, known, within))
                return
            if isinstance(branch, Rest):
                branch_of = self.branch_of.get(held, ())
                if len(branch_of) != branch.options:
                    raise SystemFailure(f"{self.stepper.roots[root].title} {READ_OTHERWISE}", "checking")
                for option, part in branch.branches.items():
                    at = encoding.node_cell(held, branch_of[option])
                    self._insert(at, part, root, dict(known), read, (*within, (held, at)), rows)
                return
            first = encoding.fork_test(len(branch.branches)) if isinstance(branch, Fork) else branch.slot
            if held > 0 and pool[held] != first:
                raise SystemFailure(f"{self.stepper.roots[root].title} {READ_OTHERWISE}", "checking")
            if isinstance(branch, Fork):
                self.forks.add(root)
                if held <= 0:
                    held = self._new_node(first, len(branch.branches))
                    self._put(cell, held)
                    self.branch_of[held] = self._branches.setdefault(branch.branch_of, branch.branch_of)
                for option, part in enumerate(branch.branches):
                    at = encoding.node_cell(held, option)
                    self._insert(at, part, root, dict(known), read, (*within, (held, at)), rows)
                return
            read.add(branch.slot)
            known[branch.slot] = branch.value
            if held <= 0:
                room = max(branch.value, min(self._values(branch.slot, root) - 1, 15), 1)
                held = self._new_node(first, 1 << room.bit_length())
                self._put(cell, held)
                if (slot_of_step(first) if self.stepper.roots[root].reads_step else first) in self.store.markers:
                    self._marked.setdefault((root, first), []).append(held)
            elif branch.value >= pool[encoding.node_room(held)]:
                held = int(native.widened(self.pool, self.top, held, branch.value))
                self._put(cell, held)
            cell, branch = encoding.node_cell(held, branch.value), branch.then

    def _may_wait(self, root: int, test: int, branch: Branch) -> bool:
        """Whether a branch may begin with another read than a node tests, as one of the two is of a member of a
        universe. Where a universe has grown, later evaluations read its new members where they ask for them, not where
        the node asks. An evaluation that makes a member itself has asked before without it.
        """
        if not self._grown or test >= CHANGE:
            return False
        if not isinstance(branch, Read):
            return self._about_universe(root, test)
        return branch.slot != test and (self._about_universe(root, test) or self._about_universe(root, branch.slot))

    def _about_universe(self, root: int, read: int) -> bool:
        return self.store.is_about_universe(slot_of_step(read) if self.stepper.roots[root].reads_step else read)

    def _new_node(self, first: int, room: int) -> int:
        base = self._top[0]
        self._pool[base] = first
        self._pool[encoding.node_room(base)] = room
        self._top[0] = base + encoding.NODE_HEADER + room
        return base

    def _values(self, slot: int, root: int) -> int:
        if slot == CHANGE:
            return len(self.stepper.changes.known)
        return len(self.store.values[slot_of_step(slot) if self.root_kind[root] == encoding.STEP_PROPERTY else slot])

    def _put(self, cell: int, word: int) -> None:
        if cell >= 0:
            self._pool[cell] = word
        else:
            self._root_words[encoding.cell_root(cell)] = word

    def _leaf(self, root: int, leaf: Leaf, known: dict[int, int], within: tuple[tuple[int, int], ...]) -> int:
        """The trie word for the end of an evaluation."""
        if not leaf.outcomes:
            return encoding.DISABLED
        if self.root_kind[root] != encoding.ACTION:
            return encoding.leaf_word(root)
        # Outcomes with the same effect become one, the first of them. One without effect is left out, unless loops are
        # kept. The leaf's weight still counts all of them as steps.
        by_effect: dict[tuple[tuple[int, int, int], ...], list[Outcome]] = {}
        for outcome in sorted(leaf.outcomes, key=lambda o: o.choices):
            effect = tuple((slot, old, new) for slot, (old, new) in sorted(outcome.writes.items()))
            by_effect.setdefault(effect, []).append(outcome)
        first = self.outcomes
        for effect, same in by_effect.items():
            if effect or self.keeps_loops:
                self._add_outcome(root, same[0], len(same), known, effect)
        number = self.leaves
        self.leaf_root[number] = root
        self.leaf_span[number] = encoding.pack_span(first, self.outcomes - first)
        self.leaf_weight.append(len(leaf.outcomes))
        self._count_below(root, self.outcomes - first, within)
        self.leaves += 1
        return encoding.leaf_word(number)

    def _count_below(self, root: int, outcomes: int, within: tuple[tuple[int, int], ...]) -> None:
        """Update the bounds for a new leaf with this number of outcomes. A state takes all options of a fork, and one
        way through any other node.
        """
        leaves = 1
        for fork, option in reversed(within):
            option_before, fork_before = self.below.get(option, (0, 0)), self.below.get(fork, (0, 0))
            option_now = max(option_before[0], leaves), max(option_before[1], outcomes)
            if option_now == option_before:
                return
            self.below[option] = option_now
            leaves, outcomes = self.below[fork] = (
                fork_before[0] + option_now[0] - option_before[0],
                fork_before[1] + option_now[1] - option_before[1],
            )
        self.most_leaves[root] = max(self.most_leaves[root], leaves)
        self.most_outcomes[root] = max(self.most_outcomes[root], outcomes)

    def _add_outcome(
        self, root: int, outcome: Outcome, weight: int, known: dict[int, int], effect: tuple[tuple[int, int, int], ...]
    ) -> None:
        number = self.outcomes
        if number + 1 >= encoding.MAX_OUTCOMES:
            raise SystemFailure(
                f"the protocol has more than {encoding.MAX_OUTCOMES:,} different steps: a part of its state has too"
                " many values: {profile} shows which; split it",
                "profile",
            )
        k, w, c = int(self.known_start[number]), int(self.write_start[number]), int(self.choice_start[number])
        delta = 0
        for slot, value in known.items():
            new = outcome.writes.get(slot, (value, value))[1]
            self.known_slot[k], self.known_old[k], self.known_new[k] = slot, value, new
            k += 1
        for slot, (old, new) in outcome.writes.items():
            self.write_slot[w], self.write_value[w] = slot, new
            delta ^= self.store.hashes[slot][old] ^ self.store.hashes[slot][new]
            if self.permutations:
                images = self.image_hashes(slot, old) ^ self.image_hashes(slot, new)
                self.image_delta[number] ^= images[0]
                self.image_delta_high[number] ^= images[1]
            w += 1
        for choice in outcome.choices:
            self.choice[c] = choice
            c += 1
        self.known_start[number + 1], self.write_start[number + 1], self.choice_start[number + 1] = k, w, c
        self.changed[number] = mask(outcome.writes, self.slot_words)
        values_after = tuple(
            sorted((slot, outcome.writes.get(slot, (value, value))[1]) for slot, value in known.items())
        )
        self.like[number] = (
            self._alike.setdefault((values_after, tuple(sorted(outcome.writes))), number) if root >= 0 else number
        )
        self.delta[number] = delta & ((1 << 64) - 1)
        self.delta_high[number] = delta >> 64
        self.outcome_root[number] = root
        self.outcome_choices.append(outcome.choices)
        self.outcome_weight.append(weight)
        if root >= 0:
            self._note_twins(number, root, effect)
        self.outcomes += 1

    def images_of(self, count: int) -> Array:
        """Room for one number for each image of ``count`` states or outcomes; empty without symmetry."""
        if not self.permutations:
            return np.zeros((0, 0), np.uint64)
        return reserve(count * self.permutations, np.uint64).reshape(count, self.permutations)

    def image_hashes(self, slot: int, value: int) -> Array:
        """The part of each image's fingerprint that a value of a slot contributes: low halves, high halves."""
        known = self._image_hashes.get((slot, value))
        if known is None:
            assert self.symmetry is not None
            hashes = self.symmetry.hashes(slot, value)
            known = np.array([[h & LOW for h in hashes], [h >> 64 for h in hashes]], np.uint64)
            self._image_hashes[slot, value] = known
        return known

    def _note_twins(self, number: int, root: int, effect: tuple[tuple[int, int, int], ...]) -> None:
        """Flag outcomes with the same effect, if one state can have several of them: they are of different roots, or of
        a root that forks.
        """
        visible = tuple(e for e in effect if self.store.hashes[e[0]][e[1]] != self.store.hashes[e[0]][e[2]])
        same = self.same_effect.setdefault(visible, [])
        same.append(number)
        if self.twin[same[0]]:
            self.twin[number] = 1
        elif len(same) > 1 and (root in self.forks or self.outcome_root[same[0]] != root):
            self.twin[same] = 1

    def _make_room(self, entries: int) -> None:
        """Make room for this number of new entries. Each may have its own residual trie."""
        needed = 2 * (int(self.tries[0]) + entries)
        if needed > self.residual_keys.size:
            size = 1 << needed.bit_length()
            keys, tries = np.zeros(size, np.uint64), np.zeros(size, np.int32)
            native.rehash(self.residual_keys, self.residual_tries, keys, tries)
            self.residual_keys, self.residual_tries = keys, tries
        words = 2 + len(self.store.slots) // 32
        if words > self.slot_words:
            self.widen_masks(2 * words)
        if sum(self.most_leaves) > encoding.MAX_LEAVES:
            if self.store.grown:
                raise Outgrown("")
            most = max(range(len(self.most_leaves)), key=self.most_leaves.__getitem__)
            raise SystemFailure(
                f"one state may have more than {encoding.MAX_LEAVES:,} steps that read on after a choice, most of them"
                f" of {self.stepper.roots[most].title}: read before you choose, or choose from less"
            )
        if (
            self.top[0] > encoding.MAX_WORDS * 9 // 10
            or self.tries[0] > encoding.MAX_TRIES * 9 // 10
            or self.entries[0] > encoding.MAX_ENTRIES * 9 // 10
        ):
            raise SystemFailure(
                "the protocol's decision tries outgrew their tables: a part of its state has too many values: "
                "{profile} shows which; split it",
                "profile",
            )

    def widen_masks(self, words: int) -> None:
        """Give the bit sets of slots this number of words."""
        held = {"trie_known": int(self.tries[0]), "changed": self.outcomes, "root_slots": len(self.root_slots)}
        for name, used in held.items():
            narrow = getattr(self, name)
            wide = reserve(len(narrow) * words, np.uint64).reshape(len(narrow), words)
            wide[:used, : narrow.shape[1]] = narrow[:used]
            setattr(self, name, wide)
        self.slot_words = words

    # -- sizes --------------------------------------------------------------------------------------------------------

    def used(self) -> dict[str, int]:
        """How much of each array of the tables is in use."""
        n, entries = self.outcomes, int(self.entries[0])
        known, written, choices = (int(a[n]) for a in (self.known_start, self.write_start, self.choice_start))
        counts = {
            "words": int(self.top[0]), "tries": int(self.tries[0]), "entries": entries, "leaves": self.leaves,
            "outcomes": n, "starts": n + 1, "known": known, "written": written, "choices": choices,
        }  # fmt: skip
        return {name: counts[column.count] for column in COLUMNS for name in column.names} | {
            "residual_keys": self.residual_keys.size, "residual_tries": self.residual_tries.size,
            "root_slots": len(self.root_slots), "is_constraint": len(self.is_constraint),
            **dict.fromkeys(("is_predicate", "idle"), len(self.is_predicate)),
            "image_delta": n * bool(self.permutations), "image_delta_high": n * bool(self.permutations),
            "place": len(self.store.slots), "row_delta": n,
            "start": n, "middle": n, "end": n, "step_start": n + 1,
            **dict.fromkeys(("step_trie", "word", "first", "gate", "trie"), entries),
            **(self._programs.used() if self._programs is not None else dict.fromkeys(Compiled._fields[-4:], 0)),
        }  # fmt: skip

    @property
    def version(self) -> tuple[int, ...]:
        """Numbers that change whenever the tables do. Sizes alone are not enough: an evaluation may fill an existing
        cell.
        """
        return (self.layout.version, sum(self.evaluations_by_root), *self.used().values())

    # -- reading ------------------------------------------------------------------------------------------------------

    def compiled(self, afresh: bool = True) -> Compiled:
        """The tables as compiled loops read them.

        Unless ``afresh``, entries are laid out again only if there are new ones. That is enough to complete states, but
        not to build them.
        """
        self.spread()
        n, entries = self.outcomes, int(self.entries[0])
        if afresh or self._linked is None or self._linked[0] != (n, entries):
            linked = self.unlinked()
            native.link(self.growing(), self.layout.place, self.root_kind, linked, np.zeros(3 * n, np.int64))
            self._linked = (n, entries), linked
        return self.reading(self._linked[1], self._row_deltas())

    def unlinked(self) -> Entries:
        """Empty arrays for the entries of all outcomes."""
        n, entries = self.outcomes, int(self.entries[0])
        start, middle, end, step_start = (np.zeros(n + 1, np.int32) for _ in range(4))
        trie = np.zeros(entries, np.int32)
        step_trie = np.zeros(entries if self.stepwise else 0, np.int32)
        word, gate = np.zeros(entries, np.int64), np.zeros(entries, np.uint64)
        return Entries(start, middle, end, word, np.zeros(entries, np.int32), gate, trie, step_start, step_trie)

    def reading(self, linked: Entries, row_delta: Array) -> Compiled:
        """The tables with these entries, and what each outcome XORs into a row."""
        programs = self._programs.compiled() if self._programs is not None else [np.zeros(0, np.int64)] * 4
        found = linked._asdict() | dict(zip(Compiled._fields[-4:], programs, strict=True))
        found |= {"place": self.layout.place, "row_delta": row_delta}
        return Compiled(*(found[name] if name in found else getattr(self, name) for name in Compiled._fields))

    def _row_deltas(self) -> Array:
        """What each outcome XORs into a row. Computed for new outcomes, and for all after slots have moved."""
        version, done = self._laid_out
        if version != self.layout.version:
            self._row_delta, done = (
                reserve(encoding.MAX_OUTCOMES * self.layout.words, np.uint64).reshape(encoding.MAX_OUTCOMES, -1),
                0,
            )
        if done < self.outcomes:
            native.row_deltas(self.growing(), self.layout.place, done, self.outcomes, self._row_delta)
            self._laid_out = self.layout.version, self.outcomes
        return self._row_delta

    def fit(self) -> Array:
        """Make room in rows for every value. Returns the moves that rows must make; see :meth:`Layout.fit`."""
        return self.layout.fit(self.store.values)

    @property
    def places(self) -> Array:
        """The current places of all slots."""
        return self.layout.places(len(self.store.slots))

    def ask(self, question: Question) -> None:
        """Have the author's Python answer a question, and record the answer. Raises
        :class:`fencepost.ProtocolRaised`, unless it was about a step that changes nothing, which the protocol may not
        have.
        """
        try:
            self.record(question, self.evaluated(question))
        except RanOtherwise:
            raise
        except ProtocolRaised:
            if question.step != encoding.INITIAL:
                raise
            cell, word = self._end_of(question)
            if word == encoding.PENDING:  # another step with the same path asks again
                self._put(cell, encoding.MISS)
            self._busy.add(question.root)

    def evaluated(self, question: Question) -> Branch:
        """The answer of the author's Python to a question, without the ways through choices that are recorded. Raises
        :class:`fencepost.ProtocolRaised`.
        """
        root, ids, step = question
        after = self.successor(ids, step) if step >= 0 else None
        change = int(self.change[step]) if self.knows_change[root] else None
        self._grow()
        recorded = _Recorded(self, root, ids) if root in self.forks and not self.stepper.checking else None
        return self.stepper.evaluate(self.stepper.roots[root], ids, after, change, recorded)

    def record(self, question: Question, tree: Branch) -> None:
        """Record the answer to a question. Call :meth:`spread` before the tables are used: it works out the
        consequences for the outcomes of other roots.
        """
        root, ids, step = question
        self._record(root, tree, ids, self.successor(ids, step) if step >= 0 else None)
        if step == encoding.INITIAL and self._end_of(question)[1] != encoding.DISABLED:
            self._busy.add(root)

    def _end_of(self, question: Question) -> tuple[int, int]:
        """The last cell of the path of a step from a state to itself, and its word."""
        cell = encoding.root_cell(question.root)
        while (word := self._pool[cell] if cell >= 0 else self._root_words[encoding.cell_root(cell)]) > 0:
            cell = encoding.node_cell(word, _held(self._pool[word], (question.ids, question.ids)))
        return cell, word

    def rows(self, states: Sequence[Sequence[int]] | Array) -> Array:
        """States, as value numbers slot by slot, packed into rows."""
        return packed(np.array(states, np.int64), self.places, self.layout.words)

    def ids(self, row: Array) -> list[int]:
        """The value numbers of a state, slot by slot."""
        return self.ids_of(row[np.newaxis])[0]

    def ids_of(self, rows: Array) -> list[list[int]]:
        """The value numbers of states, slot by slot."""
        return self.layout.numbers(rows, len(self.store.slots))

    def successor(self, ids: Sequence[int], outcome: int) -> list[int]:
        """The value numbers after an outcome, slot by slot."""
        after = list(ids)
        for k in range(self.write_start[outcome], self.write_start[outcome + 1]):
            slot = int(self.write_slot[k])
            after.extend([0] * (slot + 1 - len(after)))
            after[slot] = int(self.write_value[k])
        return after


class _Recorded:
    """The ways of a root through its choices that its master trie has for one state, while the trie does not grow."""

    def __init__(self, tables: Tables, root: int, ids: Sequence[int]) -> None:
        self.tables = tables
        self.ids = ids
        self._known: dict[tuple[int, ...], int] = {(): self._next(int(tables.roots[root]))}
        """What follows choices: a fork, or the word of a trie that ends there."""
        self._whole: set[int] = set()
        """The forks whose ways are all recorded."""

    def first_missing(self, choices: Sequence[int] = ()) -> list[int] | None:
        """The first choices after these that none of its ways begins with."""
        missing = self._first_missing(self._after(tuple(choices)))
        return None if missing is None else [*choices, *missing]

    def _first_missing(self, word: int) -> list[int] | None:
        """The same for the choices that follow from what is at a word."""
        passed, found, pool = [], [], self.tables.pool.data
        while word > 0 and word not in self._whole:
            passed.append(word)
            last = len(self.tables.branch_of[word]) - 1
            for option, branch in enumerate(self.tables.branch_of[word]):
                after = encoding.DISABLED if branch == NO_BRANCH else self._next(pool[encoding.node_cell(word, branch)])
                if option == last:
                    word = after  # not by recursion: what appears late makes long chains of choices
                    found.append(option)
                elif (missing := self._first_missing(after)) is not None:
                    return [*found, option, *missing]
        if word in (encoding.MISS, encoding.PENDING):
            return found
        self._whole.update(passed)
        return None

    def _after(self, choices: tuple[int, ...]) -> int:
        """What follows these choices."""
        known = self._known.get(choices)
        if known is None:
            known = self._after(choices[:-1])
            if known > 0:
                branch = self.tables.branch_of[known][choices[-1]]
                cell = encoding.node_cell(known, branch)
                known = encoding.DISABLED if branch == NO_BRANCH else self._next(self.tables.pool.data[cell])
            self._known[choices] = known
        return known

    def _next(self, word: int) -> int:
        """The fork, the leaf or the missing word that reads lead to."""
        pool = self.tables.pool.data
        while word > 0 and not encoding.is_fork(pool[word]):
            value = self.ids[pool[word]] if pool[word] < len(self.ids) else 0
            word = pool[encoding.node_cell(word, value)] if value < pool[encoding.node_room(word)] else encoding.MISS
        return word


def _held(read: int, rows: tuple[Sequence[int], Sequence[int] | None]) -> int:
    """The value of a read in a state, or in one of the two states of a step."""
    row, after = rows
    if after is not None:
        row, read = (after if reads_after(read) else row), slot_of_step(read)
    return row[read] if read < len(row) else 0


COLUMNS = tuple(dict.fromkeys(each for each in vars(Tables).values() if isinstance(each, _Column)))
"""The columns of :class:`Tables`."""
