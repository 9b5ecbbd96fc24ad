"""The entries that callers of a reader want, many together or each by itself, until they are there or cannot be had.

All that is wanted is read by *readings*, of one entry or of many. A bookie is asked for many entries at once, another
one in each turn. What it lacks, fails to send or takes long with is asked of the next bookie that should have it, all
of it together. An entry that no bookie gives is in doubt: before its read ends badly the metadata are read once more,
since the entry may be in a fragment that the reader does not know of yet. (The Java client relies on its watch alone.)

Entries that are wanted one by one are grouped: while bookies are busy with others of their kind, more of them gather,
and then the bookie with the fewest under way is asked for many. The data of entries are the driver's.
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
"""Entries that are wanted one by one which are asked for at once, however many are under way: their number saves no
more work.
"""
MANY = 256
"""Entries that are wanted one by one which a bookie is asked for together at most: all bookies have something to do,
and callers have their results and make new ones by and by, or Python would look for garbage all the time.
"""


class Search(msgspec.Struct):
    """The read of an entry that the first bookie did not give at once: whom to ask, in this order, who was asked, who
    lacks it, who failed, and whether somebody sent a copy that is damaged.
    """

    entry_id: int
    write_set: Ensemble[str]
    asked: list[str]
    negative: list[str]
    failed: list[str]
    is_damaged: bool = False


class Reading(msgspec.Struct):
    """Entries that are read together: for the caller with a ``token`` above 0, who wants those that come before
    ``stop``; or, by a number below 0, some that are wanted one by one. It has begun as the ``number``-th of all.

    ``asked``: the bookies, and what each was asked for, until it is late.
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
        """The entries that are not there. As long as each is asked of one bookie alone, nobody needs to know."""
        if self.known_missing is None:
            self.known_missing = set(self.entry_ids).difference(*self.came)
        return self.known_missing

    def take(self, entry_ids: Sequence[int]) -> None:
        """These are there, or not wanted any more."""
        if self.known_missing is None:
            self.came.append(entry_ids)
            self.left -= len(entry_ids)
        else:
            self.known_missing.difference_update(entry_ids)
            self.left = len(self.known_missing)


Asks = dict[str, list[int]]
"""What bookies are to be asked for."""


class Readings(OfLedger):
    """The readings of a reader that are under way, and the metadata and the bookies as it knows them.

    ``delay``: microseconds after which a bookie that has not answered is not waited for alone.
    """

    def __init__(self, ledger: int, view: MetadataView, delay: int, traces: bool) -> None:
        self.ledger = ledger
        self.traces = traces
        self.view = view
        self.suspects: set[str] = set()
        """Bookies that left the last question unanswered."""
        self.delay = delay
        self.under_way: dict[int, Reading] = {}
        self.doubted: list[tuple[Reading, Search]] = []
        """The entries that nobody gave, which wait for the metadata."""
        self.begun = 0
        self.heard: dict[str, tuple[int, int]] = {}
        """When each bookie sent entries last, and the latest of the readings that they were of."""
        self.due: int | None = None
        """When it is seen which readings are late."""
        self.turn = 0
        """The readings of many entries that were begun: a bookie has its turn for each."""
        self.wanted: list[int] = []
        """Entries that are wanted one by one, and not asked for yet."""
        self.single_turn = 0
        """The entries that were asked for one by one. A bookie has its turn for some, which it is likely to read
        ahead.
        """
        self.asked: dict[str, int] = {}
        """The entries that each bookie was asked for one by one, and has not answered."""
        self.lacking: dict[str, int] = {}
        """Entries that each bookie lacked, less those that it had since then; half as many whenever it is seen who is
        late.
        """
        self.is_gathering = False
        """Whether callers who had entries have a moment to want more."""

    # -- what callers want ---------------------------------------------------------------------------------------------

    def read(self, token: int, entry_ids: range, error: Error, now: int, effects: list[Effect]) -> None:
        """Read entries that follow one another. ``error``: what those behind them come to, which are wanted too."""
        reading = Reading(token, entry_ids, len(entry_ids), entry_ids.stop, error)
        turn, self.turn = self.turn, self.turn + 1
        first, *others = self._by_fragment(entry_ids)
        asks = self._first_asks(*first, turn)
        for each in others:
            for bookie, these in self._first_asks(*each, turn).items():
                asks[bookie] = [*asks.get(bookie, ()), *these]
        self._send(reading, asks, now, effects)

    def want(self, entry_ids: Sequence[int], now: int, effects: list[Effect]) -> None:
        """Ask for these entries and all others that are wanted by themselves, unless it is better to wait for answers
        that are under way.
        """
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
        """The place of the bookie that is to be asked for entries that are wanted one by one."""
        asked, lacking, suspects = self.asked, self.lacking, self.suspects
        counts = [asked.get(bookie, 0) for bookie in ensemble] if asked else [0] * len(ensemble)
        if lacking:
            counts = [number + lacking.get(bookie, 0) for bookie, number in zip(ensemble, counts, strict=True)]
        suspected = [bookie in suspects for bookie in ensemble] if suspects else [False] * len(ensemble)
        return least_asked(counts, suspected, self.single_turn // ENOUGH)

    def _ask_by_entry(self, now: int, effects: list[Effect]) -> None:
        """The same where bookies have different entries."""
        entry_ids, self.wanted = self.wanted, []
        turn = self.single_turn if len(entry_ids) <= ENOUGH else None
        self.single_turn += 1
        for ensemble, of_fragment in self._by_fragment(entry_ids):
            self._send(self._group(of_fragment), self._first_asks(ensemble, of_fragment, turn), now, effects)

    def _group(self, entry_ids: Sequence[int]) -> Reading:
        """Entries that are wanted one by one, to be read together."""
        return Reading(-1 - self.begun, entry_ids, len(entry_ids))

    def _by_fragment(self, entry_ids: Sequence[int]) -> Iterable[tuple[Sequence[str], Sequence[int]]]:
        """The same entries, those of each fragment with its ensemble."""
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
        """Which bookie is asked first for each entry of a fragment: the one whose ``turn`` it is (None: from entry to
        entry another one), unless it is a suspect.
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
        """Nobody wants the entries of a reading any more, or (0) those that are wanted one by one."""
        if not token:
            self.wanted = []
        for each in [each for each in self.under_way if (each == token if token else each < 0)]:
            del self.under_way[each]

    def fail(self, error: Error, effects: list[Effect]) -> None:
        """No entry can be had any more, for this error."""
        self.doubted = []
        for reading in [*self.under_way.values()]:
            for entry_id in sorted(reading.missing):
                if entry_id in reading.missing:
                    self._can_not_be_had(reading, entry_id, error, effects)
        effects.extend(ReadOver(0, entry_id, error) for entry_id in self.wanted)
        self.wanted = []

    # -- bookies -------------------------------------------------------------------------------------------------------

    def _send(self, reading: Reading, asks: Mapping[str, Sequence[int]], now: int, effects: list[Effect]) -> None:
        """Ask bookies for entries of a reading. Whoever is asked only now has as much time as any."""
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

    def hear(self, bookie: str, has_answered: bool) -> None:
        """A bookie answered a question, whatever it was, or did not."""
        if not has_answered:
            self.suspects.add(bookie)
        elif self.suspects:
            self.suspects.discard(bookie)

    def answered(self, event: ReadsAnswered, now: int, effects: list[Effect]) -> bool:
        """A bookie answered, or did not; whether it sent the entries."""
        bookie, entry_ids = event.bookie, event.entry_ids
        self.hear(bookie, event.code is not None)
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
            self._not_given(reading, event, outcome is ReadOutcome.NEGATIVE, now, effects)
        return found

    def _take(self, reading: Reading, entry_ids: Sequence[int], effects: list[Effect]) -> None:
        """Entries are there, or not wanted any more."""
        reading.take(entry_ids)
        if not reading.left:
            del self.under_way[reading.token]
            if reading.token > 0:
                effects.append(ReadOver(reading.token, reading.stop, reading.error))

    def _can_not_be_had(self, reading: Reading, entry_id: int, error: Error, effects: list[Effect]) -> None:
        """An entry cannot be had. Of those that are wanted together the ones before it are still wanted."""
        if reading.token > 0:
            reading.stop, reading.error = entry_id, error
            self._take(reading, [each for each in reading.missing if each >= entry_id], effects)
        else:
            effects.append(ReadOver(reading.token, entry_id, error))
            self._take(reading, (entry_id,), effects)

    # -- what a bookie does not give -----------------------------------------------------------------------------------

    def _not_given(
        self, reading: Reading, event: ReadsAnswered, is_negative: bool, now: int, effects: list[Effect]
    ) -> None:
        """A bookie lacks entries, or failed: others are asked for them, or they are in doubt."""
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
        """The search for an entry; one that begins with the bookies that were asked, if there is none."""
        if entry_id not in reading.searches:
            bookies = self._write_set(entry_id)
            ensemble = fragment_of(self.view.known().fragments, entry_id).ensemble
            # Those that are on all bookies are asked of one: they follow one another.
            start = entry_id if len(bookies) < len(ensemble) else reading.entry_ids[0]
            order = order_to_ask(bookies, start, self.suspects)
            reading.searches[entry_id] = Search(entry_id, order, [*asked], [], [])
        return reading.searches[entry_id]

    def _write_set(self, entry_id: int) -> Ensemble[str]:
        metadata = self.view.known()
        return write_set(entry_id, fragment_of(metadata.fragments, entry_id).ensemble, metadata.write_quorum)

    def look_again(self, now: int, effects: list[Effect]) -> None:
        """The metadata have been read: entries that were looked for in the wrong place are read anew, the others are
        not there.
        """
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
                self._can_not_be_had(reading, entry_id, Error.NO_ENTRY, effects)
            else:
                error = Error.DIGEST_MISMATCH if search.is_damaged else Error.READ_FAILED
                self._can_not_be_had(reading, entry_id, error, effects)
        for token, asks in again.items():
            if token in self.under_way:
                self._send(self.under_way[token], asks, now, effects)

    # -- what takes long -----------------------------------------------------------------------------------------------

    def sweep(self, now: int, effects: list[Effect]) -> None:
        """Ask others for what takes long."""
        assert self.due is not None
        was_held_up = now > self.due + self.delay // 4
        for reading in [*self.under_way.values()]:
            if was_held_up:  # it is this process that was late, and what came meanwhile is still to be read
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
        """Ask others for what is missing of those bookies that are late, though they may yet answer."""
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
        """Whether a bookie is still sending what was asked for before, and has not gone past this."""
        heard_at, latest = self.heard.get(bookie, (0, 0))
        return heard_at + self.delay > now and latest <= reading.number


def _ask_next(search: Search, has_waited: bool, asks: Asks) -> None:
    bookie = next_to_ask(search.asked, [*search.negative, *search.failed], search.write_set, has_waited)
    if bookie is not None:
        search.asked.append(bookie)
        asks.setdefault(bookie, []).append(search.entry_id)


class Answers:
    """Answers to requests for single entries, as a driver collects them: those that are alike are one event."""

    def __init__(self) -> None:
        self.alike: dict[tuple[int, str, Code | None, bool], tuple[list[int], list[int]]] = {}

    def add(
        self, digests: Digests, reading: int, bookie: str, asked: tuple[int, int], response: ReadEntryResponse | None
    ) -> Entry | None:
        """A bookie was ``asked`` for an entry of a ledger, and answered, or (None) did not; the entry, if that is what
        came.
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
        """What was collected."""
        alike, self.alike = self.alike, {}
        return [
            ReadsAnswered(reading, bookie, entry_ids, code, is_damaged, max(lacs))
            for (reading, bookie, code, is_damaged), (entry_ids, lacs) in alike.items()
        ]
