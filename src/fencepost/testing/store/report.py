"""The result of driving, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencepost import errors
from fencepost.behaviours import Trace
from fencepost.behaviours.json import states
from fencepost.report.text import trace_story
from fencepost.states.manifest import StateSpace
from fencepost.testing.report import difference as lines_of
from fencepost.testing.report import figures
from fencepost.testing.store.actions import HANDLERS, REASONS
from fencepost.testing.store.driver import Driver
from fencepost.testing.walk import DriveResult, Edge, Found
from fencepost.text import numbers
from fencepost.text.numbers import plural


def exit_code(result: DriveResult) -> int:
    """The exit code, as of a check: whether the roles differ from the protocol."""
    return errors.SAFETY_VIOLATED if result.differing else errors.HOLDS


def verdict(result: DriveResult) -> str:
    """The first line of the report."""
    if result.differing:
        return "DIFFERS  the roles do not do what the protocol does"
    return "FOLLOWS  the roles can do what the protocol does, and are where it is"


def trace_to(driver: Driver, found: Found) -> Trace:
    """The behaviour of the protocol up to the step after which the difference shows."""
    (initial,) = driver.stepper.initial_states()
    return driver.trace(initial, found.way)


def difference(found: Found) -> list[str]:
    """The difference as lines: its step, its variable, and both values."""
    place = f"After step {len(found.way)}, {_title(found.way[-1])}:"
    return lines_of(place, found.variable, found.expected, found.actual, "roles")


def story(
    space: StateSpace, result: DriveResult, trace: Trace | None, seconds: float, without: Sequence[str], width: int
) -> str:
    """The report as text. ``trace``: the behaviour to the first difference; ``seconds``: how long driving took."""
    lines = [verdict(result), space.title]
    if without:
        lines.append(f"roles without {', '.join(without)}")
    lines.append("")
    if trace is not None:
        lines += [*difference(result.found[0]), ""]
        lines += [f"The behaviour: {plural(len(trace), 'state')}", "", trace_story(trace, width=width).rstrip("\n"), ""]
        if result.differing > 1:
            lines += [f"{plural(result.differing, 'transition')} differ, by action and variable:"]
            lines += [
                f"  {count:>9,}  {action}: {variable}" for (action, variable), count in result.kinds.most_common(10)
            ]
            lines.append("")
    skipped = result.skipped.most_common()
    if skipped:
        lines += [
            "No role takes these transitions:",
            *(f"  {count:>9,}  {REASONS[reason]}" for reason, count in skipped),
        ]
    if result.beyond:
        lines.append(
            f"  {result.beyond:>9,}  come after one of these or a difference, and there was no other way to them"
        )
    if skipped or result.beyond:
        lines.append("")
    covered, edges = sum(result.covered.values()), space.manifest.edges
    never_taken = [action for action in HANDLERS if not result.covered[action]]
    rows = [
        ("behaviours", numbers.count(result.behaviours), ""),
        ("steps", numbers.count(result.steps), numbers.rate(result.steps / (seconds or 1e-9))),
        (
            "transitions",
            numbers.count(covered),
            f"of {edges:,} in the table" if edges is not None else "the table does not say of how many",
        ),
        (
            "actions",
            numbers.count(sum(1 for count in result.covered.values() if count)),
            f"never taken: {', '.join(never_taken)}" if never_taken else "",
        ),
        ("time", numbers.seconds(seconds), ""),
    ]
    return "\n".join([*lines, *figures(rows)])


def data(
    space: StateSpace, result: DriveResult, trace: Trace | None, seconds: float, without: Sequence[str]
) -> dict[str, Any]:
    """The report for programs."""
    return {
        "protocol": space.manifest.protocol,
        "constants": space.manifest.shown,
        "without": list(without),
        "verdict": "differs" if result.differing else "follows",
        "behaviours": result.behaviours,
        "steps": result.steps,
        "transitions": {
            "table": space.manifest.edges,
            "covered": sum(result.covered.values()),
            "skipped": sum(result.skipped.values()),
            "differing": result.differing,
            "beyond": result.beyond,
        },
        "actions": dict(sorted(result.covered.items())),
        "skipped": [
            {"reason": reason, "doc": REASONS[reason], "transitions": count}
            for reason, count in result.skipped.most_common()
        ],
        "differences": [
            {"action": action, "variable": variable, "transitions": count}
            for (action, variable), count in result.kinds.most_common()
        ],
        "first": None if trace is None else first(result.found[0], trace),
        "seconds": seconds,
    }


def first(found: Found, trace: Trace) -> dict[str, Any]:
    """A difference with its behaviour."""
    return {
        "step": _title(found.way[-1]),
        "variable": found.variable,
        "expected": found.expected,
        "actual": found.actual,
        "trace": states(trace),
    }


def _title(edge: Edge) -> str:
    return f"{edge.action}({edge.parameters})" if edge.parameters else edge.action
