"""The graph of a search on Spark in files that can be trimmed, and the tasks that write these files.

States are divided by their fingerprints into **partitions**, and numbered in the order of fingerprints. A partition has
consecutive numbers, starting at a multiple of 64. Each partition has a file of its states, one of the steps out of them
(**out**) and one of the steps into them (**into**), with the numbers of the states at the other end. A step is a step
**back** if its target's level is not after its own. Every cycle has one, since a step leads at most one level further.

A set of states is a file of bits for each partition. To trim, a task reads the bits of all partitions and writes those
of its own, so no state is shuffled. This takes an eighth of a byte of memory for each state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from fencepost.checker.compiler.arrays import Array
from fencepost.checker.liveness.graph import Measures
from fencepost.files.storage import Storage, open_storage
from fencepost.spark.level import bounds, read_columns, unique_name
from fencepost.spark.recording import RecordFile, read_record
from fencepost.spark.stages import FirstStage, JobStages, Received, ShuffledStage, row

MOST_STATES = 1 << 32
"""The most states of a graph: a number has 32 bits."""
BLOCK_ROWS = 1 << 16
"""Rows of numbers in one shuffled block."""
NOWHERE = (1 << 32) - 1
"""Stands for no level."""

Bits = tuple[str, ...]
"""A set of states: a file for each partition."""


def new_name(kind: str, partition: int) -> str:
    """The name of a new file of a partition."""
    return unique_name("graph", kind, partition)


class StepFile(msgspec.Struct, frozen=True):
    """A file of the steps out of, or into, ``rows`` states of a partition."""

    file: str
    rows: int
    steps: int


class Partition(msgspec.Struct, frozen=True):
    """The states of a partition. Their numbers start at ``first``."""

    file: str
    size: int
    first: int

    @property
    def words(self) -> int:
        """The number of 64-bit words of a set of its states."""
        return -(-self.size // 64)


class GraphPlan(msgspec.Struct, frozen=True):
    """The graph, in the form that is sent to every task. ``records``: the record files, each with its level, from 0.
    ``out`` and ``into`` are empty until the steps are written.
    """

    place: str
    terms: Measures
    records: tuple[tuple[int, RecordFile], ...]
    partitions: tuple[Partition, ...]
    out: tuple[StepFile, ...] = ()
    into: tuple[StepFile, ...] = ()

    @property
    def storage(self) -> Storage:
        """The storage of the files."""
        return open_storage(self.place)

    def partition_of(self, fingerprints: Array) -> Array:
        """The partitions of states with these fingerprints."""
        edges = np.array(bounds(len(self.partitions))[1:-1], np.uint64)
        return np.searchsorted(edges, fingerprints, side="right")


class States(NamedTuple):
    """States of a partition, in the form that their file has."""

    fingerprints: Array
    levels: Array
    enabled: Array
    truths: Array


class Adjacency(NamedTuple):
    """The steps out of, or into, states of a partition. Those of state ``rows[k]`` begin at ``starts[k]``. ``others``:
    the state at the other end. ``back``: whether it is a step back. Only steps out of states have ``kinds``.
    """

    rows: Array
    starts: Array
    others: Array
    back: Array
    kinds: Array


def read_states(
    storage: Storage, partition: Partition, terms: Measures, begin: int = 0, count: int | None = None
) -> States:
    """Read all states of a partition, or ``count`` of them from index ``begin``."""
    n = partition.size - begin if count is None else count
    read, offset = [], 0
    for dtype, width in ((np.uint64, 1), (np.uint32, 1), (np.uint64, terms.words), (np.uint64, terms.truth_words)):
        size = np.dtype(dtype).itemsize * width
        read.append(storage.read(partition.file, dtype, offset + begin * size, n * width))
        offset += partition.size * size
    return States(read[0], read[1], read[2].reshape(n, terms.words), read[3].reshape(n, terms.truth_words))


def write_steps(storage: Storage, name: str, steps: Adjacency) -> StepFile:
    """Write a file of steps."""
    storage.write(name, *steps)
    return StepFile(name, len(steps.rows), len(steps.others))


def read_steps(storage: Storage, file: StepFile, with_kinds: bool) -> Adjacency:
    """Read a file of steps."""
    k, m = file.rows, file.steps
    layout = (np.uint32, k), (np.int64, k + 1), (np.uint32, m), (np.uint8, m), (np.uint16, m if with_kinds else 0)
    return Adjacency(*read_columns(storage, file.file, layout))


def sources_of(storage: Storage, partition: Partition, into: StepFile, number: int) -> Array:
    """The states with a step to state ``number``. ``into``: the file with all states of its partition."""
    at = number - partition.first
    begin, end = storage.read(into.file, np.int64, 4 * into.rows + 8 * at, 2).tolist()
    return storage.read(into.file, np.uint32, 4 * into.rows + 8 * (into.rows + 1) + 4 * begin, end - begin)


# -- sets of states ---------------------------------------------------------------------------------------------------


def empty_set(partitions: Sequence[Partition]) -> Array:
    """The empty set of states: 64-bit words over all numbers."""
    return np.zeros(partitions[-1].first // 64 + partitions[-1].words, np.uint64)


def read_set(storage: Storage, partitions: Sequence[Partition], bits: Bits) -> Array:
    """Read a set of states: 64-bit words over all numbers."""
    words = empty_set(partitions)
    for partition, file in zip(partitions, bits, strict=True):
        _words_of(words, partition)[:] = storage.read(file, np.uint64, 0, partition.words)
    return words


def members(words: Array, numbers: Array) -> Array:
    """A mask: whether each of these states is in a set."""
    return np.asarray((words[numbers >> 6] >> (numbers & 63).astype(np.uint64)) & np.uint64(1) != 0)


def mask_of(words: Array, partition: Partition) -> Array:
    """A mask: whether each state of a partition is in a set."""
    return _unpacked(_words_of(words, partition), partition)


def set_mask(words: Array, partition: Partition, mask: Array) -> None:
    """Replace the states of a partition that are in a set."""
    _words_of(words, partition)[:] = _packed(partition, mask)


def _words_of(words: Array, partition: Partition) -> Array:
    return words[partition.first // 64 : partition.first // 64 + partition.words]


def _unpacked(words: Array, partition: Partition) -> Array:
    return np.unpackbits(words.view(np.uint8), bitorder="little")[: partition.size].astype(bool)


def _packed(partition: Partition, mask: Array) -> Array:
    packed = np.packbits(mask, bitorder="little")
    whole = np.zeros(partition.words * 8, np.uint8)
    whole[: len(packed)] = packed
    return whole.view(np.uint64)


def read_mask(storage: Storage, partition: Partition, file: str) -> Array:
    """A mask: whether each state of a partition is in the set of a file."""
    return _unpacked(storage.read(file, np.uint64, 0, partition.words), partition)


def write_mask(storage: Storage, name: str, partition: Partition, mask: Array) -> str:
    """Write a mask of the states of a partition, for :func:`read_mask`."""
    storage.write(name, _packed(partition, mask))
    return name


def has(masks: Array, number: int) -> Array:
    """For each mask, whether it contains the fairness condition or predicate ``number``."""
    return np.asarray(masks[:, number >> 6] & np.uint64(1 << (number & 63)) != 0)


def within(steps: Adjacency, partition: Partition, words: Array) -> Adjacency:
    """The steps whose ends are both in a set."""
    rows = members(words, steps.rows.astype(np.int64) + partition.first)
    counts = np.diff(steps.starts)
    kept = np.repeat(rows, counts) & members(words, steps.others.astype(np.int64))
    totals = np.concatenate([[0], np.cumsum(kept)])
    counts = np.diff(totals[steps.starts])[rows]
    return Adjacency(
        steps.rows[rows], np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), steps.others[kept],
        steps.back[kept], steps.kinds[kept] if len(steps.kinds) else steps.kinds,
    )  # fmt: skip


def row_of_each(steps: Adjacency) -> Array:
    """For each step, the state of the partition to which it belongs."""
    return np.repeat(steps.rows, np.diff(steps.starts))


# -- writing the graph ------------------------------------------------------------------------------------------------


class StatesWritten(msgspec.Struct, tag="states"):
    """The report of a task that wrote a partition's states."""

    partition: int
    file: str
    states: int


class StepsWritten(msgspec.Struct, tag="steps"):
    """The report of a task that wrote a partition's steps: those out of its states, or those into them."""

    partition: int
    out: bool
    steps: StepFile


def _rows(received: Received, columns: int) -> Array:
    """All rows that were shuffled to a partition, as 64-bit numbers in this number of columns."""
    return np.concatenate([block.reshape(-1, columns) for _, block in received.blocks])


def _shuffled(partitions: int, to: Array, rows: Array) -> Iterator[pa.RecordBatch]:
    """Shuffle rows of 64-bit numbers to partitions. Every partition gets a block, so that it has a task."""
    order = np.argsort(to, kind="stable")
    edges = np.searchsorted(to[order], np.arange(partitions + 1))
    for partition in range(partitions):
        begin, end = int(edges[partition]), int(edges[partition + 1])
        for at in range(begin, max(end, begin + 1), BLOCK_ROWS):
            yield row(partition, 0, rows[order[at : min(at + BLOCK_ROWS, end)]].tobytes())


def _report(partition: int, content: msgspec.Struct) -> pa.RecordBatch:
    """The report of a task, as a row for the driver."""
    return row(partition, partition, msgspec.msgpack.encode(content), report=True)


def shuffle_states(plan: GraphPlan, number: int) -> Iterator[pa.RecordBatch]:
    """Shuffle the states of a record file to their partitions."""
    level, record = plan.records[number]
    some = read_record(plan.storage, record, plan.terms)
    levels = np.full(record.states, level, np.uint64)
    rows = np.column_stack([some.fingerprints, levels, some.enabled, some.truths])
    yield from _shuffled(len(plan.partitions), plan.partition_of(some.fingerprints), rows)


def write_states(plan: GraphPlan, number: int, received: Received) -> Iterator[pa.RecordBatch]:
    """Write the states of a partition, sorted by fingerprint."""
    rows = _rows(received, 2 + plan.terms.words + plan.terms.truth_words)
    rows = rows[np.argsort(rows[:, 0])]
    if (rows[1:, 0] == rows[:-1, 0]).any():
        raise RuntimeError("two states have the same 64 bits of fingerprint, by which liveness is judged")
    split = 2 + plan.terms.words
    name = new_name("states", number)
    columns = rows[:, 0], rows[:, 1].astype(np.uint32), rows[:, 2:split], rows[:, split:]
    plan.storage.write(name, *map(np.ascontiguousarray, columns))
    yield _report(number, StatesWritten(number, name, len(rows)))


def shuffle_steps(plan: GraphPlan, number: int) -> Iterator[pa.RecordBatch]:
    """Shuffle the steps of a record file to the partitions of their targets. A row has the fingerprints of both ends,
    and the level and kind.
    """
    level, record = plan.records[number]
    some = read_record(plan.storage, record, plan.terms)
    sources = np.repeat(some.fingerprints, some.counts)
    rows = np.column_stack([some.children, sources, some.kinds.astype(np.uint64) | np.uint64(level << 16)])
    yield from _shuffled(len(plan.partitions), plan.partition_of(some.children), rows)


def number_targets(plan: GraphPlan, number: int, received: Received) -> Iterator[pa.RecordBatch]:
    """Number the targets of steps, and shuffle the steps to the partitions of their sources. Drops steps to states
    outside a constraint.
    """
    rows = _rows(received, 3)
    partition = plan.partitions[number]
    states = read_states(plan.storage, partition, plan.terms)
    places, found = _places(states.fingerprints, rows[:, 0])
    rows, places = rows[found], places[found]
    back = states.levels[places] <= (rows[:, 2] >> np.uint64(16)).astype(np.int64)
    numbers = (places + partition.first).astype(np.uint64)
    steps = numbers | (rows[:, 2] & np.uint64(0xFFFF)) << np.uint64(32) | back.astype(np.uint64) << np.uint64(48)
    to = plan.partition_of(rows[:, 1])
    yield from _shuffled(len(plan.partitions), to, np.column_stack([rows[:, 1], steps]))


def _written(
    plan: GraphPlan, number: int, out: bool, places: Array, others: Array, back: Array, kinds: Array
) -> pa.RecordBatch:
    """Write steps, given the indices of their states in the partition. Returns the report."""
    size = plan.partitions[number].size
    rows, starts = np.arange(size, dtype=np.uint32), np.searchsorted(places, np.arange(size + 1))
    steps = Adjacency(rows, starts, others.astype(np.uint32), back, kinds)
    file = write_steps(plan.storage, new_name("out" if out else "into", number), steps)
    return _report(number, StepsWritten(number, out, file))


def write_steps_out(plan: GraphPlan, number: int, received: Received) -> Iterator[pa.RecordBatch]:
    """Write the steps out of the states of a partition, sorted by target, and shuffle them to the partitions of the
    targets.
    """
    rows = _rows(received, 2)
    partition = plan.partitions[number]
    states = read_states(plan.storage, partition, plan.terms)
    places, found = _places(states.fingerprints, rows[:, 0])
    assert found.all()
    target = rows[:, 1] & np.uint64(NOWHERE)
    kind = (rows[:, 1] >> np.uint64(32)).astype(np.uint16)
    back = (rows[:, 1] >> np.uint64(48)).astype(np.uint8)
    order = np.lexsort((kind, target, places))
    places, target, kind, back = places[order], target[order], kind[order], back[order]
    yield _written(plan, number, True, places, target, back, kind)
    source = (places + partition.first).astype(np.uint64)
    again = np.zeros(len(source), bool)
    again[1:] = (source[1:] == source[:-1]) & (target[1:] == target[:-1])
    pairs = np.column_stack([target, source | back.astype(np.uint64) << np.uint64(32)])[~again]
    firsts = np.array([p.first for p in plan.partitions[1:]], np.uint64)
    yield from _shuffled(len(plan.partitions), np.searchsorted(firsts, pairs[:, 0], side="right"), pairs)


def write_steps_into(plan: GraphPlan, number: int, received: Received) -> Iterator[pa.RecordBatch]:
    """Write the steps into the states of a partition."""
    rows = _rows(received, 2)
    source = rows[:, 1] & np.uint64(NOWHERE)
    places = rows[:, 0].astype(np.int64) - plan.partitions[number].first
    order = np.lexsort((source, places))
    back = (rows[:, 1] >> np.uint64(32)).astype(np.uint8)
    yield _written(plan, number, False, places[order], source[order], back[order], np.zeros(0, np.uint16))


def stages_of_states(plan: GraphPlan) -> JobStages:
    """The stages that write the states of the graph, each with its number of tasks."""
    return [
        (FirstStage(partial(shuffle_states, plan)), len(plan.records)),
        (ShuffledStage(partial(write_states, plan)), len(plan.partitions)),
    ]


def stages_of_steps(plan: GraphPlan) -> JobStages:
    """The stages that write the steps of the graph, each with its number of tasks."""
    later = (number_targets, write_steps_out, write_steps_into)
    return [
        (FirstStage(partial(shuffle_steps, plan)), len(plan.records)),
        *((ShuffledStage(partial(each, plan)), len(plan.partitions)) for each in later),
    ]


def _places(ordered: Array, wanted: Array) -> tuple[Array, Array]:
    """The indices of fingerprints in a sorted array, and a mask: whether each is in it."""
    places = np.searchsorted(ordered, wanted)
    found = places < len(ordered)
    found[found] = ordered[places[found]] == wanted[found]
    return places, found
