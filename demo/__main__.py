"""``python -m demo``: find a data loss in a protocol, run the store that has it mended, hurt it, and hold what it did
to the protocol.

Every command is printed before it is run, so that each can be typed again. Everything is written to one folder, which
stays.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FENCEPOST = (sys.executable, "-m", "fencepost")
REPORT = "bookkeeper-4.13.html"
FOLDER = Path("fencepost-demo")
LINES = 6_000
SECONDS = 6.0
"""For which the lines are written, so that there is a middle."""

VIOLATED = 12


class Failed(Exception):
    """A command did not do what it is to show."""


def fencepost(*words: str, expected: int = 0, quiet: bool = False) -> str:
    """Run a command, after showing it, and give its output."""
    print(f"\n$ fencepost {shlex.join(words)}", flush=True)
    done = subprocess.run([*FENCEPOST, *words], stdout=subprocess.PIPE, text=True)
    if not quiet or done.returncode != expected:
        print(done.stdout, end="", flush=True)
    if done.returncode != expected:
        raise Failed(f"fencepost {words[0]} ended with {done.returncode}, and not with {expected}")
    return done.stdout


def check() -> None:
    """The published protocol of BookKeeper 4.13 loses data."""
    fencepost("check", "bookkeeper-4.13", "-D", "recovery_reads_fence=false", "--html", REPORT, expected=VIOLATED)


def run(cluster: Path, trace: Path) -> None:
    """A cluster under a writer: a bookie is killed while it writes, then the writer itself; the ledger is recovered and
    read.
    """
    up = fencepost("cluster", "up", str(cluster), "--bookies", "4", "--trace", str(trace), "--detach")
    found = re.search(r"zk://\S+", up)
    if found is None:
        raise Failed("the cluster does not tell its address")
    os.environ["FENCEPOST_METADATA"] = found[0]
    try:
        ledger = fencepost("ledger", "create", "--trace", str(trace)).strip()
        words = ("ledger", "append", ledger, "--trace", str(trace))
        print(f"\n$ fencepost {shlex.join(words)} < {LINES:,} lines in {SECONDS:.0f} s", flush=True)
        writer = subprocess.Popen([*FENCEPOST, *words], stdin=subprocess.PIPE, text=True)
        assert writer.stdin is not None
        killed = ""
        for line in range(LINES):
            writer.stdin.write(f"line {line}\n")
            if line % 20 == 19:
                writer.stdin.flush()
                time.sleep(SECONDS * 20 / LINES)
            if line == LINES // 2:
                killed = bookie_of(ledger, cluster)
                fencepost("cluster", "kill", str(cluster), killed, quiet=True)
        writer.stdin.flush()
        time.sleep(0.5)
        print(f"\n$ kill -9 {writer.pid}        # the writer, before it has closed the ledger", flush=True)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        fencepost("ledger", "recover", ledger, "--trace", str(trace))
        lines = fencepost("ledger", "read", ledger, "--trace", str(trace), quiet=True).splitlines()
        if lines != [f"line {number}" for number in range(len(lines))] or len(lines) <= LINES // 2:
            raise Failed(f"{len(lines):,} lines came back, and not as they were written")
        print(f"{len(lines):,} lines, in their order, none missing", flush=True)
        fencepost("ledger", "show", ledger)
        fencepost("cluster", "start", str(cluster), killed, quiet=True)
    finally:
        fencepost("cluster", "down", str(cluster), quiet=True)


def bookie_of(ledger: str, cluster: Path) -> str:
    """The number that a bookie of the ledger's last fragment has in the cluster."""
    bookie = asked("ledger", "show", ledger, "--json")["fragments"][-1]["bookies"][0]
    parts = asked("cluster", "status", str(cluster), "--json")["parts"]
    return next(str(part["name"]) for part in parts if part["address"] == bookie)


def asked(*words: str) -> Any:
    """What a command tells as JSON; it is not shown."""
    done = subprocess.run([*FENCEPOST, *words], stdout=subprocess.PIPE, text=True)
    if done.returncode and words[:2] != ("cluster", "status"):  # which says so where a part is down
        raise Failed(f"fencepost {words[0]} {words[1]} ended with {done.returncode}, and not with 0")
    return json.loads(done.stdout)


def main() -> int:
    """Tell the story; exit code 1 if any of it went otherwise."""
    begin = time.monotonic()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    cluster, trace = FOLDER / "cluster", FOLDER / "trace"
    try:
        check()
        run(cluster, trace)
        fencepost("validate", str(trace), "--protocol", "bookkeeper")
    except Failed as failed:
        print(f"make run: {failed}", file=sys.stderr)
        return 1
    print(
        f"\nAll of it took {time.monotonic() - begin:.0f} s. The counterexample is in {REPORT}, the cluster and its"
        f" trace in {FOLDER}."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
