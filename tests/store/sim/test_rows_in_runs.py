"""Simulated bookies that have their entries as rows: every run is the same as with objects."""

from __future__ import annotations

import numpy as np
import pytest

from fencepost.store.disk import ledger_store
from fencepost.store.disk.collection import Collection
from fencepost.store.disk.ledger_store import LedgerStore
from fencepost.store.disk.write_cache import RowsWriteCache, WriteCache
from fencepost.store.roles.interface import Found, LookUp
from fencepost.store.rows.found import CODE, ENTRY_ID
from fencepost.store.rules.codes import Code
from fencepost.store.sim import bookie
from fencepost.store.sim.case import drawn
from fencepost.store.sim.workload import simulate


class Rows(RowsWriteCache):
    """Counts memory, and lists ledgers, as its plain twin does, so that the same happens at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.met: list[int] = []
        self.counted = 0

    def put(self, ledger: int, entry_id: int, body: bytes) -> None:
        super().put(ledger, entry_id, body)
        self.counted += len(body) + 100
        self.size = self.counted
        if ledger not in self.met:
            self.met.append(ledger)

    def drop(self, ledger: int) -> None:
        super().drop(ledger)
        if ledger in self.met:
            self.met.remove(ledger)

    def ledgers(self) -> list[int]:
        return self.met


class Process(bookie.BookieProcess):
    """Reads by rows, and damages what is in memory there."""

    def flip_in_memory(self, ledger: int, entry_id: int, where: float) -> None:
        assert self.ledgers is not None and isinstance(self.ledgers.cache, Rows)
        cache = self.ledgers.cache
        body = bytearray(cache.get(ledger, entry_id) or b"")
        bit = int(where * len(body) * 8)
        body[bit // 8] ^= 1 << bit % 8
        cache.put(ledger, entry_id, bytes(body))
        cache.size = cache.counted = cache.counted - len(body) - 100
        self.environment.happened(self.name, f"bit {bit} of entry {entry_id} is flipped in memory")

    def _read(self, start: int, look_up: LookUp) -> None:
        if self.alive and self.starts == start:
            assert self.ledgers is not None
            rows = self.ledgers.read_rows(np.array([look_up.ledger]), np.array([look_up.entry_id]))
            code = Code(rows.table[0, CODE])
            self.deliver(
                Found(look_up.number, code, int(rows.table[0, ENTRY_ID]), rows.body(0) if code is Code.OK else None)
            )


def rows_of(compiled: bool, before: WriteCache | None = None) -> WriteCache:
    assert compiled
    return Rows()


@pytest.mark.parametrize("profile", ["", "beyond"])
def test_the_same_seed_is_the_same_run_with_rows(monkeypatch: pytest.MonkeyPatch, profile: str) -> None:
    cases = [drawn(seed, profile) if profile else drawn(seed) for seed in range(1, 9)]
    plain = [simulate(case) for case in cases]
    monkeypatch.setattr(ledger_store, "write_cache", rows_of)
    monkeypatch.setattr(bookie, "LedgerStore", lambda logs: LedgerStore(logs, lambda: True))
    monkeypatch.setattr(bookie, "Collection", lambda logs: Collection(logs, lambda: True))
    monkeypatch.setattr("fencepost.store.sim.cluster.BookieProcess", Process)
    assert [(outcome.trace_hash, outcome.violation) for outcome in map(simulate, cases)] == [
        (outcome.trace_hash, outcome.violation) for outcome in plain
    ]
