"""Queries of a state space: judged without an engine, then run by both engines."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from states.tables import written

from fencepost import OptionError
from fencepost.language.loading import shipped
from fencepost.states import select
from fencepost.states.manifest import StateSpace
from fencepost.states.queries import By, answered, opened, where

SPACE: Any = SimpleNamespace(
    manifest=SimpleNamespace(columns={"depth": "int", "a": "int", "meta.status": "text"}, edges=1), directory="space"
)

QUESTIONS = (
    "select count(*) from states",
    "(select 1)",
    "values (1, 2), (3, 4)",
    "select * from values (1), (2) as t(x)",
    "select * from states s join edges e on s.fingerprint = e.source -- and no more",
    "select * from states, edges where depth in (select depth from states) or exists (select 1 from edges)",
    "select 1 union all (select 2 minus select 3) order by 1 limit 3 offset 1;",
    "with deep as (select * from states where depth > 3), more as (select * from deep) select * from more, deep",
    "with states as (select * from states where a = 1) select * from states",
    "with recursive r(n) as (select 1 union all select n + 1 from r where n < 9) select * from r",
    "select row_number() over (partition by a order by depth rows between 1 preceding and current row) n from states",
    "select first_value(a ignore nulls) over w from states window w as (order by depth)",
    "select part, at from states lateral view outer posexplode(split(meta.status, '[_L]+')) as at, part",
    "select filter(x, y -> y > 1), transform(x, (y, i) -> y + i), aggregate(x, 0, (m, n) -> m + n) from states",
    "select cast(a as struct<x: int, y: array<string>>).y[0], map('k', 1)['k'], struct(a, depth).a from states",
    "select * from states pivot (count(*) for depth in (1, 2))",
    "select a, count(*) filter (where depth > 1) from states group by rollup(a) having count(*) > 1",
    "select listagg(a, ',') within group (order by a), percentile(a, 0.5) from states tablesample (10 percent)",
    "select trim(both 'x' from a), substring(a from 2), position('x' in a), 'it''s', r'\\d', a like any ('x', 'y') from"
    " states",
    "select array(1, 2)[0], size(array(a, depth)) from states",
    "select * except (a) from states cross join lateral (select depth + 1)",
)

HOSTILE = {
    "": "this is nothing",
    ";": "this is nothing",
    "selec 1": "cannot be read at '1', line 1",
    "select 'open": "a quote or a comment has no end",
    "select " + "(" * 5000 + "1" + ")" * 5000: "nested too deeply",
    "select 1; select 2": "one SELECT",
    "select 1; drop table states": "one SELECT",
    "create table t as select 1": "one SELECT",
    "create temporary function f as 'java.lang.Runtime'": "one SELECT",
    "drop table states": "one SELECT",
    "add jar '/tmp/x.jar'": "one SELECT",
    "set spark.sql.ansi.enabled = false": "one SELECT",
    "show tables": "one SELECT",
    "explain select 1": "one SELECT",
    "cache table t as select 1": "one SELECT",
    "insert overwrite directory '/tmp/x' using csv select * from states": "cannot be read at 'using'",
    "from states insert overwrite directory '/tmp/x' select *": "one SELECT",
    "with t as (select 1) insert into states select * from t": "one SELECT",
    "copy (select 1) to '/tmp/x'": "(one SELECT|cannot be read)",
    "attach '/tmp/x'": "cannot be read at",
    "pragma version": "one SELECT",
    "select 1 into t": "no INTO",
    "select * from states for update": "no LOCK",
    "select /*+ broadcast(s) */ * from states s": "no HINT",
    "select transform(a) using 'cat /etc/hostname' from states": "no QUERYTRANSFORM",
    "from (from states map a using 'cat' as b) select b": "(cannot be read|no |one SELECT)",
    "select reflect('java.lang.System', 'getenv', 'HOME')": "cannot call reflect",
    "select java_method('java.lang.System', 'getenv', 'HOME')": "cannot call java_method",
    "select try_reflect('java.lang.System', 'getenv', 'HOME')": "cannot call try_reflect",
    "select `reflect`('java.lang.System', 'getenv', 'HOME')": "cannot call reflect",
    "select system.builtin.reflect('java.lang.System', 'getenv', 'HOME')": "cannot call reflect",
    "select depth from states where size(filter(array(1), x -> reflect('a', 'b') = x)) = 1": "cannot call reflect",
    "select * from states order by input_file_name()": "cannot call input_file_name",
    "select current_user": "no CURRENTUSER",
    "select current_user()": "(no CURRENTUSER|cannot call current_user)",
    "select user()": "cannot call user",
    "select version()": "cannot call version",
    "select getenv('HOME')": "cannot call getenv",
    "select xpath(a, '/') from states": "cannot call xpath",
    "select default.size(a) from states": "cannot call size",
    "select * from text.`/etc/hostname`": "there is no table text./etc/hostname",
    "select * from `text`.`/etc/hostname`": "there is no table text./etc/hostname",
    "select * from `/etc/hostname`": "there is no table /etc/hostname",
    "select * from '/etc/hostname'": "(cannot be read|no table)",
    "select * from global_temp.states": "there is no table global_temp.states",
    "select * from default.states": "there is no table default.states",
    "select * from information_schema.tables": "there is no table",
    "select (select max(value) from json.`/etc/x`) from states": "there is no table json./etc/x",
    "select * from read_csv('/etc/passwd')": "no function takes the place",
    "select * from read_text('/etc/passwd')": "no function takes the place",
    "select * from query('select 1')": "no function takes the place",
    "select * from identifier('text.`/etc/hostname`')": "no function takes the place",
    "select identifier('depth') from states": "cannot call identifier",
    "select * from states version as of 1": "takes the table states as it is",
    "select :x": "no PLACEHOLDER",
    "with `/etc/p` as (select * from `/etc/p`) select 1": "there is no table /etc/p",
    "with a as (select * from b), b as (select 1) select * from a": "there is no table b",
    "with o as (with `/etc/p` as (select 1) select * from `/etc/p`) select * from `/etc/p`": "there is no table /etc/p",
    "select * from (with p as (select 1) select * from p) join p": "there is no table p",
    "select (with p as (select 1) select * from p) from states where exists (select * from p)": "there is no table p",
    "(with p as (select 1) select * from p) union all select * from p": "there is no table p",
}


@pytest.mark.parametrize("sql", QUESTIONS)
def test_a_question_is_taken_as_it_is(sql: str) -> None:
    text = sql.removesuffix(";").partition(" --")[0]
    assert select.question(SPACE, sql) == text.replace("meta.status", "`meta.status`")


@pytest.mark.parametrize("sql", HOSTILE, ids=range(len(HOSTILE)))
def test_nothing_else_is_a_question(sql: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(OptionError, match=HOSTILE[sql]) as raised:
        select.question(SPACE, sql)
    assert len(str(raised.value).splitlines()) == 1 and capfd.readouterr() == ("", "")


def test_comments_are_left_out() -> None:
    """In Spark a backslash at the end of a line continues a comment. Others end it there."""
    assert select.question(SPACE, "select 1 -- ' \\\n , 2 /* ' */+3") == "select 1 , 2 +3"


def test_there_are_edges_only_where_they_were_kept() -> None:
    without = SimpleNamespace(manifest=SimpleNamespace(columns={"a": "int"}, edges=None), directory="space")
    with pytest.raises(OptionError, match="space holds no steps"):
        select.question(without, "select * from edges")  # type: ignore[arg-type]


@pytest.mark.parametrize("sql", ["depth = 2", "(depth) = (2)", "true -- or", "exists (select * from edges);"])
def test_a_condition_is_one_expression(sql: str) -> None:
    text = sql.removesuffix(" -- or").removesuffix(";")
    assert f"where ({text}) order by" in select.condition(SPACE, sql)


@pytest.mark.parametrize(
    "sql",
    [
        "true) or (depth = 2",
        "1 = 1) union all select 1, 2 -- ",
        "true order by a",
        "true limit 3",
        "true; drop table states",
        "a = 1 as x",
        "select 1",
        "a, depth",
        "",
        "reflect('a', 'b') = 'c'",
        "a in (select a from text.`/etc/hostname`)",
    ],
)
def test_and_nothing_is_left_over(sql: str) -> None:
    with pytest.raises(OptionError, match=r"cannot be read at|is nothing|cannot call reflect|there is no table text"):
        select.condition(SPACE, sql)


# -- the scopes of CTEs -----------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["states", "edges", "p", "q", "/etc/p"])
Query = tuple[list[tuple[str, Any]], list[Any], Any]
"""CTEs, the sources (names and queries), and a query in the condition, if any."""
QUERIES: st.SearchStrategy[Any] = st.recursive(
    st.tuples(st.just([]), st.lists(NAMES, min_size=1, max_size=2), st.none()),
    lambda inner: st.tuples(
        st.lists(st.tuples(NAMES, inner), max_size=2),
        st.lists(NAMES | inner, min_size=1, max_size=2),
        st.none() | inner,
    ),
    max_leaves=8,
)


def _sql(query: Query) -> str:
    ctes, sources, condition = query
    given = ", ".join(f"`{name}` as ({_sql(inner)})" for name, inner in ctes)
    called = [f"`{source}`" if isinstance(source, str) else f"({_sql(source)})" for source in sources]
    listed = ", ".join(f"{source} as s{n}" for n, source in enumerate(called))
    also = f" where exists ({_sql(condition)})" if condition is not None else ""
    return f"{'with ' * bool(ctes)}{given} select 1 as one from {listed}{also}"


def _stranger(query: Query, known: frozenset[str]) -> bool:
    """Whether a query names a table that is out of scope."""
    ctes, sources, condition = query
    for name, inner in ctes:
        if _stranger(inner, known):
            return True
        known |= {name}
    inside = [source for source in (*sources, condition) if source is not None and not isinstance(source, str)]
    return any(source not in known for source in sources if isinstance(source, str)) or any(
        _stranger(one, known) for one in inside
    )


@settings(max_examples=150, deadline=None)
@given(QUERIES)
def test_a_cte_is_known_within_its_query_alone(query: Query) -> None:
    sql = _sql(query)
    if _stranger(query, frozenset({"states", "edges"})):
        with pytest.raises(OptionError, match="there is no table"):
            select.question(SPACE, sql)
    else:
        assert select.question(SPACE, sql) == sql.strip()


# -- DuckDB -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> StateSpace:
    directory = tmp_path_factory.mktemp("space") / "chain"
    written(shipped("bookkeeper-4.13")(bookies=2, write_quorum=2, ack_quorum=2, message_loss=False), directory)
    return StateSpace(directory)


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_whoever_is_to_answer_is_not_even_asked(engine: str, space: StateSpace, monkeypatch: Any) -> None:
    from fencepost.spark import sql as spark_sql

    monkeypatch.setattr(spark_sql, "session", None)
    for sql in HOSTILE:
        with pytest.raises(OptionError), answered(space, sql, By(engine)):
            pass
    with pytest.raises(OptionError, match="cannot be read at"):
        where(space, "true) or (depth = 2", By(engine))


def test_a_table_is_described_by_nobody(space: StateSpace, monkeypatch: Any) -> None:
    from fencepost.spark import sql as spark_sql

    monkeypatch.setattr(spark_sql, "session", None)
    for engine in ("duckdb", "spark"):
        with answered(space, "DESCRIBE TABLE states;", By(engine)) as answer:
            assert answer.columns == ["col_name", "data_type", "comment"]
            assert list(answer.first(2)) == [("fingerprint", "bigint", None), ("depth", "bigint", None)]
        with pytest.raises(OptionError, match="there is no table others"), answered(space, "desc others", By(engine)):
            pass


def test_names_that_differ_in_capitals_are_for_spark(space: StateSpace) -> None:
    """DuckDB does not distinguish them."""
    for sql in (
        "with A as (select 1 as x) select * from (with a as (select 2 as x) select * from A)",
        "with STATES as (select 1 as depth) select depth from states",
    ):
        with pytest.raises(OptionError, match="DuckDB cannot answer that"), answered(space, sql, By("duckdb")):
            pass


def test_duckdb_reads_no_file_but_those_of_the_table(space: StateSpace, tmp_path: Path) -> None:
    import duckdb

    (tmp_path / "secret.csv").write_text("a\n1\n")
    database = opened({"states": (["*"], [str(file) for file in space.files("states")])})
    assert database.execute("select count(*) from states").fetchone() == (space.manifest.states,)
    for sql in (
        f"select * from '{tmp_path}/secret.csv'",
        f"select * from read_csv('{tmp_path}/secret.csv')",
        f"copy (select 1) to '{tmp_path}/out.csv'",
        f"attach '{tmp_path}/other.db'",
        "set enable_external_access = true",
        "select * from tmp_path",
    ):
        with pytest.raises(duckdb.Error):
            database.execute(sql)
    assert [file.name for file in tmp_path.iterdir()] == ["secret.csv"]
