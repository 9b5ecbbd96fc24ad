"""The state space as a table from Spark equals the embedded engine's in every cell, whatever is retried, killed or
resumed.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from campaigns import campaign_if
from checker.engines.random_protocols import seeded
from spark.conftest import Here

import fencepost
from fencepost import Protocol, SystemFailure, Table, action, constraint, one_of, require, state, step_constraint, table
from fencepost.api.result import Result
from fencepost.cli.main import main
from fencepost.files.storage import Storage
from fencepost.language.loading import shipped
from fencepost.language.seam import Model
from fencepost.spark import engine, stages
from fencepost.states.columns import completed, kinds_of, schema_of
from fencepost.states.files import TableLocation
from fencepost.states.manifest import StateSpace
from fencepost.states.writer import Writer

SMALL: dict[str, Any] = {"bookies": 2, "write_quorum": 2, "ack_quorum": 1}


class Late(Protocol):
    """Parts and values that appear, and columns that change their kind, after Spark has begun."""

    turn: int = state(0)
    twin: int = state(0)
    mixed: Any = state(0)
    maybe: Any = state(None)
    seen: Table[int, Any] = table()

    @action
    def next(self) -> None:
        require(self.turn < 6)
        self.turn += 1
        if self.turn == 3:
            self.maybe = self.turn
        if self.turn == 5:
            self.mixed = "five"
        self.seen[self.turn] = self.turn % 2 == 0 or None

    @action(n=(1, 2))
    def other(self, n: int) -> None:
        self.twin = (self.twin + one_of((n, 3))) % 7

    @constraint
    def bounded(self) -> bool:
        return self.twin != 4

    @step_constraint
    def no_leap(self, after: Any) -> bool:
        return not (self.twin == 6 and after.twin == 1)


def check(protocol: Model, directory: Path | str | None, *, edges: bool = True, **options: Any) -> Result:
    """A check that writes its states."""
    options = {"workers": 1, "keep_going": True, "engine": "spark", **options}
    if options["engine"] == "spark":
        options = {"handover": 2, **options}
    return fencepost.check(protocol, states=directory, edges=edges, **options)


def written(protocol: Model, directory: Path | str, **options: Any) -> StateSpace:
    """The state space that a check has written."""
    result = check(protocol, directory, **options)
    assert result.failure is None and result.table is not None, result.failure
    return StateSpace(directory)


def contents(space: StateSpace) -> list[Any]:
    """Everything in a table: its manifest, its columns with types and metadata, and its rows in one order."""
    found: list[Any] = [msgspec.structs.replace(space.manifest, files={})]
    for name, key in (("states", ("fingerprint",)), ("edges", ("source", "target", "action", "parameters"))):
        if name == "edges" and space.manifest.edges is None:
            continue
        read = space.dataset(name).to_table()
        # A file of a level cannot know which parts of values are never null, as one of a whole search does.
        schema = schema_of(kinds_of(read.schema), read.schema.metadata)
        read = pa.table(
            [completed(read.column(field.name).combine_chunks(), field.type) for field in schema], schema=schema
        )
        text = pa.schema(
            [field.with_type(pa.string()) if pa.types.is_dictionary(field.type) else field for field in read.schema]
        )
        found += [read.schema, read.schema.metadata, read.cast(text).sort_by([(column, "ascending") for column in key])]
    return found


def files(space: StateSpace) -> int:
    """The number of files with states."""
    return len(list((Path(space.directory) / "states").iterdir()))


def spilled(directory: Path) -> list[str]:
    """The files in a directory that do not belong to a table."""
    return [
        file.name
        for file in directory.rglob("*")
        if file.is_file() and not file.name.startswith("part-") and file.name != "manifest.json"
    ]


@pytest.mark.usefixtures("here")
class TestHere:
    """With levels cut into many small tasks, in this process."""

    @pytest.mark.campaign
    @pytest.mark.parametrize(("fence", "edges"), [(True, True), (False, False)])
    def test_the_same_table_of_a_shipped_protocol(self, fence: bool, edges: bool, tmp_path: Path) -> None:
        def space(name: str) -> StateSpace:
            protocol = shipped("bookkeeper-4.13")(**SMALL, recovery_reads_fence=fence)
            return written(protocol, tmp_path / name, engine=name, edges=edges, max_depth=8)

        got, expected = space("spark"), space("embedded")
        assert contents(got) == contents(expected)
        assert files(got) > 20 and files(expected) < 10

    @pytest.mark.parametrize("seed", [0, 16, *campaign_if(bool, [24, 38])])
    def test_the_same_table_of_random_protocols(self, seed: int, tmp_path: Path) -> None:
        got, expected = (
            written(seeded(seed).build(), tmp_path / name, engine=name, max_depth=5) for name in ("spark", "embedded")
        )
        assert contents(got) == contents(expected) and files(got) > 2

    def test_columns_that_turn_out_otherwise(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        jobs = []

        class Watched(Here):
            def run(self, job_stages: stages.JobStages, *given: Any) -> list[bytes]:
                jobs.append(job_stages[0])
                return super().run(job_stages, *given)

        monkeypatch.setattr(engine, "Cluster", Watched)
        got, expected = (written(Late(), tmp_path / name, engine=name) for name in ("spark", "embedded"))
        assert contents(got) == contents(expected) and files(got) > 10
        kinds = got.manifest.columns
        assert (kinds["mixed"], kinds["maybe"], kinds["seen.6"], "seen.5" in kinds) == ("text", "int", "bool", False)
        # The files in which it was a number were written again by tasks.
        stage, tasks = jobs[-1]
        assert getattr(stage.work, "func", None) is stages.rewrite and tasks > 2

    def test_tasks_that_run_twice_change_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        class Twice(Here):
            def run(self, *given: Any) -> list[bytes]:
                super().run(*given)
                return super().run(*given)

        monkeypatch.setattr(engine, "Cluster", Twice)
        monkeypatch.setattr(engine, "HANDOVER", 2)  # nothing in this process, where nothing is tried again
        got, expected = (written(Late(), tmp_path / name, engine=name) for name in ("spark", "embedded"))
        assert contents(got) == contents(expected) and spilled(tmp_path) == []

    @pytest.mark.parametrize(
        ("owner", "method", "times"),
        [
            (Writer, "take_edges", 3),
            (Storage, "replace", 3),
            *campaign_if(bool, [(Writer, "take_level", 3), (TableLocation, "write", 20)]),
        ],
    )
    def test_a_killed_search_goes_on_with_its_table(
        self, owner: type, method: str, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Killed(BaseException):
            pass

        calls, real = [], getattr(owner, method)

        def kill(*given: Any) -> Any:
            calls.append(given)
            if len(calls) == times:
                raise Killed
            return real(*given)

        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(owner, method, kill)
            check(Late(), tmp_path / "spark", checkpoint=tmp_path / "checkpoint")
        assert not (tmp_path / "spark" / "manifest.json").exists()
        got = written(Late(), tmp_path / "spark", resume=tmp_path / "checkpoint")
        assert contents(got) == contents(written(Late(), tmp_path / "embedded", engine="embedded"))
        assert spilled(tmp_path / "spark") == []

    def test_an_interrupt_while_a_level_is_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        jobs = []

        class Interrupted(Here):
            def run(self, job_stages: stages.JobStages, *given: Any) -> list[bytes]:
                reports = super().run(job_stages, *given)
                if getattr(job_stages[0][0].work, "func", None) is stages.write:
                    jobs.append(job_stages)
                    if len(jobs) == 3:
                        raise KeyboardInterrupt
                return reports

        with monkeypatch.context() as patch:
            patch.setattr(engine, "Cluster", Interrupted)
            cut = check(Late(), tmp_path / "spark", checkpoint=tmp_path / "checkpoint")
        assert cut.interrupted and cut.table is not None and cut.table.depth == cut.depth - 1
        read = StateSpace(tmp_path / "spark").manifest
        assert (
            read.ended == "it was interrupted" and read.states == pq.read_table(tmp_path / "spark" / "states").num_rows
        )
        got = written(Late(), tmp_path / "spark", resume=tmp_path / "checkpoint")
        assert contents(got) == contents(written(Late(), tmp_path / "embedded", engine="embedded"))

    def test_a_table_that_ends_early_can_be_read_and_gone_on_with(self, tmp_path: Path) -> None:
        place, directory = tmp_path / "checkpoint", f"file://{tmp_path}/spark"
        for depth in (4, 5, 8):
            got = check(
                Late(),
                directory if depth == 4 else None,
                edges=depth == 4,
                max_depth=depth,
                **{"checkpoint" if depth == 4 else "resume": place},
            )
            assert got.table is not None and not got.table.complete and got.table.depth == depth
            expected = written(Late(), tmp_path / f"embedded{depth}", engine="embedded", max_depth=depth)
            assert contents(StateSpace(directory)) == contents(expected)

    def test_a_search_does_not_go_on_with_another_table(self, tmp_path: Path) -> None:
        place = tmp_path / "checkpoint"
        assert check(Late(), tmp_path / "one", edges=False, max_depth=5, checkpoint=place).table is not None
        for given, why in (
            (
                {"directory": tmp_path / "other", "edges": False},
                rf"writes its states to {tmp_path}/one, and goes on with it",
            ),
            ({"directory": tmp_path / "one"}, "writes its states without the steps"),
        ):
            with pytest.raises(SystemFailure, match=why):
                raise check(Late(), resume=place, max_depth=6, **given).failure or AssertionError
        held = contents(StateSpace(tmp_path / "one"))
        (tmp_path / "one" / "states" / "part-00003.parquet").rename(tmp_path / "lost")
        lost = check(Late(), None, edges=False, resume=place).failure
        assert str(lost).endswith(f"there is no {tmp_path}/one/states/part-00003.parquet; start again without resume")
        (tmp_path / "one" / "states" / "part-00003.parquet").write_bytes((tmp_path / "lost").read_bytes()[:-9])
        damaged = check(Late(), None, edges=False, resume=place).failure
        assert str(damaged).endswith(
            f"{tmp_path}/one/states/part-00003.parquet is not what was written; start again without resume"
        )
        (tmp_path / "lost").rename(tmp_path / "one" / "states" / "part-00003.parquet")
        assert contents(StateSpace(tmp_path / "one")) == held
        check(Late(), None, edges=False, max_depth=5, checkpoint=tmp_path / "without")
        bare = check(Late(), tmp_path / "new", edges=False, resume=tmp_path / "without").failure
        assert "was begun without states" in str(bare) and not (tmp_path / "new").exists()

    @pytest.mark.parametrize("saved", [False, True])
    def test_a_full_disk(self, saved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        directory, real, calls = tmp_path / "spark", TableLocation.write, []

        def refuse(self: TableLocation, *given: Any) -> Any:
            calls.append(given)
            if len(calls) > 20:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(self, *given)

        monkeypatch.setattr(TableLocation, "write", refuse)
        given: dict[str, Any] = {"checkpoint": tmp_path / "checkpoint"} if saved else {}
        full = check(Late(), directory, **given)
        assert (
            str(full.failure) == f"the state space cannot be written to {directory}: No space left on device"
            and full.table is None
        )
        if not saved:
            assert not directory.exists()
            return
        monkeypatch.setattr(TableLocation, "write", real)
        got = written(Late(), directory, resume=tmp_path / "checkpoint")
        assert contents(got) == contents(written(Late(), tmp_path / "embedded", engine="embedded"))


@pytest.fixture(scope="module")
def on_spark(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> StateSpace:
    """BookKeeper 4.13 without its fix, from a real Spark of two cores: executors write the largest levels, and the
    driver those after.
    """
    protocol = shipped("bookkeeper-4.13")(**{**SMALL, "ack_quorum": 2}, recovery_reads_fence=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "FEWEST_ROWS", 1000)  # for each of the two cores a task
        return written(protocol, tmp_path_factory.mktemp("spaces") / "spark", handover=5000)


@pytest.mark.campaign
def test_the_same_table_from_executors(on_spark: StateSpace, tmp_path: Path) -> None:
    assert contents(on_spark) == contents(written(on_spark.protocol(), tmp_path / "embedded", engine="embedded"))


@pytest.mark.campaign
@pytest.mark.usefixtures("spark")
def test_questions(on_spark: StateSpace, capsys: pytest.CaptureFixture[str]) -> None:
    directory = str(on_spark.directory)

    def answer(*words: str) -> str:
        assert main(list(words)) == 0
        return capsys.readouterr().out

    joined = "select count(*) from states join edges on fingerprint = source"
    assert str(on_spark.manifest.edges) in answer("query", directory, joined)
    where = "meta.status = 'CLOSED' and w1.status = 'OPEN' and not bookie.b2.fenced"
    assert "The shortest behaviour: 11 states" in answer("witness", directory, "--where", where)
