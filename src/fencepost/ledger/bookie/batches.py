"""Batches of requests that arrived together, by compiled loops: rows of their frames, the events for the role, and the
bytes of its answers. Sockets, storage and clock belong to the server or the simulator.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fencepost.ledger.bookie.inbox import Memory
from fencepost.ledger.kernels.entries import EntryRows
from fencepost.ledger.kernels.requests import AddBatch, ReadBatch, ReadResults, by_ledger_and_code
from fencepost.ledger.kernels.results import CODE, LookupResults
from fencepost.ledger.roles.interface import Adds, ReadsFound
from fencepost.ledger.rules.codes import Code

ROWS = 4_096
"""The most requests that are turned into rows at once."""

LARGE = 16 * 1024
"""The size in bytes above which sending a body in place is faster than copying it next to others."""

_SEED = int.from_bytes(os.urandom(8), signed=True)


class ArrivedAdds:
    """Adds offered to the role. Their frames are in ``memory``, and their rows in a table, in ``order``."""

    __slots__ = ("_loops", "_memory", "_order", "_table", "adds")

    def __init__(self, loops: Any, memory: Memory, table: Any, order: Any, adds: tuple[AddBatch, ...]) -> None:
        self.adds = adds
        self._loops, self._memory, self._table, self._order = loops, memory, table, order

    def entries(self, taken: Sequence[Adds]) -> EntryRows:
        """The entries of the adds that the role has taken, in the form that journal and storage use."""
        order, adds = self._order, [each for each in taken if type(each) is AddBatch]
        if sum(map(len, adds)) < len(order):
            order = np.concatenate([order[each.first : each.first + len(each)] for each in adds])
        size, recovery = sum(each.size for each in adds), any(each.recovery for each in adds)
        rows: EntryRows = self._loops.lay_out(self._memory.array, self._table, order, size, recovery)
        return rows


class Batches:
    """Rows of requests, and the working memory of the loops. ``loops``: :mod:`fencepost.ledger.kernels.bookie`."""

    def __init__(self, loops: Any) -> None:
        self.loops = loops
        self.table = np.zeros((ROWS, loops.COLUMNS), np.int64)
        self._groups = np.zeros((ROWS, loops.GROUP_COLUMNS), np.int64)
        self._slots = np.full(2 * ROWS, -1, np.int64)
        self._places = np.zeros(ROWS, np.int64)
        self._order = np.zeros(ROWS, np.int64)

    def adds(self, memory: Memory, first: int, stop: int) -> Iterator[ArrivedAdds]:
        """The adds in some rows, grouped by ledger for the role. Finish with each before taking the next."""
        loops, table = self.loops, self.table
        while first < stop:
            groups, after = loops.group(
                memory.array, table, first, stop, _SEED, self._slots, self._groups, self._places, self._order
            )
            order = self._order[: after - first]
            requests = np.empty((after - first, 3), np.int64)
            loops.ids(table, order, requests)
            adds = tuple(
                AddBatch(
                    ledger,
                    bytes(memory.view[key : key + key_size]),
                    bool(flags & loops.RECOVERY),
                    bool(flags & loops.DEFERRED_SYNC),
                    lac,
                    requests[start:end],
                    low,
                    high,
                    start,
                    size,
                )
                for ledger, flags, key, key_size, lac, low, high, start, end, size in self._groups[:groups].tolist()
            )
            yield ArrivedAdds(loops, memory, table, order, adds)
            first = after

    def reads(self, first: int, stop: int) -> NDArray[np.int64]:
        """The plain reads in some rows: their numbers, entries and ledgers."""
        requests = np.empty((stop - first, 3), np.int64)
        self.loops.ids(self.table, np.arange(first, stop), requests)
        return requests

    def found(self, reads: ReadBatch, found: LookupResults) -> tuple[list[ReadsFound], int, int]:
        """The events for the results of reads, the number of missing entries, and the bytes of the others."""
        requests, table = reads.requests, found.table
        low, high, size, missing, is_one = self.loops.look_over(requests, table)
        if not is_one:
            some = by_ledger_and_code(reads, found)
            return [ReadsFound(reads.number, ledger, code, each) for ledger, code, each in some], missing, size
        if missing:
            return [], missing, size
        every = ReadResults(requests, np.arange(len(requests)), found, low, high, size)
        return [ReadsFound(reads.number, int(requests[0, 2]), Code(int(table[0, CODE])), every)], 0, size

    def answers_to_adds(self, adds: Sequence[Adds], code: Code, codec: Any) -> memoryview:
        """The frames that give all these adds the same answer."""
        loops, end = self.loops, 0
        out = Memory(sum(map(len, adds)) * loops.ANSWER)
        for each in adds:
            assert type(each) is AddBatch
            end = loops.answer_adds(out.array, end, each.requests, each.ledger, codec.number_of(code), codec.VERSION)
        return out.view[:end]

    def answers_to_reads(self, reads: ReadResults, code: Code, lac: int, codec: Any) -> list[memoryview]:
        """The frames of the answers to reads, in pieces: large bodies are sent in place."""
        loops, found, places, count = self.loops, reads.found, reads.places, len(reads)
        is_ok = code is Code.OK
        are_large = is_ok and reads.size >= count * LARGE
        cuts = np.empty(count if are_large else 0, np.int64)
        out = Memory(count * loops.ANSWER + (reads.size if is_ok and not are_large else 0))
        end = loops.answer_reads(
            out.array, 0, reads.requests, places, found.table, codec.number_of(code), lac, codec.VERSION, cuts
        )
        pieces, start = list[memoryview](), 0
        for cut, body in zip(cuts.tolist(), found.views(places) if are_large else (), strict=True):
            pieces += [out.view[start:cut], body]
            start = cut
        return [*pieces, out.view[start:end]]
