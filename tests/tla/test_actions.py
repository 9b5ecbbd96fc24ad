"""What actions do. The numbers of states are TLC's: distinct, generated, depth."""

from __future__ import annotations

import tempfile
from collections.abc import Collection
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tla.compiled import Texts
from tla.explorer import Model

from fencepost.tla import roots
from fencepost.tla.actions import Action
from fencepost.tla.runtime import Choose, Successor, ways_through
from fencepost.tla.values import EMPTY_SET, EvaluationError, Sequence, Value

Relation = Collection[tuple[int, int]]
RELATIONS = st.sets(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=5)


def pairs(relation: Relation) -> str:
    """A relation, in TLA+."""
    return "{" + ", ".join(f"<<{one}, {other}>>" for one, other in relation) + "}"


SPECIFICATIONS = Path(__file__).with_name("specifications")

CORNERS = {
    "After": (1, 1, 1),
    "Angled": (2, 2, 2),
    "Before": (1, 1, 1),
    "Between": (1, 1, 1),
    "Bounds": (4, 5, 4),
    "Boxed": (3, 6, 3),
    "Cases": (4, 6, 3),
    "Chosen": (4, 9, 3),
    "DeeplyGuarded": (13, 40, 5),
    "Disjuncts": (4, 6, 4),
    "Enabled": (1, 1, 1),
    "EnabledToo": (1, 1, 1),
    "Equivalent": (1, 1, 1),
    "Every": (4, 19, 4),
    "Guarded": (7, 11, 4),
    "If": (8, 11, 5),
    "Implied": (4, 7, 4),
    "InDefinition": (4, 5, 4),
    "Instance": (4, 6, 3),
    "LambdaChoice": (4, 6, 4),
    "LetAction": (4, 9, 3),
    "LetTuple": (4, 5, 4),
    "LetValue": (5, 6, 5),
    "Members": (3, 8, 2),
    "Named": (4, 13, 4),
    "NamedAfter": (4, 5, 4),
    "Negated": (4, 4, 4),
    "Nested": (4, 5, 4),
    "NoMembers": (4, 5, 4),
    "OperatorChoice": (3, 4, 3),
    "Parallel": (4, 5, 4),
    "Parametrised": (4, 9, 3),
    "Passed": (4, 5, 4),
    "PassedChoice": (1, 1, 1),
    "PassedLambda": (2, 3, 2),
    "PassedOperator": (4, 5, 4),
    "PassedPrime": (4, 5, 4),
    "PrimedExpression": (6, 7, 6),
    "Queue": (24, 33, 17),
    "Recursive": (4, 5, 4),
    "Subsets": (24, 145, 5),
    "Tested": (4, 4, 4),
    "TestedFirst": (3, 3, 3),
    "Tuples": (4, 17, 2),
}


FREE = {
    "After": (20, 20, 4),
    "Boxed": (14, 28, 3),
    "Chosen": (28, 63, 3),
    "Members": (16, 41, 2),
    "Named": (21, 53, 4),
    "PrimedExpression": (11, 18, 4),
    "Queue": (57, 84, 13),
    "Subsets": (98, 595, 5),
}


APPLIED = {
    "After": (4, 5, 4),
    "Between": (4, 19, 4),
    "Branches": (4, 5, 4),
    "Constant": (4, 9, 4),
    "Enabling": (4, 5, 4),
    "Endless": (4, 10, 4),
    "EndlessToo": (4, 10, 4),
    "Evaluated": (4, 5, 4),
    "EvaluatedToo": (4, 5, 4),
    "Every": (4, 25, 4),
    "Guarded": (4, 33, 2),
    "Guarding": (2, 4, 2),
    "Implied": (4, 9, 4),
    "InLet": (4, 103, 4),
    "Inline": (4, 19, 4),
    "InlineConstant": (4, 10, 4),
    "Instance": (4, 19, 4),
    "InstanceConstant": (4, 5, 4),
    "InstanceParameter": (4, 19, 4),
    "InstanceToo": (4, 7, 4),
    "LetFunction": (4, 19, 4),
    "LetValue": (4, 19, 4),
    "Made": (4, 7, 4),
    "Negated": (1, 1, 1),
    "OfState": (4, 19, 4),
    "PairsToo": (1, 1, 1),
    "Primes": (4, 19, 2),
    "Recursive": (4, 9, 4),
    "Second": (4, 19, 4),
    "Several": (1, 1, 1),
    "TupledToo": (1, 1, 1),
    "Twice": (4, 9, 4),
}


@pytest.mark.parametrize("name", APPLIED)
def test_a_function_applied_as_a_conjunct_generates_the_states_that_tlc_generates(name: str) -> None:
    model = Model(SPECIFICATIONS / "Applied.tla", f"INIT Init\nNEXT {name}\nCONSTRAINT Within")
    assert model.search().numbers == APPLIED[name]


def test_a_function_applied_as_a_conjunct_has_a_domain() -> None:
    model = Model(SPECIFICATIONS / "Applied.tla", "INIT Init\nNEXT Domain\nCONSTRAINT Within")
    with pytest.raises(EvaluationError, match=r"Applied.tla:13:7: a function is applied to 4, which is not in its"):
        model.search()


@pytest.mark.parametrize("name", FREE)
def test_many_initial_states_generate_the_states_that_tlc_generates(name: str) -> None:
    model = Model(SPECIFICATIONS / "Corners.tla", f"INIT Free\nNEXT {name}\nCONSTRAINT Within")
    assert model.search().numbers == FREE[name]


@pytest.mark.parametrize("name", CORNERS)
def test_a_formula_generates_the_states_that_tlc_generates(name: str) -> None:
    model = Model(SPECIFICATIONS / "Corners.tla", f"INIT Init\nNEXT {name}\nCONSTRAINT Within")
    assert model.search().numbers == CORNERS[name]


def test_a_puzzle_is_solved_in_as_many_steps_as_tlc_takes() -> None:
    model = Model(SPECIFICATIONS / "Jugs.tla", "INIT Init\nNEXT Next\nINVARIANTS TypeOK NotSolved")
    counts = model.search()
    assert counts.numbers == (16, 97, 8)
    assert counts.violated == {"NotSolved": 7}


ACTIONS = """
A(n) == x' = n /\\ UNCHANGED y
B(n, m) == x' = n + m /\\ y' = m
C == \\E n \\in {y, 1} : A(n)
Next == \\/ \\E n \\in {1, 2} : A(n) \\/ \\E <<a, b>> \\in {<<n, 5>>} : B(a, b)
        \\/ C
        \\/ \\E n \\in {} : A(n)
        \\/ x' = 1 /\\ y' = 2
Half == x' = 1
Late == y' = x' /\\ x' = 1
Wrong == x' = 1 /\\ y' = [a |-> x].b
Same == x = x /\\ \\A n \\in {1} : n = 1
Inv == /\\ x > 0
       /\\ Same /\\ ~(y > 0)
"""


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Texts:
    return Texts(tmp_path_factory.mktemp("actions"), ACTIONS)


def _action(texts: Texts, name: str) -> Action:
    body, symbol = texts.defined(name)
    return texts.compiler.action(body, symbol.scope, name)


def _successors(run: roots.Root | Action, now: tuple[Value, ...]) -> list[tuple[Value, ...]]:
    def way(choose: Choose) -> Successor | None:
        then = Successor(("x'", "y'"))
        return then if run(now, then, choose) else None

    return [then.values() for then in ways_through(way) if then is not None]


def test_next_is_taken_apart_into_actions_with_the_names_of_tlc(texts: Texts) -> None:
    body, symbol = texts.defined("Next")
    found = roots.actions(body, symbol.scope, "Next", texts.compiler)
    assert [each.title for each in found] == ["A(1)", "B(1, 5)", "A(2)", "B(2, 5)", "C", "Next", "Next"]
    assert [_successors(each, (7, 8)) for each in found[:5]] == [
        [(1, 8)],
        [(6, 5)],
        [(2, 8)],
        [(7, 5)],
        [(1, 8), (8, 8)],
    ]
    assert not _successors(found[5], (7, 8))  # there is no member of {}
    assert _successors(found[6], (7, 8)) == [(1, 2)]


def test_an_invariant_is_taken_apart_at_its_conjuncts(texts: Texts) -> None:
    body, symbol = texts.defined("Inv")
    parts = [texts.compiler.expression(node, scope) for node, scope in roots.conjuncts(body, symbol.scope)]
    assert [part((1, 2), None) for part in parts] == [True, True, True, False]


def test_a_variable_without_a_value_is_named(texts: Texts) -> None:
    with pytest.raises(EvaluationError, match=r"Test.tla:12:9: Half does not say what y' is"):
        _successors(_action(texts, "Half"), (1, 2))


def test_a_variable_is_not_read_before_it_has_a_value(texts: Texts) -> None:
    with pytest.raises(EvaluationError, match=r"Test.tla:13:14: x' is used before it has a value"):
        _successors(_action(texts, "Late"), (1, 2))


def test_an_error_in_an_action_has_a_place(texts: Texts) -> None:
    with pytest.raises(EvaluationError, match=r"Test.tla:14:25: the record \[a \|-> 1\] has no field b"):
        _successors(_action(texts, "Wrong"), (1, 2))


def test_options_that_a_guard_rejects_are_not_chosen(texts: Texts) -> None:
    model = Model(SPECIFICATIONS / "Corners.tla", "INIT Init\nNEXT Guarded")
    asked: list[int] = []

    def choose(options: list[Value]) -> Value:
        asked.append(len(options))
        return options[0]

    assert model.step((1, EMPTY_SET, Sequence()), Successor(("x'", "y'", "z'")), choose)
    assert asked == [2]  # of the eight subsets


def test_composed_actions_go_through_a_state_between(tmp_path: Path) -> None:
    texts = Texts(tmp_path, "Up == x' = x + 1 /\\ y' \\in {x, x'}\nTest == Up \\cdot Up")
    assert set(_successors(_action(texts, "Test"), (1, 0))) == {(3, 2), (3, 3)}


@given(first=RELATIONS, second=RELATIONS)
def test_a_composition_is_the_product_of_relations(first: Relation, second: Relation) -> None:
    """As a step that gives values, as a test of two states, and inside ``ENABLED``."""
    with tempfile.TemporaryDirectory() as folder:
        definitions = [
            f"First == \\E pair \\in {pairs(first)} : x = pair[1] /\\ x' = pair[2] /\\ y' = y + 1",
            f"Second == \\E pair \\in {pairs(second)} : x = pair[1] /\\ x' = pair[2] /\\ y' = y + 1",
            "Gives == First \\cdot Second",
            "Tests == x' \\in 0..9 /\\ y' \\in 0..9 /\\ (First \\cdot Second)",
            "Asks == ENABLED (First \\cdot Second) /\\ x' = x /\\ y' = y",
        ]
        texts = Texts(Path(folder), "\n".join(definitions))
        for x in range(3):
            ends = {end for start, middle in first for again, end in second if (start, again) == (x, middle)}
            assert set(_successors(_action(texts, "Gives"), (x, 0))) == {(end, 2) for end in ends}
            assert set(_successors(_action(texts, "Tests"), (x, 0))) == {(end, 2) for end in ends}
            assert set(_successors(_action(texts, "Asks"), (x, 0))) == ({(x, 0)} if ends else set())


@pytest.mark.parametrize(
    ("action", "successors"),
    [
        ("LET old == x IN old < 9 /\\ (Up \\cdot (x' = x + old /\\ y' = y))", {(22, 0)}),
        ("Given(x)", {(22, 0)}),
        ("y' = 5 /\\ (Up \\cdot (x' = x + y))", {(11, 5)}),
        ("y' = 5 /\\ ((Up /\\ y' = 6) \\cdot (x' = x))", set()),
    ],
)
def test_the_state_between_is_the_one_of_tlc(tmp_path: Path, action: str, successors: set[tuple[int, int]]) -> None:
    """A name has the value that it has there, and what is changed before the composition is not changed there yet."""
    up, given_one = "Up == x' = x + 10 /\\ y' = y", "Given(v) == v < 9 /\\ (Up \\cdot (x' = x + v /\\ y' = y))"
    texts = Texts(tmp_path, f"{up}\n{given_one}\nTest == {action}")
    assert set(_successors(_action(texts, "Test"), (1, 0))) == successors


def test_an_initial_predicate_gives_values_to_variables(tmp_path: Path) -> None:
    texts = Texts(tmp_path, "Set(v, S) == v \\in S\nTest == Set(x, {1, 2}) /\\ y = x + 1 /\\ x < 5")
    body, symbol = texts.defined("Test")
    initial = texts.compiler.initial(body, symbol.scope, "Test")

    def way(choose: Choose) -> Successor | None:
        state = Successor(("x", "y"))
        return state if initial(state, None, choose) else None

    assert [state.values() for state in ways_through(way) if state] == [(1, 2), (2, 3)]
