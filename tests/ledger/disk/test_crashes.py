"""A bookie whose machine loses power before or during any file operation: no confirmed entry is lost, and none is
invented.
"""

from __future__ import annotations

import itertools
from random import Random

import pytest
from faulty_files import FaultyFiles
from ledger.disk.small_bookie import SmallBookie

from fencepost.files.folders import Files
from fencepost.ledger.records import EntryAdded
from fencepost.ledger.rules.codes import Code
from fencepost.simulation.disk import SimDisk

STEPS = 30


def small_bookie(files: Files) -> SmallBookie:
    """A bookie that keeps its entries as rows and as objects by turns."""
    return SmallBookie(files, compiled=itertools.cycle([True, True, False]).__next__)


class Crash(BaseException):
    """The machine loses power here."""


class History:
    """The entries sent to a bookie, and those it confirmed."""

    def __init__(self) -> None:
        self.written: dict[tuple[int, int], list[bytes]] = {}
        self.confirmed: dict[tuple[int, int], bytes] = {}
        self.fenced: set[int] = set()
        self.forgotten: set[int] = set()

    def check(self, bookie: SmallBookie) -> None:
        for (ledger, entry_id), bodies in self.written.items():
            if ledger in self.forgotten:
                continue
            code, body = bookie.read(ledger, entry_id)
            if (ledger, entry_id) in self.confirmed:
                assert code is Code.OK and body in bodies[bodies.index(self.confirmed[ledger, entry_id]) :], (
                    ledger,
                    entry_id,
                )
            else:
                assert code is Code.NO_ENTRY or body in bodies, (ledger, entry_id)
        for ledger in self.fenced - self.forgotten:
            assert bookie.ledgers.states[ledger].fenced


def live(bookie: SmallBookie, history: History, random: Random, steps: int) -> None:
    """Adds, some of them once more, fences, checkpoints, deleted ledgers and collections."""
    for step in range(steps):
        ledgers = [ledger for ledger in (1, 2, 3, 4) if ledger not in history.forgotten]
        chosen = random.random()
        if chosen < 0.6:
            group = []
            for _ in range(1 + int(random.random() * 4)):
                ledger, entry_id = random.choice(ledgers), int(random.random() * 30)
                body = b"%d of %d in %d " % (entry_id, ledger, step) * int(1 + random.random() * 20)
                history.written.setdefault((ledger, entry_id), []).append(body)
                group.append(EntryAdded(ledger, entry_id, entry_id - 1, body))
            bookie.write(group)
            for record in group:
                history.confirmed[record.ledger, record.entry_id] = record.body
        elif chosen < 0.68:
            ledger = random.choice(ledgers)
            bookie.fence(ledger)
            history.fenced.add(ledger)
        elif chosen < 0.7 and len(ledgers) > 2:
            ledger = random.choice(ledgers)
            history.forgotten.add(ledger)
            bookie.ledgers.forget(ledger)
        elif chosen < 0.9:
            bookie.checkpoint()
        else:
            bookie.collect()


def crashing(disk: SimDisk, at: int) -> tuple[FaultyFiles, list[int]]:
    """A layer of files that crashes at the operation of a given number, and the count of operations so far."""
    done = [0]

    def fault(operation: str, name: str) -> BaseException | None:
        if operation in ("read", "open"):
            return None
        done[0] += 1
        return Crash() if done[0] == at else None

    return FaultyFiles(disk, fault), done


def operations(seed: int) -> int:
    """The number of file operations without a crash."""
    files, done = crashing(SimDisk(), -1)
    history = History()
    bookie = small_bookie(files).begin()
    live(bookie, history, Random(seed), STEPS)
    history.check(bookie)
    return done[0]


@pytest.mark.parametrize("seed", range(3))
def test_a_crash_at_any_operation_loses_nothing_that_was_confirmed(seed: int) -> None:
    for at in range(1 + seed, operations(seed) + 1, 3):
        disk, history, random = SimDisk(), History(), Random(seed)
        files, _ = crashing(disk, at)
        try:
            live(small_bookie(files).begin(), history, random, STEPS)
        except Crash:
            disk.lose_power(Random(at))
        history.check(small_bookie(disk))
        # The next crash comes at any operation of the restart, or soon after.
        again, _ = crashing(disk, 1 + at % 17)
        try:
            live(small_bookie(again).begin(), history, random, 6)
        except Crash:
            disk.lose_power(Random(-at))
        bookie = small_bookie(disk).begin()
        history.check(bookie)
        live(bookie, history, random, 4)
        history.check(small_bookie(disk))


def test_after_deletions_and_collections_the_room_is_given_back() -> None:
    disk = SimDisk()
    bookie = small_bookie(disk).begin()
    for entry_id in range(100):
        bookie.write([EntryAdded(ledger, entry_id, -1, b"x" * 200) for ledger in (1, 2)])
        if entry_id % 10 == 9:
            bookie.checkpoint()
    before = sum(len(file.content) for file in disk.files.values())
    bookie.ledgers.forget(1)
    bookie.checkpoint()
    collected = bookie.collect(0.6)
    after = sum(len(file.content) for file in disk.files.values())
    assert collected.removed and not collected.damaged
    assert after < 0.7 * before
    for opened in (bookie, small_bookie(disk)):
        assert all(opened.read(1, entry_id)[0] is Code.NO_ENTRY for entry_id in range(100))
        assert all(opened.read(2, entry_id) == (Code.OK, b"x" * 200) for entry_id in range(100))
