"""Takes temporal formulas apart: what ``SPECIFICATION`` names, and each ``PROPERTY``.

A specification is initial predicates, one ``[][Next]_v``, fairness, and any other temporal formulas, which are assumed
where a temporal property is judged. A property is taken apart at ``/\\`` and at
``\\A`` over a set that is the same in every state, also through the definitions that it names. So ``Other!Spec`` is an
initial predicate, a property of steps, and fairness as a formula. Each part becomes the simplest thing that an engine
judges: an invariant, a property of steps, or a temporal formula.

What a function takes for a state has a ``reader``, which compiled formulas read.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from fencepost.errors import Explained
from fencepost.language.declarations import INITIALLY, FairSteps
from fencepost.language.temporal import Always, And, Eventually, Formula, Not, Now, Or, Step, Truth, always, eventually
from fencepost.tla import ast, roots
from fencepost.tla.actions import ActionCompiler
from fencepost.tla.errors import SpecificationError
from fencepost.tla.facts import Call, Itself, called, parameters_of, unlabelled
from fencepost.tla.runtime import untupled
from fencepost.tla.symbols import BuiltIn, Defined, Local, Scope, Substituted, Symbol, Variable
from fencepost.tla.values import EvaluationError, Value, described, members, show

TEMPORAL_LEVEL = 3
MODAL = ("[]", "<>", "~>", "-+->")
CONNECTIVES = ("/\\", "\\/", "~", "=>", "<=>", "\\equiv")
MOST_MEMBERS = 4096
"""The most members of a set over which a quantifier is unfolded."""


@dataclass(frozen=True)
class Piece:
    """A formula, with the values of the names around it."""

    node: ast.Expression
    scope: Scope
    names: Mapping[Local, Value] = field(default_factory=dict)

    def inside(self, node: ast.Expression, scope: Scope | None = None) -> Piece:
        """A part of the formula."""
        return replace(self, node=unlabelled(node), scope=self.scope if scope is None else scope)


@dataclass(frozen=True)
class Fair:
    """Fairness of some ``steps``. ``actions``: the keys of the actions that these are the steps of (see
    :class:`fencepost.tla.roots.Root`), if the subscript has every variable. If all of them are actions of ``Next``, an
    engine that judges fairness of actions comes to the same.
    """

    steps: FairSteps
    actions: frozenset[roots.Key] | None


@dataclass(frozen=True)
class Behaviour:
    """What a specification says of behaviours: ``initial`` predicates, the action ``next`` (None: nothing changes),
    fairness, and what else is ``assumed`` of those that temporal properties are about.
    """

    initial: tuple[Piece, ...]
    next: Piece | None
    fairness: tuple[Fair, ...]
    assumed: tuple[Formula, ...] = ()


@dataclass(frozen=True)
class Judged:
    """A part of a property. ``kind`` is that of a declaration: ``step_invariant`` with a ``function`` of the states
    before and after, ``temporal`` with a ``formula``, or another one with a ``function`` of a state. That of
    ``leads_to`` returns a pair.
    """

    kind: str
    place: ast.Place
    function: Callable[..., Any] | None = None
    formula: Formula | None = None


def behaviour(node: ast.Expression, scope: Scope, compiler: ActionCompiler) -> Behaviour:
    """What the formula of a specification says.

    Raises :class:`fencepost.tla.errors.SpecificationError` for a part that is none of these, for ``[]P`` of a state
    predicate, and for a second ``[][Next]_v``.
    """
    assumed: list[Formula] = []
    initial: list[Piece] = []
    steps: list[Piece] = []
    fairness: list[Fair] = []
    taking = _Taking(compiler, "the specification")
    for piece in taking.conjuncts(Piece(unlabelled(node), scope)):
        of, operand = taking.square(piece), piece.node
        if isinstance(operand, ast.Fairness):
            fairness.append(Fair(taking.fairness(piece, operand), taking.actions(piece, operand)))
        elif of is not None:
            steps.append(of)
        elif taking.is_temporal(piece):
            assumed.append(taking.assumed(piece))
        else:
            initial.append(piece)
    if len(steps) > 1:
        raise SpecificationError("a specification has one [][Next]_vars, and this is another one", steps[1].node.place)
    return Behaviour(tuple(initial), _action_of(steps[0]) if steps else None, tuple(fairness), tuple(assumed))


def _action_of(piece: Piece) -> Piece:
    assert isinstance(piece.node, ast.Square)
    return piece.inside(piece.node.action)


def properties(
    name: str, node: ast.Expression, scope: Scope, compiler: ActionCompiler, assumed: Sequence[Formula] = ()
) -> list[Judged]:
    """The parts of the property ``name``, in the order of the text. ``assumed``: what a specification says besides
    fairness. Temporal formulas are judged of the behaviours for which this is true, and all other parts of all.

    Raises :class:`fencepost.tla.errors.SpecificationError` for what no engine judges, with its place.
    """
    taking = _Taking(compiler, f"property {name}")
    return [taking.judged(piece, assumed) for piece in taking.conjuncts(Piece(unlabelled(node), scope))]


class _Taking:
    """Takes formulas apart. ``what`` they belong to is named in errors."""

    def __init__(self, compiler: ActionCompiler, what: str) -> None:
        self.compiler = compiler
        self.what = what

    # -- forms --------------------------------------------------------------------------------------------------------

    def call(self, piece: Piece) -> Call | None:
        """What a piece is a call of, if it is one."""
        is_call = isinstance(piece.node, Itself | ast.Name | ast.Qualified | ast.Part | ast.Apply)
        return called(piece.node, piece.scope) if is_call else None

    def operator(self, piece: Piece) -> tuple[str, tuple[Piece, ...]]:
        """The operator of the language that a piece applies, and its operands. "" if there is none."""
        if isinstance(piece.node, ast.Junction):
            return piece.node.operator, tuple(piece.inside(each) for each in piece.node.items)
        found = self.call(piece)
        if found is None or not isinstance(found.symbol, BuiltIn) or found.symbol.module:
            return "", ()
        return found.symbol.name, tuple(self._given(piece.inside(*each)) for each in found.arguments)

    def _given(self, piece: Piece) -> Piece:
        """What a parameter stands for: ``[]P`` may be ``[][A]_v``. Any other piece as it is."""
        found = self.call(piece)
        while found is not None and isinstance(found.symbol, Substituted):
            piece = piece.inside(found.symbol.value, found.symbol.scope)
            found = self.call(piece)
        return piece

    def opened(self, piece: Piece) -> Piece | None:
        """The body of the definition that a piece names, or of a ``LET``. None if it is neither, or if an instance has
        an argument that differs from state to state.
        """
        if isinstance(piece.node, ast.Let):
            return piece.inside(piece.node.body, piece.scope.let(piece.node))
        found = self.call(piece)
        if found is None:
            return None
        symbol = found.symbol
        if isinstance(symbol, Substituted):
            return piece.inside(symbol.value, symbol.scope)
        if isinstance(symbol, ast.Lambda):
            inner = self.compiler.analysis.inner(symbol, symbol.parameters, found.scope)
            return self._applied(piece, found, inner.locals, symbol.body, inner.scope)
        if not isinstance(symbol, Defined) or isinstance(symbol.body, ast.Function) or symbol.is_recursive:
            return None
        return self._applied(piece, found, parameters_of(symbol), symbol.body, symbol.scope)

    def _applied(
        self, piece: Piece, found: Call, parameters: tuple[Local, ...], body: ast.Expression, scope: Scope
    ) -> Piece | None:
        """The body of what a piece is a call of. An argument that no value stands for takes the place of its parameter.
        That of an instance cannot: what else the instance defines has the parameter, too.
        """
        own = len(piece.node.arguments) if isinstance(piece.node, ast.Apply) else 0
        names, others = {}, {}
        for left, (parameter, argument) in enumerate(zip(parameters, found.arguments, strict=True), -len(parameters)):
            value = () if parameter.arity else self.constant(piece.inside(*argument))
            if value:
                names[parameter] = value[0]
            elif left < -own:
                return None
            else:
                others[parameter.name] = Substituted(parameter.name, *argument)
        return Piece(unlabelled(body), scope.inner(others) if others else scope, {**piece.names, **names})

    def is_temporal(self, piece: Piece) -> bool:
        """Whether a formula has temporal operators, also in the definitions that it names."""
        waiting: list[tuple[ast.Node, Scope]] = [(piece.node, piece.scope)]
        while waiting:
            node, scope = waiting.pop()
            if isinstance(node, ast.Fairness) or (isinstance(node, ast.Name) and node.text in MODAL):
                return True
            symbol = _symbol(node, scope) if isinstance(node, ast.Name | ast.Qualified) else None
            if isinstance(symbol, Substituted):
                waiting.append((symbol.value, symbol.scope))
            elif isinstance(symbol, Defined) and symbol.level == TEMPORAL_LEVEL:
                return True
            waiting += ((each, scope) for each in ast.parts_of(node))
        return False

    def square(self, piece: Piece) -> Piece | None:
        """The ``[A]_v`` of ``[][A]_v``."""
        operator, operands = self.operator(piece)
        return operands[0] if operator == "[]" and isinstance(operands[0].node, ast.Square) else None

    def angle(self, piece: Piece) -> Piece | None:
        """The ``<<A>>_v`` of ``<><<A>>_v``."""
        operator, operands = self.operator(piece)
        return operands[0] if operator == "<>" and isinstance(operands[0].node, ast.Angle) else None

    def conjuncts(self, piece: Piece) -> Iterator[Piece]:
        """The conjuncts of a formula. One without temporal operators stays whole."""
        waiting = [piece]
        while waiting:
            piece = waiting.pop()
            parts = self._conjuncts(piece) if self.is_temporal(piece) else None
            if parts is None:
                yield piece
            else:
                waiting += reversed(parts)

    def _conjuncts(self, piece: Piece) -> list[Piece] | None:
        operator, operands = self.operator(piece)
        if operator == "/\\":
            return list(operands)
        if isinstance(piece.node, ast.Quantified) and piece.node.quantifier == "\\A":
            return list(self.unfolded(piece, piece.node))
        body = self.opened(piece)
        return None if body is None else [body]

    def unfolded(self, piece: Piece, node: ast.Quantified) -> Iterator[Piece]:
        """The body of a quantifier, once for each combination of members of its sets."""
        inner = self.compiler.analysis.bound(node, node.bounds, piece.scope)
        symbols = iter(inner.locals)
        choices: list[list[Mapping[Local, Value]]] = []
        for bound in node.bounds:
            names = [next(symbols) for _ in bound.names]
            found = self._members(piece, bound)
            if bound.is_tuple:
                choices.append([dict(zip(names, untupled(value, len(names)), strict=True)) for value in found])
            else:
                choices += [[{name: value} for value in found] for name in names]
        for chosen in itertools.product(*choices):
            names_of = dict(piece.names)
            for each in chosen:
                names_of |= each
            yield Piece(unlabelled(node.body), inner.scope, names_of)

    def _members(self, piece: Piece, bound: ast.Bound) -> list[Value]:
        assert bound.domain is not None
        value = self.constant(piece.inside(bound.domain))
        if not value:
            raise SpecificationError(
                "a quantifier around temporal operators needs a set that is the same in every state", bound.place
            )
        found = list(itertools.islice(members(value[0]), MOST_MEMBERS + 1))
        if len(found) > MOST_MEMBERS:
            raise SpecificationError(
                f"a quantifier around temporal operators has more than {MOST_MEMBERS:,} members", bound.place
            )
        return found

    # -- functions ----------------------------------------------------------------------------------------------------

    def compiled(self, piece: Piece) -> Callable[[Any, Any], Value]:
        """A formula as a function of what reads the states before and after."""
        used = self.compiler.analysis.of(piece.node, piece.scope).used
        names = tuple(each for each in piece.names if each in used)
        values = tuple(piece.names[each] for each in names)
        function = self.compiler.expression(piece.node, piece.scope, names)
        return lambda now, then: function(now, then, *values)

    def constant(self, piece: Piece) -> tuple[Value, ...]:
        """The value of an expression that is the same in every state. Empty for any other."""
        found = self.compiler.analysis.of(piece.node, piece.scope)
        if not found.is_constant or any(each not in piece.names for each in found.used):
            return ()
        return (self.compiled(piece)(None, None),)

    def of_state(self, piece: Piece) -> Callable[[Any], bool]:
        """A state predicate as a function of a state."""
        if self.compiler.analysis.of(piece.node, piece.scope).reads_next:
            raise SpecificationError(
                "an action among temporal operators stands in [][A]_v, <><<A>>_v, WF or SF", piece.node.place
            )
        holds = self.compiled(piece)
        return lambda state: self._truth(lambda: holds(state.reader, None), piece)

    def of_step(self, piece: Piece) -> Callable[[Any, Any], bool]:
        """An action as a function of the states before and after."""
        holds = self.compiled(piece)
        return lambda before, after: self._truth(lambda: holds(before.reader, after.reader), piece)

    def _truth(self, evaluate: Callable[[], Value], piece: Piece) -> bool:
        with self._explained():
            value = evaluate()
            if value is True or value is False:
                return value
            raise EvaluationError(f"{piece.node.place}: {described(value)} is neither TRUE nor FALSE")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except EvaluationError as error:
            raise Explained(f"{error}\n  while evaluating {self.what}") from error

    # -- fairness -----------------------------------------------------------------------------------------------------

    def fairness(self, piece: Piece, node: ast.Fairness) -> FairSteps:
        """``WF_v(A)`` or ``SF_v(A)`` as a condition that an engine judges on every step and in every state."""
        step, enabled = self._fair_step(piece, node)
        return FairSteps(
            node.kind == "SF", title=self.title(piece.inside(node.action)), step=self.of_step(step),
            enabled=self.of_state(enabled),
        )  # fmt: skip

    def _fair_step(self, piece: Piece, node: ast.Fairness) -> tuple[Piece, Piece]:
        """``<<A>>_v``, and where it is enabled."""
        angle = ast.Angle(node.action, node.subscript, place=node.place)
        enabled = ast.Apply(ast.Name("ENABLED", place=node.place), (angle,), place=node.place)
        return piece.inside(angle), piece.inside(enabled)

    def actions(self, piece: Piece, node: ast.Fairness) -> frozenset[roots.Key] | None:
        """The actions that fairness is about, if its subscript has every variable."""
        if not self._variables(piece.inside(node.subscript)) >= set(self.compiler.variables):
            return None
        found = roots.actions(node.action, piece.scope, "", self.compiler, piece.names)
        return frozenset(each.key for each in found)

    def _variables(self, piece: Piece) -> set[str]:
        """The variables in a subscript."""
        if isinstance(piece.node, ast.Tuple):
            return {name for item in piece.node.items for name in self._variables(piece.inside(item))}
        found, body = self.call(piece), self.opened(piece)
        if found is not None and isinstance(found.symbol, Variable):
            return {found.symbol.name}
        return set() if body is None else self._variables(body)

    def title(self, piece: Piece) -> str:
        """The name of an action with its arguments, or its place."""
        found = self.call(piece)
        if found is None or not isinstance(found.symbol, Defined):
            return f"line {piece.node.place.line}"
        values = [self.constant(piece.inside(*each)) for each in found.arguments]
        shown = ", ".join(show(value[0]) if value else "..." for value in values)
        return f"{found.symbol.name}({shown})" if values else found.symbol.name

    # -- properties ---------------------------------------------------------------------------------------------------

    def assumed(self, piece: Piece) -> Formula:
        """A temporal conjunct of a specification. As in TLC, it is no invariant."""
        operator, operands = self.operator(piece)
        if operator == "[]" and not self.is_temporal(operands[0]):
            raise SpecificationError(
                "a specification cannot assume []P of a state predicate P: write P as a conjunct of the actions, or as"
                " a CONSTRAINT",
                piece.node.place,
            )
        return self.formula(piece)

    def judged(self, piece: Piece, assumed: Sequence[Formula]) -> Judged:
        """A conjunct of a property, as what an engine judges."""
        place = piece.node.place
        square, (operator, operands) = self.square(piece), self.operator(piece)
        if square is not None:
            return Judged("step_invariant", place, self.of_step(square))
        if operator == "[]" and not self.is_temporal(operands[0]):
            return Judged("invariant", place, self.of_state(operands[0]))
        if not self.is_temporal(piece):
            return Judged(INITIALLY, place, self.of_state(piece))
        if assumed:
            return Judged("temporal", place, formula=And(*assumed).implies(self.formula(piece)))
        return self._common(piece) or Judged("temporal", place, formula=self.formula(piece))

    def _common(self, piece: Piece) -> Judged | None:
        """One of the forms that are judged without an automaton: ``[]<>P``, ``<>[]P`` and ``P ~> Q``."""
        place, (operator, operands) = piece.node.place, self.operator(piece)
        if operator == "~>" and not any(map(self.is_temporal, operands)):
            leads, to = map(self.of_state, operands)
            return Judged("leads_to", place, lambda state: (leads(state), to(state)))
        inner, inside = self.operator(operands[0]) if operator in ("[]", "<>") else ("", ())
        kind = {("[]", "<>"): "always_eventually", ("<>", "[]"): "eventually_always"}.get((operator, inner))
        if kind is None or isinstance(inside[0].node, ast.Angle | ast.Square) or self.is_temporal(inside[0]):
            return None
        return Judged(kind, place, self.of_state(inside[0]))

    def formula(self, piece: Piece) -> Formula:
        """A formula as the engine's automaton takes it."""
        if isinstance(piece.node, ast.Fairness):
            return self._as_formula(piece, piece.node)
        square, angle = self.square(piece), self.angle(piece)
        if square is not None:
            holds = self.of_step(square)
            return Always(Not(Step(lambda before, after: not holds(before, after))))
        if angle is not None:
            return Eventually(Step(self.of_step(angle)))
        if not self.is_temporal(piece):
            return Now(self.of_state(piece))
        return self._combined(piece)

    def _as_formula(self, piece: Piece, node: ast.Fairness) -> Formula:
        step, enabled = self._fair_step(piece, node)
        taken = always(Eventually(Step(self.of_step(step))))
        possible = Now(self.of_state(enabled))
        return Or(Not(always(eventually(possible)) if node.kind == "SF" else eventually(always(possible))), taken)

    def _combined(self, piece: Piece) -> Formula:
        operator, operands = self.operator(piece)
        if operator in CONNECTIVES or (operator in MODAL and operator != "-+->"):
            return _COMBINED[operator](*map(self.formula, operands))
        node = piece.node
        if isinstance(node, ast.Quantified):
            parts = [self.formula(each) for each in self.unfolded(piece, node)]
            return _COMBINED["/\\" if node.quantifier == "\\A" else "\\/"](*parts)
        if isinstance(node, ast.If):
            condition = self.formula(piece.inside(node.condition))
            then, otherwise = (self.formula(piece.inside(each)) for each in (node.then, node.otherwise))
            return And(condition.implies(then), (~condition).implies(otherwise))
        body = self.opened(piece)
        if body is None:
            raise SpecificationError("this temporal formula is not supported", node.place)
        return self.formula(body)


_COMBINED: dict[str, Callable[..., Formula]] = {
    "/\\": lambda *parts: And(*parts) if parts else Truth(True),
    "\\/": lambda *parts: Or(*parts) if parts else Truth(False),
    "~": Not,
    "=>": Formula.implies,
    "<=>": Formula.iff,
    "\\equiv": Formula.iff,
    "[]": always,
    "<>": eventually,
    "~>": Formula.leads_to,
}


def _symbol(node: ast.Name | ast.Qualified, scope: Scope) -> Symbol | None:
    try:
        return scope.symbol(node)
    except LookupError:  # a name that is bound further inside
        return None
