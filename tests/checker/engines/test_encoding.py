"""Packed numbers: Python, NumPy and compiled loops pack and read them alike."""

from __future__ import annotations

import subprocess
import sys
from types import FunctionType

import numpy as np
import pytest

from fencepost.checker.compiler import encoding
from fencepost.files.loops import njit
from fencepost.semantics import slots

TWO = {
    "reference": (39, 24, "parent", "outcome"),
    "link": (39, 24, "parent", "outcome"),
    "span": (39, 24, "first", "count"),
    "meta": (43, 20, "first", "count"),
    "entry": (31, 32, "where", "node"),
}
"""Packed numbers of two parts: the widths and the names of the parts."""


@pytest.mark.parametrize("name", TWO)
def test_both_parts_are_read_as_they_were_packed(name: str) -> None:
    high, low, first, second = TWO[name]
    pack, *read = (getattr(encoding, n) for n in (f"pack_{name}", f"{name}_{first}", f"{name}_{second}"))
    ones = [(1, 1), (0, (1 << low) - 1), ((1 << high) - 1, 0), ((1 << high) - 1, (1 << low) - 1), (5, 7)]
    for one in ones:
        assert tuple(part(pack(*one)) for part in read) == one
        assert 0 <= pack(*one) < 1 << 63
    pairs = np.array(ones, np.int64)
    packed = pack(pairs[:, 0], pairs[:, 1])
    assert packed.dtype == np.int64 and packed.tolist() == [pack(*one) for one in ones]
    assert np.array_equal(np.stack([part(packed) for part in read], axis=1), pairs)


@pytest.mark.parametrize("name", ["span", "meta"])
def test_an_end_is_behind_the_last(name: str) -> None:
    pack, end = getattr(encoding, f"pack_{name}"), getattr(encoding, f"{name}_end")
    assert end(pack(1000, 24)) == 1024 and end(pack(7, 0)) == 7


def test_a_place_has_three_parts() -> None:
    for word, shift, bits in [(0, 0, 1), (3, 32, 32), (70_000, 63, 1)]:
        place = encoding.pack_place(word, shift, bits)
        assert place != encoding.NO_PLACE and place < 1 << 31
        read = (encoding.place_word(place), encoding.place_shift(place), encoding.place_bits(place))
        assert read == (word, shift, bits)
    assert encoding.place_bits(encoding.NO_PLACE) == 0


def test_leaves_are_no_other_word_and_forks_no_slot() -> None:
    for leaf in (0, 1, 5, encoding.MAX_OUTCOMES):
        word = encoding.leaf_word(leaf)
        assert encoding.word_leaf(word) == leaf
        assert encoding.PENDING < word < encoding.DISABLED < encoding.MISS
    for options in (1, 2, 1 << 15):
        test = encoding.fork_test(options)
        assert encoding.is_fork(test) and encoding.fork_options(test) == options
    widest = slots.slot_after(encoding.MAX_SLOTS)
    assert widest < slots.CHANGE and not encoding.is_fork(slots.CHANGE) and not encoding.is_fork(widest)


def test_the_two_states_of_a_step_are_told_apart() -> None:
    for slot in (0, 1, 17):
        before, after = slots.slot_before(slot), slots.slot_after(slot)
        assert slots.slot_of_step(before) == slots.slot_of_step(after) == slot
        assert slots.reads_after(after) and not slots.reads_after(before)


def test_only_complete_states_inside_are_expanded() -> None:
    metas = np.array([encoding.pack_meta(0, 0), encoding.OUTSIDE, encoding.PARKED, encoding.pack_meta(9, 3)])
    assert encoding.is_inside(metas).tolist() == [True, False, False, True]


@pytest.mark.parametrize("function", encoding.ACCESSORS, ids=lambda function: function.__name__)
def test_compiled_loops_do_the_same_arithmetic(function: FunctionType) -> None:
    count = function.__code__.co_argcount
    compiled = njit(cache=False)(
        [lambda a: function(a), lambda a, b: function(a, b), lambda a, b, c: function(a, b, c)][count - 1]
    )
    for kind in (np.int32, np.int64):
        for numbers in ((3, 1, 2), (1 << 24, 5, 0), (-1, 0, 0), (-7, 3, 1), ((1 << 31) - 1, 9, 4)):
            given = numbers[:count]
            assert compiled(*[kind(n) for n in given]) == function(*given)


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("fencepost.checker.compiler.encoding", {"numpy", "numba"}),
        ("fencepost.checker.compiler.layout", {"numba"}),
        ("fencepost.files.storage", {"numba"}),
    ],
)
def test_a_module_needs_no_more_than_it_uses(module: str, absent: set[str]) -> None:
    program = f"import sys, {module}; assert not {absent} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
