"""The command line as a process: which stream gets what, how it ends, and what it does not load early."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli.commandline import COMMAND, ENDLESS, RAISING, Ran, environment
from patience import PATIENCE, until

Run = Callable[..., Ran]

HEAVY = ("numpy", "numba", "rich", "pyarrow", "pyspark", "msgspec", "typer", "click", "asyncio", "multiprocessing")


def test_a_check_that_holds_says_so_on_standard_output_alone(process: Run) -> None:
    ran = process("check", "counter.py")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("HOLDS\n")
    assert "\x1b" not in ran.out  # no colours where nobody can see them


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["-D", "limit=9"], 12, "VIOLATED  never_five"),
        (["--deadlock"], 11, "DEADLOCK"),
        (["-D", "limit=4", "--max-states", "2", "--engine", "reference"], 152, "NOT COMPLETE"),
        (["-D", "limit=4", "--max-depth", "2"], 152, "NOT COMPLETE"),
        (["-D", "limit=x"], 151, ""),
    ],
)
def test_exit_codes_are_those_of_tlc(process: Run, arguments: list[str], code: int, word: str) -> None:
    ran = process("check", "counter.py", *arguments)
    assert ran.code == code
    assert ran.out.startswith(word)
    assert bool(ran.out) == (code != 151)


def test_a_protocol_that_raises_ends_with_75_and_without_a_traceback(process: Run, tmp_path: Path) -> None:
    (tmp_path / "divider.py").write_text(RAISING)
    ran = process("check", "divider.py")
    assert ran.code == 75
    assert "ZeroDivisionError" in ran.complaint
    assert "Traceback" not in ran.out + ran.err


@pytest.mark.parametrize(
    "arguments", [["--version"], ["list"], ["show", "counter.py"], ["check", "nothing.py"], ["check", "counter.py"]]
)
def test_what_needs_no_engine_imports_none(process: Run, arguments: list[str], tmp_path: Path) -> None:
    asked = (
        "import atexit, sys\n"
        f"atexit.register(lambda: sys.stderr.write(' '.join(m for m in {HEAVY!r} if m in sys.modules)))\n"
        "from fencepost.cli.main import main\n"
        f"main({arguments!r})\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, cwd=tmp_path, env=environment(), timeout=PATIENCE
    )
    imported = ran.stderr.splitlines()[-1:] if not ran.stderr.endswith("\n") else []
    assert imported == (["msgspec"] if arguments == ["list"] else []), "of which the messages of shipped roles are made"


def test_warnings_do_not_reach_the_user(process: Run, tmp_path: Path) -> None:
    text = (tmp_path / "counter.py").read_text()
    warning = "import warnings\nwarnings.warn('look out')\nassert (1, 'always true')\nx = 1 is 1\n"
    (tmp_path / "counter.py").write_text(warning + text)
    for python in ((), ("-W", "default")):
        ran = process("check", "counter.py", python=python)
        assert (ran.code, ran.err) == (0, "")


def test_a_reader_that_goes_away_is_no_error(process: Run) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ran = process("check", "counter.py", "-D", "limit=9", stdout=writing)
    finally:
        os.close(writing)
    assert (ran.code, ran.err) == (12, "")


@pytest.mark.parametrize("arguments", [["--help"], ["list"], ["check", "--help"], ["--version"]])
def test_help_for_nobody_is_no_error(process: Run, arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ran = process(*arguments, stdout=writing)
    finally:
        os.close(writing)
    assert (ran.code, ran.err) == (0, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["check", "counter.py"], ["check", "--help"], ["list"]])
def test_standard_output_on_a_full_disk(process: Run, arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        ran = process(*arguments, stdout=full.fileno())
    assert ran.code == 153
    assert "standard output cannot be written: No space left on device" in ran.complaint


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_disk_that_is_full_at_the_end_loses_no_verdict(process: Run, tmp_path: Path) -> None:
    ran = process("check", "counter.py", "-D", "limit=9", "--html", "/dev/full", "--itf", "kept.json")
    assert ran.code == 153
    assert "--html /dev/full could not be written: No space left on device" in ran.complaint
    assert ran.out.startswith("VIOLATED  never_five")
    assert "tick" in (tmp_path / "kept.json").read_text()


def test_closed_streams_are_no_reason_to_fail(tmp_path: Path, process: Run) -> None:
    for closed, code in (("1", "0"), ("2", "151"), ("1", "151")):
        option = "-D limit=many" if code == "151" else ""
        shell = f'{sys.executable} -m fencepost check counter.py {option} {closed}>&-; echo "code $?" >code'
        subprocess.run(
            ["sh", "-c", shell], cwd=tmp_path, env=environment(), capture_output=True, timeout=PATIENCE, check=False
        )
        assert (tmp_path / "code").read_text() == f"code {code}\n"


def test_what_can_not_be_encoded_is_escaped(process: Run, tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(
        "from fencepost import *\nclass P(Protocol):\n    n = state(())\n    @action\n    def go(self):\n        self.n"
        " = ('é',)\n    @invariant\n    def none(self):\n        return not self.n\n",
        encoding="utf-8",
    )
    ran = process("check", "p.py", env=environment(PYTHONIOENCODING="ascii"))
    assert (ran.code, ran.err) == (12, "")
    assert "\\xe9" in ran.out


@contextlib.contextmanager
def endless(tmp_path: Path, stderr: int) -> Iterator[subprocess.Popen[str]]:
    """A check that runs until it is interrupted. It creates the file ``running`` once it has run long enough to show
    progress.
    """
    (tmp_path / "endless.py").write_text(ENDLESS)
    running = subprocess.Popen(
        [*COMMAND, "check", "endless.py", "--engine", "reference"],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        cwd=tmp_path,
        env=environment(),
    )
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


def test_an_interrupt_tells_what_is_known_and_nobody_is_shown_progress_without_a_terminal(tmp_path: Path) -> None:
    with endless(tmp_path, subprocess.PIPE) as running:
        until((tmp_path / "running").exists, "the search")
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=PATIENCE)
    assert running.returncode == 130
    assert out.startswith("INTERRUPTED")
    assert "distinct states" in out
    assert err == ""


def pieces(terminal: int) -> Iterator[bytes]:
    """The writes to a terminal as they arrive, until the other end is closed."""
    while select.select([terminal], [], [], PATIENCE)[0]:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # what Linux says when the other end is closed
            return
        if not piece:
            return
        yield piece
    raise AssertionError("nothing is written, and it is not closed")


def test_progress_lives_on_a_terminal_and_leaves_it_clean(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    shown, interrupted = "", False
    with endless(tmp_path, theirs) as running:
        os.close(theirs)
        for piece in pieces(ours):
            shown += piece.decode()
            if shown.count("distinct") >= 3 and not interrupted:
                running.send_signal(signal.SIGINT)
                interrupted = True
        out, _ = running.communicate(timeout=PATIENCE)
    os.close(ours)
    drawn = shown.split("\r")
    lines = [text for text in drawn if "distinct" in text]
    assert running.returncode == 130
    assert all(line.startswith("level ") for line in lines)
    assert lines[0] != lines[-1]
    assert "\n" not in shown
    assert drawn[-1] == ""
    assert drawn[-2].strip() == ""
    assert out.startswith("INTERRUPTED")
    assert "\r" not in out


def test_a_terminal_gets_colours(tmp_path: Path, process: Run) -> None:
    process("list")  # writes counter.py
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [*COMMAND, "check", "counter.py"],
        stdout=theirs,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=environment(TERM="xterm-256color"),
    )
    os.close(theirs)
    shown = b"".join(pieces(ours))
    os.close(ours)
    assert running.wait(PATIENCE) == 0
    assert b"\x1b[" in shown
    assert b"HOLDS" in shown
