"""Initial states, conjunct by conjunct: as many, in the same order and with the same errors as way by way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tla import files
from tla.layouts import EXAMPLES

from fencepost import ProtocolRaised, check
from fencepost.language.loading import configured
from fencepost.semantics import Stepper, stepper
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
