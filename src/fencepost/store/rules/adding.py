"""Adding: which add a bookie takes, when an entry is confirmed, and how far the last add confirmed (LAC) goes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from fencepost.store.rules.codes import Code
from fencepost.store.rules.protections import ALL, Protections

B = TypeVar("B")


def answer_to_add(*, key_matches: bool, fenced: bool, recovery: bool, protections: Protections = ALL) -> Code:
    """What a bookie answers to an add, before it stores the entry. A ledger in limbo is a fenced one.

    A bookie never unlearns that it is fenced, so after its refusal no add of the owner gets through to it.
    """
    if not key_matches and protections.keys_are_checked:
        return Code.UNAUTHORIZED
    if fenced and not recovery and protections.fenced_bookies_refuse:
        return Code.FENCED
    return Code.OK


def lac_of_bookie(known: int, carried: int) -> int:
    """A bookie's LAC after a message that carries one. It never falls, in whatever order messages come."""
    return max(known, carried)


def may_append(pushed: int, lac: int, in_flight_limit: int) -> bool:
    """Whether the owner may send one more entry: fewer than the limit are sent and not confirmed."""
    return pushed - lac < in_flight_limit


def counts(confirming: B, write_set: Collection[B], is_pending: bool) -> bool:
    """Whether a confirmation counts: of an entry that is not yet confirmed, by a bookie that is in its write set now."""
    return is_pending and confirming in write_set


def lac_reached(lac: int, pushed: int, is_committed: Callable[[int], bool], protections: Protections = ALL) -> int:
    """How far the LAC goes: up to the last entry that is committed together with all before it, at most ``pushed``."""
    if not protections.confirmed_in_order:
        return max((entry_id for entry_id in range(lac + 1, pushed + 1) if is_committed(entry_id)), default=lac)
    while lac < pushed and is_committed(lac + 1):
        lac += 1
    return lac
