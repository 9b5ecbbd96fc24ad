"""Parts of definitions."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from tla.files import loaded, module
from tla.trees import brief

from fencepost.tla import ast, parts
from fencepost.tla.errors import SpecificationError
from fencepost.tla.scopes import Chain
from fencepost.tla.symbols import Defined

DEFINITIONS = r"""
EXTENDS Naturals
CONSTANT K
And(x) == x = 1 /\ x = 2
Or(x) == \/ first :: x = 1
         \/ second :: x = 2
Some == \E z, w \in {1} : z + w = 2
Deep(x) == \E z \in {1} : lab(z) :: z = x
If == IF 1 = 2 THEN 3 ELSE 4
Case == CASE 1 = 2 -> 3 [] OTHER -> 5
Record == [a |-> 1, b |-> 2]
Let == LET Twice(x) == x + x IN Twice(2)
f[x \in {1}] == x + 1
I(c) == INSTANCE Other
"""

OTHER = module("Other", "CONSTANT c", "Pair(y) == <<c, y>>")


def part(folder: Path, text: str) -> tuple[Defined, tuple[ast.Expression, ...]]:
    """What a part of one of the definitions is."""
    spec = loaded(folder, f"{DEFINITIONS}\nUse == {text}", OTHER)
    use = spec.definitions["Use"]
    node = use.body.operator if isinstance(use.body, ast.Apply) else use.body
    assert isinstance(node, ast.Part | ast.Qualified)
    first = parts.resolve(node, cast(Chain, use.scope))
    assert parts.resolve(node, cast(Chain, use.scope)) is first
    return first


@pytest.mark.parametrize(
    ("text", "parameters", "given", "body"),
    [
        ("And(3)!1", "x", "3", "(= x 1)"),
        ("And(3)!<<", "x", "3", "(= x 1)"),
        ("And(3)!2!>>", "x", "3", "2"),
        ("And(3)!:", "x", "3", r"(/\ (= x 1) (= x 2))"),
        ("Or(1)!second", "x", "1", "(= x 2)"),
        ("Or(1)!second!1", "x", "1", "x"),
        ("Some!1", "", "", "SetOf([Number(1)])"),
        ("Some!(5, 6)", "z w", "5 6", "(= (+ z w) 2)"),
        ("Some!(5, 6)!1!2", "z w", "5 6", "w"),
        ("Deep(1)!lab(2)", "x z", "1", "(= z x)"),
        ("If!2", "", "", "3"),
        ("Case!1!2", "", "", "3"),
        ("Case!2!2", None, None, None),
        ("Record!2", "", "", "2"),
        ("Let!1", "", "", "(Twice 2)"),
        ("f!(7)", "x", "7", "(+ x 1)"),
        ("f!1", "", "", "SetOf([Number(1)])"),
        ("I(1)!Pair(2)!1", "c y", "1 2", "c"),
    ],
)
def test_a_part(text: str, parameters: str | None, given: str | None, body: str | None, tmp_path: Path) -> None:
    if parameters is None:
        with pytest.raises(SpecificationError):
            part(tmp_path, text)
        return
    symbol, arguments = part(tmp_path, text)
    assert [each.name for each in symbol.parameters] == parameters.split()
    assert [brief(each) for each in arguments] == (given or "").split()
    assert brief(symbol.body) == body


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("And(3)!3", "And has 2 parts, and 3 is chosen"),
        ("Some!(1)", "Some binds 2 names, and 1 values are given"),
        ("If!(1)", "If binds no names"),
        ("Or(1)!third", "Or has no part third"),
        ("Case!1", "an arm of CASE has the parts 1 and 2"),
        ("And!1", "takes 1 argument, and a value is expected"),
        ("K!1", "K is no definition"),
    ],
)
def test_no_such_part(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecificationError, match=rf"Spec.tla:\d+:8: .*{message.replace('(', '.')}"):
        part(tmp_path, text)
