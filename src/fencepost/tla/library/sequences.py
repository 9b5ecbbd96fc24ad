"""The modules Sequences and SequencesExt. As in TLC, ``Len``, ``Tail``, ``SubSeq`` and ``\\o`` take strings, too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import permutations

from fencepost.tla.library.bags import BAGS
from fencepost.tla.library.definitions import Binary, Module, Unary, explicit, holds, integer, sequence, wrong
from fencepost.tla.library.finite import FINITE_SETS, FINITE_SETS_EXT
from fencepost.tla.library.functions import FOLDS, FUNCTIONS, folded
from fencepost.tla.library.numbers import NATURALS
from fencepost.tla.library.tlc import TLC, sorted_sequence
from fencepost.tla.sets import Functions, Sequences, big_union
from fencepost.tla.values import (
    EMPTY,
    EvaluationError,
    FunctionValue,
    Interval,
    Sequence,
    Set,
    SetValue,
    Value,
    described,
    equal,
    function,
    set_of,
    updated,
)

SEQUENCES = Module("Sequences")
SEQUENCES_EXT = Module("SequencesExt", SEQUENCES, NATURALS, FINITE_SETS, FINITE_SETS_EXT, FOLDS, FUNCTIONS, BAGS, TLC)


# -- Sequences ---------------------------------------------------------------------------------------------------------


@SEQUENCES.operator("Seq")
def all_sequences(of: Value) -> SetValue:
    return Sequences(set_of(of, "Seq"))


@SEQUENCES.operator("Len")
def length(of: Value) -> int:
    if type(of) is Sequence:
        return len(of.values)
    return len(of) if type(of) is str else len(sequence(of, "Len"))


@SEQUENCES.operator("Head")
def head(of: Value) -> Value:
    return _not_empty(sequence(of, "Head"), "Head")[0]


@SEQUENCES.operator("Tail")
def tail(of: Value) -> Value:
    if type(of) is str:
        if not of:
            raise EvaluationError("Tail of the empty string is not defined")
        return of[1:]
    return Sequence(_not_empty(sequence(of, "Tail"), "Tail")[1:])


def _not_empty(values: tuple[Value, ...], operator: str) -> tuple[Value, ...]:
    if values:
        return values
    raise EvaluationError(f"{operator} of the empty sequence is not defined")


@SEQUENCES.operator("Append")
def append(to: Value, value: Value) -> Value:
    return Sequence((*sequence(to, "Append"), value))


@SEQUENCES.operator("\\o")
def joined(one: Value, other: Value) -> Value:
    if type(one) is str:
        if type(other) is not str:
            raise wrong(other, "\\o after a string", "a string")
        return one + other
    return Sequence(sequence(one, "\\o") + sequence(other, "\\o"))


@SEQUENCES.operator("SubSeq")
def part(of: Value, first: Value, last: Value) -> Value:
    whole = of if type(of) is str else sequence(of, "SubSeq")
    start, end = integer(first, "SubSeq"), integer(last, "SubSeq")
    if start <= end:
        for each in (start, end):
            if not 1 <= each <= len(whole):
                raise EvaluationError(f"SubSeq from {start} to {end}: {described(of)} has no element {each}")
    chosen = whole[start - 1 : end] if start <= end else whole[:0]
    return chosen if type(chosen) is str else Sequence(chosen)


@SEQUENCES.operator("SelectSeq")
def selected(of: Value, test: Unary) -> Value:
    return Sequence([each for each in sequence(of, "SelectSeq") if holds(test(each), "SelectSeq")])


# -- SequencesExt: sets and sequences ----------------------------------------------------------------------------------


@SEQUENCES_EXT.operator("ToSet")
def to_set(of: Value) -> Set:
    return Set(_values(of, "ToSet"))


def _values(of: Value, operator: str) -> tuple[Value, ...]:
    """The values of a function, which the definition takes for a sequence."""
    if not isinstance(of, FunctionValue):
        raise wrong(of, operator, "a sequence")
    return tuple(value for _, value in of.items())


@SEQUENCES_EXT.operator("ToBag")
def to_bag(of: Value) -> Value:
    counts: dict[Value, Value] = {}
    for each in to_set(of).in_order():
        counts[each] = sum(1 for other in _values(of, "ToBag") if equal(other, each))
    return function(counts)


@SEQUENCES_EXT.operator("SetToSeq")
def from_set(of: Value) -> Value:
    return Sequence(explicit(of, "SetToSeq").in_order())


@SEQUENCES_EXT.operator("SetToSeqs")
def from_set_all(of: Value) -> Set:
    return Set([Sequence(each) for each in permutations(explicit(of, "SetToSeqs").in_order())])


@SEQUENCES_EXT.operator("SetToSortSeq")
def from_set_sorted(of: Value, before: Binary) -> Value:
    return sorted_sequence(from_set(of), before)


@SEQUENCES_EXT.operator("SetToAllKPermutations")
def from_subsets(of: Value) -> Set:
    members = explicit(of, "SetToAllKPermutations").in_order()
    return Set([Sequence(each) for number in range(len(members) + 1) for each in permutations(members, number)])


@SEQUENCES_EXT.operator("TupleOf")
def tuples_of(of: Value, number: Value) -> SetValue:
    return Functions(Interval(1, integer(number, "TupleOf")), set_of(of, "TupleOf"))


@SEQUENCES_EXT.operator("SeqOf", "BoundedSeq")
def bounded_sequences(of: Value, most: Value) -> SetValue:
    return big_union(Set([tuples_of(of, each) for each in range(integer(most, "SeqOf") + 1)]))


# -- SequencesExt: questions -------------------------------------------------------------------------------------------


@SEQUENCES_EXT.operator("Contains")
def contains(of: Value, value: Value) -> bool:
    return any(equal(each, value) for each in sequence(of, "Contains"))


@SEQUENCES_EXT.operator("IsSorted")
def is_sorted(of: Value, before: Binary) -> bool:
    values = sequence(of, "IsSorted")
    return all(holds(before(a, b), "IsSorted") for i, a in enumerate(values) for b in values[i + 1 :])


@SEQUENCES_EXT.operator("SelectInSeq")
def first_place(of: Value, test: Unary) -> int:
    return _first_place(enumerate(sequence(of, "SelectInSeq"), 1), test, "SelectInSeq")


def _first_place(items: Iterable[tuple[int, Value]], test: Unary, operator: str) -> int:
    return next((place for place, value in items if holds(test(value), operator)), 0)


@SEQUENCES_EXT.operator("SelectLastInSeq")
def last_place(of: Value, test: Unary) -> int:
    places = list(enumerate(sequence(of, "SelectLastInSeq"), 1))
    return _first_place(reversed(places), test, "SelectLastInSeq")


@SEQUENCES_EXT.operator("SelectInSubSeq")
def first_place_between(of: Value, first: Value, last: Value, test: Unary) -> int:
    return _first_place(_places_between(of, first, last, "SelectInSubSeq"), test, "SelectInSubSeq")


@SEQUENCES_EXT.operator("SelectLastInSubSeq")
def last_place_between(of: Value, first: Value, last: Value, test: Unary) -> int:
    places = _places_between(of, first, last, "SelectLastInSubSeq")
    return _first_place(reversed(places), test, "SelectLastInSubSeq")


def _places_between(of: Value, first: Value, last: Value, operator: str) -> list[tuple[int, Value]]:
    values = sequence(of, operator)
    start, end = integer(first, operator), integer(last, operator)
    for each in (start, end) if start <= end else ():
        if not 1 <= each <= len(values):
            raise EvaluationError(f"{operator} from {start} to {end}: {described(of)} has no element {each}")
    return [(place, values[place - 1]) for place in range(start, end + 1)]


@SEQUENCES_EXT.operator("IsPrefix")
def is_prefix(one: Value, other: Value) -> bool:
    if type(one) is str and type(other) is str:
        return other.startswith(one)
    left, right = sequence(one, "IsPrefix"), sequence(other, "IsPrefix")
    return len(left) <= len(right) and all(map(equal, left, right))


@SEQUENCES_EXT.operator("IsStrictPrefix")
def is_strict_prefix(one: Value, other: Value) -> bool:
    return is_prefix(one, other) and not equal(one, other)


@SEQUENCES_EXT.operator("IsSuffix")
def is_suffix(one: Value, other: Value) -> bool:
    return is_prefix(reversed_sequence(one), reversed_sequence(other))


@SEQUENCES_EXT.operator("IsStrictSuffix")
def is_strict_suffix(one: Value, other: Value) -> bool:
    return is_suffix(one, other) and not equal(one, other)


# -- SequencesExt: changed sequences -----------------------------------------------------------------------------------


@SEQUENCES_EXT.operator("Reverse")
def reversed_sequence(of: Value) -> Value:
    return Sequence(reversed(sequence(of, "Reverse")))


@SEQUENCES_EXT.operator("Remove")
def without(of: Value, value: Value) -> Value:
    return Sequence([each for each in sequence(of, "Remove") if not equal(each, value)])


@SEQUENCES_EXT.operator("ReplaceAll")
def replaced(of: Value, old: Value, new: Value) -> Value:
    return Sequence([new if equal(each, old) else each for each in sequence(of, "ReplaceAll")])


@SEQUENCES_EXT.operator("InsertAt")
def inserted(of: Value, place: Value, value: Value) -> Value:
    before = part(of, 1, integer(place, "InsertAt") - 1)
    return joined(joined(before, Sequence([value])), part(of, place, length(of)))


@SEQUENCES_EXT.operator("ReplaceAt")
def replaced_at(of: Value, place: Value, value: Value) -> Value:
    return updated(of, (place,), lambda old: value)


@SEQUENCES_EXT.operator("RemoveAt")
def removed_at(of: Value, place: Value) -> Value:
    number = integer(place, "RemoveAt")
    return joined(part(of, 1, number - 1), part(of, number + 1, length(of)))


@SEQUENCES_EXT.operator("RemoveFirst")
def without_first(of: Value, value: Value) -> Value:
    return without_first_match(of, lambda each: equal(each, value))


@SEQUENCES_EXT.operator("RemoveFirstMatch")
def without_first_match(of: Value, test: Unary) -> Value:
    values = sequence(of, "RemoveFirstMatch")
    place = _first_place(enumerate(values, 1), test, "RemoveFirstMatch")
    return Sequence(values[: place - 1] + values[place:]) if place else Sequence(values)


@SEQUENCES_EXT.operator("Cons")
def prepended(value: Value, to: Value) -> Value:
    return joined(Sequence([value]), to)


@SEQUENCES_EXT.operator("Snoc")
def appended(value: Value, to: Value) -> Value:
    return append(to, value)


@SEQUENCES_EXT.operator("Front")
def front(of: Value) -> Value:
    return part(of, 1, length(of) - 1)


@SEQUENCES_EXT.operator("Last")
def last(of: Value) -> Value:
    return _not_empty(sequence(of, "Last"), "Last")[-1]


@SEQUENCES_EXT.operator("FlattenSeq")
def flattened(of: Value) -> Value:
    parts = sequence(of, "FlattenSeq")
    whole = parts[0] if parts else EMPTY
    for each in parts[1:]:
        whole = joined(whole, each)
    return whole


@SEQUENCES_EXT.operator("Zip")
def zipped(one: Value, other: Value) -> Value:
    return Sequence(map(Sequence, zip(sequence(one, "Zip"), sequence(other, "Zip"), strict=False)))


@SEQUENCES_EXT.operator("Interleave")
def interleaved(one: Value, other: Value) -> Value:
    left, right = sequence(one, "Interleave"), sequence(other, "Interleave")
    if len(left) != len(right):
        raise EvaluationError("Interleave needs two sequences of one length")
    if not left:
        return Sequence([EMPTY, EMPTY])
    return Sequence([Sequence([each]) for pair in zip(left, right, strict=True) for each in pair])


@SEQUENCES_EXT.operator("SeqMod")
def sequence_modulo(one: Value, other: Value) -> Value:
    number, divisor = integer(one, "SeqMod"), integer(other, "SeqMod")
    if divisor <= 0:
        raise wrong(other, "SeqMod", "a positive divisor")
    return number % divisor or divisor


# -- SequencesExt: sets of parts ---------------------------------------------------------------------------------------


@SEQUENCES_EXT.operator("Prefixes")
def prefixes(of: Value) -> Set:
    values = sequence(of, "Prefixes")
    return Set([Sequence(values[:end]) for end in range(len(values) + 1)])


@SEQUENCES_EXT.operator("CommonPrefixes")
def common_prefixes(of: Value) -> Set:
    whole = explicit(of, "CommonPrefixes")
    return prefixes(longest_common_prefix(whole)) if whole.size() else Set()


@SEQUENCES_EXT.operator("LongestCommonPrefix")
def longest_common_prefix(of: Value) -> Value:
    members = explicit(of, "LongestCommonPrefix").in_order()
    if not members:
        raise wrong(of, "LongestCommonPrefix", "a set that is not empty")
    longest = members[0] if type(members[0]) is str else sequence(members[0], "LongestCommonPrefix")
    for each in members[1:]:
        other = each if type(each) is str else sequence(each, "LongestCommonPrefix")
        longest = longest[: _agreement(longest, other)]
    return longest if type(longest) is str else Sequence(longest)


def _agreement(one: Iterable[Value], other: Iterable[Value]) -> int:
    """How many elements at the beginning are equal."""
    number = 0
    for left, right in zip(one, other, strict=False):
        if not equal(left, right):
            break
        number += 1
    return number


@SEQUENCES_EXT.operator("Suffixes")
def suffixes(of: Value) -> Set:
    values = sequence(of, "Suffixes")
    return Set([Sequence(values[start:]) for start in range(len(values) + 1)])


@SEQUENCES_EXT.operator("SubSeqs")
def parts(of: Value) -> Set:
    return Set(map(Sequence, _parts(sequence(of, "SubSeqs"))))


def _parts(values: tuple[Value, ...]) -> Iterator[tuple[Value, ...]]:
    yield ()
    for start in range(len(values)):
        for end in range(start + 1, len(values) + 1):
            yield values[start:end]


@SEQUENCES_EXT.operator("AllSubSeqs")
def thinned(of: Value) -> Set:
    found: list[tuple[Value, ...]] = [()]
    for each in sequence(of, "AllSubSeqs"):
        found += [(*values, each) for values in found]
    return Set(map(Sequence, found))


@SEQUENCES_EXT.operator("IndexFirstSubSeq")
def place_of_part(of: Value, within: Value) -> int:
    place = _place_of(sequence(of, "IndexFirstSubSeq"), sequence(within, "IndexFirstSubSeq"))
    if place is None:
        raise EvaluationError(f"IndexFirstSubSeq: {described(of)} is no part of {described(within)}")
    return place + 1


def _place_of(wanted: tuple[Value, ...], values: tuple[Value, ...], start: int = 0) -> int | None:
    for place in range(start, len(values) - len(wanted) + 1):
        if all(map(equal, wanted, values[place:])):
            return place
    return None


@SEQUENCES_EXT.operator("ReplaceSubSeqAt")
def part_replaced_at(place: Value, new: Value, old: Value, within: Value) -> Value:
    start = integer(place, "ReplaceSubSeqAt")
    before, after = part(within, 1, start - 1), part(within, start + length(old), length(within))
    return joined(joined(before, new), after)


@SEQUENCES_EXT.operator("ReplaceFirstSubSeq")
def part_replaced(new: Value, old: Value, within: Value) -> Value:
    if type(new) is str and type(old) is str and type(within) is str:
        return within.replace(old, new, 1)
    place = _place_of(sequence(old, "ReplaceFirstSubSeq"), sequence(within, "ReplaceFirstSubSeq"))
    return within if place is None else part_replaced_at(place + 1, new, old, within)


@SEQUENCES_EXT.operator("ReplaceAllSubSeqs")
def parts_replaced(new: Value, old: Value, within: Value) -> Value:
    if type(new) is str and type(old) is str and type(within) is str:
        return within.replace(old, new) if old else new.join(["", *within]) or new
    wanted, values = sequence(old, "ReplaceAllSubSeqs"), sequence(within, "ReplaceAllSubSeqs")
    put = sequence(new, "ReplaceAllSubSeqs")
    return Sequence(_replaced(put, wanted, values)) if put != wanted else within


def _replaced(new: tuple[Value, ...], old: tuple[Value, ...], values: tuple[Value, ...]) -> Iterator[Value]:
    """The values, with each part that is ``old`` replaced from the left. Before each element if ``old`` is empty."""
    if values == old:
        yield from new
        return
    place = 0
    while place < len(values):
        found = all(map(equal, old, values[place:])) and len(values) - place >= len(old)
        if found:
            yield from new
        if not found or not old:
            yield values[place]
        place += len(old) if found and old else 1


# -- SequencesExt: folds -----------------------------------------------------------------------------------------------


@SEQUENCES_EXT.operator("FoldSeq")
def fold(operator: Binary, base: Value, of: Value) -> Value:
    return folded(operator, base, _values(of, "FoldSeq"))


@SEQUENCES_EXT.operator("FoldLeft")
def fold_left(operator: Binary, base: Value, of: Value) -> Value:
    for each in sequence(of, "FoldLeft"):
        base = operator(base, each)
    return base


@SEQUENCES_EXT.operator("FoldRight")
def fold_right(operator: Binary, of: Value, base: Value) -> Value:
    return folded(operator, base, reversed(sequence(of, "FoldRight")))


@SEQUENCES_EXT.operator("FoldLeftDomain")
def fold_left_places(operator: Binary, base: Value, of: Value) -> Value:
    for place in range(1, len(sequence(of, "FoldLeftDomain")) + 1):
        base = operator(base, place)
    return base


@SEQUENCES_EXT.operator("FoldRightDomain")
def fold_right_places(operator: Binary, of: Value, base: Value) -> Value:
    return folded(operator, base, range(len(sequence(of, "FoldRightDomain")), 0, -1))
