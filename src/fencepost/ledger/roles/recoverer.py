"""The recoverer: closes a ledger whose owner is gone, or presumed gone, without losing a confirmed entry.

It marks the ledger as in recovery and fences the last ensemble. From the highest LAC that it learns, it reads forward,
several entries at once, and writes back the entries found while it reads on. It reads from the ensemble that the
recovery began with. If bookies fail while it writes, it continues with others, but writes no metadata before it closes
the ledger. It closes the version that it marked. If another client has marked the ledger since, it starts over. (The
Java client closes the newer version.)
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from fencepost.ledger.entries import Digests, Entry, master_key, runs_of
from fencepost.ledger.messages import NO_ENTRY_YET, AddEntry, ReadEntry, ReadEntryResponse
from fencepost.ledger.roles.adds import Adds, PlainAdds, trace_of_answer
from fencepost.ledger.roles.interface import (
    PLACING,
    AddsAnswered,
    BookiesChanged,
    Call,
    Disconnected,
    Effect,
    Error,
    Event,
    MetadataAnswer,
    MetadataChanged,
    OfLedger,
    Received,
    Result,
    Send,
    SessionExpired,
    SetTimer,
    TimerFired,
    Trace,
    Unanswered,
)
from fencepost.ledger.roles.metadata import MetadataView, Seen, described
from fencepost.ledger.rules.adding import AddOutcome
from fencepost.ledger.rules.codes import Verdict
from fencepost.ledger.rules.ensembles import fragment_of, write_set
from fencepost.ledger.rules.metadata import (
    DigestType,
    LedgerMetadata,
    Next,
    closed,
    current_ensemble,
    marked_in_recovery,
    may_open,
    to_announce_fragments,
    to_close_recovered,
    to_start_recovery,
    with_changed_ensemble,
)
from fencepost.ledger.rules.placement import Unplaced
from fencepost.ledger.rules.protections import ALL, Protections
from fencepost.ledger.rules.reading import ReadOutcome, ordinary_read, outcome_of_read, recovery_read
from fencepost.ledger.rules.recovery import (
    confirmed_before,
    ensemble_to_read,
    fencing,
    is_end,
    keeps_fragments,
    lac_to_carry,
    may_close,
    may_read_ahead,
    says_fenced,
)


class RecovererSettings(msgspec.Struct, frozen=True):
    """How a ledger is recovered. Times are in microseconds. ``in_flight_limit``: entries read at once.

    If another client recovers the ledger too, the recovery restarts after ``restart_delay``, doubled each time up to
    64-fold, plus a random part of ``restart_jitter``.
    """

    password: bytes = b""
    in_flight_limit: int = 5
    restart_delay: int = 100_000
    restart_jitter: int = 100_000
    metadata_retry_delay: int = 100_000


class RecoveryStatus(enum.Enum):
    """The state of a recovery. Reading and writing back run at the same time."""

    IDLE = "idle"
    MARKING = "marking"
    FENCING = "fencing"
    READING = "reading"
    ANNOUNCING_FRAGMENTS = "announcing fragments"
    """Only without the protection that a recovery does not publish its fragments."""
    CLOSING = "closing"
    RESTARTING = "restarting"


class RecoveryRead(msgspec.Struct):
    """The read of one entry: the bookies asked, those that lack the entry, those that failed, and the entry found."""

    write_set: Collection[str]
    negative: list[str]
    failed: list[str]
    found: Entry | None = None


class Recoverer(OfLedger):
    """A client that recovers one ledger. ``traces``: it records its actions, see :class:`Trace`.

    Call: ``recover`` gives the metadata of the closed ledger, which may have been closed before. It may be called again
    after an error.
    """

    def __init__(
        self, ledger: int, settings: RecovererSettings, protections: Protections = ALL, traces: bool = False
    ) -> None:
        self.ledger = ledger
        self.settings = settings
        self.protections = protections
        self.traces = traces
        self.digests = Digests(DigestType.DUMMY, settings.password)
        self.key = master_key(settings.password)
        self.view = MetadataView(ledger, settings.metadata_retry_delay)
        self.available = BookiesChanged(())
        self.tokens: list[int] = []
        self.attempts = 0
        self.txn = 0
        """The number of the last request."""
        self.begun = 0
        """The number of attempts. It distinguishes the answers to their adds."""
        self._forget()

    def _forget(self) -> None:
        """Reset all state of this attempt. Later answers to it are ignored."""
        self.status = RecoveryStatus.IDLE
        self.has_opened = False
        """Whether this attempt has read the metadata."""
        self.version = -1
        """The version of the metadata with this recovery's mark."""
        self.metadata: LedgerMetadata | None = None
        """The metadata as marked, with this recovery's fragments added."""
        self.ensemble: tuple[str, ...] = ()
        """The ensemble that the recovery began with."""
        self.requests: dict[int, int] = {}
        """The entry of each unanswered fencing or read request."""
        self.fenced: list[str] = []
        self.unfenced: list[str] = []
        """Bookies that could not be fenced."""
        self.last_entries: list[Entry] = []
        """The last entries of the fenced bookies."""
        self.began_at = NO_ENTRY_YET
        """The LAC that this recovery began at."""
        self.next_read = 0
        self.reads: dict[int, RecoveryRead] = {}
        self.found = NO_ENTRY_YET
        """The last entry found."""
        self.length: int | None = None
        """Bytes of data up to that entry, if known."""
        self.end_known = False
        self.begun += 1
        self.adds = Adds((), 0, 0, NO_ENTRY_YET, 0, self.protections, attempt=self.begun)

    def receive(self, event: Event, now: int) -> list[Effect]:
        """Take an event and give its effects."""
        effects: list[Effect] = []
        _EVENTS[type(event)](self, event, effects)
        return effects

    def _called(self, event: Call, effects: list[Effect]) -> None:
        if event.operation != "recover":
            effects.append(Result(event.token, error=Error.BAD_CALL))
            return
        self.tokens.append(event.token)
        if self.status is RecoveryStatus.IDLE:
            self.attempts = 0
            self._begin(effects)

    def _begin(self, effects: list[Effect]) -> None:
        self._forget()
        self.status = RecoveryStatus.MARKING
        effects.append(self.view.read())

    def _end(self, effects: list[Effect], error: Error = Error.NONE) -> None:
        self._trace(effects, "client_ends", {"error": error.value})
        value = None if error else self.view.metadata
        effects.extend(Result(token, value, error) for token in self.tokens)
        self.tokens.clear()
        self._forget()

    # -- metadata ------------------------------------------------------------------------------------------------------

    def _metadata_answered(self, event: MetadataAnswer | TimerFired, effects: list[Effect]) -> None:
        seen = self.view.take(event, effects)
        if self.traces and seen is not None:
            action = "client_receives_metadata" if self.has_opened else "client_opens_ledger"
            effects.append(Trace(action, self.ledger, {**self.view.fields(), "written": seen is Seen.WRITTEN}))
        self.has_opened |= seen is not None
        if seen is Seen.GONE:
            self._end(effects, Error.NO_LEDGER)
        elif seen is not None and self.status is RecoveryStatus.MARKING:
            self._mark(seen, effects)
        elif seen is not None and self.status is RecoveryStatus.ANNOUNCING_FRAGMENTS:
            self._announce_fragments(seen, effects)
        elif seen is not None and self.status is RecoveryStatus.CLOSING:
            self._close(effects)

    def _mark(self, seen: Seen, effects: list[Effect]) -> None:
        metadata = self.view.known()
        if seen is Seen.WRITTEN:
            self._fence(metadata, effects)
        elif not may_open(metadata, self.settings.password):
            self._end(effects, Error.UNAUTHORIZED)
        elif to_start_recovery(metadata.status) is Next.WRITE:
            self._write("client_starts_recovery", marked_in_recovery(metadata), effects)
        else:
            self._end(effects)

    def _restart(self, effects: list[Effect]) -> None:
        """Another client recovers the ledger, or has recovered it: start over after a delay."""
        self._trace(effects, "client_ends", {"error": "overtaken"})
        self._forget()
        self.status = RecoveryStatus.RESTARTING
        delay = self.settings.restart_delay << min(self.attempts, 6)
        self.attempts += 1
        effects.append(SetTimer(("restart", self.attempts), delay, self.settings.restart_jitter))

    # -- fencing -------------------------------------------------------------------------------------------------------

    def _fence(self, metadata: LedgerMetadata, effects: list[Effect]) -> None:
        self.status = RecoveryStatus.FENCING
        self.metadata, self.version = metadata, self.view.version
        self.digests = Digests(metadata.digest_type, self.settings.password)
        self.ensemble = current_ensemble(metadata)
        for bookie in self.ensemble:
            self._send(bookie, NO_ENTRY_YET, True, effects)

    def _send(self, bookie: str, entry_id: int, fence: bool, effects: list[Effect]) -> None:
        self.txn += 1
        self.requests[self.txn] = entry_id
        effects.append(Send(self.txn, bookie, ReadEntry(self.ledger, entry_id, fence, self.key if fence else None)))

    def _answered(self, event: Received | Unanswered, effects: list[Effect]) -> None:
        entry_id = self.requests.pop(event.txn, None)
        if entry_id is None:
            return
        response = event.response if type(event) is Received else None
        assert response is None or isinstance(response, ReadEntryResponse)
        code = response.code if response else None
        wanted = None if entry_id == NO_ENTRY_YET else entry_id
        entry = self.digests.open_entry(response.body, self.ledger, wanted) if response else None
        outcome = outcome_of_read(code, entry is not None)
        if outcome is ReadOutcome.REFUSED:
            self._end(effects, Error.UNAUTHORIZED)
        elif entry_id == NO_ENTRY_YET:
            self._fence_answered(event.bookie, says_fenced(code), entry, effects)
        else:
            self._read_answered(event.bookie, entry_id, outcome, entry, effects)

    def _fence_answered(self, bookie: str, is_fenced: bool, last: Entry | None, effects: list[Effect]) -> None:
        if self.status is not RecoveryStatus.FENCING:
            return
        action = "client_receives_fencing_read_lac_response" if is_fenced else "client_gives_up_on_fence"
        self._trace(effects, action, {"bookie": bookie, "lac": None if last is None else last.lac})
        (self.fenced if is_fenced else self.unfenced).append(bookie)
        if last is not None:
            self.last_entries.append(last)
        metadata = self._marked()
        quorums = (metadata.write_quorum, metadata.ack_quorum)
        verdict = fencing(self.fenced, self.unfenced, self.ensemble, *quorums, self.protections)
        if verdict is Verdict.POSITIVE:
            self._start_reading(effects)
        elif verdict is Verdict.UNKNOWN:
            self._end(effects, Error.RECOVERY_FAILED)

    def _marked(self) -> LedgerMetadata:
        assert self.metadata is not None
        return self.metadata

    # -- reading -------------------------------------------------------------------------------------------------------

    def _start_reading(self, effects: list[Effect]) -> None:
        self.status = RecoveryStatus.READING
        metadata = self._marked()
        lacs = [NO_ENTRY_YET, *(entry.lac for entry in self.last_entries)]
        start = confirmed_before(lacs, metadata.fragments[-1].first_entry_id, self.protections)
        self.began_at = self.found = start
        self.next_read = start + 1
        ends = {NO_ENTRY_YET: 0, **{entry.entry_id: entry.length for entry in self.last_entries}}
        self.length = ends.get(start)
        quorums = (metadata.write_quorum, metadata.ack_quorum)
        self.adds = Adds(self.ensemble, *quorums, start, 0, self.protections, attempt=self.begun)
        self._read_ahead(effects)

    def _read_ahead(self, effects: list[Effect]) -> None:
        ensemble = ensemble_to_read(self.ensemble, self.adds.ensemble, self.protections)
        while not self.end_known and may_read_ahead(self.next_read, self.found, self.settings.in_flight_limit):
            self._read(self.next_read, ensemble, True, effects)
            self.next_read += 1

    def _read(self, entry_id: int, ensemble: Sequence[str], fence: bool, effects: list[Effect]) -> None:
        """Ask the whole write set at once, which fences all of it. (The Java client asks one bookie after another.)"""
        bookies = write_set(entry_id, ensemble, self._marked().write_quorum)
        self.reads[entry_id] = RecoveryRead(bookies, [], [])
        action = "client_sends_recovery_read_requests" if fence else "client_reads_length"
        self._trace(effects, action, {"entry": entry_id, "bookies": list(bookies)})
        for bookie in bookies:
            self._send(bookie, entry_id, fence, effects)

    def _read_answered(
        self, bookie: str, entry_id: int, outcome: ReadOutcome, entry: Entry | None, effects: list[Effect]
    ) -> None:
        read = self.reads.get(entry_id)
        if read is None:
            return
        if self.traces and not self.end_known:
            failed = outcome is ReadOutcome.FAILED
            action = "client_gives_up_on_read" if failed else "client_receives_recovery_read_response"
            effects.append(
                Trace(action, self.ledger, {"bookie": bookie, "entry": entry_id, "found": outcome is ReadOutcome.FOUND})
            )
        if outcome is ReadOutcome.FOUND:
            read.found = read.found or entry
        else:
            (read.negative if outcome is ReadOutcome.NEGATIVE else read.failed).append(bookie)
        if self.end_known:
            self._length_answered(read, effects)
        else:
            self._decide_reads(effects)

    def _decide_reads(self, effects: list[Effect]) -> None:
        """Decide the reads, entry by entry in order."""
        while read := self.reads.get(self.found + 1):
            ack_quorum = self._marked().ack_quorum
            verdict = recovery_read(
                read.found is not None, read.negative, read.failed, read.write_set, ack_quorum, self.protections
            )
            if verdict is Verdict.POSITIVE:
                assert read.found is not None
                self._write_back(read.found, effects)
            elif verdict is Verdict.UNKNOWN:
                self._end(effects, Error.DATA_UNKNOWN)
                return
            elif is_end(verdict):
                self.end_known = True
                self.reads.clear()
            else:
                break
        self._read_ahead(effects)
        self._close_when_done(effects)

    def _write_back(self, entry: Entry, effects: list[Effect]) -> None:
        del self.reads[entry.entry_id]
        self.found, self.length = entry.entry_id, entry.length
        lac = lac_to_carry(self.began_at, self.adds.confirmed, self.protections)
        body = self.digests.entry_body(msgspec.structs.replace(entry, lac=lac))
        request = AddEntry(self.ledger, entry.entry_id, lac, body, self.key, recovery=True)
        self._trace(
            effects,
            "client_writes_back_entry",
            {"entries": ((entry.entry_id, entry.entry_id),), "lac": lac, "ensemble": list(self.adds.ensemble)},
        )
        self.adds.push(PlainAdds((request,), (entry.length,)), 0, effects)

    # -- writing back --------------------------------------------------------------------------------------------------

    def _adds_answered(self, event: AddsAnswered, effects: list[Effect]) -> None:
        outcome = self.adds.take(event)
        if self.traces and outcome is not None:
            entries = runs_of(event.entry_ids)
            effects.append(trace_of_answer("recovery_client", self.ledger, event.bookie, entries, event.code, outcome))
        if outcome is AddOutcome.CONFIRMED:
            self.adds.confirm(self.status is RecoveryStatus.ANNOUNCING_FRAGMENTS)
            sent = self.adds.send_missed(effects)
            if self.traces:
                effects.extend(Trace("recovery_client_sends_add_again", self.ledger, fields) for fields in sent)
            self._close_when_done(effects)
        elif outcome is AddOutcome.BOOKIE_FAILED:
            self._replace_bookies(effects)
        elif outcome is AddOutcome.FENCED:
            self._end(effects, Error.RECOVERY_FAILED)
        elif outcome is AddOutcome.UNAUTHORIZED:
            self._end(effects, Error.UNAUTHORIZED)

    def _replace_bookies(self, effects: list[Effect]) -> None:
        if self.status is not RecoveryStatus.READING:
            return
        changed = self.adds.replacement(current_ensemble(self._marked()), self.available)
        if isinstance(changed, Unplaced):
            if not self.adds.may_go_on():
                self._end(effects, PLACING[changed])
            return
        try:
            self.metadata = with_changed_ensemble(self._marked(), changed, self.adds.confirmed)
        except ValueError:  # only without the protection that a recovery starts at the current fragment
            self._end(effects, Error.RECOVERY_FAILED)
            return
        if keeps_fragments(self.protections):
            self._trace(
                effects, "recovery_client_changes_ensemble", {"version": None, "metadata": described(self.metadata)}
            )
            self._go_on_with(changed, effects)
        else:
            self.status = RecoveryStatus.ANNOUNCING_FRAGMENTS
            self._write("recovery_client_changes_ensemble", self.metadata, effects)

    def _go_on_with(self, ensemble: tuple[str, ...], effects: list[Effect]) -> None:
        self._trace(effects, "recovery_client_sends_pending_add_op", self.adds.resent(ensemble))
        self.adds.change_ensemble(ensemble, effects)

    def _write(self, action: str, metadata: LedgerMetadata, effects: list[Effect]) -> None:
        """Replace the metadata."""
        self._trace(effects, action, self.view.fields(metadata))
        effects.append(self.view.write(metadata))

    def _announce_fragments(self, seen: Seen, effects: list[Effect]) -> None:
        own = self.view.version == self.version
        if seen is Seen.WRITTEN:
            self.status, self.version = RecoveryStatus.READING, self.view.version
            self._go_on_with(current_ensemble(self._marked()), effects)
            self.adds.confirm()
            if self.adds.failed:
                self._replace_bookies(effects)
            else:
                self._close_when_done(effects)
        elif to_announce_fragments(self.view.known().status, own, self.protections) is Next.WRITE:
            self._write("recovery_client_changes_ensemble", self._marked(), effects)
        else:
            self._restart(effects)

    # -- closing -------------------------------------------------------------------------------------------------------

    def _close_when_done(self, effects: list[Effect]) -> None:
        if self.status is not RecoveryStatus.READING:
            return
        if may_close(self.end_known, self.adds.pending, self.protections):
            if self.length is None:
                self._read_length(effects)
            else:
                self.status = RecoveryStatus.CLOSING
                self.requests.clear()  # later answers cannot change anything
                self._close(effects)

    def _read_length(self, effects: list[Effect]) -> None:
        """Read the ledger's length from the entry at the LAC, if no entry follows it and no bookie has sent it yet."""
        if not self.reads:
            fragment = fragment_of(self._marked().fragments, self.found)
            self._read(self.found, tuple(fragment.ensemble), False, effects)

    def _length_answered(self, read: RecoveryRead, effects: list[Effect]) -> None:
        verdict = ordinary_read(read.found is not None, read.negative, read.failed, read.write_set)
        if verdict is Verdict.POSITIVE:
            assert read.found is not None
            self.length = read.found.length
            self._close_when_done(effects)
        elif verdict is not Verdict.WAITING:
            self._end(effects, Error.DATA_UNKNOWN)

    def _close(self, effects: list[Effect]) -> None:
        metadata = self.view.known()
        what_next = to_close_recovered(metadata.status, self.view.version == self.version, self.protections)
        if what_next is Next.WRITE:
            assert self.length is not None
            metadata = closed(metadata, self.found, self.length, self._marked().fragments)
            self._write("recovery_client_closes_ledger", metadata, effects)
        elif what_next is Next.DONE:
            self._end(effects)
        else:
            self._restart(effects)

    # -- the rest ------------------------------------------------------------------------------------------------------

    def _timer_fired(self, event: TimerFired, effects: list[Effect]) -> None:
        if event.key != ("restart", self.attempts):
            self._metadata_answered(event, effects)
        elif self.status is RecoveryStatus.RESTARTING:
            self._begin(effects)

    def _bookies_changed(self, event: BookiesChanged, effects: list[Effect]) -> None:
        self.available = event
        if self.adds.failed:
            self._replace_bookies(effects)

    def _ignore(self, event: Disconnected | MetadataChanged | SessionExpired, effects: list[Effect]) -> None:
        """Ignored: the recoverer has no watches, and depends only on durable state."""


_EVENTS: dict[type, Callable[[Recoverer, Any, list[Effect]], None]] = {
    Call: Recoverer._called,
    Received: Recoverer._answered,
    Unanswered: Recoverer._answered,
    AddsAnswered: Recoverer._adds_answered,
    Disconnected: Recoverer._ignore,
    MetadataAnswer: Recoverer._metadata_answered,
    TimerFired: Recoverer._timer_fired,
    BookiesChanged: Recoverer._bookies_changed,
    MetadataChanged: Recoverer._ignore,
    SessionExpired: Recoverer._ignore,
}
