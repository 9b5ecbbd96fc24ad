"""The reader: reads a ledger without recovering it, up to what is confirmed, and follows it while it is written.

An entry is asked of one bookie, and of the next if that one lacks it, fails, or takes long; answers may come in any
order. Before a read ends badly the metadata are read once more, since the entry may be in a fragment that the reader
does not know of yet. (The Java client relies on its watch alone.) Whoever waits for an entry polls one bookie at a time
for the LAC, and watches the metadata for the next fragment and for the end.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from itertools import count
from typing import Any

import msgspec

from fencepost.store.entries import Digests
from fencepost.store.messages import (
    NO_ENTRY_YET,
    ReadEntry,
    ReadEntryResponse,
    ReadLac,
    ReadLacResponse,
    Request,
)
from fencepost.store.roles.interface import (
    BookiesChanged,
    Call,
    Disconnected,
    Effect,
    EntriesRead,
    Error,
    Event,
    MetadataAnswer,
    MetadataChanged,
    OfLedger,
    ReadOn,
    Received,
    Result,
    Send,
    SessionExpired,
    SetTimer,
    TimerFired,
    Trace,
    Unanswered,
)
from fencepost.store.roles.metadata import MetadataView, Seen
from fencepost.store.rules.codes import Verdict
from fencepost.store.rules.ensembles import Ensemble, fragment_of, write_set
from fencepost.store.rules.metadata import DigestType, current_ensemble, end_of, may_open
from fencepost.store.rules.protections import ALL, Protections
from fencepost.store.rules.reading import (
    ReadOutcome,
    is_readable,
    lac_read,
    may_be_elsewhere,
    next_to_ask,
    order_to_ask,
    ordinary_read,
    outcome_of_read,
    says_lac,
)
from fencepost.store.rules.recovery import confirmed_before


class ReaderSettings(msgspec.Struct, frozen=True):
    """How a ledger is read. Times are in microseconds.

    ``speculation_delay``: how long to wait for a bookie before the next one is asked too, or anew; ``poll_wait``: how
    long a bookie is to hold a question for a higher LAC. ``lac``: the highest LAC that another reader has
    learnt already; then no bookie is asked when the ledger is opened.
    """

    password: bytes = b""
    speculation_delay: int = 20_000
    poll_wait: int = 1_000_000
    metadata_retry_delay: int = 100_000
    lac: int = NO_ENTRY_YET


class ReaderStatus(enum.Enum):
    """Whether there is a ledger to read."""

    NEW = "new"
    OPENING = "opening"
    OPEN = "open"
    GONE = "gone"


class Read(msgspec.Struct):
    """The read of one entry: who was asked, who lacks it, who failed, and whether somebody sent a copy that is damaged.
    ``with_header``: what comes of it is an :class:`Entry`, not the data alone.
    """

    token: int
    entry_id: int
    write_set: Ensemble[str]
    asked: list[str]
    negative: list[str]
    failed: list[str]
    is_damaged: bool = False
    with_header: bool = False


class LacRead(msgspec.Struct):
    """The question for the LAC to a whole ensemble. ``tokens``: who wants to know."""

    tokens: list[int]
    ensemble: Ensemble[str]
    first_entry_id: int
    answered: list[str]
    failed: list[str]
    lacs: list[int]


class Poll(msgspec.Struct):
    """The question for a LAC beyond ``lac``, which the bookie may hold until ``over_at``."""

    lac: int
    over_at: int


class Reader(OfLedger):
    """A client that reads one ledger. ``traces``: it traces the answers that it receives, see :class:`Trace`.

    Calls: ``open`` and ``lac`` (give the LAC, or the last entry of a closed ledger), ``read`` of an entry (its data, or
    the :class:`Entry` if the second argument says so) and ``tail`` of an entry: its data as soon as it is confirmed, or
    None when the ledger has ended before it.

    Entries that are read by the batch are asked for by the driver, of the bookies that :func:`place_to_ask` and
    :func:`least_asked` say; what does not come of it as it should comes here (:class:`ReadOn`).
    """

    def __init__(
        self, ledger: int, settings: ReaderSettings, protections: Protections = ALL, traces: bool = False
    ) -> None:
        self.ledger = ledger
        self.settings = settings
        self.protections = protections
        self.traces = traces
        self.traced_lac = NO_ENTRY_YET
        self.digests = Digests(DigestType.DUMMY, settings.password)
        self.view = MetadataView(ledger, settings.metadata_retry_delay, watches=True)
        self.status = ReaderStatus.NEW
        self.lac = settings.lac
        self.txns = count(1)
        self.requests: dict[int, Read | LacRead | Poll] = {}
        """The read of each request that is not answered."""
        self.opens: list[int] = []
        self.reads: dict[int, Read] = {}
        """The reads that are not over, by token."""
        self.doubted: list[Read] = []
        """Reads that have found nothing and wait for the metadata."""
        self.lac_reads: list[LacRead] = []
        self.tails: dict[int, list[int]] = {}
        """Entries that are waited for, and the tokens of those who do."""
        self.poll: Poll | None = None
        self.suspects: set[str] = set()
        """Bookies that left the last question unanswered."""
        self.polled = 0
        """How many polls there have been: each goes to the next bookie."""

    @property
    def end(self) -> int | None:
        """The last entry, once the ledger is closed."""
        return end_of(self.view.known())

    def receive(self, event: Event, now: int) -> list[Effect]:
        """Take an event; what is to be done about it."""
        effects: list[Effect] = []
        _EVENTS[type(event)](self, event, now, effects)
        return effects

    # -- the caller ----------------------------------------------------------------------------------------------------

    def _called(self, event: Call, now: int, effects: list[Effect]) -> None:
        token, operation = event.token, event.operation
        if self.status is ReaderStatus.GONE:
            effects.append(Result(token, error=Error.NO_LEDGER))
        elif operation == "open":
            self._open(token, effects)
        elif self.status is not ReaderStatus.OPEN:
            effects.append(Result(token, error=Error.BAD_CALL))
        elif operation == "lac":
            self._ask_for_lac([token], effects)
        elif operation == "read":
            self._read(token, event.arguments[0], effects, *event.arguments[1:])
        elif operation == "tail":
            self.tails.setdefault(event.arguments[0], []).append(token)
            self._serve_tails(now, effects)
        else:
            effects.append(Result(token, error=Error.BAD_CALL))

    def _open(self, token: int, effects: list[Effect]) -> None:
        if self.status is ReaderStatus.OPEN:
            self._ask_for_lac([token], effects)
            return
        self.opens.append(token)
        if self.status is ReaderStatus.NEW:
            self.status = ReaderStatus.OPENING
            effects.append(self.view.read())

    # -- metadata ------------------------------------------------------------------------------------------------------

    def _metadata_answered(self, event: MetadataAnswer | TimerFired, now: int, effects: list[Effect]) -> None:
        seen = self.view.take(event, effects)
        if self.traces and seen is Seen.READ:
            effects.append(Trace("reader_reads_metadata", self.ledger, self.view.fields()))
        if seen is Seen.GONE:
            self._gone(effects)
        elif seen is Seen.READ and self.status is ReaderStatus.OPENING:
            self._opened(effects)
        elif seen is Seen.READ:
            self._read_doubted(effects)
            self._serve_tails(now, effects)

    def _metadata_changed(self, event: MetadataChanged | SessionExpired, now: int, effects: list[Effect]) -> None:
        if self.status in (ReaderStatus.OPENING, ReaderStatus.OPEN):
            effects.append(self.view.read())

    def _opened(self, effects: list[Effect]) -> None:
        metadata = self.view.known()
        opens, self.opens = self.opens, []
        if may_open(metadata, self.settings.password):
            self.status = ReaderStatus.OPEN
            self.digests = Digests(metadata.digest_type, self.settings.password)
            if self.lac == NO_ENTRY_YET:
                self._ask_for_lac(opens, effects)
            else:
                effects.extend(Result(token, self.lac) for token in opens)
        else:
            self.status = ReaderStatus.NEW
            effects.extend(Result(token, error=Error.UNAUTHORIZED) for token in opens)

    def _gone(self, effects: list[Effect]) -> None:
        """The ledger was deleted, or has never been: all calls that wait get the error."""
        self.status = ReaderStatus.GONE
        asking = [token for lac_read in self.lac_reads for token in lac_read.tokens]
        waiting = [token for tokens in self.tails.values() for token in tokens]
        tokens = [*self.opens, *self.reads, *asking, *waiting]
        effects.extend(Result(token, error=Error.NO_LEDGER) for token in tokens)
        self.opens, self.reads, self.doubted, self.lac_reads, self.tails, self.poll = [], {}, [], [], {}, None
        self.requests.clear()

    # -- bookies -------------------------------------------------------------------------------------------------------

    def _send(self, bookie: str, request: Request, operation: Read | LacRead | Poll, effects: list[Effect]) -> int:
        txn = next(self.txns)
        self.requests[txn] = operation
        effects.append(Send(txn, bookie, request))
        return txn

    def _answered(self, event: Received | Unanswered, now: int, effects: list[Effect]) -> None:
        operation = self.requests.pop(event.txn, None)
        response = event.response if type(event) is Received else None
        if response is None:
            self.suspects.add(event.bookie)
        elif self.suspects:
            self.suspects.discard(event.bookie)
        if type(operation) is LacRead:
            assert response is None or isinstance(response, ReadLacResponse)
            self._lac_answered(operation, event.bookie, response, now, effects)
        elif operation is not None:
            assert response is None or isinstance(response, ReadEntryResponse)
            if type(operation) is Read:
                self._read_answered(operation, event.bookie, response, now, effects)
            elif operation is self.poll:
                self._poll_answered(response, now, effects, event.bookie)

    # -- entries that were asked for by the batch
    # -----------------------------------------------------------------------

    def _entries_read(self, event: EntriesRead, now: int, effects: list[Effect]) -> None:
        if event.lac is None:
            self.suspects.add(event.bookie)
        else:
            self.suspects.discard(event.bookie)
            self._learn(event.lac, now, effects)

    def _read_on(self, event: ReadOn, now: int, effects: list[Effect]) -> None:
        """Go on with the read of one entry as if this had asked the bookie."""
        if self.status is not ReaderStatus.OPEN:
            effects.append(Result(event.token, error=Error.NO_LEDGER))
            return
        read = self.reads.get(event.token)
        if read is None:
            bookies = order_to_ask(self._write_set(event.entry_id), event.entry_id, self.suspects)
            read = Read(event.token, event.entry_id, bookies, [event.bookie], [], [], with_header=event.with_header)
            self.reads[event.token] = read
        if event.is_waiting:
            self._ask_next(read, True, effects)
            return
        self._read_answered(read, event.bookie, event.response, now, effects)

    # -- one entry -----------------------------------------------------------------------------------------------------

    def _read(self, token: int, entry_id: int, effects: list[Effect], with_header: bool = False) -> None:
        if is_readable(entry_id, self.lac, self.end):
            bookies = order_to_ask(self._write_set(entry_id), entry_id, self.suspects)
            read = self.reads[token] = Read(token, entry_id, bookies, [], [], [], with_header=with_header)
            self._ask_next(read, False, effects)
        else:
            effects.append(Result(token, error=Error.READ_FAILED))

    def _write_set(self, entry_id: int) -> Ensemble[str]:
        metadata = self.view.known()
        return write_set(entry_id, fragment_of(metadata.fragments, entry_id).ensemble, metadata.write_quorum)

    def _ask_next(self, read: Read, has_waited: bool, effects: list[Effect]) -> None:
        bookie = next_to_ask(read.asked, [*read.negative, *read.failed], read.write_set, has_waited)
        if bookie is not None:
            read.asked.append(bookie)
            txn = self._send(bookie, ReadEntry(self.ledger, read.entry_id), read, effects)
            effects.append(SetTimer(("speculate", txn), self.settings.speculation_delay))

    def _read_answered(
        self, read: Read, bookie: str, response: ReadEntryResponse | None, now: int, effects: list[Effect]
    ) -> None:
        if self.reads.get(read.token) is not read:
            return
        entry = self.digests.open_entry(response.body, self.ledger, read.entry_id) if response else None
        outcome = outcome_of_read(response.code if response else None, entry is not None)
        if self.traces and outcome in (ReadOutcome.FOUND, ReadOutcome.NEGATIVE):
            self._trace_answer(bookie, read.entry_id, outcome is ReadOutcome.FOUND, effects)
        if outcome is not ReadOutcome.FOUND:
            if bookie in read.negative or bookie in read.failed:
                return  # it was asked by the batch and here, and its first word counts
            (read.negative if outcome is ReadOutcome.NEGATIVE else read.failed).append(bookie)
            read.is_damaged |= response is not None and response.body is not None
        verdict = ordinary_read(outcome is ReadOutcome.FOUND, read.negative, read.failed, read.write_set)
        if verdict is Verdict.POSITIVE:
            assert entry is not None and response is not None
            del self.reads[read.token]
            effects.append(Result(read.token, entry if read.with_header else entry.data))
            self._learn(max(entry.lac, response.lac), now, effects)
        elif verdict is Verdict.WAITING:
            self._ask_next(read, False, effects)
        else:
            self.doubted.append(read)
            effects.append(self.view.read())

    def _read_doubted(self, effects: list[Effect]) -> None:
        """The metadata have been read: entries that were looked for in the wrong place are read anew, the others are
        not there.
        """
        doubted, self.doubted = self.doubted, []
        for read in doubted:
            del self.reads[read.token]
            if may_be_elsewhere(read.asked, self._write_set(read.entry_id)):
                self._read(read.token, read.entry_id, effects, read.with_header)
            elif ordinary_read(False, read.negative, read.failed, read.write_set) is Verdict.NEGATIVE:
                self._trace(effects, "reader_finds_no_entry", {"entry": read.entry_id})
                effects.append(Result(read.token, error=Error.NO_ENTRY))
            elif read.is_damaged:
                effects.append(Result(read.token, error=Error.DIGEST_MISMATCH))
            else:
                effects.append(Result(read.token, error=Error.READ_FAILED))

    # -- the LAC -------------------------------------------------------------------------------------------------------

    def _learn(self, lac: int, now: int, effects: list[Effect]) -> None:
        before, self.lac = self.lac, max(self.lac, lac)
        if self.lac > before:
            if self.traces:
                self._trace_lac(self.lac, effects)
            self._serve_tails(now, effects)

    def _trace_lac(self, lac: int, effects: list[Effect]) -> None:
        if lac > self.traced_lac:
            self.traced_lac = lac
            effects.append(Trace("reader_learns_lac", self.ledger, {"lac": lac}))

    def _trace_answer(self, bookie: str, entry_id: int, found: bool, effects: list[Effect]) -> None:
        action = "reader_receives_entry" if found else "reader_receives_no_entry"
        effects.append(Trace(action, self.ledger, {"bookie": bookie, "entries": ((entry_id, entry_id),)}))

    def _ask_for_lac(self, tokens: list[int], effects: list[Effect]) -> None:
        if self.end is not None:
            effects.extend(Result(token, self.end) for token in tokens)
            return
        metadata = self.view.known()
        ensemble = current_ensemble(metadata)
        asked = LacRead(tokens, ensemble, metadata.fragments[-1].first_entry_id, [], [], [])
        self.lac_reads.append(asked)
        for bookie in ensemble:
            self._send(bookie, ReadLac(self.ledger), asked, effects)

    def _lac_answered(
        self, asked: LacRead, bookie: str, response: ReadLacResponse | None, now: int, effects: list[Effect]
    ) -> None:
        if not any(asked is other for other in self.lac_reads):
            return
        (asked.answered if says_lac(response.code if response else None) else asked.failed).append(bookie)
        if response is not None:
            explicit_lac = self.digests.open_lac(response.lac_body, self.ledger)
            last = self.digests.open_entry(response.last_entry, self.ledger)
            if explicit_lac is not None:
                asked.lacs.append(explicit_lac)
            if last is not None:
                asked.lacs.append(last.lac)
        metadata = self.view.known()
        quorums = (metadata.write_quorum, metadata.ack_quorum)
        verdict = lac_read(asked.answered, asked.failed, asked.ensemble, *quorums)
        if verdict is Verdict.WAITING:
            return
        self.lac_reads = [other for other in self.lac_reads if other is not asked]
        if verdict is Verdict.POSITIVE:
            self._learn(confirmed_before(asked.lacs, asked.first_entry_id, self.protections), now, effects)
            effects.extend(Result(token, self.lac) for token in asked.tokens)
        else:
            effects.extend(Result(token, error=Error.READ_FAILED) for token in asked.tokens)

    # -- following a ledger that is written ----------------------------------------------------------------------------

    def _serve_tails(self, now: int, effects: list[Effect]) -> None:
        """Read the entries that are waited for and can be read, tell of those that will never be, and poll for the
        others.
        """
        for entry_id in [*self.tails]:
            if is_readable(entry_id, self.lac, self.end):
                for token in self.tails.pop(entry_id):
                    self._read(token, entry_id, effects)
            elif self.end is not None:
                self._trace(effects, "reader_finds_end", {"entry": entry_id})
                effects.extend(Result(token) for token in self.tails.pop(entry_id))
        if self.tails and self.poll is None:
            self._ask_to_poll(now, effects)

    def _ask_to_poll(self, now: int, effects: list[Effect]) -> None:
        ensemble, wait = current_ensemble(self.view.known()), self.settings.poll_wait
        bookie = ensemble[self.polled % len(ensemble)]
        self.poll = Poll(self.lac, now + wait)
        self.polled += 1
        request = ReadEntry(self.ledger, NO_ENTRY_YET, previous_lac=self.lac, wait=wait)
        self._send(bookie, request, self.poll, effects)

    def _poll_answered(
        self, response: ReadEntryResponse | None, now: int, effects: list[Effect], bookie: str = ""
    ) -> None:
        poll, self.poll = self.poll, None
        assert poll is not None
        if response is not None and says_lac(response.code):
            entry = self.digests.open_entry(response.body, self.ledger)
            if entry is not None and is_readable(entry.entry_id, response.lac, self.end):
                if self.traces:
                    self._trace_lac(response.lac, effects)
                    self._trace_answer(bookie, entry.entry_id, True, effects)
                effects.extend(Result(token, entry.data) for token in self.tails.pop(entry.entry_id, ()))
            self._learn(response.lac, now, effects)
        if self.poll is not None or not self.tails:
            return
        if now < poll.over_at and self.lac <= poll.lac:
            # A bookie that is fenced, or lacks the ledger, or is gone answers at once: it is not asked in a loop.
            self.poll = poll
            effects.append(SetTimer(("poll", self.polled), self.settings.speculation_delay))
        else:
            self._ask_to_poll(now, effects)

    # -- the rest ------------------------------------------------------------------------------------------------------

    def _timer_fired(self, event: TimerFired, now: int, effects: list[Effect]) -> None:
        kind, number = event.key
        if kind == "speculate":
            read = self.requests.get(number)
            if type(read) is Read and self.reads.get(read.token) is read:
                self._ask_next(read, True, effects)
        elif kind == "poll":
            if self.poll is not None and number == self.polled:
                self.poll = None
                self._serve_tails(now, effects)
        else:
            self._metadata_answered(event, now, effects)

    def _ignore(self, event: BookiesChanged | Disconnected, now: int, effects: list[Effect]) -> None:
        """The reader chooses no bookies."""


_EVENTS: dict[type, Callable[[Reader, Any, int, list[Effect]], None]] = {
    Call: Reader._called,
    Received: Reader._answered,
    Unanswered: Reader._answered,
    ReadOn: Reader._read_on,
    EntriesRead: Reader._entries_read,
    Disconnected: Reader._ignore,
    MetadataAnswer: Reader._metadata_answered,
    MetadataChanged: Reader._metadata_changed,
    SessionExpired: Reader._metadata_changed,
    TimerFired: Reader._timer_fired,
    BookiesChanged: Reader._ignore,
}
