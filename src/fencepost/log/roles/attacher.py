"""The process that attaches a batch to a log, as a state machine without I/O.

It takes the steps of a leader until the last ledger is closed. Then it checks whether the batch may be attached, and
sends one update of the chain. It makes one request at a time. Requests that fail or get no answer are repeated; the
driver waits in between, or gives up. :mod:`fencepost.log.rules` makes the decisions.
"""

from __future__ import annotations

from typing import Any

from fencepost.ledger.roles.interface import Effect, Event, Outcome
from fencepost.log.chain import Batch
from fencepost.log.roles.leader import (
    Chaining,
    ChainRead,
    ChainWritten,
    Closing,
    LedgerClosed,
    ReadChain,
    WriteChain,
)
from fencepost.log.rules import (
    ALL,
    Attaching,
    Protections,
    Status,
    after_closing,
    after_reading,
    before_attaching,
    with_batch,
)


class ReadPending(Effect, frozen=True, gc=False):
    """Read whether these ledgers are recorded for their batch and not withdrawn. Answered by :class:`PendingRead`.

    ``may_be_trimmed``: read also whether they were in the log and trimmed. The log does not remember the batch, and an
    update that attaches it was sent before.
    """

    txn: int
    ledgers: tuple[int, ...]
    may_be_trimmed: bool = False


class PendingRead(Event, frozen=True, gc=False):
    """``are_pending``: whether all those ledgers are pending and none is withdrawn; None if that cannot be read now.

    ``time``: the clock of the attaching process, in milliseconds since 1970, and at least the time of the log's last
    entry. ``are_trimmed``: the ledgers were in the log and were trimmed, or are about to be; only set when requested.
    """

    txn: int
    are_pending: bool | None
    time: int = 0
    are_trimmed: bool = False


class Attacher(Chaining):
    """Attaches the closed ``ledgers`` of a batch to a log, in order. ``batch`` is None if the log should not remember
    it.
    """

    def __init__(
        self, batch: Batch | None, ledgers: tuple[int, ...], protections: Protections = ALL, traces: bool = False
    ) -> None:
        super().__init__(protections, traces)
        self.batch = batch
        self.ledgers = ledgers
        self.outcome: Attaching | None = None
        """The outcome, once the role is over. ``ATTACH``: this role attached the ledgers."""
        self.is_in_log = False
        """Whether the ledgers are in the log, once the role is over. An update without an answer may have put them
        there.
        """
        self._was_sent = False
        """Whether an update was sent that may have been done. A refusal is no proof that it was not: a client that
        loses its connection may send it twice.
        """

    def begin(self) -> list[Effect]:
        """The process is elected: return the first request."""
        effects: list[Effect] = []
        self._trace(effects, "become_leader")
        self._read(effects)
        return effects

    def receive(self, event: Event, now: int = 0) -> list[Effect]:
        """Take an answer, and return the next request; none once the role is over."""
        effects: list[Effect] = []
        if getattr(event, "txn", None) != self._txn:
            return effects
        match event:
            case ChainRead():
                self._chain_read(event, effects)
            case LedgerClosed():
                self._ledger_closed(event, effects)
            case PendingRead():
                self._pending_read(event, effects)
            case ChainWritten():
                self._chain_written(event, effects)
        return effects

    def give_up(self) -> list[Effect]:
        """End the role, whatever it waits for. Returns the last effects."""
        effects: list[Effect] = []
        if self.status is not Status.WAITING:
            if self.status is Status.PENDING_APPEND_LEDGER:
                self._trace(effects, "attach_batch_unanswered")
            self._trace(effects, "abdicate", reason="gives up")
            self.status = Status.WAITING
            self._next()
        return effects

    # -- the steps ----------------------------------------------------------------------------------------------------

    def _read(self, effects: list[Effect]) -> None:
        self.status = Status.GET_MD_FOR_CLOSING
        effects.append(ReadChain(self._next()))

    def _chain_read(self, event: ChainRead, effects: list[Effect]) -> None:
        if event.outcome is not Outcome.OK:
            self._read(effects)
            return
        self.chain, self.version = event.chain, event.version
        step = after_reading(self.chain, protections=self.protections)
        self._trace_read(effects, "get_last_ledger", event, status=None if step is None else step.value)
        if step is Status.CLOSE_LAST_LEDGER:
            self.status = step
            self._close_last(effects)
        else:
            self._look_up(effects)

    def _ledger_closed(self, event: LedgerClosed, effects: list[Effect]) -> None:
        if event.closing is Closing.FAILED:
            self._close_last(effects)
        else:  # or deleted by hand, with nothing left to close
            self._trace(effects, "close_last_ledger", ledger=self.chain.last, last_entry=event.last_entry)
            self._look_up(effects)

    def _look_up(self, effects: list[Effect]) -> None:
        self.status = after_closing()
        may_be_trimmed = self._was_sent and self.batch is None and self.chain.index(self.ledgers[0]) is None
        effects.append(ReadPending(self._next(), self.ledgers, may_be_trimmed))

    def _pending_read(self, event: PendingRead, effects: list[Effect]) -> None:
        if event.are_pending is None:
            self._look_up(effects)
            return
        if event.are_trimmed:  # the unanswered update attached them
            self._end(effects, Attaching.THERE, is_in_log=True)
            return
        outcome = before_attaching(self.chain, self.batch, self.ledgers, event.are_pending, self.protections)
        self._trace(effects, "look_up_batch", version=self.version, **self._about(), found=outcome.value)
        if outcome is not Attaching.ATTACH:
            self._end(effects, outcome, is_in_log=any(self.chain.index(ledger) is not None for ledger in self.ledgers))
            return
        self.status = Status.PENDING_APPEND_LEDGER
        updated = with_batch(self.chain, self.batch, self.ledgers, event.time, self.protections)
        self._trace(effects, "sends_batch", version=self.version, ledgers=self.ledgers, last=updated.last)
        effects.append(WriteChain(self._next(), updated, self.version))

    def _chain_written(self, event: ChainWritten, effects: list[Effect]) -> None:
        if event.outcome is Outcome.OK:
            self._trace(effects, "attach_batch", version=event.version)
            self._end(effects, Attaching.ATTACH, is_in_log=True)
            return
        self._was_sent = True
        what = "attach_batch_bad_version" if event.outcome is Outcome.BAD_VERSION else "attach_batch_unanswered"
        self._trace(effects, what)
        self._read(effects)

    def _about(self) -> dict[str, Any]:
        batch = self.batch
        return {"ledgers": self.ledgers, "writer": batch and batch.writer, "number": batch and batch.number}

    def _end(self, effects: list[Effect], outcome: Attaching, is_in_log: bool) -> None:
        self.outcome, self.is_in_log = outcome, is_in_log
        self._trace(effects, "abdicate", reason=outcome.value)
        self.status = Status.WAITING
        self._next()
