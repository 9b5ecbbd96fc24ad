"""Checking mode: evaluates a sample of what the compiled tables know again in the author's Python, and compares."""

from __future__ import annotations

from fencepost.checker.compiler.encoding import (
    ACTION,
    STEP_PROPERTY,
    TEMPORAL_PROPERTY,
    meta_end,
    meta_first,
    span_end,
    span_first,
)
from fencepost.checker.compiler.tables import Tables
from fencepost.checker.engines.kernel import Arena
from fencepost.errors import ProtocolRaised, SystemFailure
from fencepost.semantics import State
from fencepost.semantics.state import LOW

Effect = tuple[tuple[int, int], ...]


def audit(tables: Tables, arena: Arena, position: int) -> None:
    """Compare one state's compiled successors and properties with a fresh evaluation in Python.

    Raises :class:`fencepost.ProtocolRaised` if they differ, because the protocol depends on something besides its
    state, or if the protocol distinguishes members that it declares symmetric. Raises
    :class:`fencepost.SystemFailure` if the state's fingerprint is wrong, which would be a bug of the engine.
    """
    stepper = tables.stepper
    ids = tables.ids(arena.cells[position])
    state = State(stepper.store, ids)
    fingerprint = state.fingerprint if tables.symmetry is None else tables.symmetry.key(ids)
    if fingerprint & LOW != int(arena.fp[position]):
        raise SystemFailure(
            "a state's fingerprint is not that of its content: this is a fault of Fencepost, please report it"
        )
    compiled: dict[int, set[Effect]] = {}
    meta = int(arena.meta[position])
    for leaf in arena.leaves[meta_first(meta) : meta_end(meta)]:
        span = int(tables.leaf_span[leaf])
        effects = compiled.setdefault(int(tables.leaf_root[leaf]), set())
        for outcome in range(span_first(span), span_end(span)):
            begin, end = tables.write_start[outcome], tables.write_start[outcome + 1]
            pairs = zip(tables.write_slot[begin:end].tolist(), tables.write_value[begin:end].tolist(), strict=True)
            effects.add(tuple(sorted(pairs)))
    for root in stepper.roots:
        if tables.root_kind[root.index] in (STEP_PROPERTY, TEMPORAL_PROPERTY):
            continue
        outcomes = stepper.outcomes(root, ids)
        if tables.root_kind[root.index] == ACTION:
            now = {tuple((slot, new) for slot, (_, new) in sorted(o.writes.items())) for o in outcomes}
            # A step that changes nothing is kept as a leaf without outcomes.
            agrees = now - {()} == compiled.get(root.index, set()) - {()} and bool(now) == (root.index in compiled)
        else:
            agrees = not outcomes or root.kind != "constraint"
        if not agrees:
            raise ProtocolRaised(
                f"{root.kind.replace('_', ' ')} {root.title} gave another result when it was run again in the same"
                " state: it depends on something besides its state",
                where=root.title,
                state=state,
            )
    if tables.symmetry is not None:
        tables.symmetry.verify(ids)
