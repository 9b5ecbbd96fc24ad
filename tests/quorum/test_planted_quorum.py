"""Faults planted in the rules, roles, log and driver of a quorum, one at a time. The simulator finds every one.

An entry of :data:`PLANTED` names a fault, the function or method to replace, and its replacement, which is called with
the original and the arguments. ``seed`` is the first seed to try.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
from campaigns import campaigns_but_every

from fencepost.ledger.disk import journal, journal_files
from fencepost.ledger.disk.journal_files import JournalFiles
from fencepost.quorum import rules
from fencepost.quorum.driver import node
from fencepost.quorum.driver.node import QuorumNode
from fencepost.quorum.files import election
from fencepost.quorum.files.log import ReplicatedLog
from fencepost.quorum.files.snapshots import Fetched
from fencepost.quorum.log import LogIndex, OffsetAndEpoch, Snapshot
from fencepost.quorum.roles.interface import (
    Append,
    ElectionState,
    InstallSnapshot,
    SnapshotInstalled,
    SnapshotTaken,
    Started,
    Stored,
    StoreState,
)
from fencepost.quorum.roles.replica import Replica
from fencepost.quorum.rules import ALL, Election, Error, Learnt, Position, Protections
from fencepost.quorum.simulation.cluster import simulate
from fencepost.quorum.transitions import State
from fencepost.simulation.disk import SimDisk, SimHandle

SEEDS = 600
"""Every fault is found within this number of seeds."""


@dataclass(frozen=True)
class Planted:
    """A fault in the function ``where.function``."""

    name: str
    where: Any
    function: str
    instead: Callable[..., Any]
    seed: int = 0


@dataclass(frozen=True)
class Unprotected:
    """A disabled protection."""

    protection: str
    seed: int = 0


def _forgets_vote(original: Any, self: Replica, event: Started) -> None:
    stored = event.election
    original(self, Started(ElectionState(stored.epoch, None, stored.leader), event.log))


def _forgets_epoch(original: Any, self: Replica, event: Started) -> None:
    original(self, Started(ElectionState(), event.log))


def _fetches_early(original: Any, self: Replica) -> None:
    stored, self.stored_end = self.stored_end, self.log.end_offset
    original(self)
    self.stored_end = stored


def _keeps_configurations(original: Any, self: LogIndex, end_offset: int) -> None:
    configurations = list(self._configurations)
    original(self, end_offset)
    self._configurations = configurations


def _forgets_start_epoch(original: Any, self: LogIndex, offset: int) -> None:
    original(self, offset)
    self._start_epoch = 0


def _forgets_configuration(original: Any, self: Replica, event: SnapshotInstalled) -> None:
    original(self, SnapshotInstalled(Snapshot(event.snapshot.end)))


def _counts_any_vote(original: Any, self: Replica, response: Any) -> None:
    if self.state in (State.PROSPECTIVE, State.CANDIDATE) and response.granted:
        self._ballot.granted.add(response.source)
        self._count_votes()


def _stands_in_its_epoch(original: Any, self: Replica) -> None:
    self.epoch -= 1
    original(self)


def _learns_nothing_of_later_epochs(original: Any, epoch: int, leader: Any, reported: int, *rest: Any) -> Learnt:
    return Learnt.NOTHING if reported > epoch else original(epoch, leader, reported, *rest)


def _counts_leader_as_voter(original: Any, is_voter: bool, log_end: int, stored_end: int, *rest: Any) -> int:
    return stored_end


def _says_stored_at_once(original: Any, self: QuorumNode, effect: Append) -> None:
    original(self, effect)
    self.deliver(Stored(self.log.end))


def _stores_election_later(original: Any, self: QuorumNode, effect: StoreState) -> None:
    self._loop.call_later(0.0005, original, self, effect)


def _says_snapshot_at_once(original: Any, self: QuorumNode) -> None:
    before = self._snapshot.is_written
    original(self)
    if self._snapshot.is_written and not before:
        end = OffsetAndEpoch(self.applied, self.log.epoch_ahead_of(self.applied))
        self.deliver(SnapshotTaken(Snapshot(end, self.replica.log.configuration_at(self.applied))))


def _begins_anew_early(original: Any, self: QuorumNode, effect: InstallSnapshot) -> None:
    self.log.reset(effect.snapshot)
    self._sync()
    self._loop.call_later(0.05, original, self, effect)


def _syncs_first_file(original: Any, self: JournalFiles) -> None:
    self.files.open(self.files.names()[1]).sync()


def _truncates_in_memory(original: Any, self: ReplicatedLog, end_offset: int) -> None:
    original(self, end_offset)
    self._unsynced.pop()


def _takes_truncations_last(original: Any, self: ReplicatedLog) -> Any:
    return sorted(original(self), key=lambda write: write.begin is not None)


def _nothing_unproven(original: Any, *arguments: Any) -> Any:
    return replace(original(*arguments), unproven=())


def _unsynced(what: type, original: Any, *arguments: Any) -> Any:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(what, "sync", lambda self: None)
        found = original(*arguments)
        return iter(list(found)) if isinstance(found, Iterator) else found


_files_unsynced, _names_unsynced = partial(_unsynced, SimHandle), partial(_unsynced, SimDisk)


def _nothing(original: Any, *arguments: Any) -> None:
    return None


PLANTED: list[Planted | Unprotected] = [
    Unprotected("one_vote_an_epoch"),
    Unprotected("logs_are_compared", seed=5),
    Unprotected("majority_of_voters", seed=13),
    Unprotected("leader_counts_stored", seed=3),
    Unprotected("logs_are_matched"),
    Unprotected("one_change_at_a_time", seed=17),
    Unprotected("removed_leader_resigns", seed=23),
    Unprotected("non_members_are_served"),
    Unprotected("removed_voters_campaign", seed=3),
    # -- rules: elections
    Planted(
        "half of the voters is a majority",
        rules,
        "has_majority",
        lambda f, some, voters, *p: 2 * len(some & voters) >= len(voters),
        seed=8,
    ),
    Planted(
        "only the length of the log counts",
        rules,
        "is_up_to_date",
        lambda f, candidate, mine, *p: candidate[1] >= mine[1],
        seed=408,
    ),
    Planted(
        "only the last epoch counts",
        rules,
        "is_up_to_date",
        lambda f, candidate, mine, *p: candidate[0] >= mine[0],
        seed=19,
    ),
    Planted(
        "whoever follows a leader votes as well",
        rules,
        "grants_vote",
        lambda f, state, voted, leader, *r: f(State.UNATTACHED, voted, None, *r),
        seed=185,
    ),
    Planted("a later epoch is ignored", rules, "learns", _learns_nothing_of_later_epochs),
    Planted("a candidate stands in the epoch that it is in", Replica, "_become_candidate", _stands_in_its_epoch),
    Planted("the epoch is forgotten at a restart", Replica, "_started", _forgets_epoch, seed=27),
    Planted("nobody waits for an election", Replica, "_set_election_timer", _nothing),
    Planted("an election is never over", rules, "count_votes", lambda f, *a: Election.OPEN),
    # -- rules: fetching
    Planted(
        "a log is cut off down to the beginning of the epoch",
        rules,
        "truncation_point",
        lambda f, diverging, end: max(0, f(diverging, end) - 20),
    ),
    Planted(
        "a log that is too short is never told of the snapshot", rules, "position_of", lambda f, *a: Position.VALID
    ),
    Planted("a follower acknowledges what it has not stored", Replica, "_send_fetch", _fetches_early, seed=473),
    Planted("a fetch that is not answered is not repeated", Replica, "_retry", _nothing),
    Planted("nobody without a leader looks for one", Replica, "_ask_for_leader", _nothing),
    # -- rules: committing
    Planted(
        "one voter is enough to commit",
        rules,
        "high_watermark",
        lambda f, known, ends, start, *p: max([known, *(e for e in ends if e > start)]),
        seed=2,
    ),
    Planted(
        "a majority of one less commits",
        rules,
        "high_watermark",
        lambda f, known, ends, start, *p: max([known, *sorted(e for e in ends if e > start)[1:]]),
    ),
    Planted(
        "all voters are needed to commit",
        rules,
        "high_watermark",
        lambda f, known, ends, start, *p: max(known, min(ends)) if min(ends) > start else known,
        seed=6,
    ),
    Planted(
        "a follower believes more than it has",
        rules,
        "follower_high_watermark",
        lambda f, known, reported, end: max(known, reported),
        seed=2,
    ),
    Planted(
        "a follower takes all that it has for committed",
        rules,
        "follower_high_watermark",
        lambda f, known, reported, end: end,
        seed=2,
    ),
    # -- rules: reconfiguration
    # -- log
    Planted(
        "the epoch ahead of the start of the log is forgotten",
        LogIndex,
        "delete_before",
        _forgets_start_epoch,
    ),
    Planted(
        "the end of an epoch is the end of the log",
        LogIndex,
        "end_of_epoch",
        lambda f, self, epoch: OffsetAndEpoch(self.end_offset, f(self, epoch).epoch),
    ),
    # -- what a node must do
    Planted("appends are stored later than is said", QuorumNode, "_append", _says_stored_at_once, seed=7),
    Planted("the election state is stored later", QuorumNode, "_store_election", _stores_election_later),
    Planted("a write that failed counts", QuorumNode, "_synced", lambda f, self, error: f(self, None), seed=7),
    Planted("a snapshot is said to be there before it is written", QuorumNode, "_look_at_log", _says_snapshot_at_once),
    Planted("the log begins anew before the snapshot is durable", QuorumNode, "_install", _begins_anew_early),
    # -- files
    Planted("what is written is not synced", JournalFiles, "sync", _nothing),
    Planted("another file of the log is synced", JournalFiles, "sync", _syncs_first_file),
    Planted("truncations are never stored", ReplicatedLog, "truncate", _truncates_in_memory, seed=3),
    Planted("a truncation is stored behind what follows it", ReplicatedLog, "take", _takes_truncations_last, seed=556),
    Planted("what is not proven to be durable is not repeated", journal_files, "recover", _nothing_unproven, seed=2),
    Planted("a torn tail is taken for good", journal, "crc32c", lambda f, *a: 0, seed=9),
    Planted("a file of the log too many is removed", ReplicatedLog, "remove_files", lambda f, self, n: f(self, n + 1)),
    Planted("a snapshot is renamed before it is synced", node, "write_snapshot", _files_unsynced),
    Planted("a fetched snapshot is renamed before it is synced", Fetched, "install", _files_unsynced),
    Planted("a vote is renamed before it is synced", election, "replace", _files_unsynced),
    Planted("the name of a vote is not synced", election, "replace", _names_unsynced),
]

UNSEEN: list[Planted | Unprotected] = [
    Unprotected("votes_are_kept"),
    Unprotected("only_own_epoch_commits"),
    Unprotected("only_voters_count"),
    Unprotected("commit_before_change"),
    Unprotected("pre_votes"),
    Unprotected("majority_is_heard"),
    Planted("pre-votes count as votes", Replica, "_vote_response", _counts_any_vote),
    Planted("a vote is forgotten at a restart", Replica, "_started", _forgets_vote),
    Planted(
        "a leader that restarts stands again at once as if it had not led",
        rules,
        "restarts_as",
        lambda f, *a: State.UNATTACHED,
    ),
    Planted(
        "a fetch of any epoch is answered",
        rules,
        "refuses_fetch",
        lambda f, leads, *r: Error.NONE if leads else Error.NOT_LEADER,
    ),
    Planted(
        "a log is cut off one record too late",
        rules,
        "truncation_point",
        lambda f, diverging, end: f(diverging, end) + 1,
    ),
    Planted("fetches wait for ever", Replica, "_answer_all_waiting", _nothing),
    Planted("a leader that removes itself counts itself", rules, "counted_end", _counts_leader_as_voter),
    Planted("a removed leader resigns at once", rules, "resigns_when_committed", lambda f, is_voter, *r: not is_voter),
    Planted("what was cut off is still the configuration", LogIndex, "truncate", _keeps_configurations),
    Planted("a snapshot leaves no configuration", Replica, "_snapshot_installed", _forgets_configuration),
]
"""Faults that need more than a few hundred seeds. The tests of the replica and of the rules find each of them, and
traces of a few seeds find most (test_quorum_traces.py).
"""


def plant(fault: Planted | Unprotected, monkeypatch: pytest.MonkeyPatch) -> Protections:
    """Plant a fault. Gives the protections to run with."""
    if isinstance(fault, Unprotected):
        return ALL.replace(**{fault.protection: False})
    original = getattr(fault.where, fault.function)

    def planted(*arguments: Any, **keywords: Any) -> Any:
        return fault.instead(original, *arguments, **keywords)

    monkeypatch.setattr(fault.where, fault.function, planted)
    return ALL


def found_by(fault: Planted | Unprotected, protections: Protections, seeds: int = SEEDS) -> tuple[int, str] | None:
    """The first seed from ``fault.seed`` on that shows a fault, and the broken promise."""
    for seed in range(fault.seed, fault.seed + seeds):
        outcome = simulate(seed, protections)
        if outcome.promise:
            return seed, outcome.promise
    return None


def name_of(fault: Planted | Unprotected) -> str:
    return f"without {fault.protection}" if isinstance(fault, Unprotected) else fault.name


@pytest.mark.parametrize("fault", campaigns_but_every(3, PLANTED), ids=name_of)
def test_a_planted_fault_is_found(fault: Planted | Unprotected, monkeypatch: pytest.MonkeyPatch) -> None:
    protections = plant(fault, monkeypatch)
    assert found_by(fault, protections, 3) is not None


def test_without_a_fault_the_same_seeds_find_nothing() -> None:
    for seed in sorted({fault.seed for fault in PLANTED}):
        assert simulate(seed).promise == ""


def test_a_disk_is_not_lost_that_a_configuration_needs_which_a_crash_may_bring_back() -> None:
    """A member cuts off the removal of a voter, and loses power before its disk has that."""
    assert simulate(8197).promise == ""
