"""Compiles actions and initial predicates to Python functions that give variables their values.

An action is a function ``(now, then, choose, ...)``. It goes through the formula as TLC does (`getNextStates` and
`getInitStates` of `tlc2.tool.impl.Tool`): conjuncts in the order of the text; ``x' = e`` gives ``x'`` a value, or
tests it if it has one; ``x' \\in S`` chooses a value, ``\\E`` chooses a member and ``\\/`` a disjunct. ``choose`` is
given the options, at least one, and picks one. The caller runs the function again for the others. It
returns whether the formula is true this way.

A ``\\E`` or ``\\/`` that primes nothing is a choice too, so that a successor counts as often as TLC finds it. But when
all variables have values, TLC evaluates the remaining conjuncts as they are, and so do we.

A function that is applied as a conjunct is gone through, too, if TLC has not written it out: its rule is an action.

An operator whose arguments are values becomes a Python function of its own. Any other is put in place of its
application: one that is given a variable to prime, or an action.
"""

from __future__ import annotations

import ast as py
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fencepost.tla import ast, python, runtime
from fencepost.tla.compiler import Argument, Compiler, Entry, Frame, Held, Inline, Rule, Writer, held, is_nested
from fencepost.tla.errors import SpecificationError
from fencepost.tla.facts import Itself, called, inside, let_values, parameters_of, unlabelled
from fencepost.tla.python import assigned, call, constant, definition, function, name, tuple_of
from fencepost.tla.runtime import Choose, PlacedError, Successor
from fencepost.tla.symbols import LEVEL, BuiltIn, Constant, Defined, Local, Scope, Substituted, Symbol, Variable
from fencepost.tla.values import EvaluationError, LazyFunction, Value

_MOST_EXPANSIONS = 60
"""The most applications of operators inside each other that are put in their place."""


class Action:
    """A compiled action, or an initial predicate.

    Called with two states, ``choose`` and the values of its free names, it returns whether it is true this way, and
    then all variables have values. Raises :class:`EvaluationError` with a place if an evaluation fails, and for a
    variable without a value. An initial predicate gives values to variables of the first state.

    ``asks_next_level``: it reads the level of the second state, which has to be there before. ``names``: those of its
    free names that always have the same value.
    """

    def __init__(
        self,
        compiler: ActionCompiler,
        function: Callable[..., bool],
        title: str,
        place: ast.Place,
        is_initial: bool,
        asks_next_level: bool,
    ) -> None:
        self._compiler = compiler
        self.asks_next_level = asks_next_level
        self.function = function
        self.title = title
        self.place = place
        self._is_initial = is_initial
        self.names: Mapping[Local, Value] = {}

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of all variables, in order."""
        return self._compiler.variables

    def __call__(self, now: Any, then: Any, choose: Choose, *arguments: Value) -> bool:
        is_true = self.partly(now, then, choose, *arguments)
        if is_true:
            self.refuse_unassigned(now if self._is_initial else then)
        return is_true

    def partly(self, now: Any, then: Any, choose: Choose, *arguments: Value) -> bool:
        """The same for a conjunct: other conjuncts give the rest of the variables their values."""
        try:
            return self.function(now, then, choose, *self.names.values(), *arguments)
        except (EvaluationError, RecursionError) as error:
            raise self._compiler.placed(error) from None

    def refuse_unassigned(self, state: Any) -> None:
        """Raises :class:`PlacedError` if a variable has no value."""
        for number, variable in enumerate(self._compiler.variables):
            if not state.is_assigned(number):
                prime = "" if self._is_initial else "'"
                raise PlacedError(f"{self.title} does not say what {variable}{prime} is", self.place)


class ActionCompiler(Compiler):
    """Compiles expressions, actions and initial predicates. ``variables`` are the names of all variables, in order."""

    def __init__(self, constants: Mapping[Constant, Value], variables: Sequence[str]) -> None:
        super().__init__(constants)
        self.variables = tuple(variables)
        self.globals["variables"] = self.variables
        self.free: dict[Substituted, Variable] = {}
        """The variables of instances that have next values of their own inside ``ENABLED``."""
        of_actions: tuple[Callable[..., Any], ...] = (
            *(runtime.assign, runtime.pick, runtime.pick_subset, runtime.is_complete, runtime.leads, runtime.enabled),
            *(runtime.is_unchanged, runtime.are_kept, runtime.changes_at, runtime.may_be),
        )
        self.globals |= {each.__name__: each for each in of_actions}
        self.globals["in_domain"] = runtime.in_domain
        self.globals |= {"options": runtime.options, "between": runtime.between, "untupled": runtime.untupled}
        self._chooses: dict[Symbol, bool] = {}
        self._rules: dict[Symbol, bool] = {}

    def action(self, node: ast.Expression, scope: Scope, title: str, names: Sequence[Local] = ()) -> Action:
        """Compile an action. ``names`` are free in it: their values follow ``choose`` in a call. ``title`` is what
        errors call it.

        Raises :class:`fencepost.tla.errors.SpecificationError` for what cannot be compiled.
        """
        return self._action(node, scope, title, names, is_initial=False)

    def initial(
        self,
        node: ast.Expression,
        scope: Scope,
        title: str,
        names: Mapping[Local, Value] | None = None,
        comes_later: bool = False,
    ) -> Action:
        """Compile an initial predicate. ``names`` are free in it, and have these values. ``comes_later``: it is a
        conjunct after others.
        """
        made = self._action(node, scope, title, tuple(names or ()), is_initial=True, comes_later=comes_later)
        made.names = names or {}
        return made

    def _action(
        self,
        node: ast.Expression,
        scope: Scope,
        title: str,
        names: Sequence[Local],
        is_initial: bool,
        comes_later: bool = False,
    ) -> Action:
        def write(writer: Writer) -> list[py.stmt]:
            assert isinstance(writer, ActionWriter)
            entries: dict[Symbol, Entry] = {each: Held(writer.held[each]) for each in names}
            return writer.steps(node, Frame(scope, entries, is_initial=is_initial), comes_later)

        unit = self.unit(title, node.place, names, write, ("choose",))
        self.link()
        asks_next_level = LEVEL in self.analysis.of(node, scope).reads_next
        return Action(self, self.globals[unit], title, node.place, is_initial, asks_next_level)

    def action_definition(self, symbol: Defined, captured: tuple[tuple[Symbol, str], ...], is_initial: bool) -> str:
        """The global of a definition as an action."""

        def body(writer: Writer, frame: Frame) -> list[py.stmt]:
            assert isinstance(writer, ActionWriter) and not isinstance(symbol.body, ast.Function)
            return writer.steps(symbol.body, replace(frame, is_initial=is_initial))

        return self._variant("action", symbol, captured, is_initial, body, ("choose",))

    def guard(self, symbol: Defined, captured: tuple[tuple[Symbol, str], ...], is_initial: bool) -> str:
        """The global of the conditions with which an action begins."""

        def body(writer: Writer, frame: Frame) -> list[py.stmt]:
            assert isinstance(writer, ActionWriter) and not isinstance(symbol.body, ast.Function)
            guards = writer.guards(symbol.body, replace(frame, is_initial=is_initial))
            return [writer.at(py.Return(python.every(guards or [constant(True)])), symbol.place)]

        return self._variant("guard", symbol, captured, is_initial, body, ())

    def rule(self, symbol: Defined, captured: tuple[tuple[Symbol, str], ...], is_initial: bool) -> str:
        """The global of a function's rule as an action. It takes the function's argument after ``choose``."""

        def body(writer: Writer, frame: Frame) -> list[py.stmt]:
            assert isinstance(writer, ActionWriter)
            return writer.steps_of_rule(symbol, replace(frame, is_initial=is_initial))

        return self._variant("rule", symbol, captured, is_initial, body, ("choose", "argument"))

    def is_rule(self, symbol: Defined) -> bool:
        """Whether TLC goes through the rule of a function where it is applied as a conjunct. A function without
        parameters that is the same in every state has its values before the search, unless it uses itself or its
        domain is infinite.
        """
        if symbol not in self._rules:
            self._rules[symbol] = not self._is_written_out(symbol)
        return self._rules[symbol]

    def is_opened(self, symbol: Defined) -> bool:
        """Whether a function that is applied is looked for in the body of a definition."""
        return isinstance(symbol.body, ast.Expression) and not symbol.is_recursive and self.is_rule(symbol)

    def _is_written_out(self, symbol: Defined) -> bool:
        is_constant = self.analysis.definition(symbol).is_constant and not self.analysis.is_of_let(symbol)
        if not is_constant or parameters_of(symbol) or self.captured(symbol):
            return False
        made = self.constant(symbol)
        return isinstance(made, py.Name) and not isinstance(self.globals[made.id], LazyFunction)

    def _variant(
        self,
        kind: str,
        symbol: Defined,
        captured: tuple[tuple[Symbol, str], ...],
        is_initial: bool,
        body: Callable[[Writer, Frame], list[py.stmt]],
        first: tuple[str, ...],
    ) -> str:
        key = (kind, symbol, captured, is_initial)
        if key not in self._titles:
            write = self._in_frame(symbol, captured, body)
            names = self._parameters(symbol, captured)
            self._titles[key] = self.unit(f"{symbol.name}_{kind}", symbol.place, names, write, first)
        return self._titles[key]

    # -- what is a choice ---------------------------------------------------------------------------------------------

    def chooses(self, node: ast.Expression, scope: Scope) -> bool:
        """Whether a formula, as a conjunct of an action, may be true in several ways."""
        node = unlabelled(node)
        if isinstance(node, ast.Junction):
            return node.operator == "\\/" or any(self.chooses(each, scope) for each in node.items)
        if isinstance(node, ast.Quantified):
            inside = self.analysis.bound(node, node.bounds, scope).scope
            return node.quantifier == "\\E" or self.chooses(node.body, inside)
        if isinstance(node, ast.If):
            return self.chooses(node.then, scope) or self.chooses(node.otherwise, scope)
        if isinstance(node, ast.Case):
            results = [arm.result for arm in node.arms] + ([node.other] if node.other else [])
            return any(self.chooses(each, scope) for each in results)
        if isinstance(node, ast.Let):
            return self.chooses(node.body, scope.let(node))
        if isinstance(node, ast.Lambda):
            return self.chooses(node.body, self.analysis.inner(node, node.parameters, scope).scope)
        if isinstance(node, Itself | ast.Name | ast.Qualified | ast.Part | ast.Apply):
            return self._application_chooses(node, scope)
        if isinstance(node, ast.Index):
            return self._rule_chooses(node, scope)
        return isinstance(node, ast.Square) or (isinstance(node, ast.Angle) and self.chooses(node.action, scope))

    def _rule_chooses(self, node: ast.Index, scope: Scope) -> bool:
        """Whether the rule of a function that is applied may be true in several ways."""
        opened = self._opened(node, scope)
        if opened is not None:
            return self.chooses(*opened)
        symbol = function_named(*self._applied_function(node.function, scope))
        return symbol is not None and self.is_rule(symbol) and self._definition_chooses(symbol)

    def _opened(self, node: ast.Index, scope: Scope) -> tuple[ast.Expression, Scope] | None:
        """The rule of a function that is applied, if the function is written as ``[x \\in S |-> e]``."""
        of, scope = self._applied_function(node.function, scope)
        if isinstance(of, ast.Index):
            outer = self._opened(of, scope)
            if outer is None:
                return None
            of, scope = self._applied_function(*outer)
        return (of.body, self.analysis.bound(of, of.bounds, scope).scope) if isinstance(of, ast.FunctionOf) else None

    def _applied_function(self, node: ast.Expression, scope: Scope) -> tuple[ast.Expression, Scope]:
        """A function that is applied, through names and operators."""
        while True:
            node = unlabelled(node)
            if not isinstance(node, Itself | ast.Name | ast.Qualified | ast.Part | ast.Apply):
                return node, scope
            symbol = called(node, scope).symbol
            if isinstance(symbol, Substituted):
                node, scope = symbol.value, symbol.scope
            elif isinstance(symbol, Defined) and self.is_opened(symbol):
                assert isinstance(symbol.body, ast.Expression)
                node, scope = symbol.body, symbol.scope
            else:
                return node, scope

    def _application_chooses(self, node: ast.Expression, scope: Scope) -> bool:
        found = called(node, scope)
        symbol = found.symbol
        if isinstance(symbol, BuiltIn):
            if symbol.module or symbol.name not in _CHOOSING:
                return False
            return symbol.name in ("\\/", "\\cdot") or any(self.chooses(*each) for each in found.arguments)
        if isinstance(symbol, Substituted):
            return self.chooses(symbol.value, symbol.scope)
        if isinstance(symbol, ast.Lambda):
            return self.chooses(symbol, found.scope)
        if not isinstance(symbol, Defined) or isinstance(symbol.body, ast.Function):
            return False
        return self._definition_chooses(symbol) or any(self.chooses(*each) for each in found.arguments)

    def _definition_chooses(self, symbol: Defined) -> bool:
        if symbol not in self._chooses:
            self._chooses[symbol] = False
            body = symbol.body
            if isinstance(body, ast.Function):
                inside = self.analysis.bound(body, body.bounds, symbol.scope).scope
                self._chooses[symbol] = self.chooses(body.body, inside)
            else:
                self._chooses[symbol] = self.chooses(body, symbol.scope)
        return self._chooses[symbol]


def function_named(node: ast.Expression, scope: Scope) -> Defined | None:
    """The definition of a function that an expression names."""
    if not isinstance(node, Itself | ast.Name | ast.Qualified | ast.Part):
        return None
    symbol = called(node, scope).symbol
    return symbol if isinstance(symbol, Defined) and isinstance(symbol.body, ast.Function) else None


_CHOOSING = frozenset("/\\ \\/ => \\cdot".split())


@dataclass(frozen=True, slots=True)
class _Conjunct:
    """A conjunct, and whether TLC looks first if all variables have values."""

    node: ast.Expression
    frame: Frame
    comes_later: bool


class ActionWriter(Writer):
    """Writes functions of expressions and of actions."""

    compiler: ActionCompiler

    def __init__(self, compiler: Compiler, place: ast.Place) -> None:
        super().__init__(compiler, place)
        self._expanded = 0

    def steps(self, node: ast.Expression, frame: Frame, comes_later: bool = False) -> list[py.stmt]:
        """The statements of a function that returns whether an action is true."""
        return [*self.step(node, frame, comes_later), py.Return(constant(True))]

    def step(self, node: ast.Expression, frame: Frame, comes_later: bool = False) -> list[py.stmt]:
        """Statements that go through a formula, and return False if it is not true."""
        conjuncts = self._conjuncts(_Conjunct(node, frame, comes_later))
        return [statement for each in conjuncts for statement in self._conjunct(each)]

    def _conjuncts(self, conjunct: _Conjunct) -> list[_Conjunct]:
        """A formula taken apart at ``/\\``."""
        node, found = unlabelled(conjunct.node), []
        waiting = [replace(conjunct, node=node)]
        while waiting:
            conjunct = waiting.pop()
            parts = self._parts(conjunct, "/\\")
            if parts is None:
                found.append(conjunct)
            else:
                waiting += reversed(parts)
        return found

    def _parts(self, conjunct: _Conjunct, operator: str) -> list[_Conjunct] | None:
        """The parts of a conjunction or a disjunction, or None for any other formula."""
        node, frame = unlabelled(conjunct.node), conjunct.frame
        if isinstance(node, ast.Junction) and node.operator == operator:
            items: Sequence[Argument] = [(each, frame) for each in node.items]
        elif isinstance(node, ast.Apply):
            found = called(node, frame.scope)
            if not _is_language(found.symbol, operator):
                return None
            items = [(each, frame.within(scope)) for each, scope in found.arguments]
        else:
            return None
        later = conjunct.comes_later
        return [_Conjunct(*each, later or number > 0) for number, each in enumerate(items)]

    def _conjunct(self, conjunct: _Conjunct) -> list[py.stmt]:
        node, frame = conjunct.node, conjunct.frame
        if self._is_plain(node, frame):
            return self._test(node, frame)
        statements = self._choice(node, frame)
        if conjunct.comes_later and self._may_choose(node, frame):
            is_complete = call("is_complete", name(frame.target), name("variables"))
            return [self.at(py.If(is_complete, self._test(node, frame), statements or [py.Pass()]), node.place)]
        return statements

    def _may_choose(self, node: ast.Expression, frame: Frame) -> bool:
        return self._uses_inline(node, frame) or self.compiler.chooses(node, frame.scope)

    def _is_plain(self, node: ast.Expression, frame: Frame) -> bool:
        """Whether a formula gives no variable a value, and is no choice."""
        found = self.analysis.of(node, frame.scope)
        gives = found.reads or found.reads_next if frame.is_initial else found.reads_next
        return not gives and not self._may_choose(node, frame)

    def _uses_inline(self, node: ast.Expression, frame: Frame) -> bool:
        used = self.analysis.of(node, frame.scope).used
        return any(isinstance(frame.names.get(each), Inline) for each in used)

    # -- statements ---------------------------------------------------------------------------------------------------

    def _require(self, condition: py.expr, place: ast.Place) -> list[py.stmt]:
        return [self.at(py.If(python.negated(condition), [py.Return(constant(False))], []), place)]

    def _test(self, node: ast.Expression, frame: Frame) -> list[py.stmt]:
        return self._require(self.truth(node, frame, "this conjunct"), node.place)

    def _assign(self, title: str, value: py.expr, place: ast.Place) -> py.stmt:
        return self.at(assigned(title, value), place)

    def _choice(self, node: ast.Expression, frame: Frame) -> list[py.stmt]:
        """Statements for a formula that is no conjunction."""
        node = unlabelled(node)
        if self._parts(_Conjunct(node, frame, False), "\\/") is not None:
            return self._disjunction(node, frame)
        if isinstance(node, Itself | ast.Name | ast.Qualified | ast.Part | ast.Apply):
            return self._applied(node, frame)
        rule = _STEPS.get(type(node))
        return self._test(node, frame) if rule is None else rule(self, node, frame)

    def _disjunction(self, node: ast.Expression, frame: Frame) -> list[py.stmt]:
        found, waiting = [], [_Conjunct(node, frame, False)]
        while waiting:
            each = waiting.pop()
            parts = self._parts(each, "\\/")
            if parts is None:
                found.append(each)
            else:
                waiting += reversed(parts)
        return self._alternatives([partial(self.step, each.node, each.frame) for each in found], node.place)

    def _alternatives(self, ways: Sequence[Callable[[], list[py.stmt]]], place: ast.Place) -> list[py.stmt]:
        """Choose one of several ways to go on."""
        way = self.variable("way")
        numbers = py.Tuple([constant(number) for number in range(len(ways))], py.Load())
        statements: list[py.stmt] = []
        for number, write in reversed(list(enumerate(ways))):
            is_it = py.Compare(name(way), [py.Eq()], [constant(number)])
            statements = [self.at(py.If(is_it, write() or [py.Pass()], statements), place)]
        return [self._assign(way, call("choose", numbers), place), *statements]

    def _exists(self, node: ast.Quantified, frame: Frame) -> list[py.stmt]:
        if node.quantifier == "\\A":
            return self._for_all(node, frame)
        statements: list[py.stmt] = []
        inner = self.analysis.bound(node, node.bounds, frame.scope)
        variables: dict[Symbol, str] = {each: self.variable(each.name) for each in inner.locals}
        inside = frame.within(inner.scope).bind({each: Held(v) for each, v in variables.items()})
        choices = []
        for bound in node.bounds:
            assert bound.domain is not None
            of = self.variable("set")
            statements.append(self._assign(of, self.value(bound.domain, frame), bound.place))
            names = [variables[inner.scope.symbol(ast.Name(place=each.place, text=each.name))] for each in bound.names]
            choices += [(of, names, bound)] if bound.is_tuple else [(of, [each], bound) for each in names]
        for number, (of, names, bound) in enumerate(choices):
            is_last = number == len(choices) - 1
            guards = self.guards(node.body, inside) if is_last else []
            sifting = self.sifting(node.body, inside) if is_last and not bound.is_tuple else []
            statements += self._chosen(of, names, bound, guards, sifting)
        return [*statements, *self.step(node.body, inside)]

    def _chosen(
        self, of: str, names: list[str], bound: ast.Bound, guards: list[py.expr], sifting: list[py.expr]
    ) -> list[py.stmt]:
        """Choose a member for which the guards hold, or one that ``sifting`` does not sort out."""
        options = self.variable("options")
        given: list[py.expr] = [function(names, python.every(guards))] if guards else []
        if given and bound.is_tuple:
            given = [call("spread", given[0], constant(len(names)))]
        if sifting:
            given = [*(given or [constant(None)]), function(names, call("all_of", *sifting))]
        made = self._assign(options, call("options", name(of), *given), bound.place)
        picked: py.expr = call("choose", name(options))
        if not bound.is_tuple:
            return [made, *self._require(name(options), bound.place), self._assign(names[0], picked, bound.place)]
        unpacked = py.Assign(
            [py.Tuple([py.Name(each, py.Store()) for each in names], py.Store())],
            call("untupled", picked, constant(len(names))),
        )
        return [made, *self._require(name(options), bound.place), self.at(unpacked, bound.place)]

    def guards(self, node: ast.Expression, frame: Frame) -> list[py.expr]:
        """The conditions with which an action begins: what gives no variable a value, and is no choice."""
        found: list[py.expr] = []
        for each in self._conjuncts(_Conjunct(node, frame, False)):
            if not self._is_plain(each.node, each.frame):
                return [*found, *self._guard_of_call(each.node, each.frame)]
            found.append(self.truth(each.node, each.frame, "this conjunct"))
        return found

    def sifting(self, node: ast.Expression, frame: Frame) -> list[py.expr]:
        """The conditions of an action, wherever they stand, for what sorts out members without reading the state."""
        conjuncts = self._conjuncts(_Conjunct(node, frame, False))
        plain = [self._is_plain(each.node, each.frame) and not is_nested(each.node) for each in conjuncts]
        if len(conjuncts) < 2 or not any(plain):
            return []
        return [
            function([], self.truth(each.node, each.frame, "this conjunct")) if is_plain else name("unknown")
            for each, is_plain in zip(conjuncts, plain, strict=True)
        ]

    def _guard_of_call(self, node: ast.Expression, frame: Frame) -> list[py.expr]:
        if not isinstance(node, Itself | ast.Name | ast.Qualified | ast.Part | ast.Apply):
            return []
        found = called(node, frame.scope)
        arguments = tuple((each, frame.within(scope)) for each, scope in found.arguments)
        symbol = found.symbol
        if not isinstance(symbol, Defined) or symbol in frame.names or not self._is_callable(symbol, arguments, frame):
            return []
        captured = self.captured(symbol, frame)
        title = self.compiler.guard(symbol, captured, frame.is_initial)
        return [self.at(call(title, *self._given(symbol, arguments, frame, ())), node.place)]

    def _for_all(self, node: ast.Quantified, frame: Frame) -> list[py.stmt]:
        """Each member has its own call, so that what is kept of a member does not change with the next."""
        inner = self.analysis.bound(node, node.bounds, frame.scope)
        variables: dict[Symbol, str] = {each: self.variable(each.name) for each in inner.locals}
        inside = frame.within(inner.scope).bind({each: Held(v) for each, v in variables.items()})
        each, item = self.variable("each"), self.variable("item")
        shape = [
            len(b.names) if b.is_tuple else 0 for b in node.bounds for _ in (b.names[:1] if b.is_tuple else b.names)
        ]
        domains = [b.domain for b in node.bounds for _ in (b.names[:1] if b.is_tuple else b.names) if b.domain]
        members = call("ways", tuple_of(map(constant, shape)), *self.values(domains, frame))
        body = [*self.step(node.body, inside, comes_later=True), py.Return(constant(True))]
        made = self.at(definition(each, variables.values(), body), node.place)
        run = self._require(py.Call(name(each), [py.Starred(name(item), py.Load())], []), node.place)
        return [made, self.at(py.For(py.Name(item, py.Store()), members, run, []), node.place)]

    def _if_step(self, node: ast.If, frame: Frame) -> list[py.stmt]:
        condition = self.truth(node.condition, frame, "the condition of IF")
        then, otherwise = self.step(node.then, frame), self.step(node.otherwise, frame)
        return [self.at(py.If(condition, then or [py.Pass()], otherwise), node.place)]

    def _case_step(self, node: ast.Case, frame: Frame) -> list[py.stmt]:
        if node.other is None:
            statements: list[py.stmt] = [self.at(py.Expr(self.at(call("no_case"), node.place)), node.place)]
        else:
            statements = self.step(node.other, frame)
        for arm in reversed(node.arms):
            condition = self.truth(arm.condition, frame, "the condition of CASE")
            result = self.step(arm.result, frame) or [py.Pass()]
            statements = [self.at(py.If(condition, result, statements), arm.place)]
        return statements

    def _let_step(self, node: ast.Let, frame: Frame) -> list[py.stmt]:
        symbols = let_values(node, frame.scope)
        ways = self.let_ways(node, symbols, frame)
        inside, statements = frame.within(frame.scope.let(node)), []
        for symbol in symbols:
            if not isinstance(symbol.body, ast.Function) and self._is_put_in_place(symbol, ways[symbol], inside):
                inside = inside.bind({symbol: Inline(symbol.body, symbol.scope, inside.names)})
            elif ways[symbol] != "unused":
                variable = self.variable(symbol.name)
                statements.append(self._assign(variable, self.let_value(symbol, ways[symbol], inside), symbol.place))
                inside = inside.bind({symbol: Held(variable, ways[symbol])})
        return [*statements, *self.step(node.body, inside)]

    def _index_step(self, node: ast.Index, frame: Frame) -> list[py.stmt]:
        """A function applied as a conjunct: as in TLC, its rule is gone through unless its values are written out."""
        opened = self._opened(node, frame)
        if opened is not None:
            statements, body, inside = opened
            return [*statements, *self.step(body, inside)]
        of, inside = self._function(node.function, frame)
        symbol = function_named(of, inside.scope)
        if symbol is None or not self.compiler.is_rule(symbol) or not self._knows(symbol, inside):
            return self._test(node, frame)
        implied = called(of, inside.scope).arguments
        arguments = tuple((each, inside.within(scope)) for each, scope in implied)
        title = self.compiler.rule(symbol, self.captured(symbol, inside), frame.is_initial)
        made = call(title, *self._given(symbol, arguments, inside, (name("choose"), self._argument(node, frame))))
        return self._require(self.at(made, node.place), node.place)

    def _opened(self, node: ast.Index, frame: Frame) -> tuple[list[py.stmt], ast.Expression, Frame] | None:
        """The rule of a function that is applied, and what gives its argument to its names. None if the function is
        not written as ``[x \\in S |-> e]``.
        """
        statements: list[py.stmt] = []
        of, inside = self._function(node.function, frame)
        if isinstance(of, ast.Index):
            outer = self._opened(of, inside)
            if outer is None:
                return None
            statements, of, inside = outer
            of, inside = self._function(of, inside)
        if not isinstance(of, ast.FunctionOf):
            return None
        argument = self.variable("argument")
        statements.append(self._assign(argument, self._argument(node, frame), node.place))
        given, inside = self._given_to_rule(of, inside, argument, node.place)
        return [*statements, *given], of.body, inside

    def _function(self, node: ast.Expression, frame: Frame) -> Argument:
        """A function that is applied, through names, operators and the values of a ``LET``."""
        while True:
            node = unlabelled(node)
            if not isinstance(node, Itself | ast.Name | ast.Qualified | ast.Part | ast.Apply):
                return node, frame
            found = called(node, frame.scope)
            symbol = found.symbol
            entry = frame.names.get(symbol) if not isinstance(symbol, ast.Lambda) else None
            if isinstance(entry, Inline) and not found.arguments:
                node, frame = entry.node, replace(frame, scope=entry.scope, names=entry.names)
            elif isinstance(symbol, Substituted):
                node, frame = symbol.value, frame.within(symbol.scope)
            elif isinstance(symbol, Defined) and self.compiler.is_opened(symbol):
                assert isinstance(symbol.body, ast.Expression)
                inside = frame.bind(
                    {
                        parameter: Inline(argument, scope, frame.names)
                        for parameter, (argument, scope) in zip(parameters_of(symbol), found.arguments, strict=True)
                    }
                )
                if not self._knows(symbol, inside):
                    return node, frame
                node, frame = symbol.body, inside.within(symbol.scope)
            else:
                return node, frame

    def _knows(self, symbol: Defined, frame: Frame) -> bool:
        """Whether all names that a definition uses from where it stands are known here."""
        return all(each in frame.names for each in self.compiler.captured(symbol))

    def _argument(self, node: ast.Index, frame: Frame) -> py.expr:
        given = self.values(node.arguments, frame)
        return given[0] if len(given) == 1 else call("Sequence", tuple_of(given))

    def steps_of_rule(self, symbol: Defined, frame: Frame) -> list[py.stmt]:
        """The statements of a function that returns whether the rule of a function is true as an action."""
        assert isinstance(symbol.body, ast.Function)
        statements: list[py.stmt] = []
        if inside(symbol) in self.analysis.function(symbol).used:
            itself = self.variable(symbol.name)
            value = call("Lazy", function([], self.defined_function(symbol, frame)))
            statements.append(self._assign(itself, value, symbol.place))
            frame = frame.bind({inside(symbol): Held(itself, "lazy")})
        given, of_rule = self._given_to_rule(symbol.body, frame, "argument", symbol.body.bounds[0].place)
        return [*statements, *given, *self.steps(symbol.body.body, of_rule)]

    def _given_to_rule(
        self, node: ast.Function | ast.FunctionOf, frame: Frame, argument: str, place: ast.Place
    ) -> tuple[list[py.stmt], Frame]:
        """Statements that give an argument to the names of a function's rule, and the rule's frame."""
        inner = self.analysis.bound(node, node.bounds, frame.scope)
        variables: dict[Symbol, str] = {each: self.variable(each.name) for each in inner.locals}
        statements: list[py.stmt] = []
        shape = []
        for bound in node.bounds:
            assert bound.domain is not None
            of = self.variable("set")
            statements.append(self._assign(of, self.value(bound.domain, frame), bound.place))
            parts = [len(bound.names)] if bound.is_tuple else [0] * len(bound.names)
            shape += [tuple_of([name(of), constant(each)]) for each in parts]
        taken = py.Assign(
            [py.Tuple([py.Name(each, py.Store()) for each in variables.values()], py.Store())],
            call("in_domain", name(argument), *shape),
        )
        inside = frame.within(inner.scope).bind({each: Held(variable) for each, variable in variables.items()})
        return [*statements, self.at(taken, place)], inside

    def _is_put_in_place(self, symbol: Defined, way: str, frame: Frame) -> bool:
        """Whether a definition may be an action, or what a variable is given."""
        assert not isinstance(symbol.body, ast.Function)
        if way == "named":
            return True
        if self._is_plain(symbol.body, frame.within(symbol.scope)):
            return False
        is_formula = self.compiler.is_truth(symbol.body, symbol.scope)
        return is_formula or self._target(symbol.body, frame.within(symbol.scope)) is not None

    def _square_step(self, node: ast.Square, frame: Frame) -> list[py.stmt]:
        ways = [partial(self.step, node.action, frame), partial(self._unchanged_step, (node.subscript, frame))]
        return self._alternatives(ways, node.place)

    def _angle_step(self, node: ast.Angle, frame: Frame) -> list[py.stmt]:
        is_changed = python.negated(self.unchanged((node.subscript, frame)))
        return [*self.step(node.action, frame), *self._require(is_changed, node.place)]

    # -- variables ----------------------------------------------------------------------------------------------------

    def _followed(self, node: ast.Expression, frame: Frame) -> Argument:
        """An expression, through names that stand for an expression."""
        while True:
            node = unlabelled(node)
            if not isinstance(node, Itself | ast.Name | ast.Qualified | ast.Part):
                return node, frame
            found = called(node, frame.scope)
            symbol = found.symbol
            entry = frame.names.get(symbol) if not isinstance(symbol, ast.Lambda) else None
            if isinstance(entry, Inline):
                node, frame = entry.node, replace(frame, scope=entry.scope, names=entry.names)
            elif isinstance(symbol, Substituted) and self.free_variable(symbol, frame) is None:
                node, frame = symbol.value, frame.within(symbol.scope)
            elif entry is None and isinstance(symbol, Defined) and not found.arguments and not parameters_of(symbol):
                if isinstance(symbol.body, ast.Function):
                    return node, frame
                node, frame = symbol.body, frame.within(symbol.scope)
            else:
                return node, frame

    def _variable(self, node: ast.Expression, frame: Frame) -> Variable | None:
        """The variable that an expression is."""
        node, frame = self._followed(node, frame)
        if isinstance(node, Itself | ast.Name | ast.Qualified | ast.Part):
            symbol = called(node, frame.scope).symbol
            if isinstance(symbol, Substituted):
                return self.free_variable(symbol, frame)
            return symbol if isinstance(symbol, Variable) else None
        return None

    def _target(self, node: ast.Expression, frame: Frame) -> Variable | None:
        """The variable that an expression gives a value to, on the left of ``=`` or ``\\in``."""
        if frame.is_initial:
            return self._variable(node, frame)
        node, frame = self._followed(node, frame)
        if isinstance(node, ast.Apply):
            found = called(node, frame.scope)
            if _is_language(found.symbol, "'"):
                of, scope = found.arguments[0]
                return self._variable(of, frame.within(scope))
        return None

    def _give(self, how: str, variable: Variable, value: py.expr, frame: Frame, place: ast.Place) -> list[py.stmt]:
        chooser = [] if how == "assign" else [name("choose")]
        made = call(how, name(frame.target), constant(variable.index), value, *chooser)
        return self._require(self.at(made, place), place)

    def _unchanged_step(self, one: Argument) -> list[py.stmt]:
        node, frame = self._followed(*one)
        variable = self._variable(node, frame)
        if variable is not None:
            return self._give("assign", variable, self.value(node, frame), frame, node.place)
        if isinstance(node, ast.Tuple):
            return [statement for each in node.items for statement in self._unchanged_step((each, frame))]
        return self._require(self.unchanged((node, frame)), node.place)

    def tested_first(self, conjuncts: list[Argument]) -> list[py.expr]:
        """For a step that is only tested: what it does to variables often tells at once that another action took it.
        An error of such a test counts where the conjunct stands.
        """
        tests = [test for each in conjuncts[1:] for test in self._tests_of_variables(*each)]
        return [call("may_be", function([], test)) for test in tests]

    def _tests_of_variables(self, node: ast.Expression, frame: Frame) -> list[py.expr]:
        """The tests in a conjunct of what is given to variables as they are, or to parts of them."""
        node = unlabelled(node)
        if frame.is_initial or frame.is_primed or not isinstance(node, ast.Apply):
            return []
        found = called(node, frame.scope)
        arguments = [(each, frame.within(scope)) for each, scope in found.arguments]
        if _is_language(found.symbol, "UNCHANGED"):
            return [self.unchanged(each) for each in self._variables_in(arguments[0])]
        if not _is_language(found.symbol, "="):
            return []
        variable, value = self._target(*arguments[0]), unlabelled(arguments[1][0])
        if variable is None or not isinstance(value, ast.Except):
            return []
        of, inside = value.function, arguments[1][1]
        if self._variable(of, inside) != variable or not self._is_of_state(variable):
            return []
        places = tuple_of([self._step(each.path[0], inside) for each in value.updates])
        return [call("changes_at", name(frame.now), name(frame.then), constant(variable.index), places)]

    def _variables_in(self, one: Argument) -> list[Argument]:
        """The variables in a tuple."""
        node, frame = self._followed(*one)
        if isinstance(node, ast.Tuple):
            return [found for each in node.items for found in self._variables_in((each, frame))]
        return [(node, frame)] if self._variable(node, frame) is not None else []

    def unchanged(self, one: Argument) -> py.expr:
        """Whether an expression has the same value in both states: variable by variable, where it is a tuple."""
        node, frame = self._followed(*one)
        if isinstance(node, ast.Tuple):
            return python.every([self.unchanged((each, frame)) for each in node.items] or [constant(True)])
        variable = self._variable(node, frame)
        if variable is None:
            return self._unchanged_expression(node, frame)
        if not self._is_of_state(variable):
            return super().unchanged(one)
        made = call("is_unchanged", name(frame.now), name(frame.then), constant(variable.index))
        return self.at(made, node.place)

    def square(self, node: ast.Square, frame: Frame) -> py.expr:
        """``[A]_v``. Where v is known to stay, the action is not evaluated."""
        made = super().square(node, frame)
        kept = self._kept(*self._followed(node.subscript, frame))
        return made if kept is None else python.either([kept, made])

    def _kept(self, node: ast.Expression, frame: Frame) -> py.expr | None:
        """Whether an expression is known to stay the same without reading: all the variables do that it reads. None if
        that is never known.
        """
        found = self.analysis.of(node, frame.scope)
        if not found.reads or found.reads_next or found.is_impure or self._reads_otherwise(found.used, frame):
            return None
        variables = tuple_of([constant(each) for each in sorted(each.index for each in found.reads)])
        return call("are_kept", name(frame.now), name(frame.then), variables)

    def _is_of_state(self, variable: Variable) -> bool:
        """Whether states have it. It may stand for an expression, inside ``ENABLED``."""
        return variable.index < len(self.compiler.variables)

    def _unchanged_expression(self, node: ast.Expression, frame: Frame) -> py.expr:
        made, kept = super().unchanged((node, frame)), self._kept(node, frame)
        return made if kept is None else python.either([kept, made])

    def _reads_otherwise(self, used: Iterable[Symbol], frame: Frame) -> bool:
        """Whether names may stand for what reads the state."""
        entries = [frame.names.get(each) for each in used]
        return any(not isinstance(each, Held) or each.how != "value" for each in entries)

    # -- operators ----------------------------------------------------------------------------------------------------

    def _applied(self, node: ast.Expression, frame: Frame) -> list[py.stmt]:
        found = called(node, frame.scope)
        arguments = tuple((each, frame.within(scope)) for each, scope in found.arguments)
        if isinstance(found.symbol, BuiltIn):
            return self._built_in_step(found.symbol, arguments, node, frame)
        return self._called_step(found.symbol, found.scope, arguments, node, frame)

    def _built_in_step(
        self, symbol: BuiltIn, arguments: tuple[Argument, ...], node: ast.Expression, frame: Frame
    ) -> list[py.stmt]:
        how = _GIVING.get(symbol.name) if not symbol.module else None
        if how is not None:
            variable = self._target(*arguments[0])
            if variable is not None:
                return self._give(how, variable, self.value(*arguments[1]), frame, node.place)
        if _is_language(symbol, "UNCHANGED") and not frame.is_initial:
            return self._unchanged_step(arguments[0])
        if _is_language(symbol, "=>"):
            condition = self.truth(*arguments[0], "the left side of =>")
            return [self.at(py.If(condition, self.step(*arguments[1]) or [py.Pass()], []), node.place)]
        if _is_language(symbol, "\\cdot"):
            return self._composed(arguments, frame, node.place)
        return self._test(node, frame)

    def _composed(self, arguments: tuple[Argument, ...], frame: Frame, place: ast.Place) -> list[py.stmt]:
        """``A \\cdot B``: A to a state between, and B from there."""
        middle, leads_there = self._between(arguments[0], name(frame.then), place)
        second, in_second = arguments[1]
        return [*leads_there, *self.step(second, replace(in_second, now=middle))]

    def _between(self, first: Argument, then: py.expr, place: ast.Place) -> tuple[str, list[py.stmt]]:
        """The Python variable of the state between two composed actions, and the statements of the first action."""
        middle, (node, frame) = self.variable("between"), first
        made = call("between", name(frame.now), then, name("variables"))
        return middle, [self._assign(middle, made, place), *self.step(node, replace(frame, then=middle))]

    def _called_step(
        self,
        symbol: Symbol | ast.Lambda,
        scope: Scope,
        arguments: tuple[Argument, ...],
        node: ast.Expression,
        frame: Frame,
    ) -> list[py.stmt]:
        if isinstance(symbol, ast.Lambda):
            inner = self.analysis.inner(symbol, symbol.parameters, scope)
            return self._put_in_place(symbol.body, inner.scope, inner.locals, arguments, frame)
        entry = frame.names.get(symbol)
        if isinstance(entry, Inline):
            return self._inline_step(entry, arguments, frame)
        if isinstance(symbol, Substituted):
            return self.step(symbol.value, frame.within(symbol.scope))
        if entry is not None or not isinstance(symbol, Defined) or isinstance(symbol.body, ast.Function):
            return self._test(node, frame)
        if not self._is_callable(symbol, arguments, frame):
            return self._put_in_place(symbol.body, symbol.scope, parameters_of(symbol), arguments, frame)
        title = self.compiler.action_definition(symbol, self.captured(symbol, frame), frame.is_initial)
        made = call(title, *self._given(symbol, arguments, frame, (name("choose"),)))
        return self._require(self.at(made, node.place), node.place)

    def _inline_step(self, entry: Inline, arguments: tuple[Argument, ...], frame: Frame) -> list[py.stmt]:
        inside = replace(frame, scope=entry.scope, names=entry.names)
        if not arguments:
            return self.step(entry.node, inside)
        symbol, scope, every = self.inline_call(entry, arguments, inside)
        if isinstance(symbol, BuiltIn):
            return self._built_in_step(symbol, every, entry.node, inside)
        return self._called_step(symbol, scope, every, entry.node, inside)

    def _put_in_place(
        self,
        body: ast.Expression,
        scope: Scope,
        parameters: Sequence[Local],
        arguments: tuple[Argument, ...],
        frame: Frame,
    ) -> list[py.stmt]:
        if self._expanded == _MOST_EXPANSIONS:
            raise SpecificationError("this recursive action primes its parameters, which is not supported", body.place)
        names: dict[Symbol, Entry] = {
            parameter: Inline(argument, where.scope, where.names)
            for parameter, (argument, where) in zip(parameters, arguments, strict=True)
        }
        self._expanded += 1
        statements = self.step(body, frame.within(scope).bind(names))
        self._expanded -= 1
        return statements

    def _is_callable(self, symbol: Defined, arguments: tuple[Argument, ...], frame: Frame) -> bool:
        """Whether the definition can be a function of its own: each argument is a value here already."""
        if isinstance(symbol.body, ast.Function) or (frame.is_enabled and not symbol.is_recursive):
            return False
        found = self.analysis.definition(symbol)
        if any(not isinstance(frame.names.get(each), Held) for each in self.compiler.captured(symbol)):
            return False
        return all(
            not parameter.arity and held(found, parameter) != "named" and self._is_plain(*argument)
            for parameter, argument in zip(parameters_of(symbol), arguments, strict=True)
        )

    def _given(
        self, symbol: Defined, arguments: tuple[Argument, ...], frame: Frame, first: tuple[py.expr, ...]
    ) -> list[py.expr]:
        passed = [
            self.passed(argument, 0, self.compiler.passing(symbol, parameter))
            for parameter, argument in zip(parameters_of(symbol), arguments, strict=True)
        ]
        captured = [self.captured_value(each, frame)[0] for each in self.compiler.captured(symbol)]
        return [name(frame.now), name(frame.then), *first, *captured, *passed]

    # -- actions inside expressions -----------------------------------------------------------------------------------

    def composed(self, one: Argument, other: Argument) -> py.expr:
        """``A \\cdot B``, as a test of two states: whether A leads to a state from which B leads to the second one."""
        (first, frame), (second, in_second) = one, other
        middle, body = self._between((first, frame.fresh()), constant(None), first.place)
        is_end = self.truth(second, replace(in_second, now=middle, then="then"), "the right side of \\cdot")
        title, free = self._own_function("composed", [*body, py.Return(is_end)], first.place)
        return call("leads", name(title), name(frame.now), name(frame.then), *map(name, free))

    def enabled(self, one: Argument) -> py.expr:
        """Whether an action can be true."""
        node, frame = one
        inside = replace(frame.fresh(), is_initial=False, is_primed=False, is_enabled=True)
        title, free = self._own_function("enabled", self.steps(node, inside), node.place)
        variables = (*self.compiler.variables, *(each.name for each in self.compiler.free.values()))
        return call("enabled", name(title), name(frame.now), tuple_of(map(constant, variables)), *map(name, free))

    def _own_function(self, kind: str, body: list[py.stmt], place: ast.Place) -> tuple[str, list[str]]:
        """The title of a function that goes through an action, and the names that its callers give it."""
        title, free = self.compiler.fresh(kind), python.free_names(body, self.variables_of_function())
        self.parts.append(self.at(definition(title, ["now", "then", "choose", *free], body), place))
        return title, free

    def free_variable(self, symbol: Substituted, frame: Frame) -> Variable | None:
        if not frame.is_enabled or not symbol.is_variable:
            return None
        compiler = self.compiler
        number = len(compiler.variables) + len(compiler.free)
        return compiler.free.setdefault(symbol, Variable(symbol.name, number, symbol.value.place))


def _is_language(symbol: object, operator: str) -> bool:
    """Whether a symbol is an operator of the language."""
    return isinstance(symbol, BuiltIn) and not symbol.module and symbol.name == operator


_GIVING = {"=": "assign", "\\in": "pick", "\\subseteq": "pick_subset"}

_STEPS: dict[type, Callable[[ActionWriter, Any, Frame], list[py.stmt]]] = {
    ast.Quantified: ActionWriter._exists,
    ast.If: ActionWriter._if_step,
    ast.Case: ActionWriter._case_step,
    ast.Let: ActionWriter._let_step,
    ast.Square: ActionWriter._square_step,
    ast.Angle: ActionWriter._angle_step,
    ast.Index: ActionWriter._index_step,
}

ActionCompiler.writer = ActionWriter

__all__ = ["Action", "ActionCompiler", "Rule", "Successor"]
