"""Reports that loops are being compiled: the first run on a machine takes longer, and a user is waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from numba.core import event

from fencepost.checker.compiler import native
from fencepost.checker.engines.interface import COMPILING, MORE, Exploration, Progress, Report

_under_way = 0
"""Compilations in progress. One can be part of another."""

_began = _spent = 0.0
"""When the compilation in progress began, and the seconds that earlier ones in this process took."""


@cache
def _notice() -> str:
    """The notice to show. The cache on disk tells the first search on a machine from one that needs more loops."""
    kept = getattr(native.rehash, "_cache", None)
    return MORE if kept is not None and any(Path(kept.cache_path).glob("*.nbi")) else COMPILING


class _Listener(event.Listener):
    """Reports the start of each compilation in the thread that created it."""

    def __init__(self, report: Report | None) -> None:
        self.report = report
        self.thread = threading.get_ident()
        self.started = time.monotonic()

    def on_start(self, event: object) -> None:
        global _under_way, _began
        if not _under_way:
            _began = time.monotonic()
        _under_way += 1
        if self.report is not None and threading.get_ident() == self.thread:
            self.report(Progress(seconds=time.monotonic() - self.started, doing=_notice()))

    def on_end(self, event: object) -> None:
        global _under_way, _spent
        _under_way -= 1
        if not _under_way:
            _spent += time.monotonic() - _began


def compiling() -> str:
    """The notice of the compilation in progress, or an empty string."""
    return _notice() if _under_way else ""


@contextmanager
def announced(report: Report | None) -> Iterator[Callable[[Exploration], Exploration]]:
    """Call ``report`` at the start of every compilation while the body runs. Loading a function from the cache on disk
    is not a compilation. Yields a function that sets ``compiling`` of an exploration to the seconds spent so far.
    """
    before = _spent

    def timed(explored: Exploration) -> Exploration:
        explored.compiling = _spent - before
        return explored

    with event.install_listener("numba:compile", _Listener(report)):
        yield timed
