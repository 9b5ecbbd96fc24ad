"""The protections of a ledger, each with a switch. All are on. A checker or a simulator turns one off to show what it
is for.
"""

from __future__ import annotations

from fencepost.language.values import Record


class Protections(Record):
    """The protections of a ledger. A running store always uses :data:`ALL`.

    ``fenced_bookies_refuse``: a fenced bookie takes only recovery adds. ``fencing_covers_ensemble``: recovery reads
    only once every ack quorum of the ensemble has a fenced bookie. ``recovery_reads_fence``: a recovery read also
    fences (the defect of BookKeeper 4.13). ``recovery_starts_at_fragment``: recovery never starts before the current
    fragment. ``recovery_reads_stay``: recovery reads from the ensemble that it began with.
    ``recovery_keeps_fragments``: recovery does not publish its fragments until it closes. ``negatives_cover_quorum``:
    an entry is given up only if too many bookies lack it for it to be committed. ``write_back_before_close``: recovery
    closes only when every entry it read has its ack quorum again. ``conditional_updates``: metadata are replaced only
    if no other client has changed them. ``confirmations_withdrawn``: a bookie that leaves the ensemble no longer
    counts. ``confirmed_in_order``: the LAC passes an entry only after all before it. ``lac_waits_for_change``: the LAC
    does not advance during a change of ensemble. ``recovery_freezes_lac``: entries are written back with the LAC that
    recovery began at. ``limbo_is_unknown``: for a ledger in limbo, a bookie does not say that it lacks an entry
    (BP-46). ``keys_are_checked``: an add or a fencing read with another master key is refused.

    Of a bookie that may have lost something (:mod:`fencepost.ledger.rules.boot`): ``boot_fences``: it fences its
    ledgers before it serves. ``boot_enters_limbo``: its open ledgers are then in limbo. ``cookies_follow_marks``: its
    cookies are restamped only after all ledgers are marked. ``run_precedes_answers``: it records how it runs before its
    first answer.
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
