"""Specifications that follow a trace: what they read of files and of the environment, and how they tell that all of it
was followed. The answers are TLC's.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fencepost import check
from fencepost.cli.main import main
from fencepost.language import loading
from fencepost.language.seam import language_of
from fencepost.tla.errors import SpecificationError

COUNTER = r"""---- MODULE Counter ----
EXTENDS Naturals
CONSTANT Clients
VARIABLES counter, seen
vars == <<counter, seen>>
Start == 0
Init == counter = Start /\ seen = [c \in Clients |-> 0]
Read(c) == seen' = [seen EXCEPT ![c] = counter] /\ UNCHANGED counter
Write(c) == counter' = seen[c] + 1 /\ UNCHANGED seen
Next == \E c \in Clients : Read(c) \/ Write(c)
===="""

FOLLOW = r"""---- MODULE Follow ----
EXTENDS Counter, Json, IOUtils, Sequences, TLC
ASSUME TLCGet("config").mode = "bfs" /\ TLCGet("config").worker = 1
Log == ndJsonDeserialize(IF "TRACE" \in DOMAIN IOEnv THEN IOEnv.TRACE ELSE "trace.ndjson")
Names == {Log[i].client : i \in DOMAIN Log}
First == Log[1].value
VARIABLE l
Follows == /\ l <= Len(Log)
           /\ l' = l + 1
           /\ LET e == Log[l] IN \/ e.name = "read" /\ Read(e.client) /\ seen'[e.client] = e.value
                                 \/ e.name = "write" /\ Write(e.client) /\ counter' = e.value
TraceSpec == Init /\ l = 1 /\ [][Follows]_<<vars, l>>
TraceView == <<vars, TLCGet("level")>>
Matched == [](l <= Len(Log) => [](TLCGet("queue") = 1 \/ l > Len(Log)))
Whole == TLCGet("stats").diameter = Len(Log) + 1
base == INSTANCE Counter
BaseSpec == base!Init /\ [][base!Next]_base!vars
===="""

CONFIG = """SPECIFICATION TraceSpec
CONSTANTS Clients <- Names Start <- First
VIEW TraceView
POSTCONDITION Whole
CHECK_DEADLOCK FALSE
"""

TRACE = """{"name": "read", "client": "a", "value": 5, "ts": 1.5}
{"name": "read", "client": "b", "value": 5, "ts": 2}

{"name": "write", "client": "b", "value": 6, "tags": ["x", true, {"n": 1}]}
{"name": "write", "client": "a", "value": 6, "empty": {}}
{"name": "read", "client": "a", "value": 6}
"""


@pytest.fixture
def follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "Counter.tla").write_text(COUNTER)
    (tmp_path / "Follow.tla").write_text(FOLLOW)
    (tmp_path / "Follow.cfg").write_text(CONFIG + "PROPERTIES Matched BaseSpec")
    (tmp_path / "trace.ndjson").write_text(TRACE)
    monkeypatch.setenv("TRACE", str(tmp_path / "trace.ndjson"))
    return tmp_path / "Follow.tla"


def module(folder: Path, *lines: str) -> str:
    (folder / "M.tla").write_text(
        "\n".join(["---- MODULE M ----", "EXTENDS Integers, Sequences, TLC, Json, IOUtils", *lines, "===="])
    )
    (folder / "M.cfg").write_text("")
    return str(folder / "M.tla")


@pytest.mark.parametrize("engine", ["auto", "embedded", "reference"])
def test_a_trace_is_followed_to_its_end(follow: Path, engine: str) -> None:
    result = check(str(follow), engine=engine)
    assert result.holds and result.complete
    assert (result.generated_states, result.distinct_states, result.depth) == (6, 6, 6)


@pytest.mark.parametrize("engine", ["auto", "embedded", "reference"])
def test_one_that_is_none_is_told_where_it_goes_wrong(follow: Path, engine: str) -> None:
    trace = follow.parent / "trace.ndjson"
    trace.write_text(TRACE.replace('"write", "client": "a", "value": 6', '"write", "client": "a", "value": 7'))
    result = check(str(follow), engine=engine)
    (violation,) = result.violations
    assert (violation.name, result.distinct_states, result.depth) == ("Matched", 4, 4)
    assert violation.trace is not None and len(violation.trace.steps) == 3


def test_a_postcondition_tells_it_too(follow: Path) -> None:
    follow.with_suffix(".cfg").write_text(CONFIG)
    assert check(str(follow)).holds
    (follow.parent / "trace.ndjson").write_text(TRACE + '{"name": "none", "client": "a", "value": 6}')
    assert [each.name for each in check(str(follow)).violations] == ["Whole"]


def test_in_an_instance_a_replaced_definition_is_the_other_one(follow: Path) -> None:
    # Else `BaseSpec` would say that the counter starts at 0. What is asked of the instance itself is not replaced.
    follow.write_text(FOLLOW.replace("====", "Own == base!Start = 0\n===="))
    follow.with_suffix(".cfg").write_text(CONFIG + "PROPERTY BaseSpec INVARIANT Own")
    assert check(str(follow)).holds


def test_what_was_read_belongs_to_the_specification(follow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def digest() -> str:
        model = loading.given([str(follow)])
        return language_of(model).digest(model)

    whole = digest()
    monkeypatch.setenv("UNRELATED", "1")
    assert digest() == whole
    (follow.parent / "trace.ndjson").write_text(TRACE.replace("1.5", "2.5"))
    assert digest() != whole
    (follow.parent / "trace.ndjson").unlink()
    assert digest() != whole


def test_another_process_must_read_the_same(follow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = loading.given([str(follow)])
    language = language_of(model)
    packed = language.packed(model)
    assert packed is not None and language.digest(language.unpacked(packed)) == language.digest(model)
    monkeypatch.delenv("TRACE")
    with pytest.raises(ValueError, match="Follow reads other files, or another environment, in another process"):
        language.unpacked(packed)


def test_a_long_trace_shows_its_progress(follow: Path) -> None:
    seen: list[int] = []
    check(str(follow), report=lambda progress: seen.append(progress.distinct))
    assert seen


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "trace.ndjson cannot be read: No such file or directory"),
        ('{"name": "read"}\n\n{"name": "re', "line 3 of .*trace.ndjson is no value"),
        ('{"name": null}', "line 1 of .*trace.ndjson is no value: TLA.+ has no null"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    follow: Path, text: str | None, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = follow.parent / "trace.ndjson"
    trace.unlink() if text is None else trace.write_text(text)
    code = main(["check", str(follow)])
    said = capsys.readouterr().err
    assert code == 75 and "Traceback" not in said
    assert re.search(says, said), said


def test_values_of_json(tmp_path: Path) -> None:
    (tmp_path / "v.json").write_text('{"a": [1, -2, 3.9, true, "x"], "b": {}, "c": {"d": []}}')
    (tmp_path / "lines.ndjson").write_text('[1]\n  \n"x"\r\n')
    assume = [
        f'V == JsonDeserialize("{tmp_path}/v.json")',
        f'L == ndJsonDeserialize("{tmp_path}/lines.ndjson")',
        r'ASSUME V = [a |-> <<1, -2, 3, TRUE, "x">>, b |-> <<>>, c |-> [d |-> <<>>]]',
        r'ASSUME L = <<<<1>>, "x">>',
    ]
    assert check(module(tmp_path, *assume)).holds


def test_what_is_read_has_a_name(tmp_path: Path) -> None:
    path = module(tmp_path, "VARIABLE x", 'Init == x = IOEnv.HOME /\\ x # ""', "Next == UNCHANGED x")
    (tmp_path / "M.cfg").write_text("INIT Init NEXT Next")
    with pytest.raises(SpecificationError, match=r"M.tla:4:13: IOEnv has no value that stays the same here: define"):
        check(path)
    path = module(tmp_path, "VARIABLE x", "Home == IOEnv.HOME", "Init == x = Home", "Next == UNCHANGED x")
    assert check(path).holds


def test_nothing_is_written_and_nothing_is_run(tmp_path: Path) -> None:
    for call in ('ndJsonSerialize("f", <<>>)', 'IOExec(<<"true">>).exitValue = 0', 'IODeserialize("f", FALSE)'):
        with pytest.raises(SpecificationError, match="is not supported"):
            check(module(tmp_path, f"ASSUME {call}"))


def test_a_text_is_read_as_a_command_would_print_it(tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text("3")
    options = '[format |-> "TXT", charset |-> "UTF-8"]'
    path = module(
        tmp_path,
        f'Read == Deserialize("{tmp_path}/nodes", {options})',
        'ASSUME Read = [exitValue |-> 0, stdout |-> "3", stderr |-> ""] /\\ atoi(Read.stdout) = 3',
    )
    assert check(path).holds


@pytest.mark.parametrize(
    ("file", "options", "says"),
    [
        ("none", '[format |-> "TXT"]', "none cannot be read: No such file or directory"),
        ("nodes", '[format |-> "TXT"]', "nodes is no text: "),
        ("nodes", '[format |-> "TXT", charset |-> "klingon"]', "nodes is no text: unknown encoding: klingon"),
        ("nodes", '[format |-> "CSV"]', "Deserialize reads text, with "),
        ("nodes", "<<>>", "Deserialize reads text, with "),
    ],
)
def test_a_text_that_cannot_be_read_is_told(
    tmp_path: Path, file: str, options: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nodes").write_bytes(b"\xff")
    path = module(tmp_path, f'Read == Deserialize("{tmp_path}/{file}", {options})', 'ASSUME Read.stdout = ""')
    assert main(["check", path]) == 75
    said = capsys.readouterr().err
    assert says in said and "Traceback" not in said


NEXT_LEVEL = r"""
VARIABLE x
Init == x = 0
Plus(n) == TLCGet("level")' = n /\ x' = x + n
Idle == TLCGet("level") = 3 /\ ENABLED (TLCGet("level")' = 4 /\ x' = 1) /\ UNCHANGED x
Twice == TLCGet("level") = 4 /\ ((x' = x + 1) \cdot (TLCGet("level") = 4 /\ TLCGet("level")' = 5 /\ x' = 2 * x))
Next == \E n \in 2..3 : Plus(n) \/ Idle \/ Twice
View == <<x, TLCGet("level")>>
Whole == TLCGet("stats").diameter = 5
"""


@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_a_step_asks_for_the_level_that_it_leads_to(tmp_path: Path, engine: str) -> None:
    """Two composed actions are one step."""
    path = module(tmp_path, *NEXT_LEVEL.splitlines())
    (tmp_path / "M.cfg").write_text("INIT Init NEXT Next VIEW View POSTCONDITION Whole CHECK_DEADLOCK FALSE")
    result = check(path, engine=engine)
    assert result.holds and (result.distinct_states, result.depth) == (5, 5)


RELAY = r"""---- MODULE Relay ----
EXTENDS Naturals, Sequences, TLC, Json, IOUtils
Log == ndJsonDeserialize(IOEnv.TRACE)
VARIABLES sent, term, got, l
vars == <<sent, term, got>>
Init == sent = <<>> /\ term = 1 /\ got = 0
Send(t) == t >= term /\ sent' = Append(sent, t) /\ UNCHANGED <<term, got>>
Rise(m) == m > term /\ term' = m /\ UNCHANGED <<sent, got>>
Take(m) == sent # <<>> /\ m = term /\ got' = got + m /\ sent' = Tail(sent) /\ UNCHANGED term
Lose == sent # <<>> /\ sent' = Tail(sent) /\ UNCHANGED <<term, got, l>>
Is(name) == l <= Len(Log) /\ Log[l].name = name /\ l' = l + 1
IsSend == Is("send") /\ Send(Log[l].term)
IsTake == /\ Is("take") /\ got' = Log[l].got
          /\ LET m == Log[l].term
             IN /\ sent # <<>> /\ Head(sent) = m
                /\ Take(m) \/ (Rise(m) \cdot Take(m))
Follows == IsSend \/ IsTake
TraceSpec == Init /\ l = 1 /\ [][IF ENABLED Follows THEN Follows ELSE Lose \cdot Follows]_<<vars, l>>
Matched == [](l <= Len(Log) => [](TLCGet("queue") = 1 \/ l > Len(Log)))
Whole == TLCGet("stats").diameter = Len(Log) + 1
Losing == (sent # <<>> /\ sent' = Tail(sent) /\ UNCHANGED <<term, got>>) \cdot (\E t \in 1..9 : Rise(t) \cdot Take(t))
Steps == \E t \in 1..9 : Send(t) \/ Take(t) \/ (Rise(t) \cdot Take(t)) \/ Losing
Refines == Init /\ [][Steps]_vars
===="""

RELAYED = [
    '{"name": "send", "term": 1}',
    '{"name": "send", "term": 2}',
    '{"name": "take", "term": 1, "got": 1}',
    '{"name": "take", "term": 2, "got": 3}',
    '{"name": "send", "term": 2}',
    '{"name": "send", "term": 4}',
    '{"name": "take", "term": 4, "got": 7}',
]
"""The message of term 4 is taken in one step with the rise of the term, after the one before it was lost."""


@pytest.mark.parametrize("engine", ["auto", "embedded", "reference"])
@pytest.mark.parametrize("is_good", [True, False])
def test_composed_steps_follow_a_trace_and_refine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, is_good: bool
) -> None:
    lines = RELAYED if is_good else [*RELAYED[:-1], RELAYED[-1].replace("7", "8")]
    (tmp_path / "t.ndjson").write_text("\n".join(lines))
    (tmp_path / "Relay.tla").write_text(RELAY)
    (tmp_path / "Relay.cfg").write_text(
        "SPECIFICATION TraceSpec PROPERTIES Matched Refines POSTCONDITION Whole CHECK_DEADLOCK FALSE"
    )
    monkeypatch.setenv("TRACE", str(tmp_path / "t.ndjson"))
    result = check(str(tmp_path / "Relay.tla"), engine=engine)
    if is_good:
        assert result.holds and (result.distinct_states, result.depth) == (8, 8)
    else:
        assert [each.name for each in result.violations] == ["Matched"] and result.depth == 7


def test_a_composition_that_the_specification_lacks_does_not_refine_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.ndjson").write_text("\n".join(RELAYED))
    (tmp_path / "Relay.tla").write_text(RELAY.replace(" \\/ Losing", ""))
    (tmp_path / "Relay.cfg").write_text("SPECIFICATION TraceSpec PROPERTY Refines CHECK_DEADLOCK FALSE")
    monkeypatch.setenv("TRACE", str(tmp_path / "t.ndjson"))
    result = check(str(tmp_path / "Relay.tla"))
    (violation,) = result.violations
    assert violation.name.startswith("Refines:") and result.depth == 8


CAUSAL = r"""
E(n, t, c) == [node |-> n, vc |-> c, at |-> t]
Log == <<E("b", 2, "a" :> 1 @@ "b" :> 2), E("a", 2, "a" :> 2 @@ "b" :> 2), E("b", 1, [b |-> 1]), E("a", 1, [a |-> 1])>>
Order(log) == CausalOrder(log, LAMBDA e : e.vc, LAMBDA e : e.node, LAMBDA vc : DOMAIN vc)
"""


def test_events_come_in_causal_order(tmp_path: Path) -> None:
    lines = [
        r"LOCAL INSTANCE VectorClocks",
        *CAUSAL.splitlines(),
        r"ASSUME LET o == Order(Log) IN o = <<Log[3], Log[4], Log[1], Log[2]>>",
        r"ASSUME IsCausalOrder(Order(Log), LAMBDA e : e.vc) /\ ~IsCausalOrder(Log, LAMBDA e : e.vc)",
        r"ASSUME Order(<<>>) = <<>>",
    ]
    assert check(module(tmp_path, *lines)).holds


@pytest.mark.parametrize(
    ("log", "says"),
    [
        ("SubSeq(Log, 1, 3)", "event 2 of \"b\" comes after one that is not there"),
        ("Append(Log, E(\"a\", 1, [a |-> 1, b |-> 0]))", "\"a\" has two events with its clock at 1"),
    ],
)  # fmt: skip
def test_a_log_with_gaps_has_none(tmp_path: Path, log: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["LOCAL INSTANCE VectorClocks", *CAUSAL.splitlines(), f"ASSUME Len(Order({log})) = 3"]
    assert main(["check", module(tmp_path, *lines)]) not in (0, 1)
    assert says in capsys.readouterr().err


def test_a_queue_is_asked_for_in_temporal_properties_alone(follow: Path) -> None:
    follow.write_text(FOLLOW.replace("====", 'Narrow == TLCGet("queue") < 2\n===='))
    follow.with_suffix(".cfg").write_text(CONFIG + "INVARIANT Narrow")
    with pytest.raises(SpecificationError, match=r"TLCGet\(\"queue\"\) is not supported in a step or an invariant"):
        check(str(follow))


def test_a_long_trace_stays_with_the_interpreted_explorer(follow: Path) -> None:
    lines = ["5"] + [str(value) for value in range(6, 306)]
    events = ['{"name": "read", "client": "a", "value": 5}'] + [
        line
        for value in lines[1:]
        for line in (
            f'{{"name": "write", "client": "a", "value": {value}}}',
            f'{{"name": "read", "client": "a", "value": {value}}}',
        )
    ]
    (follow.parent / "trace.ndjson").write_text("\n".join(events))
    result = check(str(follow))
    assert result.holds and result.engine == "interpreted" and result.depth == len(events) + 1
