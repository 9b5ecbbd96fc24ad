"""A result as JSON: the numbers, the coverage, and every counterexample state by state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fencepost.behaviours.json import FORMAT, dumps, plain, states
from fencepost.behaviours.lasso import NEVER_ENABLED
from fencepost.behaviours.refinement import Difference, Refuted, refuted
from fencepost.checker.engines.interface import Walks
from fencepost.checker.findings import Findings, Violation, Witness


def to_json(result: Findings, *, indent: int = 2) -> str:
    """The whole result as one JSON object, see :func:`data`. ``indent`` 0 puts it on one line."""
    return dumps(data(result), indent)


def data(result: Findings) -> dict[str, Any]:
    """The document that :func:`to_json` writes, as plain dicts and lists. Values are written by :func:`plain`.

    - ``protocol`` and ``constants``; ``verdict`` and ``exit_code``; ``complete``, ``limit``, ``within_level``,
      ``interrupted``, ``error`` and ``failure``.
    - Numbers: ``distinct_states``, ``generated_states``, ``depth``, ``queue``, ``seconds``, ``states_per_second``,
      ``peak_memory_bytes``, ``collision_probability`` and ``evaluations``.
    - ``actions``: ``name``, ``taken`` and ``new_states`` of each.
    - ``symmetry``: the constants up to whose symmetry states were counted. ``exact``: whether each was counted once.
      ``reduced``: whether a partial order reduction left states out.
    - ``judged``: the temporal properties that were checked. ``unjudged``: why they were not.
    - ``table``: the written state space (``directory``, ``states``, ``edges``, ``depth``, ``complete``), or null.
    - ``simulation``: null for a search.
    - ``witnesses``: behaviours that reach a ``sometimes`` property (``name`` and ``trace``). ``unreached``: properties
      without one so far.
    - ``violation``: the first, or null. ``violations``: all of them.

    A violation has its ``kind``, ``name`` and ``trace``: one object per state, where ``action`` is null in the initial
    one. For a temporal property it also has ``loop`` and ``fairness``. ``loop``: the number (from 0) of the state that
    the last state equals; the trace repeats forever after it. ``fairness``: how and in which state each fairness
    condition is met. A violation of a ``sometimes`` property has no trace, but ``never``: the parameters for which it
    is never true.
    """
    violations = [_violation(v) for v in result.violations]
    return {
        "format": FORMAT,
        "protocol": result.protocol.name,
        "constants": {name: plain(value) for name, value in result.constants.items()},
        **_named(result, "engine verdict exit_code complete limit within_level interrupted"),
        "unfinished": _unfinished(result),
        "error": _error(result),
        "failure": None if result.failure is None else str(result.failure),
        "judged": list(result.judged),
        "unjudged": result.unjudged,
        "symmetry": list(result.symmetry),
        "exact": result.exact,
        "reduced": result.reduced,
        **_named(result, "distinct_states generated_states depth queue seconds states_per_second peak_memory_bytes"),
        **_named(result, "collision_probability evaluations"),
        "actions": [asdict(action) for action in result.actions],
        "table": None if result.table is None else asdict(result.table),
        "simulation": None if result.walks is None else _simulation(result, result.walks),
        "witnesses": [_witness(w) for w in result.witnesses],
        "unreached": list(result.unreached),
        "violation": violations[0] if violations else None,
        "violations": violations,
    }


def _named(found: Any, names: str) -> dict[str, Any]:
    return {name: getattr(found, name) for name in names.split()}


def _violation(violation: Violation) -> dict[str, Any]:
    trace = None if violation.trace is None else states(violation.trace)
    found: dict[str, Any] = {"kind": violation.kind, "name": violation.name, "trace": trace}
    if violation.trace is not None and (loop := violation.trace.loop) is not None:
        found["loop"] = loop
        found["fairness"] = [
            {
                "demand": one.condition.title,
                "strong": one.condition.strong,
                "met": one.how,
                "at": None if one.how == NEVER_ENABLED else loop + one.at,
            }
            for one in violation.fairness
        ]
    if (
        violation.kind == "refinement"
        and violation.trace is not None
        and (why := refuted(violation.trace, violation.name)) is not None
    ):
        found["refinement"] = _refuted(why)
    if violation.never:
        found["never"] = list(violation.never)
    if violation.walk is not None:
        found["walk"] = violation.walk
    return found


def _refuted(found: Refuted) -> dict[str, Any]:
    """The changes that a step makes to the refined protocol's state, and that protocol's nearest actions."""

    def differences(changes: Sequence[Difference]) -> list[dict[str, Any]]:
        return [{"part": slot.name, "before": plain(old), "after": plain(new)} for slot, old, new in changes]

    return {
        "protocol": found.other.name,
        "constants": {name: plain(value) for name, value in found.other.constants.items()},
        "changes": differences(found.differences),
        "nearest": [
            {
                "action": near.title,
                "refused": [{"file": at.file, "line": at.line, "source": at.source} for at in near.refused],
                "changes": differences(near.differences),
                "same": near.same,
                "raised": near.raised or None,
            }
            for near in found.nearest
        ],
    }


def _witness(witness: Witness) -> dict[str, Any]:
    walk = {} if witness.walk is None else {"walk": witness.walk}
    return {"name": witness.name, "trace": states(witness.trace), **walk}


def _simulation(result: Findings, walks: Walks) -> dict[str, Any]:
    return {
        **_named(walks, "seed depth walks steps"),
        "steps_per_second": result.steps_per_second,
        "never_seen": {name: [plain(v) for v in values] for name, values in walks.unseen.items()},
        "walk": None if result.walk is None else states(result.walk),
    }


def _unfinished(result: Findings) -> dict[str, Any] | None:
    if result.unfinished is None:
        return None
    state = result.unfinished.state
    variables = None if state is None else {name: plain(value) for name, value in state.variables().items()}
    return {"evaluation": result.unfinished.what, "seconds": result.unfinished.seconds, "state": variables}


def _error(result: Findings) -> dict[str, Any] | None:
    if result.error is None:
        return None
    trace = None if result.error_trace is None else states(result.error_trace)
    return {"message": str(result.error), "where": result.error.where, "trace": trace}
