"""A metadata service ends after an internal error, and no client waits for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ledger.processes import SOURCE
from patience import PATIENCE

from fencepost.files.folders import NoRoom
from fencepost.metadata.service import said

PROGRAM = """
import sys
from fencepost.cli import main as cli
from fencepost.metadata.server import Service

def planted(self):
    raise ZeroDivisionError("planted")

setattr(Service, sys.argv[1], planted)
sys.exit(cli.main(["metadata", sys.argv[2], "--port", "0"]))
"""


@pytest.mark.parametrize("name", ["_tick"])
def test_a_fault_in_the_service_ends_its_process(tmp_path: Path, name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name, str(tmp_path / "metadata")],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 153
    assert done.stderr.decode().splitlines()[-1] == "fencepost: the metadata service ended: planted"


def test_what_ended_it_is_said_with_the_file_or_the_directory_and_what_to_do() -> None:
    assert said(OSError(24, "Too many open files", "m/1.journal"), "m") == "m/1.journal: Too many open files"
    assert said(NoRoom("1.journal"), "m") == "m: there is no room for 1.journal: make room, and start it again"
    assert said(ZeroDivisionError("planted"), "m") == "planted"
