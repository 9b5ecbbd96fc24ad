"""Loops are compiled in other processes while the interpreted explorer goes on. When they are ready decides nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from checker.engines.random_protocols import seeded
from numba import typeof
from numba.core.dispatcher import Dispatcher

import fencepost
from fencepost.checker.compiler import canonical, native
from fencepost.checker.engines import ahead, kernel, recording, walks, warm
from fencepost.checker.engines.ahead import GRAPH, PARTS, SEARCH, STEPS, TABLES, Ahead, Cache, needed
from fencepost.files.digest import with_digest
from fencepost.semantics import Stepper

CHECKING = import_module("fencepost.api.check")
NO_PART = {"renew", "mark_steps", "labelled_keys"}
"""Loops that few searches call. They are compiled when they are called."""


# -- what is compiled -------------------------------------------------------------------------------------------------


class Counter(fencepost.Protocol):
    n: int = fencepost.state(0)

    @fencepost.action
    def add(self) -> None:
        fencepost.require(self.n < 9)
        self.n += 1


class Heights(fencepost.Protocol):
    """Of its states, each level has more than the one before."""

    a: int = fencepost.state(0)
    b: int = fencepost.state(0)
    c: int = fencepost.state(0)

    @fencepost.action(which=("a", "b", "c"))
    def add(self, which: str) -> None:
        setattr(self, which, getattr(self, which) + fencepost.one_of((1, 2)))


def checks() -> Iterator[Callable[[], Any]]:
    """Searches that call the loops of all parts between them."""
    ours: dict[str, Any] = {"engine": "embedded", "configuration": "small", "max_depth": 14}
    yield partial(fencepost.check, "ledger-chaining", workers=1, **ours)
    yield partial(fencepost.check, "ledger-chaining", workers=2, bits=128, **ours)
    yield lambda: fencepost.check("kraft-kip-853", configuration="undisturbed", engine="embedded")
    yield lambda: fencepost.check(Counter(), engine="embedded")
    for seed in range(6):
        for temporal in (False, True):
            protocol = seeded(seed, temporal=temporal).build()
            yield partial(fencepost.check, protocol, engine="embedded", max_depth=5)
            yield partial(fencepost.check, protocol, engine="simulate", seed=1, walks=2, depth=5)
    yield partial(fencepost.check, "ledger-chaining", engine="simulate", seed=1, walks=2)


def test_loops_are_compiled_for_the_types_with_which_they_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    for run in checks():  # a loop that is compiled now must find those that it calls
        run()
    called: dict[str, set[Any]] = defaultdict(set)

    def watched(name: str, loop: Any) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            called[name].add(tuple(map(typeof, arguments)))
            return loop(*arguments)

        return call

    for module in (native, canonical, kernel, recording, walks):
        for name, loop in list(vars(module).items()):
            if isinstance(loop, Dispatcher):
                monkeypatch.setattr(module, name, watched(name, loop))
    for run in checks():
        run()
    monkeypatch.undo()
    compiled: dict[str, set[Any]] = defaultdict(set)
    for part in PARTS:
        for loop, arguments in warm.calls(part):
            compiled[loop.py_func.__name__].add(tuple(map(typeof, arguments)))
    assert {"expand", "complete", "list_truths", "link", "wander"} <= called.keys()
    assert called.keys() <= compiled.keys() | NO_PART
    for name in called.keys() - NO_PART:
        assert called[name] <= compiled[name], name


def test_a_search_needs_the_parts_of_what_it_judges() -> None:
    assert needed(Stepper(Counter())) == [SEARCH, TABLES]
    kraft = fencepost.check("kraft-kip-853", configuration="undisturbed", max_states=1).protocol
    assert set(needed(Stepper(kraft))) >= {TABLES, GRAPH}
    stepwise = fencepost.check("bookkeeper-4.13", max_states=1).protocol
    assert STEPS in needed(Stepper(stepwise)) and SEARCH not in needed(Stepper(stepwise))


# -- the cache --------------------------------------------------------------------------------------------------------


class Loop:
    """A loop that counts how often it is compiled, into two files."""

    times = 0

    def __init__(self, files: list[Path]) -> None:
        self.files = files

    def compile(self, types: tuple[Any, ...]) -> None:
        self.times += 1
        for file in self.files:
            file.write_bytes(with_digest(b"a compiled loop"))


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loop:
    loop = Loop([tmp_path / "loops/kernel.loop.nbi", tmp_path / "loops/kernel.loop.1.nbc"])
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(warm, "calls", lambda part: [(loop, (0,))])
    monkeypatch.setattr(warm, "files_of", lambda loop, types: loop.files)
    monkeypatch.setattr(warm, "folders", lambda: {tmp_path / "loops"})
    (tmp_path / "loops").mkdir()
    return loop


def test_a_part_is_compiled_once(loop: Loop) -> None:
    for parts, times in (([TABLES], 1), ([TABLES], 1), ([TABLES, GRAPH], 2), (PARTS, 5)):
        warm.warm(parts, Cache())
        assert loop.times == times
        assert not Cache().missing(parts)


def test_a_part_with_a_damaged_file_is_compiled_again(loop: Loop) -> None:
    warm.warm(PARTS, Cache())
    (index,) = Cache().folder.glob("*-graph.loops")
    for path in (*loop.files, index):
        content = path.read_bytes()
        for place in (0, len(content) // 2, len(content) - 32, len(content) - 1):
            changed = bytearray(content)
            changed[place] ^= 16
            path.write_bytes(changed)
            assert Cache().missing([GRAPH]) == [GRAPH]
            assert Cache().missing([TABLES]) == ([] if path == index else [TABLES])
            times = loop.times
            warm.warm([GRAPH], Cache())
            assert loop.times == times + 1 and not Cache().missing(PARTS)
        path.unlink()
        assert Cache().missing([GRAPH]) == [GRAPH]
        warm.warm([GRAPH], Cache())


def test_a_cache_can_be_moved(loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop.files = [tmp_path / "cache/kernels/kernel.loop.nbi"]
    loop.files[0].parent.mkdir(parents=True)
    warm.warm([GRAPH], Cache())
    (tmp_path / "cache").rename(tmp_path / "moved")
    assert Cache().missing([GRAPH]) == [GRAPH]
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "moved"))
    assert not Cache().missing([GRAPH])


def test_what_other_sources_were_compiled_to_is_forgotten(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, other = tmp_path / "loops/kernel.expand-486.py311.nbi", tmp_path / "loops/server.run-1.py311.nbi"
    warm.warm([TABLES], Cache())
    old.touch()
    other.touch()
    warm.warm([SEARCH], Cache())
    assert old.exists()
    package = tmp_path / "package"
    for source in ahead._SOURCES:
        copy = package / "fencepost" / source
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((ahead._PACKAGE / "fencepost" / source).read_bytes())
    keys = []
    for changed in ("", *ahead._SOURCES):
        if changed:
            (package / "fencepost" / changed).open("a").write("\n")
        with monkeypatch.context() as patch:
            patch.setattr(ahead, "_PACKAGE", package)
            keys.append(Cache().key)
            if changed == ahead._SOURCES[-1]:
                assert Cache().missing(PARTS) == list(PARTS)
                warm.warm([TABLES], Cache())
    assert len(set(keys)) == len(keys)
    assert not old.exists() and other.exists() and loop.times == 3
    assert Cache().missing([TABLES]) == [TABLES]


def test_all_that_is_compiled_is_among_the_sources() -> None:
    named = {f"fencepost.{source[:-3].replace('/', '.')}" for source in ahead._SOURCES}
    modules = [import_module(name) for name in named]
    for part in PARTS:
        for loop, _ in warm.calls(part):
            assert loop.py_func.__module__ in named
    used = {
        value.py_func.__module__
        for module in modules
        for value in vars(module).values()
        if isinstance(value, Dispatcher)
    }
    assert used <= named


def test_without_a_folder_to_write_to_there_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file/below"))
    with pytest.raises(OSError, match=r"file/below cannot be written"):
        Cache().folder  # noqa: B018


# -- the processes ----------------------------------------------------------------------------------------------------


def test_processes_get_all_parts_between_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = f"import sys, os; open({str(tmp_path)!r} + f'/{{os.getpid()}}', 'w').write(' '.join(sys.argv[1:]))"
    for cores, processes in ((1, 1), (2, 2), (64, 2)):
        monkeypatch.setattr(ahead, "cores", lambda cores=cores: cores)
        compiling = Ahead(PARTS, [sys.executable, "-c", program])
        assert compiling.wait(lambda: None, None) > 0 and not compiling.failed
        said = [path.read_text().split() for path in tmp_path.iterdir()]
        assert len(said) == processes and sorted(part for parts in said for part in parts) == sorted(PARTS)
        for path in tmp_path.iterdir():
            path.unlink()


@pytest.mark.parametrize("command", [[sys.executable, "-c", "raise SystemExit(3)"], ["/no/such/program"]])
def test_what_cannot_compile_has_ended_and_failed(command: list[str]) -> None:
    compiling = Ahead([TABLES], command)
    compiling.wait(lambda: None, None)
    assert compiling.ended and compiling.failed


def test_a_wait_is_reported_and_can_be_ended() -> None:
    told: list[str] = []
    compiling = Ahead([GRAPH], [sys.executable, "-c", "input()"])
    compiling.processes = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)]

    def look() -> None:
        if len(told) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compiling.wait(look, lambda progress: told.append(progress.doing))
    assert told == ["compiling more loops"] * 2
    (process,) = compiling.processes
    compiling.close()
    assert os.getpriority(os.PRIO_PROCESS, process.pid) == 19
    process.returncode = None
    process.communicate(b"\n")


# -- a check ----------------------------------------------------------------------------------------------------------


class Compiling:
    """Processes that have compiled everything when looked at often enough. Waiting takes a million seconds."""

    looks = 0

    def __init__(self, parts: list[str]) -> None:
        self.left = self.looks
        self.closed = False
        started.append(self)

    @property
    def ended(self) -> bool:
        self.left -= 1
        return self.left < 0

    def wait(self, look: Callable[[], object], report: object) -> float:
        while not self.ended:
            look()
        return 1e6

    def close(self) -> None:
        self.closed = True


started: list[Compiling] = []


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> type[Compiling]:
    """The loops are not compiled, and the protocol is too large for the interpreted explorer."""
    started.clear()
    monkeypatch.setattr(ahead, "Ahead", Compiling)
    monkeypatch.setattr(Cache, "missing", lambda self, parts: list(parts))
    monkeypatch.setattr(CHECKING, "WHILE_COMPILING", 60_000)
    monkeypatch.setattr(CHECKING, "SMALL", {"calls": 40, "queued": 10, "orbits": 10, "states": 20})
    monkeypatch.setattr(CHECKING, "cores", lambda: 2)
    return Compiling


COST = ("seconds", "compiling", "states_per_second", "peak_memory_bytes", "evaluations", "engine", "workers")


def answer(result: fencepost.Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.to_json())
    return {name: part for name, part in found.items() if name not in COST}


@pytest.mark.parametrize("looks", [0, 2, 1 << 40])
@pytest.mark.parametrize("seed", range(5))
def test_the_moment_at_which_everything_is_compiled_decides_nothing(
    uncompiled: type[Compiling], monkeypatch: pytest.MonkeyPatch, seed: int, looks: int
) -> None:
    monkeypatch.setattr(uncompiled, "looks", looks)
    options: dict[str, Any] = {"keep_going": seed % 2 == 0, "deadlock": seed % 3 == 0, "max_depth": 6}
    protocol = seeded(40_000 + seed, temporal=seed == 3).build() if seed < 4 else Heights()
    plain = fencepost.check(protocol, engine="reference", **options)
    result = fencepost.check(protocol, **options)
    assert answer(result) == answer(plain)
    assert len(started) <= 1 and all(each.closed for each in started)
    if seed == 4:
        assert result.engine == ("embedded" if looks < 3 else "interpreted")
        assert result.compiling >= (1e6 if looks < 3 else 0.0)


def test_what_is_larger_waits_for_the_loops(uncompiled: type[Compiling], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uncompiled, "looks", 1_000)
    monkeypatch.setattr(CHECKING, "WHILE_COMPILING", 100)
    result = fencepost.check(Heights(), max_depth=7)
    assert result.engine == "embedded" and result.compiling >= 1e6
    assert result.states_per_second == 0.0


def test_one_core_is_left_to_the_compiler(uncompiled: type[Compiling], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CHECKING, "cores", lambda: 1)
    monkeypatch.setattr(uncompiled, "looks", 1_000)
    assert fencepost.check(Heights(), max_depth=7).engine == "embedded"
    assert started[0].left < 0


def test_a_limit_on_time_ends_the_wait(uncompiled: type[Compiling], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uncompiled, "looks", 1 << 60)
    result = fencepost.check(Counter(), engine="embedded", timeout=0.05)
    assert result.limit == "the time limit of 0.05 seconds" and not result.complete
    assert started[0].closed
