"""Requests that arrived at a bookie together, as one object each. Its role and its driver use them where they do not
use rows (:mod:`fencepost.ledger.kernels.requests`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fencepost.ledger.messages import AddEntry, AddEntryResponse, ReadEntry, ReadEntryResponse, Request
from fencepost.ledger.records import EntryAdded
from fencepost.ledger.rules.codes import Code

_set = object.__setattr__
"""Sets attributes of frozen objects in ``__init__``."""


def is_plain_read(request: Request) -> bool:
    """Whether a request reads one entry without a fence or a long poll. Such reads are looked up together."""
    return type(request) is ReadEntry and request.entry_id >= 0 and not request.fence and request.previous_lac is None


@dataclass(frozen=True, eq=False, repr=False, init=False, slots=True)
class AddRequests:
    """Numbered adds of one ledger with the same master key and flags
    (:class:`fencepost.ledger.roles.interface.Adds`).
    """

    requests: Sequence[tuple[int, AddEntry]]
    ledger: int
    master_key: bytes
    recovery: bool
    deferred_sync: bool
    lac: int
    low: int
    high: int

    def __init__(self, requests: Sequence[tuple[int, AddEntry]]) -> None:
        like = requests[0][1]
        low = high = like.entry_id
        lac = like.lac
        for _, request in requests[1:]:
            low, high, lac = min(low, request.entry_id), max(high, request.entry_id), max(lac, request.lac)
        _set(self, "requests", requests)
        _set(self, "ledger", like.ledger)
        _set(self, "master_key", like.master_key)
        _set(self, "recovery", like.recovery)
        _set(self, "deferred_sync", like.deferred_sync)
        _set(self, "lac", lac)
        _set(self, "low", low)
        _set(self, "high", high)

    def __repr__(self) -> str:
        return f"adds of {len(self)} entries from {self.low} to {self.high}"

    def __len__(self) -> int:
        return len(self.requests)

    def entry_ids(self) -> list[int]:
        """The ids of the added entries, in order."""
        return [request.entry_id for _, request in self.requests]

    def last_place(self, entry_id: int) -> int:
        """The index of the last add of an entry, -1 if there is none."""
        ids = self.entry_ids()
        return len(ids) - 1 - ids[::-1].index(entry_id) if entry_id in ids else -1

    def responses(self, code: Code) -> Iterator[tuple[int, AddEntryResponse]]:
        """The response to each add, with its number."""
        for txn, request in self.requests:
            yield txn, AddEntryResponse(self.ledger, request.entry_id, code)

    def records(self) -> Iterator[EntryAdded]:
        """The journal records of the adds."""
        for _, each in self.requests:
            yield EntryAdded(each.ledger, each.entry_id, each.lac, each.body, each.recovery)


def grouped(requests: Sequence[tuple[int, AddEntry]]) -> Iterator[tuple[AddRequests, ...]]:
    """Group numbered adds of a connection into events (:class:`fencepost.ledger.roles.interface.AddsArrived`): by
    ledger, in the order of each ledger's first add. Another key or other flags for the same ledger start a new
    event.
    """
    groups: dict[int, list[tuple[int, AddEntry]]] = {}
    for numbered in requests:
        add = numbered[1]
        group = groups.setdefault(add.ledger, [])
        if group and _of_all(group[0][1]) != _of_all(add):
            yield _of_each(groups)
            groups = {add.ledger: (group := [])}
        group.append(numbered)
    if groups:
        yield _of_each(groups)


def _of_each(groups: dict[int, list[tuple[int, AddEntry]]]) -> tuple[AddRequests, ...]:
    return tuple(AddRequests(tuple(group)) for group in groups.values())


def _of_all(add: AddEntry) -> tuple[bytes, bool, bool]:
    """What the adds of a group share besides the ledger."""
    return add.master_key, add.recovery, add.deferred_sync


class FoundRequests:
    """Plain reads of one ledger with the same code (:class:`fencepost.ledger.roles.interface.Reads`): the number of
    each, its entry id, and the body found.
    """

    __slots__ = ("high", "ledger", "low", "reads")

    def __init__(self, ledger: int, reads: Sequence[tuple[int, int, bytes | None]]) -> None:
        self.ledger = ledger
        self.reads = reads
        self.low = self.high = reads[0][1]
        if len(reads) > 1:
            ids = self.entry_ids()
            self.low, self.high = min(ids), max(ids)

    def __repr__(self) -> str:
        return f"reads of {len(self)} entries from {self.low} to {self.high}"

    def __len__(self) -> int:
        return len(self.reads)

    def entry_ids(self) -> list[int]:
        """The ids of the entries, in order."""
        return [entry_id for _, entry_id, _ in self.reads]

    def only(self, which: list[int]) -> FoundRequests:
        """The reads at some indices."""
        return FoundRequests(self.ledger, [self.reads[place] for place in which])

    def responses(self, code: Code, lac: int) -> Iterator[tuple[int, ReadEntryResponse]]:
        """The response to each read, with its number."""
        for txn, entry_id, body in self.reads:
            yield txn, ReadEntryResponse(self.ledger, entry_id, code, lac, body if code is Code.OK else None)
