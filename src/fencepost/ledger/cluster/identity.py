"""The identity of processes. Process ids are reused, so an identity also has the process's start time and the boot."""

from __future__ import annotations

import contextlib
import os
import signal
from functools import cache

import msgspec

PAGE = os.sysconf("SC_PAGE_SIZE")


class Identity(msgspec.Struct, frozen=True):
    """A process of this machine, distinct from all earlier and later ones."""

    pid: int
    start: int
    """The time of its start, in clock ticks after the boot."""
    boot: str


@cache
def _boot() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def _fields(pid: int) -> list[str] | None:
    """The kernel's fields of a process, from its state on. None if there is none, or only its exit code is left."""
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
    """Whether this same process still runs."""
    return identity(process.pid) == process


def is_paused(pid: int) -> bool:
    """Whether a signal has stopped a process, which waits to be continued."""
    fields = _fields(pid)
    return fields is not None and fields[0] in "Tt"


def memory(pid: int) -> int:
    """Resident memory of a process in bytes; 0 if there is none."""
    fields = _fields(pid)
    return 0 if fields is None else int(fields[21]) * PAGE


def kill(process: Identity) -> None:
    """Kill this process if it still runs. Never kills another process that has reused its id."""
    try:
        opened = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        # The descriptor stays with one process even if the id is reused. It is the right process if the identity still
        # matches.
        if is_alive(process):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(opened, signal.SIGKILL)
    finally:
        os.close(opened)
