"""Columns in memory and in files, read by Arrow and DuckDB."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from states.tables import written
from states.test_table import Zoo
from states.values import VALUES, Entry

from fencepost.files.storage import open_storage
from fencepost.states import columns
from fencepost.states.columns import TEXT, Column, field_of, kinds_of, schema_of
from fencepost.states.files import TableLocation
from fencepost.states.kinds import converted, to_column


def column_of(values: Sequence[Any]) -> Column:
    column = Column("x", False, False)
    column.learn(values)
    return column


def expected(column: Column) -> list[Any]:
    """Arrow's form of each value of a column, without knowledge of nulls."""
    held = [to_column(converted(value, kind, column.kind), column.kind) for kind, value in column.plain]
    found: list[Any] = pa.array(held, field_of("", column.kind).type).to_pylist()
    return found


@contextmanager
def file_of(schema: Any, tables: Sequence[Any]) -> Iterator[str]:
    """A file with these tables, one row group each."""
    with tempfile.TemporaryDirectory() as directory:
        place = TableLocation(open_storage(directory), "states")
        place.storage.create()
        part = place.write(0, iter(tables))
        assert part is not None and part.rows == sum(table.num_rows for table in tables)
        yield f"{directory}/states/{part.name}"


@given(st.lists(VALUES, min_size=1, max_size=6), st.booleans(), st.booleans(), st.data())
def test_any_column_is_read_as_it_was_written(values: list[Any], certain: bool, few: bool, data: st.DataObject) -> None:
    column = column_of(values)
    field = column.field() if certain else field_of("x", column.kind, text=TEXT)
    rows = [data.draw(st.lists(st.integers(0, len(values) - 1), min_size=1, max_size=40)) for _ in range(2)]
    schema = schema_of({"x": column.kind}, {}, [field])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "FEW", 8 if few else 0)
        tables = [pa.table([column.array(field, np.array(ids, np.uint8))], schema=schema) for ids in rows]
    with file_of(schema, tables) as path:
        read = pq.read_table(path)
        assert pq.read_metadata(path).num_row_groups == 2
    plainly = expected(column)
    assert read.column("x").to_pylist() == [plainly[number] for ids in rows for number in ids]
    assert read.schema.equals(schema) and kinds_of(read.schema) == {"x": column.kind}
    assert field.nullable is (not certain or None in plainly)


def test_duckdb_reads_what_arrow_reads() -> None:
    duckdb = pytest.importorskip("duckdb")
    rng = np.random.default_rng(5)
    known: dict[str, list[Any]] = {
        "numbers": [None, 3, -(1 << 63), (1 << 63) - 1],
        "truths": [True, False, None],
        "texts": [f"t{number}" for number in range(300)],
        "nothing": [frozenset(), frozenset()],
        "lists": [(), (1,), (2, None, 3), tuple(range(40))],
        "deep": [((1, 2), ()), (), ((3,),), None],
        "records": [Entry(1, (None, "a")), Entry(2, ())],
    }
    made = {name: column_of(values) for name, values in known.items()}
    for certain in (False, True):
        fields = [column.field().with_name(name) for name, column in made.items()] if certain else []
        schema = schema_of({name: column.kind for name, column in made.items()}, {}, fields)
        tables = [
            pa.table(
                [
                    column.array(schema.field(name), rng.integers(0, len(known[name]), rows))
                    for name, column in made.items()
                ],
                schema=schema,
            )
            for rows in (1, 2_000, 7)
        ]
        with file_of(schema, tables) as path:
            assert (
                duckdb.sql(f"select * from read_parquet('{path}')").to_arrow_table().to_pylist()
                == pq.read_table(path).to_pylist()
            )


def test_parts_that_are_never_null_are_declared_so() -> None:
    field = column_of([(Entry(1, None), Entry(2, "a")), ()]).field()
    record = field.type.value_field
    assert not field.nullable and not record.nullable
    assert [part.nullable for part in record.type] == [False, True]


def test_how_columns_are_encoded(tmp_path: Path) -> None:
    space = written(Zoo(), tmp_path / "space")
    for table, rising, random in (("states", "fingerprint", "parent"), ("edges", "source", "target")):
        with pq.ParquetFile(space.files(table)[0]) as file:
            group = file.metadata.row_group(0)
        found = {group.column(n).path_in_schema: group.column(n) for n in range(group.num_columns)}
        assert set(found[rising].encodings) <= {"RLE", "DELTA_BINARY_PACKED"} and found[rising].statistics.has_min_max
        assert set(found[random].encodings) <= {"RLE", "PLAIN"} and found[random].compression == "UNCOMPRESSED"
        assert found["action"].has_dictionary_page and found["action"].compression == "ZSTD"
        assert all(
            column.has_dictionary_page and not column.is_stats_set
            for path, column in found.items()
            if path.endswith(".list.element")
        )
