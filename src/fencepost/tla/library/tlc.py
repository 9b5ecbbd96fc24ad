"""The modules TLC and TLCExt."""

from __future__ import annotations

from itertools import permutations

from fencepost.language.values import ModelValue
from fencepost.tla.library.context import current
from fencepost.tla.library.definitions import Binary, Module, explicit, holds, sequence, written_out, wrong
from fencepost.tla.sets import ANY
from fencepost.tla.stored import StoredMap, UpdatedFunction
from fencepost.tla.values import (
    EvaluationError,
    Function,
    FunctionValue,
    Interval,
    Sequence,
    Set,
    SetValue,
    Value,
    equal,
    function,
    kind_of,
    show,
    shown,
)

TLC = Module("TLC")
TLC_EXT = Module("TLCExt")

TLC.value("Any", ANY)
TLC.refuse("a step depends on the state alone, and not on the time", JavaTime=0)
TLC.refuse("a step depends on the state alone, and not on chance", RandomElement=1)


@TLC.operator("Print", is_impure=True)
def print_and_return(text: Value, value: Value) -> Value:
    current().say(f"{show(text)}  {show(value)}")
    return value


@TLC.operator("PrintT", is_impure=True)
def print_value(text: Value) -> bool:
    current().say(show(text))
    return True


@TLC.operator("Assert")
def asserted(condition: Value, text: Value) -> bool:
    if condition is True:
        return True
    said = text if type(text) is str else show(text)
    raise EvaluationError(f"Assert: {said}" if condition is False else f"Assert of {shown(condition)}: {said}")


@TLC.operator("TLCGet", is_impure=True)
def get(key: Value) -> Value:
    return current().get(key)


@TLC.operator("TLCSet", is_impure=True)
def put(key: Value, value: Value) -> bool:
    current().set(key, value)
    return True


@TLC.operator(":>")
def single(argument: Value, value: Value) -> Value:
    return function({argument: value})


@TLC.operator("@@")
def combined(one: Value, other: Value) -> Value:
    if isinstance(one, StoredMap | UpdatedFunction) and isinstance(other, Function):
        return _extended(one, other)
    left, right = written_out(one, "@@"), written_out(other, "@@")
    if isinstance(left, Sequence) and isinstance(right, Sequence):
        return Sequence(left.values + right.values[len(left.values) :])
    ours, theirs = dict(left.items()), dict(right.items())
    if ours and theirs and kind_of(next(iter(ours))) is not kind_of(next(iter(theirs))):
        Set((*ours, *theirs))  # raises if TLC does not compare the two domains
    return function({**theirs, **ours})


def _extended(one: StoredMap | UpdatedFunction, other: Function) -> Value:
    for argument, value in other.items():
        if not one.is_defined_for(argument):
            one = one.extended(argument, value)
    return one


@TLC.operator("Permutations")
def all_permutations(of: Value) -> SetValue:
    members = explicit(of, "Permutations").in_order()
    return Set([function(dict(zip(members, each, strict=True))) for each in permutations(members)])


@TLC.operator("SortSeq")
def sorted_sequence(of: Value, before: Binary) -> Value:
    """Sorts by insertion, as TLC does: what is not ordered stays as it stands."""
    done: list[Value] = []
    for each in sequence(of, "SortSeq"):
        place = len(done)
        while place and holds(before(each, done[place - 1]), "SortSeq"):
            place -= 1
        done.insert(place, each)
    return Sequence(done)


@TLC.operator("ToString")
def to_string(value: Value) -> str:
    return show(value)


@TLC.operator("TLCEval")
def evaluated(value: Value) -> Value:
    if isinstance(value, SetValue):
        return value.explicit() if value.is_finite() and not isinstance(value, Interval) else value
    return value.explicit() if isinstance(value, FunctionValue) else value


# -- TLCExt ------------------------------------------------------------------------------------------------------------

TLC_EXT.refuse("it compares with the text of TLC's own errors", AssertError=2)
TLC_EXT.refuse("it asks the user in the middle of a search", PickSuccessor=1)
TLC_EXT.refuse("a search keeps no behaviour that leads to the state", Trace=0, CounterExample=0, ToTrace=1)
TLC_EXT.refuse("a fingerprint of Fencepost is another number than one of TLC", TLCFP=1)
TLC_EXT.refuse("it would be evaluated at another time than the step", TLCDefer=1)
TLC_EXT.refuse("write the definition's name instead", TLCEvalDefinition=1)


@TLC_EXT.operator("AssertEq", is_impure=True)
def asserted_equal(one: Value, other: Value) -> bool:
    if equal(one, other):
        return True
    for each in ("Assertion failed", one, other):
        current().say(show(each))
    return False


@TLC_EXT.operator("TLCGetOrDefault", is_impure=True)
def get_or_default(key: Value, default: Value) -> Value:
    return current().registers.get(key, default)


@TLC_EXT.operator("TLCGetAndSet", is_impure=True)
def get_and_put(key: Value, operator: Binary, value: Value, default: Value) -> Value:
    old = get_or_default(key, default)
    current().set(key, operator(old, value))
    return old


@TLC_EXT.operator("TLCModelValue")
def model_value(name: Value) -> Value:
    if type(name) is not str:
        raise wrong(name, "TLCModelValue", "a string")
    return ModelValue(name)


@TLC_EXT.operator("TLCNoOp")
def unchanged(value: Value) -> Value:
    return value


@TLC_EXT.operator("TLCCache")
def cached(value: Value, key: Value) -> Value:
    return value
