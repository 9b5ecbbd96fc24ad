"""Queries whose readers and drivers are killed again and again: no row of a log is lost, and none is there twice.

A writer goes on all the time. Two queries of one process read its log, into files and by ``foreachBatch``. By turns a
Python that reads for a task is killed, and the driver with its virtual machine, which is then started again. At the end
the rows are counted and summed up.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import fencepost
from bench.ledger.sides import OURS, Side
from bench.spark_ledgers.sessions import below

RATE = 2_000
"""Entries a second that are written."""

PATIENCE = 120.0
"""Seconds for a batch to come."""


class Driver:
    """The process of the queries."""

    def __init__(self, words: list[str], log: Path) -> None:
        self.log = log
        self.errors = open(log, "ab")
        command = [sys.executable, "-m", "bench.spark_ledgers.queries", "follow", *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.errors, text=True)
        self.lines: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(json.loads(line))

    def next(self) -> dict[str, Any]:
        """What it says next. Raises :class:`AssertionError` if that does not come."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with suppress(queue.Empty):
                return self.lines.get(timeout=0.5)
            if self.process.poll() is not None:
                break
        said = self.log.read_text(errors="replace").splitlines()[-30:]
        raise AssertionError("\n".join([*said, f"the queries say nothing more; exit status {self.process.poll()}"]))

    def kill(self) -> None:
        """End it and its virtual machine as a power cut does. Nothing happens if it has ended."""
        if self.process.poll() is None:
            for pid in (self.process.pid, *below(self.process.pid)[:1]):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait()
        self.errors.close()


def run(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Kill, count, print and give what was counted. Raises :class:`AssertionError` if a row is lost or doubled."""
    side, chance = Side(OURS, folder / "store"), random.Random(given.seed)
    killed = {"readers": 0, "drivers": 0}
    writing = driver = None
    try:
        side.start(clients=0)
        with fencepost.connect(side.cluster.uri) as store:
            store.log("clicks").create()
        words = [side.cluster.uri, "clicks", str(folder)]
        writer = [sys.executable, "-m", "bench.spark_ledgers.writer", *words[:2], str(RATE), "86400", "100"]
        writing = subprocess.Popen(writer, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert writing.stdout is not None and writing.stdin is not None
        writing.stdout.readline()
        driver = Driver(words, folder / "queries.log")
        for number in range(given.kills):
            said = driver.next()
            for _ in range(chance.randrange(2, 6)):
                said = driver.next()
            time.sleep(chance.random() / 2)
            if number % 2 and said["readers"]:
                with suppress(ProcessLookupError):
                    os.kill(chance.choice(said["readers"]), signal.SIGKILL)
                killed["readers"] += 1
            else:
                driver.kill()
                driver = Driver(words, folder / "queries.log")
                killed["drivers"] += 1
            print(
                f"{number + 1}: batches {said['batches']}; killed: {killed['drivers']} drivers, {killed['readers']}"
                " readers",
                flush=True,
            )
        driver.next()
        driver.kill()
        writing.stdin.close()
        count = json.loads(writing.stdout.readline())["entries"]
        command = [sys.executable, "-m", "bench.spark_ledgers.queries", "finish", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    finally:
        if writing is not None:
            writing.kill()
        if driver is not None:
            driver.kill()
        side.end()
    found = json.loads(done.stdout.splitlines()[-1])
    expected = [count, count, count * (count - 1) // 2]
    for name, each in found.items():
        if each != expected:
            raise AssertionError(f"{name}: rows, places and sum of the numbers are {each} instead of {expected}")
        print(f"{name}: {count:,} rows for {count:,} entries, none lost and none twice")
    return {"killed": killed, "entries": count}
