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
    """Another writer leads the log now, or may. Whether the entries that were under way are in the log is not known."""


class NoSuchCursorError(Refusal):
    """The log has no cursor of this name."""


class CursorFullError(Refusal):
    """Too many ranges of entries were acknowledged one by one, with others between them that were not."""


class LogFullError(Refusal):
    """The list of the ledgers of the log has no room for more of them: trim the log."""


class LogFormatError(StoreError):
    """Bytes are not what a log has: of an entry, of its list of ledgers or of a cursor."""
