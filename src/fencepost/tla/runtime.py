"""What compiled expressions call."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from collections.abc import Sequence as Numbers
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar

from fencepost.tla.ast import Place
from fencepost.tla.errors import pointed
from fencepost.tla.library.context import current
from fencepost.tla.sets import Functions, Records, Subsets, Tuples
from fencepost.tla.stored import Candidates, StoredFunction, StoredSet, same
from fencepost.tla.suppositions import attempt, key_of
from fencepost.tla.symbols import LEVEL
from fencepost.tla.values import (
    UNREAD,
    Condition,
    EvaluationError,
    FunctionValue,
    LazyFunction,
    Reads,
    Sequence,
    SetValue,
    Value,
    apply,
    described,
    function_of,
    member,
    members,
    set_of,
    shown,
)

T = TypeVar("T")
Rule = Callable[..., Value]

STACK = 1 << 29
"""Bytes of stack for :func:`deeply`. The system gives memory only to what is used."""

DEPTH = 60_000
"""The deepest nesting of Python calls in :func:`deeply`."""


class PlacedError(EvaluationError):
    """An :class:`EvaluationError` with the place of the operation that failed."""

    def __init__(self, message: str, place: Place) -> None:
        super().__init__(pointed(message, place))
        self.place = place


class Lazy:
    """An argument or a definition that is evaluated when it is first used."""

    __slots__ = ("_rule", "_value")

    def __init__(self, rule: Callable[[], Value]) -> None:
        self._rule: Callable[[], Value] | None = rule
        self._value: Value = None

    def __call__(self) -> Value:
        if self._rule is not None:
            value = self._rule()
            if value is UNREAD:
                return value
            self._value, self._rule = value, None
        return self._value

    @property
    def unread(self) -> Any:
        """What it is as long as nothing is read. See :func:`fencepost.tla.suppositions.key_of`."""
        return key_of(self._value if self._rule is None else self._rule)


def truth(value: Value, what: str) -> bool:
    """``value``, which ``what`` needs to be a Boolean."""
    if value is True or value is False:
        return value
    raise EvaluationError(f"{what} is {described(value)}, which is neither TRUE nor FALSE")


def queue_after(level: Value) -> Value:
    """``TLCGet("queue")`` in a state of this level."""
    return current().queue(level)


def fail(message: str) -> Value:
    """Raise: an expression that TLC does not evaluate."""
    raise EvaluationError(message)


# -- functions and sets ------------------------------------------------------------------------------------------------


def field(record: Value, name: str) -> Value:
    """``record.name``."""
    if isinstance(record, FunctionValue):
        return record.apply(name)
    raise EvaluationError(f"{described(record)} has no field {name}: it is not a record")


def products(*sets: Value) -> Tuples:
    r"""``S \X T``."""
    return Tuples([set_of(each, "\\X") for each in sets])


def only(of: Value) -> SetValue:
    """``UNION {of}``."""
    return set_of(of, "UNION")


def subsets(of: Value) -> Subsets:
    """``SUBSET of``."""
    return Subsets(set_of(of, "SUBSET"))


def functions(domain: Value, range: Value) -> Functions:
    """``[domain -> range]``."""
    return Functions(set_of(domain, "[S -> T]"), set_of(range, "[S -> T]"))


def records(*fields: tuple[str, Value]) -> Records:
    """``[a : S, b : T]``."""
    return Records((name, set_of(each, "[a : S]")) for name, each in fields)


def functional(rule: Rule, *sets: Value) -> FunctionValue:
    """``[x \\in S |-> rule(x)]``, or over several sets, when the argument is a tuple."""
    return function_of(_domain(sets), rule)


def sifted(rule: Rule, sifting: Rule, of: Value) -> FunctionValue:
    """``[x \\in S |-> rule(x)]``. ``sifting`` gives the same without reading the state where ``rule`` would read it, or
    raises :class:`Reads`.
    """
    return function_of(_domain((of,)), rule, sifting)


def recursive(make: Callable[[FunctionValue], Rule], *sets: Value) -> FunctionValue:
    """A function whose rule uses the function. ``make`` gives the rule."""
    rule: Rule
    made = LazyFunction(_domain(sets), lambda argument: rule(argument))
    rule = make(made)
    return made


def _domain(sets: tuple[Value, ...]) -> SetValue:
    parts = [set_of(each, "[x \\in S |-> e]") for each in sets]
    if len(parts) == 1:
        return parts[0]
    product = Tuples(parts)
    return product.explicit() if all(each.is_reducible for each in parts) else product


# -- bound names -------------------------------------------------------------------------------------------------------


def untupled(value: Value, number: int) -> tuple[Value, ...]:
    """The components of a tuple that is to have ``number`` of them."""
    whole = value.explicit() if isinstance(value, FunctionValue) else value
    if isinstance(whole, Sequence) and len(whole.values) == number:
        return whole.values
    raise EvaluationError(f"{described(value)} is not a tuple of {number} components")


def spread(rule: Rule, *shape: int) -> Rule:
    """``rule`` as a function of one value. ``shape`` has a number for each part of the value: 0 for a name, or the
    number of names in a tuple. A value with several parts is a tuple itself.
    """
    if len(shape) == 1:
        return lambda value: rule(*untupled(value, shape[0]))
    return lambda value: rule(*_flat(untupled(value, len(shape)), shape))


def _flat(parts: Iterable[Value], shape: tuple[int, ...]) -> Iterator[Value]:
    for part, number in zip(parts, shape, strict=True):
        if number:
            yield from untupled(part, number)
        else:
            yield part


def ways(shape: tuple[int, ...], *sets: Value) -> Iterator[tuple[Value, ...]]:
    """Every combination of members, with tuples taken apart. The first changes fastest, as in TLC."""
    choices = [tuple(members(each)) for each in sets]
    for parts in itertools.product(*reversed(choices)):
        yield tuple(_flat(reversed(parts), shape))


def in_set(of: Value) -> SetValue:
    """The set that a quantifier goes through."""
    return set_of(of, "to go through its members")


def some(of: SetValue, rule: Condition, sifting: Condition | None = None) -> bool:
    r"""``\E x \in of : rule(x)``. ``sifting``: as for :meth:`SetValue.some`."""
    return of.some(rule, sifting)


def unknown() -> bool:
    """A condition that :func:`fencepost.tla.suppositions.all_of` does not try."""
    raise Reads


def every(of: SetValue, rule: Condition) -> bool:
    r"""``\A x \in of : rule(x)``."""
    return of.every(rule)


def some_way(rule: Callable[..., bool], shape: tuple[int, ...], *sets: Value) -> bool:
    r"""``\E x, y \in S : rule(x, y)``."""
    if not any(isinstance(each, SetValue) and each.is_stored for each in sets):
        return any(itertools.starmap(rule, ways(shape, *sets)))
    return _some_way(rule, shape, [set_of(each, "\\E x, y \\in S") for each in sets], ())


def _some_way(
    rule: Callable[..., bool], shape: tuple[int, ...], sets: list[SetValue], taken: tuple[Value, ...]
) -> bool:
    if not sets:
        return rule(*_flat(taken, shape))
    return sets[-1].some(lambda value: _some_way(rule, shape, sets[:-1], (value, *taken)))


def every_way(rule: Callable[..., bool], shape: tuple[int, ...], *sets: Value) -> bool:
    r"""``\A x, y \in S : rule(x, y)``."""
    return not some_way(lambda *values: not rule(*values), shape, *sets)


def chosen(of: Value, condition: Condition, sifting: Condition | None = None) -> Value:
    """``CHOOSE x \\in of : condition(x)``: the first in TLC's order."""
    whole = set_of(of, "CHOOSE x \\in S : P")
    for each in whole.those(condition, sifting):
        return each
    raise EvaluationError(f"no element of {_shortly(whole)} satisfies the condition of CHOOSE")


def _shortly(of: SetValue) -> str:
    return described(of).removeprefix("the set ")


def no_case() -> Value:
    raise EvaluationError("no condition of CASE is true, and there is no OTHER")


def applied(function: Value, *arguments: Value) -> Value:
    """``f[a, b]``."""
    return apply(function, Sequence(arguments))


def in_domain(argument: Value, *shape: tuple[Value, int]) -> tuple[Value, ...]:
    """The values that a function's argument gives to the names of its rule. ``shape`` has, for each part of the
    argument, a set that has it, and 0 for a name or the number of names in a tuple.

    Raises :class:`EvaluationError` outside the domain.
    """
    parts = (argument,) if len(shape) == 1 else untupled(argument, len(shape))
    for part, (of, _) in zip(parts, shape, strict=True):
        if not member(part, of):
            raise EvaluationError(f"a function is applied to {shown(argument)}, which is not in its domain")
    return tuple(_flat(parts, tuple(number for _, number in shape)))


# -- actions -----------------------------------------------------------------------------------------------------------

Choose = Callable[[Any], Any]
"""Picks one of the options that it is given."""


class Successor:
    """A state that gets its values one by one. ``names`` are the names of the variables, with a prime if they have one.

    Reading a variable without a value raises :class:`EvaluationError`.
    """

    def __init__(self, names: Iterable[str], level: Callable[[], Value] | None = None) -> None:
        self._names = tuple(names)
        self._values: dict[int, Value] = {}
        self._level = level

    def __getitem__(self, variable: int) -> Value:
        if variable not in self._values:
            if variable == LEVEL.index and self._level is not None:
                return self._level()
            raise EvaluationError(f"{self._names[variable]} is used before it has a value")
        return self._values[variable]

    def assign(self, variable: int, value: Value) -> None:
        self._values[variable] = value

    def is_assigned(self, variable: int) -> bool:
        return variable in self._values

    def values(self) -> tuple[Value, ...]:
        """The values of all variables, in order."""
        return tuple(self[variable] for variable in range(len(self._names)))


class NoOption(Exception):
    """A choice has no option."""


class Script:
    """Picks the options whose numbers it is given, and after these the first."""

    def __init__(self, numbers: Numbers[int] = ()) -> None:
        self._numbers = numbers
        self._made: list[tuple[int, int]] = []

    def __call__(self, options: Any) -> Any:
        place = len(self._made)
        number = self._numbers[place] if place < len(self._numbers) else 0
        if not len(options):
            raise NoOption
        self._made.append((number, len(options)))
        return options.take(options[number]) if isinstance(options, Candidates) else options[number]

    def following(self) -> Script | None:
        """The script of the next way through the choices, or None after the last."""
        made = self._made
        while made and made[-1][0] + 1 == made[-1][1]:
            made.pop()
        return Script([*(number for number, _ in made[:-1]), made[-1][0] + 1]) if made else None


def ways_through(run: Callable[[Choose], T]) -> Iterator[T]:
    """What ``run`` gives for every way through its choices."""
    script: Script | None = Script()
    while script is not None:
        with suppress(NoOption):
            yield run(script)
        script = script.following()


def may_be(test: Callable[[], Value]) -> bool:
    """Whether a test is not FALSE, so that it has to be asked again in its turn."""
    try:
        return test() is not False
    except (EvaluationError, Reads):
        return True


def are_kept(now: Any, then: Any, variables: Iterable[int]) -> bool:
    """Whether it is known without reading that a step changes none of these variables."""
    keeps = getattr(then, "keeps", None)
    return keeps is not None and all(keeps(now, each) for each in variables)


def is_unchanged(now: Any, then: Any, variable: int) -> bool:
    """``UNCHANGED x``, as a test."""
    return are_kept(now, then, [variable]) or same(now[variable], then[variable])


def changes_at(now: Any, then: Any, variable: int, arguments: Collection[Value]) -> bool:
    """Whether a function changes for none but these arguments, as far as it is known what a step changes."""
    before, after = now[variable], then[variable]
    if not isinstance(before, StoredFunction) or not isinstance(after, StoredFunction):
        return True
    return all(same(before.apply(each), after.apply(each)) for each in after.changed_parts() if each not in arguments)


def assign(state: Any, variable: int, value: Value) -> bool:
    """``x' = value``: give the variable its value, or test the one that it has."""
    if state.is_assigned(variable):
        return same(state[variable], value)
    state.assign(variable, value)
    return True


def pick(state: Any, variable: int, of: Value, choose: Choose) -> bool:
    """``x' \\in of``: choose the variable's value, or test the one that it has."""
    if state.is_assigned(variable):
        return member(state[variable], of)
    found = options(of)
    if found:
        state.assign(variable, choose(found))
    return bool(found)


def pick_subset(state: Any, variable: int, of: Value, choose: Choose) -> bool:
    """``x' \\subseteq of``, in the same way."""
    return pick(state, variable, subsets(of), choose)


def options(of: Value, condition: Condition | None = None, sifting: Condition | None = None) -> Numbers[Value]:
    """The members of a set, or those that satisfy a condition. For a stored set, all that may be."""
    if isinstance(of, StoredSet):
        return of.options(sifting or condition)
    whole = set_of(of, "to go through its members")
    found = whole.members() if whole.is_reducible else whole.explicit().members()  # a set that stays is made once
    return list(found if condition is None else filter(condition, found))


def is_complete(state: Any, variables: tuple[str, ...]) -> bool:
    """Whether every variable has a value."""
    return all(map(state.is_assigned, range(len(variables))))


def enabled(action: Callable[..., bool], now: Any, variables: tuple[str, ...], *held: Any) -> bool:
    """``ENABLED action``: whether it is true of some successor."""
    names = [f"{each}'" for each in variables]

    def then() -> Successor:
        return Successor(names, lambda: now[LEVEL.index] + 1)

    return any(ways_through(lambda choose: attempt(lambda: action(now, then(), choose, *held))))


def leads(action: Callable[..., bool], now: Any, then: Any, *held: Any) -> bool:
    """Whether an action leads from one state to another in some way."""
    return any(ways_through(lambda choose: attempt(lambda: action(now, then, choose, *held))))


def between(now: Any, then: Any, variables: tuple[str, ...]) -> Successor:
    """The state between two composed actions. As in TLC, a variable that has a next value already is not changed by the
    first action, where ``then`` is given. The level is that of the state before: the two actions are one step.
    """
    state = Successor(variables, lambda: now[LEVEL.index])
    for number in range(len(variables)) if then is not None else ():
        if then.is_assigned(number):
            state.assign(number, now[number])
    return state


# -- deep recursion ----------------------------------------------------------------------------------------------------


def deeply(run: Callable[[], T]) -> T:
    """Run in a thread with room for deep recursion, and return what ``run`` returns or raise what it raises."""
    result: list[Any] = []
    context = copy_context()

    def catching() -> None:
        try:
            result.extend((True, context.run(run)))
        except BaseException as error:
            result.extend((False, error))

    _in_big_thread(catching)
    succeeded, value = result
    if not succeeded:
        raise value
    return value  # type: ignore[no-any-return]


def _in_big_thread(run: Callable[[], None]) -> None:
    size, limit = threading.stack_size(STACK), sys.getrecursionlimit()
    try:
        thread = threading.Thread(target=run, daemon=True)
        sys.setrecursionlimit(max(limit, DEPTH))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(size)
        sys.setrecursionlimit(limit)
