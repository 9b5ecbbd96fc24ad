"""Two ways to run the command line: here, and as a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from cli.commandline import COMMAND, COUNTER, Ran, environment, silent
from patience import PATIENCE

from fencepost.cli.main import main


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Ran]:
    """Run the command line in this process, in an empty directory that holds ``counter.py``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "counter.py").write_text(COUNTER)

    def run(*arguments: str) -> Ran:
        capsys.readouterr()
        code = main(arguments)
        captured = capsys.readouterr()
        return Ran(code, captured.out, silent(captured.err))

    return run


@pytest.fixture
def process(tmp_path: Path) -> Callable[..., Ran]:
    """Run the command line as a process, in an empty directory that holds ``counter.py``."""
    (tmp_path / "counter.py").write_text(COUNTER)

    def run(
        *arguments: str, stdout: int | None = None, env: dict[str, str] | None = None, python: Sequence[str] = ()
    ) -> Ran:
        ran = subprocess.run(
            [COMMAND[0], *python, *COMMAND[1:], *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if stdout is None else stdout,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
            cwd=tmp_path,
            env=env or environment(),
        )
        return Ran(ran.returncode, ran.stdout or "", silent(ran.stderr))

    return run
