"""A plain breadth-first search of a TLA+ model. States are tuples of values; nothing is clever. It counts as TLC does:
a state is generated each time that it is found, and distinct if it satisfies the constraints and is new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fencepost.tla import ast, config, modules, order, roots
from fencepost.tla.actions import ActionCompiler
from fencepost.tla.facts import called
from fencepost.tla.interning import strings_of
from fencepost.tla.modules import Replacements
from fencepost.tla.runtime import Choose, Successor, ways_through
from fencepost.tla.symbols import BuiltIn, Defined, Scope
from fencepost.tla.values import Set, Value

State = tuple[Value, ...]


@dataclass
class Counts:
    """What a search found. ``violated`` has each violated invariant, and the length of the shortest way to it."""

    distinct: int = 0
    generated: int = 0
    depth: int = 0
    violated: dict[str, int] = field(default_factory=dict)
    deadlock: int | None = None

    @property
    def numbers(self) -> tuple[int, int, int]:
        return self.distinct, self.generated, self.depth


class Model:
    """A module with its configuration, compiled. ``text`` is the configuration."""

    def __init__(self, path: Path, text: str, libraries: Sequence[Path] = ()) -> None:
        self.config = config.read(text.encode(), str(path.with_suffix(".cfg")))
        loaded = modules.load(path, libraries)
        configured = [value for each in self.config.constants for value in (each.arguments, each.value)]
        order.use(strings_of(loaded, configured))
        self.specification = loaded.with_replacements(self._replacements(set(loaded.loaded.names)))
        self.names = [each.name for each in self.specification.variables]
        self.compiler = ActionCompiler(self._constants(), self.names)
        init, init_scope, step, step_scope = self._behaviour()
        self.init = self.compiler.initial(init, init_scope, "Init")
        self.step = self.compiler.action(step, step_scope, "Next")
        self.roots = roots.actions(step, step_scope, "Next", self.compiler)
        self.invariants = {each.name: self._formula(each.name) for each in self.config.invariants}
        self.constraints = [self._formula(each.name) for each in self.config.constraints]
        self.action_constraints = [self._formula(each.name) for each in self.config.action_constraints]

    def _replacements(self, known: set[str]) -> Replacements:
        names: dict[str, dict[str, str]] = {"": {}}
        for each in self.config.replacements:
            names.setdefault(each.module, {})[each.name] = each.by.name
        values = frozenset(each.name for each in self.config.constants if not each.module and each.name in known)
        return Replacements(names.pop(""), values, names)

    def _constants(self) -> dict[Any, Value]:
        given = {each.name: _value(each.value) for each in self.config.constants}
        return {each: given[each.name] for each in self.specification.constants if each.name in given}

    def _formula(self, name: str) -> Callable[..., Value]:
        symbol = self._defined(name)
        assert not isinstance(symbol.body, ast.Function)
        return self.compiler.expression(symbol.body, symbol.scope)

    def _defined(self, name: str) -> Defined:
        symbol = called(ast.Name(name, place=self.specification.root.place), self.specification.scope).symbol
        assert isinstance(symbol, Defined), name
        return symbol

    def _behaviour(self) -> tuple[ast.Expression, Scope, ast.Expression, Scope]:
        if self.config.specification is None:
            assert self.config.init and self.config.next
            init, step = self._defined(self.config.init.name), self._defined(self.config.next.name)
            assert not isinstance(init.body, ast.Function) and not isinstance(step.body, ast.Function)
            return init.body, init.scope, step.body, step.scope
        return self._of_specification(self._defined(self.config.specification.name))

    def _of_specification(self, symbol: Defined) -> tuple[ast.Expression, Scope, ast.Expression, Scope]:
        assert not isinstance(symbol.body, ast.Function)
        parts = list(_conjuncts(symbol.body, symbol.scope))
        steps = [each for each in parts if each[2] is not None]
        init = parts[0]
        square, scope = steps[0][2], steps[0][1]
        assert isinstance(square, ast.Square)
        return init[0], init[1], square.action, scope

    def search(self, most: int = 1_000_000) -> Counts:
        counts, known = Counts(), set[State]()
        level = self._new(self._states(lambda state, choose: self.init(state, None, choose), ""), known, counts)
        while level and len(known) <= most:
            counts.depth += 1
            level = [new for state in level for new in self._expanded(state, known, counts)]
        counts.distinct, counts.depth = len(known), max(1, counts.depth)
        return counts

    def _expanded(self, state: State, known: set[State], counts: Counts) -> list[State]:
        found = [new for root in self.roots for new in self._states(partial(root, state), "'")]
        if not found and counts.deadlock is None:
            counts.deadlock = counts.depth
        allowed = [each for each in found if all(holds(state, each) for holds in self.action_constraints)]
        counts.generated += len(found) - len(allowed)
        return list(self._new(iter(allowed), known, counts))

    def _states(self, run: Callable[[Successor, Choose], bool], prime: str) -> Iterator[State]:
        names = [name + prime for name in self.names]

        def way(choose: Choose) -> Successor | None:
            state = Successor(names)
            return state if run(state, choose) else None

        return (state.values() for state in ways_through(way) if state is not None)

    def _new(self, states: Iterator[State], known: set[State], counts: Counts) -> list[State]:
        found = []
        for state in states:
            counts.generated += 1
            if state not in known:
                self._judge(state, counts)
                if all(holds(state) for holds in self.constraints):
                    known.add(state)
                    found.append(state)
        return found

    def _judge(self, state: State, counts: Counts) -> None:
        for name, holds in self.invariants.items():
            if not holds(state):
                counts.violated.setdefault(name, counts.depth + 1)


def _value(value: config.Value) -> Value:
    return Set(map(_value, value)) if isinstance(value, tuple) else value


def _conjuncts(node: ast.Expression, scope: Scope) -> Iterator[tuple[ast.Expression, Scope, ast.Expression | None]]:
    """The conjuncts of a formula, each with its scope, and the step that it allows if it is ``[][step]_v``."""
    if isinstance(node, ast.Junction):
        for each in node.items:
            yield from _conjuncts(each, scope)
        return
    if not isinstance(node, ast.Name | ast.Qualified | ast.Apply):
        yield node, scope, None
        return
    found = called(node, scope)
    if isinstance(found.symbol, BuiltIn) and found.symbol.name == "/\\":
        for argument in found.arguments:
            yield from _conjuncts(*argument)
    elif isinstance(found.symbol, BuiltIn) and found.symbol.name == "[]":
        inside, inner = found.arguments[0]
        yield inside, inner, inside
    elif isinstance(found.symbol, Defined) and found.symbol.level == 3 and not found.symbol.parameters:
        assert not isinstance(found.symbol.body, ast.Function)
        yield from _conjuncts(found.symbol.body, found.symbol.scope)
    else:
        yield node, scope, None
