"""``fencepost cluster``: a ledger store on this machine, and ways to hurt it."""

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

NOT_ALL_SERVE = 1
"""The exit code of ``status`` where a part does not serve."""

ACTIONS = {
    "kill": "end parts at once (kill -9)",
    "stop": "end parts cleanly",
    "start": "start parts that are down, and wait until they serve",
    "pause": "stop parts in their tracks (SIGSTOP)",
    "resume": "let paused parts go on (SIGCONT)",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``fencepost cluster``."""
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=arguments.Parser)
    starting = commands.add_parser("up", help="start a cluster, and run it until Ctrl-C", allow_abbrev=False)
    _directory(starting, "where it keeps everything; made if it is missing, started again if there is a cluster in it")
    option(starting, "--bookies N", f"how many; by default {plan.BOOKIES}, or as many as there are", _bookies)
    option(
        starting,
        "--metadata-port N",
        f"the port of the metadata service; by default {plan.METADATA_PORT}, or any if that is taken",
        arguments.port,
    )
    option(
        starting,
        "--bookie-port N",
        f"the port of bookie 1, the others having the next; by default {plan.BOOKIE_PORT}, or any if one of them is"
        " taken",
        arguments.port,
    )
    option(starting, "--detach", "go on in the background once it serves; fencepost cluster down ends it")
    option(starting, "--trace DIR", "every part writes a trace of what it does to a folder of traces", Path)
    _json(starting, "how everything is as a line of JSON, after every change")
    for name, purpose in (
        ("status", "how the parts are; the exit code is 1 if one does not serve"),
        ("down", "end a cluster cleanly, from elsewhere"),
    ):
        asking = commands.add_parser(name, help=purpose, allow_abbrev=False)
        _directory(asking, "the directory of a cluster")
        _json(asking)
    for name, purpose in ACTIONS.items():
        hurting = commands.add_parser(name, help=purpose, allow_abbrev=False)
        _directory(hurting, "the directory of a cluster that runs")
        option(hurting, "parts PART", f"the number of a bookie, or {plan.METADATA}", nargs="+")
        _json(hurting)


def _directory(parser: argparse.ArgumentParser, purpose: str) -> None:
    option(parser, "directory DIR", purpose, Path)


def _json(parser: argparse.ArgumentParser, purpose: str = "how everything is then, as JSON") -> None:
    option(parser, "--json", purpose)


def _bookies(text: str) -> int:
    number = arguments.count(text)
    if number > plan.MOST_BOOKIES:
        raise argparse.ArgumentTypeError(f"{text} are too many for one machine: give at most {plan.MOST_BOOKIES}")
    return number


def run(given: argparse.Namespace) -> int:
    """Run the command; the exit code."""
    if given.action == "up":
        _up(given)
    elif given.action == "status":
        facts = _status(given.directory)
        _tell(given, facts)
        if any(part["state"] != State.SERVES for part in facts["parts"]):
            return NOT_ALL_SERVE
    elif given.action == "down":
        _tell(given, _down(given.directory))
    else:
        _tell(given, control.ask(given.directory, given.action, given.parts))
    return errors.HOLDS


def _up(given: argparse.Namespace) -> None:
    with supervisor.Directory(given.directory) as directory:
        planned = plan.planned(given.directory, given.bookies, given.metadata_port, given.bookie_port)
        if not given.detach:
            up.run(directory, planned, _view(given), given.trace)
            return
    words = [str(given.directory)]
    options = (
        ("--bookies", given.bookies),
        ("--metadata-port", given.metadata_port),
        ("--bookie-port", given.bookie_port),
        ("--trace", given.trace),
    )
    for name, value in options:
        words += [] if value is None else [name, str(value)]
    facts = up.detach(given.directory, words)
    if given.json:
        _tell(given, facts)
    else:
        output.say(f"{views.introduction(facts)}  fencepost cluster down {given.directory}")


def _view(given: argparse.Namespace) -> views.View:
    if given.json:
        return views.Json()
    stdout = output.stdout()
    return views.Screen() if stdout is not None and stdout.isatty() else views.Lines()


def _status(directory: Path) -> dict[str, Any]:
    """How a cluster is, whether it runs or not."""
    planned = plan.read(directory)
    if planned is None:
        raise OptionError(f"there is no cluster in {directory}: fencepost cluster up {directory}")
    try:
        return control.ask(directory, control.STATUS)
    except OptionError:  # nobody runs it
        return supervisor.at_rest(directory, planned)


def _down(directory: Path) -> dict[str, Any]:
    """End a cluster, and wait until it has ended."""
    control.ask(directory, control.DOWN)
    supervisor.wait_until_free(directory)
    return _status(directory)


def _tell(given: argparse.Namespace, facts: dict[str, Any]) -> None:
    if given.json:
        output.write_json("-", facts)
    else:
        output.say(views.table(facts))
