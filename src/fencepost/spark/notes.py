"""Notes of the graph: what the Spark engine writes down of each level before it is expanded, for the judging of
liveness.

A **note** is a file about some states of one level: their fingerprints, the number of their steps, the demands that are
enabled and the predicates that are true in each; then, step by step, where it leads and of which kind it is. It is what
the embedded engine keeps in memory of a level.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator

import msgspec
import numpy as np
import pyarrow as pa

from fencepost.compiler.arrays import Array
from fencepost.digest import digest
from fencepost.engines.kernel import Arena
from fencepost.engines.recording import list_truths, steps_of, truths_of
from fencepost.engines.workspace import Workspace
from fencepost.errors import ProtocolRaised
from fencepost.liveness.graph import Level, Measures, Recording, Terms
from fencepost.spark import loops, stages
from fencepost.spark.level import NO_IMAGES, Plan, read_rows
from fencepost.storage import Storage

MOST_STATES = 1 << 20
"""States of one note, at most, of levels that were expanded before Spark took over."""


class Note(msgspec.Struct, frozen=True):
    """A file of states and steps. ``patch``: a file with the truths of ``patched`` of the states, which only the driver
    could tell.
    """

    file: str
    states: int
    steps: int
    digest: str
    patch: str = ""
    patched: int = 0
    patch_digest: str = ""

    @property
    def files(self) -> dict[str, str]:
        """The files it consists of, with their digests."""
        return {self.file: self.digest} | ({self.patch: self.patch_digest} if self.patch else {})


def write_note(storage: Storage, name: str, some: Level) -> Note:
    """Write down some states of a level."""
    counts = some.counts.astype(np.int32, copy=False)
    columns = [
        np.ascontiguousarray(c)
        for c in (some.fingerprints, counts, some.enabled, some.truths, some.children, some.kinds)
    ]
    storage.write(name, *columns)
    return Note(name, len(counts), len(some.children), digest(*columns))


def read_note(storage: Storage, note: Note, terms: Terms | Measures) -> Level:
    """What a note says."""
    n, m = note.states, note.steps
    layout = (
        (np.uint64, n), (np.int32, n), (np.uint64, n * terms.words), (np.uint64, n * terms.truth_words), (np.uint64, m),
        (np.uint16, m)
    )  # fmt: skip
    read, offset = [], 0
    for dtype, count in layout:
        read.append(storage.read(note.file, dtype, offset, count))
        offset += count * np.dtype(dtype).itemsize
    fingerprints, counts, enabled, truths, children, kinds = read
    truths = truths.reshape(n, terms.truth_words)
    if note.patch:
        places = storage.read(note.patch, np.int64, 0, note.patched)
        told = storage.read(note.patch, np.uint64, 8 * note.patched, note.patched * terms.truth_words)
        truths[places] = told.reshape(note.patched, terms.truth_words)
    return Level(fingerprints, counts, children, kinds, enabled.reshape(n, terms.words), truths)


# -- by tasks ---------------------------------------------------------------------------------------------------------


class Noted(msgspec.Struct):
    """What a task wrote down; ``unknown``: the file of those of its states in which no path of some predicate is
    known.
    """

    home: int
    note: Note
    unknown: str
    missing: int


noted = msgspec.msgpack.Decoder(Noted)


class Noting(stages._Stage):
    """The only stage: notes of the states of a home."""

    def __init__(self, plan: Plan, terms: Terms) -> None:
        super().__init__(plan)
        self.kind_of, self.masks, self.truth_words = terms.kind_of, terms.masks, terms.truth_words
        self.roots = np.array([root.index for root in terms.predicates], np.int64)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self._check()
        for batch in batches:
            for home in batch.column(0).to_pylist():
                yield stages.row(0, home, msgspec.msgpack.encode(self._note(home)), report=True)

    def _note(self, home: int) -> Noted:
        plan, storage = self.plan, self.plan.storage()
        c, growing = stages.tables_of(plan)
        old, _ = read_rows(plan, home, with_cells=True)
        work, order = self._work(1), np.arange(len(old.fp))
        if plan.stepwise:
            assert loops.know_steps(c, growing, old, work)
        counts, children, kinds, enabled = steps_of(c, old, work, order, self.kind_of, self.masks)
        truths = np.zeros((len(order), self.truth_words), np.uint64)
        unknown: list[int] = []
        evaluations = len(order) * len(self.roots)
        begin = list_truths(c, old, work, order, 0, self.roots, truths)
        while begin < evaluations:
            unknown.append(begin // len(self.roots))
            begin = list_truths(c, old, work, order, (unknown[-1] + 1) * len(self.roots), self.roots, truths)
        note = write_note(storage, self._name("note", home), Level(old.fp, counts, children, kinds, enabled, truths))
        if not unknown:
            return Noted(home, note, "", 0)
        name, which = self._name("unknown", home), np.array(unknown)
        highs = old.fp_high[which] if plan.wide else np.zeros(len(which), np.uint64)
        storage.write(name, which, old.fp[which], highs, old.cells[which].reshape(-1))
        return Noted(home, note, name, len(which))


# -- by the driver ----------------------------------------------------------------------------------------------------


class Notes:
    """The notes of a search, level by level."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.terms = recording.terms
        self.levels: list[list[Note]] = []

    @property
    def files(self) -> set[str]:
        """The files that must stay."""
        return {file for level in self.levels for note in level for file in note.files}

    @property
    def states(self) -> int:
        """How many states there are notes of."""
        return sum(note.states for level in self.levels for note in level)

    @property
    def steps(self) -> int:
        """How many steps there are notes of, those to states outside a constraint included."""
        return sum(note.steps for level in self.levels for note in level)

    def take_over(self, storage: Storage) -> None:
        """Put into files what was noted down in memory."""
        for level in self.recording.take():
            notes = []
            steps = np.concatenate([[0], np.cumsum(level.counts, dtype=np.int64)])
            for begin in range(0, len(level.counts), MOST_STATES):
                some = slice(begin, min(begin + MOST_STATES, len(level.counts)))
                ways = slice(int(steps[some.start]), int(steps[some.stop]))
                part = Level(
                    level.fingerprints[some], level.counts[some], level.children[ways], level.kinds[ways],
                    level.enabled[some], level.truths[some],
                )  # fmt: skip
                notes.append(
                    write_note(storage, f"level-{len(self.levels) + 1}-note-{begin}-{uuid.uuid4().hex[:12]}.bin", part)
                )
            self.levels.append(notes)

    def add(self, workspace: Workspace, plan: Plan, told: Iterable[bytes]) -> None:
        """Complete and keep what tasks have noted down of the level of a plan.

        Raises :class:`fencepost.ProtocolRaised` if a predicate does; the result of the search says where.
        """
        tasks = sorted((noted.decode(one) for one in told), key=lambda one: one.home)
        patches = self._patches(workspace, plan, [one for one in tasks if one.missing])
        del self.levels[plan.level - 1 :]
        self.levels.append([patches.get(one.home, one.note) for one in tasks])

    def _patches(self, workspace: Workspace, plan: Plan, tasks: list[Noted]) -> dict[int, Note]:
        """Evaluate predicates where no path was known: the notes of those homes."""
        if not tasks:
            return {}
        storage, terms = plan.storage(), self.terms
        read = [
            (
                *(
                    storage.read(one.unknown, t, 8 * k * one.missing, one.missing)
                    for k, t in enumerate((np.int64, np.uint64, np.uint64))
                ),
                storage.read(one.unknown, np.uint64, 24 * one.missing, one.missing * plan.words),
            )
            for one in tasks
        ]
        places, lows, highs = (np.concatenate([columns[k] for columns in read]) for k in range(3))
        cells = np.concatenate([columns[3] for columns in read]).reshape(-1, plan.words)
        none = np.zeros(1, np.int64)
        arena = Arena(cells, lows, highs, none, none, np.zeros(1, np.int32), NO_IMAGES, NO_IMAGES)

        search = workspace.search

        def ask(root: int, position: int) -> None:
            try:
                workspace.evaluate(root, workspace.tables.ids(cells[position]))
            except ProtocolRaised as error:
                at = (int(lows[position]), int(highs[position]))
                search.result.raised_at = search.found("raised", error.where, at)
                raise

        order = np.lexsort((highs, lows))
        truths = np.empty((len(order), terms.truth_words), np.uint64)
        tables = workspace.tables
        truths[order] = truths_of(terms, lambda: (tables.compiled(), arena), workspace.work[0], order, ask)
        workspace.fit()
        patches = {}
        at = 0
        for one in tasks:
            some = slice(at, at + one.missing)
            name = f"level-{plan.level}-patch-{one.home}-{uuid.uuid4().hex[:12]}.bin"
            columns = (places[some], np.ascontiguousarray(truths[some]))
            storage.write(name, *columns)
            patches[one.home] = msgspec.structs.replace(
                one.note, patch=name, patched=one.missing, patch_digest=digest(*columns)
            )
            storage.remove(one.unknown)
            at += one.missing
        return patches

    def whole(self, storage: Storage) -> Recording:
        """All of it in memory, as the embedded engine would have it."""
        for level in self.levels:
            read = [read_note(storage, note, self.terms) for note in level]
            self.recording.add(*in_order(read))
        return self.recording


def in_order(parts: list[Level]) -> tuple[Array, Array, Array, Array, Array, Array]:
    """What was noted down of a level in several parts, in the order of fingerprints; see :meth:`Recording.add`."""
    fingerprints, counts, children, kinds, enabled, truths = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("fingerprints", "counts", "children", "kinds", "enabled", "truths")
    )
    order = np.argsort(fingerprints, kind="stable")
    begins = (np.cumsum(counts, dtype=np.int64) - counts)[order]
    counts = counts[order]
    steps = np.repeat(begins - np.cumsum(counts, dtype=np.int64) + counts, counts) + np.arange(len(children))
    return fingerprints[order], counts, children[steps], kinds[steps], enabled[order], truths[order]
