"""Questions to a state space on a real Spark: in SQL, for a witness, and what a fix changed."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from states.tables import rows, states, written

from fencepost import SystemFailure, errors, loading
from fencepost.cli import main
from fencepost.protocols import shipped
from fencepost.spark import query
from fencepost.states.manifest import StateSpace
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
    """A command line: its exit code, what it printed, and its complaints."""
    code = main(list(arguments))
    said = capsys.readouterr()
    return code, said.out, said.err


def test_parts_of_the_state_need_no_quotes() -> None:
    columns = ("depth", "bookie.b1", "bookie.b1.fenced", "network.Add[w→b1]")

    def quoted(sql: str) -> str:
        return query.quoted(sql, columns)

    assert quoted("select bookie.b1.fenced, s.bookie.b1 from s") == "select `bookie.b1.fenced`, s.`bookie.b1` from s"
    assert quoted("network.Add[w→b1] is null and depth > 2") == "`network.Add[w→b1]` is null and depth > 2"
    untouched = "'bookie.b1' = \"bookie.b1\" or `bookie.b1` -- bookie.b1\n or my_bookie.b1 or bookie.b10"
    assert quoted(untouched) == untouched


def test_data_frames_hold_the_table(spark: Any, spaces: tuple[str, str]) -> None:
    space = StateSpace(spaces[1])
    for table, frame in (("states", query.states(spark, spaces[1])), ("edges", query.edges(spark, spaces[1]))):
        found = sorted((row.asDict() for row in frame.collect()), key=lambda row: [str(value) for value in row.values()])
        assert found == rows(space, table)


def test_a_directory_is_sought_from_where_the_process_is(spark: Any, spaces: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's own virtual machine does not follow when a notebook changes its directory."""
    monkeypatch.chdir(Path(spaces[1]).parent)
    assert query.states(spark, Path(spaces[1]).name).count() == StateSpace(spaces[1]).manifest.states


@pytest.mark.usefixtures("spark")
def test_an_answer_for_people_and_for_programs(
    spaces: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sql = "select meta.status, bool_or(bookie.b1.fenced) fenced, count(*) n from states group by all order by meta.status"
    code, out, err = run(capsys, "query", spaces[0], sql, "--json", str(tmp_path / "rows.json"), "--csv", str(tmp_path / "rows.csv"))
    expected: dict[Any, list[Any]] = {}
    for row in rows(StateSpace(spaces[0]), "states"):
        held = expected.setdefault(row["meta.status"], [False, 0])
        held[0] |= row["bookie.b1.fenced"]
        held[1] += 1
    told = json.loads((tmp_path / "rows.json").read_text())
    assert (code, err) == (0, "") and {row["status"] if "status" in row else row["meta.status"]: [row["fenced"], row["n"]] for row in told} == expected
    with open(tmp_path / "rows.csv") as file:
        assert [row[-1] for row in csv.reader(file)] == ["n", *(str(row["n"]) for row in told)]
    assert [line.split()[-1] for line in out.splitlines()[2:]] == [str(row["n"]) for row in told]
    code, out, _ = run(capsys, "query", spaces[0], "select depth from states", "--rows", "3")
    assert len(out.splitlines()) == 7 and "There are more rows" in out


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("sql", "line"),
    [
        ("select bokie.b1.fenced from states", "there is no column bokie.b1.fenced: did you mean bookie.b1.fenced or bookie.b2.fenced"),
        ("select * from sates", "there is no table sates: there are states and edges"),
        ("selec 1", "the SQL can not be read: "),
        ("select (depth from states", "the SQL can not be read: "),
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
def test_what_the_fix_changed(spaces: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "diff", *spaces, "--parts", "meta,bookie", "--json", str(tmp_path / "diff.json"))
    assert code == 0 and "recovery_reads_fence=False" in out and f"Every state of {spaces[1]} is one of {spaces[0]}" in out
    assert "\n\n\n" not in out
    told = json.loads((tmp_path / "diff.json").read_text())

    def projected(space: str) -> set[tuple[Any, ...]]:
        names = [name for name in StateSpace(space).parts if name.startswith(("meta.", "bookie."))]
        return {tuple(row[name] for name in names) for row in rows(StateSpace(space), "states")}

    broken, fixed = (projected(space) for space in spaces)
    assert [(side["states"], side["only"]) for side in told["sides"]] == [(len(broken), len(broken - fixed)), (len(fixed), 0)]
    assert told["common"] == len(broken & fixed) and told["sides"][1]["trace"] is None
    nearest = told["sides"][0]["trace"][-1]["state"]
    # What the fix made impossible: the ledger is closed while a bookie still takes the writer's entries.
    assert nearest["meta"]["status"] == "CLOSED" and not all(b["fenced"] for b in nearest["bookie"].values())


@pytest.mark.usefixtures("spark")
def test_a_difference_that_makes_no_sense(
    spaces: tuple[str, str], counting: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "no part of the state in common" in run(capsys, "diff", spaces[0], str(counting[1]))[2]
    assert "there is no part metta of the state: there are meta, bookie" in run(capsys, "diff", *spaces, "--parts", "metta")[2]


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_what_is_not_installed(
    missing: str, spaces: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    code, _, err = run(capsys, "query", spaces[0], "select 1")
    assert (code, err) == (errors.SYSTEM_FAILED, f"fencepost: this needs {missing}: pip install 'fencepost[spark]'\n")
    assert run(capsys, "query", "nowhere", "select 1")[2].startswith("fencepost: nowhere holds no state space")
