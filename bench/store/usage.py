"""What processes use, as the system counts it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pids: Iterable[int]) -> float:
    """Seconds of CPU that processes have used since they began, their threads included, to a hundredth."""
    return sum(_ticks(pid) for pid in pids) / TICKS


def _ticks(pid: int) -> int:
    # The name of the command, in parentheses, may have blanks; user and system time are the 12th and 13th fields after it.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def resident_bytes(pids: Iterable[int]) -> int:
    """Bytes of memory that processes have in use, what they share counted for each."""
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE")


def resident_kinds() -> dict[str, int]:
    """Bytes of memory that this process has in use: its own, and those of files that are mapped."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {kind: int(lines[name].split()[0]) * 1024 for kind, name in (("anonymous", "RssAnon"), ("of files", "RssFile"))}
