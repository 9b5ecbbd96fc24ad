"""Goes through an initial predicate conjunct by conjunct, so that each way through the first conjuncts is gone once.

As an action, an initial predicate would be run from its beginning for each of its ways. Often there are very many: an
inductive invariant is checked from all states of their types. Then the conjuncts with the types are kept apart from the
others, so that an engine may make all combinations of values, and judge them as it judges states.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from fencepost.language.context import Branching
from fencepost.tla import ast, roots
from fencepost.tla.actions import Action, ActionCompiler
from fencepost.tla.facts import called, unlabelled
from fencepost.tla.places import Variable, Writer
from fencepost.tla.questions import NO_STATE
from fencepost.tla.reading import variable_of
from fencepost.tla.runtime import Choose, options, ways_through
from fencepost.tla.sets import quick_size
from fencepost.tla.symbols import BuiltIn, Defined, Local, Scope
from fencepost.tla.values import EvaluationError, Value, set_of

Predicate = tuple[ast.Expression, Scope]

MANY = 10_000
MOST = 1 << 24
"""The fewest and the most combinations of values that an engine makes and judges."""


class Start(Writer):
    """The variables that have values so far. ``before``: those of the conjuncts before."""

    __slots__ = ("_before", "_own", "_root", "_written")

    def __init__(self, variables: Sequence[Variable], cursor: Branching, before: Start | None = None) -> None:
        super().__init__(variables, cursor, "")
        self._root = cursor
        self._before = before
        self._own: list[int] = []
        self._written: Branching | None = None
        if before is not None:
            self._values = dict(before._values)

    def assign(self, variable: int, value: Value) -> None:
        super().assign(variable, value)
        self._own.append(variable)

    def is_complete(self) -> bool:
        """Whether all variables have values. The level of the state is no variable."""
        return len(self._values) == len(self._variables) - 1

    def branch(self) -> Start:
        """The same, for a conjunct that may give other variables their values."""
        return Start(self._variables, self._root, self)

    def finish(self) -> None:
        self.written()

    def written(self) -> Branching:
        """A cursor that has got the values. What the conjuncts before gave is written once."""
        if self._written is None:
            written = self._root if self._before is None else self._before.written().branch()
            self.put(self._own, written)
            self._written = written
        return self._written


@dataclass(frozen=True)
class Combinations:
    """The values of each variable, and the conjuncts that must be true of their combinations."""

    values: Mapping[int, Sequence[Value]]
    conditions: Sequence[Predicate]

    def groups(self, variables: Sequence[Variable], cursor: Branching) -> Iterator[list[Start]]:
        """The starts with a value of one variable, for each variable."""
        nothing = Start(variables, cursor)
        for variable, values in self.values.items():
            group = [nothing.branch() for _ in values]
            for start, value in zip(group, values, strict=True):
                start.assign(variable, value)
            yield group


def combinations(compiler: ActionCompiler, formulas: Sequence[Predicate], variables: int) -> Combinations | None:
    """An initial predicate that begins with ``x \\in S`` for each variable, where each ``S`` is a constant.
    None for others, and for those with few combinations.
    """
    found = [each for formula in formulas for each in roots.conjuncts(*formula)]
    given = [_membership(*each) for each in found[:variables]]
    names = {each[0] for each in given if each is not None}
    if len(names) < variables or not all(each and _is_given(compiler, *each[1]) for each in given):
        return None
    try:
        sets = {variable: compiler.expression(*of)(NO_STATE, NO_STATE) for variable, of in filter(None, given)}
        if not MANY <= prod(quick_size(set_of(of, "\\in")) for of in sets.values()) <= MOST:
            return None
        values = {variable: options(of) for variable, of in sets.items()}
    except EvaluationError:
        return None
    return Combinations(values, found[variables:])


def _is_given(compiler: ActionCompiler, node: ast.Expression, scope: Scope) -> bool:
    """Whether a set is the same in every state, and has been written so that its members need not be asked for."""
    node = unlabelled(node)
    if isinstance(node, ast.Name | ast.Qualified):
        symbol = called(node, scope).symbol
        if isinstance(symbol, Defined) and isinstance(symbol.body, ast.Expression):
            return _is_given(compiler, symbol.body, symbol.scope)
    return not isinstance(node, ast.Filter | ast.Collect) and compiler.is_closed(node, scope)


class Starts:
    """The conjuncts of an initial predicate, in the order of the text. ``name`` is what errors call it. ``whole`` tells
    that a variable has no value, and has the values of the names around them.
    """

    def __init__(self, compiler: ActionCompiler, formulas: Sequence[Predicate], name: str, whole: Action) -> None:
        self._whole = whole
        found = [each for formula in formulas for each in roots.conjuncts(*formula)]
        self._conjuncts = [
            _Conjunct(compiler, *each, name, whole.names, comes_later=number > 0) for number, each in enumerate(found)
        ]

    def after(self, start: Start, number: int = 0) -> Iterator[Start]:
        """The values of all variables, for each way through the conjuncts from this one on."""
        while 0 < number < len(self._conjuncts) and start.is_complete():
            if not self._conjuncts[number].holds(start):
                return
            number += 1
        if number == len(self._conjuncts):
            self._whole.refuse_unassigned(start)
            yield start
            return
        for each in self._conjuncts[number].ways(start):
            yield from self.after(each, number + 1)


class _Conjunct:
    def __init__(
        self,
        compiler: ActionCompiler,
        node: ast.Expression,
        scope: Scope,
        name: str,
        names: Mapping[Local, Value],
        comes_later: bool,
    ) -> None:
        self.action = compiler.initial(node, scope, name, names, comes_later)
        self._membership = _membership(node, scope)
        self._members = None if self._membership is None else compiler.expression(*self._membership[1], names)
        self._values = tuple(names.values())

    def holds(self, start: Start) -> bool:
        """Whether it is true where all variables have values. TLC evaluates it as it is then: it is no choice."""
        return self.action.partly(start, None, _no_choice)

    def ways(self, start: Start) -> Iterator[Start]:
        """The values that variables have where this conjunct is true, for each way through it."""
        members = self._options(start)
        if members is None:
            yield from filter(None, ways_through(partial(self._way, start)))
            return
        assert self._membership is not None
        for value in members:
            made = start.branch()
            made.assign(self._membership[0], value)
            yield made

    def _way(self, start: Start, choose: Choose) -> Start | None:
        made = start.branch()
        return made if self.action.partly(made, None, choose) else None

    def _options(self, start: Start) -> Sequence[Value] | None:
        """The members of S for ``x \\in S``, if x has no value. None for others, and if S fails: the action tells."""
        if self._membership is None or self._members is None or start.is_assigned(self._membership[0]):
            return None
        try:
            return options(self._members(start, None, *self._values))
        except EvaluationError:
            return None


def _no_choice(options: Sequence[Value]) -> Value:
    raise AssertionError("all variables have values")


def _membership(node: ast.Expression, scope: Scope) -> tuple[int, Predicate] | None:
    """The variable and the set of ``x \\in S``."""
    node = unlabelled(node)
    if not isinstance(node, ast.Apply):
        return None
    found = called(node, scope)
    symbol = found.symbol
    if not isinstance(symbol, BuiltIn) or symbol.module or symbol.name != "\\in":
        return None
    variable = variable_of(*found.arguments[0])
    return None if variable is None else (variable.index, found.arguments[1])
