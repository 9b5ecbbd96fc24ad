"""``--junit``, ``--sarif`` and ``--markdown``: what a report says agrees with the exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli.commandline import RAISING, Ran
from traces.traces_of_runs import BAD, GOOD, write_counters

from fencepost.report.junit import ERROR, FAILURE, SKIPPED
from fencepost.report.validation import cases
from fencepost.traces.validation.outcome import Outcome

CONFORMANCE = Path(__file__).parents[1] / "traces" / "counting.py"

Run = Callable[..., Ran]


def only_test(path: Path) -> ElementTree.Element:
    (test,) = ElementTree.parse(path).getroot().iter("testcase")
    return test


@pytest.mark.parametrize(
    ("arguments", "code", "became", "name", "problems"),
    [
        ("counter.py", 0, [], "check", []),
        ("counter.py --config broken", 12, ["failure"], "check broken", ["never_five"]),
        ("counter.py --config broken --expect configuration", 0, [], "check broken", []),
        ("counter.py --config wrong --expect configuration", 2, ["failure"], "check wrong", ["expected"]),
        ("counter.py -D limit=6 --expect holds", 2, ["failure"], "check limit=6", ["never_five"]),
        ("counter.py --deadlock", 11, ["failure"], "check", ["deadlock"]),
        ("counter.py --max-states 2 --expect holds", 152, ["error"], "check", []),
        ("divider.py", 75, ["error"], "check", ["raised"]),
    ],
)
def test_a_report_agrees_with_the_exit_code(
    here: Run, tmp_path: Path, arguments: str, code: int, became: list[str], name: str, problems: list[str]
) -> None:
    (tmp_path / "divider.py").write_text(RAISING)
    ran = here("check", *arguments.split(), *"--junit r.xml --sarif r.sarif --markdown r.md".split())
    assert ran.code == code
    test = only_test(tmp_path / "r.xml")
    assert [each.tag for each in test] == became
    assert test.get("name") == name
    run = json.loads((tmp_path / "r.sarif").read_text())["runs"][0]
    assert [each["ruleId"] for each in run["results"]] == problems
    assert run["invocations"][0]["exitCode"] == code
    assert bool(run["invocations"][0]["toolExecutionNotifications"]) == (code == 152)
    summary = (tmp_path / "r.md").read_text()
    first = ran.out.splitlines()[0]
    assert summary.startswith(f"## {' '.join(first.split())}\n")
    for each in test:
        assert first in str(each.text)


def test_every_report_has_a_file_of_its_own(here: Run, tmp_path: Path) -> None:
    ran = here("check", "counter.py", "--junit", "r", "--sarif", "r")
    assert (ran.code, ran.complaint) == (151, "--sarif and --junit would both be written to r")
    assert here("check", "counter.py", "--markdown", "-").code == 151
    assert not (tmp_path / "r").exists()


def test_each_trace_is_a_test(here: Run, tmp_path: Path) -> None:
    traces = write_counters(tmp_path / "t.parquet", {"one": GOOD, "two": BAD})
    asked = "--junit", "r.xml", "--markdown", "r.md"
    assert here("validate", str(traces), "--conformance", str(CONFORMANCE), *asked).code == 12
    tests = {each.get("name"): each for each in ElementTree.parse(tmp_path / "r.xml").getroot().iter("testcase")}
    assert list(tests) == ["run one, subject 7", "run two, subject 7"]
    assert [[part.tag for part in each] for each in tests.values()] == [[], ["failure"]]
    (failure,) = tests["run two, subject 7"]
    assert "takes 3 of 4 steps" in str(failure.text) and "What led there" in str(failure.text)
    summary = (tmp_path / "r.md").read_text()
    assert summary.startswith("## REJECTED 1 of 2 traces\n\n`validate ")
    assert "```mermaid\nsequenceDiagram\n" in summary and "participant p1 as w1: a" in summary


def test_a_trace_that_cannot_be_judged_is_an_error() -> None:
    became = {
        case.name: case.became
        for case in cases(
            [
                Outcome("1", "a", True),
                Outcome("2", "a", False, refusals=[]),
                Outcome("3", "a", False, covered=False, problem="no step"),
                Outcome("4", "a", False, problem="it raised", raised=True),
                Outcome("5", "a", True, finished=False),
                Outcome("6", "a", False, undecided=True, problem="too many steps"),
                Outcome("7", "", False, covered=False, problem="nothing"),
            ]
        )
    }
    expected = ["", FAILURE, ERROR, ERROR, SKIPPED, ERROR, ERROR]
    assert list(became.values()) == expected
    assert list(became)[-1] == "run 7, subject none"
