"""The cores and memory that this process may use, the memory that it occupies, and copies of it."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fencepost.checker.engines import windows
from fencepost.text import numbers

if TYPE_CHECKING:
    from fencepost.semantics import Deadline


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def physical_memory() -> int:
    """Bytes of memory this process may use: the machine's, or its container's limit if that is lower."""
    if sys.platform == "win32":
        return windows.physical_memory()
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path) as file:
                total = min(total, int(file.read()))
        except (OSError, ValueError):
            continue
    return total


def memory_limit(given: int | None) -> int:
    """Bytes of memory at which a search stops: the ``given`` limit, or most of what this process may use."""
    return given or int(physical_memory() * 0.92)


def limit_reached(deadline: Deadline, timeout: float | None, memory: int | None) -> str | None:
    """The limit that is reached, as text, or None: ``timeout`` seconds since the check began, or ``memory`` bytes
    occupied by this process.
    """
    if timeout is not None and deadline.expired(timeout):
        return f"the time limit of {timeout:g} seconds"
    if memory is not None and resident_memory() >= memory:
        return f"the memory limit of {numbers.size(memory)}"
    return None


def forked() -> int:
    """Fork this process. Returns 0 in the copy, where only this thread runs, and the copy's number here.

    Raises OSError if no process can be started.
    """
    with warnings.catch_warnings():
        # Python warns about forking a process with threads: the copy may wait for a lock that one of them holds. The
        # threads here run only Python and code that Python compiles, and Python resets its own locks in the copy.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def resident_memory() -> int:
    """Bytes of memory this process occupies now; where the system does not say, the most that it has occupied."""
    if sys.platform == "win32":
        return windows.memory().now
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return peak_memory()


def peak_memory() -> int:
    """The most bytes of memory that this process has occupied."""
    if sys.platform == "win32":
        return windows.memory().most
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


@contextmanager
def uncollected() -> Iterator[None]:
    """Suspend garbage collection. Python objects allocated here live on in tables, and searching them for cycles takes
    a tenth of the time.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
