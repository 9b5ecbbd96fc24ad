"""Coverage by traces of the lines of actions, and of the options of their choices."""

from __future__ import annotations

from pathlib import Path

from traces.branching import Branching, BranchingConformance

from fencepost.protocols.store.running import RunningStore
from fencepost.report import coverage as report
from fencepost.traces.validation.conformance import Event
from fencepost.traces.validation.coverage import Coverage, Visits
from fencepost.traces.validation.line_coverage import LineTracer, lines_of
from fencepost.traces.validation.validate import Validator

SOURCE = (Path(__file__).parent / "branching.py").read_text().splitlines()


def visited(*happened: tuple[str, int | None]) -> Visits:
    events = [Event("a", 1, n, action, "7", {"by": by} if by else {}) for n, (action, by) in enumerate(happened, 1)]
    coverage = Coverage()
    coverage.add(Validator(BranchingConformance).validate("7", events))
    return coverage.visits


def text(place: str) -> str:
    """The text of the line, checked to be at its reported place."""
    file, number, told = place.split(":", 2)
    assert file == "branching.py" and SOURCE[int(number) - 1].strip() == told.strip()
    return told.strip()


def test_the_statements_of_actions_are_known_with_those_of_what_they_call() -> None:
    ran = LineTracer(Branching)
    found = {action: [text(ran.place(line)) for line in lines] for action, lines in lines_of(Branching).items()}
    assert sorted(found["moves"]) == sorted(
        [
            "require(self.number < 50)",
            "by = one_of((1, 2, 3))",
            "if self.is_even:",
            "self.number += by",
            "self._goes_back(by)",
        ]
        + ["return self.number % 2 == 0", "require(self.number > 0)", "self.number -= by"]
    )
    assert found["triples"] == ["self.number = tripled(self.number)", "if number > 100:", "return 300", "return ("]
    is_require = {text(ran.place(line)): line.is_require for line in lines_of(Branching)["moves"]}
    assert is_require["require(self.number > 0)"] and not is_require["by = one_of((1, 2, 3))"]


def test_lines_and_options_are_counted() -> None:
    visits = visited(("moves", 1), ("moves", 1), ("moves", 2), ("triples", None))
    ran = {text(place): count for place, count in visits.lines["moves"].items()}
    assert ran["require(self.number < 50)"] == 3
    assert (ran["self.number += by"], ran["self._goes_back(by)"], ran["self.number -= by"]) == (2, 1, 1)
    assert {text(place) for place in visits.lines["triples"]} == {
        "self.number = tripled(self.number)",
        "if number > 100:",
        "return (",
    }
    assert {text(place): options for place, options in visits.choices.items()} == {
        "by = one_of((1, 2, 3))": {"1": 2, "2": 1, "3": 0}
    }


def test_what_was_not_run_is_told() -> None:
    visits = visited(("moves", 2), ("moves", 2), ("triples", None), ("rests", None))
    data = report.data(Branching, visits, None)
    assert [text(place) for place in data["never_run"]] == [
        "self._goes_back(by)",
        "require(self.number > 0)",
        "self.number -= by",
        "return 300",
    ]
    asked = {text(place): counts for place, counts in data["requirements"].items()}
    assert asked["require(self.number < 50)"] == {"passed": 2, "refused": 0}
    assert asked["require(self.number > 0)"] == {"passed": 0, "refused": 0}
    assert asked["require(self.number == 7)"] == {"passed": 0, "refused": 1}
    told = report.text(Branching, visits, None)
    assert "which no step has run: 4" in told and "1, 3" in told


def test_counts_of_several_processes_are_added() -> None:
    one, other = visited(("moves", 1), ("moves", 1)), visited(("moves", 3))
    both = Visits()
    both.add(one)
    both.add(other)
    (options,) = both.choices.values()
    assert options == {"1": 2, "2": 0, "3": 1}
    assert max(both.lines["moves"].values()) == 3


def test_the_lines_of_the_store_are_those_of_its_rules_too() -> None:
    found = lines_of(RunningStore)
    files = {Path(line.file).name for lines in found.values() for line in lines}
    assert {"running.py", "store.py", "recovery.py"} <= files
    assert all(found.values()), "each action has statements"
