"""The programs beside the library: the demo, the benchmarks and the interoperability checks."""

import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import bench
import demo
import interop
from interop import jars
from interop.__main__ import name_of

ROOT = Path(__file__).parents[1]
MODULES = [
    module.name
    for package in (bench, demo, interop)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]


@pytest.mark.parametrize("package", ["bench", "demo", "interop"])
def test_every_module_finds_what_it_imports(package: str) -> None:
    """No other test runs these programs, so a removed name would be noticed late."""
    names = [name for name in MODULES if name.startswith(package)]
    assert names
    subprocess.run([sys.executable, "-c", f"import {', '.join(names)}"], cwd=ROOT, check=True)


def test_what_is_run_for_each_commit_has_the_releases_of_the_examination() -> None:
    asked = re.findall(r"--release (\S+)", (ROOT / ".ci" / "run").read_text())
    assert asked == re.findall(r"<bookkeeper.(?:version|newer)>(.*)</", (ROOT / "interop" / "pom.xml").read_text())


def test_what_is_ours_alone_is_examined_with_one_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "RELEASE", "4.18.0")
    assert name_of("fencepost", "fencepost", "fencepost", "quorum", "tail") == (
        "fencepost client, fencepost bookies, quorum: tail"
    )
    for client, bookies, metadata in (
        ("java", "fencepost", "fencepost"),
        ("fencepost", "java", "fencepost"),
        ("fencepost", "fencepost", "zookeeper"),
        ("fencepost", "mixed", "fencepost"),
    ):
        assert name_of("fencepost", client, bookies, metadata, "tail").startswith("4.18.0: ")
