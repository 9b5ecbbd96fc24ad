"""Specifications and properties, taken apart into what an engine judges."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tla import files
from tla.explorer import Model

from fencepost import check
from fencepost.behaviours.lasso import truths
from fencepost.errors import Explained
from fencepost.language.temporal import Formula, Leaf, Now, Step
from fencepost.tla import ast, temporal
from fencepost.tla.errors import SpecificationError

ABSTRACT = r"""
---- MODULE Abstract ----
EXTENDS Naturals
VARIABLE n
Init == n = 0
Up == n < 2 /\ n' = n + 1
Spec == Init /\ [][Up]_n /\ WF_n(Up)
====
"""

CLOCK = r"""
---- MODULE Clock ----
EXTENDS Naturals
CONSTANT Ps
VARIABLES x, y
vars == <<x, y>>
Init == x = 0 /\ y = 0
Step(p) == x' = (x + p) % 3 /\ UNCHANGED y
Other == y' = 1 - y /\ UNCHANGED x
Next == Other \/ \E p \in Ps : Step(p)
Fair == \A p \in Ps : WF_vars(Step(p)) /\ SF_x(Other \/ Step(p))
Spec == [][Next]_vars /\ Init /\ Fair
Frozen == Init /\ WF_vars(FALSE)
Twice == Spec /\ [][Other]_y
Odd == Init /\ [](x = 0)
A == INSTANCE Abstract WITH n <- x
Refines == A!Spec
Small == [](x < 3)
Grows == [][y' > y]_y
Start == x = 0
Mixed == Small /\ (\A p \in Ps : [](x = p ~> y = 1)) /\ Grows
Nested == []<>(x = 0) => []<>(y = 1) \/ <>[](\E p \in Ps : x = p)
Steps == []<><<Other>>_vars
Chosen == IF TRUE THEN <>(x = 2) ELSE FALSE
Some == \E p \in Ps : <>[](x = p)
None == \E p \in {} : <>[](x = p)
Equal == <>(y = 1) <=> ~[](y = 0)
OpenSet == \A p \in 0..x : <>(x = p)
Primed == x' = 1
Guarantee == <>(x = 1) -+-> <>(y = 1)
Broken == []<>(x) \/ <>(y = 1)
Common == []<>(x = 0) /\ <>[](y = 1) /\ (x = 1 ~> y = 1) /\ <>(y = 1)
====
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("clock")
    (folder / "Abstract.tla").write_text(ABSTRACT.strip())
    path = Path(folder / "Clock.tla")
    path.write_text(CLOCK.strip())
    return Model(path, "CONSTANT Ps = {1, 2}\nINIT Init\nNEXT Next\n")


def behaviour(model: Model, name: str) -> temporal.Behaviour:
    return temporal.behaviour(*body(model, name), model.compiler)


def body(model: Model, name: str) -> tuple[ast.Expression, Any]:
    symbol = model.specification.definitions[name]
    assert not isinstance(symbol.body, ast.Function)
    return symbol.body, symbol.scope


def properties(model: Model, name: str) -> list[temporal.Judged]:
    return temporal.properties(name, *body(model, name), model.compiler)


def at(*values: int) -> SimpleNamespace:
    return SimpleNamespace(reader=values)


def is_true(formula: Formula, states: list[tuple[int, int]], loop: int) -> bool:
    """Whether a formula is true for the behaviour that repeats ``states[loop:]``, up to that state again."""
    after = states[1:]
    if loop == len(states) - 1:
        after = [*after, states[-1]]

    def leaf(of: Leaf) -> list[bool]:
        if isinstance(of, Now):
            return [of.function(at(*state)) for state, _ in zip(states, after, strict=False)]
        assert isinstance(of, Step)
        return [a != b and of.function(at(*a), at(*b)) for a, b in zip(states, after, strict=False)]

    return truths(formula, leaf, len(after), loop)[0]


def whole(model: Model, name: str) -> Formula:
    (one,) = properties(model, name)
    assert one.formula is not None
    return one.formula


# -- specifications ----------------------------------------------------------------------------------------------------


def test_a_specification_is_taken_apart_in_any_order(model: Model) -> None:
    found = behaviour(model, "Spec")
    assert [each.node.place.line for each in found.initial] == [11]
    assert found.next is not None and isinstance(found.next.node, ast.Name) and found.next.node.text == "Next"
    assert [(each.steps.strong, each.steps.title) for each in found.fairness] == [
        (False, "Step(1)"), (True, "line 10"), (False, "Step(2)"), (True, "line 10"),
    ]  # fmt: skip


def test_fairness_is_of_steps_that_change_the_subscript(model: Model) -> None:
    weak, strong, *_ = (each.steps for each in behaviour(model, "Spec").fairness)
    assert weak.step is not None and weak.enabled is not None
    assert weak.step(at(0, 0), at(1, 0)) and not weak.step(at(0, 0), at(2, 0)) and weak.enabled(at(0, 0))
    assert strong.step is not None and strong.step(at(0, 0), at(1, 0))
    assert not strong.step(at(0, 0), at(0, 1)), "x does not change"


def test_fairness_of_actions_is_told_by_the_actions(model: Model) -> None:
    weak, strong, other, _ = behaviour(model, "Spec").fairness
    keys = {root.title: root.key for root in model.roots}
    assert weak.actions == frozenset([keys["Step(1)"]]) and other.actions == frozenset([keys["Step(2)"]])
    assert strong.actions is None, "x alone is not every variable"


def test_a_specification_without_steps_has_none(model: Model) -> None:
    found = behaviour(model, "Frozen")
    fair = found.fairness[0].steps
    assert found.next is None and fair.enabled is not None and not fair.enabled(at(0, 0))


@pytest.mark.parametrize(("name", "message"), [("Twice", "another one"), ("Odd", "cannot assume")])
def test_what_is_no_specification_is_refused(model: Model, name: str, message: str) -> None:
    with pytest.raises(SpecificationError, match=message):
        behaviour(model, name)


# -- properties --------------------------------------------------------------------------------------------------------


def test_each_part_of_a_property_is_the_simplest_thing(model: Model) -> None:
    kinds = {
        name: [each.kind for each in properties(model, name)]
        for name in ("Mixed", "Common", "Refines", "Start", "Nested")
    }
    assert kinds == {
        "Mixed": ["invariant", "temporal", "temporal", "step_invariant"],
        "Common": ["always_eventually", "eventually_always", "leads_to", "temporal"],
        "Refines": ["initially", "step_invariant", "temporal"],
        "Start": ["initially"],
        "Nested": ["temporal"],
    }


def test_invariants_and_steps_are_functions(model: Model) -> None:
    small, _, _, grows = (each.function for each in properties(model, "Mixed"))
    assert small is not None and small(at(2, 0)) and not small(at(3, 0))
    assert grows is not None and grows(at(0, 0), at(1, 0)) and grows(at(0, 0), at(0, 1))
    assert not grows(at(0, 1), at(0, 0))


def test_a_refinement_is_its_start_its_steps_and_its_fairness(model: Model) -> None:
    start, steps, fair = properties(model, "Refines")
    assert start.function is not None and start.function(at(0, 1)) and not start.function(at(1, 1))
    assert steps.function is not None
    assert steps.function(at(0, 0), at(1, 0)) and steps.function(at(1, 0), at(1, 1))
    assert not steps.function(at(2, 0), at(0, 0))
    assert fair.formula is not None
    assert is_true(fair.formula, [(0, 0), (1, 0), (2, 0)], 2), "not enabled any more"
    assert not is_true(fair.formula, [(0, 0), (1, 0), (1, 1), (1, 0)], 1), "enabled, and never taken"


ROUND = [(0, 0), (1, 0), (2, 0), (0, 0)]
TOGGLING = [(0, 0), (0, 1), (0, 0)]


@pytest.mark.parametrize(
    ("name", "states", "loop", "expected"),
    [
        ("Nested", ROUND, 0, False),
        ("Nested", TOGGLING, 0, True),
        ("Nested", [(0, 0), (1, 0)], 1, True),
        ("Steps", TOGGLING, 0, True),
        ("Steps", ROUND, 0, False),
        ("Chosen", ROUND, 0, True),
        ("Chosen", TOGGLING, 0, False),
        ("Some", [(0, 0), (1, 0)], 1, True),
        ("Some", ROUND, 0, False),
        ("None", [(0, 0)], 0, False),
        ("Equal", TOGGLING, 0, True),
        ("Equal", ROUND, 0, True),
    ],
)
def test_formulas_mean_what_they_say(
    model: Model, name: str, states: list[tuple[int, int]], loop: int, expected: bool
) -> None:
    assert is_true(whole(model, name), states, loop) is expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("OpenSet", "needs a set that is the same in every state"),
        ("Primed", "an action among temporal operators"),
        ("Guarantee", "is not supported"),
    ],
)
def test_what_is_not_judged_is_refused_with_its_place(model: Model, name: str, message: str) -> None:
    with pytest.raises(SpecificationError, match=rf"Clock.tla:\d+:\d+: .*{message}"):
        properties(model, name)


def test_an_error_in_a_leaf_names_the_property(model: Model) -> None:
    with pytest.raises(Explained, match=r"(?s)Clock.tla.*while evaluating property Broken"):
        is_true(whole(model, "Broken"), [(0, 0)], 0)


APPLYING = r"""---- MODULE Applying ----
EXTENDS Naturals
VARIABLES x, y
vars == <<x, y>>
A == x' = (x + 1) % 3 /\ y' = y
B == y' = 1 - y /\ x' = x
I(c) == INSTANCE Leading WITH n <- x
J(n) == INSTANCE Leading WITH c <- 1
LeadsTo(P, Q) == P ~> Q
Grows(a) == [][a' >= a]_vars
Within(a, k) == [](a <= k) /\ [][a' # a]_vars
Always(P) == []P
Again(P) == Always(P)
Often(P) == []<>P
Nested(P, k) == P /\ []<>(x = k)
Twice(P(_)) == P(0) /\ P(1)
Defining(P) == LET q(k) == P /\ y = k IN [](<>q(0))
Fair(N, v) == WF_v(N) /\ [][N \/ B]_<<x, v>>
Spec == x = 0 /\ y = 0 /\ [][A \/ B]_vars /\ WF_vars(A)
Prop == {formula}
===="""

LEADING = r"""---- MODULE Leading ----
EXTENDS Naturals
VARIABLE n
CONSTANT c
Here == n = c
Leads(P) == Here ~> P /\ n < 2
===="""


@pytest.mark.parametrize(
    ("formula", "code"),
    [
        ("LeadsTo(x = 0, x = 1)", 0),
        ("LeadsTo(x = 0, y = 1)", 13),
        (r"\A k \in 0..2 : LeadsTo(x = k, x # k)", 0),
        (r"\A k \in 0..1 : LeadsTo(y = k, y # k)", 13),
        ("Grows(y * 0)", 0),
        ("Grows(x)", 13),
        ("Within(3 * x + y, 7)", 0),
        ("Within(3 * x + y, 6)", 12),
        ("Within(x, 2)", 13),
        ("Always(x < 3)", 0),
        ("Always(x < 2)", 12),
        (r"Always([A \/ B]_vars)", 0),
        ("Again([B]_vars)", 13),
        ("Often(<<A>>_vars)", 0),
        ("Often(<<B>>_vars)", 13),
        ("Nested(Nested([]<>(x = 0), 1), 2)", 0),
        ("Nested(Nested([]<>(y = 0), 1), 2)", 13),
        ("Twice(LAMBDA k : []<>(x = k))", 0),
        ("Twice(LAMBDA k : []<>(y = k))", 13),
        ("Defining(x = x)", 13),
        ("Fair(A, y)", 0),
        ("Fair(B, y)", 13),
        ("I(1)!Leads(x # 1)", 0),
        ("I(1)!Leads(y = 1)", 13),
    ],
)
def test_temporal_formulas_are_arguments_too(tmp_path: Path, formula: str, code: int) -> None:
    assert check(applying(tmp_path, formula)).exit_code == code  # as TLC's


def applying(folder: Path, formula: str) -> str:
    (folder / "Leading.tla").write_text(LEADING)
    path = files.written(folder, APPLYING.replace("{formula}", formula))
    path.with_suffix(".cfg").write_text("SPECIFICATION Spec PROPERTY Prop CHECK_DEADLOCK FALSE")
    return str(path)


def test_an_argument_of_an_instance_is_the_same_in_every_state(tmp_path: Path) -> None:
    with pytest.raises(SpecificationError, match="this temporal formula is not supported"):
        check(applying(tmp_path, "J(x)!Leads(x # 1)"))


ASSUMING = r"""---- MODULE Assuming ----
EXTENDS Naturals
VARIABLE x
Init == x = 0
Up == x' = (x + 1) % 4
Jump == x' = 2
Next == Up \/ Jump
Plain == Init /\ [][Next]_x /\ WF_x(Next)
Assumed == Plain /\ <>[][Up]_x
Often == Plain /\ []<>(x = 1)
Boxed == Plain /\ [](x < 4)
Conditional == Plain /\ \A n \in {1, 2} : (n = 1) => SF_x(Up)
Reaches == []<>(x = 3)
Returns == []<>(x = 0)
Small == [](x < 3)
Several == []<>(x = 3) /\ []<>(x = 0)
====
"""


@pytest.mark.parametrize("specification", ["Plain", "Assumed", "Often", "Conditional"])
@pytest.mark.parametrize("name", ["Reaches", "Returns", "Small"])
def test_what_a_specification_assumes_counts_for_temporal_properties(
    tmp_path: Path, specification: str, name: str
) -> None:
    path = files.written(tmp_path, ASSUMING)
    path.with_suffix(".cfg").write_text(f"SPECIFICATION {specification} PROPERTY {name}")
    code = {"Reaches": 0, "Small": 12, "Returns": 13 if specification in ("Plain", "Conditional") else 0}
    assert check(str(path)).exit_code == code[name]  # as TLC's


def test_a_specification_assumes_no_invariant(tmp_path: Path) -> None:
    path = files.written(tmp_path, ASSUMING)
    path.with_suffix(".cfg").write_text("SPECIFICATION Boxed PROPERTY Reaches")
    with pytest.raises(SpecificationError, match=r"Assuming.tla:11:19: a specification cannot assume \[\]P"):
        check(str(path))


def test_all_parts_of_a_property_are_selected_by_its_name(tmp_path: Path) -> None:
    path = files.written(tmp_path, ASSUMING)
    path.with_suffix(".cfg").write_text("SPECIFICATION Plain PROPERTIES Small Several")
    result = check(str(path), invariants=["Several"])
    assert [each.name for each in result.violations] == ["Several:16:27"]
