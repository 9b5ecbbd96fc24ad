"""Parquet as it is written from numbers, read by readers that know nothing of it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from values import VALUES

from fencepost.states.columns import schema_of
from fencepost.states.kinds import Kind, converted, merged, plain, to_column
from fencepost.states.parquet import Coded, Numbers, ParquetFile, RowGroup, Schema, encoded
from fencepost.states.shredding import Field, field_of, leaves_of, shredded


def file_of(schema: Schema, *groups: RowGroup) -> bytes:
    stream = io.BytesIO()
    written: list[bytes] = []
    stream.close = lambda: written.append(stream.getvalue())  # type: ignore[method-assign]
    file = ParquetFile(stream, schema, "a test version 1")
    for group in groups:
        file.write(encoded(group))
    file.close()
    return written[0]


def column_of(values: Sequence[Any], certain: bool) -> tuple[Kind, list[Any], Field]:
    """The kind of a column with these values, the values in it, and its field."""
    found = [plain(value) for value in values]
    kind = reduce(merged, (kind for kind, _ in found), None)
    held = [converted(value, one, kind) for one, value in found]
    return kind, held, field_of("x", kind, held if certain else None)


@given(st.lists(VALUES, min_size=1, max_size=6), st.booleans(), st.data())
def test_any_column_is_read_as_it_was_written(values: list[Any], certain: bool, data: st.DataObject) -> None:
    kind, held, field = column_of(values, certain)
    rows = [data.draw(st.lists(st.integers(0, len(held) - 1), min_size=1, max_size=40)) for _ in range(2)]
    schema = schema_of({"x": kind}, {}, [field])
    content = file_of(schema, *(RowGroup(schema, len(ids), [Coded(np.array(ids), shredded(field, held))]) for ids in rows))
    read = pq.read_table(pa.BufferReader(content))
    expected = [to_column(held[number], kind) for ids in rows for number in ids]
    assert read.column("x").to_pylist() == pa.array(expected, read.schema.field("x").type).to_pylist()
    assert read.schema.equals(schema.arrow) and pq.read_metadata(pa.BufferReader(content)).num_row_groups == 2


@pytest.mark.parametrize("certain", [False, True])
def test_duckdb_reads_what_pyarrow_reads(certain: bool, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    rng = np.random.default_rng(5)
    columns = {
        "numbers": [None, 3, -(1 << 63), (1 << 63) - 1],
        "truths": [True, False, None],
        "texts": [f"t{number}" for number in range(300)],
        "nothing": [frozenset(), frozenset()],
        "lists": [(), (1,), (2, None, 3), tuple(range(40))],
        "deep": [((1, 2), ()), (), ((3,),), None],
    }
    fields, kinds, shreds = [], {}, {}
    for name, values in columns.items():
        kind, held, _ = column_of(values, certain)
        fields.append(field_of(name, kind, held if certain else None))
        kinds[name], shreds[name] = kind, shredded(fields[-1], held)
    schema = schema_of(kinds, {}, fields)
    groups = [
        RowGroup(schema, rows, [Coded(rng.integers(0, len(values), rows), shreds[name]) for name, values in columns.items()])
        for rows in (1, 2_000, 7)
    ]
    path = tmp_path / "file.parquet"
    path.write_bytes(file_of(schema, *groups))
    assert duckdb.sql(f"select * from '{path}'").to_arrow_table().to_pylist() == pq.read_table(path).to_pylist()


@pytest.mark.parametrize("rows", [1, 2, 33, 129, 5_000])
@pytest.mark.parametrize("order", ["rising", "random", "extremes", "equal"])
def test_numbers_as_their_differences(order: str, rows: int) -> None:
    random = np.random.default_rng(rows).integers(0, (1 << 64) - 1, rows, dtype=np.uint64)
    numbers = {
        "rising": np.sort(random), "random": random, "equal": np.full(rows, 7, np.uint64),
        "extremes": np.resize(np.array([0, (1 << 64) - 1, 1 << 63, (1 << 63) - 1], np.uint64), rows),
    }[order].view(np.int64)  # fmt: skip
    schema = schema_of({"x": "int"}, {})
    for missing in (None, np.arange(rows) % 3 == 1, np.ones(rows, bool)):
        column = Numbers(leaves_of(schema.fields[0])[0], numbers, missing, rising=True)
        read = pq.read_table(pa.BufferReader(file_of(schema, RowGroup(schema, rows, [column])))).column("x").to_pylist()
        assert read == [None if missing is not None and missing[row] else int(numbers[row]) for row in range(rows)]


def test_readers_skip_by_the_least_and_the_greatest() -> None:
    schema = schema_of({"x": "int"}, {})
    leaves = shredded(schema.fields[0], [5, None, -3, 100])
    content = file_of(schema, RowGroup(schema, 4, [Coded(np.array([0, 1, 2, 1]), leaves)]), RowGroup(schema, 1, [Coded(np.array([1]), leaves)]))
    first, second = (pq.read_metadata(pa.BufferReader(content)).row_group(n).column(0).statistics for n in range(2))
    assert (first.min, first.max, first.null_count) == (-3, 5, 2)
    assert not second.has_min_max and second.null_count == 1
