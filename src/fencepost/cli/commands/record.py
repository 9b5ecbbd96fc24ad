"""``fencepost record``: runs a proxy between clients and bookies that records messages and can inject faults."""

from __future__ import annotations

import argparse
import asyncio
import random
from pathlib import Path
from typing import Any

from fencepost import errors
from fencepost.cli import arguments, output
from fencepost.cli.arguments import option
from fencepost.cli.commands import serving
from fencepost.connections.loop import loop_factory
from fencepost.ledger.recording import process
from fencepost.ledger.recording.process import Recording, RecordingOptions, RecordingResult
from fencepost.ledger.wire.frames import DEFAULT_LIMIT
from fencepost.text import numbers, units
from fencepost.traces import TraceWriter

_EPILOG = """\
faults:
  ACTION DIRECTION [KIND] [CONDITION=VALUE ...]
      ACTION     drop, delay, or cut (the connection, instead of passing the message on)
      DIRECTION  request or response
      KIND       add, read, batch_read, read_lac, write_lac, force, list_entries, bookie_info, auth, or any (any)
      bookie=    its number among those recorded, from 1, or its id
      ledger=    its id
      entry=     its id, or FIRST..LAST; -1 is a read of the last one
      recovery=  yes or no: adds of a recovery
      fence=     yes or no: reads that fence
      code=      of a response: OK, NO_ENTRY, FENCED, ...
      after=     the number of matching messages that pass first (0)
      count=     the number of messages that it then acts on, or all (1)
      by=        of a delay: 200ms, 1.5s (100ms)
  --fault "drop response add bookie=2 after=10 count=1"
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``fencepost record``."""
    parser.description = (
        "Run a proxy between clients and bookies, BookKeeper's or Fencepost's, that records every message and every\n"
        "version of the metadata of ledgers. SIGTERM and Ctrl-C end it cleanly."
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    option(parser, "--metadata URI", "the metadata service: zk://HOST:PORT[,HOST:PORT]/ledgers", required=True)
    option(parser, "--trace DIR", "the folder to write the trace to; created if it is missing", Path, required=True)
    option(
        parser,
        "--listen HOST:PORT ...",
        "where to listen in place of a bookie; port 0: any free one (repeatable, once for each --bookie)",
        _address,
    )
    option(
        parser,
        "--bookie [ID=]HOST:PORT ...",
        "where that bookie listens, with its id if it registers later (repeatable); by default all registered ones",
        _bookie,
    )
    option(parser, "--node NAME", "the name of the proxy in the trace (proxy)", default="proxy")
    option(parser, "--run NAME", "the name of the run; by default that of the folder", dest="run_name")
    making = parser.add_argument_group("faults")
    option(making, "--fault RULE ...", "a rule, see below (repeatable; the first that is due acts)")
    option(making, "--faults N", "the number of random faults", arguments.count, 0)
    option(making, "--seed N", "the seed of the random faults; by default any, which is printed", arguments.number)
    option(parser, "--max-message SIZE", "the largest message that is recorded (5MiB)", units.size, DEFAULT_LIMIT)
    option(parser, "--verbose", "log information too, not only warnings and errors")


def run(args: argparse.Namespace) -> int:
    """Record until a signal arrives."""
    serving.log_to_standard_error(args.verbose)
    if args.seed is not None and not args.faults:
        raise errors.OptionError("--seed is for random faults: give --faults N too")
    seed = random.SystemRandom().getrandbits(32) if args.seed is None else args.seed
    asked = RecordingOptions(
        args.metadata,
        tuple(args.listen),
        tuple(args.bookie),
        tuple(args.fault),
        args.faults,
        seed,
        args.max_message,
    )

    def open_trace(started: dict[str, Any]) -> TraceWriter:
        return TraceWriter(args.trace, args.run_name, node=args.node, started=started)

    def ready(recording: Recording) -> None:
        if asked.random_faults:
            output.say(f"seed {seed}")
        for number, rule in enumerate(recording.faults, 1):
            output.say(f"fault {number}: {rule}")
        for number, (bookie, (host, port)) in enumerate(recording.bookies, 1):
            output.say(f"bookie {number}: {bookie.id} at {bookie.host}:{bookie.port}, clients come to {host}:{port}")
        output.say(f"records to {args.trace}")

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        done = runner.run(process.record(asked, open_trace, ready))
    output.say(_summary(done))
    for rule in done.unused:
        output.complain(f"a fault was never due: {rule}", None, False)
    return errors.HOLDS


def _summary(done: RecordingResult) -> str:
    counts = done.counts
    missed = f", {done.missed:,} missed" if done.missed else ""
    figures = [
        (
            f"{numbers.plural(counts.requests, 'request')} and {numbers.plural(counts.responses, 'response')} of"
            f" {numbers.plural(counts.connections, 'connection')}"
        ),
        f"{numbers.plural(done.seen, 'version')} of metadata{missed}",
        numbers.plural(counts.faults, "fault"),
    ]
    if counts.unparsed:
        figures.append(f"{numbers.plural(counts.unparsed, 'time')} bytes that are no message")
    return ", ".join(figures)


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return host, int(port)


def _bookie(text: str) -> tuple[str | None, tuple[str, int]]:
    name, equals, address = text.rpartition("=")
    if equals and not name:
        raise argparse.ArgumentTypeError(f"{text!r} has no id before its =: write ID=HOST:PORT, or HOST:PORT")
    host, port = _address(address)
    if not port:
        raise argparse.ArgumentTypeError(f"{text!r} has no port")
    return name or None, (host, port)
