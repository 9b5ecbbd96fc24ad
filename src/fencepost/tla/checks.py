"""Checks the units of a module, as SANY does: every name has a meaning, no name hides another, every operator gets as
many arguments as it takes, an operator where it takes an operator, and no argument of a higher level than it takes.

A unit is walked twice without recursion. On the way down, names get their symbols, and on the way up, expressions their
levels.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fencepost.tla import ast, library, parts
from fencepost.tla.errors import SpecificationError
from fencepost.tla.levels import (
    ACTION,
    CONSTANT,
    NAMES,
    STATE,
    TEMPORAL,
    Key,
    Level,
    Operand,
    Signature,
    applied,
    join,
    plain,
    received,
    refusals,
    refused_operators,
    signature,
)
from fencepost.tla.operators import LEVELS
from fencepost.tla.scopes import (
    Chain,
    Entry,
    LetScope,
    Loaded,
    ModuleScope,
    Opening,
    exported,
    expressions,
    local,
    signature_of,
)
from fencepost.tla.symbols import BuiltIn, Constant, Defined, Instantiated, Local, Substituted, Symbol, Variable


def hint(name: str, known: Iterable[str]) -> str:
    """``: did you mean Nat?`` if one of the known names is close to a name, or nothing."""
    near = difflib.get_close_matches(name, [each for each in known if each != name], 1)
    return f": did you mean {near[0]}?" if near else ""


class Checker:
    """Checks the units of one module. ``find_instance`` gives the module that an ``INSTANCE`` means."""

    def __init__(self, scope: ModuleScope, find_instance: Callable[[ast.Instance], Loaded]) -> None:
        self.scope = scope
        self.find_instance = find_instance
        self._unfinished: list[tuple[_Levels, list[ast.Node]]] = []

    def check(self, unit: ast.Unit) -> None:
        """Raises SpecificationError for the first mistake in a unit, in the order of the text."""
        names = _Names(self)
        order = names.down(unit)
        levels = _Levels(names)
        levels.up(order)
        if levels.unfinished:
            self._unfinished.append((levels, order))

    def finish(self) -> None:
        """Reckons the levels of recursive definitions again, now that those of all others are known."""
        for levels, order in self._unfinished:
            levels.up(order)

    def must_be_new(self, name: str, place: ast.Place, scope: Chain | None = None) -> None:
        """Raises SpecificationError if a name has a meaning already."""
        known = lookup(scope or self.scope, name, place)
        if known is not None:
            raise SpecificationError(f"{name} {_already(known)}: give one of them another name", place)


def recursive(
    parameter: ast.Parameter, definitions: Mapping[str, ast.Operator | ast.Function]
) -> ast.Operator | ast.Function:
    """The definition that a ``RECURSIVE`` promises. Raises SpecificationError if there is none that fits."""
    definition = definitions.get(parameter.name)
    if definition is None:
        raise SpecificationError(f"{parameter.name} is declared RECURSIVE and not defined", parameter.place)
    count = len(definition.parameters) if isinstance(definition, ast.Operator) else 0
    if count != parameter.arity:
        raise SpecificationError(
            f"{parameter.name} is declared RECURSIVE with {taken(parameter.arity)}, and defined with {count}",
            definition.place,
        )
    if isinstance(definition, ast.Operator) and definition.parameters and definition.parameters[-1].arity:
        # SANY looks at the last parameter alone.
        raise SpecificationError(f"{parameter.name} is RECURSIVE, so it takes no operators", definition.place)
    return definition


def _already(symbol: Symbol) -> str:
    match symbol:
        case BuiltIn(module=""):
            return "is an operator of the language"
        case BuiltIn(module=module):
            return f"is defined in module {module}"
        case Constant(place=place) | Variable(place=place):
            return f"is declared in line {place.line} of {place.file}"
        case Substituted():
            return "is replaced"
        case _:
            return f"is defined in line {symbol.place.line} of {symbol.place.file}"


def _given(count: int) -> str:
    return "1 is given" if count == 1 else f"{count or 'none'} are given"


def taken(count: int) -> str:
    return "no arguments" if count == 0 else "1 argument" if count == 1 else f"{count} arguments"


# -- names -------------------------------------------------------------------------------------------------------------


def lookup(scope: Chain, name: str, place: ast.Place) -> Symbol | None:
    """The symbol of a name that is known at a place."""
    at: Chain | None = scope
    while at is not None:
        symbol = at.own(name)
        if symbol is not None and not (isinstance(at, LetScope) and not _is_visible(at, name, place)):
            return symbol
        at = at.outer
    return None


def _is_visible(scope: LetScope, name: str, place: ast.Place) -> bool:
    """A ``LET`` defines its names one after the other."""
    here = place.line, place.column
    declared: ast.Node | None = scope.recursive.get(name)
    unit = scope.units[name]
    if declared is None and isinstance(unit, ast.Function):
        declared = unit
    if declared is not None:
        return here > (declared.place.line, declared.place.column)
    return here > (unit.place.end_line, unit.place.end_column)


def _is_in_its_domain(symbol: Symbol, place: ast.Place) -> bool:
    """Whether a place is inside the domain of a function, where the function is not known yet."""
    body = symbol.body if isinstance(symbol, Defined) else None
    if not isinstance(body, ast.Function) or body.place.file != place.file:
        return False
    start, end = body.place, body.body.place
    return (start.line, start.column) < (place.line, place.column) < (end.line, end.column)


def known_names(scope: Chain) -> Iterator[str]:
    """All names that a scope knows."""
    at: Chain | None = scope
    while at is not None:
        yield from at.names()
        at = at.outer


def takes(symbol: Symbol) -> tuple[int, ...]:
    """For each parameter of an operator how many arguments it takes itself: 0 for a value."""
    match symbol:
        case BuiltIn(module=module) if module:
            return (library.exports(module) or {})[symbol.name].parameters
        case BuiltIn() | Constant() | Local():
            return (0,) * symbol.arity
        case Defined():
            return tuple(each.arity for each in symbol.parameters)
        case _:
            return ()


Item = tuple[ast.Node, Chain]


class _Names:
    """The way down: what each name is, and in which scope each node stands."""

    def __init__(self, checker: Checker) -> None:
        self.checker = checker
        self.symbols: dict[ast.Node, Symbol] = {}
        self.locals: dict[ast.Node, tuple[Local, ...]] = {}
        self.arguments: dict[ast.Node, tuple[ast.Expression, ...]] = {}
        self.operators: dict[ast.Node, int] = {}
        self.old_values: dict[Symbol, ast.Expression] = {}
        self.implicit: dict[tuple[ast.Instance, str], Symbol] = {}
        self.errors: list[SpecificationError] = []

    def down(self, unit: ast.Unit) -> list[ast.Node]:
        """The nodes of a unit, each after those in it if read from the end. Raises SpecificationError."""
        order: list[ast.Node] = []
        stack: list[Item] = [(unit, self.checker.scope)]
        while stack:
            node, scope = stack.pop()
            order.append(node)
            try:
                stack += self._enter(node, scope)
            except SpecificationError as error:
                self.errors.append(error)
        if self.errors:
            raise min(self.errors, key=_position)
        return order

    def _enter(self, node: ast.Node, scope: Chain) -> Sequence[Item]:
        rule = _RULES.get(type(node))
        return [(each, scope) for each in expressions(node)] if rule is None else rule(self, node, scope)

    # names

    def _name(self, node: ast.Name, scope: Chain) -> Sequence[Item]:
        self._argument(node, self._resolve(node, scope), 0)
        return ()

    def _qualified(self, node: ast.Qualified, scope: Chain) -> Sequence[Item]:
        given = self._resolve_qualified(node, scope)
        self._argument(node, self.symbols[node], len(given))
        self.arguments[node] = given
        return [(each, scope) for each in given]

    def _argument(self, node: ast.Expression, symbol: Symbol, given: int) -> None:
        """A name without arguments is a value, or an operator where one is expected."""
        count = len(takes(symbol)) - given
        expected = self.operators.get(node, 0)
        if isinstance(symbol, Instantiated):
            raise SpecificationError(f"{symbol.name} is an instance: write {symbol.name}!Name", node.place)
        if count != expected:
            wanted = f"an operator with {taken(expected)} is expected here" if expected else "a value is expected"
            raise SpecificationError(f"{_written(node)} takes {taken(max(count, 0))}, and {wanted}", node.place)
        if any(takes(symbol)[given:]):
            raise SpecificationError(f"{_written(node)} takes an operator, and cannot be passed itself", node.place)

    def _resolve(self, node: ast.Name, scope: Chain) -> Symbol:
        symbol = lookup(scope, node.text, node.place)
        if symbol is None or _is_in_its_domain(symbol, node.place):
            raise SpecificationError(self._unknown(node.text, scope, node.place), node.place)
        self.symbols[node] = symbol
        return symbol

    def _unknown(self, name: str, scope: Chain, place: ast.Place) -> str:
        below = _defined_below(scope.home.loaded, name)
        if below is not None and below.line <= place.line:
            return f"{name} uses itself: declare it with RECURSIVE above its definition"
        if below is not None:
            return f"{name} is not defined above this line, but in line {below.line}: move its definition up"
        shown = "-" if name == "-." else name
        module = next((each for each in library.modules() if name in (library.exports(each) or {})), None)
        if module is not None:
            return f"{shown} is not defined: module {module} defines it, so write EXTENDS {module}"
        return f"{shown} is not defined{hint(name, known_names(scope))}"

    def _resolve_qualified(self, node: ast.Qualified, scope: Chain) -> tuple[ast.Expression, ...]:
        """Gives ``I!Op`` its symbol. The arguments in it."""
        first = lookup(scope, node.steps[0].name, node.place)
        if first is None:
            raise SpecificationError(self._unknown(node.steps[0].name, scope, node.place), node.place)
        if not isinstance(first, Instantiated):
            self.symbols[node], arguments = parts.resolve(node, scope)
            return arguments
        instances = scope.instances(node.steps)
        symbol = scope.find_qualified(node.steps, node.text)
        if symbol is None:
            raise SpecificationError(_not_offered(node, scope, instances), node.place)
        self.symbols[node] = symbol
        for step, instance in zip(node.steps, instances, strict=True):
            self._expect(step.arguments, [each.arity for each in instance.parameters], step.name, step.place)
        return tuple(each for step in node.steps for each in step.arguments)

    def _expect(self, arguments: Sequence[ast.Expression], wanted: Sequence[int], name: str, place: ast.Place) -> None:
        """Notes which arguments must be operators. Raises SpecificationError if there are too many or too few."""
        if len(arguments) != len(wanted):
            raise SpecificationError(f"{name} takes {taken(len(wanted))}, and {_given(len(arguments))}", place)
        for argument, arity in zip(arguments, wanted, strict=True):
            if arity:
                self._expect_operator(argument, arity)

    def _expect_operator(self, argument: ast.Expression, arity: int) -> None:
        if not isinstance(argument, ast.Name | ast.Qualified | ast.Lambda | ast.Part):
            raise SpecificationError(
                f"an operator with {taken(arity)} is expected here, and this is a value", argument.place
            )
        self.operators[argument] = arity

    def _apply(self, node: ast.Apply, scope: Chain) -> Sequence[Item]:
        operator = node.operator
        given: tuple[ast.Expression, ...] = ()
        if isinstance(operator, ast.Name):
            symbol = self._resolve(operator, scope)
        elif isinstance(operator, ast.Qualified):
            given = self._resolve_qualified(operator, scope)
            symbol = self.symbols[operator]
        else:
            assert isinstance(operator, ast.Part)
            symbol, given = self._resolve_part(operator, scope)
        if isinstance(symbol, Instantiated):
            raise SpecificationError(f"{symbol.name} is an instance: write {symbol.name}(...)!Name", operator.place)
        self._expect(node.arguments, takes(symbol)[len(given) :], _written(operator), node.place)
        self.arguments[node] = given + node.arguments
        self.symbols[node] = symbol
        return [(each, scope) for each in self.arguments[node]]

    def _part(self, node: ast.Part, scope: Chain) -> Sequence[Item]:
        symbol, given = self._resolve_part(node, scope)
        self._argument(node, symbol, len(given))
        self.arguments[node] = given
        return [(each, scope) for each in given]

    def _resolve_part(self, node: ast.Part, scope: Chain) -> tuple[Symbol, tuple[ast.Expression, ...]]:
        self.symbols[node], given = parts.resolve(node, scope)
        return self.symbols[node], given

    # what binds names

    def _bind(self, node: ast.Node, parameters: Iterable[ast.Parameter], scope: Chain) -> Chain:
        made: dict[str, Local] = {}
        for parameter in parameters:
            self.checker.must_be_new(parameter.name, parameter.place, scope)
            if parameter.name in made:
                raise SpecificationError(f"{parameter.name} is bound twice", parameter.place)
            made[parameter.name] = local(parameter)
        self.locals[node] = tuple(made.values())
        return scope.inner(made) if made else scope

    def _bounds(self, node: ast.Node, bounds: tuple[ast.Bound, ...], body: ast.Expression, scope: Chain) -> list[Item]:
        inner = self._bind(node, [name for each in bounds for name in each.names], scope)
        domains = [(each.domain, scope) for each in bounds if each.domain is not None]
        return [*domains, (body, inner)]

    def _quantified(self, node: ast.Quantified, scope: Chain) -> Sequence[Item]:
        return self._bounds(node, node.bounds, node.body, scope)

    def _unbounded(self, node: ast.Unbounded, scope: Chain) -> Sequence[Item]:
        return [(node.body, self._bind(node, node.names, scope))]

    def _choose(self, node: ast.Choose, scope: Chain) -> Sequence[Item]:
        return self._bounds(node, (node.bound,), node.body, scope)

    def _filter(self, node: ast.Filter, scope: Chain) -> Sequence[Item]:
        return self._bounds(node, (node.bound,), node.condition, scope)

    def _collect(self, node: ast.Collect, scope: Chain) -> Sequence[Item]:
        return self._bounds(node, node.bounds, node.result, scope)

    def _function_of(self, node: ast.FunctionOf, scope: Chain) -> Sequence[Item]:
        return self._bounds(node, node.bounds, node.body, scope)

    def _lambda(self, node: ast.Lambda, scope: Chain) -> Sequence[Item]:
        expected = self.operators.get(node, 0)
        if expected == 0:
            raise SpecificationError("a LAMBDA can only be the argument of an operator", node.place)
        if expected != len(node.parameters):
            raise SpecificationError(
                f"an operator with {taken(expected)} is expected here, and this LAMBDA takes {len(node.parameters)}",
                node.place,
            )
        return [(node.body, self._bind(node, node.parameters, scope))]

    def _let(self, node: ast.Let, scope: Chain) -> Sequence[Item]:
        inner = scope.let(node)
        named = [each for each in node.definitions if isinstance(each, ast.Operator | ast.Function | ast.Instance)]
        seen: set[str] = set()
        for unit in named:
            self.checker.must_be_new(unit.name, unit.place, scope)
            if unit.name in seen:
                raise SpecificationError(f"{unit.name} is defined twice", unit.place)
            seen.add(unit.name)
            if isinstance(unit, ast.Instance):
                self.checker.find_instance(unit)
        definitions = {each.name: each for each in named if not isinstance(each, ast.Instance)}
        for parameter in inner.recursive.values():
            recursive(parameter, definitions)
        return [*((unit, inner) for unit in named), (node.body, inner)]

    def _except(self, node: ast.Except, scope: Chain) -> Sequence[Item]:
        old = Local("@", 0, node.place)
        self.old_values[old] = node.function
        at = scope.inner({"@": old})
        items: list[Item] = [(node.function, scope)]
        for update in node.updates:
            items += [(each, scope) for step in update.path if isinstance(step, tuple) for each in step]
            items.append((update.value, at))
        return items

    def _at(self, node: ast.At, scope: Chain) -> Sequence[Item]:
        old = scope.find("@")
        if old is None:
            raise SpecificationError("@ has a meaning only in the new value of an EXCEPT", node.place)
        self.symbols[node] = old
        return ()

    def _fields(self, node: ast.Record | ast.RecordSet, scope: Chain) -> Sequence[Item]:
        seen: set[str] = set()
        for each in node.fields:
            if each.name in seen:
                raise SpecificationError(f"the record has the field {each.name} twice", each.place)
            seen.add(each.name)
        return [(each.value, scope) for each in node.fields]

    def _index(self, node: ast.Index, scope: Chain) -> Sequence[Item]:
        if isinstance(node.function, ast.Name):
            symbol = lookup(scope, node.function.text, node.function.place)
            body = symbol.body if isinstance(symbol, Defined) else None
            if isinstance(body, ast.Function):
                self._expect_indices(node, body.bounds)
        return [(each, scope) for each in expressions(node)]

    def _expect_indices(self, node: ast.Index, bounds: tuple[ast.Bound, ...]) -> None:
        """A function of two arguments is one of pairs, so one argument may be a pair."""
        count = sum(1 if each.is_tuple else len(each.names) for each in bounds)
        if len(node.arguments) not in (1, count):
            raise SpecificationError(
                f"the function takes {taken(count)}, and {_given(len(node.arguments))}", node.place
            )

    # units

    def _operator(self, node: ast.Operator, scope: Chain) -> Sequence[Item]:
        return [(node.body, self._bind(node, node.parameters, scope))]

    def _function(self, node: ast.Function, scope: Chain) -> Sequence[Item]:
        return self._bounds(node, node.bounds, node.body, scope)

    def _instance(self, node: ast.Instance, scope: Chain) -> Sequence[Item]:
        other = self.checker.scope.loaded.instances.get(node) or self.checker.find_instance(node)
        inner = self._bind(node, node.parameters, scope)
        declared = {entry.name: entry for entry in other.declared()}
        given: set[str] = set()
        for each in node.substitutions:
            self._target(each, other, declared, given)
        for name, entry in declared.items():
            if name not in given:
                self.implicit[node, name] = self._implicit(node, name, entry.arity, inner)
        return [(each.value, inner) for each in node.substitutions]

    def _target(self, node: ast.Substitution, other: Loaded, declared: Mapping[str, Entry], given: set[str]) -> None:
        if node.name not in declared:
            raise SpecificationError(
                f"module {other.name} has no constant or variable {node.name}{hint(node.name, declared)}", node.place
            )
        if node.name in given:
            raise SpecificationError(f"{node.name} is substituted twice", node.place)
        given.add(node.name)
        if declared[node.name].arity:
            self._expect_operator(node.value, declared[node.name].arity)

    def _implicit(self, node: ast.Instance, name: str, arity: int, scope: Chain) -> Symbol:
        """A constant or variable without a substitution is what has the same name here."""
        symbol = lookup(scope, name, node.place)
        if symbol is None or isinstance(symbol, Instantiated):
            raise SpecificationError(
                f"module {node.module} declares {name}, which is not defined here: write {name} <- ... after WITH",
                node.place,
            )
        if len(takes(symbol)) != arity:
            raise SpecificationError(
                f"{name} takes {taken(arity)} in module {node.module}, and {len(takes(symbol))} here", node.place
            )
        return symbol


def _position(error: SpecificationError) -> tuple[int, int]:
    return (0, 0) if error.place is None else (error.place.line, error.place.column)


def _written(node: ast.Expression) -> str:
    match node:
        case ast.Name():
            return "-" if node.text == "-." else node.text
        case ast.Qualified():
            return "!".join([*(step.name for step in node.steps), node.text])
        case _:
            return "this part of a definition"


def _not_offered(node: ast.Qualified, scope: Chain, instances: Sequence[Instantiated]) -> str:
    wanted = [*(step.name for step in node.steps), node.text][len(instances)]
    offered = scope.realm_of(instances[-1]).top
    known = [name for name in offered.names if exported(offered, name)]
    return f"module {offered.name} offers no definition {wanted}{hint(wanted, known)}"


def _defined_below(loaded: Loaded, name: str) -> ast.Place | None:
    """Where a module defines or declares a name at its top."""
    units = () if loaded.module is None else loaded.module.units
    for unit in units:
        named = unit.parameters if isinstance(unit, ast.Constants | ast.Variables) else (unit,)
        for each in named:
            if getattr(each, "name", None) == name:
                return each.place
    return None


_RULES: Mapping[type[ast.Node], Callable[[_Names, Any, Chain], Sequence[Item]]] = {
    ast.Name: _Names._name,
    ast.Qualified: _Names._qualified,
    ast.Apply: _Names._apply,
    ast.Part: _Names._part,
    ast.Quantified: _Names._quantified,
    ast.Unbounded: _Names._unbounded,
    ast.Choose: _Names._choose,
    ast.Filter: _Names._filter,
    ast.Collect: _Names._collect,
    ast.FunctionOf: _Names._function_of,
    ast.Lambda: _Names._lambda,
    ast.Let: _Names._let,
    ast.Except: _Names._except,
    ast.At: _Names._at,
    ast.Record: _Names._fields,
    ast.RecordSet: _Names._fields,
    ast.Index: _Names._index,
    ast.Operator: _Names._operator,
    ast.Function: _Names._function,
    ast.Instance: _Names._instance,
}


# -- levels ------------------------------------------------------------------------------------------------------------

_PASSING = frozenset({"Print", "PrintT", "TLCEval"})
"""The operators of the library that take any formula."""


def _shipped(symbol: BuiltIn) -> Signature:
    """The levels of an operator of the library: it may apply each operator that it gets to each value that it gets."""
    arities = takes(symbol)
    values = [j for j, arity in enumerate(arities) if arity == 0]
    carried = frozenset((i, k, j) for i, arity in enumerate(arities) for k in range(arity) for j in values)
    return replace(plain(symbol.arity, TEMPORAL if symbol.name in _PASSING else ACTION), carried=carried)


_LOGIC = frozenset(("~", "/\\", "\\/", "=>", "<=>"))
_ANY = _LOGIC | {"[]", "<>", "~>", "-+->"}
_MOST = {"'": STATE, "UNCHANGED": STATE, **dict.fromkeys(_ANY, TEMPORAL)}


class _Levels:
    """The way up: the level of each expression."""

    def __init__(self, names: _Names) -> None:
        self.names = names
        self.loaded = names.checker.scope.loaded
        self.levels: dict[ast.Node, Level] = {}
        self.operands: dict[ast.Node, Operand] = {}
        self.unfinished = False

    def up(self, order: Sequence[ast.Node]) -> None:
        """Reckons the levels of a unit's nodes. Raises SpecificationError."""
        self.unfinished = False
        for node in reversed(order):
            self.levels[node] = _LEVELS[type(node)](self, node)
        self.loaded.level = join([self.loaded.level, self.levels[order[0]]])

    # names and applications

    def _operand_of(self, symbol: Symbol) -> Operand:
        match symbol:
            case Variable(name=name):
                return Operand(Level(STATE, frozenset({name})))
            case Constant(name=name):
                return Operand(Level(free=frozenset({name})), name=name)
            case Local():
                return Operand(Level(free=frozenset({symbol})), name=symbol)
            case _:
                known = self._signature(symbol)
                return Operand(known.level, known)

    def _signature(self, symbol: Symbol) -> Signature:
        if isinstance(symbol, Defined):
            known = signature_of(symbol)
            self.unfinished = self.unfinished or known is None
            return known or plain(len(symbol.parameters), ACTION)
        assert isinstance(symbol, BuiltIn)
        if symbol.module:
            return _shipped(symbol)
        own = LEVELS.get(symbol.name, CONSTANT)
        return plain(symbol.arity, _MOST.get(symbol.name, ACTION), own == CONSTANT, own)

    def _operand(self, node: ast.Expression) -> Operand:
        return self.operands.get(node) or Operand(self.levels[node])

    def _name(self, node: ast.Name) -> Level:
        self.operands[node] = operand = self._operand_of(self.names.symbols[node])
        return operand.level

    def _qualified(self, node: ast.Qualified | ast.Part) -> Level:
        operand = self._operand_of(self.names.symbols[node])
        given = self.names.arguments.get(node, ())
        if not given:
            self.operands[node] = operand
            return operand.level
        return self._applied(node, operand, given)

    def _apply(self, node: ast.Apply) -> Level:
        symbol = self.names.symbols[node]
        level = self._applied(node, self._operand_of(symbol), self.names.arguments[node])
        if isinstance(symbol, BuiltIn) and not symbol.module:
            self._temporal(node, symbol.name)
        return level

    def _applied(self, node: ast.Expression, operator: Operand, arguments: Sequence[ast.Expression]) -> Level:
        operands = [self._operand(each) for each in arguments]
        if operator.signature is None:
            assert operator.name is not None
            return received(operator.name, [each.level for each in operands])
        for i, most in refusals(operator.signature, operands):
            raise self._too_high(arguments[i], operands[i].level.own, most, node)
        for i in refused_operators(operator.signature, operands):
            raise SpecificationError(
                "this operator is applied to something of a higher level than it takes", arguments[i].place
            )
        return applied(operator.signature, operands)

    def _too_high(self, node: ast.Expression, own: int, most: int, around: ast.Node) -> SpecificationError:
        what = _written(around.operator) if isinstance(around, ast.Apply) else ""
        by = f"{what} takes at most" if what else "here can stand at most"
        if what == "'":
            by = "what is primed is at most"
        return SpecificationError(f"this is {NAMES[own]}, and {by} {NAMES[most]}", node.place)

    def _temporal(self, node: ast.Apply, name: str) -> None:
        """Rules for temporal operators over actions."""
        own = [self.levels[each].own for each in node.arguments]
        wanted = {"[]": ast.Square, "<>": ast.Angle}.get(name)
        passed = (ast.Let, ast.Label)
        if wanted and own[0] == ACTION and not isinstance(node.arguments[0], (wanted, *passed)):
            form = "[][A]_v" if name == "[]" else "<><<A>>_v"
            raise SpecificationError(f"{name} before an action must have the form {form}", node.place)
        if name in ("~>", "-+->") and ACTION in own:
            raise SpecificationError(f"{name} takes temporal formulas and state predicates, and no action", node.place)
        if name in _LOGIC:
            self._mixed(node, own)

    def _mixed(self, node: ast.Expression, own: Sequence[int]) -> None:
        if ACTION in own and TEMPORAL in own:
            raise SpecificationError(
                "a temporal formula and an action cannot be combined: write [][A]_v for the action A", node.place
            )

    # expressions

    def _bounded(self, node: ast.Expression, most: int, around: ast.Node) -> Level:
        level = self.levels[node]
        if level.own > most:
            raise self._too_high(node, level.own, most, around)
        return level.bounded(most)

    def _values(self, node: ast.Node) -> Level:
        return join(self._bounded(each, ACTION, node) for each in expressions(node))

    def _formulas(self, node: ast.Node) -> Level:
        return join(self.levels[each] for each in expressions(node))

    def _junction(self, node: ast.Junction) -> Level:
        self._mixed(node, [self.levels[each].own for each in node.items])
        return self._formulas(node)

    def _subscripted(self, node: ast.Square | ast.Angle | ast.Fairness) -> Level:
        action = self._bounded(node.action, ACTION, node).uncounted()
        subscript = self._bounded(node.subscript, STATE, node).uncounted()
        return join([action, subscript]).raised(TEMPORAL if isinstance(node, ast.Fairness) else ACTION)

    def _binder(self, node: ast.Node, bounds: Sequence[ast.Bound], body: ast.Expression, most: int) -> Level:
        domains = [self._bounded(each.domain, ACTION, node) for each in bounds if each.domain is not None]
        inside = self._bounded(body, most, node)
        if inside.own == TEMPORAL and any(each.own == ACTION for each in domains):
            raise SpecificationError("a temporal formula cannot be quantified over an action", node.place)
        return join([*domains, inside.without(self.names.locals[node])])

    def _quantified(self, node: ast.Quantified) -> Level:
        return self._binder(node, node.bounds, node.body, TEMPORAL)

    def _function_of(self, node: ast.FunctionOf) -> Level:
        return self._binder(node, node.bounds, node.body, TEMPORAL)

    def _choose(self, node: ast.Choose) -> Level:
        return self._binder(node, (node.bound,), node.body, ACTION)

    def _filter(self, node: ast.Filter) -> Level:
        return self._binder(node, (node.bound,), node.condition, ACTION)

    def _collect(self, node: ast.Collect) -> Level:
        return self._binder(node, node.bounds, node.result, ACTION)

    def _unbounded(self, node: ast.Unbounded) -> Level:
        level = self.levels[node.body].without(self.names.locals[node])
        return level if node.quantifier in ("\\A", "\\E") else level.uncounted().raised(TEMPORAL)

    def _lambda(self, node: ast.Lambda) -> Level:
        known = signature(self.levels[node.body], self.names.locals[node])
        self.operands[node] = Operand(known.level, known)
        return known.level

    def _let(self, node: ast.Let) -> Level:
        units = [self.levels[each].uncounted() for each in node.definitions if each in self.levels]
        return join([self.levels[node.body], *units])

    def _literal(self, node: ast.Node) -> Level:
        return Level()

    def _at(self, node: ast.At) -> Level:
        return self.levels[self.names.old_values[self.names.symbols[node]]]

    # units

    def _operator(self, node: ast.Operator) -> Level:
        known = signature(self.levels[node.body], self.names.locals[node])
        self.loaded.signatures[node.body] = known
        return known.level

    def _function(self, node: ast.Function) -> Level:
        level = self._binder(node, node.bounds, node.body, TEMPORAL)
        self.loaded.signatures[node] = Signature(level)
        return level

    def _formula(self, node: ast.Assumption | ast.Theorem) -> Level:
        if node.body is None:
            return Level()
        level = self.levels[node.body]
        if isinstance(node, ast.Assumption) and level.own > CONSTANT:
            raise SpecificationError(
                f"an assumption is about constants, and this is {NAMES[level.own]}", node.body.place
            )
        self.loaded.signatures[node.body] = Signature(level)
        return level

    def _instance(self, node: ast.Instance) -> Level:
        other = self.loaded.instances[node]
        values = {each.name: self._operand(each.value) for each in node.substitutions}
        places = {each.name: each.value.place for each in node.substitutions}
        for entry in other.declared():
            if entry.name not in values:
                values[entry.name] = self._operand_of(self.names.implicit[node, entry.name])
        level = join(each.level for each in other.family())
        is_constant = level.own == CONSTANT and not any(each.is_variable for each in other.declared())
        most: dict[Key, int] = (
            {} if is_constant else {each.name: STATE if each.is_variable else CONSTANT for each in other.declared()}
        )
        for name, value in values.items():
            bound = min(level.most.get(name, TEMPORAL), most.get(name, TEMPORAL))
            self._substitution(name, value, bound, places.get(name, node.place))
        self.loaded.openings[node] = Opening(self.names.locals[node], values, most)
        parts = [value.level.uncounted() for value in values.values()]
        return join([Level(level.own), *parts]).without(self.names.locals[node])

    def _substitution(self, name: str, value: Operand, most: int, place: ast.Place) -> None:
        if value.signature is not None and any(each <= STATE for each in value.signature.most):
            raise SpecificationError(f"{name} cannot be an operator that primes what it takes", place)
        if value.level.own > most:
            raise SpecificationError(
                f"{name} can be at most {NAMES[most]} in this module, and this is {NAMES[value.level.own]}", place
            )


_LEVELS: Mapping[type[ast.Node], Callable[[_Levels, Any], Level]] = {
    **dict.fromkeys((ast.Number, ast.Decimal, ast.String), _Levels._literal),
    **dict.fromkeys((ast.Qualified, ast.Part), _Levels._qualified),
    **dict.fromkeys((ast.If, ast.Case, ast.Record, ast.Label), _Levels._formulas),
    **dict.fromkeys(
        (ast.SetOf, ast.Product, ast.Tuple, ast.RecordSet, ast.FunctionSet, ast.Index, ast.Field, ast.Except),
        _Levels._values,
    ),
    **dict.fromkeys((ast.Square, ast.Angle, ast.Fairness), _Levels._subscripted),
    **dict.fromkeys((ast.Assumption, ast.Theorem), _Levels._formula),
    ast.At: _Levels._at,
    ast.Name: _Levels._name,
    ast.Apply: _Levels._apply,
    ast.Junction: _Levels._junction,
    ast.Quantified: _Levels._quantified,
    ast.FunctionOf: _Levels._function_of,
    ast.Choose: _Levels._choose,
    ast.Filter: _Levels._filter,
    ast.Collect: _Levels._collect,
    ast.Unbounded: _Levels._unbounded,
    ast.Lambda: _Levels._lambda,
    ast.Let: _Levels._let,
    ast.Operator: _Levels._operator,
    ast.Function: _Levels._function,
    ast.Instance: _Levels._instance,
}
