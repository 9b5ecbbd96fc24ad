"""Splits runs into traces. The events of one subject in one run are one trace, the unit of validation."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from sys import intern
from typing import TypeVar

import msgspec

from fencepost.errors import OptionError
from fencepost.traces import event as row
from fencepost.traces.packed import BLOCK, KEPT, SHORT, Chosen, Packed, Packing
from fencepost.traces.validation.conformance import Event

Row = TypeVar("Row")

RunAndSubject = tuple[str, str]
"""The name of a trace: run and subject. The subject is empty if no event of the run has one."""


_ROWS: msgspec.msgpack.Decoder[list[row.TraceEvent]] = msgspec.msgpack.Decoder(list[row.TraceEvent])
_encode = msgspec.msgpack.Encoder().encode


class Rows(Packing[row.TraceEvent]):
    """Rows as MessagePack."""

    @staticmethod
    def dump(values: list[row.TraceEvent]) -> bytes:
        """See :class:`Packing`."""
        return _encode(values)

    @staticmethod
    def load(data: bytes) -> list[row.TraceEvent]:
        """See :class:`Packing`."""
        return _ROWS.decode(data)


class Events(Packing[Event]):
    """The events of packed rows. Raises :class:`fencepost.traces.TraceError` for parameters that are not a JSON
    object.
    """

    @staticmethod
    def dump(values: list[Event]) -> bytes:
        """Events are packed as rows."""
        raise NotImplementedError

    @staticmethod
    def load(data: bytes) -> list[Event]:
        """See :class:`Packing`."""
        return Events.plain(_ROWS.decode(data))

    @staticmethod
    def plain(values: list[row.TraceEvent]) -> list[Event]:
        """See :class:`Packing`. Events share their names, as the rows of a file do."""
        return [
            Event(
                intern(each.node), each.incarnation, each.seq, intern(each.action),
                each.subject if each.subject is None else intern(each.subject), each.parameter_values(),
                intern(each.actor),
            )
            for each in values
        ]  # fmt: skip


class Traces:
    """Events grouped by run and subject. An event about all subjects belongs to every trace of its run, and so does one
    with an action of ``heeds`` about a subject of another kind.

    ``runs`` and ``subjects``: the ones to keep, empty for all. ``kind``: a regular expression; events of subjects that
    do not match it are left out. ``still_needed``: chooses, of the events about all subjects, those that verdicts
    depend on; by default all of them. ``count``: the events that are kept.
    """

    def __init__(
        self,
        events: Iterable[row.TraceEvent],
        runs: Collection[str] = (),
        subjects: Collection[str] = (),
        kind: str = ".*",
        heeds: Collection[str] = (),
        still_needed: Callable[[Sequence[Event]], Iterable[Event]] = tuple,
    ) -> None:
        is_known = re.compile(kind, re.DOTALL).fullmatch
        self._runs: dict[str, dict[str | None, Packed[row.TraceEvent]]] = {}
        self._still_needed = still_needed
        self._shared: dict[str, Packed[row.TraceEvent]] = {}
        seen: set[str] = set()
        for event in events:
            seen.add(event.run)
            if runs and event.run not in runs:
                continue
            if event.subject is not None and not is_known(event.subject):
                of = self._runs.setdefault(event.run, {})
                if event.action in heeds:
                    self._rows_of(of, None).append(event)
                continue
            self._rows_of(self._runs.setdefault(event.run, {}), event.subject).append(event)
        must_be_there("run", runs, seen)
        self._wanted = subjects
        self.count = sum(len(rows) for of in self._runs.values() for rows in of.values())
        must_be_there(
            "subject", subjects, {subject for of in self._runs.values() for subject in of if subject is not None}
        )

    @staticmethod
    def _rows_of(of: dict[str | None, Packed[row.TraceEvent]], subject: str | None) -> Packed[row.TraceEvent]:
        rows = of.get(subject)
        if rows is None:
            rows = of[subject] = Packed(Rows, short=BLOCK)
        return rows

    def names(self) -> list[RunAndSubject]:
        """All traces, sorted by name."""
        found = []
        for run, subjects in self._runs.items():
            known = [subject for subject in subjects if subject is not None]
            if not known and not self._wanted:
                found.append((run, ""))
            found += [(run, subject) for subject in known if not self._wanted or subject in self._wanted]
        return sorted(found, key=lambda name: (natural(name[0]), natural(name[1])))

    def events(self, name: RunAndSubject) -> Sequence[Event]:
        """The events of one trace, node by node, each node's in order. Raises :class:`fencepost.traces.TraceError` for
        parameters that are not a JSON object.
        """
        return events_of(self.rows(name))

    def take(self, name: RunAndSubject) -> Packed[row.TraceEvent]:
        """As :meth:`rows`, and lets go of those about its own subject: they can be asked for once."""
        rows = self.rows(name)
        run, subject = name
        self._runs[run].pop(subject, None)
        return rows

    def rows(self, name: RunAndSubject) -> Packed[row.TraceEvent]:
        """The rows of one trace's events: those about all subjects, and those about its own."""
        run, subject = name
        return Packed.joined(Rows, (self._shared_rows(run), self._runs[run].get(subject, Packed(Rows))))

    def _shared_rows(self, run: str) -> Packed[row.TraceEvent]:
        """The needed rows about all subjects of a run."""
        if run not in self._shared:
            of = self._runs[run]
            rows = of.get(None, Packed(Rows))
            self._shared[run] = Packed(Rows, needed(rows, decoded, self._still_needed)) if len(of) > 2 else rows
        return self._shared[run]


def needed(
    rows: Sequence[Row], event_of: Callable[[Row], Event], still_needed: Callable[[Sequence[Event]], Iterable[Event]]
) -> Sequence[Row]:
    """Of the rows about all subjects of a run, those that verdicts depend on, as ``still_needed`` chooses among their
    events. They are in each of its traces, so what is not needed is left out once, not for each. What cannot be decoded
    or chosen is a problem of each trace, so nothing is left out then.
    """
    with suppress(Exception):
        events = [event_of(each) for each in rows]
        places = {event.place for event in still_needed(in_order(events))}
        return [each for each, event in zip(rows, events, strict=True) if event.place in places]
    return rows


def events_of(rows: Iterable[row.TraceEvent]) -> Sequence[Event]:
    """The events of one trace, node by node, each node's in order. Many packed rows are taken from their list, and the
    events are packed too. Raises as :func:`decoded`; packed events do it when they are looked at.
    """
    if not isinstance(rows, Packed) or len(rows) <= SHORT:
        return in_order(map(decoded, rows))
    lives: dict[tuple[str, int], Packed[row.TraceEvent]] = {}
    last: dict[tuple[str, int], int] = {}
    mixed = set[tuple[str, int]]()
    for each in rows.taken():
        life = each.node, each.incarnation
        if life not in lives:
            lives[life] = Packed(Rows, short=BLOCK)
        elif each.seq < last[life]:
            mixed.add(life)
        lives[life].append(each)
        last[life] = each.seq
    for life in mixed:
        lives[life] = Packed(Rows, sorted(lives[life], key=lambda each: each.seq))
    return Packed.joined(Events, (lives[life] for life in sorted(lives)), KEPT + len(lives))


_CHANGES = ("metadata_written", "metadata_deleted")


def decoded(event: row.TraceEvent) -> Event:
    """An event with its parameters as Python values. Raises :class:`fencepost.traces.TraceError` if they are not a JSON
    object.
    """
    return Event(
        event.node, event.incarnation, event.seq, event.action, event.subject, event.parameter_values(), event.actor
    )


def in_order(events: Iterable[Event]) -> list[Event]:
    """Events node by node, each node's in order."""
    return sorted(events, key=lambda event: event.place)


def each_change_once(events: Sequence[Event]) -> Sequence[Event]:
    """The events with each metadata change only once. Every member of a quorum of metadata services traces each change,
    and traces it again when it replays its log after a start. zxid and path identify the change.
    """
    seen: set[tuple[int, str]] = set()
    once = array("q")
    for place, event in enumerate(events):
        if event.action in _CHANGES and "zxid" in event.parameters:
            change = event.parameters["zxid"], event.parameters["path"]
            if change in seen:
                continue
            seen.add(change)
        once.append(place)
    return events if len(once) == len(events) else Chosen(events, once)


def must_be_there(what: str, wanted: Collection[str], present: Collection[str]) -> None:
    """Raises :class:`fencepost.OptionError` if a requested run or subject is in no trace."""
    for name in wanted:
        if name not in present:
            known = sorted(present, key=natural)
            some = (
                f"there are {', '.join(known[:5])}{f' and {len(known) - 5:,} more' if len(known) > 5 else ''}"
                if known
                else "there is none"
            )
            raise OptionError(f"{what} {name} is not in the traces: {some}")


def natural(name: str) -> tuple[int, int, str]:
    """A sort key: numbers in numeric order, before other names."""
    return (0, int(name), "") if name.isascii() and name.isdigit() else (1, 0, name)
