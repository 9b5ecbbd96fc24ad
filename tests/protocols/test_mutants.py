"""Faults in the rules of protocols, one or two at a time, with the property that finds each; and generated mutants."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.mutants import protocols
from bench.mutants.__main__ import main
from bench.mutants.judging import BY, in_child, trace_lines
from bench.mutants.mutate import mutants_of, replaced
from bench.mutants.results import Results, Row
from bench.mutants.simulated import simulate, validate
from bench.mutants.summary import reasons, summary
from fencepost.language.loading import shipped

ROOT = Path(__file__).parents[2]

BOOT = "fencepost.protocols.bookkeeper.boot"
CHAINING = "fencepost.protocols.ledger_chaining"
LIMBO = "fencepost.protocols.bookkeeper.limbo"
CURRENT = "fencepost.protocols.bookkeeper.current"
QUORUM = "fencepost.quorum.rules"
LOG = "fencepost.log.rules"
LEADER = "fencepost.log.roles.leader"
REPLICA = "fencepost.quorum.roles.replica"
CHECKED_LOG = "fencepost.protocols.log.log"
CHECKED_QUORUM = "fencepost.protocols.quorum.quorum"
KRAFT = "fencepost.protocols.kraft.kip_853"
ADDING = "fencepost.ledger.rules.adding"
METADATA = "fencepost.ledger.rules.metadata"
STORE = "fencepost.protocols.store.store"

Change = tuple[str, str, str]

COPIES_EARLY = (
    BOOT,
    "        require(self.meta.status is LedgerStatus.CLOSED)\n        self._store(me,",
    "        self._store(me,",
)
ENDS_LATE = (
    BOOT,
    "range(1, self.meta.last_entry + 1) if",
    "range(1, (self.meta.last_entry or self.send_limit) + 1) if",
)
IS_OPEN = "        require(self.meta.status is LedgerStatus.OPEN)\n"
IS_THE_VERSION = "        require(me.meta_version == self.meta.version)\n"
CLOSES_WHAT_IS_NOT_OPEN = (LIMBO, IS_OPEN + IS_THE_VERSION, IS_THE_VERSION)
CLOSES_WHATEVER_IS_THERE = (LIMBO, IS_OPEN + IS_THE_VERSION, "")
FENCED_IS_A_FAILURE = (ADDING, "    if code is Code.FENCED:\n", "    if False:\n")
CHANGES_WHAT_IS_NOT_OPEN = (
    METADATA,
    "    if status is not LedgerStatus.OPEN:\n        return Next.GIVE_UP\n    return Next.WRITE if has_failed",
    "    if False:\n        return Next.GIVE_UP\n    return Next.WRITE if has_failed",
)
SOMEBODY_FAILED = (STORE, "        require(len(failed) > 0)\n", "")
IS_ASKED = (STORE, "        require(b in self.write_set(add.entry.id, self.client_ensemble(c)))\n", "")
RECOVERY_ASKS = (STORE, "        require(needs_change(self.client_ensemble(c), failed))\n", "")
IS_IN_RECOVERY = "        require(self.meta.status is LedgerStatus.IN_RECOVERY)\n"
HAS_ITS_FRAGMENTS = "        require(me.fragments == self.meta.fragments)\n"
RECOVERS_WHAT_IS_CLOSED = (
    LIMBO,
    IS_IN_RECOVERY + IS_THE_VERSION + HAS_ITS_FRAGMENTS,
    IS_THE_VERSION + HAS_ITS_FRAGMENTS,
)
RECOVERS_WHATEVER_IS_THERE = (LIMBO, IS_IN_RECOVERY + IS_THE_VERSION + HAS_ITS_FRAGMENTS, HAS_ITS_FRAGMENTS)
TAKES_MORE_THAN_IT_HAS = (QUORUM, "end_epoch == epoch and offset <= end_offset", "end_epoch == epoch")
COMMITS_MORE_THAN_IT_HAS = (
    CHECKED_QUORUM,
    "min(rules.high_watermark(me.hwm, ends, start, self.protections), max(len(me.log), me.hwm))",
    "rules.high_watermark(me.hwm, ends, start, self.protections)",
)
VOTES_FOR_A_LOG_BEHIND = (
    KRAFT,
    "            self.server[third].become_voted(leader, me.current_epoch)\n",
    "            self.server[third].log = self.server[first].log\n",
)
CLOSES_NOTHING = "                self._go_on(after_closing(self._seals), now, effects)"
GOES_ON = "            self.ledger = None\n            self._go_on(after_closing(self._seals), now, effects)\n"
COUNTED = "        client.lac = reached\n"
AHEAD = "parted:leaders_commit_what_they_have"

PLANTED: dict[str, tuple[str, str, tuple[Change, ...], str]] = {
    "the LAC of recovery is not the highest": (
        "bookkeeper-boot",
        "one-confirmation",
        ((BOOT, "max(me.lac, fenced.lac)", "fenced.lac"),),
        "no_lac_falls",
    ),
    "a confirmation of an entry before counts": (
        "bookkeeper-boot",
        "one-confirmation",
        ((BOOT, "if add.entry_id == me.lap:", "if add.success:"),),
        "every_acknowledged_entry_has_a_copy",
    ),
    "entries are copied before the ledger is closed": ("bookkeeper-boot", "one-confirmation", (COPIES_EARLY,), "holds"),
    "and a ledger that is not closed is taken to have all": (
        "bookkeeper-boot",
        "small",
        (COPIES_EARLY, ENDS_LATE),
        "only_closed_ledgers_are_repaired",
    ),
    "a second recovery closes the ledger again": (
        "bookkeeper-boot",
        "two-recoverers",
        ((BOOT, "        require(self.meta.status is LedgerStatus.IN_RECOVERY)\n", ""),),
        "no_closed_ledger_changes",
    ),
    "a boot does not fence": (
        "bookkeeper-boot",
        "fenced-once-more",
        (
            (
                BOOT,
                "            me.fenced = True\n        if self.phase_one_sets_limbo",
                "            pass\n        if True",
            ),
        ),
        "no_divergence_between_writer_and_meta_data",
    ),
    "a close ignores the version": (
        "ledger-chaining",
        "small",
        (
            (
                CHAINING,
                "        require(client.ledger.version == self.md_ledgers[ledger_id].version)\n"
                "        self._close(ledger_id)\n        self._fence(ledger_id)",
                "        self._close(ledger_id)\n        self._fence(ledger_id)",
            ),
        ),
        "what_is_closed_stays_as_it_is",
    ),
    "a LAC is what is counted": (
        *("bookkeeper", "frozen-lac"),
        ((CURRENT, "        if reached > client.lac:\n            client.lac = reached\n", COUNTED),),
        "no_lac_of_a_client_falls",
    ),
    "recovery keeps new fragments to itself for ever": (
        *("bookkeeper", "one-copy"),
        ((CURRENT, "        self.meta.fragments = client.fragments\n", ""),),
        "who_closes_the_ledger_tells_its_fragments",
    ),
    "fence requests do not fence": (
        "bookkeeper-limbo",
        "protected",
        (
            (
                LIMBO,
                "        self.network.receive(FenceRequest, source=c, to=b)\n        self.bookie[b].fenced = True\n",
                "        self.network.receive(FenceRequest, source=c, to=b)\n",
            ),
        ),
        "who_counts_as_fenced_is_fenced",
    ),
    "the offset of a vote is not compared": (
        "quorum",
        "default",
        ((QUORUM, "return candidate >= mine or", "return candidate[0] >= mine[0] or"),),
        "no_vote_for_a_log_behind",
    ),
    "a leader follows after a restart": (
        "quorum",
        "restart",
        ((QUORUM, "    if has_led:\n        return State.RESIGNED", "    if False:\n        return State.RESIGNED"),),
        "nobody_follows_itself",
    ),
    "a leader resigns before its removal is committed": (
        "quorum",
        "removal",
        ((QUORUM, "return not is_voter and voters_offset < high_watermark and", "return not is_voter and"),),
        "who_commits_its_removal_resigns",
    ),
    "an owner closes a ledger that is recovered": (
        "bookkeeper-limbo",
        "protected",
        (CLOSES_WHAT_IS_NOT_OPEN,),
        "holds",
    ),
    "and does not compare the version": (
        *("bookkeeper-limbo", "protected:no_divergence_between_client_and_meta_data"),
        (CLOSES_WHATEVER_IS_THERE,),
        "no_divergence_between_client_and_meta_data",
    ),
    "a recovery closes a ledger that is closed": (
        *("bookkeeper-limbo", "two-recoveries"),
        (RECOVERS_WHAT_IS_CLOSED,),
        "holds",
    ),
    "and compares no version either": (
        *("bookkeeper-limbo", "two-recoveries:what_is_closed_stays_as_it_is"),
        (RECOVERS_WHATEVER_IS_THERE,),
        "what_is_closed_stays_as_it_is",
    ),
    "a bookie that is read is not fenced": (
        *("bookkeeper-limbo", "both-confirm"),
        ((LIMBO, "        self.bookie[b].fenced = True\n        entry =", "        pass\n        entry ="),),
        "who_counts_as_fenced_is_fenced",
    ),
    "whoever votes counts": (
        *("quorum", "removed-leader-restarts"),
        ((QUORUM, "some & voters if protections.majority_of_voters else some", "some"),),
        "never_two_leaders_in_same_epoch",
    ),
    "nobody stands for election who was removed": (
        *("quorum", "removed-leader-stands"),
        ((QUORUM, "return is_voter or (was_voter and not is_change_committed and", "return is_voter or (False and"),),
        "removed_voters_are_elected",
    ),
    "an observer stands for election that was no voter": (
        *("quorum", "observer-restarts"),
        ((QUORUM, "(was_voter and not is_change_committed and", "(not is_change_committed and"),),
        "states_match_roles",
    ),
    "a follower commits nothing": (
        *("quorum", "parted"),
        ((QUORUM, "return max(known, min(reported, log_end))", "return known"),),
        "what_is_committed_is_applied",
    ),
    "a follower commits all that it has": (
        *("quorum", "parted"),
        ((QUORUM, "return max(known, min(reported, log_end))", "return max(known, log_end)"),),
        "what_is_applied_stays_so",
    ),
    "a leader commits more than it has": (
        *("quorum", AHEAD),
        (TAKES_MORE_THAN_IT_HAS, COMMITS_MORE_THAN_IT_HAS),
        "holds",
    ),
    "and was elected by one that has more": (
        *("quorum", AHEAD),
        (TAKES_MORE_THAN_IT_HAS, COMMITS_MORE_THAN_IT_HAS, VOTES_FOR_A_LOG_BEHIND),
        "leaders_commit_what_they_have",
    ),
    "a fenced owner takes that for a failure": ("store", "seed 2", (FENCED_IS_A_FAILURE,), "holds"),
    "and changes the ensemble of a ledger that is not open": (
        *("store", "seed 2"),
        (FENCED_IS_A_FAILURE, CHANGES_WHAT_IS_NOT_OPEN),
        "one close",
    ),
    "a log is cut off where the leader's ends, though its own of that epoch ends earlier": (
        "quorum",
        "parted-again",
        ((QUORUM, "return min(diverging[0], end_of_epoch[0])", "return diverging[0]"),),
        "refines_kraft",
    ),
    "done although sealed": (
        "log",
        "seals-unanswered",
        ((LOG, "return Update.DONE if not found.sealed else Update.SEALED", "return Update.DONE"),),
        "nobody_goes_on_with_a_sealed_log",
    ),
    "the length of a chain ignores trims": (
        "log",
        "trimmed-behind",
        ((LOG, "if found.length != seen.length", "if len(found.links) != len(seen.links)"),),
        "refines_ledger_chaining",
    ),
    "a fenced writer rolls over": (
        "log",
        "lost-answers",
        ((LOG, "return After.STEP_DOWN if failure is Failure.FENCED else After.ROLL", "return After.ROLL"),),
        "refines_ledger_chaining",
    ),
    "what is left over of a batch stays": (
        "log",
        "unanswered-batches",
        ((CHECKED_LOG, "                self.ledgers[number] = Ledger()\n", "                pass\n"),),
        "what_is_left_over_is_deleted",
    ),
    "a leader forgets at which append its ledger begins": (
        "log-leader",
        "default",
        (
            (
                LEADER,
                "self.base, self._begins, self.begun = self.written, self._before(self.written), now",
                "self._begins, self.begun = self._before(self.written), now",
            ),
        ),
        "nothing_is_forgotten",
    ),
    "a leader does not write again what its ledger was closed without": (
        "log-leader",
        "trouble",
        ((LEADER, "        self.written = self.acknowledged\n", ""),),
        "what_waits_is_counted",
    ),
    "a leader deletes a ledger that may be in the chain": (
        "log-leader",
        "lost-answers",
        (
            (
                LEADER,
                "if self.ledger is not None and never_chained(self.chain, self.ledger, event.chain):",
                "if self.ledger is not None:",
            ),
        ),
        "only_the_last_ledger_is_open",
    ),
    "a leader takes answers to what it asked before it stepped down": (
        "log-leader",
        "default",
        ((LEADER, "        self._next()  # ignores outstanding answers\n", ""),),
        "only_who_is_elected_goes_on",
    ),
    "a leader goes on whose ledger was closed by another": (
        "log-leader",
        "default",
        ((LEADER, "            self._step_down(effects, Reason.FENCED)\n        else:", GOES_ON + "        else:"),),
        "only_the_last_ledger_is_open",
    ),
    "a leader forgets the chain that it has written": (
        "log-leader",
        "default:acknowledged_entries_are_in_the_log",
        (
            (
                LEADER,
                "        self.chain, self.version = chain, version\n        if self.ledger",
                "        self.version = version\n        if self.ledger",
            ),
        ),
        "acknowledged_entries_are_in_the_log",
    ),
    "a leader knows too much when it steps down": (
        "log-leader",
        "default",
        (
            (
                LEADER,
                "effects.append(Failed(first, written - first, reason, is_known=False))",
                "effects.append(Failed(first, written - first, reason, is_known=True))",
            ),
        ),
        "denied_entries_are_not_in_the_log",
    ),
    "a leader seals the log before all is written": (
        "log-leader",
        "seals",
        ((LEADER, "self.last_wish is Reason.SEALED and not self.unacknowledged", "self.last_wish is Reason.SEALED"),),
        "who_seals_has_written_all",
    ),
    "a leader does not try again": (
        "log-leader",
        "trouble",
        (
            (
                LEADER,
                "        effects.append(SetTimer((_AGAIN, self._next()), self.settings.pause, self.settings.pause))",
                "        self._next()",
            ),
        ),
        "raised",
    ),
    "a leader closes no ledger of another": (
        "log-leader",
        "default",
        ((LEADER, "                self._close_last(effects)", CLOSES_NOTHING),),
        "only_the_last_ledger_is_open",
    ),
    "a leader acknowledges all when it hears of one": (
        "log-leader",
        "two-entries",
        (
            (
                LEADER,
                "self._acknowledge(effects, self.base + event.entry + 1)",
                "self._acknowledge(effects, self.written)",
            ),
        ),
        "acknowledged_entries_are_in_the_log",
    ),
    "a leader acknowledges all when its ledger is closed": (
        "log-leader",
        "trouble",
        (
            (
                LEADER,
                "        self._acknowledge(effects, self.base + there)\n",
                "        self._acknowledge(effects, self.written)\n",
            ),
        ),
        "acknowledged_entries_are_in_the_log",
    ),
    "a replica votes, and does not store it": (
        "quorum-replica",
        "default",
        ((REPLICA, "                self._do(StoreState(election))", "                pass"),),
        "epoch_and_vote_are_stored",
    ),
    "a replica that has cut off its log takes all of it for stored": (
        "quorum-replica",
        "succession",
        ((REPLICA, "        self.stored_end = min(self.stored_end, offset)\n", ""),),
        "the_index_is_that_of_the_log",
    ),
    "a replica says that it has stored what it has not": (
        "quorum-replica",
        "default",
        ((REPLICA, "        elif self.stored_end < self.log.end_offset:", "        elif False:"),),
        "what_is_committed_is_durable",
    ),
    "a replica takes a late answer": (
        "quorum-replica",
        "losses",
        ((REPLICA, " or response.log_end != self._following.fetching:", ":"),),
        "nobody_is_distrusted",
    ),
    "a replica forgets for whom it has voted": (
        "quorum-replica",
        "first-election",
        (
            (
                REPLICA,
                "        if granted and not request.pre_vote and self.state is not State.VOTED:",
                "        if False:",
            ),
        ),
        "epoch_and_vote_are_stored",
    ),
    "a candidate does not vote for itself": (
        "quorum-replica",
        "first-election",
        (
            (
                REPLICA,
                "self._change(Cause.PRE_VOTES_WON, self.epoch + 1, self.key, None)",
                "self._change(Cause.PRE_VOTES_WON, self.epoch + 1, None, None)",
            ),
        ),
        "epoch_and_vote_are_stored",
    ),
    "a replica does not cut off its log": (
        "quorum-replica",
        "succession",
        ((REPLICA, "        self._do(Truncate(offset))\n", ""),),
        "the_index_is_that_of_the_log",
    ),
    "a leader that steps down says nothing of what it has not written": (
        "log-leader",
        "default",
        (
            (
                LEADER,
                "            effects.append(Failed(written, appended - written, reason, is_known=True))\n",
                "            pass\n",
            ),
        ),
        "who_is_answered_is_told",
    ),
    "a leader takes more than may wait": (
        "log-leader",
        "refusals",
        ((LEADER, "if why is None and not self.has_room(size, count):", "if False:"),),
        "what_waits_is_counted",
    ),
    "a leader takes an update of the past for its own": (
        "log-leader",
        "default",
        (
            (
                LEADER,
                "        if event.txn != self._txn:\n            return\n        if event.outcome is Outcome.OK:",
                "        if event.outcome is Outcome.OK:",
            ),
        ),
        "raised",
    ),
    "a bookie counts that has left the ensemble": (
        *("store", "two-entries clients=1"),
        (IS_ASKED,),
        "all_acked_entries_are_readable",
    ),
    "a leader does not say that it steps down": (
        "log-leader",
        "ends",
        ((LEADER, "        effects.append(SteppedDown(reason))\n", ""),),
        "raised",
    ),
    "a leader that was asked to seal ends when it steps down": (
        "log-leader",
        "seals",
        ((LEADER, "        if self.last_wish is Reason.CLOSED and self.ended is None:", "        if self.last_wish:"),),
        "who_ends_has_a_reason",
    ),
    "a leader forgets when its ledger was created": (
        "log-leader",
        "old",
        ((LEADER, "self.ledger, self.created = event.ledger, event.created", "self.ledger = event.ledger"),),
        "the_chain_tells_ages",
    ),
    "a leader closes the ledger of another, and does not say so": (
        "log-leader",
        "default",
        (
            (
                LEADER,
                "CLOSE_LAST_LEDGER:\n                self.status = step\n",
                "CLOSE_LAST_LEDGER:\n",
            ),
        ),
        "the_status_says_what_is_asked",
    ),
    "a leader that ends because its log is deleted says that it was asked to": (
        "log-leader",
        "deleted-at-the-end",
        (
            (
                LEADER,
                "        if self.last_wish is Reason.CLOSED and self.ended is None:",
                "        if self.last_wish is Reason.CLOSED:",
            ),
        ),
        "raised",
    ),
    "the LAC of a bookie falls": (
        "store",
        "appends-while-changing",
        ((ADDING, "return max(known, carried)", "return carried"),),
        "no_lac_of_a_bookie_falls",
    ),
    "a recovery that was overtaken takes the ledger for closed by itself": (
        "store",
        "overtaken",
        ((STORE, "elif written or (update.answer is Answer.LOST and version == update.version):", "elif True:"),),
        "whoever_closes_the_ledger_knows_its_end",
    ),
    "a client changes the ensemble though nobody has failed": ("store", "at-once", (SOMEBODY_FAILED,), "holds"),
    "nor does a recovery ask": ("store", "at-once", (SOMEBODY_FAILED, RECOVERY_ASKS), "refines_bookkeeper"),
}
"""A fault: the protocol, the judge, the changes of the source, and the verdict. Where it holds, another guard covers
the removed one. The next row removes both.
"""


@pytest.fixture(scope="module")
def verdicts() -> dict[str, str]:
    """The verdict on each planted fault."""
    asked = json.dumps([row[:3] for row in PLANTED.values()])
    done = subprocess.run(
        [sys.executable, "-m", "tests.protocols.plant"],
        cwd=ROOT,  # for ``bench``
        input=asked,
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(zip(PLANTED, [json.loads(line) for line in done.stdout.splitlines()], strict=True))


@pytest.mark.campaign
@pytest.mark.parametrize("fault", PLANTED)
def test_a_fault_in_a_rule_is_told(fault: str, verdicts: dict[str, str]) -> None:
    assert verdicts[fault] == PLANTED[fault][3]


# -- generated mutants -------------------------------------------------------------------------------------------------

SOURCE = '''"""A protocol."""


def action(function):
    return function


def invariant(function):
    return function


class P:
    @action
    def go(self):
        """Go."""
        require(self.a < 2 and self.b)
        self.a, x = 1, 2
        if self.b:
            self.c = max(
                x,
                self.c,
            )
        self.send(x)
        self._helps()

    def _helps(self):
        self.d += 1

    @invariant
    def holds(self):
        return self.a < 2

    def nobody_asks(self):
        self.e = 1
'''


def test_every_rule_that_actions_reach_is_changed_once_in_each_way() -> None:
    mutants, skipped = mutants_of([("p", SOURCE)])
    assert skipped == []
    assert [(m.function, m.kind, m.after) for m in mutants] == [
        ("P.go", "require dropped", "pass"),
        ("P.go", "operand dropped", "self.b"),
        ("P.go", "operand dropped", "self.a < 2"),
        ("P.go", "comparison shifted", "self.a <= 2"),
        ("P.go", "field not written", "_"),
        ("P.go", "condition made true", "True"),
        ("P.go", "condition made false", "False"),
        ("P.go", "field not written", "pass"),
        ("P.go", "bound dropped", "x"),
        ("P.go", "bound dropped", "self.c"),
        ("P.go", "effect left out", "pass"),
        ("P.go", "effect left out", "pass"),
        ("P._helps", "field not written", "pass"),
    ]
    assert len({mutant.name for mutant in mutants}) == len(mutants)


def test_a_mutant_has_as_many_lines_and_compiles() -> None:
    for mutant in mutants_of([("p", SOURCE)])[0]:
        changed = mutant.mutated(SOURCE)
        assert changed != SOURCE
        assert changed.count("\n") == SOURCE.count("\n")
        compile(changed, "p.py", "exec")


def test_a_mutant_has_the_lines_of_its_statement() -> None:
    lines = {mutant.before: mutant.lines for mutant in mutants_of([("p", SOURCE)])[0]}
    assert [lines[what] for what in ("self.b", "max(x, self.c)", "self.send(x)")] == [
        range(18, 19),
        range(19, 23),
        range(23, 24),
    ]


def test_a_configuration_looks_at_what_it_runs() -> None:
    """An import runs no action."""
    subject = protocols.SUBJECTS["ledger-chaining"]

    def task(tell: Callable[[Any], None]) -> None:
        for module in subject.modules:
            sys.modules.pop(module, None)  # another test may have imported it
        lines = trace_lines(subject)
        shipped(subject.name)
        tell(sorted(lines[subject.modules[0]]))

    (run,), _ = in_child(task, 60.0)
    assert len(run) > 50
    assert not any({*mutant.lines} & {*run} for mutant in mutants_of(subject.sources())[0])


def test_names_do_not_depend_on_lines() -> None:
    names = [mutant.name for mutant in mutants_of([("p", SOURCE)])[0]]
    assert [mutant.name for mutant in mutants_of([("p", SOURCE.replace('"""Go."""', '"""Go.\n"""'))])[0]] == names


def test_what_is_replaced_is_there_once() -> None:
    with pytest.raises(ValueError, match="'self.b' is there 2 times"):
        replaced(SOURCE, "self.b", "True")


def test_every_reason_is_of_a_mutant_that_there_is() -> None:
    for protocol, why in reasons().items():
        known = {mutant.name for mutant in mutants_of(protocols.SUBJECTS[protocol].sources())[0]}
        assert set(why) <= known, protocol


def test_the_summary_lists_reasons_that_are_missing_or_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = protocols.SUBJECTS["ledger-chaining"]
    monkeypatch.setattr("bench.mutants.summary.SUBJECTS", {subject.name: subject})
    results = Results(tmp_path / "mutants.jsonl")
    names = [mutant.name for mutant in mutants_of(subject.sources())[0]]
    for name in names:
        by = "nothing" if name == names[0] else "counts"
        results.rows["ledger-chaining", name] = Row("ledger-chaining", name, "", by, "", "", by_all=True)
    why = {"ledger-chaining": {names[1]: "Redundant."}}
    assert summary(results, why).splitlines()[2:] == [
        f"| `ledger-chaining` | {len(names)} | 0 | 0 | 0 | 0 | {len(names) - 1} | 1 |",
        "",
        f"Without a reason: ledger-chaining, {names[0]}",
        f"Noticed, so its reason is wrong: ledger-chaining, {names[1]}",
    ]


@pytest.mark.parametrize("protocol", ["store", "log", "quorum"])
def test_traces_without_a_mutant_are_accepted(protocol: str) -> None:
    subject = protocols.SUBJECTS[protocol]
    (first, *_) = simulate(subject, range(1, 2), 1)
    assert first["promise"] == "" and first["events"]
    assert validate(subject, first["events"]) == "accepted"


@pytest.mark.campaign
def test_a_sample_is_noticed_or_has_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Some mutants of the quickest protocol. A second run finds all of them in the file of results."""
    command = ["ledger-chaining", "--only", "._leading", "--sample", "2", "--states", "20000", "--json"]
    command += ["--results", str(tmp_path / "mutants.jsonl")]
    run = [sys.executable, "-m", "bench.mutants", *command]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 2 and {row["by"] for row in rows} <= {*BY}
    unnoticed = {row["name"] for row in rows if row["by"] == "nothing"}
    assert unnoticed and unnoticed <= set(reasons()["ledger-chaining"])
    monkeypatch.setattr(sys, "argv", ["mutants", *command])
    assert main() == 0
    again = capsys.readouterr()
    assert again.out == "" and "2 known" in again.err
