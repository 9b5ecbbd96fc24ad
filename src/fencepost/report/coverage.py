"""What traces have visited of a protocol, as text and as data."""

from __future__ import annotations

from typing import Any

import msgspec

from fencepost.conform.coverage import SpaceCoverage, Visits
from fencepost.report import numbers
from fencepost.report.rows import aligned
from fencepost.spec.protocol import Protocol


def text(protocol: type[Protocol], visits: Visits, space: SpaceCoverage | None) -> str:
    """A table of actions, those that no trace has taken, and the part of a state space that was visited."""
    names = [declared.name for declared in protocol.declared("action")]
    taken = [name for name in names if name in visits.taken]
    rows = [
        (name, visits.taken[name], len(visits.parameters.get(name, ())), len(visits.effects.get(name, ())), len(visits.refused.get(name, ())))
        for name in taken
    ]
    parts = [f"Coverage of {protocol.name}: {len(taken)} of {numbers.plural(len(names), 'action')} taken"]
    if rows:
        parts.append(aligned(("action", "taken", "parameters", "effects", "refused by lines"), rows))
    never = [name for name in names if name not in visits.taken]
    if never:
        parts.append("\n".join(["Never taken:", *(f"  {name}" for name in never)]))
    if space is not None:
        parts += _of_space(space)
    return "\n\n".join(parts)


def _of_space(space: SpaceCoverage) -> list[str]:
    steps = f", {_share(space.taken, space.steps, 'step')}" if space.steps is not None else ""
    whose = f"{space.fitting:,} of {numbers.plural(space.traces, 'trace')} {'stays' if space.traces == 1 else 'stay'} within its bounds"
    parts = [f"The state space {space.directory}, of {space.title}: {whose}.\nVisited: {_share(space.visited, space.states, 'state')}{steps}."]
    if space.never:
        rows = [(u.distance, f"{u.action}({u.parameters})", u.depth, u.fingerprint) for u in space.never]
        parts.append("Steps that no trace has taken, the nearest to what was visited first:")
        parts.append(aligned(("steps away", "step", "depth", "fingerprint"), rows))
    return parts


def _share(part: int, whole: int, what: str) -> str:
    return f"{part:,} of {numbers.plural(whole, what)} ({numbers.percent(part, whole)})"


def data(protocol: type[Protocol], visits: Visits, space: SpaceCoverage | None) -> dict[str, Any]:
    """The same for programs."""
    names = [declared.name for declared in protocol.declared("action")]
    found: dict[str, Any] = {**msgspec.to_builtins(visits), "never_taken": [name for name in names if name not in visits.taken]}
    if space is not None:
        found["state_space"] = {**space._asdict(), "never": [unvisited._asdict() for unvisited in space.never]}
    return found
