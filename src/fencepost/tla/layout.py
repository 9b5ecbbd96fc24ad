"""Chooses how the variables of a specification are laid out, by what their values look like.

Some states are looked at before the search: those near the initial states, and those on random walks away from them.
Where they do not show what comes later, the search is still right, and slower.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from random import Random
from typing import Any

from fencepost.errors import FencepostError
from fencepost.language.values import ModelValue
from fencepost.semantics import Root, State, Stepper
from fencepost.semantics.state import ValueTable
from fencepost.tla.held import Held
from fencepost.tla.places import FunctionPlace, Leaf, MapPlace, Members, Path, Place, SetPlace, Variable
from fencepost.tla.values import EvaluationError, Function, FunctionValue, Set, SetValue, Value, in_order
from fencepost.tla.values import Sequence as Tuple

FIRST_LOOK = 2_000
SECOND_LOOK = 4_000
"""The evaluations of TLA+ after which looking ends: before a search, and before another one if that was too short."""

NEAR = 300
"""The most states that are looked at because they are near the initial ones."""

LONGEST_WALK = 60
"""The most steps of a walk."""

Row = tuple[int, ...]

FEW = 4
"""A set or a map that has had at most this many values is one slot."""

MOST_MEMBERS = 2_000
"""A set that has had more members than this is one slot, and so is a map with more arguments."""

MOST_ARGUMENTS = 256
"""A function with more arguments than this is one slot."""


def look(stepper: Stepper, most: int) -> tuple[list[State], bool]:
    """Some states that can be reached, and whether they are all. The same ones in every run. ``most``: evaluations."""
    looking = _Looking(stepper, most)
    try:
        looking.near()
        looking.walk()
    except FencepostError:
        return looking.states(), False  # the search will come to it, and tell how
    return looking.states(), looking.is_complete


class _Looking:
    def __init__(self, stepper: Stepper, most: int) -> None:
        self.stepper = stepper
        self.most = most
        self.is_complete = False
        self._actions = stepper.of_kind("action")
        self._constraints = stepper.of_kind("constraint")
        self._step_constraints = stepper.of_kind("step_constraint")
        self._rows: dict[Row, None] = {}
        self._starts: list[Row] = []

    def states(self) -> list[State]:
        return [State(self.stepper.store, row) for row in self._rows]

    def near(self) -> None:
        """The states nearest to the initial ones."""
        self._starts = [state.ids for state in self.stepper.initial_states(NEAR)]
        self._rows = dict.fromkeys(self._starts)
        waiting = [*self._rows]
        for row in waiting:
            if len(self._rows) >= NEAR or self.stepper.evaluations > self.most // 2:
                return
            for action in self._actions if self._is_inside(row) else []:
                for after in self._after(row, action):
                    if after not in self._rows:
                        self._rows[after] = None
                        waiting.append(after)
        self.is_complete = True

    def walk(self) -> None:
        """States on random walks."""
        random = Random(0)
        while self._starts and not self.is_complete and self.stepper.evaluations < self.most:
            row = random.choice(self._starts)
            for _ in range(LONGEST_WALK):
                following = self._any_after(row, random)
                if following is None or self.stepper.evaluations > self.most:
                    break
                row = following
                self._rows[row] = None

    def _any_after(self, row: Row, random: Random) -> Row | None:
        if not self._is_inside(row):
            return None
        for action in random.sample(self._actions, len(self._actions)):
            after = self._after(row, action)
            if after:
                return random.choice([each for each in after if each not in self._rows] or after)
        return None

    def _is_inside(self, row: Row) -> bool:
        return not any(self.stepper.outcomes(each, row) for each in self._constraints)

    def _after(self, row: Row, action: Root) -> list[Row]:
        found = (self.stepper.apply(row, outcome) for outcome in self.stepper.outcomes(action, row))
        return [
            after
            for after in dict.fromkeys(found)
            if not any(self.stepper.outcomes(each, row, after) for each in self._step_constraints)
        ]


def chosen(states: Sequence[State], names: Iterable[str], coarse: Container[str] = ()) -> dict[str, Variable]:
    """The layout of each variable for states like these. Sets and maps in ``coarse`` variables are not taken apart."""
    values: dict[str, dict[Any, None]] = {name: {} for name in names}
    for state in states:
        for name, held in state.variables().items():
            values[name][held] = None
    return {name: Variable(place((name,), [held.value for held in of], name in coarse)) for name, of in values.items()}


def place(path: Path, values: Sequence[Value], is_coarse: bool = False) -> Place:
    """The place for a variable, or a part of one, that has had these values. ``is_coarse``: no slots for members."""
    functions = [each for each in values if isinstance(each, FunctionValue)]
    sets = [each for each in values if isinstance(each, SetValue)]
    if functions and sets:
        return Leaf(path)
    if len(functions) > len(values) / 2:
        return _of_functions(path, [each.explicit() for each in functions], is_coarse)
    if not is_coarse and len(sets) > max(FEW, len(values) / 2):
        return _of_sets(path, [each.explicit() for each in sets])
    return Leaf(path)


def _of_functions(path: Path, values: Sequence[Tuple | Function], is_coarse: bool) -> Place:
    domains = {tuple(each.domain().explicit().in_order()) for each in values}
    if len(domains) == 1:
        return _of_one_domain(path, values, domains.pop(), is_coarse)
    keys = set().union(*domains)
    is_sequence = any(isinstance(each, Tuple) and each.values for each in values)
    if is_coarse or is_sequence or len(values) <= FEW or len(keys) > MOST_MEMBERS:
        return Leaf(path)
    made = MapPlace(path)
    made.settle(in_any_order(keys))
    return made


def _of_one_domain(path: Path, values: Sequence[Tuple | Function], domain: tuple[Value, ...], is_coarse: bool) -> Place:
    if not domain or len(domain) > MOST_ARGUMENTS or any(type(each) is bool for each in domain):
        return Leaf(path)
    parts = {key: list(dict.fromkeys(map(Held, (each.apply(key) for each in values)))) for key in domain}
    if not all(type(key) is str for key in domain):
        # The arguments are alike, so their places are, too.
        every = list(dict.fromkeys(held for of in parts.values() for held in of))
        parts = dict.fromkeys(domain, every)
    return FunctionPlace(
        path, {key: place((*path, _part(key)), [held.value for held in of], is_coarse) for key, of in parts.items()}
    )


def _part(key: Value) -> Any:
    return key if type(key) in (int, str, ModelValue) else Held(key)


def _of_sets(path: Path, values: Sequence[Set]) -> Place:
    members = {member for each in values for member in each.items}
    if not members or len(members) > MOST_MEMBERS:
        return Leaf(path)
    if all(len(each.items) < 2 for each in values):
        return Leaf(path)  # a member takes the place of another one: as a set of slots, all of them would be written
    made = SetPlace(path)
    made.settle(in_any_order(members))
    return made


def in_any_order(values: Iterable[Value]) -> list[Value]:
    """Values in TLC's order, or in another one if TLC does not compare them."""
    of = list(values)
    try:
        return list(in_order(of))
    except EvaluationError:
        return sorted(of, key=lambda each: Held(each).order())


def settled(variables: Mapping[str, Variable], store: ValueTable) -> dict[str, Variable]:
    """The layout, with every member settled that a search has met, too."""
    return {name: Variable(_settled(variable.layout, store)) for name, variable in variables.items()}


def _settled(of: Place, store: ValueTable) -> Place:
    if isinstance(of, FunctionPlace):
        return FunctionPlace(of.path, {key: _settled(part, store) for key, part in of.parts.items()})
    if not isinstance(of, Members):
        return of
    made = type(of)(of.path)
    met = (slot.path[-1].value for slot in store.universe(of.members).slots)
    made.settle(in_any_order({*met, *(value for value, _ in of.settled)}))
    return made
