"""The modules Bags and BagsExt. A bag is a function whose values are positive."""

from __future__ import annotations

from itertools import product
from typing import cast

from fencepost.tla.library.definitions import Binary, Module, Unary, explicit, mapping, wrong
from fencepost.tla.library.functions import folded
from fencepost.tla.library.numbers import plus, times
from fencepost.tla.library.tlc import TLC, combined
from fencepost.tla.values import (
    EMPTY,
    FunctionValue,
    Set,
    SetValue,
    Value,
    domain,
    equal,
    fitting,
    function,
)

BAGS = Module("Bags", TLC)
BAGS_EXT = Module("BagsExt")

BAGS.value("EmptyBag", EMPTY)


def _bag(value: Value, operator: str) -> dict[Value, int]:
    counts = mapping(value, operator)
    if all(type(each) is int and each > 0 for each in counts.values()):
        return counts
    raise wrong(value, operator, "a bag")


@BAGS.operator("IsABag")
def is_bag(value: Value) -> bool:
    if not isinstance(value, FunctionValue):
        return False
    return all(type(each) is int and each > 0 for _, each in value.items())


@BAGS.operator("BagToSet")
def to_set(of: Value) -> SetValue:
    return domain(of)


@BAGS.operator("SetToBag")
def from_set(of: Value) -> Value:
    return function(dict.fromkeys(explicit(of, "SetToBag").in_order(), 1))


@BAGS.operator("BagIn")
def is_in(value: Value, of: Value) -> bool:
    return copies(value, of) > 0


@BAGS.operator("CopiesIn")
def copies(value: Value, of: Value) -> int:
    for each, number in mapping(of, "CopiesIn").items():
        if equal(value, each):
            if type(number) is not int:
                raise wrong(of, "CopiesIn", "a bag")
            return number
    return 0


@BAGS.operator("\\oplus")
def together(one: Value, other: Value) -> Value:
    left, right = _bag(one, "(+)"), _bag(other, "(+)")
    counts = {each: fitting(left.get(each, 0) + number, "a number of copies") for each, number in right.items()}
    return combined(function(counts), function(left))


@BAGS.operator("\\ominus")
def taken_away(one: Value, other: Value) -> Value:
    left, right = mapping(one, "(-)"), mapping(other, "(-)")
    combined(one, other)
    counts = {each: number - right.get(each, 0) for each, number in left.items()}
    return function({each: number for each, number in counts.items() if number > 0})


@BAGS.operator("\\sqsubseteq")
def is_within(one: Value, other: Value) -> bool:
    left, right = mapping(one, "\\sqsubseteq"), mapping(other, "\\sqsubseteq")
    combined(one, other)
    return all(number <= right.get(each, 0) for each, number in left.items())


@BAGS.operator("BagUnion")
def all_together(of: Value) -> Value:
    bags = explicit(of, "BagUnion").in_order()
    whole = bags[0] if bags else EMPTY
    for each in bags[1:]:
        whole = together(whole, each)
    return whole


@BAGS.operator("SubBag")
def subbags(of: Value) -> Set:
    counts = _bag(of, "SubBag")
    ways = product(*[range(number + 1) for number in counts.values()])
    return Set([_present(dict(zip(counts, numbers, strict=True))) for numbers in ways])


def _present(counts: dict[Value, int]) -> Value:
    return function({each: number for each, number in counts.items() if number})


@BAGS.operator("BagOfAll")
def mapped(image: Unary, of: Value) -> Value:
    whole: Value = EMPTY
    for each, number in mapping(of, "BagOfAll").items():
        whole = together(whole, function({image(each): number}))
    return whole


@BAGS.operator("BagCardinality")
def cardinality(of: Value) -> int:
    return sum(_bag(of, "BagCardinality").values())


# -- BagsExt -----------------------------------------------------------------------------------------------------------


@BAGS_EXT.operator("BagAdd")
def added(to: Value, value: Value) -> Value:
    return combined(function({value: copies(value, to) + 1}), to)


@BAGS_EXT.operator("BagRemove")
def removed(of: Value, value: Value) -> Value:
    number = copies(value, of)
    if number == 1 or not number:
        return removed_all(of, value)
    return combined(function({value: number - 1}), of)


@BAGS_EXT.operator("BagRemoveAll")
def removed_all(of: Value, value: Value) -> Value:
    return function({each: number for each, number in mapping(of, "BagRemoveAll").items() if not equal(each, value)})


@BAGS_EXT.operator("MapThenFoldBag")
def fold_mapped(operator: Binary, base: Value, image: Unary, choose: Unary, of: Value) -> Value:
    images = [_repeated(operator, base, image(each), number) for each, number in _bag(of, "MapThenFoldBag").items()]
    return folded(operator, base, reversed(images))


def _repeated(operator: Binary, base: Value, value: Value, number: int) -> Value:
    for _ in range(number):
        base = operator(base, value)
    return base


@BAGS_EXT.operator("FoldBag")
def fold(operator: Binary, base: Value, of: Value) -> Value:
    for each, number in _bag(of, "FoldBag").items():
        base = _repeated(operator, base, each, number)
    return base


@BAGS_EXT.operator("SumBag")
def sum_of(of: Value) -> int:
    return cast(int, fold(plus, 0, of))


@BAGS_EXT.operator("ProductBag")
def product_of(of: Value) -> int:
    return cast(int, fold(times, 1, of))
