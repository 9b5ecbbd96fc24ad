"""``python -m bench.validate``: how fast traces are held to the protocol of the store, on this machine.

Of runs of the store's simulator with some 300 events each: of some of them in one process that has learnt nothing yet,
and in the same once more; of all with Spark. Of one ledger whose trace is as long as ``--long`` says: time and memory,
each length in a process of its own.

Seconds are those that pass, from before Spark is started until it has ended; CPU seconds are those of all processes,
which say less wrong things of a machine that does something else too. It reads ``/proc``, so it runs on Linux.

``--beside`` validates the traces by the command line, with the embedded engine and then on Spark: seconds, CPU seconds
and memory of all processes. Both have to come to the same verdicts.

``--raft FOLDER`` is another system: traces that etcd's raft wrote when it was built ``with_tla``. Each ``.ndjson`` or
``.jsonl`` file of the folder is one trace, and is held to :mod:`bench.raft`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

from bench.raft import EtcdRaft
from fencepost.ledger.simulation.case import drawn
from fencepost.ledger.simulation.workload import Campaign, simulate
from fencepost.simulation.seeds import traced
from fencepost.traces import RunsFile, read, records
from fencepost.traces.foreign import Foreign
from fencepost.traces.validation import registry
from fencepost.traces.validation.outcome import judged
from fencepost.traces.validation.request import Request
from fencepost.traces.validation.traces import Traces, events_of
from fencepost.traces.validation.validate import Validator, collect_rarely

SEEDS_OF_FILE = 200
MOST_ENTRIES = 16
"""Entries of a run at the most: so a run has some 300 events."""

BOOKIES = ("b1", "b2", "b3")
SUBJECT = "7"
AT_ONCE = 4
"""Entries that the writer of a long trace sends at once."""

EVENTS_AT_ONCE = 1 + len(BOOKIES) * (AT_ONCE + 2) + 1
"""What comes of them: the writer sends, each bookie adds each of them and syncs once, the writer hears of each bookie,
and confirms.
"""


def line(what: str, figure: str) -> None:
    """One row of the report."""
    print(f"{what:<54}{figure:>72}", flush=True)


class Timed:
    """Seconds that pass within, and CPU seconds of this process and all that it starts, directly or not. ``memory``:
    the most MiB that they had together, if ``weighs``; what several share counts once.
    """

    def __init__(self, weighs: bool = False) -> None:
        self._weighs = weighs

    def __enter__(self) -> Timed:
        self.seconds, self._began = 0.0, time.perf_counter()
        self._used: dict[int, float] = {}
        self.memory = 0.0
        self._before = sum(self._look().values())
        self._over = threading.Event()
        self._looking = threading.Thread(target=self._look_on, daemon=True)
        self._looking.start()
        return self

    def __exit__(self, *others: object) -> None:
        self.seconds = time.perf_counter() - self._began
        self._over.set()
        self._looking.join()

    @property
    def cpu(self) -> float:
        """CPU seconds so far; of a process that has ended, up to half a second before. At least one tick of the clock
        that counts them, as the work may have been done between two.
        """
        self._used |= self._look()
        return max(sum(self._used.values()) - self._before, 1 / os.sysconf("SC_CLK_TCK"))

    def told(self, events: int) -> str:
        """For the report."""
        cpu = self.cpu
        return (
            f"{events:,} events in {self.seconds:,.1f} s: {events / self.seconds:,.0f} a second; {cpu:,.1f} CPU s:"
            f" {events / cpu:,.0f} a CPU s"
        )

    def _look_on(self) -> None:
        while not self._over.wait(0.5):
            found = self._look()
            self._used |= found
            if self._weighs:
                self.memory = max(self.memory, sum(map(memory_of, found)))

    def _look(self) -> dict[int, float]:
        """The CPU seconds of each process."""
        parents, used = dict[int, int](), dict[int, float]()
        for place in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = place.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            pid = int(place.parent.name)
            parents[pid], used[pid] = int(fields[1]), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        found, left = {os.getpid(): used[os.getpid()]}, [os.getpid()]
        while left:
            parent = left.pop()
            for pid in [pid for pid, of in parents.items() if of == parent]:
                found[pid] = used[pid]
                left.append(pid)
        return found


def memory_of(pid: int) -> float:
    """The MiB of a process: its proportional set size. 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/smaps_rollup").read_text().partition("\nPss:")[2].split()[0]) / 1024
    except (OSError, IndexError):
        return 0.0


# -- runs of the simulator --------------------------------------------------------------------------------------------


def simulate_some(folder: Path, seeds: range, profile: str, most_entries: int) -> None:
    """Write the traces of runs to one file."""
    campaign = Campaign(seeds, profile=profile)
    with RunsFile(folder / f"{profile}-seed-{seeds[0]}-to-{seeds[-1]}.parquet") as file:
        for seed in seeds:
            case = drawn(seed, profile)
            case = replace(case, entries=min(case.entries, most_entries))
            simulate(case, trace=traced(file, campaign.run_name(seed)))


def simulate_all(folder: Path, runs: int, profile: str, most_entries: int) -> None:
    """Write the traces of ``runs`` simulated runs, on all cores."""
    folder.mkdir(parents=True)
    seeds = [range(first, min(first + SEEDS_OF_FILE, runs + 1)) for first in range(1, runs + 1, SEEDS_OF_FILE)]
    with Timed() as timed, ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        for done in [pool.submit(simulate_some, folder, some, profile, most_entries) for some in seeds]:
            done.result()
        cpu = timed.cpu
    line(f"simulating {runs:,} runs", f"{timed.seconds:,.1f} s, {cpu:,.1f} CPU s")


def in_one_process(files: list[Path]) -> None:
    """Validate traces twice: first all is new, then nothing is."""
    with Timed() as timed:
        traces = Traces(read(files))
        events = {name: traces.events(name) for name in traces.names()}
    count = sum(map(len, events.values()))
    line(f"reading {len(events):,} traces", timed.told(count))
    validator = Validator(registry.shipped("store"))
    for what in ("one process, traces that are new to it", "one process, traces that it knows"):
        with Timed() as timed:
            for (run, subject), some in events.items():
                judged(validator, run, subject, lambda some=some: some)  # type: ignore[misc]
        line(what, timed.told(count))


def on_spark(folder: Path, master: str) -> None:
    """Validate all traces with Spark, which is started and ended with that."""
    from fencepost.spark.cluster import Cluster
    from fencepost.spark.validate import validated

    with Timed() as timed, closing(Cluster(master)) as cluster:
        outcomes, _, _ = validated(cluster, [str(folder)], Request("store"))
    accepted = sum(outcome.accepted for outcome in outcomes)
    line(
        f"Spark, {master}, {len(outcomes):,} traces, {accepted:,} accepted",
        timed.told(sum(outcome.events for outcome in outcomes)),
    )


def beside(folder: Path, protocol: str, master: str, subjects: list[str]) -> None:
    """Validate all traces by the command line with either engine. Exits if their verdicts differ."""
    found = []
    with tempfile.TemporaryDirectory(prefix="fencepost-bench-") as made:
        for engine, more in (("local", []), ("spark", ["--master", master])):
            report = Path(made) / engine
            command = [sys.executable, "-m", "fencepost", "validate", str(folder), "--protocol", protocol]
            command += ["--engine", engine, *more, "--json", str(report)]
            command += [word for each in subjects for word in ("--subject", each)]
            with Timed(weighs=True) as timed:
                subprocess.run(command, stdout=subprocess.DEVNULL)
            if not report.exists():
                sys.exit(f"engine {engine} has no verdict on the traces in {folder}")
            told = json.loads(report.read_text())
            found.append([(each["run"], each["subject"], each["accepted"]) for each in told["verdicts"]])
            line(f"{engine}, {len(found[-1]):,} traces, {timed.memory:,.0f} MiB", timed.told(told["events"]))
    if found[0] != found[1]:
        sys.exit("the engines come to different verdicts")


# -- one long trace ---------------------------------------------------------------------------------------------------


def write_long(path: Path, events: int) -> None:
    """Write the trace of one ledger with about ``events`` events. Its writer sends some entries at once, and waits for
    all bookies.
    """
    metadata = {
        "state": "OPEN",
        "fragments": [[0, list(BOOKIES)]],
        "last_entry": -1,
        "ensemble_size": 3,
        "write_quorum": 3,
        "ack_quorum": 2,
    }
    numbers: dict[str, int] = {}
    with RunsFile(path) as file:

        def emit(node: str, action: str, parameters: dict[str, object], subject: str | None = SUBJECT) -> None:
            numbers[node] = numbers.get(node, 0) + 1
            file.emit("long", node, 1, numbers[node], action, subject, parameters)

        emit("metadata", "started", {"kind": "metadata"}, None)
        for bookie in BOOKIES:
            emit(bookie, "started", {"kind": "bookie"}, None)
        emit("w", "started", {"kind": "client"}, None)
        emit("w", "client_creates_ledger", {"version": -1, "metadata": metadata})
        emit("metadata", "metadata_written", {"version": 0, "metadata": metadata, "client": "w"})
        emit("w", "client_receives_metadata", {"version": 0, "metadata": metadata, "written": True})
        for bookie in BOOKIES:
            emit("w", "connected", {"bookie": bookie, "connection": f"w>{bookie}"}, None)
        for number in range(events // EVENTS_AT_ONCE):
            first, last = number * AT_ONCE, number * AT_ONCE + AT_ONCE - 1
            emit(
                "w",
                "client_sends_add_entry_requests",
                {"entries": [[first, last]], "lac": first - 1, "ensemble": BOOKIES},
            )
            for bookie in BOOKIES:
                for entry in range(first, last + 1):
                    told = {
                        "entries": [[entry, entry]],
                        "recovery": False,
                        "lac": first - 1,
                        "position": entry + 1,
                        "connection": f"w>{bookie}",
                    }
                    emit(bookie, "bookie_sends_add_confirmed_response", told)
                emit(bookie, "journal_synced", {"position": last + 1}, None)
                emit("w", "client_receives_add_confirmed_response", {"bookie": bookie, "entries": [[first, last]]})
            emit("w", "client_confirms", {"lac": last})


def most_memory() -> float:
    """The MiB that this process has had at the most. ``getrusage`` would count what its parent had when it was
    started.
    """
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) / 1024


def follow_long(path: Path) -> None:
    """Validate one trace, and tell its time and its memory: what the process has more than at its beginning."""
    validator = Validator(registry.shipped("store"))
    before = most_memory()
    with Timed() as timed:
        traces = Traces(read(path))
        (name,) = traces.names()
        outcome = judged(validator, *name, lambda: events_of(traces.take(name)))
    if not outcome.accepted:
        sys.exit(f"the long trace is not accepted: {outcome.problem or outcome.refusals}")
    line(f"one ledger, {most_memory() - before:,.0f} MiB", timed.told(outcome.events))


# -- etcd's raft ------------------------------------------------------------------------------------------------------


def of_raft(folder: Path) -> None:
    """Validate the traces of a folder, and tell the time of each, reading included. Exits if one is not accepted."""
    files = sorted(path for path in folder.glob("*") if records.grows(path))
    if not files:
        sys.exit(f"there are no traces of raft in {folder}: they end in {' or '.join(records.LINES)}")
    refused = 0
    for path in files:
        validator = Validator(EtcdRaft)
        with Timed() as timed:
            traces = Traces(read(path, foreign=Foreign(EtcdRaft.read)))
            (name,) = traces.names()
            outcome = judged(validator, *name, lambda traces=traces, name=name: traces.events(name))  # type: ignore[misc]
        line(f"{path.stem}, {outcome.verdict.lower()}", timed.told(outcome.events))
        if not outcome.accepted:
            refused += 1
            print(f"  {outcome.problem or '; '.join(f'{each.step}: {each.reason}' for each in outcome.refusals)}")
    if refused:
        sys.exit(f"{refused} of {len(files)} traces are not accepted")


def main() -> None:
    """Measure, and print a report."""
    parser = argparse.ArgumentParser(prog="python -m bench.validate", description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000, help="runs of the simulator; 0: none")
    parser.add_argument("--profile", default="everything", help="what may go wrong in them")
    parser.add_argument("--most-entries", type=int, default=MOST_ENTRIES, help="entries of a run at the most")
    parser.add_argument("--traces", type=Path, help="a folder of traces that are there, in place of those")
    parser.add_argument("--keep", type=Path, help="a new folder for the traces that are made, for --traces")
    parser.add_argument("--master", default="local[2]", help="where Spark is; empty: do without")
    parser.add_argument(
        "--files", type=int, default=5, help=f"files of {SEEDS_OF_FILE} runs that one process validates; 0: none"
    )
    parser.add_argument(
        "--long",
        type=int,
        nargs="*",
        default=[125_000, 250_000, 500_000, 1_000_000],
        help="lengths of one ledger's trace",
    )
    parser.add_argument("--beside", action="store_true", help="either engine beside the other: measure those alone")
    parser.add_argument("--protocol", default="store", help="of those traces")
    parser.add_argument("--subject", action="append", default=[], help="of those traces, only these (repeatable)")
    parser.add_argument("--raft", type=Path, help="a folder of traces of etcd's raft: measure those alone")
    parser.add_argument("--follow", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    collect_rarely()
    if given.follow is not None:
        follow_long(given.follow)
        return
    if given.raft is not None:
        of_raft(given.raft)
        return
    with tempfile.TemporaryDirectory(prefix="fencepost-bench-") as made:
        folder = given.traces
        if folder is None and given.runs:
            folder = given.keep or Path(made) / "runs"
            simulate_all(folder, given.runs, given.profile, given.most_entries)
        if folder is not None and given.beside:
            beside(folder, given.protocol, given.master, given.subject)
            return
        if folder is not None and given.master:
            on_spark(folder, given.master)
        if folder is not None and given.files:
            in_one_process(sorted(folder.glob("*.parquet"))[: given.files])
        for events in given.long:
            path = Path(made) / f"{events}.parquet"
            write_long(path, events)
            subprocess.run([sys.executable, "-m", "bench.validate", "--follow", str(path)], check=True)


if __name__ == "__main__":
    main()
