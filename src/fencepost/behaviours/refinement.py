"""Explains why a step is not a step of the refined protocol: its changes there, and the nearest actions with their
effects.
"""

from __future__ import annotations

import itertools
import linecache
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fencepost.behaviours.behaviour import Trace
from fencepost.behaviours.evidence import StateReader
from fencepost.behaviours.formatting import slot_change
from fencepost.language import refinement as spec
from fencepost.language.context import Slot
from fencepost.language.seam import Model
from fencepost.language.values import Value
from fencepost.semantics.authors import authors_frame, is_authors
from fencepost.semantics.mapping import Side
from fencepost.semantics.refinement import Action, After, Change, Refinement, Row, Steps, Trial, Way

NEAREST = 3
"""The most near actions that are reported."""
MOST_WAYS = 500
"""The most combinations of choices of one action that are tried."""

Difference = tuple[Slot, Value, Value]
"""A part of the other protocol's state, with its values before and after."""


@dataclass(frozen=True)
class Refusal:
    """A condition of an action that failed: its file, line and source text."""

    file: str
    line: int
    source: str

    def __str__(self) -> str:
        where = f"{os.path.basename(self.file)}:{self.line}"
        return f"{self.source} ({where})" if self.source else where


@dataclass(frozen=True)
class Near:
    """An action of the other protocol that is near to a step: the conditions that ``refused`` it, and the effect that
    it has or would have.

    ``same``: whether its effect equals the step's. ``raised``: the exception that it raised instead.
    """

    title: str
    refused: tuple[Refusal, ...]
    differences: tuple[Difference, ...]
    same: bool = False
    raised: str = ""


@dataclass(frozen=True)
class Refuted:
    """Why a behaviour is not a behaviour of the protocol ``other``. ``differences``: the changes of its last step
    there, or the differences of its initial state from the nearest initial state there. ``nearest``: the nearest
    actions.
    """

    other: Model
    initial: bool
    differences: tuple[Difference, ...]
    nearest: tuple[Near, ...]


def refuted(trace: Trace, name: str) -> Refuted | None:
    """Why the last step of ``trace`` violates the refinement ``name``, or its initial state if it has no step. None if
    the reason cannot be found.
    """
    declared = next((d for d in trace.protocol.declared("refinement") if d.name == name), None)
    if not isinstance(declared, spec.Refinement):
        return None
    try:
        refinement = Refinement(declared, trace.protocol, trace.initial.store)
        return _step(trace, refinement) if trace.steps else _start(trace, refinement)
    except Exception:  # the verdict stands: without this explanation the rest of the report is still useful
        return None


def difference_texts(refuted: Refuted, differences: Sequence[Difference]) -> list[tuple[str, str]]:
    """Differences in words: each part of the other protocol's state, and its change."""
    return [(slot.name, slot_change(refuted.other, slot, old, new)) for slot, old, new in differences]


def why(refuted: Refuted, near: Near) -> str:
    """Why an action does not match the step, in words."""
    doing = ", ".join(f"{name} {how}" for name, how in difference_texts(refuted, near.differences)) or "nothing"
    asked = " and ".join(map(str, near.refused))
    if near.raised:
        return f"raises {near.raised}"
    if not near.refused:
        return f"does something else: {doing}" if near.differences else "changes nothing here"
    return (
        f"does just this, but is refused: {asked}"
        if near.same
        else f"is refused: {asked}; it would do {doing}"
        if near.differences
        else f"is refused: {asked}"
    )


class _Forgiving(Trial):
    """A cursor that continues after a failed condition, as far as possible."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.refusals: list[Refusal] = []

    def forgive(self) -> None:
        """Record the location of a failed condition."""
        frame = authors_frame(sys._getframe(1))
        if frame is not None:
            self.refusals.append(_refusal(frame.f_code.co_filename, frame.f_lineno))


def _refusal(file: str, line: int) -> Refusal:
    return Refusal(file, line, linecache.getline(file, line).strip())


def _step(trace: Trace, refinement: Refinement) -> Refuted:
    before, after = trace.states[-2:]
    slots = frozenset(
        slot for slot, (old, new) in enumerate(itertools.zip_longest(before.ids, after.ids, fillvalue=0)) if old != new
    )
    refinement.mapping.numbers = {part: number for number, part in enumerate(refinement.mapping.parts)}
    change = Change(-1, slots, frozenset(refinement.mapping.numbers.values()))
    side = Side(refinement.mapping, StateReader(before))
    wanted = Steps(
        side, Side(refinement.mapping, After(refinement.store, change, StateReader(before), StateReader(after)))
    ).difference(change)
    step = trace.steps[-1]
    taken = next(a for a in trace.protocol.declared("action") if a.name == step.action)
    order = refinement.in_order(Action(-1, taken, dict(step.parameters)))
    ways = [_best(refinement.ways(action, side, _Forgiving), wanted) for action in order]
    ways.sort(key=lambda way: _distance(way, wanted))
    exact = [way for way in ways if way.effect == wanted]
    near = (exact or [way for way in ways if way.effect or way.action.name == step.action] or ways[:1])[:NEAREST]
    return Refuted(
        refinement.other,
        False,
        _differences(refinement, side, wanted),
        tuple(_near(refinement, way, side, wanted) for way in near),
    )


def _best(ways: Iterator[Way], wanted: Row) -> Way:
    """The combination of choices that comes nearest, the first of several."""
    return min(itertools.islice(ways, MOST_WAYS), key=lambda way: _distance(way, wanted))


def _distance(way: Way, wanted: Row) -> tuple[int, int, int]:
    """The distance of a combination from the wanted effect: the parts that only one of them changes, the differing
    changes, and the failed conditions.
    """
    assert isinstance(way.trial, _Forgiving)
    differing = len(way.effect.items() ^ wanted.items())
    touched = len(way.effect.keys() ^ wanted.keys())
    return touched, differing, len(way.trial.refusals) + (way.refused is not None) + (way.raised is not None)


def _near(refinement: Refinement, way: Way, side: Side, wanted: Row) -> Near:
    assert isinstance(way.trial, _Forgiving)
    refused = list(way.trial.refusals)
    if way.refused is not None:
        frames = [f for f in traceback.extract_tb(way.refused.__traceback__) if is_authors(f.filename)]
        refused += [_refusal(frames[-1].filename, frames[-1].lineno or 0)] if frames else []
    raised = "" if way.raised is None or refused else f"{type(way.raised).__name__}: {way.raised}"
    return Near(
        way.action.title, tuple(refused), _differences(refinement, side, way.effect), way.effect == wanted, raised
    )


def _differences(refinement: Refinement, side: Side, effect: Row) -> tuple[Difference, ...]:
    others = refinement.others
    return tuple(
        (others.slots[slot], others.values[slot][side.number(slot)], others.values[slot][new])
        for slot, new in sorted(effect.items())
    )


def _start(trace: Trace, refinement: Refinement) -> Refuted:
    """The differences of the first state from the nearest initial state of the other protocol."""
    others = refinement.others
    mine = dict(enumerate(Side(refinement.mapping, StateReader(trace.initial)).row(trace.initial.ids)))
    differing = [
        {slot for slot in {**mine, **its} if mine.get(slot, 0) != its.get(slot, 0)} for its in refinement.initial()
    ]
    nearest = min(range(len(differing)), key=lambda number: len(differing[number]), default=None)
    if nearest is None:
        return Refuted(refinement.other, True, (), ())
    its = list(refinement.initial())[nearest]
    differences = tuple(
        (others.slots[slot], others.values[slot][its.get(slot, 0)], others.values[slot][mine.get(slot, 0)])
        for slot in sorted(differing[nearest])
    )
    return Refuted(refinement.other, True, differences, ())
