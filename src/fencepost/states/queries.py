"""Queries of a state space, and the engine that answers each: DuckDB, which runs in this process and at once, or Spark,
which is slow to start.

A query has the semantics of Spark SQL, and is a SELECT over the tables of the state space
(:mod:`fencepost.states.select`). DuckDB answers if the files are on this machine and the query means the same to both
engines (:mod:`fencepost.states.dialect`). Spark answers all others.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from fencepost.errors import OptionError, how_to_install, naming_extra
from fencepost.files.storage import URL
from fencepost.states import names
from fencepost.states.kinds import Kind, is_keyed_by_parts
from fencepost.states.manifest import EDGES, StateSpace

ENGINES = ("auto", "duckdb", "spark")

TYPES = {"int": "bigint", "bool": "boolean", "float": "double"}
"""Spark's names for the types of columns that are not text."""

_DESCRIBE = re.compile(r"\s*desc(?:ribe)?\s+(?:table\s+)?(\w+)\s*;?\s*", re.IGNORECASE)

BLOCK = 10_000
"""Rows that are fetched from DuckDB at a time."""


@dataclass(frozen=True)
class Answer:
    """An answer: the names of its columns, its first rows (``first`` takes their number), and all its rows."""

    columns: list[str]
    first: Callable[[int], Sequence[Sequence[Any]]]
    rows: Callable[[], Iterator[Sequence[Any]]]


@dataclass(frozen=True)
class By:
    """The choice of engine: ``engine`` is one of :data:`ENGINES`. ``master``, ``conf`` and ``debug`` are for Spark."""

    engine: str = "auto"
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    debug: bool = False

    def duckdb(self, space: StateSpace) -> bool:
        """Whether to try DuckDB first."""
        if self.engine == "duckdb":
            if find_spec("duckdb") is None or find_spec("sqlglot") is None:
                raise OptionError(f"engine duckdb needs duckdb and sqlglot: {how_to_install('query')}")
            if self.master is not None or self.conf:
                raise OptionError("master and conf are for engine spark")
            return True
        chosen = self.engine == "spark" or self.master is not None or self.conf or URL.match(str(space.directory))
        return not chosen and find_spec("duckdb") is not None and find_spec("sqlglot") is not None


@contextmanager
def answered(space: StateSpace, sql: str, by: By) -> Iterator[Answer]:
    """The answer to ``sql``: one SELECT over the tables ``states`` and ``edges``, or ``describe`` with one of them.

    Raises :class:`fencepost.OptionError` for SQL that cannot be parsed or is not such a query, and
    :class:`fencepost.SystemFailure` if no engine can answer.
    """
    described = _DESCRIBE.fullmatch(sql)
    if described:
        columns = _tables(space).get(described[1])
        if columns is None:
            raise names.no_table(space, described[1])
        yield _listed([(name, _type(kind), None) for name, kind in columns.items()])
        return
    with naming_extra("SQL", "query"):
        from fencepost.states.select import question
    with _answered(space, question(space, sql), by) as answer:
        yield answer


def where(space: StateSpace, condition: str, by: By) -> tuple[int, int] | None:
    """The first state that satisfies a condition, as (fingerprint, depth): the one with the least depth, then the least
    fingerprint.

    None if there is none. Raises as :func:`answered` does.
    """
    with naming_extra("SQL", "query"):
        from fencepost.states import select
    with _answered(space, select.condition(space, condition), by) as answer:
        return next(((row[0], row[1]) for row in answer.first(1)), None)


def spark_sql() -> Any:
    """Spark's module, imported by name: it depends on this package, and Spark may not be installed."""
    return import_module("fencepost.spark.sql")


@contextmanager
def _answered(space: StateSpace, question: str, by: By) -> Iterator[Answer]:
    answer = _by_duckdb(space, question, by)
    if answer is not None:
        yield answer
        return
    sql = spark_sql()
    with sql.session(by.master, by.conf, by.debug) as spark:
        frame = sql.ask(spark, space, question)

        def first(count: int) -> Any:
            with sql.explained(space):
                return frame.limit(count).collect()

        def rows() -> Iterator[Any]:
            with sql.explained(space):
                yield from frame.toLocalIterator()

        yield Answer(frame.columns, first, rows)


def _tables(space: StateSpace) -> dict[str, Mapping[str, Kind]]:
    """The columns of each table with their kinds."""
    return {"states": space.manifest.columns, **({} if space.manifest.edges is None else {"edges": EDGES})}


def _by_duckdb(space: StateSpace, question: str, by: By) -> Answer | None:
    """DuckDB's answer. None if only Spark can answer."""
    if not by.duckdb(space):
        return None
    import duckdb

    from fencepost.states.dialect import NoColumn, Otherwise, for_duckdb

    tables = _tables(space)
    types = {name: _type(kind) for name, kind in space.manifest.columns.items()}
    floats = [name for name, kind in types.items() if "double" in kind]
    try:
        translated, columns = for_duckdb(question, tables, floats)
    except NoColumn as error:
        raise names.no_column(space, str(error)) from None
    except Otherwise as error:
        must_be_for_spark(by, str(error))
        return None
    database = opened({table: (map(_quoted, columns), space.files(table)) for table, columns in tables.items()})
    try:
        answer = database.execute(translated)
    except duckdb.Error as error:
        must_be_for_spark(by, str(error))
        return None
    columns = columns or [column[0] for column in answer.description]

    def rows() -> Iterator[Sequence[Any]]:
        nonlocal answer
        taken, answer = answer or database.execute(translated), None
        while block := taken.fetchmany(BLOCK):
            yield from block

    def first(count: int) -> Sequence[Sequence[Any]]:
        return [row for row, _ in zip(rows(), range(count), strict=False)]

    return Answer(columns, first, rows)


def _type(kind: Kind) -> str:
    """Spark's name for the type of a column."""
    if not isinstance(kind, dict):
        return TYPES.get(str(kind), "string")
    if "struct" in kind:
        return f"struct<{','.join(f'{name}:{_type(part)}' for name, part in kind['struct'].items())}>"
    if is_keyed_by_parts(kind):
        return f"array<struct<key:{_type(kind['map'][0])},value:{_type(kind['map'][1])}>>"
    if "map" in kind:
        return f"map<{','.join(map(_type, kind['map']))}>"
    return f"array<{_type(kind.get('set', kind.get('list')))}>"


def _listed(columns: list[tuple[str, str, None]]) -> Answer:
    """The columns of a table, in the form of Spark's ``describe``."""
    return Answer(["col_name", "data_type", "comment"], lambda count: columns[:count], lambda: iter(columns))


def must_be_for_spark(by: By, why: str) -> None:
    """Leave a query to Spark. It also reports errors, since the query is Spark's SQL.

    Raises :class:`fencepost.OptionError` if the user chose DuckDB.
    """
    if by.engine == "duckdb":
        raise OptionError(
            f"DuckDB cannot answer that as Spark would ({why.splitlines()[0]}): leave out engine"
        ) from None


def opened(views: Mapping[str, tuple[Iterable[str], Sequence[str]]]) -> Any:
    """An in-memory database with ``views``: the columns of each, in DuckDB's SQL, and its files. It can read no other
    files.
    """
    import duckdb

    settings: dict[str, Any] = {
        "default_null_order": "nulls_first_on_asc_last_on_desc",
        "temp_directory": os.path.join(tempfile.gettempdir(), f"fencepost-duckdb-{os.getpid()}"),
        "python_enable_replacements": False,  # a name is never a Python variable
        "autoload_known_extensions": False,
    }
    database = duckdb.connect(config=settings)
    database.execute("set enable_progress_bar = false")
    for view, (columns, files) in views.items():
        listed = ", ".join(map(_text, files))
        database.execute(f"create view {view} as select {', '.join(columns)} from read_parquet([{listed}])")
    readable = [file for _, files in views.values() for file in files]
    database.execute(f"set allowed_paths = [{', '.join(map(_text, readable))}]")
    database.execute("set enable_external_access = false; set lock_configuration = true")
    return database


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
