"""``fencepost list``: lists the shipped protocols."""

from __future__ import annotations

import argparse

from fencepost import errors
from fencepost.cli import output
from fencepost.language import loading


def add_options(parser: argparse.ArgumentParser) -> None:
    """``fencepost list`` has no arguments."""


def run(_: argparse.Namespace) -> int:
    """List the protocols."""
    from fencepost.report.describe import listing

    protocols = [(name, loading.load(name)) for name in loading.SHIPPED]
    output.say(listing(protocols, output.width() if output.is_terminal() else None))
    return errors.HOLDS
