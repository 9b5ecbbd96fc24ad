"""Who waits for whom: what each thread of our client and of our bookies does at full load, by the kernel's own record
of when it runs which thread (``perf``).

A thread runs, waits for a core, waits for the disk, or sleeps until another thread or a message wakes it. The table has
the shares of each thread in one second. The picture has some milliseconds of it.
"""

from __future__ import annotations

import argparse
import re
import runpy
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from bench.ledger.figures import table
from bench.ledger.sides import OURS, Side

RUNS, CORE, DISK, SLEEPS = "runs", "waits for a core", "waits for the disk", "sleeps"
STATES = (RUNS, CORE, DISK, SLEEPS)
SECONDS = 1.0
SHOWN = 0.025
"""Seconds in the picture."""
FEWEST = 0.01
"""A thread that runs for a smaller share of the time has no row."""
EVENTS = ("sched:sched_switch", "sched:sched_wakeup")
PLOTS = Path(__file__).parents[2] / "docs" / "images" / "plots.py"

_SWITCH = re.compile(
    r"([\d.]+): sched:sched_switch: prev_comm=.* prev_pid=(\d+) .*prev_state=(\w).* ==> .*next_pid=(\d+)"
)
_WAKEUP = re.compile(r"([\d.]+): sched:sched_wakeup: comm=.* pid=(\d+) ")


class Span(NamedTuple):
    """What a thread does from one moment to another, in seconds."""

    state: str
    begin: float
    end: float


def spans_of(lines: Iterable[str], threads: Iterable[int]) -> dict[int, list[Span]]:
    """What threads do, by the lines of ``perf script``. What one does before its first event is not known."""
    found: dict[int, list[Span]] = {thread: [] for thread in threads}
    now: dict[int, tuple[str, float]] = {}

    def turn(thread: int, state: str, at: float) -> None:
        if thread in found:
            if thread in now:
                found[thread].append(Span(*now[thread], at))
            now[thread] = state, at

    for line in lines:
        if switch := _SWITCH.search(line):
            at = float(switch[1])
            turn(int(switch[2]), {"R": CORE, "D": DISK}.get(switch[3], SLEEPS), at)
            turn(int(switch[4]), RUNS, at)
        elif wakeup := _WAKEUP.search(line):
            thread = int(wakeup[2])
            if now.get(thread, (RUNS, 0.0))[0] in (DISK, SLEEPS):
                turn(thread, CORE, float(wakeup[1]))
    return found


def shares_of(spans: Iterable[Span]) -> dict[str, float]:
    """The share of each state in the time of all spans."""
    seconds = dict.fromkeys(STATES, 0.0)
    for state, begin, end in spans:
        seconds[state] += end - begin
    whole = sum(seconds.values()) or 1.0
    return {state: each / whole for state, each in seconds.items()}


def drawn(threads: Mapping[str, list[Span]], begin: float, seconds: float) -> str:
    """A picture of some seconds: a row for each thread."""
    plots: dict[str, Any] = runpy.run_path(str(PLOTS))
    rect, text, line, n = (plots[name] for name in ("rect", "text", "line", "n"))
    left, row, top, wide = 150, 26, plots["TOP"], plots["WIDTH"] - plots["RIGHT"] - 150
    floor = top + row * len(threads)
    body = plots["legend"]((RUNS, DISK, CORE))
    for part in range(6):
        x = left + wide * part / 5
        body += line(x, top, x, floor, "rule") + text(x, floor + 18, n(seconds * 1000 * part / 5), "middle")
    for place, (name, spans) in enumerate(threads.items()):
        y = top + row * place
        body += text(left - 10, y + 17, name, "end name")
        for state, first, last in spans:
            first, last = max(first, begin), min(last, begin + seconds)
            if first < last and state != SLEEPS:
                kind = {RUNS: "one", DISK: "two", CORE: "three"}[state]
                body += rect(left + wide * (first - begin) / seconds, y + 5, wide * (last - first) / seconds, 16, kind)
    body += text(left + wide / 2, floor + 40, "milliseconds", "middle")
    title = "What each thread does: adds of 1 KiB, 1,000 in flight"
    picture: str = plots["picture"](title, body, floor + 54)
    return picture


def run(given: argparse.Namespace, folder: Path) -> Any:
    """The part ``timeline``. None where the system does not let ``perf`` record."""
    side = Side(OURS, folder, given.setting)
    record = folder / "perf.data"
    try:
        side.start()
        side.settle(given.warm_up / 2)
        ledger = side.ledger(1024, 1000)
        with ThreadPoolExecutor(1) as pool:
            adding = pool.submit(side.load, ledger, "adds", 1024, 1000, SECONDS + 4)
            time.sleep(2)
            wanted = [word for event in EVENTS for word in ("-e", event)]
            perf("record", "-q", "-a", *wanted, "-o", str(record), "--", "sleep", str(SECONDS))
            bookies = {f"bookie {number}": pid for number, pid in enumerate(side.bookies, 1)}
            names = threads_of({"client": side.processes[0].pid, **bookies})
            adding.result()
        text = perf("script", "-i", str(record), "--ns", "-F", "time,event,trace")
    except Unrecorded as why:
        print(f"there is no timeline: {why}")
        return None
    finally:
        side.end()
    spans = spans_of(text.splitlines(), names)
    busy = {names[thread]: each for thread, each in spans.items() if shares_of(each)[RUNS] >= FEWEST}
    shares = {name: shares_of(each) for name, each in busy.items()}
    columns = ["", *STATES]
    print(table(columns, [[name, *(f"{share:.0%}" for share in each.values())] for name, each in shares.items()]))
    if given.picture is not None:
        middle = min(span.begin for each in busy.values() for span in each) + SECONDS / 2
        given.picture.write_text(drawn(busy, middle, SHOWN))
    return shares


class Unrecorded(Exception):
    """``perf`` is not installed, or may not record here."""


def perf(*words: str) -> str:
    """What a command of ``perf`` prints. Raises :class:`Unrecorded`."""
    if shutil.which("perf") is None:
        raise Unrecorded("perf is not installed")
    done = subprocess.run(["perf", *words], capture_output=True, text=True)
    if done.returncode:
        raise Unrecorded(f"perf {words[0]} failed: {' '.join(done.stderr.split())[:200]}")
    return done.stdout


def threads_of(processes: Mapping[str, int]) -> dict[int, str]:
    """The names of the threads of processes, by number. The first of each is its event loop."""
    found: dict[int, str] = {}
    for name, pid in processes.items():
        for task in sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda each: int(each.name)):
            comm = "loop" if int(task.name) == pid else (task / "comm").read_text().strip()
            is_known = f"{name}, {comm}" in found.values()
            found[int(task.name)] = f"{name}, {comm} {task.name}" if is_known else f"{name}, {comm}"
    return found
