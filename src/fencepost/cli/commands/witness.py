"""``fencepost witness``: the shortest behaviour to a state that SQL describes."""

from __future__ import annotations

import argparse

from fencepost import errors
from fencepost.cli import output
from fencepost.cli.arguments import option
from fencepost.cli.commands import results, tables


def add_options(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``fencepost witness``."""
    option(parser, "space DIR", "what fencepost check --states DIR wrote")
    option(parser, "--where SQL", "a condition on the columns of states", required=True)
    results.add_options(parser)
    tables.add_options(parser)


def run(given: argparse.Namespace) -> int:
    """Look for a state, and show the way to it."""
    from fencepost.api.result import witnessed
    from fencepost.states.manifest import StateSpace
    from fencepost.states.queries import where
    from fencepost.states.witness import witness

    space = StateSpace(given.space)
    protocol = space.protocol()
    vars(given).update(protocol=space.manifest.home, config=None, define=[], invariants=None, profile=False)
    shown = results.Results(given, protocol)
    found = where(space, given.where, tables.asked(given))
    if found is None:
        why = space.manifest.ended or "the search ended early"
        whole = "" if space.manifest.complete else f", which is not complete: {why}"
        output.say(f"None of the {space.manifest.states:,} states of {given.space} satisfies {given.where}{whole}.")
        return errors.NOT_REACHED
    return shown.show(witnessed(witness(space, *found), given.where))
