"""``fencepost query``: ask a state space in SQL."""

from __future__ import annotations

import argparse

from fencepost import errors
from fencepost.cli import arguments, output
from fencepost.cli.arguments import option
from fencepost.cli.commands import tables


def add_options(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``fencepost query``."""
    option(parser, "space DIR", "what fencepost check --states DIR wrote")
    option(parser, "sql SQL", "a question over the tables states and edges")
    option(parser, "--rows N", "the most rows to print (50); files get all", arguments.count, 50)
    option(parser, "--json FILE", "all rows as JSON; - is standard output, which then has nothing else")
    option(parser, "--csv FILE", "all rows as CSV; - is standard output")
    tables.add_options(parser)


def run(given: argparse.Namespace) -> int:
    """Ask, and print the answer."""
    from fencepost.report import rows as written
    from fencepost.states.manifest import StateSpace
    from fencepost.states.queries import answered

    space = StateSpace(given.space)
    output.check_files(given, "json", "csv")
    with answered(space, given.sql, tables.asked(given)) as answer:
        files = [(written.as_json, given.json, "json"), (written.as_csv, given.csv, "csv")]
        for render, path, option in files:
            if path is not None:
                output.write_lines(option, path, render(answer.columns, answer.rows()))
        if "-" not in (given.json, given.csv):
            rows = answer.first(given.rows + 1)
            output.say(written.aligned(answer.columns, rows[: given.rows]))
            if len(rows) > given.rows:
                output.say(
                    f"\nThere are more rows: --rows N prints more than {given.rows:,}, --csv and --json write all."
                )
    tables.complain_if_not_complete(space)
    return errors.HOLDS
