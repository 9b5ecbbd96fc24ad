"""A modelling language of a few lines goes through the engine's interface, on every engine and into every format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from language.rewriting import Rewriting, word

from fencepost import check
from fencepost.behaviours import evaluate, to_itf
from fencepost.behaviours.reading import read, replayed
from fencepost.checker.engines import interpreted
from fencepost.checker.engines.options import SearchOptions
from fencepost.language.contents import model_values_in, permute
from fencepost.language.decoding import decode
from fencepost.language.seam import language_of
from fencepost.language.values import ModelValue, encode, freeze, show
from fencepost.semantics import Stepper
from fencepost.states.manifest import StateSpace

SORTS = "start: aabb\nswap: ab -> ba"
FAILS = f"{SORTS}\nnever: abab"


@pytest.mark.parametrize("engine", ["reference", "embedded", "auto"])
def test_every_engine_explores_it(engine: str) -> None:
    result = check(Rewriting(SORTS), engine=engine)
    assert (result.distinct_states, result.generated_states, result.depth) == (6, 7, 5)
    assert result.complete and not result.violations


def test_a_counterexample_is_in_its_own_words() -> None:
    result = check(Rewriting(FAILS))
    assert [step.title for step in result.must_violate("never abab").steps] == ["swap(1)"]
    lines = [line.split() for line in str(result).splitlines()]
    assert ["0", "initial", "state"] in lines and ["word", "aabb"] in lines
    assert ["1", "1", "swap(1)", "rules:2"] in lines and ["word", "[2]", "a", "→", "b,", "[3]", "b", "→", "a"] in lines
    assert "rules:2" in result.to_html()


def test_a_counterexample_is_read_again() -> None:
    trace = check(Rewriting(FAILS)).must_violate("never abab")
    document = json.loads(to_itf(trace))
    assert document["states"][0]["word"] == {"#tup": ["a", "a", "b", "b"]}
    again = replayed(read(json.dumps(document)), Stepper(Rewriting(FAILS)))
    assert [step.title for step in again.steps] == [step.title for step in trace.steps]
    assert [str(each) for each in evaluate("b", trace)] == ["2", "2"]


def test_members_that_are_alike_are_exchanged() -> None:
    both = f"{SORTS}\nback: ba -> ab"
    assert check(Rewriting(both), symmetry=True).distinct_states == 3
    stepper = Stepper(Rewriting(both))
    explored = interpreted.explore(stepper, SearchOptions(symmetry=("letters",)))
    assert explored.distinct == 3


def test_checking_unpacks_it_in_other_processes() -> None:
    model = Rewriting(SORTS)
    language = language_of(model)
    packed = language.packed(model)
    assert packed is not None and language.digest(language.unpacked(packed)) == SORTS


def test_a_checkpoint_and_a_table_hold_its_values(tmp_path: Path) -> None:
    saved: dict[str, Any] = {"checkpoint": tmp_path / "saved", "checkpoint_every": 0.0}
    assert check(Rewriting(SORTS), engine="embedded", max_depth=3, **saved).limit is not None
    resumed = check(Rewriting(SORTS), engine="embedded", resume=tmp_path / "saved")
    assert (resumed.distinct_states, resumed.depth) == (6, 5)
    check(Rewriting(SORTS), engine="embedded", states=tmp_path / "states")
    rows = StateSpace(tmp_path / "states").dataset("states").to_table().to_pylist()
    assert sorted("".join(row["word"]) for row in rows) == ["aabb", "abab", "abba", "baab", "baba", "bbaa"]
    assert {row["parameters"] for row in rows} == {None, "0", "1", "2"}


def test_its_values_are_values() -> None:
    a, b = ModelValue("a"), ModelValue("b")
    value = (word("ab"), 1)
    assert freeze(value) is value and show(value) == "⟨ab, 1⟩"
    assert list(model_values_in(value)) == [a, b]
    assert permute(value, {a: b, b: a}) == (word("ba"), 1)
    assert decode(encode(value), lambda kind, text: (kind, text)) == (("w", "ab"), 1)
