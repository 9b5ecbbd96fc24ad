"""The graph of a search on Spark, laid out for trimming, and the tasks that trim it.

States are divided by their fingerprints into **parts**, and numbered in the order of fingerprints: a part has
consecutive numbers, the first of them a multiple of 64. For each part there is a file about its states, one of the
steps out of them (**out**) and one of the steps into them (**into**), with the numbers of the states at the other end.
A step is a step **back** if it leads to a level that is not after its own. Every cycle has one, since a step leads one
level further at the most.

A set of states is a file of bits for each part. To trim, a task reads the bits of all parts and writes those of its
own: no state is sent anywhere. That is an eighth of a byte of memory for each state.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from fencepost import __version__
from fencepost.compiler.arrays import Array
from fencepost.liveness.graph import Measures
from fencepost.spark.level import bounds
from fencepost.spark.notes import Note, read_note
from fencepost.spark.stages import row
from fencepost.storage import Storage, open_storage

MOST_STATES = 1 << 32
"""States of a graph, at most: a number has 32 bits."""
SENT = 1 << 16
"""Rows of numbers that are sent in one block."""
NOWHERE = (1 << 32) - 1
"""A level that is none."""

Bits = tuple[str, ...]
"""A set of states: a file for each part."""


class Steps(msgspec.Struct, frozen=True):
    """A file of steps out of, or into, ``rows`` of the states of a part."""

    file: str
    rows: int
    steps: int


class Part(msgspec.Struct, frozen=True):
    """States whose numbers begin with ``first``."""

    file: str
    size: int
    first: int

    @property
    def words(self) -> int:
        """How many words of 64 bits a set of its states has."""
        return -(-self.size // 64)


class Ask(msgspec.Struct, frozen=True):
    """What all tasks know. ``levels``: the level of each note, from 0; ``out`` and ``into`` are empty until steps are
    laid out.
    """

    place: str
    terms: Measures
    notes: tuple[tuple[int, Note], ...]
    parts: tuple[Part, ...]
    out: tuple[Steps, ...] = ()
    into: tuple[Steps, ...] = ()
    version: str = __version__

    @property
    def storage(self) -> Storage:
        """Where the files are."""
        return open_storage(self.place)

    def part_of(self, fingerprints: Array) -> Array:
        """The parts that states with these fingerprints belong to."""
        edges = np.array(bounds(len(self.parts))[1:-1], np.uint64)
        return np.searchsorted(edges, fingerprints, side="right")


class States(NamedTuple):
    """What a file about states holds."""

    fingerprints: Array
    levels: Array
    enabled: Array
    truths: Array


class Ways(NamedTuple):
    """What a file of steps holds: those of state ``rows[k]`` of the part are the ones from ``starts[k]`` on. ``kinds``
    are of steps out of states only.
    """

    rows: Array
    starts: Array
    others: Array
    back: Array
    kinds: Array


def read_states(storage: Storage, part: Part, terms: Measures, begin: int = 0, count: int | None = None) -> States:
    """The states of a part, or some of them."""
    n = part.size - begin if count is None else count
    read, offset = [], 0
    for dtype, width in ((np.uint64, 1), (np.uint32, 1), (np.uint64, terms.words), (np.uint64, terms.truth_words)):
        size = np.dtype(dtype).itemsize * width
        read.append(storage.read(part.file, dtype, offset + begin * size, n * width))
        offset += part.size * size
    return States(read[0], read[1], read[2].reshape(n, terms.words), read[3].reshape(n, terms.truth_words))


def write_steps(storage: Storage, name: str, ways: Ways) -> Steps:
    """Write a file of steps."""
    storage.write(name, *ways)
    return Steps(name, len(ways.rows), len(ways.others))


def read_steps(storage: Storage, steps: Steps, with_kinds: bool) -> Ways:
    """Read a file of steps."""
    k, m = steps.rows, steps.steps
    read, offset = [], 0
    for dtype, count in (
        (np.uint32, k),
        (np.int64, k + 1),
        (np.uint32, m),
        (np.uint8, m),
        (np.uint16, m if with_kinds else 0),
    ):
        read.append(storage.read(steps.file, dtype, offset, count))
        offset += np.dtype(dtype).itemsize * count
    return Ways(*read)


def sources_of(storage: Storage, part: Part, into: Steps, number: int) -> Array:
    """The states from which a step leads to one. ``into`` is that of all states of its part."""
    at = number - part.first
    begin, end = storage.read(into.file, np.int64, 4 * into.rows + 8 * at, 2).tolist()
    return storage.read(into.file, np.uint32, 4 * into.rows + 8 * (into.rows + 1) + 4 * begin, end - begin)


# -- sets of states ---------------------------------------------------------------------------------------------------


def read_bits(storage: Storage, parts: Sequence[Part], bits: Bits) -> Array:
    """A set of states as words of 64 bits, over all numbers."""
    words = np.zeros(parts[-1].first // 64 + parts[-1].words, np.uint64)
    for part, file in zip(parts, bits, strict=True):
        words[part.first // 64 : part.first // 64 + part.words] = storage.read(file, np.uint64, 0, part.words)
    return words


def members(words: Array, numbers: Array) -> Array:
    """Which of the numbers are in a set."""
    return np.asarray((words[numbers >> 6] >> (numbers & 63).astype(np.uint64)) & np.uint64(1) != 0)


def own(words: Array, part: Part) -> Array:
    """Which states of a part are in a set."""
    return _unpacked(words[part.first // 64 : part.first // 64 + part.words], part)


def put(words: Array, part: Part, chosen: Array) -> None:
    """Make these the states of a part that are in a set."""
    words[part.first // 64 : part.first // 64 + part.words] = _packed(part, chosen)


def _unpacked(words: Array, part: Part) -> Array:
    return np.unpackbits(words.view(np.uint8), bitorder="little")[: part.size].astype(bool)


def _packed(part: Part, chosen: Array) -> Array:
    packed = np.packbits(chosen, bitorder="little")
    held = np.zeros(part.words * 8, np.uint8)
    held[: len(packed)] = packed
    return held.view(np.uint64)


def read_part_bits(storage: Storage, part: Part, file: str) -> Array:
    """Which states of a part are in a set."""
    return _unpacked(storage.read(file, np.uint64, 0, part.words), part)


def write_bits(storage: Storage, name: str, part: Part, chosen: Array) -> str:
    """Write which states of a part are in a set."""
    storage.write(name, _packed(part, chosen))
    return name


def true(states: States, predicate: int) -> Array:
    """In which states a predicate is true."""
    return np.asarray(states.truths[:, predicate >> 6] & np.uint64(1 << (predicate & 63)) != 0)


def has(masks: Array, demand: int) -> Array:
    """Which masks of demands contain one."""
    return np.asarray(masks[:, demand >> 6] & np.uint64(1 << (demand & 63)) != 0)


def within(ways: Ways, part: Part, words: Array) -> Ways:
    """Those of the steps of which both ends are in a set."""
    rows = members(words, ways.rows.astype(np.int64) + part.first)
    counts = np.diff(ways.starts)
    kept = np.repeat(rows, counts) & members(words, ways.others.astype(np.int64))
    totals = np.concatenate([[0], np.cumsum(kept)])
    counts = np.diff(totals[ways.starts])[rows]
    return Ways(
        ways.rows[rows], np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), ways.others[kept], ways.back[kept],
        ways.kinds[kept] if len(ways.kinds) else ways.kinds,
    )  # fmt: skip


def owners(ways: Ways) -> Array:
    """For each step the state of the part that it belongs to."""
    return np.repeat(ways.rows, np.diff(ways.starts))


# -- laying out -------------------------------------------------------------------------------------------------------


class Placed(msgspec.Struct, tag="placed"):
    """A part's states are written."""

    part: int
    file: str
    states: int


class Laid(msgspec.Struct, tag="laid"):
    """A part's steps are written: those out of its states, or those into them."""

    part: int
    out: bool
    steps: Steps


class Task:
    """What all stages have in common."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask

    def _check(self) -> None:
        if self.ask.version != __version__:
            raise RuntimeError(f"an executor has Fencepost {__version__}, the driver {self.ask.version}")

    def _name(self, what: str, part: int) -> str:
        return f"level-graph-{what}-{part}-{uuid.uuid4().hex[:12]}.bin"


class First(Task):
    """A stage whose tasks are given nothing but their numbers."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self._check()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.task(number)

    def task(self, number: int) -> Iterator[pa.RecordBatch]:
        """What task ``number`` sends."""
        raise NotImplementedError


class Later(Task):
    """A stage whose tasks are given all that was sent to one part, as rows of so many 64-bit numbers; reports are
    handed on.
    """

    columns = 0

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self._check()
        parts: list[Array] = []
        part = -1
        for batch in batches:
            to, _, for_driver, payload = (batch.column(k) for k in range(4))
            for i in range(batch.num_rows):
                if for_driver[i].as_py():
                    yield row(to[i].as_py(), 0, payload[i].as_py(), report=True)
                else:
                    part = to[i].as_py()
                    parts.append(np.frombuffer(payload[i].as_buffer(), np.uint64).reshape(-1, self.columns))
        if parts:
            yield from self.task(part, np.concatenate(parts))

    def task(self, part: int, rows: Array) -> Iterator[pa.RecordBatch]:
        """What the task of ``part`` sends."""
        raise NotImplementedError


def _sent(parts: int, to: Array, rows: Array) -> Iterator[pa.RecordBatch]:
    """Rows of 64-bit numbers, each to a part. Every part gets something, so that it has a task."""
    order = np.argsort(to, kind="stable")
    edges = np.searchsorted(to[order], np.arange(parts + 1))
    for part in range(parts):
        begin, end = int(edges[part]), int(edges[part + 1])
        for at in range(begin, max(end, begin + 1), SENT):
            yield row(part, 0, rows[order[at : min(at + SENT, end)]].tobytes())


def report(part: int, what: msgspec.Struct) -> pa.RecordBatch:
    """What a task tells the driver, as the row that takes it there."""
    return row(part, 0, msgspec.msgpack.encode(what), report=True)


class TellStates(First):
    """Sends the states of a note to their parts."""

    def task(self, number: int) -> Iterator[pa.RecordBatch]:
        level, note = self.ask.notes[number]
        some = read_note(self.ask.storage, note, self.ask.terms)
        levels = np.full(note.states, level, np.uint64)
        rows = np.column_stack([some.fingerprints, levels, some.enabled, some.truths])
        yield from _sent(len(self.ask.parts), self.ask.part_of(some.fingerprints), rows)


class PlaceStates(Later):
    """Writes the states of a part, by fingerprint."""

    def __init__(self, ask: Ask) -> None:
        super().__init__(ask)
        self.columns = 2 + ask.terms.words + ask.terms.truth_words

    def task(self, part: int, rows: Array) -> Iterator[pa.RecordBatch]:
        rows = rows[np.argsort(rows[:, 0])]
        if (rows[1:, 0] == rows[:-1, 0]).any():
            raise RuntimeError("two states have the same 64 bits of fingerprint, by which liveness is judged")
        split = 2 + self.ask.terms.words
        name = self._name("states", part)
        columns = rows[:, 0], rows[:, 1].astype(np.uint32), rows[:, 2:split], rows[:, split:]
        self.ask.storage.write(name, *map(np.ascontiguousarray, columns))
        yield report(part, Placed(part, name, len(rows)))


class TellSteps(First):
    """Sends the steps of a note to the parts of the states that they lead to: the fingerprints of both ends, level and
    kind.
    """

    def task(self, number: int) -> Iterator[pa.RecordBatch]:
        level, note = self.ask.notes[number]
        some = read_note(self.ask.storage, note, self.ask.terms)
        sources = np.repeat(some.fingerprints, some.counts)
        rows = np.column_stack([some.children, sources, some.kinds.astype(np.uint64) | np.uint64(level << 16)])
        yield from _sent(len(self.ask.parts), self.ask.part_of(some.children), rows)


class FindTargets(Later):
    """Numbers the states that steps lead to, and sends the steps to the parts of those they come from. Steps to states
    outside a constraint end here.
    """

    columns = 3

    def task(self, part: int, rows: Array) -> Iterator[pa.RecordBatch]:
        states = read_states(self.ask.storage, self.ask.parts[part], self.ask.terms)
        places, found = _places(states.fingerprints, rows[:, 0])
        rows, places = rows[found], places[found]
        back = states.levels[places] <= (rows[:, 2] >> np.uint64(16)).astype(np.int64)
        numbers = (places + self.ask.parts[part].first).astype(np.uint64)
        told = numbers | (rows[:, 2] & np.uint64(0xFFFF)) << np.uint64(32) | back.astype(np.uint64) << np.uint64(48)
        yield from _sent(len(self.ask.parts), self.ask.part_of(rows[:, 1]), np.column_stack([rows[:, 1], told]))


class LayOut(Later):
    """Writes the steps out of the states of a part, in the order of the states they lead to, and sends them to the
    parts of those.
    """

    columns = 2

    def task(self, part: int, rows: Array) -> Iterator[pa.RecordBatch]:
        ask, mine = self.ask, self.ask.parts[part]
        states = read_states(ask.storage, mine, ask.terms)
        places, found = _places(states.fingerprints, rows[:, 0])
        assert found.all()
        target = rows[:, 1] & np.uint64(NOWHERE)
        kind = (rows[:, 1] >> np.uint64(32)).astype(np.uint16)
        back = (rows[:, 1] >> np.uint64(48)).astype(np.uint8)
        order = np.lexsort((kind, target, places))
        places, target, kind, back = places[order], target[order], kind[order], back[order]
        ways = Ways(_all(mine), _starts(places, mine.size), target.astype(np.uint32), back, kind)
        yield report(part, Laid(part, True, write_steps(ask.storage, self._name("out", part), ways)))
        source = (places + mine.first).astype(np.uint64)
        again = np.zeros(len(source), bool)
        again[1:] = (source[1:] == source[:-1]) & (target[1:] == target[:-1])
        pairs = np.column_stack([target, source | back.astype(np.uint64) << np.uint64(32)])[~again]
        firsts = np.array([p.first for p in ask.parts[1:]], np.uint64)
        yield from _sent(len(ask.parts), np.searchsorted(firsts, pairs[:, 0], side="right"), pairs)


class LayInto(Later):
    """Writes the steps into the states of a part."""

    columns = 2

    def task(self, part: int, rows: Array) -> Iterator[pa.RecordBatch]:
        mine = self.ask.parts[part]
        source, places = rows[:, 1] & np.uint64(NOWHERE), rows[:, 0].astype(np.int64) - mine.first
        order = np.lexsort((source, places))
        back = (rows[:, 1] >> np.uint64(32)).astype(np.uint8)
        ways = Ways(
            _all(mine),
            _starts(places[order], mine.size),
            source[order].astype(np.uint32),
            back[order],
            np.zeros(0, np.uint16),
        )
        yield report(part, Laid(part, False, write_steps(self.ask.storage, self._name("into", part), ways)))


def _places(ordered: Array, wanted: Array) -> tuple[Array, Array]:
    """Where the wanted fingerprints are among ordered ones, and which of them are there."""
    places = np.searchsorted(ordered, wanted)
    found = places < len(ordered)
    found[found] = ordered[places[found]] == wanted[found]
    return places, found


def _all(part: Part) -> Array:
    return np.arange(part.size, dtype=np.uint32)


def _starts(owners: Array, rows: int) -> Array:
    return np.searchsorted(owners, np.arange(rows + 1))
