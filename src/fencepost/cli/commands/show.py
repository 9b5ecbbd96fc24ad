"""``fencepost show``: prints the declarations of a protocol."""

from __future__ import annotations

import argparse

from fencepost import errors
from fencepost.cli import output
from fencepost.cli.arguments import option
from fencepost.language import loading


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``fencepost show``."""
    option(parser, "protocol PROTOCOL", "a shipped name, FILE.py or FILE.py:ClassName")


def run(args: argparse.Namespace) -> int:
    """Show the protocol."""
    from fencepost.report.describe import description

    output.say(description(loading.load(args.protocol), output.width()))
    return errors.HOLDS
