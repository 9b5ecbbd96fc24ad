"""A real cluster on this machine: a master and two workers, one of which is killed, and a driver that is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
import pytest
from patience import PATIENCE, until
from virtual_machines import QUICK

from fencepost import check
from fencepost.errors import SAFETY_VIOLATED
from fencepost.language.loading import shipped
from fencepost.traces import TraceWriter

pytestmark = pytest.mark.campaign

COUNTING = Path(__file__).parents[1] / "traces" / "counting.py"

CONSTANTS: dict[str, Any] = {"bookies": 2, "write_quorum": 2, "ack_quorum": 1, "recovery_reads_fence": True}

DRIVER = """
import sys
import time
from pathlib import Path

from fencepost.cli.main import main
from fencepost.spark import cluster

folder, pause = Path(sys.argv[1]), int(sys.argv[2])
run, TICK = cluster.Cluster.run, cluster.TICK


def paused(self, job_stages, doing, name, report):
    pauses = len(job_stages) == 3 and job_stages[0][0].work.args[0].level >= pause

    def report_and_wait(stage):
        report(stage)
        if stage and pauses:
            cluster.TICK = TICK
            (folder / "at work").touch()
            while not (folder / "go on").exists():
                time.sleep(0.02)

    if pauses and not (folder / "go on").exists():
        cluster.TICK = 0.01  # so that no job is over before it was looked at
    return run(self, job_stages, doing, name, report_and_wait)


cluster.Cluster.run = paused
sys.exit(main(sys.argv[3:]))
"""
"""The command line. From a given level on it waits, with its job under way, until it may continue."""

MASTER = re.compile(r"Starting Spark master at (spark://[\d.]+:\d+)")


@dataclass
class Daemons:
    """The processes of a cluster."""

    master: str
    workers: list[subprocess.Popen[bytes]]
    environment: dict[str, str]


def descendants(pid: int) -> list[int]:
    """A process and all its descendants."""
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
    """Kill a process and all its descendants."""
    for pid in descendants(process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """A master and two workers of one core each."""
    folder = tmp_path_factory.mktemp("cluster")
    home = os.path.dirname(pyspark.__file__)
    environment = {
        **os.environ, "SPARK_HOME": home, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m",
        "JDK_JAVA_OPTIONS": QUICK, "PYSPARK_PYTHON": sys.executable,
    }  # fmt: skip
    log = folder / "log"
    base = "org.apache.spark.deploy"

    def start(*words: str) -> subprocess.Popen[bytes]:
        with open(log, "ab") as file:
            command = [os.path.join(home, "bin", "spark-class"), *words]
            return subprocess.Popen(command, stdout=file, stderr=file, env=environment)

    started = [start(f"{base}.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")]
    try:
        until(lambda: MASTER.search(log.read_text()), "the master to listen")
        (master,) = MASTER.findall(log.read_text())
        for n in range(2):
            words = [
                "--host",
                "127.0.0.1",
                "--webui-port",
                "0",
                "--cores",
                "1",
                "--memory",
                "1g",
                "--work-dir",
                str(folder / str(n)),
            ]
            started.append(start(f"{base}.worker.Worker", *words, master))
        until(lambda: log.read_text().count("Registering worker") == 2, "the workers to register")
        yield Daemons(master, started[1:], environment)
    finally:
        for process in started:
            kill(process)


def begin(daemons: Daemons, folder: Path, pause: int, *words: str) -> subprocess.Popen[bytes]:
    """Start a check on the cluster that waits at a level."""
    constants = [part for name, value in CONSTANTS.items() for part in ("-D", f"{name}={value}")]
    command = [
        sys.executable, "-c", DRIVER, str(folder), str(pause), "check", "bookkeeper-4.13", *constants, "--engine",
        "spark",
        "--master", daemons.master, "--json", str(folder / "result.json"), *words,
    ]  # fmt: skip
    with open(folder / "output", "ab") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, env=daemons.environment)


def wait_until_at_work(driver: subprocess.Popen[bytes], folder: Path) -> None:
    """Wait until a driver is at work on the level at which it waits."""
    until((lambda: (folder / "at work").exists() or driver.poll() is not None), "the level")
    assert driver.poll() is None, (folder / "output").read_text()


def has_all(folder: Path) -> bool:
    """Whether a check on the cluster ended with the result of one process."""
    got = json.loads((folder / "result.json").read_text())
    expected = check(shipped("bookkeeper-4.13")(**CONSTANTS), engine="embedded")
    figures = [expected.distinct_states, expected.generated_states, expected.depth]
    actions = [[a.name, a.taken, a.new_states] for a in expected.actions]
    assert [got["distinct_states"], got["generated_states"], got["depth"]] == figures
    assert [[a["name"], a["taken"], a["new_states"]] for a in got["actions"]] == actions
    return bool(got["verdict"] == "holds")


def test_a_violation_is_told_while_the_system_goes_on(daemons: Daemons, tmp_path: Path) -> None:
    folder, output = tmp_path / "traces", tmp_path / "output"
    folder.mkdir()
    a, b = (TraceWriter(folder, node=node, run="r") for node in "ab")
    command = [
        sys.executable, "-m", "fencepost", "validate", str(folder), "--conformance", str(COUNTING), "--follow",
        "--patience", "1",
        "--master", daemons.master,
    ]  # fmt: skip
    with open(output, "ab") as file:
        driver = subprocess.Popen(command, stdout=file, stderr=file, env=daemons.environment)

    def is_told(subject: str) -> bool:
        return f"subject {subject}" in output.read_text() or driver.poll() is not None

    b.emit("reads", "early", {"value": 1})
    until(lambda: is_told("early"), "the stream to be under way")
    a.emit("writes", "late", {"value": 1})
    b.emit("reads", "late", {"value": 1})
    b.emit("writes", "late", {"value": 3})
    began = time.monotonic()
    until(lambda: is_told("late"), "the violation to be told")
    seconds = time.monotonic() - began
    assert driver.poll() is None, output.read_text()
    print(f"told after {seconds:.1f} s")
    driver.send_signal(signal.SIGINT)
    assert driver.wait(PATIENCE) == SAFETY_VIOLATED, output.read_text()
    a.close()
    b.close()


def test_a_driver_is_killed_and_a_worker_too_and_the_search_goes_on(daemons: Daemons, tmp_path: Path) -> None:
    place = tmp_path / "checkpoint"
    driver = begin(daemons, tmp_path, 15, "--handover", "840", "--checkpoint", str(place))
    wait_until_at_work(driver, tmp_path)
    kill(driver)
    depth = json.loads((place / "manifest.json").read_text())["depth"]
    assert depth >= 14
    (tmp_path / "at work").unlink()
    again = begin(daemons, tmp_path, depth + 2, "--handover", "880", "--resume", str(place))
    wait_until_at_work(again, tmp_path)
    kill(daemons.workers[0])
    (tmp_path / "go on").touch()
    assert again.wait(PATIENCE) == 0, (tmp_path / "output").read_text()
    assert has_all(tmp_path)
