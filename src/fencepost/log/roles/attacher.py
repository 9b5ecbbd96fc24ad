"""A process that puts a batch into a log, as a state machine without I/O: it takes the steps of a leader up to the
closed last ledger, looks whether the batch may be attached, and sends one update of the chain.

It asks for one thing at a time. What could not be done, or was not answered, is asked again; its driver waits before
that, or gives up. The decisions are those of :mod:`fencepost.log.rules`.
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
    """Read whether these ledgers are noted for their batch, and not withdrawn; a :class:`PendingRead` comes back.

    ``may_be_trimmed``: read, too, whether they were in the log already, and trimmed: the log does not remember the
    batch, and an update that attaches it was sent.
    """

    txn: int
    ledgers: tuple[int, ...]
    may_be_trimmed: bool = False


class PendingRead(Event, frozen=True, gc=False):
    """Whether all those ledgers are pending and none of them is withdrawn; None: that cannot be read now.

    ``time``: of whoever attaches, in milliseconds since 1970, and not before that of the last entry of the log.
    ``are_trimmed``: they were in the log, and were trimmed, or are about to be; only set when asked for.
    """

    txn: int
    are_pending: bool | None
    time: int = 0
    are_trimmed: bool = False


class Attacher(Chaining):
    """Puts the ``ledgers`` of a batch into a log, in their order. They are closed. ``batch``: None if the log is not to
    remember it.
    """

    def __init__(
        self, batch: Batch | None, ledgers: tuple[int, ...], protections: Protections = ALL, traces: bool = False
    ) -> None:
        super().__init__(protections, traces)
        self.batch = batch
        self.ledgers = ledgers
        self.found: Attaching | None = None
        """The outcome, once it is over. ``ATTACH``: it has put the ledgers into the log."""
        self.is_in_log = False
        """Whether these ledgers are in the log, once it is over: perhaps by an update that was not answered."""
        self._was_sent = False
        """Whether an update was sent that may have been done, refused or not: it is refused, too, if it is sent twice
        by a client that lost its connection.
        """

    def begin(self) -> list[Effect]:
        """It is elected: what is to be done first."""
        effects: list[Effect] = []
        self._trace(effects, "become_leader")
        self._read(effects)
        return effects

    def receive(self, event: Event, now: int = 0) -> list[Effect]:
        """Take an answer; what is to be done next, nothing once it is over."""
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
        """It is to end, whatever it waits for. Returns the last effects."""
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
        else:  # or deleted by hand, so that there is nothing to close
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
        if event.are_trimmed:  # by the update that was not answered, they were in the log
            self._end(effects, Attaching.THERE, is_in_log=True)
            return
        found = before_attaching(self.chain, self.batch, self.ledgers, event.are_pending, self.protections)
        self._trace(effects, "look_up_batch", version=self.version, **self._about(), found=found.value)
        if found is not Attaching.ATTACH:
            self._end(effects, found, is_in_log=any(self.chain.index(ledger) is not None for ledger in self.ledgers))
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

    def _end(self, effects: list[Effect], found: Attaching, is_in_log: bool) -> None:
        self.found, self.is_in_log = found, is_in_log
        self._trace(effects, "abdicate", reason=found.value)
        self.status = Status.WAITING
        self._next()
