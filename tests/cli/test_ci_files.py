"""The files of ``ci/``, which users copy: their scripts run here as they do there."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from cli.commandline import COUNTER, environment
from patience import PATIENCE

CI = Path(__file__).parents[2] / "ci"


def script(path: Path) -> str:
    """The text of the only script of a file."""
    lines = iter(path.read_text().splitlines())
    head = next(line for line in lines if line.rstrip().endswith(("run: |", "- |")))
    indent = len(head) - len(head.lstrip())
    block = []
    for line in lines:
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            break
        block.append(line)
    return textwrap.dedent("\n".join(block))


@pytest.mark.parametrize(("file", "shell"), [("github/action.yml", "bash"), ("gitlab.yml", "sh")])
def test_each_line_is_a_check_and_the_first_failure_is_the_exit_code(tmp_path: Path, file: str, shell: str) -> None:
    (tmp_path / "counter.py").write_text(COUNTER)
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "fencepost"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m fencepost "$@"\n')
    command.chmod(0o755)
    given = environment()
    given |= {
        "PATH": f"{tmp_path / 'bin'}:{given['PATH']}",
        "CHECK": "counter.py --config small\n\n  counter.py --config broken\nmissing.py\n",
        "INSTALL": "",
        "REPORTS": "the reports",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }
    ran = subprocess.run([shell, "-e"], input=script(CI / file), cwd=tmp_path, env=given, text=True, timeout=PATIENCE)
    assert ran.returncode == 12
    written = {path.name for path in (tmp_path / "the reports").iterdir()}
    assert written == {"1.xml", "1.sarif", "1.md", "2.xml", "2.sarif", "2.md"}
    if shell == "bash":
        summary = (tmp_path / "summary.md").read_text()
        assert [line for line in summary.splitlines() if line.startswith("## ")] == [
            "## HOLDS",
            "## VIOLATED never_five",
        ]
