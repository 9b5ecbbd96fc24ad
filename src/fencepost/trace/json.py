"""A result as JSON, for programs: the numbers, the coverage, and every counterexample state by state."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fencepost.errors import OptionError
from fencepost.liveness.lasso import NEVER_ENABLED
from fencepost.spec.text import decimal, whole_number
from fencepost.spec.values import ModelValue, Record, Value, canonical, show
from fencepost.trace.behaviour import Trace
from fencepost.trace.refinement import Difference, Refuted, refuted

if TYPE_CHECKING:
    from fencepost.engines.interface import Walks
    from fencepost.result import Result, Violation, Witness

FORMAT = 1
"""The version of what :func:`to_json` writes; a change that could break a reader raises it."""


def to_json(result: Result, *, indent: int = 2) -> str:
    """The whole result as one JSON object; :func:`data` says what is in it. ``indent`` 0 puts it on one line."""
    return dumps(data(result), indent)


def dumps(document: Any, indent: int = 0) -> str:
    """JSON that any terminal and pipe can take: all of it is ASCII, and so a string that is no Unicode (half of a pair)
    can be written too.
    """

    def item(thing: Any) -> Any:  # numbers that numpy counted know how to become Python's
        return thing.item()

    text = json.dumps(document, separators=(",", ":"), default=item)
    if not indent:
        return text
    import msgspec  # slow to import, and few checks write a file

    try:
        return msgspec.json.format(text, indent=indent)  # many times faster
    except msgspec.DecodeError:  # halves of pairs are no JSON to it
        return json.dumps(document, indent=indent, default=item)


def loads(text: str | bytes) -> Any:
    """What JSON from anywhere says. Raises :class:`fencepost.OptionError` if it is none."""
    try:
        return json.loads(text.decode("utf-8-sig") if isinstance(text, bytes) else text, parse_int=whole_number)
    except UnicodeDecodeError as error:
        raise OptionError(f"it is not JSON: it is not UTF-8 from byte {error.start:,} on") from None
    except RecursionError:
        raise OptionError("it is nested too deeply") from None
    except ValueError as error:
        raise OptionError(f"it is not JSON: {error}") from None


def data(result: Result) -> dict[str, Any]:
    """What :func:`to_json` writes, as plain dicts and lists.

    ``protocol`` and ``constants``; ``verdict`` and ``exit_code``; ``complete``, ``limit``, ``interrupted``, ``error``
    and ``failure``; the numbers ``distinct_states``, ``generated_states``, ``depth``, ``queue``, ``seconds``,
    ``states_per_second``, ``peak_memory_bytes``, ``collision_probability`` and ``evaluations``; ``actions`` (``name``,
    ``taken``, ``new_states``); ``symmetry``, the constants up to whose symmetry states were counted, and ``exact``,
    whether each was counted once; ``judged``, the temporal properties that were judged, and ``unjudged``, why they were
    not; ``table``, the state space that was written down (``directory``, ``states``, ``edges``, ``depth``,
    ``complete``), or null; ``simulation``, null for a search; ``witnesses``, the ways to what is to be sometimes true
    (``name`` and ``trace``), and ``unreached``, what has none so far; ``violation``, the first, or null;
    ``violations``, all. A violation has its ``kind``, ``name`` and ``trace``: one object per state, the initial one
    first with ``action`` null. One of a temporal property also has its ``loop``, the number of the state (from 0) that
    the last one is again and from which on the trace repeats for ever, and ``fairness``: how and in which state each
    demand is met. One of what is to be sometimes true has no trace, but ``never``: with which parameters it is not.
    Values are written as :func:`plain` says.
    """
    violations = [_violation(v) for v in result.violations]
    return {
        "format": FORMAT,
        "protocol": result.protocol.name,
        "constants": {name: plain(value) for name, value in result.constants.items()},
        "engine": result.engine,
        "verdict": result.verdict,
        "exit_code": result.exit_code,
        "complete": result.complete,
        "limit": result.limit,
        "interrupted": result.interrupted,
        "unfinished": _unfinished(result),
        "error": _error(result),
        "failure": None if result.failure is None else str(result.failure),
        "judged": list(result.judged),
        "unjudged": result.unjudged,
        "symmetry": list(result.symmetry),
        "exact": result.exact,
        "distinct_states": result.distinct_states,
        "generated_states": result.generated_states,
        "depth": result.depth,
        "queue": result.queue,
        "seconds": result.seconds,
        "states_per_second": result.states_per_second,
        "peak_memory_bytes": result.peak_memory_bytes,
        "collision_probability": result.collision_probability,
        "evaluations": result.evaluations,
        "actions": [{"name": a.name, "taken": a.taken, "new_states": a.new_states} for a in result.actions],
        "table": None if result.table is None else asdict(result.table),
        "simulation": None if result.walks is None else _simulation(result, result.walks),
        "witnesses": [_witness(w) for w in result.witnesses],
        "unreached": list(result.unreached),
        "violation": violations[0] if violations else None,
        "violations": violations,
    }


def behaviour(trace: Trace) -> dict[str, Any]:
    """A behaviour by itself: ``protocol``, ``constants``, ``trace`` (see :func:`states`), and the ``loop`` of a
    lasso.
    """
    return {
        "format": FORMAT,
        "protocol": trace.protocol.name,
        "constants": {name: plain(value) for name, value in trace.protocol.constants.items()},
        "trace": states(trace),
        **({"loop": trace.loop} if trace.loop is not None else {}),
    }


def _violation(violation: Violation) -> dict[str, Any]:
    trace = None if violation.trace is None else states(violation.trace)
    found: dict[str, Any] = {"kind": violation.kind, "name": violation.name, "trace": trace}
    if violation.trace is not None and (loop := violation.trace.loop) is not None:
        found["loop"] = loop
        found["fairness"] = [
            {
                "demand": one.requirement.title,
                "strong": one.requirement.strong,
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
    """What a step changes of the protocol that it should be one of, and the actions of that one that come near."""

    def differences(given: Sequence[Difference]) -> list[dict[str, Any]]:
        return [{"part": slot.name, "before": plain(old), "after": plain(new)} for slot, old, new in given]

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


def _simulation(result: Result, walks: Walks) -> dict[str, Any]:
    return {
        "seed": walks.seed,
        "depth": walks.depth,
        "walks": walks.walks,
        "steps": walks.steps,
        "steps_per_second": result.steps_per_second,
        "never_seen": {name: [plain(v) for v in values] for name, values in walks.unseen.items()},
        "walk": None if result.walk is None else states(result.walk),
    }


def _unfinished(result: Result) -> dict[str, Any] | None:
    if result.unfinished is None:
        return None
    state = result.unfinished.state
    variables = None if state is None else {name: plain(value) for name, value in state.variables().items()}
    return {"evaluation": result.unfinished.what, "seconds": result.unfinished.seconds, "state": variables}


def _error(result: Result) -> dict[str, Any] | None:
    if result.error is None:
        return None
    trace = None if result.error_trace is None else states(result.error_trace)
    return {"message": str(result.error), "where": result.error.where, "trace": trace}


def states(trace: Trace) -> list[dict[str, Any]]:
    """A behaviour as one object per state: the ``action`` that led to it with its ``parameters``, who took it (``by``),
    its ``choices``, the ``events`` it told (messages sent, lost, received, timed out), and the ``state``, variable by
    variable.
    """
    nothing: dict[str, Any] = {"action": None, "parameters": {}, "by": None, "choices": [], "events": []}
    found = [{**nothing, "state": _state(trace.initial.variables())}]
    for step in trace.steps:
        found.append(
            {
                "action": step.action,
                "parameters": {name: plain(value) for name, value in step.parameters.items()},
                "by": step.by,
                "choices": [plain(choice) for choice in step.choices],
                "events": [
                    {"kind": e.kind, "source": plain(e.source), "dest": plain(e.dest), "text": e.text, "lost": e.lost}
                    for e in step.events
                ],
                "state": _state(step.state.variables()),
            }
        )
    return found


def _state(variables: Mapping[str, Value]) -> dict[str, Any]:
    return {name: plain(value) for name, value in variables.items()}


def plain(value: Value) -> Any:
    """A value as JSON knows it.

    Model values and members of enums are strings, sets lists in canonical order, tuples lists, records objects. A map
    is an object if its keys are strings, model values, enum members or whole numbers (and stay different as strings),
    else a list of [key, value]. Bytes are a string of hexadecimal digits. A float that JSON lacks is a string, and so
    is a whole number of more than 64 bits, of which many readers would make another one.
    """
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, ModelValue):
        return value.name
    if isinstance(value, float):
        return value if abs(value) != float("inf") else repr(value)
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return decimal(value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        return [plain(v) for v in value]
    if isinstance(value, (frozenset, set)):
        return [plain(v) for v in canonical(frozenset(value))]
    if isinstance(value, Record):
        return {name: plain(getattr(value, name)) for name in value._fields}
    if isinstance(value, Mapping):
        keys = [_key(key) for key in value]
        if None in keys or len(set(keys)) < len(keys):
            return [[plain(key), plain(value[key])] for key in value]
        return {str(key): plain(v) for key, v in zip(keys, value.values(), strict=True)}
    return show(value)


def _key(key: Value) -> str | None:
    if isinstance(key, (enum.Enum, ModelValue)):
        return key.name
    if isinstance(key, str):
        return key
    return decimal(key) if isinstance(key, int) and not isinstance(key, bool) else None
