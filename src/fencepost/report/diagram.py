"""The model of a sequence diagram of a behaviour: its participants, the messages between them, and their changes.

It does not depend on the output: `svg` draws it, `sequence` writes it as text. A coordinate is a :class:`Point`: the
number of a step (the initial state is 0) and a row within that step, from 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fencepost.behaviours import Trace
from fencepost.behaviours.behaviour import Step
from fencepost.behaviours.formatting import Change, changed
from fencepost.behaviours.messages import DROPPED, RECEIVED, At, Passage, passages
from fencepost.language.context import Event
from fencepost.language.network import NetworkShape
from fencepost.language.seam import Model, language_of
from fencepost.language.values import ModelValue, show

CHANGED = "changed"
"""The fate of an arrow that is not a message but a change to a variable that another participant holds."""


@dataclass(frozen=True, order=True)
class Point:
    """A row of a step."""

    step: int
    row: int


@dataclass(frozen=True)
class Lifeline:
    """A participant: an actor or an end of messages; with ``holds``, only the holder of a variable."""

    name: str
    holds: bool = False


@dataclass(frozen=True)
class Arrow:
    """A message, or (``fate`` is ``changed``) a change by ``source`` to a variable that ``dest`` holds.

    ``arrives``: None if it never arrives. ``fate``: as in :class:`fencepost.behaviours.messages.Passage`.
    """

    source: str
    dest: str
    lines: tuple[str, ...]
    fate: str
    leaves: Point
    arrives: Point | None = None

    @property
    def text(self) -> str:
        """The arrow's text on one line."""
        return ", ".join(self.lines)


@dataclass(frozen=True)
class Note:
    """A note at one lifeline, or over the whole diagram if ``over`` is empty."""

    over: tuple[str, ...]
    lines: tuple[str, ...]
    at: Point


@dataclass(frozen=True)
class Moment:
    """One step: its number, its title, its actor, and the number of its rows in the diagram."""

    number: int
    title: str
    by: str | None
    rows: int


@dataclass(frozen=True)
class Diagram:
    """A sequence diagram. ``moments``: the steps in order. The initial state is one of them only if messages are in
    flight in it.

    ``loop``: of a lasso; the steps with larger numbers repeat forever, and without such steps nothing more happens.
    ``first``: the number of the first state; not 0 if earlier steps are left out.
    """

    lifelines: tuple[Lifeline, ...]
    moments: tuple[Moment, ...]
    arrows: tuple[Arrow, ...]
    notes: tuple[Note, ...]
    loop: int | None = None
    first: int = 0


def diagram(trace: Trace, first: int = 0) -> Diagram:
    """The sequence diagram of a behaviour. ``first``: the number of its initial state, if it is the end of a longer
    behaviour.
    """
    drawn = _Drawing(trace).finish()
    return _later(drawn, first) if first else drawn


def _later(drawn: Diagram, by: int) -> Diagram:
    """The diagram renumbered, as the end of a behaviour whose first ``by`` steps are left out."""

    def moved(point: Point) -> Point:
        return Point(point.step + by, point.row)

    return Diagram(
        drawn.lifelines,
        tuple(
            replace(m, number=m.number + by, title=m.title if m.number else f"in flight after step {by}")
            for m in drawn.moments
        ),
        tuple(
            replace(a, leaves=moved(a.leaves), arrives=None if a.arrives is None else moved(a.arrives))
            for a in drawn.arrows
        ),
        tuple(replace(note, at=moved(note.at)) for note in drawn.notes),
        None if drawn.loop is None else drawn.loop + by,
        by,
    )


class _Drawing:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.holders = holders(trace.protocol)
        self.passages = passages(trace)
        self.sent = {p.sent: p for p in self.passages if p.sent.event >= 0}
        self.arrived = {p.ended: p for p in self.passages if p.fate == RECEIVED and p.ended is not None}
        self.leaves: dict[int, Point] = {}  # by the identity of the passage
        self.arrives: dict[int, Point] = {}
        self.changed: list[Arrow] = []
        self.notes: list[Note] = []
        self.moments: list[Moment] = []

    def finish(self) -> Diagram:
        early = [p for p in self.passages if p.sent.step == 0]
        for row, passage in enumerate(early):
            self.leaves[id(passage)] = Point(0, row)
        if early:
            self.moments.append(Moment(0, "in flight from the start", None, len(early)))
        for number, step in enumerate(self.trace.steps, 1):
            self._step(number, step)
        messages = [
            Arrow(p.source, p.dest, (p.text,), p.fate, self.leaves[id(p)], self.arrives.get(id(p)))
            for p in self.passages
        ]
        arrows = tuple(sorted([*messages, *self.changed], key=lambda a: a.leaves))
        return Diagram(self._lifelines(), tuple(self.moments), arrows, tuple(self.notes), self.trace.loop)

    def _step(self, number: int, step: Step) -> None:
        """Lay out one step: the messages it received, its changes, then the messages it sent."""
        lines: list[str] = []
        sends: list[Passage] = []
        row = 0
        for place, event in enumerate(step.events):
            at = At(number, place)
            sent, arrived = self.sent.get(at), self.arrived.get(at)
            if sent is not None:
                sends.append(sent)
            elif arrived is not None:
                self.arrives[id(arrived)] = Point(number, row)
                row += 1
            else:
                lines.append(event_text(event))
        lines += [
            f"dropped: {p.text} from {p.source}" for p in self.passages if p.fate == DROPPED and p.ended == At(number)
        ]
        held: dict[str, list[str]] = {}
        owners: set[str | None] = set()
        for change in changed(self.trace.protocol, step.changes):
            holder = self.holders.get(change.slot.path[0])
            owners.add(holder)
            if holder is None or step.by in (None, holder):
                lines.append(short(change, step.by))
            else:
                held.setdefault(holder, []).append(short(change, None))
        if lines or not (row or sends or held):
            # A change without an actor is noted at its holder, or over the whole diagram.
            where = step.by if step.by is not None else owners.pop() if len(owners) == 1 else None
            over = (where,) if where is not None else ()
            self.notes.append(Note(over, tuple(lines) or ("nothing changes",), Point(number, row)))
            row += 1
        for holder, texts in held.items():
            at_holder = Point(number, row)
            self.changed.append(Arrow(str(step.by), holder, tuple(texts), CHANGED, at_holder, at_holder))
            row += 1
        for passage in sends:
            self.leaves[id(passage)] = Point(number, row)
            row += 1
        self.moments.append(Moment(number, step.title, step.by, row))

    def _lifelines(self) -> tuple[Lifeline, ...]:
        """The participants: peers (members of one constant) together and in their order, holders last."""
        seen: dict[str, None] = {}
        for step in self.trace.steps:
            for name in [step.by, *(show(end) for e in step.events for end in (e.source, e.dest))]:
                if name is not None:
                    seen.setdefault(name)
        for passage in self.passages:  # messages in flight from the start
            seen.setdefault(passage.source)
            seen.setdefault(passage.dest)
        ordered: dict[str, None] = {}
        for name in seen:
            for peer in peers(self.trace.protocol, name):
                if peer in seen:
                    ordered.setdefault(peer)
        places = [arrow.dest for arrow in self.changed] + [name for note in self.notes for name in note.over]
        only_hold = dict.fromkeys(name for name in places if name not in seen)
        return tuple([Lifeline(n) for n in ordered] + [Lifeline(n, holds=True) for n in only_hold])


def holders(protocol: Model) -> dict[str, str]:
    """The holder of each variable that was declared with ``held_by``."""
    return dict(language_of(protocol).lifelines(protocol))


def peers(protocol: Model, name: str) -> list[str]:
    """The peers of ``name``, in order: the members of its constant, else the largest group of ends of one kind of
    message; ``name`` alone if there are none.
    """
    constants = [v for v in protocol.constants.values() if isinstance(v, tuple)]
    networks = [shape for shape in protocol.shapes.values() if isinstance(shape, NetworkShape)]
    ends = [group for network in networks for route in network.routes.values() for group in route]
    for groups in (constants, sorted(ends, key=len, reverse=True)):
        for group in groups:
            if any(isinstance(v, ModelValue) and v.name == name for v in group):
                return [show(v) for v in group]
    return [name]


def event_text(event: Event) -> str:
    """An event without an arrow, in words."""
    if event.kind == "timeout":
        return f"timeout: {event.text} to {show(event.dest)} was lost"
    if event.kind == "receive":
        return f"receives {event.text} from {show(event.source)}"
    return event.text


def short(change: Change, actor: str | None) -> str:
    """A change as shown at the lifeline of ``actor``: without the path to its own part of the state
    (``bookie.b1.fenced``).
    """
    names = [part if isinstance(part, str) else show(part) for part in change.slot.path]
    if actor in names[:-1]:
        names = names[names.index(str(actor)) + 1 :]
    elif len(names) > 1 and names[-1] == actor:
        names = names[:-1]
    return f"{'.'.join(names)}: {change.text}"
