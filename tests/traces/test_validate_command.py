"""The command ``fencepost validate``: what it accepts, what it rejects, and wrong arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from traces.traces_of_runs import BAD, GOOD, write_counters, write_runs

from fencepost.cli.commands import validate
from fencepost.cli.progress import TracesLine
from fencepost.traces import RunsFile, TraceWriter
from fencepost.traces.validation import search

CONFORMANCE = str(Path(__file__).parent / "counting.py")

Said = tuple[int, str, str]


def test_a_trace_is_accepted(said: Callable[..., Said], tmp_path: Path) -> None:
    code, out, _ = said(write_counters(tmp_path / "t.parquet", {"r": GOOD}), "--conformance", CONFORMANCE)
    assert code == 0
    assert out.startswith("ACCEPTED  1 trace\n")
    assert "  events  7\n  steps   5 " in out


def test_a_rejected_trace_tells_how_far_it_got_and_which_line_refused(
    said: Callable[..., Said], tmp_path: Path
) -> None:
    drawn = tmp_path / "drawn.txt"
    code, out, _ = said(
        write_counters(tmp_path / "t.parquet", {"r": BAD}), "--conformance", CONFORMANCE, "--sequence", drawn
    )
    assert code == 12
    assert out.startswith("REJECTED  1 trace\n")
    assert "takes 3 of 4 steps" in out
    assert "writes(w=w1)  (node a, incarnation 1, event 3)" in out
    assert "there is no 3 among 2" in out
    assert "counting.py:" in out
    assert "value = one_of((self.seen[w] + 1,))" in out
    assert "seen.w2" in out and "w1 is a, w2 is b" in out
    assert 'participant "w1: a" as w1' in drawn.read_text()


def test_several_traces_are_a_table_and_json(said: Callable[..., Said], tmp_path: Path) -> None:
    traces = write_counters(tmp_path / "t.parquet", {"one": GOOD, "two": BAD, "three": GOOD})
    code, out, _ = said(traces, "--conformance", f"{CONFORMANCE}:CountingConformance", "--json", tmp_path / "o.json")
    assert code == 12
    assert "REJECTED  1 of 3 traces" in out
    assert "two    7             6      4  rejected  3 steps, 75 %" in out
    document = json.loads((tmp_path / "o.json").read_text())
    assert (document["traces"], document["rejected"], document["accepted"], document["steps"]) == (3, 1, False, 14)
    assert {v["run"]: v["accepted"] for v in document["verdicts"]} == {"one": True, "two": False, "three": True}
    assert document["verdicts"][2]["refusals"][0]["step"] == "writes(w=w1)"
    code, out, _ = said(
        traces, "--conformance", f"{CONFORMANCE}:counting", "--run", "one", "--run", "three", "--subject", "7"
    )
    assert (code, out.splitlines()[0]) == (0, "ACCEPTED  2 traces")


def test_several_processes_say_the_same_as_one(
    said: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validate, "SHARE", 1)
    monkeypatch.setattr(validate, "TASK", 1)
    runs: dict[str, Sequence[tuple[str, str, int]]] = {
        f"r{number}": BAD if number % 5 == 3 else GOOD for number in range(12)
    }
    traces = write_counters(tmp_path / "t.parquet", runs)
    found = []
    for workers in ("1", "2"):
        code, _, _ = said(
            traces, "--conformance", CONFORMANCE, "--coverage", "--json", tmp_path / "o.json", "--workers", workers
        )
        document = json.loads((tmp_path / "o.json").read_text())
        found.append((code, document["verdicts"], document["coverage"]))
    assert found[0] == found[1] and found[0][0] == 12
    assert [each["run"] for each in found[0][1]] == sorted(runs)


def test_a_log_cannot_be_told_from_a_share_of_its_ledgers(said: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "_share").write_text("16")
    with TraceWriter(tmp_path, node="a") as writer:
        writer.emit("log_writer_opens", "log/a")
    code, out, err = said(tmp_path, "--protocol", "log")
    assert (code, out) == (151, "")
    assert err.startswith(f"fencepost: only one of 16 ledgers is in {tmp_path}")


def test_a_process_that_dies_is_told_in_one_line(
    said: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validate, "SHARE", 1)
    monkeypatch.setattr(validate, "TASK", 1)
    (tmp_path / "dying.py").write_text(
        "import os\nfrom traces.counting import CountingConformance\n"
        "class Dying(CountingConformance):\n    def steps(self, event):\n        os._exit(9)\n"
    )
    traces = write_counters(tmp_path / "t.parquet", {"one": GOOD, "two": GOOD})
    code, out, err = said(traces, "--conformance", tmp_path / "dying.py:Dying", "--workers", "2")
    assert (code, out) == (153, "")
    assert err.startswith("fencepost: one of the processes has died") and err.count("\n") == 1


def test_what_the_conformance_does_not_cover_is_neither(said: Callable[..., Said], tmp_path: Path) -> None:
    traces = write_counters(tmp_path / "t.parquet", {"one": GOOD, "two": [("a", "cheats", 1)]})
    code, out, _ = said(traces, "--conformance", CONFORMANCE)
    assert code == 152
    assert out.startswith("NOT COVERED  1 of 2 traces\n")
    assert "The conformance does not cover it: writers that cheat; the protocol has none." in out


def test_a_long_trace_shows_how_far_it_is(
    said: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(TracesLine, "within", lambda line, *far: found.append(far))
    monkeypatch.setattr(search, "TOLD_EVERY", 2)
    assert said(write_counters(tmp_path / "t.parquet", {"r": GOOD}), "--conformance", CONFORMANCE)[0] == 0
    assert found == [(1, 5), (3, 5)]


def test_any_order_that_causes_allow_is_accepted(said: Callable[..., Said], tmp_path: Path) -> None:
    traces = write_counters(tmp_path / "t.parquet", {"r": GOOD})
    assert [said(traces, "--conformance", CONFORMANCE, "--shuffle", seed)[0] for seed in range(5)] == [0] * 5


@pytest.mark.parametrize("profile", ["calm", "everything"])
def test_no_run_of_the_store_is_rejected(said: Callable[..., Said], tmp_path: Path, profile: str) -> None:
    write_runs(tmp_path / "runs.parquet", range(1, 4), profile)
    for protocol in ("store", "bookkeeper"):
        code, out, _ = said(tmp_path / "runs.parquet", "--protocol", protocol)
        assert code in (0, 152), out  # some seeds append with deferred sync
        assert "against running-store" in out and "to the end" in out


def test_a_store_without_a_protection_is_rejected(said: Callable[..., Said], tmp_path: Path) -> None:
    write_runs(tmp_path / "runs.parquet", range(1, 3), "everything", without="write_back_before_close")
    code, out, _ = said(tmp_path / "runs.parquet", "--protocol", "store")
    assert code == 12
    assert "recovery_client_closes_ledger(c=c" in out
    assert "fencepost/protocols/store/store.py:" in out and "require(may_close(" in out


# -- traces that are not whole ----------------------------------------------------------------------------------------


def test_a_missing_event_is_told(said: Callable[..., Said], tmp_path: Path) -> None:
    with RunsFile(tmp_path / "t.parquet") as file:
        for seq in (1, 2, 4):
            file.emit("r", "a", 1, seq, "writes", "7", {"value": seq})
    code, _, complaint = said(tmp_path / "t.parquet", "--conformance", CONFORMANCE)
    assert (code, complaint.count("\n")) == (153, 1)
    assert "event 3 is missing in the trace of node a, incarnation 1 (run r)" in complaint


def test_an_event_that_is_there_twice_is_told(said: Callable[..., Said], tmp_path: Path) -> None:
    with RunsFile(tmp_path / "t.parquet") as file:
        for seq in (1, 2, 2):
            file.emit("r", "a", 1, seq, "writes", "7", {"value": seq})
    code, _, complaint = said(tmp_path / "t.parquet", "--conformance", CONFORMANCE)
    assert code == 153 and "twice or out of order" in complaint


def test_parameters_that_are_no_json_are_no_fault_of_the_system(said: Callable[..., Said], tmp_path: Path) -> None:
    write_counters(tmp_path / "t.parquet", {"r": GOOD, "s": GOOD})
    whole = pq.read_table(tmp_path / "t.parquet")
    damaged = ["[1]" if place == 2 else each for place, each in enumerate(whole["parameters"].to_pylist())]
    place = whole.schema.get_field_index("parameters")
    pq.write_table(whole.set_column(place, "parameters", pa.array(damaged)), tmp_path / "t.parquet")
    for following in ((), ("--follow", "--for", "0.1")):
        code, out, complaint = said(tmp_path, "--conformance", CONFORMANCE, *following)
        assert (code, out, complaint.count("\n")) == (153, "", 1)
        assert "the parameters of event 1 of node b, incarnation 1 (run r) are no JSON object" in complaint


def test_an_empty_folder_is_told(said: Callable[..., Said], tmp_path: Path) -> None:
    code, _, complaint = said(tmp_path, "--conformance", CONFORMANCE)
    assert code == 153 and "there is no event in" in complaint


def test_a_trace_of_which_nothing_is_a_step_is_rejected(said: Callable[..., Said], tmp_path: Path) -> None:
    code, out, _ = said(
        write_counters(tmp_path / "t.parquet", {"r": [("a", "sleeps", 1)]}), "--conformance", CONFORMANCE
    )
    assert code == 12 and "no event of the trace is a step of the protocol" in out


def test_a_run_about_nothing_is_not_covered(said: Callable[..., Said], tmp_path: Path) -> None:
    with TraceWriter(tmp_path, node="a", run="r"):
        pass
    code, out, _ = said(tmp_path, "--conformance", CONFORMANCE)
    assert code == 152 and out.startswith("NOT COVERED") and "no event of the run is about any subject" in out


def test_a_conformance_that_fails_at_one_trace_does_not_end_the_others(
    said: Callable[..., Said], tmp_path: Path
) -> None:
    with RunsFile(tmp_path / "t.parquet") as file:
        file.emit("one", "a", 1, 1, "writes", "7")
        file.emit("two", "a", 1, 1, "writes", "7", {"value": 1})
    code, out, _ = said(tmp_path / "t.parquet", "--conformance", CONFORMANCE, "--json", tmp_path / "o.json")
    assert code == 75
    assert out.startswith("RAISED  1 of 2 traces\n")
    assert "That says nothing about the system: the conformance raised KeyError: value at " in out
    assert re.search(r"/counting\.py:\d+\.\n", out)
    assert [each["verdict"] for each in json.loads((tmp_path / "o.json").read_text())["verdicts"]] == [
        "raised",
        "accepted",
    ]


def broken(tmp_path: Path, line: str, instead: str) -> Path:
    """The conformance of counters with another line in it, and a good trace beside it."""
    text = Path(CONFORMANCE).read_text()
    assert line in text
    (tmp_path / "broken.py").write_text(text.replace(line, instead, 1))
    write_counters(tmp_path / "t.parquet", {"r": GOOD})
    return tmp_path / "broken.py"


BROKEN = [
    ("if event.action == ", "if evnt.action == ", "the conformance raised NameError: name 'evnt'"),
    ("{str(value): node for", "{value + 1: node for", "the conformance raised TypeError"),
    ('            yield Step("reads"', '            yield Step("red"', "counting has no action red"),
    ("require(value == self.counter + 1)", "require(value == self.countr)", "action writes(w=w1) raised Attri"),
    ("require(value == self.counter + 1)", "require(value)", "action writes(w=w1) asked require(...) of the number 1"),
    ("= self.seen[w] = value", "= self.seen[w] = [value]", "action writes(w=w1): counter is assigned a list"),
    ("require(value == self.counter + 1)", "raise SystemExit", "action writes(w=w1) raised SystemExit"),
    ('"limit": 100_000}', '"limits": 1000}', "counting has no constant named limits: did you mean limit?"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "instead", "told"), BROKEN)
def test_a_broken_conformance_is_no_broken_system(
    said: Callable[..., Said], tmp_path: Path, line: str, instead: str, told: str
) -> None:
    code, out, _ = said(tmp_path / "t.parquet", "--conformance", broken(tmp_path, line, instead))
    assert code == 75, out
    assert out.startswith("RAISED  1 trace\n") and "REJECTED" not in out
    assert f"That says nothing about the system: {told}" in out


def test_a_conformance_that_breaks_while_traces_are_followed(said: Callable[..., Said], tmp_path: Path) -> None:
    with TraceWriter(tmp_path, node="a", run="r") as writer:
        writer.emit("writes", "7", {"value": 1})
    given = tmp_path, "--follow", "--for", "0.1"
    code, out, _ = said(*given, "--conformance", broken(tmp_path, "self.w[event.node]", "self.w[event.nod]"))
    assert code == 75 and out.startswith("RAISED  run r, subject 7") and "no attribute 'nod'" in out
    judging = broken(
        tmp_path, "    def constants(", "    is_over = still_needed = lambda events: nobody\n\n    def constants("
    )
    code, _, complaint = said(*given, "--conformance", judging)
    assert code == 75 and complaint.startswith("fencepost: the conformance raised NameError: name 'nobody'")


@pytest.mark.parametrize(
    ("method", "told"),
    [
        ("is_over", "is_over returns a value of type NoneType: return True or False"),
        ("still_needed", "still_needed returns a value of type NoneType: return Events in a list, or yield them"),
    ],
)
def test_a_method_that_returns_nothing_while_traces_are_followed(
    said: Callable[..., Said], tmp_path: Path, method: str, told: str
) -> None:
    wrong = broken(tmp_path, "    def constants(", f"    {method} = lambda events: None\n\n    def constants(")
    code, _, complaint = said(tmp_path / "t.parquet", "--conformance", wrong, "--follow", "--for", "0.1")
    assert (code, complaint) == (75, f"fencepost: CountingConformance.{told}\n")


def test_subjects_that_are_no_expression_are_refused(said: Callable[..., Said], tmp_path: Path) -> None:
    wrong = broken(
        tmp_path,
        '    name = "counting"\n    protocol = Counting',
        '    subjects = "("\n    name = ""\n    protocol = Counting',
    )
    code, _, complaint = said(tmp_path / "t.parquet", "--conformance", wrong)
    assert code == 150 and "CountingConformance.subjects in" in complaint and "is no regular expression" in complaint


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (
            (),
            151,
            (
                "--protocol with one of store, bookkeeper, running-store, log, quorum, recorded-store, or --conformance"
                " FILE.py"
            ),
        ),
        (("--protocol", "stor"), 150, "did you mean store?"),
        (("--protocol", "store", "--conformance", CONFORMANCE), 151, "leave one out"),
        (("--conformance", "nowhere.py"), 150, "there is no file nowhere.py"),
        (
            ("--conformance", f"{CONFORMANCE}:Nobody"),
            150,
            "has no conformance named Nobody: it has CountingConformance",
        ),
        (("--conformance", CONFORMANCE, "--run", "x"), 151, "run x is not in the traces: there are r"),
        (("--conformance", CONFORMANCE, "--subject", "8"), 151, "subject 8 is not in the traces: there are 7"),
        (("--conformance", CONFORMANCE, "--for", "3"), 151, "give --follow too"),
        (("--conformance", CONFORMANCE, "--sequence", "-"), 151, "only --json can go to standard output"),
        (("--conformance", CONFORMANCE, "--json", "/nowhere/o.json"), 151, "there is no directory /nowhere"),
    ],
)
def test_mistakes_are_told_in_one_line(
    said: Callable[..., Said], tmp_path: Path, arguments: Any, code: int, complaint: str
) -> None:
    found, _, told = said(write_counters(tmp_path / "t.parquet", {"r": GOOD}), *arguments)
    assert found == code
    assert complaint in told and told.count("\n") == 1


# -- following --------------------------------------------------------------------------------------------------------


def test_following_tells_verdicts_as_they_come_and_all_in_the_end(said: Callable[..., Said], tmp_path: Path) -> None:
    write_counters(tmp_path / "t.parquet", {"one": GOOD, "two": BAD})
    with TraceWriter(tmp_path, node="a", run="three") as writer:
        writer.emit("writes", "7", {"value": 1})
    code, out, _ = said(tmp_path, "--conformance", CONFORMANCE, "--follow", "--for", "2", "--patience", "0.1")
    assert code == 12
    first, second, third, blank, rest = out.split("\n", 4)
    assert {first, second} == {
        "ACCEPTED  run three, subject 7: 3 events, 1 step",
        "REJECTED  run two, subject 7: 6 events, 4 steps",
    }
    assert third == "NOT FINISHED  run one, subject 7: 7 events, 5 steps"
    assert not blank and rest.startswith("REJECTED  1 of 3 traces\n")


def test_what_has_not_ended_while_it_was_followed_is_not_well(said: Callable[..., Said], tmp_path: Path) -> None:
    """Be it a behaviour so far, or one of which a step waits when following ends."""
    follow = ("--conformance", CONFORMANCE, "--follow", "--for", "0.1", "--json", tmp_path / "o.json")
    with TraceWriter(tmp_path / "ended", node="a", run="one") as writer:
        writer.emit("writes", "7", {"value": 1})
    assert said(tmp_path / "ended", *follow)[0] == 0
    assert json.loads((tmp_path / "o.json").read_text())["accepted"] is True
    open_trace = write_counters(tmp_path / "open.parquet", {"two": GOOD})
    code, out, _ = said(tmp_path / "ended", open_trace, *follow)
    assert code == 152 and "\nNOT FINISHED  1 of 2 traces\n" in out
    assert json.loads((tmp_path / "o.json").read_text())["accepted"] is False
    code, out, _ = said(open_trace, write_counters(tmp_path / "waits.parquet", {"three": BAD}), *follow)
    assert code == 152 and "\nNOT FINISHED  2 traces\n" in out
    assert "Run three, subject 7:\nThe protocol takes 3 of 4 steps. Then none of these can be taken:" in out


def test_following_what_nothing_comes_of_is_not_well(said: Callable[..., Said], tmp_path: Path) -> None:
    """As without `--follow`, where there is no trace."""
    code, out, _ = said(
        tmp_path, "--conformance", CONFORMANCE, "--follow", "--for", "0.1", "--json", tmp_path / "o.json"
    )
    assert (code, out.splitlines()[0]) == (153, "NOTHING  0 traces")
    assert json.loads((tmp_path / "o.json").read_text())["accepted"] is False
