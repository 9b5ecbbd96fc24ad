"""The modules FiniteSets and FiniteSetsExt."""

from __future__ import annotations

from itertools import combinations, product
from typing import cast

from fencepost.tla.library.definitions import Binary, Module, Unary, explicit, holds, integer
from fencepost.tla.library.functions import FOLDS, FUNCTIONS, fold_mapped, folded
from fencepost.tla.library.numbers import INTEGERS, plus, times
from fencepost.tla.sets import big_union, difference, union
from fencepost.tla.values import EvaluationError, Set, SetValue, Value, equal, set_of, shown

FINITE_SETS = Module("FiniteSets")
FINITE_SETS_EXT = Module("FiniteSetsExt", INTEGERS, FINITE_SETS, FOLDS, FUNCTIONS)


@FINITE_SETS.operator("Cardinality")
def cardinality(of: Value) -> int:
    return set_of(of, "Cardinality").size()


@FINITE_SETS.operator("IsFiniteSet")
def is_finite(of: Value) -> bool:
    return set_of(of, "IsFiniteSet").is_finite()


@FINITE_SETS_EXT.operator("FoldSet")
def fold(operator: Binary, base: Value, of: Value) -> Value:
    return folded(operator, base, set_of(of, "FoldSet").members())


@FINITE_SETS_EXT.operator("ReduceSet")
def reduce(operator: Binary, of: Value, base: Value) -> Value:
    return fold(operator, base, of)


@FINITE_SETS_EXT.operator("SumSet")
def sum_of(of: Value) -> int:
    return cast(int, fold(plus, 0, of))


@FINITE_SETS_EXT.operator("ProductSet")
def product_of(of: Value) -> int:
    return cast(int, fold(times, 1, of))


@FINITE_SETS_EXT.operator("MapThenSumSet")
def sum_mapped(image: Unary, of: Value) -> int:
    return cast(int, fold_mapped(plus, 0, image, _first, of))


def _first(of: Value) -> Value:
    return next(set_of(of, "CHOOSE").members())


@FINITE_SETS_EXT.operator("FlattenSet")
def flattened(of: Value) -> SetValue:
    return big_union(of)


@FINITE_SETS_EXT.operator("SymDiff")
def symmetric_difference(one: Value, other: Value) -> SetValue:
    return union(difference(one, other), difference(other, one))


@FINITE_SETS_EXT.operator("Quantify")
def quantified(of: Value, test: Unary) -> int:
    return sum(holds(test(each), "Quantify") for each in set_of(of, "Quantify").members())


@FINITE_SETS_EXT.operator("kSubset")
def subsets_of_size(number: Value, of: Value) -> SetValue:
    members, size = explicit(of, "kSubset").in_order(), integer(number, "kSubset")
    return Set.sorted(tuple(map(Set.sorted, combinations(members, size)))) if size >= 0 else Set()


@FINITE_SETS_EXT.operator("Max")
def greatest(of: Value) -> Value:
    return max(_numbers(of, "Max"))


@FINITE_SETS_EXT.operator("Min")
def least(of: Value) -> Value:
    return min(_numbers(of, "Min"))


def _numbers(of: Value, operator: str) -> list[int]:
    numbers = [integer(each, operator) for each in set_of(of, operator).members()]
    if numbers:
        return numbers
    raise EvaluationError(f"{operator} of the empty set is not defined")


@FINITE_SETS_EXT.operator("Choices")
def choices(of: Value) -> Set:
    parts = [explicit(each, "Choices").in_order() for each in explicit(of, "Choices").in_order()]
    return Set(list(map(Set, product(*parts))))


@FINITE_SETS_EXT.operator("ChooseUnique")
def unique(of: Value, test: Unary) -> Value:
    found = [each for each in set_of(of, "ChooseUnique").members() if holds(test(each), "ChooseUnique")]
    if len(found) == 1 or (found and all(equal(each, found[0]) for each in found)):
        return found[0]
    raise EvaluationError(f"ChooseUnique: not one element of {shown(of)} satisfies the condition, but {len(found)}")
