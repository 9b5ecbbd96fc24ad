"""The state space as a table: the plain explorer's states and steps, value by value, from any engine and any number of
workers.
"""

from __future__ import annotations

import errno
import json
import shutil
from functools import reduce
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from campaigns import campaign_if
from checker.engines.random_protocols import seeded
from hypothesis import given
from hypothesis import strategies as st
from states.tables import rows, states, steps, written
from states.values import VALUES, Entry, Light

import fencepost
from fencepost import (
    Map,
    OptionError,
    Protocol,
    Record,
    SystemFailure,
    Table,
    action,
    constant,
    invariant,
    require,
    state,
    table,
)
from fencepost.checker.engines.interface import Progress
from fencepost.language.loading import shipped
from fencepost.language.values import show
from fencepost.semantics.state import LOW
from fencepost.states.columns import completed, field_of
from fencepost.states.files import Files
from fencepost.states.kinds import Kind, agree, converted, from_column, merged, plain, to_column
from fencepost.states.manifest import StateSpace
from fencepost.states.spool import Spool

SMALL: dict[str, Any] = {"bookies": 2, "write_quorum": 2, "ack_quorum": 1}


class Zoo(Protocol):
    """Variables of each kind of column, and variables that change their kind or appear during the search."""

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


def as_row(value: Any) -> Any:
    """A value in the form of a row, in a column of one kind."""
    if isinstance(value, frozenset):
        return sorted((as_row(part) for part in value), key=repr)
    if isinstance(value, tuple):
        return [as_row(part) for part in value]
    if isinstance(value, Map) and any(isinstance(key, Record) and key._fields for key in value):
        return [{"key": as_row(key), "value": as_row(part)} for key, part in sorted(value.items(), key=repr)]
    if isinstance(value, Map):
        return sorted((as_row(key), as_row(part)) for key, part in value.items())
    if isinstance(value, Record) and value._fields:
        return {name: as_row(getattr(value, name)) for name in value._fields}
    return value if value is None or isinstance(value, bool | int | float | str) else show(value)


def signed(fingerprint: int) -> int:
    return int(np.array([fingerprint & LOW], np.uint64).view(np.int64)[0])


@pytest.mark.parametrize("levels", [7, *campaign_if(bool, [8])])
def test_every_state_value_by_value(tmp_path: Path, levels: int) -> None:
    def build() -> Protocol:
        return shipped("bookkeeper-4.13")(**SMALL)

    space = written(build(), tmp_path / "space", max_depth=levels)
    by_fingerprint = {row["fingerprint"]: row for row in rows(space, "states")}
    expected = list(states(build(), max_depth=levels + 1))
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
            if told is None:  # a channel with its initial contents
                assert value is None or (not slot.constant and value in (slot.default, ())), slot.name
            elif isinstance(told, str):
                assert told == show(value), slot.name
            else:
                assert told == as_row(value), slot.name


def test_every_step(tmp_path: Path) -> None:
    def build() -> Protocol:
        return shipped("ledger-chaining")(clients=1)

    space = written(build(), tmp_path / "space")
    found = {
        (
            row["source"],
            row["target"],
            row["action"],
            f"{row['action']}({row['parameters']})" if row["parameters"] else row["action"],
        )
        for row in rows(space, "edges")
    }
    expected = {(signed(source), signed(target), action, title) for source, target, action, title in steps(build())}
    assert found == expected and space.manifest.edges == len(expected)


def test_pandas_groups_by_actions_and_by_nothing_else(tmp_path: Path) -> None:
    """pandas reads a column of text as a categorical, which lists every possible value."""
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
    ways: list[dict[str, Any]] = [{"engine": "reference"}, {"workers": 1}, {"workers": 3}]
    for place, options in enumerate(ways):
        space = written(random.build(), tmp_path / str(place), max_depth=5, **options)
        tables.append((rows(space, "states"), rows(space, "edges"), msgspec.structs.replace(space.manifest, files={})))
    assert tables[0] == tables[1] == tables[2]


def test_kinds_of_columns(tmp_path: Path) -> None:
    space = written(Zoo(), tmp_path / "space")
    columns = space.manifest.columns
    assert columns == {
        "fingerprint": "int", "depth": "int", "parent": "int", "action": "text", "parameters": "text",
        "depth_": "int", "light": "text", "flag": "bool", "share": "float", "owner": "text", "maybe": "int",
        "mixed": "text",
        "huge": "text", "seen.keys": {"set": "int"}, "seen.1": "bool", "seen.2": "bool", "seen.3": "bool",
    }  # fmt: skip
    assert {"depth", "fingerprint"} <= set(columns)
    start = next(row for row in rows(space, "states") if row["parent"] is None)
    assert (start["depth"], start["depth_"], start["light"], start["flag"], start["share"]) == (1, 0, "RED", False, 0.5)
    assert (start["owner"], start["maybe"], start["mixed"], start["huge"], start["seen.2"]) == (
        "nobody",
        None,
        "0",
        "0",
        None,
    )
    changed = next(
        row for row in rows(space, "states") if row["flag"] and row["depth_"] == 2 and row["seen.2"] is not None
    )
    assert (changed["light"], changed["share"], changed["owner"], changed["maybe"]) == ("GREEN", 1.5, "somebody", 14)
    assert (changed["mixed"], changed["huge"], changed["seen.2"]) == ("⟨True, 1⟩", str(1 << 64), True)
    forgotten = [row for row in rows(space, "states") if row["action"] == "forget" and row["parameters"] == "n=2"]
    assert forgotten and all(row["seen.2"] is None for row in forgotten)
    for path in (tmp_path / "space" / "states").iterdir():
        held = json.loads(pq.read_schema(path).metadata[b"fencepost"])
        assert (held["protocol"], held["schema"], held["shown"]) == ("zoo", 3, {"limit": "3"})


def test_many_small_files_hold_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = rows(written(shipped("ledger-chaining")(clients=2), tmp_path / "one", max_depth=12), "states")
    monkeypatch.setattr("fencepost.states.files.FILE_ROWS", 50)
    monkeypatch.setattr("fencepost.states.spool.BLOCK", 50)
    monkeypatch.setattr("fencepost.states.columns.FEW", 2)
    assert rows(written(shipped("ledger-chaining")(clients=2), tmp_path / "many", max_depth=12), "states") == whole
    assert len(list((tmp_path / "many" / "states").iterdir())) > 4


class Empty(Record):
    """A record without fields. Parquet has no type for it."""


class Nested(Protocol):
    """Composite values: known from the start, known late, and of incompatible kinds."""

    ids: frozenset[int] = state(frozenset())
    log: Any = state(())
    by_id: Any = state(Map())
    entry: Any = state(None)
    empty: Any = state(frozenset({Empty()}))
    unlike: Any = state(frozenset({1}))
    parts_unlike: Any = state(("a",))
    missing: Any = state((None,))
    nothing: Any = state(frozenset())
    n: int = state(0)

    @action
    def go(self) -> None:
        require(self.n < 12)
        self.n += 1
        self.ids |= {self.n}
        entry = Entry(self.n, "x" if self.n > 3 else None)
        self.log += (entry,)
        self.by_id = self.by_id.set(f"k{self.n}", frozenset({entry}))
        self.entry = entry
        if self.n == 4:
            self.unlike = (1, frozenset({"b"}))
            self.parts_unlike = (1, Entry(1, (True,)), None)
            self.missing = (None, "found")


def test_values_with_parts_are_lists_structs_and_maps(tmp_path: Path) -> None:
    entry = {"struct": {"id": "int", "data": "text"}, "of": "Entry"}
    for engine in ("reference", "embedded"):
        space = written(Nested(), tmp_path / engine, engine=engine)
        assert space.parts == {
            "ids": {"set": "int"}, "log": {"list": entry}, "by_id": {"map": ["text", {"set": entry}]}, "entry": entry,
            "empty": {"set": "text"},
            "unlike": "text", "parts_unlike": {"list": "text"}, "missing": {"list": "text"}, "nothing": {"set": None},
            "n": "int",
        }  # fmt: skip
        by_n = {row["n"]: row for row in rows(space, "states")}
        first, last = by_n[0], by_n[12]
        assert (first["ids"], first["log"], first["by_id"], first["entry"]) == ([], [], [], None)
        assert (first["unlike"], first["parts_unlike"], first["missing"], first["nothing"]) == (
            "{1}",
            ["a"],
            [None],
            [],
        )
        entries = [{"id": n, "data": "x" if n > 3 else None} for n in range(1, 13)]
        assert (last["ids"], last["log"], last["entry"]) == (list(range(1, 13)), entries, entries[-1])
        assert dict(last["by_id"]) == {f"k{e['id']}": [e] for e in entries} and [
            key for key, _ in last["by_id"]
        ] == sorted(dict(last["by_id"]))
        assert (last["unlike"], last["empty"]) == ("⟨1, {b}⟩", ["Empty()"])
        assert (last["parts_unlike"], last["missing"]) == (["1", "Entry(id=1, data=⟨True⟩)", None], [None, "found"])


@given(st.lists(VALUES, min_size=1, max_size=6), st.integers(0, 6))
def test_what_a_file_is_written_again_as_does_not_depend_on_when_it_was_written(values: list[Any], at: int) -> None:
    """Some values are written before later ones are known. The result is as if all had been known from the start."""

    def kind_of_all(some: list[Any]) -> Kind:
        return reduce(merged, (plain(value)[0] for value in some), None)

    early, final = kind_of_all(values[:at]), kind_of_all(values)
    for value in values[:at]:
        kind, held = plain(value)
        column = pa.array([to_column(converted(held, kind, early), early)], field_of("", early).type).to_pylist()
        assert converted(from_column(column[0], early), early, final) == converted(held, kind, final)
        pa.array([to_column(converted(held, kind, final), final)], field_of("", final).type)


@given(st.lists(VALUES, min_size=1, max_size=6), st.integers(0, 6))
def test_what_was_unknown_becomes_known_without_looking_at_values(values: list[Any], at: int) -> None:
    def kind_of_all(some: list[Any]) -> Kind:
        return reduce(merged, (plain(value)[0] for value in some), None)

    def column(kind: Kind) -> Any:
        found = [converted(held, one, kind) for one, held in map(plain, values[:at])]
        return pa.array([to_column(value, kind) for value in found], field_of("", kind).type)

    early, final = kind_of_all(values[:at]), kind_of_all(values)
    if agree(early, final):
        got, expected = completed(column(early), field_of("", final).type), column(final)
        got.validate(full=True)
        assert got.type == expected.type and got.to_pylist() == expected.to_pylist()


class Later(Protocol):
    """With columns that appear and change their kind on every level."""

    n: int = state(0)
    held: Any = state(frozenset())
    mixed: Any = state(1)
    seen: Table[int, Any] = table()

    @action(step=(1, 2, 3))
    def count(self, step: int) -> None:
        require(self.n < 9)
        self.n += step
        self.seen[self.n] = self.n if self.n % 2 else (self.n,)
        self.held = frozenset({self.n if self.n < 5 else str(self.n)})
        if self.n > 7:
            self.mixed = "late"


def test_every_file_has_the_same_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.states.files.FILE_ROWS", 10)
    monkeypatch.setattr("fencepost.states.spool.BLOCK", 10)
    for engine in ("reference", "embedded"):
        space = written(Later(), tmp_path / engine, engine=engine)
        schemas = [pq.read_schema(file) for file in space.files("states")]
        assert len(schemas) > 3 and all(schema.equals(schemas[0], check_metadata=True) for schema in schemas)
        assert schemas[0].names == list(space.manifest.columns)
        assert [pq.read_metadata(file).num_rows for file in space.files("states")] == [
            file.rows for file in space.manifest.files["states"]
        ]
    assert rows(StateSpace(tmp_path / "reference"), "states") == rows(StateSpace(tmp_path / "embedded"), "states")


def test_only_the_files_that_the_manifest_names_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.states.files.FILE_ROWS", 10)
    monkeypatch.setattr("fencepost.states.spool.BLOCK", 10)
    space = written(Later(), tmp_path / "space")
    file, other = (Path(name) for name in space.files("states")[1:3])
    expected, whole = rows(space, "states"), file.read_bytes()
    shutil.copy(file, file.with_name("part-99999.parquet"))
    assert rows(space, "states") == expected and len(expected) == space.manifest.states
    for damaged in (whole[:-100], other.read_bytes(), b""):
        file.write_bytes(damaged)
        with pytest.raises(
            SystemFailure, match=rf"is damaged: states/{file.name} is not what was written; check again"
        ):
            space.files("states")
    file.unlink()
    with pytest.raises(SystemFailure, match=rf"is damaged: states/{file.name} is missing; check again"):
        space.files("states")
    space.files("edges")


def test_a_flipped_bit_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "space"
    file = Path(written(Later(), directory).files("states")[0])
    whole = file.read_bytes()
    for bit in range(0, len(whole) * 8, len(whole) // 5):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        file.write_bytes(flipped)
        with pytest.raises(
            SystemFailure, match=rf"is damaged: states/{file.name} is not what was written; check again"
        ):
            StateSpace(directory).files("states")
    file.write_bytes(whole)
    StateSpace(directory).files("states")


def test_the_parts_of_files_have_checksums_for_readers_that_do_not_know_the_manifest(tmp_path: Path) -> None:
    file = Path(written(Later(), tmp_path / "space").files("states")[0])
    content = bytearray(file.read_bytes())
    with pq.ParquetFile(file) as whole:
        page = whole.metadata.row_group(0).column(0)
    content[page.data_page_offset + page.total_compressed_size - 1] ^= 1
    file.write_bytes(content)
    with pytest.raises(OSError, match="CRC"):
        pq.ParquetFile(file, page_checksum_verification=True).read()


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


@pytest.mark.parametrize(
    ("owner", "method", "times"), [(Spool, "add", 4), (Spool, "close", 1), (Files, "write", 1), (Files, "write", 4)]
)
@pytest.mark.parametrize("engine", ["embedded", "reference"])
def test_a_full_disk_leaves_nothing(
    engine: str, owner: type, method: str, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = getattr(owner, method), []

    def refuse(*given: Any) -> None:
        calls.append(given)
        if len(calls) >= times:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(*given)

    monkeypatch.setattr("fencepost.states.spool.BLOCK", 1)
    monkeypatch.setattr(owner, method, refuse)
    result = fencepost.check(Zoo(), engine=engine, states=tmp_path / "space", workers=1)
    assert str(result.failure) == f"the state space cannot be written to {tmp_path / 'space'}: No space left on device"
    assert result.table is None and not result.holds and not (tmp_path / "space").exists()


def test_progress_and_an_interrupt_while_states_are_encoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.states.spool.BLOCK", 5)
    told: list[str] = []

    def report(progress: Progress) -> None:
        if progress.doing.startswith("writing"):
            told.append(progress.doing)
            if len(told) == wanted:
                raise KeyboardInterrupt

    wanted = 0
    states = fencepost.check(Zoo(), engine="embedded", states=tmp_path / "space", report=report).distinct_states
    assert told == [f"writing states: {done} of {states}" for done in range(0, states, 5)] and len(told) > 2
    told, wanted = [], 2
    result = fencepost.check(Zoo(), engine="embedded", states=tmp_path / "other", report=report)
    assert (result.verdict, result.exit_code, result.distinct_states, result.table) == (
        "interrupted",
        130,
        states,
        None,
    )
    assert not (tmp_path / "other").exists()


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
    with pytest.raises(SystemFailure, match=r"no folder of a state space \(fencepost check PROTOCOL --states FOLDER"):
        StateSpace(__file__)
    with pytest.raises(SystemFailure, match=r"holds no state space: there is no manifest\.json"):
        StateSpace(tmp_path)
    (tmp_path / "manifest.json").write_text('{"schema": 99}')
    with pytest.raises(SystemFailure, match="another version of Fencepost"):
        StateSpace(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(SystemFailure, match="is no manifest"):
        StateSpace(tmp_path)


def test_a_shipped_protocol_is_found_again_by_its_name_wherever_it_lives(tmp_path: Path) -> None:
    for name in ("store", "ledger-chaining"):
        protocol = shipped(name)
        fencepost.check(protocol(), max_depth=3, states=tmp_path / name)
        assert type(StateSpace(tmp_path / name).protocol()) is protocol
