"""Awaitable calls to a role, with one future each. A call gives a value, or raises the exception with the name of
BookKeeper's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fencepost.ledger import errors
from fencepost.ledger.client.driver import Actor, Driver
from fencepost.ledger.errors import IllegalOperationError, StoreError
from fencepost.ledger.roles.interface import PLACING, Confirmed, Error, Result, Role
from fencepost.ledger.rules.placement import Unplaced, told

_ERRORS: dict[Error, tuple[type[errors.StoreError], str]] = {
    Error.LEDGER_EXISTS: (errors.LedgerExistsError, "ledger {} exists already"),
    Error.NO_LEDGER: (errors.NoSuchLedgerError, "there is no ledger {}"),
    Error.NO_ENTRY: (
        errors.NoSuchEntryError,
        "ledger {} does not have the entry: every bookie of its write set says so",
    ),
    Error.NOT_ENOUGH_BOOKIES: (
        errors.NotEnoughBookiesError,
        "there are not enough writable bookies for ledger {}: start more, or ask for a smaller ensemble",
    ),
    Error.PLACEMENT_UNMET: (
        errors.NotEnoughBookiesError,
        f"no bookies for ledger {{}} are where its placement asks for them: {told(Unplaced.UNMET)}; start bookies in"
        " other racks, or set racks (fencepost bookie rack)",
    ),
    Error.PLACEMENT_UNKNOWN: (
        errors.NotEnoughBookiesError,
        f"no bookies for ledger {{}} are found where its placement asks for them: {told(Unplaced.UNKNOWN)}; start"
        " bookies in other racks, or set racks (fencepost bookie rack)",
    ),
    Error.LEDGER_CLOSED: (errors.LedgerClosedError, "ledger {} is closed"),
    Error.LEDGER_FENCED: (errors.LedgerFencedError, "ledger {} was fenced: somebody else recovers it, or has"),
    Error.UNAUTHORIZED: (errors.UnauthorizedAccessError, "the password is not that of ledger {}"),
    Error.WRITE_FAILED: (errors.WriteError, "entries of ledger {} could not be brought to an ack quorum of bookies"),
    Error.READ_FAILED: (errors.ReadError, "too few bookies of ledger {} answer: try again when more of them are up"),
    Error.RECOVERY_FAILED: (
        errors.LedgerRecoveryError,
        "ledger {} cannot be recovered now, too few of its bookies answer: try again when more of them are up",
    ),
    Error.DATA_UNKNOWN: (
        errors.DataUnknownError,
        "ledger {} cannot be recovered now: too many bookies cannot say whether they have an entry",
    ),
    Error.DIGEST_MISMATCH: (
        errors.DigestMismatchError,
        "no bookie has an undamaged copy of the entry of ledger {}: none has the digest that it should have",
    ),
    Error.BAD_CALL: (errors.IllegalOperationError, "ledger {} is not in a state for this operation"),
}


def error_of(error: Error, ledger: int) -> errors.StoreError:
    """The exception that a failed call raises."""
    kind, message = _ERRORS[error]
    why = next((why for why, of in PLACING.items() if of is error), None)
    if why is not None:
        return errors.NotEnoughBookiesError(message.format(ledger), why)
    return kind(message.format(ledger))


class Calls(Actor):
    """The role of a ledger, with calls that can be awaited.

    ``confirmed`` and ``appended`` are a writer's callbacks, see :class:`.Actor`: for confirmed entries, and for the
    results of appends, which are not calls. ``closed``: the error that a call raises after the handle is closed.
    """

    def __init__(
        self,
        driver: Driver,
        ledger: int,
        role: Role,
        confirmed: Callable[[Confirmed], None] | None = None,
        appended: Callable[[Result], None] | None = None,
        closed: StoreError | None = None,
    ) -> None:
        self.ledger = ledger
        self.waiting: dict[int, asyncio.Future[Any]] = {}
        self.on_failure: list[Callable[[StoreError], None]] = []
        """Callbacks, run with the error when the role stops."""
        self.error = closed or IllegalOperationError(f"the handle of ledger {ledger} is closed")
        """Why the role stopped, once it has."""
        self._appended = appended
        super().__init__(driver, role, confirmed)

    def start(self, operation: str, *arguments: Any) -> asyncio.Future[Any]:
        """Start an operation of the role. Cancelling the future does not stop the operation."""
        self.require_open()
        future: asyncio.Future[Any] = self.driver.loop.create_future()
        self.waiting[self.calls + 1] = future  # the role may answer before its call returns
        self.call(operation, *arguments)
        return future

    def require_open(self) -> None:
        """Raise ``error`` if the handle is closed. Also raises as :meth:`.Driver.must_work` does."""
        self.driver.must_work()
        if self.is_closed:
            raise self.error

    async def ask(self, operation: str, *arguments: Any) -> Any:
        """Call the role and wait for the result. Raises :class:`MetadataServiceError` if the metadata service is
        unreachable for too long.
        """
        return await self.driver.patiently(self.start(operation, *arguments))

    def close(self) -> None:
        """Stop the role. Calls in progress raise ``error``."""
        self.fail(self.error)

    def _failed(self, error: StoreError) -> None:
        self.error = error
        waiting, self.waiting = self.waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error)
        for report in self.on_failure:
            report(error)

    def _result(self, result: Result) -> None:
        future = self.waiting.pop(result.token, None)
        if future is None:
            assert self._appended is not None
            self._appended(result)
        elif future.done():
            return
        elif result.error:
            future.set_exception(error_of(result.error, self.ledger))
        else:
            future.set_result(result.value)
