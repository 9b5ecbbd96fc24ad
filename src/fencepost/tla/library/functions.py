"""The modules Folds and Functions. Where CommunityModules has a Java override, its order of folding counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import cast

from fencepost.tla.library.definitions import Binary, Module, Unary, explicit, holds, mapping, written_out, wrong
from fencepost.tla.library.numbers import INTEGERS, plus
from fencepost.tla.sets import Functions, difference, filtered, intersection
from fencepost.tla.values import (
    EvaluationError,
    FunctionValue,
    Set,
    SetValue,
    Value,
    apply,
    domain,
    equal,
    function,
    function_of,
    member,
    set_of,
    shown,
)

FOLDS = Module("Folds")
FUNCTIONS = Module("Functions", INTEGERS, FOLDS)


def folded(operator: Binary, base: Value, values: Iterable[Value]) -> Value:
    """``operator(last, ... operator(first, base))``."""
    for each in values:
        base = operator(each, base)
    return base


@FOLDS.operator("MapThenFoldSet")
def fold_mapped(operator: Binary, base: Value, image: Unary, choose: Unary, of: Value) -> Value:
    left: SetValue = set_of(of, "MapThenFoldSet")
    chosen = []
    while not left.is_empty():
        each = choose(left)
        chosen.append(image(each))
        rest = difference(left, Set([each]))
        if rest.size() == left.size():
            raise EvaluationError(f"MapThenFoldSet: {shown(each)} was chosen, and it is not in {shown(left)}")
        left = rest
    return folded(operator, base, reversed(chosen))


@FUNCTIONS.operator("Restrict")
def restricted(of: Value, to: Value) -> Value:
    return function_of(set_of(to, "Restrict"), lambda each: apply(of, each))


@FUNCTIONS.operator("RestrictDomain")
def restricted_where(of: Value, test: Unary) -> Value:
    return restricted(of, filtered(domain(of), lambda each: holds(test(each), "RestrictDomain")))


@FUNCTIONS.operator("RestrictValues")
def restricted_to_values(of: Value, test: Unary) -> Value:
    return restricted(of, filtered(domain(of), lambda each: holds(test(apply(of, each)), "RestrictValues")))


@FUNCTIONS.operator("IsRestriction")
def is_restriction(narrow: Value, wide: Value) -> bool:
    for argument, value in written_out(narrow, "IsRestriction").items():
        if not member(argument, domain(wide)) or not equal(value, apply(wide, argument)):
            return False
    return True


@FUNCTIONS.operator("Range")
def range_of(of: Value) -> Set:
    return Set(mapping(of, "Range").values())


@FUNCTIONS.operator("Pointwise")
def pointwise(one: Value, other: Value, operator: Binary) -> Value:
    return function_of(domain(one), lambda each: operator(apply(one, each), apply(other, each)))


@FUNCTIONS.operator("Inverse")
def inverse(of: Value, sources: Value, targets: Value) -> Value:
    range, candidates = range_of(of), explicit(sources, "Inverse").in_order()

    def source(target: Value) -> Value:
        for each in candidates:
            if not range.has(target) or equal(apply(of, each), target):
                return each
        raise EvaluationError(f"Inverse: {shown(target)} is the value of no element of {shown(sources)}")

    return function_of(set_of(targets, "Inverse"), source)


@FUNCTIONS.operator("AntiFunction")
def antifunction(of: Value) -> Value:
    found = {value: argument for argument, value in written_out(of, "AntiFunction").items()}
    if len(found) < written_out(of, "AntiFunction").size():
        raise EvaluationError(
            f"AntiFunction needs a function with one argument for each value, and {shown(of)} has more"
        )
    return function({each: found[each] for each in Set(found).in_order()})


@FUNCTIONS.operator("IsInjective")
def is_injective(of: Value) -> bool:
    values = tuple(mapping(of, "IsInjective").values())
    return not any(equal(each, other) for place, each in enumerate(values) for other in values[:place])


@FUNCTIONS.operator("Injection")
def injections(sources: Value, targets: Value) -> SetValue:
    return filtered(_functions(sources, targets), is_injective)


@FUNCTIONS.operator("Surjection")
def surjections(sources: Value, targets: Value) -> SetValue:
    wanted = explicit(targets, "Surjection")
    return filtered(_functions(sources, targets), lambda each: range_of(each) == wanted)


@FUNCTIONS.operator("Bijection")
def bijections(sources: Value, targets: Value) -> SetValue:
    return intersection(injections(sources, targets), surjections(sources, targets))


def _functions(sources: Value, targets: Value) -> Functions:
    return Functions(set_of(sources, "[S -> T]"), set_of(targets, "[S -> T]"))


@FUNCTIONS.operator("ExistsInjection")
def has_injection(sources: Value, targets: Value) -> bool:
    return _sizes(sources, targets, lambda one, other: one <= other)


@FUNCTIONS.operator("ExistsSurjection")
def has_surjection(sources: Value, targets: Value) -> bool:
    return _sizes(sources, targets, lambda one, other: one >= other if other else one == 0)


@FUNCTIONS.operator("ExistsBijection")
def has_bijection(sources: Value, targets: Value) -> bool:
    return _sizes(sources, targets, lambda one, other: one == other)


def _sizes(sources: Value, targets: Value, compare: Callable[[int, int], bool]) -> bool:
    return compare(explicit(sources, "Injection").size(), explicit(targets, "Injection").size())


@FUNCTIONS.operator("FoldFunctionOnSet")
def fold_function_on(operator: Binary, base: Value, of: Value, indices: Value) -> Value:
    return folded(operator, base, _values_at(of, indices))


def _values_at(of: Value, indices: Value) -> Iterator[Value]:
    if not isinstance(of, FunctionValue):
        raise wrong(of, "FoldFunctionOnSet", "a function")
    return (of.apply(each) for each in set_of(indices, "FoldFunctionOnSet").members())


@FUNCTIONS.operator("FoldFunction")
def fold_function(operator: Binary, base: Value, of: Value) -> Value:
    return fold_function_on(operator, base, of, domain(of))


@FUNCTIONS.operator("SumFunctionOnSet")
def sum_on(of: Value, indices: Value) -> int:
    return cast(int, fold_function_on(plus, 0, of, indices))


@FUNCTIONS.operator("SumFunction")
def sum_of(of: Value) -> int:
    return sum_on(of, domain(of))
