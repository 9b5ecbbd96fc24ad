"""``fencepost drive``: the roles of the store, driven along behaviours of the protocol that they are said to run."""

from __future__ import annotations

import argparse
import time

from fencepost import arguments, output
from fencepost.errors import OptionError


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be typed after ``fencepost drive``."""
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
    told = parser.add_argument_group("results")
    told.add_argument(
        "--json", metavar="FILE", help="all of it for programs; - for standard output, and nothing else there"
    )
    told.add_argument("--sequence", metavar="FILE", help="the behaviour to the first difference as a sequence diagram")
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
    """Drive, and tell what came of it."""
    from fencepost.commands.simulating import protections_without
    from fencepost.store.driven import report, table
    from fencepost.store.driven.walk import Driver
    from fencepost.trace.json import dumps

    for option in ("json", "sequence"):
        path = getattr(given, option)
        if path == "-" and option == "sequence":
            raise OptionError("--sequence - is not possible: only --json can go to standard output")
        if path not in (None, "-"):
            output.must_be_writable(option, path)
    space = table.opened(given.states, given.protocol)
    protocol = table.protocol_of(space)
    protections = protections_without(given.without, protocol.protections)
    began = time.perf_counter()
    if given.master is None and not given.conf:
        if given.sample is None:
            told = table.every_transition(space, protections)
        else:
            told = table.sample(space, given.sample, given.seed, protections)
    else:
        from fencepost.spark.sql import session
        from fencepost.store.driven import on_spark

        with session(given.master, dict(given.conf), bool(given.debug)) as spark:
            began = time.perf_counter()
            if given.sample is None:
                told = on_spark.every_transition(spark, space, protections)
            else:
                told = on_spark.sample(spark, space, given.sample, given.seed, protections)
    seconds = time.perf_counter() - began
    table.must_have_driven(told)
    trace = report.trace_to(Driver(protocol), told.found[0]) if told.found else None
    if given.json is not None:
        output.write_lines(
            "json", given.json, iter([dumps(report.data(space, told, trace, seconds, given.without), indent=2), "\n"])
        )
    if given.sequence is not None and trace is not None:
        from fencepost.report.sequence import sequence

        output.write_lines(
            "sequence",
            given.sequence,
            iter([sequence(trace, "; ".join(line.strip() for line in report.difference(told.found[0])))]),
        )
    if given.json != "-":
        output.say(report.story(space, told, trace, seconds, given.without, output.width()))
    if not space.manifest.complete:
        output.complain(
            f"{given.states} is not complete: {space.manifest.ended or 'the search ended early'}", None, False
        )
    return report.exit_code(told)
