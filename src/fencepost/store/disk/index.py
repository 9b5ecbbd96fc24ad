"""The index: where each entry is, by runs of entries.

A run is entries of one ledger that lie one after another in an entry log. The index is an ordered map from (ledger, first entry id) to
the place of a run, and runs of a ledger never overlap: if entries come between or instead of those of a run that is there, the runs
concerned are cut anew. So the run that may hold an entry is the last one that does not begin after it, and the last entry of a
ledger is that of the last run.

The map is LMDB in a bookie (:mod:`fencepost.store.disk.lmdb_map`) and a sorted list in the simulator.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fencepost.store.disk.checksum import crc32c
from fencepost.store.disk.journal import Damage
from fencepost.store.disk.sections import ENTRY_HEADER, Run, numbers, runs_of

_KEY = struct.Struct(">QQ")
_PLACE = struct.Struct(">IQI")  # entry log, offset, entries; then where each ends, the gaps of their ids if there are any, and a checksum
_CHECKSUM = struct.Struct(">I")
_BIAS = 1 << 63
_LAST = (1 << 63) - 1


class OrderedMap(Protocol):
    """Bytes by bytes, in the order of the keys. It may be read by several threads, and written by one."""

    def floor(self, key: bytes) -> tuple[bytes, bytes] | None:
        """The greatest key that is not above a key, and its value."""
        ...

    def between(self, first: bytes, last: bytes) -> list[tuple[bytes, bytes]]:
        """The keys from ``first`` up to ``last``, both included, with their values."""
        ...

    def write(self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes] = ()) -> None:
        """Delete some keys, and put others, in one step."""
        ...

    def close(self) -> None:
        """No method is called any more."""
        ...


class MemoryMap:
    """An ordered map in memory."""

    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._values: dict[bytes, bytes] = {}

    def floor(self, key: bytes) -> tuple[bytes, bytes] | None:
        at = bisect_right(self._keys, key) - 1
        return (self._keys[at], self._values[self._keys[at]]) if at >= 0 else None

    def between(self, first: bytes, last: bytes) -> list[tuple[bytes, bytes]]:
        keys = self._keys[bisect_left(self._keys, first) : bisect_right(self._keys, last)]
        return [(key, self._values[key]) for key in keys]

    def write(self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes] = ()) -> None:
        for key in deletes:
            del self._values[key]
            del self._keys[bisect_left(self._keys, key)]
        for key, value in puts:
            if key not in self._values:
                insort(self._keys, key)
            self._values[key] = value

    def close(self) -> None:
        self._keys, self._values = [], {}


class Place(NamedTuple):
    """Where an entry is, with its header."""

    log: int
    offset: int
    size: int


class Located(NamedTuple):
    """A run, and where it begins."""

    log: int
    offset: int
    run: Run


class Index:
    """Where entries are. ``live`` counts the bytes of each entry log that the index still points to.

    Raises :class:`fencepost.store.disk.journal.Damage` if what it reads was damaged in the map.
    """

    def __init__(self, places: OrderedMap) -> None:
        self._map = places
        self.live: Counter[int] = Counter()

    # -- reading ------------------------------------------------------------------------------------------------------

    def find(self, ledger: int, entry_id: int) -> Place | None:
        """Where an entry is, None if it is nowhere."""
        found = self._map.floor(_key(ledger, entry_id))
        if found is None or found[0][:8] != _key(ledger, 0)[:8]:
            return None
        key, value = found
        _check(key, value)
        nth = entry_id + _BIAS - _KEY.unpack(key)[1]
        log, offset, count = _PLACE.unpack_from(value)
        gaps = value[_PLACE.size + 4 * count : -4]
        if gaps:
            gap, ids = nth, numbers(gaps)
            nth = bisect_left(ids, gap)
            if nth == count or ids[nth] != gap:
                return None
        elif nth >= count:
            return None
        at = _PLACE.size + 4 * nth
        start = int.from_bytes(value[at - 4 : at]) if nth else 0
        return Place(log, offset + start, int.from_bytes(value[at : at + 4]) - start)

    def find_rows(
        self, ledgers: NDArray[np.int64], entry_ids: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Where many entries are: entry logs, offsets, and bytes with the header; all 0 for an entry that is nowhere."""
        found = np.zeros((3, len(ledgers)), np.int64)
        for row, (ledger, entry_id) in enumerate(zip(ledgers.tolist(), entry_ids.tolist(), strict=True)):
            place = self.find(ledger, entry_id)
            if place is not None:
                found[:, row] = place
        logs, offsets, sizes = found
        return logs, offsets, sizes

    def last(self, ledger: int) -> int | None:
        """The id of the last entry of a ledger, None if it has none."""
        found = self._map.floor(_key(ledger, _LAST))
        if found is None or found[0][:8] != _key(ledger, 0)[:8]:
            return None
        return _located(*found).run.last

    def runs(self, ledger: int, first: int = -_BIAS, last: int = _LAST) -> list[Located]:
        """The runs of a ledger with entries from ``first`` to ``last``, in order. The first and last run may have others too."""
        found = self._map.between(_key(ledger, first), _key(ledger, last))
        if not found or found[0][0] != _key(ledger, first):
            before = self._map.floor(_key(ledger, first))
            if before is not None and before[0][:8] == _key(ledger, 0)[:8]:
                located = _located(*before)
                if located.run.last >= first:
                    return [located, *(_located(*each) for each in found)]
        return [_located(*each) for each in found]

    def ledgers(self) -> Iterator[int]:
        """The ledgers that have entries, the last one first."""
        found = self._map.floor(_key(_LAST, _LAST))
        while found is not None:
            ledger = _KEY.unpack(found[0])[0] - _BIAS
            yield ledger
            found = self._map.floor(_key(ledger - 1, _LAST)) if ledger > -_BIAS else None

    # -- writing ------------------------------------------------------------------------------------------------------

    def add(self, log: int, placed: Iterable[tuple[int, Run]]) -> None:
        """Put runs, with the offsets at which they begin in an entry log; entries that are there already are replaced."""
        puts: list[tuple[bytes, bytes]] = []
        for offset, run in placed:
            self.live[log] += run.size
            before = self._map.floor(_key(run.ledger, run.last))
            if before is not None and before[0][:8] == _key(run.ledger, 0)[:8] and _located(*before).run.last >= run.first:
                self._map.write(puts)
                puts = []
                self._cut_anew(self.runs(run.ledger, run.first, run.last), Located(log, offset, run))
                continue
            puts.append(_value(Located(log, offset, run)))
        self._map.write(puts)

    def drop(self, ledger: int) -> None:
        """Forget all entries of a ledger."""
        runs = self.runs(ledger)
        for log, _, run in runs:
            self.live[log] -= run.size
        self._map.write((), [_key(ledger, located.run.first) for located in runs])

    def close(self) -> None:
        """No method is called any more."""
        self._map.close()

    def _cut_anew(self, old: list[Located], new: Located) -> None:
        """Put a run whose entries lie between those of others, or are the same."""
        places: dict[int, Place] = {}
        for located in old:
            places.update(places_of(located))
        for entry_id, place in places_of(new):
            if entry_id in places:
                self.live[places[entry_id].log] -= places[entry_id].size
            places[entry_id] = place
        puts = [_value(located) for located in _joined(new.run.ledger, places)]
        self._map.write(puts, [_key(new.run.ledger, located.run.first) for located in old])


def _key(ledger: int, entry_id: int) -> bytes:
    return _KEY.pack(ledger + _BIAS, entry_id + _BIAS)


def _value(located: Located) -> tuple[bytes, bytes]:
    """The key and the value that stand for a run."""
    log, offset, run = located
    key = _key(run.ledger, run.first)
    value = _PLACE.pack(log, offset, len(run)) + run.ends + run.gaps
    return key, value + _CHECKSUM.pack(crc32c(key + value))


def _check(key: bytes, value: bytes) -> None:
    if _CHECKSUM.pack(crc32c(key + value[:-4])) != value[-4:]:
        raise Damage("the index is damaged")


def _located(key: bytes, value: bytes) -> Located:
    """The run that a key and a value stand for."""
    _check(key, value)
    ledger, first = _KEY.unpack(key)
    log, offset, count = _PLACE.unpack_from(value)
    gaps = _PLACE.size + 4 * count
    return Located(log, offset, Run(ledger - _BIAS, first - _BIAS, value[_PLACE.size : gaps], value[gaps:-4]))


def places_of(located: Located) -> Iterator[tuple[int, Place]]:
    """The ids of the entries of a run, and where each is."""
    log, offset, run = located
    start = 0
    for entry_id, end in zip(run.ids, numbers(run.ends), strict=True):
        yield entry_id, Place(log, offset + start, end - start)
        start = end


def _joined(ledger: int, places: dict[int, Place]) -> Iterator[Located]:
    """The fewest runs that hold these entries."""
    ids: list[int] = []
    for entry_id in sorted(places):
        log, offset, _ = places[entry_id]
        if ids and (log, offset) != (places[ids[-1]].log, places[ids[-1]].offset + places[ids[-1]].size):
            yield from _runs_at(ledger, ids, places)
            ids = []
        ids.append(entry_id)
    yield from _runs_at(ledger, ids, places)


def _runs_at(ledger: int, ids: list[int], places: dict[int, Place]) -> Iterator[Located]:
    log, offset, _ = places[ids[0]]
    for run in runs_of(ledger, ids, [places[entry_id].size - ENTRY_HEADER for entry_id in ids]):
        yield Located(log, offset, run)
        offset += run.size
