"""``python -m bench.validate``: how fast traces are held to the protocol of the store, on this machine.

Of runs of the store's simulator: in one process that has learnt nothing yet, in the same once more, and with Spark. Of one ledger whose trace is as long as
``--long`` says: time and memory, each length in a process of its own. A figure is of a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fencepost import tracing
from fencepost.conform import registry
from fencepost.conform.outcome import judged
from fencepost.conform.traces import Traces
from fencepost.conform.validate import Validator, collect_rarely
from fencepost.tracing import RunsFile

BOOKIES = ("b1", "b2", "b3")
SUBJECT = "7"
AT_ONCE = 4
"""Entries that the writer of a long trace sends at once."""

EVENTS_AT_ONCE = 1 + len(BOOKIES) * (AT_ONCE + 2) + 1
"""What comes of them: the writer sends, each bookie adds each of them and syncs once, the writer hears of each bookie, and confirms."""


def line(what: str, figure: str) -> None:
    """One row of the report."""
    print(f"{what:<58}{figure:>34}", flush=True)


# -- runs of the simulator --------------------------------------------------------------------------------------------


def simulate(folder: Path, seeds: str, profile: str) -> None:
    """Write the traces of runs."""
    words = ["simulate-store", "--seeds", seeds, "--profile", profile, "--trace", str(folder)]
    done = subprocess.run([sys.executable, "-m", "fencepost", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"fencepost {' '.join(words)} failed:\n{done.stdout}{done.stderr}")


def in_one_process(folder: Path) -> None:
    """Validate all traces twice: first all is new, then nothing is."""
    began = time.perf_counter()
    traces = Traces(tracing.read(folder))
    events = {name: traces.events(name) for name in traces.names()}
    count = sum(map(len, events.values()))
    line(f"reading {len(events):,} traces", _rate(count, time.perf_counter() - began))
    validator = Validator(registry.shipped("store"), keep_path=False)
    for what in ("one process, traces that are new to it", "one process, traces that it knows"):
        began = time.perf_counter()
        for (run, subject), some in events.items():
            judged(validator, run, subject, lambda some=some: some)  # type: ignore[misc]
        line(what, _rate(count, time.perf_counter() - began))


def on_spark(folder: Path, master: str) -> None:
    """Validate all traces with Spark, which is started and ended with that."""
    from fencepost.spark.validate import Given, validated

    began = time.perf_counter()
    outcomes, _, _ = validated([str(folder)], Given("store"), master=master)
    seconds = time.perf_counter() - began
    accepted = sum(outcome.accepted for outcome in outcomes)
    line(f"Spark, {master}, {len(outcomes):,} traces, {accepted:,} accepted", _rate(sum(outcome.events for outcome in outcomes), seconds))


def _rate(events: int, seconds: float) -> str:
    return f"{events:,} events in {seconds:,.1f} s: {events / seconds:,.0f} a second"


# -- one long trace ---------------------------------------------------------------------------------------------------


def write_long(path: Path, events: int) -> None:
    """The trace of one ledger with about so many events: a writer that sends some entries at once, and waits for all bookies."""
    metadata = {"state": "OPEN", "fragments": [[0, list(BOOKIES)]], "last_entry": -1, "ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2}
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
            emit("w", "client_sends_add_entry_requests", {"entries": [[first, last]], "lac": first - 1, "ensemble": BOOKIES})
            for bookie in BOOKIES:
                for entry in range(first, last + 1):
                    told = {"entries": [[entry, entry]], "recovery": False, "lac": first - 1, "position": entry + 1, "connection": f"w>{bookie}"}
                    emit(bookie, "bookie_sends_add_confirmed_response", told)
                emit(bookie, "journal_synced", {"position": last + 1}, None)
                emit("w", "client_receives_add_confirmed_response", {"bookie": bookie, "entries": [[first, last]]})
            emit("w", "client_confirms", {"lac": last})


def follow_long(path: Path) -> None:
    """Validate one trace, and tell its time and its memory: what the process has more than at its beginning."""
    validator = Validator(registry.shipped("store"), keep_path=False)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    traces = Traces(tracing.read(path))
    (name,) = traces.names()
    outcome = judged(validator, *name, lambda: traces.events(name))
    seconds = time.perf_counter() - began
    if not outcome.accepted:
        sys.exit(f"the long trace is not accepted: {outcome.problem or outcome.refusals}")
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    line(f"one ledger, {outcome.events:,} events", f"{seconds:,.1f} s, {memory:,.0f} MiB: {outcome.events / seconds:,.0f} a second")


def main() -> None:
    """Measure, and print a report."""
    parser = argparse.ArgumentParser(prog="python -m bench.validate", description=__doc__)
    parser.add_argument("--seeds", default="1..500", help="runs of the simulator")
    parser.add_argument("--profile", default="everything", help="what may go wrong in them")
    parser.add_argument("--traces", type=Path, help="traces that are there, in place of those")
    parser.add_argument("--master", default="local[2]", help="where Spark is; empty: do without")
    parser.add_argument("--no-process", action="store_true", help="only Spark, and long traces")
    parser.add_argument("--long", type=int, nargs="*", default=[125_000, 250_000, 500_000, 1_000_000], help="lengths of one ledger's trace")
    parser.add_argument("--follow", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    collect_rarely()
    if given.follow is not None:
        follow_long(given.follow)
        return
    with tempfile.TemporaryDirectory(prefix="fencepost-bench-") as made:
        folder = given.traces
        if folder is None and given.seeds:
            folder = Path(made) / "runs"
            simulate(folder, given.seeds, given.profile)
        if folder is not None and not given.no_process:
            in_one_process(folder)
        if folder is not None and given.master:
            on_spark(folder, given.master)
        for events in given.long:
            path = Path(made) / f"{events}.parquet"
            write_long(path, events)
            subprocess.run([sys.executable, "-m", "bench.validate", "--follow", str(path)], check=True)


if __name__ == "__main__":
    main()
