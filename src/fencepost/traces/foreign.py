"""Makes events of the records that other systems wrote.

A conformance says which event a record is (:meth:`fencepost.traces.validation.Conformance.read`). What it leaves out is
filled in here: the names of the run and the node from the file, and the numbers of events from their order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from fencepost.errors import FencepostError, ProtocolRaised, SystemFailure
from fencepost.semantics.authors import brief
from fencepost.traces import records
from fencepost.traces.event import STARTED, TraceError, TraceEvent, named


class ReadEvent(msgspec.Struct, frozen=True):
    """An event that a record of another system reports.

    ``action``, ``subject``, ``parameters``, ``actor``: as in :class:`fencepost.TraceEvent`. Parameters become JSON, so
    a time becomes a text.

    ``run``: by default the name of the folder that holds the file. ``node``: by default the file's name without its
    endings. The events of a node have the order of its records, or that of ``at``, a time on the node's own clock, say:
    anything that can be compared. They are counted in that order, so a missing record is not noticed. ``seq`` says
    their numbers instead, from 1; gaps are then refused. ``incarnation``: by default 1, and one more at each later
    event ``started``; with ``seq``, always 1.

    Raises ``TypeError`` or ``ValueError`` for a value that an event cannot have.
    """

    action: str
    subject: str | None = None
    parameters: Mapping[str, Any] = {}
    node: str = ""
    run: str = ""
    actor: str = ""
    incarnation: int | None = None
    seq: int | None = None
    at: Any = None

    def __post_init__(self) -> None:
        for name in ("action", "subject", "node", "run", "actor"):
            value = getattr(self, name)
            if not isinstance(value, str) and (value is not None or name != "subject"):
                raise TypeError(f"{name} is {value!r}, and no text")
        if not self.action:
            raise ValueError("action is empty")
        if not isinstance(self.parameters, Mapping):
            raise TypeError(f"parameters are {self.parameters!r}, and no dict")
        for name, most in (("incarnation", (1 << 31) - 1), ("seq", (1 << 63) - 1)):
            number = getattr(self, name)
            if number is not None and (type(number) is not int or not 1 <= number <= most):
                raise ValueError(f"{name} is {number!r}, and no number from 1")
        if self.seq is not None and self.at is not None:
            raise ValueError("seq and at both say the order: give one of them")
        if self.at != self.at:
            raise ValueError(f"at is {self.at!r}, which has no place in any order")


Mapped: TypeAlias = "ReadEvent | Iterable[ReadEvent] | None"
"""What a record is: an event, several in their order, or none."""

_Node: TypeAlias = tuple[str, str]
_Given: TypeAlias = tuple[bool, bool, bool]
_Placed: TypeAlias = tuple[Path, str, ReadEvent]


class Foreign:
    """Makes events of records with ``read``. ``name`` is what errors call it.

    ``records``: how many records were read; ``left_out``: how many of them are no events.
    """

    def __init__(self, read: Callable[[Mapping[str, Any]], Mapped], name: str = "read") -> None:
        self.name = name
        self.records = self.left_out = 0
        self._read = read

    def events(self, paths: Iterable[Path]) -> Iterator[tuple[Path, TraceEvent]]:
        """The events of files, each with its file. Those of a node are in order. They are held only where ``seq`` or
        ``at`` says the order.

        Raises :class:`TraceError` if a file cannot be read, and :class:`fencepost.ProtocolRaised` if ``read`` raises or
        returns something else; the message has the file and the line.
        """
        given: dict[_Node, _Given] = {}
        held: dict[_Node, list[_Placed]] = defaultdict(list)
        numbers = _Numbers()
        for path in paths:
            for where, record in records.records(path):
                for node, event in self._named(path, where, record, given, numbers):
                    if event.seq is None and event.at is None:
                        yield path, self._numbered(numbers, node, where, event)
                    else:
                        held[node].append((path, where, event))
        for node, placed in held.items():
            for path, where, event in self._in_order(node, placed):
                yield path, self._numbered(numbers, node, where, event)

    def added(self, path: Path, of: Iterable[records.Placed], begun: Begun) -> Iterator[TraceEvent]:
        """The events of records that were added to a file, in their order. ``begun``: what all files have had so far.

        Raises as :meth:`events`, and :class:`TraceError` for an event whose order its own record does not say.
        """
        for where, record in of:
            for node, event in self._named(path, where, record, begun.given, begun.numbers):
                if event.at is not None:
                    raise TraceError(
                        f"{where}: {self.name} gives a time `at`: events that are followed have the order of their"
                        " records, so leave `at` out"
                    )
                made = self._numbered(begun.numbers, node, where, event)
                key = named(made.run, made.node, made.incarnation)
                if event.seq is not None and made.seq != begun.last[key] + 1:
                    raise TraceError(
                        f"{where}: event {made.seq:,} of {key} comes after event {begun.last[key]:,}: events that are"
                        " followed come in the order of `seq`"
                    )
                begun.last[key] = made.seq
                yield made

    def _named(
        self,
        path: Path,
        where: str,
        record: Mapping[str, Any] | None,
        given: dict[_Node, _Given],
        numbers: _Numbers,
    ) -> Iterator[tuple[_Node, ReadEvent]]:
        """The events of a record, each with its run and its node."""
        self.records += 1
        found = self._mapped(where, record) if record is not None else []
        self.left_out += not found
        for event in found:
            node = (event.run or numbers.run_of(path), event.node or records.stem(path))
            gives = (event.incarnation is not None, event.seq is not None, event.at is not None)
            if given.setdefault(node, gives) != gives:
                raise ProtocolRaised(
                    f"{where}: {self.name} gives this event of node {node[1]} {_names(gives)}, and its first"
                    f" one {_names(given[node])}: all must have the same"
                )
            yield node, event

    def _mapped(self, where: str, record: Mapping[str, Any]) -> list[ReadEvent]:
        try:
            mapped = self._read(record)
            found: list[Any] = (
                [*mapped] if isinstance(mapped, Iterable) and not isinstance(mapped, str | Mapping) else [mapped]
            )
        except (MemoryError, SystemFailure):
            raise
        except (Exception, SystemExit) as error:
            said = str(error) if isinstance(error, FencepostError) else f"raised {brief(error)}"
            raise ProtocolRaised(f"{where}: {self.name} {said}") from error
        events = [each for each in found if each is not None]
        for each in events:
            if not isinstance(each, ReadEvent):
                raise ProtocolRaised(
                    f"{where}: {self.name} returns a value of type {type(each).__name__}: return a ReadEvent, or None"
                )
        return events

    def _in_order(self, node: _Node, placed: list[_Placed]) -> list[_Placed]:
        if placed[0][2].seq is not None:
            return sorted(placed, key=lambda each: (each[2].incarnation or 1, each[2].seq))
        try:
            return sorted(placed, key=lambda each: each[2].at)
        except TypeError as error:
            raise ProtocolRaised(
                f"{self.name} gives events of node {node[1]} (run {node[0]}) times `at` that cannot be compared:"
                f" {error}"
            ) from error

    def _numbered(self, numbers: _Numbers, node: _Node, where: str, event: ReadEvent) -> TraceEvent:
        try:
            parameters = _encode(dict(event.parameters)).decode()
        except (TypeError, ValueError, RecursionError) as error:
            raise ProtocolRaised(f"{where}: the parameters that {self.name} gives are no JSON: {error}") from error
        incarnation, seq = numbers.of(node, event)
        return TraceEvent(*node, incarnation, seq, event.actor, event.action, event.subject, parameters, None)


class _Numbers:
    """The numbers and names that events do not give."""

    def __init__(self) -> None:
        self._incarnations: dict[_Node, int] = {}
        self._last: dict[tuple[_Node, int], int] = defaultdict(int)
        self._runs: dict[Path, str] = {}
        self._folders: dict[str, Path] = {}

    def of(self, node: _Node, event: ReadEvent) -> tuple[int, int]:
        """The incarnation and the number of the next event of a node."""
        if event.seq is not None:
            return event.incarnation or 1, event.seq
        incarnation = event.incarnation
        if incarnation is None:
            incarnation = self._incarnations.setdefault(node, 1)
            if event.action == STARTED and self._last[node, incarnation]:
                incarnation = self._incarnations[node] = incarnation + 1
        self._last[node, incarnation] += 1
        return incarnation, self._last[node, incarnation]

    def run_of(self, path: Path) -> str:
        """The name of the folder that holds a file. Raises :class:`TraceError` if another folder has that name."""
        if path in self._runs:
            return self._runs[path]
        folder = path.resolve().parent
        known = self._folders.setdefault(folder.name, folder)
        if known != folder:
            raise TraceError(
                f"{known} and {folder} would both be the run {folder.name}: rename one, or give each event its run"
            )
        self._runs[path] = folder.name or "run"
        return self._runs[path]


class Begun:
    """What the events of files have had so far, for those that are added."""

    def __init__(self) -> None:
        self.given: dict[_Node, _Given] = {}
        self.numbers = _Numbers()
        self.last: dict[str, int] = defaultdict(int)


def _names(gives: _Given) -> str:
    names = [name for name, is_given in zip(("incarnation", "seq", "at"), gives, strict=True) if is_given]
    return " and ".join(names) or "neither incarnation nor seq nor at"


_encode = msgspec.json.Encoder().encode
