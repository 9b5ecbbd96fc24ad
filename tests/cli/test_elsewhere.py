"""The checker on macOS and Windows, as far as Linux can tell: :mod:`cli.elsewhere` takes away what they lack."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli import elsewhere
from cli.commandline import environment
from docs.documents import EXAMPLES
from patience import PATIENCE

import fencepost
from fencepost.cli.main import NEED_LINUX
from fencepost.errors import SystemFailure

SYSTEMS = ("darwin", "win32")
systems = pytest.mark.parametrize("system", SYSTEMS)


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    return shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__", ".*"))


def ran(system: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, elsewhere.__file__, system, *words],
        cwd=folder, env=environment(), capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip


@systems
def test_a_protocol_is_checked(system: str, examples: Path) -> None:
    done = ran(system, examples, "check", "lost_update.py", "--html", "page.html", "--json", "found.json")
    assert (done.returncode, done.stderr) == (12, "")
    assert done.stdout.startswith("VIOLATED  no_update_is_lost\n")
    assert json.loads((examples / "found.json").read_text())["distinct_states"] == 13
    assert (examples / "page.html").exists()


@systems
def test_a_save_is_checked(system: str, examples: Path) -> None:
    """In a process of its own, which is ended and whose memory is asked for. That process is one of Linux."""
    done = ran(system, examples, "watch", "--once", "lost_update.py")
    assert (done.returncode, done.stderr) == (12, "")
    assert done.stdout.startswith("  as declared  violates no_update_is_lost  13 states\n")


@systems
def test_a_larger_one_is_found_violated_in_as_many_steps(system: str, tmp_path: Path) -> None:
    # While the loops are compiled for the first time, the interpreted engine may be sooner.
    engine = [] if system == "win32" else ["--engine", "embedded"]
    words = ["bookkeeper-4.13", "--config", "defect-1-small", "--json", "found.json", *engine]
    done = ran(system, tmp_path, "check", *words)
    assert done.returncode == 12
    assert ("interpreted engine" if system == "win32" else "embedded engine") in done.stdout
    assert len(json.loads((tmp_path / "found.json").read_text())["violation"]["trace"]) == 16


@systems
def test_memory_is_counted_in_bytes(system: str, tmp_path: Path) -> None:
    (tmp_path / "count.py").write_text(
        "from fencepost.checker.engines import resources as r\n"
        "print(r.physical_memory(), r.resident_memory(), r.peak_memory())\n"
    )
    physical, now, most = map(int, ran(system, tmp_path, "python", "count.py").stdout.split())
    if system == "win32":
        assert (physical, now, most) == (8 * elsewhere.GIB, elsewhere.GIB, 2 * elsewhere.GIB)
    else:  # this machine counts in KiB, and macOS in bytes
        assert now == most and 20_000 < most < 20_000_000


MAINS = """
from fencepost.cli.main import main
print([main(words) for words in {words}])
"""


def all_ran(system: str, folder: Path, *commands: list[str]) -> tuple[list[int], list[str]]:
    """The exit codes of commands, one after the other in one process, and the lines of their errors."""
    (folder / "mains.py").write_text(MAINS.format(words=[*commands]))
    done = ran(system, folder, "python", "mains.py")
    return json.loads(done.stdout.splitlines()[-1]), done.stderr.splitlines()


@systems
def test_other_commands_say_nothing_of_systems(system: str, examples: Path) -> None:
    commands = [["list"], ["show", "bookkeeper"], ["completion", "bash"], ["show", "Lock.tla"], ["user", "--help"]]
    assert all_ran(system, examples, *commands) == ([0] * len(commands), [])


@systems
def test_the_store_says_that_it_needs_linux(system: str, tmp_path: Path) -> None:
    name = "macOS" if system == "darwin" else "Windows"
    codes, said = all_ran(system, tmp_path, *([command] for command in sorted(NEED_LINUX)))
    assert codes == [153] * len(NEED_LINUX)
    for line, command in zip(said, sorted(NEED_LINUX), strict=True):
        assert line.startswith(f"fencepost: fencepost {command} needs Linux, and this is {name}: run it in")


def test_the_client_of_the_store_says_so_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SystemFailure, match=r"fencepost\.connect needs Linux"):
        fencepost.connect  # noqa: B018


def test_windows_says_what_it_cannot(examples: Path) -> None:
    compiled, walk = "compiled searches need Linux or macOS", "fencepost explore needs Linux or macOS"
    tools = "fencepost mcp needs Linux or macOS"
    codes, said = all_ran(
        "win32", examples,
        ["check", "lost_update.py", "--engine", "embedded"], ["check", "lost_update.py", "--engine", "simulate"],
        ["check", "lost_update.py", "--checkpoint", "saved"], ["explore", "lost_update.py"], ["mcp"],
    )  # fmt: skip
    assert codes == [151, 151, 151, 153, 153]
    assert [line.removeprefix("fencepost: ").partition(":")[0] for line in said] == [compiled] * 3 + [walk, tools]


def test_windows_writes_no_traces(examples: Path) -> None:
    done = ran("win32", examples, "python", "write_trace.py")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("this needs locks of files as Linux and macOS have them")


@systems
def test_logs_of_other_systems_are_validated(system: str, examples: Path) -> None:
    subprocess.run([sys.executable, "bank.py", "logs"], cwd=examples, env=environment(), check=True)
    done = ran(system, examples, "validate", "logs", "--conformance", "bank_conformance.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("ACCEPTED")


@systems
def test_the_plugin_of_pytest_checks_and_drives(system: str, examples: Path) -> None:
    """As on Linux: the example's protocol holds, its server differs. Only Windows writes no traces."""
    done = ran(
        system, examples, "pytest", "-q", "--capture=sys", "-p", "no:cacheprovider", "-p", "fencepost.testing.plugin",
        "--rootdir=.", "test_locks.py",
    )  # fmt: skip
    assert "test_the_server_follows_the_protocol - Failed: DIFFERS" in done.stdout
    assert "REJECTED  1 trace" in done.stdout or system == "win32"
    assert "1 passed" in done.stdout
