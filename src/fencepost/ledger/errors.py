"""The errors of the ledger store, named after BookKeeper's exceptions. All are :class:`fencepost.FencepostError`.

Each message is one line: what is wrong and, where the caller can act, what to do.
"""

from __future__ import annotations

from fencepost.errors import SYSTEM_FAILED, WRONG_OPTIONS, FencepostError
from fencepost.ledger.rules.placement import Unplaced

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
"""The exit code of a command that the store refused: no such ledger, fenced, wrong password."""


class StoreError(FencepostError):
    """An operation on the ledger store failed."""

    exit_code = SYSTEM_FAILED


class Refusal(StoreError):
    """The store refuses the operation: no such ledger, fenced, wrong password."""

    exit_code = REFUSED


# -- ledgers and entries ----------------------------------------------------------------------------------------------


class NoSuchLedgerError(Refusal):
    """There is no such ledger, or it was deleted."""


class LedgerExistsError(Refusal):
    """A ledger with this id exists already."""


class NoSuchEntryError(Refusal):
    """There is no such entry. It is beyond the end or the last add confirmed, or every bookie of its write set lacks
    it.
    """


class LedgerClosedError(Refusal):
    """The ledger is closed and takes no more entries."""


class LedgerFencedError(Refusal):
    """Another client recovers the ledger, or has recovered it. Its former writer can add nothing more and must stop."""


class UnauthorizedAccessError(Refusal):
    """The password does not match the ledger's."""


class DigestMismatchError(StoreError):
    """An entry's digest does not match: the entry is damaged, or the digest type or the password is wrong."""


class NotEnoughBookiesError(StoreError):
    """There are fewer writable bookies than the ledger needs, or they are not in enough racks. ``why``: what the search
    for an ensemble has found out.
    """

    def __init__(self, message: str, why: Unplaced = Unplaced.TOO_FEW) -> None:
        super().__init__(message)
        self.why = why


class WriteError(StoreError):
    """An entry did not reach an ack quorum of bookies. Only a recovery decides whether it is in the ledger."""


class ReadError(StoreError):
    """The bookies that have an entry, or know the last add confirmed, did not answer."""


class DataUnknownError(StoreError):
    """Too many bookies cannot say whether they have an entry, so it is unknown whether the entry was confirmed."""


class LedgerRecoveryError(StoreError):
    """The ledger cannot be recovered now. Trying again is safe."""


class IllegalOperationError(StoreError):
    """The operation is not allowed in this state, or with these arguments."""

    exit_code = WRONG_OPTIONS


class ClientFailedError(StoreError):
    """The client itself failed because of a bug in Fencepost, or it belongs to the parent of this forked process.

    It does nothing more, so connect anew. The outcome of operations in progress is unknown.
    """


# -- the metadata service ---------------------------------------------------------------------------------------------


class MetadataServiceError(StoreError):
    """The metadata service cannot be reached, or gives a wrong answer."""


class OutcomeUnknownError(MetadataServiceError):
    """The connection or the session was lost. The operation may have been done, or may still be done."""


class BadVersionError(StoreError):
    """Another client changed something in the metadata service since it was read."""


class NoClusterError(Refusal):
    """There is no cluster at this address of the metadata service."""


class ClusterExistsError(Refusal):
    """There already is a cluster at this address of the metadata service."""


class UnknownLayoutError(StoreError):
    """The cluster's ledgers are not in BookKeeper's hierarchical layout, or its metadata cannot be read."""


class BookieExistsError(StoreError):
    """Another process is registered as this bookie."""


class NoSuchCookieError(StoreError):
    """The metadata service has no cookie of this bookie."""


class CookieExistsError(StoreError):
    """The metadata service already has a cookie of this bookie."""
