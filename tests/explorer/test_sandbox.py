"""What a process can no longer do once it evaluates typed expressions."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from fencepost.explorer import sandbox
from fencepost.explorer.forkserver import ForkServer

LANDLOCK = sandbox._version() >= 1


def answers(*questions: Callable[[], object], enter: Callable[[], None]) -> list[object]:
    """The answer to each question in a process inside the sandbox. For an error, its class."""

    def job(line: Connection) -> None:
        enter()
        for question in questions:
            try:
                line.send(question())
            except Exception as error:
                line.send(type(error).__name__)

    forkserver = ForkServer([job])
    try:
        worker = forkserver.start(0)
        return [worker.line.recv() for _ in questions]
    finally:
        forkserver.close()


def test_nothing_is_written_run_or_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "known")
    kept = tmp_path / "kept"
    kept.write_text("before")

    def overwrite() -> object:
        with open(kept, "r+") as file:
            file.write("after")
        return "written"

    found = answers(
        lambda: dict(os.environ),
        lambda: (tmp_path / "new").write_text("x"),
        overwrite,
        lambda: subprocess.run(["true"], check=False).returncode,
        lambda: os.execv("/bin/true", ["true"]),
        lambda: len(bytearray(1 << 32)),
        lambda: os.fork() or os._exit(0),
        lambda: os.kill(os.getppid(), 0),
        lambda: __import__("xdrlib" if sys.version_info < (3, 12) else "colorsys").__name__,
        enter=lambda: sandbox.enter(1 << 28),
    )
    assert found[0] == {}
    assert {found[1], found[2]} <= {"PermissionError", "OSError"}
    if LANDLOCK:
        assert found[3:5] == ["PermissionError", "PermissionError"]
    assert found[5] == "MemoryError"
    assert found[6:8] == ["PermissionError", "PermissionError" if sandbox._version() >= 6 else None]
    assert found[8] in ("xdrlib", "colorsys")
    assert kept.read_text() == "before"


def test_garbage_is_no_room_beyond_the_limit() -> None:
    circle: list[object] = [mmap.mmap(-1, 1 << 33)]
    circle.append(circle)
    gc.disable()
    try:
        del circle
        found = answers(gc.collect, lambda: len(bytearray(1 << 32)), enter=lambda: sandbox.enter(1 << 28))
    finally:
        gc.enable()
    assert found[1] == "MemoryError"


@pytest.mark.skipif(not LANDLOCK, reason="this system has no Landlock")
def test_nothing_is_read_but_modules(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        found = answers(
            lambda: (tmp_path / "secret").read_text(),
            lambda: Path("/etc/passwd").read_text(),
            lambda: Path("/proc/self/environ").read_bytes(),
            lambda: os.listdir("/"),
            lambda: bool(Path(os.__file__).read_text()),
            lambda: socket.socket().connect_ex(address),
            enter=lambda: sandbox.enter(1 << 28),
        )
    assert found[:5] == ["PermissionError"] * 4 + [True]
    assert found[5] == (errno.EACCES if sandbox._version() >= 4 else 0)


@pytest.mark.skipif(not LANDLOCK, reason="this system has no Landlock")
def test_a_search_runs_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "known")
    found = answers(
        lambda: os.environ.get("SECRET"),
        lambda: os.execv("/bin/true", ["true"]),
        lambda: (tmp_path / "cache").write_text("x"),
        enter=sandbox.without_programs,
    )
    assert found == [None, "PermissionError", 1]
