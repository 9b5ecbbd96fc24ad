"""What ``TLCGet`` answers, postconditions, and ``ALIAS``. The answers are TLC's."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost import check
from fencepost.cli.main import main
from fencepost.tla.errors import SpecificationError

POST = r"""---- MODULE Post ----
EXTENDS Naturals, TLC
VARIABLE x
Init == x \in {0, 1}
Up == x < 4 /\ x' = x + 1
Spec == Init /\ [][Up]_x
ASSUME TLCGet("config").mode = "bfs" /\ TLCGet("level") = 0 /\ TLCGet("-Dtlc2.tool.impl.Tool.cdot") = "true"
Small == x < 4
Counted ==
  /\ <<TLCGet("distinct"), TLCGet("generated"), TLCGet("queue"), TLCGet("diameter"), TLCGet("level")>>
       = <<5, 6, 0, 4, 0>>
  /\ LET s == TLCGet("stats") IN <<s.distinct, s.generated, s.queue, s.diameter>> = <<5, 6, 0, 4>>
  /\ TLCGet("config").deadlock = FALSE
\* There are more.
Wrong == TLCGet("distinct") = 6
Broken == TLCGet("distinct") + "a" = 6
Reads == x = 1
Numbered == [x |-> x, level |-> TLCGet("level"), next |-> x']
Partial == [x |-> x, y |-> <<1>>[x]]
Named == [x |-> x, action |-> TLCGet("action").name]
Deep == TLCGet("level") < 3
Many == TLCGet("distinct") < 3
Indirect == Many /\ x > 0
Climbs == [][x' < x]_x
Starts == x = 1
Never == [](x < 4)
====
"""


@pytest.fixture
def post(tmp_path: Path) -> Path:
    (tmp_path / "Post.tla").write_text(POST)
    return tmp_path / "Post.tla"


def with_sections(post: Path, sections: str) -> str:
    post.with_suffix(".cfg").write_text(f"SPECIFICATION Spec CHECK_DEADLOCK FALSE {sections}")
    return str(post)


@pytest.mark.parametrize("engine", ["reference", "auto", "embedded"])
def test_a_postcondition_knows_what_the_search_counted(post: Path, engine: str) -> None:
    assert check(with_sections(post, "POSTCONDITION Counted"), engine=engine).holds


def test_a_false_postcondition_has_the_exit_code_of_tlc(post: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", with_sections(post, "POSTCONDITIONS Counted Wrong")]) == 10
    out = capsys.readouterr().out
    assert out.startswith("POSTCONDITION VIOLATED  Wrong\nThere are more.\n  15 | Wrong == ")
    assert "states generated" in out


def test_a_postcondition_that_fails_keeps_the_numbers(post: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", with_sections(post, "POSTCONDITION Broken")]) == 10
    out = capsys.readouterr().out
    assert "RAISED  Broken\n" in out and "while evaluating postcondition Broken\n" in out
    assert "states generated" in out


def test_a_postcondition_is_not_evaluated_after_a_violation(post: Path) -> None:
    result = check(with_sections(post, "INVARIANT Small POSTCONDITION Wrong"))
    assert [each.name for each in result.violations] == ["Small"]


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("CONSTRAINT Many", r'TLCGet\("distinct"\) is not supported in a step or an invariant: it can ask for level'),
        ("INVARIANT Indirect", r'tla:22:9: TLCGet\("distinct"\) is not supported'),
        ("ALIAS Named", r'TLCGet\("action"\) is not supported in the alias: it can ask for config, '),
        ("POSTCONDITION Reads", r"the postcondition Reads is .*, and can be at most"),
    ],
)
def test_a_question_without_an_answer_is_refused_before_the_search(post: Path, section: str, message: str) -> None:
    with pytest.raises(SpecificationError, match=message):
        check(with_sections(post, section))


LEVELS = r"""---- MODULE Levels ----
EXTENDS Naturals, TLC
CONSTANT P
VARIABLES x, y
Init == x = 0 /\ y = {} /\ TLCGet("level") = 0
Next == \/ x' = (x + 1) % 7 /\ UNCHANGED y
        \/ \E p \in P : p \notin y /\ y' = y \cup {p} /\ UNCHANGED x
        \/ TLCGet("level") > 3 /\ x' = 9 /\ y' = {}
Deep == TLCGet("level") < 6
Inv == TLCGet("level") < 7
Sooner == TLCGet("level") < 5
Steps == [][TLCGet("level") < 5]_<<x, y>>
Ever == <>(x = 3)
Same == Permutations(P)
====
"""


@pytest.mark.parametrize("engine", ["reference", "auto", "embedded"])
@pytest.mark.parametrize(("section", "counts"), [("", (29, 98, 5)), ("SYMMETRY Same", (15, 54, 5))])
def test_the_level_of_a_state_bounds_a_search(
    tmp_path: Path, section: str, counts: tuple[int, int, int], engine: str
) -> None:
    levels = tmp_path / "Levels.tla"
    levels.write_text(LEVELS)
    config = "CONSTANT P = {a, b, c}\nINIT Init\nNEXT Next\nCONSTRAINT Deep\nINVARIANT Inv\n"
    levels.with_suffix(".cfg").write_text(config + section)
    result = check(str(levels), engine=engine)
    assert (result.distinct_states, result.generated_states, result.depth) == counts
    assert result.holds
    levels.with_suffix(".cfg").write_text(config + section + "\nINVARIANT Sooner")
    trace = check(str(levels), engine=engine).must_violate("Sooner")
    assert [sorted(each.variables()) for each in trace.states] == [["x", "y"]] * 5
    levels.with_suffix(".cfg").write_text(config + "PROPERTY Steps")
    assert len(check(str(levels), engine=engine).must_violate("Steps").states) == 6
    levels.with_suffix(".cfg").write_text(config + "PROPERTY Ever")
    violated = check(str(levels), engine=engine)
    violated.must_violate("Ever")
    assert (violated.distinct_states, violated.generated_states, violated.depth) == (29, 98, 5)


def test_an_alias_knows_the_number_of_its_state(post: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", with_sections(post, "INVARIANT Small ALIAS Numbered"), "--trace", "tlc"]) == 12
    out = capsys.readouterr().out
    assert "State 1: <Initial predicate>\n/\\ x = 1\n/\\ level = 1\n/\\ next = 2\n" in out
    assert "/\\ x = 4\n/\\ level = 4\n/\\ next = 4\n" in out


def test_an_alias_that_fails_shows_the_plain_state_and_says_why_once(
    post: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", with_sections(post, "INVARIANT Small ALIAS Partial"), "--trace", "tlc"]) == 12
    out = capsys.readouterr().out
    assert "State 1: <Initial predicate>\n/\\ x = 1\n/\\ y = 1\n" in out
    assert "module Post>\n/\\ x = 2\n/\\ _ALIASEvalError = " in out and "module Post>\nx = 3\n" in out
    assert out.count("_ALIASEvalError") == 1 and "has no element 2" in out


@pytest.mark.parametrize(("name", "code"), [("Climbs", 13), ("Starts", 13), ("Never", 12)])
def test_a_violated_property_has_the_exit_code_of_tlc(post: Path, name: str, code: int) -> None:
    assert check(with_sections(post, f"PROPERTY {name}")).exit_code == code
