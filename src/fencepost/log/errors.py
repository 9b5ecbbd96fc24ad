"""Errors of logs, besides those of their ledgers."""

from __future__ import annotations

from fencepost.ledger.errors import NoSuchLedgerError, Refusal, StoreError

__all__ = [
    "CursorFullError",
    "LogExistsError",
    "LogFormatError",
    "LogFullError",
    "LogSealedError",
    "LogTrimmedError",
    "MissingLedgerError",
    "NoSuchCursorError",
    "NoSuchLogError",
    "NotLeaderError",
]


class NoSuchLogError(Refusal):
    """There is no log of this name."""


class LogExistsError(Refusal):
    """A log of this name exists already."""


class LogSealedError(Refusal):
    """The log is sealed, and takes nothing more."""


class LogTrimmedError(Refusal):
    """The position was trimmed: its ledger is not in the log any more."""


class MissingLedgerError(NoSuchLedgerError):
    """A ledger that is in the log was deleted, not by a trim: entries of the log are lost."""


class NotLeaderError(Refusal):
    """Another writer leads the log now, or may. The entries that were under way may be in the log or not."""


class NoSuchCursorError(Refusal):
    """The log has no cursor of this name."""


class CursorFullError(Refusal):
    """Too many separate runs of entries were acknowledged one by one."""


class LogFullError(Refusal):
    """The chain of the log has no room for more ledgers: trim the log."""


class LogFormatError(StoreError):
    """Bytes do not have the format of a log entry, a chain or a cursor."""
