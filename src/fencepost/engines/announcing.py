"""Tells a user who waits that loops are being compiled: on every machine the first run takes a while longer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from numba.core import event

from fencepost.engines.interface import COMPILING, Progress, Report

_under_way = 0
"""Compilations that have begun and not ended; one can be part of another."""


class _Listener(event.Listener):
    """Reports each compilation as it begins, if that is in the thread that asked."""

    def __init__(self, report: Report | None) -> None:
        self.report = report
        self.thread = threading.get_ident()
        self.started = time.monotonic()

    def on_start(self, event: object) -> None:
        global _under_way
        _under_way += 1
        if self.report is not None and threading.get_ident() == self.thread:
            self.report(Progress(seconds=time.monotonic() - self.started, doing=COMPILING))

    def on_end(self, event: object) -> None:
        global _under_way
        _under_way -= 1


def compiling() -> str:
    """The notice of a compilation that is under way; empty if none is."""
    return COMPILING if _under_way else ""


@contextmanager
def announced(report: Report | None) -> Iterator[None]:
    """While the body runs, ``report`` is called at every compilation. A function that is loaded from the cache on disk
    is not compiled.
    """
    with event.install_listener("numba:compile", _Listener(report)):
        yield
