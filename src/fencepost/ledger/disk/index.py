"""The index: the location of each entry, by runs of entries.

A run is a sequence of entries of one ledger that are adjacent in an entry log. Runs of a ledger never overlap: entries
that fall between those of a run, or replace some, make the index cut the runs anew. So an entry can only be in the last
run that does not begin after it, and the last entry of a ledger ends its last run.

The index is in memory. It is built from the contents of all sections when entry logs are opened. It consists of a few
tables of runs, newest first, each sorted by ledger and id. Each section adds a table, which is merged with the next one
if that is not much larger. A superseded run stays in its table with no entries until the table is rebuilt.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fencepost.ledger.disk.sections import ENTRY_HEADER, ROW, Run, Runs, detail_bytes, runs_of, unpacked
from fencepost.ledger.kernels.run_layout import RUN_DTYPE

_FIRST = -(1 << 63)
_LAST = (1 << 63) - 1
_GROWTH = 8
"""A table is merged with the next one if that is at most this many times as long."""
_BATCH = 1 << 26
"""Bytes of section contents that are indexed in one batch."""
_MOST_DETAILS = (1 << 32) - 1
_GATHERED = 1 << 18
"""Runs whose bits are gathered at a time."""

SPARE = 8
"""Padding after the bits of a table, because the loops load whole words."""

Numbers = NDArray[np.int64]


class EntryLocation(NamedTuple):
    """The location of an entry, header included."""

    log: int
    offset: int
    size: int


class Located(NamedTuple):
    """A run and where it begins."""

    log: int
    offset: int
    run: Run


class SectionRuns(NamedTuple):
    """The runs of a section: its entry log, the offset of its first entry, the runs, and the ledgers whose earlier runs
    no longer count.
    """

    log: int
    offset: int
    runs: Runs
    forgotten: Sequence[int] = ()


class Index:
    """The locations of entries. ``live`` counts the bytes of each entry log that the index points to.

    One thread at a time changes it; any thread may read concurrently.
    """

    def __init__(self) -> None:
        self._tables: tuple[_Table, ...] = ()
        self.live: Counter[int] = Counter()

    # -- reading ------------------------------------------------------------------------------------------------------
    #
    # A change publishes the new table before it ends runs in older ones. So a lookup that found nothing retries if the
    # tables have changed meanwhile.

    def find(self, ledger: int, entry_id: int) -> EntryLocation | None:
        """The location of an entry; None if there is none."""
        while True:
            tables = self._tables
            for table in tables:
                at = table.run_before(ledger, entry_id)
                place = table.place(at, entry_id) if at >= 0 else None
                if place is not None:
                    return place
            if tables is self._tables:
                return None

    def find_rows(self, ledgers: Numbers, entry_ids: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """The locations of many entries, found by compiled loops: entry logs, offsets, and bytes with the header; all 0
        for an unknown entry.
        """
        from fencepost.ledger.kernels import runs as loops

        logs, offsets, sizes = np.zeros((3, len(ledgers)), np.int64)
        ledgers, entry_ids = np.ascontiguousarray(ledgers), np.ascontiguousarray(entry_ids)
        while True:
            tables = self._tables
            for table in tables:
                if not loops.find(*table.columns, ledgers, entry_ids, logs, offsets, sizes):
                    return logs, offsets, sizes
            if tables is self._tables:
                return logs, offsets, sizes

    def last(self, ledger: int) -> int | None:
        """The id of the last entry of a ledger, None if it has none."""
        while True:
            tables = self._tables
            found = [last for table in tables if (last := table.last(ledger)) is not None]
            if tables is self._tables:
                return max(found, default=None)

    def runs(self, ledger: int, first: int = _FIRST, last: int = _LAST) -> list[Located]:
        """The runs of a ledger with entries from ``first`` to ``last``, in order. The first and last run may hold
        entries outside this range. While the index is changing, an entry may be in two runs.
        """
        while True:
            tables = self._tables
            located = [table.located(at) for table in tables for at in table.between(ledger, first, last)]
            found = [each for each in located if each.run.sizes]  # a run that has just been superseded has none
            if tables is self._tables:
                return sorted(found, key=lambda located: located.run.first)

    def ledgers(self) -> Iterator[int]:
        """The ledgers with entries, ascending."""
        while True:
            tables = self._tables
            found = {ledger for table in tables for ledger in table.with_entries()}
            if tables is self._tables:
                return iter(sorted(found))

    @property
    def bytes(self) -> int:
        """Bytes of memory in use."""
        return sum(table.bytes for table in self._tables)

    # -- writing ------------------------------------------------------------------------------------------------------

    def add(self, log: int, offset: int, runs: Runs) -> None:
        """Add runs whose entries are adjacent from an offset of an entry log on. Existing entries with the same ids are
        replaced.
        """
        self.load([SectionRuns(log, offset, runs)])

    def load(self, sections: Iterable[SectionRuns]) -> None:
        """Add the runs of many sections, in order."""
        batch: list[SectionRuns] = []
        size = 0
        for section in sections:
            batch.append(section)
            size += section.runs.rows.nbytes + len(section.runs.details)
            if size >= _BATCH:
                self._load(batch)
                batch, size = [], 0
        self._load(batch)

    def drop(self, ledger: int) -> None:
        """Forget all entries of a ledger."""
        for table in self._tables:
            self._end(table, table.between(ledger, _FIRST, _LAST))

    def _load(self, batch: list[SectionRuns]) -> None:
        forgotten = {ledger: nth for nth, section in enumerate(batch) for ledger in section.forgotten}
        for ledger in forgotten:
            self.drop(ledger)
        if not batch:
            return
        table, numbers = _table_of_sections(batch)
        if forgotten:
            ledgers = table.all_ledgers()
            concerned = np.isin(ledgers, list(forgotten))
            kept = ~concerned
            kept[concerned] = numbers[concerned] >= [forgotten[ledger] for ledger in ledgers[concerned].tolist()]
            table, numbers = table.some(kept), numbers[kept]
        again = _overlapping(table)
        self._put(table.some(~again) if again.any() else table)
        for number in np.unique(numbers[again]).tolist():
            self._put(table.some(again & (numbers == number)))

    def _put(self, new: _Table) -> None:
        """Add a table whose runs do not overlap one another."""
        replaced: list[tuple[_Table, list[int]]] = []
        cut: set[int] = set()
        """Runs of the new table that replace part of an existing run."""
        for table in self._tables:
            ended: set[int] = set()
            for nth in table.touched_by(new):
                ledger, first, last = new.span(nth)
                for at in table.between(ledger, first, last):
                    ended.add(at)
                    if not new.covers(nth, table, at):
                        cut.add(nth)
            replaced.append((table, sorted(ended)))
        if cut:
            new = self._recut(new, sorted(cut), replaced)
        if not len(new):
            return
        self._tables = (new, *self._tables)
        self._count(new.runs, 1)
        for table, rows in replaced:
            self._end(table, rows)
        self._merge_tables()

    def _recut(self, new: _Table, cut: list[int], replaced: list[tuple[_Table, list[int]]]) -> _Table:
        """The new table with the runs in ``cut`` replaced: they partly overlap runs of other tables, whose remaining
        entries the replacements hold too.
        """
        concerned = [(table.located(at), 0) for table, ended in replaced for at in ended] + [
            (new.located(nth), 1) for nth in cut
        ]
        concerned.sort(key=lambda each: (each[0].run.ledger, each[0].run.first))
        pieces: list[Located] = []
        for together in _clusters(concerned):
            if any(is_new for _, is_new in together):
                places: dict[int, EntryLocation] = {}
                for located, _ in sorted(together, key=lambda each: each[1]):
                    places.update(places_of(located))
                pieces += _joined(together[0][0].run.ledger, places)
        kept = np.ones(len(new), np.bool_)
        kept[cut] = False
        logs, offsets, runs = zip(*pieces, strict=True)
        return _merged([new.some(kept), _table_of(Runs.of(runs), np.array(logs), np.array(offsets))[0]])

    def _end(self, table: _Table, rows: Sequence[int]) -> None:
        """Mark runs of a table as superseded."""
        if rows:
            self._count(table.runs[rows], -1)
            table.end(rows)

    def _count(self, runs: NDArray[Any], sign: int) -> None:
        counted = runs[runs["count"] > 0]
        for log in np.unique(counted["log"]).tolist():
            self.live[log] += sign * int(counted["size"][counted["log"] == log].sum(dtype=np.int64))

    def _merge_tables(self) -> None:
        """Merge the newest tables while the next one is not much longer, and rebuild tables with many superseded
        runs.
        """
        tables = [_merged([table]) if table.ended > len(table) // 2 else table for table in self._tables]
        tables = [table for table in tables if len(table)]
        while len(tables) > 1 and len(tables[1]) <= _GROWTH * len(tables[0]):
            if len(tables[0].details) + len(tables[1].details) > _MOST_DETAILS:
                break
            tables[:2] = [_merged(tables[:2])]
        self._tables = tuple(tables)


class _Table:
    """Runs sorted by ledger and first id, without overlaps.

    ``ledgers``: each once. The runs of ledger number ``n`` are ``starts[n]`` to ``starts[n + 1]``, exclusive.
    ``firsts``: the first id of each run. ``runs``: its other fields. ``details``: the bits of all runs, as in
    :class:`fencepost.ledger.disk.sections.Runs`. ``ended``: the number of superseded runs.
    """

    __slots__ = ("_firsts", "_ledgers", "details", "ended", "firsts", "ledgers", "runs", "starts")

    def __init__(self, ledgers: Numbers, firsts: Numbers, runs: NDArray[Any], details: NDArray[np.uint8]) -> None:
        """``ledgers``: one per run."""
        new = np.flatnonzero(ledgers[1:] != ledgers[:-1]) + 1
        self.starts = np.concatenate([[0], new, [len(ledgers)]]) if len(ledgers) else np.zeros(1, np.int64)
        self.ledgers = ledgers[self.starts[:-1]]
        self.firsts = np.ascontiguousarray(firsts)
        self.runs = runs
        self.details = details
        self.ended = 0
        self._ledgers, self._firsts = self.ledgers.data, self.firsts.data

    def __len__(self) -> int:
        return len(self.firsts)

    @property
    def columns(self) -> tuple[Numbers, Numbers, Numbers, NDArray[Any], NDArray[np.uint8]]:
        """The arrays that the loops take."""
        return self.ledgers, self.starts, self.firsts, self.runs, self.details

    @property
    def bytes(self) -> int:
        """Bytes of memory in use."""
        return sum(each.nbytes for each in self.columns)

    def all_ledgers(self) -> Numbers:
        """The ledger of each run."""
        return np.repeat(self.ledgers, np.diff(self.starts))

    def bounds(self, ledger: int) -> tuple[int, int]:
        """The range of a ledger's runs."""
        number = bisect_left(self._ledgers, ledger)
        if number == len(self._ledgers) or self._ledgers[number] != ledger:
            return 0, 0
        return int(self.starts[number]), int(self.starts[number + 1])

    def run_before(self, ledger: int, entry_id: int) -> int:
        """The last run of a ledger that does not begin after an entry, -1 if there is none."""
        start, end = self.bounds(ledger)
        at = bisect_right(self._firsts, entry_id, start, end) - 1
        return at if at >= start else -1

    def between(self, ledger: int, first: int, last: int) -> list[int]:
        """The runs of a ledger that may have entries from ``first`` to ``last``."""
        start, end = self.bounds(ledger)
        end = bisect_right(self._firsts, last, start, end)
        at = max(start, bisect_right(self._firsts, first, start, end) - 1)
        runs = self.runs[at:end]
        counts = runs["count"] > 0
        if len(counts) and int(self.firsts[at]) + int(runs["span"][0]) < first:
            counts[0] = False
        return (np.flatnonzero(counts) + at).tolist()

    def touched_by(self, new: _Table) -> list[int]:
        """The runs of ``new`` that may overlap runs of this table."""
        numbers = np.searchsorted(self.ledgers, new.ledgers)
        known = self.ledgers[np.minimum(numbers, len(self.ledgers) - 1)] == new.ledgers
        lengths = np.diff(new.starts)
        low = np.repeat(np.where(known, self.starts[:-1].take(numbers, mode="clip"), 0), lengths)
        high = np.repeat(np.where(known, self.starts[1:].take(numbers, mode="clip"), 0), lengths)
        start, last = low.copy(), new.firsts + new.runs["span"]
        while (searching := low < high).any():
            middle = (low + high) // 2
            is_before = self.firsts.take(middle, mode="clip") <= last
            low = np.where(searching & is_before, middle + 1, low)
            high = np.where(searching & ~is_before, middle, high)
        at = np.maximum(low - 1, 0)
        return np.flatnonzero((low > start) & (self.firsts[at] + self.runs["span"][at] >= new.firsts)).tolist()

    def span(self, at: int) -> tuple[int, int, int]:
        """The ledger, the first and the last id of a run."""
        first = int(self.firsts[at])
        return int(self.ledgers[bisect_right(self.starts, at) - 1]), first, first + int(self.runs["span"][at])

    def covers(self, at: int, other: _Table, there: int) -> bool:
        """Whether a run has all entries of a run of another table, of the same ledger."""
        _, first, last = self.span(at)
        _, other_first, other_last = other.span(there)
        if int(self.runs["gap_bits"][at]) == 0:
            return first <= other_first and other_last <= last
        return (first, last) == (other_first, other_last) and {*other.located(there).run.ids} <= {
            *self.located(at).run.ids
        }

    def last(self, ledger: int) -> int | None:
        """The last entry of a ledger, None if it has none."""
        start, end = self.bounds(ledger)
        counts = np.flatnonzero(self.runs["count"][start:end])
        return self.span(start + int(counts[-1]))[2] if len(counts) else None

    def with_entries(self) -> list[int]:
        """The ledgers with entries."""
        found: list[int] = np.unique(
            self.all_ledgers()[self.runs["count"] > 0] if self.ended else self.ledgers
        ).tolist()
        return found

    def place(self, at: int, entry_id: int) -> EntryLocation | None:
        """The location of an entry in the run that may hold it; None if it is not there."""
        offset, log, span, _, base, details, count, size_bits, gap_bits = self.runs[at].item()
        nth = entry_id - self._firsts[at]
        if nth > span or not count:
            return None
        if not size_bits and not gap_bits:
            return EntryLocation(log, offset + nth * base, base)
        bits = int.from_bytes(self.details[details : details + detail_bytes(count, size_bits, gap_bits)], "little")
        if gap_bits:
            gaps, mask, distance, wanted = bits >> count * size_bits, (1 << gap_bits) - 1, 0, nth
            nth = 0
            while distance < wanted:
                distance += 1 + (gaps & mask)
                gaps >>= gap_bits
                nth += 1
            if distance != wanted:
                return None
        mask, start = (1 << size_bits) - 1, nth * base
        for _ in range(nth):
            start += bits & mask
            bits >>= size_bits
        return EntryLocation(log, offset + start, base + (bits & mask))

    def located(self, at: int) -> Located:
        """The run with a number."""
        offset, log, _, _, base, details, count, size_bits, gap_bits = self.runs[at].item()
        bits = self.details[details : details + detail_bytes(count, size_bits, gap_bits)].tobytes()
        ledger, first, _ = self.span(at)
        return Located(log, offset, unpacked(ledger, first, base, count, size_bits, gap_bits, bits))

    def some(self, which: NDArray[Any]) -> _Table:
        """A table of the selected runs."""
        return _Table(self.all_ledgers()[which], self.firsts[which], *_needed(self.runs[which], self.details))

    def end(self, rows: Sequence[int]) -> None:
        """Mark runs as superseded."""
        self.runs["count"][rows] = 0
        self.ended += len(rows)


def _table_of_sections(sections: Sequence[SectionRuns]) -> tuple[_Table, Numbers]:
    """A table of all runs of some sections, and the number of each run's section."""
    lengths = [len(section.runs) for section in sections]
    rows = np.frombuffer(b"".join(section.runs.rows.tobytes() for section in sections), ROW)
    numbers = np.repeat(np.arange(len(sections)), lengths)
    before = np.cumsum(rows["size"], dtype=np.int64) - rows["size"]
    starts = np.minimum(np.cumsum([0, *lengths[:-1]]), len(rows) - 1)
    begins = (
        np.array([section.offset for section in sections]) - before[starts]
        if len(rows)
        else np.zeros(len(sections), np.int64)
    )
    logs = np.array([section.log for section in sections])
    details = b"".join(section.runs.details for section in sections)
    table, order = _table_of(Runs(rows, details), logs[numbers], begins[numbers] + before)
    return table, numbers[order]


def _table_of(source: Runs, logs: Numbers, offsets: Numbers) -> tuple[_Table, Numbers]:
    """A table of runs, and the order into which they were sorted."""
    rows = source.rows
    ledgers, firsts = rows["ledger"].astype(np.int64), rows["first"].astype(np.int64)
    order = np.lexsort((firsts, ledgers))
    runs = np.zeros(len(rows), RUN_DTYPE)
    for name in ("span", "size", "base", "count", "size_bits", "gap_bits"):
        runs[name] = rows[name]
    runs["log"], runs["offset"] = logs, offsets
    runs["details"][1:] = np.cumsum(_detail_bytes(runs))[:-1]
    return _Table(
        ledgers[order], firsts[order], runs[order], np.frombuffer(source.details + bytes(SPARE), np.uint8)
    ), order


def _detail_bytes(runs: NDArray[Any]) -> Numbers:
    """The number of bytes of the bits of each run."""
    count, size_bits, gap_bits = (runs[name].astype(np.int64) for name in ("count", "size_bits", "gap_bits"))
    lengths: Numbers = (count * size_bits + (count - 1) * gap_bits + 7) // 8
    return lengths


def _merged(tables: Sequence[_Table]) -> _Table:
    """One table with the runs of several that still count."""
    counted = [table.runs["count"] > 0 for table in tables]
    runs = np.concatenate([table.runs[which] for table, which in zip(tables, counted, strict=True)])
    ledgers = np.concatenate([table.all_ledgers()[which] for table, which in zip(tables, counted, strict=True)])
    firsts = np.concatenate([table.firsts[which] for table, which in zip(tables, counted, strict=True)])
    before = np.cumsum([0, *(len(table.details) for table in tables)])[:-1]
    runs["details"] += np.repeat(before, [int(which.sum()) for which in counted]).astype(np.uint32)
    order = np.lexsort((firsts, ledgers))
    details = np.concatenate([table.details for table in tables])
    return _Table(ledgers[order], firsts[order], *_needed(runs[order], details))


def _needed(runs: NDArray[Any], details: NDArray[np.uint8]) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Runs and their bits. Bits of other runs are left out if they are more than half."""
    lengths = _detail_bytes(runs)
    if 2 * int(lengths.sum()) >= len(details):
        return runs, details
    ends = np.cumsum(lengths)
    parts = []
    for at in range(0, len(runs), _GATHERED):
        some = slice(at, at + _GATHERED)
        bases = runs["details"][some] - (ends[some] - lengths[some] - (ends[at] - lengths[at]))
        parts.append(details[np.repeat(bases, lengths[some]) + np.arange(lengths[some].sum())])
    runs["details"] = ends - lengths
    return runs, np.concatenate([*parts, np.zeros(SPARE, np.uint8)])


def _overlapping(table: _Table) -> NDArray[np.bool_]:
    """The runs of a table that overlap others of it, directly or through a chain."""
    if len(table) < 2:
        return np.zeros(len(table), np.bool_)
    ledgers = table.all_ledgers()
    firsts, lasts = table.firsts, table.firsts + table.runs["span"]
    same = ledgers[1:] == ledgers[:-1]
    joined = same & (lasts[:-1] >= firsts[1:])
    while True:
        starts = np.flatnonzero(np.concatenate([[True], ~joined]))
        after = starts[1:]
        reached = same[after - 1] & (np.maximum.reduceat(lasts, starts)[:-1] >= firsts[after])
        if not reached.any():
            lengths = np.diff(starts, append=len(ledgers))
            return np.repeat(lengths > 1, lengths)
        joined[after[reached] - 1] = True


def _clusters(runs: list[tuple[Located, int]]) -> Iterator[list[tuple[Located, int]]]:
    """Group sorted runs into chains of overlapping ones. No other run lies between those of a group."""
    together: list[tuple[Located, int]] = []
    ledger, last = 0, 0
    for each in runs:
        run = each[0].run
        if together and (run.ledger != ledger or run.first > last):
            yield together
            together = []
        ledger, last = run.ledger, max(last, run.last) if together else run.last
        together.append(each)
    if together:
        yield together


def places_of(located: Located) -> Iterator[tuple[int, EntryLocation]]:
    """The ids of a run's entries, and the location of each."""
    log, offset, run = located
    for entry_id, size in zip(run.ids, run.sizes, strict=True):
        yield entry_id, EntryLocation(log, offset, size)
        offset += size


def _joined(ledger: int, places: dict[int, EntryLocation]) -> Iterator[Located]:
    """The fewest runs that hold these entries."""
    ids: list[int] = []
    for entry_id in sorted(places):
        log, offset, _ = places[entry_id]
        if ids and (log, offset) != (places[ids[-1]].log, places[ids[-1]].offset + places[ids[-1]].size):
            yield from _runs_at(ledger, ids, places)
            ids = []
        ids.append(entry_id)
    yield from _runs_at(ledger, ids, places)


def _runs_at(ledger: int, ids: list[int], places: dict[int, EntryLocation]) -> Iterator[Located]:
    log, offset, _ = places[ids[0]]
    for run in runs_of(ledger, ids, [places[entry_id].size - ENTRY_HEADER for entry_id in ids]):
        yield Located(log, offset, run)
        offset += run.size
