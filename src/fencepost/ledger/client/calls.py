"""Calls to a role that are awaited, one future each, and the outcome of one as a user meets it: a value, or the
exception that has the name of BookKeeper's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fencepost.ledger import errors
from fencepost.ledger.client.driver import Actor, Driver
from fencepost.ledger.errors import IllegalOperationError, StoreError
from fencepost.ledger.roles.interface import Confirmed, Error, Result, Role

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
    return kind(message.format(ledger))


class Calls(Actor):
    """A role of a ledger at work, whose calls are awaited.

    ``confirmed`` and ``appended`` are of a writer, see :class:`.Actor`: they take what is confirmed, and the results of
    appends, which are no calls. ``closed``: the error of who calls when the handle is closed.
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
        """Functions that are called with the error when nothing more comes."""
        self.error = closed or IllegalOperationError(f"the handle of ledger {ledger} is closed")
        """Why nothing more comes, once that is so."""
        self._appended = appended
        super().__init__(driver, role, confirmed)

    def start(self, operation: str, *arguments: Any) -> asyncio.Future[Any]:
        """Ask the role for something. To cancel the future does not stop the call."""
        self.require_open()
        future: asyncio.Future[Any] = self.driver.loop.create_future()
        self.waiting[self.calls + 1] = future  # the role may answer before its call returns
        self.call(operation, *arguments)
        return future

    def require_open(self) -> None:
        """Raise ``error`` if the handle is closed, and as :meth:`.Driver.must_work`."""
        self.driver.must_work()
        if self.is_closed:
            raise self.error

    async def ask(self, operation: str, *arguments: Any) -> Any:
        """Wait for the outcome of a call. Raises :class:`MetadataServiceError` if the metadata service cannot be
        reached for too long meanwhile.
        """
        return await self.driver.patiently(self.start(operation, *arguments))

    def close(self) -> None:
        """The role is gone; calls that are under way raise ``error``."""
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
