"""Buffers states as numbers until the columns that decode them are final.

During a search, a column may appear or change its kind. So states are first stored as compressed numbers, in one file
next to those of the table, and encoded once, when the columns are final.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from fencepost.checker.compiler.arrays import Array
from fencepost.states.files import BLOCK, TableLocation, fresh_name

Rows = tuple[Array, Array, Array, Array, Array]
"""Depths, fingerprints, the parents' fingerprints, numbers of the roots that led here (-1 for initial states), and
numbers of values: a row for each state.
"""

FIRST = ("depth", "fingerprint", "parent", "root")
"""The columns before those of value numbers, which are named by the numbers of their parts."""


class Spool:
    """States that wait for their columns. Errors of the disk are raised unchanged."""

    def __init__(self, place: TableLocation) -> None:
        self._files, folder = place.storage.arrow()
        self._path = f"{folder}/{fresh_name()}"
        self._file: Any = None
        self.rows = 0
        """The number of states in it."""

    def add(self, depth: int, fingerprints: Array, parents: Array | None, roots: Array | None, rows: Array) -> None:
        """Add states of a level. Without parents and roots, they are initial states."""
        n = len(fingerprints)
        known = (
            np.full(n, depth, np.int32),
            fingerprints,
            np.zeros(n, np.uint64) if parents is None else parents,
            np.full(n, -1, np.int32) if roots is None else roots.astype(np.int32),
        )
        columns = dict(zip(FIRST, known, strict=True)) | {
            str(part): np.ascontiguousarray(numbers) for part, numbers in enumerate(rows.T)
        }
        batch = pa.record_batch({name: pa.array(column) for name, column in columns.items()})
        self._file = self._file or self._files.open_output_stream(self._path)
        # Its own stream, since a later level may have more parts and wider numbers.
        with pa.ipc.new_stream(self._file, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
            stream.write_batch(batch)
        self.rows += n

    def blocks(self) -> Iterator[Rows]:
        """All states in order of addition, in blocks of a row group. Missing parts of a level are 0. Empties the
        spool.
        """
        waiting: list[Any] = []
        rows = 0
        for table in self._tables():
            while table.num_rows:
                part = table.slice(0, BLOCK - rows)
                table, rows = table.slice(part.num_rows), rows + part.num_rows
                waiting.append(part)
                if rows == BLOCK:
                    yield _together(waiting)
                    waiting, rows = [], 0
        if waiting:
            yield _together(waiting)

    def _tables(self) -> Iterator[Any]:
        if self._file is None:
            return
        self.close()
        with self._files.open_input_file(self._path) as file:
            end = file.size()
            while file.tell() < end:
                with pa.ipc.open_stream(file) as stream:
                    yield stream.read_all()
        self._files.delete_file(self._path)
        self._file, self.rows = None, 0

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def _together(tables: list[Any]) -> Rows:
    joined = pa.concat_tables(tables, promote_options="permissive")
    depths, fingerprints, parents, roots, *parts = (column.fill_null(0).to_numpy() for column in joined.columns)
    return depths, fingerprints, parents, roots, np.array(parts).reshape(len(parts), joined.num_rows).T
