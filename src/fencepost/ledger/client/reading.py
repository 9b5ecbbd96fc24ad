"""Collects the entries that a reader's role requested, as they arrive. Entries come by rows with the compiled loops.
They come one by one without the loops, or from a bookie with an unusual form of answer.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import msgspec

from fencepost.ledger.client.calls import Calls, error_of
from fencepost.ledger.client.loops import BLOCKS, LOOPS
from fencepost.ledger.entries import Entry
from fencepost.ledger.errors import StoreError
from fencepost.ledger.messages import ReadEntryResponse
from fencepost.ledger.roles.interface import ForgetReads, ReadEntries, ReadOver, ReadsAnswered, SendReads, WantEntries
from fencepost.ledger.roles.reader import Reader
from fencepost.ledger.roles.reading import Answers
from fencepost.ledger.rules.codes import Code

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class LedgerEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry of a ledger: its id, which counts from 0, and its data."""

    id: int
    data: bytes


class EntryBatch(Sequence[bytes]):
    """Consecutive entries of a ledger from ``first``, in one block.

    ``data``: the bytes of all entries, joined. ``offsets``: where each entry begins, then where the last ends, as
    8-byte integers. ``lacs`` and ``lengths``: from each entry's header, as 8-byte integers: the LAC that its writer
    knew, and the bytes of data in the ledger up to and including it. Both are None for entries from a long poll. All
    are buffers that NumPy and Arrow take without copying. An index gives the data of one entry.
    """

    __slots__ = ("data", "first", "lacs", "lengths", "offsets")

    def __init__(
        self,
        first: int,
        data: memoryview,
        offsets: memoryview,
        lacs: memoryview | None = None,
        lengths: memoryview | None = None,
    ) -> None:
        self.first = first
        self.data = data
        self.offsets = offsets
        self.lacs = lacs
        self.lengths = lengths

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def ids(self) -> range:
        """The ids of the entries."""
        return range(self.first, self.first + len(self))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = range(len(self))[index]
        return bytes(self.data[self.offsets[at] : self.offsets[at + 1]])

    def __iter__(self) -> Iterator[bytes]:
        data, start = self.data, self.offsets[0]  # not 0 where entries before these were left out
        for stop in self.offsets[1:].tolist():
            yield bytes(data[start:stop])
            start = stop

    def __repr__(self) -> str:
        return f"<entries {self.first} to {self.first + len(self) - 1}>"


class Readings:
    """The callers waiting for a reader's role, and what has arrived for them."""

    def __init__(self, calls: Calls, role: Reader) -> None:
        self.calls = calls
        self.role = role
        self.driver = calls.driver
        self.loop = self.driver.loop
        self.ranges: dict[int, ReadRange] = {}
        """Batches being read, by token."""
        self.wanted: dict[int, asyncio.Future[bytes]] = {}
        """Entries that callers want one by one."""
        self.also_wanted: dict[int, list[asyncio.Future[bytes]]] = {}
        """Further callers of some of these entries."""
        self._new: list[int] = []
        """Entries whose read was not yet passed to the role."""
        self._is_reporting = False
        self._answers = Answers()
        self._create_future = self.loop.create_future
        self._deliver = calls.deliver
        calls.handlers |= {SendReads: self._send, ReadOver: self._over}
        calls.on_failure.append(self._failed)
        self.driver.on_unreachable[self._metadata_unreachable] = None

    # -- callers -------------------------------------------------------------------------------------------------------

    def read(self, first: int, last: int, mean: int) -> ReadRange:
        """Read consecutive entries. ``mean``: the expected size of an entry in bytes."""
        actor = self.calls
        actor.calls += 1
        if LOOPS.module is None:
            LOOPS.carried(last - first + 1)
            read_range = ReadRange(self, actor.calls, first)
        else:
            read_range = RowRange(self, actor.calls, first, last, mean)
        self.ranges[actor.calls] = read_range
        actor.deliver(ReadEntries(actor.calls, first, last))
        return read_range

    def want(self, entry_id: int) -> asyncio.Future[bytes]:
        """Read a single entry. The role is notified once for all single entries of one turn of the loop."""
        future = self._create_future()
        if self.wanted.setdefault(entry_id, future) is not future:
            self.also_wanted.setdefault(entry_id, []).append(future)
        elif self._is_reporting:
            self._new.append(entry_id)
        elif len(self.wanted) == 1:  # there is nothing to wait for
            self._deliver(WantEntries((entry_id,)))
        else:
            self._new.append(entry_id)
            self._report_later()
        return future

    def _report_later(self) -> None:
        self._is_reporting = True
        self.loop.call_soon(self._report)

    def _report(self) -> None:
        self._is_reporting = False
        if self._new:
            new, self._new = self._new, []
            self._deliver(WantEntries(new))

    def give(self, entry_id: int, data: bytes | StoreError) -> None:
        """A single entry arrived, or cannot be read: complete its callers."""
        for future in (self.wanted.pop(entry_id, None), *self.also_wanted.pop(entry_id, ())):
            if future is None or future.done():
                continue
            if isinstance(data, bytes):
                future.set_result(data)
            else:
                future.set_exception(data)

    def expect_more(self) -> None:
        """Callers have received single entries, and may ask for others in a moment."""
        if self.wanted and not self._is_reporting:
            self._report_later()

    def _failed(self, error: StoreError) -> None:
        self.driver.on_unreachable.pop(self._metadata_unreachable, None)
        ranges, self.ranges = self.ranges, {}
        for read_range in ranges.values():
            if not read_range.batch.done():
                read_range.batch.set_exception(error)
        self._fail_wanted(error)

    def _metadata_unreachable(self, error: StoreError) -> None:
        """Fail all waits for single entries: another bookie may have to be found for them. Readers of batches time out
        themselves.
        """
        self._fail_wanted(error)
        self.calls.deliver(ForgetReads(0))

    def _fail_wanted(self, error: StoreError) -> None:
        self._new = []
        for entry_id in [*self.wanted]:
            self.give(entry_id, error)

    # -- what the role wants -------------------------------------------------------------------------------------------

    def _send(self, send: SendReads) -> None:
        owner = self.ranges[send.reading] if send.reading > 0 else Singles(self, send.reading)
        connection = self.driver.connections.get(send.bookie) or self.driver.connection(send.bookie)
        connection.send_reads(owner, self.role.ledger, send.entry_ids)

    def _over(self, over: ReadOver) -> None:
        error = error_of(over.error, self.role.ledger) if over.error else None
        if over.token > 0:
            self.ranges.pop(over.token).over(over.stop, error)
        elif error is not None:
            self.give(over.stop, error)

    # -- what bookies answer -------------------------------------------------------------------------------------------

    def answered(self, reading: int, bookie: str, entry_id: int, response: ReadEntryResponse | None) -> Entry | None:
        """A bookie answered one request, or (None) did not. Gives the entry if it came. The role receives all answers
        of this turn of the loop together.
        """
        if not self._answers.alike:
            self.loop.call_soon(self._report_answers)
        return self._answers.add(self.role.digests, reading, bookie, (self.role.ledger, entry_id), response)

    def _report_answers(self) -> None:
        for event in self._answers.taken():
            self.calls.deliver(event)


class Reading:
    """The requests of one reading by the role. The outcome of each goes back to the role."""

    by_rows = True
    """Whether it takes entries by rows."""

    def __init__(self, readings: Readings, token: int) -> None:
        self.readings = readings
        self.token = token

    # -- what readings of a kind do ------------------------------------------------------------------------------------

    def take(self, view: Any, responses: Any, entry_ids: Any, rows: Any, digest_type: int) -> tuple[int, int]:
        """Take the intact entries of responses, and set the rows of others to -1. Gives the number of these others, and
        the highest LAC of the responses.
        """
        raise NotImplementedError

    def found(self, entry: Entry) -> None:
        """Take an entry that came outside rows."""

    # -- what comes of requests ----------------------------------------------------------------------------------------

    def entries_read(self, bookie: str, view: Any, responses: Any, entry_ids: Any, rows: Any) -> None:
        """A bookie sent entries."""
        readings = self.readings
        deliver, role = readings.calls.deliver, readings.role
        digest_type, loops = role.digests.digest_type.value, LOOPS.module
        if digest_type not in (loops.CRC32C, loops.CRC32) and role.digests.size:
            _refuse_damaged(role, loops, view, responses, entry_ids, rows)
        refused, lac = self.take(view, responses, entry_ids, rows, digest_type)
        if refused < len(rows):
            intact = entry_ids[rows >= 0] if refused else entry_ids.copy()
            deliver(ReadsAnswered(self.token, bookie, intact, Code.OK, lac=lac))
        if refused:  # for whatever reason, it is not a copy of the entry
            deliver(ReadsAnswered(self.token, bookie, entry_ids[rows < 0].tolist(), Code.OK, is_damaged=True))

    def answered(self, txn: int, bookie: str, response: Any) -> None:
        """A bookie answered for one entry: not with success, in an unusual form, or to a request outside rows."""
        known = response if isinstance(response, ReadEntryResponse) else None
        entry = self.readings.answered(self.token, bookie, txn, known)
        if entry is not None:
            self.found(entry)

    def entries_unanswered(self, bookie: str, entry_ids: Sequence[int]) -> None:
        """A bookie did not answer."""
        self.readings.calls.deliver(ReadsAnswered(self.token, bookie, entry_ids, None))

    def unanswered(self, txn: int, bookie: str) -> None:
        """A bookie did not answer a request sent outside rows."""
        self.readings.answered(self.token, bookie, txn, None)


class ReadRange(Reading):
    """Consecutive entries that become a batch. This class keeps them one by one, without the loops.

    ``batch`` gives the entries up to the first that cannot be read, if there are any, and the error, if there is one.
    """

    by_rows = False

    def __init__(self, readings: Readings, token: int, first: int) -> None:
        super().__init__(readings, token)
        self.first = first
        self.batch: asyncio.Future[tuple[EntryBatch | None, BaseException | None]] = readings.loop.create_future()
        self.entries: dict[int, Entry] = {}

    def found(self, entry: Entry) -> None:
        """See :class:`Reading`."""
        self.entries[entry.entry_id] = entry

    def over(self, stop: int, error: StoreError | None) -> None:
        """All entries before ``stop`` have arrived."""
        if not self.batch.done():
            self.batch.set_result((self._made(stop) if stop > self.first else None, error))

    def _made(self, stop: int) -> EntryBatch:
        entries = [self.entries[entry_id] for entry_id in range(self.first, stop)]
        data = [entry.data for entry in entries]
        offsets = array("q", accumulate(map(len, data), initial=0))
        lacs, lengths = array("q", [entry.lac for entry in entries]), array("q", [entry.length for entry in entries])
        views = [memoryview(each) for each in (b"".join(data), offsets, lacs, lengths)]
        return EntryBatch(self.first, *views)

    def cancel(self) -> None:
        """Cancel the read: its entries are no longer wanted."""
        self.batch.cancel()
        if self.readings.ranges.pop(self.token, None) is not None:
            self.readings.calls.deliver(ForgetReads(self.token))


class RowRange(ReadRange):
    """A :class:`ReadRange` by rows, with its entries in one block."""

    by_rows = True

    def __init__(self, readings: Readings, token: int, first: int, last: int, mean: int) -> None:
        super().__init__(readings, token, first)
        self.loops = LOOPS.module
        self.np: Any = self.loops.np
        self.block: NDArray[np.uint8] = self.np.empty(0, self.np.uint8)
        """Empty until entries arrive, so that waiting readers need no memory."""
        self.expected = (last - first + 1) * (mean + 64)
        self.end = 0
        self.table: NDArray[np.int64] = self.np.full((last - first + 1, self.loops.ENTRY_COLUMNS), -1, self.np.int64)

    def _make_room(self, size: int) -> None:
        if self.end + size > len(self.block):
            block = BLOCKS.take(self.np, max(self.end + size, 2 * len(self.block) or self.expected))
            block[: self.end] = self.block[: self.end]
            self.block = block

    def take(self, view: Any, responses: Any, entry_ids: Any, rows: Any, digest_type: int) -> tuple[int, int]:
        """See :class:`Reading`."""
        role, loops = self.readings.role, self.loops
        self._make_room(loops.bytes_of(responses, rows))
        size = role.digests.size
        _, self.end, lac = loops.take_entries(
            view, responses, rows, entry_ids, role.ledger, size, digest_type,
            self.first, self.block, self.end, self.table,
        )  # fmt: skip
        return int((rows < 0).sum()), int(lac)

    def found(self, entry: Entry) -> None:
        """See :class:`Reading`."""
        row, data = entry.entry_id - self.first, entry.data
        if self.table[row, 0] < 0:
            self._make_room(len(data))
            stop = self.end + len(data)
            self.block[self.end : stop] = memoryview(data)
            self.table[row] = self.end, stop, entry.lac, entry.length
            self.end = stop

    def _made(self, stop: int) -> EntryBatch:
        table = self.table[: stop - self.first]
        offsets = self.np.empty(len(table) + 1, self.np.int64)
        lacs, lengths = table.T[self.loops.HEADER_LAC :].copy()
        out = self.block
        if self.loops.in_order(self.block, table, out[:0], offsets):
            out = self.np.empty(int(offsets[-1]), self.np.uint8)
            self.loops.in_order(self.block, table, out, offsets)
        return EntryBatch(self.first, out.data[: int(offsets[-1])], offsets.data, lacs.data, lengths.data)


class Singles(Reading):
    """Single entries."""

    def take(self, view: Any, responses: Any, entry_ids: Any, rows: Any, digest_type: int) -> tuple[int, int]:
        """See :class:`Reading`. The data are copied once, from the receive buffer."""
        role, loops = self.readings.role, LOOPS.module
        table = loops.np.empty((len(rows), loops.PLACE_COLUMNS), loops.np.int64)
        size = role.digests.size
        refused, lac = loops.find_entries(view, responses, rows, entry_ids, role.ledger, size, digest_type, table)
        data, wanted, too = view.data, self.readings.wanted, self.readings.also_wanted
        for entry_id, (start, stop) in zip(entry_ids.tolist(), table.tolist(), strict=True):
            if start < 0:
                continue
            if too and entry_id in too:
                self.readings.give(entry_id, data[start:stop].tobytes())
                continue
            future = wanted.pop(entry_id, None)
            if future is not None and not future.done():
                future.set_result(data[start:stop].tobytes())
        self.readings.expect_more()
        return refused, lac

    def found(self, entry: Entry) -> None:
        """See :class:`Reading`."""
        self.readings.give(entry.entry_id, entry.data)


def _refuse_damaged(role: Reader, loops: Any, view: Any, responses: Any, entry_ids: Any, rows: Any) -> None:
    """Set rows with a wrong digest to -1, for digest types that the loops do not compute."""
    for place, (entry_id, row) in enumerate(zip(entry_ids.tolist(), rows.tolist(), strict=True)):
        start = int(responses[row, loops.RESPONSE_BODY])
        body = view[start : start + int(responses[row, loops.RESPONSE_SIZE])].tobytes()
        if role.digests.open_entry(body, role.ledger, entry_id) is None:
            rows[place] = -1
