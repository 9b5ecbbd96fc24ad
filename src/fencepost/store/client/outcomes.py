"""The outcome of a call to a role, as a user meets it: a value, or the exception that has the name of BookKeeper's."""

from __future__ import annotations

from fencepost.store import errors
from fencepost.store.roles.interface import Error

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
        "ledger {} can not be recovered now, too few of its bookies answer: try again when more of them are up",
    ),
    Error.DATA_UNKNOWN: (
        errors.DataUnknownError,
        "ledger {} can not be recovered now: too many bookies can not say whether they have an entry",
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
