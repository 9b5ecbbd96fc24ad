"""Errors of logs, besides those of their ledgers."""

from __future__ import annotations

from fencepost.store.errors import REFUSED, StoreError

__all__ = [
    "CursorFullError",
    "LogExistsError",
    "LogFormatError",
    "LogFullError",
    "LogSealedError",
    "LogTrimmedError",
    "NoSuchCursorError",
    "NoSuchLogError",
    "NotLeaderError",
]


class NoSuchLogError(StoreError):
    """There is no log of this name."""

    exit_code = REFUSED


class LogExistsError(StoreError):
    """A log of this name exists already."""

    exit_code = REFUSED


class LogSealedError(StoreError):
    """The log is sealed, and takes nothing more."""

    exit_code = REFUSED


class LogTrimmedError(StoreError):
    """The position was trimmed: its ledger is not in the log any more."""

    exit_code = REFUSED


class NotLeaderError(StoreError):
    """Another writer leads the log now, or may. Whether the entries that were under way are in the log is not known."""

    exit_code = REFUSED


class NoSuchCursorError(StoreError):
    """The log has no cursor of this name."""

    exit_code = REFUSED


class CursorFullError(StoreError):
    """Too many ranges of entries were acknowledged one by one, with others between them that were not."""

    exit_code = REFUSED


class LogFullError(StoreError):
    """The list of the ledgers of the log has no room for more of them: trim the log."""

    exit_code = REFUSED


class LogFormatError(StoreError):
    """Bytes are not what a log has: of an entry, of its list of ledgers or of a cursor."""
