"""``fencepost diff``: which states one state space has and another has not."""

from __future__ import annotations

import argparse

from fencepost import errors
from fencepost.cli import arguments, output
from fencepost.cli.arguments import option
from fencepost.cli.commands import tables


def add_options(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``fencepost diff``."""
    option(parser, "space DIR1", "what fencepost check --states DIR1 wrote")
    option(parser, "other DIR2", "another one, say of the protocol with a fix")
    option(parser, "--parts NAME,...", "compare only these parts of the state, with all below them: meta,bookie")
    option(parser, "--json FILE", "the difference as JSON; - is standard output, which then has nothing else")
    tables.add_options(parser)


def run(given: argparse.Namespace) -> int:
    """Compare two state spaces."""
    from fencepost.report.difference import data, story
    from fencepost.states.diff import difference
    from fencepost.states.manifest import StateSpace
    from fencepost.states.witness import witness

    one, other = StateSpace(given.space), StateSpace(given.other)
    output.check_files(given, "json")
    found = difference(one, other, tables.asked(given), arguments.names(given.parts))
    traces = [side.nearest and witness(side.space, *side.nearest) for side in found.sides]
    output.show(given, story(found, traces, output.width()), data(found, traces))
    return errors.HOLDS
