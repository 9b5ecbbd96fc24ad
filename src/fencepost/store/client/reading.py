"""Reads of many entries at once: by rows while all goes as it should, and one by one through the reader's role where it
does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from fencepost.store.client.calls import Calls
from fencepost.store.client.loops import BLOCKS, LOOPS
from fencepost.store.entries import Entry, runs_of
from fencepost.store.errors import StoreError
from fencepost.store.messages import NO_ENTRY_YET, ReadEntryResponse
from fencepost.store.roles.interface import EntriesRead, ReadOn, Trace
from fencepost.store.roles.reader import Reader
from fencepost.store.rules.codes import Code
from fencepost.store.rules.ensembles import fragment_of, write_set
from fencepost.store.rules.metadata import LedgerMetadata
from fencepost.store.rules.reading import (
    ReadOutcome,
    least_asked,
    may_wait,
    next_to_ask,
    order_to_ask,
    outcome_of_read,
    place_to_ask,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_ENOUGH = 64
"""Entries that are wanted one by one which are asked for at once, however many are under way: their number saves no
more work.
"""
_MANY = 256
"""Entries that are wanted one by one which a bookie is asked for together at most: all bookies have something to do,
and callers have their results and make new ones by and by, or Python would look for garbage all the time.
"""


class LedgerEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry of a ledger: its id, which counts from 0, and its data."""

    id: int
    data: bytes


class EntryBatch(Sequence[bytes]):
    """Entries of a ledger that follow one another from ``first`` on, in one block.

    ``data``: the bytes of all, one after another. ``offsets``: where each begins, and where the last ends; numbers of
    eight bytes, one more than there are entries. ``lacs`` and ``lengths``: what the header of each entry says, the LAC
    that its writer knew, and the bytes of data of the ledger up to and including it; numbers of eight bytes too, or
    None for entries that were waited for. All are buffers, which NumPy and Arrow take as they are. An index gives the
    data of one entry.
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
        data, start = self.data, 0
        for stop in self.offsets[1:].tolist():
            yield bytes(data[start:stop])
            start = stop

    def __repr__(self) -> str:
        return f"<entries {self.first} to {self.first + len(self) - 1}>"


class Readings:
    """The reads of a reader that are under way, and their one timer."""

    def __init__(self, calls: Calls, role: Reader) -> None:
        self.calls = calls
        self.role = role
        self.driver = calls.driver
        self.loop = self.driver.loop
        self.delay = self.driver.settings.speculation_delay
        self.under_way: set[Reading] = set()
        self.begun = 0
        self.heard: dict[str, tuple[float, int]] = {}
        """When each bookie sent entries last, and the latest of the readings that they were of."""
        self.timer: asyncio.TimerHandle | None = None
        self.sweeping_at = 0.0
        """When the timer is due."""
        self.wanted: dict[int, asyncio.Future[bytes]] = {}
        """Entries that are wanted one by one, and not asked for yet."""
        self.wanted_too: list[tuple[int, asyncio.Future[bytes]]] = []
        """Entries that more than one caller wants."""
        self.turn = 0
        """The entries that were asked for one by one. A bookie has its turn for some, which it is likely to read
        ahead.
        """
        self.asked: dict[str, int] = {}
        """The entries that each bookie was asked for one by one, and has not answered."""
        self.lacking: dict[str, int] = {}
        """Entries that each bookie lacked, less those that it had since then; half as many with every sweep."""
        self._is_asking = False
        self._create_future = self.loop.create_future
        calls.on_failure.append(self._failed)
        self.driver.impatient.add(self._lose_patience)

    def begin(self, reading: Reading) -> None:
        """Look after a reading until it is over."""
        self.begun += 1
        reading.number, reading.late_at = self.begun, self.loop.time() + self.delay
        self.under_way.add(reading)
        if self.timer is None:
            self._sweep_later(reading.late_at - self.delay)

    def _sweep(self) -> None:
        """Have entries read elsewhere that take long."""
        self.timer = None
        now = self.loop.time()
        was_held_up = now > self.sweeping_at + self.delay / 4
        for reading in [*self.under_way]:
            if was_held_up:  # it is this process that was late, and what came meanwhile is still to be read
                reading.late_at = max(reading.late_at, now + self.delay / 4)
            elif reading.late_at <= now:
                reading.read_elsewhere(
                    [bookie for bookie, _ in reading.asked if not self._is_in_line(bookie, reading, now)]
                )
        self.lacking = {bookie: lacking // 2 for bookie, lacking in self.lacking.items() if lacking > 1}
        if self.under_way and self.timer is None:
            self._sweep_later(now)

    def _sweep_later(self, now: float) -> None:
        self.sweeping_at = now + self.delay
        self.timer = self.loop.call_later(self.delay, self._sweep)

    def _is_in_line(self, bookie: str, reading: Reading, now: float) -> bool:
        """Whether a bookie is still sending what was asked for before, and has not gone past this."""
        heard_at, latest = self.heard.get(bookie, (0.0, 0))
        return heard_at + self.delay > now and latest <= reading.number

    def _failed(self, error: StoreError) -> None:
        self.driver.impatient.discard(self._lose_patience)
        for reading in [*self.under_way]:
            reading.fail(error)
        self._fail_wanted(error)

    def _lose_patience(self, error: StoreError) -> None:
        """Nobody waits any more for a single entry: another bookie may have to be found for it. Whoever reads a batch
        sees to that.
        """
        for reading in [*self.under_way]:
            if type(reading) is Singles:
                reading.fail(error)
        self._fail_wanted(error)

    def _fail_wanted(self, error: StoreError) -> None:
        wanted, self.wanted = self.wanted, {}
        too, self.wanted_too = self.wanted_too, []
        for future in (*wanted.values(), *(future for _, future in too)):
            if not future.done():
                future.set_exception(error)

    # -- single entries ------------------------------------------------------------------------------------------------

    def want(self, entry_id: int) -> asyncio.Future[bytes]:
        """An entry that somebody wants by itself: those of one turn of the loop are asked for together, and so are more
        while bookies are busy.
        """
        future = self._create_future()
        if self.wanted.setdefault(entry_id, future) is not future:
            self.wanted_too.append((entry_id, future))
        if not self._is_asking:
            if self.under_way:
                self._is_asking = True
                self.loop.call_soon(self._ask_singly)
            else:  # there is nothing to wait for
                self._ask_singly()
        return future

    def _ask_singly(self) -> None:
        """Ask for the entries that are wanted one by one, unless it is better to wait for answers that are under
        way.
        """
        self._is_asking = False
        if not self.wanted:
            return
        metadata = self.role.view.known()
        fragments = metadata.fragments
        ensemble = tuple(fragments[0].ensemble)
        if len(fragments) > 1 or metadata.write_quorum < len(ensemble):
            self._ask_by_entry(metadata)
            return
        while self.wanted:
            place = self._place_to_ask(ensemble)
            if may_wait(len(self.wanted), self.asked.get(ensemble[place], 0), _ENOUGH):
                return
            reading = self._some_wanted()
            self.turn += len(reading.wanted)
            self.begin(reading)
            self._send(reading, ensemble[place], [*reading.wanted])

    def _place_to_ask(self, ensemble: Sequence[str]) -> int:
        """The place of the bookie that is to be asked for single entries."""
        asked, lacking, suspects = self.asked, self.lacking, self.role.suspects
        counts = [asked.get(bookie, 0) for bookie in ensemble]
        if lacking:
            counts = [count + lacking.get(bookie, 0) for bookie, count in zip(ensemble, counts, strict=True)]
        return least_asked(counts, [bookie in suspects for bookie in ensemble], self.turn // _ENOUGH)

    def _some_wanted(self) -> Singles:
        """The entries that are wanted one by one and come first, as a reading of their own."""
        wanted, too = self.wanted, self.wanted_too
        self.wanted = {}
        if len(wanted) > _MANY:
            of_all = iter(wanted.items())
            wanted = dict(islice(of_all, _MANY))
            self.wanted = dict(of_all)
        if not too:
            return Singles(self, wanted)
        self.wanted_too = [each for each in too if each[0] not in wanted]
        return Singles(self, wanted, [each for each in too if each[0] in wanted])

    def _ask_by_entry(self, metadata: LedgerMetadata) -> None:
        """The same where bookies have different entries."""
        turn = self.turn if len(self.wanted) <= _ENOUGH else None
        self.turn += 1
        by_fragment: dict[int, dict[int, asyncio.Future[bytes]]] = {}
        for entry_id, future in self.wanted.items():
            by_fragment.setdefault(fragment_of(metadata.fragments, entry_id).first_entry_id, {})[entry_id] = future
        too, self.wanted, self.wanted_too = self.wanted_too, {}, []
        for of_fragment in by_fragment.values():
            of_these = [each for each in too if each[0] in of_fragment] if too else too
            self.ask(Singles(self, of_fragment, of_these), [*of_fragment], turn)

    def _send(self, reading: Reading, bookie: str, entry_ids: list[int]) -> None:
        """Ask a bookie for all entries of a reading."""
        reading.asked.append((bookie, entry_ids))
        if type(reading) is Singles:
            self.asked[bookie] = self.asked.get(bookie, 0) + len(entry_ids)
        connection = self.driver.connections.get(bookie) or self.driver.connection(bookie)
        connection.send_reads(reading, self.role.ledger, entry_ids)

    def answered(self, bookie: str, entries: int, lacking: int) -> None:
        """A bookie has answered for so many entries that were asked for one by one, or never will; some of them it
        could not give.
        """
        self.asked[bookie] -= entries
        if lacking:
            self.lacking[bookie] = self.lacking.get(bookie, 0) + lacking
        elif self.lacking:
            self.lacking[bookie] = max(0, self.lacking.get(bookie, 0) - entries)
        if self.wanted and not self._is_asking:
            self._is_asking = True
            self.loop.call_soon(self._ask_singly)

    def ask(self, reading: Reading, entry_ids: Sequence[int], turn: int | None) -> None:
        """Ask bookies for entries that are in one fragment, each the bookie whose ``turn`` it is (None: from entry to
        entry another one).
        """
        metadata, suspects = self.role.view.known(), self.role.suspects
        ensemble, quorum = tuple(fragment_of(metadata.fragments, entry_ids[0]).ensemble), metadata.write_quorum
        asked: dict[str, list[int]] = {}
        if turn is not None and quorum == len(ensemble) and not suspects:
            asked[ensemble[place_to_ask(entry_ids[0], turn, quorum, quorum)]] = [*entry_ids]
        else:
            for entry_id in entry_ids:
                of_entry = entry_id // len(ensemble) if turn is None else turn
                bookie = ensemble[place_to_ask(entry_id, of_entry, len(ensemble), quorum)]
                if bookie in suspects:
                    bookie = order_to_ask(write_set(entry_id, ensemble, quorum), entry_id, suspects)[0]
                asked.setdefault(bookie, []).append(entry_id)
        self.begin(reading)
        for bookie, of_bookie in asked.items():
            self._send(reading, bookie, of_bookie)

    def ask_another(self, reading: Reading, bookie: str, entry_ids: Sequence[int]) -> None:
        """Ask other bookies for entries of one fragment that a bookie did not give; every one of them is on more
        bookies than this.
        """
        metadata, suspects = self.role.view.known(), self.role.suspects
        ensemble, quorum = tuple(fragment_of(metadata.fragments, entry_ids[0]).ensemble), metadata.write_quorum
        asked: dict[str, list[int]] = {}
        for entry_id in entry_ids:
            # Those that are on all bookies are asked of one: they follow one another.
            order = order_to_ask(
                write_set(entry_id, ensemble, quorum), entry_ids[0] if quorum == len(ensemble) else entry_id, suspects
            )
            another = next_to_ask((bookie,), (bookie,), order, False)
            assert another is not None, "no write set of a single bookie"
            asked.setdefault(another, []).append(entry_id)
        self.begin(reading)  # anew: a bookie that is asked only now has as much time as any
        for another, of_bookie in asked.items():
            self._send(reading, another, of_bookie)


class Reading:
    """Entries that were asked for together. The outcome of each request is reported to it."""

    def __init__(self, readings: Readings) -> None:
        self.readings = readings
        self.number = 0
        """It has begun as the so-maniest of all."""
        self.asked: list[tuple[str, list[int]]] = []
        """The bookies, and what each was asked for, until it is asked of others."""
        self.elsewhere: dict[int, asyncio.Future[Any]] = {}
        """Entries that the role reads."""
        self.tokens: dict[int, int] = {}
        self.late_at = 0.0

    # -- what readings of a kind do ------------------------------------------------------------------------------------

    def is_missing(self, entry_id: int) -> bool:
        """Whether an entry is not there yet."""
        raise NotImplementedError

    def take(self, view: Any, responses: Any, entry_ids: Any, rows: Any) -> tuple[int, int]:
        """Take the intact entries of responses, and make the rows of others -1; how many these others are, and the
        highest LAC of the responses.
        """
        raise NotImplementedError

    def count_answers(self, bookie: str, entries: int, lacking: int) -> None:
        """A bookie has answered for so many entries, or never will; some of them it could not give."""

    def found(self, entry: Entry) -> None:
        """An entry was found elsewhere."""
        raise NotImplementedError

    def failed(self, entry_id: int, error: BaseException) -> None:
        """An entry can not be had."""
        raise NotImplementedError

    def fail(self, error: StoreError) -> None:
        """Nothing more comes."""
        raise NotImplementedError

    def over(self) -> None:
        """Nothing is missing."""
        self.readings.under_way.discard(self)
        for future in [*self.elsewhere.values()]:
            future.cancel()

    # -- what comes of requests ----------------------------------------------------------------------------------------

    def entries_read(self, bookie: str, view: Any, responses: Any, entry_ids: Any, rows: Any) -> None:
        """A bookie sent entries."""
        readings = self.readings
        readings.heard[bookie] = readings.loop.time(), max(self.number, readings.heard.get(bookie, (0.0, 0))[1])
        refused, lac = self.take(view, responses, entry_ids, rows)
        self.count_answers(bookie, len(rows), refused)
        role = readings.role
        if role.traces and refused < len(rows):
            fields = {"bookie": bookie, "entries": runs_of(entry_ids[rows >= 0])}
            readings.calls.actor.trace_effect(Trace("reader_receives_entry", role.ledger, fields))
        if lac > role.lac or bookie in role.suspects:
            readings.calls.actor.deliver(EntriesRead(bookie, lac))
        if not refused:
            return
        for entry_id, row in zip(entry_ids.tolist(), rows.tolist(), strict=True):
            if row < 0:  # whatever it is, it is no copy of the entry
                damaged = ReadEntryResponse(role.ledger, entry_id, Code.OK, NO_ENTRY_YET, b"")
                self._read_on(entry_id, bookie, damaged)

    def read_answered(self, bookie: str, entry_id: int, response: Any) -> None:
        """A bookie answered otherwise, or in an unusual form."""
        if not isinstance(response, ReadEntryResponse):
            response = None
        self.count_answers(bookie, 1, 1)
        self._read_on(entry_id, bookie, response)

    def entries_unanswered(self, bookie: str, entry_ids: Sequence[int]) -> None:
        """A bookie did not answer."""
        self.count_answers(bookie, len(entry_ids), len(entry_ids))
        self.readings.calls.actor.deliver(EntriesRead(bookie, None))
        for entry_id in entry_ids:
            self._read_on(entry_id, bookie, None)

    def answered(self, txn: int, bookie: str, response: Any) -> None:
        """A bookie answered a request of its own."""
        self.read_answered(bookie, txn, response)

    def unanswered(self, txn: int, bookie: str) -> None:
        """A bookie did not answer a request of its own."""
        self.entries_unanswered(bookie, (txn,))

    def read_elsewhere(self, bookies: Sequence[str]) -> None:
        """Have the role ask others for what is missing of these bookies, though they may yet answer."""
        late = [(bookie, entry_ids) for bookie, entry_ids in self.asked if bookie in bookies]
        self.asked = [(bookie, entry_ids) for bookie, entry_ids in self.asked if bookie not in bookies]
        for bookie, entry_ids in late:
            self._late(bookie, entry_ids)

    def _late(self, bookie: str, entry_ids: Sequence[int]) -> None:
        for entry_id in entry_ids:
            if self.is_missing(entry_id) and entry_id not in self.elsewhere:
                self._read_on(entry_id, bookie, None, is_waiting=True)

    def _read_on(
        self, entry_id: int, bookie: str, response: ReadEntryResponse | None, is_waiting: bool = False
    ) -> None:
        calls = self.readings.calls
        if not self.is_missing(entry_id) or calls.actor.is_closed:
            return
        future = self.elsewhere.get(entry_id)
        if future is None:
            self.tokens[entry_id], future = calls.expect()
            self.elsewhere[entry_id] = future
            future.add_done_callback(lambda done: self._had_elsewhere(entry_id, done))
        elif future.done():
            return
        calls.actor.deliver(ReadOn(self.tokens[entry_id], entry_id, bookie, response, is_waiting, with_header=True))

    def _had_elsewhere(self, entry_id: int, future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if not self.is_missing(entry_id):
            return
        if error is not None:
            self.failed(entry_id, error)
        else:
            self.found(future.result())


class Stretch(Reading):
    """Entries that follow one another, which become a batch.

    What a bookie lacks or does not send is asked of another bookie, all of it together: of a ledger that is written,
    one bookie is often thousands of entries behind those that have confirmed them. The role reads what that one does
    not send either, and what is damaged.

    ``batch`` gives the entries up to the first that can not be had, if there are any, and the error if there is one.
    """

    def __init__(self, readings: Readings, first: int, last: int, mean: int) -> None:
        super().__init__(readings)
        self.loops = LOOPS.module
        self.np: Any = self.loops.np
        self.first = first
        self.missing = last - first + 1
        self.batch: asyncio.Future[tuple[EntryBatch | None, BaseException | None]] = readings.loop.create_future()
        self.block: NDArray[np.uint8] = self.np.empty(0, self.np.uint8)
        """There is none until entries arrive: those that only wait need no memory."""
        self.expected = self.missing * (mean + 64)
        self.end = 0
        self.table: NDArray[np.int64] = self.np.full((self.missing, self.loops.ENTRY_COLUMNS), -1, self.np.int64)
        self.error: BaseException | None = None
        self.lacking: dict[str, list[int]] = {}
        """Entries that bookies have said in this turn of the loop that they lack."""
        self.asked_again: dict[int, str | None] = {}
        """Entries that another bookie was asked for, and the one that has answered for them before, whose
        answer the role has not received; None: the role may receive one yet.
        """

    def is_missing(self, entry_id: int) -> bool:
        """See :class:`Reading`."""
        at = entry_id - self.first
        return at < len(self.table) and bool(self.table[at, 0] < 0) and not self.batch.done()

    def _make_room(self, size: int) -> None:
        if self.end + size > len(self.block):
            block = BLOCKS.take(self.np, max(self.end + size, 2 * len(self.block) or self.expected))
            block[: self.end] = self.block[: self.end]
            self.block = block

    def take(self, view: Any, responses: Any, entry_ids: Any, rows: Any) -> tuple[int, int]:
        """See :class:`Reading`."""
        role = self.readings.role
        digests, loops = role.digests, self.loops
        digest_type = digests.digest_type.value
        self._make_room(loops.bytes_of(responses, rows))
        if digest_type not in (loops.CRC32C, loops.CRC32) and digests.size:
            _refuse_damaged(role, loops, view, responses, entry_ids, rows)
        ledger, size = role.ledger, digests.size
        taken, self.end, lac = loops.take_entries(
            view, responses, rows, entry_ids, ledger, size, digest_type, self.first, self.block, self.end, self.table
        )
        self._fewer(taken)
        return int((rows < 0).sum()), int(lac)

    def found(self, entry: Entry) -> None:
        """See :class:`Reading`."""
        data = entry.data
        self._make_room(len(data))
        stop = self.end + len(data)
        self.block[self.end : stop] = memoryview(data)
        self.table[entry.entry_id - self.first] = self.end, stop, entry.lac, entry.length
        self.end = stop
        self._fewer(1)

    # -- what a bookie does not send -----------------------------------------------------------------------------------

    def read_answered(self, bookie: str, entry_id: int, response: Any) -> None:
        """See :class:`Reading`."""
        code = response.code if isinstance(response, ReadEntryResponse) else None
        if outcome_of_read(code, False) is ReadOutcome.NEGATIVE and self._may_ask_again(entry_id):
            if not self.lacking:
                self.readings.loop.call_soon(self._ask_for_lacking)
            self.lacking.setdefault(bookie, []).append(entry_id)
            self.asked_again[entry_id] = bookie
        else:
            super().read_answered(bookie, entry_id, response)

    def entries_unanswered(self, bookie: str, entry_ids: Sequence[int]) -> None:
        """See :class:`Reading`."""
        again = [entry_id for entry_id in entry_ids if self._may_ask_again(entry_id)]
        super().entries_unanswered(bookie, [*set(entry_ids).difference(again)])
        self._ask_another(bookie, again, bookie)

    def _late(self, bookie: str, entry_ids: Sequence[int]) -> None:
        waited_for = [entry_id for entry_id in entry_ids if self.asked_again.get(entry_id) != bookie]
        again = [entry_id for entry_id in waited_for if self._may_ask_again(entry_id)]
        super()._late(bookie, [*set(waited_for).difference(again)])
        self._ask_another(bookie, again, None)

    def _may_ask_again(self, entry_id: int) -> bool:
        """Whether an entry may be asked of another bookie without the role."""
        if entry_id in self.asked_again or entry_id in self.elsewhere or self.readings.calls.actor.is_closed:
            return False
        return self.is_missing(entry_id) and self.readings.role.view.known().write_quorum > 1

    def _ask_for_lacking(self) -> None:
        lacking, self.lacking = self.lacking, {}
        role, actor = self.readings.role, self.readings.calls.actor
        for bookie, entry_ids in lacking.items():
            if role.traces:
                fields = {"bookie": bookie, "entries": runs_of(entry_ids)}
                actor.trace_effect(Trace("reader_receives_no_entry", role.ledger, fields))
            missing = [entry_id for entry_id in entry_ids if self.is_missing(entry_id) and not actor.is_closed]
            self._ask_another(bookie, missing, bookie)

    def _ask_another(self, bookie: str, entry_ids: Sequence[int], answered: str | None) -> None:
        if entry_ids:
            self.asked_again.update(dict.fromkeys(entry_ids, answered))
            self.readings.ask_another(self, bookie, entry_ids)

    # -- the batch -----------------------------------------------------------------------------------------------------

    def failed(self, entry_id: int, error: BaseException) -> None:
        """See :class:`Reading`. The entries before it are still wanted."""
        self.error = error
        before, self.table = self.table, self.table[: entry_id - self.first]
        self._fewer(int((before[len(self.table) :, 0] < 0).sum()))

    def fail(self, error: StoreError) -> None:
        """See :class:`Reading`."""
        if not self.batch.done():
            self.batch.set_exception(error)
        self.over()

    def cancel(self) -> None:
        """Nobody wants the entries any more."""
        self.batch.cancel()
        self.over()

    def _fewer(self, number: int) -> None:
        self.missing -= number
        if self.missing:
            return
        self.over()
        if not self.batch.done():
            self.batch.set_result((self._made() if len(self.table) else None, self.error))

    def _made(self) -> EntryBatch:
        offsets = self.np.empty(len(self.table) + 1, self.np.int64)
        lacs, lengths = (
            self.np.ascontiguousarray(self.table[:, column])
            for column in (self.loops.HEADER_LAC, self.loops.HEADER_LENGTH)
        )
        out = self.block if self._is_ascending() else self.np.empty(self.end, self.np.uint8)
        if not self.loops.in_order(self.block, self.table, out, offsets):
            out = self.block
        return EntryBatch(self.first, out.data[: int(offsets[-1])], offsets.data, lacs.data, lengths.data)

    def _is_ascending(self) -> bool:
        """Whether the entries lie in the block as they follow one another."""
        starts, stops = self.table[:, 0], self.table[:, 1]
        return not starts[0] and bool((starts[1:] == stops[:-1]).all())


class Singles(Reading):
    """Entries that several callers want, each by itself. ``others``: more callers who want some of them."""

    def __init__(
        self,
        readings: Readings,
        wanted: dict[int, asyncio.Future[bytes]],
        others: Sequence[tuple[int, asyncio.Future[bytes]]] = (),
    ) -> None:
        super().__init__(readings)
        self.wanted = wanted
        self.others: dict[int, list[asyncio.Future[bytes]]] = {}
        for entry_id, future in others:
            self.others.setdefault(entry_id, []).append(future)

    def is_missing(self, entry_id: int) -> bool:
        """See :class:`Reading`."""
        return entry_id in self.wanted

    def count_answers(self, bookie: str, entries: int, lacking: int) -> None:
        """See :class:`Reading`."""
        self.readings.answered(bookie, entries, lacking)

    def take(self, view: Any, responses: Any, entry_ids: Any, rows: Any) -> tuple[int, int]:
        """See :class:`Reading`. The data are copied once, from where they have arrived."""
        role, loops = self.readings.role, LOOPS.module
        digests = role.digests
        digest_type = digests.digest_type.value
        if digest_type not in (loops.CRC32C, loops.CRC32) and digests.size:
            _refuse_damaged(role, loops, view, responses, entry_ids, rows)
        table = loops.np.empty((len(rows), loops.PLACE_COLUMNS), loops.np.int64)
        refused, lac = loops.find_entries(
            view, responses, rows, entry_ids, role.ledger, digests.size, digest_type, table
        )
        data, wanted, others = view.data, self.wanted, self.others
        for entry_id, (start, stop) in zip(entry_ids.tolist(), table.tolist(), strict=True):
            if start < 0:
                continue
            future = wanted.pop(entry_id, None)
            if future is not None:
                found = data[start:stop].tobytes()
                if not future.done():
                    future.set_result(found)
                if others:
                    self._give(entry_id, found)
        if not wanted:
            self.over()
        return refused, lac

    def _give(self, entry_id: int, data: bytes) -> None:
        for future in self.others.pop(entry_id, ()):
            if not future.done():
                future.set_result(data)

    def found(self, entry: Entry) -> None:
        """See :class:`Reading`."""
        future = self.wanted.pop(entry.entry_id)
        if not future.done():
            future.set_result(entry.data)
        self._give(entry.entry_id, entry.data)
        if not self.wanted:
            self.over()

    def failed(self, entry_id: int, error: BaseException) -> None:
        """See :class:`Reading`."""
        for future in (self.wanted.pop(entry_id), *self.others.pop(entry_id, ())):
            if not future.done():
                future.set_exception(error)
        if not self.wanted:
            self.over()

    def fail(self, error: StoreError) -> None:
        """See :class:`Reading`."""
        for entry_id in [*self.wanted]:
            self.failed(entry_id, error)


def _refuse_damaged(role: Reader, loops: Any, view: Any, responses: Any, entry_ids: Any, rows: Any) -> None:
    """Make the rows -1 of entries whose digest, of a type that the loops do not make, is wrong."""
    for place, (entry_id, row) in enumerate(zip(entry_ids.tolist(), rows.tolist(), strict=True)):
        start = int(responses[row, loops.RESPONSE_BODY])
        body = view[start : start + int(responses[row, loops.RESPONSE_SIZE])].tobytes()
        if role.digests.open_entry(body, role.ledger, entry_id) is None:
            rows[place] = -1
