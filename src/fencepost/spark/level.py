"""What the driver tells the executors about a level, and where things are in files.

A **piece** is a file with states of one level, by fingerprint: their fingerprints, where their enabled leaves start,
the leaves, and the rows. A **run** is a file with visited states of one **target**, a range of fingerprints, by
fingerprint, each with the outcome by which it was discovered: less what the outcome did, the fingerprint is the
parent's, so a run is also how the way back is found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isqrt
from typing import Any, Protocol

import msgspec
import numpy as np

from fencepost.compiler.arrays import Array, Compiled
from fencepost.compiler.encoding import meta_end, meta_first, pack_meta
from fencepost.compiler.layout import unpacked
from fencepost.compiler.native import repack
from fencepost.compiler.tables import Tables
from fencepost.digest import digest
from fencepost.engines.kernel import Arena
from fencepost.storage import Storage, open_storage

NO_IMAGES: Array = np.zeros((0, 0), np.uint64)
"""What rows have where there is no symmetry."""


class Shape(msgspec.Struct, frozen=True):
    """How rows were laid out at a time: how many words they have, and the place of each slot."""

    words: int
    held: bytes

    @property
    def places(self) -> Array:
        """The place of each slot."""
        return np.frombuffer(self.held, np.int32).copy()


class Tabled(Protocol):
    """What tasks find the compiled protocol by: ``tables`` is the broadcast variable with its arrays, ``tables_id``
    names them.
    """

    @property
    def tables(self) -> Any: ...

    @property
    def tables_id(self) -> str: ...


def shared(tables: Tables, compiled: Compiled) -> dict[str, Array]:
    """The arrays that executors get, as far as they are in use."""
    used = tables.used()
    arrays = {name: np.ascontiguousarray(a[: used[name]]) for name, a in compiled._asdict().items()}
    return arrays | {name: getattr(tables, name)[: used[name]] for name in ("trie_root", "trie_known", "trie_change")}


class Piece(msgspec.Struct, frozen=True):
    """A file of states. ``shape``: the number of the layout of its rows."""

    file: str
    rows: int
    leaves: int
    shape: int
    digest: str


class Run(msgspec.Struct, frozen=True):
    """Visited states of one target: those from number ``begin`` on in a file of ``size``."""

    file: str
    size: int
    begin: int
    states: int
    digest: str


class Output(msgspec.Struct, frozen=True):
    """The table that the states are written to, as every task gets to know it: its directory, the level to be written,
    whether steps are too, and the columns, a broadcast variable.
    """

    place: str
    depth: int
    edges: bool
    columns: Any


class Plan(msgspec.Struct, frozen=True):
    """A level, as every task of it gets to know it.

    The states of ``pieces``, one after the other, are numbered; home h has those from ``h * rows`` on. ``tables`` is
    the broadcast variable with the arrays of the compiled protocol, ``tables_id`` names them. ``shapes``: every layout
    that rows have had, the last one being that of the level. ``actions``: whether the successors of what is found will
    be asked for. ``output``: where the states are written down, if they are.
    """

    place: str
    level: int
    wide: bool
    shapes: tuple[Shape, ...]
    pieces: tuple[Piece, ...]
    rows: int
    homes: int
    runs: tuple[tuple[Run, ...], ...]
    tables: Any
    tables_id: str
    roots: int
    leaves: int
    outcomes: int
    most_leaves: int
    stepwise: bool
    actions: bool
    version: str
    output: Output | None = None

    @property
    def words(self) -> int:
        """Words of a row."""
        return self.shapes[-1].words

    @property
    def total(self) -> int:
        """States of the level."""
        return sum(piece.rows for piece in self.pieces)

    def storage(self) -> Storage:
        """Where the files are."""
        return open_storage(self.place)

    def segments(self, home: int) -> Iterator[tuple[Piece, int, int]]:
        """The rows of a home: pieces, with which of their rows."""
        first, last = home * self.rows, min((home + 1) * self.rows, self.total)
        start = 0
        for piece in self.pieces:
            begin, end = max(first - start, 0), min(last - start, piece.rows)
            if begin < end:
                yield piece, begin, end
            start += piece.rows


Span = tuple[int, int]
"""A range of low halves of fingerprints: the least, and the first beyond it."""


def bounds(targets: int) -> list[int]:
    """Where the range of fingerprints of each target begins, and where the last one ends."""
    return [_bound(target, targets) for target in range(targets + 1)]


def span_of(target: int, targets: int) -> Span:
    """The fingerprints of one of so many targets."""
    return _bound(target, targets), _bound(target + 1, targets)


def _bound(target: int, targets: int) -> int:
    return -(-(target << 32) // targets) << 32


# -- pieces -----------------------------------------------------------------------------------------------------------


def write_piece(
    storage: Storage,
    file: str,
    arena: Arena,
    rows: int,
    leaves: int,
    shape: int,
    wide: bool,
    outcomes: Array | None = None,
) -> Piece:
    """Write the first rows of an arena, which are in the order of fingerprints, and their leaves, which are in the
    order of rows.

    ``outcomes``: those that led to the states, for :func:`read_states`.
    """
    highs = [arena.fp_high[:rows]] if wide else []
    last = [] if outcomes is None else [outcomes.astype(np.uint32)]
    columns = (arena.fp[:rows], *highs, arena.meta[:rows], arena.leaves[:leaves], arena.cells[:rows].reshape(-1), *last)
    storage.write(file, *columns)
    return Piece(file, rows, leaves, shape, digest(*columns))


def read_rows(plan: Plan, home: int, with_cells: bool) -> tuple[Arena, list[tuple[int, int]]]:
    """The rows of a home, and which of them are in the order of fingerprints: [begin, end) one after the other."""
    storage = plan.storage()
    fps, highs, metas, leaves, cells = [], [], [], [], []
    spans: list[tuple[int, int]] = []
    at = top = 0
    for piece, begin, end in plan.segments(home):
        n = end - begin
        offset = 8 * begin
        fps.append(storage.read(piece.file, np.uint64, offset, n))
        offset += 8 * piece.rows
        if plan.wide:
            highs.append(storage.read(piece.file, np.uint64, offset, n))
            offset += 8 * piece.rows
        meta = storage.read(piece.file, np.int64, offset, n)
        offset += 8 * (piece.rows - begin)
        first, last = int(meta_first(meta[0])), int(meta_end(meta[-1]))
        leaves.append(storage.read(piece.file, np.int32, offset + 4 * first, last - first))
        offset += 4 * piece.leaves
        meta += pack_meta(top - first, 0)
        metas.append(meta)
        if with_cells:
            words = plan.shapes[piece.shape].words
            held = storage.read(piece.file, np.uint64, offset + 8 * begin * words, n * words)
            cells.append(brought_up(held.reshape(n, words), plan.shapes[piece.shape], plan.shapes[-1]))
        spans.append((at, at + n))
        at, top = at + n, top + last - first
    none = np.zeros((1, plan.words), np.uint64)
    return Arena(
        cells=joined(cells) if cells else none,
        fp=joined(fps),
        fp_high=joined(highs) if highs else np.zeros(1, np.uint64),
        ref=np.zeros(1, np.int64),
        meta=joined(metas),
        leaves=joined(leaves),
        image=NO_IMAGES,
        image_high=NO_IMAGES,
    ), spans


def read_states(plan: Plan, home: int, block: int) -> Iterator[tuple[Array, Array, Array]]:
    """The states of a home, in blocks: their fingerprints (low halves), the outcomes that led to them, and the numbers
    of their values.
    """
    storage = plan.storage()
    for piece, first, end in plan.segments(home):
        shape = plan.shapes[piece.shape]
        cells_at = (16 if plan.wide else 8) * piece.rows + 8 * piece.rows + 4 * piece.leaves
        outcomes_at = cells_at + 8 * shape.words * piece.rows
        for begin in range(first, end, block):
            n = min(block, end - begin)
            fps = storage.read(piece.file, np.uint64, 8 * begin, n)
            cells = storage.read(piece.file, np.uint64, cells_at + 8 * shape.words * begin, n * shape.words)
            outcomes = storage.read(piece.file, np.uint32, outcomes_at + 4 * begin, n)
            yield fps, outcomes, unpacked(cells.reshape(n, shape.words), shape.places)


def joined(parts: list[Array]) -> Array:
    """Arrays as one."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def brought_up(rows: Array, before: Shape, after: Shape) -> Array:
    """Rows of one layout as rows of a later one."""
    if before == after:
        return rows
    target = np.zeros((len(rows), after.words), np.uint64)
    repack(rows, before.places, after.places, target)
    return target


# -- parked rows ------------------------------------------------------------------------------------------------------


def write_parked(storage: Storage, file: str, arena: Arena, which: Array, wide: bool) -> None:
    """Write the rows that fell off a trie: fingerprints, references and rows."""
    highs = [arena.fp_high[which]] if wide else []
    storage.write(file, arena.fp[which], *highs, arena.ref[which], arena.cells[which].reshape(-1))


def read_parked(storage: Storage, file: str, rows: int, plan: Plan) -> tuple[Array, Array, Array, Array]:
    """What :func:`write_parked` wrote: low and high halves of fingerprints, references, rows."""
    low = storage.read(file, np.uint64, 0, rows)
    high = storage.read(file, np.uint64, 8 * rows, rows) if plan.wide else np.zeros(rows, np.uint64)
    offset = 8 * rows * (2 if plan.wide else 1)
    ref = storage.read(file, np.int64, offset, rows)
    cells = storage.read(file, np.uint64, offset + 8 * rows, rows * plan.words)
    return low, high, ref, cells.reshape(rows, plan.words)


# -- runs -------------------------------------------------------------------------------------------------------------


def write_run(storage: Storage, file: str, low: Array, high: Array, outcome: Array, wide: bool) -> Run:
    """Write a run."""
    columns = (low, *([high] if wide else []), outcome)
    storage.write(file, *columns)
    return Run(file, len(low), 0, len(low), digest(*columns))


def read_run(storage: Storage, run: Run, wide: bool) -> tuple[Array, Array, Array]:
    """The low and high halves of the fingerprints of a run, and the outcomes."""
    low = storage.read(run.file, np.uint64, 8 * run.begin, run.states)
    high = storage.read(run.file, np.uint64, 8 * (run.size + run.begin), run.states) if wide else np.zeros(1, np.uint64)
    return low, high, storage.read(run.file, np.uint32, run.size * (16 if wide else 8) + 4 * run.begin, run.states)


def run_blocks(storage: Storage, run: Run, wide: bool) -> Iterator[tuple[Array, Array]]:
    """The low and high halves of the fingerprints of a run, in blocks."""
    lows = storage.blocks(run.file, np.uint64, 8 * run.begin, run.states)
    if not wide:
        for low in lows:
            yield low, low
        return
    yield from zip(lows, storage.blocks(run.file, np.uint64, 8 * (run.size + run.begin), run.states), strict=True)


def find(storage: Storage, run: Run, span: Span, low: int, high: int, wide: bool) -> int | None:
    """The outcome by which a state was discovered, if it is in a run of a target with the fingerprints of ``span``."""
    at, lows = _around(storage, run, span, low)
    same = int(np.searchsorted(lows, np.uint64(low), side="right"))
    if wide and same:
        highs = storage.read(run.file, np.uint64, 8 * (run.size + at), same)
        begin = int(np.searchsorted(highs, np.uint64(high)))
        at, same = at + begin, int(begin < same and int(highs[begin]) == high)
    if not same:
        return None
    return int(storage.read(run.file, np.uint32, run.size * (16 if wide else 8) + 4 * at, 1)[0])


def divided(storage: Storage, runs: Sequence[Sequence[Run]]) -> list[list[Run]]:
    """The runs of every target as those of twice as many targets. No file is written."""
    targets = len(runs)
    halved = (
        _halves(storage, some, span_of(t, targets), _bound(2 * t + 1, 2 * targets)) for t, some in enumerate(runs)
    )
    return [half for both in halved for half in both]


def _halves(storage: Storage, runs: Sequence[Run], span: Span, boundary: int) -> tuple[list[Run], list[Run]]:
    lower, upper = [], []
    for run in runs:
        at, _ = _around(storage, run, span, boundary)
        end = run.begin + run.states
        lower += [msgspec.structs.replace(run, states=at - run.begin)] if at > run.begin else []
        upper += [msgspec.structs.replace(run, begin=at, states=end - at)] if at < end else []
    return lower, upper


NEAR = 1 << 10
"""States of a run that are read at once around where one is looked for, at least."""


def _around(storage: Storage, run: Run, span: Span, low: int) -> tuple[int, Array]:
    """The number in its file of the first state of a run whose low half is not less than ``low``, and the low halves
    from there on, as many as were read: all that are equal.

    Fingerprints are random numbers, and evenly spread over the span: of n sorted ones, the place of any is known but
    for a few times the square root of n. So one read finds it nearly always, which matters where each is a request to
    an object store.
    """
    least, end = span
    expected = run.states * (low - least) // (end - least)
    room = max(NEAR, 3 * isqrt(run.states))
    first, last = expected - room, expected + room
    while True:
        first, last = max(0, min(first, run.states)), max(0, min(last, run.states))
        lows = storage.read(run.file, np.uint64, 8 * (run.begin + first), last - first)
        room *= 4
        if first and (not lows.size or lows[0] >= low):
            first -= room
        elif last < run.states and (not lows.size or lows[-1] <= low):
            last += room
        else:
            at = int(np.searchsorted(lows, np.uint64(low)))
            return run.begin + first + at, lows[at:]
