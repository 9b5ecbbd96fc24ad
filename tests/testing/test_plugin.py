"""The plugin for pytest: failures are stories, with pages beside the report, also with xdist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from docs.documents import EXAMPLES, ROOT
from patience import PATIENCE

from fencepost.errors import EXTRAS

PLUGIN = "fencepost.testing.plugin"

TESTS = """
import time

import pytest
from drive_locks import Calls
from lock_server import LockServer
from locks import Locks
from locks_conformance import LocksConformance
from two_phase import TwoPhaseCommit

import fencepost
from fencepost import check


@fencepost.checked(TwoPhaseCommit)
def test_two_phase():
    pass


@fencepost.checked("lost_update.py")
def test_update(result):
    raise AssertionError("it is not come to")


class TestLocks:
    @pytest.mark.slow
    @fencepost.checked(Locks, max_states=1_000)
    def test_states(self, tmp_path, result):
        assert tmp_path.exists() and result.distinct_states == 16

    def test_drive(self, fencepost_drive):
        driven = fencepost_drive(Locks, Calls)
        assert len(driven.covered) == 48


class Slow(Calls):
    def observe(self):
        began = time.perf_counter()
        while time.perf_counter() - began < 0.05:
            pass
        return super().observe()


def test_slow(fencepost_drive):
    fencepost_drive(Locks, Slow, cover="pairs")


@fencepost.checked("bookkeeper", config="striped", engine="reference")
def test_large():
    pass


def test_nothing_is_recorded(fencepost_trace):
    fencepost_trace(LocksConformance)


@pytest.mark.parametrize("gone", ["bob", None])
def test_trace(gone, fencepost_trace):
    trace = fencepost_trace(LocksConformance, node="server")
    trace.emit("acquires", "lock", {"client": "ann", "holder": "ann"})
    trace.emit("acquires", "lock", {"client": "bob", "holder": "ann"})
    trace.emit("hangs_up", "lock", {"client": "bob", "holder": "ann"})
    trace.emit("releases", "lock", {"client": "ann", "holder": gone})


def test_results_tell_their_story():
    check("lost_update.py").must_hold()


def test_plain_assertions_are_as_ever():
    assert 1 == 2


@fencepost.checked(Locks, config=["no-such"])
def test_mistake():
    pass
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("examples")
    for name in ("locks", "lock_server", "drive_locks", "locks_conformance", "two_phase", "lost_update"):
        (found / f"{name}.py").write_text((EXAMPLES / f"{name}.py").read_text())
    (found / "test_all.py").write_text(TESTS)
    (found / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    return found


def run(folder: Path, *options: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTEST_PLUGINS": PLUGIN, "COLUMNS": "120"}
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:anyio", *options],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    return done.stdout + done.stderr


def verdicts(printed: str) -> dict[str, str]:
    """The outcome of each test, by ``-rA``'s summary."""
    found = re.findall(r"^(PASSED|FAILED|ERROR) test_all\.py::([^ \n]+(?: [^ \n-]+)*)", printed, re.M)
    return {name: word for word, name in found}


EXPECTED = {
    "test_two_phase[lossy]": "PASSED",
    "test_two_phase[three]": "PASSED",
    "test_two_phase[impatient]": "PASSED",
    "test_update[default]": "FAILED",
    "TestLocks::test_states[default]": "PASSED",
    "TestLocks::test_drive": "FAILED",
    "test_nothing_is_recorded": "FAILED",
    "test_trace[bob]": "FAILED",
    "test_trace[None]": "PASSED",
    "test_results_tell_their_story": "FAILED",
    "test_plain_assertions_are_as_ever": "FAILED",
    "test_mistake[no-such]": "FAILED",
}


@pytest.mark.parametrize("workers", ["0", "2"])
def test_failures_are_stories(folder: Path, tmp_path: Path, workers: str) -> None:
    chosen = ("--deselect", "test_all.py::test_large", "--deselect", "test_all.py::test_slow")
    printed = run(folder, "-rA", "-n", workers, "--junitxml", str(tmp_path / "report.xml"), *chosen)
    assert verdicts(printed) == EXPECTED
    failures = re.sub(r"^\[gw\d] .*\n", "", printed.split("FAILURES")[1].split("short test summary")[0], flags=re.M)
    parts = {m[1]: m[2] for m in re.finditer(r"^_{3,} (\S+) _{3,}\n(.*?)(?=^_{3,} |\Z)", failures, re.M | re.S)}
    drive = parts["TestLocks.test_drive"]
    assert drive.startswith("DIFFERS  Calls does not do what the protocol does")
    assert " 4  c1  releases(c=c1)\n" in drive and "seed 0" in drive
    assert parts["test_update[default]"].startswith("VIOLATED  no_update_is_lost")
    assert parts["test_results_tell_their_story"].startswith("VIOLATED  no_update_is_lost")
    assert "releases(c=c1)" in parts["test_trace[bob]"] and "the trace says c2" in parts["test_trace[bob]"]
    assert "no event of the run is about any subject" in parts["test_nothing_is_recorded"]
    for name in ("TestLocks.test_drive", "test_trace[bob]", "test_update[default]"):
        assert "Error" not in parts[name] and ".py:" not in parts[name].replace("test_all.py", ""), "no traceback"
    assert "FAILED test_all.py::TestLocks::test_drive - Failed: DIFFERS" in printed
    assert parts["test_mistake[no-such]"].startswith("locks has no configuration named no-such")
    assert "assert 1 == 2" in parts["test_plain_assertions_are_as_ever"]
    pages = {page.name: page.read_text() for page in tmp_path.glob("*.html")}
    assert len(pages) == 4, sorted(pages)
    assert "DIFFERS" in pages["test_all.py-TestLocks-test_drive.html"]
    assert f"As a page: {tmp_path}/test_all.py-TestLocks-test_drive.html" in drive
    assert "REJECTED" in pages["test_all.py-test_trace-bob.html"]


def test_a_budget_ends_checks_and_drives(folder: Path) -> None:
    (folder / "lock_server.py").write_text((EXAMPLES / "lock_server_2.py").read_text())
    try:
        printed = run(folder, "-rs", "--fencepost-budget", "200ms", "-k", "test_slow or large")
    finally:
        (folder / "lock_server.py").write_text((EXAMPLES / "lock_server.py").read_text())
    assert re.search(r"SKIPPED .* not decided within 0\.2 s: [\d,]+ states hold so far", printed), printed
    followed = r"test_slow: FOLLOWS  Slow does what the protocol does so far: \d+ of 48 transitions"
    assert re.search(rf"({followed}; |nothing was driven: )ended by 0\.2 seconds", printed), printed
    assert "--fencepost-budget" in run(folder, "--fencepost-budget", "soon", "-k", "slow")


def test_tests_are_chosen_by_configuration_and_by_mark(folder: Path, tmp_path: Path) -> None:
    assert verdicts(run(folder, "-rA", "-k", "impatient")) == {"test_two_phase[impatient]": "PASSED"}
    assert verdicts(run(folder, "-rA", "-m", "slow")) == {"TestLocks::test_states[default]": "PASSED"}
    printed = run(folder, "-k", "test_update", "--fencepost-pages", str(tmp_path / "pages"))
    assert [page.name for page in (tmp_path / "pages").iterdir()] == ["test_all.py-test_update-default.html"]
    assert "As a page: " in printed


def test_the_plugin_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {PLUGIN: PLUGIN}
    assert project["optional-dependencies"]["pytest"] == ["pytest>=8.3"]
    assert EXTRAS["pytest"] == ("pytest",)
