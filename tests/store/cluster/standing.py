"""``fencepost cluster`` with stand-ins for its parts, as processes of the test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from cli.commandline import environment
from patience import PATIENCE, until

from fencepost.store.cluster import control
from fencepost.store.cluster.ports import free_ports

STAND_IN = Path(__file__).parent / "stand_in.py"

COMMAND = f"""
import sys
from fencepost import cli
from fencepost.store.cluster import supervisor, up
supervisor.PROGRAM = ({sys.executable!r}, {str(STAND_IN)!r})
up.PROGRAM = ({sys.executable!r}, "-c", sys.orig_argv[2])
sys.exit(cli.main(sys.argv[1:]))
"""


class Up:
    """A ``fencepost cluster up`` in a process of its own."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, "cluster", "up", str(directory), *options],
            env=environment(),
            stdout=subprocess.PIPE,
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
    """What became of a command."""
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, "cluster", *words], env=environment(), capture_output=True, text=True, timeout=PATIENCE
    )
    return done.returncode, done.stdout, done.stderr


def ports(bookies: int = 3) -> list[str]:
    """Options that keep clear of the clusters of others."""
    metadata, *of_bookies = free_ports([0] * (bookies + 1), {0})
    return ["--metadata-port", str(metadata)]


def happened(directory: Path) -> list[str]:
    """What the stand-ins did."""
    return (directory / "happened").read_text().split("\n")[:-1]


def part(directory: Path, name: str) -> dict[str, Any]:
    """How a part is, as the cluster tells it."""
    return next(p for p in control.ask(directory, control.STATUS)["parts"] if p["name"] == name)


def plan(directory: Path) -> dict[str, Any]:
    """What the directory keeps."""
    return dict(json.loads((directory / "cluster.json").read_text()))


def is_there(pid: int) -> bool:
    """Whether a process runs."""
    return os.path.exists(f"/proc/{pid}") and open(f"/proc/{pid}/stat").read().rpartition(") ")[2][0] not in "ZX"
