"""Shell completion, and the output of ``--version``."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numba
import numpy
import pytest
from cli.commandline import Ran

from fencepost.cli import main as cli
from fencepost.cli.commands.completion import _commands
from fencepost.language import loading
from fencepost.version import VERSION

Run = Callable[..., Ran]


def test_the_version_comes_first_and_then_those_of_what_matters(here: Run) -> None:
    ran = here("--version")
    lines = ran.out.splitlines()
    assert (ran.code, lines[0]) == (0, f"fencepost {VERSION}")
    assert lines[1].startswith(f"python {platform.python_version()} (")
    assert {f"numpy {numpy.__version__}", f"numba {numba.__version__}"} <= set(lines)


@pytest.fixture
def bash(here: Run, tmp_path: Path) -> Callable[..., list[str]]:
    """What bash completes after these words. The last one is incomplete."""
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    (tmp_path / "script").write_text(here("completion", "bash").out)

    def completed(*words: str) -> list[str]:
        typed = " ".join(f"'{word}'" for word in ("fencepost", *words))
        program = f'source "$0"; COMP_WORDS=({typed}); COMP_CWORD={len(words)}; _fencepost; echo "${{COMPREPLY[@]}}"'
        done = subprocess.run(
            ["bash", "-c", program, str(tmp_path / "script")], capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.split()

    return completed


def test_bash_completes_commands_options_and_choices(bash: Callable[..., list[str]]) -> None:
    assert set(bash("")) == set(cli.COMMANDS)
    assert bash("ver") == [] and bash("va") == ["validate"]
    assert bash("check", "--eng") == ["--engine"]
    assert bash("query", "space", "select 1", "--engine", "") == ["auto", "duckdb", "spark"]
    assert set(bash("check", "")) == set(loading.SHIPPED)
    assert "read" in bash("ledger", "")
    assert "--metadata" in bash("ledger", "read", "--m")
    assert bash("check", "--json", "--") == []  # a file


def test_every_shell_gets_every_option(here: Run) -> None:
    commands = list(_commands(cli.whole_parser()))
    assert {command.path for command in commands} >= {"", *cli.COMMANDS, "ledger read", "log append"}
    for shell in ("bash", "zsh", "fish"):
        script = here("completion", shell).out
        for command in commands:
            for flag in (flag for action in command.options for flag in action.option_strings if flag[:2] == "--"):
                assert (flag if shell != "fish" else f" -l {flag[2:]}") in script
    assert here("completion", "ksh").code == 151
