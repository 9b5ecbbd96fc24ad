"""A process that takes itself for one on macOS or Windows: ``python elsewhere.py SYSTEM COMMAND ...``.

What the standard library lacks there is taken away, and reading ``/proc`` fails. Libraries are imported before, since
theirs are other files on those systems. Fencepost is imported afterwards. COMMAND is one of ``fencepost``, or
``pytest`` or ``python`` with a file.
"""

# ruff: noqa: F401
from __future__ import annotations

import asyncio
import builtins
import concurrent.futures.process
import ctypes
import importlib.abc
import mmap
import multiprocessing.connection
import multiprocessing.popen_spawn_posix
import os
import runpy
import select
import signal
import socket
import sys
from types import SimpleNamespace
from typing import Any

import msgspec
import numba
import numpy
import pytest
import rich.console
import rich.live
import rich.progress
import scipy.sparse

MODULES = {"darwin": "uvloop spwd", "win32": "uvloop fcntl resource termios tty pty pwd grp readline syslog"}

NAMES = {
    "darwin": {
        "os": "sched_getaffinity sched_setaffinity posix_fallocate posix_fadvise O_PATH O_DIRECT RWF_NOWAIT"
        " memfd_create pidfd_open splice copy_file_range eventfd",
        "select": "epoll",
        "signal": "pidfd_send_signal sigtimedwait sigwaitinfo",
        "mmap": "MAP_POPULATE MADV_HUGEPAGE",
    },
    "win32": {
        "os": "fork forkpty sysconf sysconf_names sched_getaffinity sched_setaffinity sched_yield posix_fallocate"
        " posix_fadvise O_PATH O_DIRECT O_DIRECTORY O_CLOEXEC O_NOFOLLOW O_NONBLOCK RWF_NOWAIT memfd_create pidfd_open"
        " pread pwrite preadv pwritev readv writev getuid geteuid getgid getegid uname killpg setsid getpgid fchmod"
        " fchown chown mkfifo wait WNOHANG posix_spawn statvfs sync nice getloadavg eventfd",
        "select": "epoll poll",
        "signal": "SIGKILL SIGHUP SIGUSR1 SIGUSR2 SIGALRM SIGCHLD SIGPIPE SIGQUIT SIGSTOP SIGCONT SIGTSTP"
        " pthread_sigmask pthread_kill sigwait setitimer alarm pidfd_send_signal siginterrupt SIG_BLOCK SIG_SETMASK",
        "socket": "AF_UNIX SO_REUSEPORT send_fds recv_fds",
        "mmap": "MAP_PRIVATE MAP_ANONYMOUS MAP_ANON MAP_SHARED MAP_NORESERVE MAP_POPULATE PROT_READ MADV_HUGEPAGE",
    },
}
"""What the module of this name has on Linux and not there."""

GIB = 1 << 30


class _Kernel:
    """Windows' functions: a machine of 8 GiB, and a process of 1 that had 2."""

    @staticmethod
    def GlobalMemoryStatusEx(machine: Any) -> int:
        assert machine._obj.length == 64
        machine._obj.total = 8 * GIB
        return 1

    @staticmethod
    def K32GetProcessMemoryInfo(process: Any, counters: Any, size: int) -> int:
        assert size == 72
        counters._obj.now, counters._obj.most = GIB, 2 * GIB
        return 1


class _Missing(importlib.abc.MetaPathFinder):
    def __init__(self, names: list[str]) -> None:
        self.names = names

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def move_to(system: str) -> None:
    """Make this process look like one on another system."""
    names = MODULES[system].split()
    for name in names:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _Missing(names))
    for module, attributes in NAMES[system].items():
        for attribute in attributes.split():
            if hasattr(sys.modules[module], attribute):
                delattr(sys.modules[module], attribute)
    if system == "win32":
        ctypes.windll = SimpleNamespace(kernel32=_Kernel)  # type: ignore[attr-defined]
    really_open = builtins.open

    def opened(file: Any, *arguments: Any, **named: Any) -> Any:
        if str(file).startswith(("/proc/", "/sys/")):
            raise FileNotFoundError(2, "No such file or directory", str(file))
        return really_open(file, *arguments, **named)

    builtins.open = opened
    sys.platform = system


def run(words: list[str]) -> int:
    """Run a command. Returns its exit code."""
    sys.path.insert(0, os.curdir)
    if words[0] == "python":
        sys.argv = words[1:]
        runpy.run_path(words[1], run_name="__main__")
        return 0
    if words[0] == "pytest":
        return int(pytest.main(words[1:]))
    from fencepost.cli.main import main

    return main(words)


if __name__ == "__main__":
    move_to(sys.argv[1])
    from fencepost.checker.compiler import memory

    # Memory that is reserved and not used does not count on macOS, as with this flag on Linux.
    memory.NORESERVE = 0x4000
    sys.exit(run(sys.argv[2:]))
