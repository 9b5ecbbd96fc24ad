"""The plan of a level, which the driver sends to tasks, and the files of states.

The states of a level, the **frontier**, are divided into **partitions**; one task expands each. A **frontier file**
holds states of one level, sorted by fingerprint: their fingerprints, where their enabled leaves start, the leaves, and
the rows.

Each range of fingerprints has an **owner**: the task to which all candidates of that range are shuffled. The visited
states of an owner are in sorted **runs**: files of fingerprints, each with the outcome that discovered the state.
XORing the fingerprint with the outcome's delta yields the parent's, so runs also lead back to the start.

With symmetry, what stands here for a fingerprint is the key of an orbit. No delta leads from one key to another. So a
run has the keys of parents too, and a frontier file the fingerprints of the images of its states.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from math import isqrt
from typing import Any, NamedTuple

import msgspec
import numpy as np

from fencepost.checker.compiler.arrays import Array, Compiled
from fencepost.checker.compiler.encoding import meta_end, meta_first, pack_meta
from fencepost.checker.compiler.layout import unpacked
from fencepost.checker.compiler.native import repack
from fencepost.checker.compiler.tables import Tables
from fencepost.checker.engines.kernel import Arena
from fencepost.files.digest import digest
from fencepost.files.storage import Storage, open_storage
from fencepost.spark.loops import Visited

NO_IMAGES: Array = np.zeros((0, 0), np.uint64)
"""The images of rows without symmetry."""


class RowLayout(msgspec.Struct, frozen=True):
    """A layout of rows: the number of words of a row, and the place of each slot in it."""

    words: int
    slot_places: bytes = msgspec.field(name="held")

    @property
    def places(self) -> Array:
        """The place of each slot (int32)."""
        return np.frombuffer(self.slot_places, np.int32).copy()


class LocalBroadcast:
    """The broadcast variable of tasks that run in the driver's process."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Shared(NamedTuple):
    """A broadcast ``variable``, and an ``id`` for the value that it has."""

    variable: Any
    id: str


def arrays_of(tables: Tables, compiled: Compiled) -> dict[str, Array]:
    """The used parts of the arrays of the compiled protocol, for executors."""
    used = tables.used()
    arrays = {name: np.ascontiguousarray(a[: used[name]]) for name, a in compiled._asdict().items()}
    return arrays | {name: getattr(tables, name)[: used[name]] for name in ("trie_known", "trie_change")}


class FrontierFile(msgspec.Struct, frozen=True):
    """A file of states of one level. ``layout``: the number of the layout of its rows."""

    file: str
    rows: int
    leaves: int
    layout: int = msgspec.field(name="shape")
    digest: str


class Run(msgspec.Struct, frozen=True):
    """Visited states of one owner: ``states`` of them, from number ``begin`` in a file of ``size``."""

    file: str
    size: int
    begin: int
    states: int
    digest: str


class TableOutput(msgspec.Struct, frozen=True):
    """The table to which states are written: its directory, the level to be written, whether steps are written too, and
    the columns (a broadcast variable).
    """

    place: str
    depth: int
    edges: bool
    columns: Any


class Plan(msgspec.Struct, frozen=True):
    """A level, in the form that is sent to every task.

    The states of the ``frontier``'s files, one file after the other, are numbered. Partition p has those from
    ``p * partition_rows``. ``tables``: the arrays of the compiled protocol. ``layouts``: every layout of rows so far;
    the last one is the level's. ``runs``: those of each owner. ``actions``: whether the new states will be expanded.
    ``images``: the fingerprints of images that a state has, with symmetry. ``output``: the table to which states are
    written, or None.
    """

    place: str
    level: int
    wide: bool
    layouts: tuple[RowLayout, ...]
    frontier: tuple[FrontierFile, ...]
    partition_rows: int
    partitions: int
    runs: tuple[tuple[Run, ...], ...]
    tables: Shared
    roots: int
    leaves: int
    outcomes: int
    most_leaves: int
    stepwise: bool
    actions: bool
    images: int = 0
    output: TableOutput | None = None

    @property
    def columns(self) -> RunColumns:
        """The columns of runs."""
        return run_columns(self.wide, self.images > 0)

    @property
    def words(self) -> int:
        """The number of words of a row."""
        return self.layouts[-1].words

    @property
    def states(self) -> int:
        """The number of states of the level."""
        return sum(file.rows for file in self.frontier)

    @property
    def small(self) -> bool:
        """Whether the tasks run in the driver's process."""
        return isinstance(self.tables.variable, LocalBroadcast)

    @property
    def owners(self) -> int:
        """The number of owners."""
        return len(self.runs)

    def storage(self) -> Storage:
        """The storage of the files."""
        return open_storage(self.place)

    def segments(self, partition: int) -> Iterator[tuple[FrontierFile, int, int]]:
        """The rows of a partition: files, each with a range [begin, end) of rows."""
        first, last = partition * self.partition_rows, min((partition + 1) * self.partition_rows, self.states)
        start = 0
        for file in self.frontier:
            begin, end = max(first - start, 0), min(last - start, file.rows)
            if begin < end:
                yield file, begin, end
            start += file.rows


def unique_name(level: int | str, kind: str, number: int) -> str:
    """The name of a new file, different for every attempt of a task."""
    return f"level-{level}-{kind}-{number}-{uuid.uuid4().hex[:12]}.bin"


FingerprintRange = tuple[int, int]
"""A range of low halves of fingerprints: the first, and one past the last."""


def bounds(owners: int) -> list[int]:
    """The first fingerprint of each owner's range, and the end of the last range."""
    return [_bound(owner, owners) for owner in range(owners + 1)]


def range_of(owner: int, owners: int) -> FingerprintRange:
    """The range of fingerprints of one owner."""
    return _bound(owner, owners), _bound(owner + 1, owners)


def _bound(owner: int, owners: int) -> int:
    return -(-(owner << 32) // owners) << 32


def read_columns(storage: Storage, file: str, layout: Iterable[tuple[Any, int]]) -> list[Array]:
    """The columns of a file, which follow each other. ``layout``: the dtype and length of each."""
    read, offset = [], 0
    for dtype, count in layout:
        read.append(storage.read(file, dtype, offset, count))
        offset += count * np.dtype(dtype).itemsize
    return read


# -- frontier files ---------------------------------------------------------------------------------------------------


def write_frontier_file(
    storage: Storage, name: str, arena: Arena, layout: int, wide: bool, outcomes: Array | None = None
) -> FrontierFile:
    """Write all rows of an arena, sorted by fingerprint, and their leaves, in the order of rows.

    ``outcomes``: those that led to the states, for :func:`read_states`.
    """
    highs = [arena.fp_high] if wide else []
    last = [] if outcomes is None else [outcomes.astype(np.uint32)]
    images = [half.reshape(-1) for half in _image_halves(arena, wide)]
    columns = (arena.fp, *highs, arena.meta, arena.leaves, arena.cells.reshape(-1), *images, *last)
    storage.write(name, *columns)
    return FrontierFile(name, len(arena.fp), len(arena.leaves), layout, digest(*columns))


def read_rows(plan: Plan, partition: int, with_cells: bool) -> tuple[Arena, list[tuple[int, int]]]:
    """The rows of a partition, and the adjacent ranges [begin, end) of them that are each sorted by fingerprint."""
    storage = plan.storage()
    fps, highs, metas, leaves, cells = [], [], [], [], []
    images: tuple[list[Array], list[Array]] = ([], [])
    spans: list[tuple[int, int]] = []
    at = top = 0
    for file, begin, end in plan.segments(partition):
        n = end - begin
        offset = 8 * begin
        fps.append(storage.read(file.file, np.uint64, offset, n))
        offset += 8 * file.rows
        if plan.wide:
            highs.append(storage.read(file.file, np.uint64, offset, n))
            offset += 8 * file.rows
        meta = storage.read(file.file, np.int64, offset, n)
        offset += 8 * (file.rows - begin)
        first, last = int(meta_first(meta[0])), int(meta_end(meta[-1]))
        leaves.append(storage.read(file.file, np.int32, offset + 4 * first, last - first))
        offset += 4 * file.leaves
        meta += pack_meta(top - first, 0)
        metas.append(meta)
        layout = plan.layouts[file.layout]
        if with_cells:
            rows = storage.read(file.file, np.uint64, offset + 8 * begin * layout.words, n * layout.words)
            cells.append(converted(rows.reshape(n, layout.words), layout, plan.layouts[-1]))
        offset += 8 * file.rows * layout.words
        for half in images[: (2 if plan.wide else 1) if plan.images else 0]:
            half.append(storage.read(file.file, np.uint64, offset + 8 * begin * plan.images, n * plan.images))
            offset += 8 * file.rows * plan.images
        spans.append((at, at + n))
        at, top = at + n, top + last - first
    none = np.zeros((1, plan.words), np.uint64)
    return Arena(
        cells=concatenated(cells) if cells else none,
        fp=concatenated(fps),
        fp_high=concatenated(highs) if highs else np.zeros(1, np.uint64),
        ref=np.zeros(1, np.int64),
        meta=concatenated(metas),
        leaves=concatenated(leaves),
        image=_reshaped(images[0], plan.images),
        image_high=_reshaped(images[1], plan.images),
    ), spans


def _image_halves(arena: Arena, wide: bool) -> list[Array]:
    """The halves of the fingerprints of images in an arena; none without symmetry."""
    return [] if not arena.image.size else [arena.image, arena.image_high] if wide else [arena.image]


def _reshaped(images: list[Array], count: int) -> Array:
    """Columns of images as rows of ``count`` numbers."""
    return concatenated(images).reshape(-1, count) if images else NO_IMAGES


def read_states(plan: Plan, partition: int, block: int) -> Iterator[tuple[Array, Array, Array]]:
    """The states of a partition, in blocks: their fingerprints (low halves), the outcomes that led to them, and their
    value numbers.
    """
    storage = plan.storage()
    for file, first, end in plan.segments(partition):
        layout = plan.layouts[file.layout]
        cells_at = (16 if plan.wide else 8) * file.rows + 8 * file.rows + 4 * file.leaves
        outcomes_at = cells_at + 8 * layout.words * file.rows
        for begin in range(first, end, block):
            n = min(block, end - begin)
            fps = storage.read(file.file, np.uint64, 8 * begin, n)
            cells = storage.read(file.file, np.uint64, cells_at + 8 * layout.words * begin, n * layout.words)
            outcomes = storage.read(file.file, np.uint32, outcomes_at + 4 * begin, n)
            yield fps, outcomes, unpacked(cells.reshape(n, layout.words), layout.places)


def concatenated(arrays: list[Array]) -> Array:
    """The arrays joined into one. A single array is not copied."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def converted(rows: Array, before: RowLayout, after: RowLayout) -> Array:
    """Convert rows to a later layout."""
    if before == after:
        return rows
    target = np.zeros((len(rows), after.words), np.uint64)
    repack(rows, before.places, after.places, target)
    return target


# -- parked rows ------------------------------------------------------------------------------------------------------


def write_parked(storage: Storage, file: str, arena: Arena, which: Array, wide: bool) -> None:
    """Write the rows that fell off a trie: references, rows, fingerprints, images."""
    columns = [arena.cells, arena.fp, *([arena.fp_high] if wide else []), *_image_halves(arena, wide)]
    storage.write(file, arena.ref[which], *(column[which].reshape(-1) for column in columns))


def read_parked(storage: Storage, file: str, rows: int, plan: Plan) -> tuple[Array, Array, list[Array], list[Array]]:
    """The content of a file of :func:`write_parked`: references, rows, the halves of fingerprints, and those of the
    fingerprints of images.
    """
    halves = 2 if plan.wide else 1
    layout = [(np.int64, rows), (np.uint64, rows * plan.words), *[(np.uint64, rows)] * halves]
    layout += [(np.uint64, rows * plan.images)] * (halves if plan.images else 0)
    ref, cells, *columns = read_columns(storage, file, layout)
    images = [column.reshape(rows, -1) for column in columns[halves:]]
    return ref, cells.reshape(rows, plan.words), columns[:halves], images


# -- runs -------------------------------------------------------------------------------------------------------------


RunColumns = dict[str, Any]
"""The columns of a run, which follow each other: the fields of :class:`Visited`, each with its type."""


def run_columns(wide: bool, symmetric: bool) -> RunColumns:
    """The columns of the runs of a search: ``high`` halves if fingerprints are ``wide``, parents if it is
    ``symmetric``.
    """
    used = {"fp": True, "high": wide, "outcome": True, "parent": symmetric, "parent_high": wide and symmetric}
    return {name: np.uint32 if name == "outcome" else np.uint64 for name in used if used[name]}


def blank_visited(states: int, columns: RunColumns) -> Visited:
    """Memory for the states of a run. Columns that it does not have are of one element."""
    return Visited(
        *(np.zeros(states if name in columns else 1, columns.get(name, np.uint64)) for name in Visited._fields)
    )


def write_run(storage: Storage, file: str, visited: Visited, columns: RunColumns) -> Run:
    """Write the states of a new run, sorted by fingerprint."""
    written = [getattr(visited, name) for name in columns]
    storage.write(file, *written)
    return Run(file, len(visited.fp), 0, len(visited.fp), digest(*written))


def read_run(storage: Storage, run: Run, columns: RunColumns) -> Visited:
    """The states of a run."""
    return blank_visited(0, columns)._replace(**_read_run(storage, run, columns, run.begin, run.states))


def _read_run(storage: Storage, run: Run, columns: RunColumns, begin: int, states: int) -> dict[str, Array]:
    """All columns of some states of a run, from number ``begin`` in its file."""
    read, offset = {}, 0
    for name, kind in columns.items():
        width = np.dtype(kind).itemsize
        read[name] = storage.read(run.file, kind, offset + width * begin, states)
        offset += width * run.size
    return read


def run_blocks(storage: Storage, run: Run, wide: bool) -> Iterator[tuple[Array, Array]]:
    """The low and high halves of the fingerprints of a run, in blocks."""
    lows = storage.blocks(run.file, np.uint64, 8 * run.begin, run.states)
    if not wide:
        for low in lows:
            yield low, low
        return
    yield from zip(lows, storage.blocks(run.file, np.uint64, 8 * (run.size + run.begin), run.states), strict=True)


def find(
    storage: Storage, run: Run, owned: FingerprintRange, low: int, high: int, columns: RunColumns
) -> dict[str, int] | None:
    """A state in the run, column by column; None if it is not there. ``owned``: the fingerprint range of the run's
    owner.
    """
    at, lows = _read_around(storage, run, owned, low)
    same = int(np.searchsorted(lows, np.uint64(low), side="right"))
    if "high" in columns and same:
        highs = storage.read(run.file, np.uint64, 8 * (run.size + at), same)
        begin = int(np.searchsorted(highs, np.uint64(high)))
        at, same = at + begin, int(begin < same and int(highs[begin]) == high)
    if not same:
        return None
    return {name: int(column[0]) for name, column in _read_run(storage, run, columns, at, 1).items()}


def split(storage: Storage, runs: Sequence[Sequence[Run]]) -> list[list[Run]]:
    """Split the runs of every owner between two owners. Writes no file."""
    owners = len(runs)
    halves: list[list[Run]] = []
    for owner, some in enumerate(runs):
        halves += _halves(storage, some, range_of(owner, owners), _bound(2 * owner + 1, 2 * owners))
    return halves


def _halves(
    storage: Storage, runs: Sequence[Run], owned: FingerprintRange, boundary: int
) -> tuple[list[Run], list[Run]]:
    lower, upper = [], []
    for run in runs:
        at, _ = _read_around(storage, run, owned, boundary)
        end = run.begin + run.states
        lower += [msgspec.structs.replace(run, states=at - run.begin)] if at > run.begin else []
        upper += [msgspec.structs.replace(run, begin=at, states=end - at)] if at < end else []
    return lower, upper


NEAR = 1 << 10
"""The minimum number of states of a run to read at once around the expected index of a state."""


def _read_around(storage: Storage, run: Run, owned: FingerprintRange, low: int) -> tuple[int, Array]:
    """The index in the file of the first state of a run whose low half is not less than ``low``, and the low halves
    read from there. These include all equal ones.

    Fingerprints are random, and uniform over the owner's range. In a sorted run of n, the index of a fingerprint is
    known to within a few times the square root of n. So one read nearly always suffices, which matters where each read
    is a request to an object store.
    """
    least, end = owned
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
