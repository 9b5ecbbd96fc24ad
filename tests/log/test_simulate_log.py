"""The command simulate-log, and the judges of readers and cursors in simulated worlds of logs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.cli.main import main
from fencepost.ledger.roles.interface import Outcome
from fencepost.log import cursors
from fencepost.log.chain import Chain
from fencepost.log.roles.attacher import Attacher
from fencepost.log.roles.leader import ChainWritten
from fencepost.log.rules import Protections
from fencepost.log.simulation.world import Reader, World, simulated

MOST = 30
"""Seeds within which each protection that is off is noticed."""


def first_broken(seeds: range, **off: bool) -> str:
    """The first promise broken by any of these seeds."""
    return next((told.promise for seed in seeds if (told := simulated(World(seed, Protections(**off)))).promise), "")


@pytest.mark.parametrize("name", Protections._fields)
def test_each_protection_that_is_off_is_noticed_within_a_few_seeds(name: str) -> None:
    assert first_broken(range(1, MOST + 1), **{name: False})


def test_a_batch_that_is_told_of_before_it_is_there_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The role treats a refused or unanswered update as done."""
    written = Attacher._chain_written
    monkeypatch.setattr(
        Attacher,
        "_chain_written",
        lambda role, event, effects: written(role, ChainWritten(event.txn, Outcome.OK, 0), effects),
    )
    assert first_broken(range(1, 60)) in ("no loss", "batches", "order")


def test_a_withdrawal_that_does_not_change_the_version_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An update that is under way arrives after it."""
    monkeypatch.setattr(World, "replace", replaces_without_withdrawals(World.replace))
    assert first_broken(range(1, 150)) == "no loss"


def replaces_without_withdrawals(replace: Callable[[World, Chain, str], None]) -> Callable[[World, Chain, str], None]:
    def replaces(world: World, chain: Chain, by: str) -> None:
        if chain != world.chain:
            replace(world, chain, by)

    return replaces


def test_a_reader_that_skips_to_the_next_ledger_too_early_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads what follows, and then goes back."""
    read = Reader.read

    def goes_back(reader: Reader, chain: Chain) -> None:
        read(reader, chain)
        if len(reader.found) == 20:
            reader.at = reader.found[0][0]

    monkeypatch.setattr(Reader, "read", goes_back)
    assert first_broken(range(1, 60)) == "readers"


def test_a_cursor_that_forgets_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursors, "with_one", lambda known, position, chain: known)
    assert first_broken(range(1, 20)) == "cursors"


def test_a_cursor_that_acknowledges_too_much_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursors, "with_one", cursors.with_all_to)
    assert first_broken(range(1, 20)) == "cursors"


def test_seeds_are_held_and_traced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate-log", "--seeds", "1..8", "--jobs", "1", "--trace", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("HELD  no promise was broken in 8 seeds\nsimulate-log  seeds 1..8\n")
    assert main(["validate", str(tmp_path), "--protocol", "log"]) == 0
    assert capsys.readouterr().out.startswith("ACCEPTED  8 traces\n")


def test_a_broken_promise_is_told_with_the_command_that_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate-log", "--without", "seal_is_final", "--jobs", "1", "--seeds", "1..60"]) == 12
    out = capsys.readouterr().out
    assert out.startswith("VIOLATED  seal, by seed ")
    command = next(line for line in out.splitlines() if line.startswith("  fencepost simulate-log --replay "))
    assert main(command.split()[1:]) == 12
    told = capsys.readouterr().out
    assert "get_last_ledger" in told and "VIOLATED  seal: Nothing is appended to a log that is sealed." in told


def test_a_replay_is_data_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate-log", "--replay", "4", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["violation"] is None and first["seed"] == 4
    assert main(["simulate-log", "--seeds", "4..4", "--jobs", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["appends"] == first["appends"]


def test_what_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate-log", "--without", "seal_is_fina"]) == 151
    assert "there is no such protection: did you mean seal_is_final?" in capsys.readouterr().err
