"""A result as SARIF 2.1.0, the format in which code scanning takes findings: each at the author's line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fencepost import errors
from fencepost.behaviours import Trace
from fencepost.behaviours.json import dumps
from fencepost.behaviours.messages import passages
from fencepost.checker.findings import Findings, Violation
from fencepost.language.seam import Model, language_of
from fencepost.language.values import constant_text
from fencepost.report.explore_command import explore_command
from fencepost.report.text import counterexample, happenings
from fencepost.report.verdict import verdict, violated
from fencepost.semantics.authors import line_of
from fencepost.text import numbers
from fencepost.text.plain import printable
from fencepost.version import VERSION

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

MOST_STEPS = 1_000
"""The most steps of a behaviour that are listed: the last ones. GitHub shows no more."""

Line = tuple[str, int]
"""A file, and the number of a line in it."""


@dataclass(frozen=True)
class Problem:
    """What is wrong: the ``rule`` that is broken and what it ``demands``, the ``message``, the line if it is known, and
    the behaviour that shows it.
    """

    rule: str
    demands: str
    message: str
    line: Line | None
    trace: Trace | None = None


def sarif(result: Findings, code: int, configuration: str | None = None, expected: str | None = None) -> str:
    """The result as a document. ``code``: the exit code, by which a violation that is ``expected`` is no problem."""
    found = list(problems(result, code, expected))
    rules = {each.rule: each for each in found}
    given = [f"{name}={constant_text(value)}" for name, value in result.constants.items()]
    undecided = (
        [] if found or code == errors.HOLDS else [{"level": "error", "message": _message(verdict(result).paragraph)}]
    )
    run = {
        "tool": {
            "driver": {
                "name": "Fencepost",
                "version": VERSION,
                "rules": [_rule(each, result.protocol) for each in rules.values()],
            }
        },
        # Uploads replace what was uploaded before with the same id.
        "automationDetails": {"id": printable(f"fencepost/{result.protocol.name}/{configuration or ','.join(given)}/")},
        "invocations": [
            {
                "executionSuccessful": code in (errors.HOLDS, errors.NOT_AS_EXPECTED) or bool(result.violations),
                "exitCode": code,
                "toolExecutionNotifications": undecided,
            }
        ],
        "results": [_result(each, list(rules).index(each.rule), result.protocol) for each in found],
        "columnKind": "unicodeCodePoints",
    }
    return dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def problems(result: Findings, code: int, expected: str | None) -> Iterator[Problem]:
    """What is wrong with a protocol, or with what was expected of it."""
    if code == errors.HOLDS:
        return
    protocol = result.protocol
    for violation in result.violations:
        yield _violation(result, violation)
    if result.error is not None:
        cause = result.error.__cause__
        line = line_of(cause) if cause is not None and cause.__traceback__ is not None else None
        where = result.error.where.partition("(")[0]
        if line is None or not os.path.exists(line[0]):
            line = defined(protocol, where)
        yield Problem(
            "raised", "The protocol's own code raises nothing.", verdict(result).paragraph, line, result.error_trace
        )
    elif code == errors.NOT_AS_EXPECTED and not result.violations:
        demands = f"The verdict of the check is {expected}."
        yield Problem(
            "expected", demands, f"Expected: {expected}. {verdict(result).paragraph}", defined(protocol, str(expected))
        )


def _violation(result: Findings, violation: Violation) -> Problem:
    found = violated(result, violation)
    trace = violation.trace
    shown = [] if trace is None else [f"{counterexample(trace, violation)}."]
    demands = next(iter(found.sentences), "") if violation.kind != "deadlock" else "Every state has a next one."
    said = " ".join([found.paragraph, *shown])
    return Problem(violation.name, demands, said, defined(result.protocol, violation.name), trace)


def defined(protocol: Model, name: str) -> Line | None:
    """The line that defines an action or a property."""
    declared = language_of(protocol).declarations(protocol).get(name)
    return None if declared is None else declared.source


# -- the parts of the document ----------------------------------------------------------------------------------------


def _rule(problem: Problem, protocol: Model) -> dict[str, Any]:
    demands = problem.demands or f"{problem.rule} of {protocol.name} holds."
    how = "fencepost check shows the behaviour step by step, and fencepost explore walks through it."
    return {
        "id": problem.rule,
        "shortDescription": _message(f"{protocol.name}: {problem.rule}"),
        "fullDescription": _message(demands),
        "help": _message(f"{demands} {how}"),
        "defaultConfiguration": {"level": "error"},
    }


def _result(problem: Problem, rule: int, protocol: Model) -> dict[str, Any]:
    trace = problem.trace
    steps = [] if trace is None else _steps(trace)
    # A deadlock and a refinement have no line of their own: the last step's, or any of the protocol.
    near = (*(step.line for step in reversed(steps)), *(each.source for each in protocol.declared("action")))
    line = next((each for each in (problem.line, *near) if each is not None), None)
    message = problem.message
    if trace is not None:
        if len(steps) < len(trace.steps):
            message += f" Its last {len(steps):,} of {numbers.plural(len(trace.steps), 'step')} are listed."
        command = explore_command(trace)
        message += f" To walk through it: {command}" if command else ""
    found: dict[str, Any] = {
        "ruleId": problem.rule,
        "ruleIndex": rule,
        "level": "error",
        "message": _message(message),
        "locations": [] if line is None else [_location(line)],
    }
    located = [_location(step.line, step.text, step.number) for step in steps if step.line is not None]
    if located:
        found["relatedLocations"] = located
        found["codeFlows"] = [{"threadFlows": [{"locations": [{"location": each} for each in located]}]}]
    return found


@dataclass(frozen=True)
class _Step:
    number: int
    line: Line | None
    text: str


def _steps(trace: Trace) -> list[_Step]:
    """The last steps of a behaviour, in words."""
    found = passages(trace)
    steps = []
    for number in range(max(1, len(trace.steps) - MOST_STEPS + 1), len(trace)):
        step = trace.steps[number - 1]
        effects = [f"{each.what} {each.text}".strip() for each in happenings(trace, number, found)]
        text = f"Step {number}: {step.title}: {'; '.join(effects) or 'nothing changes'}"
        steps.append(_Step(number, defined(trace.protocol, step.action), " ".join(text.split())))
    return steps


def _location(line: Line, text: str = "", number: int | None = None) -> dict[str, Any]:
    file, start = line
    physical = {"artifactLocation": _artifact(file), "region": {"startLine": start}}
    numbered = {} if number is None else {"id": number}
    return numbered | {"physicalLocation": physical} | ({"message": _message(text)} if text else {})


def _artifact(file: str) -> dict[str, str]:
    """A file by its path in the repository, or else in the working directory; any other by its URI."""
    path = Path(os.path.abspath(file))
    root = next((each for each in Path.cwd().joinpath("_").parents if (each / ".git").exists()), Path.cwd())
    if path.is_relative_to(root):
        return {"uri": quote(path.relative_to(root).as_posix()), "uriBaseId": "%SRCROOT%"}
    return {"uri": path.as_uri()}


def _message(text: str) -> dict[str, str]:
    """A text. Braces are doubled, since single ones have a meaning (section 3.11.5)."""
    return {"text": printable(text).replace("{", "{{").replace("}", "}}")}
