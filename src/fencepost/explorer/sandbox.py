"""The rights that a process gives up before it evaluates a typed expression: its environment, files, other programs,
and the network.

:mod:`fencepost.behaviours.sandbox` already limits the functions that an expression may call, but it allows the author's
own. A process gives these rights up for the rest of its life, and cannot take them back.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import os
import resource
import struct
import sys
from collections.abc import Sequence

SPARE_FILES = 16
"""Files that may be opened besides those already open: an author's function may import a module."""

# Linux's Landlock: see landlock(7). The numbers of the system calls are the same on every architecture.
_CREATE, _ADD, _RESTRICT = 444, 445, 446
_NO_NEW_PRIVILEGES = 38
_EXECUTE, _READ_FILE, _READ_DIRECTORY = 1 << 0, 1 << 2, 1 << 3
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""The file rights that each version knows, by the first version that knows them."""
_NETWORK = 3
"""The rights to bind and to connect, since version 4."""
_SIGNAL = 1 << 1


def enter(memory: int) -> None:
    """Give up everything except computing and importing modules, and limit memory to ``memory`` bytes more than now.
    Garbage is collected first: later, its memory would be room beyond the limit.

    On a system without Landlock, only resource limits apply: the process can write no files and start no processes.
    """
    os.environ.clear()
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    os.close(nothing)
    highest = max(int(name) for name in os.listdir("/dev/fd"))
    _limit(resource.RLIMIT_NOFILE, highest + SPARE_FILES)
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_NPROC, 0)
    _limit(resource.RLIMIT_CORE, 0)
    gc.collect()
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/self/statm") as file:
        _limit(resource.RLIMIT_AS, int(file.read().split()[0]) * resource.getpagesize() + memory)
    confine([path or os.curdir for path in sys.path])
    _refuse_processes()


def without_programs() -> None:
    """Give up the environment and the right to run programs, but keep files. For a process that compiles."""
    for name in [name for name in os.environ if not name.startswith("NUMBA_")]:
        del os.environ[name]
    _landlock(_EXECUTE, 0, ())
    _refuse_processes()


def exit_if_forked(own: int) -> None:
    """Exit if this process is a fork of ``own``. Only the original process may answer."""
    if os.getpid() != own:
        os._exit(1)


def _refuse_processes() -> None:
    """Refuse to start processes. Resource limits do not stop root from doing so."""

    def hook(event: str, arguments: object) -> None:
        if event in ("os.fork", "os.forkpty", "os.posix_spawn"):
            raise PermissionError(errno.EPERM, "no process may be started here")

    sys.addaudithook(hook)


def confine(readable: Sequence[str]) -> bool:
    """Give up all rights to files and the network, except reading in these folders. Returns whether the system supports
    it.
    """
    rights = [bits for version, bits in _RIGHTS.items() if version <= _version()]
    return bool(rights) and _landlock(rights[-1], _NETWORK if _version() >= 4 else 0, readable)


def _limit(what: int, least: int) -> None:
    _, hard = resource.getrlimit(what)
    least = least if hard == resource.RLIM_INFINITY else min(least, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(what, (least, least))


def _call(number: int, *arguments: object) -> int:
    return int(ctypes.CDLL(None, use_errno=True).syscall(number, *arguments))


def _version() -> int:
    return _call(_CREATE, None, ctypes.c_size_t(0), 1) if sys.platform == "linux" else -1


def _landlock(files: int, network: int, readable: Sequence[str]) -> bool:
    if _version() < 1:
        return False
    # signals to other processes, since version 6
    handled = struct.pack("=QQQ", files, network, _SIGNAL)[: 24 if _version() >= 6 else 16 if network else 8]
    rules = _call(_CREATE, handled, ctypes.c_size_t(len(handled)), 0)
    if rules < 0:
        return False
    for path in readable:
        with contextlib.suppress(OSError):  # sys.path may contain missing folders
            at = os.open(path, os.O_PATH | os.O_CLOEXEC)
            allowed = _READ_FILE | (_READ_DIRECTORY if os.path.isdir(path) else 0)
            _call(_ADD, rules, 1, struct.pack("=Qi", allowed, at), 0)
            os.close(at)
    ctypes.CDLL(None).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    confined = _call(_RESTRICT, rules, 0) == 0
    os.close(rules)
    return confined
