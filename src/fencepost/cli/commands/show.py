"""``fencepost show``: prints the declarations of a protocol."""

from __future__ import annotations

import argparse

from fencepost import errors
from fencepost.cli import arguments, output
from fencepost.cli.arguments import option
from fencepost.language import loading


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``fencepost show``."""
    option(parser, "protocol PROTOCOL", "a shipped name, FILE.py, FILE.py:ClassName or FILE.tla")
    arguments.add_libraries(parser)


def run(args: argparse.Namespace) -> int:
    """Show the protocol."""
    from fencepost.report.describe import description

    found = loading.find(args.protocol, args.libraries)
    output.say(description(found, output.width()) if isinstance(found, type) else found.description(output.width()))
    return errors.HOLDS
