"""``python -m bench.ledger.restart``: how a bookie with many entries comes back, what its index takes, and how fast it
reads at random.

Fills directories of a bookie through its entry logs, opens each in a process of its own, and compares what reads of
random entries take with reads of the same bytes of the files. Cold means that nothing of the files is in memory.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.ledger.usage import resident_kinds
from fencepost.files.folders import OsFiles
from fencepost.ledger.disk.entry_logs import Bodies, EntryLogs, name_of
from fencepost.ledger.disk.index import Index
from fencepost.ledger.disk.journal_files import journals_in
from fencepost.ledger.disk.settings import StorageSettings
from fencepost.ledger.disk.storage import Storage
from fencepost.ledger.records import EntryAdded
from fencepost.ledger.rules.codes import Code

SHAPES = {
    "few": (16, False, True),
    "many": (10_000, False, True),
    "gaps": (10_000, True, True),
    "equal": (1_000, False, False),
}
"""How many ledgers there are, whether their ids have gaps, as of a ledger that is striped over three bookies, and
whether sizes differ.
"""


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.ledger.restart", description="Measure how a bookie with many entries restarts."
    )
    parser.add_argument(
        "--entries", type=int, default=1_000_000, metavar="N", help="of each bookie (by default 1,000,000)"
    )
    parser.add_argument(
        "--shape",
        action="append",
        choices=SHAPES,
        help="16 ledgers, 10,000, these with gaps, or 1,000 with entries of one size; repeatable",
    )
    parser.add_argument(
        "--section",
        type=int,
        default=200_000,
        metavar="N",
        help="entries of a checkpoint (by default 200,000, which fill half a write cache)",
    )
    parser.add_argument("--reads", type=int, default=20_000, metavar="N", help="random reads (by default 20,000)")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="leave the directories here, and use those that are there already"
    )
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.shape = given.shape or list(SHAPES)
    return given


def settings(directory: Path) -> StorageSettings:
    """Those of a bookie in a directory."""
    return StorageSettings(journal_directory=str(directory / "journal"), ledger_directory=str(directory / "ledgers"))


def nth_id(nth: int, with_gaps: bool) -> int:
    """The id of an entry of a ledger by how many there are before it: all ids, or two of three."""
    return nth // 2 * 3 + nth % 2 if with_gaps else nth


def fill(directory: Path, shape: str, entries: int, section: int) -> None:
    """Write a bookie's directory: sections as its checkpoints write them, with entries of all ledgers in each."""
    ledgers, with_gaps, differ = SHAPES[shape]
    used = settings(directory)
    Path(used.journal_directory).mkdir(parents=True)
    Path(used.ledger_directory).mkdir()
    opened(directory)[0].close()
    random = np.random.default_rng(1)
    content = random.bytes(1 << 20)
    files = OsFiles(used.ledger_directory)
    journals = {*journals_in(OsFiles(used.journal_directory))}

    logs = EntryLogs(files, Index(), journals)
    first, written = 0, 0
    while written < entries:
        of_ledger = max(1, min(section, entries - written) // ledgers)
        sizes = random.integers(20, 101, (ledgers, of_ledger)) if differ else np.full((ledgers, of_ledger), 60)
        at = random.integers(0, len(content) - 100, (ledgers, of_ledger))
        ids = [nth_id(nth, with_gaps) for nth in range(first, first + of_ledger)]
        bodies = {
            ledger: {
                entry_id: content[start : start + size]
                for entry_id, start, size in zip(ids, at[ledger].tolist(), sizes[ledger].tolist(), strict=True)
            }
            for ledger in range(ledgers)
        }
        commit(logs, bodies)
        first += of_ledger
        written += of_ledger * ledgers
    commit(logs, {})  # the last section is cut off when the bookie starts, since the journal has what should be in it
    storage, _ = opened(directory)
    storage.take([(1, EntryAdded(ledgers, 0, -1, b"the last one"))])
    storage.checkpoint()
    storage.close()
    (directory / "shape.json").write_text(json.dumps({"shape": shape, "entries": written, "of_ledger": first}))


def commit(logs: EntryLogs, bodies: dict[int, dict[int, bytes]]) -> None:
    """Write a section."""
    section = logs.write(Bodies(bodies))
    logs.sync(section)
    logs.commit(section)


def drop(directory: Path) -> None:
    """Let the operating system forget the entry logs and the index."""
    for path in directory.glob("ledgers/**/*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def opened(directory: Path) -> tuple[Storage, dict[str, float]]:
    """The storage of a bookie, at work, and what it took to open it."""
    before = resident_kinds()
    wall, cpu = time.monotonic(), time.process_time()
    storage = Storage(settings(directory))
    list(storage.records())
    storage.start()
    took = {"seconds": time.monotonic() - wall, "cpu": time.process_time() - cpu}
    after = resident_kinds()
    return storage, took | {kind: after[kind] - before[kind] for kind in after}


def timed(reads: Sequence[Callable[[], object]]) -> NDArray[np.float64]:
    """The seconds that each of some reads takes, one after another."""
    times = np.empty(len(reads))
    for nth, read in enumerate(reads):
        since = time.perf_counter()
        read()
        times[nth] = time.perf_counter() - since
    return times


def told(times: NDArray[np.float64]) -> dict[str, float]:
    """Reads a second, and their 99th percentile in milliseconds."""
    return {"rate": len(times) / times.sum(), "p99": float(np.percentile(times, 99)) * 1e3}


def measure(directory: Path, reads: int) -> dict[str, dict[str, float]]:
    """All that is measured of one bookie."""
    shape = json.loads((directory / "shape.json").read_text())
    ledgers, with_gaps, _ = SHAPES[shape["shape"]]
    found: dict[str, dict[str, float]] = {}
    drop(directory)
    storage, found["cold start"] = opened(directory)
    storage.close()
    del storage
    storage, found["warm start"] = opened(directory)
    random = np.random.default_rng(2)
    chosen = random.integers(0, ledgers, 2 * reads), random.integers(0, shape["of_ledger"], 2 * reads)
    keys = [(ledger, nth_id(nth, with_gaps)) for ledger, nth in zip(*(each.tolist() for each in chosen), strict=True)]
    index = storage._logs.index
    found["index"] = {"bytes": index.bytes}
    columns = [np.array(each) for each in zip(*keys, strict=True)]
    index.find_rows(*columns)
    since = time.process_time()
    logs, offsets, sizes = index.find_rows(*columns)
    found["finding"] = {"us": (time.process_time() - since) / len(keys) * 1e6}
    assert logs.all()
    files = {log: os.open(directory / "ledgers" / name_of(log), os.O_RDONLY) for log in {*logs.tolist()}}
    places = list(zip(logs.tolist(), offsets.tolist(), sizes.tolist(), strict=True))

    def look_up(ledger: int, entry_id: int) -> None:
        assert storage.look_up(ledger, entry_id)[0] is Code.OK

    def raw(log: int, offset: int, size: int) -> None:
        os.pread(files[log], size, offset)

    for state in ("cold", "warm"):
        if state == "cold":
            drop(directory)
        # By turns, each its own half: neither reads what the other one has, and what else the machine does hurts both.
        turns = [partial(raw, *places[nth]) if nth % 2 else partial(look_up, *keys[nth]) for nth in range(len(keys))]
        times = timed(turns)
        found[f"{state} reads"], found[f"{state} pread"] = told(times[::2]), told(times[1::2])
    storage.close()
    return found


def tell(shape: str, entries: int, directory: Path, found: dict[str, dict[str, float]]) -> None:
    """Print what was measured of a bookie."""
    on_disk = sum(path.stat().st_size for path in directory.glob("ledgers/*.log"))
    print(f"{shape}: {entries:,} entries, {on_disk / 2**30:.1f} GiB of entry logs")
    for state in ("cold", "warm"):
        took = found[f"{state} start"]
        kinds = ", ".join(f"{kind} {took[kind] / entries:.2f}" for kind in took if kind not in ("seconds", "cpu"))
        print(
            f"  {state} start   {took['seconds']:>8.2f} s, {took['cpu']:.2f} s of CPU; bytes of memory an entry:"
            f" {kinds}"
        )
    print(
        f"  index        {found['index']['bytes'] / entries:>8.2f} bytes an entry, {found['finding']['us']:.2f} us of"
        " CPU to find one of many"
    )
    for state in ("cold", "warm"):
        reads, raw = found[f"{state} reads"], found[f"{state} pread"]
        print(
            f"  {state} reads   {reads['rate']:>8,.0f} a second, p99 {reads['p99']:.3f} ms; "
            f"pread of as many: {raw['rate']:,.0f} a second, p99 {raw['p99']:.3f} ms"
        )
    sys.stdout.flush()


def main() -> int:
    """Fill, measure and print; the exit status."""
    given = arguments()
    if given.measure is not None:
        print(json.dumps(measure(given.measure, given.reads)))
        return 0
    folder = given.keep or Path(tempfile.mkdtemp(prefix="fencepost-restart-"))
    try:
        for shape in given.shape:
            directory = folder / f"{shape}-{given.entries}-{given.section}"
            if not (directory / "shape.json").exists():
                shutil.rmtree(directory, ignore_errors=True)
                fill(directory, shape, given.entries, given.section)
            command = [
                sys.executable,
                "-m",
                "bench.ledger.restart",
                "--measure",
                str(directory),
                "--reads",
                str(given.reads),
            ]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            written = json.loads((directory / "shape.json").read_text())["entries"]
            tell(shape, written, directory, json.loads(done.stdout))
            if given.keep is None:
                shutil.rmtree(directory)
    finally:
        if given.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
