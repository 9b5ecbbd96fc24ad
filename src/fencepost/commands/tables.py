"""The commands that ask state spaces in SQL: which engine answers."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fencepost import arguments
from fencepost.arguments import option

if TYPE_CHECKING:
    from fencepost.states.questions import By


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options that say which engine answers, and where Spark is."""
    option(
        parser,
        "--engine",
        "who answers: auto asks DuckDB where DIR is on this machine and DuckDB is known to answer as Spark does, "
        "and else Spark",
        default="auto",
        choices=("auto", "duckdb", "spark"),
    )
    arguments.add_spark(parser)


def asked(given: argparse.Namespace) -> By:
    """The engine that answers, as it was typed."""
    from fencepost.states.questions import By

    return By(given.engine, given.master, dict(given.conf), given.debug)
