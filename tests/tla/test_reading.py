"""Levels of expressions, and what cannot be evaluated."""

from __future__ import annotations

from pathlib import Path

import pytest
from tla.files import loaded, module

from fencepost.tla import ast, modules, reading
from fencepost.tla.errors import SpecificationError

SPEC = r"""
VARIABLES v, w
CONSTANT k
Constant == \A x \in k : x = 1
State == <<v, Constant>>
Action == v' = k /\ UNCHANGED w
Op(x) == LET y == x IN <<y, k>>
Enabled == ENABLED Action
Spec == State /\ [][Action]_<<v, w>>
Fair == WF_v(Action)
I == INSTANCE Other WITH c <- v
J == INSTANCE Other WITH c <- 1
"""


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("Constant", 0),
        ("State", 1),
        ("Action", 2),
        ("[Action]_v", 2),
        ("Op(k)", 0),
        ("Op(v)", 1),
        ("Op(v')", 2),
        ("Fair", 3),
        ("Enabled", 1),
        ("Spec", 3),
        ("v ~> w", 3),
        (r"\EE x : x = 1", 3),
        ("I!Get", 1),
        ("J!Get", 0),
        ("State!2", 0),
        (r"LET a == v' IN \E x \in {a} : x", 2),
    ],
)
def test_levels(text: str, level: int, tmp_path: Path) -> None:
    spec = loaded(tmp_path, f"{SPEC}\nUse == {text}", module("Other", "CONSTANT c", "Get == c"))
    use = spec.definitions["Use"]
    assert isinstance(use.body, ast.Expression)
    assert reading.level(use.body, use.scope) == level


def refused(spec: modules.Specification, name: str) -> None:
    symbol = spec.definitions[name]
    reading.refuse_unsupported([(symbol.body, symbol.scope)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1.5", "4:6: 1.5 is a real number"),
        (r"\EE x : x = 1", r"4:6: \\EE hides a variable"),
        ("(v = 1) -+-> (v = 2)", "-\\+-> is not supported"),
        ("RandomElement({1})", "4:6: RandomElement is not supported"),
        (r"LET a == RandomElement({1}) IN \E x \in {2} : x = a", "4:15: RandomElement is not supported"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_where_it_is_used(text: str, message: str, tmp_path: Path) -> None:
    spec = loaded(tmp_path, f"EXTENDS TLC, Reals\nVARIABLE v\nA == {text}\nB == A\nC == 1")
    refused(spec, "C")
    with pytest.raises(SpecificationError, match=message):
        refused(spec, "B")


def test_what_the_configuration_replaces_is_not_refused(tmp_path: Path) -> None:
    spec = loaded(tmp_path, "EXTENDS TLC\nFirst(S) == CHOOSE x \\in S : TRUE\nA == RandomElement({1})")
    with pytest.raises(SpecificationError):
        refused(spec, "A")
    refused(spec.with_replacements(modules.Replacements(names={"RandomElement": "First"})), "A")
