"""The record of an evaluation as a decision tree: one path through its reads, and every combination of its choices.

A tree is a chain of :class:`Read`, then a :class:`Fork` whose branches read on differently, or a :class:`Leaf` with the
outcomes. Where an earlier evaluation recorded some of the combinations, only the others are evaluated: then a
:class:`Rest` of a fork takes its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from fencepost.errors import Misbehaved
from fencepost.language.context import Event
from fencepost.language.values import Value

if TYPE_CHECKING:
    from fencepost.semantics.recorder import Path


@dataclass(frozen=True)
class Outcome:
    """One outcome of an evaluation.

    ``choices`` are the numbers of the options taken, ``labels`` the options. ``writes`` maps a slot to its (old, new)
    value numbers, if they differ. ``events``: messages and timeouts, for a trace.
    """

    choices: tuple[int, ...]
    labels: tuple[Value, ...]
    writes: dict[int, tuple[int, int]]
    events: tuple[Event, ...] = ()


@dataclass
class Leaf:
    """The end of an evaluation: every outcome, in order. None if it is not enabled, or the property holds.

    A temporal or ``sometimes`` property is the other way round: it has an outcome if it is true.
    """

    outcomes: list[Outcome]


@dataclass
class Read:
    """``slot`` was read and held value number ``value``. For step properties, slot 2i is slot i before the step, and
    2i+1 is slot i after it.
    """

    slot: int
    value: int
    then: Branch


@dataclass
class Fork:
    """A choice whose options read on. Every branch is taken. ``branch_of``: the number of each option's branch, or
    NO_BRANCH. Options that read nothing more share the last one.
    """

    branches: list[Branch]
    branch_of: tuple[int, ...]


NO_BRANCH = -1
"""For an option that is not enabled, and reads nothing to tell."""


@dataclass
class Rest:
    """The part of a fork that was not recorded before. ``branches``: of the options that were evaluated, by number."""

    options: int
    branches: dict[int, Branch]


Branch = Read | Fork | Rest | Leaf


class Recorded(Protocol):
    """What was recorded of the ways of a root through its choices in one state."""

    def first_missing(self, choices: Sequence[int] = ()) -> list[int] | None:
        """Choices, by number, that no way recorded so far begins with: the first after these. None if there are
        none.
        """


def packed(branch: Branch) -> tuple[Any, ...]:
    """A tree as tuples, for another process. What only people are shown of an outcome is left out."""
    reads = []
    while isinstance(branch, Read):
        reads.append((branch.slot, branch.value))
        branch = branch.then
    if isinstance(branch, Leaf):
        return reads, [(each.choices, each.writes) for each in branch.outcomes]
    if isinstance(branch, Fork):
        return reads, [packed(each) for each in branch.branches], branch.branch_of
    return reads, {option: packed(each) for option, each in branch.branches.items()}, branch.options


def unpacked(tree: tuple[Any, ...], numbers: Mapping[tuple[int, int], int]) -> Branch:
    """The tree that was packed. ``numbers``: those of its values that have another number here, by slot and number."""
    reads, end, *rest = tree
    branch: Branch
    if not rest:
        branch = Leaf([Outcome(choices, (), _numbered(writes, numbers)) for choices, writes in end])
    elif isinstance(end, list):
        branch = Fork([unpacked(each, numbers) for each in end], rest[0])
    else:
        branch = Rest(rest[0], {option: unpacked(each, numbers) for option, each in end.items()})
    for slot, value in reversed(reads):
        branch = Read(slot, value, branch)
    return branch


def _numbered(writes: dict[int, tuple[int, int]], numbers: Mapping[tuple[int, int], int]) -> dict[int, tuple[int, int]]:
    return {slot: (old, numbers.get((slot, new), new)) for slot, (old, new) in writes.items()}


def outcome_of(path: Path, ids: Sequence[int]) -> Outcome:
    def old(slot: int) -> int:
        return int(ids[slot]) if slot < len(ids) else 0

    writes = {slot: (old(slot), new) for slot, new in path.writes.items() if old(slot) != new}
    choices = tuple(taken for what, _, taken in path.trail if what == "choose")
    return Outcome(choices, tuple(path.labels), writes, tuple(path.events))


def _entry(path: Path, depth: int) -> tuple[Any, ...]:
    what, subject, value = path.trail[depth] if depth < len(path.trail) else ("end", 0, 0)
    return (what, subject) if what == "choose" else (what, subject, value)


def tree_of(paths: list[Path], depth: int, ids: Sequence[int]) -> Branch:
    """The tree of evaluations whose first ``depth`` trail entries agree, apart from choices."""
    first = paths[0]
    if len(paths) == 1 and all(what == "read" for what, _, _ in first.trail[depth:]):
        alone: Branch = Leaf([outcome_of(first, ids)] if first.enabled else [])
        for _, subject, value in reversed(first.trail[depth:]):
            alone = Read(subject, value, alone)
        return alone
    shared = depth
    while True:
        # The next read, or the number of options, must depend only on the choices before it.
        if len({_entry(p, shared) for p in paths}) > 1:
            raise Misbehaved("was not deterministic: it must depend on the state alone")
        if shared == len(first.trail) or first.trail[shared][0] == "choose":
            break
        shared += 1
    then: Branch = (
        _forked(paths, shared, ids)
        if shared < len(first.trail)
        else Leaf([outcome_of(p, ids) for p in paths if p.enabled])
    )
    for _, subject, value in reversed(first.trail[depth:shared]):
        then = Read(subject, value, then)
    return then


def _forked(paths: list[Path], depth: int, ids: Sequence[int]) -> Branch:
    """The tree of evaluations that take different options at trail entry ``depth``, a choice."""
    subject = paths[0].trail[depth][1]
    options: dict[int, list[Path]] = {}
    for path in paths:
        options.setdefault(path.trail[depth][2], []).append(path)
    by_option = {option: tree_of(of, depth + 1, ids) for option, of in options.items()}
    if len(by_option) < subject:
        return Rest(subject, by_option)
    branches = [by_option[option] for option in range(subject)]
    # Options that read nothing more end here, in one leaf. The others become branches of a fork.
    ended = [b for b in branches if isinstance(b, Leaf)]
    going_on: list[Branch] = [b for b in branches if not isinstance(b, Leaf)]
    joined = Leaf([outcome for leaf in ended for outcome in leaf.outcomes])
    if not going_on:
        return joined
    numbers = count()
    rest = len(going_on) if joined.outcomes else NO_BRANCH
    branch_of = tuple(rest if isinstance(each, Leaf) else next(numbers) for each in branches)
    return Fork([*going_on, joined] if joined.outcomes else going_on, branch_of)
