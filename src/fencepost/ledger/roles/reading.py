"""Reads the entries that a reader's callers want, in batches or one by one, until they arrive or cannot be read.

Everything is read by *readings*, of one entry or of many. A bookie is asked for many entries at once, and bookies take
turns. What a bookie lacks, fails to send or is slow with is requested from the next bookie of the write set, all of it
together. An entry that no bookie has is in doubt. Before its read fails, the metadata are read again, since the entry
may be in a fragment still unknown to the reader. (The Java client relies only on its watch.)

Single entries are grouped. While bookies are busy with other single entries, more of them collect. Then the bookie with
the fewest in flight is asked for many. The driver holds the data of entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from fencepost.ledger.entries import Digests, Entry, runs_of
from fencepost.ledger.messages import NO_ENTRY_YET, ReadEntryResponse
from fencepost.ledger.roles.interface import Effect, Error, OfLedger, ReadOver, ReadsAnswered, SendReads, SetTimer
from fencepost.ledger.roles.metadata import MetadataView
from fencepost.ledger.rules.codes import Code, Verdict
from fencepost.ledger.rules.ensembles import Ensemble, fragment_of, write_set
from fencepost.ledger.rules.reading import (
    ReadOutcome,
    least_asked,
    may_be_elsewhere,
    may_wait,
    next_to_ask,
    order_to_ask,
    ordinary_read,
    outcome_of_read,
    place_to_ask,
)

ENOUGH = 64
"""This many single entries are requested at once, however many are in flight. Larger groups save no more work."""
MANY = 256
"""The most single entries requested from one bookie together. This keeps all bookies busy and delivers results
steadily. Otherwise Python's garbage collector would run all the time.
"""


class Search(msgspec.Struct):
    """The search for an entry that the first bookie did not give at once: the bookies to ask in order, those asked,
    those that lack it, those that failed, and whether a damaged copy came.
    """

    entry_id: int
    write_set: Ensemble[str]
    asked: list[str]
    negative: list[str]
    failed: list[str]
    is_damaged: bool = False


class Reading(msgspec.Struct):
    """Entries that are read together. A ``token`` above 0 is a caller's, who wants the entries before ``stop``. A token
    below 0 is for single entries. ``number``: the position of its latest request in the order of all requests.

    ``asked``: the bookies, and the entries requested from each, until they are late.
    """

    token: int
    entry_ids: Sequence[int]
    left: int
    stop: int = 0
    error: Error = Error.NONE
    number: int = 0
    late_at: int = 0
    asked: list[tuple[str, Sequence[int]]] = []
    searches: dict[int, Search] = {}
    came: list[Sequence[int]] = []
    known_missing: set[int] | None = None

    @property
    def missing(self) -> set[int]:
        """The entries that have not arrived. Computed only when needed: while each entry is requested from one bookie,
        a count is enough.
        """
        if self.known_missing is None:
            self.known_missing = set(self.entry_ids).difference(*self.came)
        return self.known_missing

    def take(self, entry_ids: Sequence[int]) -> None:
        """Mark entries as arrived or no longer wanted."""
        if self.known_missing is None:
            self.came.append(entry_ids)
            self.left -= len(entry_ids)
        else:
            self.known_missing.difference_update(entry_ids)
            self.left = len(self.known_missing)


Asks = dict[str, list[int]]
"""The entries to request from each bookie."""


class Readings(OfLedger):
    """The running readings of a reader, with the metadata and the bookies as it knows them.

    ``delay``: microseconds after which a slow bookie's entries are also requested from another.
    """

    def __init__(self, ledger: int, view: MetadataView, delay: int, traces: bool) -> None:
        self.ledger = ledger
        self.traces = traces
        self.view = view
        self.suspects: set[str] = set()
        """Bookies that did not answer their last request."""
        self.delay = delay
        self.under_way: dict[int, Reading] = {}
        self.doubted: list[tuple[Reading, Search]] = []
        """Entries that no bookie gave, waiting for the metadata."""
        self.begun = 0
        self.heard: dict[str, tuple[int, int]] = {}
        """When each bookie last sent entries, and the latest reading that they belonged to."""
        self.due: int | None = None
        """When to check for late readings."""
        self.turn = 0
        """The number of readings of many entries so far. Bookies take turns by it."""
        self.wanted: list[int] = []
        """Single entries that are not requested yet."""
        self.single_turn = 0
        """The number of single entries requested so far. A bookie's turn lasts for several entries, since it probably
        reads ahead.
        """
        self.asked: dict[str, int] = {}
        """The number of unanswered single entries of each bookie."""
        self.lacking: dict[str, int] = {}
        """How many single entries each bookie lacked, less those it had since. Halved at each check for late
        readings.
        """
        self.is_gathering = False
        """Whether callers that just received entries have a moment to ask for more."""

    # -- what callers want ---------------------------------------------------------------------------------------------

    def read(self, token: int, entry_ids: range, error: Error, now: int, effects: list[Effect]) -> None:
        """Read consecutive entries. ``error``: why the wanted entries after them cannot be read."""
        reading = Reading(token, entry_ids, len(entry_ids), entry_ids.stop, error)
        turn, self.turn = self.turn, self.turn + 1
        first, *others = self._by_fragment(entry_ids)
        asks = self._first_asks(*first, turn)
        for each in others:
            for bookie, these in self._first_asks(*each, turn).items():
                asks[bookie] = [*asks.get(bookie, ()), *these]
        self._send(reading, asks, now, effects)

    def want(self, entry_ids: Sequence[int], now: int, effects: list[Effect]) -> None:
        """Request these and all other wanted single entries, unless it is better to wait for answers in flight."""
        self.is_gathering = False
        self.wanted += entry_ids
        if not self.wanted:
            return
        metadata = self.view.known()
        ensemble = tuple(metadata.fragments[0].ensemble)
        if len(metadata.fragments) > 1 or metadata.write_quorum < len(ensemble):
            self._ask_by_entry(now, effects)
            return
        while self.wanted:
            bookie = ensemble[self._least_asked(ensemble)]
            if may_wait(len(self.wanted), self.asked.get(bookie, 0), ENOUGH):
                return
            entry_ids, self.wanted = self.wanted[:MANY], self.wanted[MANY:]
            self.single_turn += len(entry_ids)
            self._send(self._group(entry_ids), {bookie: entry_ids}, now, effects)

    def _least_asked(self, ensemble: Sequence[str]) -> int:
        """The index of the bookie to ask for single entries."""
        asked, lacking, suspects = self.asked, self.lacking, self.suspects
        counts = [asked.get(bookie, 0) for bookie in ensemble] if asked else [0] * len(ensemble)
        if lacking:
            counts = [number + lacking.get(bookie, 0) for bookie, number in zip(ensemble, counts, strict=True)]
        suspected = [bookie in suspects for bookie in ensemble] if suspects else [False] * len(ensemble)
        return least_asked(counts, suspected, self.single_turn // ENOUGH)

    def _ask_by_entry(self, now: int, effects: list[Effect]) -> None:
        """Request single entries where bookies have different entries."""
        entry_ids, self.wanted = self.wanted, []
        turn = self.single_turn if len(entry_ids) <= ENOUGH else None
        self.single_turn += 1
        for ensemble, of_fragment in self._by_fragment(entry_ids):
            self._send(self._group(of_fragment), self._first_asks(ensemble, of_fragment, turn), now, effects)

    def _group(self, entry_ids: Sequence[int]) -> Reading:
        """A reading of single entries."""
        return Reading(-1 - self.begun, entry_ids, len(entry_ids))

    def _by_fragment(self, entry_ids: Sequence[int]) -> Iterable[tuple[Sequence[str], Sequence[int]]]:
        """The entries by fragment, each group with the fragment's ensemble."""
        fragments = self.view.known().fragments
        if len(fragments) == 1:
            return ((tuple(fragments[0].ensemble), entry_ids),)
        of_first = fragment_of(fragments, entry_ids[0])
        if type(entry_ids) is range and of_first is fragment_of(fragments, entry_ids[-1]):
            return ((tuple(of_first.ensemble), entry_ids),)
        found: dict[int, tuple[Sequence[str], list[int]]] = {}
        for entry_id in entry_ids:
            fragment = fragment_of(fragments, entry_id)
            found.setdefault(fragment.first_entry_id, (tuple(fragment.ensemble), []))[1].append(entry_id)
        return found.values()

    def _first_asks(
        self, ensemble: Sequence[str], entry_ids: Sequence[int], turn: int | None
    ) -> dict[str, Sequence[int]]:
        """The first bookie to ask for each entry of a fragment: by ``turn`` (None: a different one for each entry),
        avoiding suspects.
        """
        size, quorum, suspects = len(ensemble), self.view.known().write_quorum, self.suspects
        if turn is not None and quorum == size and not suspects:
            return {ensemble[place_to_ask(entry_ids[0], turn, size, quorum)]: entry_ids}
        asks: dict[str, list[int]] = {}
        for entry_id in entry_ids:
            bookie = ensemble[place_to_ask(entry_id, entry_id // size if turn is None else turn, size, quorum)]
            if bookie in suspects:
                bookie = order_to_ask(write_set(entry_id, ensemble, quorum), entry_id, suspects)[0]
            asks.setdefault(bookie, []).append(entry_id)
        return {**asks}

    def forget(self, token: int) -> None:
        """Drop a reading that is no longer wanted. 0: all single entries."""
        if not token:
            self.wanted = []
        for each in [each for each in self.under_way if (each == token if token else each < 0)]:
            del self.under_way[each]

    def fail(self, error: Error, effects: list[Effect]) -> None:
        """Fail all reads with this error."""
        self.doubted = []
        for reading in [*self.under_way.values()]:
            for entry_id in sorted(reading.missing):
                if entry_id in reading.missing:
                    self._unreadable(reading, entry_id, error, effects)
        effects.extend(ReadOver(0, entry_id, error) for entry_id in self.wanted)
        self.wanted = []

    # -- bookies -------------------------------------------------------------------------------------------------------

    def _send(self, reading: Reading, asks: Mapping[str, Sequence[int]], now: int, effects: list[Effect]) -> None:
        """Request entries of a reading. The new bookies get the full delay."""
        if not asks:
            return
        self.begun += 1
        reading.number, reading.late_at = self.begun, now + self.delay
        self.under_way[reading.token] = reading
        for bookie, entry_ids in asks.items():
            reading.asked.append((bookie, entry_ids))
            if reading.token < 0:
                self.asked[bookie] = self.asked.get(bookie, 0) + len(entry_ids)
            effects.append(SendReads(reading.token, bookie, entry_ids))
        if self.due is None:
            self._sweep_at(reading.late_at, now, effects)

    def note_answer(self, bookie: str, has_answered: bool) -> None:
        """A bookie answered any request, or did not."""
        if not has_answered:
            self.suspects.add(bookie)
        elif self.suspects:
            self.suspects.discard(bookie)

    def answered(self, event: ReadsAnswered, now: int, effects: list[Effect]) -> bool:
        """A bookie answered, or did not. Gives whether it sent the entries."""
        bookie, entry_ids = event.bookie, event.entry_ids
        self.note_answer(bookie, event.code is not None)
        outcome = outcome_of_read(event.code, not event.is_damaged)
        found = outcome is ReadOutcome.FOUND
        if self.traces and (found or outcome is ReadOutcome.NEGATIVE):
            action = "reader_receives_entry" if found else "reader_receives_no_entry"
            self._trace(effects, action, {"bookie": bookie, "entries": runs_of(entry_ids)})
        if event.reading < 0:
            self.asked[bookie] -= len(entry_ids)
            if not self.asked[bookie]:
                del self.asked[bookie]
            if self.lacking or not found:
                more = -len(entry_ids) if found else len(entry_ids)
                self.lacking[bookie] = max(0, self.lacking.get(bookie, 0) + more)
            if self.wanted and not self.is_gathering:
                self.is_gathering = True
                effects.append(SetTimer(("gathered", 0), 0))
        reading = self.under_way.get(event.reading)
        if reading is None:
            return found
        if found:
            latest = self.heard[bookie][1] if bookie in self.heard else 0
            self.heard[bookie] = now, max(reading.number, latest)
            self._take(reading, entry_ids, effects)
        else:
            self._not_sent(reading, event, outcome is ReadOutcome.NEGATIVE, now, effects)
        return found

    def _take(self, reading: Reading, entry_ids: Sequence[int], effects: list[Effect]) -> None:
        """Mark entries as arrived or no longer wanted. Ends the reading if none are left."""
        reading.take(entry_ids)
        if not reading.left:
            del self.under_way[reading.token]
            if reading.token > 0:
                effects.append(ReadOver(reading.token, reading.stop, reading.error))

    def _unreadable(self, reading: Reading, entry_id: int, error: Error, effects: list[Effect]) -> None:
        """Fail an entry. In a reading of many, the entries before it are still wanted."""
        if reading.token > 0:
            reading.stop, reading.error = entry_id, error
            self._take(reading, [each for each in reading.missing if each >= entry_id], effects)
        else:
            effects.append(ReadOver(reading.token, entry_id, error))
            self._take(reading, (entry_id,), effects)

    # -- what a bookie does not give -----------------------------------------------------------------------------------

    def _not_sent(
        self, reading: Reading, event: ReadsAnswered, is_negative: bool, now: int, effects: list[Effect]
    ) -> None:
        """A bookie lacks entries, or failed: request them from others, or put them in doubt."""
        asks: Asks = {}
        doubted = len(self.doubted)
        for entry_id in event.entry_ids:
            if entry_id not in reading.missing:
                continue
            search = self._search(reading, entry_id, (event.bookie,))
            (search.negative if is_negative else search.failed).append(event.bookie)
            search.is_damaged |= event.is_damaged
            if ordinary_read(False, search.negative, search.failed, search.write_set) is Verdict.WAITING:
                _ask_next(search, False, asks)
            else:
                self.doubted.append((reading, search))
        if len(self.doubted) > doubted:
            effects.append(self.view.read())
        self._send(reading, asks, now, effects)

    def _search(self, reading: Reading, entry_id: int, asked: Sequence[str]) -> Search:
        """The search for an entry. A new search starts with the bookies asked so far."""
        if entry_id not in reading.searches:
            bookies = self._write_set(entry_id)
            ensemble = fragment_of(self.view.known().fragments, entry_id).ensemble
            # Consecutive entries that all bookies have are requested from the same one.
            start = entry_id if len(bookies) < len(ensemble) else reading.entry_ids[0]
            order = order_to_ask(bookies, start, self.suspects)
            reading.searches[entry_id] = Search(entry_id, order, [*asked], [], [])
        return reading.searches[entry_id]

    def _write_set(self, entry_id: int) -> Ensemble[str]:
        metadata = self.view.known()
        return write_set(entry_id, fragment_of(metadata.fragments, entry_id).ensemble, metadata.write_quorum)

    def metadata_read(self, now: int, effects: list[Effect]) -> None:
        """The metadata were read again: search again for entries that may be elsewhere, and fail the others."""
        doubted, self.doubted = self.doubted, []
        again: dict[int, Asks] = {}
        for reading, search in doubted:
            entry_id = search.entry_id
            if self.under_way.get(reading.token) is not reading or entry_id not in reading.missing:
                continue
            if may_be_elsewhere(search.asked, self._write_set(entry_id)):
                del reading.searches[entry_id]
                _ask_next(self._search(reading, entry_id, ()), False, again.setdefault(reading.token, {}))
            elif ordinary_read(False, search.negative, search.failed, search.write_set) is Verdict.NEGATIVE:
                self._trace(effects, "reader_finds_no_entry", {"entry": entry_id})
                self._unreadable(reading, entry_id, Error.NO_ENTRY, effects)
            else:
                error = Error.DIGEST_MISMATCH if search.is_damaged else Error.READ_FAILED
                self._unreadable(reading, entry_id, error, effects)
        for token, asks in again.items():
            if token in self.under_way:
                self._send(self.under_way[token], asks, now, effects)

    # -- what takes long -----------------------------------------------------------------------------------------------

    def sweep(self, now: int, effects: list[Effect]) -> None:
        """Request slow entries from other bookies."""
        assert self.due is not None
        was_blocked = now > self.due + self.delay // 4
        for reading in [*self.under_way.values()]:
            if was_blocked:  # this process was late, so answers may still be waiting to be read
                reading.late_at = max(reading.late_at, now + self.delay // 4)
            elif reading.late_at <= now:
                self._late(reading, now, effects)
        self.lacking = {bookie: lacking // 2 for bookie, lacking in self.lacking.items() if lacking > 1}
        self.due = None
        if self.under_way:
            self._sweep_at(min(reading.late_at for reading in self.under_way.values()), now, effects)

    def _sweep_at(self, due: int, now: int, effects: list[Effect]) -> None:
        self.due = due
        effects.append(SetTimer(("late", 0), due - now))

    def _late(self, reading: Reading, now: int, effects: list[Effect]) -> None:
        """Request what late bookies have not sent from others. The late ones may still answer."""
        reading.late_at = now + self.delay
        asked, reading.asked = reading.asked, []
        asks: Asks = {}
        for bookie, entry_ids in asked:
            if self._is_in_line(bookie, reading, now):
                reading.asked.append((bookie, entry_ids))
                continue
            for entry_id in entry_ids:
                if entry_id in reading.missing:
                    search = self._search(reading, entry_id, (bookie,))
                    if search.asked[-1] == bookie:
                        _ask_next(search, True, asks)
        self._send(reading, asks, now, effects)

    def _is_in_line(self, bookie: str, reading: Reading, now: int) -> bool:
        """Whether a bookie is still sending earlier requests and has not gone past this reading."""
        heard_at, latest = self.heard.get(bookie, (0, 0))
        return heard_at + self.delay > now and latest <= reading.number


def _ask_next(search: Search, has_waited: bool, asks: Asks) -> None:
    bookie = next_to_ask(search.asked, [*search.negative, *search.failed], search.write_set, has_waited)
    if bookie is not None:
        search.asked.append(bookie)
        asks.setdefault(bookie, []).append(search.entry_id)


class Answers:
    """Collects a driver's answers for single entries. Answers of the same kind become one event."""

    def __init__(self) -> None:
        self.alike: dict[tuple[int, str, Code | None, bool], tuple[list[int], list[int]]] = {}

    def add(
        self, digests: Digests, reading: int, bookie: str, asked: tuple[int, int], response: ReadEntryResponse | None
    ) -> Entry | None:
        """A bookie answered a request ``asked`` for a ledger and an entry, or (None) did not. Gives the entry, if it
        came intact.
        """
        entry, code = None, response.code if response is not None else None
        if response is not None and code is Code.OK:
            entry = digests.open_entry(response.body, *asked)
        kind = reading, bookie, code, code is Code.OK and entry is None
        entry_ids, lacs = self.alike.setdefault(kind, ([], [NO_ENTRY_YET]))
        entry_ids.append(asked[1])
        if entry is not None and response is not None:
            lacs += entry.lac, response.lac
        return entry

    def taken(self) -> list[ReadsAnswered]:
        """Take the collected answers as events."""
        alike, self.alike = self.alike, {}
        return [
            ReadsAnswered(reading, bookie, entry_ids, code, is_damaged, max(lacs))
            for (reading, bookie, code, is_damaged), (entry_ids, lacs) in alike.items()
        ]
