"""Protocols small enough to check in a moment, and what became of a command line."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import fencepost
from fencepost.checker.engines.interface import COMPILING

COUNTER = '''
from fencepost import *

class Counter(Protocol):
    """Counts up to a limit. Nothing else."""

    limit: int = constant(3, "where it stops")
    careful: bool = constant(True)
    count: int = state(0)

    configurations = {
        "small": configuration(limit=2, doc="two steps"),
        "broken": configuration("never_five", limit=7),
        "wrong": configuration("never_five", limit=4),
        "surprising": configuration(limit=9),
    }

    @action
    def tick(self) -> None:
        """Count one more."""
        require(self.count < self.limit)
        self.count += 1

    @invariant
    def never_five(self) -> bool:
        """Five is right out."""
        return self.count != 5

    @invariant
    def never_negative(self) -> bool:
        return self.count >= 0
'''

RAISING = """
from fencepost import *

class Divider(Protocol):
    n: int = state(3)
    shares: int = state(0)

    @action
    def take(self) -> None:
        self.n -= 1

    @action
    def share(self) -> None:
        self.shares = 12 // self.n
"""
RAISING_LINE = 14

ENDLESS = """
import pathlib
import time
from fencepost import *

began = None

class Endless(Protocol):
    n: int = state(0)
    other: int = state(0)

    @action
    def tick(self) -> None:
        global began
        began = began or time.monotonic()
        if time.monotonic() > began + 1:
            pathlib.Path("running").touch()
        self.n += 1

    @action
    def tock(self) -> None:
        self.other += 1
"""


@dataclass(frozen=True)
class Ran:
    """The result of one command line."""

    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The only line on standard error, without the program's name; fails if there is another number of lines."""
        lines = self.err.splitlines()
        assert len(lines) == 1, f"{len(lines)} lines on standard error:\n{self.err}"
        assert lines[0].startswith("fencepost: "), lines[0]
        return lines[0].removeprefix("fencepost: ")


def silent(err: str) -> str:
    """The standard error of a command, without the notice of a first compilation, which depends on earlier runs."""
    return err.replace(f"{COMPILING}\n", "")


def environment(**extra: str) -> dict[str, str]:
    """The environment of a process that finds this package."""
    source = str(Path(fencepost.__file__).parent.parent)
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONWARNINGS", "PYTHONHASHSEED")}
    return {**kept, "PYTHONPATH": source, **extra}


COMMAND = [sys.executable, "-m", "fencepost"]
