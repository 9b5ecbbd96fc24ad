"""The repair of a bookie that may have lost entries (BP-46): its ledgers are marked before it serves, and made whole
while it does.

Phase one puts every ledger in limbo that is not closed, and fences those that are, durably. Phase two has each of them
closed by a recovery, has copied what belongs here and is missing from other bookies, and only then ends the limbo of
the ledger. It looks through them again until nothing is missing. It goes on after any crash: limbo is in the journal,
and that there is a repair is noted in the directories.
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
"""Marks that are not durable yet, at the most, together with those of one page of ledgers: they share the syncs of the
journal.
"""

PAUSE = 3_000_000
"""Microseconds after which what could not be repaired is tried again."""

MAY_LACK = "bookie_may_lack_entries"
"""The event of a trace for each ledger that is checked. The driver of the role adds the entries of the ledger that the
bookie has.
"""

_AGAIN = "again"


class ListLedgers(Effect, frozen=True, gc=False):
    """Give some ledgers with their metadata as :class:`LedgersListed`: those that come after the ones that were given
    before; ``anew``: the first ones, as they are now or later.
    """

    anew: bool


class LedgersListed(Event, frozen=True, gc=False):
    """Some ledgers with their metadata; ``is_last``: there are no more."""

    ledgers: Sequence[tuple[int, LedgerMetadata]]
    is_last: bool


class ListingFailed(Event, frozen=True, gc=False):
    """The metadata cannot be read now."""


class AskBookie(Effect, frozen=True, gc=False):
    """Give the bookie a :class:`Call`; its result is to come back as :class:`Done`."""

    token: int
    operation: str
    arguments: tuple[Any, ...]


class Done(Event, frozen=True, gc=False):
    """The records that the bookie was asked to write are durable."""

    token: int


class RecoverLedger(Effect, frozen=True, gc=False):
    """Read the metadata of a ledger, have it closed by a recovery if it is not, and give what came of it as
    :class:`LedgerRecovered`.
    """

    ledger: int


class LedgerRecovered(Event, frozen=True, gc=False):
    """The metadata of a closed ledger; None with the error."""

    ledger: int
    metadata: LedgerMetadata | None
    error: Error = Error.NONE


class CopyEntries(Effect, frozen=True, gc=False):
    """Copy the entries of a closed ledger that belong to the bookie and are missing; how many are missing still is to
    come as :class:`EntriesCopied`.
    """

    ledger: int
    metadata: LedgerMetadata


class EntriesCopied(Event, frozen=True, gc=False):
    """Entries were copied, durably as far as the bookie makes entries that; so many could not be had."""

    ledger: int
    lacking: int


class Repair:
    """The repair of one ``bookie``, whose state it reads, and which it changes by calls alone. ``left``: the ledgers
    that are still to be looked at in this round, and those that could not be repaired.

    Calls: ``mark ledgers``, phase one, gives how many ledgers are in limbo and how many are only fenced when all of
    that is durable, or an error if the metadata cannot be read: it may be called again. ``repair``, phase two, gives
    nothing, when nothing is missing any more.
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
        """That of the call for phase two."""
        self.count = 0
        self.under_way: set[int] = set()
        """Calls to the bookie whose records are not durable yet, by number."""
        self.is_listing = False
        self.has_more = False
        self.marked = {Mark.LIMBO: 0, Mark.FENCE: 0}
        self.ledgers: deque[int] = deque()
        self.current = -1
        self.status: LedgerStatus | None = None
        """That of the ledger that is being repaired."""
        self.unrepaired = 0

    @property
    def left(self) -> int:
        """See the class."""
        return len(self.ledgers) + (self.current >= 0) + self.unrepaired

    def receive(self, event: Event, now: int) -> list[Effect]:
        """Take an event; what is to be done about it."""
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
            self._mark_on(effects)
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
        if event.token not in self.under_way:  # asked for by a call that came to nothing
            return
        self.under_way.remove(event.token)
        if self.marking is not None:
            self._mark_on(effects)
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

    def _mark_on(self, effects: list[Effect]) -> None:
        """Go on with further ledgers when few enough marks are under way, and end when there are none."""
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
        """Look through all ledgers in limbo, and then through those that are closed."""
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
