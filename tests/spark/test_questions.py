"""Questions to a state space on a real Spark: SQL, witnesses, and the effect of a fix."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from states.tables import rows, states, written

import fencepost.spark
from fencepost import OptionError, SystemFailure, errors
from fencepost.cli.main import main
from fencepost.language import loading
from fencepost.language.loading import shipped
from fencepost.report.tables import as_json
from fencepost.spark import sql as spark_sql
from fencepost.states import names, select
from fencepost.states.diff import difference
from fencepost.states.kinds import from_column
from fencepost.states.manifest import StateSpace
from fencepost.states.queries import Answer, By, answered
from fencepost.states.witness import witness

COUNTING = """
from fencepost import *

class Counting(Protocol):
    limit: int = constant(6)
    step: int = constant(2)
    a: int = state(0)
    b: int = state(0)

    @action
    def one(self) -> None:
        require(self.a < self.limit)
        self.a += 1

    @action(n=(1, 2))
    def some(self, n: int) -> None:
        require(self.b + n * self.step <= self.limit)
        self.b += one_of((n, n * self.step))
"""

ODD = """
from typing import Any
from fencepost import *

class Pair(Record):
    left: Any
    right: int

class Odd(Protocol):
    factor: int = constant(1)
    n: int = state(0)
    maybe: Any = state(None)
    label: str = state("plain")
    order: tuple[int, ...] = state(())
    held: frozenset[Pair] = state(frozenset())
    flags: Any = state(Map())
    numbers: Any = state(Map())
    keyed: Any = state(Map())
    seen: Table[str, bool] = table()

    @action(n=(1, 2, 3))
    def put(self, n: int) -> None:
        require(self.n < 2)
        self.n += 1
        self.maybe = None if n == 1 else n
        self.label = ('a"b`c', "ü → ⟨", "tab\\t and \\\\ and \\x7f")[n - 1]
        self.order += (n * self.factor,)
        self.held |= {Pair(self.maybe, n * self.factor)}
        self.flags = Map({n > 1: (self.maybe, n)})
        self.numbers = Map({n * self.factor: None, 10: n})
        self.keyed = Map({Pair(None, n): (n * self.factor, None)})
        self.seen[self.label] = n > self.factor
"""

UNLIKE = """
from typing import Any
from fencepost import *

class Pair(Record):
    x: int
    X: int

class Unlike(Protocol):
    most: int = constant(2)
    n: int = state(0)
    pair: Any = state(None)
    shares: tuple[float, ...] = state(())

    @action
    def one(self) -> None:
        require(self.n < self.most)
        self.n += 1
        self.pair = Pair(self.n, -self.n)
        self.shares = (self.n / 2,)
"""

SMALL: dict[str, Any] = {"bookies": 2, "write_quorum": 2, "ack_quorum": 2, "message_loss": False}


@pytest.fixture(scope="module")
def spaces(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """BookKeeper 4.13 without and with its fix."""
    found = []
    for fence in (False, True):
        directory = tmp_path_factory.mktemp("spaces") / ("fixed" if fence else "broken")
        written(shipped("bookkeeper-4.13")(**SMALL, recovery_reads_fence=fence), directory)
        found.append(str(directory))
    return found[0], found[1]


@pytest.fixture
def counting(tmp_path: Path) -> tuple[Path, Path]:
    """A user's own file, and its state space."""
    file = tmp_path / "counting.py"
    file.write_text(COUNTING)
    written(loading.load(str(file))(limit=4), tmp_path / "space")
    return file, tmp_path / "space"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run a command line. Returns its exit code, its output and its complaints."""
    code = main(list(arguments))
    said = capsys.readouterr()
    return code, said.out, said.err


def test_parts_of_the_state_need_no_quotes() -> None:
    columns = ("depth", "bookie.b1", "bookie.b1.fenced", "network.Add[w→b1]")

    def quoted(sql: str) -> str:
        return names.quoted(sql, columns)

    assert quoted("select bookie.b1.fenced, s.bookie.b1 from s") == "select `bookie.b1.fenced`, s.`bookie.b1` from s"
    assert quoted("network.Add[w→b1] is null and depth > 2") == "`network.Add[w→b1]` is null and depth > 2"
    untouched = "'bookie.b1' = 'say \"depth\"' or `bookie.b1` -- \"bookie.b1\"\n or my_bookie.b1 or bookie.b10"
    assert quoted(untouched) == untouched
    assert (
        quoted('"bookie.b1.fenced" = "depth" or s."bookie.b1" as "a""b`c"')
        == '`bookie.b1.fenced` = `depth` or s.`bookie.b1` as `a"b``c`'
    )


def test_data_frames_hold_the_table(spark: Any, spaces: tuple[str, str]) -> None:
    space = StateSpace(spaces[1])
    for table, frame in (
        ("states", fencepost.spark.states(spark, spaces[1])),
        ("edges", fencepost.spark.edges(spark, spaces[1])),
    ):
        kinds = space.manifest.columns
        found, expected = (
            sorted(
                ({name: from_column(value, kinds.get(name)) for name, value in row.items()} for row in some), key=repr
            )
            for some in ((row.asDict() for row in frame.collect()), rows(space, table))
        )
        assert found == expected


def test_a_directory_is_sought_from_where_the_process_is(
    spark: Any, spaces: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's own virtual machine does not follow when a notebook changes its directory."""
    monkeypatch.chdir(Path(spaces[1]).parent)
    assert fencepost.spark.states(spark, Path(spaces[1]).name).count() == StateSpace(spaces[1]).manifest.states


@pytest.mark.usefixtures("spark")
def test_an_answer_for_people_and_for_programs(
    spaces: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sql = (
        "select meta.status, bool_or(bookie.b1.fenced) fenced, count(*) n from states group by all order by meta.status"
    )
    code, out, err = run(
        capsys, "query", spaces[0], sql, "--json", str(tmp_path / "rows.json"), "--csv", str(tmp_path / "rows.csv")
    )
    expected: dict[Any, list[Any]] = {}
    for row in rows(StateSpace(spaces[0]), "states"):
        held = expected.setdefault(row["meta.status"], [False, 0])
        held[0] |= row["bookie.b1.fenced"]
        held[1] += 1
    told = json.loads((tmp_path / "rows.json").read_text())
    assert (code, err) == (0, "") and {
        row["status"] if "status" in row else row["meta.status"]: [row["fenced"], row["n"]] for row in told
    } == expected
    with open(tmp_path / "rows.csv") as file:
        assert [row[-1] for row in csv.reader(file)] == ["n", *(str(row["n"]) for row in told)]
    assert [line.split()[-1] for line in out.splitlines()[2:]] == [str(row["n"]) for row in told]
    code, out, _ = run(capsys, "query", spaces[0], "select depth from states", "--rows", "3")
    assert len(out.splitlines()) == 7 and "There are more rows" in out


ALIKE = (
    "select * from edges",
    "select * from states",
    "select network.AddEntryRequest.w1.b1 from states",
    (
        "select bookie.b1.entries, meta.fragments, w2.curr_read_entry, size(w2.has_entry) n,"
        " array_contains(w2.has_entry, 'b1') has, not array_contains(w1.confirmed.1, 'b2') lacks from states order by"
        " fingerprint"
    ),
    (
        "select count(*), min(depth), max(meta.status), count(meta.status), count(distinct meta.status), sum(depth),"
        " avg(depth) from states"
    ),
    (
        "select meta.status, count_if(w2.status = 'CLOSED') closed, count_if(w2.status is null) unknown, bool_or(depth"
        " > 5) late, bool_and(bookie.b1.fenced) fenced from states group by meta.status order by meta.status"
    ),
    (
        "select depth, count_if(meta.status = 'OPEN') / count(*) share, depth / (1 / (depth + 1)) / 2 nested, count(*)"
        " / 4 quarter, (depth - 7) / (depth + 1) ratio, depth % 3 left, -depth less from states group by all order by"
        " depth desc"
    ),
    (
        "select meta.status || '!' name, coalesce(meta.status, 'none') held, nullif(meta.status, 'OPEN') other,"
        " greatest(meta.version, depth) most, least(meta.version, 3) low, upper(left(meta.status, 2)) begin,"
        " right(meta.status, 0) nothing, substring(meta.status, 2, 3) middle, length(meta.status) long, if(depth > 3,"
        " 'deep', 'high') how, case when depth = 1 then 'first' end which, string(depth) text, cast(bookie.b1.fenced as"
        " string) truth, meta.status <=> w1.status same, abs(3 - depth) far from states order by all"
    ),
    (
        "select distinct w1.status, w2.status from states where meta.status in ('OPEN', 'CLOSED') and depth between 3"
        " and 9 and not (w1.status like 'CL%' or w2.status is null) order by 1 desc, 2"
    ),
    (
        "select size(filter(array(w1.status, w2.status, meta.status), x -> x = 'OPEN')) open, count(*) from states"
        " group by all order by open desc"
    ),
    (
        "select part, at, count(*) n from states lateral view posexplode(split(meta.status, '[_L]+')) as at, part group"
        " by all order by all"
    ),
    "select array_contains(split(meta.status, '_'), 'IN') inside, count(*) n from states group by all order by inside",
    (
        "with deep as (select fingerprint f, meta.status s from states where depth > 6), by as (select s, count(*) n"
        " from deep group by s) select s, n, (select max(depth) from states) last from by where exists (select 1 from"
        " deep where deep.s = by.s) order by n, s"
    ),
    (
        "select e.action, count(*) n from edges e left semi join states on target = fingerprint group by all having n >"
        " 10 order by n desc, e.action"
    ),
    (
        "select count(*) n from states left anti join edges on fingerprint = source union all select count(*) from"
        " edges order by n limit 5"
    ),
)

FOR_SPARK = (
    "select w2.curr_read_entry.id from states",
    "select depth + 1 from states",
    "select concat(meta.status, 'x') name from states",
    "select round(depth / 3) third from states",
    "select 0.50 half from states",
    "select row_number() over (order by depth) row from states",
    "select split(meta.status, '') letters from states",
    "select array(1, 2)[0] first from states",
    "select meta.status like '%\\\\_%' has from states",
    "select greatest(depth, meta.version) as depth, count(*) n from states group by depth",
    "select log(depth) from states",
    "values (1, 2)",
    "with recursive r(n) as (select 1 union all select n + 1 from r where n < 9) select n from r",
    "with A as (select 1 x) select * from (with a as (select 2 x) select * from A)",
)


def no_spark(*_: object) -> Any:
    raise AssertionError("Spark is asked")


@pytest.mark.campaign
@pytest.mark.usefixtures("spark")
def test_duckdb_answers_what_spark_does(spaces: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    space = StateSpace(spaces[0])

    def told(answer: Answer) -> Any:
        found = [line.lstrip("[,\n") for line in as_json(answer.columns, answer.rows())]
        return answer.columns, found if "order by" in sql else sorted(found)

    with spark_sql.session() as spark:
        for sql in ALIKE:
            frame = spark_sql.ask(spark, space, select.question(space, sql))
            expected = told(Answer(frame.columns, no_spark, frame.toLocalIterator))
            with answered(space, sql, By("duckdb")) as answer:
                assert told(answer) == expected, sql
        with answered(space, "describe states", By()) as answer:
            assert [tuple(row)[:2] for row in answer.rows()] == spark_sql.states(spark, space.directory).dtypes


@pytest.mark.parametrize("sql", FOR_SPARK)
def test_what_duckdb_may_take_otherwise_is_for_spark(sql: str, spaces: tuple[str, str]) -> None:
    with (
        pytest.raises(OptionError, match=r"DuckDB cannot answer that as Spark would \(.*\): leave out engine"),
        answered(StateSpace(spaces[0]), sql, By("duckdb")),
    ):
        pass


def test_who_is_asked(
    spaces: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(spark_sql, "session", no_spark)
    code, out, err = run(capsys, "query", spaces[0], "select count(*) from states")
    assert (code, err) == (0, "") and out.splitlines()[0] == "count(1)"
    assert run(capsys, "witness", spaces[0], "--where", "meta.status = 'CLOSED' -- or not")[1].startswith(
        "REACHED  meta.status = 'CLOSED'"
    )
    assert run(capsys, "witness", spaces[0], "--where", "depth > 1000")[0] == errors.NOT_REACHED
    assert "there is no column dept: did you mean depth" in run(capsys, "witness", spaces[0], "--where", "dept = 1")[2]
    for by in (By("spark"), By(master="local[2]"), By(conf={"spark.sql.ansi.enabled": "true"})):
        with pytest.raises(AssertionError, match="Spark is asked"), answered(StateSpace(spaces[0]), "select 1", by):
            pass
    assert (
        run(capsys, "query", spaces[0], "select 1", "--engine", "duckdb", "--master", "local")[0]
        == errors.WRONG_OPTIONS
    )


def test_a_question_in_a_session_of_ones_own(spark: Any, spaces: tuple[str, str]) -> None:
    before = spark.conf.get("spark.sql.caseSensitive")
    frame = fencepost.spark.query(
        spark, spaces[1], "select meta.status, count(*) n from states join edges on fingerprint = source group by all"
    )
    assert sum(row.n for row in frame.collect()) == StateSpace(spaces[1]).manifest.edges
    assert spark.conf.get("spark.sql.caseSensitive") == before and not spark.catalog.tableExists("states")
    with pytest.raises(OptionError, match="there is no column metta.status: did you mean meta.status"):
        fencepost.spark.query(spark, spaces[1], "select metta.status from states")


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("sql", "line"),
    [
        (
            "select bokie.b1.fenced from states",
            "there is no column bokie.b1.fenced: did you mean bookie.b1.fenced or bookie.b2.fenced",
        ),
        ("select * from sates", "there is no table sates: there are states and edges"),
        ("selec 1", "the SQL cannot be read at '1', line 1"),
        ("select (depth from states", "the SQL cannot be read at 'from', line 1"),
        ("select * from text.`/etc/hostname`", "there is no table text./etc/hostname: there are states and edges"),
    ],
)
def test_sql_that_is_wrong(sql: str, line: str, spaces: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "query", spaces[0], sql)
    assert (code, out) == (errors.WRONG_OPTIONS, "")
    assert err.startswith(f"fencepost: {line}") and len(err.splitlines()) == 1


@pytest.mark.usefixtures("spark")
def test_a_witness_is_a_shortest_behaviour(
    counting: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, data = tmp_path / "page.html", tmp_path / "data.json"
    given = ("--where", "a = 2 and b >= 3", "--html", str(page), "--json", str(data), "--eval", "self.a + self.b")
    code, out, _ = run(capsys, "witness", str(counting[1]), *given)
    (told,) = json.loads(data.read_text())["witnesses"]
    # One step to b = 4, two steps to a = 2.
    assert code == 0 and out.startswith("REACHED  a = 2 and b >= 3") and len(told["trace"]) == 4
    assert (told["trace"][-1]["state"]["a"], told["trace"][-1]["state"]["b"]) == (2, 4)
    assert "REACHED" in page.read_text() and "self.a + self.b" in out
    code, out, _ = run(capsys, "witness", str(counting[1]), "--where", "b > 4")
    assert code == errors.NOT_REACHED and out.startswith("None of the 25 states")


def test_every_state_has_a_witness_of_its_depth(counting: tuple[Path, Path]) -> None:
    space = StateSpace(counting[1])
    depths = {(one.variables()["a"], one.variables()["b"]): depth for _, depth, one, _ in states(space.protocol())}
    for row in rows(space, "states"):
        trace = witness(space, row["fingerprint"], row["depth"])
        assert len(trace) == row["depth"] == depths[row["a"], row["b"]]
        assert {name: trace.states[-1].variables()[name] for name in "ab"} == {"a": row["a"], "b": row["b"]}


def test_no_witness_from_another_version_of_the_file(counting: tuple[Path, Path]) -> None:
    file, space = counting
    file.write_text(COUNTING.replace("self.a += 1", "self.a += 2"))
    with pytest.raises(SystemFailure, match=r"counting\.py has changed since"):
        StateSpace(space).protocol()
    file.unlink()
    with pytest.raises(errors.NotAProtocol, match="there is no file"):
        StateSpace(space).protocol()


@pytest.mark.usefixtures("spark")
def test_values_with_parts_and_names_in_quotes(
    spaces: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sql = (
        'select "bookie.b1.entries" as held, meta.fragments[0].id as first, w2.curr_read_entry.data as data, count(*)'
        " as n from states "
        """where "meta.status" = 'CLOSED' group by all order by n, held, data"""
    )
    code, out, err = run(capsys, "query", spaces[0], sql, "--json", str(tmp_path / "rows.json"))
    expected: dict[str, int] = {}
    for row in rows(StateSpace(spaces[0]), "states"):
        if row["meta.status"] == "CLOSED":
            entry, fragments = row["w2.curr_read_entry"], row["meta.fragments"]
            key = json.dumps(
                [row["bookie.b1.entries"], fragments[0]["id"] if fragments else None, entry and entry["data"]]
            )
            expected[key] = expected.get(key, 0) + 1
    told = json.loads((tmp_path / "rows.json").read_text())
    assert (code, err) == (0, "") and len(told) > 1
    assert {json.dumps([row["held"], row["first"], row["data"]]): row["n"] for row in told} == expected
    assert "[{id: 1, data: 1}]" in out


@pytest.mark.usefixtures("spark")
def test_a_file_that_is_missing_or_damaged(
    counting: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(counting[1], tmp_path / "other")
    file = next((counting[1] / "states").iterdir())
    shutil.copy(file, file.with_name("part-99999.parquet"))
    count = ("query", str(counting[1]), "select count(*) from states")
    assert run(capsys, *count)[1].split()[-1] == "25"
    file.write_bytes(file.read_bytes()[:-50])
    for command in (
        count,
        ("witness", str(counting[1]), "--where", "a = 2"),
        ("diff", str(tmp_path / "other"), str(counting[1])),
    ):
        code, _, err = run(capsys, *command)
        line = f"fencepost: {counting[1]} is damaged: states/{file.name} is not what was written; check again\n"
        assert (code, err) == (errors.SYSTEM_FAILED, line), command


@pytest.mark.usefixtures("spark")
def test_what_the_fix_changed(spaces: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "diff", *spaces, "--parts", "meta,bookie", "--json", str(tmp_path / "diff.json"))
    assert (
        code == 0 and "recovery_reads_fence=False" in out and f"Every state of {spaces[1]} is one of {spaces[0]}" in out
    )
    assert "\n\n\n" not in out
    told = json.loads((tmp_path / "diff.json").read_text())

    def projected(space: str) -> set[tuple[Any, ...]]:
        names = [name for name in StateSpace(space).parts if name.startswith(("meta.", "bookie."))]
        return {tuple(repr(row[name]) for name in names) for row in rows(StateSpace(space), "states")}

    broken, fixed = (projected(space) for space in spaces)
    assert [(side["states"], side["only"]) for side in told["sides"]] == [
        (len(broken), len(broken - fixed)),
        (len(fixed), 0),
    ]
    assert told["common"] == len(broken & fixed) and told["sides"][1]["trace"] is None
    nearest = told["sides"][0]["trace"][-1]["state"]
    # What the fix made impossible: the ledger is closed while a bookie still takes the writer's entries.
    assert nearest["meta"]["status"] == "CLOSED" and not all(b["fenced"] for b in nearest["bookie"].values())


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A protocol with values of many kinds, and nulls inside and out, with two values of a constant."""
    return _with_constants(tmp_path_factory.mktemp("odd"), ODD, {"factor": 1}, {"factor": 12})


@pytest.fixture(scope="module")
def unlike(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A protocol whose values DuckDB has otherwise than Spark, with two values of a constant."""
    return _with_constants(tmp_path_factory.mktemp("unlike"), UNLIKE, {"most": 2}, {"most": 3})


def _with_constants(folder: Path, source: str, one: dict[str, Any], other: dict[str, Any]) -> tuple[str, str]:
    (folder / "protocol.py").write_text(source)
    cls = loading.load(str(folder / "protocol.py"))
    for name, constants in (("one", one), ("other", other)):
        written(cls(**constants), folder / name)
    return str(folder / "one"), str(folder / "other")


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("pair", "parts"),
    [
        pytest.param("spaces", ("--parts", "meta,bookie,w2"), marks=pytest.mark.campaign),
        pytest.param("odd", (), marks=pytest.mark.campaign),
        pytest.param("odd", ("--parts", "n,label,seen"), marks=pytest.mark.campaign),
        ("odd", ("--parts", "keyed")),
    ],
)
def test_duckdb_tells_the_difference_as_spark_does(
    pair: str,
    parts: tuple[str, ...],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ("diff", *request.getfixturevalue(pair), *parts)

    def told(engine: str) -> tuple[tuple[int, str, str], str]:
        file = tmp_path / "difference.json"
        return run(capsys, *given, "--json", str(file), "--engine", engine), file.read_text()

    found = told("duckdb")
    assert found[0][0] == 0 and found[0][1] and found == told("spark")


def test_values_of_many_kinds_are_told_apart(odd: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(run(capsys, "diff", *odd, "--json", "-", "--engine", "duckdb")[1])
    names = list(StateSpace(odd[0]).parts)
    one, other = ({repr([row[name] for name in names]) for row in rows(StateSpace(space), "states")} for space in odd)
    assert [(side["states"], side["only"]) for side in told["sides"]] == [
        (len(one), len(one - other)),
        (len(other), len(other - one)),
    ]
    assert told["common"] == len(one & other) == 1
    assert told["sides"][1]["values"]["numbers"] == ["{10: 1, 12: None}", "{10: 2, 24: None}", "{10: 3, 36: None}"]
    assert told["sides"][0]["values"]["held"][0] == "{Pair(left=2, right=2), Pair(left=3, right=3)}"


@pytest.mark.parametrize(
    ("part", "why"),
    [("n", None), ("pair", "fields whose names differ in capitals only"), ("shares", "numbers that are not whole")],
)
def test_a_difference_that_duckdb_may_take_otherwise_is_for_spark(
    part: str,
    why: str | None,
    unlike: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(spark_sql, "session", no_spark)
    one, other = map(StateSpace, unlike)
    for engine in ("auto", "duckdb"):
        if why is None:
            assert [side.only for side in difference(one, other, By(engine), [part]).sides] == [0, 1]
        else:
            with pytest.raises((AssertionError, OptionError), match="Spark is asked" if engine == "auto" else why):
                difference(one, other, By(engine), [part])
    for by in (By("spark"), By(master="local[2]"), By(conf={"spark.sql.ansi.enabled": "true"})):
        with pytest.raises(AssertionError, match="Spark is asked"):
            difference(one, other, by, ["n"])


def test_a_difference_that_makes_no_sense(
    spaces: tuple[str, str], counting: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "no part of the state in common" in run(capsys, "diff", spaces[0], str(counting[1]))[2]
    assert (
        "there is no part metta of the state: there are meta, bookie"
        in run(capsys, "diff", *spaces, "--parts", "metta")[2]
    )


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_what_is_not_installed(
    missing: str, spaces: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    code, _, err = run(capsys, "query", spaces[0], "select 1", "--engine", "spark")
    assert (code, err) == (
        errors.WRONG_OPTIONS,
        f"fencepost: Spark needs {missing}, which is not installed: in a checkout of Fencepost, pip install"
        " '.[spark]'\n",
    )
    assert run(capsys, "query", "nowhere", "select 1")[2].startswith("fencepost: nowhere holds no state space")


def test_spark_is_asked_for_nothing_but_the_answer(
    spark: Any, spaces: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("query", spaces[0], "--engine", "spark", "--json", "-")
    code, out, err = run(
        capsys, *given, "select '${spark.app.name}' as text, max(depth) - max(depth) as zero from states"
    )
    assert (code, err) == (0, "") and json.loads(out) == [{"text": "${spark.app.name}", "zero": 0}]
    for sql in (
        f"insert overwrite directory '{tmp_path}/out' using csv select 1",
        "create table states_too as select 1",
        "select transform(depth) using 'cat /etc/hostname' from states",
        "select reflect('java.lang.System', 'getenv', 'HOME')",
        "select * from text.`/etc/hostname`",
    ):
        code, out, err = run(capsys, *given, sql)
        assert (code, out) == (errors.WRONG_OPTIONS, "") and len(err.splitlines()) == 1, sql
    code, out, err = run(capsys, "witness", spaces[0], "--where", "true) or (depth = 2", "--engine", "spark")
    assert (code, err) == (errors.WRONG_OPTIONS, "fencepost: the SQL cannot be read at ')', line 1\n")
    assert run(capsys, "witness", spaces[0], "--where", "depth = 2", "--engine", "spark")[0] == 0
    assert list(tmp_path.iterdir()) == []
    assert "/fencepost-spark-" in spark.conf.get("spark.sql.warehouse.dir")  # and not where the process is
    with pytest.raises(OptionError, match="cannot call reflect"):
        fencepost.spark.query(None, spaces[0], "select reflect('java.lang.System', 'getenv', 'HOME')")
