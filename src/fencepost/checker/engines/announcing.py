"""Tells a user who waits that loops are being compiled: on every machine the first run takes a while longer."""

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
"""Compilations that have begun and not ended; one can be part of another."""

_began = _spent = 0.0
"""When the compilation that is under way began, and the seconds that those before it took, in this process."""


@cache
def _notice() -> str:
    """The first search on a machine is told apart from later ones that need more loops, by the cache on disk."""
    kept = getattr(native.rehash, "_cache", None)
    return MORE if kept is not None and any(Path(kept.cache_path).glob("*.nbi")) else COMPILING


class _Listener(event.Listener):
    """Reports each compilation as it begins, if that is in the thread that asked."""

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
    """The notice of a compilation that is under way; empty if none is."""
    return _notice() if _under_way else ""


@contextmanager
def announced(report: Report | None) -> Iterator[Callable[[Exploration], Exploration]]:
    """While the body runs, ``report`` is called at every compilation. A function that is loaded from the cache on disk
    is not compiled. Gives what tells an exploration how many seconds that took until then.
    """
    before = _spent

    def timed(explored: Exploration) -> Exploration:
        explored.compiling = _spent - before
        return explored

    with event.install_listener("numba:compile", _Listener(report)):
        yield timed
