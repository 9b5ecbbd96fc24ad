"""Reports for continuous integration: JUnit's format, SARIF, and Markdown with a diagram in Mermaid."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fencepost
from fencepost import Protocol, action, check, constant, invariant, model_values, one_of, require, sometimes, state
from fencepost.language.values import ModelValue
from fencepost.report.diagram import Arrow, Diagram, Lifeline, Moment, Note, Point
from fencepost.report.junit import ERROR, FAILURE, SKIPPED, Case, junit
from fencepost.report.markdown import LARGEST, block, code, diagram, folded, markdown
from fencepost.report.sarif import MOST_STEPS, sarif
from fencepost.report.sequence import MERMAID, mermaid, sequence, written

HERE = Path(__file__)
SOURCE: list[str] = HERE.read_text().split("\n")


class Pushes(Protocol):
    """Members push a counter on."""

    members = model_values("m", 1)
    limit: int = constant(9)
    count: int = state(0)
    seen: frozenset[ModelValue] = state(frozenset())

    @action(
        m=members,
    )
    def push(self, m: ModelValue) -> None:
        require(self.count < self.limit)
        self.count += 1
        self.seen |= {m}

    @invariant
    def never_three(self) -> bool:
        """Three is right out, {really}."""
        return self.count != 3

    @sometimes
    def ten(self) -> bool:
        return self.count == 10


class Divides(Protocol):
    n: int = state(2)

    @action
    def share(self) -> None:
        self.n = one_of((self.n - 1,)) if 2 // self.n else 0


class Behind(Protocol):
    """Refines nothing that it should."""

    count: int = state(0)

    @action
    def leap(self) -> None:
        self.count += 2
        require(self.count < 9)

    counts = fencepost.refines(Pushes, {"seen": lambda self: frozenset()})


def run_of(result: Any, code: int, **more: Any) -> dict[str, Any]:
    document = json.loads(sarif(result, code, **more))
    assert (document["version"], len(document["runs"])) == ("2.1.0", 1)
    run: dict[str, Any] = document["runs"][0]
    # What the schema and GitHub ask for.
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for each in run["results"]:
        assert rules[each["ruleIndex"]]["id"] == each["ruleId"]
        assert each["level"] == "error" and each["message"]["text"] and len(each["locations"]) == 1
    for rule in rules:
        assert all(rule[part]["text"] for part in ("shortDescription", "fullDescription", "help"))
    (invocation,) = run["invocations"]
    assert isinstance(invocation["executionSuccessful"], bool) and invocation["exitCode"] == code
    return run


def line_at(location: dict[str, Any]) -> str:
    """The line of this file that a location is at."""
    physical: dict[str, Any] = location["physicalLocation"]
    assert physical["artifactLocation"]["uri"].endswith(HERE.name)
    line: str = SOURCE[physical["region"]["startLine"] - 1]
    return line.strip()


def test_a_violation_is_at_the_authors_line_and_its_steps_are_where_the_actions_are() -> None:
    result = check(Pushes(), invariants=["never_three"], engine="reference")
    (found,) = run_of(result, 12)["results"]
    assert line_at(found["locations"][0]) == "def never_three(self) -> bool:"
    steps = found["relatedLocations"]
    assert [step["id"] for step in steps] == [1, 2, 3]
    assert {line_at(step) for step in steps} == {"def push(self, m: ModelValue) -> None:"}
    assert steps[0]["message"]["text"] == "Step 1: push(m=m1): count 0 → 1; seen added m1"
    flow = found["codeFlows"][0]["threadFlows"][0]["locations"]
    assert [each["location"] for each in flow] == steps
    assert found["ruleId"] == "never_three"
    # Single braces are placeholders.
    assert "Three is right out, {{really}}." in found["message"]["text"]
    assert "The shortest counterexample: 4 states" in found["message"]["text"]


def test_a_file_in_the_repository_is_named_by_its_path_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def artifact() -> dict[str, str]:
        (found,) = run_of(check(Pushes(), invariants=["never_three"], engine="reference"), 12)["results"]
        where: dict[str, str] = found["locations"][0]["physicalLocation"]["artifactLocation"]
        return where

    monkeypatch.chdir(HERE.parent)
    inside = artifact()
    assert inside["uriBaseId"] == "%SRCROOT%" and HERE.as_posix().endswith(inside["uri"])
    monkeypatch.chdir(tmp_path)
    assert artifact() == {"uri": HERE.as_uri()}


def test_what_has_no_line_of_its_own_is_at_the_last_step() -> None:
    (found,) = run_of(check(Divides(), deadlock=True, engine="reference"), 75)["results"]
    assert found["ruleId"] == "raised" and "ZeroDivisionError" in found["message"]["text"]
    assert line_at(found["locations"][0]) == "self.n = one_of((self.n - 1,)) if 2 // self.n else 0"
    (found,) = run_of(check(Pushes(limit=2), invariants=["never_three"], deadlock=True, engine="reference"), 11)[
        "results"
    ]
    assert found["ruleId"] == "deadlock" and len(found["relatedLocations"]) == 2
    assert line_at(found["locations"][0]) == "def push(self, m: ModelValue) -> None:"
    (found,) = run_of(check(Behind(), engine="reference"), 12)["results"]
    assert found["ruleId"] == "counts"
    assert line_at(found["locations"][0]) == "def leap(self) -> None:"


def test_what_is_never_reached_has_no_steps() -> None:
    (found,) = run_of(check(Pushes(), invariants=["ten"], engine="reference"), 12)["results"]
    assert line_at(found["locations"][0]) == "def ten(self) -> bool:"
    assert "codeFlows" not in found and "relatedLocations" not in found


def test_what_is_expected_is_no_problem() -> None:
    result = check(Pushes(), invariants=["never_three"], engine="reference")
    assert run_of(result, 0, expected="never_three")["results"] == []
    assert [each["ruleId"] for each in run_of(result, 2, expected="holds")["results"]] == ["never_three"]
    holds = check(Pushes(limit=2), invariants=["never_three"], engine="reference")
    assert run_of(holds, 0)["results"] == []
    (found,) = run_of(holds, 2, expected="never_three")["results"]
    assert found["ruleId"] == "expected" and line_at(found["locations"][0]) == "def never_three(self) -> bool:"


def test_a_check_that_cannot_tell_says_so() -> None:
    run = run_of(check(Pushes(), invariants=["ten"], max_states=2, engine="reference"), 152)
    (invocation,) = run["invocations"]
    assert run["results"] == [] and not invocation["executionSuccessful"]
    (notification,) = invocation["toolExecutionNotifications"]
    assert "The limit of 2 states was reached." in notification["message"]["text"]


def test_of_a_long_behaviour_the_last_steps_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.report.sarif.MOST_STEPS", 2)
    assert MOST_STEPS == 1_000
    result = check(Pushes(), invariants=["never_three"], engine="reference")
    (found,) = run_of(result, 12)["results"]
    assert [step["id"] for step in found["relatedLocations"]] == [2, 3]
    assert "Its last 2 of 3 steps are listed." in found["message"]["text"]


# -- JUnit -------------------------------------------------------------------------------------------------------------

ALLOWED = {
    "testsuites": {"name", "time", "tests", "failures", "errors"},
    "testsuite": {"skipped", "time"},
    "testcase": {"time", "classname"},
    "failure": {"type", "message"},
    "error": {"type", "message"},
    "skipped": {"type", "message"},
}
REQUIRED = {
    "testsuite": {"name", "tests", "failures", "errors"},
    "testcase": {"name"},
    "property": {"name", "value"},
}
INSIDE = {
    "testsuites": {"testsuite"},
    "testsuite": {"properties", "testcase"},
    "properties": {"property"},
    "testcase": {"failure", "error", "skipped"},
}
"""What `junit-10.xsd` allows and requires of attributes and elements, as far as it is used."""


def satisfies_the_schema(root: ElementTree.Element) -> None:
    assert root.tag == "testsuites"
    for each in root.iter():
        required = REQUIRED.get(each.tag, set())
        assert required <= set(each.keys()) <= required | ALLOWED.get(each.tag, set())
        assert {part.tag for part in each} <= INSIDE.get(each.tag, set())
        assert re.fullmatch(r"\d+\.\d+", each.get("time", "0.0"))


@given(st.lists(st.tuples(st.text(), st.sampled_from(["", FAILURE, ERROR, SKIPPED]), st.text(), st.text())), st.text())
def test_any_text_makes_a_report_that_can_be_read(tests: list[tuple[str, str, str, str]], suite: str) -> None:
    root = ElementTree.fromstring(junit(suite, [Case(*each) for each in tests], {"n": suite}, 12.5).encode())
    satisfies_the_schema(root)
    (whole,) = root
    counts = {name: int(whole.get(name, "")) for name in ("tests", "failures", "errors", "skipped")}
    became = [each[1] for each in tests]
    assert counts == {
        "tests": len(tests),
        "failures": became.count(FAILURE),
        "errors": became.count(ERROR),
        "skipped": became.count(SKIPPED),
    }
    assert [[child.tag for child in case] for case in whole.iter("testcase")] == [[b] if b else [] for b in became]


# -- Markdown ----------------------------------------------------------------------------------------------------------


def test_the_summary_has_the_verdict_the_diagram_and_the_story() -> None:
    result = check(Pushes(), invariants=["never_three"], engine="reference")
    assert result.violation is not None and result.violation.trace is not None
    text = markdown(result, result.violation.trace, "NOT as expected: it is to hold.")
    assert text.startswith("## VIOLATED never_three\n\n`pushes members=m1 limit=9`\n\nThree is right out, {really}.\n")
    assert "**NOT as expected: it is to hold.**" in text
    drawn = text.split("```mermaid\n")[1].split("```")[0]
    assert drawn == mermaid(result.violation.trace, "violated never_three")
    assert "participant p1 as m1\np1->>p1: push(m=m1)<br/>count: 0 → 1<br/>seen: added m1\n" in drawn
    assert "fencepost explore" in text and text.endswith("\n```\n\n</details>\n")


def test_nothing_is_drawn_without_participants_or_beyond_what_mermaid_draws() -> None:
    result = check(Behind(), engine="reference")
    assert result.violation is not None and result.violation.trace is not None
    assert mermaid(result.violation.trace) == ""
    assert "```mermaid" not in markdown(result, result.violation.trace)
    assert diagram("x" * LARGEST).startswith("```mermaid")
    assert "it is left out" in diagram("x" * (LARGEST + 1))


def test_a_long_story_is_cut_with_a_count() -> None:
    text = folded("All", [f"line {number}" for number in range(1_200)])
    assert "line 999\n... and 200 more lines\n" in text and "line 1000" not in text


@given(st.text("a`\n "))
def test_no_text_ends_its_fence(text: str) -> None:
    opened, *inside, closed = block(text.split("\n")).split("\n")
    assert opened == f"{closed}text" and not any(closed in line for line in inside)
    assert "\n".join(inside) == text
    assert max(map(len, re.findall("`+", code(text)))) > max(map(len, re.findall("`+", text)), default=0)


WORDS = ["end", "a;b", "%%{init: {}}%%", "x #9;"]
TEXTS = st.text(st.characters(exclude_categories=("C", "Z"))) | st.sampled_from(WORDS)


@given(TEXTS.filter(bool), TEXTS, st.sampled_from(["received", "lost", "in flight"]))
def test_any_text_is_only_text_in_mermaid(name: str, text: str, fate: str) -> None:
    drawn = Diagram(
        (Lifeline(name), Lifeline("z")),
        (Moment(1, text, name, 1), Moment(2, text, name, 1)),
        (Arrow(name, "z", (text, text), fate, Point(1, 0), Point(1, 0)),),
        (Note((name,), (text,), Point(2, 0)),),
        loop=1,
    )
    head, first, second, *rest = written(drawn, text, format=MERMAID).splitlines()
    assert (head, second[:15]) == ("sequenceDiagram", "participant p2 ")
    assert read(first.removeprefix("participant p1 as ")) == name
    ends = [re.fullmatch(r"(p1(?:->>|-->>|--x)p[12]|note over p1,p2): (.*?)(?: \(in flight\))?", line) for line in rest]
    arrow = {"received": "->>", "lost": "--x", "in flight": "-->>"}[fate]
    assert rest[0].startswith(f"p1{arrow}p2: ") and rest[0].endswith(" (in flight)") == (fate == "in flight")
    said = [read(found[2]) for found in ends if found]
    assert said == [f"{text}\n{text}", f"{text}\n{text}", text]
    assert [line for line, found in zip(rest, ends, strict=True) if not found] == ["loop for ever", "end"]


def read(text: str) -> str:
    """What Mermaid shows for a text."""
    assert not re.search(r"[;#](?!\d)", re.sub(r"#\d+;", "", text))
    return "\n".join(html.unescape(re.sub(r"#(\d+);", r"&#\1;", part)) for part in text.split("<br/>"))


def test_both_formats_draw_the_same() -> None:
    result = check(Pushes(), invariants=["never_three"], engine="reference")
    assert result.violation is not None and result.violation.trace is not None
    one, other = sequence(result.violation.trace, "x"), mermaid(result.violation.trace, "x")
    known = other.replace("sequenceDiagram\n", "").replace("p1 as ", "").replace("p1", "m1")
    assert known.replace("->>", "->").replace("<br/>", "\\n") == one
