"""Bookies without their adds in the journal: what happens to them in runs, the bounds of their losses, and why each
protection exists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from fencepost.ledger.disk.journal_files import JournalFiles, name_of, read_partial_journal
from fencepost.ledger.rules.boot import CLEAN_END, Run, Step, steps_of_boot
from fencepost.ledger.rules.protections import ALL
from fencepost.ledger.simulation import boots
from fencepost.ledger.simulation.boots import BootingBookie, Directory
from fencepost.ledger.simulation.case import drawn, with_settings
from fencepost.ledger.simulation.cluster import Cluster
from fencepost.ledger.simulation.judge import Judge
from fencepost.ledger.simulation.workload import Campaign, simulate
from fencepost.simulation import seeds
from fencepost.simulation.disk import SimDisk

SEEDS = range(1, 41)


class Seen:
    """What has happened in the runs of all seeds."""

    def __init__(self) -> None:
        self.happened: Counter[str] = Counter()
        self.lacking: list[tuple[int, int]] = []
        """How many bookies lacked something when another was gone, and the ack quorum."""
        self.killed: list[tuple[Run | None, bool]] = []
        """How a bookie without its adds in the journal ran that was killed, and whether anything was only in memory."""
        self.violated: list[int] = []


@pytest.fixture(scope="module")
def seen() -> Seen:
    seen = Seen()
    lose_mark, gone = BootingBookie.lose_mark, Cluster.bookie_gone
    crash, ended, lose, repaired, copy = (
        BootingBookie.crash,
        BootingBookie._ended,
        BootingBookie.lose,
        BootingBookie._repaired,
        BootingBookie.store_entry,
    )

    def crashes(self: BootingBookie, power: bool) -> None:
        if self.works:
            when = (
                "ending"
                if self.is_shutting_down
                else "booting"
                if not self.alive
                else "repairing"
                if self.repair and self.repair.repairing
                else "serving"
            )
            if when == "booting" and self.repair is not None and self.repair.marking is not None:
                when = "marking"
            seen.happened[f"crash while {when}"] += 1
        if self.alive and not self.journals:
            seen.killed.append((self.of_entries.run, bool(self.in_memory())))
        assert isinstance(self.environment, Cluster)
        bookies = self.environment.bookies.values()
        running = {bookie.journals for bookie in bookies if isinstance(bookie, BootingBookie)}
        seen.happened["bookies differ"] += len(running) == 2
        crash(self, power)

    def is_gone(self: Cluster, name: str) -> None:
        seen.lacking.append((sum(each.lacking for each in self.bookies.values()), self.case.ack_quorum))
        gone(self, name)

    def counts(what: str, original: Callable[..., None]) -> Callable[..., None]:
        def counted(self: BootingBookie, *arguments: Any, **keywords: Any) -> None:
            seen.happened[what] += 1
            original(self, *arguments, **keywords)

        return counted

    def loses_mark(self: BootingBookie, directory: Directory, mark: str) -> None:
        seen.happened[f"loss of a mark: {mark}"] += 1
        lose_mark(self, directory, mark)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cluster, "bookie_gone", is_gone)
        patch.setattr(BootingBookie, "crash", crashes)
        patch.setattr(BootingBookie, "_ended", counts("end", ended))
        patch.setattr(BootingBookie, "lose", counts("loss of directories", lose))
        patch.setattr(BootingBookie, "lose_mark", loses_mark)
        patch.setattr(BootingBookie, "_repaired", counts("repair", repaired))
        patch.setattr(BootingBookie, "store_entry", counts("copy", copy))
        seen.violated = [seed for seed in SEEDS if simulate(drawn(seed, "no-journal")).violation is not None]
    return seen


def test_everything_happens_to_bookies_that_can(seen: Seen) -> None:
    """They are killed, serving, marking and copying; they end in order; they lose directories, and marks; and they
    differ in what is in their journals.
    """
    assert seen.violated == []
    assert set(seen.happened) == {
        *(f"crash while {when}" for when in ("serving", "booting", "marking", "repairing", "ending")),
        "bookies differ",
        "end",
        "loss of directories",
        "loss of a mark: run",
        "loss of a mark: is_under_repair",
        "repair",
        "copy",
    }
    assert all(count > 1 for count in seen.happened.values()), seen.happened


def test_no_more_bookies_lack_something_at_once_than_the_protocol_tolerates(seen: Seen) -> None:
    most: dict[int, int] = {}
    for lacking, ack_quorum in seen.lacking:
        assert lacking < ack_quorum
        most[ack_quorum] = max(lacking, most.get(ack_quorum, 0))
    assert most[2] == 1 and most[3] == 2


def test_a_bookie_is_killed_with_what_only_its_memory_had(seen: Seen) -> None:
    """Otherwise nothing would be tried."""
    assert all(run == Run(journals_adds=False) for run, _ in seen.killed)
    assert sum(had for _, had in seen.killed) > 10


def test_a_note_that_is_lost_must_not_pass_for_a_clean_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(*, last_run: Run | None, **options: Any) -> tuple[Step, ...]:
        return steps_of_boot(last_run=last_run or CLEAN_END, **options)

    monkeypatch.setattr(boots, "steps_of_boot", careless)
    assert any(simulate(drawn(seed, "no-journal")).violation is not None for seed in SEEDS)


SMALL = {"ensemble": "2", "write_quorum": "2", "ack_quorum": "2", "readers": "0"}

LOSES = {
    "boot_fences": (
        1793,
        {
            "faults": "bookie_crashes,breaks,partitions,lost_directories,races",
            "entries": "4",
            "bookies": "2",
            "recoverers": "1",
            **SMALL,
        },
    ),
    "boot_enters_limbo": (17, {}),
    "run_precedes_answers": (
        201,
        {
            "faults": "bookie_crashes,power_failures,clean_restarts,races",
            "entries": "8",
            "bookies": "3",
            "recoverers": "2",
            **SMALL,
        },
    ),
}
"""The seed that loses what was acknowledged when a protection of a bookie's boot is off, today. What is looked at is
that, and many after it.
"""

LOSS = ("no loss", "one close")
"""The promises about what was acknowledged."""


@pytest.mark.parametrize("protection", LOSES)
def test_what_was_acknowledged_is_lost_without_a_protection(protection: str) -> None:
    seed, settings = LOSES[protection]
    assert simulate(with_settings(drawn(seed, "no-journal"), settings)).violation is None
    careless = ALL.replace(**{protection: False})
    cases = (with_settings(drawn(one, "no-journal", careless, LOSS), settings) for one in range(seed, seed + 3_000))
    found = next(violation for case in cases if (violation := simulate(case).violation) is not None)
    assert found.promise in LOSS


@pytest.mark.parametrize("protection", LOSES)
def test_a_bookie_that_forgets_is_noticed_before_anything_is_lost(protection: str) -> None:
    tally = seeds.run(Campaign(range(1, 1_000), ALL.replace(**{protection: False}), profile="no-journal"))
    assert tally.failed is not None and tally.failed.promise in ("refusal", "fencing")


def test_a_run_that_is_held_to_some_promises_does_not_ask_for_others() -> None:
    careless = ALL.replace(boot_enters_limbo=False)
    runs = ([simulate(drawn(seed, "no-journal", careless, kept)) for kept in ((), LOSS)] for seed in range(1, 200))
    whole, held = next(run for run in runs if run[0].violation is not None and run[1].violation is None)
    assert whole.violation is not None and whole.violation.promise == "refusal"
    assert held.violation is None and held.events > whole.events
    assert Judge().holds_to("refusal") and not Judge(LOSS).holds_to("refusal")


def test_a_repair_that_was_cut_off_in_its_first_checkpoint_is_done_again() -> None:
    """Entries are lost, the journal is not, and the power fails while the first section is written since: it cannot be
    read, and nobody counts on it.
    """
    assert simulate(drawn(7941, "no-journal")).violation is None


def test_what_comes_after_the_last_gap_is_what_is_left_of_a_journal() -> None:
    """Entry logs are lost, and of the files that were removed one came back when the power failed."""
    disk = SimDisk()
    journal = JournalFiles(disk, read_partial_journal(disk, 1))
    for record in (b"a", b"b", b"c", b"d"):
        journal.write([record])
        journal.sync()
        journal.roll()
    disk.remove(name_of(2))
    assert [*read_partial_journal(disk, 1).records] == [b"c", b"d"]
    assert [*read_partial_journal(disk, 4).records] == [b"d"]
    assert [*read_partial_journal(disk, 9).records] == []
