"""``fencepost cluster``: runs a ledger store on this machine, and injects faults."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fencepost import errors
from fencepost.cli import arguments, output
from fencepost.cli.arguments import option
from fencepost.cli.cluster import up, views
from fencepost.errors import OptionError
from fencepost.ledger.cluster import control, plan, supervisor
from fencepost.ledger.cluster.part import State
from fencepost.ledger.cluster.ports import Ports
from fencepost.text import units

NOT_ALL_SERVE = 1
"""The exit code of ``status`` if a part does not serve."""

ACTIONS = {
    "kill": "end parts at once (kill -9)",
    "stop": "end parts cleanly",
    "start": "start parts that are down, and wait until they serve",
    "pause": "suspend parts (SIGSTOP)",
    "resume": "resume paused parts (SIGCONT)",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``fencepost cluster``."""
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=arguments.Parser)
    starting = commands.add_parser("up", help="start a cluster, and run it until Ctrl-C", allow_abbrev=False)
    _directory(starting, "its directory; created if it is missing; a cluster in it is started again")
    option(
        starting, "--bookies N", f"the number of bookies; by default {plan.BOOKIES}, or as many as there are", _bookies
    )
    option(
        starting,
        "--members N",
        "the members of the metadata service, a quorum; by default 1, or as many as there are",
        _members,
    )
    option(
        starting,
        "--metadata-port N",
        f"the port of the metadata service; further members have the next ones; by default {plan.METADATA_PORT}, or any"
        " if one is taken",
        arguments.port,
    )
    option(
        starting,
        "--bookie-port N",
        f"the port of bookie 1; the others have the next ones; by default {plan.BOOKIE_PORT}, or any if one is taken",
        arguments.port,
    )
    option(
        starting,
        "--http-port N",
        "the port of /live, /ready and /metrics of the metadata service; its further members and the bookies have the"
        " next ones",
        arguments.port,
    )
    option(starting, "--detach", "continue in the background once it serves; fencepost cluster down ends it")
    option(starting, "--trace DIR", "write a trace of every part to a folder", Path)
    _json(starting, "print the state as a line of JSON after every change")
    for name, purpose in (
        ("status", "print the state of the parts; the exit code is 1 unless all serve"),
        ("down", "end a cluster cleanly, from elsewhere"),
    ):
        asking = commands.add_parser(name, help=purpose, allow_abbrev=False)
        _directory(asking, "the directory of a cluster")
        _json(asking)
    for name, purpose in ACTIONS.items():
        hurting = commands.add_parser(name, help=purpose, allow_abbrev=False)
        _directory(hurting, "the directory of a running cluster")
        option(hurting, "parts PART", f"the number of a bookie, or {plan.METADATA}, or {plan.METADATA}-N", nargs="+")
        _json(hurting)

    rolling = commands.add_parser(
        "roll", help="restart the bookies one at a time, each once no ledger needs it", allow_abbrev=False
    )
    _directory(rolling, "the directory of a running cluster")
    option(
        rolling,
        "--timeout SECONDS",
        "the longest wait until a bookie may stop (300); the next roll continues",
        units.seconds,
        300.0,
    )
    _json(rolling)


def _directory(parser: argparse.ArgumentParser, purpose: str) -> None:
    option(parser, "directory DIR", purpose, arguments.folder)


def _json(parser: argparse.ArgumentParser, purpose: str = "print the resulting state as JSON") -> None:
    option(parser, "--json", purpose)


def _bookies(text: str) -> int:
    number = arguments.count(text)
    if number > plan.MOST_BOOKIES:
        raise argparse.ArgumentTypeError(f"{text} are too many for one machine: give at most {plan.MOST_BOOKIES}")
    return number


def _members(text: str) -> int:
    number = arguments.count(text)
    if number > plan.MOST_MEMBERS:
        raise argparse.ArgumentTypeError(f"{text} are too many for a quorum: give at most {plan.MOST_MEMBERS}")
    return number


def run(args: argparse.Namespace) -> int:
    """Run the command. Returns the exit code."""
    if args.action == "up":
        _up(args)
    elif args.action == "status":
        facts = _status(args.directory)
        _tell(args, facts)
        if any(part["state"] != State.SERVES for part in facts["parts"]):
            return NOT_ALL_SERVE
    elif args.action == "down":
        _tell(args, _down(args.directory))
    elif args.action == "roll":
        _tell(args, _roll(args))
    else:
        _tell(args, control.ask(args.directory, args.action, args.parts))
    return errors.HOLDS


def _up(args: argparse.Namespace) -> None:
    with supervisor.Directory(args.directory) as directory, Ports() as taken:
        planned = plan.planned(args.directory, args.bookies, args.metadata_port, args.bookie_port, taken, args.members)
        if args.http_port is not None and args.http_port + len(planned.names()) > 65_536:
            raise OptionError(f"--http-port {args.http_port}: the other parts have the next ports, and there are 65535")
        if not args.detach:
            up.run(directory, planned, _view(args), args.trace, args.http_port)
            return
    words = [str(args.directory)]
    options = (
        ("--bookies", args.bookies),
        ("--members", args.members),
        ("--metadata-port", args.metadata_port),
        ("--bookie-port", args.bookie_port),
        ("--http-port", args.http_port),
        ("--trace", args.trace),
    )
    for name, value in options:
        words += [] if value is None else [name, str(value)]
    facts = up.detach(args.directory, words)
    if args.json:
        _tell(args, facts)
    else:
        output.say(f"{views.introduction(facts)}  fencepost cluster down {args.directory}")


def _view(args: argparse.Namespace) -> views.View:
    if args.json:
        return views.Json()
    stdout = output.stdout()
    return views.Screen() if stdout is not None and stdout.isatty() else views.Lines()


def _status(directory: Path) -> dict[str, Any]:
    """The status of a cluster, running or not."""
    planned = plan.read(directory)
    if planned is None:
        raise OptionError(f"there is no cluster in {directory}: fencepost cluster up {directory}")
    try:
        return control.ask(directory, control.STATUS)
    except OptionError:  # it is not running
        return supervisor.at_rest(directory, planned)


def _down(directory: Path) -> dict[str, Any]:
    """Stop a cluster, and wait for its end."""
    control.ask(directory, control.DOWN)
    supervisor.wait_until_free(directory)
    return _status(directory)


def _roll(args: argparse.Namespace) -> dict[str, Any]:
    """Restart the bookies one at a time. Progress goes to standard error."""
    from fencepost.cli.cluster import roll
    from fencepost.cli.commands import streams

    return roll.run(args.directory, args.timeout, streams.inform)


def _tell(args: argparse.Namespace, facts: dict[str, Any]) -> None:
    if args.json:
        output.write_json("-", facts)
    else:
        output.say(views.table(facts))
