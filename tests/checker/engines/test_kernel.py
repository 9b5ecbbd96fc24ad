"""The compiled loops against plain versions: the table of fingerprints, the order of a level, rows, gates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from campaigns import campaign_if
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fencepost.checker.compiler import native
from fencepost.checker.compiler.arrays import Array
from fencepost.checker.compiler.encoding import (
    BASE,
    CAPACITY,
    COUNT,
    COUNTERS,
    DISABLED,
    LEAF,
    MISS,
    NO_PLACE,
    OUTSIDE,
    USED,
    fork_test,
    node_cell,
    node_room,
    pack_meta,
    pack_place,
    place_bits,
)
from fencepost.checker.compiler.memory import reserve
from fencepost.checker.engines import kernel
from fencepost.checker.engines.kernel import Candidates, Levels, Work, work_with
from fencepost.checker.engines.lanes import arena_for
from fencepost.files.loops import njit
from fencepost.language.loading import shipped
from fencepost.semantics import Stepper

FIRST = 1 << 10
MOST = 1 << 19


@njit(cache=False)  # type: ignore[untyped-decorator]
def admitted(levels: Levels, w: Work, candidates: Candidates, n: int) -> int:
    """:func:`kernel.admit`, with room made first, as in a round."""
    kernel.make_room(w, levels.wide, w.counts[USED] + n)
    return kernel.admit(levels, w, candidates, n)  # type: ignore[no-any-return]


def work_of(wide: bool) -> Work:
    """A worker with a small table."""
    counts = np.zeros(COUNTERS, np.int64)
    counts[CAPACITY] = FIRST
    return work_with(
        counts=counts,
        table=np.zeros((4 * MOST + 2 * kernel.SLACK) * (2 if wide else 1), np.uint64),
        held=np.zeros(2 * (kernel.MOVED + kernel.SLACK), np.uint64),
        fill=np.zeros(kernel.MOVED // 2, np.int64),
        full=np.zeros(MOST, np.int64),
    )


def fingerprints(generator: np.random.Generator, count: int, kind: str) -> Array:
    """Fingerprints that are evenly spread, crowded into a few lines of the table, or just before blocks that move."""
    fps = generator.integers(0, 1 << 64, count, np.uint64, endpoint=False)
    if kind == "crowded":
        fps = fps << np.uint64(32) | generator.integers(0, 1 << 27, count, np.uint64)
    if kind == "before blocks":
        sizes = [FIRST]
        while sizes[-1] < MOST:
            sizes.append(sizes[-1] + sizes[-1] // 32 * 40)
        size = generator.choice(sizes[-3:], count)
        entry = generator.integers(1, size // kernel.MOVED + 1) * kernel.MOVED - generator.integers(0, 400, count)
        low = (entry.astype(np.uint64) << np.uint64(32)) // size.astype(np.uint64)
        crowded = generator.random(count) < 0.01
        fps[crowded] = (fps >> np.uint64(32) << np.uint64(32) | low)[crowded]
    fps[generator.random(count) < 0.01] = 0
    return fps


@pytest.mark.parametrize("wide", [False, *campaign_if(bool, [True])])
@pytest.mark.parametrize(
    ("kind", "most"), [("before blocks", MOST // 2), ("crowded", 6_000), *campaign_if(bool, [("even", MOST // 2)])]
)
def test_a_table_knows_what_was_admitted_while_it_grows(kind: str, most: int, wide: bool) -> None:
    generator = np.random.default_rng(7)
    w, known, all_fps, all_highs = work_of(wide), set[Any](), np.zeros(0, np.uint64), np.zeros(0, np.uint64)
    arena = arena_for(MOST, 1)
    levels = Levels(arena, arena, np.zeros(0, np.int64), arena.fp, wide, True, 1, MOST)
    while len(known) < most:
        n = int(generator.integers(1, most // 4))
        fps, highs = fingerprints(generator, n, kind), generator.integers(0, 2, n, np.uint64)
        all_fps, all_highs = np.concatenate([all_fps, fps]), np.concatenate([all_highs, highs])
        again = generator.integers(0, len(all_fps), n // 2)
        fps[: n // 2], highs[: n // 2] = all_fps[again], all_highs[again]
        found = admitted(levels, w, Candidates(fps, highs, np.arange(n)), n)
        places = []
        for i, state in enumerate(zip(fps.tolist(), highs.tolist(), strict=True) if wide else fps.tolist()):
            if state not in known:
                known.add(state)
                places.append(i)
        first = arena.ref[:found]
        assert sorted(first.tolist()) == places, "only the first of each"
        assert np.array_equal(arena.fp[:found], fps[first])
        assert not wide or np.array_equal(arena.fp_high[:found], highs[first])
        assert w.counts[USED] == len(known)
        if not wide:
            held = w.table[: w.counts[CAPACITY] + kernel.SLACK]
            assert np.sort(held[held != 0]).tolist() == sorted(known - {0}), "each once"
    assert w.counts[CAPACITY] > FIRST


def test_a_large_table_grows_by_half() -> None:
    generator = np.random.default_rng(8)
    n = kernel.SMALL // 8 * 7
    fps = np.unique(generator.integers(1, 1 << 64, n, np.uint64))
    generator.shuffle(fps)
    arena = arena_for(n + 1, 1)
    w = work_of(False)._replace(table=reserve(2 * kernel.SMALL, np.uint64), full=np.zeros(n, np.int64))
    w.counts[CAPACITY] = kernel.SMALL
    levels = Levels(arena, arena, np.zeros(0, np.int64), arena.fp, False, True, 1, n + 1)
    for batch, found in ((fps[: n // 2], n // 2), (fps[n // 8 * 3 :], len(fps) - n // 2), (fps[: n // 8], 0)):
        assert admitted(levels, w, Candidates(batch, batch, np.zeros(len(batch), np.int64)), len(batch)) == found
        w.counts[COUNT] += found
    assert w.counts[USED] == len(fps) and w.counts[CAPACITY] == kernel.SMALL // 2 * 3
    assert np.array_equal(np.sort(arena.fp[: len(fps)]), np.sort(fps))


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("count", [0, 1, 2, 300, 5_000, 40_000])
def test_a_level_is_put_in_the_order_of_fingerprints(count: int, wide: bool, workers: int) -> None:
    generator = np.random.default_rng(count)
    region = count + 10
    arena = arena_for(region * workers, 1)
    order, order_fp = np.full(region * workers, -1, np.int64), np.zeros(region * workers, np.uint64)
    places, expected = 0, []
    for t in range(workers):
        base = t * region
        begin, end = (-(-(t << 64) // workers), -(-((t + 1) << 64) // workers) - 1)
        fps = generator.integers(begin, end, count, np.uint64, endpoint=True)
        if wide and count > 1:  # many with the same low half and different high halves
            fps[: count // 2] = generator.choice(fps, count // 2)
        else:
            fps = np.unique(fps)
            generator.shuffle(fps)
        n = len(fps)
        highs = generator.permutation(np.arange(n, dtype=np.uint64))
        arena.fp[base : base + n], arena.fp_high[base : base + n] = fps, highs
        inside = generator.random(n) < 0.8
        arena.meta[base : base + n] = np.where(inside, pack_meta(5, 1), OUTSIDE)
        counts = np.zeros(COUNTERS, np.int64)
        counts[BASE], counts[COUNT] = base, n
        w = work_with(
            counts=counts,
            keys=np.zeros(n + 1, np.uint64),
            places=np.zeros(n + 1, np.int64),
            part_heads=np.zeros(kernel.PART_HEADS, np.int64),
            heads=np.zeros(kernel.BUCKET_HEADS, np.int64),
        )
        levels = Levels(arena, arena, order, order_fp, wide, True, workers, region)
        assert kernel.order_level(levels, w, places) == inside.sum()
        in_order = np.lexsort((highs, fps))
        expected += (base + in_order[inside[in_order]]).tolist()
        places = len(expected)
        assert order[:places].tolist() == expected
        assert np.array_equal(order_fp[:places], arena.fp[expected])


def test_an_outcome_does_to_a_row_what_it_writes() -> None:
    from fencepost.checker.engines.options import EmbeddedOptions
    from fencepost.checker.engines.search import Search
    from fencepost.checker.engines.workspace import Workspace

    stepper = Stepper(shipped("ledger-chaining")(clients=1))
    search = Search(stepper, EmbeddedOptions(workers=1), None, None)
    own = Workspace(search)
    own.place_initial()
    own.complete(lambda: None)
    tables = own.tables
    assert tables.outcomes > 1
    own.fit()
    compiled = tables.compiled()
    row = own.new.cells[0, : tables.layout.words]
    for outcome in range(1, tables.outcomes):
        after = tables.successor(tables.ids(row), outcome)
        assert (row ^ compiled.row_delta[outcome]).tolist() == tables.rows([after])[0].tolist()
    own.close()


TESTS = st.recursive(
    st.sampled_from([MISS, DISABLED, LEAF, LEAF - 1]),
    lambda word: st.tuples(st.integers(0, 5), st.lists(word, min_size=1, max_size=5)),
    max_leaves=12,
)
"""A trie: a word, or a slot (5 means a fork) with the trie of each of its values."""
PLACES = np.array([pack_place(0, 0, 1), pack_place(0, 4, 2), pack_place(0, 8, 4), pack_place(0, 16, 16), 0], np.int32)


@settings(max_examples=300)
@given(TESTS, st.integers(0, (1 << 64) - 1))
@example((3, [MISS, DISABLED]), 65 << 16)
def test_a_gate_only_shuts_where_a_trie_ends_disabled(trie: Any, row: int) -> None:
    pool, top = np.zeros(1 << 12, np.int32), [1]

    def put(trie: Any) -> int:
        if isinstance(trie, int):
            return trie
        slot, values = trie
        node, room = top[0], 1 << len(values).bit_length()
        pool[node], pool[node_room(node)] = fork_test(len(values)) if slot == 5 else slot, room
        top[0] += 2 + room
        for value, word in enumerate(values):
            pool[node_cell(node, value)] = put(word)
        return node

    word = put(trie)
    cells, out = np.array([row], np.uint64), np.zeros(1 << 12, np.int32)
    place, gate = native.gate_of(pool, PLACES, np.int64(word))
    value = row >> (int(place) >> 6 & 63) & ((1 << int(place_bits(int(place)))) - 1) if place != NO_PLACE else 0
    is_open = int(gate) >> (value & 63) & 1
    ends = walked(pool, PLACES, cells, word, out, np.zeros(native.STACK_WORDS, np.int64))
    assert is_open or ends == 0


@njit(cache=False)  # type: ignore[untyped-decorator]
def walked(pool: Array, places: Array, cells: Array, word: int, out: Array, stack: Array) -> int:
    """:func:`native.walk` over the only row."""
    return native.walk(pool, places, cells, np.int64(0), np.int64(word), out, np.int64(0), stack)  # type: ignore[no-any-return]


def test_every_array_of_a_worker_has_its_type_when_it_is_not_used() -> None:
    assert [a.dtype for a in work_with()] == [a.dtype for a in work_of(False)]
