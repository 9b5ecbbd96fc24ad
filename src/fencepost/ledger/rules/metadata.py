"""Metadata: the life of a ledger in the metadata service, and what a client does when another client was faster.

Every change replaces the metadata that a client has seen and is conditional on their version. If an answer was lost,
the client reads the metadata and applies the same rule again: its change was made, is still to be made, or has become
impossible.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from fencepost.language.values import Record
from fencepost.ledger.rules.ensembles import Fragment, with_ensemble
from fencepost.ledger.rules.protections import ALL, Protections

NOT_CLOSED = -1
"""The last entry of an open ledger, and of one closed empty."""


OF_LOG = "log"
"""The key in the custom metadata of a log's ledger. The value is the log's name."""

RESERVED = ("fencepost.reserved", b"")
"""The custom metadata of a ledger without a writer, which the first client to adopt it may write."""

IMPORTING = "fencepost.importing"
"""The key in the custom metadata of a ledger whose import is not complete. The value says of what. A recovery must not
close it, since it would end too early.
"""


class LedgerStatus(enum.Enum):
    """The status of a ledger in the metadata service."""

    OPEN = "open"
    IN_RECOVERY = "in recovery"
    CLOSED = "closed"


class DigestType(enum.Enum):
    """How an entry is protected from damage. The values are those in BookKeeper's metadata."""

    CRC32 = 1
    HMAC = 2
    CRC32C = 3
    DUMMY = 4


class LedgerMetadata(Record):
    """The metadata of a ledger. ``last_entry`` and ``length``, in bytes of data, are set when the ledger is closed.

    ``creation_token``: a random number by which a client recognises a ledger that it created. ``password``: None in
    metadata of BookKeeper 4.1 and before, which did not store it. ``creation_time``: milliseconds since 1970, if the
    client that created the ledger wrote it. ``format_version``: of the encoded metadata; it is preserved.
    """

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    fragments: tuple[Fragment, ...]
    status: LedgerStatus = LedgerStatus.OPEN
    last_entry: int = NOT_CLOSED
    length: int = 0
    digest_type: DigestType = DigestType.CRC32
    password: bytes | None = b""
    custom_metadata: tuple[tuple[str, bytes], ...] = ()
    creation_token: int = 0
    creation_time: int | None = None
    format_version: int = 3


# -- how changes affect the metadata ----------------------------------------------------------------------------------


def with_changed_ensemble(metadata: LedgerMetadata, ensemble: Sequence[Any], lac: int) -> LedgerMetadata:
    """The metadata after a change of ensemble from the entry after the LAC; see :func:`.ensembles.with_ensemble`."""
    return metadata.replace(fragments=with_ensemble(metadata.fragments, tuple(ensemble), lac + 1))


def marked_in_recovery(metadata: LedgerMetadata) -> LedgerMetadata:
    """The metadata of a ledger in recovery. They may be unchanged: the new version is what counts."""
    return metadata.replace(status=LedgerStatus.IN_RECOVERY)


def closed(
    metadata: LedgerMetadata, last_entry: int, length: int, fragments: tuple[Fragment, ...] | None = None
) -> LedgerMetadata:
    """The metadata of a ledger closed at that entry, with a recovery's own fragments if it has some."""
    return metadata.replace(
        status=LedgerStatus.CLOSED,
        last_entry=last_entry,
        length=length,
        fragments=metadata.fragments if fragments is None else fragments,
    )


def current_ensemble(metadata: LedgerMetadata) -> tuple[Any, ...]:
    """The ensemble of the last fragment. Entries are added to it, and a recovery fences it and reads from it."""
    return metadata.fragments[-1].ensemble


def end_of(metadata: LedgerMetadata) -> int | None:
    """The last entry of a closed ledger, -1 if it is empty; None if the ledger is not closed."""
    return metadata.last_entry if metadata.status is LedgerStatus.CLOSED else None


def ends_at(metadata: LedgerMetadata, last_entry: int, length: int) -> bool:
    """Whether a ledger is closed at exactly that entry."""
    return metadata.status is LedgerStatus.CLOSED and (metadata.last_entry, metadata.length) == (last_entry, length)


def is_own(metadata: LedgerMetadata, creation_token: int) -> bool:
    """Whether a ledger was created by the client with this token."""
    return metadata.creation_token == creation_token


def reserved(metadata: LedgerMetadata) -> LedgerMetadata:
    """The metadata of a ledger created for a later writer, who adopts it."""
    return metadata.replace(custom_metadata=tuple(sorted((*metadata.custom_metadata, RESERVED))))


def adopted(metadata: LedgerMetadata, creation_token: int) -> LedgerMetadata:
    """The metadata of a reserved ledger after its adoption by the writer with this token."""
    kept = tuple(each for each in metadata.custom_metadata if each != RESERVED)
    return metadata.replace(custom_metadata=kept, creation_token=creation_token)


def may_open(metadata: LedgerMetadata, password: bytes) -> bool:
    """Whether a client with this password may open a ledger. Its bookies would refuse another password later."""
    return metadata.password in (None, password)


# -- what a client does, given the current metadata -------------------------------------------------------------------


class Next(enum.Enum):
    """The next step of a client that wants to change the metadata."""

    WRITE = "write"
    """Replace the metadata if their version is unchanged."""
    DONE = "done"
    """The change was made: by an earlier attempt with a lost answer, or by another client to the same effect."""
    GIVE_UP = "give up"
    """The ledger now belongs to another client."""


def takes_update(expected: int, actual: int, protections: Protections = ALL) -> bool:
    """Whether the metadata service takes a conditional update."""
    return expected == actual or not protections.conditional_updates


def is_stable(version: int, tried_on: int | None) -> bool:
    """Whether metadata of this version can only change by a new operation. ``tried_on``: the version of the client's
    last write with an unknown outcome.

    That write may still take effect. A client that no longer wants it must not proceed as if it had failed. It writes
    the current metadata once more: then one of the two writes takes effect, and the other cannot.
    """
    return version != tried_on


def to_create(exists: bool, is_own: bool) -> Next:
    """A client wants to create a ledger. An existing ledger that is not its own (by the creation token) has the same id
    by accident.
    """
    if not exists:
        return Next.WRITE
    return Next.DONE if is_own else Next.GIVE_UP


def to_adopt(metadata: LedgerMetadata, creation_token: int) -> Next:
    """A client wants to become the writer of a reserved ledger. Only one can: its write is conditional and removes the
    reservation.
    """
    if metadata.status is not LedgerStatus.OPEN:
        return Next.GIVE_UP
    if is_own(metadata, creation_token):
        return Next.DONE
    return Next.WRITE if RESERVED in metadata.custom_metadata else Next.GIVE_UP


def to_change_ensemble(status: LedgerStatus, has_failed_bookies: bool) -> Next:
    """The owner wants to replace failed bookies in the ensemble. A ledger in recovery is no longer its own."""
    if status is not LedgerStatus.OPEN:
        return Next.GIVE_UP
    return Next.WRITE if has_failed_bookies else Next.DONE


def to_close(status: LedgerStatus, ends_there: bool) -> Next:
    """The owner wants to close its ledger at its LAC. ``ends_there``: the ledger is closed at exactly that entry.

    The Java client also closes a ledger that another client is recovering. That is unnecessary, and the specification
    forbids it.
    """
    if status is LedgerStatus.OPEN:
        return Next.WRITE
    return Next.DONE if status is LedgerStatus.CLOSED and ends_there else Next.GIVE_UP


def to_start_recovery(status: LedgerStatus) -> Next:
    """A client wants to recover a ledger. It writes even if another client is recovering, which can then no longer
    close it.

    ``DONE``: the ledger is closed, so there is nothing to recover. (The Java client does not write if another is
    recovering.)
    """
    return Next.DONE if status is LedgerStatus.CLOSED else Next.WRITE


def to_announce_fragments(status: LedgerStatus, is_own_version: bool, protections: Protections = ALL) -> Next:
    """A recovery that publishes its fragments (see :class:`Protections`) wants to write a change of ensemble."""
    if status is LedgerStatus.IN_RECOVERY and (is_own_version or not protections.conditional_updates):
        return Next.WRITE
    return Next.GIVE_UP


def to_close_recovered(status: LedgerStatus, is_own_version: bool, protections: Protections = ALL) -> Next:
    """A recovery wants to close the ledger at the end it found. It gives up if another client has changed the metadata
    since it began.

    That client is recovering the ledger too, and may have found other entries. Starting over is safe. The Java client
    reads the new version and closes that. ``DONE``: the ledger is closed, by this recovery or another, and ends where
    the metadata say.
    """
    if status is LedgerStatus.CLOSED:
        return Next.DONE
    return to_announce_fragments(status, is_own_version, protections)
