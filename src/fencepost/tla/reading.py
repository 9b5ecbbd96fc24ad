"""What an expression reaches: its level, and what in it cannot be evaluated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import cast

from fencepost.tla import ast, library, parts
from fencepost.tla.errors import SpecificationError
from fencepost.tla.facts import asked, parameters_of, unlabelled
from fencepost.tla.levels import ACTION, CONSTANT, STATE, TEMPORAL
from fencepost.tla.operators import LEVELS
from fencepost.tla.scopes import Chain, ModuleScope, within
from fencepost.tla.symbols import LEVEL, BuiltIn, Defined, Local, Scope, Substituted, Symbol, Variable

Place = tuple[ast.Node, Scope]
"""An expression and its scope."""


def level(expression: ast.Expression, scope: Scope, known: Mapping[Local, int] | None = None) -> int:
    """The level of an expression: 0 for a constant, 1 for what reads the state, 2 for an action, 3 for a temporal
    formula. ``known`` has the levels of parameters. Those of all others are constants.
    """
    highest = CONSTANT
    waiting: list[Place] = [(expression, scope)]
    while waiting and highest < TEMPORAL:
        node, at = waiting.pop()
        own, inside = _own_level(node, at, known or {})
        highest = max(highest, own)
        waiting += inside
    return highest


def _own_level(node: ast.Node, scope: Scope, known: Mapping[Local, int]) -> tuple[int, list[Place]]:
    """The level that an expression has at least, and the expressions whose levels count as well."""
    match node:
        case ast.Square() | ast.Angle():
            return ACTION, []
        case ast.Fairness() | ast.Unbounded(quantifier="\\AA" | "\\EE"):
            return TEMPORAL, []
        case ast.Part() | ast.Qualified() if _is_part(node, cast(Chain, scope)):
            part, given = parts.resolve(node, cast(Chain, scope))
            return CONSTANT, [(part.body, part.scope), *((each, scope) for each in given)]
        case ast.Name() | ast.Qualified():
            return _level_of(symbol_of(node, scope), known, _inside(node, scope))
        case ast.Apply(operator=ast.Name(text=text)) if text in LEVELS:
            return LEVELS[text], []
        case _:
            return CONSTANT, _inside(node, scope)


def _level_of(symbol: Symbol, known: Mapping[Local, int], inside: list[Place]) -> tuple[int, list[Place]]:
    match symbol:
        case Variable():
            return STATE, []
        case Local():
            return known.get(symbol, CONSTANT), []
        case Defined():
            return symbol.level, inside
        case Substituted():
            return CONSTANT, [(symbol.value, symbol.scope), *inside]
        case _:
            return CONSTANT, inside


def symbol_of(node: ast.Name | ast.Qualified | ast.Part, scope: Scope) -> Symbol:
    """The symbol of a name, or the definition that a part of a definition is."""
    chain = cast(Chain, scope)
    if not isinstance(node, ast.Name) and _is_part(node, chain):
        return parts.resolve(node, chain)[0]
    assert not isinstance(node, ast.Part)
    return scope.symbol(node)


def _is_part(node: ast.Qualified | ast.Part, scope: Chain) -> bool:
    """Whether a name goes on into a definition: ``A!1``, or ``A!label``."""
    return isinstance(node, ast.Part) or len(scope.instances(node.steps)) < len(node.steps)


def _inside(node: ast.Node, scope: Scope) -> list[Place]:
    return list(within(node, cast(Chain, scope)))


def refuse_unsupported(roots: Iterable[Place]) -> None:
    """Raises :class:`SpecificationError` for the first operator or form that cannot be evaluated, in these expressions
    and in the definitions that they use.
    """
    for node, scope in reached(roots):
        why = _why_not(node, scope)
        if why:
            raise SpecificationError(why, node.place)


def reached(roots: Iterable[Place], ends: Callable[[Symbol], bool] = lambda symbol: False) -> Iterator[Place]:
    """All expressions inside expressions and inside the definitions that they use, each once. ``ends``: whether not to
    go into a definition.
    """
    seen: set[Symbol] = set()
    waiting = list(roots)[::-1]
    while waiting:
        node, scope = waiting.pop()
        yield node, scope
        waiting += reversed(_inside(node, scope))
        if isinstance(node, ast.Name | ast.Qualified | ast.Part):
            symbol = symbol_of(node, scope)
            if symbol not in seen:
                seen.add(symbol)
                waiting += () if ends(symbol) else _meaning(symbol)


def _meaning(symbol: Symbol) -> list[Place]:
    match symbol:
        case Defined():
            return [(symbol.body, symbol.scope)]
        case Substituted():
            return [(symbol.value, symbol.scope)]
        case _:
            return []


def reads_outside(roots: Iterable[Place]) -> bool:
    """Whether expressions, or definitions that they use, read a file or the environment."""
    return any(_reads_outside(node, scope) for node, scope in reached(roots))


def _reads_outside(node: ast.Node, scope: Scope) -> bool:
    if not isinstance(node, ast.Name | ast.Qualified):
        return False
    symbol = symbol_of(node, scope)
    return isinstance(symbol, BuiltIn) and library.reads_outside(symbol)


def read_outside(roots: Iterable[Place]) -> list[tuple[ast.Expression, Scope]]:
    """The names in expressions of what is read of files and of the environment: definitions that need nothing else.

    Raises :class:`SpecificationError` for a part of an expression that reads outside and has no such name.
    """
    found: dict[Symbol, tuple[ast.Expression, Scope]] = {}

    def is_name_of_it(symbol: Symbol) -> bool:
        return (
            isinstance(symbol, Defined)
            and symbol.level == CONSTANT
            and not parameters_of(symbol)
            and not isinstance(symbol.body, ast.Function)
            and isinstance(symbol.scope, ModuleScope)
            and reads_outside(_meaning(symbol))
        )

    for node, scope in reached(roots, is_name_of_it):
        if isinstance(node, ast.Name | ast.Qualified) and is_name_of_it(symbol := symbol_of(node, scope)):
            found.setdefault(symbol, (node, scope))
        elif _reads_outside(node, scope):
            assert isinstance(node, ast.Name | ast.Qualified)
            raise SpecificationError(
                f"{node.text} has no value that stays the same here: define Log == ..., with what reads it, outside of"
                " all other definitions, and use Log",
                node.place,
            )
    return [*found.values()]


def selected(expression: ast.Expression, scope: Scope) -> set[str] | None:
    """The variables of a tuple of nothing else, also of tuples in it and through definitions. ``TLCGet("level")`` is
    one of them. None for anything else.
    """
    node = unlabelled(expression)
    if isinstance(node, ast.Apply) and isinstance(node.operator, ast.Name | ast.Qualified):
        return {LEVEL.name} if asked(symbol_of(node.operator, scope), node.arguments) == "level" else None
    if isinstance(node, ast.Tuple):
        parts = [selected(each, scope) for each in node.items]
        return None if None in parts else set().union(*(each for each in parts if each is not None))
    if not isinstance(node, ast.Name | ast.Qualified):
        return None
    match symbol_of(node, scope):
        case Variable(name=name):
            return {name}
        case Defined(body=body, scope=inner) as symbol if not parameters_of(symbol) and not isinstance(
            body, ast.Function
        ):
            return selected(body, inner)
        case Substituted(value=value, scope=inner):
            return selected(value, inner)
        case _:
            return None


_GIVES = ("=", "\\in", "\\subseteq")


def gives(expression: ast.Expression, scope: Scope, variable: int) -> ast.Place | None:
    """Where an action or an initial predicate first gives a variable its value. None if that is not seen."""
    for node, at in reached([(expression, scope)]):
        if isinstance(node, ast.Apply) and isinstance(node.operator, ast.Name) and node.operator.text in _GIVES:
            left, where = node.arguments[0], at
            if isinstance(left, ast.Apply) and isinstance(left.operator, ast.Name) and left.operator.text == "'":
                left = left.arguments[0]
            found = variable_of(left, where)
            if found is not None and found.index == variable:
                return node.place
    return None


def variable_of(node: ast.Expression, scope: Scope) -> Variable | None:
    """The variable that a name stands for."""
    while isinstance(node, ast.Name):
        symbol = symbol_of(node, scope)
        if not isinstance(symbol, Substituted):
            return symbol if isinstance(symbol, Variable) else None
        node, scope = symbol.value, symbol.scope
    return None


def _why_not(node: ast.Node, scope: Scope) -> str:
    match node:
        case ast.Decimal(text=text):
            return f"{text} is a real number, and only integers can be evaluated"
        case ast.Unbounded(quantifier="\\AA" | "\\EE"):
            return f"{node.quantifier} hides a variable, and that cannot be evaluated: quantify over a set instead"
        case ast.Name() | ast.Qualified():
            symbol = symbol_of(node, scope)
            return _why_not_operator(symbol) if isinstance(symbol, BuiltIn) else ""
        case _:
            return ""


def _why_not_operator(symbol: BuiltIn) -> str:
    if symbol.module:
        reason = library.definition(symbol).refused
        return f"{symbol.name} is not supported: {reason}" if reason else ""
    if symbol.name == "-+->":
        return "-+-> is not supported: write the assumption and the guarantee as two properties"
    return ""
