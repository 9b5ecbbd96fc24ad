"""Batches of requests that arrived together, as a bookie's role and its driver exchange them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fencepost.ledger.kernels.results import CODE, COLUMNS, ENTRY_ID, MISS, SIZE, LookupResults
from fencepost.ledger.rules.codes import Code


@dataclass(slots=True, eq=False)
class AddBatch:
    """Adds of one ledger (:class:`fencepost.ledger.roles.interface.Adds`).

    ``requests``: int64, shape (adds, 3): request number, entry id, ledger. ``low`` and ``high``: the lowest and highest
    id. ``first``: the index of the first among all requests that arrived together. ``size``: the bytes of all bodies.
    """

    ledger: int
    master_key: bytes
    recovery: bool
    deferred_sync: bool
    lac: int
    requests: NDArray[np.int64]
    low: int
    high: int
    first: int
    size: int

    def __len__(self) -> int:
        return len(self.requests)

    def entry_ids(self) -> Any:
        """The entry ids, in order."""
        return self.requests[:, 1]

    def last_place(self, entry_id: int) -> int:
        """The index of the last add of an entry, -1 if there is none."""
        if not self.low <= entry_id <= self.high:
            return -1
        places = np.flatnonzero(self.requests[:, 1] == entry_id)
        return int(places[-1]) if len(places) else -1


@dataclass(slots=True, eq=False)
class ReadBatch:
    """Reads that arrived together and wait for storage, under one number. ``requests``: int64, shape (reads, 3):
    request number, entry id, ledger.
    """

    number: int
    requests: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.requests)

    @property
    def ledgers(self) -> NDArray[np.int64]:
        """The ledger of each read."""
        return self.requests[:, 2]

    @property
    def entry_ids(self) -> NDArray[np.int64]:
        """The entry id of each read."""
        return self.requests[:, 1]


@dataclass(slots=True, eq=False)
class ReadResults:
    """Reads of one ledger that got the same code (:class:`fencepost.ledger.roles.interface.Reads`). ``places`` are
    their indices in both ``requests`` and ``found``. ``low`` and ``high``: the lowest and highest id. ``size``: the
    bytes of all bodies.
    """

    requests: NDArray[np.int64]
    places: NDArray[np.int64]
    found: LookupResults
    low: int
    high: int
    size: int

    def __len__(self) -> int:
        return len(self.places)

    def entry_ids(self) -> list[int]:
        """The entry ids, in order."""
        ids: list[int] = self.requests[self.places, 1].tolist()
        return ids

    def only(self, which: list[int]) -> ReadResults:
        """The reads at some of these indices."""
        return read_results(self.requests, self.places[which], self.found)


def read_results(requests: NDArray[np.int64], places: NDArray[np.int64], found: LookupResults) -> ReadResults:
    """Make a :class:`ReadResults` of the reads at ``places``."""
    ids = requests[places, 1]
    return ReadResults(requests, places, found, int(ids.min()), int(ids.max()), int(found.table[places, SIZE].sum()))


def by_ledger_and_code(reads: ReadBatch, found: LookupResults) -> list[tuple[int, Code, ReadResults]]:
    """Group the results of reads by ledger and code. Misses are left out."""
    ledgers, codes = reads.ledgers, found.table[:, CODE]
    order = np.lexsort((codes, ledgers))
    changes = (np.diff(ledgers[order]) != 0) | (np.diff(codes[order]) != 0)
    return [
        (int(ledgers[each[0]]), Code(int(codes[each[0]])), read_results(reads.requests, each, found))
        for each in np.split(order, np.flatnonzero(changes) + 1)
        if codes[each[0]] != MISS
    ]


def no_results(reads: ReadBatch, code: Code) -> LookupResults:
    """Results with one code for all reads, and no bodies."""
    table = np.zeros((len(reads), COLUMNS), np.int64)
    table[:, CODE], table[:, ENTRY_ID] = code.value, reads.entry_ids
    return LookupResults(table, ())
