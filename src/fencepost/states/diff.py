"""Compares two state spaces: the states that only one of them has.

The comparison is written once, in SQL that DuckDB and Spark both accept. It names the parts of the state ``p0``,
``p1``, ..., because the engines differ in the quoting and the case of names. Each engine provides the tables, with
structured values as JSON, so that values of two tables are comparable even if their column types differ in empty parts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fencepost.errors import OptionError
from fencepost.states.kinds import Kind, agree, from_column, inner, text
from fencepost.states.manifest import StateSpace
from fencepost.states.queries import By, must_be_for_spark, opened, spark_sql

MOST_VALUES = 8
"""The most values that are listed for a part of the state and only one side."""


@dataclass(frozen=True)
class Side:
    """The difference of two state spaces: rows that only one of them has.

    ``distinct``: the number of its states, projected on the common parts. ``only``: the number of those that the other
    one lacks. ``nearest``: the fingerprint and the depth of the first of them. ``values``: some of the values that a
    part holds only here, by part.
    """

    space: StateSpace
    distinct: int
    only: int
    nearest: tuple[int, int] | None
    values: dict[str, list[Any]]


@dataclass(frozen=True)
class Difference:
    """The difference of two state spaces. Parts of the state that only one has, or that have other kinds of values, are
    not compared.
    """

    sides: tuple[Side, Side]
    common: int
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class Tables:
    """An engine with the states of both sides as ``states_0`` and ``states_1``: ``fingerprint``, ``depth``, and the
    compared parts.

    ``rows`` answers a query, and ``keep`` stores its answer as a table. ``collect_set`` must be an aggregate: the list
    of distinct values that are not null.
    """

    rows: Callable[[str], Sequence[Sequence[Any]]]
    keep: Callable[[str, str], None]


def difference(one: StateSpace, other: StateSpace, by: By, parts: Sequence[str] = ()) -> Difference:
    """The rows that only one of two state spaces has. ``parts``: compare only these parts of the state, and all parts
    below them (``bookie`` includes ``bookie.b1.fenced``).

    Raises :class:`fencepost.OptionError` if they have no parts in common, and :class:`fencepost.SystemFailure` if no
    engine can answer.
    """
    every = [
        name for name in {**one.parts, **other.parts} if not parts or any(_is_within(name, part) for part in parts)
    ]
    for part in parts:
        if not any(_is_within(name, part) for name in every):
            known = dict.fromkeys(name.partition(".")[0] for name in one.parts)
            raise OptionError(
                f"there is no part {part} of the state: there are {', '.join(known)}, and what is below them"
            )
    shared = [
        name
        for name in every
        if name in one.parts and name in other.parts and agree(one.parts[name], other.parts[name])
    ]
    if not shared:
        raise OptionError(f"{one.directory} and {other.directory} have no part of the state in common")
    spaces = (one, other)
    sides = _by_duckdb(spaces, shared, by)
    if sides is None:
        with _on_spark(spaces, shared, by) as tables:
            sides = _compared(tables, spaces, shared)
    left_out = [name for name in every if name not in shared]
    return Difference(sides, sides[0].distinct - sides[0].only, tuple(left_out))


# -- the comparison ---------------------------------------------------------------------------------------------------


def _compared(tables: Tables, spaces: tuple[StateSpace, StateSpace], shared: list[str]) -> tuple[Side, Side]:
    columns = ", ".join(f"p{place}" for place in range(len(shared)))
    for side in (0, 1):
        tables.keep(f"distinct_{side}", f"select distinct {columns} from states_{side}")
    return _side(tables, spaces[0], 0, shared), _side(tables, spaces[1], 1, shared)


def _side(tables: Tables, space: StateSpace, side: int, shared: list[str]) -> Side:
    mine, only, theirs = f"distinct_{side}", f"only_{side}", f"distinct_{1 - side}"
    tables.keep(only, f"select * from {mine} except select * from {theirs}")
    ((distinct,),) = tables.rows(f"select count(*) from {mine}")
    ((count,),) = tables.rows(f"select count(*) from {only}")
    if not count:
        return Side(space, distinct, 0, None, {})
    same = " and ".join(f"s.p{place} is not distinct from o.p{place}" for place in range(len(shared)))
    ((fingerprint, depth),) = tables.rows(
        f"select fingerprint, depth from states_{side} s semi join {only} o on {same} order by depth, fingerprint"
        " limit 1"
    )
    sets = ", ".join(f"collect_set(p{place})" for place in range(len(shared)))
    (*here,), (*there,) = (tables.rows(f"select {sets} from {table}")[0] for table in (only, theirs))
    values = {}
    for name, held, known in zip(shared, here, there, strict=True):
        only_here = sorted(_shown(value, space.parts[name]) for value in set(held or ()).difference(known or ()))
        if only_here:
            values[name] = only_here[:MOST_VALUES]
    return Side(space, distinct, count, (fingerprint, depth), values)


def _shown(value: Any, kind: Kind) -> Any:
    return text(from_column(json.loads(value), kind), kind) if isinstance(kind, dict) else value


def _is_within(name: str, part: str) -> bool:
    return name == part or name.startswith((f"{part}.", f"{part}["))


# -- the engines ------------------------------------------------------------------------------------------------------


def _by_duckdb(spaces: tuple[StateSpace, StateSpace], shared: list[str], by: By) -> tuple[Side, Side] | None:
    """DuckDB's comparison. None if only Spark can compare."""
    if not (by.duckdb(spaces[0]) and by.duckdb(spaces[1])):
        return None
    import duckdb

    unlike = next((why for space in spaces if (why := _unlike(space, shared))), None)
    if unlike is not None:
        must_be_for_spark(by, unlike)
        return None
    views = {
        f"states_{side}": (_columns(space, shared, '"', "cast(to_json({}) as varchar)"), space.files("states"))
        for side, space in enumerate(spaces)
    }
    try:
        with opened(views) as database:
            database.execute("create macro collect_set(x) as list(distinct x) filter (where x is not null)")

            def rows(sql: str) -> Any:
                return database.execute(sql).fetchall()

            def keep(name: str, sql: str) -> None:
                database.execute(f"create temp table {name} as {sql}")

            return _compared(Tables(rows, keep), spaces, shared)
    except duckdb.Error as error:
        must_be_for_spark(by, str(error))
        return None


def _unlike(space: StateSpace, shared: list[str]) -> str | None:
    """Why DuckDB may read other values than Spark. None if it reads the same."""
    if _differ_in_capitals(space.manifest.columns):
        return "names that differ in capitals only, which are one to DuckDB"
    return next((why for name in shared if (why := _unlike_inside(space.parts[name]))), None)


def _unlike_inside(kind: Kind) -> str | None:
    if not isinstance(kind, dict):
        return "numbers that are not whole" if kind == "float" else None
    if _differ_in_capitals(kind.get("struct", ())):
        return "fields whose names differ in capitals only, which are one to DuckDB"
    return next((why for part in inner(kind) if (why := _unlike_inside(part))), None)


def _differ_in_capitals(names: Collection[str]) -> bool:
    return len({name.lower() for name in names}) < len(names)


@contextmanager
def _on_spark(spaces: tuple[StateSpace, StateSpace], shared: list[str], by: By) -> Iterator[Tables]:
    sql = spark_sql()
    kept: list[Any] = []
    with sql.session(by.master, by.conf, by.debug) as spark, sql.explained(spaces[0]):

        def rows(query: str) -> Any:
            return spark.sql(query).collect()

        def keep(name: str, query: str) -> None:
            kept.append(spark.sql(query).cache())
            kept[-1].createOrReplaceTempView(name)

        try:
            for side, space in enumerate(spaces):
                columns = _columns(space, shared, "`", "to_json({}, map('ignoreNullFields', 'false'))")
                sql.states(spark, space.directory).selectExpr(*columns).createOrReplaceTempView(f"states_{side}")
            yield Tables(rows, keep)
        finally:
            for table in kept:
                table.unpersist()


def _columns(space: StateSpace, shared: list[str], quote: str, json_of: str) -> list[str]:
    """The compared columns of one side, in an engine's SQL. ``quote`` is its quote for names. ``json_of`` is its
    template for JSON.
    """
    columns = ["fingerprint", "depth"]
    for place, name in enumerate(shared):
        value = quote + name.replace(quote, quote * 2) + quote
        columns.append(f"{json_of.format(value) if isinstance(space.parts[name], dict) else value} as p{place}")
    return columns
