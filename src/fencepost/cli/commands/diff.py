"""``fencepost diff``: compares two state spaces."""

from __future__ import annotations

import argparse

from fencepost import errors
from fencepost.cli import arguments, output
from fencepost.cli.arguments import option
from fencepost.cli.commands import tables


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``fencepost diff``."""
    option(parser, "space DIR1", "the directory that fencepost check --states DIR1 wrote")
    option(parser, "other DIR2", "another one, such as that of the protocol with a fix")
    option(parser, "--parts NAME,...", "compare only these parts of the state and all below them: meta,bookie")
    option(parser, "--json FILE", "the difference as JSON; - is standard output, with nothing else on it")
    tables.add_options(parser)


def run(args: argparse.Namespace) -> int:
    """Compare two state spaces."""
    from fencepost.report.difference import data, story
    from fencepost.states.diff import difference
    from fencepost.states.manifest import StateSpace
    from fencepost.states.witness import witness

    one, other = StateSpace(args.space), StateSpace(args.other)
    output.check_files(args, "json")
    found = difference(one, other, tables.asked(args), arguments.names(args.parts))
    traces = [side.nearest and witness(side.space, *side.nearest) for side in found.sides]
    output.show(args, story(found, traces, output.width()), data(found, traces))
    return errors.HOLDS
