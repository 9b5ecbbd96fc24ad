"""A real cluster on this machine: a master and two workers, one of which is killed, and a driver that is killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
import pytest

from fencepost import check
from fencepost.protocols import shipped

CONSTANTS: dict[str, Any] = {"bookies": 2, "write_quorum": 2, "ack_quorum": 1, "recovery_reads_fence": True}
PATIENCE = 300.0
"""Seconds until a test gives up."""


@dataclass
class Daemons:
    """The processes of a cluster."""

    master: str
    workers: list[subprocess.Popen[bytes]]
    environment: dict[str, str]


def descendants(pid: int) -> list[int]:
    """A process and all that it started."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(status.parent.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it started, without a warning."""
    for pid in descendants(process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def until(condition: Any, what: str) -> None:
    """Wait for something that another process does."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """A master and two workers of one core each."""
    folder = tmp_path_factory.mktemp("cluster")
    home = os.path.dirname(pyspark.__file__)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **os.environ, "SPARK_HOME": home, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", "PYSPARK_PYTHON": sys.executable,
    }  # fmt: skip
    log = folder / "log"
    base = "org.apache.spark.deploy"

    def start(*words: str) -> subprocess.Popen[bytes]:
        with open(log, "ab") as file:
            command = [os.path.join(home, "bin", "spark-class"), *words]
            return subprocess.Popen(command, stdout=file, stderr=file, env=environment)

    master = f"spark://127.0.0.1:{port}"
    started = [start(f"{base}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")]
    try:
        for n in range(2):
            words = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir", str(folder / str(n))]
            started.append(start(f"{base}.worker.Worker", *words, master))
        until(lambda: log.read_text().count("Registering worker") == 2, "the workers to register")
        yield Daemons(master, started[1:], environment)
    finally:
        for process in started:
            kill(process)


def begin(daemons: Daemons, folder: Path, *words: str) -> subprocess.Popen[bytes]:
    """Start a check on the cluster."""
    constants = [part for name, value in CONSTANTS.items() for part in ("-D", f"{name}={value}")]
    command = [
        sys.executable, "-m", "fencepost", "check", "bookkeeper-4.13", *constants, "--engine", "spark", "--master", daemons.master,
        "--json", str(folder / "result.json"), *words,
    ]  # fmt: skip
    with open(folder / "output", "ab") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, env=daemons.environment)


def saved_depth(place: Path) -> int:
    """The depth of a checkpoint."""
    manifest = place / "manifest.json"
    return int(json.loads(manifest.read_text())["depth"]) if manifest.exists() else 0


def has_all(folder: Path) -> bool:
    """Whether a check on the cluster ended with what it ends with in one process."""
    got = json.loads((folder / "result.json").read_text())
    expected = check(shipped("bookkeeper-4.13")(**CONSTANTS), engine="embedded")
    figures = [expected.distinct_states, expected.generated_states, expected.depth]
    actions = [[a.name, a.taken, a.new_states] for a in expected.actions]
    assert [got["distinct_states"], got["generated_states"], got["depth"]] == figures
    assert [[a["name"], a["taken"], a["new_states"]] for a in got["actions"]] == actions
    return bool(got["verdict"] == "holds")


def test_a_driver_is_killed_and_the_search_goes_on(daemons: Daemons, tmp_path: Path) -> None:
    place = tmp_path / "checkpoint"
    driver = begin(daemons, tmp_path, "--handover", "600", "--checkpoint", str(place))
    until(lambda: saved_depth(place) >= 14 or driver.poll() is not None, "the fourteenth level")
    kill(driver)
    assert not (tmp_path / "result.json").exists() or not (tmp_path / "result.json").read_text()
    again = begin(daemons, tmp_path, "--handover", "700", "--resume", str(place))
    assert again.wait(PATIENCE) == 0, (tmp_path / "output").read_text()
    assert has_all(tmp_path)


def test_a_worker_is_killed_in_the_middle_of_a_level(daemons: Daemons, tmp_path: Path) -> None:
    place = tmp_path / "checkpoint"
    driver = begin(daemons, tmp_path, "--handover", "600", "--checkpoint", str(place))
    until(lambda: saved_depth(place) >= 13 or driver.poll() is not None, "the thirteenth level")
    assert driver.poll() is None, (tmp_path / "output").read_text()
    kill(daemons.workers[0])
    assert driver.wait(PATIENCE) == 0, (tmp_path / "output").read_text()
    assert has_all(tmp_path)
