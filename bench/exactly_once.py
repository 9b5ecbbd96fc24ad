"""Exactly once, counted under ``kill -9``: ``python -m bench.exactly_once [--kills 100] [--writes 20] [--minutes 0]
[--seed 1] [DIR]``.

A writer appends numbered entries to the log ``a`` on a cluster of real processes. A Spark driver streams ``a`` through
a transformation into the log ``b``, with a checkpoint. ``--kills`` times, one of these is killed with SIGKILL, each as
often as the others, in an order that the seed gives:

- the executor of a standalone cluster of Spark, which the first of the kills have, before the driver is local;
- the JVM of the driver, and the driver's Python, each alone;
- a process of Python that plans: it reads offsets and partitions;
- a process of Python that runs a task;
- the process of Python that commits a batch, while it does;
- a bookie, which is started again some seconds later;
- the writer of the log.

Between two kills the stream commits a batch to ``b``, and a random time passes, so that kills hit any point of a batch.
After each kill and its batch, what has come to ``b`` is compared with ``a``: ``b`` is a prefix of its transformation.
In the end, every acknowledged entry is in ``a`` once and in order, and ``b`` is the transformation of ``a`` by count,
order and checksum.

Then ``--writes`` batch queries write the log ``c``, each with a ``writeId``. A process is killed in the midst of each:
all of its rows are in ``c``, or none. It is repeated until it has succeeded, and its rows are in ``c`` once. No log
leaves a ledger over. It exits with 1 if any of these checks fails.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import fencepost
from fencepost.errors import FencepostError
from fencepost.ledger.cluster import bound, control
from fencepost.ledger.errors import StoreError
from fencepost.log.chain import EARLIEST, End, Position

FROM, TO, WRITTEN = "a", "b", "c"
BOOKIES = 4
"""One more than an ensemble has, so that one may be gone."""

PATIENCE = 900.0
"""Seconds until it counts as stuck."""

EXECUTOR, JVM, DRIVER, PLANS, TASK, COMMITS, BOOKIE, WRITER = VICTIMS = (
    "executor of a standalone cluster", "JVM", "driver's Python", "Python that plans", "Python that runs a task",
    "Python that commits", "bookie", "writer",
)  # fmt: skip

OF_WRITES = JVM, DRIVER, TASK, COMMITS, BOOKIE
"""Whom the kills in the midst of batch queries hit."""

MODULES = {
    "pyspark.sql.streaming.python_streaming_source_runner": PLANS,
    "pyspark.sql.worker.plan_data_source_read": PLANS,
    "pyspark.sql.worker.python_streaming_sink_runner": COMMITS,
    "pyspark.sql.worker.commit_data_source_write": COMMITS,
    "pyspark.worker": TASK,
    "org.apache.spark.deploy.SparkSubmit": JVM,
    "org.apache.spark.executor.CoarseGrainedExecutorBackend": EXECUTOR,
}
"""What a process in the session of a driver or a worker is, by a word of its command line."""

DAEMON = "pyspark.daemon"
"""The module of the processes that fork those that do the work."""

MASTER = "local[2,4]"
"""Two cores, and four attempts for each task."""

ROWS = 100_000
"""The rows of a batch query."""

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
}


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


def session(master: str) -> Any:
    """A session that knows the format."""
    from pyspark.sql import SparkSession

    from fencepost.spark import register

    spark = SparkSession.builder.master(master).config(map=SETTINGS).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark


def stream(uri: str, checkpoint: str, master: str) -> None:
    """Stream from one log to the other until this process is killed, or SIGTERM."""
    spark = session(master)
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


def row(number: int) -> bytes:
    """A row of the batch queries."""
    return b"%d " % number + b"." * 60


def write_batches(uri: str, first: int, folder: Path) -> None:
    """Write the log with a batch query each, beginning with number ``first``, as soon as ``folder`` has a file that
    lets it. Repeats those that fail.
    """
    spark = session(MASTER)
    for number in itertools.count(first):
        while not (folder / f"write-{number}").exists():
            time.sleep(0.05)
        rows = spark.range(number * ROWS, (number + 1) * ROWS, numPartitions=4).selectExpr(
            "concat(cast(id as string), ' ', repeat('.', 60)) value"
        )
        while True:
            print(f"begins {number}", flush=True)
            try:
                options = {"metadata": uri, "log": WRITTEN, "writeId": f"load-{number}"}
                rows.write.format("fencepost").options(**options).mode("append").save()
                break
            except Exception as error:
                if not spark.sparkContext._jsc.sc().isStopped():  # which raises if the JVM is gone
                    print(f"failed {number}: {str(error).strip().splitlines()[-1]}", flush=True)
        print(f"ended {number}", flush=True)


# -- processes --------------------------------------------------------------------------------------------------------


class Process:
    """A process that is started again whenever it ended. ``command`` is given how often it was started before."""

    def __init__(self, name: str, folder: Path, command: Callable[[int], list[str]]) -> None:
        self.name = name
        self.times = 0
        """How often it was started."""
        self.failures = 0
        """How often it ended without being killed."""
        self.log = folder / f"{name}.log"
        self._command = command
        self.process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        self.times += 1
        command = [sys.executable, "-IS", bound.__file__, str(os.getpid()), *self._command(self.times)]
        # The Python of Spark has ten seconds to connect, and this machine is busy.
        python = str(Path(sys.executable).with_name("fencepost-python"))
        environment = {**os.environ, "PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
        with open(self.log, "ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=environment
            )

    def kill(self) -> None:
        """Kill it alone. What it started finds that out."""
        self.process.kill()
        self.process.wait()
        self.process = self._started()

    def restart(self) -> None:
        """Start it again after :meth:`end`."""
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
        """Kill it with all that it started, and do not start it again."""
        for pid in [*session_of(self.process.pid), self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


def of_bench(*words: str) -> list[str]:
    """The command of a process of this module."""
    return [sys.executable, "-m", "bench.exactly_once", *words]


def session_of(leader: int) -> list[int]:
    """All other processes of the session that a process leads: what it started, and what that did, orphans included."""
    found = []
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        with contextlib.suppress(OSError):
            if pid != leader and _stat(pid)[3] == str(leader):
                found.append(pid)
    return found


def command_of(pid: int) -> list[str]:
    """The words of the command line of a process. Raises :class:`OSError` if it is gone."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")


def _stat(pid: int) -> list[str]:
    """What Linux tells of a process after its name: its state, its parent, its group and its session, and more."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def kinds(leaders: Iterable[int]) -> dict[str, list[int]]:
    """The processes in the sessions of some that do the work of Spark, by what they are. A daemon does none: it forks
    those that do, and they may outlive it.
    """
    found: dict[str, list[int]] = {}
    for leader in leaders:
        there = session_of(leader)
        for each in there:
            with contextlib.suppress(OSError):
                words, parent = command_of(each), int(_stat(each)[1])
                if DAEMON in words and parent in (leader, *there) and command_of(parent) != words:
                    continue
                for kind in {MODULES[word] for word in words if word in MODULES}:
                    found.setdefault(kind, []).append(each)
    return found


# -- what is in the logs ----------------------------------------------------------------------------------------------


def entries(store: Any, name: str, at: Position | End = EARLIEST) -> list[Any]:
    """The entries of a log from a place on, all at once: from thread to thread for each would take longer."""

    async def found(store: Any) -> list[Any]:
        return [each async for each in store.log(name).reader(at=at, follow=False)]

    made: list[Any] = store.run(found)
    return made


class Prefix:
    """Compares a log, as it grows, with the transformation of another. ``problem``: the first difference."""

    def __init__(self, read: Callable[[str, Position | End], Iterable[Any]]) -> None:
        self._read = read
        self._at: dict[str, Position | End] = {FROM: EARLIEST, TO: EARLIEST}
        self.compared = 0
        self.looks = 0
        self.problem: str | None = None

    def look(self) -> bool:
        """Compare what has come since the last look; true, since it has. Of the one log an end may not be confirmed
        yet.
        """
        pairs = zip(self._read(TO, self._at[TO]), self._read(FROM, self._at[FROM]), strict=False)
        for made, original in pairs:
            if made.data != transformed(original.data) and self.problem is None:
                self.problem = f"entry {self.compared} of log {TO} is {made.data!r}, and should be {original.data!r}"
            self.compared += 1
            for name, each in ((TO, made), (FROM, original)):
                self._at[name] = Position(each.position.ledger, each.position.entry + 1)
        self.looks += 1
        return True


def of_write(found: list[bytes], written: int, may_be_more: bool = True) -> str | None:
    """What is wrong with the log of batch queries if ``written`` have ended, and the next one may have."""
    if len(found) != written * ROWS and not (may_be_more and len(found) == (written + 1) * ROWS):
        more = ", and perhaps one more" if may_be_more else ""
        return f"log {WRITTEN} has {len(found)} rows, and {written} writes of {ROWS} have ended{more}"
    if found != [*map(row, range(len(found)))]:
        return f"the rows of log {WRITTEN} are not those that were written, in order"
    return None


# -- the campaign -----------------------------------------------------------------------------------------------------


class Campaign:
    """The cluster, the processes, and what was done to them."""

    def __init__(self, folder: Path, kills: int, writes: int, minutes: float, seed: int, rate: int) -> None:
        self.folder = folder
        self.kills = kills
        self.writes = writes
        self.minutes = minutes
        self.random = random.Random(seed)
        self.rate = rate
        self.master = MASTER
        self.done: Counter[str] = Counter()
        self.during_writes: Counter[str] = Counter()
        self.faults: list[str] = []
        self.store = folder / "store"
        self.begun = time.monotonic()
        self._commit_lasts = 1.0

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
                for name in (FROM, TO, WRITTEN):
                    store.log(name).create()
                outcome = self._streamed(uri, store) if self.kills else {}
                if self.writes:
                    outcome |= self._written(uri, store)
                left = store.run(self._left_over)
                if left:
                    self.faults.append(f"ledgers are left over: {left}")
                seconds = round(time.monotonic() - self.begun)
                return {**outcome, "seconds": seconds, "faults": self.faults}
        finally:
            subprocess.run([*cluster, "down", str(self.store)], stdout=subprocess.DEVNULL, check=True)

    def _is_late(self) -> bool:
        return 0 < self.minutes * 60 < time.monotonic() - self.begun

    # -- a stream -----------------------------------------------------------------------------------------------------

    def _streamed(self, uri: str, store: Any) -> dict[str, Any]:
        checkpoint = str(self.folder / "checkpoint")
        rounds, more = divmod(self.kills, len(VICTIMS))
        victims = [*VICTIMS[1:] * rounds, *VICTIMS[1 : more + 1]]
        self.random.shuffle(victims)
        victims = [EXECUTOR] * (self.kills - len(victims)) + victims
        prefix = Prefix(partial(entries, store))

        def facts(number: int) -> str:
            return str(self.folder / f"writer-{number}.facts")

        def started(name: str, command: Callable[[int], list[str]]) -> Process:
            processes.append(Process(name, self.folder, command))
            return processes[-1]

        processes: list[Process] = []
        try:
            writer = started(
                "writer", lambda number: of_bench("writer", uri, facts(number), str(number), str(self.rate))
            )
            worker: Process | None = self._standalone(started)
            driver = started("driver", lambda _: of_bench("driver", uri, checkpoint, self.master))
            watched = [writer, driver]
            self._progress(store, watched, "the first batch")
            for number, victim in enumerate(victims):
                if self._is_late():
                    break
                if victim != EXECUTOR and worker is not None:
                    driver.end()
                    for each in processes[1:-1]:
                        each.kill_for_good()
                    self.master, worker = MASTER, None
                    driver.restart()
                self._kill(victim, writer, driver, worker)
                self.done[victim] += 1
                self.say(f"kill {number + 1}: {victim}")
                self._progress(store, watched, f"a batch after kill {number + 1}")
                self._until(prefix.look, watched, "the logs to be read")
                if prefix.problem is not None:
                    break
                time.sleep(self.random.random() * 1.5)
            writer.end()
            self.say("the writer has ended")
            self._until(lambda: self._lag(store) <= 0, [driver], "the stream to have read everything")
            driver.end()
            prefix.look()
            return self._judged(store, writer, driver, prefix)
        finally:
            for each in processes:
                each.kill_for_good()

    def _standalone(self, started: Callable[[str, Callable[[int], list[str]]], Process]) -> Process:
        """Start a standalone cluster of Spark: a master, and the worker, which is returned."""
        import pyspark

        of_spark = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
        words = ["--host", "127.0.0.1", "--webui-port", "0"]
        base = "org.apache.spark.deploy"
        settings = "-Dspark.deploy.maxExecutorRetries=-1"
        environment = ["/usr/bin/env", f"SPARK_MASTER_OPTS={settings}", "SPARK_DAEMON_MEMORY=256m", of_spark]
        master = started("master", lambda _: [*environment, f"{base}.master.Master", *words, "--port", "0"])
        found: list[str] = []

        def listens() -> bool:
            found[:] = re.findall(r"Starting Spark master at (spark://[\d.]+:\d+)", master.log.read_text())
            return bool(found)

        self._until(listens, [], "the master to listen")
        self.master = found[0]
        work = ["--cores", "2", "--memory", "1g", "--work-dir", str(self.folder / "work")]
        return started("worker", lambda _: [*environment, f"{base}.worker.Worker", *words, *work, self.master])

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

    def _until(self, holds: Callable[[], bool], processes: list[Process], what: str, pause: float = 0.1) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(StoreError):
                if holds():
                    return
            for each in processes:
                each.look()
            if time.monotonic() > end:
                raise RuntimeError(f"waited {PATIENCE:.0f} s in vain for {what}")
            time.sleep(pause)

    # -- kills --------------------------------------------------------------------------------------------------------

    def _kill(self, victim: str, writer: Process | None, driver: Process, worker: Process | None = None) -> None:
        """Kill one. If there is none of these now, wait for one."""
        if victim == DRIVER:
            driver.kill()
        elif victim == WRITER:
            assert writer is not None
            writer.kill()
        elif victim == BOOKIE:
            name = str(self.random.randint(1, BOOKIES))
            control.ask(self.store, "kill", [name])
            time.sleep(self.random.random() * 3)
            control.ask(self.store, "start", [name])
        else:
            watched = [each for each in (writer, driver) if each is not None]
            above = driver if worker is None else worker
            self._until(lambda: self._has_killed(victim, above), watched, f"a process to kill: {victim}", 0.01)

    def _has_killed(self, victim: str, above: Process) -> bool:
        some = kinds([above.process.pid]).get(victim)
        if not some:
            return False
        pid = self.random.choice(some)
        if victim == COMMITS:  # hit any moment of its life, which is short
            begun, lasts = time.monotonic(), self.random.random() * self._commit_lasts
            while time.monotonic() < begun + lasts:
                time.sleep(0.005)
                if not Path(f"/proc/{pid}").exists():
                    self._commit_lasts = time.monotonic() - begun
                    return False
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    # -- batch queries ------------------------------------------------------------------------------------------------

    def _written(self, uri: str, store: Any) -> dict[str, Any]:
        """Kill a process in the midst of each of some batch queries. Gives what was found."""
        ended = partial = wholes = 0
        found: list[bytes] = []
        took = 2.0
        driver = Process("batches", self.folder, lambda _: of_bench("batches", uri, str(ended), str(self.folder)))

        def told(word: str) -> int:
            return driver.log.read_text().count(word)

        try:
            for number in range(self.writes):
                if self._is_late():
                    break
                victim = OF_WRITES[number % len(OF_WRITES)]
                (self.folder / f"write-{number}").touch()
                self._until(lambda number=number: told(f"begins {number}\n") > 0, [driver], "a write")  # type: ignore[misc]
                begun = time.monotonic()
                if victim != COMMITS:
                    time.sleep(self.random.random() * took)
                self._kill(victim, None, driver)
                was_over = told(f"ended {number}\n") > 0
                found = [each.data for each in entries(store, WRITTEN)]
                self._check(of_write(found, number))
                wholes += len(found) > number * ROWS
                partial += not was_over
                self.during_writes[victim] += 1
                self.say(f"write {number}: {victim}; {'all' if len(found) > number * ROWS else 'none'} of its rows")
                self._until(lambda number=number: told(f"ended {number}\n") > 0, [driver], "a write to end")  # type: ignore[misc]
                took = min(took, time.monotonic() - begun)
                ended = number + 1
            found = [each.data for each in entries(store, WRITTEN)]
            self._check(of_write(found, ended, may_be_more=False))
        finally:
            driver.kill_for_good()
        return {
            "kills in batch queries": dict(self.during_writes),
            "batch queries that were not over when a process was killed": partial,
            "batch queries with all of their rows in the log after the kill": wholes,
            "rows of batch queries": len(found),
        }

    def _check(self, problem: str | None) -> None:
        if problem is not None:
            self.faults.append(problem)

    # -- in the end ---------------------------------------------------------------------------------------------------

    def _judged(self, store: Any, writer: Process, driver: Process, prefix: Prefix) -> dict[str, Any]:
        faults = self.faults
        self._check(prefix.problem)
        data = {name: [each.data for each in entries(store, name)] for name in (FROM, TO)}
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
        if prefix.compared != len(found) and prefix.problem is None:
            faults.append(f"{prefix.compared} entries of log {TO} were compared as it grew, and it has {len(found)}")
        return {
            "kills": dict(self.done),
            "entries in a": len(data[FROM]),
            "acknowledged": acknowledged,
            "entries in b": len(found),
            "sha256 of b": hashlib.sha256(b"\n".join(found)).hexdigest(),
            "sha256 of a, transformed": hashlib.sha256(b"\n".join(expected)).hexdigest(),
            "times that b was compared as it grew": prefix.looks,
            "batches": self._batches(store) + 1,
            "ledgers of b": len(store.log(TO).show().chain.links),
            "times the query ended, and was started again": driver.failures,
            "times the writer ended by itself": writer.failures,
        }

    async def _left_over(self, store: Any) -> list[int]:
        """Ledgers of batches that are in no log. The last batch has found those of all before it."""
        names = (TO, WRITTEN)
        chained = {link.ledger for name in names for link in (await store.log(name).chain()).links}
        return [
            ledger
            async for ledger, metadata in store.metadata.all_metadata()
            if dict(metadata.custom_metadata).get("log", b"").decode() in names and ledger not in chained
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
    if sys.argv[1:2] == ["batches"]:
        uri, first, folder_of_all = sys.argv[2:]
        write_batches(uri, int(first), Path(folder_of_all))
        return 0
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument(
        "directory",
        type=Path,
        nargs="?",
        help="where everything is kept; by default a new folder, which is deleted if nothing is wrong",
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--writes", type=int, default=20, help="batch queries in which a process is killed (20)")
    parser.add_argument(
        "--minutes", type=float, default=0.0, help="after so long nothing is killed any more; 0: no limit (0)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=int, default=1000, help="entries a second that are written")
    given = parser.parse_args()
    folder = given.directory or Path(tempfile.mkdtemp(prefix="exactly-once-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {given.seed}, everything is in {folder}", flush=True)
    try:
        outcome = Campaign(folder, given.kills, given.writes, given.minutes, given.seed, given.rate).run()
    except (FencepostError, RuntimeError) as error:
        print(f"exactly once: {error}", file=sys.stderr)
        return 2
    print(json.dumps(outcome, indent=2))
    if not outcome["faults"] and given.directory is None:
        shutil.rmtree(folder)
    return 1 if outcome["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
