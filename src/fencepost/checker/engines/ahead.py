"""Compiles the loops of a search ahead of it, in processes of their own: the first time on a machine, this takes long.

The compiler holds Python's lock, so it runs beside the search only in another process. Two of them, on two cores, share
the work. Each compiles **parts** (:mod:`.warm`) into Numba's cache on disk, and leaves a file that says so. A search
loads from there what it needs. Where no process can compile, Numba compiles in this one, loop by loop.

This module imports neither NumPy nor Numba.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fencepost.checker.engines.interface import COMPILING, MORE, Progress, Report
from fencepost.checker.engines.resources import cores
from fencepost.files.digest import intact, with_digest, without_digest

if TYPE_CHECKING:
    from fencepost.semantics import Stepper

TABLES, SEARCH, STEPS, GRAPH, WALKS = "tables", "search", "steps", "graph", "walks"
"""The parts: growing tries and completing states; expanding and sorting levels; the same with step properties;
recording the graph for temporal properties; random walks.
"""
PARTS = (TABLES, SEARCH, STEPS, GRAPH, WALKS)

FEW = 2
"""The most processes that compile at once."""

TICK = 0.05
"""Seconds between two looks at the processes."""

_PACKAGE = Path(__file__).resolve().parents[3]

COMPILED = ("native", "canonical", "kernel", "recording", "walks")
"""The modules whose loops are kept in the cache under these names."""

_SOURCES = (
    *(f"checker/compiler/{name}.py" for name in ("native", "canonical", "encoding", "instructions", "arrays")),
    *(f"checker/engines/{name}.py" for name in ("kernel", "recording", "walks", "warm")),
    *(f"semantics/{name}.py" for name in ("slots", "labelling")),
    "language/context.py",
    "files/loops.py",
)
"""Everything that is compiled, and the constants in it. Numba looks only at the file of a loop, and not at those whose
functions it uses.
"""


class Cache:
    """What is known to be in Numba's cache, of the present sources for this machine. For each part, a file lists the
    files there. The part is missing if one of them is damaged or gone.
    """

    def __init__(self) -> None:
        own = _PACKAGE / "fencepost/checker/compiler/__pycache__"
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "numba"
        given = os.environ.get("NUMBA_CACHE_DIR")
        self.folders = [Path(given)] if given else [own, home]

    @cached_property
    def key(self) -> str:
        """Names the sources, the versions and the processor that compiled loops are for."""
        hashed = hashlib.sha256(repr((str(_PACKAGE), sys.version, _versions(), _processor())).encode())
        for source in _SOURCES:
            hashed.update((_PACKAGE / "fencepost" / source).read_bytes())
        return hashed.hexdigest()[:20]

    def missing(self, parts: Sequence[str]) -> list[str]:
        """The parts that are not known to be compiled."""
        return [part for part in parts if not any(self._has(folder, part) for folder in self.folders)]

    def note(self, part: str, files: Iterable[Path] = ()) -> None:
        """Record that a part is compiled, into these files."""
        names = sorted({os.path.relpath(file, self.folder) for file in files})
        self._file(self.folder, part).write_bytes(with_digest("\n".join(names).encode()))

    def _has(self, folder: Path, part: str) -> bool:
        """Whether a part is recorded in a folder, and its files read as they were written."""
        try:
            names = without_digest(self._file(folder, part).read_bytes())
        except OSError:
            return False
        return names is not None and all(intact(folder / name) for name in names.decode().splitlines())

    @cached_property
    def folder(self) -> Path:
        """The folder to write to: the first that can be written. Raises OSError if none can."""
        for folder in self.folders:
            with suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                self._file(folder, "writable").touch()
                return folder
        raise OSError(f"{self.folders[-1]} cannot be written")

    def _file(self, folder: Path, part: str) -> Path:
        return folder / f"fencepost-{self.key}-{part}.loops"


def _versions() -> list[str]:
    from importlib.metadata import PackageNotFoundError, version  # takes some time to import

    found = []
    for package in ("numba", "llvmlite", "numpy"):
        with suppress(PackageNotFoundError):
            found.append(version(package))
    return found


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", "rb") as file:
            first = file.read(1 << 14).split(b"\n\n")[0].splitlines()
        named = (b"vendor_id", b"cpu family", b"model", b"stepping", b"flags", b"Features", b"CPU part")
        return repr([line for line in first if line.startswith(named)])
    except OSError:
        return f"{platform.machine()} {platform.processor()}"


def needed(stepper: Stepper) -> list[str]:
    """The parts that a search on the embedded engine needs. Loops for what few searches have are not among them: they
    are compiled when they are called.
    """
    parts = [STEPS if any(root.reads_step for root in stepper.roots) else SEARCH, TABLES]
    return [*parts, GRAPH] if stepper.promises else parts


class Ahead:
    """Processes that compile these parts. They begin at once. ``command`` starts one; the names of parts follow it."""

    def __init__(self, parts: Sequence[str], command: Sequence[str] | None = None) -> None:
        self.began = time.monotonic()
        self.notice = COMPILING if TABLES in parts else MORE
        command = command or [sys.executable, "-m", f"{__package__}.warm"]
        paths = [str(_PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        self.processes: list[subprocess.Popen[bytes]] = []
        together = min(FEW, cores())
        for share in filter(None, (parts[at::together] for at in range(together))):
            with suppress(OSError):
                self.processes.append(
                    subprocess.Popen(
                        [*command, *share], env=environment, start_new_session=True,
                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                    )
                )  # fmt: skip

    @property
    def ended(self) -> bool:
        """Whether no process is compiling any more."""
        return all(process.poll() is not None for process in self.processes)

    @property
    def failed(self) -> bool:
        """Whether something could not be compiled."""
        return not self.processes or any(process.poll() for process in self.processes)

    def wait(self, look: Callable[[], object], report: Report | None) -> float:
        """Wait for the processes. Calls ``look``, which may raise, and ``report`` meanwhile. Returns the seconds since
        they began.
        """
        while not self.ended:
            look()
            if report is not None:
                report(Progress(seconds=time.monotonic() - self.began, doing=self.notice))
            time.sleep(TICK)
        return time.monotonic() - self.began

    def close(self) -> None:
        """Let the processes finish for the next search, at the lowest priority."""
        for process in self.processes:
            if process.poll() is None:
                with suppress(OSError):
                    os.setpriority(os.PRIO_PROCESS, process.pid, 19)
                process.returncode = 0  # nobody waits for it, and Python does not warn of it
