"""Coverage of a protocol by traces, as text and as data."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import msgspec

from fencepost.language.protocol import Protocol
from fencepost.report.tables import aligned
from fencepost.text import numbers
from fencepost.traces.validation.coverage import Visits
from fencepost.traces.validation.line_coverage import Line, LineTracer, lines_of
from fencepost.traces.validation.space_coverage import SpaceCoverage, Unvisited


def text(protocol: type[Protocol], visits: Visits, space: SpaceCoverage | None) -> str:
    """A table of actions, the actions that no trace took, and the coverage of a state space."""
    names = [declared.name for declared in protocol.declared("action")]
    taken = [name for name in names if name in visits.taken]
    there = _places(protocol)
    rows = [
        (
            name,
            visits.taken[name],
            len(visits.parameters.get(name, ())),
            len(visits.effects.get(name, ())),
            f"{len(visits.lines.get(name, ()))} of {len(there[name])}",
            len(visits.refused.get(name, ())),
        )
        for name in taken
    ]
    parts = [f"Coverage of {protocol.name}: {len(taken)} of {numbers.plural(len(names), 'action')} taken"]
    if rows:
        parts.append(aligned(("action", "taken", "parameters", "effects", "lines run", "refused by lines"), rows))
    never = [name for name in names if name not in visits.taken]
    if never:
        parts.append(_list("Never taken:", never))
    not_run = _not_run(protocol, visits)
    if taken and not_run:
        heading = f"Lines of actions that were taken, which no step has run: {len(not_run):,}"
        parts.append(_list(heading, not_run[:MOST_LINES]))
        if len(not_run) > MOST_LINES:
            parts[-1] += f"\n  and {len(not_run) - MOST_LINES:,} more"
    passed_over = {
        place: [option for option, count in options.items() if not count] for place, options in visits.choices.items()
    }
    if any(passed_over.values()):
        options = [f"{place}\n    {_some(of)}" for place, of in passed_over.items() if of]
        parts.append(_list("Options of choices that no step has taken:", options))
    if space is not None:
        parts += _of_space(space)
    return "\n\n".join(parts)


MOST_LINES = 20
"""The most untaken lines and options that the text lists."""


def _list(heading: str, items: Sequence[str]) -> str:
    return "\n".join([heading, *(f"  {item}" for item in items)])


def _some(options: Sequence[str]) -> str:
    return ", ".join(options[:MOST_LINES]) + (
        f", and {len(options) - MOST_LINES:,} more" if len(options) > MOST_LINES else ""
    )


def _places(protocol: type[Protocol]) -> dict[str, list[str]]:
    """The statements of each action, in order."""
    ran = LineTracer(protocol)
    return {
        action: list(dict.fromkeys(ran.place(line) for line in lines)) for action, lines in lines_of(protocol).items()
    }


def _not_run(protocol: type[Protocol], visits: Visits) -> list[str]:
    """The statements of taken actions that no step of any action has run."""
    ran = {place for lines in visits.lines.values() for place in lines}
    of_taken = dict.fromkeys(
        place for action, places in _places(protocol).items() if action in visits.taken for place in places
    )
    return [place for place in of_taken if place not in ran]


def _of_space(space: SpaceCoverage) -> list[str]:
    steps = f", {_share(space.taken, space.steps, 'step')}" if space.steps is not None else ""
    whose = (
        f"{space.fitting:,} of {numbers.plural(space.traces, 'trace')} {'stays' if space.traces == 1 else 'stay'}"
        " within its bounds"
    )
    parts = [
        f"The state space {space.directory}, of {space.title}: {whose}.\nVisited:"
        f" {_share(space.visited, space.states, 'state')}{steps}."
    ]
    if any(level.visited for level in space.levels):
        rows = [
            (level.depth, level.states, level.visited, numbers.percent(level.visited, level.states))
            for level in space.levels
        ]
        parts.append(aligned(("depth", "states", "visited", ""), rows))
    if space.actions:
        what = "steps" if space.steps is not None else "discovering steps"
        parts.append(
            aligned(("action", "parameters", "taken", what, "taken"), [tuple(action) for action in space.actions])
        )
    parts += _never(
        [step for step in space.never if not step.elsewhere],
        "Steps that no trace has taken anywhere, the nearest to what was visited first:",
    )
    parts += _never(
        [step for step in space.never if step.elsewhere],
        "Steps that no trace has taken from states that were visited, but elsewhere:",
    )
    return parts


def _never(steps: Sequence[Unvisited], title: str) -> list[str]:
    if not steps:
        return []
    rows = [(u.distance, f"{u.action}({u.parameters})", u.depth, u.fingerprint) for u in steps]
    return [title, aligned(("steps away", "step", "depth", "fingerprint"), rows)]


def _requirements(protocol: type[Protocol], visits: Visits) -> dict[str, dict[str, int]]:
    """For each line with a ``require``: how many steps passed it, and how often it refused one."""
    ran, found = LineTracer(protocol), dict[str, dict[str, int]]()
    for action, lines in lines_of(protocol).items():
        refused = visits.refused.get(action, {})
        for line in lines:
            if line.is_require:
                counts = found.setdefault(place := ran.place(line), {"passed": 0, "refused": 0})
                counts["passed"] += visits.lines.get(action, {}).get(place, 0)
                counts["refused"] += sum(count for where, count in refused.items() if _is_at(where, line))
    return found


def _is_at(where: str, line: Line) -> bool:
    """Whether a refusal, whose file is named by a relative path, was at a statement."""
    file, _, rest = where.partition(".py:")
    number = rest.partition(":")[0]
    return (
        number.isdigit()
        and line.first <= int(number) <= line.last
        and os.path.basename(line.file) == f"{os.path.basename(file)}.py"
    )


def _share(part: int, whole: int, what: str) -> str:
    return f"{part:,} of {numbers.plural(whole, what)} ({numbers.percent(part, whole)})"


def data(protocol: type[Protocol], visits: Visits, space: SpaceCoverage | None) -> dict[str, Any]:
    """The same as JSON data."""
    names = [declared.name for declared in protocol.declared("action")]
    found: dict[str, Any] = {
        **msgspec.to_builtins(visits),
        "never_taken": [name for name in names if name not in visits.taken],
    }
    found["never_run"] = _not_run(protocol, visits)
    found["requirements"] = _requirements(protocol, visits)
    if space is not None:
        found["state_space"] = {
            **space._asdict(),
            **{name: [row._asdict() for row in getattr(space, name)] for name in ("levels", "actions", "never")},
        }
    return found
