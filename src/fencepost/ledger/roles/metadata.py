"""A client's view of its ledger's metadata, and its changes to them: it handles conflicts, lost answers and expired
sessions.
"""

from __future__ import annotations

import enum
from typing import Any

from fencepost.ledger.roles.interface import (
    CreateMetadata,
    Effect,
    MetadataAnswer,
    Outcome,
    ReadMetadata,
    SetTimer,
    TimerFired,
    WriteMetadata,
)
from fencepost.ledger.rules.metadata import LedgerMetadata, is_stable


class Seen(enum.Enum):
    """What an answer shows about the metadata, once an operation is decided."""

    WRITTEN = "written"
    """The metadata are as the client created or replaced them."""
    READ = "read"
    """The metadata are as they were read. The client has to decide again."""
    GONE = "gone"
    """There are no metadata."""


def described(metadata: LedgerMetadata | None) -> dict[str, Any] | None:
    """Metadata as fields of a trace, without what only their owner may know."""
    if metadata is None:
        return None
    return {
        "state": metadata.status.name,
        "fragments": [[fragment.first_entry_id, list(fragment.ensemble)] for fragment in metadata.fragments],
        "last_entry": metadata.last_entry,
        "ensemble_size": metadata.ensemble_size,
        "write_quorum": metadata.write_quorum,
        "ack_quorum": metadata.ack_quorum,
    }


class MetadataView:
    """The metadata of one ledger as a client last saw them. One operation is in flight at a time.

    After a refused operation or a lost answer the metadata are read, because a write with a lost answer may have been
    done. After a lost answer the read is retried every ``retry_delay`` microseconds. A view that ``watches`` is
    notified of the next change.
    """

    def __init__(self, ledger: int, retry_delay: int, watches: bool = False) -> None:
        self.ledger = ledger
        self.retry_delay = retry_delay
        self.watches = watches
        self.metadata: LedgerMetadata | None = None
        self.version = -1
        self.offered: LedgerMetadata | None = None
        """The metadata being written; None during a read."""
        self.tried_on: int | None = None
        """The version that a write with a lost answer depended on."""
        self.txn = 0

    def __repr__(self) -> str:
        return f"MetadataView({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def known(self) -> LedgerMetadata:
        """The metadata. They must have been read or written before."""
        assert self.metadata is not None
        return self.metadata

    @property
    def is_stable(self) -> bool:
        """Whether the metadata can only change by a new operation: no earlier write of this client is still
        undecided.
        """
        return is_stable(self.version, self.tried_on)

    def create(self, metadata: LedgerMetadata) -> Effect:
        """Create the metadata."""
        self.txn += 1
        self.offered = metadata
        return CreateMetadata(self.txn, self.ledger, metadata)

    def read(self) -> Effect:
        """Read the metadata. An operation in flight is forgotten."""
        self.txn += 1
        self.offered = None
        return ReadMetadata(self.txn, self.ledger, self.watches)

    def write(self, metadata: LedgerMetadata) -> Effect:
        """Replace the metadata if they still have the version last seen."""
        self.txn += 1
        self.offered = metadata
        return WriteMetadata(self.txn, self.ledger, metadata, self.version)

    def fields(self, offered: LedgerMetadata | None = None) -> dict[str, Any]:
        """The fields of a trace event: the version last seen, and its metadata or the metadata to replace them."""
        return {"version": self.version, "metadata": described(offered or self.metadata)}

    def take(self, event: MetadataAnswer | TimerFired, effects: list[Effect]) -> Seen | None:
        """Take an answer, or the timer after a lost one. None while the outcome is open, or if the operation was
        forgotten.
        """
        if type(event) is TimerFired:
            if event.key == ("metadata", self.txn):
                effects.append(self.read())
            return None
        assert isinstance(event, MetadataAnswer)
        if event.txn != self.txn:
            return None
        if event.outcome is Outcome.UNKNOWN:
            if self.offered is not None:
                self.tried_on = self.version
            effects.append(SetTimer(("metadata", self.txn), self.retry_delay))
            return None
        if event.outcome in (Outcome.EXISTS, Outcome.BAD_VERSION):
            effects.append(self.read())
            return None
        self.version = event.version
        if event.outcome is Outcome.NO_LEDGER:
            self.metadata = None
            return Seen.GONE
        self.metadata = self.offered or event.metadata
        return Seen.WRITTEN if self.offered is not None else Seen.READ
