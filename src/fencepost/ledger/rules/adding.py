"""Adding: which add a bookie takes, what its answer means to the client, and how far the last add confirmed (LAC)
goes.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from typing import TypeVar

from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.protections import ALL, Protections

B = TypeVar("B")


# -- the bookie -------------------------------------------------------------------------------------------------------


def key_matches(known: bytes | None, given: bytes | None) -> bool:
    """Whether a request has the master key of the ledger. The first one that comes is the ledger's from then on."""
    return given is not None and known in (None, given)


def answer_to_add(
    *, key_matches: bool, fenced: bool, recovery: bool, read_only: bool = False, protections: Protections = ALL
) -> Code:
    """The answer of a bookie to an add, before it stores the entry. A ledger in limbo counts as fenced.

    A bookie never unlearns that it is fenced, so after its refusal no add of the owner gets through to it. One that is
    read-only, for want of room, keeps what is left for those who recover.
    """
    if not key_matches and protections.keys_are_checked:
        return Code.UNAUTHORIZED
    if fenced and not recovery and protections.fenced_bookies_refuse:
        return Code.FENCED
    return Code.READ_ONLY if read_only and not recovery else Code.OK


def is_journalled(journals_adds: bool, recovery: bool) -> bool:
    """Whether an add is in the bookie's journal before it is confirmed (BP-46 leaves others out).

    One of a recovery or a repair always is: the metadata name the bookie only when the ledger is closed or the fragment
    is complete, so a bookie that lost the entry before then would not know of the ledger when it boots.
    """
    return journals_adds or recovery


def answer_to_key(known: bytes | None, given: bytes | None, protections: Protections = ALL) -> Code:
    """The answer of a bookie to what depends on the master key alone. An explicit LAC is true whether the ledger is
    fenced or not; and it need not have heard of a ledger before that is to be fenced.
    """
    return Code.OK if key_matches(known, given) or not protections.keys_are_checked else Code.UNAUTHORIZED


def lac_of_bookie(known: int, carried: int) -> int:
    """A bookie's LAC after a message that carries one. It never falls, in whatever order messages come."""
    return max(known, carried)


# -- the owner, and whoever writes entries back -----------------------------------------------------------------------


def may_append(pushed: int, confirmed: int, in_flight_limit: int) -> bool:
    """Whether the owner may send one more entry: fewer than the limit are sent and not confirmed."""
    return pushed - confirmed < in_flight_limit


def room(pushed: int, confirmed: int, in_flight_limit: int) -> int:
    """How many entries the owner may send one after another: :func:`may_append` for each of them."""
    return max(0, in_flight_limit - (pushed - confirmed))


class AddOutcome(enum.Enum):
    """The outcome of an add at one bookie, answered or not."""

    CONFIRMED = "confirmed"
    BOOKIE_FAILED = "bookie failed"
    """The bookie has to be replaced. Whether it stored the entry does not matter."""
    FENCED = "fenced"
    UNAUTHORIZED = "unauthorized"


def outcome_of_add(code: Code | None) -> AddOutcome:
    """The outcome of an add by the code of its answer; None: there was no answer. For a fenced client, or with a wrong
    key, no other bookie would help.
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
    """How far the LAC goes: up to the last entry that is committed together with all before it, at most ``pushed``.

    It stands still while the ensemble is being changed: the new one holds from the entry after the LAC on, and replaced
    bookies no longer count for those entries.
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
    """The LAC that the owner tells: what is confirmed, or with deferred sync only what was forced to disks after
    that.
    """
    return forced if deferred_sync else confirmed


def is_forced(forced: Collection[B], ensemble: Collection[B]) -> bool:
    """Whether all that was confirmed before is durable. Each entry has an ack quorum of its own, so every bookie has to
    say so.
    """
    return all(b in forced for b in ensemble)


def outlives_connection(pushed: int, forced: int, deferred_sync: bool) -> bool:
    """Whether a ledger may go on when the connection to a bookie is gone, which may have been started anew.

    With deferred sync it may have forgotten what it confirmed since the last force, and the next force would not tell.
    """
    return not deferred_sync or pushed <= forced
