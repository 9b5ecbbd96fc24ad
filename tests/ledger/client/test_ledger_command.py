"""``fencepost ledger`` and the client as separate processes, with a metadata service and bookies that are processes
too.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import struct
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from campaigns import campaign_if
from ledger.processes import Process, cluster, environment, output, piped
from patience import PATIENCE

import fencepost
from fencepost.ledger.client.settings import ClientSettings


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[Process]]]:
    with cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def command(uri: str, *arguments: str, **options: Any) -> str:
    return output(uri, "ledger", *arguments, **options)


def program(uri: str, text: str) -> subprocess.Popen[bytes]:
    """A Python program that uses the client."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(text), uri], stdout=subprocess.PIPE, env=environment(uri)
    )


def test_lines_go_in_and_come_out(store: tuple[str, list[Process]]) -> None:
    uri, _ = store
    ledger = command(uri, "create", "--password", "p", "--custom", "from=test").strip()
    assert (
        command(uri, "append", ledger, "--password", "p", given=b"one\n\ntwo\nthree")
        == f"ledger {ledger}: 4 entries, 11 bytes, closed\n"
    )
    assert command(uri, "read", ledger, "--password", "p") == "one\n\ntwo\nthree\n"
    assert (
        command(uri, "read", ledger, "--password", "p", "--first", "2", "--last", "2", "--json")
        == '{"entry": 2, "data": "two"}\n'
    )
    assert command(uri, "tail", ledger, "--password", "p", "--first", "3") == "three\n"
    seen = "fencepost: everybody on this machine can see --password: use --password-file\n"
    assert command(uri, "append", ledger, "--password", "p", code=1) == f"{seen}fencepost: ledger {ledger} is closed\n"
    assert command(uri, "read", ledger, code=1) == f"fencepost: the password is not that of ledger {ledger}\n"
    shown = json.loads(command(uri, "show", ledger, "--json"))
    assert shown["status"] == "closed" and shown["last_entry"] == 3 and shown["custom"] == {"from": "test"}
    assert sorted(shown["bookies"].values()) == [[[0, 3]]] * 3
    picture = command(uri, "show", ledger)
    assert len(re.findall(r"b\d  127\.0\.0\.1:\d+  ████  4", picture)) == 3 and "Every entry has 3 copies." in picture


def test_ledgers_are_deleted_by_who_means_it_and_not_those_of_logs(store: tuple[str, list[Process]]) -> None:
    uri, _ = store
    one, two, of_log = (command(uri, "create", *more).strip() for more in ((), (), ("--custom", "log=orders")))
    refused = command(uri, "delete", one, two, code=151)
    assert refused == "fencepost: deleting 2 ledgers cannot be undone: give --yes to do it\n"
    assert "give --of-log with the name of the log" in command(uri, "delete", one, of_log, "--yes", code=151)
    assert "there is no ledger 99" in command(uri, "delete", one, "99", "--yes", code=1)
    assert {one, two, of_log} <= {*command(uri, "list").split()}, "nothing of it was deleted"
    for answer, code in (("no", 1), ("yes", 0)):
        ours, theirs = os.openpty()
        asking = subprocess.Popen(
            [sys.executable, "-m", "fencepost", "ledger", "delete", one],
            stdin=theirs,
            stdout=subprocess.DEVNULL,
            stderr=theirs,
            env=environment(uri),
        )
        os.close(theirs)
        asked = b""
        while b"(yes or no) " not in asked:
            asked += os.read(ours, 1000)
        os.write(ours, f"{answer}\n".encode())
        assert asking.wait(PATIENCE) == code and f"Deleting ledger {one} cannot be undone. Continue?".encode() in asked
        os.close(ours)
    assert command(uri, "delete", two, "--yes") == f"ledger {two} is deleted\n"
    assert command(uri, "delete", of_log, "--of-log", "orders", "--yes") == f"ledger {of_log} is deleted\n"
    assert not {one, two, of_log} & {*command(uri, "list").split()}


def test_bookies_are_listed(store: tuple[str, list[Process]]) -> None:
    uri, _ = store
    listed = subprocess.run(
        [sys.executable, "-m", "fencepost", "bookie", "list"], capture_output=True, env=environment(uri), check=True
    )
    assert re.fullmatch(r"(127\.0\.0\.1:\d+  writable\n){3}", listed.stdout.decode())
    told = subprocess.run(
        [sys.executable, "-m", "fencepost", "bookie", "list", "--json"],
        capture_output=True,
        env=environment(uri),
        check=True,
    )
    assert [each["state"] for each in json.loads(told.stdout)] == ["writable"] * 3


async def awaited(uri: str, settings: ClientSettings) -> None:
    await fencepost.connect(uri, settings)


@pytest.mark.parametrize(
    "typed",
    [
        *campaign_if(
            bool,
            [
                "bookie list",
                "bookie cookie delete 127.0.0.1:1",
                "autorecovery status --metadata zk://127.0.0.1:1/ledgers",
            ],
        ),
        "bookie . --set bookiePort=0 --metadata zk://127.0.0.1:1/ledgers",
        "ledger list",
        "quorum status --controllers 127.0.0.1:1",
    ],
)
def test_commands_say_that_a_service_does_not_answer(typed: str, tmp_path: Path) -> None:
    waiting = subprocess.Popen(
        [sys.executable, "-m", "fencepost", *typed.split()],
        stderr=subprocess.PIPE,
        text=True,
        env=environment("zk://127.0.0.1:1/ledgers"),
        cwd=tmp_path,
    )
    assert waiting.stderr is not None
    told = waiting.stderr.readline()
    waiting.kill()
    waiting.communicate()
    assert re.search(r"127\.0\.0\.1:1:?( it)? refuses connections; trying for \d+ s more\n$", told), told


def test_who_connects_to_nobody_is_told_why(caplog: pytest.LogCaptureFixture) -> None:
    settings = ClientSettings(connect_timeout=1.6)
    for address, why in (("127.0.0.1:1", "refuses connections"), ("no.such.host.invalid:1", "there is no host")):
        with pytest.raises(
            fencepost.MetadataServiceError, match=r"no metadata service answers at .* within 1\.6 s"
        ) as it:
            fencepost.connect_sync(f"zk://{address}/ledgers", settings)
        assert why in caplog.text and "; trying for 0.6 s more" in caplog.text
        assert it.value.__suppress_context__ and len(it.traceback) <= 4
    with pytest.raises(fencepost.MetadataServiceError) as it:
        asyncio.run(awaited("zk://127.0.0.1:1/ledgers", settings))
    ours = [str(entry.path) for entry in it.traceback if "asyncio" not in str(entry.path)]
    assert it.value.__suppress_context__ and len(ours) <= 4, ours
    with pytest.raises(AttributeError, match="log: nothing is connected yet: write with fencepost.connect"):
        fencepost.connect("zk://127.0.0.1:1/ledgers").log("orders")


def test_entries_behind_their_lengths_can_be_anything(store: tuple[str, list[Process]]) -> None:
    uri, _ = store
    entries = [b"", b"\n\n", bytes(range(256)) * 100, b"x"]
    data = b"".join(struct.pack(">I", len(entry)) + entry for entry in entries)
    told = json.loads(command(uri, "append", "--format", "length-prefixed", "--digest", "hmac", "--json", given=data))
    assert told["entries"] == 4 and told["bytes"] == sum(map(len, entries))
    read = subprocess.run(
        [sys.executable, "-m", "fencepost", "ledger", "read", str(told["ledger"]), "--format", "length-prefixed"],
        capture_output=True,
        env=environment(uri),
        check=True,
    )
    assert read.stdout == data
    assert '{"entry": 2, "base64": ' in command(uri, "read", str(told["ledger"]), "--json")
    error = command(uri, "append", "--format", "length-prefixed", given=data[:-1], code=151)
    assert "ends within an entry: 4 bytes are left over" in error and "3 that were read are acknowledged" in error


def test_a_writer_that_is_killed_leaves_a_ledger_that_another_recovers(store: tuple[str, list[Process]]) -> None:
    uri, _ = store
    writer = program(
        uri,
        """
        import asyncio, sys, fencepost
        async def main():
            async with fencepost.connect(sys.argv[1]) as store:
                ledger = await store.create_ledger()
                print(ledger.id, flush=True)
                number = 0
                while True:
                    await ledger.append_many(b"%d" % each for each in range(number, number + 100))
                    number += 100
                    print(number, flush=True)
        asyncio.run(main())
        """,
    )
    assert writer.stdout is not None
    ledger = writer.stdout.readline().decode().strip()
    acknowledged = 0
    for _ in range(3):
        acknowledged = int(writer.stdout.readline())
    tailing = piped(uri, "ledger", "tail", ledger)
    writer.kill()
    writer.wait()
    writer.stdout.close()
    assert "in recovery" in command(uri, "list", "--long") or "open" in command(uri, "list", "--long")
    assert f"ledger {ledger}: " in command(uri, "recover", ledger)
    entries = command(uri, "read", ledger).splitlines()
    assert len(entries) >= acknowledged and entries == [str(number) for number in range(len(entries))]
    told, _ = tailing.communicate(timeout=PATIENCE)
    assert told.decode().splitlines() == entries, "a tail ends where recovery has closed the ledger"
    assert command(uri, "recover", ledger, "--json").startswith('{"ledger": ')


def test_an_append_that_fails_half_way_says_what_is_acknowledged(store: tuple[str, list[Process]]) -> None:
    uri, _ = store
    ledger = command(uri, "create").strip()
    appending = piped(uri, "ledger", "append", ledger)
    assert appending.stdin is not None and appending.stderr is not None
    appending.stdin.write(b"one\ntwo\n")
    appending.stdin.flush()
    with fencepost.connect(uri) as client:
        reader = client.open_ledger(int(ledger))
        while not any(True for _ in reader.read()):  # until the second add has carried the confirmation of the first
            reader.read_last_add_confirmed()
        client.recover_ledger(int(ledger))
    appending.stdin.write(b"three\n")
    _, complaint = appending.communicate(timeout=PATIENCE)
    assert appending.returncode == 1
    assert (
        f"ledger {ledger}: entries 0 to 1 of 3 that were read are acknowledged; those after may be"
        in complaint.decode()
    )
    assert f"fencepost: not all could be appended: ledger {ledger} was fenced" in complaint.decode()


def test_an_interrupt_closes_the_ledger_where_it_is(store: tuple[str, list[Process]]) -> None:
    uri, _ = store
    ledger = command(uri, "create").strip()
    appending = piped(uri, "ledger", "append", ledger)
    tailing = piped(uri, "ledger", "tail", ledger)
    assert appending.stdin is not None and tailing.stdout is not None and appending.stderr is not None
    feeding = threading.Event()

    def feed() -> None:
        assert appending.stdin is not None
        while not feeding.wait(0.01):
            appending.stdin.write(b"more\n")
            appending.stdin.flush()

    feeder = threading.Thread(target=feed)
    feeder.start()
    assert tailing.stdout.readline() == b"more\n", "a tail shows what is appended while it is"
    feeding.set()
    feeder.join()
    appending.send_signal(signal.SIGINT)
    _, complaint = appending.communicate(timeout=PATIENCE)
    assert appending.returncode == 130 and complaint.decode().endswith("fencepost: interrupted\n")
    assert re.search(r"entries 0 to \d+ of \d+ that were read are acknowledged", complaint.decode())
    rest, _ = tailing.communicate(timeout=PATIENCE)
    assert tailing.returncode == 0 and set(rest.splitlines()) <= {b"more"}, "the ledger is closed, so the tail ends"


def test_whoever_stops_listening_ends_a_read_quietly(store: tuple[str, list[Process]]) -> None:
    uri, _ = store
    told = json.loads(command(uri, "append", "--json", given=(b"a line" * 100 + b"\n") * 400))
    reading = piped(uri, "ledger", "read", str(told["ledger"]))
    assert reading.stdout is not None and reading.stderr is not None
    assert reading.stdout.read(6) == b"a line"
    reading.stdout.close()
    assert reading.wait(PATIENCE) == 0 and reading.stderr.read() == b""
    reading.stderr.close()


def test_ledgers_are_listed_and_deleted(store: tuple[str, list[Process]]) -> None:
    uri, _ = store
    first, second = command(uri, "create").strip(), command(uri, "create", "--ensemble", "1").strip()
    listed = command(uri, "list").split()
    assert first in listed and second in listed
    assert re.search(rf" {second}  reserved ", command(uri, "list", "--long"))
    assert command(uri, "delete", first, second, "--yes") == f"ledger {first} is deleted\nledger {second} is deleted\n"
    assert not {first, second} & set(command(uri, "list").split())
    assert command(uri, "delete", first, code=1) == f"fencepost: there is no ledger {first}\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("create", "--ack-quorum", "4"), "ack_quorum 4: an ack quorum is at least 1"),
        (("create", "--ensemble", "9"), "needs 9 bookies to write to, and there are 3: start more"),
        (("create", "--digest", "md5"), "invalid choice"),
        (("read", "x"), "is not a whole number"),
        (("show", "999999"), "there is no ledger 999999"),
        (("read", "0", "--metadata", "zk://127.0.0.1"), "does not say where the ledgers are"),
        (("list", "--metadata", "nonsense"), "is no address of a metadata service"),
        (("read", "0", "--first=--"), "'--' is not a whole number"),
        (("create", "--custom", "k\udcff=v"), "is no UTF-8"),
        (("read", "0", "--password-file", "/dev/zero"), "it has more than 65,536 bytes"),
    ],
)
def test_mistakes_are_one_line(store: tuple[str, list[Process]], arguments: tuple[str, ...], complaint: str) -> None:
    uri, _ = store
    done = subprocess.run(
        [sys.executable, "-m", "fencepost", "ledger", *arguments],
        capture_output=True,
        env=environment(uri),
        check=False,
    )
    assert done.returncode in (1, 151, 153)
    assert complaint in done.stderr.decode() and done.stderr.count(b"\n") == 1


def test_a_password_is_the_bytes_that_are_typed(store: tuple[str, list[Process]], tmp_path: Path) -> None:
    uri, _ = store
    typed, kept = "caf\udce9", tmp_path / "password"
    kept.write_bytes(b"caf\xe9\n")
    ledger = command(uri, "create", "--password", typed, "--custom", "k=\udce9").strip()
    assert command(uri, "append", ledger, "--password-file", str(kept)).endswith("closed\n")
    assert command(uri, "read", ledger, "--password", typed) == ""


HELLO = """
import asyncio, fencepost

async def main():
    async with fencepost.connect(URI) as store:
        async with store.create_ledger() as ledger:
            await ledger.append(b"hello, ledger")
        async with store.open_ledger(ledger.id) as reader:
            print([entry.data async for entry in reader.read()])

asyncio.run(main())
"""

HELLO_IN_STEP = """
import fencepost

with fencepost.connect(URI) as store:
    with store.create_ledger() as ledger:
        ledger.append(b"hello, ledger")
    with store.open_ledger(ledger.id) as reader:
        print([entry.data for entry in reader.read()])
"""


@pytest.mark.parametrize("text", [HELLO, HELLO_IN_STEP])
def test_hello_ledger(store: tuple[str, list[Process]], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(text, "hello", "exec"), {"URI": store[0]})
    assert capsys.readouterr().out == "[b'hello, ledger']\n"


def test_the_synchronous_client_has_all_of_it(store: tuple[str, list[Process]]) -> None:
    uri, _ = store
    client = fencepost.connect_sync(uri)
    with client.create_ledger(password="p") as ledger:
        assert ledger.append_many([b"%d" % number for number in range(1000)]) == [*range(1000)]
        assert ledger.last_add_confirmed == 999
        reader = client.open_ledger(ledger.id, password="p")
        tail = reader.tail(990)
        assert next(tail).data == b"990"
        ledger.append(b"last")
    assert [entry.data for entry in tail][-1] == b"last"
    assert [entry.id for entry in reader.read(5, 8)] == [5, 6, 7, 8]
    assert reader.read_entry(7) == b"7" and reader.read_last_add_confirmed() == 1000 and reader.is_closed
    abandoned = reader.read()
    assert next(abandoned).id == 0
    abandoned.close()
    reserved = client.reserve_ledger()
    assert client.ledger_metadata(reserved).custom_metadata
    with client.adopt_ledger(reserved) as adopted:
        adopted.append(b"mine")
    with pytest.raises(fencepost.LedgerClosedError):
        client.adopt_ledger(reserved)
    assert {ledger.id, reserved} <= set(client.list_ledgers())
    assert len(client.bookies().writable) == 3
    client.delete_ledger(reserved)
    with pytest.raises(fencepost.NoSuchLedgerError):
        client.open_ledger(reserved)
    client.close()
    client.close()
    with pytest.raises(fencepost.OptionError, match="the store is closed"):
        client.bookies()


def test_the_package_alone_imports_nothing_of_the_store() -> None:
    text = (
        "import sys, fencepost; print([name for name in sys.modules if name.startswith(('fencepost.ledger', 'kazoo',"
        " 'google', 'asyncio'))])"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, env=environment(""), check=True)
    assert done.stdout == b"[]\n"
    with pytest.raises(AttributeError, match="no attribute 'NoSuchError'"):
        fencepost.NoSuchError  # noqa: B018
