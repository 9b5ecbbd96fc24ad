"""Ctrl-C at any moment of the command line gives one line and exit code 130, and never a traceback."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from campaigns import campaign_if
from cli.commandline import COUNTER, Ran, environment
from patience import PATIENCE

from fencepost.cli import interrupts
from fencepost.cli.commands import autorecovery, bookie, results

INTERRUPTING = """
import os, signal, sys

count, wanted = 0, {wanted}

def hook(event, arguments):
    global count
    if event == "import" and "fencepost.cli.interrupts" in sys.modules:
        count += 1
        if count == wanted:
            os.kill(os.getpid(), signal.SIGINT)

sys.addaudithook(hook)
"""
"""Interrupts its own process when the n-th module is imported, counted from the start of Fencepost."""

SCRIPT = "import sys\nfrom fencepost.cli.main import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
"""The entry point as an installer writes it."""

WRITING = """
import os, signal
from pyarrow.parquet import ParquetWriter

write_table = ParquetWriter.write_table

def interrupting(*given, **options):
    os.kill(os.getpid(), signal.SIGINT)
    write_table(*given, **options)

ParquetWriter.write_table = interrupting
"""
"""Interrupts its own process whenever rows of a table are written. Where a test's process drops the exception of the
signal, as in a callback of the garbage collection, the command line raises it again.
"""


def interrupted(tmp_path: Path, wanted: int, script: bool) -> subprocess.CompletedProcess[str]:
    (tmp_path / "counter.py").write_text(COUNTER)
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTING.format(wanted=wanted))
    (tmp_path / "fencepost").write_text(SCRIPT)
    where = environment()
    where["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{where['PYTHONPATH']}"
    start = [str(tmp_path / "fencepost")] if script else ["-m", "fencepost"]
    return subprocess.run(
        [sys.executable, *start, "check", "counter.py", "-D", "limit=9", "--json", "-"],
        cwd=tmp_path, env=where, text=True, capture_output=True, timeout=PATIENCE, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("script", [False, True], ids=["module", "script"])
@pytest.mark.parametrize("wanted", [1, 2, 20, 60, 110, 150])
def test_an_interrupt_while_it_starts_is_one_line(tmp_path: Path, wanted: int, script: bool) -> None:
    ran = interrupted(tmp_path, wanted, script)
    assert "Traceback" not in ran.stderr
    if ran.returncode == 12:  # it ended before it imported that many modules
        assert wanted > 100
        return
    assert (ran.returncode, ran.stderr) == (130, "fencepost: interrupted\n")


def test_who_only_uses_the_package_is_interrupted_as_ever(tmp_path: Path) -> None:
    text = (
        "import signal, fencepost, fencepost.cli.main\nassert signal.getsignal(signal.SIGINT) is"
        " signal.default_int_handler\n"
    )
    text += (
        "fencepost.cli.main.main(['--version'])\nassert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
    )
    (tmp_path / "mine.py").write_text(text)
    for start in (["mine.py"], ["-m", "mine"], ["-c", text]):
        subprocess.run([sys.executable, *start], cwd=tmp_path, env=environment(), timeout=PATIENCE, check=True)


def test_who_ignores_interrupts_goes_on_ignoring_them(tmp_path: Path) -> None:
    (tmp_path / "counter.py").write_text(COUNTER)
    text = "import os, signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    (tmp_path / "sitecustomize.py").write_text(text + INTERRUPTING.format(wanted=30))
    where = environment()
    where["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{where['PYTHONPATH']}"
    ran = subprocess.run(
        [sys.executable, "-m", "fencepost", "check", "counter.py"],
        cwd=tmp_path,
        env=where,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("limit", "code", "first", "found"),
    [(3, 130, "INTERRUPTED", "4 distinct states found"), *campaign_if(bool, [(7, 12, "VIOLATED", "never_five")])],
)
def test_an_interrupt_while_states_are_written_leaves_none_and_tells_what_was_found(
    limit: int, code: int, first: str, found: str, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "counter.py").write_text(COUNTER)
    (tmp_path / "fencepost").write_text(WRITING + SCRIPT)
    check = ["check", "counter.py", "-D", f"limit={limit}", "--engine", "embedded", "--states", "space"]
    ran = subprocess.run(
        [sys.executable, "fencepost", *check],
        cwd=tmp_path, env=environment(), text=True, capture_output=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (code, "")
    assert ran.stdout.startswith(first) and found in ran.stdout
    assert ran.stdout.endswith("The state space was not written to space.\n")
    assert not (tmp_path / "space").exists()


def test_an_interrupt_that_a_library_wrapped_while_a_result_is_shown_is_one_line(
    here: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        # Python 3.11 wraps what a descriptor's __set_name__ raises, as while Rich is imported.
        raise RuntimeError("Error calling __set_name__") from KeyboardInterrupt()

    monkeypatch.setattr(results, "_print_story", interrupted)
    ran = here("check", "counter.py")
    assert (ran.code, ran.out, ran.err) == (130, "", "fencepost: interrupted\n")


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(("check", "bookkeeper-4.13"), id="check"),
        pytest.param(("simulate-store", "--jobs", "2"), id="simulate", marks=pytest.mark.campaign),
    ],
)
def test_who_presses_it_again_and_again_is_told_once(given: tuple[str, ...], tmp_path: Path) -> None:
    child, terminal = pty.fork()
    if not child:
        os.chdir(tmp_path)
        os.execve(sys.executable, [sys.executable, "-m", "fencepost", *given], environment())
    how = termios.tcgetattr(terminal)
    how[3] |= termios.NOFLSH  # what was said and is not yet read here stays
    termios.tcsetattr(terminal, termios.TCSANOW, how)
    said = os.read(terminal, 1 << 16)  # the progress: it is under way
    for _ in range(8):
        os.write(terminal, b"\x03")
        time.sleep(0.02)
    while True:
        try:
            said += os.read(terminal, 1 << 16)
        except OSError:  # it has ended
            break
    text = said.decode()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 130, text
    assert text.count("fencepost: interrupted") <= 1 and "interrupted" in text.lower() and "Traceback" not in text


@pytest.mark.parametrize("serves", ["bookie", "metadata", "autorecovery"])
@pytest.mark.parametrize("wanted", [1, 40, 150, 300])
def test_a_command_that_serves_is_ended_while_it_starts(tmp_path: Path, wanted: int, serves: str) -> None:
    """Its own handler is installed only after many imports."""
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTING.format(wanted=wanted).replace("SIGINT", "SIGTERM"))
    where = environment()
    where["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{where['PYTHONPATH']}"
    given = {"metadata": ["directory", "--port", "0"], "autorecovery": ["--metadata", "zk://127.0.0.1:1/ledgers"]}
    ran = subprocess.run(
        [sys.executable, "-m", "fencepost", serves, *given.get(serves, ["directory", *given["autorecovery"]])],
        cwd=tmp_path, env=where, text=True, capture_output=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_the_verbs_of_commands_that_serve_are_known() -> None:
    """Of those SIGTERM says nothing good."""
    assert interrupts.VERBS == {*bookie.VERBS, *autorecovery.VERBS, "-h", "--help"} - {"run"}
