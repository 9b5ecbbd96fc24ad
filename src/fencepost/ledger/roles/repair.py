"""The repair of a bookie that may have lost entries (BP-46): its ledgers are marked before it serves, and restored
while it serves.

Phase one durably puts every open ledger in limbo and fences every closed one. For each ledger, phase two closes it by a
recovery, copies the bookie's missing entries from other bookies, and only then ends limbo. It repeats until nothing is
missing. A repair survives any crash: limbo is in the journal, and the directories record that a repair is running.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from fencepost.ledger.roles.bookie import Bookie
from fencepost.ledger.roles.interface import Call, Effect, Error, Event, Result, SetTimer, TimerFired, Trace
from fencepost.ledger.rules.boot import Mark, mark_of, may_leave_limbo
from fencepost.ledger.rules.metadata import LedgerMetadata, LedgerStatus
from fencepost.ledger.rules.protections import ALL, Protections

MARKS_AT_ONCE = 1_000
"""The most marks not yet durable, plus one page of ledgers. They share the syncs of the journal."""

PAUSE = 3_000_000
"""Microseconds until a failed repair of ledgers is retried."""

MAY_LACK = "bookie_may_lack_entries"
"""The trace event for each checked ledger. The driver adds the ledger's entries that the bookie has."""

_AGAIN = "again"


class ListLedgers(Effect, frozen=True, gc=False):
    """List some ledgers with their metadata, as :class:`LedgersListed`: the next ones, or with ``anew`` the first ones,
    as they are now or later.
    """

    anew: bool


class LedgersListed(Event, frozen=True, gc=False):
    """Some ledgers with their metadata. ``is_last``: no more follow."""

    ledgers: Sequence[tuple[int, LedgerMetadata]]
    is_last: bool


class ListingFailed(Event, frozen=True, gc=False):
    """The metadata cannot be read now."""


class AskBookie(Effect, frozen=True, gc=False):
    """Pass a :class:`Call` to the bookie. A :class:`Done` must follow."""

    token: int
    operation: str
    arguments: tuple[Any, ...]


class Done(Event, frozen=True, gc=False):
    """The records of a call to the bookie are durable."""

    token: int


class RecoverLedger(Effect, frozen=True, gc=False):
    """Read the metadata of a ledger, and close the ledger by a recovery if it is open. A :class:`LedgerRecovered`
    follows.
    """

    ledger: int


class LedgerRecovered(Event, frozen=True, gc=False):
    """The metadata of a closed ledger; None with an error."""

    ledger: int
    metadata: LedgerMetadata | None
    error: Error = Error.NONE


class CopyEntries(Effect, frozen=True, gc=False):
    """Copy missing entries of a closed ledger that belong to the bookie. An :class:`EntriesCopied` with the number
    still missing follows.
    """

    ledger: int
    metadata: LedgerMetadata


class EntriesCopied(Event, frozen=True, gc=False):
    """Entries were copied, as durably as the bookie stores them. ``lacking`` of them could not be read."""

    ledger: int
    lacking: int


class Repair:
    """The repair of one ``bookie``. It reads the bookie's state directly, but changes it only by calls. ``left``:
    ledgers still to check in this round, plus those that could not be repaired.

    Calls: ``mark ledgers``, phase one, gives the number of ledgers in limbo and of those only fenced, once all marks
    are durable. It fails if the metadata cannot be read, and may then be called again. ``repair``, phase two, gives
    nothing, and ends when nothing is missing.
    """

    def __init__(
        self, bookie_id: str, bookie: Bookie, protections: Protections = ALL, pause: int = PAUSE, traces: bool = False
    ) -> None:
        self.bookie_id = bookie_id
        self.bookie = bookie
        self.protections = protections
        self.pause = pause
        self.traces = traces
        self.marking: int | None = None
        """The token of the call for phase one."""
        self.repairing: int | None = None
        """The token of the call for phase two."""
        self.count = 0
        self.under_way: set[int] = set()
        """Calls to the bookie with records not yet durable, by number."""
        self.is_listing = False
        self.has_more = False
        self.marked = {Mark.LIMBO: 0, Mark.FENCE: 0}
        self.ledgers: deque[int] = deque()
        self.current = -1
        self.status: LedgerStatus | None = None
        """The status of the ledger being repaired."""
        self.unrepaired = 0

    @property
    def left(self) -> int:
        """See the class."""
        return len(self.ledgers) + (self.current >= 0) + self.unrepaired

    def receive(self, event: Event, now: int) -> list[Effect]:
        """Take an event and give its effects."""
        effects: list[Effect] = []
        _EVENTS[type(event)](self, event, effects)
        return effects

    def _called(self, event: Call, effects: list[Effect]) -> None:
        if event.operation == "mark ledgers":
            self.marking = event.token
            self.under_way.clear()
            self.marked = {Mark.LIMBO: 0, Mark.FENCE: 0}
            self._list(effects, anew=True)
        elif event.operation == "repair":
            self.repairing = event.token
            self._begin_round(effects)
        else:
            effects.append(Result(event.token, error=Error.BAD_CALL))

    def _list(self, effects: list[Effect], anew: bool) -> None:
        self.is_listing = True
        effects.append(ListLedgers(anew))

    def _listed(self, event: LedgersListed, effects: list[Effect]) -> None:
        self.is_listing = False
        self.has_more = not event.is_last
        if self.marking is not None:
            for ledger, metadata in event.ledgers:
                self._mark(ledger, metadata, effects)
            self._continue_marking(effects)
            return
        self.ledgers += (
            ledger
            for ledger, metadata in event.ledgers
            if mark_of(metadata, self.bookie_id) is Mark.FENCE and not self._is_in_limbo(ledger)
        )
        if self.has_more:
            self._list(effects, anew=False)
        else:
            self._next(effects)

    def _listing_failed(self, event: ListingFailed, effects: list[Effect]) -> None:
        self.is_listing = False
        if self.marking is not None:
            token, self.marking = self.marking, None
            effects.append(Result(token, error=Error.READ_FAILED))
        else:
            self.ledgers.clear()
            effects.append(SetTimer(_AGAIN, self.pause))

    def _ask(self, effects: list[Effect], operation: str, *arguments: Any) -> None:
        self.count += 1
        self.under_way.add(self.count)
        effects.append(AskBookie(self.count, operation, arguments))

    def _done(self, event: Done, effects: list[Effect]) -> None:
        if event.token not in self.under_way:  # from an earlier call that failed
            return
        self.under_way.remove(event.token)
        if self.marking is not None:
            self._continue_marking(effects)
        else:
            self._next(effects)

    # -- phase one ----------------------------------------------------------------------------------------------------

    def _mark(self, ledger: int, metadata: LedgerMetadata, effects: list[Effect]) -> None:
        mark = mark_of(metadata, self.bookie_id, self.protections)
        if self.traces:
            known = self.bookie.ledgers.get(ledger)
            fenced, limbo = (known.fenced, known.limbo) if known is not None else (False, False)
            effects.append(Trace(MAY_LACK, ledger, {"mark": mark.value, "fenced": fenced, "limbo": limbo}))
        if mark is Mark.NOTHING:
            return
        self.marked[mark] += 1
        self._ask(effects, "enter limbo" if mark is Mark.LIMBO else "fence", ledger)

    def _continue_marking(self, effects: list[Effect]) -> None:
        """Mark more ledgers while few marks are pending. Finish when none are."""
        if self.is_listing:
            return
        if self.has_more:
            if len(self.under_way) < MARKS_AT_ONCE:
                self._list(effects, anew=False)
        elif not self.under_way:
            assert self.marking is not None
            token, self.marking = self.marking, None
            limbo, fenced = self.marked[Mark.LIMBO], self.marked[Mark.FENCE]
            if self.traces:
                effects.append(Trace(MAY_LACK, None, {"limbo": limbo, "fenced": fenced}))
            effects.append(Result(token, (limbo, fenced)))

    # -- phase two ----------------------------------------------------------------------------------------------------

    def _is_in_limbo(self, ledger: int) -> bool:
        known = self.bookie.ledgers.get(ledger)
        return known is not None and known.limbo

    def _begin_round(self, effects: list[Effect]) -> None:
        """Check all ledgers in limbo, then all closed ones."""
        self.unrepaired, self.current = 0, -1
        self.ledgers = deque(ledger for ledger, known in self.bookie.ledgers.items() if known.limbo)
        self._list(effects, anew=True)

    def _timer_fired(self, event: TimerFired, effects: list[Effect]) -> None:
        if self.repairing is not None:
            self._begin_round(effects)

    def _next(self, effects: list[Effect]) -> None:
        self.current = -1
        if self.ledgers:
            self.current = self.ledgers.popleft()
            effects.append(RecoverLedger(self.current))
        elif self.unrepaired:
            effects.append(SetTimer(_AGAIN, self.pause))
        else:
            assert self.repairing is not None
            token, self.repairing = self.repairing, None
            effects.append(Result(token))

    def _recovered(self, event: LedgerRecovered, effects: list[Effect]) -> None:
        if event.error is Error.NO_LEDGER and self._is_in_limbo(event.ledger):
            self._ask(effects, "leave limbo", event.ledger)
        elif event.metadata is not None:
            self.status = event.metadata.status
            effects.append(CopyEntries(event.ledger, event.metadata))
        else:
            self.unrepaired += event.error is not Error.NO_LEDGER
            self._next(effects)

    def _copied(self, event: EntriesCopied, effects: list[Effect]) -> None:
        assert self.status is not None
        if self._is_in_limbo(event.ledger) and may_leave_limbo(self.status, event.lacking):
            self._ask(effects, "leave limbo", event.ledger)
            return
        self.unrepaired += event.lacking > 0
        self._next(effects)


_EVENTS: dict[type, Any] = {
    Call: Repair._called,
    LedgersListed: Repair._listed,
    ListingFailed: Repair._listing_failed,
    Done: Repair._done,
    LedgerRecovered: Repair._recovered,
    EntriesCopied: Repair._copied,
    TimerFired: Repair._timer_fired,
}
