"""The command ``fencepost record``: a recording of a cluster of processes, its trace, and wrong options."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from docs.documents import EXAMPLES
from ledger.processes import SOURCE, Process, cluster
from patience import PATIENCE

import fencepost
from fencepost.cli.main import main
from fencepost.traces import read


def said(process: subprocess.Popen[str], last: str) -> list[str]:
    """The lines that a process prints, up to the first with this beginning."""
    assert process.stdout is not None
    lines: list[str] = []
    end = time.monotonic() + PATIENCE
    while not lines or not lines[-1].startswith(last):
        line = process.stdout.readline()
        assert line and time.monotonic() < end, (lines, process.stderr and process.stderr.read())
        lines.append(line.rstrip())
    return lines


def test_a_recording_of_processes(tmp_path: Path) -> None:
    with cluster(tmp_path, 3) as (uri, bookies):
        words = ["record", "--metadata", uri, "--trace", str(tmp_path / "trace"), "--run", "r1", "--node", "p"]
        words += [
            "--fault",
            "drop response add bookie=2",
            "--fault",
            "cut request read ledger=99",
            "--faults",
            "1",
            "--seed",
            "1",
        ]
        recorder = subprocess.Popen(
            [sys.executable, "-m", "fencepost", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )
        try:
            lines = said(recorder, "records to")
            ids = sorted(bookie.told.split()[1] for bookie in bookies)
            assert lines[0] == "seed 1" and lines[1] == f"fault 1: drop response add bookie={ids[1]} after=0 count=1"
            assert [line.split(" at ")[0] for line in lines[4:7]] == [
                f"bookie {n}: {each}" for n, each in enumerate(ids, 1)
            ]
            with fencepost.connect(uri) as store:
                with store.create_ledger(ensemble=3, write_quorum=3, ack_quorum=2) as ledger:
                    for number in range(20):
                        ledger.append(b"%d" % number)
            recorder.send_signal(signal.SIGTERM)
            out, errors = recorder.communicate(timeout=PATIENCE)
        finally:
            recorder.kill()
            recorder.communicate()
        assert recorder.returncode == 0 and "versions of metadata" in out
        assert "fencepost: a fault was never due: cut request read ledger=99 after=0 count=1" in errors
    events = list(read(tmp_path / "trace"))
    assert {(event.run, event.node, event.incarnation) for event in events} == {("r1", "p", 1)}
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert (events[0].action, events[-1].action) == ("started", "ended")
    assert events[0].parameter_values()["seed"] == 1 and len(events[0].parameter_values()["faults"]) == 3
    passed = [event.parameter_values() for event in events if event.action == "request_passed" and event.subject == "0"]
    assert {each["entry"] for each in passed if each["kind"] == "add"} == set(range(20))
    assert [event.parameter_values()["rule"] for event in events if event.action == "message_dropped"][:1] == [1]
    example = subprocess.run(
        [sys.executable, EXAMPLES / "show_trace.py", tmp_path / "trace", "0", "kind", "entry"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        check=True,
    )
    of_ledger = [event for event in events if event.subject == "0"]
    lines = example.stdout.splitlines()
    assert len(lines) == len(of_ledger) and any(line.endswith("request_passed    kind=add entry=19") for line in lines)


def test_a_recorder_passes_on_what_it_has_open_files_for(tmp_path: Path) -> None:
    with cluster(tmp_path, 1) as (uri, _):
        recorder = subprocess.Popen(
            [sys.executable, "-m", "fencepost", "record", "--metadata", uri, "--trace", str(tmp_path / "trace")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300)),
        )
        try:
            lines = said(recorder, "records to")
            (place,) = [line.rpartition(" ")[2] for line in lines if line.startswith("bookie 1: ")]
            address = "127.0.0.1", int(place.rpartition(":")[2])
            clients = [socket.create_connection(address) for _ in range(400)]
            refused = clients[-1]
            with contextlib.suppress(ConnectionError):
                assert refused.recv(1) == b""
            for each in clients:
                each.close()
            recorder.send_signal(signal.SIGTERM)
            _, errors = recorder.communicate(timeout=PATIENCE)
        finally:
            recorder.kill()
            recorder.communicate()
        assert recorder.returncode == 0, errors
        assert "the most connections is 22, and not 10000: this process may have 300 files open" in errors


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--listen", "4181"], "'4181' is not HOST:PORT"),
        (["--listen", "127.0.0.1:99999"], "'127.0.0.1:99999' is not HOST:PORT"),
        (["--bookie", "=127.0.0.1:3181"], "has no id before its =: write ID=HOST:PORT, or HOST:PORT"),
        (["--bookie", "127.0.0.1:0"], "'127.0.0.1:0' has no port"),
        (["--faults", "0"], "0 is too small"),
        (["--seed", "7"], "--seed is for random faults: give --faults N too"),
        (["--listen", "127.0.0.1:0"], "listen is given 1 times and bookie 0 times"),
    ],
)
def test_options_that_are_wrong_are_told(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code = main(["record", "--metadata", "zk://127.0.0.1:1/ledgers", "--trace", str(tmp_path), *words])
    told = capsys.readouterr().err
    assert code == 151 and reason in told and told.count("\n") == 1


def test_a_folder_that_can_not_be_written_to_is_told_and_bookies_stay_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    with cluster(tmp_path, 1) as (uri, _):
        assert main(["record", "--metadata", uri, "--trace", str(tmp_path / "file")]) == 153
        told = capsys.readouterr().err
        assert "traces cannot be written to" in told and told.count("\n") == 1
        with fencepost.connect(uri) as store:
            with store.create_ledger(ensemble=1) as ledger:
                ledger.append(b"directly")


def test_a_killed_recorder_leaves_its_trace_and_the_next_takes_over(tmp_path: Path) -> None:
    with cluster(tmp_path, 1) as (uri, _):
        options = ("--metadata", uri, "--trace", str(tmp_path / "trace"))
        first = Process(tmp_path, "record", *options)
        assert first.process.stdout is not None and b"records to" in first.process.stdout.readline()
        with fencepost.connect(uri) as store, store.create_ledger(ensemble=1) as ledger:
            ledger.append(b"seen")
            first.kill()
        second = Process(tmp_path, "record", *options)
        assert second.process.stdout is not None and b"records to" in second.process.stdout.readline()
        assert second.told.split(",")[0] == first.told.split(",")[0]
        second.end()
        with fencepost.connect(uri) as store:
            assert [entry.data for entry in store.open_ledger(ledger.id, recover=True).read()] == [b"seen"]
    events = list(read(tmp_path / "trace"))
    assert {event.incarnation for event in events} == {1, 2}
    kinds = [event.parameter_values()["kind"] for event in events if event.action == "request_passed"]
    assert "add" in kinds
