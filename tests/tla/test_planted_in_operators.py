"""A fault in any operator is noticed by an answer of TLC's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import replace
from typing import Any

import pytest
from tla.test_answers import ANSWERS, ERROR, specifications

from fencepost.tla import ast, compiler, library
from fencepost.tla.library.definitions import Definition
from fencepost.tla.modules import Specification
from fencepost.tla.values import EvaluationError, FunctionValue, Sequence, Set, SetValue, Value, function, show

__all__ = ["specifications"]

UNASKED = {"Real", "Path", "TLCModelValue", "CausalOrder"}
"""TLC does not evaluate them, or gives a value that is compared with itself alone, or one that depends on hashes."""
RUNTIME = ("field products functions records functional chosen some every apply updated filtered big_union").split()
"""What the compiler calls for the constructs of the language: ``chosen`` for CHOOSE, ``updated`` for EXCEPT."""


def wrong(value: Any) -> Any:
    """A value that is not the right one."""
    if type(value) is bool:
        return not value
    if type(value) is int:
        return value + 1
    if type(value) is str:
        return f"{value}, not"
    if isinstance(value, SetValue):
        return Set(value.explicit().in_order()[1:] if value.size() else [0])
    if isinstance(value, FunctionValue):
        whole = value.explicit()
        if isinstance(whole, Sequence):
            return Sequence(whole.values[1:] if whole.values else [0])
        return function(dict(list(whole.items())[1:]))
    return value


def broken(right: Callable[..., Any]) -> Callable[..., Any]:
    """A function that gives wrong values, and wrong errors."""

    def planted(*arguments: Any) -> Any:
        try:
            return wrong(right(*arguments))
        except EvaluationError:
            return 0

    return planted


def answer(found: Specification, place: int) -> str:
    definition = found.definitions[f"Answer{place}"]
    assert isinstance(definition.body, ast.Expression)
    try:
        return show(compiler.Compiler({}).expression(definition.body, definition.scope)())
    except Exception:
        return ERROR


def is_noticed(specifications: dict[str, Specification], name: str = "") -> bool:
    """Whether the value of an expression is not TLC's. ``name``: the word that it has, if any."""
    return any(
        name in expression and answer(specifications[extends], place) != expected
        for place, (extends, expression, expected) in enumerate(ANSWERS)
    )


def test_without_a_fault_nothing_is_noticed(specifications: dict[str, Specification]) -> None:
    assert not is_noticed(specifications)


def operators() -> Iterator[Any]:
    for module in library.modules():
        for name, defined in library._MODULES[module].own.items():
            if not (defined.refused or defined.is_impure or defined.reads_outside or name in UNASKED):
                yield pytest.param(library._MODULES[module].own, name, id=f"{module}!{name}")


@pytest.mark.parametrize(("own", "name"), list(operators()))
def test_in_an_operator_of_the_library(
    specifications: dict[str, Specification],
    own: MutableMapping[str, Definition],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(own, name, replace(own[name], function=broken(own[name].function)))
    assert is_noticed(specifications, name if name.isidentifier() else ""), f"no answer needs {name}"


@pytest.mark.parametrize("name", compiler._OPERATIONS)
def test_in_an_operator_of_the_language(
    specifications: dict[str, Specification], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(compiler._OPERATIONS, name, broken(compiler._OPERATIONS[name]))
    assert is_noticed(specifications), f"no answer needs {name}"


@pytest.mark.parametrize("name", RUNTIME)
def test_in_a_construct_of_the_language(
    specifications: dict[str, Specification], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right: Callable[..., Value] = compiler._RUNTIME[name]
    monkeypatch.setitem(compiler._RUNTIME, name, broken(right))
    assert is_noticed(specifications), f"no answer needs {name}"
