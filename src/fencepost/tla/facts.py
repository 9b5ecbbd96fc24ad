"""What an expression needs: the names that it uses, and how it uses them. The compiler decides by it what is evaluated
when.

Names here are :class:`Local` symbols, and the definitions without parameters that a ``LET`` makes. A name is *strict*
if the value of the expression cannot be had without the name's. It is *primed* if it is evaluated in another state than
the expression: under a prime, in ``UNCHANGED``, as a subscript.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from typing import Any

from fencepost.tla import ast, parts
from fencepost.tla.scopes import Chain
from fencepost.tla.symbols import LEVEL, QUEUE, BuiltIn, Defined, Local, Scope, Substituted, Symbol, Variable

Names = frozenset[Symbol]
NONE: Names = frozenset()


@dataclass(frozen=True, slots=True)
class Facts:
    """``strict`` is None for an expression whose value is never had, such as an endless recursion. ``reads`` and
    ``reads_next`` are the variables that it reads, and those that it reads primed. ``is_impure``: two evaluations may
    differ.
    """

    used: Names = NONE
    strict: Names | None = NONE
    primed: Names = NONE
    reads: frozenset[Variable] = frozenset()
    reads_next: frozenset[Variable] = frozenset()
    is_impure: bool = False

    @property
    def is_constant(self) -> bool:
        """Whether it is the same in every state, whatever its names stand for."""
        return not (self.reads or self.reads_next or self.is_impure)

    def is_strict(self, name: Symbol) -> bool:
        return self.strict is None or name in self.strict

    def maybe(self) -> Facts:
        """The same, if it may stay without being evaluated."""
        return replace(self, strict=NONE)

    def without(self, names: Iterable[Symbol]) -> Facts:
        hidden = frozenset(names)
        strict = None if self.strict is None else self.strict - hidden
        return replace(self, used=self.used - hidden, strict=strict, primed=self.primed - hidden)


NOTHING = Facts()
ENDLESS = Facts(strict=None)


def both(one: Facts, other: Facts) -> Facts:
    """The facts of two expressions that are both evaluated."""
    strict = None if one.strict is None or other.strict is None else one.strict | other.strict
    return _joined(one, other, strict)


def either(one: Facts, other: Facts) -> Facts:
    """The facts of two expressions if one of them is evaluated."""
    if one.strict is None or other.strict is None:
        strict = other.strict if one.strict is None else one.strict
    else:
        strict = one.strict & other.strict
    return _joined(one, other, strict)


def _joined(one: Facts, other: Facts, strict: Names | None) -> Facts:
    return Facts(
        one.used | other.used,
        strict,
        one.primed | other.primed,
        one.reads | other.reads,
        one.reads_next | other.reads_next,
        one.is_impure or other.is_impure,
    )


def all_of(parts: Iterable[Facts]) -> Facts:
    return reduce(both, parts, NOTHING)


def first_of(parts: Iterable[Facts]) -> Facts:
    """The facts of expressions if the first is evaluated, and the others perhaps."""
    return all_of(part if number == 0 else part.maybe() for number, part in enumerate(parts))


@dataclass(frozen=True, slots=True)
class Inner:
    """A scope with bound names, and their symbols in the order of the text."""

    scope: Scope
    locals: tuple[Local, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Itself(ast.Expression):
    """A use of a symbol, whatever its name means in the scope."""

    symbol: Local


@cache
def itself(symbol: Local) -> Itself:
    return Itself(symbol, place=symbol.place)


@dataclass(frozen=True, slots=True)
class Call:
    """What a name, or an operator with arguments, stands for: the symbol or the ``LAMBDA``, and all arguments, each in
    its scope. Those of an instance come first.
    """

    symbol: Symbol | ast.Lambda
    scope: Scope
    arguments: tuple[tuple[ast.Expression, Scope], ...]


def called(node: ast.Expression, scope: Scope) -> Call:
    """Follow a name to what it stands for, through replacements that are names themselves."""
    operator, arguments = (node.operator, node.arguments) if isinstance(node, ast.Apply) else (node, ())
    own = tuple((each, scope) for each in arguments)
    while isinstance(operator, Itself | ast.Name | ast.Qualified | ast.Part):
        symbol, given = _symbol(operator, scope)
        if not isinstance(symbol, Substituted):
            if (of_state := _OF_STATE.get(asked(symbol, arguments) or "")) is not None:
                return Call(of_state, scope, ())
            return Call(symbol, scope, (*given, *own))
        if symbol.is_variable or not isinstance(symbol.value, ast.Name | ast.Qualified | ast.Part | ast.Lambda):
            return Call(symbol, scope, own)
        operator, scope = symbol.value, symbol.scope
    assert isinstance(operator, ast.Lambda), operator
    return Call(operator, scope, own)


_OF_STATE = {"level": LEVEL, "queue": QUEUE}


def asked(symbol: Symbol, arguments: Sequence[ast.Expression]) -> str | None:
    """The text that ``TLCGet`` is given, if the symbol with these arguments is such a call."""
    is_question = isinstance(symbol, BuiltIn) and (symbol.module, symbol.name) == ("TLC", "TLCGet")
    return arguments[0].value if is_question and arguments and isinstance(arguments[0], ast.String) else None


def _symbol(
    operator: Itself | ast.Name | ast.Qualified | ast.Part, scope: Scope
) -> tuple[Symbol, tuple[tuple[ast.Expression, Scope], ...]]:
    """The symbol of a name, and the arguments that the name itself has."""
    if isinstance(operator, Itself):
        return operator.symbol, ()
    if not isinstance(operator, ast.Part):
        try:
            symbol = scope.symbol(operator)
            return symbol, _prefix(operator, symbol, scope)
        except LookupError:
            assert isinstance(operator, ast.Qualified)  # it ends in a label
    assert isinstance(scope, Chain)
    definition, given = parts.resolve(operator, scope)
    implied = tuple((itself(each), scope) for each in definition.implied)
    return definition, (*implied, *((each, scope) for each in given))


def _prefix(
    operator: ast.Name | ast.Qualified, symbol: Symbol, scope: Scope
) -> tuple[tuple[ast.Expression, Scope], ...]:
    implied = symbol.implied if isinstance(symbol, Defined) else ()
    names = tuple((itself(each), scope) for each in implied)
    steps = operator.steps if isinstance(operator, ast.Qualified) else ()
    return (*names, *((each, scope) for step in steps for each in step.arguments))


def parameters_of(symbol: Defined) -> tuple[Local, ...]:
    """All parameters of a definition, those that its instance implies first."""
    return (*symbol.implied, *symbol.parameters)


def unlabelled(node: ast.Expression) -> ast.Expression:
    """The expression under its labels."""
    while isinstance(node, ast.Label):
        node = node.body
    return node


def inside(symbol: Defined) -> Symbol:
    """A function as its own rule names it. Elsewhere it may take the parameters of its instance, too."""
    assert isinstance(symbol.scope, Chain)
    own = symbol.scope.find(symbol.name)
    return own if isinstance(own, Defined) and own.body is symbol.body else symbol


def _is_itself(symbol: Defined, node: ast.Node) -> bool:
    """Whether ``node`` stands in the definition of the function that it names."""
    return isinstance(symbol.body, ast.Function) and _contains(symbol.body.place, node.place)


def _contains(outer: ast.Place, inner: ast.Place) -> bool:
    if outer.file != inner.file:
        return False
    first, last = (outer.line, outer.column), (outer.end_line, outer.end_column)
    return first <= (inner.line, inner.column) and (inner.end_line, inner.end_column) <= last


def let_values(node: ast.Let, scope: Scope) -> list[Defined]:
    """The definitions without parameters of a ``LET``, in the order of the text."""
    inside = scope.let(node)
    values = []
    for unit in node.definitions:
        if isinstance(unit, ast.Function) or (isinstance(unit, ast.Operator) and not unit.parameters):
            symbol = inside.symbol(ast.Name(place=unit.place, text=unit.name))
            assert isinstance(symbol, Defined)
            values.append(symbol)
    return values


class At(Local):
    """``@`` in an update."""

    __slots__ = ()


AT = At("@", 0, ast.Place("", 0, 0, 0, 0))


class Analysis:
    """Works out the facts of expressions and definitions, and keeps them. It also keeps the scopes of bound names, so
    that a name has one symbol, and always the same.
    """

    def __init__(self, impure: Callable[[BuiltIn], bool]) -> None:
        self._impure = impure
        self._facts: dict[Any, Facts] = {}
        self._inner: dict[tuple[ast.Node, Scope], Inner] = {}
        self._let_values: set[Symbol] = set()

    # -- scopes -------------------------------------------------------------------------------------------------------

    def inner(self, node: ast.Node, names: Iterable[ast.Parameter], scope: Scope) -> Inner:
        """The scope of what ``node`` binds."""
        found = self._inner.get((node, scope))
        if found is None:
            symbols = tuple(Local(each.name, each.arity, each.place) for each in names)
            found = Inner(scope.inner({each.name: each for each in symbols}), symbols)
            self._inner[node, scope] = found
        return found

    def bound(self, node: ast.Node, bounds: Iterable[ast.Bound], scope: Scope) -> Inner:
        return self.inner(node, (name for bound in bounds for name in bound.names), scope)

    def is_of_let(self, symbol: Symbol) -> bool:
        """Whether a definition without parameters stands in a ``LET`` that was looked at."""
        return symbol in self._let_values

    # -- facts --------------------------------------------------------------------------------------------------------

    def definition(self, symbol: Defined) -> Facts:
        """The facts of a definition's body, its parameters included."""
        known = self._facts.get(symbol)
        if known is not None:
            return known
        known = ENDLESS
        while True:
            before = dict(self._facts)
            self._facts[symbol] = known
            found = self.body(symbol)
            self._facts[symbol] = found
            if found == known or not self._is_recursive(symbol):
                return found
            self._facts, known = before, found

    def _is_recursive(self, symbol: Defined) -> bool:
        return symbol.is_recursive

    def body(self, symbol: Defined) -> Facts:
        if isinstance(symbol.body, ast.Function):
            return self.function(symbol).without([inside(symbol)])
        return self.of(symbol.body, symbol.scope)

    def function(self, symbol: Defined) -> Facts:
        """The facts of a function's definition. The function itself is a name in it."""
        node = symbol.body
        assert isinstance(node, ast.Function)
        inner = self.bound(node, node.bounds, symbol.scope)
        body = self.of(node.body, inner.scope).without(inner.locals).maybe()
        return both(self._domains(node.bounds, symbol.scope), body)

    def of(self, node: ast.Expression, scope: Scope) -> Facts:
        """The facts of an expression."""
        key = (node, scope)
        found = self._facts.get(key)
        if found is None:
            found = self._facts[key] = _RULES.get(type(node), Analysis._parts)(self, node, scope)
        return found

    def _of_all(self, nodes: Iterable[ast.Expression], scope: Scope) -> list[Facts]:
        return [self.of(each, scope) for each in nodes]

    def _parts(self, node: ast.Node, scope: Scope) -> Facts:
        found = NOTHING
        for each in ast.parts_of(node):
            found = both(found, self.of(each, scope) if isinstance(each, ast.Expression) else self._parts(each, scope))
        return found

    def _domains(self, bounds: Iterable[ast.Bound], scope: Scope) -> Facts:
        return all_of(self._of_all([each.domain for each in bounds if each.domain is not None], scope))

    def _bound(self, node: Any, bounds: Iterable[ast.Bound], body: ast.Expression, scope: Scope) -> Facts:
        inner = self.bound(node, bounds, scope)
        return both(self._domains(bounds, scope), self.of(body, inner.scope).without(inner.locals).maybe())

    def _quantified(self, node: ast.Quantified | ast.FunctionOf, scope: Scope) -> Facts:
        return self._bound(node, node.bounds, node.body, scope)

    def _collect(self, node: ast.Collect, scope: Scope) -> Facts:
        return self._bound(node, node.bounds, node.result, scope)

    def _filter(self, node: ast.Filter, scope: Scope) -> Facts:
        return self._bound(node, (node.bound,), node.condition, scope)

    def _choose(self, node: ast.Choose, scope: Scope) -> Facts:
        return self._bound(node, (node.bound,), node.body, scope)

    def _unbounded(self, node: ast.Unbounded, scope: Scope) -> Facts:
        inner = self.inner(node, node.names, scope)
        return self.of(node.body, inner.scope).without(inner.locals).maybe()

    def _lambda(self, node: ast.Lambda, scope: Scope) -> Facts:
        inner = self.inner(node, node.parameters, scope)
        return self.of(node.body, inner.scope).without(inner.locals).maybe()

    def _label(self, node: ast.Label, scope: Scope) -> Facts:
        return self.of(node.body, scope)

    def _junction(self, node: ast.Junction, scope: Scope) -> Facts:
        return first_of(self._of_all(node.items, scope))

    def _if(self, node: ast.If, scope: Scope) -> Facts:
        return both(self.of(node.condition, scope), either(self.of(node.then, scope), self.of(node.otherwise, scope)))

    def _case(self, node: ast.Case, scope: Scope) -> Facts:
        found = ENDLESS if node.other is None else self.of(node.other, scope)
        for arm in reversed(node.arms):
            found = both(self.of(arm.condition, scope), either(self.of(arm.result, scope), found))
        return found

    def _let(self, node: ast.Let, scope: Scope) -> Facts:
        values = let_values(node, scope)
        self._let_values.update(values)
        found = self.of(node.body, scope.let(node))
        for value in reversed(values):
            if value in found.used:
                found = self.with_argument(found, value, self.definition(value))
        return found

    def _except(self, node: ast.Except, scope: Scope) -> Facts:
        found = self.of(node.function, scope)
        for update in node.updates:
            path = all_of(self.of(e, scope) for step in update.path if not isinstance(step, str) for e in step)
            found = both(found, both(path, self.of(update.value, scope).without([AT]).maybe()))
        return found

    def _at(self, node: ast.At, scope: Scope) -> Facts:
        return Facts(used=frozenset([AT]), strict=frozenset([AT]))

    def _step(self, node: ast.Square | ast.Angle, scope: Scope) -> Facts:
        return both(self.of(node.action, scope), _in_both_states(self.of(node.subscript, scope)).maybe())

    def _fairness(self, node: ast.Fairness, scope: Scope) -> Facts:
        return both(_enabled(self.of(node.action, scope)), _in_both_states(self.of(node.subscript, scope)))

    def _application(self, node: ast.Expression, scope: Scope) -> Facts:
        call = called(node, scope)
        symbol = call.symbol
        if isinstance(symbol, BuiltIn):
            return self._built_in(symbol, call)
        if isinstance(symbol, ast.Lambda):
            inner = self.inner(symbol, symbol.parameters, call.scope)
            return self._call(self.of(symbol.body, inner.scope), inner.locals, call)
        if isinstance(symbol, Substituted):
            return self.of(symbol.value, symbol.scope)
        if isinstance(symbol, Defined):
            if symbol in self._let_values or _is_itself(symbol, node):
                return Facts(used=frozenset([symbol]), strict=frozenset([symbol]))
            return self._call(self.definition(symbol), parameters_of(symbol), call)
        if isinstance(symbol, Local):
            arguments = all_of(self.of(*each) for each in call.arguments)
            itself = frozenset([symbol])
            return both(Facts(used=itself, strict=itself), arguments.maybe())
        return Facts(reads=frozenset([symbol])) if isinstance(symbol, Variable) else NOTHING

    def _call(self, found: Facts, parameters: tuple[Local, ...], call: Call) -> Facts:
        """The arguments of a recursive call may have the names of the parameters."""
        made = found.without(parameters)
        for parameter, argument in zip(parameters, call.arguments, strict=False):
            if parameter in found.used:
                made = _with_use(made, found, parameter, self.of(*argument))
        if any(each.arity and self._primes(*one) for each, one in zip(parameters, call.arguments, strict=False)):
            made = both(made, _in_both_states(made).maybe())
        return made

    def _primes(self, node: ast.Expression, scope: Scope) -> bool:
        """Whether an operator that is an argument primes what it is given. It may be given all that is read."""
        if not isinstance(node, ast.Lambda):
            found = called(node, scope)
            if isinstance(found.symbol, Defined):
                return not self.definition(found.symbol).primed.isdisjoint(found.symbol.parameters)
            if not isinstance(found.symbol, ast.Lambda):
                return False
            node, scope = found.symbol, found.scope
        inner = self.inner(node, node.parameters, scope)
        return not self.of(node.body, inner.scope).primed.isdisjoint(inner.locals)

    def with_argument(self, found: Facts, name: Symbol, argument: Facts) -> Facts:
        """The facts of an expression in which a name stands for another expression."""
        return _with_use(found.without([name]), found, name, argument) if name in found.used else found

    def _built_in(self, symbol: BuiltIn, call: Call) -> Facts:
        parts = [self.of(*each) for each in call.arguments]
        match symbol.name if not symbol.module else "":
            case "/\\" | "\\/" | "=>":
                return first_of(parts)
            case "'":
                return _primed(parts[0]) if parts else NOTHING
            case "UNCHANGED":
                return _in_both_states(parts[0])
            case "ENABLED":
                return _enabled(parts[0])
            case "\\cdot":
                return replace(all_of(parts), primed=all_of(parts).used)
        found = all_of(parts)
        return replace(found, is_impure=True) if self._impure(symbol) else found


def _with_use(made: Facts, found: Facts, name: Symbol, argument: Facts) -> Facts:
    """``made``, and the facts of what a name stands for that is used as ``found`` says."""
    if name in found.primed:
        made = both(made, _in_both_states(argument).maybe())
    return both(made, argument if found.is_strict(name) else argument.maybe())


def _primed(facts: Facts) -> Facts:
    return replace(facts, primed=facts.used, reads=frozenset(), reads_next=facts.reads)


def _in_both_states(facts: Facts) -> Facts:
    return replace(facts, primed=facts.used, reads_next=facts.reads)


def _enabled(facts: Facts) -> Facts:
    return replace(facts, strict=NONE, reads=facts.reads | facts.reads_next, reads_next=frozenset())


_RULES: dict[type, Callable[[Analysis, Any, Scope], Facts]] = {
    Itself: Analysis._application,
    ast.Name: Analysis._application,
    ast.Qualified: Analysis._application,
    ast.Apply: Analysis._application,
    ast.Part: Analysis._application,
    ast.Junction: Analysis._junction,
    ast.If: Analysis._if,
    ast.Case: Analysis._case,
    ast.Let: Analysis._let,
    ast.Quantified: Analysis._quantified,
    ast.Unbounded: Analysis._unbounded,
    ast.Choose: Analysis._choose,
    ast.Filter: Analysis._filter,
    ast.Collect: Analysis._collect,
    ast.FunctionOf: Analysis._quantified,
    ast.Lambda: Analysis._lambda,
    ast.Label: Analysis._label,
    ast.Except: Analysis._except,
    ast.At: Analysis._at,
    ast.Square: Analysis._step,
    ast.Angle: Analysis._step,
    ast.Fairness: Analysis._fairness,
}
