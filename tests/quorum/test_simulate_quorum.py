"""``fencepost simulate-quorum``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fencepost.cli.main import main
from fencepost.quorum.roles.replica import Replica
from fencepost.quorum.simulation.cluster import Campaign
from fencepost.simulation.seeds import run


def test_seeds_are_held(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate-quorum", "--seeds", "1..8", "--jobs", "1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("HELD  no promise was broken in 8 seeds\nsimulate-quorum  seeds 1..8\n")


def test_the_number_of_jobs_changes_nothing() -> None:
    one, two = (run(Campaign(range(12), jobs=jobs)) for jobs in (1, 2))
    assert (one.seeds, one.counts, one.hash) == (12, two.counts, two.hash)


def test_a_broken_promise_is_told_with_the_command_that_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["simulate-quorum", "--without", "logs_are_compared", "--jobs", "1", "--seeds", "20..60"]
    assert main(asked) == 12
    out = capsys.readouterr().out
    assert out.startswith("VIOLATED  ")
    promise = out.splitlines()[0].removeprefix("VIOLATED  ").rpartition(", by seed ")[0]
    command = next(line for line in out.splitlines() if line.startswith("  fencepost simulate-quorum --replay "))
    assert main(command.split()[1:]) == 12
    replayed = capsys.readouterr().out
    assert f"\nVIOLATED  {promise}\n" in replayed
    assert " ms  h1:1 " in replayed and "for a vote in epoch" in replayed and "leads epoch" in replayed
    assert main([*asked, "--json"]) == 12
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "violated" and document["failed"]["violation"]["promise"] == promise
    assert document["failed"]["replay"] == command.strip()


def test_an_exception_of_a_role_is_a_broken_promise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(self: Replica) -> None:
        raise KeyError("gone")

    monkeypatch.setattr(Replica, "_become_leader", fails)
    assert main(["simulate-quorum", "--seeds", "3", "--jobs", "1"]) == 12
    out = capsys.readouterr().out
    assert "VIOLATED  no role raises an exception, by seed 3\n" in out and "KeyError: 'gone'" in out


def test_a_replay_is_data_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate-quorum", "--replay", "4", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["violation"] is None and first["seed"] == 4
    file = tmp_path / "result.json"
    assert main(["simulate-quorum", "--seeds", "4..4", "--jobs", "1", "--json", str(file)]) == 0
    assert json.loads(file.read_text())["committed"] == first["committed"]
    assert capsys.readouterr().out.startswith("HELD")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["--without", "pre_vote"], "--without pre_vote: there is no such protection: did you mean pre_votes?"),
        (["--seeds", "9..3"], "9..3 has no seeds: give the smaller one first"),
        (["--replay", "x"], "'x' is not a whole number"),
        (["--jobs", "0"], "0 is too small: give at least 1"),
    ],
)
def test_bad_input_is_refused_in_one_line(given: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate-quorum", *given]) == 151
    err = capsys.readouterr().err
    assert complaint in err and len(err.splitlines()) == 1
