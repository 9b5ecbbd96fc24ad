"""``fencepost.check``: a protocol in, a result out. The flow of the whole checker, in one place."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from fencepost.engines.interface import Exploration, Found, Options, Report
from fencepost.errors import OptionError, ProtocolRaised
from fencepost.result import ActionCount, Result, Violation
from fencepost.spec.protocol import Protocol, _unknown
from fencepost.step import State, Stepper
from fencepost.trace import replay

ENGINES = ("auto", "embedded", "reference")

SMALL = Options(workers=1, max_states=1_000, timeout=0.1)
"""What ``auto`` lets the plain explorer try before it turns to the compiled one."""


def check(
    protocol: Protocol,
    *,
    engine: str = "auto",
    invariants: Sequence[str] | None = None,
    options: Options | None = None,
    report: Report | None = None,
    **given: Any,
) -> Result:
    """Explore every state that ``protocol`` can reach and judge what was found.

    ``engine``: ``embedded`` (compiled, all cores), ``reference`` (plain Python) or ``auto``, which tries the second for a moment
    first. ``invariants``: names of the state and step invariants to check, by default all. ``report`` is called with progress.
    Any field of :class:`fencepost.Options` may be given by name: ``check(protocol, deadlock=True, max_depth=20)``.

    Raises :class:`fencepost.OptionError` for unknown names and :class:`fencepost.SystemFailure` when the machine fails; what the
    protocol itself does wrong is part of the result.
    """
    for name in given:
        if name not in Options.__dataclass_fields__:
            raise OptionError(_unknown("option", name, Options.__dataclass_fields__, "check"))
    options = replace(options or Options(workers=os.cpu_count() or 1), **given)
    _check_names(protocol, engine, invariants)
    broken = next((a for a in protocol.declared("assumption") if not _assumed(protocol, a)), None)
    if broken is not None:
        return _result(protocol, engine, Exploration(), violations=[Violation("assumption", broken.name, None)])
    if engine == "auto":
        small = _try_small(protocol, invariants, options)
        if small is not None:
            return small
        engine = "embedded"
    stepper = Stepper(protocol, invariants, options.checking)
    explorer = import_module(f"fencepost.engines.{engine}")
    return _judge(stepper, engine, explorer.explore(stepper, options, report), options)


def _try_small(protocol: Protocol, invariants: Sequence[str] | None, options: Options) -> Result | None:
    """The plain explorer's answer, if the protocol is small enough for it and nothing was asked that it can not do."""
    if options.checkpoint or options.resume or options.checking:
        return None
    from fencepost.engines import reference

    stepper = Stepper(protocol, invariants)
    brief = replace(options, max_states=SMALL.max_states, timeout=SMALL.timeout)
    explored = reference.explore(stepper, brief)
    ours = explored.limit is not None and (options.max_depth is None or explored.depth < options.max_depth)
    return None if ours else _judge(stepper, "reference", explored, options)


def _assumed(protocol: Protocol, assumption: object) -> bool:
    try:
        return bool(assumption.function(protocol))  # type: ignore[attr-defined]
    except Exception as error:
        name = assumption.name  # type: ignore[attr-defined]
        raise ProtocolRaised(f"assumption {name} raised {type(error).__name__}: {error}", where=name) from error


def _check_names(protocol: Protocol, engine: str, invariants: Sequence[str] | None) -> None:
    if engine not in ENGINES:
        raise OptionError(_unknown("engine", engine, ENGINES, "fencepost"))
    known = [d.name for kind in ("invariant", "step_invariant") for d in protocol.declared(kind)]
    for name in invariants or ():
        if name not in known:
            raise OptionError(_unknown("invariant", name, known, protocol.name))


def _judge(stepper: Stepper, engine: str, explored: Exploration, options: Options) -> Result:
    """The result of an exploration, every counterexample replayed through the author's Python."""
    violations = [Violation(f.kind, f.name, replay(stepper, _start(stepper, f), f.path)) for f in explored.found]
    result = _result(stepper.protocol, engine, explored, violations)
    result.collision_probability = collision_probability(explored.generated, explored.distinct, options.bits)
    if explored.raised_at is not None:
        result.error_trace = replay(stepper, _start(stepper, explored.raised_at), explored.raised_at.path)
    counts: dict[str, list[int]] = {}
    for root in stepper.of_kind("action"):
        count = counts.setdefault(root.name, [0, 0])
        count[0] += explored.taken.get(root.index, 0)
        count[1] += explored.new.get(root.index, 0)
    result.actions = [ActionCount(name, taken, new) for name, (taken, new) in counts.items()]
    return result


def _start(stepper: Stepper, found: Found) -> State:
    return State(stepper.store, found.initial.ids)


def collision_probability(generated: int, distinct: int, bits: int) -> float:
    """The chance that some two states shared a fingerprint, as TLC estimates it: distinct x (generated - distinct) / 2^bits."""
    return min(1.0, distinct * max(generated - distinct, 0) / 2.0**bits)


def _result(
    protocol: Protocol, engine: str, explored: Exploration, violations: list[Violation] | None = None
) -> Result:
    return Result(
        protocol=protocol,
        engine=engine,
        complete=explored.complete,
        distinct_states=explored.distinct,
        generated_states=explored.generated,
        depth=explored.depth,
        queue=explored.queue,
        seconds=explored.seconds,
        peak_memory_bytes=explored.peak_memory,
        actions=[],
        violations=violations or [],
        limit=explored.limit,
        interrupted=explored.interrupted,
        error=explored.raised,
        failure=explored.failure,
        evaluations=explored.evaluations,
        profile=explored.profile,
    )
