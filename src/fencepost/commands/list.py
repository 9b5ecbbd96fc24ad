"""``fencepost list``: the protocols that come with Fencepost."""

from __future__ import annotations

import argparse

from fencepost import errors, loading, output


def add_options(parser: argparse.ArgumentParser) -> None:
    """``fencepost list`` has no arguments."""


def run(_: argparse.Namespace) -> int:
    """List them."""
    from fencepost.describe import listing

    output.say(listing([(name, loading.load(name)) for name in loading.shipped_names()]))
    return errors.HOLDS
