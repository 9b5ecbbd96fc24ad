"""JSON and ITF: written behaviours are read back and compared value by value."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from typing import Any

import pytest
from behaviours.test_formatting import Add, Colour, Entry, values
from hypothesis import given
from report.behaviours import Post, follow, wander
from report.small_ledger import SmallLedger

import fencepost
from fencepost import Map, ModelValue, Options, Protocol, Record, Trace, action, assumption, constant, require, state
from fencepost.behaviours.itf import expression, itf, to_itf
from fencepost.behaviours.json import dumps, loads, plain
from fencepost.behaviours.reading import read
from fencepost.language.values import Value
from fencepost.report.json import to_json
from fencepost.text.plain import decimal

# -- JSON -------------------------------------------------------------------------------------------------------------


def back(written: Any, like: Value) -> Value:
    """A JSON value with the types of ``like``. It equals ``like`` only if nothing was lost or mixed up."""
    if isinstance(like, enum.Enum):
        return type(like)[written]
    if isinstance(like, ModelValue):
        assert type(written) is str
        return ModelValue(written, like.index)
    if isinstance(like, tuple):
        assert len(written) == len(like)
        return tuple(back(w, v) for w, v in zip(written, like, strict=True))
    if isinstance(like, frozenset):
        ordered = list(like)  # a Set iterates in canonical order
        assert len(written) == len(ordered)
        return frozenset(back(w, v) for w, v in zip(written, ordered, strict=True))
    if isinstance(like, Record):
        assert set(written) == set(like._fields)
        return type(like)(**{n: back(written[n], getattr(like, n)) for n in like._fields})
    if isinstance(like, Mapping):
        pairs = list(written.items()) if isinstance(written, dict) else written
        assert len(pairs) == len(like)
        return Map({back_key(k, key): back(v, like[key]) for (k, v), key in zip(pairs, like, strict=True)})
    assert type(written) is type(like)
    return written


def back_key(written: Any, like: Value) -> Value:
    if type(like) is int and type(written) is str:
        return int(written)
    return back(written, like)


@given(values())
def test_any_value_survives_json(value: Value) -> None:
    assert back(json.loads(json.dumps(plain(value))), value) == value


def test_maps_are_objects_where_keys_allow_it() -> None:
    assert plain(Map({ModelValue("b1"): 1, "x": (1, 2)})) == {"x": [1, 2], "b1": 1}
    assert plain(Map({1: frozenset({2, 1}), Colour.RED: None})) == {"1": [1, 2], "RED": None}
    assert plain(Map({1: "a", "1": "b"})) == [[1, "a"], ["1", "b"]]
    assert plain(Map({True: 1})) == [[True, 1]]
    assert plain(Map({(ModelValue("b1"), 2): Entry(1, "x")})) == [[["b1", 2], {"id": 1, "data": "x"}]]
    assert plain(b"\x01\xff") == "01ff"
    assert plain(float("-inf")) == "-inf"


@pytest.fixture(scope="module")
def violated() -> fencepost.Result:
    return fencepost.check(SmallLedger(), engine="reference", options=Options(keep_going=True, deadlock=True))


def check_states(written: list[dict[str, Any]], trace: Trace) -> None:
    assert len(written) == len(trace)
    for entry, reached in zip(written, trace.states, strict=True):
        variables = reached.variables()
        assert list(entry["state"]) == list(variables)
        for name, value in variables.items():
            assert back(entry["state"][name], value) == value
    assert written[0]["action"] is None
    assert written[0]["parameters"] == {}
    for entry, step in zip(written[1:], trace.steps, strict=True):
        assert entry["action"] == step.action
        assert entry["by"] == step.by
        assert {n: back(entry["parameters"][n], v) for n, v in step.parameters.items()} == step.parameters
        assert [(e["kind"], e["source"], e["dest"], e["text"], e["lost"]) for e in entry["events"]] == [
            (e.kind, str(e.source), str(e.dest), e.text, e.lost) for e in step.events
        ]


def test_a_result_as_json(violated: fencepost.Result) -> None:
    written = json.loads(to_json(violated))
    assert written["protocol"] == "small-ledger"
    assert written["constants"] == {
        "bookies": ["b1", "b2"],
        "writer": ["w1"],
        "recoverer": ["w2"],
        "ack_quorum": 1,
        "recovery_reads_fence": False,
        "lossy": False,
    }
    assert written["verdict"] == "no_committed_entry_is_lost"
    assert written["exit_code"] == 12
    assert written["complete"] is True
    for number in (
        "distinct_states",
        "generated_states",
        "depth",
        "queue",
        "seconds",
        "states_per_second",
        "peak_memory_bytes",
        "collision_probability",
        "evaluations",
        "limit",
        "interrupted",
        "engine",
    ):
        assert written[number] == getattr(violated, number)
    assert written["actions"] == [vars(a) for a in violated.actions]
    assert [(v["kind"], v["name"]) for v in written["violations"]] == [
        ("invariant", "no_committed_entry_is_lost"),
        ("deadlock", "deadlock"),
    ]
    assert written["violation"] == written["violations"][0]
    for entry, violation in zip(written["violations"], violated.violations, strict=True):
        assert violation.trace is not None
        check_states(entry["trace"], violation.trace)
    assert json.loads(to_json(violated, indent=0)) == written
    assert "\n" not in to_json(violated, indent=0)


LONG = 10**7_000 + 7


def test_long_numbers_and_halves_of_pairs_are_exchanged(violated: fencepost.Result) -> None:
    value = (LONG, -LONG, 1 << 64, "\ud800", Map({LONG: 1}))
    assert [loads(dumps({"x": expression(v)})) for v in value[:2]] == [
        {"x": {"#bigint": text}} for text in (decimal(LONG), decimal(-LONG))
    ]
    written = json.loads(dumps(plain(value), indent=2))
    assert written == [decimal(LONG), decimal(-LONG), str(1 << 64), "\ud800", {decimal(LONG): 1}]
    assert loads(b'{"n": %s}' % decimal(LONG).encode()) == {"n": LONG}
    assert plain((1 << 63) - 1) == (1 << 63) - 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"\xff\xfe{}", "it is not UTF-8 from byte 0 on"),
        (b'{"a": "\xe9"}', "it is not UTF-8 from byte 7 on"),
        (b"[" * 100_000, "it is nested too deeply"),
        (b'{"a":' * 100_000, "it is nested too deeply"),
        (
            b'{"trace": [{"state": {}}], "constants": {"a": ' + b"[" * 900 + b"]" * 900 + b"}}",
            "it is nested too deeply",
        ),
        (b"", "it is not JSON"),
        (b"\x00", "it is not JSON"),
        (b"[]", "it holds no behaviour"),
        (b"1" * 5_000, "it holds no behaviour"),
        (b'{"trace": 5}', "a form that is not known"),
        (b'{"trace": "abc"}', "a form that is not known"),
        (b'{"trace": [{"state": {}}], "loop": "0"}', "a form that is not known"),
        (b'{"trace": [{"state": {}}], "loop": 0.5}', "a form that is not known"),
        (b'{"trace": [{"state": {}}], "constants": 5}', "a form that is not known"),
        (b'{"vars": [], "states": 5}', "a form that is not known"),
        (b'{"vars": [], "states": [], "loop": 3, "#meta": {"closing": 1}}', "a form that is not known"),
    ],
    ids=range(16),
)
def test_a_file_that_is_no_behaviour_is_told_in_a_line(text: bytes, said: str) -> None:
    with pytest.raises(fencepost.OptionError) as refused:
        read(text)
    assert said in str(refused.value)
    assert len(str(refused.value)) < 300


def test_a_file_that_begins_with_a_mark_of_its_order_of_bytes_is_read(violated: fencepost.Result) -> None:
    assert read(b"\xef\xbb\xbf" + to_json(violated).encode()).protocol == "small-ledger"


def test_numbers_counted_by_numpy_can_be_written(violated: fencepost.Result) -> None:
    import numpy as np

    assert json.loads(to_json(fencepost.Result(**{**vars(violated), "depth": np.int64(7)})))["depth"] == 7


def test_nothing_violated_is_null() -> None:
    written = json.loads(
        to_json(fencepost.check(SmallLedger(bookies=1, recovery_reads_fence=True), engine="reference"))
    )
    assert written["violation"] is None
    assert written["violations"] == []
    assert written["verdict"] == "holds"
    assert written["error"] is None


class Faulty(Protocol):
    limit: int = constant(1)
    count: int = state(0)

    @assumption
    def some(self) -> bool:
        return self.limit > 0

    @action
    def tick(self) -> None:
        self.count += 1
        require(1 / (2 - self.count) != 0)


def test_what_a_protocol_raises_is_told_with_the_way_there() -> None:
    result = fencepost.check(Faulty(), engine="reference")
    error = json.loads(to_json(result))["error"]
    assert error["where"] == "tick"
    assert "ZeroDivisionError" in error["message"]
    assert result.error_trace is not None
    check_states(error["trace"], result.error_trace)


def test_an_assumption_has_no_trace() -> None:
    written = json.loads(to_json(fencepost.check(Faulty(limit=0), engine="reference")))
    assert written["violation"] == {"kind": "assumption", "name": "some", "trace": None}


# -- ITF --------------------------------------------------------------------------------------------------------------


def read_itf(written: Any) -> Any:
    """A reader of the format of ADR-015, for this test alone."""
    if isinstance(written, (bool, str)):
        return written
    assert isinstance(written, dict), f"{written!r} is no expression of the format"
    if "#bigint" in written:
        return int(written["#bigint"])
    if "#tup" in written:
        return ("tup", *map(read_itf, written["#tup"]))
    if "#set" in written:
        elements = [read_itf(e) for e in written["#set"]]
        assert len(set(elements)) == len(elements)
        return frozenset(elements)
    if "#map" in written:
        assert all(isinstance(pair, list) and len(pair) == 2 for pair in written["#map"])
        return ("map", frozenset((read_itf(k), read_itf(v)) for k, v in written["#map"]))
    if set(written) == {"tag", "value"}:
        assert written == {"tag": "None", "value": {"#tup": []}}
        return None
    assert not any(name.startswith("#") for name in written)
    return ("record", *((name, read_itf(value)) for name, value in written.items()))


def neutral(value: Value) -> Any:
    """A value of a state in the form of :func:`read_itf`."""
    if isinstance(value, (enum.Enum, ModelValue)):
        return value.name
    if isinstance(value, tuple):
        return ("tup", *map(neutral, value))
    if isinstance(value, frozenset):
        return frozenset(map(neutral, value))
    if isinstance(value, Record):
        return ("record", *((n, neutral(getattr(value, n))) for n in value._fields))
    if isinstance(value, Mapping):
        return ("map", frozenset((neutral(k), neutral(v)) for k, v in value.items()))
    return value


def has_twins(value: Value) -> bool:
    """Whether the format cannot distinguish parts of this value. It has one kind of string, and here 1 equals True."""
    if isinstance(value, (frozenset, Mapping)):
        if len({neutral(v) for v in value}) < len(value):
            return True
        inside = [*value.keys(), *value.values()] if isinstance(value, Mapping) else list(value)
    elif isinstance(value, Record):
        inside = [getattr(value, n) for n in value._fields]
    else:
        inside = list(value) if isinstance(value, tuple) else []
    return any(map(has_twins, inside))


@given(values())
def test_any_value_survives_itf(value: Value) -> None:
    if not has_twins(value):
        assert read_itf(json.loads(json.dumps(expression(value)))) == neutral(value)


def test_the_kinds_of_itf_literally() -> None:
    value = Map({ModelValue("b1"): (1, True, None), ModelValue("b2"): frozenset({Add(Entry(1, "x"), 0)})})
    assert expression(value) == {
        "#map": [
            ["b1", {"#tup": [{"#bigint": "1"}, True, {"tag": "None", "value": {"#tup": []}}]}],
            ["b2", {"#set": [{"entry": {"id": {"#bigint": "1"}, "data": "x"}, "lac": {"#bigint": "0"}}]}],
        ]
    }
    assert expression(1.5) == {"#unserializable": "1.5"}


@pytest.mark.parametrize("protocol", [SmallLedger(lossy=True), Post()], ids=["ledger", "post"])
def test_a_behaviour_as_itf(protocol: Protocol) -> None:
    trace = wander(protocol, seed=3)
    written = json.loads(to_itf(trace))
    assert written == json.loads(to_itf(trace, indent=0)) == itf(trace)
    assert set(written) == {"#meta", "params", "vars", "states"}
    assert written["vars"] == list(protocol.shapes)
    assert written["params"] == list(protocol.constants)
    assert len(written["states"]) == len(trace)
    for index, (entry, reached) in enumerate(zip(written["states"], trace.states, strict=True)):
        meta = entry.pop("#meta")
        assert meta["index"] == index
        assert meta.get("action") == (trace.steps[index - 1].action if index else None)
        if index == 0:  # the initial state must have the parameters too
            for name, value in protocol.constants.items():
                assert read_itf(entry.pop(name)) == neutral(value)
        assert {name: read_itf(e) for name, e in entry.items()} == {
            n: neutral(v) for n, v in reached.variables().items()
        }


def test_connections_that_are_cut_are_part_of_the_state() -> None:
    written = json.loads(to_itf(follow(Post(), ["cut"])))
    assert [{"#tup": ["cut", "h1", "h2"]}, True] in written["states"][1]["network"]["#map"]
