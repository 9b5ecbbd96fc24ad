"""The record of an evaluation as a decision tree: one path through its reads, and every combination of its choices.

A tree is a chain of :class:`Read`, then a :class:`Fork` whose branches read on differently, or a :class:`Leaf` with the
outcomes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
    """A choice whose options read on. Every branch is taken."""

    branches: list[Branch]


Branch = Read | Fork | Leaf


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
    if len(paths) == 1:
        alone: Branch = Leaf([outcome_of(first, ids)] if first.enabled else [])
        for what, subject, value in reversed(first.trail[depth:]):
            if what == "read":
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
    options: list[list[Path]] = [[] for _ in range(subject)]
    for path in paths:
        options[path.trail[depth][2]].append(path)
    branches = [tree_of(option, depth + 1, ids) for option in options]
    # Options that read nothing more end here, in one leaf. The others become branches of a fork.
    ended = [b for b in branches if isinstance(b, Leaf)]
    going_on: list[Branch] = [b for b in branches if not isinstance(b, Leaf)]
    joined = Leaf([outcome for leaf in ended for outcome in leaf.outcomes])
    if not going_on:
        return joined
    return Fork([*going_on, joined] if joined.outcomes else going_on)
