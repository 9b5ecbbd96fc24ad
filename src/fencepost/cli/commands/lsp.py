"""``fencepost lsp``: serves an editor."""

from __future__ import annotations

import argparse
import os
import sys

from fencepost import errors
from fencepost.cli import output
from fencepost.errors import OptionError


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``fencepost lsp``."""
    parser.add_argument("--stdio", action="store_true", help="over standard input and output, which is the only way")


def run(args: argparse.Namespace) -> int:
    """Serve until the editor ends it."""
    from fencepost.editor.server import serve

    out = output.stdout()
    if out is None or sys.stdin is None or sys.stdin.isatty():
        raise OptionError("an editor starts this command, and speaks to it over standard input: see fencepost watch")
    with os.fdopen(os.dup(out.fileno()), "wb") as own:  # the server closes it
        serve(sys.stdin.buffer, own)
    return errors.HOLDS
