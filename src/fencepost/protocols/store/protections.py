"""The protections of a ledger as constants, which the protocols over its rules share. A check can switch each one
off.
"""

from __future__ import annotations

from fencepost import constant
from fencepost.ledger.rules.protections import Protections
from fencepost.protocols.protections import switched_on


class Protected:
    """The protections that each of these protocols can switch off. A protocol declares any others itself."""

    fenced_bookies_refuse: bool = constant(True, "whether a fenced bookie accepts recovery adds only")
    fencing_covers_ensemble: bool = constant(
        True, "whether recovery reads only once every ack quorum of the ensemble has a fenced bookie"
    )
    recovery_reads_fence: bool = constant(True, "whether recovery reads fence the ledger too")
    recovery_starts_at_fragment: bool = constant(
        True, "whether recovery starts at the current fragment at the earliest"
    )
    recovery_reads_stay: bool = constant(True, "whether all recovery reads go to the ensemble that recovery began with")
    recovery_keeps_fragments: bool = constant(
        True, "whether recovery does not publish new fragments before it closes the ledger"
    )
    negatives_cover_quorum: bool = constant(
        True, "whether an entry is given up only if enough bookies lack it that it cannot be committed"
    )
    write_back_before_close: bool = constant(
        True, "whether recovery closes only when all that it read has an ack quorum again"
    )
    conditional_updates: bool = constant(True, "whether metadata are replaced only if nobody else has changed them")
    confirmations_withdrawn: bool = constant(True, "whether a bookie that leaves the ensemble no longer counts")
    confirmed_in_order: bool = constant(True, "whether the LAC passes an entry only after all entries before it")
    lac_waits_for_change: bool = constant(True, "whether the LAC waits while the ensemble is being changed")
    recovery_freezes_lac: bool = constant(True, "whether recovery writes carry the LAC that recovery began with")
    limbo_is_unknown: bool = constant(True, "whether a bookie in limbo does not say that it lacks an entry")

    @property
    def protections(self) -> Protections:
        """The protections that are on. Those that are not constants are always on."""
        return switched_on(self, Protections)
