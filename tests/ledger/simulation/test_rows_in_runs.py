"""Simulated bookies that keep their entries as rows: every run is the same as with objects."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from fencepost.ledger.bookie.lookups import LookOne
from fencepost.ledger.disk import ledger_store
from fencepost.ledger.disk.storage import Storage
from fencepost.ledger.disk.write_cache import RowsWriteCache, WriteCache
from fencepost.ledger.kernels.entries import EntryRows
from fencepost.ledger.kernels.results import CODE, ENTRY_ID
from fencepost.ledger.roles.interface import Found, LookUp
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.simulation import bookie
from fencepost.ledger.simulation.case import drawn
from fencepost.ledger.simulation.workload import simulate


class Rows(RowsWriteCache):
    """Counts memory, and lists ledgers, as its plain twin does, so that the same happens at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.met: list[int] = []
        self.counted = 0

    def put_rows(self, rows: EntryRows) -> None:
        super().put_rows(rows)
        for ledger, _, _, _, size in rows.table.tolist():
            self.counted += size + 100
            if ledger not in self.met:
                self.met.append(ledger)
        self.size = self.counted

    def drop(self, ledger: int) -> None:
        super().drop(ledger)
        if ledger in self.met:
            self.met.remove(ledger)

    def ledgers(self) -> list[int]:
        return self.met


class Process(bookie.BookieProcess):
    """Reads by rows, and damages what is in memory there."""

    def flip_in_memory(self, ledger: int, entry_id: int, where: float) -> None:
        assert isinstance(self.ledgers.cache, Rows)
        cache = self.ledgers.cache
        body = bytearray(cache.get(ledger, entry_id) or b"")
        bit = int(where * len(body) * 8)
        body[bit // 8] ^= 1 << bit % 8
        cache.put(ledger, entry_id, bytes(body))
        cache.size = cache.counted = cache.counted - len(body) - 100
        self.environment.happened(self.name, f"bit {bit} of entry {entry_id} is flipped in memory")

    def _find(self, look: LookOne) -> None:
        if (
            type(look) is not LookUp
            or self.role.lookups[look.number].connection not in self.environment.network.connections
        ):
            super()._find(look)
            return
        rows = self.storage.read_rows(np.array([look.ledger]), np.array([look.entry_id]))
        code = Code(rows.table[0, CODE])
        self.deliver(Found(look.number, code, int(rows.table[0, ENTRY_ID]), rows.body(0) if code is Code.OK else None))


def rows_of(compiled: bool, before: WriteCache | None = None) -> WriteCache:
    assert compiled
    return Rows()


@pytest.mark.parametrize("profile", ["", "beyond"])
def test_the_same_seed_is_the_same_run_with_rows(monkeypatch: pytest.MonkeyPatch, profile: str) -> None:
    cases = [drawn(seed, profile) if profile else drawn(seed) for seed in range(1, 9)]
    plain = [simulate(case) for case in cases]
    monkeypatch.setattr(ledger_store, "write_cache", rows_of)
    monkeypatch.setattr(bookie, "Storage", partial(Storage, compiled=lambda: True))
    monkeypatch.setattr("fencepost.ledger.simulation.cluster.BookieProcess", Process)
    assert [(outcome.trace_hash, outcome.violation) for outcome in map(simulate, cases)] == [
        (outcome.trace_hash, outcome.violation) for outcome in plain
    ]
