"""Takes invariants apart into parts, each of which reads less of the state.

An engine evaluates a part again only if something that it reads has another value. ``TypeOK`` as one formula reads all
variables together, and would be evaluated in every state. It is taken apart at ``/\\``, at ``\\A`` over a set that is
the same in every state, and at ``\\in`` and ``\\subseteq`` before sets of functions, of records and of sets. ``\\A``
over a stored set has a part for each value that is known to become a member, and one for all others.

An error in a part counts only if the formula as a whole has one: ``x # Nil /\\ x.f = 1`` is false where x is Nil.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fencepost.tla import ast, suppositions
from fencepost.tla.compiler import Compiled, Compiler
from fencepost.tla.facts import Call, Itself, called, parameters_of, unlabelled
from fencepost.tla.runtime import truth
from fencepost.tla.stored import StoredFunction, StoredSet, UpdatedSet
from fencepost.tla.symbols import BuiltIn, Defined, Local, Scope, Substituted
from fencepost.tla.values import EvaluationError, Reads, Set, SetValue, Value, apply, equal, member, members, set_of

MOST_PARTS = 1_000
"""The most parts of one invariant. One with more stays whole."""

Rule = Callable[[Any, Any], bool]
"""Whether a part is true of two states."""

Getter = Callable[[Any, Any], Value]


class _TooMany(Exception):
    pass


@dataclass(frozen=True, slots=True)
class _Piece:
    """A formula, with the values of the names around it."""

    node: ast.Expression
    scope: Scope
    names: Mapping[Local, Value] = field(default_factory=dict)


def parts(of: Sequence[tuple[ast.Expression, Scope]], compiler: Compiler, example: Any) -> list[Rule]:
    """The parts of an invariant, or of several conjuncts: it is true where all of them are. ``example`` is a state in
    which nothing has a value yet, but which tells stored sets from others.
    """
    return _Splitter(compiler, example).parts([_Piece(*each) for each in of])


class _Splitter:
    def __init__(self, compiler: Compiler, example: Any) -> None:
        self._compiler = compiler
        self._example = example
        self._compiled: dict[tuple[ast.Expression, Scope, tuple[Local, ...]], Compiled] = {}
        self._number = 0

    def parts(self, pieces: Sequence[_Piece]) -> list[Rule]:
        formulas = [*map(self._formula, pieces)]

        def whole(now: Any, then: Any) -> bool:
            return all(formula(now, then) for formula in formulas)

        try:
            return [_checked(each, whole) for piece in pieces for each in self._split(piece)]
        except _TooMany:
            return [whole]

    def _split(self, piece: _Piece) -> Iterator[Rule]:
        node, scope = unlabelled(piece.node), piece.scope
        if isinstance(node, ast.Junction) and node.operator == "/\\":
            for each in node.items:
                yield from self._split(replace(piece, node=each))
        elif isinstance(node, ast.Quantified) and node.quantifier == "\\A":
            yield from self._for_all(piece, node)
        elif isinstance(node, Itself | ast.Name | ast.Qualified | ast.Part | ast.Apply):
            yield from self._called(piece, called(node, scope))
        else:
            yield from self._one(self._formula(piece))

    def _one(self, rule: Rule) -> Iterator[Rule]:
        """A rule, unless it is true of every state."""
        if not suppositions.without_reading(lambda _: rule(_NO_STATE, _NO_STATE), None, False):
            self._number += 1
            if self._number > MOST_PARTS:
                raise _TooMany
            yield rule

    def _called(self, piece: _Piece, found: Call) -> Iterator[Rule]:
        inside = self._inside(piece, found)
        symbol = found.symbol
        if inside is not None:
            yield from self._split(inside)
        elif isinstance(symbol, BuiltIn) and not symbol.module and symbol.name == "/\\":
            for node, scope in found.arguments:
                yield from self._split(_Piece(node, scope, piece.names))
        elif isinstance(symbol, BuiltIn) and not symbol.module and symbol.name in ("\\in", "\\subseteq"):
            (left, left_scope), (right, right_scope) = found.arguments
            get = self._getter(_Piece(left, left_scope, piece.names))
            split = self._member if symbol.name == "\\in" else self._subset
            yield from split(get, _Piece(right, right_scope, piece.names))
        else:
            yield from self._one(self._formula(piece))

    def _inside(self, piece: _Piece, found: Call) -> _Piece | None:
        """The body of the definition that is called, if it is called with values that are the same in every state."""
        symbol = found.symbol
        if isinstance(symbol, Substituted):
            return _Piece(symbol.value, symbol.scope, piece.names)
        if not isinstance(symbol, Defined) or not isinstance(symbol.body, ast.Expression) or symbol.is_recursive:
            return None
        if isinstance(symbol.body, ast.Function):
            return None
        names = dict(piece.names)
        for parameter, (node, scope) in zip(parameters_of(symbol), found.arguments, strict=True):
            value = self._constant(_Piece(node, scope, piece.names))
            if parameter.arity or not value:
                return None
            names[parameter] = value[0]
        return _Piece(symbol.body, symbol.scope, names)

    # -- quantifiers --------------------------------------------------------------------------------------------------

    def _for_all(self, piece: _Piece, node: ast.Quantified) -> Iterator[Rule]:
        inner = self._compiler.analysis.bound(node, node.bounds, piece.scope)
        symbols = iter(inner.locals)
        bounds = []
        for bound in node.bounds:
            if bound.is_tuple or bound.domain is None:
                yield from self._one(self._formula(piece))
                return
            bounds += [(next(symbols), bound.domain) for _ in bound.names]
        yield from self._members(piece, bounds, _Piece(node.body, inner.scope, piece.names))

    def _members(self, outer: _Piece, bounds: list[tuple[Local, ast.Expression]], body: _Piece) -> Iterator[Rule]:
        if not bounds:
            yield from self._split(body)
            return
        (name, domain), *others = bounds
        of = replace(outer, node=domain)
        value = self._constant(of)
        if value:
            for each in members(value[0]):
                yield from self._members(outer, others, _with(body, name, each))
            return
        get = self._getter(of)
        known = self._known_members(get)
        if known is None:
            yield from self._one(self._rest(get, SetValue.every, outer, bounds, body))
            return
        for each in known:
            for rule in self._members(outer, others, _with(body, name, each)):
                yield _within(get, each, rule)
        apart = frozenset(known)
        yield self._rest(get, lambda of, rule: _without(of, apart).every(rule), outer, bounds, body)

    def _rest(
        self,
        get: Getter,
        every: Callable[[SetValue, Callable[[Value], bool]], bool],
        outer: _Piece,
        bounds: list[tuple[Local, ast.Expression]],
        body: _Piece,
    ) -> Rule:
        """The quantifier over a set that is not known before the search, or over the rest of one that is."""
        (name, _), *others = bounds
        inside = self._quantified(outer, others, [*body.names, name], body)
        before = tuple(body.names.values())
        return lambda now, then: every(
            set_of(get(now, then), "\\A x \\in S"), lambda value: inside(now, then, (*before, value))
        )

    def _quantified(
        self, outer: _Piece, bounds: list[tuple[Local, ast.Expression]], names: list[Local], body: _Piece
    ) -> Callable[[Any, Any, tuple[Value, ...]], bool]:
        if not bounds:
            formula = self._compiler.expression(body.node, body.scope, names)
            return lambda now, then, values: truth(formula(now, then, *values), "the body of \\A")
        (name, domain), *others = bounds
        of = self._compiler.expression(domain, outer.scope, list(outer.names))
        given = tuple(outer.names.values())
        inside = self._quantified(outer, others, [*names, name], body)
        return lambda now, then, values: set_of(of(now, then, *given), "\\A x \\in S").every(
            lambda value: inside(now, then, (*values, value))
        )

    def _known_members(self, get: Getter) -> list[Value] | None:
        """The values that are known to become members of a set that lies in the state, perhaps without some values.
        None for another set.
        """
        try:
            found = get(self._example, self._example)
        except (EvaluationError, AttributeError, Reads):
            return None
        if isinstance(found, StoredSet):
            return [value for value, _ in found.place.settled]
        if isinstance(found, UpdatedSet) and not found.added.items:
            return [value for value, _ in found.base.place.settled if value not in found.removed]
        return None

    # -- members ------------------------------------------------------------------------------------------------------

    def _member(self, get: Getter, of: _Piece) -> Iterator[Rule]:
        """``get \\in of``."""
        form = self._form(of)
        node = form.node
        if isinstance(node, ast.RecordSet):
            names = sorted(each.name for each in node.fields)
            sets = {each.name: replace(form, node=each.value) for each in node.fields}
            yield from self._parts_of_function(get, of, Set(names), sets)
        elif isinstance(node, ast.FunctionSet):
            domain = self._constant(replace(form, node=node.domain))
            keys = list(members(domain[0])) if domain else None
            if keys is None:
                yield from self._one(self._is_member(get, of))
            else:
                range_of = replace(form, node=node.range)
                yield from self._parts_of_function(get, of, domain[0], dict.fromkeys(keys, range_of))
        elif isinstance(node, ast.Apply) and _is_built_in(called(node, form.scope), "SUBSET"):
            ((inner, scope),) = called(node, form.scope).arguments
            yield from self._subset(get, _Piece(inner, scope, form.names))
        else:
            yield from self._one(self._is_member(get, of))

    def _form(self, piece: _Piece) -> _Piece:
        """The expression that a name stands for."""
        while True:
            node = unlabelled(piece.node)
            piece = replace(piece, node=node)
            if not isinstance(node, Itself | ast.Name | ast.Qualified | ast.Part | ast.Apply):
                return piece
            inside = self._inside(piece, called(node, piece.scope))
            if inside is None:
                return piece
            piece = inside

    def _is_member(self, get: Getter, of: _Piece) -> Rule:
        right = self._getter(of)
        return lambda now, then: member(get(now, then), right(now, then))

    def _parts_of_function(
        self, get: Getter, of: _Piece, domain: Value, ranges: Mapping[Value, _Piece]
    ) -> Iterator[Rule]:
        """A part for the domain of a function, and those of each of its values. Whole, if it is not stored by parts."""
        whole = self._is_member(get, of)

        def has_domain(now: Any, then: Any) -> bool:
            value = get(now, then)
            return equal(value.domain(), domain) if isinstance(value, StoredFunction) else whole(now, then)

        yield from self._one(has_domain)
        for key, range_of in ranges.items():
            yield from self._member(_applied(get, key), range_of)

    def _subset(self, get: Getter, of: _Piece) -> Iterator[Rule]:
        right = self._getter(of)
        known = self._known_members(get)
        if known is None:
            yield from self._one(
                lambda now, then: set_of(get(now, then), "\\subseteq").every(
                    lambda value: member(value, right(now, then))
                )
            )
            return
        for each in known:
            for rule in self._one(_contains(right, each)):
                yield _within(get, each, rule)
        apart = frozenset(known)
        yield lambda now, then: _without(set_of(get(now, then), "\\subseteq"), apart).every(
            lambda value: member(value, right(now, then))
        )

    # -- compiling ----------------------------------------------------------------------------------------------------

    def _formula(self, piece: _Piece) -> Rule:
        get = self._getter(piece)
        return lambda now, then: truth(get(now, then), "this formula")

    def _getter(self, piece: _Piece) -> Getter:
        used = self._compiler.analysis.of(piece.node, piece.scope).used
        names = tuple(each for each in piece.names if each in used)
        key = (piece.node, piece.scope, names)
        if key not in self._compiled:
            self._compiled[key] = self._compiler.expression(*key)
        formula, values = self._compiled[key], tuple(piece.names[each] for each in names)
        return lambda now, then: formula(now, then, *values)

    def _constant(self, piece: _Piece) -> tuple[Value, ...]:
        """The value of an expression that is the same in every state. Empty for any other."""
        found = self._compiler.analysis.of(piece.node, piece.scope)
        if not found.is_constant or not found.used <= piece.names.keys():
            return ()
        try:
            return (self._getter(piece)(None, None),)
        except EvaluationError:
            return ()


class _NoState:
    """A state that must not be read."""

    def __getitem__(self, variable: int) -> Value:
        raise Reads


_NO_STATE = _NoState()


def _checked(rule: Rule, whole: Rule) -> Rule:
    def holds(now: Any, then: Any) -> bool:
        try:
            return rule(now, then)
        except EvaluationError:
            return whole(now, then)

    return holds


def _with(piece: _Piece, name: Local, value: Value) -> _Piece:
    return replace(piece, names={**piece.names, name: value})


def _within(get: Getter, value: Value, rule: Rule) -> Rule:
    """The rule, for states in which the value is a member."""

    def holds(now: Any, then: Any) -> bool:
        of = set_of(get(now, then), "\\A x \\in S")
        if not isinstance(of, StoredSet):
            return not of.has(value) or rule(now, then)
        return not of.has_such(value, lambda _: not rule(now, then))

    return holds


def _without(of: SetValue, apart: frozenset[Value]) -> SetValue:
    return of.without(apart) if isinstance(of, StoredSet | UpdatedSet) else of


def _applied(get: Getter, key: Value) -> Getter:
    return lambda now, then: apply(get(now, then), key)


def _contains(of: Getter, value: Value) -> Rule:
    return lambda now, then: member(value, of(now, then))


def _is_built_in(found: Call, name: str) -> bool:
    return isinstance(found.symbol, BuiltIn) and not found.symbol.module and found.symbol.name == name
