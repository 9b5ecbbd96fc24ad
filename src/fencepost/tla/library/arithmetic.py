"""The modules Bitwise, Combinatorics and DyadicRationals."""

from __future__ import annotations

from math import comb, factorial, gcd

from fencepost.tla.library.definitions import Module, integer, mapping, natural
from fencepost.tla.library.numbers import NATURALS, plus, times
from fencepost.tla.sets import NAT
from fencepost.tla.values import LazyFunction, Value, apply, equal, fitting, record

BITWISE = Module("Bitwise")
COMBINATORICS = Module("Combinatorics", NATURALS)
DYADIC_RATIONALS = Module("DyadicRationals")


@BITWISE.operator("&")
def bits_in_both(one: Value, other: Value) -> int:
    return integer(one, "&") & integer(other, "&")


@BITWISE.operator("|")
def bits_in_either(one: Value, other: Value) -> int:
    return integer(one, "|") | integer(other, "|")


@BITWISE.operator("^^")
def bits_in_one(one: Value, other: Value) -> int:
    return integer(one, "^^") ^ integer(other, "^^")


@BITWISE.operator("Not")
def bits_turned(of: Value) -> int:
    number = natural(of, "Not")
    return number ^ ((1 << number.bit_length()) - 1)


@BITWISE.operator("shiftR")
def shifted(of: Value, places: Value) -> int:
    number, distance = integer(of, "shiftR"), natural(places, "shiftR") % 32
    return number >> distance if number >= 0 or not distance else (number + (1 << 32)) >> distance


# -- Combinatorics -----------------------------------------------------------------------------------------------------


def _factorial(of: Value) -> int:
    number = natural(of, "factorial")
    return fitting(factorial(min(number, 100)), f"factorial[{number}]")


COMBINATORICS.value("factorial", LazyFunction(NAT, _factorial))


@COMBINATORICS.operator("choose")
def binomial(number: Value, chosen: Value) -> int:
    left, right = natural(number, "choose"), natural(chosen, "choose")
    return fitting(comb(left, right), f"choose({left}, {right})")


# -- DyadicRationals ---------------------------------------------------------------------------------------------------


@DYADIC_RATIONALS.operator("Zero")
def zero() -> Value:
    return record(num=0, den=1)


@DYADIC_RATIONALS.operator("One")
def one() -> Value:
    return record(num=1, den=1)


@DYADIC_RATIONALS.operator("IsDyadicRational")
def is_dyadic(value: Value) -> bool:
    denominator = integer(apply(value, "den"), "IsDyadicRational")
    return denominator > 0 and denominator.bit_count() == 1


@DYADIC_RATIONALS.operator("Add")
def added(left: Value, right: Value) -> Value:
    if equal(left, zero()):
        return right
    (number, denominator), (theirs, their_denominator) = _parts(left), _parts(right)
    common = max(denominator, their_denominator)
    total = plus(times(number, common // denominator), times(theirs, common // their_denominator))
    return _reduced(total, common)


@DYADIC_RATIONALS.operator("Half")
def half(of: Value) -> Value:
    number, denominator = _parts(of)
    return _reduced(number, times(denominator, 2))


def _parts(of: Value) -> tuple[int, int]:
    fields = mapping(of, "a dyadic rational")
    return integer(fields.get("num"), "num"), integer(fields.get("den"), "den")


def _reduced(number: int, denominator: int) -> Value:
    common = gcd(number, denominator)
    return record(num=number // common, den=denominator // common)


@DYADIC_RATIONALS.operator("PrettyPrint")
def shown_rational(of: Value) -> str:
    for value, text in ((zero(), "0"), (one(), "1")):
        if equal(of, value):
            return text
    number, denominator = _parts(of)
    return f"{number}/{denominator}"
