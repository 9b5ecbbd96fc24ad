"""Constant expressions, with TLC's answers. They try the values, the library and the compiler together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.tla import order
from fencepost.tla.compiler import Compiler
from fencepost.tla.modules import Specification, load
from fencepost.tla.values import EvaluationError, show

ERROR = "!"
MODULES = (
    "Reals, Sequences, Bags, FiniteSets, TLC, TLCExt, SequencesExt, FiniteSetsExt, BagsExt, Folds, Functions, Graphs"
)
MODULES += ", Relation, Bitwise, Combinatorics, VectorClocks"


def answers() -> list[tuple[str, str]]:
    lines = Path(__file__).with_name("answers.txt").read_text().splitlines()
    pairs = (line.partition("\t") for line in lines if not line.startswith("#"))
    return [(expression, answer) for expression, _, answer in pairs]


ANSWERS = answers()


@pytest.fixture(scope="module")
def specification(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Specification]:
    folder = tmp_path_factory.mktemp("answers")
    definitions = [f"Answer{place} == {expression}" for place, (expression, _) in enumerate(ANSWERS)]
    lines = ["---- MODULE Answers ----", f"EXTENDS {MODULES}", "LOCAL INSTANCE Json", "J(v) == ToJson(v)"]
    (folder / "Answers.tla").write_text("\n".join([*lines, *definitions, "===="]))
    before = order.known()
    order.use(["a", "b"])
    yield load(folder / "Answers.tla")
    order.use(before)


@pytest.mark.parametrize("place", range(len(ANSWERS)), ids=[expression for expression, _ in ANSWERS])
def test_an_expression_has_the_value_that_tlc_gives(specification: Specification, place: int) -> None:
    definition, answer = specification.definitions[f"Answer{place}"], ANSWERS[place][1]
    compiled = Compiler({}).expression(definition.body, definition.scope)  # type: ignore[arg-type]
    try:
        assert show(compiled()) == answer
    except EvaluationError:
        assert answer == ERROR
