"""The recording of the graph in files. Before the Spark engine expands a level, tasks record its states and steps, for
liveness.

A **record file** is about some states of one level. For each state it has the fingerprint, the number of steps, the
fairness conditions enabled and the predicates true; then the target and the kind of each step. The embedded engine
keeps the same data in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import msgspec
import numpy as np

from fencepost.checker.compiler.arrays import Array, Compiled, Growing
from fencepost.checker.compiler.tables import Question
from fencepost.checker.engines.kernel import Arena, know_steps
from fencepost.checker.engines.recording import list_truths, steps_of, truths_of
from fencepost.checker.engines.workspace import Workspace
from fencepost.checker.liveness.graph import Level, Measures, Recording, Terms
from fencepost.errors import ProtocolRaised
from fencepost.files.digest import digest
from fencepost.files.storage import Storage
from fencepost.spark import stages
from fencepost.spark.level import NO_IMAGES, Plan, read_columns, read_rows, unique_name

MOST_STATES = 1 << 20
"""The most states of one record file, for levels expanded before Spark took over."""


class RecordFile(msgspec.Struct, frozen=True):
    """A file of states and steps. ``patch``: a file with the truths of ``patched`` states whose predicates only the
    driver could evaluate.
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
        """The file and its patch, with their digests."""
        return {self.file: self.digest} | ({self.patch: self.patch_digest} if self.patch else {})


def write_record(storage: Storage, name: str, some: Level) -> RecordFile:
    """Write a record file of some states of a level."""
    counts = some.counts.astype(np.int32, copy=False)
    columns = [
        np.ascontiguousarray(c)
        for c in (some.fingerprints, counts, some.enabled, some.truths, some.children, some.kinds)
    ]
    storage.write(name, *columns)
    return RecordFile(name, len(counts), len(some.children), digest(*columns))


def read_record(storage: Storage, record: RecordFile, terms: Terms | Measures) -> Level:
    """The states and steps of a record file."""
    n, m = record.states, record.steps
    layout = (
        (np.uint64, n), (np.int32, n), (np.uint64, n * terms.words), (np.uint64, n * terms.truth_words), (np.uint64, m),
        (np.uint16, m)
    )  # fmt: skip
    fingerprints, counts, enabled, truths, children, kinds = read_columns(storage, record.file, layout)
    truths = truths.reshape(n, terms.truth_words)
    if record.patch:
        p = record.patched
        places, evaluated = read_columns(storage, record.patch, ((np.int64, p), (np.uint64, p * terms.truth_words)))
        truths[places] = evaluated.reshape(p, terms.truth_words)
    return Level(fingerprints, counts, children, kinds, enabled.reshape(n, terms.words), truths)


# -- by tasks ---------------------------------------------------------------------------------------------------------


class Recorded(msgspec.Struct):
    """The report of a task. ``unknown``: the file of the ``missing`` states with a predicate for which no path is
    known.
    """

    partition: int
    record: RecordFile
    unknown: str
    missing: int


_decoder = msgspec.msgpack.Decoder(Recorded)


def record_task(plan: Plan, terms: Terms) -> Callable[[int], Recorded]:
    """The task that records the states and steps of a level: one for each partition."""
    roots = np.array([root.index for root in terms.predicates], np.int64)
    return partial(_record, plan, terms.kind_of, terms.masks, terms.truth_words, roots)


def _record(plan: Plan, kind_of: Array, masks: Array, truth_words: int, roots: Array, number: int) -> Recorded:
    storage = plan.storage()
    c, growing, _ = stages.tables_of(plan.tables)
    old, _ = read_rows(plan, number, with_cells=True)
    work, order = stages.work_for(plan, 1), np.arange(len(old.fp))
    if plan.stepwise:
        assert know_steps(c, growing, old, work, order)
    counts, children, kinds, enabled = steps_of(c, old, work, order, kind_of, masks)
    truths = np.zeros((len(order), truth_words), np.uint64)
    unknown: list[int] = []
    evaluations = len(order) * len(roots)
    begin = list_truths(c, old, work, order, 0, roots, truths)
    while begin < evaluations:
        unknown.append(begin // len(roots))
        begin = list_truths(c, old, work, order, (unknown[-1] + 1) * len(roots), roots, truths)
    level = Level(old.fp, counts, children, kinds, enabled, truths)
    record = write_record(storage, unique_name(plan.level, "note", number), level)
    if not unknown:
        return Recorded(number, record, "", 0)
    name, which = unique_name(plan.level, "unknown", number), np.array(unknown)
    highs = old.fp_high[which] if plan.wide else np.zeros(len(which), np.uint64)
    storage.write(name, which, old.fp[which], highs, old.cells[which].reshape(-1))
    return Recorded(number, record, name, len(which))


# -- by the driver ----------------------------------------------------------------------------------------------------


class FileRecording:
    """The recording of a search in files, level by level."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.terms = recording.terms
        self.levels: list[list[RecordFile]] = []

    @property
    def files(self) -> set[str]:
        """The files to keep."""
        return {file for level in self.levels for record in level for file in record.files}

    @property
    def states(self) -> int:
        """The number of states recorded."""
        return sum(record.states for level in self.levels for record in level)

    @property
    def steps(self) -> int:
        """The number of steps recorded, including steps to states outside a constraint."""
        return sum(record.steps for level in self.levels for record in level)

    def take_over(self, storage: Storage) -> None:
        """Write the levels that were recorded in memory to files."""
        for number, level in enumerate(self.recording.take(), 1):
            records = []
            steps = np.concatenate([[0], np.cumsum(level.counts, dtype=np.int64)])
            for begin in range(0, len(level.counts), MOST_STATES):
                some = slice(begin, min(begin + MOST_STATES, len(level.counts)))
                out = slice(int(steps[some.start]), int(steps[some.stop]))
                part = Level(
                    level.fingerprints[some], level.counts[some], level.children[out], level.kinds[out],
                    level.enabled[some], level.truths[some],
                )  # fmt: skip
                records.append(write_record(storage, unique_name(number, "note", begin), part))
            self.levels.append(records)

    def add(self, workspace: Workspace, plan: Plan, reports: Iterable[bytes]) -> None:
        """Complete and keep the record files of a plan's level, from the reports of its tasks.

        Raises :class:`fencepost.ProtocolRaised` if a predicate raises; the result of the search then says in which
        state.
        """
        tasks = sorted((_decoder.decode(report) for report in reports), key=lambda task: task.partition)
        patched = self._patched(workspace, plan, [task for task in tasks if task.missing])
        del self.levels[plan.level - 1 :]
        self.levels.append([patched.get(task.partition, task.record) for task in tasks])

    def _patched(self, workspace: Workspace, plan: Plan, tasks: list[Recorded]) -> dict[int, RecordFile]:
        """Evaluate predicates without a known path. Returns the record files of those partitions, with patches."""
        if not tasks:
            return {}
        storage, terms = plan.storage(), self.terms
        read = [
            read_columns(
                storage,
                task.unknown,
                ((np.int64, task.missing), *((np.uint64, task.missing * n) for n in (1, 1, plan.words))),
            )
            for task in tasks
        ]
        places, lows, highs = (np.concatenate([columns[k] for columns in read]) for k in range(3))
        cells = np.concatenate([columns[3] for columns in read]).reshape(-1, plan.words)
        none = np.zeros(1, np.int64)
        arena = Arena(cells, lows, highs, none, none, np.zeros(1, np.int32), NO_IMAGES, NO_IMAGES)

        search = workspace.search

        def ask(questions: Array) -> None:
            for root, position in questions.tolist():
                try:
                    workspace.tables.ask(Question(root, workspace.tables.ids(cells[position])))
                except ProtocolRaised as error:
                    at = (int(lows[position]), int(highs[position]))
                    search.result.raised_at = search.found("raised", error.where, at)
                    raise

        order = np.lexsort((highs, lows))
        truths = np.empty((len(order), terms.truth_words), np.uint64)

        def tables() -> tuple[Compiled, Growing, Arena]:
            return workspace.tables.compiled(), workspace.tables.growing(), arena

        truths[order] = truths_of(terms.predicates, tables, workspace.work[0], order, ask)
        workspace.fit()
        patched = {}
        at = 0
        for task in tasks:
            some = slice(at, at + task.missing)
            name = unique_name(plan.level, "patch", task.partition)
            columns = (places[some], np.ascontiguousarray(truths[some]))
            storage.write(name, *columns)
            patched[task.partition] = msgspec.structs.replace(
                task.record, patch=name, patched=task.missing, patch_digest=digest(*columns)
            )
            storage.remove(task.unknown)
            at += task.missing
        return patched

    def in_memory(self, storage: Storage) -> Recording:
        """The whole recording in memory, as the embedded engine would have recorded it."""
        for level in self.levels:
            self.recording.add(*in_order([read_record(storage, record, self.terms) for record in level]))
        return self.recording


def in_order(parts: list[Level]) -> tuple[Array, Array, Array, Array, Array, Array]:
    """Join the parts of a level, sorted by fingerprint; see :meth:`Recording.add`."""
    fingerprints, counts, children, kinds, enabled, truths = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("fingerprints", "counts", "children", "kinds", "enabled", "truths")
    )
    order = np.argsort(fingerprints, kind="stable")
    begins = (np.cumsum(counts, dtype=np.int64) - counts)[order]
    counts = counts[order]
    steps = np.repeat(begins - np.cumsum(counts, dtype=np.int64) + counts, counts) + np.arange(len(children))
    return fingerprints[order], counts, children[steps], kinds[steps], enabled[order], truths[order]
