"""``fencepost drive``: the roles of the store, driven along behaviours of the protocol that they are said to run."""

from __future__ import annotations

import argparse
import time

from fencepost import arguments, output


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``fencepost drive``."""
    parser.description = (
        "Drive the roles of the store along behaviours out of a table of states, "
        "and compare them with the protocol after each step."
    )
    parser.add_argument(
        "--protocol", metavar="NAME", default="store", help="the protocol of the table; there are roles of store"
    )
    parser.add_argument(
        "--states",
        metavar="DIR",
        type=arguments.place,
        required=True,
        help="the table: what fencepost check store --states DIR --edges wrote",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--every-transition", action="store_true", help="drive every transition of the table, which is the default"
    )
    which.add_argument("--sample", metavar="N", type=arguments.count, help="drive the ways to N states")
    parser.add_argument(
        "--seed", metavar="N", type=arguments.number, default=0, help="chooses the states of --sample; by default 0"
    )
    parser.add_argument(
        "--without",
        metavar="PROTECTION",
        action="append",
        default=[],
        help="switch a protection of the roles off (repeatable)",
    )
    results = parser.add_argument_group("results")
    results.add_argument(
        "--json", metavar="FILE", help="all of it for programs; - for standard output, and nothing else there"
    )
    results.add_argument(
        "--sequence", metavar="FILE", help="the behaviour to the first difference as a sequence diagram"
    )
    spark = parser.add_argument_group("on Spark")
    spark.add_argument("--master", metavar="URL", help="drive on Spark, and where that is; by default in this process")
    spark.add_argument(
        "--conf",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        type=arguments.setting,
        help="a setting of Spark; can be given several times",
    )


def run(given: argparse.Namespace) -> int:
    """Drive, and show the result."""
    from fencepost.commands.simulating import protections_without
    from fencepost.store.driven import report, table
    from fencepost.store.driven.walk import Driver

    output.check_files(given, "json", "sequence")
    space = table.opened(given.states, given.protocol)
    protocol = table.protocol_of(space)
    protections = protections_without(given.without, protocol.protections)
    began = time.perf_counter()
    if given.master is None and not given.conf:
        if given.sample is None:
            driven = table.every_transition(space, protections)
        else:
            driven = table.sample(space, given.sample, given.seed, protections)
    else:
        from fencepost.spark.sql import session
        from fencepost.store.driven import on_spark

        with session(given.master, dict(given.conf), bool(given.debug)) as spark:
            began = time.perf_counter()
            if given.sample is None:
                driven = on_spark.every_transition(spark, space, protections)
            else:
                driven = on_spark.sample(spark, space, given.sample, given.seed, protections)
    seconds = time.perf_counter() - began
    table.must_have_driven(driven)
    trace = report.trace_to(Driver(protocol), driven.found[0]) if driven.found else None
    if given.sequence is not None and trace is not None:
        from fencepost.report.sequence import sequence

        output.write_lines(
            "sequence",
            given.sequence,
            iter([sequence(trace, "; ".join(line.strip() for line in report.difference(driven.found[0])))]),
        )
    story = report.story(space, driven, trace, seconds, given.without, output.width())
    output.show(given, story, report.data(space, driven, trace, seconds, given.without))
    if not space.manifest.complete:
        output.complain(
            f"{given.states} is not complete: {space.manifest.ended or 'the search ended early'}", None, False
        )
    return report.exit_code(driven)
