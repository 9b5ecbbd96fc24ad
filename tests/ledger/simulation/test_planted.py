"""Faults planted in rules and roles, one at a time. The simulator finds each of them.

A row of :data:`PLANTED` is a fault: its description, the function or method that it replaces, and the replacement,
which receives the original and the arguments. If nothing finds a fault, the judge does not check some promise.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from campaigns import campaigns_but_every

from fencepost.ledger.entries import Digests, Entry
from fencepost.ledger.records import LedgerFenced, LimboChanged, MasterKeyLearnt
from fencepost.ledger.roles import adds, bookie, interface, metadata, reader, recoverer, writer
from fencepost.ledger.roles import reading as entries_read
from fencepost.ledger.roles.interface import Outcome, ReadOver, Result
from fencepost.ledger.roles.metadata import Seen
from fencepost.ledger.roles.requests import AddRequests
from fencepost.ledger.rules import adding, ensembles, placement, reading, recovery
from fencepost.ledger.rules import metadata as life
from fencepost.ledger.rules.adding import AddOutcome
from fencepost.ledger.rules.codes import Code, Verdict
from fencepost.ledger.rules.metadata import LedgerStatus, Next
from fencepost.ledger.rules.reading import ReadOutcome
from fencepost.ledger.simulation.case import drawn
from fencepost.ledger.simulation.workload import simulate

SEEDS = 400
"""The number of seeds within which every fault is found."""


@dataclass(frozen=True)
class Planted:
    """A fault. ``seed``: one that finds it today. The search begins there, so the test is quick."""

    name: str
    where: Any
    function: str
    instead: Callable[..., Any]
    profile: str = "everything"
    seed: int = 1


def _journals_all_but(kind: type) -> Callable[..., Any]:
    def instead(original: Any, self: Any, record: Any, effects: list[Any]) -> None:
        if type(record) is not kind:
            original(self, record, effects)

    return instead


def _forgets(kind: type) -> Callable[..., Any]:
    def instead(original: Any, self: Any, event: Any, effects: list[Any]) -> None:
        if type(event.record) is not kind:
            original(self, event, effects)

    return instead


def _opens_what_is_damaged(
    original: Any, self: Digests, body: bytes | None, ledger: int, entry_id: int | None = None
) -> Any:
    found = original(self, body, ledger, entry_id)
    if found is None and body is not None and len(body) >= 32 + self.size and entry_id is not None:
        return Entry(ledger, entry_id, -1, 0, body[32 + self.size :])
    return found


def _takes_unknown_for_written(original: Any, self: Any, event: Any, effects: list[Any]) -> Any:
    if getattr(event, "outcome", None) is Outcome.UNKNOWN and event.txn == self.txn and self.offered is not None:
        self.metadata = self.offered
        self.version += 1
        return Seen.WRITTEN
    return original(self, event, effects)


def _takes_bad_version_for_written(original: Any, self: Any, event: Any, effects: list[Any]) -> Any:
    if getattr(event, "outcome", None) is Outcome.BAD_VERSION and event.txn == self.txn:
        self.metadata, self.version = self.offered, event.version
        return Seen.WRITTEN
    return original(self, event, effects)


def _takes_one_place(original: Any, self: Any, batch: Any, effects: list[Any]) -> None:
    original(self, batch, effects)
    self.position -= len(batch[-1]) - 1


def _drops_the_last(original: Any, self: Any, batch: Any, effects: list[Any]) -> None:
    original(self, batch, effects)
    if len(batch[-1]) > 1:
        effects[-1] = interface.JournalAdds(effects[-1].position, (*batch[:-1], AddRequests(batch[-1].requests[:-1])))


def _answers_at_once(original: Any, self: Any, event: Any, effects: list[Any]) -> None:
    before = len(self.waiting)
    original(self, event, effects)
    while len(self.waiting) > before:
        effects.append(self.waiting.pop()[1])


def _has_the_length_of_the_first(original: Any, *arguments: Any) -> Any:
    batch = original(*arguments)
    return adds.PlainAdds(batch.requests, [batch.lengths[0]] * len(batch.lengths))


def _confirms_what_follows(
    original: Any, self: Any, masks: Any, entry_ids: Any, number: int, place: int, pending: Any, quorums: Any
) -> None:
    original(self, masks, range(min(entry_ids, default=0), pending[1] + 1), number, place, pending, quorums)


def _begins_anew(original: Any, self: Any, append: Any, limit: int, effects: list[Any]) -> None:
    start = append.next
    original(self, append, limit, effects)
    if append.next < len(append.entries):
        append.next = start


def _leaves_one_out(original: Any, self: Any, append: Any, limit: int, effects: list[Any]) -> None:
    original(self, append, limit, effects)
    append.next += append.next < len(append.entries)


PLANTED = [
    # -- rules: adding
    Planted(
        "a fenced bookie refuses recovery adds too",
        adding,
        "answer_to_add",
        lambda f, **k: Code.FENCED if k["fenced"] else f(**k),
    ),
    Planted(
        "the LAC of a bookie is the last that it was told", adding, "lac_of_bookie", lambda f, known, carried: carried
    ),
    Planted(
        "confirmations of bookies that have left count",
        adds,
        "still_confirmed",
        lambda f, confirmed, *a: confirmed,
        profile="network",
        seed=93,
    ),
    Planted(
        "the LAC goes one entry too far",
        adding,
        "lac_reached",
        lambda f, lac, pushed, *a: min(pushed, f(lac, pushed, *a) + 1),
    ),
    Planted(
        "no answer is taken for a confirmation",
        adding,
        "outcome_of_add",
        lambda f, code: AddOutcome.CONFIRMED if code is None else f(code),
    ),
    Planted(
        "an ack quorum is one bookie short",
        ensembles,
        "is_committed",
        lambda f, confirmations, ack: confirmations >= max(1, ack - 1),
    ),
    Planted(
        "an ack quorum is one bookie too many",
        ensembles,
        "is_committed",
        lambda f, confirmations, ack: confirmations > ack,
        seed=3,
    ),
    Planted(
        "the LAC of deferred adds does not wait for a force",
        adding,
        "lac_of_owner",
        lambda f, confirmed, forced, deferred: confirmed,
        seed=4,
    ),
    Planted(
        "a force is done when one bookie has done it",
        adding,
        "is_forced",
        lambda f, forced, ensemble: bool(forced),
        seed=65,
    ),
    Planted(
        "deferred adds outlive the connection that they came by",
        adding,
        "outlives_connection",
        lambda f, *a: True,
        profile="disks",
        seed=209,
    ),
    # -- rules: ensembles
    Planted(
        "entries are not striped",
        ensembles,
        "write_set",
        lambda f, entry, ensemble, quorum: tuple(ensemble)[:quorum],
        seed=7,
    ),
    Planted(
        "bookies that stay change their places",
        placement,
        "replaced",
        lambda f, *a: (lambda e: e if isinstance(e, placement.Unplaced) else tuple(sorted(e)))(f(*a)),
        seed=110,
    ),
    Planted(
        "a bookie that failed is chosen again",
        placement,
        "replaced",
        lambda f, ensemble, failed, candidates, *_: tuple(ensemble),
        seed=3,
    ),
    Planted("new bookies are not sent what they lack", ensembles, "newly_asked", lambda f, *a: [], seed=614),
    Planted(
        "a new fragment begins one entry late",
        ensembles,
        "with_ensemble",
        lambda f, fragments, ensemble, first: f(fragments, ensemble, first + 1),
        seed=3,
    ),
    Planted(
        "a new fragment replaces the last one",
        ensembles,
        "with_ensemble",
        lambda f, fragments, ensemble, first: f(fragments, ensemble, fragments[-1].first_entry_id),
        seed=3,
    ),
    # -- rules: fencing and recovery
    Planted("fencing never ends", recovery, "fencing", lambda f, *a: Verdict.WAITING),
    Planted("a bookie fences nothing by a read", recovery, "is_fenced_by_read", lambda f, *a, **k: False),
    Planted(
        "one quorum too few is covered",
        ensembles,
        "covers",
        lambda f, members, cohort, ack: sum(b not in members for b in cohort) <= ack,
        seed=3,
    ),
    Planted("recovery skips an entry", recovery, "confirmed_before", lambda f, lacs, first, *a: f(lacs, first, *a) + 1),
    Planted(
        "recovery closes before it knows the end",
        recovery,
        "may_close",
        lambda f, end_known, unconfirmed, *a: not unconfirmed,
        seed=11,
    ),
    Planted(
        "recovery ends where it does not know",
        recovery,
        "is_end",
        lambda f, verdict: verdict is not Verdict.POSITIVE,
        seed=10,
    ),
    Planted(
        "no answer is taken for a negative one",
        reading,
        "outcome_of_read",
        lambda f, code, intact: ReadOutcome.NEGATIVE if code is None else f(code, intact),
        seed=23,
    ),
    Planted(
        "a ledger in limbo is taken to lack entries",
        reading,
        "outcome_of_read",
        lambda f, code, intact: ReadOutcome.NEGATIVE if code is Code.UNKNOWN_LEDGER_STATE else f(code, intact),
        seed=66,
    ),
    Planted(
        "what failed counts as lacking it",
        reading,
        "recovery_read",
        lambda f, found, negative, failed, *a: f(found, [*negative, *failed], failed, *a),
        seed=23,
    ),
    # -- rules: reading
    Planted(
        "one bookie that lacks an entry is believed",
        reading,
        "ordinary_read",
        lambda f, found, negative, failed, ws: (
            Verdict.NEGATIVE if negative and not found else f(found, negative, failed, ws)
        ),
        seed=19,
    ),
    Planted(
        "readers read one entry beyond the LAC",
        reading,
        "last_readable",
        lambda f, lac, last: f(lac + 1, last),
        seed=6,
    ),
    Planted(
        "readers of a closed ledger miss its last entry",
        reading,
        "last_readable",
        lambda f, lac, last: f(lac, None if last is None else last - 1),
        seed=3,
    ),
    Planted(
        "no other bookie is asked for what one does not give",
        entries_read,
        "_ask_next",
        lambda f, search, *a: None if search.asked else f(search, *a),
    ),
    Planted(
        "a reader is told twice that entries are there",
        entries_read.Readings,
        "_take",
        lambda f, self, reading, ids, effects: (
            f(self, reading, ids, effects),
            effects.extend(each for each in effects[-1:] if type(each) is ReadOver),
        ),
    ),
    Planted(
        "entries are there before they have come",
        entries_read.Reading,
        "take",
        lambda f, self, ids: f(self, self.entry_ids),
    ),
    Planted(
        "nobody is told of what is forgotten",
        entries_read.Readings,
        "forget",
        lambda f, self, token: None,
        seed=58,
    ),
    Planted(
        "an entry that cannot be read is denied",
        reading,
        "answer_to_read",
        lambda f, **k: Code.NO_ENTRY if k.get("unreadable") else f(**k),
        profile="disks",
        seed=91,
    ),
    # -- rules: metadata
    Planted(
        "the owner changes the ensemble in recovery",
        life,
        "to_change_ensemble",
        lambda f, status, failed: Next.WRITE if status is LedgerStatus.IN_RECOVERY and failed else f(status, failed),
        seed=9,
    ),
    Planted(
        "recovery leaves a ledger to who recovers it already",
        life,
        "to_start_recovery",
        lambda f, status: Next.DONE if status is LedgerStatus.IN_RECOVERY else f(status),
        seed=4,
    ),
    Planted(
        "a ledger is closed one entry short",
        life,
        "closed",
        lambda f, metadata, last, length, *a: f(metadata, max(-1, last - 1), length, *a),
    ),
    Planted(
        "a ledger is closed with the length of nothing",
        life,
        "closed",
        lambda f, metadata, last, length, *a: f(metadata, last, 0, *a),
    ),
    # -- roles
    Planted(
        "a bookie answers before it is durable",
        bookie.Bookie,
        "_reply",
        lambda f, self, reply, after, effects: f(self, reply, 0, effects),
        seed=20,
    ),
    Planted(
        "a bookie does not journal that it is fenced",
        bookie.Bookie,
        "_journal",
        _journals_all_but(LedgerFenced),
        seed=4,
    ),
    Planted(
        "a bookie does not journal that a ledger is in limbo",
        bookie.Bookie,
        "_journal",
        _journals_all_but(LimboChanged),
        seed=13,
    ),
    Planted("a bookie forgets the key when it starts", bookie.Bookie, "_replayed", _forgets(MasterKeyLearnt), seed=13),
    Planted(
        "a bookie goes on after its journal failed",
        bookie.Bookie,
        "_journal_failed",
        lambda f, self, event, effects: None,
        profile="disks",
        seed=12,
    ),
    Planted(
        "entries are opened without their digest",
        Digests,
        "open_entry",
        _opens_what_is_damaged,
        profile="disks",
        seed=32,
    ),
    Planted(
        "a write whose answer was lost is taken for done",
        metadata.MetadataView,
        "take",
        _takes_unknown_for_written,
        seed=28,
    ),
    Planted(
        "a write on an old version is taken for done",
        metadata.MetadataView,
        "take",
        _takes_bad_version_for_written,
        seed=7,
    ),
    Planted(
        "the writer ignores that it is fenced", writer.Writer, "_fail", lambda f, self, error, effects: None, seed=4
    ),
    Planted(
        "a new ensemble is written and not used",
        adds.Adds,
        "change_ensemble",
        lambda f, self, ensemble, *a: None,
        seed=3,
    ),
    Planted(
        "recovery writes nothing back",
        recoverer.Recoverer,
        "_write_back",
        lambda f, self, entry, effects: f(self, entry, []),
    ),
    Planted(
        "recovery reads on without fencing",
        recoverer.Recoverer,
        "_fence_answered",
        lambda f, self, bookie, fenced, *a: f(self, bookie, True, *a),
        seed=518,
    ),
    Planted(
        "a reader believes that a poll has ended the ledger",
        reader.Reader,
        "_poll_answered",
        lambda f, self, *a: (
            f(self, *a),
            a[2].extend(Result(t) for ts in self.tails.values() for t in ts),
            self.tails.clear(),
        )[0],
        seed=4,
    ),
    # -- placement
    Planted(
        "a new ensemble is anywhere",
        placement,
        "chosen",
        lambda f, candidates, size, *_: f(candidates, size),
        profile="placed",
        seed=9,
    ),
    Planted(
        "a bookie is replaced by any other",
        placement,
        "replaced",
        lambda f, ensemble, failed, candidates, *_: f(ensemble, failed, candidates),
        profile="placed",
        seed=5,
    ),
    Planted(
        "racks are not enforced",
        placement,
        "_minimums",
        lambda f, policy: f(policy.replace(enforce_min_num_racks_per_write_quorum=False)),
        profile="placed",
        seed=5,
    ),
    Planted(
        "zones are not enforced",
        placement,
        "_minimums",
        lambda f, policy: f(policy.replace(enforce_strict_zoneaware_placement=False)),
        profile="placed",
        seed=2,
    ),
    Planted(
        "only the write set of the first entry is placed",
        placement,
        "_write_sets",
        lambda f, *a: f(*a)[:1],
        profile="placed",
        seed=5,
    ),
    Planted(
        "bookies that stay may be anywhere",
        placement._Search,
        "_cost",
        lambda f, self, view, *a: f(self, (None,) * len(view), *a),
        profile="placed",
        seed=5,
    ),
    Planted(
        "an entry, and not an ack quorum, is in several regions",
        placement,
        "_regions_of_acks",
        lambda f, regions, ack_quorum: f(regions, regions.total()),
        profile="placed",
        seed=10,
    ),
    Planted(
        "one region is enough",
        placement,
        "_durable",
        lambda f, policy: 1,
        profile="placed",
        seed=10,
    ),
    Planted(
        "a bookie is replaced by one of any region",
        placement._Search,
        "_cost_of_regions",
        lambda f, self, view, places, durable, is_enforced: f(self, view, places, durable, False),
        profile="placed",
        seed=10,
    ),
    Planted(
        "bookies of other groups are taken",
        placement,
        "_turns",
        lambda f, candidates, where, suspects: f(candidates, where.replace(groups=()), suspects),
        profile="placed",
        seed=21,
    ),
    # -- many entries at once
    Planted(
        "adds that came together take one place in the journal",
        bookie.Bookie,
        "_journal_adds",
        _takes_one_place,
        seed=13,
    ),
    Planted("the last of several adds is not stored", bookie.Bookie, "_journal_adds", _drops_the_last),
    Planted("adds are answered before they are durable", bookie.Bookie, "_adds", _answers_at_once, profile="crashes"),
    Planted("entries of a batch have the length of the first", adds.PlainLoops, "batch", _has_the_length_of_the_first),
    Planted("an answer confirms all that follows", adds.PlainLoops, "confirm", _confirms_what_follows),
    Planted("what is left of a batch is sent from its beginning", writer.Writer, "_send_batch", _begins_anew),
    Planted("an entry is left out where there was no room", writer.Writer, "_send_batch", _leaves_one_out),
    Planted("what is given up stays in flight", adds.Adds, "give_up", lambda f, self: [], seed=7),
]


def plant(fault: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the original by the fault, in every module that imports it."""
    original = getattr(fault.where, fault.function)

    def planted(*arguments: Any, **keywords: Any) -> Any:
        return fault.instead(original, *arguments, **keywords)

    if isinstance(fault.where, type):
        monkeypatch.setattr(fault.where, fault.function, planted)
        for module in [m for name, m in sys.modules.items() if name.startswith("fencepost.ledger.roles.")]:
            for table in ("_EVENTS", "_REQUESTS"):
                for kind, function in getattr(module, table, {}).items():
                    if function is original:
                        monkeypatch.setitem(getattr(module, table), kind, planted)
        return
    for name, module in list(sys.modules.items()):
        if (
            name.startswith(tuple(f"fencepost.ledger.{room}" for room in ("rules", "roles", "disk", "bookie")))
            and getattr(module, fault.function, None) is original
        ):
            monkeypatch.setattr(module, fault.function, planted)


def found_by(fault: Planted) -> tuple[int, str] | None:
    """The first seed from ``fault.seed`` on that finds the fault, and the report."""
    for seed in range(fault.seed, fault.seed + SEEDS):
        violation = simulate(drawn(seed, fault.profile)).violation
        if violation is not None:
            return seed, str(violation)
    return None


@pytest.mark.parametrize("fault", campaigns_but_every(3, PLANTED), ids=lambda fault: fault.name)
def test_a_planted_fault_is_found(fault: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(fault, monkeypatch)
    assert found_by(fault) is not None


def find_nothing_without(faults: Sequence[Planted]) -> None:
    """Check that the seeds of planted faults find nothing else."""
    for profile, seed in sorted({(fault.profile, fault.seed) for fault in faults}):
        assert simulate(drawn(seed, profile)).violation is None


def test_without_a_fault_the_same_seeds_find_nothing() -> None:
    find_nothing_without(PLANTED)
