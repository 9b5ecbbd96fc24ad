"""Recorded steps of random protocols, on which engines build, against the naive explorer's steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from campaigns import THOROUGH
from checker.engines import brute
from checker.engines.random_protocols import RandomProtocol, seeded

from fencepost import State
from fencepost.language.seam import Model
from fencepost.language.values import freeze
from fencepost.semantics import Branch, Fork, Leaf, Outcome, Read, Root, Stepper

SEEDS = 1_000 if THOROUGH else 60
STATES = 25


def ways(
    tree: Branch, reads: tuple[tuple[int, int], ...] = ()
) -> Iterator[tuple[tuple[tuple[int, int], ...], Outcome]]:
    """Every outcome of a tree with the reads on the way to it."""
    if isinstance(tree, Read):
        yield from ways(tree.then, (*reads, (tree.slot, tree.value)))
    elif isinstance(tree, Fork):
        for branch in tree.branches:
            yield from ways(branch, reads)
    elif isinstance(tree, Leaf):
        for outcome in tree.outcomes:
            yield reads, outcome


def all_reads(tree: Branch) -> set[tuple[int, int]]:
    if isinstance(tree, Read):
        return {(tree.slot, tree.value), *all_reads(tree.then)}
    return {read for branch in tree.branches for read in all_reads(branch)} if isinstance(tree, Fork) else set()


def nearby(stepper: Stepper) -> list[tuple[int, ...]]:
    """Some reachable states."""
    todo = [s.ids for s in stepper.initial_states()]
    known = set(todo)
    for ids in todo:
        for root in stepper.of_kind("action"):
            for outcome in stepper.outcomes(root, ids):
                after = stepper.apply(ids, outcome)
                if len(known) < STATES and after not in known:
                    known.add(after)
                    todo.append(after)
    return todo


def held(ids: tuple[int, ...], slot: int) -> int:
    return ids[slot] if slot < len(ids) else 0


def evaluations(
    random: RandomProtocol,
) -> Iterator[tuple[Stepper, Root, tuple[int, ...], tuple[int, ...] | None, Branch]]:
    stepper = Stepper(random.build())
    found = nearby(stepper)
    for number, ids in enumerate(found):
        for root in stepper.roots:
            after = found[number * 7 % len(found)] if root.kind.startswith("step") else None
            yield stepper, root, ids, after, stepper.evaluate(root, ids, after)


@pytest.mark.parametrize("part", range(3))
def test_trees(part: int) -> None:
    for seed in range(part * SEEDS // 3, (part + 1) * SEEDS // 3):
        for stepper, root, ids, after, tree in evaluations(seeded(seed, sound_view=False)):
            found = list(ways(tree))
            # The outcomes are those of a plain evaluation, each at the end of one path of reads.
            outcomes = stepper.outcomes(root, ids, after)
            assert sorted((o for _, o in found), key=lambda o: o.choices) == outcomes
            assert [o.choices for o in outcomes] == sorted({o.choices for o in outcomes})
            for slot, value in all_reads(tree):
                expected = held(ids, slot) if after is None else held((ids, after)[slot % 2], slot // 2)
                assert value == expected, "a read gives the value in the state"
            for reads, outcome in found:
                slots = [slot for slot, _ in reads]
                assert len(set(slots)) == len(slots), "a path reads a slot once"
                for slot, (old, new) in outcome.writes.items():
                    assert old != new and old == held(ids, slot)
                    assert (slot, old) in reads, "an overwritten slot was read"


@pytest.mark.parametrize("part", range(3))
def test_states_that_agree_on_what_was_read_take_the_same_steps(part: int) -> None:
    agreeing = 0
    for seed in range(part * SEEDS // 3, (part + 1) * SEEDS // 3):
        stepper = Stepper(seeded(seed, sound_view=False).build())
        found = nearby(stepper)
        for root in stepper.of_kind("action", "invariant", "constraint"):
            for ids in found[:6]:
                tree = stepper.evaluate(root, ids)
                for other in found:
                    if other != ids and all(held(other, slot) == value for slot, value in all_reads(tree)):
                        agreeing += 1
                        assert stepper.evaluate(root, other) == tree
    assert agreeing > 1_000


@pytest.mark.parametrize("part", range(3))
def test_steps_are_those_of_the_naive_explorer(part: int) -> None:
    for seed in range(part * SEEDS // 3, (part + 1) * SEEDS // 3):
        stepper = Stepper(seeded(seed).build())
        protocol = stepper.protocol
        starts = [same_row(State(stepper.store, s.ids)).key for s in stepper.initial_states()]
        assert starts == list(dict.fromkeys(row.key for row in naive_starts(protocol)))
        for ids in nearby(stepper):
            row = same_row(State(stepper.store, ids))
            for root in stepper.of_kind("action"):
                declared = next(d for d in protocol.declared("action") if d.name == root.name)
                expected = sorted(
                    (
                        (choices, after.key)
                        for choices, after in brute.runs(protocol, declared.function, row, **root.parameters)
                    ),
                    key=lambda step: step[0],
                )
                got = [
                    (o.choices, same_row(State(stepper.store, stepper.apply(ids, o))).key)
                    for o in stepper.outcomes(root, ids)
                ]
                assert got == expected, (seed, root.title, str(row))


def naive_starts(protocol: Model) -> list[brute.Row]:
    setups = protocol.declared("initial")
    if not setups:
        return [brute.Row({})]
    return [row for _, row in sorted(brute.runs(protocol, setups[0].function, brute.Row({})), key=lambda step: step[0])]


def same_row(state: State) -> brute.Row:
    """A state in the naive explorer's form, without a computed view."""
    slots = {brute.tag(slot.path): (slot, value) for slot, value in state.slots() if slot.path != ("view()",)}
    return brute.Row({p: (s, v) for p, (s, v) in slots.items() if brute.tag(v) != brute.tag(s.default)})


@pytest.mark.parametrize("part", range(3))
def test_fingerprints_follow_steps_and_content(part: int) -> None:
    for seed in range(part * SEEDS // 3, (part + 1) * SEEDS // 3):
        random = seeded(seed)
        stepper = Stepper(random.build())
        by_fingerprint: dict[int, Any] = {}
        seen = stepper.protocol.declared("view")
        for ids in nearby(stepper):
            state = State(stepper.store, ids)
            content = same_row(state).key
            if seen:
                reader = stepper.protocol.bound_to(brute._Cursor(same_row(state), ()))
                content = brute.tag(freeze(seen[0].function(reader)))
            assert by_fingerprint.setdefault(state.fingerprint, content) == content
            for root in stepper.of_kind("action"):
                for outcome in stepper.outcomes(root, ids):
                    delta = 0
                    for slot, (old, new) in outcome.writes.items():
                        delta ^= stepper.store.hashes[slot][old] ^ stepper.store.hashes[slot][new]
                    assert stepper.store.fingerprint(stepper.apply(ids, outcome)) == state.fingerprint ^ delta
        assert len(set(by_fingerprint.values())) == len(by_fingerprint)


def test_a_leaf_and_its_kind() -> None:
    """A tree has only reads, forks and leaves, and a fork has branches."""

    def walk(tree: Branch) -> None:
        assert isinstance(tree, (Read, Fork, Leaf))
        if isinstance(tree, Read):
            walk(tree.then)
        if isinstance(tree, Fork):
            assert tree.branches and not all(isinstance(b, Leaf) for b in tree.branches)
            for branch in tree.branches:
                walk(branch)

    for seed in range(20):
        for *_, tree in evaluations(seeded(seed)):
            walk(tree)
