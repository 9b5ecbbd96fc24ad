"""Faults planted in the rules, one at a time: the checker finds each of them in the protocol ``store``.

A fault is listed with the property that it violates. Faults that violate none, such as a needless recovery read, are
found because they are not steps of `bookkeeper`. (Refinement finds nearly all others too, and earlier.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from campaigns import campaigns_but_every
from protocols.faulty_rules import Rule, always, instead

from fencepost import Options, check
from fencepost.ledger.rules import adding, ensembles, metadata, reading, recovery
from fencepost.ledger.rules.codes import Code, Verdict
from fencepost.ledger.rules.metadata import LedgerStatus, Next
from fencepost.protocols.store import store
from fencepost.protocols.store.store import LOSS, ONE_BOOKIE, ONE_COPY, READABLE, TWO_ENTRIES, Store

SMALL: dict[str, Any] = {"bookies": 2, "ack_quorum": 1}
STRICT: dict[str, Any] = {"bookies": 2}
LOSSLESS: dict[str, Any] = {"message_loss": False}
ALONE: dict[str, Any] = {"clients": 1}
READ: dict[str, Any] = {"readers": 1, "clients": 1}

ACK_QUORUM = "all_committed_entries_reach_ack_quorum"
FENCED = "reads_begin_when_the_owner_is_fenced_off"
MISSING = "no_committed_entry_is_missing"
END = "whoever_closes_the_ledger_knows_its_end"
LAC_BEYOND = "no_lac_beyond_the_end"
REFINEMENT = "refines_bookkeeper"

# The rule, the fault, its description, constants that show it, and the property that finds it.
FAULTS: list[tuple[str, Callable[[Rule], Rule], str, dict[str, Any], str]] = [
    ("answer_to_add", always(Code.OK), "fenced bookies take everything", STRICT, LOSS),
    (
        "answer_to_add",
        instead(lambda *, fenced, **_: Code.FENCED if fenced else Code.OK),
        "fenced bookies refuse recovery adds, too",
        ONE_BOOKIE,
        REFINEMENT,
    ),
    (
        "lac_of_bookie",
        instead(lambda known, carried: carried),
        "a bookie's LAC falls",
        STRICT | LOSSLESS | {"send_limit": 2, "metadata_lags": False},
        REFINEMENT,
    ),
    (
        "lac_of_bookie",
        instead(lambda known, carried: max(known, carried + 1)),
        "a bookie's LAC is the entry, and not what is before it",
        STRICT,
        LAC_BEYOND,
    ),
    ("may_append", always(True), "there is no limit to entries in flight", ONE_BOOKIE | {"send_limit": 2}, REFINEMENT),
    (
        "lac_reached",
        instead(
            lambda lac, pushed, is_committed, *_: max(
                [e for e in range(lac + 1, pushed + 1) if is_committed(e)], default=lac
            )
        ),
        "the LAC passes entries that are not confirmed",
        ONE_BOOKIE | TWO_ENTRIES | ALONE,
        READABLE,
    ),
    (
        "lac_reached",
        instead(lambda lac, pushed, is_committed, *_: min(lac + 1, pushed)),
        "the LAC does not wait for an ack quorum",
        STRICT | ALONE,
        ACK_QUORUM,
    ),
    (
        "write_set",
        instead(lambda entry_id, ensemble, write_quorum: tuple(ensemble)[:write_quorum]),
        "entries are not striped",
        {"bookies": 3, "ensemble_size": 3, "send_limit": 2} | LOSSLESS | ALONE,
        REFINEMENT,
    ),
    (
        "is_committed",
        instead(lambda confirmations, ack_quorum: confirmations + 1 >= ack_quorum),
        "an entry is committed with one confirmation too few",
        STRICT,
        LOSS,
    ),
    (
        "fencing",
        instead(lambda fenced, *_: Verdict.POSITIVE if fenced else Verdict.WAITING),
        "one fenced bookie is enough",
        SMALL,
        FENCED,
    ),
    ("fencing", always(Verdict.POSITIVE), "nobody has to be fenced", STRICT, FENCED),
    ("is_fenced_by_read", always(False), "no read fences", STRICT, FENCED),
    (
        "recovery_read",
        instead(
            lambda found, negative, *_: Verdict.POSITIVE if found else Verdict.NEGATIVE if negative else Verdict.WAITING
        ),
        "one negative answer is enough",
        SMALL,
        LOSS,
    ),
    (
        "recovery_read",
        instead(lambda found, negative, failed, asked, *_: reading.recovery_read(False, negative, failed, asked, 1)),
        "what is found is not taken",
        ONE_BOOKIE,
        REFINEMENT,
    ),
    (
        "ordinary_read",
        instead(lambda found, *_: Verdict.POSITIVE if found else Verdict.NEGATIVE),
        "a reader believes the first bookie",
        SMALL | READ,
        MISSING,
    ),
    ("is_readable", always(True), "a reader reads what is not confirmed", ONE_BOOKIE | READ, MISSING),
    (
        "answer_to_read",
        always(Code.IO_ERROR),
        "a bookie answers no read",
        ONE_BOOKIE,
        REFINEMENT,
    ),
    (
        "confirmed_before",
        instead(lambda lacs, first_entry_of_fragment, *_: max(lacs)),
        "recovery starts before the current fragment",
        ONE_COPY | {"send_limit": 2},
        LOSS,
    ),
    (
        "confirmed_before",
        instead(lambda lacs, first_entry_of_fragment, *_: max(*lacs, first_entry_of_fragment - 1) + 1),
        "recovery does not read the first entry",
        ONE_BOOKIE,
        READABLE,
    ),
    (
        "ensemble_to_read",
        instead(lambda began_with, current, *_: current),
        "recovery reads where it writes",
        ONE_COPY,
        REFINEMENT,
    ),
    (
        "keeps_fragments",
        always(False),
        "recovery tells of its ensembles at once",
        ONE_COPY,
        READABLE,
    ),
    (
        "lac_to_carry",
        instead(lambda began_at, confirmed, *_: confirmed),
        "recovery tells a LAC of its own",
        ONE_BOOKIE | TWO_ENTRIES,
        REFINEMENT,
    ),
    (
        "may_close",
        instead(lambda end_known, unconfirmed, *_: end_known),
        "recovery closes before it has written back",
        STRICT,
        LOSS,
    ),
    (
        "may_close",
        instead(lambda end_known, unconfirmed, *_: not unconfirmed),
        "recovery closes before it has found the end",
        ONE_BOOKIE,
        LOSS,
    ),
    (
        "with_changed_ensemble",
        instead(lambda seen, ensemble, lac: metadata.with_changed_ensemble(seen, ensemble, lac + 1)),
        "a fragment begins one entry too late",
        ONE_COPY | ALONE,
        READABLE,
    ),
    (
        "still_confirmed",
        instead(lambda confirmed, replaced, *_: confirmed),
        "a bookie that has left the ensemble still counts",
        {"bookies": 3} | TWO_ENTRIES | ALONE,
        ACK_QUORUM,
    ),
    (
        "newly_asked",
        instead(lambda entry_id, before, after, write_quorum: []),
        "new bookies are not sent what they lack",
        ONE_COPY | ALONE,
        REFINEMENT,
    ),
    ("takes_update", always(True), "metadata are replaced unconditionally", ONE_BOOKIE, LOSS),
    (
        "to_close",
        instead(lambda status, ends_there: Next.WRITE if status is LedgerStatus.OPEN else Next.DONE),
        "the owner takes whatever close for its own",
        ONE_BOOKIE,
        END,
    ),
    (
        "to_change_ensemble",
        instead(lambda status, has_failed_bookies: Next.WRITE if has_failed_bookies else Next.DONE),
        "the owner goes on although the ledger is in recovery",
        ONE_COPY | {"metadata_answers_lost": True},
        LOSS,
    ),
    (
        "closed",
        instead(
            lambda seen, last_entry, length, *_: metadata.closed(
                seen.replace(fragments=seen.fragments[:1]), last_entry, length
            )
        ),
        "closing forgets fragments",
        ONE_COPY | {"send_limit": 2} | ALONE,
        READABLE,
    ),
]


@pytest.mark.parametrize(
    ("rule", "fault", "what", "constants", "finds"),
    campaigns_but_every(3, FAULTS),
    ids=[f"{f[0]}: {f[2]}" for f in FAULTS],
)
def test_a_planted_fault_is_found(
    rule: str,
    fault: Callable[[Rule], Rule],
    what: str,
    constants: dict[str, Any],
    finds: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner = next(m for m in (adding, ensembles, metadata, reading, recovery) if hasattr(m, rule))
    assert getattr(store, rule) is getattr(owner, rule), "the protocol calls the very function of the rules"
    monkeypatch.setattr(store, rule, fault(getattr(store, rule)))
    check(Store(**constants), invariants=[finds], options=Options(workers=1)).must_violate(finds)


@pytest.mark.campaign
def test_a_step_is_told_that_comes_late_in_a_level_of_which_python_was_asked_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A level is expanded in several runs if it needs much Python. A step that breaks refinement is reported by its
    place in the level, not in the run.
    """
    monkeypatch.setattr(store, "may_close", lambda end_known, unconfirmed, *_: end_known)
    result = check(Store(**STRICT), engine="embedded", invariants=[REFINEMENT], options=Options(workers=1))
    assert len(result.must_violate(REFINEMENT)) == 16
