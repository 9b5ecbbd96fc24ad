"""What can be done to a trace so that it tells of something that has not happened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from fencepost.traces.validation.conformance import Event

OTHER_CODES = {"OK": "NO_ENTRY", "NO_ENTRY": "OK", "NO_LEDGER": "OK", "FENCED": "UNAUTHORIZED"}


@dataclass(frozen=True)
class Tampered:
    """A trace with one change: what was done, to which event, and to which of its fields."""

    how: str
    event: Event
    field: str
    events: list[Event]

    @property
    def what(self) -> tuple[str, str, str]:
        """The kind of the change."""
        return self.how, self.event.action, self.field


def renumbered(events: Sequence[Event]) -> list[Event]:
    """Renumber the events of each incarnation in their order, so that no gap reveals the change."""
    numbers: dict[tuple[str, int], int] = {}
    found = []
    for event in events:
        key = event.node, event.incarnation
        numbers[key] = numbers.get(key, 0) + 1
        found.append(event if event.seq == numbers[key] else msgspec.structs.replace(event, seq=numbers[key]))
    return found


def removed(events: Sequence[Event], place: int) -> Tampered:
    """An event is missing."""
    return Tampered("removed", events[place], "", renumbered([*events[:place], *events[place + 1 :]]))


def doubled(events: Sequence[Event], place: int) -> Tampered:
    """An event is recorded twice."""
    return Tampered("doubled", events[place], "", renumbered([*events[: place + 1], *events[place:]]))


def cut(events: Sequence[Event], place: int) -> Tampered:
    """An incarnation ends before an event."""
    key, seq = (events[place].node, events[place].incarnation), events[place].seq
    return Tampered("cut", events[place], "", [e for e in events if (e.node, e.incarnation) != key or e.seq < seq])


def swapped(events: Sequence[Event], place: int) -> Tampered | None:
    """An event and the next one of its incarnation that is about the ledger have changed places."""
    one = events[place]
    for other in range(place + 1, len(events)):
        if (events[other].node, events[other].incarnation) != (one.node, one.incarnation):
            return None
        if events[other].subject is not None:
            if events[other].action == one.action and events[other].parameters == one.parameters:
                return None
            changed = [*events]
            changed[place], changed[other] = events[other], one
            return Tampered("swapped", one, events[other].action, renumbered(changed))
    return None


def altered(events: Sequence[Event], place: int, bookies: Sequence[str]) -> Iterator[Tampered]:
    """One field of an event has another value."""
    event = events[place]
    for name, value in event.parameters.items():
        for field, wrong in _wrong(name, value, bookies):
            changed = msgspec.structs.replace(event, parameters={**event.parameters, name: wrong})
            yield Tampered("altered", event, field, [*events[:place], changed, *events[place + 1 :]])


def _wrong(name: str, value: Any, bookies: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Other values for a field, and their names."""
    if value is None and name != "lac":
        return
    match name:
        case "entries" if value:
            yield "entries (later)", [[first + 1, last + 1] for first, last in value]
            if value[-1][1] > value[-1][0]:
                yield "entries (fewer)", [*value[:-1], [value[-1][0], value[-1][1] - 1]]
            yield "entries (more)", [*value[:-1], [value[-1][0], value[-1][1] + 1]]
        case "entry":
            yield "entry (later)", value + 1
        case "lac":
            yield "lac (higher)", 0 if value is None else value + 1
            if value is not None and value >= 0:
                yield "lac (lower)", value - 1
        case "version":
            yield "version (later)", value + 1
            yield "version (earlier)", value - 1
        case "code" if value in OTHER_CODES:
            yield f"code ({value})", OTHER_CODES[value]
        case "bookie":
            yield "bookie", bookies[(bookies.index(value) + 1) % len(bookies)]
        case "found" | "fence" | "recovery" | "written":
            yield f"{name} ({value})", not value
        case "ensemble" | "bookies" | "before":
            if len(value) > 1:
                yield f"{name} (order)", [*value[1:], value[0]]
            stranger = next((b for b in bookies if b not in value), None)
            if stranger is not None and value:
                yield f"{name} (another)", [stranger, *value[1:]]
        case "metadata":
            yield from _wrong_metadata(value, bookies)


def _wrong_metadata(metadata: Mapping[str, Any], bookies: Sequence[str]) -> Iterator[tuple[str, Any]]:
    if metadata["state"] == "CLOSED":
        yield "metadata (last entry)", {**metadata, "last_entry": metadata["last_entry"] + 1}
        yield "metadata (open)", {**metadata, "state": "OPEN", "last_entry": -1}
    else:
        closed = {**metadata, "state": "CLOSED", "last_entry": 0}
        yield "metadata (closed)", closed
        yield "metadata (state)", {**metadata, "state": "OPEN" if metadata["state"] == "IN_RECOVERY" else "IN_RECOVERY"}
    fragments = metadata["fragments"]
    first, ensemble = fragments[-1]
    yield "metadata (first entry)", {**metadata, "fragments": [*fragments[:-1], [first + 1, ensemble]]}
    stranger = next((b for b in bookies if b not in ensemble), None)
    if stranger is not None:
        yield "metadata (ensemble)", {**metadata, "fragments": [*fragments[:-1], [first, [stranger, *ensemble[1:]]]]}
    if len(fragments) > 1:
        yield "metadata (fragments)", {**metadata, "fragments": fragments[1:]}


def tampered(events: Sequence[Event]) -> Iterator[Tampered]:
    """All changes to a trace."""
    bookies = sorted(
        {event.node for event in events if event.action == "started" and event.parameters["kind"] == "bookie"}
    )
    for place, event in enumerate(events):
        if event.subject is None:
            continue
        yield removed(events, place)
        yield doubled(events, place)
        yield cut(events, place)
        other = swapped(events, place)
        if other is not None:
            yield other
        yield from altered(events, place, bookies)
