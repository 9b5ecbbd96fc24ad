"""``fencepost query``: queries a state space in SQL."""

from __future__ import annotations

import argparse

from fencepost import errors
from fencepost.cli import arguments, output
from fencepost.cli.arguments import option
from fencepost.cli.commands import tables


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``fencepost query``."""
    option(parser, "space DIR", "the directory that fencepost check --states DIR wrote")
    option(parser, "sql SQL", "a query over the tables states and edges")
    option(parser, "--rows N", "the most rows to print (50); files have all", arguments.count, 50)
    option(parser, "--json FILE", "all rows as JSON; - is standard output, with nothing else on it")
    option(parser, "--csv FILE", "all rows as CSV; - is standard output")
    tables.add_options(parser)


def run(args: argparse.Namespace) -> int:
    """Run the query, and print the answer."""
    from fencepost.report import tables as written
    from fencepost.states.manifest import StateSpace
    from fencepost.states.queries import answered

    space = StateSpace(args.space)
    output.check_files(args, "json", "csv")
    with answered(space, args.sql, tables.asked(args)) as answer:
        files = [(written.as_json, args.json, "json"), (written.as_csv, args.csv, "csv")]
        for render, path, option in files:
            if path is not None:
                output.write_lines(option, path, render(answer.columns, answer.rows()))
        if "-" not in (args.json, args.csv):
            rows = answer.first(args.rows + 1)
            output.say(written.aligned(answer.columns, rows[: args.rows]))
            if len(rows) > args.rows:
                output.say(
                    f"\nThere are more rows: --rows N prints more than {args.rows:,}, --csv and --json write all."
                )
    tables.complain_if_not_complete(space)
    return errors.HOLDS
