"""How long a bookie takes until it serves: the first on a machine, which has no compiled loops yet, and later ones."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.ledger.figures import table
from bench.ledger.sides import OURS, Side
from bench.ledger.usage import cpu

TIMES = 5


@contextlib.contextmanager
def environment(**names: str | None) -> Iterator[None]:
    """Variables for processes that are started meanwhile; None: none of this name."""
    before = {name: os.environ.get(name) for name in names}
    try:
        _set(names)
        yield
    finally:
        _set(before)


def _set(names: dict[str, str | None]) -> None:
    for name, value in names.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def run(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure, print and give what was measured."""
    side = Side(OURS, folder, given.setting)
    cache = folder / "loops"
    try:
        with environment(FENCEPOST_LOOPS=None):
            side.start(bookies=1, clients=0)
            server = side.cluster.bookies[0].server
            with environment(NUMBA_CACHE_DIR=str(cache)):
                firsts = [_start(server, cache) for _ in range(2)]
                server.kill()
                _end_compilers(cache)
            time.sleep(1)
            warm = [_start(server) for _ in range(TIMES)]
    finally:
        side.end()
    found = {"first": firsts, "warm": warm}
    print(
        table(
            ("", "seconds", "of CPU"),
            [
                (
                    title,
                    f"{statistics.median(wall for wall, _ in times):.2f}",
                    f"{statistics.median(used for _, used in times):.2f}",
                )
                for title, times in (
                    ("first start ever, no loop compiled", firsts),
                    (f"median of {TIMES} starts", warm),
                )
            ],
        ),
        flush=True,
    )
    return found


def _start(server: Any, cache: Path | None = None) -> tuple[float, float]:
    """Start a bookie anew; seconds until it serves, and of CPU by then. ``cache``: what is to be empty before."""
    server.kill()
    if cache is not None:
        _end_compilers(cache)
        shutil.rmtree(cache, ignore_errors=True)
    time.sleep(0.2)
    began = time.perf_counter()
    server.start()
    return time.perf_counter() - began, cpu([server.pid]).total


def _end_compilers(cache: Path) -> None:
    """End the processes that compile loops into a folder of ours: they outlive the bookie that has begun them."""
    mark = f"NUMBA_CACHE_DIR={cache}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)
