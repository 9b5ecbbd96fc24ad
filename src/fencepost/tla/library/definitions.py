"""How a module of the library is written: Python functions with the names of its operators."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from fencepost.tla.values import (
    EvaluationError,
    Function,
    FunctionValue,
    Sequence,
    Set,
    Value,
    described,
    set_of,
)

Unary = Callable[[Value], Value]
"""An operator of one argument that is passed to another. Its value need not be what is wanted: see :func:`holds`."""

Binary = Callable[[Value, Value], Value]
"""An operator of two arguments that is passed to another."""

_ARITIES = {"Value": 0, "Unary": 1, "Binary": 2}

F = TypeVar("F", bound=Callable[..., Value])


@dataclass(frozen=True, slots=True)
class Definition:
    """An operator of the library.

    ``parameters`` has the arity of each: 0 for a value, 2 for an operator of two arguments. ``is_truth``: its value is
    a Boolean. ``is_impure``: two evaluations may differ, or something happens besides. ``refused`` is the reason why
    it is not supported, or "". ``reads_outside``: its value depends on files or on the environment.
    """

    name: str
    module: str
    parameters: tuple[int, ...]
    function: Callable[..., Value]
    is_truth: bool = False
    is_impure: bool = False
    refused: str = ""
    reads_outside: bool = False


class Module:
    """A module of the library. ``extends`` are the modules whose operators it has as well."""

    def __init__(self, name: str, *extends: Module) -> None:
        self.name = name
        self.extends = extends
        self.own: dict[str, Definition] = {}

    def operator(self, *names: str, is_impure: bool = False, reads_outside: bool = False) -> Callable[[F], F]:
        """Declare a function to be the operator with these names. The annotations of its parameters say which are
        operators, and that of its result whether it is a Boolean.
        """

        def declared(function: F) -> F:
            parameters = tuple(_ARITIES[str(each.annotation)] for each in _parameters(function))
            is_truth = function.__annotations__["return"] == "bool"
            for name in names:
                self.own[name] = Definition(
                    name, self.name, parameters, function, is_truth, is_impure, reads_outside=reads_outside
                )
            return function

        return declared

    def value(self, name: str, value: Value) -> None:
        """Declare a definition without parameters."""
        self.own[name] = Definition(name, self.name, (), lambda: value)

    def refuse(self, reason: str, **parameters: int | tuple[int, ...]) -> None:
        """Declare operators that are not supported, each with the number of its parameters, or the arity of each."""
        for name, wanted in parameters.items():
            arities = wanted if isinstance(wanted, tuple) else (0,) * wanted
            function = _refusal(f"{name} is not supported: {reason}")
            self.own[name] = Definition(name, self.name, arities, function, refused=reason)

    def definitions(self) -> Mapping[str, Definition]:
        """All operators of the module and of those that it extends, by name."""
        inherited: dict[str, Definition] = {}
        for module in self.extends:
            inherited.update(module.definitions())
        return {**inherited, **self.own}


def _parameters(function: Callable[..., Value]) -> Iterator[inspect.Parameter]:
    return iter(inspect.signature(function).parameters.values())


def _refusal(message: str) -> Callable[..., Value]:
    def refused(*arguments: Value) -> Value:
        raise EvaluationError(message)

    return refused


# -- arguments ---------------------------------------------------------------------------------------------------------


def integer(value: Value, operator: str) -> int:
    """``value`` if it is an integer. Raises :class:`EvaluationError` that ``operator`` wants one."""
    if type(value) is int:
        return value
    raise wrong(value, operator, "an integer")


def natural(value: Value, operator: str) -> int:
    """``value`` if it is a natural number. Raises :class:`EvaluationError` that ``operator`` wants one."""
    if type(value) is int and value >= 0:
        return value
    raise wrong(value, operator, "a natural number")


def sequence(value: Value, operator: str) -> tuple[Value, ...]:
    """The elements of a sequence. Raises :class:`EvaluationError` that ``operator`` wants one."""
    whole = value.explicit() if isinstance(value, FunctionValue) else value
    if isinstance(whole, Sequence):
        return whole.values
    raise wrong(value, operator, "a sequence")


def mapping(value: Value, operator: str) -> dict[Value, Value]:
    """The arguments and values of a finite function, in the order of its domain. Raises :class:`EvaluationError` that
    ``operator`` wants one.
    """
    return dict(written_out(value, operator).items())


def written_out(value: Value, operator: str) -> Sequence | Function:
    """A finite function. Raises :class:`EvaluationError` that ``operator`` wants one."""
    if isinstance(value, FunctionValue):
        return value.explicit()
    raise wrong(value, operator, "a function")


def explicit(value: Value, operator: str) -> Set:
    """A finite set. Raises :class:`EvaluationError` that ``operator`` wants one."""
    return set_of(value, operator).explicit()


def holds(value: Value, operator: str) -> bool:
    """What an operator said that is passed to another. Raises :class:`EvaluationError` if it is no Boolean."""
    if value is True or value is False:
        return value
    raise EvaluationError(f"{operator} needs an operator whose value is TRUE or FALSE, and it gave {described(value)}")


def wrong(value: Value, operator: str, wanted: str) -> EvaluationError:
    """The error of an argument of another kind."""
    return EvaluationError(f"{operator} needs {wanted}, and {described(value)} is not one")
