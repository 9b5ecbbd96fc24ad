"""``fencepost witness``: finds the shortest behaviour to a state that a SQL condition selects."""

from __future__ import annotations

import argparse

from fencepost import errors
from fencepost.cli import output
from fencepost.cli.arguments import option
from fencepost.cli.commands import results, tables


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``fencepost witness``."""
    option(parser, "space DIR", "the directory that fencepost check --states DIR wrote")
    option(parser, "--where SQL", "a condition on the columns of the table states", required=True)
    results.add_options(parser)
    tables.add_options(parser)


def run(args: argparse.Namespace) -> int:
    """Search for a state, and show the behaviour that leads to it."""
    from fencepost.api.result import witnessed
    from fencepost.states.manifest import StateSpace
    from fencepost.states.queries import where
    from fencepost.states.witness import witness

    space = StateSpace(args.space)
    protocol = space.protocol()
    vars(args).update(protocol=space.manifest.home, config=None, define=[], invariants=None, profile=False)
    shown = results.Results(args, protocol)
    found = where(space, args.where, tables.asked(args))
    if found is None:
        why = space.manifest.ended or "the search ended early"
        whole = "" if space.manifest.complete else f", which is not complete: {why}"
        output.say(f"None of the {space.manifest.states:,} states of {args.space} satisfies {args.where}{whole}.")
        return errors.NOT_REACHED
    return shown.show(witnessed(witness(space, *found), args.where))
