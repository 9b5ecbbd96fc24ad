"""``python -m bench``: how fast the checker is on this machine, in one run, so that ratios can be read even where it is
busy.

Every figure comes from a process of its own. ``--quick`` leaves out what takes longest.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

FIXED = {"recovery_reads_fence": "true"}
LARGE = {"recovery_reads_fence": "true", "send_limit": "2"}
LARGE_STATES = 12_000_000
ROUNDS = 3
WALKS = 100_000


def measure(protocol: str, constants: dict[str, str], **options: Any) -> list[dict[str, Any]]:
    """The figures of an exploration in a fresh process, ``times`` over."""
    request = json.dumps({"protocol": protocol, "constants": constants, **options})
    done = subprocess.run([sys.executable, "-m", "bench.one", request], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"a measurement failed:\n{done.stderr}")
    figures: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return figures


def command(*words: str, **environment: str) -> float:
    """Seconds that ``fencepost WORDS`` takes as a whole process."""
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "fencepost", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    if done.returncode not in (0, 12):
        sys.exit(f"fencepost {' '.join(words)} failed:\n{done.stderr}")
    return time.perf_counter() - begin


def line(what: str, figure: str) -> None:
    """One row of the report."""
    print(f"{what:<66}{figure:>24}", flush=True)


def rate(figures: dict[str, Any]) -> float:
    """Distinct states a second."""
    return float(figures["distinct"] / figures["seconds"])


def scaling(title: str, constants: dict[str, str], **options: Any) -> dict[str, Any]:
    """Measure one worker and two in turn, each in a fresh process that explores twice. Print the medians and the median
    ratio.

    The first exploration of a process also gets its memory from the system, which can be expensive on a virtual
    machine. The second repeats the rest of the work. Returns the figures of a first exploration with one worker.
    """
    pairs = [
        tuple(measure("bookkeeper-4.13", constants, workers=n, times=2, **options) for n in (1, 2))
        for _ in range(ROUNDS)
    ]
    line(f"{title}: distinct states", f"{pairs[0][1][0]['distinct']:,}")
    for n in (0, 1):
        for again, which in enumerate(("", ", again in the same process")):
            per_second = statistics.median(rate(pair[n][again]) for pair in pairs)
            line(f"  distinct states a second, {n + 1} worker{'s' if n else ''}{which}", f"{per_second:,.0f}")
    for again, which in enumerate(("", ", again")):
        ratio = statistics.median(rate(two[again]) / rate(one[again]) for one, two in pairs)
        line(f"  two workers to one{which}", f"{ratio:.2f}x")
    loops = [
        statistics.median(p[n][1]["profile"]["seconds"]["expand"] / p[n][1]["distinct"] * 1e9 for p in pairs)
        for n in (0, 1)
    ]
    line("  of which compiled loops, again: nanoseconds a state", f"{loops[0]:.0f} and {loops[1]:.0f}")
    first: dict[str, Any] = pairs[-1][0][0]
    return first


def main() -> None:
    """Print the whole report."""
    quick = "--quick" in sys.argv[1:]
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.2f} before the first measurement\n")
    measure("bookkeeper-4.13", FIXED, workers=2)  # fills the cache of compiled loops

    one = scaling("BookKeeper 4.13, 3 bookies, fencing reads", FIXED)
    if not quick:
        scaling(f"the same with 2 entries, first {LARGE_STATES:,}", LARGE, max_states=LARGE_STATES)
    memory = one["profile"]["memory"]
    line("resident bytes a visited state: fingerprints", f"{memory['table'] / one['distinct']:.1f}")
    line("  and links to parents (the rest is on disk)", f"{memory['links'] / one['distinct']:.1f}")
    line("  peak of the process, frontier and Python included", f"{one['peak_memory'] / 2**20:,.0f} MiB")
    line("calls of the protocol's Python", f"{one['evaluations']:,}")

    small = {"bookies": "2", "write_quorum": "2", "ack_quorum": "1", "recovery_reads_fence": "true"}
    (plain,) = measure("bookkeeper-4.13", small, engine="reference", workers=1)
    line("ratio to the reference explorer (on 2 bookies), 1 worker", f"{rate(one) / rate(plain):,.0f}x")
    print()

    for protocol, constants in (("bookkeeper-4.13", FIXED), ("ledger-chaining", {})):
        walked = [
            measure(protocol, constants, engine="simulate", workers=1, walks=WALKS, times=2)[1] for _ in range(ROUNDS)
        ]
        line(
            f"random walks of {protocol}: steps a second a core",
            f"{statistics.median(w['steps'] / w['seconds'] for w in walked):,.0f}",
        )
    print()

    warm = [command("check", "bookkeeper-4.13") for _ in range(ROUNDS)]
    line("data loss of defect 1 found, fresh process, warm cache", f"{statistics.median(warm):.2f} s")
    with tempfile.TemporaryDirectory() as cache:
        cold = command("check", "bookkeeper-4.13", NUMBA_CACHE_DIR=cache)
    line("  on the first run ever, compilation included", f"{cold:.2f} s")
    line("  compilation of the loops alone, cold", f"{cold - statistics.median(warm):.2f} s")
    chained = [command("check", "ledger-chaining", "-D", "clients=2") for _ in range(ROUNDS)]
    line("ledger-chaining with 2 clients, fresh process, warm cache", f"{statistics.median(chained):.2f} s")
    print(f"\nload {os.getloadavg()[0]:.2f} after the last measurement")


if __name__ == "__main__":
    main()
