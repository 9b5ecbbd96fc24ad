"""The story of a run, step by step: as text, and as a sequence diagram like that of a counterexample.

A step is one event at one process, with the fields it changed and the messages it sent. Steps are recorded only for
replays.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from fencepost.behaviours.messages import IN_FLIGHT, RECEIVED
from fencepost.language.values import Record, show
from fencepost.ledger.roles.interface import Effect, Journal, Result, Stop
from fencepost.report.diagram import Arrow, Diagram, Lifeline, Moment, Note, Point

LONGEST = 100
"""The most characters of a value; longer ones are shortened in the middle."""

SHOWN = (Journal, Result, Stop)
"""The effects that are shown, besides messages."""

HIDDEN = frozenset(
    {
        "cluster",
        "process",
        "txns",
        "txn",
        "number",
        "requests",
        "sent",
        "digests",
        "lookups",
        "waiting",
        "unsynced",
        "batches",
        "masks",
        "numbers",
        "loops",
        "bookie",
    }
)
"""Fields of roles that are not shown, because they only match answers to requests."""

Key = tuple[Any, int, bool]
"""A message in flight: its connection or session, its number, and whether it goes to the server."""


@dataclass
class Step:
    """One event. ``lines``: the changes."""

    time: int
    who: str
    title: str
    lines: list[str] = field(default_factory=list)
    received: list[tuple[str, str]] = field(default_factory=list)
    sent: list[tuple[str, str]] = field(default_factory=list)

    @property
    def quiet(self) -> bool:
        """Whether the step received, changed and sent nothing."""
        return not (self.lines or self.received or self.sent)


@dataclass
class Flight:
    """A message, with the points where it is sent and received, each a step and a row."""

    source: str
    dest: str
    text: str
    leaves: Point
    arrives: Point | None = None


class Story:
    """The steps of a run."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.flights: list[Flight] = []
        self._flying: dict[Key, Flight] = {}
        self._arrived: list[Flight] = []
        self._fields: dict[str, dict[str, str]] = {}

    # -- during the run -----------------------------------------------------------------------------------------------

    def received(self, key: Key) -> None:
        """A message arrives. It belongs to the next step."""
        flight = self._flying.pop(key, None)
        if flight is not None:
            self._arrived.append(flight)

    def happens(self, time: int, who: str, event: object) -> None:
        """A step begins."""
        if self.steps and self.steps[-1].quiet:
            self.steps.pop()
        step = Step(time, who, event if isinstance(event, str) else words(event))
        self.steps.append(step)
        for flight in self._arrived:
            flight.arrives = Point(len(self.steps), len(step.received))
            step.received.append((flight.source, flight.text))
        self._arrived.clear()

    def add_line(self, line: str) -> None:
        """Add a line to the current step."""
        self.steps[-1].lines.append(line)

    def became(self, who: str, fields: Mapping[str, Any], effects: Sequence[Effect]) -> None:
        """Record a role's fields and effects at the end of a step."""
        new = dict(_parts(fields, 2))
        old = self._fields.get(who)
        self._fields[who] = new
        if old is not None:
            for name in dict.fromkeys((*new, *old)):
                if name not in old:
                    self.add_line(f"{name}: {new[name]}")
                elif name not in new:
                    self.add_line(f"{name}: gone")
                elif old[name] != new[name]:
                    self.add_line(f"{name}: {old[name]} → {new[name]}")
        for effect in effects:
            if type(effect) in SHOWN:
                self.add_line(words(effect))

    def restarted(self, who: str) -> None:
        """A process restarts."""
        self._fields.pop(who, None)

    def sent(self, source: str, dest: str, key: Key, message: object) -> None:
        """The current step sends a message."""
        step = self.steps[-1]
        text = words(message)
        flight = Flight(source, dest, text, Point(len(self.steps), len(step.received) + 1 + len(step.sent)))
        step.sent.append((dest, text))
        self.flights.append(flight)
        self._flying[key] = flight

    # -- after the run ------------------------------------------------------------------------------------------------

    def text(self) -> Iterator[str]:
        """The steps, a few lines each."""
        for number, step in enumerate(self.steps, 1):
            if step.quiet and number < len(self.steps):
                continue
            title = f"received {step.received[0][1]} from {step.received[0][0]}" if step.received else step.title
            yield f"{number:>5}  {step.time / 1000:>10.3f} ms  {step.who:<10}  {title}"
            for line in step.lines:
                yield f"{'':33}{line}"
            for dest, text in step.sent:
                yield f"{'':33}sent → {dest}  {text}"

    def diagram(self) -> Diagram:
        """The run as a sequence diagram."""
        seen = dict.fromkeys([*(s.who for s in self.steps), *(end for f in self.flights for end in (f.source, f.dest))])
        moments, notes = [], []
        for number, step in enumerate(self.steps, 1):
            over = (step.who,)
            rows = len(step.received) + 1 + len(step.sent)
            lines = tuple(step.lines) or (() if step.received or step.sent else (step.title,))
            if lines:
                notes.append(Note(over, lines, Point(number, len(step.received))))
            moments.append(Moment(number, f"{step.time / 1000:.3f} ms {step.title}", step.who, rows))
        arrows = tuple(
            Arrow(f.source, f.dest, (f.text,), RECEIVED if f.arrives else IN_FLIGHT, f.leaves, f.arrives)
            for f in self.flights
        )
        return Diagram(tuple(Lifeline(name) for name in sorted(seen)), tuple(moments), arrows, tuple(notes))


def _parts(fields: Mapping[Any, Any], depth: int, path: str = "") -> Iterator[tuple[str, str]]:
    """Fields as text; a value that has fields of its own, field by field."""
    for name, value in fields.items():
        if name in HIDDEN:
            continue
        own = f"{path}{brief(name)}"
        if depth and isinstance(value, dict):
            yield from _parts(value, depth - 1, f"{own}.")
        elif depth and isinstance(value, msgspec.Struct) and not value.__struct_config__.frozen:
            yield from _parts({n: getattr(value, n) for n in value.__struct_fields__}, depth - 1, f"{own}.")
        elif depth and hasattr(value, "__dict__") and not isinstance(value, (Record, enum.Enum)):
            yield from _parts(vars(value), depth - 1, f"{own}.")
        else:
            yield own, brief(value)


def words(thing: object) -> str:
    """A message or an event as text: its kind, and its fields that are set."""
    if not isinstance(thing, msgspec.Struct):
        return brief(thing)
    if "__repr__" in vars(type(thing)):  # it defines its own text
        return repr(thing)
    fields = ((name, getattr(thing, name)) for name in thing.__struct_fields__)
    said = ", ".join(f"{name}={brief(value)}" for name, value in fields if value is not None and value is not False)
    return f"{type(thing).__name__}({said})"


def brief(value: object) -> str:
    """A value as short text."""
    if isinstance(value, msgspec.Struct):
        text = words(value)
    elif isinstance(value, bytes):
        text = f"{len(value)} bytes"
    elif isinstance(value, (set, frozenset)):
        text = f"{{{', '.join(sorted(map(brief, value)))}}}"
    elif isinstance(value, Mapping):
        text = f"{{{', '.join(f'{brief(k)}: {brief(v)}' for k, v in value.items())}}}"
    elif isinstance(value, (list, tuple)):
        text = f"({', '.join(map(brief, value))})"
    elif hasattr(value, "name") and hasattr(value, "value"):
        text = str(value.name)
    elif isinstance(value, (int, str, type(None))):
        text = str(value)
    else:
        text = show(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}…{text[-LONGEST // 2 :]}"
