"""Initial states, conjunct by conjunct: as many, in the same order and with the same errors as way by way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tla import files
from tla.layouts import EXAMPLES

from fencepost import ProtocolRaised, check
from fencepost.checker.engines.starts import combinations
from fencepost.language.loading import configured
from fencepost.semantics import LimitReached, Stepper, stepper
from fencepost.tla.protocol import find

SPECIFICATION = r"""---- MODULE Spec ----
EXTENDS Naturals
VARIABLES x, y, z, f
Few == x \in 1..3 /\ y \in 1..x
Which == z = 0 \/ z = y \/ z = 1
Init == /\ Few
        /\ Which
        /\ y # 3
        /\ \E d \in {1, 2} : f \in [{x, d} -> {0, z}]
        /\ (x > y \/ y > 1 \/ z = 0)
        /\ \E n \in {1, 2, 3} : n >= y
        /\ x \in {1, 3}
        /\ IF z = 0 THEN TRUE ELSE f[x] = z
Next == UNCHANGED <<x, y, z, f>>
===="""
CONFIGURATION = "INIT Init\nNEXT Next\n"


def model(folder: Path, text: str, config: str = CONFIGURATION) -> Any:
    path = files.written(folder, text)
    path.with_suffix(".cfg").write_text(config)
    return configured(find(str(path)), None, [])


def starts(made: Any, checking: bool) -> tuple[int, list[Any]]:
    """How many ways there are to begin, and the states. Checking mode runs the predicate for each way."""
    one = Stepper(made, checking=checking)
    states = [dict(state.variables()) for state in one.initial_states()]
    return one.starts, states


def test_as_many_as_tlc_finds(tmp_path: Path) -> None:
    result = check(model(tmp_path, SPECIFICATION))
    assert (result.distinct_states, result.generated_states, result.depth) == (18, 40, 1)


def test_a_variable_with_a_value_is_tested(tmp_path: Path) -> None:
    made = model(tmp_path, SPECIFICATION.replace(r"/\ Which", r"/\ x \in 2..5 /\ Which"))
    assert starts(made, checking=False) == starts(made, checking=True)
    assert {state["x"].shown() for state in starts(made, checking=False)[1]} == {"3"}


def test_a_view_joins_initial_states(tmp_path: Path) -> None:
    made = model(tmp_path, SPECIFICATION.removesuffix("====") + "Sum == x + y\n====", CONFIGURATION + "VIEW Sum\n")
    result = check(made)
    assert (result.distinct_states, result.generated_states, result.depth) == (3, 25, 1)  # as TLC


@pytest.mark.parametrize("name", [*EXAMPLES, ""])
def test_in_the_same_order_as_way_by_way(tmp_path: Path, name: str) -> None:
    given = (EXAMPLES[name].text, EXAMPLES[name].config) if name else (SPECIFICATION, CONFIGURATION)
    made = model(tmp_path, *given)
    assert starts(made, checking=False) == starts(made, checking=True)


@pytest.mark.parametrize(
    ("was", "instead", "message"),
    [
        (r"/\ y # 3", r"/\ y # z.none", "Spec.tla:8:"),
        (r"f \in [{x, d} -> {0, z}]", "d > 0", "does not say what f is"),
        (r"y \in 1..x", r"y \in Nat", "Nat"),
        (r"y \in 1..x", r"y \in x", "Spec.tla:4:"),
        ("z = 0 \\/ z = y", "z = Nat \\/ z = y", "Nat"),
    ],
)
def test_what_fails_is_told_with_its_place(tmp_path: Path, was: str, instead: str, message: str) -> None:
    made = model(tmp_path, SPECIFICATION.replace(was, instead))
    told, other = (str(check(made, engine="reference", checking=checking).error) for checking in (False, True))
    assert message in told and told == other


def test_without_variables_the_first_conjunct_is_a_choice_too(tmp_path: Path) -> None:
    text = "---- MODULE Spec ----\nInit == \\E x \\in {1, 2, 3} : x # 2\nNext == FALSE\n===="
    made = model(tmp_path, text)
    assert starts(made, checking=False) == starts(made, checking=True)


def test_too_many_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepper, "MAX_STARTS", 20)
    with pytest.raises(ProtocolRaised, match="more than 20 initial states"):
        Stepper(model(tmp_path, SPECIFICATION)).initial_states()


# -- all combinations of values, and what must be true of them ---------------------------------------------------------

INDUCTIVE = r"""---- MODULE Spec ----
EXTENDS Integers, TLC
CONSTANT P
VARIABLES pc, num, seen
Types == /\ pc \in [P -> {"away", "asks", "in"}]
         /\ num \in [P -> 0..3]
         /\ seen \in [P -> SUBSET P]
Inv == /\ Types
       /\ \A p \in P : pc[p] = "away" => num[p] = 0
       /\ \A p \in P : num[p] = 0 \/ 6 \div num[p] > 2
       /\ \A p \in P : pc[p] = "in" => \A q \in P \ seen[p] : q = p \/ num[q] = 0
Ask(p) == /\ pc[p] = "away"
          /\ pc' = [pc EXCEPT ![p] = "asks"]
          /\ \E n \in 0..3 : num' = [num EXCEPT ![p] = n]
          /\ UNCHANGED seen
Next == \E p \in P : Ask(p)
Few == \A p \in P : num[p] < 3
Symmetry == Permutations(P)
===="""
INDUCTIVELY = "CONSTANT P = {p1, p2}\nINIT Inv\nNEXT Next\nCHECK_DEADLOCK FALSE\n"


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few combinations are many."""
    monkeypatch.setattr("fencepost.tla.starts.MANY", 1)
    monkeypatch.setattr("fencepost.checker.engines.starts.BLOCK_ROWS", 7)


def counts(result: Any) -> tuple[Any, ...]:
    return (
        result.verdict,
        result.distinct_states,
        result.generated_states,
        result.depth,
        [len(each) for each in behaviours(result)],
    )


def behaviours(result: Any) -> list[list[Any]]:
    """The states of the counterexamples."""
    return [each.trace.states for each in result.violations]


def way_by_way(monkeypatch: pytest.MonkeyPatch, folder: Path, *text: str) -> Any:
    """The result of an engine that goes through the initial states one by one."""
    monkeypatch.setattr("fencepost.tla.starts.MANY", 1 << 40)
    made = model(folder, *text)
    assert not Stepper(made).combines
    return check(made, engine="reference", keep_going=True)


@pytest.mark.usefixtures("many")
def test_combinations_are_in_the_order_of_their_ways(tmp_path: Path) -> None:
    made = model(tmp_path, INDUCTIVE, INDUCTIVELY)
    assert Stepper(made).combines
    assert starts(made, checking=False) == starts(made, checking=True)


@pytest.mark.usefixtures("many")
def test_rows_of_combinations_are_in_the_order_of_their_ways(tmp_path: Path) -> None:
    one = Stepper(model(tmp_path, INDUCTIVE, INDUCTIVELY.replace("INIT Inv", "INIT Types")))
    rows = [one.store.normal(row) for block in combinations(one) for row in block.tolist()]
    assert rows == [state.ids for state in one.initial_states()]


@pytest.mark.usefixtures("many")
def test_a_limit_ends_combinations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Stepper(model(tmp_path, INDUCTIVE, INDUCTIVELY))
    blocks = combinations(one)
    next(blocks)
    monkeypatch.setattr(one.deadline, "_refuses", True)
    with pytest.raises(LimitReached):
        next(blocks)


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("more", ["", "INVARIANT Few\n", "SYMMETRY Symmetry\nINVARIANT Few\n"])
def test_combinations_that_are_initial_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str) -> None:
    made = model(tmp_path, INDUCTIVE, INDUCTIVELY + more)
    assert Stepper(made).combines
    found = [check(made, engine=engine, keep_going=True) for engine in ("embedded", "reference")]
    expected = way_by_way(monkeypatch, tmp_path, INDUCTIVE, INDUCTIVELY + more)
    assert [counts(each) for each in found] == [counts(expected)] * 2 and expected.distinct_states > 100
    for states in behaviours(found[0]):
        assert ["3" in state.variables()["num"].shown() for state in states] == [False, True]


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(
    ("was", "instead", "combines"),
    [
        ("Next ==", "Others == P \\ Nat\nNext ==", True),
        ("SUBSET P]", "SUBSET P] /\\ seen = seen", True),
        ("num \\in [P -> 0..3]", "num \\in {f \\in [P -> 0..3] : TRUE}", False),
        ("seen \\in [P -> SUBSET P]", "seen \\in [P -> {q \\in P : pc[q] = pc[q]}]", False),
        ("seen \\in [P -> SUBSET P]", "seen = [p \\in P |-> {}]", False),
    ],
)
def test_what_combines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, was: str, instead: str, combines: bool) -> None:
    text = INDUCTIVE.replace(was, instead)
    made = model(tmp_path, text, INDUCTIVELY)
    assert Stepper(made).combines == combines
    assert counts(check(made, engine="embedded")) == counts(way_by_way(monkeypatch, tmp_path, text, INDUCTIVELY))


@pytest.mark.usefixtures("many")
def test_a_condition_that_fails_is_told_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = INDUCTIVE.replace("num[p] = 0 \\/ 6", "6")
    made = model(tmp_path, text, INDUCTIVELY)
    errors = {str(check(made, engine=engine).error) for engine in ("embedded", "reference")}
    errors.add(str(way_by_way(monkeypatch, tmp_path, text, INDUCTIVELY).error))
    assert len(errors) == 1 and "Spec.tla:10:" in errors.pop()


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("more", ["", "SYMMETRY Symmetry\n"])
def test_a_resumed_search_numbers_combinations_again(tmp_path: Path, more: str) -> None:
    made = model(tmp_path, INDUCTIVE.replace("Few ==", 'Never == \\A p \\in P : pc[p] # "asks"\nFew =='), INDUCTIVELY)
    Path(made.file.path).with_suffix(".cfg").write_text(INDUCTIVELY + more + "INVARIANT Few\n")
    made = configured(find(made.file.path), None, [])
    whole = check(made, engine="embedded", keep_going=True)
    begun = check(made, engine="embedded", keep_going=True, max_depth=1, checkpoint=str(tmp_path / "kept"))
    assert begun.limit
    resumed = check(made, keep_going=True, resume=str(tmp_path / "kept"))
    assert counts(resumed) == counts(whole)
    states, again = ([[s.fingerprint for s in each] for each in behaviours(one)] for one in (whole, resumed))
    assert states == again


@pytest.mark.parametrize("engine", ["reference", "embedded"])
def test_a_process_with_another_hash_seed_has_the_same_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    monkeypatch.setattr("fencepost.checker.engines.hashseeds.SEEDS", (11,))
    made = model(tmp_path, INDUCTIVE.replace("0..3", "0..1"), INDUCTIVELY + "INVARIANT Inv\n")
    assert check(made, engine=engine, checking=True).error is None
