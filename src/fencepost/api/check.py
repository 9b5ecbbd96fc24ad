"""``fencepost.check``: checks a protocol and returns a result. The control flow of the checker, in one place."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import fields, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fencepost.api.result import Result
from fencepost.behaviours import Trace, replay
from fencepost.checker.engines.interface import Exploration, Found, Report
from fencepost.checker.engines.options import (
    EmbeddedOptions,
    Options,
    SavedOptions,
    SearchOptions,
    SimulationOptions,
    options_of,
    with_wishes,
)
from fencepost.checker.engines.resources import cores, limit_reached, memory_limit
from fencepost.checker.engines.witnesses import never_reached, reported_as, sought
from fencepost.checker.findings import ActionCount, Violation, Witness
from fencepost.errors import (
    ASSUMPTION_VIOLATED,
    Explained,
    FencepostError,
    Misbehaved,
    NotAProtocol,
    OptionError,
    ProtocolRaised,
    naming_extra,
)
from fencepost.language.declarations import JUDGED, Declared
from fencepost.language.loading import expectation, find, set_up
from fencepost.language.protocol import Protocol, unknown_name
from fencepost.language.seam import Model, language_of
from fencepost.language.truths import truth
from fencepost.semantics import BeginAgain, Deadline, LimitReached, Outgrown, RanOtherwise, State, Stepper

if TYPE_CHECKING:
    from fencepost.checker.engines.ahead import Ahead

SMALL = {
    "calls": 5_000, "states": 10_000, "queued": 2_000, "orbits": 2_000, "calls_a_level": 300, "states_a_level": 10
}  # fmt: skip
"""The :class:`interpreted.Limits` after which ``auto`` uses the compiled explorer. They do not depend on time, so the
choice of the explorer depends on the protocol alone. The compiled explorer needs some milliseconds for any level, so a
long chain of narrow levels stays with the interpreted one.
"""

WHILE_COMPILING = 60_000
"""The states up to which the interpreted explorer goes on while the loops of the compiled one are still to be compiled.
Beyond that, the compiler gets the cores.
"""


def check(
    protocol: Model | type[Protocol] | str,
    *,
    configuration: str | None = None,
    constants: Mapping[str, Any] | None = None,
    engine: str = "auto",
    invariants: Sequence[str] | None = None,
    options: Options | None = None,
    report: Report | None = None,
    **named_options: Any,
) -> Result:
    """Explore every reachable state of ``protocol``, and check its invariants and properties.

    ``protocol``: an instance with its constants, ``Counter(limit=3)``; or a class; or, as on the command line, a
    shipped name, ``PATH.py`` or ``PATH.py:ClassName``. A class or a name takes one of its configurations, and
    ``constants`` that override it: ``check("bookkeeper-4.13", configuration="published",
    constants={"send_limit": 2})``.

    ``engine``:

    - ``embedded``: compiled, on all cores.
    - ``reference``: plain Python.
    - ``auto``: ``embedded``, unless the protocol is small enough to be interpreted.
    - ``spark``: a cluster, for searches that outgrow one machine.
    - ``simulate``: random walks through a space too large for the others, on all cores of this machine or, with
      ``master``, on Spark.

    ``invariants``: names of the invariants and temporal properties to check, by default all. ``report`` is called with
    progress. Options of the engine are passed by name: ``check(protocol, deadlock=True, max_depth=20)``; or as
    ``options``, whose class selects the engine: ``check(protocol, options=ReferenceOptions(max_depth=20))``. See
    :mod:`fencepost.checker.engines.options`.

    Raises :class:`fencepost.NotAProtocol` if there is no such protocol. Raises :class:`fencepost.OptionError` for
    unknown names, and for options that the engine does not have, that are out of range or that exclude each other.
    Raises :class:`fencepost.SystemFailure` when the machine fails. Errors of the protocol are part of the result.
    """
    deadline = Deadline()
    engine, options = options_of(engine, options, named_options)
    protocol = model_of(protocol, configuration, constants or {})
    options = with_wishes(options, language_of(protocol).options(protocol), named_options)
    if configuration is not None and expectation(protocol, configuration) == "deadlock":
        options = replace(options, deadlock=True)
    if invariants is not None:
        language = language_of(protocol)
        invariants = [part for each in invariants for part in language.parts(protocol, each)]
    _check_invariants(protocol, invariants)
    try:
        while True:
            try:
                with language_of(protocol).running(protocol):
                    return _concluded(_checked(protocol, engine, invariants, options, report, deadline))
            except Outgrown as outgrown:
                protocol = language_of(protocol).coarser(protocol, outgrown.variable)
    except LimitReached:
        # A limit was reached before the search began.
        engine = "embedded" if engine == "auto" else engine
        return _result(protocol, engine, Exploration(limit=deadline.reached, unfinished=deadline.unfinished))


def _checked(
    protocol: Model,
    engine: str,
    invariants: Sequence[str] | None,
    options: Options,
    report: Report | None,
    deadline: Deadline,
) -> Result:
    with _limited(deadline, options):
        broken = next((a for a in protocol.declared("assumption") if not _assumed(protocol, a, deadline)), None)
    if broken is not None:
        return _result(protocol, engine, Exploration(), violations=[Violation("assumption", broken.name, None)])
    if engine != "reference" and getattr(options, "states", None) is None:
        with _limited(deadline, options):
            protocol = language_of(protocol).for_search(protocol, deadline)
    stepper, compiling = None, None
    if isinstance(options, EmbeddedOptions) and options.reduce:
        engine = "reduced"
    if engine == "auto":
        assert isinstance(options, EmbeddedOptions)
        if _may_be_small(options):
            first = _stepper(protocol, invariants, options, deadline)
            small, compiling = _try_small(first, options, report)
            if small is not None:
                return small
            found = language_of(protocol).after_search(protocol, first)
            stepper = first if found is protocol else None
            protocol = found
        engine = "embedded"
    if sys.platform == "win32" and engine != "reference":
        raise OptionError(
            "compiled searches need Linux or macOS: on Windows, {engine} is auto or reference, without {checkpoint},"
            " {resume} and {states}, and with {checking} it is reference",
            "engine", "checkpoint", "resume", "states", "checking",
        )  # fmt: skip
    stepper = stepper or _stepper(protocol, invariants, options, deadline)
    if options.checking:
        from fencepost.checker.engines.hashseeds import compare

        with _limited(deadline, options):
            differs = compare(protocol, invariants, options.timeout, deadline)
        if differs is not None:
            return _judge(differs[0], engine, differs[1], options)
    if engine == "embedded" and compiling is None:
        compiling = _compiling(stepper)
    with naming_extra(f"engine {engine}", engine):
        explorer = import_module(_module(engine, options))
    waited = 0.0
    if compiling is not None:
        with _limited(deadline, options), closing(compiling):
            waited = compiling.wait(deadline.check, report)
    while True:
        try:
            explored = _explored(explorer, stepper, options, report)
            explored.compiling += waited
            return _judge(stepper, engine, explored, options)
        except BeginAgain:
            protocol = language_of(protocol).settled(protocol, stepper)
            grown = stepper.store.grown
        stepper = _stepper(protocol, invariants, options, deadline)
        stepper.grown_before = grown


def _concluded(result: Result) -> Result:
    """The result, and whether its postconditions hold. They are evaluated if everything else does."""
    if not (result.holds and result.complete):
        return result
    for each in result.protocol.declared("postcondition"):
        try:
            if not each.function(result.protocol, result):
                return replace(result, violations=[Violation("postcondition", each.name, None)])
        except Explained as error:
            raised = ProtocolRaised(str(error), where=each.name)
            raised.exit_code, raised.__cause__ = ASSUMPTION_VIOLATED, error
            return replace(result, error=raised)
    return result


def _limited(deadline: Deadline, options: Options) -> AbstractContextManager[None]:
    """Applies the limits on time and memory before an engine does."""
    limited = options.timeout is not None or options.max_memory is not None
    return deadline.limits((lambda: limit_reached(deadline, options.timeout, options.max_memory)) if limited else None)


def _stepper(protocol: Model, invariants: Sequence[str] | None, options: Options, deadline: Deadline) -> Stepper:
    """The stepper of the protocol. Raises :class:`OptionError` for options that do not fit the protocol."""
    with _limited(deadline, options):
        stepper = Stepper(protocol, invariants, options.checking, deadline)
    stepper.fairness_conditions()
    options.validate(stepper)
    return stepper


def model_of(protocol: Model | type[Protocol] | str, configuration: str | None, constants: Mapping[str, Any]) -> Model:
    """The protocol to check, with its constants."""
    if isinstance(protocol, Model):
        if configuration is not None or constants:
            raise OptionError(
                f"{protocol!r} has its constants already: give check its class, or its name, with a configuration and"
                " constants"
            )
        return protocol
    if isinstance(protocol, str):
        return set_up(find(protocol), configuration, constants, protocol)
    if isinstance(protocol, type) and issubclass(protocol, Protocol):
        return set_up(protocol, configuration, constants)
    raise NotAProtocol(f"{protocol!r} is not a protocol, nor the name of one")


def _module(engine: str, options: Options) -> str:
    """The module of an engine."""
    if isinstance(options, SimulationOptions) and options.master is not None:
        return "fencepost.spark.simulate"
    return "fencepost.spark.engine" if engine == "spark" else f"fencepost.checker.engines.{engine}"


def _may_be_small(options: EmbeddedOptions) -> bool:
    """Whether no option needs another explorer than the interpreted one."""
    return not (options.checkpoint or options.resume or options.checking or options.states is not None)


def _compiling(stepper: Stepper) -> Ahead | None:
    """Processes that compile the loops which the search needs; None if they are compiled."""
    from fencepost.checker.engines import ahead

    missing = ahead.Cache().missing(ahead.needed(stepper))
    return ahead.Ahead(missing) if missing else None


def _try_small(stepper: Stepper, options: EmbeddedOptions, report: Report | None) -> tuple[Result | None, Ahead | None]:
    """The interpreted explorer's result; None if the protocol is too large for it. Then the loops of the compiled one
    may be being compiled. On Windows no protocol is too large: memory that is reserved and not used counts there, and
    the compiled explorer reserves more than there is.
    """
    from fencepost.checker.engines import interpreted

    deadline, compiling, limits = stepper.deadline, None, interpreted.Limits(**SMALL)
    if sys.platform == "win32":
        options, limits = replace(options, max_memory=memory_limit(options.max_memory)), None

    def beyond(explored: Exploration) -> bool:
        nonlocal compiling
        if not 1 < cores() or explored.distinct >= WHILE_COMPILING:
            return False
        compiling = compiling or _compiling(stepper)
        return compiling is not None and not compiling.ended

    try:
        explored = interpreted.explore(stepper, options, limits, report, beyond)
        if deadline.reached is None and deadline.expired(options.timeout) and explored.limit is not None:
            deadline.reached = explored.limit = limit_reached(deadline, options.timeout, None)
        ours = explored.limit is not None and (options.max_depth is None or explored.depth < options.max_depth)
        if deadline.reached is None and ours:
            handed_over, compiling = compiling, None
            return None, handed_over
        return _judge(stepper, "interpreted", explored, options), None
    finally:
        if compiling is not None:
            compiling.close()


def _assumed(protocol: Model, assumption: Declared, deadline: Deadline) -> bool:
    name = assumption.name
    try:
        with deadline.evaluating(f"assumption {name}"):
            return truth(assumption.function(protocol))
    except Explained as error:
        raise ProtocolRaised(str(error), where=name) from error
    except Misbehaved as error:
        raise ProtocolRaised(f"assumption {name} {error}", where=name) from error
    except Exception as error:
        raise ProtocolRaised(f"assumption {name} raised {type(error).__name__}: {error}", where=name) from error


def _check_invariants(protocol: Model, invariants: Sequence[str] | None) -> None:
    known = [d.name for kind in JUDGED for d in protocol.declared(kind)]
    for name in invariants or ():
        if name not in known:
            raise OptionError(unknown_name("invariant", name, known, protocol.name))


def _explored(explorer: Any, stepper: Stepper, options: Options, report: Report | None) -> Exploration:
    """Run an engine, and write the state space if an option asks for it."""
    explored: Exploration
    resumed = isinstance(options, SavedOptions) and options.resume is not None  # the checkpoint names its table
    if not isinstance(options, SearchOptions) or options.states is None or resumed:
        explored = explorer.explore(stepper, options, report)
        return explored
    from fencepost.states.writer import Writer  # needs optional packages

    table = Writer(stepper, options.states, options.edges)
    try:
        explored = explorer.explore(stepper, options, report, table)
    except BaseException:
        table.discard()
        raise
    return explored


def _judge(stepper: Stepper, engine: str, explored: Exploration, options: Options) -> Result:
    """The result of an exploration. Replays every counterexample through the author's Python."""
    explored.unfinished = stepper.deadline.unfinished

    def trace(found: Found) -> Trace:
        return replay(stepper, State(stepper.store, found.initial.ids), found.path, found.loop)

    def way(found: Found | None) -> Trace | None:
        """Also none where a protocol that ran otherwise does not take the way again."""
        try:
            return None if found is None else trace(found)
        except FencepostError:
            if isinstance(explored.raised, RanOtherwise):
                return None
            raise

    if isinstance(explored.raised, RanOtherwise):  # nothing else that was found can be relied on
        explored = replace(explored, found=[], witnesses=[])
    violations = [Violation(f.kind, f.name, trace(f), f.fairness, f.walk, f.walked) for f in explored.found]
    missing = never_reached(stepper, explored)
    if explored.complete and explored.raised is None:
        violations += [Violation("sometimes", name, None, never=titles) for name, titles in missing.items()]
    images = explored.symmetry.images if explored.symmetry is not None else 1
    bits = options.bits if isinstance(options, SearchOptions) else 64
    counts: dict[str, list[int]] = {}
    for root in stepper.of_kind("action"):
        count = counts.setdefault(root.name, [0, 0])
        count[0] += explored.taken.get(root.index, 0)
        count[1] += explored.new.get(root.index, 0)
    return _result(
        stepper.protocol,
        engine,
        explored,
        violations=violations,
        witnesses=[Witness(f.name, trace(f), f.walk, f.walked) for f in explored.witnesses],
        unreached=tuple(title for titles in missing.values() for title in titles),
        reached=bool(sought(stepper, options, reported_as(stepper, explored.symmetry))) and not missing,
        error_trace=way(explored.raised_at),
        walk=way(explored.walk),
        actions=[ActionCount(name, taken, new) for name, (taken, new) in counts.items()],
        collision_probability=collision_probability(explored.generated, explored.distinct, bits, images),
        seconds=explored.seconds_before + time.monotonic() - stepper.deadline.began,  # includes the replays
    )


def collision_probability(generated: int, distinct: int, bits: int, images: int = 1) -> float:
    """The probability that two states share a fingerprint, by TLC's estimate: distinct x (generated - distinct) /
    2^bits.

    With symmetry, a state has the least of n fingerprints, and two states share it with probability
    n^2 / (2n - 1) / 2^bits.
    """
    pairs = distinct * max(generated - distinct, 0) * images**2 / (2 * images - 1)
    return min(1.0, pairs / 2.0**bits)


def _result(protocol: Model, engine: str, explored: Exploration, **judged: Any) -> Result:
    """A result of the engine's values, overridden by ``judged``."""
    found = {name: getattr(explored, name) for name in _AS_EXPLORED} | {
        "engine": explored.engine or engine,
        "distinct_states": explored.distinct,
        "generated_states": explored.generated,
        "peak_memory_bytes": explored.peak_memory,
        "actions": [],
        "error": explored.raised,
        "symmetry": explored.symmetry.names if explored.symmetry is not None else (),
        "exact": explored.symmetry is None or explored.symmetry.exact,
    }
    return Result(protocol, **{**found, **judged})


_OTHERWISE = {"engine", "symmetry", "walk", "witnesses"}
_AS_EXPLORED = {each.name for each in fields(Exploration)} & {each.name for each in fields(Result)} - _OTHERWISE
"""The fields of a result that are copied from an exploration."""
