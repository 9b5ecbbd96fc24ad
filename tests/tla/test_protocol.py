"""Specifications with their configurations, on the engine: counts, verdicts, counterexamples, errors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tla import explorer, files

from fencepost import NotAProtocol, OptionError, Result, check
from fencepost.behaviours import Expression, to_itf
from fencepost.checker.engines.options import SearchOptions
from fencepost.cli.main import main
from fencepost.explorer.find import find_state
from fencepost.explorer.session import Session
from fencepost.language import loading
from fencepost.language.seam import Model, language_of
from fencepost.tla.errors import SpecificationError

VOTES = r"""---- MODULE Votes ----
EXTENDS Naturals, FiniteSets, Sequences, TLC
CONSTANTS Voters, Most
VARIABLES voted, log

ASSUME Enough == Most > 0

Init == voted = [v \in Voters |-> FALSE] /\ log \in {<<>>, <<"empty">>}

\* A voter votes, once.
Vote(v) ==
  /\ ~voted[v]
  /\ voted' = [voted EXCEPT ![v] = TRUE]
  /\ log' = IF Len(log) < Most THEN Append(log, "vote") ELSE log

Forget == /\ log' = <<>>
          /\ UNCHANGED voted

Next == (\E v \in Voters : Vote(v)) \/ Forget
Spec == Init /\ [][Next]_<<voted, log>>

\* The log is short.
Short == Len(log) < 3
Wrong == Len(log) + "a" > 3
Fewer == Cardinality({v \in Voters : voted[v]}) < 2
Grows == Len(log') >= Len(log)
Seen == voted
Both == [first |-> Len(log), second |-> Len(log')]
Same == Permutations(Voters)
====
"""

CONFIG = "CONSTANTS Voters = {v1, v2, v3} Most = 2\nSPECIFICATION Spec\nINVARIANT Short\nCHECK_DEADLOCK FALSE\n"


@pytest.fixture
def votes(tmp_path: Path) -> Path:
    (tmp_path / "Votes.tla").write_text(VOTES)
    (tmp_path / "Votes.cfg").write_text(CONFIG)
    return tmp_path / "Votes.tla"


def with_sections(votes: Path, sections: str) -> Path:
    votes.with_suffix(".cfg").write_text(CONFIG + sections)
    return votes


def checked(votes: Path, engine: str = "auto", **options: Any) -> Result:
    return check(str(votes), engine=engine, **options)


def model(votes: Path, *definitions: str) -> Model:
    return loading.configured(loading.find(str(votes)), None, definitions)


@pytest.mark.parametrize("engine", ["reference", "auto", "embedded"])
@pytest.mark.parametrize(
    "sections",
    ["", "CONSTRAINT Fewer", "ACTION_CONSTRAINT Grows", "VIEW Seen", "CONSTRAINT Fewer ACTION_CONSTRAINT Grows"],
)
def test_states_are_counted_as_by_a_plain_search(votes: Path, sections: str, engine: str) -> None:
    result = checked(with_sections(votes, sections), engine)
    assert not result.violations and result.complete
    if "VIEW" not in sections:
        plain = explorer.Model(votes, CONFIG + sections).search()
        assert (result.distinct_states, result.generated_states, result.depth) == plain.numbers
    else:
        assert result.distinct_states == 8


def test_one_of_the_states_that_a_symmetry_exchanges(votes: Path) -> None:
    whole, reduced = checked(votes), checked(with_sections(votes, "SYMMETRY Same"))
    assert (whole.distinct_states, reduced.distinct_states) == (27, 13)
    assert reduced.symmetry == ("Voters",)
    assert checked(votes, symmetry=False).distinct_states == 27


def test_a_view_that_selects_variables_is_part_of_every_fingerprint(
    votes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    votes.write_text(
        VOTES.replace(
            "====",
            "Own == voted\nAll == <<Own, log>>\nPicked == <<Own>>\nLength == <<Own, Len(log)>>\n"
            "Counted == [own |-> voted, length |-> Len(log)]\nLive == <>(log = <<>>)\nSometime == <>(log # <<>>)\n====",
        )
    )
    whole = checked(with_sections(votes, "VIEW All"))
    assert (whole.distinct_states, whole.evaluations) == (27, checked(with_sections(votes, "")).evaluations)
    assert checked(with_sections(votes, "VIEW Picked")).distinct_states == 8
    computed = [checked(with_sections(votes, f"VIEW {name}")).distinct_states for name in ("Length", "Counted")]
    assert computed[0] == computed[1] > 8, "a tuple of more than variables is no selection"
    assert checked(with_sections(votes, "VIEW All PROPERTY Live")).violations
    assert checked(with_sections(votes, "VIEW Picked PROPERTY Live")).holds
    assert checked(with_sections(votes, "VIEW Picked PROPERTY Sometime")).violations
    assert main(["check", str(votes)]) == 13
    assert "judged as by TLC where a view" in capsys.readouterr().err


def test_functions_are_written_however_deep_constants_are(tmp_path: Path) -> None:
    # Each constant is worked out while the one above it is written, and Python allows only so deep a recursion.
    depth = 50
    lines = [f"Op{depth}(y) == y + 1"]
    for n in reversed(range(1, depth)):
        lines += [f"C{n} == Op{n + 1}({n})", f"Op{n}(y) == IF y > C{n} THEN y ELSE y + 1"]
    text = ["---- MODULE Deep ----", "EXTENDS Naturals", "VARIABLE x", *lines]
    (tmp_path / "Deep.tla").write_text("\n".join([*text, "Init == x = 0", "Next == x < 3 /\\ x' = Op1(x)", "===="]))
    (tmp_path / "Deep.cfg").write_text("INIT Init NEXT Next CHECK_DEADLOCK FALSE")
    assert check(str(tmp_path / "Deep.tla")).must_hold().distinct_states == 4


def test_values_of_no_constant_are_told_and_not_used(votes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    votes.with_suffix(".cfg").write_text(CONFIG.replace("CONSTANTS", "CONSTANTS v1 = 1 Mst = 2 v2 = v2"))
    assert main(["check", str(votes)]) == 0
    said = capsys.readouterr().err.splitlines()
    assert [line.partition("Votes.cfg")[2] for line in said] == [
        ":1:11: Votes declares no v1, so its value is not used",
        ":1:18: Votes declares no Mst, so its value is not used: did you mean Most?",
    ]


def test_a_counterexample_is_in_tla(votes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(votes), "-D", "Most = 4", "--config", str(votes.with_suffix(".cfg"))]) == 12
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert "The log is short.".split() in lines
    assert ["0", "initial", "state"] in lines and ["log", '<<"empty">>'] in lines
    assert any(line[2:] == ["Vote(v1)", "Votes.tla:12"] for line in lines)
    assert ["log", "appended", '"vote"'] in lines and ["voted", "[v1]", "FALSE", "→", "TRUE"] in lines


def test_whole_states_as_tlc_prints_them(votes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(votes), "-D", "Most=3", "--trace", "tlc"]) == 12
    out = capsys.readouterr().out
    assert "State 1: <Initial predicate>\n/\\ voted = (v1 :> FALSE @@ v2 :> FALSE @@ v3 :> FALSE)\n/\\ log = " in out
    assert " line 12, col 3 to line 14, col 64 of module Votes>\n" in out


def test_an_alias_is_of_a_state_and_of_the_next(votes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_sections(votes, "ALIAS Both")
    assert main(["check", str(votes), "-D", "Most=3", "--trace", "tlc"]) == 12
    assert re.search(r"State 2: .*\n/\\ first = 2\n/\\ second = 3\n", capsys.readouterr().out)


def test_a_counterexample_in_other_formats(votes: Path) -> None:
    result = check(str(votes), constants={"Most": "4"})
    state = json.loads(to_itf(result.must_violate("Short")))["states"][0]
    assert state["log"] == {"#tup": ["empty"]} and state["Most"] == {"#bigint": "4"}
    assert state["voted"]["#map"][0] == ["v1", False]
    document = json.loads(result.to_json())
    assert document["violation"]["trace"][0]["state"]["voted"] == {"v1": False, "v2": False, "v3": False}
    assert "Votes.tla:12" in result.to_html()


def test_an_error_has_its_place_its_line_and_the_way_there(
    votes: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(votes.parent)
    assert main(["check", with_sections(votes, "INVARIANT Wrong").name]) == 75
    out = capsys.readouterr().out
    assert "\nVotes.tla:24:10: " in out
    assert '  24 | Wrong == Len(log) + "a" > 3\n     |          ^^^^^^^^^^^^^^\n' in out
    assert "while evaluating invariant Wrong" in out and "The shortest way to where it was raised: 1 state" in out


def test_an_assumption_is_judged_first(votes: Path) -> None:
    result = check(str(votes), constants={"Most": "0"})
    assert [(each.kind, each.name) for each in result.violations] == [("assumption", "Enough")]


def test_deadlocks_are_looked_for_unless_the_configuration_says_otherwise(tmp_path: Path) -> None:
    module = tmp_path / "Ends.tla"
    module.write_text(
        files.module("Ends", "EXTENDS Naturals", "VARIABLE x", "Init == x = 0", "Next == x < 2 /\\ x' = x + 1")
    )
    module.with_suffix(".cfg").write_text("INIT Init NEXT Next")
    assert [each.kind for each in checked(module).violations] == ["deadlock"]
    assert checked(module, deadlock=False).holds
    module.with_suffix(".cfg").write_text("INIT Init NEXT Next CHECK_DEADLOCK FALSE")
    assert checked(module).holds
    assert main(["check", str(module), "--deadlock"]) == 11


def test_a_module_without_a_behaviour_has_only_assumptions(tmp_path: Path) -> None:
    module = tmp_path / "Sums.tla"
    module.write_text("---- MODULE Sums ----\nEXTENDS Naturals\nASSUME 1 + 1 = 2\n====")
    module.with_suffix(".cfg").write_text("")
    assert checked(module).holds


def test_constants_of_the_command_line(votes: Path) -> None:
    given = model(votes, "Most=1 + 2", "Voters={a, b}").constants
    assert {name: str(value) for name, value in given.items()} == {"Voters": "{a, b}", "Most": "3"}
    with pytest.raises(OptionError, match="no constant Mast: did you mean Most"):
        model(votes, "Mast=1")
    with pytest.raises(OptionError, match="no expression"):
        model(votes, "Most=1 +")


def test_what_a_configuration_lacks(votes: Path) -> None:
    votes.with_suffix(".cfg").write_text("CONSTANT Most = 2 SPECIFICATION Spec")
    with pytest.raises(SpecificationError, match="constant Voters has no value"):
        model(votes)
    with_sections(votes, "INVARIANT Shirt")
    with pytest.raises(SpecificationError, match=r"Votes.cfg:5:11: .*Shirt.*did you mean Short"):
        model(votes)
    with_sections(votes, "_RL_REWARD Short")
    with pytest.raises(SpecificationError, match=r"Votes.cfg:5:12: _RL_REWARD is not supported"):
        model(votes)
    votes.with_suffix(".cfg").unlink()
    with pytest.raises(OptionError, match="has no configuration"):
        model(votes)


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("INVARIANT Grows", "invariant Grows is an action, and can be at most a state function"),
        ("INVARIANT Spec", "invariant Spec is a temporal formula"),
        ("CONSTRAINT Grows", "constraint Grows is an action"),
        ("VIEW Grows", "view Grows is an action"),
        ("ACTION_CONSTRAINT Spec", "action constraint Spec is a temporal formula, and can be at most an action"),
    ],
)
def test_what_a_section_can_name(votes: Path, section: str, said: str) -> None:
    with pytest.raises(SpecificationError, match=said):
        model(with_sections(votes, section))


def test_a_model_is_given_by_words(votes: Path) -> None:
    whole = model(votes, "Most=1+2")
    language = language_of(whole)
    packed = language.packed(whole)
    assert packed is not None
    again = language.unpacked(packed)
    assert again.constants == whole.constants and language.digest(again) == language.digest(whole)


def test_a_table_of_states_is_of_its_specification(votes: Path, tmp_path: Path) -> None:
    space = tmp_path / "space"
    assert main(["check", str(votes), "--engine", "reference", "--states", str(space)]) == 0
    assert main(["witness", str(space), "--where", "len(log) = 2"]) == 0


def test_a_search_goes_on_from_a_checkpoint(votes: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    assert not checked(votes, "embedded", max_depth=2, checkpoint=saved, checkpoint_every=0.0).complete
    assert checked(votes, "embedded", resume=saved).distinct_states == 27


def test_actions_of_a_quantifier_are_told_apart(tmp_path: Path) -> None:
    body = ["EXTENDS Naturals", "VARIABLE x", "Init == x = 0", "Next == \\E n \\in {1, 2}: x' = x + n", "Few == x < 3"]
    path = files.written(tmp_path, files.module("Steps", *body))
    path.with_suffix(".cfg").write_text("INIT Init NEXT Next INVARIANT Few")
    trace = checked(path).must_violate("Few")
    assert {step.title for step in trace.steps} <= {"Next(1)", "Next(2)"} and len(trace) == 3


def test_initial_predicates_of_several_modules(tmp_path: Path) -> None:
    inner = files.module("Inner", "EXTENDS Naturals", "VARIABLE x", "Start == x = 0", "Step == x' = 1 - x")
    spec = "Spec == y = 3 /\\ I!Start /\\ [][I!Step /\\ UNCHANGED y]_<<x, y>>"
    path = files.written(tmp_path, files.module("Outer", "VARIABLES x, y", "I == INSTANCE Inner", spec), inner)
    path.with_suffix(".cfg").write_text("SPECIFICATION Spec")
    assert checked(path).distinct_states == 2


def test_a_specification_takes_values(tmp_path: Path) -> None:
    inner = files.module("Counter", "EXTENDS Naturals", "VARIABLE x", "CONSTANT k", "Start(S) == x \\in S /\\ x < k")
    spec = "Sys(S) == I(2)!Start(S) /\\ [][x' = (x + 1) % 5]_x", "Spec == LET low == 0 IN Sys({low, 1, 2})"
    counter = "I(n) == INSTANCE Counter WITH k <- n"
    path = files.written(tmp_path, files.module("Outer", "EXTENDS Naturals", "VARIABLE x", counter, *spec), inner)
    path.with_suffix(".cfg").write_text("SPECIFICATION Spec")
    result = checked(path)
    assert (result.distinct_states, result.generated_states, result.depth) == (5, 7, 4)


def test_an_initial_predicate_has_one_value_of_each_name(tmp_path: Path) -> None:
    spec = "Spec == x = 0 /\\ [][UNCHANGED x]_x /\\ \\A k \\in {1, 2} : x # k /\\ WF_x(x' = k)"
    path = files.written(tmp_path, files.module("Each", "VARIABLE x", spec))
    path.with_suffix(".cfg").write_text("SPECIFICATION Spec")
    with pytest.raises(SpecificationError, match="an initial predicate inside a temporal quantifier"):
        checked(path)


SMALL = {
    "functions of an instance that use themselves, and an axiom": (
        r"""
I(k) == INSTANCE Powers WITH base <- k
Init == x = 0 /\ y = 1
Next == x' = (x + 1) % 3 /\ y' = I(x)!power[2] + I(2)!power[3]
Inv == x < 3
AXIOM 1 = 2
""",
        (4, 5, 4),
    ),
    "operators that prime what they are given": (
        r"""
Both(F(_), a, b) == F(a) /\ F(b)
Again(F(_), a) == Both(F, a, y)
Fixed(F(_)) == F(x) /\ F(y)
Keep(v) == v' = v
Turn(v) == v' \in {0, 1}
Init == x = 0 /\ y = 1
Next == Again(Keep, x) \/ Fixed(LAMBDA v : v' = (v + 1) % 3) \/ Fixed(Turn)
Inv == ENABLED Fixed(Turn) /\ ENABLED Both(Keep, x, y)
""",
        (9, 55, 4),
    ),
    "functions whose rule fails where they are not applied": (
        r"""
Init == x = [i \in 1..2 |-> <<>>] /\ y = 0
LastOf == [i \in 1..2 |-> x[i][Len(x[i])]]
Last2[i \in 1..2] == x[i][Len(x[i])]
Next == \/ \E i \in 1..2 : Len(x[i]) < 2 /\ x' = [x EXCEPT ![i] = Append(@, i)] /\ y' = y
        \/ \E i \in 1..2 : Len(x[i]) > 0 /\ y' = LastOf[i] /\ UNCHANGED x
        \/ \E i \in 1..2 : Len(x[i]) > 0 /\ y' = Last2[i] /\ UNCHANGED x
        \/ \E i \in 1..2 : Len(x[i]) > 0 /\ y' = (LET z == [j \in 1..2 |-> x[j][Len(x[j])]] IN z[i]) /\ UNCHANGED x
        \/ \E i \in 1..2 : Len(x[i]) > 0 /\ y' = [j \in 1..2 |-> x[j][Len(x[j])]][i] /\ UNCHANGED x
Inv == y < 3
""",
        (21, 155, 6),
    ),
    "a label of an action, as an invariant": (
        r"""
Init == x = 0 /\ y = 0
A == /\ x' = (x + 1) % 3
     /\ ready :: x < 3
Next == A /\ y' = y
Inv == A!ready
""",
        (3, 4, 3),
    ),
}


@pytest.mark.parametrize("name", SMALL)
def test_small_specifications_have_tlc_s_counts(tmp_path: Path, name: str) -> None:
    text, counts = SMALL[name]
    powers = ("EXTENDS Naturals", "CONSTANT base", "power[n \\in 0..3] == IF n = 0 THEN 1 ELSE base * power[n - 1]")
    head = "EXTENDS Naturals, Sequences\nVARIABLES x, y\nCONSTANT Yes"
    path = files.written(tmp_path, f"{head}\n{text}", files.module("Powers", *powers))
    path.with_suffix(".cfg").write_text("INIT Init NEXT Next INVARIANTS Inv Yes CONSTANT Yes = TRUE")
    result = checked(path)
    assert (result.distinct_states, result.generated_states, result.depth) == counts


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotAProtocol, match="there is no file"):
        loading.find(str(tmp_path / "No.tla"))


@pytest.mark.parametrize(
    ("formula", "verdict"),
    [
        ("LET E == {x} IN [](E # {2})", "P"),
        ("LET y == x + 1 IN [][x' # x => x' = y % 3]_x", "holds"),
        ("LET Q(n) == x = n IN Q(1) ~> Q(2)", "holds"),
        (r"\A k \in 0..2 : LET N == {k} IN []<>(x \in N)", "holds"),
        (r"\A k \in 0..2 : LET N == {k} IN <>[](x \in N)", "P"),
        (r"\A k \in 0..3 : [](k # 1 \/ x # 2)", "P:4:22"),
        (r"\A k \in 0..3 : []<>(k # 2 \/ x = 9)", "P:4:22#2"),
    ],
)
def test_parts_of_a_property(tmp_path: Path, formula: str, verdict: str) -> None:
    spec = "Spec == x = 0 /\\ [][x' = (x + 1) % 3]_x /\\ WF_x(x' = (x + 1) % 3)"
    path = files.written(tmp_path, files.module("Parts", "EXTENDS Naturals", "VARIABLE x", f"P == {formula}", spec))
    path.with_suffix(".cfg").write_text("SPECIFICATION Spec PROPERTY P")
    assert checked(path).verdict == verdict


@pytest.mark.parametrize("engine", ["reference", "auto", "embedded", "simulate"])
@pytest.mark.parametrize(("formula", "verdict"), [("x < 2", "holds"), ("x = 0", "P"), ("x = 0 /\\ [][x' > x]_x", "P")])
def test_an_initial_predicate_is_judged_in_initial_states_alone(
    tmp_path: Path, formula: str, verdict: str, engine: str
) -> None:
    spec = "Spec == x \\in {0, 1} /\\ [][x < 3 /\\ x' = x + 1]_x"
    path = files.written(tmp_path, files.module("Starts", "EXTENDS Naturals", "VARIABLE x", f"P == {formula}", spec))
    path.with_suffix(".cfg").write_text("SPECIFICATION Spec PROPERTY P CHECK_DEADLOCK FALSE")
    result = checked(path, engine)
    assert [each.name for each in result.violations] == ([] if verdict == "holds" else [verdict])
    assert all(each.trace and len(each.trace.states) == 1 and each.kind == "initially" for each in result.violations)


def test_a_refinement_leaves_a_symmetry_in_use(votes: Path) -> None:
    votes.write_text(VOTES.replace("====", "Begins == Init /\\ [][Next]_<<voted, log>>\n===="))
    reduced = checked(with_sections(votes, "SYMMETRY Same PROPERTY Begins"))
    assert not reduced.violations and reduced.distinct_states == 13


LOCK = r"""---- MODULE Lock ----
CONSTANT Procs
VARIABLES waits, holder
vars == <<waits, holder>>
Nobody == "nobody"
Init == waits = {} /\ holder = Nobody
Ask(p) == p \notin waits /\ holder /= p /\ waits' = waits \cup {p} /\ UNCHANGED holder
Enter(p) == p \in waits /\ holder = Nobody /\ holder' = p /\ waits' = waits \ {p}
Leave(p) == holder = p /\ holder' = Nobody /\ UNCHANGED waits
Next == \E p \in Procs : Ask(p) \/ Enter(p) \/ Leave(p)
Fair == \A p \in Procs : WF_vars(Enter(p)) /\ WF_vars(Leave(p))
Strong == \A p \in Procs : SF_vars(Enter(p)) /\ WF_vars(Leave(p))
Weakly == Init /\ [][Next]_vars /\ Fair
Strongly == Init /\ [][Next]_vars /\ Strong
\* Whoever waits enters.
Enters == \A p \in Procs : p \in waits ~> holder = p
Patient == [][\A p \in Procs : holder = p => holder' \in {p, Nobody}]_vars
FreeAgain == []<>(holder = Nobody)
====
"""


@pytest.mark.parametrize("engine", ["reference", "auto", "embedded"])
@pytest.mark.parametrize(("spec", "verdict"), [("Weakly", "violated"), ("Strongly", "holds")])
def test_properties_are_judged_under_fairness(tmp_path: Path, spec: str, verdict: str, engine: str) -> None:
    (tmp_path / "Lock.tla").write_text(LOCK)
    (tmp_path / "Lock.cfg").write_text(
        f"CONSTANT Procs = {{p1, p2}} SPECIFICATION {spec} PROPERTIES Patient FreeAgain Enters"
    )
    result = checked(tmp_path / "Lock.tla", engine)
    assert ("holds" if result.holds else "violated") == verdict
    assert {each.name.partition(":")[0] for each in result.violations} <= {"Enters"}


def test_expressions_of_a_user_are_in_tla(votes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    everybody = "\\A v \\in Voters : voted[v]"
    assert main(["check", str(votes), "-D", "Most=3", "--eval", "Len(log) + 1", "--eval", everybody]) == 12
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["0", "initial", "state", "2"] in lines and ["0", "initial", "state", "FALSE"] in lines
    with pytest.raises(OptionError, match="the name lug is not defined in Votes: did you mean log"):
        Expression("lug", model(votes))
    with pytest.raises(OptionError, match="cannot be read as TLA"):
        Expression("log +", model(votes))


def test_a_state_is_found_from_another_one(votes: Path) -> None:
    session = Session(model(votes))
    found = find_state(session, "\\A v \\in Voters : voted[v]", None, SearchOptions(), lambda progress: None)
    assert found.path is not None and len(found.path[1]) == 3
    again = find_state(session, "Len(log) = 2", session.starts[0], SearchOptions(), lambda progress: None)
    assert again.path is not None and len(again.path[1]) == 2 - len(session.starts[0].state.variables()["log"].python())


def test_a_specification_is_shown(votes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(votes)]) == 0
    assert "  Vote(v)\n      A voter votes, once.\n" in capsys.readouterr().out


def test_an_instance_s_actions_are_enabled_by_their_own_variables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``on'`` is a value of its own inside ``ENABLED``, whatever expression stands for ``on``."""
    (tmp_path / "Light.tla").write_text(
        "---- MODULE Light ----\nVARIABLES on, used\nTurn == on = FALSE /\\ on' = TRUE /\\ UNCHANGED used\n"
        "vars == <<on, used>>\nSpec == ~on /\\ [][Turn]_vars /\\ WF_vars(Turn)\n====\n"
    )
    text = (
        "---- MODULE Lamp ----\nEXTENDS Naturals\nVARIABLES volts, used\n"
        "on == volts > 2\nInit == volts = 0 /\\ used = 0\n"
        "Next == volts < 3 /\\ volts' = volts + 1 /\\ UNCHANGED used\nSpec == Init /\\ [][Next]_<<volts, used>>%s\n"
        "A == INSTANCE Light\nB == INSTANCE Light WITH on <- volts > 2\nBoth == A!Spec /\\ B!Spec\n====\n"
    )
    (tmp_path / "Lamp.cfg").write_text("SPECIFICATION Spec\nPROPERTY Both\nCHECK_DEADLOCK FALSE\n")
    lamp = tmp_path / "Lamp.tla"
    lamp.write_text(text % " /\\ WF_<<volts, used>>(Next)")
    assert main(["check", str(lamp)]) == 0
    lamp.write_text(text % "")
    assert main(["check", str(lamp)]) == 13
    assert "VIOLATED" in capsys.readouterr().out


def test_a_stale_translation_and_a_symmetry_that_is_not_used_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = tmp_path / "Stale.tla"
    module.write_text(
        "---- MODULE Stale ----\nEXTENDS TLC\nCONSTANT P\n"
        "(* --algorithm Stale\nvariable x = {};\n"
        "begin\n  Go: x := P;\n  Rest: skip;\nend algorithm *)\n"
        "\\* BEGIN TRANSLATION\nVARIABLES x, pc\nInit == x = {} /\\ pc = 0\n"
        "Go == x = {} /\\ x' = P /\\ pc' = pc\n\\* END TRANSLATION\nSym == Permutations(P)\nEver == <>(x = P)\n====\n"
    )
    (tmp_path / "Stale.cfg").write_text(
        "CONSTANT P = {a, b}\nINIT Init\nNEXT Go\nSYMMETRY Sym\nPROPERTY Ever\nCHECK_DEADLOCK FALSE\n"
    )
    assert main(["check", str(module)]) == 13
    complaints = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[2] for line in complaints] == [
        f"{module}:4:4: the algorithm has Rest, and its translation does not: translate it again",
        "SYMMETRY is not used: the configuration has temporal properties, which it does not preserve",
    ]


def test_a_specification_of_assumptions_alone_says_that_they_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = files.written(tmp_path, "EXTENDS Naturals\nASSUME 1 < 2\nASSUME 2 < 3")
    path.with_suffix(".cfg").write_text("")
    assert main(["check", str(path)]) == 0
    assert "HOLDS\nAll assumptions hold." in capsys.readouterr().out
    files.written(tmp_path, "EXTENDS Naturals\nASSUME 1 < 2\nASSUME 2 > 3")
    assert main(["check", str(path)]) == 10
    said = "ASSUMPTION VIOLATED  Spec.tla:4:8\n  4 | ASSUME 2 > 3\n    |        ^^^^^\n"
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ("INIT Init NEXT Endless", "Spec.tla:5:22: y': Nat is infinite"),
        ("INIT Wide NEXT Endless", "Spec.tla:6:9: x: Nat is infinite"),
    ],
)
def test_a_value_that_no_state_has_is_shown_where_it_is_given(tmp_path: Path, sections: str, message: str) -> None:
    body = "EXTENDS Naturals\nVARIABLES x, y"
    path = files.written(
        tmp_path, f"{body}\nInit == x = 1 /\\ y = 2\nEndless == x' = 1 /\\ y' = Nat\nWide == x = Nat /\\ y = 1"
    )
    path.with_suffix(".cfg").write_text(sections)
    assert message in str(check(str(path)).error)


def test_a_set_on_the_command_line_needs_its_braces(votes: Path) -> None:
    with pytest.raises(OptionError, match=r"-D Voters=v1,v2: this is no expression of TLA\+: write \{v1,v2\}"):
        model(votes, "Voters=v1,v2")
