"""Maps functions over tasks in several processes of this machine."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process
from typing import Any, TypeVar

from fencepost.errors import SystemFailure

T = TypeVar("T")


@contextmanager
def in_processes(does: Callable[..., T], tasks: Sequence[tuple[Any, ...]], jobs: int) -> Iterator[Iterator[T]]:
    """Map a module-level function over tasks in ``jobs`` processes, in order. One job runs in this process.

    Raises :class:`fencepost.SystemFailure` if a process dies.
    """
    if jobs == 1:
        yield (does(*task) for task in tasks)
        return
    # Each process gets a fresh interpreter, which shares nothing with this one.
    others = active_children()
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_begin)
    try:
        yield _in_order(pool, does, tasks, 3 * jobs)
    except BrokenProcessPool as error:
        raise SystemFailure("one of the processes has died, perhaps for want of memory: take fewer") from error
    except BaseException:
        for process in active_children():
            if process not in others:
                process.terminate()
        raise
    finally:
        with _interrupts_held():  # a process that is just starting still needs this one
            pool.shutdown(wait=True, cancel_futures=True)


def _in_order(
    pool: ProcessPoolExecutor, does: Callable[..., T], tasks: Sequence[tuple[Any, ...]], ahead: int
) -> Iterator[T]:
    waiting: deque[Future[T]] = deque()
    for task in tasks:
        with _interrupts_held():  # a new process inherits the blocked signal
            waiting.append(pool.submit(does, *task))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    if sys.platform == "win32":  # which cannot hold a Ctrl-C back
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin() -> None:
    """Ignore Ctrl-C, which reaches all processes of a terminal: the parent process ends the others. End when it does,
    even if it is killed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
