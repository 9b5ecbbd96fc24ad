"""Faults of the store that only the validation of its traces looks for. The reported step is the wrong one.

Each row: the fault, the profile and a seed of the simulator that shows it, the step of the protocol that cannot be
taken, and why. The judge of the simulator finds nothing. Other steps may be reported too: those that wait for something
that follows from the wrong one.
"""

from __future__ import annotations

import pytest
from campaigns import campaigns_but_every
from ledger.simulation.test_planted import PLANTED
from traces.faulty import MORE, faulty
from traces.traced import said, traced, validate

from fencepost.ledger.rules.protections import ALL
from fencepost.ledger.simulation.case import drawn
from fencepost.traces.validation.conformance import Event

PROTECTIONS: list[tuple[str, str, int, str, str]] = [
    ("fenced_bookies_refuse", "races", 2, "bookie_sends_add_confirmed_response", "require(code is Code.OK)"),
    (
        "fencing_covers_ensemble",
        "races",
        3,
        "client_sends_recovery_read_requests",
        "require(fenced is Verdict.POSITIVE)",
    ),
    ("recovery_reads_fence", "races", 96, "bookie_sends_read_response", "fenced is False before"),
    ("recovery_starts_at_fragment", "everything", 16, "client_sends_recovery_read_requests", ".last_read is"),
    ("recovery_reads_stay", "everything", 4, "client_sends_recovery_read_requests", "the protocol sends to"),
    (
        "recovery_keeps_fragments",
        "everything",
        6,
        "recovery_client_changes_ensemble",
        "the trace says it has MetadataWrite",
    ),
    ("negatives_cover_quorum", "races", 3, "recovery_client_closes_ledger", "require(may_close("),
    ("write_back_before_close", "races", 2, "recovery_client_closes_ledger", "require(may_close("),
    ("conditional_updates", "everything", 4, "metadata_written", "require(takes_update("),
    ("confirmations_withdrawn", "everything", 16, "client_confirms", ".lac is"),
    ("confirmed_in_order", "races", 14, "client_confirms", ".lac is"),
    ("lac_waits_for_change", "everything", 1, "client_confirms", ".lac is"),
    ("recovery_freezes_lac", "races", 19, "client_writes_back_entry", "the protocol sends Add"),
    ("limbo_is_unknown", "everything", 31, "bookie_answers_reader", "require(found or not ("),
    ("keys_are_checked", "races", 3, "bookie_sends_add_confirmed_response", "nobody has sent"),
]
FAULTS: list[tuple[str, str, int, str, str]] = [
    ("the last of several adds is not stored", "everything", 1, "bookie_answers_reader", "require(found == "),
    (
        "adds are answered before they are durable",
        "everything",
        54,
        "recovery_client_receives_add_confirmed_response",
        "nobody has sent",
    ),
    ("an answer confirms all that follows", "everything", 1, "client_confirms", ".lac is"),
    (
        "entries carry a LAC that is one too high",
        "everything",
        1,
        "client_sends_add_entry_requests",
        "the protocol sends Add",
    ),
    (
        "recovery reads do not ask to be fenced",
        "everything",
        1,
        "bookie_sends_read_response",
        "there is no fence=False",
    ),
    ("a ledger leaves limbo at once", "everything", 31, "bookie_answers_reader", "require(found or not ("),
    ("a bookie denies an entry that it has", "everything", 1, "bookie_answers_reader", "require(found == "),
    ("a recovery closes the ledger on a newer version", "everything", 9, "metadata_written", "there is no metadata="),
    (
        "recovery tells the LAC that it has come to",
        "everything",
        4,
        "client_writes_back_entry",
        "the protocol sends Add",
    ),
    (
        "a ledger is closed one entry beyond its LAC",
        "everything",
        1,
        "recovery_client_closes_ledger",
        "the trace says it has MetadataWrite",
    ),
    (
        "a fenced bookie refuses recovery adds too",
        "everything",
        1,
        "bookie_sends_add_fenced_response",
        "require(code is Code.FENCED)",
    ),
    ("the LAC goes one entry too far", "everything", 1, "client_confirms", ".lac is"),
    (
        "no answer is taken for a confirmation",
        "everything",
        1,
        "client_receives_add_confirmed_response",
        "nobody has sent",
    ),
    ("an ack quorum is one bookie short", "everything", 1, "client_confirms", ".lac is"),
    ("an ack quorum is one bookie too many", "everything", 7, "client_confirms", ".lac is"),
    ("entries are not striped", "everything", 45, "client_sends_recovery_read_requests", "the protocol sends to"),
    (
        "bookies that stay change their places",
        "everything",
        1,
        "client_changes_ensemble",
        "the trace says it has MetadataWrite",
    ),
    ("a bookie that failed is chosen again", "everything", 1, "client_changes_ensemble", "require(len(failed) > 0)"),
    (
        "a new fragment begins one entry late",
        "everything",
        1,
        "client_changes_ensemble",
        "the trace says it has MetadataWrite",
    ),
    (
        "a new fragment replaces the last one",
        "everything",
        1,
        "client_changes_ensemble",
        "the trace says it has MetadataWrite",
    ),
    (
        "a bookie fences nothing by a read",
        "everything",
        1,
        "bookie_sends_fencing_read_lac_response",
        "fenced is False before",
    ),
    (
        "one quorum too few is covered",
        "everything",
        1,
        "client_sends_recovery_read_requests",
        "require(fenced is Verdict.POSITIVE)",
    ),
    ("recovery skips an entry", "everything", 1, "client_sends_recovery_read_requests", ".last_read is"),
    ("recovery closes before it knows the end", "everything", 4, "recovery_client_closes_ledger", "require(may_close("),
    ("recovery ends where it does not know", "everything", 1, "recovery_client_closes_ledger", "require(may_close("),
    (
        "no answer is taken for a negative one",
        "everything",
        6,
        "client_receives_recovery_read_response",
        "nobody has sent",
    ),
    (
        "a ledger in limbo is taken to lack entries",
        "everything",
        9,
        "client_receives_recovery_read_response",
        "nobody has sent",
    ),
    ("what failed counts as lacking it", "everything", 6, "recovery_client_closes_ledger", "require(may_close("),
    ("an entry that cannot be read is denied", "disks", 71, "bookie_answers_reader", "require(found == "),
    (
        "the owner changes the ensemble in recovery",
        "everything",
        12,
        "client_changes_ensemble",
        "require(self._may_change_ensemble",
    ),
    (
        "a ledger is closed one entry short",
        "everything",
        1,
        "recovery_client_closes_ledger",
        "the trace says it has MetadataWrite",
    ),
    (
        "a bookie answers before it is durable",
        "everything",
        23,
        "client_receives_recovery_read_response",
        "nobody has sent",
    ),
    (
        "a bookie does not journal that it is fenced",
        "everything",
        2,
        "bookie_sends_fencing_read_lac_response",
        "fenced is False before",
    ),
    (
        "a bookie does not journal that a ledger is in limbo",
        "everything",
        38,
        "bookie_answers_reader",
        "require(found == ",
    ),
    (
        "a write whose answer was lost is taken for done",
        "everything",
        23,
        "client_receives_metadata",
        "update is None before",
    ),
    (
        "a write on an old version is taken for done",
        "everything",
        12,
        "client_receives_metadata",
        "update is None before",
    ),
    (
        "the writer ignores that it is fenced",
        "everything",
        90,
        "client_receives_metadata",
        "require(client.status in WRITING)",
    ),
    ("a new ensemble is written and not used", "everything", 6, "client_resends_pending_add_op", "op = one_of("),
    (
        "recovery reads on without fencing",
        "everything",
        374,
        "client_receives_fencing_read_lac_response",
        "nobody has sent",
    ),
    (
        "the LAC of deferred adds does not wait for a force",
        "everything",
        4,
        "client_sends_add_entry_requests",
        "the protocol sends Add",
    ),
    ("a force is done when one bookie has done it", "everything", 65, "client_receives_force_response", "forced.c1 is"),
    (
        "deferred adds outlive the connection that they came by",
        "disks",
        8,
        "client_sends_add_entry_requests",
        "require(recovery or not self.done_adding",
    ),
    ("readers of a closed ledger miss its last entry", "everything", 3, "reader_finds_end", "not self._may_read("),
    ("readers read one entry beyond the LAC", "everything", 12, "reader_receives_entry", "require(self._may_read("),
]
BOOTS: list[tuple[str, int, str]] = [
    ("boot_fences", 14, "bookie_may_lack_entries(b=b1, mark=Mark.NOTHING"),
    ("boot_enters_limbo", 5, "bookie_may_lack_entries(b=b1, mark=Mark.FENCE"),
    ("cookies_follow_marks", 426, "bookie_stamps_cookies, b4 4 bookie_may_lack_entries"),
    ("run_precedes_answers", 19, "bookie_notes_run, b2 2 bookie_sends_add_confirmed_response"),
]
"""Protections of a bookie that boots as one that may lack entries, a seed of the profile ``no-journal``, and the
report.
"""

WINDOWS: list[tuple[str, str, str]] = [
    ("a bookie answers before it is durable", "client_receives_fencing_read_lac_response", "nobody has sent"),
    ("adds are answered before they are durable", "client_receives_add_confirmed_response", "nobody has sent"),
    ("a bookie does not journal that it is fenced", "bookie_sends_fencing_read_lac_response", "fenced is False before"),
]
"""Faults that show only if a bookie ends just after it has answered: an answer before the sync, and a fence that is
forgotten at a restart. In the profile ``windows``, bookies end just then.
"""

UNSEEN: dict[str, str] = {
    "adds that came together take one place in the journal": (
        "how a journal counts is not in the protocol, and what is lost by it is lost only if the power fails just then"
    ),
    "an entry is left out where there was no room": "what an entry holds is not in the protocol",
    "entries of a batch have the length of the first": "the length of a ledger is not in the protocol",
    "what is given up stays in flight": "a writer that does nothing more is a behaviour",
    "what is left of a batch is sent from its beginning": "what an entry holds is not in the protocol",
    "a client forgets that its write may yet come": (
        "a write must be given up, and arrive after the client has gone on: no seed has shown it yet"
    ),
    "a bookie forgets the key when it starts": (
        "an impostor must come just then: none of the few seeds that were tried has shown it"
    ),
    "a bookie goes on after its journal failed": (
        "the power must fail, too: none of the few seeds that were tried has shown it"
    ),
    "confirmations of bookies that have left count": (
        "the client raises where it looks for the bookie that has left, and does nothing more"
    ),
    "entries are opened without their digest": "what an entry holds is not in the protocol",
    "fencing never ends": "a recovery that does nothing more is a behaviour",
    "a ledger is closed with the length of nothing": "the length of a ledger is not in the protocol",
    "new bookies are not sent what they lack": (
        "it looks as if what they were sent was lost, and so nothing is confirmed"
    ),
    "entries are there before they have come": "a reader that is given too much has no trace of it",
    "no other bookie is asked for what one does not give": "a reader that does nothing more is a behaviour",
    "nobody is told of what is forgotten": "what a caller wants is not in the protocol",
    "one bookie that lacks an entry is believed": "the metadata are read, and the others are asked anew",
    "a reader is told twice that entries are there": "what a caller is told is not in the protocol",
    "a reader believes that a poll has ended the ledger": (
        "the reader tells its caller alone: what it says for a trace is as if it waited"
    ),
    "recovery leaves a ledger to who recovers it already": "a client that does nothing is a behaviour",
    "recovery writes nothing back": "it looks as if all that it wrote was lost, and so it never closes the ledger",
    "the LAC of a bookie is the last that it was told": "no event tells the LAC with which a bookie answers readers",
    **dict.fromkeys(
        (
            "a bookie is replaced by any other",
            "a bookie is replaced by one of any region",
            "a new ensemble is anywhere",
            "an entry, and not an ack quorum, is in several regions",
            "bookies of other groups are taken",
            "bookies that stay may be anywhere",
            "one region is enough",
            "only the write set of the first entry is placed",
            "racks are not enforced",
            "zones are not enforced",
        ),
        "where bookies are is not in the protocol",
    ),
}
"""Faults that no trace shows, and why."""

_PLANTED = {fault.name: fault for fault in (*PLANTED, *MORE)}


def is_told(events: list[Event], step: str, why: str) -> None:
    """The step that cannot be taken is reported, and why."""
    verdict = validate(events)
    assert not verdict.accepted
    assert not verdict.problem
    told = [
        each for each in verdict.refusals if (each.step.action or each.event.action) == step and why in str(each.why)
    ]
    assert told, said(verdict)


@pytest.mark.parametrize(
    ("protection", "profile", "seed", "step", "why"), PROTECTIONS, ids=[row[0] for row in PROTECTIONS]
)
def test_a_protection_that_is_switched_off_is_told(
    protection: str, profile: str, seed: int, step: str, why: str
) -> None:
    is_told(faulty(drawn(seed, profile, ALL.replace(**{protection: False}))), step, why)


@pytest.mark.parametrize(("protection", "seed", "told"), BOOTS, ids=[row[0] for row in BOOTS])
def test_a_protection_of_boots_that_is_switched_off_is_told(protection: str, seed: int, told: str) -> None:
    assert validate(traced(seed, "no-journal")[1]).accepted
    verdict = validate(faulty(drawn(seed, "no-journal", ALL.replace(**{protection: False}))))
    assert not verdict.accepted and told in said(verdict)


@pytest.mark.parametrize(
    ("fault", "profile", "seed", "step", "why"), campaigns_but_every(3, FAULTS), ids=[row[0] for row in FAULTS]
)
def test_a_planted_fault_is_told(fault: str, profile: str, seed: int, step: str, why: str) -> None:
    is_told(faulty(drawn(seed, profile), _PLANTED[fault]), step, why)


def test_the_same_seeds_are_accepted_without_a_fault() -> None:
    for profile, seed in sorted({(profile, seed) for _, profile, seed, _, _ in (*PROTECTIONS, *FAULTS)}):
        verdict = validate(traced(seed, profile)[1])
        assert verdict.accepted, (profile, seed, said(verdict))


def test_every_protection_and_every_fault_is_accounted_for() -> None:
    assert {row[0] for row in (*PROTECTIONS, *BOOTS)} | {*UNSEEN} >= {*type(ALL).__annotations__}
    assert {row[0] for row in FAULTS} | {*UNSEEN} >= {*_PLANTED}


@pytest.mark.parametrize("seeds", [range(8, 9), pytest.param(range(1, 15), marks=pytest.mark.campaign)], ids=str)
@pytest.mark.parametrize(("name", "step", "why"), WINDOWS, ids=[row[0] for row in WINDOWS])
def test_what_is_lost_just_after_an_answer_is_found_in_most_runs(name: str, step: str, why: str, seeds: range) -> None:
    fault = next(fault for fault in (*PLANTED, *MORE) if fault.name == name)
    verdicts = [validate(faulty(drawn(seed, "windows"), fault)) for seed in seeds]
    assert all(verdict.covered for verdict in verdicts)
    rejected = [verdict for verdict in verdicts if not verdict.accepted]
    assert len(rejected) * 4 >= 3 * len(seeds)
    assert sum(f" {step} [" in said(verdict) and why in said(verdict) for verdict in rejected) > len(seeds) // 2


@pytest.mark.parametrize("seeds", [range(1, 6), pytest.param(range(6, 31), marks=pytest.mark.campaign)], ids=str)
def test_a_store_that_loses_nothing_just_after_an_answer_is_accepted(seeds: range) -> None:
    for seed in seeds:
        outcome, events = traced(seed, "windows")
        assert outcome.violation is None
        assert validate(events).accepted, seed
