"""``fencepost show``: all that a protocol declares."""

from __future__ import annotations

import argparse

from fencepost import errors
from fencepost.cli import output
from fencepost.cli.arguments import option
from fencepost.language import loading


def add_options(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``fencepost show``."""
    option(parser, "protocol PROTOCOL", "a shipped name, FILE.py or FILE.py:ClassName")


def run(given: argparse.Namespace) -> int:
    """Show it."""
    from fencepost.report.describe import description

    output.say(description(loading.load(given.protocol), output.width()))
    return errors.HOLDS
