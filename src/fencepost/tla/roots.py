"""Takes ``Next`` apart into the actions that it is made of, and invariants into their conjuncts.

As in TLC (`getActions` of `tlc2.tool.impl.Tool`), ``Next`` is taken apart at ``\\/``, at ``\\E`` over a set that is the
same in every state, and at operators whose arguments are. An action has the name of the innermost operator around it,
and that operator's arguments. Unlike TLC, this goes on inside instances.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fencepost.tla import ast
from fencepost.tla.actions import Action, ActionCompiler
from fencepost.tla.facts import Call, Itself, called, parameters_of, unlabelled
from fencepost.tla.runtime import Choose, untupled
from fencepost.tla.symbols import BuiltIn, Defined, Local, Scope, Substituted
from fencepost.tla.values import EvaluationError, Value, members, show

MOST_ACTIONS = 4096
"""The most actions that one ``\\E`` is taken apart into. Beyond, it stays a choice of one action."""


Key = tuple[ast.Place, Scope, tuple[Value, ...], tuple[Value, ...]]


@dataclass(frozen=True, slots=True)
class Root:
    """An action of ``Next``. ``name`` and ``arguments`` are those of the innermost operator around it, ``place`` is
    that of its formula ``node``, ``scope`` its scope, and ``values`` are those of the names that are free in the
    formula. ``parameters`` and ``names``: what arguments and values are the values of.
    """

    name: str
    arguments: tuple[Value, ...]
    place: ast.Place
    action: Action
    values: tuple[Value, ...]
    node: ast.Expression
    scope: Scope
    parameters: tuple[str, ...]
    names: tuple[Local, ...]

    @property
    def key(self) -> Key:
        """Two actions with the same key have the same steps."""
        return self.place, self.scope, self.arguments, self.values

    @property
    def title(self) -> str:
        """``RMPrepare(r1)``"""
        return f"{self.name}({', '.join(map(show, self.arguments))})" if self.arguments else self.name

    def __call__(self, now: Any, then: Any, choose: Choose) -> bool:
        """Run the action, as :class:`Action` says."""
        return self.action(now, then, choose, *self.values)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A formula, with the values of the names around it."""

    node: ast.Expression
    scope: Scope
    name: str
    parameters: tuple[Local, ...] = ()
    names: Mapping[Local, Value] = field(default_factory=dict)

    def inside(self, node: ast.Expression, scope: Scope) -> _Piece:
        return _Piece(node, scope, self.name, self.parameters, self.names)


def actions(
    node: ast.Expression, scope: Scope, name: str, compiler: ActionCompiler, names: Mapping[Local, Value] | None = None
) -> list[Root]:
    """The actions of a next-state formula, in the order of the text. ``name`` is that of an action around which
    there is no operator. ``names``: the values of the names around the formula.

    Raises :class:`fencepost.tla.errors.SpecificationError` for what cannot be compiled.
    """
    return list(_Splitter(compiler).roots(_Piece(node, scope, name, (), names or {})))


class _Splitter:
    def __init__(self, compiler: ActionCompiler) -> None:
        self._compiler = compiler
        self._compiled: dict[tuple[ast.Expression, Scope, str, tuple[Local, ...]], Action] = {}

    def roots(self, piece: _Piece) -> Iterator[Root]:
        waiting = [piece]
        while waiting:
            piece = waiting.pop()
            parts = self._parts(piece)
            if parts is None:
                yield self._root(piece)
            else:
                waiting += reversed(parts)

    def _root(self, piece: _Piece) -> Root:
        used = self._compiler.analysis.of(piece.node, piece.scope).used
        names = tuple(each for each in piece.names if each in used)
        key = (piece.node, piece.scope, piece.name, names)
        if key not in self._compiled:
            self._compiled[key] = self._compiler.action(piece.node, piece.scope, piece.name, names)
        arguments = tuple(piece.names[each] for each in piece.parameters)
        return Root(
            piece.name,
            arguments,
            piece.node.place,
            self._compiled[key],
            tuple(piece.names[each] for each in names),
            piece.node,
            piece.scope,
            tuple(each.name for each in piece.parameters),
            names,
        )

    def _parts(self, piece: _Piece) -> list[_Piece] | None:
        """What a formula is made of, or None if it is one action."""
        node = unlabelled(piece.node)
        if isinstance(node, ast.Junction) and node.operator == "\\/":
            return [piece.inside(each, piece.scope) for each in node.items]
        if isinstance(node, ast.Quantified) and node.quantifier == "\\E":
            return self._members(piece, node)
        if isinstance(node, Itself | ast.Name | ast.Qualified | ast.Part | ast.Apply):
            return self._called(piece, called(node, piece.scope))
        return None

    def _called(self, piece: _Piece, found: Call) -> list[_Piece] | None:
        symbol = found.symbol
        if isinstance(symbol, BuiltIn):
            is_disjunction = not symbol.module and symbol.name == "\\/"
            return [piece.inside(*each) for each in found.arguments] if is_disjunction else None
        if isinstance(symbol, Substituted):
            return [piece.inside(symbol.value, symbol.scope)]
        if not isinstance(symbol, Defined) or isinstance(symbol.body, ast.Function):
            return None
        return self._defined(piece, symbol, symbol.body, found)

    def _defined(self, piece: _Piece, symbol: Defined, body: ast.Expression, found: Call) -> list[_Piece] | None:
        parameters = parameters_of(symbol)
        if symbol.is_recursive or any(each.arity for each in parameters):
            return None
        values = [self._value(each, scope, piece) for each, scope in found.arguments]
        if not all(values):
            return None
        names = {parameter: value[0] for parameter, value in zip(parameters, values, strict=True)}
        return [_Piece(body, symbol.scope, symbol.name, symbol.parameters, {**piece.names, **names})]

    def _members(self, piece: _Piece, node: ast.Quantified) -> list[_Piece] | None:
        inner = self._compiler.analysis.bound(node, node.bounds, piece.scope)
        symbols = iter(inner.locals)
        pieces: list[Mapping[Local, Value]] = [piece.names]
        for bound in node.bounds:
            assert bound.domain is not None
            names = [next(symbols) for _ in bound.names]
            groups = [names] if bound.is_tuple else [[each] for each in names]
            of = self._options(bound, piece)
            if of is None or len(pieces) * len(of) ** len(groups) > MOST_ACTIONS:
                return None
            for group in groups:
                pieces = [{**each, **_taken(group, value, bound.is_tuple)} for each in pieces for value in of]
        if not pieces:
            return None
        return [_Piece(node.body, inner.scope, piece.name, piece.parameters, each) for each in pieces]

    def _options(self, bound: ast.Bound, piece: _Piece) -> list[Value] | None:
        assert bound.domain is not None
        value = self._value(bound.domain, piece.scope, piece)
        if not value:
            return None
        try:
            found: list[Value] = []
            for each in members(value[0]):
                if len(found) > MOST_ACTIONS:
                    return None
                found.append(untupled(each, len(bound.names)) if bound.is_tuple else each)
            return found
        except EvaluationError:
            return None

    def _value(self, node: ast.Expression, scope: Scope, piece: _Piece) -> tuple[Value, ...]:
        """The value of an expression that is the same in every state. Empty for any other."""
        found = self._compiler.analysis.of(node, scope)
        names = tuple(each for each in piece.names if each in found.used)
        if not found.is_constant or len(names) < len(found.used):
            return ()
        try:
            return (self._compiler.expression(node, scope, names)(None, None, *(piece.names[each] for each in names)),)
        except EvaluationError:
            return ()


def _taken(names: list[Local], value: Value, is_tuple: bool) -> dict[Local, Value]:
    return dict(zip(names, value, strict=True)) if is_tuple else {names[0]: value}


def conjuncts(node: ast.Expression, scope: Scope) -> list[tuple[ast.Expression, Scope]]:
    """An invariant taken apart at ``/\\``, through the definitions that it names."""
    found, waiting = [], [(node, scope)]
    while waiting:
        node, scope = waiting.pop()
        parts = _conjuncts(unlabelled(node), scope)
        if parts is None:
            found.append((node, scope))
        else:
            waiting += reversed(parts)
    return found


def _conjuncts(node: ast.Expression, scope: Scope) -> list[tuple[ast.Expression, Scope]] | None:
    if isinstance(node, ast.Junction) and node.operator == "/\\":
        return [(each, scope) for each in node.items]
    if not isinstance(node, Itself | ast.Name | ast.Qualified | ast.Part | ast.Apply):
        return None
    found = called(node, scope)
    symbol = found.symbol
    if isinstance(symbol, BuiltIn) and not symbol.module and symbol.name == "/\\":
        return list(found.arguments)
    if isinstance(symbol, Defined) and not parameters_of(symbol) and not symbol.is_recursive:
        return None if isinstance(symbol.body, ast.Function) else [(symbol.body, symbol.scope)]
    return None
