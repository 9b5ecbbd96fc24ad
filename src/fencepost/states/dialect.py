"""Translates Spark SQL to DuckDB, where both are known to mean the same.

Queries of a state space are in Spark SQL, and both engines must give the same answer. So a query is translated only if
every part of it is listed here. Spark answers all others: those that mean something else to DuckDB, and those that
nobody has compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import sqlglot
from sqlglot import exp

SAME = (
    exp.Select, exp.From, exp.Where, exp.Group, exp.Having, exp.Order, exp.Ordered, exp.Limit, exp.Offset, exp.Distinct,
    exp.CTE,
    exp.Subquery, exp.Union, exp.Intersect, exp.Except, exp.Exists, exp.Table, exp.TableAlias, exp.Alias, exp.Column,
    exp.Identifier, exp.Star,
    exp.Var, exp.Boolean, exp.Null, exp.Paren, exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT,
    exp.LTE, exp.NullSafeEQ,
    exp.NullSafeNEQ, exp.Is, exp.In, exp.Between, exp.Case, exp.If, exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.DPipe,
    exp.Coalesce, exp.Nullif,
    exp.Greatest, exp.Least, exp.Abs, exp.Upper, exp.Lower, exp.Length, exp.Min, exp.Max, exp.Sum, exp.Avg,
    exp.LogicalOr, exp.LogicalAnd,
    exp.Array, exp.ArraySize, exp.ArrayFilter, exp.Lambda, exp.Lateral, exp.Explode, exp.Posexplode, exp.DataType,
)  # fmt: skip
"""Expressions that mean the same in both engines everywhere. Many others do under a condition: see
:data:`UNDER_CONDITION`.
"""


def _number(node: exp.Expression | None, least: int) -> bool:
    """Whether it is a literal whole number of at least ``least``."""
    return isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdigit() and int(node.this) >= least


def _plain_pattern(node: exp.Expression | None) -> bool:
    """Whether it is a regular expression that means the same to Java and to RE2, and cannot match the empty string."""
    if not isinstance(node, exp.Literal) or not re.fullmatch(r"[\w\s\[\]^=,;:⟨⟩{}().+|-]+", str(node.this)):
        return False
    try:
        return re.fullmatch(str(node.this), "") is None
    except re.error:
        return False


def _plain_type(kind: exp.DataType) -> bool:
    return kind.this in (exp.DType.TEXT, exp.DType.INT, exp.DType.BIGINT, exp.DType.BOOLEAN)


UNDER_CONDITION: dict[type[exp.Expression], Callable[[exp.Expression], bool]] = {
    exp.Literal: lambda n: n.is_string or _number(n, 0),  # other numbers are printed differently
    exp.Like: lambda n: isinstance(n.expression, exp.DPipe | exp.Literal) and "\\" not in n.sql("spark"),
    exp.With: lambda n: not n.recursive,
    exp.Join: lambda n: not n.args.get("using") and n.method != "NATURAL",
    exp.Count: lambda n: not n.expressions and (not isinstance(n.this, exp.Distinct) or len(n.this.expressions) == 1),
    exp.CountIf: lambda n: True,
    exp.Div: lambda n: True,
    exp.Mod: lambda n: _number(n.expression, 1),
    exp.Left: lambda n: _number(n.expression, 0),
    exp.Right: lambda n: _number(n.expression, 0),
    exp.Substring: lambda n: (
        _number(n.args.get("start"), 1) and _number(n.args.get("length") or exp.Literal.number(0), 0)
    ),
    exp.RegexpSplit: lambda n: _plain_pattern(n.expression) and not n.args.get("limit"),
    exp.ArrayContains: lambda n: isinstance(n.expression, exp.Literal | exp.Cast),
    exp.Cast: lambda n: _plain_type(n.to),
    exp.TryCast: lambda n: _plain_type(n.to),
}
"""Expressions that mean the same in both engines if the condition holds, or that :func:`_translate` translates."""

AGGREGATES = {
    exp.Count: "count",
    exp.Min: "min",
    exp.Max: "max",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.LogicalOr: "bool_or",
    exp.LogicalAnd: "bool_and",
}


class Otherwise(Exception):
    """Only Spark can answer this query. The message says why."""


class NoColumn(Exception):
    """A query names a column that does not exist. The message is its name."""


def for_duckdb(sql: str, tables: Mapping[str, Iterable[str]], floats: Iterable[str]) -> tuple[str, list[str]]:
    """Translate a query from :func:`fencepost.states.select.question` to DuckDB. Also returns the names of the answer's
    columns. ``tables``: the columns of each table. ``floats``: columns of fractional numbers, which the engines print
    differently.

    Raises :class:`Otherwise` if only Spark can answer, and :class:`NoColumn`.
    """
    try:
        return _for_duckdb(sqlglot.parse_one(sql, read="spark"), tables, floats)
    except (sqlglot.errors.SqlglotError, ValueError, RecursionError) as error:
        raise Otherwise(str(error)) from None


def _for_duckdb(query: exp.Expr, tables: Mapping[str, Iterable[str]], floats: Iterable[str]) -> tuple[str, list[str]]:
    if not isinstance(query, exp.Select | exp.SetOperation):
        raise Otherwise("no query")
    for node in query.walk():
        condition = UNDER_CONDITION.get(type(node))
        if not (isinstance(node, SAME) if condition is None else condition(node)):
            raise Otherwise(f"{type(node).__name__} may mean something else to DuckDB")
    _must_be_known(query, tables, set(floats))
    names = _names(query)
    _translate(query)
    return query.sql("duckdb"), names


def _must_be_known(query: exp.Query, tables: Mapping[str, Iterable[str]], fractional: set[str]) -> None:
    columns = {name for known in tables.values() for name in known}
    for kind in (columns, {*tables, *(cte.alias for cte in query.find_all(exp.CTE))}):
        if len({name.lower() for name in kind}) < len(kind):
            raise Otherwise("names that differ in capitals only, which are one to DuckDB")
    aliases = [alias.alias for alias in query.find_all(exp.Alias)]
    aliases += [name.name for alias in query.find_all(exp.TableAlias) for name in alias.columns]
    held = {parameter.name for function in query.find_all(exp.Lambda) for parameter in function.expressions}
    used = {column.name: column for column in query.find_all(exp.Column) if not isinstance(column.this, exp.Star)}
    if not fractional.isdisjoint(used):
        raise Otherwise("numbers that are not whole")
    unknown = used.keys() - columns - set(aliases) - held
    if any(
        part.name in columns or part.name in aliases or part.name in held
        for name in unknown
        for part in used[name].parts
    ):
        raise Otherwise("a part of a value")
    if unknown:
        raise NoColumn(min(".".join(part.name for part in used[name].parts) for name in unknown))
    renamed = {
        alias.alias
        for alias in query.find_all(exp.Alias)
        if not (isinstance(alias.this, exp.Column) and alias.this.name == alias.alias)
    }
    for clause in (*query.find_all(exp.Having), *query.find_all(exp.Group)):
        if any(column.name in renamed & columns for column in clause.find_all(exp.Column)):
            raise Otherwise("a name that is a column's and another's")


def _translate(query: exp.Query) -> None:
    """Rewrite expressions that the two engines evaluate differently."""
    for node in list(query.find_all(exp.CountIf)):  # over nulls alone it is null in DuckDB
        node.replace(exp.Filter(this=exp.Count(this=exp.Star()), expression=exp.Where(this=node.this.copy())))
    for node in list(query.find_all(exp.ArrayContains)):  # Spark returns null if the list has a null
        there, count = node.this.copy(), exp.func("list_count", node.this.copy())
        unsure = exp.If(this=exp.GT(this=exp.func("len", there), expression=count), true=exp.null())
        node.replace(exp.Paren(this=exp.Or(this=node.copy(), expression=exp.Case(ifs=[unsure], default=exp.false()))))
    for node in list(query.find_all(exp.TryCast)):  # the parser reads a cast as this; Spark reports a failed cast
        node.replace(exp.Cast(this=node.this.copy(), to=node.to.copy()))
    for node in reversed(
        list(query.find_all(exp.Div, bfs=True))
    ):  # division by zero is null in DuckDB, an error in Spark
        if _number(node.expression, 1):
            continue
        by = exp.Paren(this=node.expression.copy())
        fails = exp.If(
            this=exp.EQ(this=by, expression=exp.Literal.number(0)),
            true=exp.func("error", exp.Literal.string("division by zero")),
        )
        node.replace(exp.Paren(this=exp.Case(ifs=[fails], default=node.copy())))


def _names(query: exp.Query) -> list[str]:
    """Spark's names for the columns of an answer. Empty if DuckDB uses the same."""
    first = query
    while isinstance(first, exp.SetOperation):
        first = first.this
    if not isinstance(first, exp.Select):
        raise Otherwise("no list of columns")
    if any(
        isinstance(one, exp.Star) or (isinstance(one, exp.Column) and isinstance(one.this, exp.Star))
        for one in first.expressions
    ):
        if len(first.expressions) > 1:
            raise Otherwise("all columns and others")
        return []
    return [_name(one) for one in first.expressions]


def _name(node: exp.Expression) -> str:
    if isinstance(node, exp.Alias | exp.Column):
        return str(node.alias_or_name)
    if isinstance(node, exp.Literal):
        return str(node.this)
    called = AGGREGATES.get(type(node))
    if called is not None:
        of = node.this
        if isinstance(of, exp.Star):
            return f"{called}(1)"
        if isinstance(of, exp.Distinct) and isinstance(of.expressions[0], exp.Column):
            return f"{called}(DISTINCT {of.expressions[0].name})"
        if isinstance(of, exp.Column):
            return f"{called}({of.name})"
    raise Otherwise("a column of the answer without a name")
