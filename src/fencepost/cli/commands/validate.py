"""``fencepost validate``: holds traces of running systems to a protocol that was checked."""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
import time
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from fencepost import errors
from fencepost.cli import arguments, output
from fencepost.cli.arguments import option
from fencepost.cli.progress import TracesLine
from fencepost.errors import OptionError, naming_extra
from fencepost.files.storage import open_storage
from fencepost.text import units
from fencepost.traces import read
from fencepost.traces.validation import live, registry
from fencepost.traces.validation.conformance import Conformance
from fencepost.traces.validation.outcome import NOT_COVERED, RAISED, REJECTED, Outcome, judged
from fencepost.traces.validation.tail import Tail
from fencepost.traces.validation.traces import Traces
from fencepost.traces.validation.validate import Validator, collect_rarely
from fencepost.traces.validation.watch import Limits

if TYPE_CHECKING:
    from fencepost.states.manifest import StateSpace
    from fencepost.traces.validation.coverage import Visits
    from fencepost.traces.validation.space_coverage import SpaceCoverage

HERE, SPARK, AUTO = "local", "spark", "auto"
LAST = 12
"""Steps before a rejection that are shown."""

_LIMITS = Limits()

Covered: TypeAlias = "tuple[Visits, SpaceCoverage | None]"
"""The coverage of the protocol by traces, and that of a state space."""


# -- what is typed ----------------------------------------------------------------------------------------------------


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``fencepost validate``."""
    parser.description = (
        "Hold traces of running systems to a protocol: is what they did a behaviour of it? Each run and subject is one"
        " trace."
    )
    option(parser, "traces TRACES", "folders of traces, and files", nargs="+")
    what = parser.add_argument_group("what they are held to")
    option(what, "--protocol NAME", f"the protocol, by its name: {', '.join(registry.SHIPPED)}")
    option(what, "--conformance FILE", "in place of that, a conformance of your own: FILE.py or FILE.py:NAME")
    which = parser.add_argument_group("which traces")
    option(which, "--run NAME ...", "those of this run (repeatable)", dest="runs")
    option(which, "--subject ID ...", "those about this subject, such as a ledger (repeatable)", dest="subjects")
    how = parser.add_argument_group("how")
    option(how, "--shuffle SEED", "follow them in another order that their causes allow", arguments.number)
    option(
        how,
        "--engine",
        "who does it: auto is this process, and Spark with --master or --conf",
        default=AUTO,
        choices=(AUTO, HERE, SPARK),
    )
    arguments.add_spark(how)
    live = parser.add_argument_group("while systems write traces")
    option(
        live, "--follow", "go on with what is added to folders, and tell each verdict when it is certain, until Ctrl-C"
    )
    option(live, "--for SECONDS", "with --follow: end after so many seconds", units.seconds, dest="seconds")
    option(
        live,
        "--patience SECONDS",
        f"with --follow: the longest that an event takes to get here, by default {_LIMITS.patience:g}; a step "
        "that is refused for longer is a rejection",
        units.seconds,
        _LIMITS.patience,
    )
    option(
        live,
        "--idle SECONDS",
        f"with --follow: seconds without events after which a trace is not waited for, by default {_LIMITS.idle:g}",
        units.seconds,
        _LIMITS.idle,
    )
    visited = parser.add_argument_group("what was visited")
    option(
        visited, "--coverage", "tell which actions the traces have taken, to which effects, and which they never took"
    )
    option(
        visited,
        "--states DIR",
        "with --coverage: tell which states and steps of this state space, which check --states wrote, and which "
        "are the nearest that were not",
        arguments.place,
    )
    results = parser.add_argument_group("results")
    option(results, "--json FILE", "all verdicts as JSON; - is standard output, which then has nothing else")
    option(
        results,
        "--sequence FILE",
        "the last steps of the first trace that is rejected as a sequence diagram, for sequencediagram.org",
    )
    option(
        results, "--last N", f"how many steps that change something that is; by default {LAST}", arguments.count, LAST
    )


def run(given: argparse.Namespace) -> int:
    """Validate traces, and tell what came of it."""
    conformance = _conformance(given)
    _look_at_files(given)
    began = time.monotonic()
    if given.follow:
        outcomes, covered = _followed(given, conformance), None
    else:
        outcomes, covered = _outcomes(given, conformance)
    _tell(given, conformance, outcomes, covered, time.monotonic() - began)
    verdicts = {outcome.verdict for outcome in outcomes}
    return (
        errors.SAFETY_VIOLATED
        if REJECTED in verdicts
        else errors.PROTOCOL_RAISED
        if RAISED in verdicts
        else errors.NOT_COMPLETE
        if NOT_COVERED in verdicts
        else errors.HOLDS
    )


def _conformance(given: argparse.Namespace) -> type[Conformance]:
    if given.conformance is not None:
        if given.protocol is not None:
            raise OptionError("--protocol and --conformance both say what traces are held to: leave one out")
        return registry.from_file(given.conformance)
    if given.protocol is None:
        names = ", ".join(registry.SHIPPED)
        raise OptionError(f"say what traces are held to: --protocol with one of {names}, or --conformance FILE.py")
    return registry.shipped(given.protocol)


def _look_at_files(given: argparse.Namespace) -> None:
    """Raises before anything is done if results cannot be written, or traces are not there."""
    if given.seconds is not None and not given.follow:
        raise OptionError("--for says how long to follow traces: give --follow too")
    if given.follow and given.shuffle is not None:
        raise OptionError("--shuffle is for traces that are there: leave out --follow or --shuffle")
    if given.states is not None and not given.coverage:
        raise OptionError("--states says of which states to tell the coverage: give --coverage too")
    if given.follow and given.coverage:
        raise OptionError("--coverage is of traces that are there: leave out --follow or --coverage")
    output.check_files(given, "json", "sequence")
    for path in given.traces:
        if "://" not in path and not Path(path).exists():
            raise OptionError(f"there are no traces at {path}")


# -- what is done -----------------------------------------------------------------------------------------------------


def _is_on_spark(given: argparse.Namespace) -> bool:
    if given.engine == SPARK or (given.engine == AUTO and (given.master or given.conf)):
        return True
    if any("://" in path for path in given.traces):
        raise OptionError("traces at a URL are read by Spark: give --engine spark too")
    return False


def _outcomes(given: argparse.Namespace, conformance: type[Conformance]) -> tuple[list[Outcome], Covered | None]:
    from fencepost.states.manifest import StateSpace

    space = StateSpace(given.states) if given.states is not None else None
    if _is_on_spark(given):
        outcomes, visits, in_space = _on_spark(given)
    else:
        outcomes, visits, in_space = _here(given, conformance, space)
    return outcomes, (visits, in_space) if given.coverage else None


def _here(
    given: argparse.Namespace, conformance: type[Conformance], space: StateSpace | None
) -> tuple[list[Outcome], Visits, SpaceCoverage | None]:
    from fencepost.report.validation import explaining
    from fencepost.traces.validation.coverage import Coverage

    collect_rarely()
    traces = Traces(read(given.traces), given.runs, given.subjects, conformance.subjects)
    validator, explain, coverage = Validator(conformance), explaining(given.last, output.width()), Coverage()
    on_verdict = coverage.add if given.coverage else None
    found: list[Outcome] = []
    steps, names = 0, traces.names()
    with TracesLine(sys.stderr) as line:
        for run, subject in names:
            events = partial(traces.events, (run, subject))
            found.append(judged(validator, run, subject, events, given.shuffle, explain, on_verdict))
            steps += found[-1].steps
            line.report(len(found), steps, len(names))
    return found, coverage.visits, _in_space(traces, conformance, space) if space is not None else None


def _in_space(traces: Traces, conformance: type[Conformance], space: StateSpace) -> SpaceCoverage:
    from fencepost.traces.validation.space_coverage import InSpace, in_space

    within = InSpace(conformance, space)
    for run, subject in traces.names():
        if subject:
            within.replay(subject, lambda name=(run, subject): traces.events(name))  # type: ignore[misc]
    return in_space(space, within.visited)


def _on_spark(given: argparse.Namespace) -> tuple[list[Outcome], Visits, SpaceCoverage | None]:
    with naming_extra("Spark", "spark"):
        from fencepost.spark import validate
    states = open_storage(given.states).place if given.states is not None else None
    request = _request(given, shuffle=given.shuffle, coverage=given.coverage, states=states)
    with TracesLine(sys.stderr) as line, contextlib.closing(_cluster(given)) as cluster:
        return validate.validated(cluster, given.traces, request, line.doing)


def _request(given: argparse.Namespace, **options: Any) -> Any:
    """A validation on Spark, as its tasks get to know it."""
    from fencepost.spark.validate import Request

    runs, subjects = tuple(given.runs), tuple(given.subjects)
    return Request(_named(given), last=given.last, width=output.width(), runs=runs, subjects=subjects, **options)


def _cluster(given: argparse.Namespace) -> Any:
    from fencepost.spark.cluster import Cluster

    return Cluster(given.master, dict(given.conf), given.debug)


def _named(given: argparse.Namespace) -> str:
    """The conformance, so that other processes find it."""
    return str(Path(given.conformance).absolute()) if given.conformance is not None else str(given.protocol)


def _followed(given: argparse.Namespace, conformance: type[Conformance]) -> list[Outcome]:
    """All verdicts, each of which is shown when it is certain."""
    outcomes: list[Outcome] = []

    def tell(found: list[Outcome]) -> None:
        outcomes.extend(found)
        if given.json != "-":
            for outcome in found:
                output.say(validation.line(outcome))

    from fencepost.report import validation

    limits = Limits(given.patience, given.idle)

    @cache  # the time begins with the first question
    def end() -> float:
        return math.inf if given.seconds is None else time.monotonic() + float(given.seconds)

    def until() -> bool:
        return time.monotonic() >= end()

    if _is_on_spark(given):
        with naming_extra("Spark", "spark"):
            from fencepost.spark import stream
        with contextlib.closing(_cluster(given)) as cluster:
            stream.follow(cluster, given.traces, _request(given), limits, tell, until)
        return outcomes
    explain = validation.explaining(given.last, output.width())
    live.follow(
        Tail(given.traces),
        live.LiveRuns(Validator(conformance), limits, explain, given.runs, given.subjects),
        until,
        tell,
    )
    return outcomes


# -- results ----------------------------------------------------------------------------------------------------------


def _tell(
    given: argparse.Namespace,
    conformance: type[Conformance],
    outcomes: Sequence[Outcome],
    covered: Covered | None,
    seconds: float,
) -> None:
    from fencepost.report import coverage, validation

    if given.json is not None:
        document: dict[str, Any] = validation.data(
            outcomes, _protocol(conformance, outcomes), conformance.name, seconds
        )
        if covered is not None:
            document["coverage"] = coverage.data(conformance.protocol, *covered)
        output.write_json(given.json, document)
    drawn = next((outcome.sequence for outcome in outcomes if outcome.sequence), None)
    if given.sequence is not None and drawn is not None:
        output.write_lines("sequence", given.sequence, [drawn])
    if given.json != "-":
        if given.follow and outcomes:
            output.say("")
        output.say(validation.text(outcomes, _what(given, _protocol(conformance, outcomes)), seconds))
        if covered is not None:
            output.say("\n" + coverage.text(conformance.protocol, *covered))
        if given.sequence is not None:
            where = (
                f"Its last steps as a sequence diagram: {given.sequence}"
                if drawn
                else f"There are no steps before a rejection: {given.sequence} is not written."
            )
            output.say(f"\n{where}")


def _protocol(conformance: type[Conformance], outcomes: Sequence[Outcome]) -> str:
    """The protocols that traces were held to: they may depend on the writer of a trace."""
    found = sorted({outcome.protocol for outcome in outcomes if outcome.protocol})
    return " and ".join(found) or conformance.protocol.name


def _what(given: argparse.Namespace, protocol: str) -> str:
    """The traces, and the protocol that they were held to, in a line."""
    refined = f"{protocol}, for {given.protocol}" if given.protocol == "bookkeeper" else protocol
    return f"validate  {', '.join(given.traces)}  against {refined}"
