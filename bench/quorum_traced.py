"""``python -m bench.quorum_traced``: what it costs a metadata quorum to write traces.

Three members, each a process, and one client of kazoo that sets znodes, some at a time; in turns with traces and
without. Printed are the operations a second, and the CPU microseconds of all members for each, medians with the lowest
and the highest turn.

    python -m bench.quorum_traced [--turns 4] [--operations 4000] [--in-flight 64]
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from bench.quorum.processes import Processes

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_of(pid: int) -> float:
    """The CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def turn(path: Path, operations: int, in_flight: int, is_traced: bool) -> tuple[float, float]:
    """Operations a second, and CPU microseconds of all members for each, without what they do when they end."""
    members = Processes(path, 3, ["--trace", str(path / "traces")] if is_traced else ())
    members.start()
    client = members.client()
    client.create("/mine", b"")
    for _ in range(100):
        client.set("/mine", b"x" * 100)
    before, began = sum(cpu_of(process.pid) for process in members.running.values()), time.perf_counter()
    waiting: deque[object] = deque()
    for _ in range(operations):
        waiting.append(client.set_async("/mine", b"x" * 100))
        if len(waiting) >= in_flight:
            waiting.popleft().get()  # type: ignore[attr-defined]
    while waiting:
        waiting.popleft().get()  # type: ignore[attr-defined]
    seconds = time.perf_counter() - began
    cpu = sum(cpu_of(process.pid) for process in members.running.values()) - before
    client.stop()
    client.close()
    for member in list(members.running):
        members.kill(member, signal.SIGTERM)
    return operations / seconds, cpu / operations * 1e6


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--operations", type=int, default=4_000)
    parser.add_argument("--in-flight", type=int, default=64)
    given = parser.parse_args(arguments)
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for _ in range(given.turns):
        for is_traced in found:
            with tempfile.TemporaryDirectory() as folder:
                found[is_traced].append(turn(Path(folder), given.operations, given.in_flight, is_traced))
    for is_traced, turns in found.items():
        rates, costs = [rate for rate, _ in turns], [cost for _, cost in turns]
        print(
            f"{'traced' if is_traced else 'not traced':<11} {statistics.median(rates):>7,.0f} a second"
            f" ({min(rates):,.0f} to {max(rates):,.0f})  {statistics.median(costs):>6,.0f} us of CPU each"
            f" ({min(costs):,.0f} to {max(costs):,.0f})"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
