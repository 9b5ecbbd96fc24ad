"""Loads the compiled loops without blocking the process.

Importing a module of loops compiles it, or loads it from a cache on disk. Loading takes a second and compiling ten or
more; the interpreter does little else meanwhile. So a server starts without loops, and calls :func:`begin` once its
load justifies their 100 MiB of memory. A thread then loads them from the cache. If they are not there, a separate
process of the lowest priority compiles them first. Of all processes on a machine that share a cache, only one compiles,
and the others wait for it. A failure is logged in one line, and the process goes on without loops.

Environment: ``FENCEPOST_LOOPS=plain`` disables the loops. ``FENCEPOST_LOOPS=compiled`` makes :func:`begin` block until
they are loaded, even if they have to be compiled.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import importlib.util
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

ENVIRONMENT = "FENCEPOST_LOOPS"

TURN = 0.0002
"""Seconds for which a thread may run while another waits for its turn, as long as loops are being loaded."""

Ready = Callable[[list[ModuleType]], None]
"""A function that receives the modules, in their order, on a separate thread."""

_log = logging.getLogger("fencepost.ledger.kernels")


_loaded: set[str] = set()
_turns = threading.Lock()


class _NotCompiledError(Exception):
    """A loop is not in the cache."""


def begin(names: Sequence[str], ready: Ready) -> None:
    """Load modules of loops in the background. ``ready`` is called once all are loaded, or never."""
    setting = os.environ.get(ENVIRONMENT, "")
    if setting == "compiled":
        _report_loaded([importlib.import_module(name) for name in names], ready)
    elif setting != "plain":
        threading.Thread(target=_load_or_compile, args=(list(names), ready), name="loops", daemon=True).start()


def is_required() -> bool:
    """Whether the environment asks for the loops from the start."""
    return os.environ.get(ENVIRONMENT) == "compiled"


def is_loaded(name: str) -> bool:
    """Whether a module of loops is loaded, so that importing it does not block."""
    return name in _loaded


def _report_loaded(modules: list[ModuleType], ready: Ready) -> None:
    _loaded.update(module.__name__ for module in modules)
    ready(modules)


def _load_or_compile(names: list[str], ready: Ready) -> None:
    try:
        try:
            modules = load(names)
        except _NotCompiledError:
            with _lock(_cache()):
                try:
                    modules = load(names)  # another process compiled them while this one waited
                except _NotCompiledError:
                    _compile_in_subprocess(names)
                    modules = load(names)
    except _NotCompiledError:
        _log.warning("the loops were compiled and are not in %s: the process goes on without them", _cache())
    except Exception as error:  # nothing depends on the loops
        _log.warning(
            "the loops cannot be loaded, and the process goes on without them: %s (NUMBA_CACHE_DIR says where they are"
            " kept)",
            error,
        )
    else:
        _report_loaded(modules, ready)


@contextmanager
def _quick_turns() -> Iterator[None]:
    """Let threads take turns quickly. Importing reads a thousand files, and after each read this thread waits for its
    turn. While another thread is busy, loading takes eight seconds by Python's own turns, and one by these.
    """
    with _turns:
        before = sys.getswitchinterval()
        sys.setswitchinterval(min(before, TURN))
        try:
            yield
        finally:
            sys.setswitchinterval(before)


@_quick_turns()
def load(names: Sequence[str]) -> list[ModuleType]:
    """Import modules of loops if the cache has them for the current sources.

    Raises an error if not. Nothing is compiled on this thread.
    """
    from numba.core import event

    class RefuseToCompile(event.Listener):
        def __init__(self) -> None:
            self.thread = threading.get_ident()

        def on_start(self, event: object) -> None:
            if threading.get_ident() == self.thread:
                raise _NotCompiledError

        def on_end(self, event: object) -> None:
            pass

    if not _stamp(names).exists():
        raise _NotCompiledError
    with event.install_listener("numba:compile", RefuseToCompile()):
        return [importlib.import_module(name) for name in names]


def compile_now(names: Sequence[str]) -> None:
    """Compile modules of loops into the cache, in this process. Results from other sources are deleted first.

    Numba checks only the source file of a loop, and not the files whose functions it uses.
    """
    stamp = _stamp(names)
    if not stamp.exists():
        for module in names:
            for index in _cache().glob(f"{module.rpartition('.')[2]}.*.nbi"):
                index.unlink(missing_ok=True)
    for name in names:
        importlib.import_module(name)
    for old in _cache().glob(f"{stamp.stem[:20]}*.loops"):
        old.unlink(missing_ok=True)
    stamp.touch()


def _compile_in_subprocess(names: Sequence[str]) -> None:
    """Compile modules of loops in another process of the lowest priority, which outlives this one."""
    command = [sys.executable, "-m", f"{__package__}.ready", *names]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, start_new_session=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
        raise RuntimeError(f"they cannot be compiled: {lines[-1]}")


def _cache() -> Path:
    """Numba's cache folder for this package."""
    from fencepost.ledger.kernels import native

    return Path(native.crc32c.stats.cache_path)


def _stamp(names: Sequence[str]) -> Path:
    """The file whose existence says that the cache has these modules for the current sources."""
    hashed = hashlib.sha256()
    for name in sorted({*_modules(), *names, "fencepost.files.loops"}):
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.origin is not None
        hashed.update(Path(spec.origin).read_bytes())
    of_names = hashlib.sha256(" ".join(sorted(names)).encode()).hexdigest()
    return _cache() / f"{of_names[:20]}-{hashed.hexdigest()[:20]}.loops"


def _modules() -> list[str]:
    """All modules of this package, because loops may use functions of any."""
    return [f"{__package__}.{path.stem}" for path in Path(__file__).parent.glob("*.py") if path.stem != "__init__"]


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Lock a folder against the other processes of the machine."""
    with open(folder / "LOCK", "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    os.nice(19)
    compile_now(sys.argv[1:])
