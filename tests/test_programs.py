"""The programs beside the library: the demo, the benchmarks and the interoperability checks."""

import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import bench
import demo
import interop

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
    subprocess.run([sys.executable, "-c", f"import {', '.join(names)}"], cwd=Path(__file__).parents[1], check=True)
