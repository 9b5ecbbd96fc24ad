"""The same random metadata operations on two servers of ZooKeeper's protocol: the first difference, or that there is none.

    python interop/metadata_differential.py PORT PORT --operations 100000 --seed 1
    python interop/metadata_differential.py PORT --operations 800 --seed 1 --record FILE

The second form writes what a server answers to a file, which the tests compare with the service. Both servers are to be fresh and to have the same tickTime. Results, versions, zxids, errors, and events and where they come among the
replies are compared; times and session ids are not.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from itertools import tee
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "metadata_service"))

from workload import Run, Workload, written


def compare(ports: tuple[int, int], seed: int, operations: int, expiring: float) -> int:
    """Do the steps of a seed on both servers side by side; the number of operations, or SystemExit at the first difference."""
    runs = [Run(port) for port in ports]
    steps, *copies = tee(Workload(seed, expiring).steps(operations), 3)
    before: deque[Any] = deque(maxlen=6)
    done = 0
    for step, first, second in zip(steps, *(run.run(copy) for run, copy in zip(runs, copies, strict=True)), strict=True):
        before.append(step)
        done += len(step[2]) if step[0] in ("calls", "expire") else 1
        if first != second:
            print(f"seed {seed}: after {done:,} operations they differ. The last steps:")
            for each in before:
                print("   ", each)
            for port, report in zip(ports, (first, second), strict=True):
                print(port, report)
            raise SystemExit(1)
    for run in runs:
        for index in list(run.clients):
            run._close(index)
    return done


def record(port: int, seed: int, operations: int, expiring: float, path: Path) -> None:
    """Write steps, and what came of them on a server, as lines of JSON."""
    steps, copy = tee(Workload(seed, expiring).steps(operations))
    run = Run(port)
    with open(path, "w") as file:
        for step, report in zip(steps, run.run(copy), strict=True):
            file.write(written(step, report) + "\n")
    run.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ports", type=int, nargs="+")
    parser.add_argument("--record", metavar="FILE", type=Path)
    parser.add_argument("--operations", type=int, default=100_000)
    parser.add_argument("--seed", type=int, action="append")
    parser.add_argument("--expiring", type=float, default=0.0004, help="the share of steps that wait for a session to expire")
    given = parser.parse_args()
    for seed in given.seed or [1]:
        start = time.monotonic()
        if given.record is not None:
            record(given.ports[0], seed, given.operations, given.expiring, given.record)
            return
        first, second = given.ports
        done = compare((first, second), seed, given.operations, given.expiring)
        print(f"seed {seed}: {done:,} operations, no difference ({time.monotonic() - start:.0f} s)")


if __name__ == "__main__":
    main()
