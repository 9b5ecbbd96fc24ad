"""A behaviour as the text of a sequence diagram: for sequencediagram.org, and for Mermaid."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from fencepost.behaviours import Trace
from fencepost.behaviours.messages import IN_FLIGHT, RECEIVED, REPEATED
from fencepost.report.diagram import CHANGED, Arrow, Diagram, Moment, Note, diagram


@dataclass(frozen=True)
class Format:
    """How a diagram is written. ``head``: its first line, if any; ``solid`` and ``dashed``: arrows; ``newline``: within
    a text; ``escape``: of a text on one line; ``names``: the identifiers of participants; ``participant``: the line for
    an identifier and what is shown.
    """

    head: str
    solid: str
    dashed: str
    newline: str
    escape: Callable[[str], str]
    names: Callable[[list[str]], dict[str, str]]
    participant: Callable[[str, str], str]


def sequence(trace: Trace, verdict: str | None = None) -> str:
    """The behaviour in the format of sequencediagram.org: one line per participant, then one per message, change and
    note.

    A message stands where it is received; a lost one (``w1--xb1``) where it is sent; one in flight at the end is
    dashed. A step without messages between participants is an arrow from its actor to itself. The loop of a lasso is
    framed. ``verdict``: a last note over all participants.
    """
    return written(diagram(trace), verdict)


def mermaid(trace: Trace, verdict: str | None = None) -> str:
    """The same for Mermaid, which GitHub and GitLab draw in Markdown. "" if there are no participants."""
    drawn = diagram(trace)
    return written(drawn, verdict, format=MERMAID) if drawn.lifelines else ""


def written(
    drawn: Diagram,
    verdict: str | None = None,
    stand_for: Mapping[str, str] = MappingProxyType({}),
    format: Format | None = None,
) -> str:
    """A diagram in a format, by default that of sequencediagram.org. ``stand_for``: real names of participants."""
    format = format or SEQUENCE_DIAGRAM_ORG
    names = format.names([line.name for line in drawn.lifelines])
    found = [format.head] if format.head else []
    for line in drawn.lifelines:
        shown = f"{line.name}: {stand_for[line.name]}" if line.name in stand_for else line.name
        found.append(format.participant(names[line.name], shown))
    for moment in drawn.moments:
        if drawn.loop is not None and moment.number == drawn.loop + 1:
            found.append("loop for ever")
        found += _moment(drawn, moment, names, format)
    if drawn.loop is not None and any(moment.number > drawn.loop for moment in drawn.moments):
        found.append("end")
    elif drawn.loop is not None and names:
        found.append(f"note over {_everyone(names)}: nothing more happens, for ever")
    if verdict is not None and names:
        found.append(f"note over {_everyone(names)}: {_text(verdict, format)}")
    return "\n".join(found) + "\n"


def _moment(drawn: Diagram, moment: Moment, names: dict[str, str], format: Format) -> list[str]:
    rows: list[tuple[int, str]] = []
    notes: list[Note] = [n for n in drawn.notes if n.at.step == moment.number]
    passed = False
    for arrow in drawn.arrows:
        shown = arrow.arrives if arrow.fate == RECEIVED and arrow.arrives is not None else arrow.leaves
        passed = passed or arrow.leaves.step == moment.number or shown.step == moment.number
        if shown.step == moment.number:
            rows.append((shown.row, _arrow(arrow, names, format)))
    for note in notes:
        lines = format.newline.join(_text(line, format) for line in note.lines)
        if passed or moment.by is None or not note.over:
            over = ",".join(names[n] for n in note.over) or _everyone(names)
            title = [] if passed else [_text(moment.title, format)]
            if over:
                rows.append((note.at.row, f"note over {over}: " + format.newline.join([*title, lines])))
        else:
            actor = names[note.over[0]]
            text = f"{_text(moment.title, format)}{format.newline}{lines}"
            rows.append((note.at.row, f"{actor}{format.solid}{actor}: {text}"))
    return [text for _, text in sorted(rows, key=lambda row: row[0])]


def _arrow(arrow: Arrow, names: dict[str, str], format: Format) -> str:
    source, dest = names[arrow.source], names[arrow.dest]
    text = format.newline.join(_text(line.removesuffix("()"), format) for line in arrow.lines)
    if arrow.fate in (RECEIVED, CHANGED, REPEATED):
        return f"{source}{format.solid}{dest}: {text}"
    if arrow.fate == IN_FLIGHT:
        return f"{source}{format.dashed}{dest}: {text} (in flight)"
    return f"{source}--x{dest}: {text}"


def _everyone(names: dict[str, str]) -> str:
    listed = list(names.values())
    return ",".join(dict.fromkeys([*listed[:1], *listed[-1:]]))


def _text(text: str, format: Format) -> str:
    return format.newline.join(format.escape(line) for line in text.split("\n"))


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
    return re.sub(r"(\*\*|//|__|--|\+\+|~~)", r"\\\1", text.replace("\\", "\\\\"))


def _participant(alias: str, shown: str) -> str:
    quoted = shown.replace('"', "'")
    return f"participant {alias}" if alias == shown else f'participant "{quoted}" as {alias}'


SEQUENCE_DIAGRAM_ORG = Format("", "->", "-->", "\\n", _escape, _identifiers, _participant)


def _entities(text: str) -> str:
    """Everything that may mean something to Mermaid, as the number of its character."""
    return re.sub(r"[^\w .,:()=+*/'|→⟨⟩-]", lambda found: f"#{ord(found[0])};", text)


MERMAID = Format(
    "sequenceDiagram",
    "->>",
    "-->>",
    "<br/>",
    _entities,
    lambda names: {name: f"p{number}" for number, name in enumerate(names, 1)},  # a name could be a word of Mermaid
    lambda alias, shown: f"participant {alias} as {_entities(shown)}",
)
