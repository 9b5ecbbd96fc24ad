"""Metadata: the life of a ledger in the metadata service, and what a client does when somebody else was faster.

Every change replaces the metadata that a client has seen and is conditional on their version. Where an answer was lost,
the client reads the metadata and asks the same rule again: what it wanted was done, is still to be done, or cannot be
any more.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from fencepost.language.values import Record
from fencepost.ledger.rules.ensembles import Fragment, with_ensemble
from fencepost.ledger.rules.protections import ALL, Protections

NOT_CLOSED = -1
"""The last entry of a ledger that is not closed, and of one that was closed empty."""


OF_LOG = "log"
"""The key of the custom metadata of a ledger that is made for a log; the value is the log's name."""

RESERVED = ("fencepost.reserved", b"")
"""The custom metadata of a ledger that nobody has written to, and the first who adopts it may."""


class LedgerStatus(enum.Enum):
    """The status of a ledger in the metadata service."""

    OPEN = "open"
    IN_RECOVERY = "in recovery"
    CLOSED = "closed"


class DigestType(enum.Enum):
    """How an entry is protected from damage; the values are those of BookKeeper's metadata."""

    CRC32 = 1
    HMAC = 2
    CRC32C = 3
    DUMMY = 4


class LedgerMetadata(Record):
    """The metadata of a ledger. ``last_entry`` and ``length``, in bytes of data, are those of a closed ledger.

    ``creation_token``: a number that nobody else has drawn, by which a client knows a ledger that it has created
    itself. ``password``: None in the metadata of BookKeeper 4.1 and before, which did not keep it. ``creation_time``:
    milliseconds since 1970, where the client that created the ledger has written them. ``format_version``: that of the
    bytes, which stays as it is.
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


# -- what a change makes of the metadata ------------------------------------------------------------------------------


def with_changed_ensemble(metadata: LedgerMetadata, ensemble: Sequence[Any], lac: int) -> LedgerMetadata:
    """The metadata after a change of ensemble, which holds from the entry after the LAC on; see
    :func:`.ensembles.with_ensemble`.
    """
    return metadata.replace(fragments=with_ensemble(metadata.fragments, tuple(ensemble), lac + 1))


def marked_in_recovery(metadata: LedgerMetadata) -> LedgerMetadata:
    """The metadata of a ledger that somebody recovers. They may be just as they were: what counts is their new
    version.
    """
    return metadata.replace(status=LedgerStatus.IN_RECOVERY)


def closed(
    metadata: LedgerMetadata, last_entry: int, length: int, fragments: tuple[Fragment, ...] | None = None
) -> LedgerMetadata:
    """The metadata of a ledger that ends there, with the fragments of a recovery if it has its own."""
    return metadata.replace(
        status=LedgerStatus.CLOSED,
        last_entry=last_entry,
        length=length,
        fragments=metadata.fragments if fragments is None else fragments,
    )


def current_ensemble(metadata: LedgerMetadata) -> tuple[Any, ...]:
    """The ensemble of the last fragment, which entries are added to, and a recovery fences and reads from."""
    return tuple(metadata.fragments[-1].ensemble)


def end_of(metadata: LedgerMetadata) -> int | None:
    """The last entry of a ledger that is closed, -1 if it is empty; None if it is not closed."""
    return metadata.last_entry if metadata.status is LedgerStatus.CLOSED else None


def ends_at(metadata: LedgerMetadata, last_entry: int, length: int) -> bool:
    """Whether a ledger is closed at just that entry."""
    return metadata.status is LedgerStatus.CLOSED and (metadata.last_entry, metadata.length) == (last_entry, length)


def is_own(metadata: LedgerMetadata, creation_token: int) -> bool:
    """Whether a ledger was created by the client that has drawn this token."""
    return metadata.creation_token == creation_token


def reserved(metadata: LedgerMetadata) -> LedgerMetadata:
    """The metadata of a ledger that is created for a writer to come, who adopts it."""
    return metadata.replace(custom_metadata=tuple(sorted((*metadata.custom_metadata, RESERVED))))


def adopted(metadata: LedgerMetadata, creation_token: int) -> LedgerMetadata:
    """The metadata of a reserved ledger that has its writer, who knows it by this token as if it had created it."""
    kept = tuple(each for each in metadata.custom_metadata if each != RESERVED)
    return metadata.replace(custom_metadata=kept, creation_token=creation_token)


def may_open(metadata: LedgerMetadata, password: bytes) -> bool:
    """Whether somebody with this password may open a ledger. Its bookies would refuse another one later."""
    return metadata.password in (None, password)


# -- what a client does, given the metadata as they are ---------------------------------------------------------------


class Next(enum.Enum):
    """The next step of a client that wants to change the metadata, given the current ones."""

    WRITE = "write"
    """Replace the metadata, on condition of their version."""
    DONE = "done"
    """The change was made: by an earlier attempt whose answer was lost, or by somebody else to the same end."""
    GIVE_UP = "give up"
    """The ledger belongs to somebody else now."""


def takes_update(expected: int, actual: int, protections: Protections = ALL) -> bool:
    """Whether the metadata service takes a conditional update."""
    return expected == actual or not protections.conditional_updates


def is_stable(version: int, tried_on: int | None) -> bool:
    """Whether metadata of this version stay as they are as long as nobody begins to change them; ``tried_on``: the
    version on which a client has tried to change them last and does not know whether it did.

    That change may yet be made. So a client that does not want it any more must not go on as if it had not been made:
    it writes what there is once more, and then one of the two is made, and the other cannot be.
    """
    return version != tried_on


def to_create(exists: bool, is_own: bool) -> Next:
    """A client wants to create a ledger. One that exists and is not its own (by its creation token) has the same id by
    accident.
    """
    if not exists:
        return Next.WRITE
    return Next.DONE if is_own else Next.GIVE_UP


def to_adopt(metadata: LedgerMetadata, creation_token: int) -> Next:
    """A client wants to be the writer of a reserved ledger. Only one can: its write is conditional, and takes the
    reservation away.
    """
    if metadata.status is not LedgerStatus.OPEN:
        return Next.GIVE_UP
    if is_own(metadata, creation_token):
        return Next.DONE
    return Next.WRITE if RESERVED in metadata.custom_metadata else Next.GIVE_UP


def to_change_ensemble(status: LedgerStatus, has_failed_bookies: bool) -> Next:
    """The owner wants its failed bookies out of the ensemble. In recovery the ledger is no longer its own."""
    if status is not LedgerStatus.OPEN:
        return Next.GIVE_UP
    return Next.WRITE if has_failed_bookies else Next.DONE


def to_close(status: LedgerStatus, ends_there: bool) -> Next:
    """The owner wants to close its ledger at its LAC; ``ends_there``: the ledger is closed at just that entry.

    The Java client also closes a ledger that somebody is recovering. That is not needed, and the specification forbids
    it.
    """
    if status is LedgerStatus.OPEN:
        return Next.WRITE
    return Next.DONE if status is LedgerStatus.CLOSED and ends_there else Next.GIVE_UP


def to_start_recovery(status: LedgerStatus) -> Next:
    """A client wants to recover a ledger. It writes even if somebody else is recovering, who then cannot close it any
    more.

    ``DONE`` if the ledger is closed and there is nothing to recover. (The Java client does not write if somebody is
    recovering.)
    """
    return Next.DONE if status is LedgerStatus.CLOSED else Next.WRITE


def to_announce_fragments(status: LedgerStatus, is_own_version: bool, protections: Protections = ALL) -> Next:
    """A recovery that does not keep its fragments to itself (see :class:`Protections`) wants to publish a change of
    ensemble.
    """
    if status is LedgerStatus.IN_RECOVERY and (is_own_version or not protections.conditional_updates):
        return Next.WRITE
    return Next.GIVE_UP


def to_close_recovered(status: LedgerStatus, is_own_version: bool, protections: Protections = ALL) -> Next:
    """A recovery wants to close the ledger at the end it found. It gives up if anybody changed the metadata since it
    began.

    The client that changed them recovers the ledger and may have found other entries; it is safe to begin anew. The
    Java client reads the new version and closes on that. ``DONE``: the ledger is closed, by itself or by another; it
    ends where that says.
    """
    if status is LedgerStatus.CLOSED:
        return Next.DONE
    return to_announce_fragments(status, is_own_version, protections)
