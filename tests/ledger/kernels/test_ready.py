"""Loops that are compiled while a process serves: once, by another process, never by the one that needs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost.ledger.kernels import ready

MODULE = """
from fencepost.files.loops import inner, njit

@inner
def more(number):
    return number + ADDED

@njit("int64(int64)")
def after(number):
    return more(number)
"""

SCRIPT = """
import logging, sys, threading
from fencepost.ledger.kernels import ready
logging.basicConfig(format="%(message)s")
got = threading.Event()
modules = []
ready.begin(["small_loops"], lambda found: (modules.extend(found), got.set()))
is_there_at_once = got.is_set()
for thread in threading.enumerate():
    if thread.name == "loops":
        thread.join()
hits = sum(modules[0].after.stats.cache_hits.values()) if modules else 0
print(modules[0].after(1) if modules else None, hits, is_there_at_once)
"""


def write(folder: Path, added: int) -> None:
    path = folder / "small_loops.py"
    path.write_text(f"ADDED = {added}\n{MODULE}")
    os.utime(path, (1, 1))  # as an installer leaves it: all files have one age


def run(folder: Path, **environment: str) -> tuple[str, str]:
    """The output and the log of a process that gets the loops ready."""
    paths = os.pathsep.join([str(folder), *filter(None, sys.path)])
    given = {
        "PYTHONPATH": paths,
        "NUMBA_CACHE_DIR": str(folder / "cache"),
        "PATH": os.environ["PATH"],
        "PYTHONDONTWRITEBYTECODE": "1",
        **environment,
    }
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=given, capture_output=True, text=True, check=True)
    return done.stdout.strip(), done.stderr.strip()


@pytest.mark.campaign
def test_loops_are_compiled_by_another_process_once_and_anew_when_their_sources_change(tmp_path: Path) -> None:
    write(tmp_path, 1)
    assert run(tmp_path) == ("2 1 False", "")
    assert run(tmp_path) == ("2 1 False", "")
    write(tmp_path, 5)
    assert run(tmp_path) == ("6 1 False", "")


def test_a_process_may_be_told_to_do_without_or_to_wait(tmp_path: Path) -> None:
    write(tmp_path, 1)
    assert run(tmp_path, FENCEPOST_LOOPS="plain") == ("None 0 False", "")
    assert run(tmp_path, FENCEPOST_LOOPS="compiled") == ("2 0 True", "")


def test_what_can_not_be_compiled_or_kept_is_said_and_hinders_nobody(tmp_path: Path) -> None:
    (tmp_path / "small_loops.py").write_text("raise RuntimeError('there is no room')")
    said, log = run(tmp_path)
    assert (
        said == "None 0 False"
        and "the process goes on without them: they cannot be compiled: RuntimeError: there is no room" in log
    )


def test_threads_take_quick_turns_while_loops_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "told_turns.py").write_text("import sys\nTURN = sys.getswitchinterval()\n")
    (tmp_path / "told_nothing.py").write_text("raise RuntimeError\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(ready, "_stamp", lambda names: tmp_path)
    before = sys.getswitchinterval()
    (module,) = ready.load(["told_turns"])
    assert module.TURN == pytest.approx(ready.TURN) and ready.TURN < before == sys.getswitchinterval()
    with pytest.raises(RuntimeError):
        ready.load(["told_nothing"])
    assert sys.getswitchinterval() == before
