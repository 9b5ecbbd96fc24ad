"""What Windows says of memory: https://learn.microsoft.com/windows/win32/api/sysinfoapi/ns-sysinfoapi-memorystatusex
and .../psapi/ns-psapi-process_memory_counters.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple


class _Machine(ctypes.Structure):
    """``MEMORYSTATUSEX``: 64 bytes. The total of physical memory is the third member."""

    _fields_ = [("length", ctypes.c_uint32), ("load", ctypes.c_uint32), ("total", ctypes.c_uint64)] + [
        (f"other{n}", ctypes.c_uint64) for n in range(6)
    ]


class _Process(ctypes.Structure):
    """``PROCESS_MEMORY_COUNTERS``: the greatest and the current working set come after two numbers of 32 bits."""

    _fields_ = [("size", ctypes.c_uint32), ("faults", ctypes.c_uint32), ("most", ctypes.c_size_t),
                ("now", ctypes.c_size_t)] + [(f"other{n}", ctypes.c_size_t) for n in range(6)]  # fmt: skip


class Memory(NamedTuple):
    """Bytes that this process occupies ``now``, and the ``most`` that it has occupied."""

    now: int
    most: int


def _kernel() -> Any:
    return getattr(ctypes, "windll").kernel32  # noqa: B009  other systems' ctypes has none


def physical_memory() -> int:
    """Bytes of the machine's memory."""
    machine = _Machine(length=ctypes.sizeof(_Machine))
    if not _kernel().GlobalMemoryStatusEx(ctypes.byref(machine)):
        raise OSError("Windows does not say how much memory there is")
    return int(machine.total)


def memory() -> Memory:
    """The memory of this process."""
    process, of_this_one = _Process(size=ctypes.sizeof(_Process)), ctypes.c_void_p(-1)
    if not _kernel().K32GetProcessMemoryInfo(of_this_one, ctypes.byref(process), process.size):
        raise OSError("Windows does not say how much memory a process has")
    return Memory(int(process.now), int(process.most))
