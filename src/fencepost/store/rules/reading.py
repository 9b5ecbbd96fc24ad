"""Reading: what a bookie answers, limbo included, and how a recovery read and a reader's read end."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

from fencepost.store.rules.codes import Code, Verdict
from fencepost.store.rules.protections import ALL, Protections
from fencepost.store.rules.quorums import covers

B = TypeVar("B")


def answer_to_read(*, stored: bool, known_ledger: bool, limbo: bool, protections: Protections = ALL) -> Code:
    """What a bookie answers to a read. It serves what it has; in limbo it never says that it lacks an entry (BP-46)."""
    if stored:
        return Code.OK
    if limbo and protections.limbo_is_unknown:
        return Code.UNKNOWN_LEDGER_STATE
    return Code.NO_ENTRY if known_ledger else Code.NO_LEDGER


def recovery_read(
    found: bool,
    negative: Collection[B],
    failed: Collection[B],
    write_set: Collection[B],
    ack_quorum: int,
    protections: Protections = ALL,
) -> Verdict:
    """How the recovery read of one entry ends, given who lacks it (``negative``) and who can not be asked (``failed``).

    One copy is enough to write the entry back. It is given up only if so many lack it that it can not have been committed.
    When all have answered and it is neither, the recovery can not go on.
    """
    if found:
        return Verdict.POSITIVE
    if covers(negative, write_set, ack_quorum) or (negative and not protections.negatives_cover_quorum):
        return Verdict.NEGATIVE
    if all(b in negative or b in failed for b in write_set):
        return Verdict.UNKNOWN
    return Verdict.WAITING


def ordinary_read(found: bool, negative: Collection[B], failed: Collection[B], write_set: Collection[B]) -> Verdict:
    """How a reader's read ends. That there is no such entry is believed only if every bookie of its write set says so."""
    if found:
        return Verdict.POSITIVE
    if all(b in negative for b in write_set):
        return Verdict.NEGATIVE
    return Verdict.UNKNOWN if all(b in negative or b in failed for b in write_set) else Verdict.WAITING


def is_readable(entry_id: int, lac: int, last_entry: int | None) -> bool:
    """Whether a reader may ask for an entry: up to the end of a closed ledger, up to the LAC of one that is not."""
    return entry_id <= (lac if last_entry is None else last_entry)
