"""The modules Naturals, Integers and Reals. As in TLC, a number that does not fit in 32 bits is an error, and Reals has
no more than the integers.
"""

from __future__ import annotations

from fencepost.tla.library.definitions import Module, integer, natural, wrong
from fencepost.tla.sets import INT, NAT, interval
from fencepost.tla.values import (
    GREATEST_INTEGER,
    LEAST_INTEGER,
    EvaluationError,
    Interval,
    Value,
    fitting,
)

NATURALS = Module("Naturals")
INTEGERS = Module("Integers", NATURALS)
REALS = Module("Reals", INTEGERS)

NATURALS.value("Nat", NAT)
INTEGERS.value("Int", INT)
REALS.value("Real", INT)
REALS.refuse("Fencepost, like TLC, has no real numbers", **{"/": 2, "Infinity": 0})


def _both(one: Value, other: Value, operator: str) -> tuple[int, int]:
    return integer(one, operator), integer(other, operator)


@NATURALS.operator("+")
def plus(one: Value, other: Value) -> int:
    if type(one) is int and type(other) is int and LEAST_INTEGER <= one + other <= GREATEST_INTEGER:
        return one + other
    left, right = _both(one, other, "+")
    return fitting(left + right, f"{left} + {right}")


@NATURALS.operator("-")
def minus(one: Value, other: Value) -> int:
    if type(one) is int and type(other) is int and LEAST_INTEGER <= one - other <= GREATEST_INTEGER:
        return one - other
    left, right = _both(one, other, "-")
    return fitting(left - right, f"{left} - {right}")


@NATURALS.operator("*")
def times(one: Value, other: Value) -> int:
    left, right = _both(one, other, "*")
    return fitting(left * right, f"{left} * {right}")


@NATURALS.operator("^")
def power(one: Value, other: Value) -> int:
    base, exponent = integer(one, "^"), natural(other, "^")
    if base == exponent == 0:
        raise EvaluationError("0^0 is not defined")
    if abs(base) > 1 and exponent > 32:
        raise EvaluationError(f"{base}^{exponent} does not fit in 32 bits")
    return fitting(base**exponent, f"{base}^{exponent}")


@NATURALS.operator("\\div")
def divided(one: Value, other: Value) -> int:
    left, right = _both(one, other, "\\div")
    if right == 0:
        raise EvaluationError(f"{left} \\div 0 is not defined")
    return fitting(left // right, f"{left} \\div {right}")


@NATURALS.operator("%")
def modulo(one: Value, other: Value) -> int:
    left, right = _both(one, other, "%")
    if right <= 0:
        raise wrong(other, "%", "a positive number on its right")
    return left % right


@NATURALS.operator("<")
def less(one: Value, other: Value) -> bool:
    if type(one) is int and type(other) is int:
        return one < other
    left, right = _both(one, other, "<")
    return left < right


@NATURALS.operator("<=")
def at_most(one: Value, other: Value) -> bool:
    if type(one) is int and type(other) is int:
        return one <= other
    left, right = _both(one, other, "<=")
    return left <= right


@NATURALS.operator(">")
def greater(one: Value, other: Value) -> bool:
    if type(one) is int and type(other) is int:
        return one > other
    left, right = _both(one, other, ">")
    return left > right


@NATURALS.operator(">=")
def at_least(one: Value, other: Value) -> bool:
    if type(one) is int and type(other) is int:
        return one >= other
    left, right = _both(one, other, ">=")
    return left >= right


@NATURALS.operator("..")
def up_to(one: Value, other: Value) -> Interval:
    return interval(one, other)


@INTEGERS.operator("-.")
def negative(one: Value) -> int:
    return fitting(-integer(one, "-"), f"-({one})")
