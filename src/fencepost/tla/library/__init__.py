"""The standard modules, and the community modules that specifications use, in Python.

Each operator behaves as TLC's own implementation, errors included: `tlc2.module` of TLC and `tlc2.overrides` of
CommunityModules where an operator is implemented in Java, and its definition in TLA+ otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fencepost.tla.library import (
    arithmetic,
    bags,
    finite,
    functions,
    graphs,
    numbers,
    others,
    outside,
    sequences,
    theorems,
    tlc,
)
from fencepost.tla.library.definitions import Definition, Module
from fencepost.tla.symbols import BuiltIn
from fencepost.tla.values import Value

_MODULES: dict[str, Module] = {
    each.name: each
    for each in (
        numbers.NATURALS,
        numbers.INTEGERS,
        numbers.REALS,
        sequences.SEQUENCES,
        finite.FINITE_SETS,
        bags.BAGS,
        tlc.TLC,
        tlc.TLC_EXT,
        others.RANDOMIZATION,
        functions.FOLDS,
        functions.FUNCTIONS,
        finite.FINITE_SETS_EXT,
        sequences.SEQUENCES_EXT,
        bags.BAGS_EXT,
        arithmetic.BITWISE,
        arithmetic.COMBINATORICS,
        arithmetic.DYADIC_RATIONALS,
        graphs.RELATION,
        graphs.GRAPHS,
        graphs.UNDIRECTED_GRAPHS,
        others.VECTOR_CLOCKS,
        others.QUORUM,
        outside.JSON,
        outside.CSV,
        outside.IO_UTILS,
        others.STATISTICS,
        others.GRAPH_VIZ,
        others.SVG,
        theorems.TLAPS,
        theorems.NATURALS_INDUCTION,
        theorems.WELL_FOUNDED_INDUCTION,
        theorems.FUNCTION_THEOREMS,
        theorems.FINITE_SET_THEOREMS,
        theorems.SEQUENCE_THEOREMS,
        theorems.BAGS_THEOREMS,
        theorems.FINITE_SETS_EXT_THEOREMS,
        theorems.SEQUENCES_EXT_THEOREMS,
        theorems.FOLDS_THEOREMS,
        theorems.GRAPH_THEOREMS,
        theorems.QUORUM_THEOREMS,
    )
}

STANDARD = frozenset(
    {"Naturals", "Integers", "Reals", "Sequences", "FiniteSets", "Bags", "TLC", "TLCExt", "Randomization", "Json"}
)
"""The modules that TLC itself has. A file of the user does not replace them."""


def modules() -> tuple[str, ...]:
    """The names of all modules of the library."""
    return tuple(_MODULES)


def exports(module: str) -> Mapping[str, Definition] | None:
    """The operators that a module has, those that it extends among them. None if the library has no such module."""
    known = _MODULES.get(module)
    return None if known is None else known.definitions()


def definition(symbol: BuiltIn) -> Definition:
    """What defines an operator of the library."""
    return _MODULES[symbol.module].own[symbol.name]


def operation(symbol: BuiltIn) -> Callable[..., Value]:
    """The function of an operator. It takes values, and a function of values for each operator that is passed."""
    return definition(symbol).function


def parameters(symbol: BuiltIn) -> tuple[int, ...]:
    """The arity of each parameter: 0 for a value, 2 for an operator of two arguments."""
    return definition(symbol).parameters


def is_truth(symbol: BuiltIn) -> bool:
    """Whether the operator's value always is a Boolean."""
    return definition(symbol).is_truth


def is_impure(symbol: BuiltIn) -> bool:
    """Whether two evaluations may differ, or something happens besides. The language's own operators are pure."""
    return bool(symbol.module) and definition(symbol).is_impure


def reads_outside(symbol: BuiltIn) -> bool:
    """Whether the operator's value depends on files or on the environment."""
    return bool(symbol.module) and definition(symbol).reads_outside
