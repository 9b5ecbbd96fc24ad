"""Kafka's own ``kafka-metadata-quorum.sh``, unchanged, against a quorum of our members.

The script does nothing but start the class :data:`TOOL` with Kafka's jars, as is done here. What it prints is compared
with ``fencepost quorum status``.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from fencepost.files.folders import OsFiles
from fencepost.quorum.driver.host import QuorumHost
from interop import jars, kafka_codec
from interop.clusters import PROGRAM
from interop.processes import Server, free_port

TOOL = "org.apache.kafka.tools.MetadataQuorumCommand"
SECONDS = 120
"""A run of the tool that takes longer counts as stuck: its own timeout is 60 seconds."""

PROPERTIES = """\
process.roles=controller
node.id={number}
metadata.log.dir={folder}
listeners=CONTROLLER://127.0.0.1:{port}
controller.listener.names=CONTROLLER
"""
"""What the tool reads of the controller that it adds."""


class Ran(NamedTuple):
    """How a run of the tool ended."""

    status: int
    output: str
    errors: str


class Replica(NamedTuple):
    """A replica, as the tool tells of it."""

    directory: str
    end: int
    lag: int
    role: str


class Quorum:
    """Members of a quorum as processes, each with a port for Kafka's tools."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.members: dict[int, Server] = {}
        self.ports: dict[int, int] = {}
        self.kafka: dict[int, int] = {}
        folder.mkdir(parents=True)

    def start(self, *numbers: int) -> None:
        """Start new members, which know of one another and of those that are there; return when they serve."""
        for number in numbers:
            self.ports[number], self.kafka[number] = free_port(), free_port()
        for number in numbers:
            self.members[number] = self._member(number)
            self.members[number].launch()
        for number in numbers:
            self.members[number].wait()

    def _member(self, number: int) -> Server:
        words = [*PROGRAM, "metadata", str(self.folder / str(number)), "--id", str(number), "--port", str(free_port())]
        words += ["--controllers", ",".join(f"{each}@127.0.0.1:{port}" for each, port in self.ports.items())]
        words += ["--kafka-port", str(self.kafka[number])]
        return Server(
            f"member {number}", words, self.folder / f"{number}.log", lambda server: " serves" in server.said()
        )

    def move(self, number: int) -> None:
        """End a member and start it at another endpoint."""
        self.members[number].signal(signal.SIGTERM)
        self.members[number].end()
        self.ports[number] = free_port()
        self.members[number] = self._member(number)
        self.members[number].start()

    def directory(self, number: int) -> str:
        """The id of the directory of a member."""
        properties = (self.folder / str(number) / "meta.properties").read_text()
        return str(re.findall(r"^directory\.id=(.*)$", properties, re.MULTILINE)[0])

    def properties(self, number: int, port: int | None = None) -> Path:
        """The settings of a member as those of a Kafka controller."""
        file = self.folder / f"{number}.properties"
        file.write_text(
            PROPERTIES.format(number=number, folder=self.folder / str(number), port=port or self.ports[number])
        )
        return file

    def run(self, *words: str, of: tuple[int, ...] = ()) -> Ran:
        """Run the tool with the addresses of the members ``of``, or of all members."""
        bootstrap = ",".join(f"127.0.0.1:{self.kafka[each]}" for each in of or self.kafka)
        command = jars.java("-cp", jars.kafka_class_path(), TOOL, "--bootstrap-controller", bootstrap, *words, heap=128)
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        return Ran(done.returncode, done.stdout, done.stderr)

    def says(self, *words: str, of: tuple[int, ...] = ()) -> str:
        """What the tool prints if all is well. Raises ``AssertionError`` if it complains."""
        ran = self.run(*words, of=of)
        assert ran.status == 0 and not ran.errors, f"{words} ended with {ran.status}:\n{ran.output}{ran.errors}"
        return ran.output

    def refuses(self, complaint: str, *words: str, of: tuple[int, ...] = ()) -> None:
        """Make sure that the tool ends with a complaint."""
        ran = self.run(*words, of=of)
        first = ran.errors.partition("\n")[0]
        assert ran.status == 1 and re.search(complaint, first), (
            f"{words} ended with {ran.status}:\n{ran.output}{ran.errors}"
        )

    def status(self) -> Mapping[str, Any]:
        """What ``fencepost quorum status`` says."""
        endpoints = ",".join(f"127.0.0.1:{port}" for port in self.ports.values())
        command = [sys.executable, "-m", "fencepost", "quorum", "status", "--controllers", endpoints, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        for each in (*found["voters"], *found["observers"]):
            del each["last_fetch_timestamp"], each["last_caught_up_timestamp"]  # they never stay the same
        return found

    def same(self, of: tuple[int, ...] = ()) -> Mapping[str, Any]:
        """Make sure that both tools tell the same, which is returned. It may take a moment until all have all."""
        end = time.monotonic() + SECONDS
        while True:
            before = self.status()
            described, replication = (
                described_by(self.says("describe", "--status", of=of)),
                replicas_by(self.says("describe", "--replication", of=of)),
            )
            if before == self.status() or time.monotonic() > end:
                break
        expected = {
            "ClusterId": before["cluster_id"],
            "LeaderId": str(before["leader_id"]),
            "LeaderEpoch": str(before["leader_epoch"]),
            "HighWatermark": str(before["high_watermark"]),
            "MaxFollowerLag": str(before["max_follower_lag"]),
            "CurrentVoters": [_node(each) for each in before["voters"]],
            "CurrentObservers": [_node(each) for each in before["observers"]],
        }
        lag = int(described.pop("MaxFollowerLagTimeMs"))
        assert described == expected, f"{described} is not {expected}"
        assert lag >= -1
        told = {}
        for kind in ("voters", "observers"):
            for each in before[kind]:
                role = (
                    "Leader"
                    if each["id"] == before["leader_id"]
                    else {"voters": "Follower", "observers": "Observer"}[kind]
                )
                told[each["id"]] = Replica(each["directory_id"], each["log_end_offset"], each["lag"], role)
        assert replication == told, f"{replication} is not {told}"
        return before

    def end(self) -> None:
        """Kill all."""
        for member in self.members.values():
            member.kill()


def _node(replica: Mapping[str, Any]) -> dict[str, Any]:
    found = {"id": replica["id"], "directoryId": replica["directory_id"]}
    return found | {"endpoints": [f"CONTROLLER://{replica['endpoint']}"]} if replica["endpoint"] else found


def described_by(printed: str) -> dict[str, Any]:
    """What ``describe --status`` prints, by its names."""
    found: dict[str, Any] = {}
    for line in printed.splitlines():
        name, _, value = line.partition(":")
        found[name] = json.loads(value) if value.strip().startswith("[") else value.strip()
    return found


def replicas_by(printed: str) -> dict[int, Replica]:
    """What ``describe --replication`` prints, by the ids of replicas."""
    header, *rows = ([cell.strip() for cell in line.split("\t") if cell.strip()] for line in printed.splitlines())
    names = ["NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status"]
    assert header == names, f"{header} is not {names}"
    now = time.time() * 1_000
    for row in rows:
        assert all(0 <= now - int(each) < 600_000 for each in row[4:6]), f"{row} has times that are none, at {now:.0f}"
    return {int(row[0]): Replica(row[1], int(row[2]), int(row[3]), row[6]) for row in rows}


# -- the cases ---------------------------------------------------------------------------------------------------------


def _describe(quorum: Quorum) -> None:
    """Through each member alone, and through all."""
    for of in ((1,), (2,), (3,), (1, 2, 3)):
        found = quorum.same(of)
        assert [each["id"] for each in found["voters"]] == [1, 2, 3]
    printed = quorum.says("describe", "--replication", "--human-readable")
    assert printed.count(" ms ago") == 6, printed


def _grow(quorum: Quorum) -> None:
    """An observer is added, found to be there already, removed, and found to be gone."""
    quorum.start(4)
    directory = quorum.directory(4)
    added = ("--command-config", str(quorum.properties(4)), "add-controller")
    listener = f"CONTROLLER://127.0.0.1:{quorum.ports[4]}"
    dry = quorum.says(*added, "--dry-run")
    assert dry == f"DRY RUN of adding controller 4 with directory id {directory} and endpoints: {listener}\n", dry
    assert [each["id"] for each in quorum.same()["observers"]] == [4]
    said = quorum.says(*added, of=(2,))
    assert said == f"Added controller 4 with directory id {directory} and endpoints: {listener}\n", said
    found = quorum.same(of=(4,))
    assert [each["id"] for each in found["voters"]] == [1, 2, 3, 4] and not found["observers"]
    quorum.refuses(rf"DuplicateVoterException: 4-{directory} is a voter already", *added)
    removed = ("remove-controller", "--controller-id", "4", "--controller-directory-id")
    quorum.refuses(r"VoterNotFoundException: 4-\S{22} is none of the voters", *removed, quorum.directory(1))
    quorum.refuses(r"InvalidRequestException: a voter has", *removed, "A" * 22)
    said = quorum.says(*removed, directory, of=(4,))
    assert said == f"Removed  KRaft controller 4 with directory id {directory}\n", said
    assert [each["id"] for each in quorum.same()["observers"]] == [4]
    quorum.refuses(rf"VoterNotFoundException: 4-{directory} is none of the voters", *removed, directory)


@contextmanager
def _laggard(quorum: Quorum, number: int) -> Iterator[None]:
    """A member that has joined the cluster, and never fetches."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def opened() -> QuorumHost:
        files = OsFiles(str(quorum.folder / str(number)))
        host = QuorumHost(files, number, {each: f"127.0.0.1:{port}" for each, port in quorum.ports.items()})
        await host.open()
        return host

    host = asyncio.run_coroutine_threadsafe(opened(), loop).result(SECONDS)
    try:
        yield
    finally:
        asyncio.run_coroutine_threadsafe(host.close(), loop).result(SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def _refuse(quorum: Quorum) -> None:
    """New voters that are not there, are others, or have not caught up; and who is no controller at all."""
    (quorum.folder / "9").mkdir()
    quorum.ports[9] = free_port()
    with _laggard(quorum, 9):
        added = "--command-config", str(quorum.properties(9)), "add-controller"
        quorum.refuses("TimeoutException: the replica has not fetched up to the end of the log", *added)
    quorum.refuses("TimeoutException: the new voter does not answer at its endpoint: 127.0.0.1", *added)
    quorum.refuses(
        "InvalidRequestException: at 127.0.0.1:.* is 1-.*, and not 9-",
        *("--command-config", str(quorum.properties(9, quorum.ports[1])), "add-controller"),
    )
    del quorum.ports[9]
    command = [
        "-cp",
        jars.kafka_class_path(),
        TOOL,
        "--bootstrap-server",
        f"127.0.0.1:{quorum.kafka[1]}",
        "describe",
        "--status",
    ]
    ran = subprocess.run(jars.java(*command, heap=128), capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ran.returncode == 1 and "does not support METADATA" in ran.stderr, ran.stderr


def _leader_killed(quorum: Quorum) -> None:
    """The tool finds the next leader, while there is none yet."""
    before = quorum.status()
    leader = before["leader_id"]
    quorum.members[leader].kill()
    found = described_by(quorum.says("describe", "--status"))
    assert int(found["LeaderId"]) != leader and int(found["LeaderEpoch"]) > before["leader_epoch"], found
    said = quorum.says("remove-controller", "-i", str(leader), "-d", quorum.directory(leader))
    assert said.startswith(f"Removed  KRaft controller {leader}"), said
    quorum.members[leader].start()
    quorum.says("--command-config", str(quorum.properties(leader)), "add-controller")
    assert [each["id"] for each in quorum.same()["voters"]] == [1, 2, 3]


def _leader_removed(quorum: Quorum) -> None:
    """A leader removes itself, and is added again."""
    leader = quorum.status()["leader_id"]
    quorum.says("remove-controller", "-i", str(leader), "-d", quorum.directory(leader))
    _until(lambda: quorum.status()["leader_id"] != leader, "another leader")
    quorum.says("--command-config", str(quorum.properties(leader)), "add-controller")
    assert leader in [each["id"] for each in quorum.same()["voters"]]


def _moved(quorum: Quorum) -> None:
    """A voter that restarts at another port is reported with its new endpoint."""
    leader = quorum.status()["leader_id"]
    moved = next(each for each in (1, 2, 3) if each != leader)
    quorum.move(moved)
    endpoint = f"127.0.0.1:{quorum.ports[moved]}"
    _until(lambda: endpoint in [each["endpoint"] for each in quorum.status()["voters"]], "the new endpoint")
    quorum.same()


def _until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, f"{what} did not come in {SECONDS} s"
        time.sleep(0.2)


def _tables(_: Quorum) -> None:
    """Our tables of messages have every field that Kafka's schemas have, and no other."""
    assert kafka_codec.check_tables() > 50


def _bytes(_: Quorum) -> None:
    """Kafka's classes and ours make the same bytes of the same messages, and read the same in them."""
    kafka_codec.check_bytes(40)


CASES: Mapping[str, Callable[[Quorum], None]] = {
    "schemas": _tables,
    "bytes of messages": _bytes,
    "describe, status and replication": _describe,
    "add-controller and remove-controller": _grow,
    "changes that are refused": _refuse,
    "a leader that is killed": _leader_killed,
    "a leader that is removed": _leader_removed,
    "a voter at another endpoint": _moved,
}
"""By their names. Each begins with three voters."""
