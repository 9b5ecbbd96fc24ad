"""``python -m bench.spin``: what partial order reduction leaves of two protocols, in Spin and in Fencepost.

Each protocol is given twice, in Python and in Promela, action by action. Without reduction both tools must find the
same number of states; the exit code is 1 if they do not. It needs ``spin`` and ``gcc`` on the PATH.

    python -m bench.spin             the sizes of the page, docs/check/engine.md
    python -m bench.spin --small     the smallest sizes alone
"""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import fencepost

HERE = Path(__file__).parent
LIMIT = 1800.0
"""Seconds for one search."""


@dataclass(frozen=True)
class Pair:
    """One protocol in both languages. ``size``: the constant and the macro that say how large it is. ``options``: what
    else Fencepost and Spin are given.
    """

    python: Path
    promela: Path
    size: tuple[str, str]
    invariant: str
    sizes: Sequence[int]
    options: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())


PAIRS = (
    Pair(
        HERE / "adds.py", HERE / "adds.pml", ("entries", "ENTRIES"), "confirmed_entries_are_in_the_ledger", (1, 2)
    ),
    Pair(
        HERE.parents[1] / "docs/examples/two_phase.py", HERE / "two_phase.pml", ("rms", "RMS"), "consistent", (3, 4),
        (("-D", "lossy=False"), ("-m",)),
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Found:
    """The states of one search, and the processor's seconds that it took."""

    states: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.states:>9,} {self.seconds:>8.2f}"


def by_spin(pair: Pair, size: int, asked: bool, reduced: bool) -> Found:
    """Search with Spin's verifier, depth first, for safety properties alone."""
    with tempfile.TemporaryDirectory() as folder:
        asks = ["-DASKED"] * asked
        _run(["spin", "-a", *pair.options[1], f"-D{pair.size[1]}={size}", *asks, str(pair.promela)], folder)
        _run(["gcc", "-O2", "-w", "-DSAFETY", *["-DNOREDUCE"] * (not reduced), "-o", "pan", "pan.c"], folder)
        said, seconds = _run(["./pan", "-m1000000", "-E"], folder)
    if "errors: 0" not in said:
        raise SystemExit(f"Spin says:\n{said}")
    return Found(_number(r"(\d+) states, stored", said), seconds)


def by_fencepost(pair: Pair, size: int, asked: bool, reduced: bool) -> Found:
    """Search with ``fencepost check``. If nothing is asked, that is the empty invariant of ``adds.py``."""
    name = pair.invariant if asked else "nothing_is_asked"
    command = [sys.executable, "-m", "fencepost", "check", str(pair.python), "-D", f"{pair.size[0]}={size}"]
    said, seconds = _run([*command, *pair.options[0], "--invariant", name, *["--reduce"] * reduced], None)
    return Found(_number(r"in (?:all|the) ([\d,]+) ", said), seconds)


def _run(command: Sequence[str], folder: str | None) -> tuple[str, float]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{command[0]} failed: {done.stderr or done.stdout}")
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _number(pattern: str, said: str) -> int:
    found = re.search(pattern, said)
    if found is None:
        raise SystemExit(f"no number of states in:\n{said}")
    return int(found[1].replace(",", ""))


def main() -> int:
    """Print a table: states and seconds, without reduction and with, in Spin and in Fencepost."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.spin", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="the smallest size of each alone")
    given = parser.parse_args()
    print(
        f"Fencepost {fencepost.__version__}; {_run(['spin', '-V'], None)[0].strip()}; states, seconds of the processor"
    )
    print(f"{'':28}{'Spin':>18} {'reduced':>18} {'Fencepost':>18} {'reduced':>18}")
    differs = False
    for pair in PAIRS:
        for size in pair.sizes[:1] if given.small else pair.sizes:
            for asked in (False, True):
                if not asked and "nothing_is_asked" not in pair.python.read_text():
                    continue
                each = [search(pair, size, asked, by) for search in (by_spin, by_fencepost) for by in (False, True)]
                what = f"{pair.python.stem} {pair.size[0]}={size} {'asked' if asked else ''}"
                print(f"{what:28}{' '.join(map(str, each))}", flush=True)
                differs |= each[0].states != each[2].states
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
