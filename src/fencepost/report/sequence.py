"""A behaviour in the text format of sequencediagram.org."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from fencepost.behaviours import Trace
from fencepost.behaviours.messages import IN_FLIGHT, RECEIVED, REPEATED
from fencepost.report.diagram import CHANGED, Arrow, Diagram, Moment, Note, diagram


def sequence(trace: Trace, verdict: str | None = None) -> str:
    """The behaviour in the format of sequencediagram.org: one line per participant, then one per message, change and
    note.

    A message stands where it is received; a lost one (``w1--xb1``) where it is sent; one in flight at the end is
    dashed. A step without messages between participants is an arrow from its actor to itself. The loop of a lasso is
    framed. ``verdict``: a last note over all participants.
    """
    return written(diagram(trace), verdict)


def written(drawn: Diagram, verdict: str | None = None, stand_for: Mapping[str, str] = MappingProxyType({})) -> str:
    """A diagram in this format. ``stand_for``: real names of participants."""
    names = _identifiers([line.name for line in drawn.lifelines])
    found = []
    for line in drawn.lifelines:
        alias = names[line.name]
        shown = f"{line.name}: {stand_for[line.name]}" if line.name in stand_for else line.name
        quoted = shown.replace('"', "'")
        found.append(f"participant {alias}" if alias == shown else f'participant "{quoted}" as {alias}')
    for moment in drawn.moments:
        if drawn.loop is not None and moment.number == drawn.loop + 1:
            found.append("loop for ever")
        found += _moment(drawn, moment, names)
    if drawn.loop is not None and any(moment.number > drawn.loop for moment in drawn.moments):
        found.append("end")
    elif drawn.loop is not None and names:
        found.append(f"note over {_everyone(names)}: nothing more happens, for ever")
    if verdict is not None and names:
        found.append(f"note over {_everyone(names)}: {_escape(verdict)}")
    return "\n".join(found) + "\n"


def _moment(drawn: Diagram, moment: Moment, names: dict[str, str]) -> list[str]:
    rows: list[tuple[int, str]] = []
    notes: list[Note] = [n for n in drawn.notes if n.at.step == moment.number]
    passed = False
    for arrow in drawn.arrows:
        shown = arrow.arrives if arrow.fate == RECEIVED and arrow.arrives is not None else arrow.leaves
        passed = passed or arrow.leaves.step == moment.number or shown.step == moment.number
        if shown.step == moment.number:
            rows.append((shown.row, _arrow(arrow, names)))
    for note in notes:
        lines = "\\n".join(map(_escape, note.lines))
        if passed or moment.by is None or not note.over:
            over = ",".join(names[n] for n in note.over) or _everyone(names)
            title = [] if passed else [_escape(moment.title)]
            if over:
                rows.append((note.at.row, f"note over {over}: " + "\\n".join([*title, lines])))
        else:
            actor = names[note.over[0]]
            rows.append((note.at.row, f"{actor}->{actor}: {_escape(moment.title)}\\n{lines}"))
    return [text for _, text in sorted(rows, key=lambda row: row[0])]


def _arrow(arrow: Arrow, names: dict[str, str]) -> str:
    source, dest = names[arrow.source], names[arrow.dest]
    text = "\\n".join(_escape(line.removesuffix("()")) for line in arrow.lines)
    if arrow.fate in (RECEIVED, CHANGED, REPEATED):
        return f"{source}->{dest}: {text}"
    if arrow.fate == IN_FLIGHT:
        return f"{source}-->{dest}: {text} (in flight)"
    return f"{source}--x{dest}: {text}"


def _everyone(names: dict[str, str]) -> str:
    listed = list(names.values())
    return ",".join(dict.fromkeys([*listed[:1], *listed[-1:]]))


def _identifiers(names: list[str]) -> dict[str, str]:
    """The identifier of each participant: its name if that is a word, else a unique alias."""
    found = {name: name for name in names if re.fullmatch(r"\w+", name)}
    for name in names:
        if name not in found:
            alias = stem = re.sub(r"\W+", "_", name).strip("_") or "participant"
            number = 1
            while alias in found.values():
                number += 1
                alias = f"{stem}_{number}"
            found[name] = alias
    return {name: found[name] for name in names}


def _escape(text: str) -> str:
    """Escape doubled marks, which style text (``**bold**``), with a backslash."""
    escaped = re.sub(r"(\*\*|//|__|--|\+\+|~~)", r"\\\1", text.replace("\\", "\\\\"))
    return escaped.replace("\n", "\\n")
