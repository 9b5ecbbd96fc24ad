"""The command simulate-store: what it prints, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fencepost.cli.main import main


def test_a_campaign_that_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate-store", "--seeds", "1..8", "--jobs", "1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("HELD  no promise was broken in 8 seeds\nsimulate-store  profile everything, seeds 1..8\n")
    assert "trace hash" in out


def test_a_campaign_that_fails_tells_how_to_see_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate-store", "--without", "fenced_bookies_refuse", "--jobs", "1", "--seeds", "1..60"]) == 12
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("VIOLATED  ")
    commands = [line.strip() for line in lines if line.startswith("  fencepost")]
    assert len(commands) == 2
    for command in commands:
        assert main(command.split()[1:]) == 12
        out = capsys.readouterr().out
        assert "VIOLATED" in out and "without fenced_bookies_refuse" in out


def test_a_replay_as_json_page_and_diagram(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page, diagram = tmp_path / "run.html", tmp_path / "run.txt"
    given = [
        "simulate-store",
        "--replay",
        "4",
        "-D",
        "entries=2",
        "-D",
        "faults=",
        "--json",
        "--html",
        str(page),
        "--sequence",
        str(diagram),
    ]
    assert main(given) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["violation"] is None
    assert document["case"]["entries"] == 2
    assert "participant w" in diagram.read_text()
    assert "<svg" in page.read_text()


def test_a_campaign_as_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    assert main(["simulate-store", "--seeds", "3", "--profile", "calm", "--jobs", "1", "--json", str(file)]) == 0
    assert "HELD" in capsys.readouterr().out
    document = json.loads(file.read_text())
    assert (document["verdict"], document["seeds"], document["seeds_run"]) == ("held", [3, 3], 1)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["--seeds", "9..3"], "9..3 has no seeds"),
        (["--seeds", "x"], "'x' is not a whole number"),
        (["--profile", "stormy"], "--profile stormy: there are calm, network"),
        (["--without", "fenced_bookies_refuses"], "did you mean fenced_bookies_refuse?"),
        (["-D", "entries=3"], "give --replay SEED too"),
        (["--replay", "1", "-D", "entries"], "give a name and a value"),
        (["--replay", "1", "-D", "entrys=1"], "a case has no entrys"),
        (["--html", "x.html"], "--html shows one run"),
        (["--replay", "1", "--html", "/nowhere/x.html"], "there is no directory"),
        (["--sed", "1"], "did you mean --seeds?"),
    ],
)
def test_bad_input_is_one_line(given: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate-store", *given]) == 151
    err = capsys.readouterr().err
    assert complaint in err
    assert err.count("\n") == 1
