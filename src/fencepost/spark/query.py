"""A state space that was written down, in Spark SQL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from fencepost.errors import OptionError, SystemFailure
from fencepost.spark.cluster import Cluster
from fencepost.spark.session import reason
from fencepost.states.kinds import Kind
from fencepost.states.manifest import EDGES, StateSpace

PARTITIONS_PER_CORE = 2

_TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"]|"")*"|`[^`]*`|--[^\n]*|\w+|.""", re.DOTALL)
"""What SQL is cut into to find the names of columns outside of strings, quoted names and comments."""


def states(spark: Any, directory: Path | str) -> Any:
    """Every state in ``directory`` as a DataFrame: ``fingerprint``, ``depth``, ``parent``, ``action``, ``parameters``, and a column for each part
    of the state. A name with a dot is to be quoted: ``df["`bookie.b1.fenced`"]``.

    Raises :class:`fencepost.SystemFailure` if there is no state space.
    """
    space = StateSpace(directory)
    return _table(spark, space, "states", space.manifest.columns)


def edges(spark: Any, directory: Path | str) -> Any:
    """Every step in ``directory`` as a DataFrame: ``source``, ``target``, ``action``, ``parameters``.

    Raises :class:`fencepost.SystemFailure` if there is no state space, or one that was written without its steps.
    """
    space = StateSpace(directory)
    if space.manifest.edges is None:
        raise SystemFailure(f"{directory} holds no steps: write them with fencepost check --states DIR --edges")
    return _table(spark, space, "edges", EDGES)


def _table(spark: Any, space: StateSpace, table: str, columns: Mapping[str, Kind]) -> Any:
    from pyspark.sql import types

    schema = types.StructType([types.StructField(name, _type(kind)) for name, kind in columns.items()])
    return spark.read.schema(schema).parquet(*space.files(table))


def _type(kind: Kind) -> Any:
    """The type of a column in Spark."""
    from pyspark.sql import types

    if not isinstance(kind, dict):
        scalars = {"int": types.LongType(), "bool": types.BooleanType(), "float": types.DoubleType()}
        return scalars.get(str(kind), types.StringType())
    if "struct" in kind:
        return types.StructType([types.StructField(name, _type(part)) for name, part in kind["struct"].items()])
    if "map" in kind:
        return types.MapType(*map(_type, kind["map"]))
    return types.ArrayType(_type(kind.get("set", kind.get("list"))))


@contextmanager
def session(master: str | None = None, debug: bool = False) -> Iterator[Any]:
    """A Spark session of its own for questions. Raises :class:`fencepost.SystemFailure` if there is no Spark."""
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise SystemFailure(f"this needs {error.name}: pip install 'fencepost[spark]'") from None
    from pyspark.logger import PySparkLogger

    # It tells every mistake in SQL a second time.
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = not debug
    cluster = Cluster(master, debug=debug)
    try:
        spark = cluster.session.newSession()
        # The engine sends blocks of its own; what a question asks for is for Spark to plan. x and X are two parts of a state.
        spark.conf.set("spark.sql.adaptive.enabled", "true")
        spark.conf.set("spark.sql.shuffle.partitions", str(PARTITIONS_PER_CORE * cluster.cores))
        spark.conf.set("spark.sql.caseSensitive", "true")
        yield spark
    finally:
        cluster.close()


def ask(spark: Any, space: StateSpace, sql: str) -> Any:
    """The answer to ``sql`` over the views ``states`` and ``edges``, as a DataFrame.

    Raises :class:`fencepost.OptionError` for SQL that does not parse or asks for what there is not.
    """
    states(spark, space.directory).createOrReplaceTempView("states")
    if space.manifest.edges is not None:
        edges(spark, space.directory).createOrReplaceTempView("edges")
    with explained(space):
        return spark.sql(quoted(sql, space.manifest.columns))


def where(spark: Any, space: StateSpace, condition: str) -> tuple[int, int] | None:
    """The first state that satisfies a condition, as (fingerprint, depth): the least deep, of those the one with the least fingerprint.

    None if there is none. Raises :class:`fencepost.OptionError` for a condition that Spark does not understand.
    """
    with explained(space):
        found = states(spark, space.directory).where(quoted(condition, space.manifest.columns))
        first = found.select("fingerprint", "depth").orderBy("depth", "fingerprint").first()
    return None if first is None else (first.fingerprint, first.depth)


def quoted(sql: str, columns: Iterable[str]) -> str:
    """SQL in which parts of the state may be written as they are: ``bookie.b1.fenced`` is one column and needs no quotes. It may have
    those of standard SQL, ``"bookie.b1.fenced"``, as well as Spark's own.
    """
    names = sorted((name for name in columns if not re.fullmatch(r"\w+", name)), key=len, reverse=True)
    told, at = [], 0
    while at < len(sql):
        name = next((n for n in names if sql.startswith(n, at) and not re.match(r"\w", sql[at + len(n) :])), None)
        if name is not None:
            told.append(_backquoted(name))
            at += len(name)
            continue
        token = _TOKEN.match(sql, at)
        assert token is not None
        told.append(_backquoted(token[0][1:-1].replace('""', '"')) if len(token[0]) > 1 and token[0][0] == '"' else token[0])
        at = token.end()
    return "".join(told)


def _backquoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


@contextmanager
def explained(space: StateSpace) -> Iterator[None]:
    """Says in one line what Spark objects to."""
    from pyspark.errors import AnalysisException, PySparkException

    try:
        yield
    except AnalysisException as error:  # and ParseException, which is one
        raise OptionError(_objection(space, error)) from error
    except PySparkException as error:
        raise OptionError(f"Spark can not answer that: {_first_line(error)}") from error
    except SystemFailure:
        raise
    except Exception as error:
        raise SystemFailure(f"Spark failed: {reason(error)}") from error


def _objection(space: StateSpace, error: Any) -> str:
    condition, parameters = error.getCondition() or "", error.getMessageParameters() or {}
    name = str(parameters.get("objectName", parameters.get("relationName", ""))).replace("`", "")
    if condition.startswith("UNRESOLVED_COLUMN"):
        known = [*space.manifest.columns, *(EDGES if space.manifest.edges is not None else ())]
        near = get_close_matches(name, known, n=3, cutoff=0.5)
        return f"there is no column {name}: " + (f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known[:12])} and others")
    if condition.startswith("TABLE_OR_VIEW_NOT_FOUND"):
        if name == "edges":
            return f"{space.directory} holds no steps: write them with fencepost check --states DIR --edges"
        return f"there is no table {name}: there are states and edges"
    if condition.startswith("PARSE"):
        return f"the SQL can not be read: {_first_line(error)}"
    return _first_line(error)


def _first_line(error: Any) -> str:
    """What Spark says, without its code, its state and its advice."""
    text = str(getattr(error, "getMessage", lambda: error)() or error)
    line = next(line for line in text.splitlines() if line.strip())
    return re.sub(r"^\[[A-Z_.]+\] ", "", re.sub(r" SQLSTATE: \w+.*$", "", line)).strip()
