"""The output of commands that find behaviours: standard output and files."""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fencepost import errors
from fencepost.cli import interrupts, output
from fencepost.cli.arguments import option
from fencepost.errors import OptionError, ProtocolRaised
from fencepost.language import loading
from fencepost.language.declarations import NO_VERDICT
from fencepost.language.protocol import unknown_name
from fencepost.language.seam import Model, language_of

if TYPE_CHECKING:
    from fencepost.api.result import Result
    from fencepost.behaviours import Trace
    from fencepost.behaviours.dot import Graph
    from fencepost.checker.engines.interface import Table
    from fencepost.report.text import Told


def add_options(group: Any) -> None:
    """Declare the options for output formats of a behaviour."""
    option(group, "--json FILE", "the result as JSON; - is standard output, with nothing else on it")
    option(group, "--html FILE", "the result as an HTML page")
    option(group, "--sequence FILE", "the behaviour as a sequence diagram, for sequencediagram.org")
    option(group, "--itf FILE", "the behaviour in the ITF format")
    option(group, "--dot FILE", "the graph of a small state space, for Graphviz; the behaviour in red")
    option(group, "--eval EXPR ...", "print the value of EXPR at every step of the behaviour (repeatable)")


def add_ci_options(group: Any, *formats: str) -> None:
    """Declare the options for reports to systems of continuous integration."""
    helps = {
        "junit": "the verdict as a report of tests, in JUnit's format",
        "sarif": "what is wrong at the author's line, for code scanning",
        "markdown": "the verdict as Markdown with a sequence diagram, for the summary of a job",
    }
    for name in formats:
        option(group, f"--{name} FILE", helps[name])


CHANGES = "changes"
"""The value of ``--trace`` for the story."""

CONFIGURATION = "configuration"
"""The value of ``--expect`` that stands for the configuration's expected verdict."""


def expected(args: argparse.Namespace, protocol: Model) -> str | None:
    """The expected verdict of a check, from ``--expect`` or else from its configuration.

    Raises :class:`OptionError` if no check of the protocol can have this verdict, or if this check cannot decide it.
    """
    recorded = loading.expectation(protocol, args.config)
    wanted: str | None = getattr(args, "expect", None)
    if wanted is None:
        return recorded
    if wanted == CONFIGURATION:
        if recorded is None:
            raise OptionError(f"--expect {CONFIGURATION} is the expected verdict of a configuration: give --config too")
        if args.define:
            raise OptionError(
                f"--expect {CONFIGURATION} cannot be combined with -D: give the expected verdict, such as holds"
            )
        wanted = recorded
    every = language_of(protocol).declarations(protocol).values()
    properties = [declared.name for declared in every if declared.kind not in NO_VERDICT]
    if wanted not in (known := ["holds", "reached", "deadlock", *properties]):
        raise OptionError(unknown_name("verdict", wanted, known, f"a check of {protocol.name}"))
    if args.invariants and wanted in set(properties).difference(args.invariants):
        raise OptionError(f"{wanted} is expected to be violated, and --invariant leaves it out: name it there too")
    return wanted


UNDECIDED = (errors.PROTOCOL_RAISED, errors.INTERRUPTED, errors.NOT_COMPLETE, errors.SYSTEM_FAILED)
"""The exit codes of a check that could not tell."""


class Results:
    """The outputs of one check. Created before the search, so that unwritable files are reported early."""

    def __init__(self, args: argparse.Namespace, protocol: Model) -> None:
        self.args = args
        self.expected = expected(args, protocol)
        expect = getattr(args, "expect", None)
        self.is_held = expect is not None
        self._is_typed = self.is_held and expect != CONFIGURATION
        for text in args.eval:
            _must_be_readable(text, protocol)
        self.files: dict[str, str] = {}
        for name in ("json", "html", "sequence", "itf", "dot", "junit", "sarif", "markdown"):
            path = getattr(args, name, None)
            if path is not None:
                self._reserve(name, path)
        self.told = _told(args, protocol)
        self.json_alone = args.json == "-"
        self.graph = self._graph(protocol) if "dot" in self.files else None

    def _reserve(self, name: str, path: str) -> None:
        if path == "-":
            if name != "json":
                raise OptionError(f"--{name} - is not possible: only --json can go to standard output")
            return
        if not path:
            raise OptionError(f"--{name} needs a name: name a file")
        for other, taken in self.files.items():
            if os.path.realpath(taken) == os.path.realpath(path) and not output.is_device(path):
                raise OptionError(f"--{name} and --{other} would both be written to {path}")
        if os.path.realpath(path) == os.path.realpath(loading.split(self.args.protocol)[0]):
            raise OptionError(f"--{name} {path} would overwrite the protocol")
        output.must_be_writable(name, path)
        self.files[name] = path

    def _graph(self, protocol: Model) -> Graph | ProtocolRaised:
        """The graph for ``--dot``, or the reason why it cannot be drawn. Raises :class:`OptionError` if the space is
        too large to display.
        """
        from fencepost.behaviours.dot import Graph

        try:
            return Graph(protocol)
        except ProtocolRaised as error:  # the check reports it, with the behaviour
            return ProtocolRaised(f"--dot {self.files['dot']} was not written: {error}")
        except OptionError as error:
            raise OptionError(f"--dot {self.files['dot']}: {error}") from None

    def show(self, result: Result) -> int:
        """Print and write all requested outputs. Returns the exit code."""
        code = self._code(result)
        writers: list[Callable[[], None]] = [lambda: self._print(result)]
        writers += [functools.partial(self._write, option, path, result) for option, path in self.files.items()]
        for wrong in (result.error, result.failure):
            if wrong is not None:
                output.complain(str(wrong), wrong, self.args.debug)
        for write in writers:
            # If one file cannot be written, the other outputs are still shown.
            try:
                write()
            except Exception as error:
                if interrupts.was_interrupted(error):
                    raise
                code = output.failed(error, self.args.debug)
        return code

    def _code(self, result: Result) -> int:
        """The exit code of a result; with an expectation, whether the result meets it."""
        if self.is_held and result.error is None and result.failure is None and not result.interrupted:
            is_so = self.as_expected(result)
            if is_so is not None:
                return errors.HOLDS if is_so else errors.NOT_AS_EXPECTED
        return result.exit_code

    def _print(self, result: Result) -> None:
        """Print to standard output."""
        if self.json_alone:
            output.say(self._json(result))
            return
        _print_story(result, self.args.profile, self.told)
        if self.args.profile and not result.profile:
            output.say(f"\nThe {result.engine} engine keeps no profile: ask for one with --engine embedded.")
        if result.table is not None:
            output.say("\n" + _written(result.table))
        elif result.interrupted and self.args.states is not None:
            output.say(f"\nThe state space was not written to {self.args.states}.")
        trace = _trace(result)
        for expression in self.args.eval:
            output.say("\n" + _evaluated(expression, trace))
        expectation = self._judged(result)
        if expectation:
            output.say("\n" + expectation)

    def _write(self, option: str, path: str, result: Result) -> None:
        text = self._text(option, result)
        if text is None:
            if not self.json_alone:
                output.say(f"\nThere is no counterexample, so --{option} {path} was not written.")
            return
        output.write_lines(option, path, [text])
        if option == "html" and not self.json_alone:
            output.say(f"\nThe whole story as a page: {path}")

    def _text(self, option: str, result: Result) -> str | None:
        """The content of a file; None if the file is for a counterexample and there is none."""
        trace = _trace(result)
        if option == "json":
            return self._json(result) + "\n"
        if option == "html":
            from fencepost.report.html import html

            return html(result)
        if option == "dot":
            if isinstance(self.graph, ProtocolRaised):
                raise self.graph
            return self.graph.text(trace) if self.graph is not None else None
        if option == "junit":
            return self._junit(result)
        if option == "sarif":
            from fencepost.report.sarif import sarif

            return sarif(result, self._code(result), self.args.config, self.expected)
        if option == "markdown":
            from fencepost.report.markdown import markdown

            return markdown(result, trace, self._judged(result))
        if trace is None:
            return None
        if option == "itf":
            from fencepost.behaviours.itf import to_itf

            return to_itf(trace) + "\n"
        from fencepost.report.sequence import sequence

        first = next((v for v in result.violations if v.trace is trace), None)
        if first is not None:
            return sequence(trace, first.name if first.kind == "deadlock" else f"{first.name} is violated")
        return sequence(trace, str(result.error) if trace is result.error_trace else result.witnesses[0].name)

    def _junit(self, result: Result) -> str:
        """One test: the check of this configuration. It has failed if something is wrong, and is an error if the check
        could not tell.
        """
        from fencepost.language.values import constant_text
        from fencepost.report.junit import ERROR, FAILURE, Case, junit
        from fencepost.report.text import story
        from fencepost.report.verdict import verdict

        code = self._code(result)
        case = Case(
            " ".join(["check", *([self.args.config] if self.args.config else []), *self.args.define]),
            "" if code == errors.HOLDS else ERROR if code in UNDECIDED else FAILURE,
            f"{verdict(result).paragraph} {self._judged(result)}".strip(),
            "\n" + story(result),
        )
        constants = {name: constant_text(value) for name, value in result.constants.items()}
        return junit(
            result.protocol.name, [case], constants | {"distinct states": str(result.distinct_states)}, result.seconds
        )

    def _json(self, result: Result) -> str:
        """The result as JSON, with the command line's own fields. ASCII, so that it works in any terminal and pipe."""
        from fencepost.behaviours.json import dumps, plain
        from fencepost.report.json import data

        document = data(result)
        if self.expected is not None and not self._is_typed:
            document["configuration"] = {
                "name": self.args.config,
                "expect": self.expected,
                "as_expected": self.as_expected(result),
            }
        if self.is_held:
            document["expected"] = {"verdict": self.expected, "as_expected": self.as_expected(result)}
        trace = _trace(result)
        if self.args.eval:
            from fencepost.behaviours.expression import evaluate

            document["evaluated"] = {
                text: [{"value": plain(v.value), "error": v.error} for v in (evaluate(text, trace) if trace else ())]
                for text in self.args.eval
            }
        if self.args.profile:
            document["profile"] = result.profile
        return dumps(document, indent=2)

    def _judged(self, result: Result) -> str:
        """A line on whether the verdict is the configuration's expected one; none if that is undecided."""
        if self.expected is None:
            return ""
        name = "it" if self._is_typed else f"configuration {self.args.config}"
        wanted = {"holds": "hold", "deadlock": "deadlock", "reached": "reach all that is looked for"}.get(
            self.expected, f"violate {self.expected}"
        )
        if self.as_expected(result) is None:
            return f"Expected{'' if self._is_typed else f' of {name}'}: to {wanted}. This check cannot tell."
        return f"{'As' if self.as_expected(result) else 'NOT as'} expected: {name} is to {wanted}."

    def as_expected(self, result: Result) -> bool | None:
        """Whether the verdict is the expected one; None if the check was not the configuration's, or not finished."""
        expected, chosen = self.expected, self.args.invariants
        if expected is None or (self.args.define and not self._is_typed):
            return None
        if chosen and expected not in ("holds", "reached", "deadlock", *chosen):
            return None
        violated = [v.name for v in result.violations]
        if expected == result.verdict or expected in violated or (expected == "holds" and result.holds):
            return True
        if (
            violated == ["deadlock"] and not self._is_typed
        ):  # looked for because of --deadlock, which this configuration does not speak of
            return None
        return False if violated or result.complete else None


def _told(args: argparse.Namespace, protocol: Model) -> Told | None:
    """What tells behaviours in place of the story, as ``--trace`` asks. Raises :class:`OptionError` if the protocol's
    language has no such thing.
    """
    asked = getattr(args, "trace", CHANGES)
    if asked == CHANGES:
        return None
    told = language_of(protocol).traces().get(asked)
    if told is None:
        raise OptionError(f"--trace {asked} is for specifications in TLA+: leave it out")
    return told


def _print_story(result: Result, profile: bool, told: Told | None) -> None:
    """Print the whole result, in colour on a terminal, else as plain text."""
    from fencepost.report.text import render, story

    if not output.is_terminal():
        output.say(story(result, width=output.width(), profile=profile, told=told).rstrip("\n"))
        return
    from rich.console import Console

    console = Console(file=output.stdout(), highlight=False)
    with console.capture() as captured:
        render(result, console, profile=profile, told=told)
    output.put(captured.get().rstrip("\n") + "\n")


def _written(table: Table) -> str:
    """A line about the table of the state space."""
    from fencepost.text.numbers import plural

    steps = "" if table.edges is None else f" and {plural(table.edges, 'step')}"
    what = f"The state space as a table: {table.directory}, with {plural(table.states, 'state')}{steps}"
    return f"{what}." if table.complete else f"{what}. It is not complete: it ends with level {table.depth}."


def _must_be_readable(expression: str, protocol: Model) -> None:
    """Raises :class:`OptionError` unless an expression can be parsed. It is evaluated only if there is a
    counterexample.
    """
    from fencepost.behaviours.expression import Expression

    try:
        Expression(expression, protocol)
    except OptionError as error:
        raise OptionError(f"--eval {expression}: {error}") from None


def _trace(result: Result) -> Trace | None:
    """The behaviour of a result: the first counterexample, else the one at whose end the protocol raised, else the
    first witness.
    """
    violating = (v.trace for v in result.violations if v.trace is not None)
    witness = result.witnesses[0].trace if result.witnesses else None
    return next(violating, result.error_trace or witness)


def _evaluated(expression: str, trace: Trace | None) -> str:
    """The values of an expression after every step, as a table."""
    if trace is None:
        return f"There is no counterexample along which to evaluate {expression}."
    from fencepost.behaviours.expression import evaluate
    from fencepost.behaviours.formatting import abridged

    titles = ["initial state", *(step.title for step in trace.steps)]
    digits, width = len(str(len(trace.steps))), min(50, max(map(len, titles)))
    rows = [
        f" {i:>{digits}}  {t:<{width}}  {v}"
        for (i, t), v in zip(enumerate(titles), evaluate(expression, trace), strict=True)
    ]
    return "\n".join([expression, *map(abridged, rows)])
