"""A program in any language is driven by lines of JSON."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from testing.locks import Lock
from testing.test_drive import Coin

from fencepost import OptionError
from fencepost.testing import Program, drive, program

LOCK = """
import json, sys
holder, waiting = None, []
for line in sys.stdin:
    asked, refused = json.loads(line), False
    if "begin" not in asked:
        what, c = asked["action"], asked["parameters"]["c"]
        if what == "acquires" and c != holder and c not in waiting:
            if holder is None:
                holder = c
            else:
                waiting.append(c)
        elif what == "releases" and c == holder:
            holder = waiting.pop(PLACE) if waiting else None
        elif what == "hangs_up" and c in waiting:
            waiting.remove(c)
        else:
            refused = True
    print(json.dumps({"observed": {"holder": holder, "waiting": waiting}, "refused": refused}), flush=True)
"""

COIN = """
import json, sys
side = "none"
for line in sys.stdin:
    asked = json.loads(line)
    side = asked["choices"][0] if "choices" in asked else side
    print(json.dumps({"observed": {"side": side}}), flush=True)
"""


def made(folder: Path, text: str, **options: Any) -> Program:
    (folder / "system.py").write_text(text)
    return Program([sys.executable, str(folder / "system.py")], **options)


EVERY = ("acquires", "releases", "hangs_up")


def test_a_program_follows(tmp_path: Path) -> None:
    driven = drive(Lock, made(tmp_path, LOCK.replace("PLACE", "0"), refuses=EVERY)).must_follow()
    assert len(driven.covered) == len(driven.graph.transitions) and driven.refusals == 96
    assert "FOLLOWS  system.py" in str(driven)


def test_a_fault_of_a_program_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.testing.shrink.MOST_RUNS", 30)
    shown = drive(Lock, made(tmp_path, LOCK.replace("PLACE", "-1"), refuses=EVERY)).shown
    assert shown is not None and len(shown.trace.steps) == 4
    assert (shown.difference.variable, shown.difference.actual) == ("holder", "'c3'")


def test_a_program_can_be_sent_the_choices(tmp_path: Path) -> None:
    driven = drive(Coin, made(tmp_path, COIN, leaves_out=["hides"], chooses=["throws"]))
    assert driven.follows and not driven.given_up


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("print('hello', flush=True)", "the program writes 'hello', which is no JSON"),
        ("print(5, flush=True)", "the program writes '5', which is no object"),
        ("print('{}', flush=True)", "the program writes '{}', which has no observed"),
        ('print(\'{"error": "out of paper"}\', flush=True)', "Failed: out of paper"),
        ("sys.exit()", "the program has ended"),
        ("pass", "the program has not answered for 0.2 seconds"),
    ],
)
def test_what_a_program_does_wrong_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, said: str
) -> None:
    monkeypatch.setattr(program, "PATIENCE", 0.2 if answer == "pass" else 10.0)
    monkeypatch.setattr("fencepost.testing.shrink.MOST_RUNS", 3)
    late = f"import sys\nfor number, line in enumerate(sys.stdin):\n    if number:\n        {answer}\n    else:\n"
    shown = drive(
        Coin, made(tmp_path, late + "        print('{\"observed\": {}}', flush=True)", leaves_out=["hides"])
    ).shown
    assert shown is not None and said in shown.difference.actual
    with pytest.raises(OptionError) as error:
        drive(Coin, made(tmp_path, f"import sys\nfor line in sys.stdin:\n    {answer}", leaves_out=["hides"]))
    assert said in str(error.value)
