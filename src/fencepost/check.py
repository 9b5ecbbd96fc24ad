"""``fencepost.check``: a protocol in, a result out. The flow of the whole checker, in one place."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fencepost import extras
from fencepost.engines.interface import SIMULATION, Exploration, Found, Options, Progress, Report
from fencepost.engines.resources import cores, limit_reached, memory_limit, peak_memory, resident_memory
from fencepost.engines.witnesses import never_reached, reported_as, sought
from fencepost.errors import NotAProtocol, OptionError, ProtocolRaised, SystemFailure
from fencepost.loading import expectation, load, set_up
from fencepost.result import ActionCount, Result, Table, Violation, Witness
from fencepost.spec.declarations import JUDGED, TEMPORAL
from fencepost.spec.protocol import Protocol, unknown_name
from fencepost.step import Deadline, LimitReached, State, Stepper
from fencepost.trace import replay

if TYPE_CHECKING:
    from fencepost.states.manifest import Manifest

ENGINES = ("auto", "embedded", "reference", "simulate", "spark")

SEARCH = ("max_states", "max_depth", "bits", "symmetry", "checkpoint", "resume", "states", "edges")
"""The options that a simulation does not have."""

RANGES = {"walks": (1, 1 << 60), "depth": (1, 1_000_000), "seed": (0, (1 << 64) - 1), "walk": (0, 1 << 60)}
"""The least and the largest number for each option of a simulation."""

SMALL_STATES = 10_000
SMALL = {"calls": 5_000, "queued": 2_000, "orbits": 2_000}
"""What ``auto`` lets the interpreted explorer try before it turns to the compiled one: states, and
:class:`interpreted.Most`. Not seconds, so that the protocol alone decides which of them answers.
"""


def check(
    protocol: Protocol | type[Protocol] | str,
    *,
    configuration: str | None = None,
    constants: Mapping[str, Any] | None = None,
    engine: str = "auto",
    invariants: Sequence[str] | None = None,
    options: Options | None = None,
    report: Report | None = None,
    **given: Any,
) -> Result:
    """Explore every state that ``protocol`` can reach and judge what was found.

    ``protocol``: a protocol with its constants, ``Counter(limit=3)``; or its class, or what the command line takes (a
    shipped name, ``PATH.py`` or ``PATH.py:ClassName``), in one of its configurations and with ``constants`` on top of
    it: ``check("bookkeeper-4.13", configuration="published", constants={"send_limit": 2})``. ``engine``: ``embedded``
    (compiled, all cores), ``reference`` (plain Python), ``auto``, which is the first unless the protocol is small
    enough to be interpreted, ``spark`` (a cluster for what outgrows one machine), or ``simulate``, which walks at
    random through a space that is too large for the others, on all cores of this machine or, with ``master``, on Spark.
    ``invariants``: names of the invariants and temporal properties to check, by default all. ``report`` is called with
    progress. Any field of :class:`fencepost.Options` may be given by name: ``check(protocol, deadlock=True,
    max_depth=20)``.

    Raises :class:`fencepost.NotAProtocol` if there is no such protocol, :class:`fencepost.OptionError` for unknown
    names and :class:`fencepost.SystemFailure` when the machine fails; what the protocol itself does wrong is part of
    the result.
    """
    deadline = Deadline()
    for name in given:
        if name not in Options.__dataclass_fields__:
            raise OptionError(unknown_name("option", name, Options.__dataclass_fields__, "check"))
    options = replace(options or Options(workers=cores()), **given)
    protocol = _set_up(protocol, configuration, constants or {})
    if configuration is not None and expectation(type(protocol), configuration) == "deadlock":
        options = replace(options, deadlock=True)
    _check_names(protocol, engine, invariants)
    _check_options(engine, options)
    try:
        return _checked(protocol, engine, invariants, options, report, deadline)
    except LimitReached:
        # Before there was anything to be told.
        engine = "embedded" if engine == "auto" else engine
        return _result(protocol, engine, Exploration(limit=deadline.reached, unfinished=deadline.unfinished))


def _checked(
    protocol: Protocol,
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
    if engine == "auto" and options.states is None:
        small = _try_small(protocol, invariants, options, deadline)
        if small is not None:
            return small
    if engine == "auto":
        engine = "embedded"
    with _limited(deadline, options):
        stepper = Stepper(protocol, invariants, options.checking, deadline)
    _check_liveness(stepper, engine, options)
    _check_symmetry(stepper, options)
    if options.checking and engine != "spark":  # which refuses it
        from fencepost.engines.hashseeds import compare

        with _limited(deadline, options):
            differs = compare(protocol, invariants, options.timeout, deadline)
        if differs is not None:
            return _judge(stepper, engine, differs, options, report)
    with extras.named(f"engine {engine}"):
        explorer = import_module(_module(engine, options))
    return _judge(stepper, engine, explorer.explore(stepper, options, report), options, report)


def _limited(deadline: Deadline, options: Options) -> AbstractContextManager[None]:
    """The limits on time and memory, for what is done before an engine has them."""
    limited = options.timeout is not None or options.max_memory is not None
    return deadline.limits((lambda: limit_reached(deadline, options.timeout, options.max_memory)) if limited else None)


def _set_up(
    protocol: Protocol | type[Protocol] | str, configuration: str | None, constants: Mapping[str, Any]
) -> Protocol:
    """What is to be checked, with its constants."""
    if isinstance(protocol, Protocol):
        if configuration is not None or constants:
            raise OptionError(
                f"{protocol!r} has its constants already: give check its class, or its name, with a configuration and"
                " constants"
            )
        return protocol
    if isinstance(protocol, str):
        return set_up(load(protocol), configuration, constants, protocol)
    if isinstance(protocol, type) and issubclass(protocol, Protocol):
        return set_up(protocol, configuration, constants)
    raise NotAProtocol(f"{protocol!r} is not a protocol, nor the name of one")


def _module(engine: str, options: Options) -> str:
    """Where an engine is."""
    if engine == "simulate" and options.master is not None:
        return "fencepost.spark.simulate"
    return "fencepost.spark.engine" if engine == "spark" else f"fencepost.engines.{engine}"


def _try_small(
    protocol: Protocol, invariants: Sequence[str] | None, options: Options, deadline: Deadline
) -> Result | None:
    """The interpreted explorer's answer, if the protocol is small enough for it and nothing was asked that it can not
    do.
    """
    if options.checkpoint or options.resume or options.checking:
        return None
    from fencepost.engines import interpreted

    with _limited(deadline, options):
        stepper = Stepper(protocol, invariants, deadline=deadline)
    _check_liveness(stepper, "interpreted", options)
    _check_symmetry(stepper, options)
    brief = replace(options, max_states=min(options.max_states or SMALL_STATES, SMALL_STATES))
    explored = interpreted.explore(stepper, brief, most=interpreted.Most(**SMALL))
    if deadline.reached is None and deadline.expired(options.timeout) and explored.limit is not None:
        deadline.reached = explored.limit = limit_reached(deadline, options.timeout, None)
    if deadline.reached is not None:
        return _judge(stepper, "interpreted", explored, options, None)
    ours = explored.limit is not None and (options.max_depth is None or explored.depth < options.max_depth)
    return None if ours else _judge(stepper, "interpreted", explored, options, None)


def _check_liveness(stepper: Stepper, engine: str, options: Options) -> None:
    """Raises :class:`OptionError` if temporal properties are to be judged together with what leaves no graph to judge
    them on.
    """
    names = list(dict.fromkeys(root.name for root in stepper.of_kind(*TEMPORAL)))
    stepper.fairness_requirements()
    if not names:
        return
    instead = f"{names[0]} is judged on all steps between all states: check invariants alone, with --invariant NAME, or"
    if stepper.protocol.declared("view"):
        raise OptionError(f"{instead} take out the view, which makes one state of several that may go on differently")
    if engine != "spark" and (options.checkpoint is not None or options.resume is not None):
        raise OptionError(
            f"{instead} leave out --checkpoint and --resume: what is saved holds no steps, but for that of --engine"
            " spark"
        )


def _check_symmetry(stepper: Stepper, options: Options) -> None:
    """Raises :class:`OptionError` if a refinement is to be judged up to symmetry, of which its mapping need not
    know.
    """
    if options.symmetry and stepper.refinements:
        name = next(iter(stepper.refinements))
        raise OptionError(
            f"{name} is judged step by step, and its mapping may tell members apart: leave out --symmetry, or the"
            " refinement, with --invariant NAME"
        )


def _assumed(protocol: Protocol, assumption: object, deadline: Deadline) -> bool:
    name = assumption.name  # type: ignore[attr-defined]
    try:
        with deadline.evaluating(f"assumption {name}"):
            return bool(assumption.function(protocol))  # type: ignore[attr-defined]
    except Exception as error:
        raise ProtocolRaised(f"assumption {name} raised {type(error).__name__}: {error}", where=name) from error


def _check_names(protocol: Protocol, engine: str, invariants: Sequence[str] | None) -> None:
    if engine not in ENGINES:
        raise OptionError(unknown_name("engine", engine, ENGINES, "fencepost"))
    known = [d.name for kind in JUDGED for d in protocol.declared(kind)]
    for name in invariants or ():
        if name not in known:
            raise OptionError(unknown_name("invariant", name, known, protocol.name))


def _check_options(engine: str, options: Options) -> None:
    """Raises :class:`OptionError` for an option that this engine does not have, or out of its range."""
    if engine != "simulate":
        for name in SIMULATION:
            if getattr(options, name) is not None:
                raise OptionError(f"--{name} is an option of simulation: use it with --engine simulate")
        _check_table(engine, options)
        return
    for name in SEARCH:
        if getattr(options, name) != getattr(Options, name):
            raise OptionError(
                f"{name} is an option of a search, which simulation is not: its limits are walks, depth and timeout"
            )
    for name, (least, most) in RANGES.items():
        given = getattr(options, name)
        if given is not None and not least <= given <= most:
            raise OptionError(f"{name} is {given:,}: give a number from {least:,} to {most:,}")
    if options.walk is not None and (options.walks is not None or options.seed is None):
        raise OptionError("walk is one walk of a seed: give it with seed and without walks")


def _check_table(engine: str, options: Options) -> None:
    """Raises :class:`OptionError` for what the state space as a table does not go with."""
    if options.edges and options.states is None:
        raise OptionError("edges are written next to the states: give states a directory too")
    if options.states is None:
        return
    against = {
        "it has every state: leave out symmetry": options.symmetry,
        "its fingerprints have 64 bits: leave out the 128": options.bits != 64,
        "only engine spark can go on with one: leave out resume": options.resume is not None and engine != "spark",
    }
    for reason, given in against.items():
        if given:
            raise OptionError(f"states is for the whole state space as a table, and {reason}")
    if options.checkpoint is not None:
        from fencepost.storage import is_within

        if is_within(options.checkpoint, options.states):
            raise OptionError(
                f"states and checkpoint are both to be written to {options.states}: give the checkpoint a folder of"
                " its own"
            )


def _judge(stepper: Stepper, engine: str, explored: Exploration, options: Options, report: Report | None) -> Result:
    """The result of an exploration, every counterexample replayed through the author's Python."""
    explored.unfinished = stepper.deadline.unfinished
    if not explored.distinct and explored.raised is None:
        explored.raised = _without_states(stepper, explored)
    if explored.complete and explored.distinct and not explored.found and explored.recording is not None:
        _judge_liveness(stepper, explored, options, report)
    violations = [
        Violation(f.kind, f.name, replay(stepper, _start(stepper, f), f.path, f.loop), f.fairness, f.walk, f.walked)
        for f in explored.found
    ]
    missing = never_reached(stepper, explored)
    if explored.complete and explored.raised is None:
        violations += [Violation("sometimes", name, None, never=titles) for name, titles in missing.items()]
    manifest = _complete_table(stepper, explored, report)
    result = _result(stepper.protocol, engine, explored, violations)
    result.witnesses = [
        Witness(f.name, replay(stepper, _start(stepper, f), f.path), f.walk, f.walked) for f in explored.witnesses
    ]
    result.unreached = tuple(title for titles in missing.values() for title in titles)
    result.reached = bool(sought(stepper, options, reported_as(stepper, explored.symmetry))) and not missing
    if manifest is not None and explored.table is not None:
        result.table = Table(
            str(explored.table.directory), manifest.states, manifest.edges, manifest.depth, manifest.complete
        )
    images = explored.symmetry.images if explored.symmetry is not None else 1
    result.collision_probability = collision_probability(explored.generated, explored.distinct, options.bits, images)
    if explored.raised_at is not None:
        result.error_trace = replay(stepper, _start(stepper, explored.raised_at), explored.raised_at.path)
    if explored.walk is not None:
        result.walk = replay(stepper, _start(stepper, explored.walk), explored.walk.path)
    counts: dict[str, list[int]] = {}
    for root in stepper.of_kind("action"):
        count = counts.setdefault(root.name, [0, 0])
        count[0] += explored.taken.get(root.index, 0)
        count[1] += explored.new.get(root.index, 0)
    result.actions = [ActionCount(name, taken, new) for name, (taken, new) in counts.items()]
    result.seconds = explored.seconds_before + time.monotonic() - stepper.deadline.began
    return result


def _without_states(stepper: Stepper, explored: Exploration) -> ProtocolRaised | None:
    """Why there was nothing to explore, if nothing else ended the search: what holds of no state is told of none."""
    # Walks that look for witnesses alone need not begin, if initial states are all there is to look for.
    found = explored.found or (explored.walks is not None and explored.witnesses)
    if explored.limit is not None or found or explored.failure is not None or explored.interrupted:
        return None
    setups = stepper.protocol.declared("initial")
    if not stepper.initial_states():
        name = setups[0].name
        return ProtocolRaised(
            f"initial state {name} refuses every way through its choices: no state is reachable", where=name
        )
    names = " and ".join(constraint.name for constraint in stepper.protocol.declared("constraint"))
    return ProtocolRaised(f"every initial state is outside the constraint {names}: no state is explored", where=names)


def _complete_table(stepper: Stepper, explored: Exploration, report: Report | None) -> Manifest | None:
    """Complete the state space that was written down, if one was. If the machine failed, or the user does not want to
    wait for it, nothing is left of it but what a search can go on with.
    """
    table = explored.table
    if table is None:
        return None

    def tell(written: int, of: int) -> None:
        if report is not None:
            seconds = explored.seconds_before + time.monotonic() - stepper.deadline.began
            doing = f"writing states: {written:,} of {of:,}"
            report(Progress(distinct=explored.distinct, depth=explored.depth, seconds=seconds, doing=doing))

    if explored.failure is None:
        ended = explored.limit or ("it was interrupted" if explored.interrupted else None)
        if ended is None and explored.raised is not None:
            ended = f"{explored.raised.where} raised"
        if ended is None and explored.found and not explored.complete:
            ended = f"{explored.found[0].name} is violated"
        try:
            return table.finish(explored.complete, ended, tell)
        except SystemFailure as error:
            explored.failure = error
        except KeyboardInterrupt:
            explored.interrupted = True
    table.discard()
    return None


def _judge_liveness(stepper: Stepper, explored: Exploration, options: Options, report: Report | None) -> None:
    """Judge the temporal properties on the graph that was explored; what is violated is added to what was found."""
    from fencepost.liveness.judge import Lasso, violation  # SciPy takes its time to import
    from fencepost.liveness.lasso import replayed

    recording, began = explored.recording, time.monotonic()
    assert recording is not None
    explored.recording = None
    limit = memory_limit(options.max_memory)

    def went_on() -> float:
        return explored.seconds + time.monotonic() - began

    def tell() -> None:
        if report is not None:
            progress = Progress(
                distinct=explored.distinct, depth=explored.depth, seconds=went_on(), doing="judging liveness"
            )
            report(progress)

    found: dict[str, Lasso] = {}
    try:
        tell()
        if resident_memory() + recording.needs > limit:
            raise SystemFailure(
                f"the memory limit of {limit:,} bytes has no room for a graph of {recording.steps:,} steps"
            )
        graph = recording.graph()
        for property in recording.terms.properties:
            tell()
            if options.timeout is not None and went_on() >= options.timeout:
                raise SystemFailure(f"the time limit of {options.timeout:g} seconds was reached")
            lasso = violation(graph, property)
            known = found.get(property.name)
            if lasso is not None and (known is None or lasso.length < known.length):
                found[property.name] = lasso
    except SystemFailure as error:
        explored.unjudged = str(error)
    except MemoryError:
        explored.unjudged = "out of memory"
    except KeyboardInterrupt:
        explored.interrupted = True
    else:
        explored.judged = tuple(dict.fromkeys(property.name for property in graph.terms.properties))
        for name, lasso in found.items():
            way = replayed(stepper, graph.terms, lasso)
            explored.found.append(Found(lasso.of.kind, name, way.initial, way.path, lasso.loop, way.fairness))
    explored.seconds = went_on()
    explored.peak_memory = max(explored.peak_memory, peak_memory())


def _start(stepper: Stepper, found: Found) -> State:
    return State(stepper.store, found.initial.ids)


def collision_probability(generated: int, distinct: int, bits: int, images: int = 1) -> float:
    """The chance that some two states shared a fingerprint, as TLC estimates it: distinct x (generated - distinct) /
    2^bits.

    Two states up to symmetry share the least of n fingerprints with a chance of n^2 / (2n - 1) / 2^bits.
    """
    pairs = distinct * max(generated - distinct, 0) * images**2 / (2 * images - 1)
    return min(1.0, pairs / 2.0**bits)


def _result(
    protocol: Protocol, engine: str, explored: Exploration, violations: list[Violation] | None = None
) -> Result:
    return Result(
        protocol=protocol,
        engine=explored.engine or engine,
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
        unfinished=explored.unfinished,
        error=explored.raised,
        failure=explored.failure,
        judged=explored.judged,
        unjudged=explored.unjudged,
        evaluations=explored.evaluations,
        profile=explored.profile,
        symmetry=explored.symmetry.names if explored.symmetry is not None else (),
        exact=explored.symmetry is None or explored.symmetry.exact,
        walks=explored.walks,
        on_spark=explored.on_spark,
    )
