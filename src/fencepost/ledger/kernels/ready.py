"""Compiled loops for a process that must not wait for them.

To import a module of loops is to compile it, or to load what was compiled before from a cache on disk. Loading takes a
second, compiling ten or more, and the interpreter does little else meanwhile. So a process that serves begins without
loops, and calls :func:`begin` once it has enough to do for them: they take some 100 MiB of memory. A thread loads them
if they are in the cache. If not, it has them compiled by one other process of the lowest priority, and loads them when
that is done; of all processes of a machine that share a cache only one does so, and the others wait for it. What
cannot be had is said in one line of the log, and then the process goes on without.

``FENCEPOST_LOOPS=plain`` in the environment: do without. ``FENCEPOST_LOOPS=compiled``: :func:`begin` comes back when
they are there, even if they have to be compiled at once.
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

Ready = Callable[[list[ModuleType]], None]
"""The functions that are called with the modules, in their order, by a thread of its own."""

_log = logging.getLogger("fencepost.ledger.kernels")


_had: set[str] = set()


class _NotCompiledError(Exception):
    """A loop is not in the cache."""


def begin(names: Sequence[str], ready: Ready) -> None:
    """Get modules of loops ready without letting the caller wait; ``ready`` is called once all of them are, or
    never.
    """
    wish = os.environ.get(ENVIRONMENT, "")
    if wish == "compiled":
        _hand_over([importlib.import_module(name) for name in names], ready)
    elif wish != "plain":
        threading.Thread(target=_get, args=(list(names), ready), name="loops", daemon=True).start()


def is_wanted_at_once() -> bool:
    """Whether loops are to be there before they are worth it."""
    return os.environ.get(ENVIRONMENT) == "compiled"


def has(name: str) -> bool:
    """Whether a module of loops was got ready: it may be imported by anybody without waiting."""
    return name in _had


def _hand_over(modules: list[ModuleType], ready: Ready) -> None:
    _had.update(module.__name__ for module in modules)
    ready(modules)


def _get(names: list[str], ready: Ready) -> None:
    try:
        try:
            modules = load(names)
        except _NotCompiledError:
            with _lock(_cache()):
                try:
                    modules = load(names)  # compiled by another process, for which this one has waited
                except _NotCompiledError:
                    _have_compiled(names)
                    modules = load(names)
    except _NotCompiledError:
        _log.warning("the loops were compiled and are not in %s: the process goes on without them", _cache())
    except Exception as error:  # whatever it is: nobody depends on it
        _log.warning(
            "the loops cannot be had, and the process goes on without them: %s (NUMBA_CACHE_DIR says where they are"
            " kept)",
            error,
        )
    else:
        _hand_over(modules, ready)


def load(names: Sequence[str]) -> list[ModuleType]:
    """Import modules of loops, if they are in the cache as their sources are now.

    Raises an error if they are not: nothing is compiled in this thread.
    """
    from numba.core import event

    class Refuse(event.Listener):
        def __init__(self) -> None:
            self.thread = threading.get_ident()

        def on_start(self, event: object) -> None:
            if threading.get_ident() == self.thread:
                raise _NotCompiledError

        def on_end(self, event: object) -> None:
            pass

    if not _stamp(names).exists():
        raise _NotCompiledError
    with event.install_listener("numba:compile", Refuse()):
        return [importlib.import_module(name) for name in names]


def compile_now(names: Sequence[str]) -> None:
    """Compile modules of loops into the cache, in this process; what is there of other sources is thrown away before.

    Numba looks at the file alone that a loop is in, and not at those that it has functions from.
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


def _have_compiled(names: Sequence[str]) -> None:
    """Compile modules of loops in another process, of the lowest priority. It goes on if this one ends."""
    command = [sys.executable, "-m", f"{__package__}.ready", *names]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, start_new_session=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
        raise RuntimeError(f"they cannot be compiled: {lines[-1]}")


def _cache() -> Path:
    """The folder in which Numba keeps what was compiled of this package."""
    from fencepost.ledger.kernels import native

    return Path(native.crc32c.stats.cache_path)


def _stamp(names: Sequence[str]) -> Path:
    """The file that says that modules are in the cache, as their sources are now."""
    hashed = hashlib.sha256()
    for name in sorted({*_modules(), *names}):
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.origin is not None
        hashed.update(Path(spec.origin).read_bytes())
    of_names = hashlib.sha256(" ".join(sorted(names)).encode()).hexdigest()
    return _cache() / f"{of_names[:20]}-{hashed.hexdigest()[:20]}.loops"


def _modules() -> list[str]:
    """All modules of this package, which loops may have functions from."""
    return [f"{__package__}.{path.stem}" for path in Path(__file__).parent.glob("*.py") if path.stem != "__init__"]


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Be the only process of the machine that has a folder."""
    with open(folder / "LOCK", "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    os.nice(19)
    compile_now(sys.argv[1:])
