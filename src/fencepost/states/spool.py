"""States as numbers, until all is known that says what the numbers stand for.

A column may appear, or become one of another kind, as long as a search goes on. So the states are kept as they come, in
one file of compressed numbers beside those of the table, and are encoded once, when the columns are certain.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from fencepost.checker.compiler.arrays import Array
from fencepost.states.files import BLOCK, Place, fresh_name

Rows = tuple[Array, Array, Array, Array, Array]
"""Of some states the depths, fingerprints, those of the parents, the numbers of the roots that led here (-1 for initial
states), and the numbers of the values of their parts, a row for each state.
"""

FIRST = ("depth", "fingerprint", "parent", "root")
"""The columns before the numbers of values, which are called by the numbers of their parts."""


class Spool:
    """States that wait for their columns. What the disk refuses is raised as it is."""

    def __init__(self, place: Place) -> None:
        self._files, folder = place.storage.arrow()
        self._path = f"{folder}/{fresh_name()}"
        self._file: Any = None
        self.rows = 0
        """States that are in it."""

    def add(self, depth: int, fingerprints: Array, parents: Array | None, roots: Array | None, rows: Array) -> None:
        """Keep states of a level: without parents and roots they are initial ones."""
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
        # Of its own kind, since a later level may have more parts, and larger numbers.
        with pa.ipc.new_stream(self._file, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
            stream.write_batch(batch)
        self.rows += n

    def blocks(self) -> Iterator[Rows]:
        """All states in the order in which they came, as many together as are a row group. Parts that a level does not
        have are 0. Then the spool is empty.
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
        """Nothing is added any more."""
        if self._file is not None:
            self._file.close()


def _together(tables: list[Any]) -> Rows:
    joined = pa.concat_tables(tables, promote_options="permissive")
    depths, fingerprints, parents, roots, *parts = (column.fill_null(0).to_numpy() for column in joined.columns)
    return depths, fingerprints, parents, roots, np.array(parts).reshape(len(parts), joined.num_rows).T
