"""The protections of a ledger, with a switch for each. All are on; a checker or a simulator turns one off to show its
purpose.
"""

from __future__ import annotations

from fencepost.language.values import Record


class Protections(Record):
    """The protections of a ledger. Whoever runs a store uses :data:`ALL`.

    ``fenced_bookies_refuse``: a fenced bookie takes recovery adds alone. ``fencing_covers_ensemble``: recovery reads
    only once every ack quorum of the ensemble has a fenced bookie. ``recovery_reads_fence``: a recovery read fences too
    (the defect of BookKeeper 4.13). ``recovery_starts_at_fragment``: recovery starts at the current fragment at the
    earliest. ``recovery_reads_stay``: recovery reads from the ensemble that it began with.
    ``recovery_keeps_fragments``: recovery keeps its fragments to itself until it closes. ``negatives_cover_quorum``: an
    entry is given up only when so many bookies lack it that it cannot be committed. ``write_back_before_close``:
    recovery closes only when all that it read has its ack quorum again. ``conditional_updates``: metadata are replaced
    only if nobody else has changed them. ``confirmations_withdrawn``: a bookie that leaves the ensemble no longer
    counts. ``confirmed_in_order``: the LAC passes an entry only after all before it. ``lac_waits_for_change``: the LAC
    stands still while the ensemble is being changed. ``recovery_freezes_lac``: entries are written back with the LAC
    that recovery began at. ``limbo_is_unknown``: a ledger in limbo does not say that it lacks an entry (BP-46).
    ``keys_are_checked``: an add or a fencing read with another master key is refused.

    Of a bookie that may have lost something (:mod:`fencepost.ledger.rules.boot`): ``boot_fences``: it fences its
    ledgers before it serves. ``boot_enters_limbo``: those that are not closed are in limbo then.
    ``cookies_follow_marks``: its cookies are stamped anew only after all ledgers are marked. ``run_precedes_answers``:
    a bookie records how it runs ahead of its first answer.
    """

    fenced_bookies_refuse: bool = True
    fencing_covers_ensemble: bool = True
    recovery_reads_fence: bool = True
    recovery_starts_at_fragment: bool = True
    recovery_reads_stay: bool = True
    recovery_keeps_fragments: bool = True
    negatives_cover_quorum: bool = True
    write_back_before_close: bool = True
    conditional_updates: bool = True
    confirmations_withdrawn: bool = True
    confirmed_in_order: bool = True
    lac_waits_for_change: bool = True
    recovery_freezes_lac: bool = True
    limbo_is_unknown: bool = True
    keys_are_checked: bool = True
    boot_fences: bool = True
    boot_enters_limbo: bool = True
    cookies_follow_marks: bool = True
    run_precedes_answers: bool = True


ALL = Protections()
