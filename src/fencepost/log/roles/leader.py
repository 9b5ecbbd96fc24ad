"""The writer of a log: from its election to an open ledger, and while it leads.

Its states are those of the protocol `ledger-chaining`. It reads the chain, closes the last ledger, whichever writer
created it, and creates a new one. It appends that to the chain on condition of the version that it has read, and only
then writes to it. It rolls over when its ledger is large or old enough, or takes no more entries. An election proves
nothing: several writers may believe that they lead. A deposed one learns it when its operations are refused.

Appends are numbered from 0 in order of arrival; the driver keeps their data. They wait while there is no open ledger,
up to a limit, and are written and acknowledged in order. An append that is missing from a closed ledger is written
again to the next. So each append is either acknowledged once, with its position, or fails once. A failure says whether
the entry is certainly not in the log, or whether that is unknown.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import msgspec

from fencepost.ledger.roles.interface import Effect, Event, Outcome, SetTimer, TimerFired, Trace
from fencepost.log.chain import Chain, Position, seen_fields
from fencepost.log.rules import (
    ALL,
    After,
    Failure,
    Limits,
    Protections,
    Status,
    Update,
    after_closing,
    after_failure,
    after_reading,
    after_update,
    appended_by,
    has_room,
    is_full,
    may_write,
    never_chained,
    room,
    takes_unanswered_for_done,
)

_AGAIN = "again"
_BEGIN = "begin"
_AGE = "age"

_RELEASE_AFTER = 1024
"""How many offsets of answered appends are released together."""

Handler = Any


class LeaderSettings(msgspec.Struct, frozen=True):
    """Settings of the writer of a log. Times are in microseconds.

    ``limits``: when the leader rolls over. ``most_appends`` and ``most_bytes``: limits of appends that are not
    acknowledged. ``pause``: the time before a retry, and before a leader that stepped down and is still elected begins
    again. ``patience``: how long a leader may fail to get a ledger, such as with too few bookies, before it steps down;
    None: forever. ``reminder``: the least time between two :class:`Waits`.
    """

    limits: Limits = Limits()
    most_appends: int = 10_000
    most_bytes: int = 64 * 1024 * 1024
    pause: int = 100_000
    patience: int | None = None
    reminder: int = 30_000_000


class Reason(enum.Enum):
    """The reason why an append failed, or why a leader stepped down."""

    FENCED = "fenced"
    """Another writer closes its ledger, or has closed it."""
    RIVAL = "rival"
    """Another writer appended a ledger to the chain."""
    NOT_ELECTED = "not elected"
    """Another writer is elected, or the session that won the election is over."""
    SEALED = "sealed"
    NO_LOG = "no log"
    """The log was deleted."""
    CLOSED = "closed"
    """The writer was asked to close."""
    NO_LEDGER = "no ledger"
    """There was no ledger to write to for longer than ``patience``."""
    NO_ROOM = "no room"
    """Too many appends wait."""


FINAL = (Reason.SEALED, Reason.NO_LOG, Reason.CLOSED)
"""Reasons after which the writer has ended."""


# -- events -----------------------------------------------------------------------------------------------------------


class Elected(Event, frozen=True, gc=False):
    """The metadata service has elected this writer."""


class NotElected(Event, frozen=True, gc=False):
    """The writer is not elected any more, or cannot know, since its session is over."""


class Append(Event, frozen=True, gc=False):
    """Append entries with these sizes in bytes. Their numbers begin at :attr:`Leader.appended`, unless they are
    :class:`Refused`. Check :meth:`Leader.has_room` first.
    """

    sizes: Sequence[int]


class RollOver(Event, frozen=True, gc=False):
    """Close the ledger when the appends under way are acknowledged, and begin another. An empty ledger stays."""


class Seal(Event, frozen=True, gc=False):
    """End the log after the appends so far. Answered by :class:`SteppedDown` with ``SEALED``. Later appends fail."""


class Close(Event, frozen=True, gc=False):
    """End the writer once the appends so far are acknowledged, and close its ledger. Answered by :class:`SteppedDown`,
    whatever the reason. If the writer does not believe that it leads, its appends fail at once.
    """


class ChainRead(Event, frozen=True, gc=False):
    """The chain and its version (OK). ``NO_LEDGER``: there is no such log. ``UNKNOWN``: the metadata cannot be read
    now.
    """

    txn: int
    outcome: Outcome
    chain: Chain = Chain()
    version: int = -1


class ChainWritten(Event, frozen=True, gc=False):
    """The chain was replaced, and has this version (OK). ``BAD_VERSION``: it was not. ``NO_LEDGER``: there is no such
    log. ``UNKNOWN``: it may have been.
    """

    txn: int
    outcome: Outcome
    version: int = -1


class LedgerCreated(Event, frozen=True, gc=False):
    """A ledger was created at a time in milliseconds since 1970. None: it cannot be created now."""

    txn: int
    ledger: int | None
    created: int = 0


class Closing(enum.Enum):
    """The outcome of closing a ledger."""

    CLOSED = "closed"
    BY_ANOTHER = "by another"
    """Another writer closed this writer's ledger, or recovers it."""
    FAILED = "failed"
    """The ledger cannot be closed now."""
    GONE = "gone"
    """The ledger does not exist: it was deleted."""


class LedgerClosed(Event, frozen=True, gc=False):
    """The outcome of :class:`CloseLedger`. ``last``: the last entry of a closed ledger; -1 if it is empty, None if that
    is unknown.
    """

    txn: int
    closing: Closing
    last_entry: int | None = None


class Confirmed(Event, frozen=True, gc=False):
    """The entries of a ledger are confirmed up to and including this one."""

    ledger: int
    entry: int


class WriteFailed(Event, frozen=True, gc=False):
    """The ledger takes no more entries."""

    ledger: int
    failure: Failure


# -- effects ----------------------------------------------------------------------------------------------------------


class ReadChain(Effect, frozen=True, gc=False):
    """Read the chain. Answered by :class:`ChainRead`."""

    txn: int


class WriteChain(Effect, frozen=True, gc=False):
    """Replace the chain if it still has this version. Answered by :class:`ChainWritten`."""

    txn: int
    chain: Chain
    version: int


class CreateLedger(Effect, frozen=True, gc=False):
    """Create a ledger to write to. Answered by :class:`LedgerCreated`."""

    txn: int


class CloseLedger(Effect, frozen=True, gc=False):
    """Close a ledger. Answered by :class:`LedgerClosed`.

    ``is_own``: it is this writer's open ledger. Its handle closes it; if that fails, a recovery does, unless another
    writer has taken the ledger. Other ledgers are closed by a recovery, which leaves a closed ledger as it is.
    """

    txn: int
    ledger: int
    is_own: bool


class Abandon(Effect, frozen=True, gc=False):
    """Stop using a ledger that this writer created: another writer closes it."""

    ledger: int


class DeleteLedger(Effect, frozen=True, gc=False):
    """Delete a ledger that this writer created and that never was in the chain. Nobody waits for it."""

    ledger: int


class Write(Effect, frozen=True, gc=False):
    """Add ``count`` appends, numbered from ``first`` on, to a ledger in this order. Answered by :class:`Confirmed`."""

    ledger: int
    first: int
    count: int


class Acknowledged(Effect, frozen=True, gc=False):
    """``count`` appends, numbered from ``first`` on, are in the log, consecutively from ``position`` on."""

    first: int
    count: int
    position: Position


class Failed(Effect, frozen=True, gc=False):
    """``count`` appends, numbered from ``first`` on, failed. ``is_known``: they are not in the log; otherwise they may
    be.
    """

    first: int
    count: int
    reason: Reason
    is_known: bool


class Refused(Effect, frozen=True, gc=False):
    """The appends of the last event are refused. They have no numbers and are not in the log."""

    reason: Reason


class Leads(Effect, frozen=True, gc=False):
    """The writer has an open ledger, the last one of this chain."""

    chain: Chain


class SteppedDown(Effect, frozen=True, gc=False):
    """The writer does not lead any more. Unless :attr:`Leader.ended` is set, it begins again while, or once, it is
    elected.
    """

    reason: Reason


class Waits(Effect, frozen=True, gc=False):
    """The writer leads, but its attempts to get a ledger have failed for this many microseconds. It keeps trying. The
    first one comes at once.
    """

    time: int


# -- the writer -------------------------------------------------------------------------------------------------------


class Chaining:
    """A role that changes the chain of a log, based on the chain that it read last.

    With ``traces`` it emits :class:`.Trace` effects, named after the actions of the protocol `log` where there is one.
    """

    def __init__(self, protections: Protections, traces: bool) -> None:
        self.protections = protections
        self.traces = traces
        self.status = Status.WAITING
        self.chain = Chain()
        self.version = -1
        self._txn = 0
        """The number of the request that it waits for."""

    def _next(self) -> int:
        self._txn += 1
        return self._txn

    def _trace(self, effects: list[Effect], action: str, **fields: Any) -> None:
        if self.traces:
            effects.append(Trace(action, None, fields))

    def _trace_read(self, effects: list[Effect], action: str, event: ChainRead, **fields: Any) -> None:
        """Trace the chain that was read."""
        if self.traces:
            effects.append(Trace(action, None, {**seen_fields(event.chain, event.version), **fields}))

    def _close_last(self, effects: list[Effect]) -> None:
        assert self.chain.last is not None
        self._trace(effects, "fence_last_ledger", ledger=self.chain.last)
        effects.append(CloseLedger(self._next(), self.chain.last, is_own=False))


class Leader(Chaining):
    """The writer of one log.

    Appends have consecutive numbers. ``acknowledged`` of them are answered, ``written`` are in a ledger or on their way
    to it, and ``appended`` is their total.
    """

    def __init__(self, settings: LeaderSettings, protections: Protections = ALL, traces: bool = False) -> None:
        super().__init__(protections, traces)
        self.settings = settings
        self.is_elected = False
        self.ended: Reason | None = None
        """Why the writer has ended; None before."""
        self.last_wish: Reason | None = None
        """``SEALED`` or ``CLOSED``: how it should end."""
        self.ledger: int | None = None
        """The ledger that it created and has not closed."""
        self.created = 0
        self.base = 0
        """The number of the append that is entry 0 of the ledger."""
        self._begins = 0
        """Bytes of all appends before that one."""
        self.begun = 0
        """When the first entry of the ledger was written."""
        self.is_rolling = False
        self.acknowledged = self.written = self.appended = 0
        self._offsets = [0]
        """Bytes of all appends before each one from number ``_first`` on, and of all."""
        self._first = 0
        self._retries: Handler = None
        """The step to retry when the timer fires."""
        self._failing_since: int | None = None
        """When the first step failed since there was last a ledger to write to."""
        self._reminds_at = 0
        """The earliest time of the next :class:`Waits`."""

    # -- requests ------------------------------------------------------------------------------------------------------

    @property
    def unacknowledged(self) -> int:
        """How many appends wait or are under way."""
        return self.appended - self.acknowledged

    @property
    def bytes(self) -> int:
        """Bytes of the appends that wait or are under way."""
        return self._offsets[-1] - self._before(self.acknowledged)

    def _before(self, number: int) -> int:
        """Bytes of all appends before one that is not acknowledged."""
        return self._offsets[number - self._first]

    def has_room(self, size: int, count: int = 1) -> bool:
        """Return whether ``count`` more appends with ``size`` bytes together are taken now."""
        settings = self.settings
        return has_room(self.unacknowledged + count, self.bytes + size, settings.most_appends, settings.most_bytes)

    def receive(self, event: Event, now: int) -> list[Effect]:
        """Take an event, and return its effects."""
        effects: list[Effect] = []
        _EVENTS[type(event)](self, event, now, effects)
        return effects

    # -- leading -------------------------------------------------------------------------------------------------------

    def _elected(self, event: Elected, now: int, effects: list[Effect]) -> None:
        self.is_elected = True
        if self.status is Status.WAITING and self.ended is None:
            self._begin(effects)

    def _not_elected(self, event: NotElected, now: int, effects: list[Effect]) -> None:
        self.is_elected = False
        if self.status is not Status.WAITING:
            self._abdicate(effects, Reason.NOT_ELECTED)

    def _begin(self, effects: list[Effect]) -> None:
        self.status = Status.GET_MD_FOR_CLOSING
        self._trace(effects, "become_leader")
        effects.append(ReadChain(self._next()))

    def _abdicate(self, effects: list[Effect], reason: Reason) -> None:
        """Step down for a reason that the chain and the ledger do not show."""
        if self.status is not Status.WAITING:
            self._trace(effects, "abdicate", reason=reason.value)
        self._step_down(effects, reason)

    def _step_down(self, effects: list[Effect], reason: Reason) -> None:
        """Go back to waiting, and fail what is not acknowledged."""
        if self.ledger is not None:
            effects.append(Abandon(self.ledger))
        first, written, appended = self.acknowledged, self.written, self.appended
        self.acknowledged = self.written = appended
        self._release()
        self.ledger = None
        self.is_rolling = False
        self._failing_since = None
        self.status = Status.WAITING
        self._next()  # ignores outstanding answers
        if first < written:
            effects.append(Failed(first, written - first, reason, is_known=False))
        if written < appended:
            effects.append(Failed(written, appended - written, reason, is_known=True))
        if reason in FINAL:
            self.ended = reason
        effects.append(SteppedDown(reason))
        if self.last_wish is Reason.CLOSED and self.ended is None:
            self.ended = Reason.CLOSED
        elif self.ended is None and self.is_elected:
            effects.append(SetTimer((_BEGIN, self._txn), self.settings.pause, self.settings.pause))

    def _try_again(self, now: int, effects: list[Effect], what: Handler) -> None:
        """Retry a failed step after a pause, unless ``patience`` is over."""
        if self._failing_since is None:
            self._failing_since = now
        time = now - self._failing_since
        if self.settings.patience is not None and time >= self.settings.patience:
            self._abdicate(effects, Reason.NO_LEDGER)
            return
        if now >= self._reminds_at:
            self._reminds_at = now + self.settings.reminder
            effects.append(Waits(time))
        self._retries = what
        effects.append(SetTimer((_AGAIN, self._next()), self.settings.pause, self.settings.pause))

    def _fired(self, event: TimerFired, now: int, effects: list[Effect]) -> None:
        kind, number = event.key
        if kind == _AGE:
            if number == self.ledger:
                self._consider_rolling(now, effects)
        elif number == self._txn:
            if kind == _AGAIN:
                self._retries(effects)
            elif self.is_elected and self.ended is None:
                self._begin(effects)

    # -- closing the last ledger --------------------------------------------------------------------------------------

    def _chain_read(self, event: ChainRead, now: int, effects: list[Effect]) -> None:
        if event.txn != self._txn:
            return
        if event.outcome is Outcome.NO_LEDGER:
            self._abdicate(effects, Reason.NO_LOG)
        elif event.outcome is not Outcome.OK:
            self._try_again(now, effects, self._read_again)
        elif self.status is Status.LOOK_UP_CHAIN:
            self._looked_up(event, now, effects)
        else:
            self.chain, self.version = event.chain, event.version
            step = after_reading(self.chain, self._seals, self.protections)
            self._trace_read(effects, "get_last_ledger", event, status=None if step is None else step.value)
            if step is None:
                self._step_down(effects, Reason.SEALED)
            elif step is Status.CLOSE_LAST_LEDGER:
                self.status = step
                self._close_last(effects)
            else:
                self._go_on(step, now, effects)

    def _read_again(self, effects: list[Effect]) -> None:
        effects.append(ReadChain(self._next()))

    @property
    def _seals(self) -> bool:
        """Return whether the log can be sealed: everything is written."""
        return self.last_wish is Reason.SEALED and not self.unacknowledged

    def _ledger_closed(self, event: LedgerClosed, now: int, effects: list[Effect]) -> None:
        if event.txn != self._txn:
            return
        is_own = self.status is Status.CLOSE_OWN_LEDGER
        if event.closing is Closing.FAILED:
            self._try_again(now, effects, self._close_own if is_own else self._close_last)
        elif event.closing is Closing.BY_ANOTHER or (event.closing is Closing.GONE and is_own):
            if event.last_entry is not None:
                self._reconcile(effects, event.last_entry, "close_own_ledger_bad_version")
            else:
                self._trace(effects, "ledger_fenced", ledger=self.ledger)
            self._step_down(effects, Reason.FENCED)
        else:  # closed; or deleted by hand, with nothing left to close
            if is_own:
                assert event.last_entry is not None
                self._reconcile(effects, event.last_entry, "close_own_ledger")
                self.ledger = None
                self.is_rolling = False
            else:
                self._trace(effects, "close_last_ledger", ledger=self.chain.last, last_entry=event.last_entry)
            self._go_on(after_closing(self._seals), now, effects)

    def _go_on(self, step: Status, now: int, effects: list[Effect]) -> None:
        """No ledger is open: create one, seal the log, or end, as requested."""
        if self.last_wish is Reason.CLOSED and not self.unacknowledged:
            self._abdicate(effects, Reason.CLOSED)
            return
        self.status = step
        if step is Status.PENDING_CREATE_LEDGER:
            self._create(effects)
        else:
            self._update(effects)

    # -- appending a ledger to the chain -------------------------------------------------------------------------------

    def _create(self, effects: list[Effect]) -> None:
        effects.append(CreateLedger(self._next()))

    def _ledger_created(self, event: LedgerCreated, now: int, effects: list[Effect]) -> None:
        if event.txn != self._txn:
            if event.ledger is not None:
                effects.append(DeleteLedger(event.ledger))
        elif event.ledger is None:
            self._try_again(now, effects, self._create)
        else:
            self.ledger, self.created = event.ledger, event.created
            self.base, self._begins, self.begun = self.written, self._before(self.written), now
            self.status = Status.PENDING_APPEND_LEDGER
            self._trace(effects, "create_ledger", ledger=event.ledger)
            self._update(effects)
            self._write(now, effects)

    def _update(self, effects: list[Effect]) -> None:
        """Append the new ledger to the chain, or seal the chain if there is none."""
        updated = self.chain.as_sealed() if self.ledger is None else self.chain.appended(self.ledger, self.created)
        self._trace(effects, "sends_update", version=self.version, ledger=self.ledger)
        effects.append(WriteChain(self._next(), updated, self.version))

    def _chain_written(self, event: ChainWritten, now: int, effects: list[Effect]) -> None:
        if event.txn != self._txn:
            return
        if event.outcome is Outcome.OK:
            updated = self.chain.as_sealed() if self.ledger is None else self.chain.appended(self.ledger, self.created)
            self._trace_update(effects, "", Status.HAS_OPEN_LEDGER, event.version)
            self._updated(updated, event.version, now, effects)
        elif event.outcome is Outcome.NO_LEDGER:
            self._abdicate(effects, Reason.NO_LOG)
        elif event.outcome is Outcome.UNKNOWN and takes_unanswered_for_done(self.protections):
            updated = self.chain.as_sealed() if self.ledger is None else self.chain.appended(self.ledger, self.created)
            self._trace_update(effects, "_unanswered", Status.HAS_OPEN_LEDGER)
            self._updated(updated, self.version + 1, now, effects)
        else:
            self.status = Status.LOOK_UP_CHAIN
            what = "_bad_version" if event.outcome is Outcome.BAD_VERSION else "_unanswered"
            self._trace_update(effects, what, self.status)
            self._read_again(effects)

    def _trace_update(self, effects: list[Effect], what: str, status: Status, version: int | None = None) -> None:
        """Trace the outcome of an update of the chain."""
        action = "seal" if self.ledger is None else "append_ledger"
        self._trace(effects, action + what, ledger=self.ledger, version=version, status=status.value)

    def _looked_up(self, event: ChainRead, now: int, effects: list[Effect]) -> None:
        update = after_update(self.chain, self.ledger, event.chain, self.protections)
        self._trace_read(effects, "look_up_chain", event, ledger=self.ledger, update=update.value)
        if update is Update.DONE:
            self._updated(event.chain, event.version, now, effects)
        elif update is Update.TRY_AGAIN:
            self.chain, self.version = event.chain, event.version
            self.status = Status.PENDING_APPEND_LEDGER
            self._update(effects)
        else:
            if self.ledger is not None and never_chained(self.chain, self.ledger, event.chain):
                effects += (Abandon(self.ledger), DeleteLedger(self.ledger))
                self.ledger = None
            self._step_down(effects, Reason.SEALED if update is Update.SEALED else Reason.RIVAL)

    def _updated(self, chain: Chain, version: int, now: int, effects: list[Effect]) -> None:
        self.chain, self.version = chain, version
        if self.ledger is None:
            self._step_down(effects, Reason.SEALED)
            return
        self.status = Status.HAS_OPEN_LEDGER
        self._failing_since = None
        effects.append(Leads(chain))
        self._write(now, effects)

    # -- writing ------------------------------------------------------------------------------------------------------

    def _append(self, event: Append, now: int, effects: list[Effect]) -> None:
        count = len(event.sizes)
        size = sum(event.sizes)
        why = self.ended or self.last_wish
        if why is None and not self.has_room(size, count):
            why = Reason.NO_ROOM
        if why is not None:
            effects.append(Refused(why))
            return
        self.appended += count
        self._offsets += accumulate(event.sizes, initial=self._offsets.pop())
        self._write(now, effects)

    def _write(self, now: int, effects: list[Effect]) -> None:
        """Write what waits, if allowed, while the ledger has room, and roll over when it has none."""
        if self.ledger is None or self.is_rolling or not may_write(self.status, self.protections):
            return
        limits, entries = self.settings.limits, self.written - self.base
        if not entries:
            self.begun = now
        count = room(limits, entries, self._ledger_size, now - self.begun, self._offsets, self.written - self._first)
        if count:
            self._trace(effects, "write_entry", ledger=self.ledger, entry=entries, count=count, append=self.written)
            effects.append(Write(self.ledger, self.written, count))
            if limits.age and not entries:
                effects.append(SetTimer((_AGE, self.ledger), limits.age))
            self.written += count
        self._consider_rolling(now, effects)

    @property
    def _ledger_size(self) -> int:
        """Bytes of the entries written to the ledger."""
        return self._before(self.written) - self._begins

    def _consider_rolling(self, now: int, effects: list[Effect]) -> None:
        if self.status is not Status.HAS_OPEN_LEDGER:
            return
        if not self.is_rolling:
            is_last = self.last_wish is not None and self.written == self.appended
            entries = self.written - self.base
            self.is_rolling = is_last or is_full(self.settings.limits, entries, self._ledger_size, now - self.begun)
        if self.is_rolling and self.written == self.acknowledged:
            self.status = Status.CLOSE_OWN_LEDGER
            self._close_own(effects)

    def _close_own(self, effects: list[Effect]) -> None:
        assert self.ledger is not None
        effects.append(CloseLedger(self._next(), self.ledger, is_own=True))

    def _confirmed(self, event: Confirmed, now: int, effects: list[Effect]) -> None:
        if event.ledger != self.ledger:
            return
        if self.base + event.entry >= self.acknowledged:
            self._trace(effects, "acknowledge_entry", ledger=event.ledger, entry=event.entry)
        self._acknowledge(effects, self.base + event.entry + 1)
        self._consider_rolling(now, effects)

    def _acknowledge(self, effects: list[Effect], up_to: int) -> None:
        count = up_to - self.acknowledged
        if count > 0:
            assert self.ledger is not None
            effects.append(Acknowledged(self.acknowledged, count, Position(self.ledger, self.acknowledged - self.base)))
            self.acknowledged = up_to
            self._release()

    def _release(self) -> None:
        """Forget the offsets of answered appends once they are many."""
        answered = self.acknowledged - self._first
        if answered >= _RELEASE_AFTER:
            del self._offsets[:answered]
            self._first = self.acknowledged

    def _reconcile(self, effects: list[Effect], closed_at: int, action: str) -> None:
        """The own ledger is closed: acknowledge the entries in it. The others wait again, before the unwritten ones."""
        written, acknowledged = self.written - self.base, self.acknowledged - self.base
        there = appended_by(closed_at, written, acknowledged, self.protections)
        self._trace(effects, action, ledger=self.ledger, last_entry=closed_at, acknowledged=there)
        self._acknowledge(effects, self.base + there)
        self.written = self.acknowledged

    def _write_failed(self, event: WriteFailed, now: int, effects: list[Effect]) -> None:
        if event.ledger != self.ledger or self.status is Status.CLOSE_OWN_LEDGER:
            return
        if after_failure(event.failure) is After.STEP_DOWN:
            self._trace(effects, "ledger_fenced", ledger=self.ledger)
            self._step_down(effects, Reason.FENCED)
        elif self.status is Status.HAS_OPEN_LEDGER:
            self.is_rolling = True
            self.status = Status.CLOSE_OWN_LEDGER
            self._close_own(effects)

    # -- rolling over, sealing and ending -----------------------------------------------------------------------------

    def _roll_over(self, event: RollOver, now: int, effects: list[Effect]) -> None:
        if self.status is Status.HAS_OPEN_LEDGER and self.written > self.base:
            self.is_rolling = True
            self._consider_rolling(now, effects)

    def _seal(self, event: Seal, now: int, effects: list[Effect]) -> None:
        if self.ended is None:
            self.last_wish = Reason.SEALED
            self._consider_rolling(now, effects)

    def _close(self, event: Close, now: int, effects: list[Effect]) -> None:
        if self.ended is not None:
            return
        self.last_wish = Reason.CLOSED
        if self.status is Status.WAITING or (self.ledger is None and not self.unacknowledged):
            self._abdicate(effects, Reason.CLOSED)
        else:
            self._consider_rolling(now, effects)


_EVENTS: dict[type[Event], Handler] = {
    Elected: Leader._elected,
    NotElected: Leader._not_elected,
    Append: Leader._append,
    RollOver: Leader._roll_over,
    Seal: Leader._seal,
    Close: Leader._close,
    ChainRead: Leader._chain_read,
    ChainWritten: Leader._chain_written,
    LedgerCreated: Leader._ledger_created,
    LedgerClosed: Leader._ledger_closed,
    Confirmed: Leader._confirmed,
    WriteFailed: Leader._write_failed,
    TimerFired: Leader._fired,
}
