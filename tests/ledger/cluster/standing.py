"""``fencepost cluster`` with stand-ins for its parts, as processes of the test."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from cli.commandline import environment
from patience import PATIENCE, until

from fencepost.cli import main as cli
from fencepost.cli.cluster import up
from fencepost.ledger.cluster import control

STAND_IN = Path(__file__).parent / "stand_in.py"

COMMAND = f"""
import sys
from fencepost.cli import main as cli
from fencepost.ledger.cluster import supervisor
supervisor.PROGRAM = ({sys.executable!r}, {str(STAND_IN)!r})
sys.exit(cli.main(sys.argv[1:]))
"""


class Up:
    """A ``fencepost cluster up`` in a process of its own."""

    def __init__(self, directory: Path, *options: str, stdout: int = subprocess.PIPE) -> None:
        self.directory = directory
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, "cluster", "up", str(directory), *options],
            env=environment(TERM="xterm", COLUMNS="100"),
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )

    def serving(self) -> Up:
        """Wait until everything serves."""
        until(lambda: self.process.poll() is not None or self.is_up(), "the cluster to serve")
        assert self.process.poll() is None, self.process.communicate()
        return self

    def is_up(self) -> bool:
        try:
            return bool(control.ask(self.directory, control.STATUS)["state"] == "up")
        except Exception:
            return False

    def ended(self) -> tuple[int, str, str]:
        """The exit code, standard output and standard error."""
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, err


def cluster(*words: str) -> tuple[int, str, str]:
    """Run a command. Returns its exit code, standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(["cluster", *words])
    return code, out.getvalue(), err.getvalue()


def background(directory: Path, *options: str) -> tuple[int, str, str]:
    """Run ``fencepost cluster up --detach`` with stand-ins. Returns how it ended."""
    with mock.patch.object(up, "PROGRAM", (sys.executable, "-c", COMMAND)):
        return cluster("up", str(directory), *options, "--detach")


def happened(directory: Path) -> list[str]:
    """What the stand-ins did."""
    return (directory / "happened").read_text().split("\n")[:-1]


def part(directory: Path, name: str) -> dict[str, Any]:
    """The state of a part, as ``fencepost cluster`` reports it."""
    return next(p for p in control.ask(directory, control.STATUS)["parts"] if p["name"] == name)


def plan(directory: Path) -> dict[str, Any]:
    """The plan stored in the directory."""
    return dict(json.loads((directory / "cluster.json").read_text()))


def is_there(pid: int) -> bool:
    """Whether a process runs."""
    return os.path.exists(f"/proc/{pid}") and open(f"/proc/{pid}/stat").read().rpartition(") ")[2][0] not in "ZX"
