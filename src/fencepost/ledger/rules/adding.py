"""Adding entries: which adds a bookie takes, what its answer means to the client, and how far the last add confirmed
(LAC) advances.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from typing import TypeVar

from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.protections import ALL, Protections

B = TypeVar("B")


# -- the bookie -------------------------------------------------------------------------------------------------------


def key_matches(known: bytes | None, key: bytes | None) -> bool:
    """Whether a request has the master key of the ledger. A ledger's first key becomes its key."""
    return key is not None and known in (None, key)


def answer_to_add(
    *, key_matches: bool, fenced: bool, recovery: bool, read_only: bool = False, protections: Protections = ALL
) -> Code:
    """A bookie's answer to an add, before it stores the entry. A ledger in limbo counts as fenced.

    A bookie never forgets that a ledger is fenced, so after one refusal it takes no add of the owner. A read-only
    bookie, which has little room left, keeps it for recoveries.
    """
    if not key_matches and protections.keys_are_checked:
        return Code.UNAUTHORIZED
    if fenced and not recovery and protections.fenced_bookies_refuse:
        return Code.FENCED
    return Code.READ_ONLY if read_only and not recovery else Code.OK


def is_journalled(journals_adds: bool, recovery: bool) -> bool:
    """Whether an add is in the bookie's journal before it is confirmed. (With BP-46, other adds may not be.)

    Adds of a recovery or a repair always are. The metadata name the bookie only once the ledger is closed or the
    fragment is complete. A bookie that lost the entry before then would not find the ledger when it boots.
    """
    return journals_adds or recovery


def answer_to_key(known: bytes | None, key: bytes | None, protections: Protections = ALL) -> Code:
    """A bookie's answer to a request that depends only on the master key. An explicit LAC is true for a fenced ledger
    too. A fencing request may concern a ledger unknown to the bookie.
    """
    return Code.OK if key_matches(known, key) or not protections.keys_are_checked else Code.UNAUTHORIZED


def lac_of_bookie(known: int, carried: int) -> int:
    """A bookie's LAC after a message that carries one. It never decreases, whatever the order of messages."""
    return max(known, carried)


# -- the owner, and recoveries that write entries back ----------------------------------------------------------------


def may_append(pushed: int, confirmed: int, in_flight_limit: int) -> bool:
    """Whether the owner may send one more entry: fewer than the limit are unconfirmed."""
    return pushed - confirmed < in_flight_limit


def room(pushed: int, confirmed: int, in_flight_limit: int) -> int:
    """How many entries the owner may send in a row: :func:`may_append` holds for each."""
    return max(0, in_flight_limit - (pushed - confirmed))


class AddOutcome(enum.Enum):
    """The outcome of an add at one bookie, answered or not."""

    CONFIRMED = "confirmed"
    BOOKIE_FAILED = "bookie failed"
    """The bookie must be replaced, whether or not it stored the entry."""
    FENCED = "fenced"
    UNAUTHORIZED = "unauthorized"


def outcome_of_add(code: Code | None) -> AddOutcome:
    """The outcome of an add by the code of its answer; None: no answer. If the client is fenced or has a wrong key,
    other bookies would not help.
    """
    if code is Code.OK:
        return AddOutcome.CONFIRMED
    if code is Code.FENCED:
        return AddOutcome.FENCED
    return AddOutcome.UNAUTHORIZED if code is Code.UNAUTHORIZED else AddOutcome.BOOKIE_FAILED


def lac_reached(
    lac: int,
    pushed: int,
    is_committed: Callable[[int], bool],
    changing_ensemble: bool = False,
    protections: Protections = ALL,
) -> int:
    """The LAC: the last entry, at most ``pushed``, that is committed together with all before it.

    It does not advance during a change of ensemble. The new ensemble starts at the entry after the LAC, and replaced
    bookies no longer count from there.
    """
    if changing_ensemble and protections.lac_waits_for_change:
        return lac
    if not protections.confirmed_in_order:
        return max((entry_id for entry_id in range(lac + 1, pushed + 1) if is_committed(entry_id)), default=lac)
    while lac < pushed and is_committed(lac + 1):
        lac += 1
    return lac


# -- deferred sync, and the explicit LAC ------------------------------------------------------------------------------


def lac_of_owner(confirmed: int, forced: int, deferred_sync: bool) -> int:
    """The LAC that the owner sends: the last confirmed entry, or with deferred sync the last confirmed and forced
    one.
    """
    return forced if deferred_sync else confirmed


def is_forced(forced: Collection[B], ensemble: Collection[B]) -> bool:
    """Whether everything confirmed before a force is durable. Each entry has its own ack quorum, so every bookie must
    have answered.
    """
    return all(b in forced for b in ensemble)


def outlives_connection(pushed: int, forced: int, deferred_sync: bool) -> bool:
    """Whether a ledger may continue after the connection to a bookie was lost. The bookie may have restarted.

    With deferred sync it may have lost what it confirmed since the last force, and the next force would not show that.
    """
    return not deferred_sync or pushed <= forced
