"""Constant expressions, with TLC's answers. They try the values, the library and the compiler together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.tla import ast, interning, order
from fencepost.tla.compiler import Compiler
from fencepost.tla.modules import Specification, load
from fencepost.tla.values import EvaluationError, show

ERROR = "!"
HEADER = "EXTENDS "


def answers() -> list[tuple[str, str, str]]:
    """What a module extends, an expression in it, and the answer."""
    found, extends = [], ""
    for line in Path(__file__).with_name("answers.txt").read_text().splitlines():
        expression, tab, answer = line.partition("\t")
        if line.startswith(HEADER):
            extends = line.removeprefix(HEADER)
        elif tab:
            found.append((extends, expression, answer))
    return found


ANSWERS = answers()


def module(name: str, extends: str) -> str:
    chosen = [(place, expression) for place, (where, expression, _) in enumerate(ANSWERS) if where == extends]
    definitions = [f"Answer{place} == {expression}" for place, expression in chosen]
    header = [f"---- MODULE {name} ----", f"EXTENDS {extends}", "LOCAL INSTANCE Json", "J(v) == ToJson(v)"]
    return "\n".join([*header, *definitions, "===="])


@pytest.fixture(scope="module")
def specifications(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Specification]]:
    folder = tmp_path_factory.mktemp("answers")
    found = {}
    for number, extends in enumerate(dict.fromkeys(extends for extends, _, _ in ANSWERS)):
        (folder / f"Answers{number}.tla").write_text(module(f"Answers{number}", extends))
        found[extends] = load(folder / f"Answers{number}.tla")
    before = order.known()
    order.use(["a", "b", "c", "num", "den", "node", "edge"])
    yield found
    order.use(before)


@pytest.mark.parametrize("case", ANSWERS, ids=[expression for _, expression, _ in ANSWERS])
def test_an_expression_has_the_value_that_tlc_gives(
    specifications: dict[str, Specification], case: tuple[str, str, str]
) -> None:
    extends, _, answer = case
    definition = specifications[extends].definitions[f"Answer{ANSWERS.index(case)}"]
    assert isinstance(definition.body, ast.Expression)
    try:
        assert show(Compiler({}).expression(definition.body, definition.scope)()) == answer
    except EvaluationError:
        assert answer == ERROR


CHOICES = r"""
---- MODULE Choices ----
EXTENDS Naturals, Sequences, FiniteSets, TLC, SequencesExt, Used
First(S) == CHOOSE e \in S : TRUE
Named == First({"b", "a"})
Fresh == First({"zz", "yy", "xx"})
Words == First({"t", "m", "seq", "Print"})
Library == First({"ReplaceAt", "Max", "TLC"})
Records == First({[yy |-> 1, zz |-> 2], [yy |-> 0, zz |-> 3]})
Sets == SetToSeq({{"b"}, {"a"}, {"a", "b"}, {}})
Tuples == SetToSeq({<<"yy", "zz">>, <<"zz", "yy">>, <<"late">>})
Bound == SetToSeq({"body0" : y \in {"bound0"}} \cup {"bound0"})
Modules == SetToSeq({Inner1, Inner2, "outer"})
Changed == LET l == "let0" IN [[a |-> "exc0"] EXCEPT !["exc1"] = l]
Places == SetToSeq({"exc1", "exc0", "let0", "Places"})
====
"""
USED = r"""
---- MODULE Used ----
LOCAL INSTANCE Inside
Inner1 == "inner1"
Inner2 == InC
T == "outer"
====
"""
INSIDE = r"""
---- MODULE Inside ----
InC == "inner2"
====
"""
CHOSEN = {
    "Named": '"a"',
    "Fresh": '"yy"',
    "Words": '"t"',
    "Library": '"TLC"',
    "Records": "[yy |-> 0, zz |-> 3]",
    "Sets": '<<{}, {"a"}, {"b"}, {"a", "b"}>>',
    "Tuples": '<<<<"late">>, <<"yy", "zz">>, <<"zz", "yy">>>>',
    "Bound": '<<"bound0", "body0">>',
    "Modules": '<<"inner2", "inner1", "outer">>',
    "Places": '<<"Places", "let0", "exc0", "exc1">>',
}


def test_choose_takes_what_tlc_takes(tmp_path: Path) -> None:
    for name, text in (("Choices", CHOICES), ("Used", USED), ("Inside", INSIDE)):
        (tmp_path / f"{name}.tla").write_text(text)
    specification = load(tmp_path / "Choices.tla")
    order.use(interning.strings_of(specification, ()))
    for name, expected in CHOSEN.items():
        definition = specification.definitions[name]
        assert isinstance(definition.body, ast.Expression)
        assert show(Compiler({}).expression(definition.body, definition.scope)()) == expected, name
