"""The identity of processes. Process ids are reused: a process is known by its number, the time of its start,
and the boot.
"""

from __future__ import annotations

import contextlib
import os
import signal
from functools import cache

import msgspec

PAGE = os.sysconf("SC_PAGE_SIZE")


class Identity(msgspec.Struct, frozen=True):
    """The identity of a process of this machine, which no other process has had or will have."""

    pid: int
    start: int
    """When it started, in clock ticks after the boot."""
    boot: str


@cache
def _boot() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def _fields(pid: int) -> list[str] | None:
    """The kernel's fields of a process from its state on; None if there is none, or only its exit code is left."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else fields


def identity(pid: int) -> Identity | None:
    """The identity of the process that has this id now; None if there is none."""
    fields = _fields(pid)
    return None if fields is None else Identity(pid, int(fields[19]), _boot())


def is_alive(process: Identity) -> bool:
    """Whether this very process still runs."""
    return identity(process.pid) == process


def is_paused(pid: int) -> bool:
    """Whether a process was stopped by a signal and waits to be continued."""
    fields = _fields(pid)
    return fields is not None and fields[0] in "Tt"


def memory(pid: int) -> int:
    """Bytes of memory that a process has in use; 0 if there is none."""
    fields = _fields(pid)
    return 0 if fields is None else int(fields[21]) * PAGE


def kill(process: Identity) -> None:
    """End this very process at once, if it still runs; another that has its number by now is left alone."""
    try:
        opened = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        # The descriptor stands for one process, whatever becomes of its number: it is the right one if it has the
        # number still.
        if is_alive(process):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(opened, signal.SIGKILL)
    finally:
        os.close(opened)
