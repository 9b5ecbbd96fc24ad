"""The errors of the ledger store, by the names of BookKeeper's exceptions. All are
:class:`fencepost.FencepostError`.

Every message is one line that says what is wrong and, where the caller can do something, what to do.
"""

from __future__ import annotations

from fencepost.errors import SYSTEM_FAILED, WRONG_OPTIONS, FencepostError

__all__ = [
    "BadVersionError",
    "BookieExistsError",
    "ClientFailedError",
    "ClusterExistsError",
    "CookieExistsError",
    "DataUnknownError",
    "DigestMismatchError",
    "IllegalOperationError",
    "LedgerClosedError",
    "LedgerExistsError",
    "LedgerFencedError",
    "LedgerRecoveryError",
    "MetadataServiceError",
    "NoClusterError",
    "NoSuchCookieError",
    "NoSuchEntryError",
    "NoSuchLedgerError",
    "NotEnoughBookiesError",
    "OutcomeUnknownError",
    "ReadError",
    "Refusal",
    "StoreError",
    "UnauthorizedAccessError",
    "UnknownLayoutError",
    "WriteError",
]

REFUSED = 1
"""The exit code of commands that the store has refused: no such ledger, fenced, another password."""


class StoreError(FencepostError):
    """An operation on the ledger store failed."""

    exit_code = SYSTEM_FAILED


class Refusal(StoreError):
    """The store refuses the operation: no such ledger, fenced, another password."""

    exit_code = REFUSED


# -- ledgers and entries ----------------------------------------------------------------------------------------------


class NoSuchLedgerError(Refusal):
    """There is no such ledger, or it was deleted."""


class LedgerExistsError(Refusal):
    """A ledger with this id exists already."""


class NoSuchEntryError(Refusal):
    """There is no such entry: it is beyond the end or the last add confirmed, or every bookie of its write set lacks
    it.
    """


class LedgerClosedError(Refusal):
    """The ledger is closed, and takes nothing more."""


class LedgerFencedError(Refusal):
    """Somebody else recovers the ledger, or has: the writer that had it can add nothing more, and must not go on."""


class UnauthorizedAccessError(Refusal):
    """The password is not the ledger's."""


class DigestMismatchError(StoreError):
    """An entry does not have the digest that it should have: it is damaged, or the digest type or the password is
    another.
    """


class NotEnoughBookiesError(StoreError):
    """There are fewer writable bookies than the ledger needs."""


class WriteError(StoreError):
    """An entry could not be brought to an ack quorum of bookies. Whether it is in the ledger is known once that is
    recovered.
    """


class ReadError(StoreError):
    """The bookies that have an entry, or know the last add confirmed, did not answer."""


class DataUnknownError(StoreError):
    """Too many bookies could not say whether they have an entry: whether it was confirmed cannot be known now."""


class LedgerRecoveryError(StoreError):
    """The ledger could not be recovered now. Nothing is lost by trying again."""


class IllegalOperationError(StoreError):
    """The operation cannot be asked for in this state, or with these arguments."""

    exit_code = WRONG_OPTIONS


class ClientFailedError(StoreError):
    """The client itself went wrong, which is a fault in Fencepost, or it belongs to the process that this one was
    forked from. It does nothing more: connect anew. Whether what was under way was done is not known.
    """


# -- the metadata service ---------------------------------------------------------------------------------------------


class MetadataServiceError(StoreError):
    """The metadata service cannot be reached, or does not answer as it should."""


class OutcomeUnknownError(MetadataServiceError):
    """The connection or the session was lost: whether the operation was done, or will yet be, is not known."""


class BadVersionError(StoreError):
    """Something in the metadata service was changed by somebody else since it was read."""


class NoClusterError(Refusal):
    """There is no cluster at this address of the metadata service."""


class ClusterExistsError(Refusal):
    """There is a cluster at this address of the metadata service already."""


class UnknownLayoutError(StoreError):
    """The cluster keeps its ledgers in a layout that is not BookKeeper's hierarchical one, or its metadata cannot be
    read.
    """


class BookieExistsError(StoreError):
    """Another process is registered as this bookie."""


class NoSuchCookieError(StoreError):
    """The metadata service has no cookie of this bookie."""


class CookieExistsError(StoreError):
    """The metadata service has a cookie of this bookie already."""
