"""Writes the explored state space as Parquet, level by level.

The driver of a search has a :class:`Writer`. It accepts rows (:meth:`Writer.add_level`), which wait in a `spool` and
are encoded at the end, or files that other processes wrote with its columns (:meth:`Writer.take_level`). `columns`
encodes rows, and `files` manages files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from fencepost.checker.compiler.arrays import Array
from fencepost.checker.engines.interface import Table
from fencepost.errors import SystemFailure
from fencepost.files.storage import open_storage
from fencepost.semantics import Stepper
from fencepost.states.columns import Columns
from fencepost.states.files import BLOCK, Files, Part, TableLocation, writing
from fencepost.states.manifest import EDGES, NAME, File, Manifest
from fencepost.states.spool import Spool

Progress = Callable[[int, int], None]
"""Called with the number of states encoded so far, and the total. May raise KeyboardInterrupt."""


class Mark(msgspec.Struct, frozen=True):
    """The extent of a table at the end of a level, for resuming it."""

    place: str
    depth: int
    states: list[File]
    edges: list[File] | None


class Writer:
    """A state space being written to a directory or a URL. It must be empty, or hold the table to resume from ``mark``.

    Raises :class:`fencepost.SystemFailure` if the disk fails. :meth:`discard` then removes the written files, and the
    directory if it is new. With a mark, it goes back to that instead.
    """

    def __init__(self, stepper: Stepper, directory: Path | str, edges: bool, mark: Mark | None = None) -> None:
        self.stepper = stepper
        self.directory = directory
        self.storage = open_storage(directory)
        self.columns = Columns(stepper)
        self.depth = 0
        self.kept = mark
        self.states = Files(TableLocation(self.storage, "states"))
        self.spool = Spool(self.states.place)
        self.edges = Files(TableLocation(self.storage, "edges")) if edges else None
        self._begun = mark is None
        if mark is not None:
            self._stand(mark)
            return
        self._made = not self.storage.exists()
        self.storage.create()
        if self.storage.names():
            raise SystemFailure(
                f"{{states}} {directory} holds files already: name a new directory or an empty one", "states"
            )
        for files in self._files:
            files.place.storage.create()

    @property
    def _files(self) -> list[Files]:
        return [self.states] if self.edges is None else [self.states, self.edges]

    # -- rows ---------------------------------------------------------------------------------------------------------

    def add_level(self, blocks: Iterator[tuple[Array, Array | None, Array | None, Array]]) -> None:
        """Add the next level, sorted by fingerprint, in blocks: the fingerprints, the parents' fingerprints and the
        numbers of the roots that led here (None for initial states), and the rows.
        """
        self.depth += 1
        with writing(self.directory):
            for block in blocks:
                self.spool.add(self.depth, *block)

    def add_edges(self, sources: Array, targets: Array, roots: Array) -> None:
        """Add steps: the fingerprints of their sources and targets, and the numbers of their roots."""
        assert self.edges is not None
        with writing(self.directory):
            for begin in range(0, len(sources), BLOCK):
                block = slice(begin, begin + BLOCK)
                self.edges.write(dict(EDGES), self.columns.edges(sources[block], targets[block], roots[block]))

    # -- files that others wrote --------------------------------------------------------------------------------------

    def take_level(self, parts: Iterable[Part]) -> None:
        """Add the next level, in files that were written with the current columns."""
        kinds = self.columns.kinds
        self._encode()
        with writing(self.directory):
            self.states.take(kinds, parts)
        self.depth += 1

    def take_edges(self, parts: Iterable[Part]) -> None:
        """Add steps, in files."""
        assert self.edges is not None
        with writing(self.directory):
            self.edges.take(dict(EDGES), parts)

    def stale(self) -> list[tuple[int, str]]:
        """The number and the name of each file of states that must be rewritten with all columns. :meth:`finish`
        rewrites the remaining ones.
        """
        self._encode()
        with writing(self.directory):
            return self.states.stale(self.columns.kinds)

    def replace(self, part: Part) -> None:
        """Replace file number ``part.order`` of the states with this rewritten one."""
        self.states.replace(self.columns.kinds, part)

    # -- stopping, and going on ---------------------------------------------------------------------------------------

    def _encode(self, certain: bool = False, progress: Progress | None = None) -> None:
        """Write the states of the spool to complete files with the current columns. ``certain``: no more values will
        come.
        """
        self.columns.learn(self.stepper.store)
        kinds, total, done = self.columns.kinds, self.spool.rows, 0
        # All files share one schema. If some were already written, every part must be nullable in the others too.
        schema = self.columns.schema(self.columns.fields() if certain and not self.states.listed else ())
        with writing(self.directory):
            for block in self.spool.blocks():
                if progress is not None:
                    progress(done, total)
                self.states.write(kinds, self.columns.states(schema, *block))
                done += len(block[1])
            self.states.close()

    def mark(self) -> Mark:
        """The current extent of the table. Everything written so far is then in complete files."""
        self._encode()
        with writing(self.directory):
            for files in self._files:
                files.close()
        edges = list(self.edges.listed) if self.edges is not None else None
        return Mark(self.storage.place, self.depth, list(self.states.listed), edges)

    def damage(self) -> str | None:
        """The damage of a file that the search needs to resume, or None."""
        return next(filter(None, (files.damage() for files in self._files)), None)

    def _stand(self, mark: Mark) -> None:
        self.depth = mark.depth
        self.states.stand(mark.states)
        if self.edges is not None and mark.edges is not None:
            self.edges.stand(mark.edges)

    def begin(self) -> None:
        """Prepare a resumed table for new rows: remove its manifest, and every file after its mark."""
        if not self._begun:
            self._sweep()
        self._begun = True

    def _sweep(self) -> None:
        self.storage.remove(NAME)
        for files in self._files:
            files.sweep()

    def finish(self, complete: bool, ended: str | None, progress: Progress | None = None) -> Table:
        """Complete the directory. ``ended``: the reason why the search ended, unless it was ``complete``. ``progress``
        is called before each row group.
        """
        self.begin()
        self._encode(True, progress)
        kinds = self.columns.kinds
        with writing(self.directory):
            self.states.finish(kinds, self.columns.metadata)
            if self.edges is not None:
                self.edges.finish(dict(EDGES), self.columns.metadata)
            manifest = Manifest(
                **self.columns.about, complete=complete, ended=ended, states=self.states.rows,
                edges=None if self.edges is None else self.edges.rows, depth=self.depth, columns=kinds,
                files={files.place.table: files.listed for files in self._files},
            )  # fmt: skip
            self.storage.replace(NAME, msgspec.json.format(msgspec.json.encode(manifest)))
        return Table(str(self.directory), manifest.states, manifest.edges, manifest.depth, manifest.complete)

    def discard(self) -> None:
        """Remove the written files. If there is a mark to resume from, remove only the later ones."""
        with suppress(OSError):  # a full disk fails here too
            self.spool.close()
        for files in self._files:
            files.abandon()
        with suppress(SystemFailure):  # report the failure that led here, not this one
            if self.kept is None:
                for storage in [self.storage] if self._made else [files.place.storage for files in self._files]:
                    storage.delete()
            elif self._begun:
                self._stand(self.kept)
                self._sweep()
