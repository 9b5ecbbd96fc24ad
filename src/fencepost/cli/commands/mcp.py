"""``fencepost mcp``: serves tools for programs that write protocols."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

from fencepost import errors
from fencepost.cli import output
from fencepost.cli.arguments import option
from fencepost.errors import OptionError, SystemFailure, naming_extra
from fencepost.text import units

SECONDS, MEMORY = 60.0, 2 << 30


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``fencepost mcp``."""
    parser.description = (
        "Serve the Model Context Protocol on standard input and output: check, witness, explain, validate, drive. The"
        " protocols and systems that a client names are Python, and run with your rights."
    )
    option(parser, "--root DIR", "the folder whose files may be named; by default the current one", Path, Path())
    option(parser, "--timeout SECONDS", "the most time of one call; by default 60", units.seconds, SECONDS)
    option(parser, "--max-memory SIZE", "the most memory of one call; by default 2GiB", units.size, MEMORY)


def run(args: argparse.Namespace) -> int:
    """Serve until standard input ends."""
    if sys.platform == "win32":  # its limits end groups of processes
        raise SystemFailure("fencepost mcp needs Linux or macOS: on Windows, run it in WSL")
    if not args.root.is_dir():
        raise OptionError(f"--root {args.root} is no directory")
    with naming_extra("fencepost mcp", "mcp"):
        from fencepost.cli.mcp.bounded import Bounds
        from fencepost.cli.mcp.server import server

    with contextlib.redirect_stdout(output.stdout()):  # where commands print only results
        server(args.root.resolve(), Bounds(args.timeout, args.max_memory)).run("stdio")
    return errors.HOLDS
