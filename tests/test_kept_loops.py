"""Compiled loops on disk: a file that does not read as it was written counts as absent, whatever bit is wrong."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba
import pytest
from numba import types

from fencepost.files import loops
from fencepost.files.digest import intact, with_digest, without_digest
from fencepost.files.locks import lock
from fencepost.files.loops import files_of, inner, njit

CONFIG: Any = numba.config


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(CONFIG, "CACHE_DIR", str(tmp_path))
    return tmp_path


def times_three(number: int) -> int:
    return number * 3


def loaded() -> Any:
    """The loop as a new process has it."""
    return njit(times_three)


def damaged(content: bytes) -> Iterator[bytes]:
    """A file's content with one bit flipped, at many places, and cut off."""
    size = len(content)
    for place in sorted({*range(0, size, max(1, size // 24)), size // 2, size - 33, size - 32, size - 1}):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        yield bytes(changed)
    yield b""
    yield content[: size // 2]
    yield content[:-1]
    yield content + b"\0"


@pytest.mark.parametrize("which", [0, 1])
def test_a_damaged_file_is_compiled_again(which: int) -> None:
    assert loaded()(14) == 42
    again = loaded()
    assert again(14) == 42 and again.stats.cache_hits and not again.stats.cache_misses
    path = files_of(again, (types.int64,))[which]
    content = path.read_bytes()
    for changed in damaged(content):
        path.write_bytes(changed)
        loop = loaded()
        assert loop(14) == 42 and loop.stats.cache_misses and not loop.stats.cache_hits
        assert intact(path) and all(map(intact, files_of(loaded(), (types.int64,))))
    path.unlink()
    assert loaded()(14) == 42 and intact(path)


def test_what_is_damaged_may_be_what_another_loop_calls() -> None:
    called = inner(times_three)

    def caller(number: int) -> int:
        return int(called(number)) + 1

    assert njit(caller)(2) == 7
    for path in Path(CONFIG.CACHE_DIR).rglob("*times_three*.nbc"):
        path.write_bytes(path.read_bytes()[:-1])
    called = inner(times_three)
    assert njit(caller)(2.0) == 7.0


def test_loops_that_are_not_kept_have_no_files() -> None:
    with pytest.raises(FileNotFoundError):
        files_of(loaded(), (types.int64,))


def test_a_file_is_written_while_no_other_process_writes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def watched(content: bytes) -> bytes:
        (path,) = folder.rglob("*.lock")
        with path.open("ab") as file:
            try:
                lock(file.fileno(), wait=False)
            except BlockingIOError:
                tried.append(path)
        return with_digest(content)

    monkeypatch.setattr(loops, "with_digest", watched)
    assert loaded()(14) == 42
    assert len(tried) == 2


def compile_for(kind: Any, start: Any, folder: str) -> None:
    CONFIG.CACHE_DIR = folder
    start.wait()
    njit(times_three).compile((kind,))


def test_processes_that_compile_a_loop_for_different_types_keep_all(folder: Path) -> None:
    kinds = (types.int8, types.int16, types.int32, types.int64, types.float32, types.float64)
    context = multiprocessing.get_context("fork")
    start = context.Barrier(len(kinds))
    processes = [context.Process(target=compile_for, args=(kind, start, str(folder))) for kind in kinds]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    files = [files_of(loaded(), (kind,)) for kind in kinds]
    assert len({data for _, data in files}) == len(kinds)
    for kind in kinds:
        loop = loaded()
        loop.compile((kind,))
        assert loop.stats.cache_hits and list(loop.overloads) == [(kind,)]


@pytest.mark.parametrize("content", [b"", b"\0", b"a loop" * 100])
def test_content_with_its_digest(content: bytes, folder: Path) -> None:
    assert without_digest(with_digest(content)) == content
    for changed in damaged(with_digest(content)):
        assert without_digest(changed) is None
    assert not intact(folder) and not intact(folder / "missing")
