"""``fencepost drive``: drives the roles of the store along behaviours of their protocol."""

from __future__ import annotations

import argparse
import time

from fencepost.cli import arguments, output
from fencepost.cli.arguments import option
from fencepost.cli.commands.results import add_ci_options


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``fencepost drive``."""
    parser.description = (
        "Drive the roles of the store along behaviours of a state space, "
        "and compare them with the protocol after each step."
    )
    option(parser, "--protocol NAME", "the protocol of the table: store, the only one with roles", default="store")
    option(
        parser,
        "--states DIR",
        "the table that fencepost check store --states DIR --edges wrote",
        arguments.place,
        required=True,
    )
    which = parser.add_mutually_exclusive_group()
    option(which, "--every-transition", "drive every transition of the table, which is the default")
    option(which, "--sample N", "drive the behaviours to N states instead", arguments.count)
    option(parser, "--seed N", "chooses the states of --sample; by default 0", arguments.number, 0)
    option(parser, "--without PROTECTION ...", "switch off a protection of the roles (repeatable)")
    results = parser.add_argument_group("results")
    option(results, "--json FILE", "the result as JSON; - is standard output, with nothing else on it")
    option(results, "--sequence FILE", "the behaviour to the first difference as a sequence diagram")
    add_ci_options(results, "junit", "markdown")
    spark = parser.add_argument_group("on Spark")
    option(spark, "--master URL", "drive on this Spark master; by default in this process")
    option(spark, "--conf KEY=VALUE ...", "a setting of Spark (repeatable)", arguments.setting)


def run(args: argparse.Namespace) -> int:
    """Drive the roles, and show the result."""
    from fencepost.cli.commands.simulating import protections_without
    from fencepost.cli.commands.tables import complain_if_not_complete
    from fencepost.report.junit import FAILURE, Case, junit
    from fencepost.report.markdown import summary
    from fencepost.report.sequence import mermaid, sequence
    from fencepost.testing.store import report, table
    from fencepost.testing.store.driver import Driver

    output.check_files(args, "json", "sequence", "junit", "markdown")
    space = table.opened(args.states, args.protocol)
    protocol = table.protocol_of(space)
    protections = protections_without(args.without, protocol.protections)
    began = time.perf_counter()
    if args.master is None and not args.conf:
        if args.sample is None:
            driven = table.every_transition(space, protections)
        else:
            driven = table.sample(space, args.sample, args.seed, protections)
    else:
        from fencepost.spark import driving_store as on_spark
        from fencepost.spark.sql import session

        with session(args.master, dict(args.conf), bool(args.debug)) as spark:
            began = time.perf_counter()
            if args.sample is None:
                driven = on_spark.every_transition(spark, space, protections)
            else:
                driven = on_spark.sample(spark, space, args.sample, args.seed, protections)
    seconds = time.perf_counter() - began
    table.must_have_driven(driven)
    trace = report.trace_to(Driver(protocol), driven.found[0]) if driven.found else None
    story = report.story(space, driven, trace, seconds, args.without, output.width())
    differs = "; ".join(line.strip() for line in report.difference(driven.found[0])) if driven.found else ""
    if args.sequence is not None and trace is not None:
        output.write_lines("sequence", args.sequence, [sequence(trace, differs)])
    if args.junit is not None:
        test = Case("drive", FAILURE if differs else "", differs, story)
        output.write_lines("junit", args.junit, [junit(protocol.name, [test], {"states": str(args.states)}, seconds)])
    if args.markdown is not None:
        drawn = mermaid(trace, differs) if trace is not None else ""
        output.write_lines("markdown", args.markdown, [summary(story, drawn)])
    output.show(args, story, report.data(space, driven, trace, seconds, args.without))
    complain_if_not_complete(space)
    return report.exit_code(driven)
