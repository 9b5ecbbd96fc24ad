"""Validates queries, for either engine: one SELECT of Spark SQL over the tables of a state space, without side effects.

The parsed statement is checked. Its parts and functions must be listed here, and each table must belong to the state
space or to a CTE in scope. So a query cannot read another file, write, run a program or read the environment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokens import Token, TokenType

from fencepost.errors import OptionError
from fencepost.states import names
from fencepost.states.manifest import StateSpace

SPARK = "spark"

PARTS = (
    exp.Select, exp.From, exp.Where, exp.Group, exp.GroupingSets, exp.Rollup, exp.Cube, exp.Having, exp.Qualify,
    exp.Order, exp.Ordered, exp.Sort, exp.Cluster, exp.Distribute, exp.Limit, exp.Offset, exp.Distinct, exp.With,
    exp.CTE, exp.Subquery, exp.SetOperation, exp.Values, exp.Table, exp.TableAlias, exp.TableSample, exp.Join,
    exp.Lateral, exp.Pivot, exp.PivotAlias, exp.Alias, exp.Aliases, exp.Column, exp.Identifier, exp.Star, exp.Var,
    exp.Literal, exp.RawString, exp.HexString, exp.Boolean, exp.Null, exp.Interval, exp.Concat, exp.Tuple, exp.Bracket,
    exp.Unary, exp.Binary, exp.Predicate, exp.Any, exp.Case, exp.If, exp.Lambda, exp.Window, exp.WindowSpec,
    exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls, exp.Cast, exp.DataType, exp.DataTypeParam,
    exp.ColumnDef, exp.Anonymous, exp.Array, exp.Transform, exp.Substring, exp.Trim, exp.StrPosition, exp.Overlay,
)  # fmt: skip
"""The allowed parts of a query. None of them has a side effect."""

FUNCTIONS = frozenset(
    """
    any any_value approx_count_distinct approx_percentile array_agg avg bit_and bit_or bit_xor bool_and bool_or
    collect_list collect_set corr count count_if covar_pop covar_samp every first first_value grouping grouping_id
    histogram_numeric kurtosis last last_value listagg max max_by mean median min min_by mode percentile
    percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope
    regr_sxx regr_sxy regr_syy skewness some std stddev stddev_pop stddev_samp string_agg sum try_avg try_sum var_pop
    var_samp variance

    array array_append array_compact array_contains array_distinct array_except array_insert array_intersect array_join
    array_max array_min array_position array_prepend array_remove array_repeat array_size array_union arrays_overlap
    arrays_zip flatten get sequence shuffle slice sort_array cardinality concat element_at reverse size try_element_at
    map map_concat map_contains_key map_entries map_from_arrays map_from_entries map_keys map_values str_to_map
    named_struct struct
    aggregate array_sort exists filter forall map_filter map_zip_with reduce transform transform_keys transform_values
    zip_with
    explode explode_outer inline inline_outer posexplode posexplode_outer stack json_tuple
    cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number

    coalesce if ifnull nanvl nullif nullifzero nvl nvl2 zeroifnull equal_null isnan isnotnull isnull like ilike regexp
    regexp_like rlike bigint binary boolean decimal double float int smallint string tinyint typeof
    from_json get_json_object json_array_length json_object_keys schema_of_json to_json
    bit_count bit_get getbit shiftleft shiftright shiftrightunsigned crc32 hash md5 sha sha1 sha2 xxhash64

    abs acos acosh asin asinh atan atan2 atanh bin bround cbrt ceil ceiling conv cos cosh cot csc degrees e exp expm1
    factorial floor greatest hex hypot least ln log log10 log1p log2 mod negative pi pmod positive pow power radians
    rand randn random rint round sec sign signum sin sinh sqrt tan tanh try_add try_divide try_mod try_multiply
    try_subtract unhex uniform width_bucket

    ascii base64 bit_length btrim char char_length character_length chr concat_ws contains decode elt encode endswith
    find_in_set format_number format_string initcap instr lcase left len length levenshtein locate lower lpad ltrim mask
    octet_length overlay position printf quote regexp_count regexp_extract regexp_extract_all regexp_instr
    regexp_replace regexp_substr repeat replace right rpad rtrim sentences soundex space split split_part startswith
    substr substring substring_index to_binary to_char to_number to_varchar translate trim try_to_binary try_to_number
    ucase unbase64 upper
    """.split()
)
"""The functions that a query may call: those of Spark that compute only from their arguments, or at random. Others read
the environment, files or the session, or call a Java method by name.
"""


class _Parser(SparkParser):  # type: ignore[misc]
    """A parser of Spark SQL that keeps functions under their own names, except those with their own grammar."""

    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        name: parse
        for name, parse in SparkParser.FUNCTION_PARSERS.items()
        if name in ("CAST", "TRY_CAST", "TRIM", "SUBSTRING", "SUBSTR", "POSITION", "OVERLAY")
    }

    def _warn_unsupported(self) -> None:
        """Print no warning for a statement that is refused."""


def question(space: StateSpace, sql: str) -> str:
    """The text of a query to run in Spark SQL, without comments. Parts of the state need no quotes: see
    :func:`fencepost.states.names.quoted`.

    Raises :class:`fencepost.OptionError` for SQL that cannot be parsed, or is not a query of this state space.
    """
    text = names.quoted(sql, space.manifest.columns)
    with_edges = space.manifest.edges is not None
    try:
        tokens = _tokens(text)
        statements = _Parser(dialect=SPARK).parse(tokens, text)
        if len(statements) != 1 or not isinstance(statements[0], exp.Query | exp.Values):
            raise OptionError("a question is one SELECT, and this is something else")
        _judge(space, statements[0], {"states", "edges"} if with_edges else {"states"})
    except (SqlglotError, RecursionError) as error:
        raise _unreadable(error) from None
    return _joined(text, tokens)


def condition(space: StateSpace, sql: str) -> str:
    """The query for the fingerprint and the depth of the first state that satisfies a condition, which is one
    expression. The first state has the least depth, then the least fingerprint.

    Raises as :func:`question` does.
    """
    text = names.quoted(sql, space.manifest.columns)
    try:
        tokens = _tokens(text)
        if len(_Parser(dialect=SPARK).parse_into(exp.Condition, tokens, text)) != 1:
            raise OptionError("a condition is one expression, and this is something else")
    except (SqlglotError, RecursionError) as error:
        raise _unreadable(error) from None
    where = _joined(text, tokens)
    return question(space, f"select fingerprint, depth from states where ({where}) order by depth, fingerprint limit 1")


def _tokens(text: str) -> list[Token]:
    """The tokens of one statement, without a final semicolon."""
    tokens: list[Token] = sqlglot.tokenize(text, read=SPARK)
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        raise OptionError("a question is one SELECT, and this is nothing")
    return tokens


def _joined(text: str, tokens: Sequence[Token]) -> str:
    """The text of these tokens without comments, since engines differ in where a comment ends."""
    pieces, end = [], tokens[0].start
    for token in tokens:
        pieces += [" "] * (token.start > end) + [text[token.start : token.end + 1]]
        end = token.end + 1
    return "".join(pieces)


def _judge(space: StateSpace, statement: exp.Expr, tables: Collection[str]) -> None:
    for node, known in _scoped(statement, frozenset(tables)):
        if isinstance(node, exp.Table):
            args = {name for name, value in node.args.items() if value}
            parts = [part.name for part in node.parts]
            if not isinstance(node.this, exp.Identifier):
                raise OptionError("a question is about tables, and no function takes the place of one")
            if len(parts) != 1 or parts[0] not in known:
                raise names.no_table(space, ".".join(parts))
            if not args <= {"this", "alias", "joins", "laterals", "pivots", "sample"}:
                raise OptionError(f"a question takes the table {parts[0]} as it is")
        elif isinstance(node, exp.Dot) and isinstance(node.expression, exp.Func):
            raise OptionError(f"a question cannot call {node.expression.name}: its functions are Spark's own")
        elif isinstance(node, exp.Anonymous):
            if node.name.lower() not in FUNCTIONS:
                raise OptionError(f"a question cannot call {node.name}: it computes, and does nothing else")
        elif not isinstance(node, PARTS):
            raise OptionError(f"a question has no {type(node).key.upper()}: it is a SELECT that computes")


def _scoped(statement: exp.Expr, tables: frozenset[str]) -> Iterator[tuple[exp.Expr, frozenset[str]]]:
    """Every part of a statement, with the tables in its scope: a CTE from the end of its definition to the end of its
    query, and in its own definition if it is recursive.
    """
    left: list[tuple[exp.Expr, frozenset[str]]] = [(statement, tables)]
    while left:
        node, known = left.pop()
        yield node, known
        with_clause = node.args.get("with_")
        if with_clause is not None:
            yield with_clause, known
            for cte in with_clause.expressions:
                after = known | {cte.alias}
                left.append((cte, after if with_clause.recursive else known))
                known = after
        left += [(child, known) for child in node.iter_expressions() if child is not with_clause]


def _unreadable(error: Exception) -> OptionError:
    if isinstance(error, RecursionError):
        return OptionError("the SQL cannot be read: it is nested too deeply")
    if isinstance(error, ParseError) and error.errors:
        details = error.errors[0]
        return OptionError(f"the SQL cannot be read at {details['highlight']!r}, line {details['line']}")
    return OptionError("the SQL cannot be read: a quote or a comment has no end")
