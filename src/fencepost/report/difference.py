"""The difference between two state spaces, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fencepost.behaviours import Trace
from fencepost.behaviours.json import states
from fencepost.report.tables import aligned
from fencepost.report.text import trace_story
from fencepost.states.manifest import constants_that_differ
from fencepost.text.numbers import plural

FEW = 4
"""The most uncompared parts of the state that are named."""

if TYPE_CHECKING:
    from fencepost.states.diff import Difference, Side


def story(found: Difference, traces: Sequence[Trace | None], width: int) -> str:
    """The difference as text. ``traces``: for each side, the shortest behaviour to a state that the other side lacks,
    or None.
    """
    one, other = found.sides
    parts = []
    for side, mate in (found.sides, found.sides[::-1]):
        differing = constants_that_differ(side.space.manifest.shown, mate.space.manifest.shown)
        shown = "  ".join(f"{name}={side.space.manifest.shown.get(name, '(none)')}" for name in differing)
        parts.append(
            [str(side.space.directory), f"{side.space.manifest.protocol}  {shown}".strip(), side.distinct, side.only]
        )
    lines = [
        aligned(["", "protocol", "different states", "only there"], parts),
        "",
        f"{plural(found.common, 'state')} in both.",
    ]
    if found.left_out:
        more = f" and {plural(len(found.left_out) - FEW, 'other')}" if len(found.left_out) > FEW else ""
        lines.append(f"Not compared, since only one of them has it: {', '.join(found.left_out[:FEW])}{more}.")
    for side in found.sides:
        if not side.space.manifest.complete:
            lines.append(
                f"{side.space.directory} is not complete: {side.space.manifest.ended or 'the search ended early'}."
            )
    for side, mate, trace in ((one, other, traces[0]), (other, one, traces[1])):
        lines += ["", *_only(side, mate, trace, width)]
    return "\n".join(lines).rstrip("\n")


def _only(side: Side, mate: Side, trace: Trace | None, width: int) -> list[str]:
    here, there = side.space.directory, mate.space.directory
    if trace is None:
        return [f"Every state of {here} is one of {there}."]
    lines = [f"{plural(side.only, 'state')} of {here} {'is' if side.only == 1 else 'are'} not in {there}."]
    if side.values:
        lines += [
            "Values that only these have:",
            *(f"  {name}: {', '.join(map(str, values))}" for name, values in side.values.items()),
        ]
    lines += [
        f"The nearest of them, after {plural(len(trace.steps), 'step')}:",
        "",
        trace_story(trace, width=width).rstrip("\n"),
    ]
    return lines


def data(found: Difference, traces: Sequence[Trace | None]) -> dict[str, Any]:
    """The difference as plain dicts and lists. ``sides``: for each its ``directory``, ``protocol``, ``constants`` as
    text, ``complete``, ``states`` (distinct ones, projected on the common parts), ``only`` (the number that the other
    side lacks), ``values`` that only those have, and the shortest ``trace`` to one of them.
    """
    return {
        "common": found.common,
        "left_out": list(found.left_out),
        "sides": [
            {
                "directory": str(side.space.directory),
                "protocol": side.space.manifest.protocol,
                "constants": side.space.manifest.shown,
                "complete": side.space.manifest.complete,
                "states": side.distinct,
                "only": side.only,
                "values": side.values,
                "trace": None if trace is None else states(trace),
            }
            for side, trace in zip(found.sides, traces, strict=True)
        ],
    }
