"""``fencepost log`` as a process, with a metadata service and bookies that are processes too."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ledger.processes import cluster, environment, output, piped
from patience import PATIENCE

import fencepost
from fencepost.ledger.errors import REFUSED
from fencepost.log.chain import Position


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster(tmp_path_factory.mktemp("cluster")) as (uri, _):
        yield uri


def command(uri: str, *arguments: str, **options: Any) -> str:
    return output(uri, "log", *arguments, **options)


def test_a_log_from_its_making_to_its_seal(store: str) -> None:
    assert command(store, "create", "a", "--ensemble", "2") == "log a is created\n"
    told = json.loads(
        command(
            store,
            "append",
            "a",
            "--password",
            "p",
            "--ledger-entries",
            "2",
            "--json",
            given=b"one\ntwo\nthree\nfour\nfive",
        )
    )
    assert told["entries"] == 5 and told["bytes"] == 19
    first, last = told["first"].split(":")[0], told["last"].split(":")[0]
    assert command(store, "append", "a", "--password", "p", given=b"six\n").startswith("log a: 1 entry, 3 bytes, ")
    assert command(store, "append", "a", "--password", "p", given=b"") == "log a: 0 entries, 0 bytes\n"
    tail = ("tail", "a", "--password", "p", "--no-follow")
    assert command(store, *tail) == "one\ntwo\nthree\nfour\nfive\nsix\n"
    assert command(store, *tail, "--at", told["last"]) == "five\nsix\n"
    assert command(store, *tail, "--at", "latest") == "" == command(store, *tail, "--at", "2100-01-01T00:00")
    assert command(store, *tail, "--at", "2000-01-01T00:00:00+00:00", "--format", "length-prefixed").startswith(
        "\0\0\0\3one"
    )
    entry = json.loads(command(store, *tail, "--at", told["last"], "--json").splitlines()[0])
    assert entry["position"] == told["last"] and entry["data"] == "five" and entry["time"] > 1.7e12
    assert command(store, *tail, "--cursor", "c").count("\n") == 6
    assert command(store, *tail, "--cursor", "c") == ""
    shown = json.loads(command(store, "show", "a", "--json"))
    assert (
        not shown["sealed"]
        and shown["leader"] is None
        and shown["settings"]["ensemble"] == "2"
        and [*shown["cursors"]] == ["c"]
    )
    assert shown["ledgers"][0]["ledger"] == int(first) and shown["ledgers"][2]["ledger"] == int(last)
    assert command(store, "trim", "a", "--before", told["last"]) == "log a: 2 ledgers are deleted\n"
    assert "was trimmed" in command(store, *tail, "--at", told["first"], code=1)
    assert command(store, *tail, "--at", told["first"], "--skip-trimmed") == "five\nsix\n"
    assert json.loads(command(store, "trim", "a", "--keep-seconds", "3600", "--json")) == {"log": "a", "deleted": []}
    assert command(store, "seal", "a", "--password", "p") == "log a is sealed\n"
    assert command(store, "tail", "a", "--password", "p") == "five\nsix\n"
    assert command(store, "append", "a", code=1) == "fencepost: the log a is sealed: it takes nothing more\n"
    picture = command(store, "show", "a")
    assert "log a   sealed   nobody leads   ensemble 2, write quorum 2, ack quorum 2   crc32c" in picture
    assert "after 2 that were trimmed" in picture and "cursors\n    c   " in picture
    assert "a" in command(store, "show").split() and "a" in command(store, "list").split()
    assert "a   sealed   3 ledgers\n" in command(store, "list", "--long")


@pytest.mark.parametrize("verb", ["append", "tail", "seal"])
def test_a_wrong_password_is_wrong_at_once(store: str, verb: str) -> None:
    name = f"of-{verb}"
    command(store, "create", name)
    command(store, "append", name, given=b"one\n")
    ledger = json.loads(command(store, "show", name, "--json"))["ledgers"][0]["ledger"]
    wait = ("--wait", "600") if verb == "append" else ()
    refused = command(store, verb, name, "--password", "wrong", *wait, code=REFUSED, given=b"two\n").splitlines()
    assert refused[1:] == [f"fencepost: the password is not that of ledger {ledger}"]
    assert command(store, "tail", name, "--no-follow") == "one\n"


def test_ledgers_are_offloaded(store: str, tmp_path: Path) -> None:
    command(store, "create", "cold", "--ensemble", "2", "--ack-quorum", "2")
    command(store, "append", "cold", "--ledger-entries", "2", given=b"one\ntwo\nthree\nfour\nfive\n")
    move = ("offload", "cold", "--to", str(tmp_path / "objects"))
    assert command(store, *move, "--keep", "2") == (
        "log cold: 1 ledger copied to the object store, 0 ledgers deleted from the bookies\n"
    )
    told = json.loads(command(store, *move, "--grace", "0.001", "--json"))
    assert len(told["offloaded"]) == 1 and told["entries"] == 2 and told["bytes"] > 9
    assert len(told["deleted"]) + len(json.loads(command(store, *move, "--grace", "0.001", "--json"))["deleted"]) == 2
    assert command(store, "tail", "cold", "--no-follow") == "one\ntwo\nthree\nfour\nfive\n"
    assert "3 ledgers, 2 of them offloaded" in command(store, "show", "cold")
    assert "missing" not in command(store, "show", "cold")


def test_a_tail_follows_and_an_interrupt_leaves_the_log_to_others(store: str) -> None:
    command(store, "create", "b")
    tailing, appending = piped(store, "log", "tail", "b"), piped(store, "log", "append", "b", "--ledger-entries", "3")
    assert appending.stdin is not None and tailing.stdout is not None
    for number in range(10):
        appending.stdin.write(b"%d\n" % number)
        appending.stdin.flush()
        assert tailing.stdout.readline() == b"%d\n" % number
    refused = command(store, "append", "b", "--wait", "0.1", code=1, given=b"x")
    assert refused.startswith("fencepost: this writer does not lead the log b after 0.1 s: ")
    appending.send_signal(signal.SIGINT)
    _, complaint = appending.communicate(timeout=PATIENCE)
    assert appending.returncode == 130
    assert (
        complaint.decode()
        == "log b: the first 10 of 10 entries that were read are acknowledged; the rest may be in the log or"
        " not\nfencepost: interrupted\n"
    )
    assert command(store, "append", "b", given=b"next\n").startswith("log b: 1 entry,")
    assert tailing.stdout.readline() == b"next\n"
    command(store, "seal", "b")
    tailing.communicate(timeout=PATIENCE)
    assert tailing.returncode == 0


WRITER = """
import asyncio, sys, fencepost
async def main():
    settings = fencepost.ledger.client.settings.ClientSettings(session_timeout=4.0)
    async with fencepost.connect(sys.argv[1], settings) as store:
        writer = await store.log(sys.argv[2]).writer(name=sys.argv[3], ledger_entries=50)
        print("leads", flush=True)
        for line in sys.stdin:
            first, last = map(int, line.split())
            try:
                await writer.append_many(b"%d" % each for each in range(first, last))
                print("done", flush=True)
            except (fencepost.NotLeaderError, fencepost.LogSealedError) as error:
                print(type(error).__name__, flush=True)
asyncio.run(main())
"""


def writer(uri: str, log: str, name: str) -> subprocess.Popen[str]:
    text = "import fencepost.api.client\n" + textwrap.dedent(WRITER)
    return subprocess.Popen(
        [sys.executable, "-c", text, uri, log, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(uri),
        text=True,
    )


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def told(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


@pytest.mark.campaign
def test_a_leader_that_is_stopped_and_goes_on_does_no_harm(store: str) -> None:
    command(store, "create", "c")
    old = writer(store, "c", "old")
    assert said(old) == "leads"
    told(old, "0 200")
    assert said(old) == "done"
    os.kill(old.pid, signal.SIGSTOP)
    new = writer(store, "c", "new")
    assert said(new) == "leads", "its session ended while it was stopped"
    told(new, "200 400")
    assert said(new) == "done"
    os.kill(old.pid, signal.SIGCONT)
    told(old, "900 1000")
    assert said(old) == "NotLeaderError"
    told(new, "400 600")
    assert said(new) == "done"
    assert json.loads(command(store, "show", "c", "--json"))["leader"] == "new"
    new.kill()
    third = writer(store, "c", "third")
    assert said(third) == "leads"
    told(third, "600 700")
    assert said(third) == "done"
    command(store, "seal", "c")
    assert [int(line) for line in command(store, "tail", "c").splitlines()] == [*range(700)]
    told(third, "700 701")
    assert said(third) in ("NotLeaderError", "LogSealedError")
    for process in (old, new, third):
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("show", "none"), "there is no log none: make it, or correct the name"),
        (("create", "a/b"), "'a/b' is no name of a log"),
        (("create", "x", "--ack-quorum", "4"), "ack_quorum 4: an ack quorum is at least 1"),
        (("tail", "x", "--at", "nowhere"), "'nowhere' is not a place in a log"),
        (("trim", "x"), "is required"),
        (("trim", "x", "--before", "latest"), "--before latest: give LEDGER:ENTRY"),
        (("append", "none"), "there is no log none"),
        (("offload", "x"), "--to"),
        (("offload", "x", "--to", "objects", "--before", "latest"), "--before latest: give LEDGER:ENTRY"),
        (("offload", "none", "--to", "objects"), "there is no log none"),
        (("show", "--metadata", "nonsense"), "is no address of a metadata service"),
    ],
)
def test_mistakes_are_one_line(store: str, arguments: tuple[str, ...], complaint: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fencepost", "log", *arguments],
        capture_output=True,
        env=environment(store),
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode in (1, 151, 153)
    assert complaint in done.stderr.decode() and done.stderr.count(b"\n") == 1


def test_synchronous_code_has_logs_too(store: str) -> None:
    with fencepost.connect(store) as client:
        log = client.log("d")
        log.create()
        with log.writer(ledger_entries=10) as writing:
            first = writing.append(b"0")
            positions = writing.append_many(b"%d" % number for number in range(1, 35))
            assert writing.is_leader and len(positions) == 34
        assert [entry.data for entry in log.read(follow=False)] == [b"%d" % number for number in range(35)]
        tail = log.read(at=positions[-1])
        assert next(tail).data == b"34"
        with log.writer() as writing:
            writing.append(b"35", key=b"k")
        assert next(tail).key == b"k"
        cursor = log.cursor("c")
        cursor.acknowledge(positions[0])
        cursor.acknowledge_up_to(first)
        assert cursor.position == Position(positions[0].ledger, 2)
        assert next(iter(cursor.read(follow=False))).data == b"2"
        assert len(log.trim(keep=1)) == 4 and log.show().chain.trimmed == 4
        log.seal()
        with pytest.raises(fencepost.LogSealedError):
            log.writer()


def test_a_log_is_deleted_only_by_who_says_so(store: str) -> None:
    command(store, "create", "e")
    command(store, "append", "e", "--password", "p", "--ledger-entries", "1", given=b"one\ntwo\n")
    refused = command(store, "delete", "e", "--password", "p", code=151)
    assert refused.startswith("fencepost: everybody on this machine can see --password")
    assert (
        refused.partition("\n")[2]
        == "fencepost: deleting the log e with 2 ledgers cannot be undone: give --yes to do it\n"
    )
    assert command(store, "delete", "e", "--password", "p", "--yes") == "log e is deleted, with 2 ledgers\n"
    assert "there is no log e" in command(store, "delete", "e", "--yes", code=1)


@pytest.mark.campaign
def test_a_bookie_is_killed_under_a_writer_and_the_writer_goes_on(tmp_path: Path) -> None:
    """Its entries are there, once and in order. All the traces together are a behaviour of the protocol."""
    with cluster(tmp_path, bookies=4) as (uri, bookies):
        command(uri, "create", "f", "--ensemble", "3", "--write-quorum", "3", "--ack-quorum", "2")
        appending = piped(uri, "log", "append", "f", "--ledger-entries", "500", "--trace", str(tmp_path / "traces"))
        assert appending.stdin is not None
        for number in range(4000):
            appending.stdin.write(b"%d\n" % number)
            if number == 2000:
                appending.stdin.flush()
                while not json.loads(command(uri, "show", "f", "--json"))["ledgers"]:  # it has begun to write
                    pass
                bookies[0].kill()
        _, complaint = appending.communicate(timeout=PATIENCE)
        assert appending.returncode == 0, complaint.decode()
        told = command(uri, "tail", "f", "--no-follow").split()
        assert [*map(int, told)] == [*range(4000)]
    done = subprocess.run(
        [sys.executable, "-m", "fencepost", "validate", str(tmp_path / "traces"), "--protocol", "log"],
        capture_output=True,
        env=environment(uri),
        check=False,
    )
    assert done.returncode == 0 and done.stdout.startswith(b"ACCEPTED  1 trace"), done.stdout + done.stderr
