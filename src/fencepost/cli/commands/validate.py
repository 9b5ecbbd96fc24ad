"""``fencepost validate``: checks traces of running systems against a protocol."""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from fencepost import errors
from fencepost.checker.engines.resources import cores
from fencepost.cli import arguments, output
from fencepost.cli.arguments import option
from fencepost.cli.commands.results import add_ci_options
from fencepost.cli.progress import TracesLine
from fencepost.errors import OptionError, naming_extra
from fencepost.files.storage import open_storage
from fencepost.language import loading
from fencepost.simulation.processes import in_processes
from fencepost.text import numbers, units
from fencepost.traces import TraceEvent, read, records
from fencepost.traces.folder import Folder
from fencepost.traces.foreign import Foreign
from fencepost.traces.packed import Packed
from fencepost.traces.reading import files_of_records
from fencepost.traces.validation import live, registry
from fencepost.traces.validation.conformance import Conformance
from fencepost.traces.validation.coverage import Coverage, Visits
from fencepost.traces.validation.outcome import NOT_COVERED, NOT_FINISHED, RAISED, REJECTED, Outcome, judged
from fencepost.traces.validation.request import Request, validator_of
from fencepost.traces.validation.search import MOST_TRIED
from fencepost.traces.validation.tail import Tail, not_followed
from fencepost.traces.validation.traces import RunAndSubject, Traces, events_of
from fencepost.traces.validation.validate import Validator, collect_rarely
from fencepost.traces.validation.watch import Limits

if TYPE_CHECKING:
    from fencepost.language.protocol import Protocol
    from fencepost.states.manifest import StateSpace
    from fencepost.traces.validation.space_coverage import SpaceCoverage

HERE, SPARK, AUTO = "local", "spark", "auto"
LAST = 12
"""The number of steps shown before a rejection."""

SHARE = 20_000
"""The fewest events for which another process is started. Starting it takes as long as validating a few thousand."""

TASK = 2_000
"""The events of the traces that a process gets at once, if one of them does not have more."""

_LIMITS = Limits()

Trace: TypeAlias = tuple[str, str, Packed[TraceEvent]]
"""A run, a subject, and the rows of their events."""

Covered: TypeAlias = "tuple[Visits, SpaceCoverage | None]"
"""The coverage of the protocol, and of a state space, by traces."""


# -- what is typed ----------------------------------------------------------------------------------------------------


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``fencepost validate``."""
    parser.description = (
        "Check whether traces of running systems are behaviours of a protocol, for each run and each subject, such as a"
        " ledger."
    )
    option(parser, "traces TRACES", "folders and files of traces, or of records of other systems", nargs="+")
    what = parser.add_argument_group("what they are checked against")
    option(
        what,
        "--protocol NAME",
        f"a protocol: {', '.join(registry.SHIPPED)}; or, for a conformance, a specification in TLA+ instead of its"
        " protocol: FILE.tla",
    )
    option(what, "--conformance FILE", "a conformance of your own: FILE.py or FILE.py:NAME")
    option(what, "--config FILE", "with FILE.tla: its configuration; by default, the one beside it", arguments.place)
    which = parser.add_argument_group("which traces")
    option(which, "--run NAME ...", "only those of this run (repeatable)", dest="runs")
    option(which, "--subject ID ...", "only those about this subject, such as a ledger (repeatable)", dest="subjects")
    how = parser.add_argument_group("how")
    option(how, "--shuffle SEED", "replay them in another order that causality allows", arguments.number)
    option(
        how,
        "--most-tried N",
        "the most steps that are tried for one trace to find those that it does not report, by default"
        f" {MOST_TRIED:,}; beyond, it is not decided",
        arguments.count,
        MOST_TRIED,
    )
    option(
        how,
        "--engine",
        "where to validate: auto is this process, or Spark with --master or --conf",
        default=AUTO,
        choices=(AUTO, HERE, SPARK),
    )
    option(
        how,
        "--workers N",
        f"the most processes, by default one for each core; each takes {SHARE:,} events or more",
        arguments.workers,
    )
    arguments.add_spark(how)
    live = parser.add_argument_group("while systems write traces")
    option(
        live,
        "--follow",
        "continue with events that are added to folders and to files of lines of JSON, and report each verdict when it"
        " is certain, until Ctrl-C",
    )
    option(live, "--for SECONDS", "with --follow: end after this time", units.seconds, dest="seconds")
    option(
        live,
        "--patience SECONDS",
        f"with --follow: the longest time that an event takes to get here, by default {_LIMITS.patience:g}; a step "
        "that is refused for longer is a rejection",
        units.seconds,
        _LIMITS.patience,
    )
    option(
        live,
        "--idle SECONDS",
        f"with --follow: the time without an event after which a trace is dropped, by default {_LIMITS.idle:g}",
        units.seconds,
        _LIMITS.idle,
    )
    visited = parser.add_argument_group("what was visited")
    option(
        visited,
        "--coverage",
        "show the actions that the traces took, with their effects, and those that they never took",
    )
    option(
        visited,
        "--states DIR",
        "with --coverage: show the visited states and steps of this state space, which check --states wrote, and the "
        "nearest steps that were not taken",
        arguments.place,
    )
    results = parser.add_argument_group("results")
    option(results, "--json FILE", "all verdicts as JSON; - is standard output, with nothing else on it")
    option(
        results,
        "--sequence FILE",
        "the last steps of the first rejected trace as a sequence diagram, for sequencediagram.org",
    )
    add_ci_options(results, "junit", "markdown")
    option(
        results,
        "--last N",
        f"the number of steps shown before a rejection, of those that change the state; by default {LAST}",
        arguments.count,
        LAST,
    )


def run(args: argparse.Namespace) -> int:
    """Validate traces, and show the verdicts."""
    conformance = _conformance(args)
    foreign = registry.foreign_of(conformance)
    _look_at_files(args, foreign, conformance.heeds)
    began = time.monotonic()
    if args.follow:
        outcomes, covered = _followed(args, conformance, foreign), None
    else:
        outcomes, covered = _outcomes(args, conformance, foreign)
    _tell(args, conformance, outcomes, covered, foreign, time.monotonic() - began)
    verdicts = {outcome.verdict for outcome in outcomes}
    return (
        errors.SAFETY_VIOLATED
        if REJECTED in verdicts
        else errors.PROTOCOL_RAISED
        if RAISED in verdicts
        else errors.NOT_COMPLETE
        if not verdicts.isdisjoint((NOT_COVERED, NOT_FINISHED))
        else errors.HOLDS
        if verdicts
        else errors.SYSTEM_FAILED
    )


def _conformance(args: argparse.Namespace) -> type[Conformance]:
    is_tla = args.protocol is not None and args.protocol.endswith(loading.SPECIFICATION)
    if args.config is not None and not is_tla:
        raise OptionError("--config is of a specification in TLA+: give --protocol FILE.tla too")
    if args.conformance is not None:
        if args.protocol is not None and not is_tla:
            raise OptionError("--protocol and --conformance both say what to check traces against: leave one out")
        conformance = registry.from_file(args.conformance, args.protocol, args.config)
        if args.coverage and isinstance(conformance.protocol, str):
            raise OptionError("--coverage is of protocols in Python: leave it out")
        return conformance
    if is_tla:
        raise OptionError(f"say what the events of traces are in {args.protocol}: give --conformance FILE.py too")
    if args.protocol is None:
        names = ", ".join(registry.SHIPPED)
        raise OptionError(f"say what to check traces against: --protocol with one of {names}, or --conformance FILE.py")
    return registry.shipped(args.protocol)


def _look_at_files(args: argparse.Namespace, foreign: Foreign | None, heeds: Sequence[str]) -> None:
    """Raises before any work if results cannot be written or traces are missing. ``heeds``: the actions of other
    subjects that traces must have.
    """
    if args.seconds is not None and not args.follow:
        raise OptionError("--for says how long to follow traces: give --follow too")
    if args.follow and args.shuffle is not None:
        raise OptionError("--shuffle is for complete traces: leave out --follow or --shuffle")
    if args.workers is not None and (args.follow or _is_on_spark(args)):
        raise OptionError("--workers is of finished traces, validated here: leave out --workers")
    if args.states is not None and not args.coverage:
        raise OptionError("--states is for the coverage of a state space: give --coverage too")
    if args.follow and args.coverage:
        raise OptionError("--coverage is of complete traces: leave out --follow or --coverage")
    output.check_files(args, "json", "sequence", "junit", "markdown")
    for path in args.traces:
        if "://" not in path and not Path(path).exists():
            raise OptionError(f"there are no traces at {path}")
        if "://" in path and records.ending(Path(path)):
            raise OptionError(f"records at a URL are not read: copy {path} to this machine")
    here = [path for path in args.traces if "://" not in path]
    for path in here if heeds else ():
        if Path(path).is_dir() and (share := Folder(path).share()) > 1:
            raise OptionError(
                f"only one of {share:,} ledgers is in {path}: what follows from the events of others cannot be told"
            )
    for path in files_of_records(here, foreign is not None) if args.follow else ():
        if not records.grows(path):
            raise OptionError(f"{not_followed(path)}; leave out --follow to validate it")
        if _is_on_spark(args):
            raise OptionError(
                f"Spark does not follow records of other systems, such as {path}: leave out --engine spark"
            )


# -- what is done -----------------------------------------------------------------------------------------------------


def _is_on_spark(args: argparse.Namespace) -> bool:
    if args.engine == SPARK or (args.engine == AUTO and (args.master or args.conf)):
        return True
    if any("://" in path for path in args.traces):
        raise OptionError("traces at a URL are read by Spark: give --engine spark too")
    return False


def _outcomes(
    args: argparse.Namespace, conformance: type[Conformance], foreign: Foreign | None
) -> tuple[list[Outcome], Covered | None]:
    from fencepost.states.manifest import StateSpace

    space = StateSpace(args.states) if args.states is not None else None
    if _is_on_spark(args):
        outcomes, visits, in_space = _on_spark(args, foreign)
    else:
        outcomes, visits, in_space = _here(args, conformance, foreign, space)
    return outcomes, (visits, in_space) if args.coverage else None


def _here(
    args: argparse.Namespace, conformance: type[Conformance], foreign: Foreign | None, space: StateSpace | None
) -> tuple[list[Outcome], Visits, SpaceCoverage | None]:
    rows = read(args.traces, foreign=foreign)
    traces = Traces(rows, args.runs, args.subjects, conformance.subjects, conformance.heeds, conformance.still_needed)
    request, names = _request(args, shuffle=args.shuffle, coverage=args.coverage), traces.names()
    tasks = [(request, some) for some in _shares(names, traces.take if space is None else traces.rows)]
    jobs = max(1, min(args.workers or cores(), traces.count // SHARE, len(tasks)))
    found: list[Outcome] = []
    visits = Visits()
    with TracesLine(sys.stderr, len(names)) as line:
        here = Validator(conformance, most_tried=args.most_tried, report=line.within) if jobs == 1 else None
        with in_processes(partial(judged_all, validator=here), tasks, jobs) as done:
            for outcomes, visited in done:
                found += outcomes
                visits.add(visited)
                line.report(len(outcomes), sum(outcome.steps for outcome in outcomes))
    return found, visits, _in_space(traces, conformance, space) if space is not None else None


def _shares(
    names: Sequence[RunAndSubject], rows_of: Callable[[RunAndSubject], Packed[TraceEvent]]
) -> Iterator[list[Trace]]:
    """Traces in tasks of some :data:`TASK` events."""
    some: list[Trace] = []
    count = 0
    for name in names:
        rows = rows_of(name)
        some.append((*name, rows))
        count += len(rows)
        if count >= TASK:
            yield some
            some, count = [], 0
    if some:
        yield some


def judged_all(
    request: Request, traces: Sequence[Trace], validator: Validator | None = None
) -> tuple[list[Outcome], Visits]:
    """The outcomes of some traces, and their visits if the request asks for them. Takes the rows of long ones.
    ``validator``: by default, the one that this process has for such requests.
    """
    from fencepost.report.validation import explaining

    collect_rarely()
    validator = validator or validator_of(request)
    explain, coverage = explaining(request.last, request.width), Coverage()
    on_verdict = coverage.add if request.coverage else None
    outcomes = [
        judged(validator, run, subject, partial(events_of, rows), request.shuffle, explain, on_verdict)
        for run, subject, rows in traces
    ]
    return outcomes, coverage.visits


def _in_space(traces: Traces, conformance: type[Conformance], space: StateSpace) -> SpaceCoverage:
    from fencepost.traces.validation.space_coverage import InSpace, in_space

    within = InSpace(conformance, space)
    for run, subject in traces.names():
        if subject:
            within.replay(subject, lambda name=(run, subject): traces.events(name))  # type: ignore[misc]
    return in_space(space, within.visited)


def _on_spark(args: argparse.Namespace, foreign: Foreign | None) -> tuple[list[Outcome], Visits, SpaceCoverage | None]:
    with naming_extra("Spark", "spark"):
        from fencepost.spark import validate
    states = open_storage(args.states).place if args.states is not None else None
    request = _request(args, shuffle=args.shuffle, coverage=args.coverage, states=states)
    with TracesLine(sys.stderr) as line, contextlib.closing(_cluster(args)) as cluster:
        return validate.validated(cluster, args.traces, request, line.doing, foreign)


def _request(args: argparse.Namespace, **options: Any) -> Request:
    """The validation, as it is sent to other processes."""
    runs, subjects = tuple(args.runs), tuple(args.subjects)
    return Request(
        _named(args),
        *_specification(args),
        last=args.last,
        width=output.width(),
        runs=runs,
        subjects=subjects,
        most_tried=args.most_tried,
        **options,
    )


def _cluster(args: argparse.Namespace) -> Any:
    from fencepost.spark.cluster import Cluster

    return Cluster(args.master, dict(args.conf), args.debug)


def _named(args: argparse.Namespace) -> str:
    """The conformance, as a reference that other processes can resolve."""
    return str(Path(args.conformance).absolute()) if args.conformance is not None else str(args.protocol)


def _specification(args: argparse.Namespace) -> tuple[str | None, str | None]:
    """The files of a specification in TLA+ and of its configuration, if given, for other processes."""
    protocol = str(Path(args.protocol).absolute()) if args.conformance is not None and args.protocol else None
    return protocol, None if args.config is None else str(Path(args.config).absolute())


def _followed(args: argparse.Namespace, conformance: type[Conformance], foreign: Foreign | None) -> list[Outcome]:
    """Validate traces while they are written. Shows each verdict as it becomes certain."""
    outcomes: list[Outcome] = []

    def tell(found: list[Outcome]) -> None:
        outcomes.extend(found)
        if args.json != "-":
            for outcome in found:
                output.say(validation.line(outcome))

    from fencepost.report import validation

    limits = Limits(args.patience, args.idle)

    @cache  # the time limit begins at the first call
    def end() -> float:
        return math.inf if args.seconds is None else time.monotonic() + float(args.seconds)

    def until() -> bool:
        return time.monotonic() >= end()

    if _is_on_spark(args):
        with naming_extra("Spark", "spark"):
            from fencepost.spark import stream
        with contextlib.closing(_cluster(args)) as cluster:
            stream.follow(cluster, args.traces, _request(args), limits, tell, until)
        return outcomes
    explain = validation.explaining(args.last, output.width())
    live.follow(
        Tail(args.traces, foreign),
        live.LiveRuns(Validator(conformance, most_tried=args.most_tried), limits, explain, args.runs, args.subjects),
        until,
        tell,
    )
    return outcomes


# -- results ----------------------------------------------------------------------------------------------------------


def _tell(
    args: argparse.Namespace,
    conformance: type[Conformance],
    outcomes: Sequence[Outcome],
    covered: Covered | None,
    foreign: Foreign | None,
    seconds: float,
) -> None:
    from fencepost.report import coverage, validation
    from fencepost.report.junit import junit
    from fencepost.report.markdown import summary

    if args.json is not None:
        document: dict[str, Any] = validation.data(
            outcomes, _protocol(conformance, outcomes), conformance.name, seconds
        )
        if foreign is not None:
            document |= {"records": foreign.records, "no_events": foreign.left_out}
        if covered is not None:
            document["coverage"] = coverage.data(cast("type[Protocol]", conformance.protocol), *covered)
        output.write_json(args.json, document)
    drawn = next((outcome.sequence for outcome in outcomes if outcome.sequence), None)
    if args.sequence is not None and drawn is not None:
        output.write_lines("sequence", args.sequence, [drawn])
    story = validation.text(outcomes, _what(args, _protocol(conformance, outcomes)), seconds)
    if args.junit is not None:
        report = junit(conformance.name, validation.cases(outcomes), {"traces": ", ".join(args.traces)}, seconds)
        output.write_lines("junit", args.junit, [report])
    if args.markdown is not None:
        first = next((outcome.mermaid for outcome in outcomes if outcome.mermaid), "")
        output.write_lines("markdown", args.markdown, [summary(story, first)])
    if args.json != "-":
        if args.follow and outcomes:
            output.say("")
        output.say(story)
        if foreign is not None and foreign.left_out:
            what = "is no event" if foreign.left_out == 1 else "are no events"
            output.say(f"\nOf {numbers.plural(foreign.records, 'record')}, {foreign.left_out:,} {what}.")
        if covered is not None:
            output.say("\n" + coverage.text(cast("type[Protocol]", conformance.protocol), *covered))
        if args.sequence is not None:
            where = (
                f"Its last steps as a sequence diagram: {args.sequence}"
                if drawn
                else f"There are no steps before a rejection: {args.sequence} is not written."
            )
            output.say(f"\n{where}")


def _protocol(conformance: type[Conformance], outcomes: Sequence[Outcome]) -> str:
    """The protocols that traces were checked against. They may depend on the writer of a trace."""
    found = sorted({outcome.protocol for outcome in outcomes if outcome.protocol})
    return " and ".join(found) or getattr(conformance.protocol, "name", conformance.name)


def _what(args: argparse.Namespace, protocol: str) -> str:
    """The traces and their protocol, on one line."""
    refined = f"{protocol}, for {args.protocol}" if args.protocol == "bookkeeper" else protocol
    return f"validate  {', '.join(args.traces)}  against {refined}"
