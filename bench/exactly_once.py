"""Exactly once, counted under ``kill -9``: ``python -m bench.exactly_once [--kills 50] [--minutes 0] [--seed 1]
[DIR]``.

A writer appends numbered entries to the log ``a`` on a cluster of real processes. A Spark driver streams ``a`` through
a transformation into the log ``b``, with a checkpoint. ``--kills`` times, one of these is killed with SIGKILL and
restarted:

- the driver: the process of Python, its JVM, and all that they started, at once;
- an executor: a process of a worker of ``local-cluster``, or with a ``local`` master a process of Python that runs
  tasks, reads offsets or commits;
- a bookie, which is started again some seconds later;
- the writer of the log.

Between two kills the stream commits a batch to ``b``, and a random time passes, so that kills hit any point of a batch.
In the end, every acknowledged entry is in ``a`` once and in order, and ``b`` is the transformation of ``a`` by count,
order and checksum. Neither log leaves a ledger over. It exits with 1 if any of these checks fails.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fencepost
from fencepost.errors import FencepostError
from fencepost.ledger.cluster import bound, control
from fencepost.ledger.errors import StoreError
from fencepost.log.chain import EARLIEST

FROM, TO = "a", "b"
BOOKIES = 4
"""One more than an ensemble has, so that one may be gone."""

PATIENCE = 900.0
"""Seconds until it counts as stuck."""

VICTIMS = ("driver", "executor", "bookie", "writer")
MASTER = "local[2,4]"
"""Two cores, and four attempts for each task."""


# -- the writer -------------------------------------------------------------------------------------------------------


def transformed(data: bytes) -> bytes:
    """What the stream makes of an entry."""
    return data + b" " + hashlib.md5(data).hexdigest().encode()


async def write(uri: str, facts: Path, number: int, rate: int) -> None:
    """Append entries that carry their own number and that of this process, and record how many are acknowledged, until
    SIGTERM.
    """
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    sent = 0
    with open(facts, "w", buffering=1) as file:
        while not over.is_set():
            try:
                async with fencepost.connect(uri) as store, store.log(FROM).writer(ledger_entries=20_000) as writer:
                    while not over.is_set():
                        begun = time.monotonic()
                        some = [b"%d:%d " % (number, each) + b"." * 60 for each in range(sent, sent + rate // 10)]
                        sent += len(some)
                        await writer.append_many(some)
                        file.write(f"{sent}\n")
                        await asyncio.sleep(max(0.0, begun + 0.1 - time.monotonic()))
            # whether what was sent is in the log is not known, so nothing follows under this number
            except StoreError as error:
                print(f"writer {number}: {error}", file=sys.stderr)
                sys.exit(3)


# -- the driver -------------------------------------------------------------------------------------------------------


def stream(uri: str, checkpoint: str, master: str) -> None:
    """Stream from one log to the other until this process is killed, or SIGTERM."""
    from pyspark.sql import SparkSession

    from fencepost.spark import register

    session = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
    )
    spark = (
        session.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    source = {
        "metadata": uri,
        "log": FROM,
        "cursor": "stream",
        "decoder": "utf8",
        "maxEntriesPerTrigger": 20_000,
        "maxBytesPerPartition": 500_000,
    }
    rows = (
        spark.readStream.format("fencepost")
        .options(**source)
        .load()
        .selectExpr("concat(value, ' ', md5(cast(value as binary))) value")
    )
    sink = rows.writeStream.format("fencepost").options(metadata=uri, log=TO, checkpointLocation=checkpoint)
    query = sink.trigger(processingTime="500 milliseconds").start()
    ends: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ends.append(number))
    while query.isActive and not ends:
        query.awaitTermination(1)
    query.stop()
    if query.exception() is not None:
        sys.exit(f"the query ended: {str(query.exception()).strip().splitlines()[-1]}")


# -- processes --------------------------------------------------------------------------------------------------------


class Process:
    """A process that is started again whenever it ended. ``command`` is given how often it was started before."""

    def __init__(self, name: str, folder: Path, command: Callable[[int], list[str]]) -> None:
        self.name = name
        self.times = 0
        """How often it was started."""
        self.failures = 0
        """How often it ended without being killed."""
        self._folder = folder
        self._command = command
        self.process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        self.times += 1
        command = [sys.executable, "-IS", bound.__file__, str(os.getpid()), sys.executable, "-m", "bench.exactly_once"]
        with open(self._folder / f"{self.name}.log", "ab") as log:
            return subprocess.Popen(
                [*command, *self._command(self.times)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Kill it with all that it started."""
        for pid in [*descendants(self.process.pid), self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.process = self._started()

    def look(self) -> None:
        """Restart it if it has ended."""
        if self.process.poll() is not None:
            self.failures += 1
            self.process = self._started()

    def end(self) -> None:
        """Ask it to end, and see that it does."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill_for_good()

    def kill_for_good(self) -> None:
        """Kill it, and do not start it again."""
        for pid in [*descendants(self.process.pid), self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


def descendants(pid: int) -> list[int]:
    """All processes that a process started, and those that they did."""
    found = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def executors(pid: int) -> dict[str, list[int]]:
    """The processes below a driver that do its work, by what they are: executors of a ``local-cluster``, and the
    processes of Python below its JVM.
    """
    found: dict[str, list[int]] = {}
    for each in descendants(pid):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{each}/cmdline").read_bytes().decode(errors="replace").split("\0")
            for word in words:
                if word.startswith("pyspark.") or word.endswith("CoarseGrainedExecutorBackend"):
                    found.setdefault(word.rpartition(".")[2], []).append(each)
    return found


# -- the campaign -----------------------------------------------------------------------------------------------------


class Campaign:
    """The cluster, the processes, and what was done to them."""

    def __init__(self, folder: Path, kills: int, minutes: float, seed: int, rate: int, master: str) -> None:
        self.folder = folder
        self.kills = kills
        self.minutes = minutes
        self.random = random.Random(seed)
        self.rate = rate
        self.master = master
        self.done: Counter[str] = Counter()
        self.store = folder / "store"
        self.begun = time.monotonic()

    def say(self, text: str) -> None:
        """Tell how it goes."""
        print(f"{time.monotonic() - self.begun:6.0f} s   {text}", flush=True)

    def run(self) -> dict[str, Any]:
        """Run it; what was found."""
        cluster = [sys.executable, "-m", "fencepost", "cluster"]
        up = subprocess.run(
            [*cluster, "up", str(self.store), "--bookies", str(BOOKIES), "--detach", "--json"],
            stdout=subprocess.PIPE,
            check=True,
        )
        uri = json.loads(up.stdout)["metadata"]
        try:
            with fencepost.connect(uri) as store:
                return self._with(uri, store)
        finally:
            subprocess.run([*cluster, "down", str(self.store)], stdout=subprocess.DEVNULL, check=True)

    def _with(self, uri: str, store: Any) -> dict[str, Any]:
        for name in (FROM, TO):
            store.log(name).create()
        checkpoint = str(self.folder / "checkpoint")

        def facts(number: int) -> str:
            return str(self.folder / f"writer-{number}.facts")

        writer = Process(
            "writer", self.folder, lambda number: ["writer", uri, facts(number), str(number), str(self.rate)]
        )
        driver = Process("driver", self.folder, lambda _: ["driver", uri, checkpoint, self.master])
        processes = [writer, driver]
        try:
            self._progress(store, processes, "the first batch")
            for number in range(self.kills):
                if 0 < self.minutes * 60 < time.monotonic() - self.begun:
                    break
                self._kill(writer, driver)
                self._progress(store, processes, f"a batch after kill {number + 1}")
                time.sleep(self.random.random() * 1.5)
            writer.end()
            self.say("the writer has ended")
            self._until(lambda: self._lag(store) == 0, processes[1:], "the stream to have read everything")
            driver.end()
            return self._judged(store, writer, driver)
        finally:
            for each in processes:
                each.kill_for_good()

    def _batches(self, store: Any) -> int:
        batches = store.log(TO).show().chain.batches
        return -1 if not batches else int(batches[0].number)

    def _lag(self, store: Any) -> int:
        """Entries of the one log that are not in the other."""
        return self._count(store, FROM) - self._count(store, TO)

    def _count(self, store: Any, name: str) -> int:
        """The number of entries of a log whose ledgers are all closed."""

        async def count(store: Any) -> int:
            chain = await store.log(name).chain()
            found = await asyncio.gather(*(store.ledger_metadata(link.ledger) for link in chain.links))
            return sum(metadata.last_entry + 1 for metadata in found)

        counted: int = store.run(count)
        return counted

    def _progress(self, store: Any, processes: list[Process], what: str) -> None:
        before = self._batches(store)
        self._until(lambda: self._batches(store) > before, processes, what)

    def _until(self, holds: Callable[[], bool], processes: list[Process], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(StoreError):
                if holds():
                    return
            for each in processes:
                each.look()
            if time.monotonic() > end:
                raise RuntimeError(f"waited {PATIENCE:.0f} s in vain for {what}")
            time.sleep(0.1)

    def _kill(self, writer: Process, driver: Process) -> None:
        victim = VICTIMS[sum(self.done.values()) % len(VICTIMS)]
        told = victim
        if victim == "executor":
            some = executors(driver.process.pid)
            if not some:
                victim = told = "driver"
            else:
                what = self.random.choice(sorted(some))
                told = f"executor: {what}"
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.random.choice(some[what]), signal.SIGKILL)
        if victim == "driver":
            driver.kill()
        elif victim == "writer":
            writer.kill()
        elif victim == "bookie":
            name = str(self.random.randint(1, BOOKIES))
            control.ask(self.store, "kill", [name])
            time.sleep(self.random.random() * 3)
            control.ask(self.store, "start", [name])
            told = f"bookie {name}"
        self.done[victim if victim == told or victim == "bookie" else told] += 1
        self.say(f"kill {sum(self.done.values())}: {told}")

    # -- in the end ---------------------------------------------------------------------------------------------------

    def _judged(self, store: Any, writer: Process, driver: Process) -> dict[str, Any]:
        faults: list[str] = []
        data = {name: [each.data for each in store.log(name).read(at=EARLIEST, follow=False)] for name in (FROM, TO)}
        written: dict[int, list[int]] = {}
        for each in data[FROM]:
            number, _, at = each.partition(b" ")[0].partition(b":")
            written.setdefault(int(number), []).append(int(at))
        acknowledged = 0
        for number in range(1, writer.times + 1):
            lines = (self.folder / f"writer-{number}.facts").read_text().splitlines()
            count, there = int(lines[-1]) if lines else 0, written.get(number, [])
            acknowledged += count
            if there != [*range(len(there))] or len(there) < count:
                faults.append(
                    f"of writer {number} {count} entries were acknowledged, and {len(there)} are in log {FROM}, or not"
                    " in order"
                )
        expected, found = [*map(transformed, data[FROM])], data[TO]
        if found != expected:
            lost, doubled = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
            faults.append(
                f"log {TO}: {sum(lost.values())} entries are missing, {sum(doubled.values())} are there too often; else"
                " they are out of order"
            )
        chains = {name: store.log(name).show().chain for name in (FROM, TO)}
        left = store.run(
            lambda store: self._left_over(store, {link.ledger for chain in chains.values() for link in chain.links})
        )
        if left:
            faults.append(f"ledgers are left over: {left}")
        return {
            "kills": dict(self.done),
            "master": self.master,
            "entries in a": len(data[FROM]),
            "acknowledged": acknowledged,
            "entries in b": len(found),
            "sha256 of b": hashlib.sha256(b"\n".join(found)).hexdigest(),
            "sha256 of a, transformed": hashlib.sha256(b"\n".join(expected)).hexdigest(),
            "batches": self._batches(store) + 1,
            "ledgers of b": len(chains[TO].links),
            "ledgers that were written and deleted": (
                self._ids(store) - sum(len(chain.links) for chain in chains.values())
            ),
            "times the query ended by itself": driver.failures,
            "times the writer ended by itself": writer.failures,
            "seconds": round(time.monotonic() - self.begun),
            "faults": faults,
        }

    def _ids(self, store: Any) -> int:
        """How many ids ledgers were given."""
        ids: int = store.run(lambda store: store.metadata.new_ledger_id())
        return ids

    async def _left_over(self, store: Any, chained: set[int]) -> list[int]:
        """Ledgers of batches that are in no log. The last batch has found those of all before it."""
        return [
            ledger
            async for ledger, metadata in store.metadata.all_metadata()
            if dict(metadata.custom_metadata).get("log") == TO.encode() and ledger not in chained
        ]


def main() -> int:
    """Run one of the processes, or all of it."""
    if sys.argv[1:2] == ["writer"]:
        uri, facts, number, rate = sys.argv[2:]
        asyncio.run(write(uri, Path(facts), int(number), int(rate)))
        return 0
    if sys.argv[1:2] == ["driver"]:
        stream(*sys.argv[2:])
        return 0
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument(
        "directory",
        type=Path,
        nargs="?",
        help="where everything is kept; by default a new folder, which is deleted if nothing is wrong",
    )
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument(
        "--minutes", type=float, default=0.0, help="after so long nothing is killed any more; 0: no limit (0)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=int, default=1000, help="entries a second that are written")
    parser.add_argument("--master", default=MASTER)
    given = parser.parse_args()
    folder = given.directory or Path(tempfile.mkdtemp(prefix="exactly-once-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {given.seed}, everything is in {folder}", flush=True)
    try:
        outcome = Campaign(folder, given.kills, given.minutes, given.seed, given.rate, given.master).run()
    except (FencepostError, RuntimeError) as error:
        print(f"exactly once: {error}", file=sys.stderr)
        return 2
    print(json.dumps(outcome, indent=2))
    if not outcome["faults"] and given.directory is None:
        shutil.rmtree(folder)
    return 1 if outcome["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
