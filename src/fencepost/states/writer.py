"""Writes the explored space down as Parquet, level by level.

The driver of a search has a :class:`Writer`. It is given rows (:meth:`Writer.add_level`), which wait in a `spool` and
are encoded at the end, or files of rows that other processes wrote with its columns (:meth:`Writer.take_level`). Rows
are the business of `columns`, files that of `files`.
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
from fencepost.states.files import BLOCK, Files, Part, Place, writing
from fencepost.states.manifest import EDGES, NAME, File, Manifest
from fencepost.states.spool import Spool

Progress = Callable[[int, int], None]
"""Is told how many states were encoded, and of how many. May raise KeyboardInterrupt."""


class Mark(msgspec.Struct, frozen=True):
    """How far a table was at the end of a level: what it takes to go on with it."""

    place: str
    depth: int
    states: list[File]
    edges: list[File] | None


class Writer:
    """A state space being written to a directory, or a URL, which must not hold anything yet; or one that is gone on
    with.

    Raises :class:`fencepost.SystemFailure` when the disk does not take it. Unless there is a mark to go back to,
    :meth:`discard` then removes what was written, and the directory if it is new.
    """

    def __init__(self, stepper: Stepper, directory: Path | str, edges: bool, mark: Mark | None = None) -> None:
        self.stepper = stepper
        self.directory = directory
        self.storage = open_storage(directory)
        self.columns = Columns(stepper)
        self.depth = 0
        self.kept = mark
        self.states = Files(Place(self.storage, "states"))
        self.spool = Spool(self.states.place)
        self.edges = Files(Place(self.storage, "edges")) if edges else None
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
        """The next level, in the order of fingerprints, in blocks: the fingerprints, those of the parents and the
        numbers of the roots that led here (none for initial states), and the rows.
        """
        self.depth += 1
        with writing(self.directory):
            for block in blocks:
                self.spool.add(self.depth, *block)

    def add_edges(self, sources: Array, targets: Array, roots: Array) -> None:
        """Steps, by the fingerprints they go from and to and the numbers of their roots."""
        assert self.edges is not None
        with writing(self.directory):
            for begin in range(0, len(sources), BLOCK):
                block = slice(begin, begin + BLOCK)
                self.edges.write(dict(EDGES), self.columns.edges(sources[block], targets[block], roots[block]))

    # -- files that others wrote --------------------------------------------------------------------------------------

    def take_level(self, parts: Iterable[Part]) -> None:
        """The next level, in files that were written with the columns as they are now."""
        kinds = self.columns.kinds
        self._encode()
        with writing(self.directory):
            self.states.take(kinds, parts)
        self.depth += 1

    def take_edges(self, parts: Iterable[Part]) -> None:
        """Steps, in files."""
        assert self.edges is not None
        with writing(self.directory):
            self.edges.take(dict(EDGES), parts)

    def stale(self) -> list[tuple[int, str]]:
        """The files of states that have to be written again, with all columns: the number and the name of each.
        :meth:`finish` does it too.
        """
        self._encode()
        with writing(self.directory):
            return self.states.stale(self.columns.kinds)

    def replace(self, part: Part) -> None:
        """Take a file of states that was written again, ``order`` being its number."""
        self.states.replace(self.columns.kinds, part)

    # -- stopping, and going on ---------------------------------------------------------------------------------------

    def _encode(self, certain: bool = False, progress: Progress | None = None) -> None:
        """Put the states of the spool into complete files, with the columns as they are now. ``certain``: no more
        values will come.
        """
        self.columns.learn(self.stepper.store)
        kinds, total, done = self.columns.kinds, self.spool.rows, 0
        # All files have one schema: where some were written before, anything may be null in the others too.
        schema = self.columns.schema(self.columns.fields() if certain and not self.states.listed else ())
        with writing(self.directory):
            for block in self.spool.blocks():
                if progress is not None:
                    progress(done, total)
                self.states.write(kinds, self.columns.states(schema, *block))
                done += len(block[1])
            self.states.close()

    def mark(self) -> Mark:
        """How far the table is. All that was written until then is in complete files."""
        self._encode()
        with writing(self.directory):
            for files in self._files:
                files.close()
        edges = list(self.edges.listed) if self.edges is not None else None
        return Mark(self.storage.place, self.depth, list(self.states.listed), edges)

    def damage(self) -> str | None:
        """The damage of a file without which the search cannot go on with the table, if there is any."""
        return next(filter(None, (files.damage() for files in self._files)), None)

    def _stand(self, mark: Mark) -> None:
        self.depth = mark.depth
        self.states.stand(mark.states)
        if self.edges is not None and mark.edges is not None:
            self.edges.stand(mark.edges)

    def begin(self) -> None:
        """Before anything new is written to a table that is gone on with: from now on it is not complete, and ends
        where its mark is.
        """
        if not self._begun:
            self._sweep()
        self._begun = True

    def _sweep(self) -> None:
        self.storage.remove(NAME)
        for files in self._files:
            files.sweep()

    def finish(self, complete: bool, ended: str | None, progress: Progress | None = None) -> Table:
        """Complete the directory. ``ended``: what ended the search, unless it was ``complete``. ``progress`` is called
        before each row group.
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
        """Remove what was written, since the mark if a search can go on from there."""
        with suppress(OSError):  # a full disk takes no ending either
            self.spool.close()
        for files in self._files:
            files.abandon()
        with suppress(SystemFailure):  # what made it necessary is the failure to be told
            if self.kept is None:
                for storage in [self.storage] if self._made else [files.place.storage for files in self._files]:
                    storage.delete()
            elif self._begun:
                self._stand(self.kept)
                self._sweep()
