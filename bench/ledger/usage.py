"""What processes use, as the system counts it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

TICKS = os.sysconf("SC_CLK_TCK")


class Cpu(NamedTuple):
    """Seconds of CPU, in programs and in the kernel on their behalf."""

    user: float
    system: float

    def since(self, before: Cpu) -> Cpu:
        """What was used since then."""
        return Cpu(self.user - before.user, self.system - before.system)

    @property
    def total(self) -> float:
        """Both."""
        return self.user + self.system


def cpu_seconds(pids: Iterable[int]) -> float:
    """Seconds of CPU that processes have used since they began, their threads included, to a hundredth."""
    return cpu(pids).total


def cpu(pids: Iterable[int]) -> Cpu:
    """The same, in programs and in the kernel."""
    ticks = [_ticks(pid) for pid in pids]
    return Cpu(sum(user for user, _ in ticks) / TICKS, sum(system for _, system in ticks) / TICKS)


def _ticks(pid: int) -> tuple[int, int]:
    # The name of the command, in parentheses, may have blanks; user and system time are the 12th and 13th fields after
    # it.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]), int(fields[12])


def threads(pid: int) -> list[int]:
    """The numbers of the threads of a process."""
    return [int(name) for name in os.listdir(f"/proc/{pid}/task")]


def pin(pid: int, core: int) -> None:
    """Have a process run on one core alone: all threads that it has, and those that they will start."""
    for thread in threads(pid):
        os.sched_setaffinity(thread, {core})


def status_bytes(pid: int, *names: str) -> tuple[int, ...]:
    """Fields of ``/proc/PID/status`` that are sizes, as ``VmRSS``, ``RssAnon`` or ``VmHWM``, in bytes."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return tuple(int(lines[name].split()[0]) * 1024 for name in names)


def resident_kinds() -> dict[str, int]:
    """Bytes of memory that this process has in use: its own, and those of files that are mapped."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        kind: int(lines[name].split()[0]) * 1024 for kind, name in (("anonymous", "RssAnon"), ("of files", "RssFile"))
    }
