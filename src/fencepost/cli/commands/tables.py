"""Common parts of the commands that query state spaces in SQL: the choice of the engine."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fencepost.cli import arguments, output
from fencepost.cli.arguments import option

if TYPE_CHECKING:
    from fencepost.states.manifest import StateSpace
    from fencepost.states.queries import By


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options for the engine and for Spark."""
    option(
        parser,
        "--engine",
        "the engine of the query; auto is DuckDB if DIR is on this machine and DuckDB is known to answer as Spark"
        " does, and otherwise Spark",
        default="auto",
        choices=("auto", "duckdb", "spark"),
    )
    arguments.add_spark(parser)


def asked(args: argparse.Namespace) -> By:
    """The engine that answers, as it was typed."""
    from fencepost.states.queries import By

    return By(args.engine, args.master, dict(args.conf), args.debug)


def complain_if_not_complete(space: StateSpace) -> None:
    """If a state space is incomplete, report why."""
    if not space.manifest.complete:
        why = space.manifest.ended or "the search ended early"
        output.complain(f"{space.directory} is not complete: {why}", None, False)
