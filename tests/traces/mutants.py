"""Changes by one to traces of any protocol, drawn at random: a field of an event, or an event that is dropped, doubled,
swapped with the next, or taken from another trace.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

import msgspec
from traces.tampering import renumbered

from fencepost.traces.validation.conformance import Event

HOW = ("altered", "altered", "altered", "dropped", "doubled", "swapped", "spliced")
"""The kinds of changes. Most trials alter a field, because there are more fields than events."""


class Mutant(msgspec.Struct, frozen=True):
    """A trace with one change. ``event``: the one that was changed, dropped, or put in. ``field``: the path of the
    changed field with the change, as in ``version +1``; of a swap, the action of the next event.
    """

    how: str
    event: Event
    field: str
    events: list[Event]

    @property
    def title(self) -> str:
        """What was done to which event."""
        return f"{self.what} of event {self.event.seq} of {self.event.node} {self.event.incarnation}"

    @property
    def what(self) -> str:
        """The kind of the change: what was done, to which action, and to which field of it."""
        return f"{self.how} {self.event.action} {self.field}".strip()


class Known:
    """The strings that each field has in some traces. A changed string is one that the field has elsewhere."""

    def __init__(self, traces: Sequence[Sequence[Event]]) -> None:
        found: dict[str, set[str]] = defaultdict(set)
        for events in traces:
            for event in events:
                for path, value in _leaves(event.parameters, ""):
                    if isinstance(value, str):
                        found[path].add(value)
        self.strings = {path: sorted(values) for path, values in found.items()}


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, held in value.items():
            yield from _leaves(held, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for held in value:
            yield from _leaves(held, f"{path}.each")
    else:
        yield path, value


def mutant(random: Random, traces: Sequence[Sequence[Event]], known: Known) -> Mutant | None:
    """A change to one of these traces. None if the change that is drawn cannot be made there."""
    number = random.randrange(len(traces))
    events, how = traces[number], random.choice(HOW)
    place = random.choice([place for place, event in enumerate(events) if event.subject is not None])
    event = events[place]
    match how:
        case "altered":
            wrong = list(changes(event.parameters, known))
            if not wrong:
                return None
            field, parameters = random.choice(wrong)
            changed = msgspec.structs.replace(event, parameters=parameters)
            return Mutant(how, event, field, [*events[:place], changed, *events[place + 1 :]])
        case "dropped":
            return Mutant(how, event, "", renumbered([*events[:place], *events[place + 1 :]]))
        case "doubled":
            return Mutant(how, event, "", renumbered([*events[: place + 1], *events[place:]]))
        case "swapped":
            return _swapped(events, place)
        case _:
            return _spliced(random, number, traces, place)


def _swapped(events: Sequence[Event], place: int) -> Mutant | None:
    """The event and the next one of its node, which is about something, have changed places."""
    one = events[place]
    rest = (
        (other, each)
        for other, each in enumerate(events[place + 1 :], place + 1)
        if each.subject is not None and (each.node, each.incarnation) == (one.node, one.incarnation)
    )
    other, next_one = next(rest, (0, one))
    if (one.action, one.parameters) == (next_one.action, next_one.parameters):
        return None
    changed = [*events]
    changed[place], changed[other] = next_one, one
    return Mutant("swapped", one, next_one.action, renumbered(changed))


def _spliced(random: Random, number: int, traces: Sequence[Sequence[Event]], place: int) -> Mutant | None:
    """An event of another trace, of a node of the same name, is put in after the event."""
    before = traces[number][place]
    others = [
        event
        for events in (*traces[:number], *traces[number + 1 :])
        for event in events
        if event.subject is not None and event.node == before.node
    ]
    if not others:
        return None
    taken = random.choice(others)
    spliced = msgspec.structs.replace(taken, incarnation=before.incarnation, subject=before.subject, actor=before.actor)
    events = [*traces[number][: place + 1], spliced, *traces[number][place + 1 :]]
    return Mutant("spliced", taken, "", renumbered(events))


def changes(value: Any, known: Known, path: str = "") -> Iterator[tuple[str, Any]]:
    """All changes by one to a value, each with the path of what is changed and how."""
    match value:
        case bool():
            yield f"{path} ({value})", not value
        case int():
            yield f"{path} +1", value + 1
            yield f"{path} -1", value - 1
        case str():
            others = known.strings.get(path, [])
            if len(others) > 1:
                yield f"{path} other", others[(others.index(value) + 1) % len(others)]
            yield f"{path} unknown", f"{value}9"
        case list():
            for place, held in enumerate(value):
                for field, changed in changes(held, known, f"{path}.each"):
                    yield field, [*value[:place], changed, *value[place + 1 :]]
            if value:
                yield f"{path} fewer", value[:-1]
                yield f"{path} more", [*value, value[-1]]
        case Mapping():
            for name, held in value.items():
                for field, changed in changes(held, known, f"{path}.{name}" if path else name):
                    yield field, {**value, name: changed}
