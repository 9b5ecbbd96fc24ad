"""The page of questions to state spaces: its commands, run one after the other in one folder, and its plots.

They share one Spark, for starting one takes longer than most answers. So they are run in this process, not as the
commands of other pages.
"""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from docs.documents import DOCS, EXAMPLES, Command, blocks, commands

from fencepost.cli.main import main

PAGE = DOCS / "check/questions.md"
IMAGES = DOCS / "images"


def questions() -> list[Command]:
    """Every command of the page, in order."""
    return [command for block in blocks(PAGE, "text") for command in commands(block)]


def answers(folder: Path) -> Iterator[str]:
    """The output of each command. Their files stay in ``folder``."""
    for command in questions():
        with _at_home_in(folder), contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(said):
            program, *given = shlex.split(command.line)
            if program == "python":
                with mock.patch.object(sys, "argv", given):
                    runpy.run_path(str(EXAMPLES / given[0]), run_name="__main__")
            else:
                main(given)
        yield said.getvalue()


@contextlib.contextmanager
def _at_home_in(folder: Path) -> Iterator[None]:
    with contextlib.chdir(folder), mock.patch.dict(os.environ, COLUMNS="100", NO_COLOR="1"):
        yield


def plots(folder: Path) -> dict[str, str]:
    """The plots of the page by the names of their files, drawn from what its commands left in ``folder``."""
    drawn: dict[str, str] = runpy.run_path(str(IMAGES / "plots.py"))["drawn"](folder)
    return drawn
