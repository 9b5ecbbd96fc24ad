"""The decisions of offloading, as pure functions. The checker explores them in the protocol `log-offload`, and
:mod:`.offload` runs them.

A closed ledger of a log is copied to an object of an object store. Each attempt has a number of its own, and so has its
object. A record in the metadata service precedes the object and outlives it. The list of the log then names the object,
and only after that is the ledger deleted from the bookies.
"""

from __future__ import annotations

import enum

from fencepost.language.values import Record


class Protections(Record):
    """The protections of offloading, one switch each. Only tests turn any of them off; see :data:`ALL`.

    ``objects_are_own``: no two attempts write to one object. ``records_precede_objects``: an object is recorded before
    it is written. ``objects_are_verified``: an object is read back before the list names it.
    ``updates_are_conditional``: the list is replaced only if nobody else has changed it. ``list_precedes_deletion``: a
    ledger is deleted from the bookies once the list names its object. ``withdrawals_are_noticed``: an offloader that
    finds its record withdrawn gives up. ``withdrawals_raise_the_version``: updates under way fail after a withdrawal.
    ``named_objects_are_kept``: who withdraws an object looks in the list before it removes it.
    ``trims_precede_removal``: an object is removed once the list does not name it. ``objects_are_listed_first``: who
    looks for objects without a record lists the objects before it reads the records. ``readers_look_again``: a reader
    that does not find a ledger reads the list again.

    Those of the deletion of a log: ``seals_precede_deletion``: it is sealed before anything of it is deleted.
    ``trims_are_read_last``: the deletion reads the list before it reads what was trimmed. ``ledgers_precede_nodes``:
    the ledgers are deleted before the node of the log. ``deletions_withdraw``: objects that the list does not name are
    withdrawn before they are removed. ``strays_precede_records``: objects without a record are removed
    while a record names their folder. ``objects_precede_records``: an object is removed before its record.
    ``late_records_are_heeded``: records that were made during the deletion are not deleted without their objects.
    ``nodes_are_made_inside``: nothing is recorded for a log that does not exist. ``offloaders_clean_up``: an offloader
    that gives up removes its object.
    """

    objects_are_own: bool = True
    records_precede_objects: bool = True
    objects_are_verified: bool = True
    updates_are_conditional: bool = True
    list_precedes_deletion: bool = True
    withdrawals_are_noticed: bool = True
    withdrawals_raise_the_version: bool = True
    named_objects_are_kept: bool = True
    trims_precede_removal: bool = True
    objects_are_listed_first: bool = True
    readers_look_again: bool = True
    seals_precede_deletion: bool = True
    trims_are_read_last: bool = True
    ledgers_precede_nodes: bool = True
    deletions_withdraw: bool = True
    strays_precede_records: bool = True
    objects_precede_records: bool = True
    late_records_are_heeded: bool = True
    nodes_are_made_inside: bool = True
    offloaders_clean_up: bool = True


ALL = Protections()


class Noted(enum.Enum):
    """The record of an attempt."""

    NOT = "not"
    """There is none."""
    BEGUN = "begun"
    WITHDRAWN = "withdrawn"
    """The object is about to be removed, and must not get into the list."""


def may_name(is_in_log: bool, named: int | None, record: Noted, protections: Protections = ALL) -> bool:
    """Return whether the list may name the object of an attempt.

    ``is_in_log`` and ``named``: whether the list has the ledger, and the attempt whose object it names, if any.
    ``record``: of this attempt, read after the list.
    """
    if protections.withdrawals_are_noticed and record is not Noted.BEGUN:
        return False
    return is_in_log and named is None


def takes_update(expected: int, actual: int, protections: Protections = ALL) -> bool:
    """Return whether the list is replaced, given the version that the offloader has read."""
    return expected == actual or not protections.updates_are_conditional


def may_delete_ledger(named: int | None, protections: Protections = ALL) -> bool:
    """Return whether bookies may lose a ledger of the log, given the attempt whose object the list names."""
    return named is not None or not protections.list_precedes_deletion


def is_superseded(is_in_log: bool, named: int | None, attempt: int) -> bool:
    """Return whether the list will never name the object of an attempt, so that it can be removed at once: the ledger
    was trimmed, or another object has it. Updates that are based on an older list are refused.
    """
    return not is_in_log or (named is not None and named != attempt)


def may_remove_withdrawn(named: int | None, attempt: int, protections: Protections = ALL) -> bool:
    """Return whether a withdrawn object can be removed. The list was read after its version was raised."""
    return named != attempt or not protections.named_objects_are_kept


def is_lost(tried: int | None, found: int | None, protections: Protections = ALL) -> bool:
    """Return whether a ledger of the log is lost for a reader that did not find it.

    ``tried`` and ``found``: the attempt whose object the list named when the reader tried, and names now. None: the
    bookies have the ledger.
    """
    return tried == found or not protections.readers_look_again
