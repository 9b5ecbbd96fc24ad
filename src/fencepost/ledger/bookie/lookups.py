"""The look-ups that a bookie's role requests, and their results. Threads belong to the server."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fencepost.ledger.disk.storage import Storage
from fencepost.ledger.entries import runs_of
from fencepost.ledger.kernels.requests import ReadBatch, no_results, read_results
from fencepost.ledger.roles.interface import (
    BatchFound,
    Event,
    FindRuns,
    Found,
    LookUp,
    LookUpBatch,
    Measure,
    Measured,
    ReadsFound,
    RunsFound,
)
from fencepost.ledger.roles.requests import FoundRequests
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.reading import batch


class PlainRead(NamedTuple):
    """A plain read that arrived alone, with its request number ``txn``. ``number``: of its look-up."""

    number: int
    ledger: int
    entry_id: int
    txn: int

    def found(self, code: Code, body: bytes | None) -> ReadsFound:
        """The event for its result."""
        return ReadsFound(
            self.number, self.ledger, code, FoundRequests(self.ledger, ((self.txn, self.entry_id, body),))
        )


LookOne = LookUp | LookUpBatch | FindRuns | Measure | PlainRead
Look = LookOne | ReadBatch


def find(storage: Storage, look: LookOne) -> Event:
    """Look something up. Raises the errors of the disk."""
    if type(look) is LookUp:
        return Found(look.number, *storage.look_up(look.ledger, look.entry_id))
    if type(look) is PlainRead:
        code, _, body = storage.look_up(look.ledger, look.entry_id)
        return look.found(code, body)
    if type(look) is LookUpBatch:
        look_up = storage.following(look.ledger, look.entry_id, look.max_count, look.max_size)
        return BatchFound(look.number, *batch(look_up, look.entry_id, look.max_count, look.max_size))
    if type(look) is FindRuns:
        return RunsFound(look.number, Code.OK, runs_of(storage.entries_of(look.ledger)))
    room = storage.room()[1]
    return Measured(look.number, room.total, room.free)


def found_event(look: LookUp | PlainRead, code: Code, body: bytes) -> Event:
    """The event for a look-up of one entry that was found."""
    return look.found(code, body) if type(look) is PlainRead else Found(look.number, code, look.entry_id, body)


def failed_event(look: Look) -> Event:
    """The event for a look-up that failed, or whose client is gone."""
    if type(look) is ReadBatch:
        found = no_results(look, Code.IO_ERROR)
        return ReadsFound(
            look.number, int(look.ledgers[0]), Code.IO_ERROR, read_results(look.requests, np.arange(len(look)), found)
        )
    if type(look) is PlainRead:
        return look.found(Code.IO_ERROR, None)
    if type(look) is LookUp:
        return Found(look.number, Code.IO_ERROR, look.entry_id)
    if type(look) is LookUpBatch:
        return BatchFound(look.number, Code.IO_ERROR)
    return RunsFound(look.number, Code.IO_ERROR) if type(look) is FindRuns else Measured(look.number, 0, 0)


def size_of(found: Event) -> int:
    """The bytes of the entries found."""
    if type(found) is Found:
        return len(found.body or b"")
    if type(found) is ReadsFound:
        reads: FoundRequests = found.reads  # type: ignore[assignment]
        return sum(len(body or b"") for _, _, body in reads.reads)
    return sum(map(len, found.bodies)) if type(found) is BatchFound else 0
