"""The reader: reads a ledger up to the last confirmed entry without recovering it, and can follow a ledger being
written.

:mod:`.reading` reads entries. To follow a ledger, the reader long-polls one bookie at a time for the LAC, and watches
the metadata for the next fragment and for the end.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import msgspec

from fencepost.ledger.entries import Digests, runs_of
from fencepost.ledger.messages import NO_ENTRY_YET, ReadEntry, ReadEntryResponse, ReadLac, ReadLacResponse, Request
from fencepost.ledger.roles.interface import (
    BookiesChanged,
    Call,
    Disconnected,
    Effect,
    Error,
    Event,
    ForgetReads,
    MetadataAnswer,
    MetadataChanged,
    OfLedger,
    ReadEntries,
    ReadOver,
    ReadsAnswered,
    Received,
    Result,
    Send,
    SessionExpired,
    SetTimer,
    TimerFired,
    Trace,
    Unanswered,
    WantEntries,
)
from fencepost.ledger.roles.metadata import MetadataView, Seen
from fencepost.ledger.roles.reading import Readings
from fencepost.ledger.rules.codes import Verdict
from fencepost.ledger.rules.ensembles import Ensemble, coverage
from fencepost.ledger.rules.metadata import DigestType, current_ensemble, end_of, may_open
from fencepost.ledger.rules.protections import ALL, Protections
from fencepost.ledger.rules.reading import is_readable, last_readable, says_lac
from fencepost.ledger.rules.recovery import confirmed_before


class ReaderSettings(msgspec.Struct, frozen=True):
    """How a ledger is read. Times are in microseconds.

    ``speculation_delay``: how long to wait for a bookie before also asking the next one, or asking again.
    ``poll_wait``: how long a bookie holds a long poll for a higher LAC. ``lac``: the highest LAC already known from
    another reader; if it is set, opening the ledger asks no bookie.
    """

    password: bytes = b""
    speculation_delay: int = 20_000
    poll_wait: int = 1_000_000
    metadata_retry_delay: int = 100_000
    lac: int = NO_ENTRY_YET


class ReaderStatus(enum.Enum):
    """The status of a reader."""

    NEW = "new"
    OPENING = "opening"
    OPEN = "open"
    GONE = "gone"


class LacRead(msgspec.Struct):
    """A request for the LAC to a whole ensemble. ``tokens``: the calls waiting for it."""

    tokens: list[int]
    ensemble: Ensemble[str]
    first_entry_id: int
    answered: list[str]
    failed: list[str]
    lacs: list[int]


class Poll(msgspec.Struct):
    """A long poll for a LAC above ``lac``. The bookie may hold it until ``over_at``."""

    lac: int
    over_at: int


class Reader(OfLedger):
    """A client that reads one ledger. ``traces``: it records the answers it receives, see :class:`Trace`.

    Calls: ``open`` and ``lac`` give the LAC, or the last entry of a closed ledger. ``tail`` of an entry gives True once
    the entry can be read, or its data if they came along, or None if the ledger ended before it. Entries are read by
    :class:`ReadEntries` and :class:`WantEntries`.
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
        self.status = ReaderStatus.NEW
        self.lac = settings.lac
        self.end: int | None = None
        """The last entry, once the ledger is known to be closed."""
        self.txn = 0
        """The number of the last request."""
        self.requests: dict[int, int | None] = {}
        """Unanswered requests: the number of the LAC read that each belongs to, None for the poll."""
        self.opens: list[int] = []
        self.lac_reads: dict[int, LacRead] = {}
        """By the number of its first request."""
        self.tails: dict[int, list[int]] = {}
        """Awaited entries, and the tokens waiting for each."""
        self.poll: Poll | None = None
        view = MetadataView(ledger, settings.metadata_retry_delay, watches=True)
        self.readings = Readings(ledger, view, settings.speculation_delay, traces)
        self.polled = 0
        """The number of polls so far. Each goes to the next bookie."""

    @property
    def view(self) -> MetadataView:
        """The metadata as last seen."""
        return self.readings.view

    def receive(self, event: Event, now: int) -> list[Effect]:
        """Take an event and give its effects."""
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
        if seen is Seen.READ:
            self.end = end_of(self.view.known())
        if seen is Seen.GONE:
            self._gone(effects)
        elif seen is Seen.READ and self.status is ReaderStatus.OPENING:
            self._opened(effects)
        elif seen is Seen.READ:
            self.readings.metadata_read(now, effects)
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
        """The ledger was deleted, or never existed: fail all waiting calls."""
        self.status = ReaderStatus.GONE
        asking = [token for lac_read in self.lac_reads.values() for token in lac_read.tokens]
        waiting = [token for tokens in self.tails.values() for token in tokens]
        effects.extend(Result(token, error=Error.NO_LEDGER) for token in (*self.opens, *asking, *waiting))
        self.readings.fail(Error.NO_LEDGER, effects)
        self.opens, self.lac_reads, self.tails, self.poll = [], {}, {}, None
        self.requests.clear()

    # -- bookies -------------------------------------------------------------------------------------------------------

    def _send(self, bookie: str, request: Request, number: int | None, effects: list[Effect]) -> None:
        self.txn += 1
        self.requests[self.txn] = number
        effects.append(Send(self.txn, bookie, request))

    def _answered(self, event: Received | Unanswered, now: int, effects: list[Effect]) -> None:
        response = event.response if type(event) is Received else None
        self.readings.note_answer(event.bookie, response is not None)
        if event.txn not in self.requests:
            return
        number = self.requests.pop(event.txn)
        if number is not None:
            assert response is None or isinstance(response, ReadLacResponse)
            self._lac_answered(number, event.bookie, response, now, effects)
        else:
            assert response is None or isinstance(response, ReadEntryResponse)
            self._poll_answered(response, now, effects, event.bookie)

    # -- entries -------------------------------------------------------------------------------------------------------

    def _read(self, event: ReadEntries, now: int, effects: list[Effect]) -> None:
        """Read consecutive entries, as far as they are readable."""
        readable = last_readable(self.lac, self.end) if self.status is ReaderStatus.OPEN else NO_ENTRY_YET
        last = min(event.last, readable)
        error = Error.NONE if last == event.last else self._refusal()
        if 0 <= event.first <= last:
            self.readings.read(event.token, range(event.first, last + 1), error, now, effects)
        else:
            effects.append(ReadOver(event.token, event.first, error or Error.READ_FAILED))

    def _want(self, event: WantEntries, now: int, effects: list[Effect]) -> None:
        """Read single entries that are readable."""
        wanted = event.entry_ids
        readable = last_readable(self.lac, self.end) if self.status is ReaderStatus.OPEN else NO_ENTRY_YET
        if max(wanted) > readable:
            effects.extend(ReadOver(0, each, self._refusal()) for each in wanted if each > readable)
            wanted = [each for each in wanted if each <= readable]
        if wanted:
            self.readings.want(wanted, now, effects)

    def _refusal(self) -> Error:
        """Why an entry cannot be read."""
        if self.status is ReaderStatus.OPEN:
            return Error.READ_FAILED
        return Error.NO_LEDGER if self.status is ReaderStatus.GONE else Error.BAD_CALL

    def _reads_answered(self, event: ReadsAnswered, now: int, effects: list[Effect]) -> None:
        if self.readings.answered(event, now, effects) and event.lac > self.lac:
            self._learn(event.lac, now, effects)

    def _forget(self, event: ForgetReads, now: int, effects: list[Effect]) -> None:
        self.readings.forget(event.token)

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

    def _ask_for_lac(self, tokens: list[int], effects: list[Effect]) -> None:
        if self.end is not None:
            effects.extend(Result(token, self.end) for token in tokens)
            return
        metadata = self.view.known()
        ensemble = current_ensemble(metadata)
        number = self.txn + 1
        self.lac_reads[number] = LacRead(tokens, ensemble, metadata.fragments[-1].first_entry_id, [], [], [])
        for bookie in ensemble:
            self._send(bookie, ReadLac(self.ledger), number, effects)

    def _lac_answered(
        self, number: int, bookie: str, response: ReadLacResponse | None, now: int, effects: list[Effect]
    ) -> None:
        asked = self.lac_reads.get(number)
        if asked is None:
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
        # One bookie of every ack quorum is enough. The LAC of a missing bookie cannot be far ahead of the result.
        verdict = coverage(asked.answered, asked.failed, asked.ensemble, *quorums)
        if verdict is Verdict.WAITING:
            return
        del self.lac_reads[number]
        if verdict is Verdict.POSITIVE:
            self._learn(confirmed_before(asked.lacs, asked.first_entry_id, self.protections), now, effects)
            effects.extend(Result(token, self.lac) for token in asked.tokens)
        else:
            effects.extend(Result(token, error=Error.READ_FAILED) for token in asked.tokens)

    # -- following a ledger that is written ----------------------------------------------------------------------------

    def _serve_tails(self, now: int, effects: list[Effect]) -> None:
        """Report awaited entries that can be read, and those that will never exist. Poll for the others."""
        for entry_id in [*self.tails]:
            if is_readable(entry_id, self.lac, self.end):
                effects.extend(Result(token, True) for token in self.tails.pop(entry_id))
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
        self._send(bookie, request, None, effects)

    def _poll_answered(self, response: ReadEntryResponse | None, now: int, effects: list[Effect], bookie: str) -> None:
        poll, self.poll = self.poll, None
        assert poll is not None
        if response is not None and says_lac(response.code):
            entry = self.digests.open_entry(response.body, self.ledger)
            if entry is not None and is_readable(entry.entry_id, response.lac, self.end):
                if self.traces:
                    self._trace_lac(response.lac, effects)
                    fields = {"bookie": bookie, "entries": runs_of((entry.entry_id,))}
                    effects.append(Trace("reader_receives_entry", self.ledger, fields))
                effects.extend(Result(token, entry.data) for token in self.tails.pop(entry.entry_id, ()))
            self._learn(response.lac, now, effects)
        if self.poll is not None or not self.tails:
            return
        if now < poll.over_at and self.lac <= poll.lac:
            # A bookie that is fenced, lacks the ledger or is down answers at once. Do not poll it in a tight loop.
            self.poll = poll
            effects.append(SetTimer(("poll", self.polled), self.settings.speculation_delay))
        else:
            self._ask_to_poll(now, effects)

    # -- the rest ------------------------------------------------------------------------------------------------------

    def _timer_fired(self, event: TimerFired, now: int, effects: list[Effect]) -> None:
        kind, number = event.key
        if kind == "late":
            self.readings.sweep(now, effects)
        elif kind == "gathered":
            self.readings.want((), now, effects)
        elif kind == "poll":
            if self.poll is not None and number == self.polled:
                self.poll = None
                self._serve_tails(now, effects)
        else:
            self._metadata_answered(event, now, effects)

    def _ignore(self, event: BookiesChanged | Disconnected, now: int, effects: list[Effect]) -> None:
        """Ignored: the reader does not choose bookies."""


_EVENTS: dict[type, Callable[[Reader, Any, int, list[Effect]], None]] = {
    Call: Reader._called,
    Received: Reader._answered,
    Unanswered: Reader._answered,
    ReadEntries: Reader._read,
    WantEntries: Reader._want,
    ForgetReads: Reader._forget,
    ReadsAnswered: Reader._reads_answered,
    Disconnected: Reader._ignore,
    MetadataAnswer: Reader._metadata_answered,
    MetadataChanged: Reader._metadata_changed,
    SessionExpired: Reader._metadata_changed,
    TimerFired: Reader._timer_fired,
    BookiesChanged: Reader._ignore,
}
