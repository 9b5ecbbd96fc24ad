"""The state space as a table: the plain explorer's states and steps, value by value, from any engine and number of workers."""

from __future__ import annotations

import errno
import json
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow.parquet as pq
import pytest
from engines.random_protocols import seeded
from tables import rows, states, steps, written

import fencepost
from fencepost import OptionError, Protocol, SystemFailure, Table, action, constant, invariant, require, state, table
from fencepost.protocols import shipped
from fencepost.spec.values import show
from fencepost.states.files import Files
from fencepost.states.manifest import StateSpace
from fencepost.step.state import LOW

SMALL: dict[str, Any] = {"bookies": 2, "write_quorum": 2, "ack_quorum": 1}


class Light(Enum):
    RED = 1
    GREEN = 2


class Zoo(Protocol):
    """One part of each kind that a column can have, and parts that change their kind or appear on the way."""

    limit: int = constant(3)
    depth: int = state(0)
    light: Light = state(Light.RED)
    flag: bool = state(False)
    share: float = state(0.5)
    owner: str = state("nobody")
    maybe: Any = state(None)
    mixed: Any = state(0)
    huge: int = state(0)
    seen: Table[int, bool] = table()

    @action
    def tick(self) -> None:
        require(self.depth < self.limit)
        self.depth += 1
        self.maybe = 7 * self.depth
        self.seen[self.depth] = self.depth % 2 == 0

    @action
    def change(self) -> None:
        require(self.depth == 2)
        self.light, self.flag, self.share, self.owner = Light.GREEN, True, 1.5, "somebody"
        self.mixed, self.huge = (True, "1"), 1 << 64

    @action(n=(1, 2))
    def forget(self, n: int) -> None:
        require(n in self.seen)
        del self.seen[n]


def signed(fingerprint: int) -> int:
    return int(np.array([fingerprint & LOW], np.uint64).view(np.int64)[0])


def test_every_state_value_by_value(tmp_path: Path) -> None:
    def build() -> Protocol:
        return shipped("bookkeeper-4.13")(**SMALL)

    space = written(build(), tmp_path / "space", max_depth=8)
    by_fingerprint = {row["fingerprint"]: row for row in rows(space, "states")}
    expected = list(states(build(), max_depth=9))
    assert len(by_fingerprint) == len(expected) == space.manifest.states > 300
    for fingerprint, depth, one, link in expected:
        row = by_fingerprint[signed(fingerprint)]
        assert row["depth"] == depth
        if link is None:
            assert (row["parent"], row["action"], row["parameters"]) == (None, None, None)
        else:
            title = f"{row['action']}({row['parameters']})" if row["parameters"] else row["action"]
            assert (row["parent"], title) == (signed(link[0]), link[1].title)
        for slot, value in one.slots():
            told = row.get(slot.name)
            if told is None:  # a channel that holds what it began with
                assert value is None or (not slot.constant and value in (slot.default, ())), slot.name
            elif isinstance(told, str):
                assert told == show(value), slot.name
            else:
                assert type(told) is type(value) and told == value, slot.name


def test_every_step(tmp_path: Path) -> None:
    def build() -> Protocol:
        return shipped("ledger-chaining")(clients=1)

    space = written(build(), tmp_path / "space")
    found = {
        (row["source"], row["target"], row["action"], f"{row['action']}({row['parameters']})" if row["parameters"] else row["action"])
        for row in rows(space, "edges")
    }
    expected = {(signed(source), signed(target), action, title) for source, target, action, title in steps(build())}
    assert found == expected and space.manifest.edges == len(expected)


def test_pandas_groups_by_actions_and_by_nothing_else(tmp_path: Path) -> None:
    """A column of text comes to pandas as a categorical, which counts every value that it could have."""
    protocol = shipped("ledger-chaining")(clients=1)
    space = written(protocol, tmp_path / "space")
    actions = {declared.name for declared in protocol.declared("action")}
    for name in ("states", "edges"):
        held = pandas.read_parquet(space.files(name))
        assert set(held["action"].cat.categories) == actions
        assert set(held["parameters"].cat.categories) == {"c=c1"}


@pytest.mark.parametrize("seed", range(6))
def test_the_same_table_from_any_engine_and_number_of_workers(seed: int, tmp_path: Path) -> None:
    random = seeded(seed)
    tables = []
    for place, options in enumerate(({"engine": "reference"}, {"workers": 1}, {"workers": 3})):
        space = written(random.build(), tmp_path / str(place), max_depth=5, **options)
        tables.append((rows(space, "states"), rows(space, "edges"), space.manifest))
    assert tables[0] == tables[1] == tables[2]


def test_kinds_of_columns(tmp_path: Path) -> None:
    space = written(Zoo(), tmp_path / "space")
    columns = space.manifest.columns
    assert columns == {
        "fingerprint": "int", "depth": "int", "parent": "int", "action": "text", "parameters": "text",
        "depth_": "int", "light": "text", "flag": "bool", "share": "float", "owner": "text", "maybe": "int", "mixed": "text",
        "huge": "text", "seen.keys": "text", "seen.1": "bool", "seen.2": "bool", "seen.3": "bool",
    }  # fmt: skip
    assert {"depth", "fingerprint"} <= set(columns)
    start = next(row for row in rows(space, "states") if row["parent"] is None)
    assert (start["depth"], start["depth_"], start["light"], start["flag"], start["share"]) == (1, 0, "RED", False, 0.5)
    assert (start["owner"], start["maybe"], start["mixed"], start["huge"], start["seen.2"]) == ("nobody", None, "0", "0", None)
    changed = next(row for row in rows(space, "states") if row["flag"] and row["depth_"] == 2 and row["seen.2"] is not None)
    assert (changed["light"], changed["share"], changed["owner"], changed["maybe"]) == ("GREEN", 1.5, "somebody", 14)
    assert (changed["mixed"], changed["huge"], changed["seen.2"]) == (show((True, "1")), str(1 << 64), True)
    forgotten = [row for row in rows(space, "states") if row["action"] == "forget" and row["parameters"] == "n=2"]
    assert forgotten and all(row["seen.2"] is None for row in forgotten)
    for path in (tmp_path / "space" / "states").iterdir():
        held = json.loads(pq.read_schema(path).metadata[b"fencepost"])
        assert (held["protocol"], held["schema"], held["shown"]) == ("zoo", 1, {"limit": "3"})


def test_many_small_files_hold_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = rows(written(shipped("ledger-chaining")(clients=2), tmp_path / "one", max_depth=12), "states")
    monkeypatch.setattr("fencepost.states.files.FILE_ROWS", 100)
    monkeypatch.setattr("fencepost.states.columns.FEW", 2)
    assert rows(written(shipped("ledger-chaining")(clients=2), tmp_path / "many", max_depth=12), "states") == whole
    assert len(list((tmp_path / "many" / "states").iterdir())) > 4


class Bad(Zoo):
    @invariant
    def never_two(self) -> bool:
        return self.depth != 2


def test_a_search_that_ends_early_says_so(tmp_path: Path) -> None:
    limited = fencepost.check(Zoo(), states=tmp_path / "limited", max_depth=2, workers=1)
    assert limited.table is not None and (limited.table.complete, limited.table.depth) == (False, 2)
    assert StateSpace(tmp_path / "limited").manifest.ended == "the depth limit of 2"
    violated = fencepost.check(Bad(), states=tmp_path / "violated", workers=1)
    assert violated.table is not None and not violated.table.complete
    assert StateSpace(tmp_path / "violated").manifest.ended == "never_two is violated"


@pytest.mark.parametrize("engine", ["embedded", "reference"])
def test_a_full_disk_leaves_nothing(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, calls = Files.write, []

    def refuse(self: Files, *given: Any) -> None:
        calls.append(given)
        if len(calls) > 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, *given)

    monkeypatch.setattr(Files, "write", refuse)
    result = fencepost.check(Zoo(), engine=engine, states=tmp_path / "space", workers=1)
    assert str(result.failure) == f"the state space can not be written to {tmp_path / 'space'}: No space left on device"
    assert result.table is None and not result.holds and not (tmp_path / "space").exists()


def test_a_failure_leaves_an_empty_directory_that_was_there(tmp_path: Path) -> None:
    (tmp_path / "space").mkdir()
    fencepost.check(Zoo(), checkpoint=tmp_path / "checkpoint", max_depth=2)
    for directory in (tmp_path / "space", tmp_path / "new" / "space"):
        result = fencepost.check(Zoo(), engine="embedded", states=directory, checkpoint=tmp_path / "checkpoint")
        assert "holds a checkpoint already" in str(result.failure)
    assert list((tmp_path / "space").iterdir()) == [] and list((tmp_path / "new").iterdir()) == []


def test_what_it_does_not_go_with(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("")
    with pytest.raises(SystemFailure, match="holds files already"):
        fencepost.check(Zoo(), states=tmp_path / "taken")
    for options, why in (({"bits": 128}, "64 bits"), ({"resume": tmp_path}, "only engine spark can go on with one")):
        with pytest.raises(OptionError, match=why):
            fencepost.check(Zoo(), states=tmp_path / "space", **options)
    for checkpoint in (tmp_path / "space", f"file://{tmp_path}/space", tmp_path / "space" / "states"):
        for engine in ("auto", "spark"):
            with pytest.raises(OptionError, match="give the checkpoint a folder of its own"):
                fencepost.check(Zoo(), engine=engine, states=tmp_path / "space", checkpoint=checkpoint)
    assert not (tmp_path / "space").exists()
    with pytest.raises(OptionError, match="give states"):
        fencepost.check(Zoo(), edges=True)
    with pytest.raises(OptionError, match="simulation"):
        fencepost.check(Zoo(), engine="simulate", states=tmp_path / "space")


def test_a_directory_without_a_state_space(tmp_path: Path) -> None:
    with pytest.raises(SystemFailure, match=r"holds no state space: there is no manifest\.json"):
        StateSpace(tmp_path)
    (tmp_path / "manifest.json").write_text('{"schema": 99}')
    with pytest.raises(SystemFailure, match="another version of Fencepost"):
        StateSpace(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(SystemFailure, match="is no manifest"):
        StateSpace(tmp_path)
