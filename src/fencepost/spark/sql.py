"""The table of a state space in Spark SQL."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from fencepost.errors import OptionError, SystemFailure, naming_extra
from fencepost.spark.cluster import Cluster
from fencepost.spark.session import beside, reason
from fencepost.states import names
from fencepost.states.kinds import Kind, is_keyed_by_parts
from fencepost.states.manifest import EDGES, StateSpace

PARTITIONS_PER_CORE = 2

OWN = {
    "spark.sql.caseSensitive": "true",  # x and X are different parts of a state
    "spark.sql.variable.substitute": "false",  # ${env:HOME} is plain text
}
"""The settings of a session for queries."""


def states(spark: Any, directory: Path | str) -> Any:
    """Every state in ``directory`` as a DataFrame: ``fingerprint``, ``depth``, ``parent``, ``action``, ``parameters``,
    and a column for each part of the state. Quote a name with a dot: ``df["`bookie.b1.fenced`"]``.

    Raises :class:`fencepost.SystemFailure` if there is no state space.
    """
    space = StateSpace(directory)
    return _table(spark, space, "states", space.manifest.columns)


def edges(spark: Any, directory: Path | str) -> Any:
    """Every step in ``directory`` as a DataFrame: ``source``, ``target``, ``action``, ``parameters``.

    Raises :class:`fencepost.SystemFailure` if there is no state space, or if it was written without its steps.
    """
    space = StateSpace(directory)
    if space.manifest.edges is None:
        raise SystemFailure(f"{directory} holds no steps: write them with fencepost check --states DIR --edges")
    return _table(spark, space, "edges", EDGES)


def _table(spark: Any, space: StateSpace, table: str, columns: Mapping[str, Kind]) -> Any:
    from pyspark.sql import types

    schema = types.StructType([types.StructField(name, _type(kind)) for name, kind in columns.items()])
    reader = spark.read.schema(schema).option("parquet.page.verify-checksum.enabled", True)
    return reader.parquet(*space.files(table))


def _type(kind: Kind) -> Any:
    """The Spark type of a column."""
    from pyspark.sql import types

    if not isinstance(kind, dict):
        scalars = {"int": types.LongType(), "bool": types.BooleanType(), "float": types.DoubleType()}
        return scalars.get(str(kind), types.StringType())
    if "struct" in kind:
        return types.StructType([types.StructField(name, _type(part)) for name, part in kind["struct"].items()])
    if is_keyed_by_parts(kind):
        entry = [types.StructField(name, _type(part)) for name, part in zip(("key", "value"), kind["map"], strict=True)]
        return types.ArrayType(types.StructType(entry))
    if "map" in kind:
        return types.MapType(*map(_type, kind["map"]))
    return types.ArrayType(_type(kind.get("set", kind.get("list"))))


@contextmanager
def session(master: str | None = None, conf: Mapping[str, str] | None = None, debug: bool = False) -> Iterator[Any]:
    """A new Spark session for queries. Raises :class:`fencepost.OptionError` if the libraries that Spark needs are not
    installed, and :class:`fencepost.SystemFailure` if Spark cannot start.
    """
    with naming_extra("Spark", "spark"):
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    from pyspark.logger import PySparkLogger

    # This logger would repeat every error in a query.
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = not debug
    with closing(Cluster(master, conf, debug)) as cluster:
        partitions = str(PARTITIONS_PER_CORE * cluster.cores)
        yield cluster.session_with({"spark.sql.shuffle.partitions": partitions, **OWN})


def query(spark: Any, directory: Path | str, sql: str) -> Any:
    """The result of ``sql``, one SELECT over the tables ``states`` and ``edges`` in ``directory``, as a DataFrame.
    Parts of the state need no quotes: ``select bookie.b1.fenced from states``. The two tables are temporary views of a
    new session beside ``spark``, which stays unchanged.

    Raises :class:`fencepost.SystemFailure` if there is no state space, and :class:`fencepost.OptionError` for SQL that
    cannot be parsed, is not a single SELECT, or names columns that do not exist.
    """
    with naming_extra("SQL", "query"):
        from fencepost.states.select import question
    space = StateSpace(directory)
    asked = question(space, sql)
    return ask(beside(spark, OWN, {}), space, asked)


def ask(spark: Any, space: StateSpace, question: str) -> Any:
    """The result of a query from :func:`fencepost.states.select.question`. Defines views in the session ``spark``."""
    states(spark, space.directory).createOrReplaceTempView("states")
    if space.manifest.edges is not None:
        edges(spark, space.directory).createOrReplaceTempView("edges")
    with explained(space):
        return spark.sql(question)


@contextmanager
def explained(space: StateSpace) -> Iterator[None]:
    """Turn an error of Spark into one of a single line."""
    from pyspark.errors import AnalysisException, PySparkException

    try:
        yield
    except AnalysisException as error:  # and ParseException, its subclass
        raise _objection(space, error) from error
    except PySparkException as error:
        raise OptionError(f"Spark cannot answer that: {_first_line(error)}") from error
    except SystemFailure:
        raise
    except Exception as error:
        raise SystemFailure(f"Spark failed: {reason(error)}") from error


def _objection(space: StateSpace, error: Any) -> OptionError:
    condition, parameters = error.getCondition() or "", error.getMessageParameters() or {}
    name = str(parameters.get("objectName", parameters.get("relationName", ""))).replace("`", "")
    if condition.startswith("UNRESOLVED_COLUMN"):
        return names.no_column(space, name)
    if condition.startswith("TABLE_OR_VIEW_NOT_FOUND"):
        return names.no_table(space, name)
    unreadable = "the SQL cannot be read: " if condition.startswith("PARSE") else ""
    return OptionError(f"{unreadable}{_first_line(error)}")


def _first_line(error: Any) -> str:
    """Spark's message, without its code, SQL state and advice."""
    text = str(getattr(error, "getMessage", lambda: error)() or error)
    line = next(line for line in text.splitlines() if line.strip())
    return re.sub(r"^\[[A-Z_.]+\] ", "", re.sub(r" SQLSTATE: \w+.*$", "", line)).strip()
