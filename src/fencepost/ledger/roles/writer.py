"""The writer: creates a ledger, owns it, appends to it and closes it.

Entries are sent as the caller appends them, up to a limit in flight. Each carries the LAC. They are confirmed in order.
Bookies that have failed are replaced together, and nothing is confirmed until the metadata show the new ensemble. The
writer fails at any sign that the ledger has another owner.

Unlike the Java client's writer, it does not close a ledger that is in recovery. If a failed bookie cannot be replaced,
the writer continues while the other bookies suffice for every entry. It uses the failed bookie again once that works.
If the others do not suffice, the writer fails, and the caller decides whether to close the ledger.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from fencepost.ledger.entries import Digests, master_key, runs_of
from fencepost.ledger.messages import NO_ENTRY_YET, AddEntry, ForceLedger, WriteLac
from fencepost.ledger.roles.adds import PLAIN, Adds, PlainLoops, trace_of_answer
from fencepost.ledger.roles.interface import (
    PLACING,
    AddsAnswered,
    Append,
    BookiesChanged,
    Call,
    Confirmed,
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
from fencepost.ledger.roles.metadata import MetadataView, Seen
from fencepost.ledger.rules.adding import (
    AddOutcome,
    is_forced,
    lac_of_owner,
    may_append,
    outcome_of_add,
    outlives_connection,
    room,
)
from fencepost.ledger.rules.ensembles import Fragment, are_quorums, needs_change
from fencepost.ledger.rules.metadata import (
    DigestType,
    LedgerMetadata,
    Next,
    adopted,
    closed,
    current_ensemble,
    end_of,
    ends_at,
    is_own,
    may_open,
    reserved,
    to_adopt,
    to_change_ensemble,
    to_close,
    to_create,
    with_changed_ensemble,
)
from fencepost.ledger.rules.placement import Unplaced, chosen
from fencepost.ledger.rules.protections import ALL, Protections


class WriterSettings(msgspec.Struct, frozen=True):
    """How a ledger is written. Times are in microseconds. ``explicit_lac_interval``: how long after the LAC has
    advanced it is sent alone, unless an entry has carried it by then. If it is 0, only entries carry the LAC.

    ``deferred_sync``: entries are confirmed before they are durable, and the LAC advances only when the caller forces.
    ``creation_token``: a random number that no other client draws. It shows the writer which ledger is its own.
    ``reserves``: the ledger is created for another writer to adopt.
    """

    ensemble_size: int = 3
    write_quorum: int = 3
    ack_quorum: int = 2
    password: bytes = b""
    digest_type: DigestType = DigestType.CRC32
    custom_metadata: tuple[tuple[str, bytes], ...] = ()
    creation_token: int = 0
    in_flight_limit: int = 1000
    deferred_sync: bool = False
    explicit_lac_interval: int = 0
    metadata_retry_delay: int = 100_000
    reserves: bool = False


_LAC_SLACK = 8
"""The LACs of many ledgers that are due within this part of their interval are sent together, which costs less."""

_STILL_OWNER = (Error.NONE, *PLACING.values(), Error.WRITE_FAILED, Error.UNAUTHORIZED)
"""Errors after which the writer still owns the ledger, and may close it. UNAUTHORIZED is one of them. It means that a
stranger has set another key for the ledger's id on a bookie. That stranger cannot have changed the metadata.
"""


class WriterStatus(enum.Enum):
    """The status of a writer."""

    NEW = "new"
    CREATING = "creating"
    OPEN = "open"
    DRAINING = "draining"
    """The caller wants to close the ledger. The writer waits for the entries in flight."""
    CLOSING = "closing"
    CLOSED = "closed"
    FAILED = "failed"


class Force(msgspec.Struct):
    """A running force. ``number``: forces are numbered from 1. ``token``: that of the call; the force before closing
    has none. ``entry_id``: the last entry to force. ``length``: the bytes of data up to it. ``forced``: the bookies
    that have completed the force.
    """

    number: int
    token: int | None
    entry_id: int
    length: int
    forced: list[str]


class WaitingAppend(msgspec.Struct):
    """An append. Its entries from index ``next`` wait for room in flight."""

    token: int
    entries: Sequence[bytes]
    next: int = 0


class Writer(OfLedger):
    """The owner of one ledger. ``traces``: emit a :class:`Trace` effect for each action.

    Calls: ``create`` creates the ledger; ``adopt`` takes over a reserved one, with these settings. Both give the
    ledger's id. ``force`` gives the LAC, and ``close`` the last entry. After an error of ``_STILL_OWNER``, ``close``
    still closes the ledger at its LAC. :class:`Append` adds entries. ``loops`` handle many entries at once.
    """

    def __init__(
        self,
        ledger: int,
        settings: WriterSettings,
        protections: Protections = ALL,
        loops: PlainLoops = PLAIN,
        traces: bool = False,
    ) -> None:
        quorums = (settings.ensemble_size, settings.write_quorum, settings.ack_quorum)
        if not are_quorums(*quorums):
            raise ValueError(
                "a ledger cannot have ensemble size {}, write quorum {} and ack quorum {}".format(*quorums)
            )
        self.ledger = ledger
        self.settings = settings
        self.protections = protections
        self.traces = traces
        self.digests = Digests(settings.digest_type, settings.password)
        self.key = master_key(settings.password)
        self.view = MetadataView(ledger, settings.metadata_retry_delay)
        self.available = BookiesChanged(())
        self.status = WriterStatus.NEW
        self.error = Error.NONE
        self.changing_ensemble = False
        self.txn = 0
        """The number of the last request."""
        self.loops = loops
        self.adds = Adds((), 0, 0, NO_ENTRY_YET, 0, protections)
        self.length = 0
        """Bytes of data up to the last entry sent."""
        self.appends: deque[WaitingAppend] = deque()
        self.closes: list[int] = []
        self.creation = 0
        """The token of the call that creates or adopts the ledger."""
        self.adopts = False
        self.forced, self.forced_length = NO_ENTRY_YET, 0
        """The last forced entry, and the bytes of data up to it."""
        self.forces_begun = 0
        self.forces: dict[int, Force] = {}
        """The force of each unanswered request, by the number of the request."""
        self.sent_lac = NO_ENTRY_YET
        """The last LAC sent."""
        self.is_lac_timer_set = False
        """Whether the timer of the explicit LAC is running."""

    @property
    def lac(self) -> int:
        """The last add confirmed."""
        return lac_of_owner(self.adds.confirmed, self.forced, self.settings.deferred_sync)

    def receive(self, event: Event, now: int) -> list[Effect]:
        """Take an event and give its effects."""
        effects: list[Effect] = []
        _EVENTS[type(event)](self, event, effects)
        return effects

    # -- the caller ----------------------------------------------------------------------------------------------------

    def _called(self, event: Call, effects: list[Effect]) -> None:
        if event.operation == "create" and self.status is WriterStatus.NEW:
            self.status, self.creation = WriterStatus.CREATING, event.token
            self._create_metadata(effects)
        elif event.operation == "adopt" and self.status is WriterStatus.NEW:
            self.status, self.creation, self.adopts = WriterStatus.CREATING, event.token, True
            effects.append(self.view.read())
        elif event.operation == "force" and self.status is WriterStatus.OPEN:
            self._force(event.token, effects)
        elif event.operation == "close" and self.status is not WriterStatus.NEW:
            self._close(event, effects)
        else:
            effects.append(Result(event.token, error=self.error or Error.BAD_CALL))

    def _append(self, event: Append, effects: list[Effect]) -> None:
        if self.status is WriterStatus.OPEN:
            self.appends.append(WaitingAppend(event.token, event.entries))
            self._send_appends(effects)
        else:
            is_early = self.status in (WriterStatus.NEW, WriterStatus.CREATING)
            error = Error.BAD_CALL if is_early else Error.LEDGER_CLOSED
            effects.append(Result(event.token, error=self.error or error))

    def _send_appends(self, effects: list[Effect]) -> None:
        adds, appends = self.adds, self.appends
        while appends and may_append(adds.pushed, adds.confirmed, self.settings.in_flight_limit):
            append = appends[0]
            self.sent_lac = self.lac
            self._send_batch(append, room(adds.pushed, adds.confirmed, self.settings.in_flight_limit), effects)
            if append.next == len(append.entries):
                appends.popleft()

    def _send_batch(self, append: WaitingAppend, limit: int, effects: list[Effect]) -> None:
        """Send the next entries of an append, at most ``limit``."""
        entries, start = append.entries, append.next
        append.next = min(len(entries), start + limit)
        if append.next - start < len(entries):
            entries = entries[start : append.next]
        if entries:
            deferred = self.settings.deferred_sync
            first = AddEntry(self.ledger, self.adds.pushed + 1, self.sent_lac, b"", self.key, deferred_sync=deferred)
            batch = self.loops.batch(self.digests, first, self.length, entries)
            self.length = batch.length(len(batch) - 1)
            if self.traces:
                self._trace_sent(batch.first, batch.first + len(batch) - 1, effects)
            self.adds.push(batch, append.token, effects)

    # -- bookies -------------------------------------------------------------------------------------------------------

    def _answered(self, event: Received | Unanswered, effects: list[Effect]) -> None:
        if event.txn in self.forces:
            self._forced(self.forces.pop(event.txn), event, effects)

    def _adds_answered(self, event: AddsAnswered, effects: list[Effect]) -> None:
        outcome = self.adds.take(event)
        if self.status not in (WriterStatus.OPEN, WriterStatus.DRAINING) or outcome is None:
            return
        if self.traces:
            entries = runs_of(event.entry_ids)
            effects.append(trace_of_answer("client", self.ledger, event.bookie, entries, event.code, outcome))
        if outcome is AddOutcome.CONFIRMED:
            self._confirm(effects)
            if self.adds.failed:
                sent = self.adds.send_missed(effects)
                if self.traces:
                    effects.extend(Trace("client_sends_add_again", self.ledger, fields) for fields in sent)
        elif outcome is AddOutcome.BOOKIE_FAILED:
            self._replace_bookies(effects)
        elif outcome is AddOutcome.FENCED:
            self._fail(Error.LEDGER_FENCED, effects)
        elif outcome is AddOutcome.UNAUTHORIZED:
            self._fail(Error.UNAUTHORIZED, effects)

    def _disconnected(self, event: Disconnected, effects: list[Effect]) -> None:
        safe = outlives_connection(self.adds.pushed, self.forced, self.settings.deferred_sync)
        if (
            not safe
            and event.bookie in self.adds.ensemble
            and self.status in (WriterStatus.OPEN, WriterStatus.DRAINING)
        ):
            self._fail(Error.WRITE_FAILED, effects)

    def _confirm(self, effects: list[Effect]) -> None:
        adds, before = self.adds, self.adds.confirmed
        adds.confirm(self.changing_ensemble)
        if adds.confirmed == before:
            return
        self._trace(effects, "client_confirms", {"lac": adds.confirmed})
        effects.append(Confirmed(adds.confirmed, adds.length))
        self._send_appends(effects)
        self._lac_moved(effects)
        self._close_when_drained(effects)

    def _replace_bookies(self, effects: list[Effect]) -> None:
        """Start to replace the failed bookies. Bookies that fail meanwhile are replaced afterwards.

        With deferred sync the writer fails instead: the failed bookie may have the only copy of a confirmed entry.
        """
        if self.changing_ensemble:
            return
        if not self.settings.deferred_sync:
            self.changing_ensemble = True
            self._change_ensemble(effects)
        else:
            self._fail(Error.WRITE_FAILED, effects)

    def _change_ensemble(self, effects: list[Effect]) -> None:
        """Switch to the ensemble now in the metadata, and replace failed bookies in it."""
        metadata = self.view.known()
        ensemble = current_ensemble(metadata)
        what_next = to_change_ensemble(metadata.status, needs_change(ensemble, self.adds.failed))
        if what_next is Next.GIVE_UP:
            self._fail(Error.LEDGER_FENCED, effects)
            return
        if ensemble != self.adds.ensemble:
            self._trace(effects, "client_resends_pending_add_op", self.adds.resent(ensemble))
            self.adds.change_ensemble(ensemble, effects)
        changed = self.adds.replacement(ensemble, self.available)
        if what_next is Next.WRITE and not isinstance(changed, Unplaced):
            metadata = with_changed_ensemble(metadata, changed, self.adds.confirmed)
            self._write("client_changes_ensemble", metadata, effects)
        elif what_next is Next.WRITE and not self.adds.may_go_on():
            assert isinstance(changed, Unplaced)
            self._fail(PLACING[changed], effects)
        elif not self.view.is_stable:
            # An earlier write without an answer may still put another ensemble in the metadata. This write rules that
            # out.
            self._write("client_keeps_ensemble", metadata, effects)
        else:
            self.changing_ensemble = False
            self._confirm(effects)
            self._close_when_drained(effects)

    # -- force, and the explicit LAC -----------------------------------------------------------------------------------

    def _force(self, token: int | None, effects: list[Effect]) -> None:
        if token is not None and self.adds.confirmed <= self.lac:
            effects.append(Result(token, self.lac))
            return
        self.forces_begun += 1
        force = Force(self.forces_begun, token, self.adds.confirmed, self.adds.length, [])
        self._trace(
            effects,
            "client_forces_ledger",
            {"force": force.number, "entry": force.entry_id, "bookies": list(self.adds.ensemble)},
        )
        for bookie in self.adds.ensemble:
            self._send(bookie, ForceLedger(self.ledger), effects)
            self.forces[self.txn] = force

    def _send(self, bookie: str, request: ForceLedger | WriteLac, effects: list[Effect]) -> None:
        self.txn += 1
        effects.append(Send(self.txn, bookie, request))

    def _forced(self, force: Force, event: Received | Unanswered, effects: list[Effect]) -> None:
        outcome = outcome_of_add(event.response.code if type(event) is Received else None)
        if outcome is not AddOutcome.CONFIRMED:
            self.forces = {txn: other for txn, other in self.forces.items() if other is not force}
            code = event.response.code.name if type(event) is Received else None
            self._trace(
                effects, "client_gives_up_on_force", {"force": force.number, "bookie": event.bookie, "code": code}
            )
            if force.token is None:
                self._fail(Error.WRITE_FAILED, effects)
            else:
                effects.append(Result(force.token, error=Error.WRITE_FAILED))
                self._close_when_drained(effects)
            return
        force.forced.append(event.bookie)
        is_done = is_forced(force.forced, self.adds.ensemble)
        if is_done and force.entry_id > self.forced:
            self.forced, self.forced_length = force.entry_id, force.length
        self._trace(
            effects, "client_receives_force_response", {"force": force.number, "bookie": event.bookie, "lac": self.lac}
        )
        if is_done:
            self._lac_moved(effects)
            if force.token is not None:
                effects.append(Result(force.token, self.lac))
            self._close_when_drained(effects)

    def _lac_moved(self, effects: list[Effect]) -> None:
        """Start the timer after which the LAC is sent alone, unless an entry carries it first."""
        interval = self.settings.explicit_lac_interval
        if interval and not self.is_lac_timer_set and self.lac > self.sent_lac:
            self.is_lac_timer_set = True
            effects.append(SetTimer("send LAC", interval, slack=interval // _LAC_SLACK))

    def _send_lac(self, effects: list[Effect]) -> None:
        self.is_lac_timer_set = False
        if self.status is WriterStatus.OPEN and self.lac > self.sent_lac:
            self.sent_lac = self.lac
            request = WriteLac(self.ledger, self.lac, self.digests.lac_body(self.ledger, self.lac), self.key)
            for bookie in self.adds.ensemble:
                self._send(bookie, request, effects)

    # -- close ---------------------------------------------------------------------------------------------------------

    def _close(self, event: Call, effects: list[Effect]) -> None:
        if self.status is WriterStatus.CLOSED:
            effects.append(Result(event.token, self.lac))
        elif self.error not in _STILL_OWNER or not self.adds.ensemble:  # not the owner, or not created yet
            effects.append(Result(event.token, error=self.error or Error.BAD_CALL))
        else:
            self.closes.append(event.token)
            if self.status in (WriterStatus.OPEN, WriterStatus.FAILED):
                self.status = WriterStatus.DRAINING
                self._close_when_drained(effects)

    def _close_when_drained(self, effects: list[Effect]) -> None:
        if self.status is not WriterStatus.DRAINING or self.adds.pending or self.appends or self.changing_ensemble:
            return
        if self.adds.confirmed > self.lac and not self.error:
            if not self.forces:
                self._force(None, effects)
            return
        self.status = WriterStatus.CLOSING
        self._close_metadata(effects)

    def _close_metadata(self, effects: list[Effect]) -> None:
        metadata = self.view.known()
        length = self.forced_length if self.settings.deferred_sync else self.adds.length
        what_next = to_close(metadata.status, ends_at(metadata, self.lac, length))
        if what_next is Next.WRITE:
            self._write("client_closes_ledger", closed(metadata, self.lac, length), effects)
        elif what_next is Next.DONE:
            self._closed(effects)
        else:
            self._fail(Error.LEDGER_FENCED, effects)

    def _closed(self, effects: list[Effect]) -> None:
        """The ledger is closed at the LAC. So what a force still waits for is durable already."""
        self.status = WriterStatus.CLOSED
        effects.extend(Result(token, self.lac) for token in (*self._waiting_forces(), *self.closes))
        self.forces.clear()
        self.closes.clear()

    def _waiting_forces(self) -> list[int]:
        """The calls of the running forces."""
        return list(dict.fromkeys(force.token for force in self.forces.values() if force.token is not None))

    def _fail(self, error: Error, effects: list[Effect]) -> None:
        """Fail the writer and all waiting calls. Nothing more can be added."""
        self.status, self.error = WriterStatus.FAILED, error
        self._trace(effects, "client_ends", {"error": error.value})
        self.changing_ensemble = False
        tokens = [add.token for add in self.adds.give_up()] + [append.token for append in self.appends]
        tokens += [*self._waiting_forces(), *self.closes]
        effects.extend(Result(token, error=error) for token in dict.fromkeys(tokens))
        self.appends.clear()
        self.forces.clear()
        self.closes.clear()

    # -- traces --------------------------------------------------------------------------------------------------------

    def _trace_sent(self, first: int, last: int, effects: list[Effect]) -> None:
        fields: dict[str, Any] = {
            "entries": ((first, last),),
            "lac": self.sent_lac,
            "ensemble": list(self.adds.ensemble),
        }
        if self.settings.deferred_sync:
            fields["deferred_sync"] = True
        effects.append(Trace("client_sends_add_entry_requests", self.ledger, fields))

    # -- metadata ------------------------------------------------------------------------------------------------------

    def _write(self, action: str, metadata: LedgerMetadata, effects: list[Effect]) -> None:
        """Replace the metadata."""
        self._trace(effects, action, self.view.fields(metadata))
        effects.append(self.view.write(metadata))

    def _create_metadata(self, effects: list[Effect]) -> None:
        settings = self.settings
        there = self.available
        quorums = (settings.write_quorum, settings.ack_quorum)
        ensemble = chosen(there.bookies, settings.ensemble_size, quorums, there.placement, there.suspects)
        if isinstance(ensemble, Unplaced):
            self.status = WriterStatus.NEW
            effects.append(Result(self.creation, error=PLACING[ensemble]))
            return
        metadata = LedgerMetadata(
            settings.ensemble_size,
            settings.write_quorum,
            settings.ack_quorum,
            (Fragment(NO_ENTRY_YET + 1, ensemble),),
            digest_type=settings.digest_type,
            password=settings.password,
            custom_metadata=settings.custom_metadata,
            creation_token=settings.creation_token,
        )
        metadata = reserved(metadata) if settings.reserves else metadata
        self._trace(effects, "client_creates_ledger", self.view.fields(metadata))
        effects.append(self.view.create(metadata))

    def _created(self, effects: list[Effect]) -> None:
        metadata = self.view.metadata
        own = metadata is not None and is_own(metadata, self.settings.creation_token)
        what_next = to_create(metadata is not None, own)
        if what_next is Next.WRITE:
            self._create_metadata(effects)
        elif what_next is Next.DONE:
            assert metadata is not None
            self._open(metadata, effects)
        else:
            self._do_not_open(Error.LEDGER_EXISTS, effects)

    def _adopted(self, seen: Seen, effects: list[Effect]) -> None:
        if seen is Seen.GONE:
            self._do_not_open(Error.NO_LEDGER, effects)
            return
        metadata, token = self.view.known(), self.settings.creation_token
        what_next = to_adopt(metadata, token)
        if not may_open(metadata, self.settings.password):
            self._do_not_open(Error.UNAUTHORIZED, effects)
        elif what_next is Next.WRITE:
            self._write("client_adopts_ledger", adopted(metadata, token), effects)
        elif what_next is Next.DONE:
            self._open(metadata, effects)
        else:
            self._do_not_open(Error.LEDGER_CLOSED if end_of(metadata) is not None else Error.LEDGER_EXISTS, effects)

    def _open(self, metadata: LedgerMetadata, effects: list[Effect]) -> None:
        """Open the ledger: it belongs to this writer, and is empty."""
        self.status = WriterStatus.OPEN
        quorums = (metadata.write_quorum, metadata.ack_quorum)
        ensemble = current_ensemble(metadata)
        self.adds = Adds(ensemble, *quorums, NO_ENTRY_YET, 0, self.protections, self.loops)
        effects.append(Result(self.creation, self.ledger))

    def _do_not_open(self, error: Error, effects: list[Effect]) -> None:
        self._fail(error, effects)
        effects.append(Result(self.creation, error=error))

    def _metadata_answered(self, event: MetadataAnswer | TimerFired, effects: list[Effect]) -> None:
        seen = self.view.take(event, effects)
        if seen is None:
            return
        if self.traces and (self.changing_ensemble or self.status in (WriterStatus.CREATING, WriterStatus.CLOSING)):
            effects.append(
                Trace("client_receives_metadata", self.ledger, {**self.view.fields(), "written": seen is Seen.WRITTEN})
            )
        if self.status is WriterStatus.CREATING and self.adopts:
            self._adopted(seen, effects)
        elif self.status is WriterStatus.CREATING:
            self._created(effects)
        elif not self.changing_ensemble and self.status is not WriterStatus.CLOSING:
            return  # the writer failed meanwhile
        elif seen is Seen.GONE:
            self._fail(Error.NO_LEDGER, effects)
        elif self.status is WriterStatus.CLOSING:
            self._close_metadata(effects)
        else:
            self._change_ensemble(effects)

    def _timer_fired(self, event: TimerFired, effects: list[Effect]) -> None:
        if event.key == "send LAC":
            self._send_lac(effects)
        else:
            self._metadata_answered(event, effects)

    def _bookies_changed(self, event: BookiesChanged, effects: list[Effect]) -> None:
        self.available = event
        if self.adds.failed and self.status in (WriterStatus.OPEN, WriterStatus.DRAINING):
            self._replace_bookies(effects)

    def _ignore(self, event: MetadataChanged | SessionExpired, effects: list[Effect]) -> None:
        """Ignore the event: the writer has no watches."""


_EVENTS: dict[type, Callable[[Writer, Any, list[Effect]], None]] = {
    Call: Writer._called,
    Append: Writer._append,
    AddsAnswered: Writer._adds_answered,
    Received: Writer._answered,
    Unanswered: Writer._answered,
    Disconnected: Writer._disconnected,
    MetadataAnswer: Writer._metadata_answered,
    TimerFired: Writer._timer_fired,
    BookiesChanged: Writer._bookies_changed,
    MetadataChanged: Writer._ignore,
    SessionExpired: Writer._ignore,
}
