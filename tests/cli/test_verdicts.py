"""What ``check`` says about a result, beyond the story itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.commandline import COUNTER, RAISING, Ran

Run = Callable[..., Ran]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ("--config small", 0, "As expected: configuration small is to hold."),
        ("--config broken", 12, "As expected: configuration broken is to violate never_five."),
        ("--config wrong", 0, "NOT as expected: configuration wrong is to violate never_five."),
        ("--config surprising", 12, "NOT as expected: configuration surprising is to hold."),
        ("--config small --max-depth 2", 152, "Expected of configuration small: to hold. This check cannot tell."),
        (
            "--config broken -D limit=3",
            0,
            "Expected of configuration broken: to violate never_five. This check cannot tell.",
        ),
        ("--config broken --invariant never_negative", 0, "This check cannot tell."),
        ("--config broken --invariant never_five", 12, "As expected: configuration broken is to violate never_five."),
        ("--config small --deadlock", 11, "This check cannot tell."),
        ("--config broken --deadlock --continue", 12, "As expected: configuration broken is to violate never_five."),
        ("--config small --invariant never_five", 0, "As expected: configuration small is to hold."),
    ],
)
def test_a_configuration_says_whether_its_verdict_is_the_expected_one(
    here: Run, arguments: str, code: int, said: str
) -> None:
    ran = here("check", "counter.py", *arguments.split())
    assert (ran.code, ran.err) == (code, "")
    assert said in ran.out.splitlines()[-1]


STUCK = (
    COUNTER.replace(
        '"small":',
        '"stuck": configuration("deadlock", limit=2),\n        "moving": configuration("deadlock", limit=8),\n       '
        ' "small":',
    )
    + "    @action\n    def again(self):\n        require(self.count == 8)\n        self.count = 0\n"
)


def test_a_configuration_that_expects_a_deadlock_looks_for_one(here: Run, tmp_path: Path) -> None:
    (tmp_path / "stuck.py").write_text(STUCK)
    ran = here("check", "stuck.py", "--config", "stuck")
    assert (ran.code, ran.err) == (11, "")
    assert ran.out.startswith("DEADLOCK")
    assert ran.out.splitlines()[-1] == "As expected: configuration stuck is to deadlock."
    assert "As expected" in here("check", "stuck.py", "--config", "stuck", "--invariant", "never_five").out
    ran = here("check", "stuck.py", "--config", "moving", "--invariant", "never_negative")
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "NOT as expected: configuration moving is to deadlock.")
    assert here("check", "stuck.py", "--config", "small").code == 0
    assert "deadlocks" in here("show", "stuck.py").out


def test_without_a_configuration_nothing_is_expected(here: Run) -> None:
    assert "xpected" not in here("check", "counter.py").out


def test_one_invariant_alone(here: Run) -> None:
    assert here("check", "counter.py", "-D", "limit=9", "--invariant", "never_negative").code == 0
    assert (
        here("check", "counter.py", "-D", "limit=9", "--invariant", "never_negative", "--invariant", "never_five").code
        == 12
    )


def test_continue_finds_everything(here: Run, tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(COUNTER + "    @invariant\n    def never_two(self): return self.count != 2\n")
    first = here("check", "p.py", "-D", "limit=6")
    every = here("check", "p.py", "-D", "limit=6", "--continue", "--deadlock")
    assert "never_five" not in first.out
    for name in ("never_two", "never_five", "DEADLOCK"):
        assert name in every.out
    assert every.code == 12


@pytest.mark.parametrize(
    ("arguments", "code", "last"),
    [
        (
            ("--config", "broken", "--expect", "configuration"),
            0,
            "As expected: configuration broken is to violate never",
        ),
        (("--config", "wrong", "--expect", "configuration"), 2, "NOT as expected: configuration wrong is to violate"),
        (("--config", "surprising", "--expect", "configuration"), 2, "NOT as expected: configuration surprising is to"),
        (("--expect", "holds"), 0, "As expected: it is to hold."),
        (("--expect", "never_five"), 2, "NOT as expected: it is to violate never_five."),
        (("-D", "limit=7", "--expect", "never_five"), 0, "As expected: it is to violate never_five."),
        (("-D", "limit=7", "--config", "small", "--expect", "holds"), 2, "NOT as expected: it is to hold."),
        (("--expect", "deadlock"), 0, "As expected: it is to deadlock."),
        (("--expect", "holds", "--max-states", "2"), 152, "Expected: to hold. This check cannot tell."),
    ],
)
def test_a_check_is_held_to_what_is_expected(here: Run, arguments: tuple[str, ...], code: int, last: str) -> None:
    ran = here("check", "counter.py", *arguments)
    assert (ran.code, ran.err) == (code, "")
    assert ran.out.splitlines()[-1].startswith(last)
    document = json.loads(here("check", "counter.py", *arguments, "--json", "-").out)
    assert document["expected"]["as_expected"] is {0: True, 2: False, 152: None}[code]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--expect", "never_six"), "has no verdict named never_six: did you mean never_five?"),
        (
            ("--expect", "configuration"),
            "--expect configuration is the expected verdict of a configuration: give --config",
        ),
        (
            ("--expect", "configuration", "--config", "small", "-D", "limit=3"),
            "--expect configuration cannot be combined with -D",
        ),
    ],
)
def test_what_can_not_be_expected_is_refused(here: Run, arguments: tuple[str, ...], said: str) -> None:
    ran = here("check", "counter.py", *arguments)
    assert ran.code == 151 and said in ran.complaint


def test_an_error_is_not_as_expected(here: Run, tmp_path: Path) -> None:
    (tmp_path / "divider.py").write_text(RAISING)
    assert here("check", "divider.py", "--expect", "holds").code == 75
