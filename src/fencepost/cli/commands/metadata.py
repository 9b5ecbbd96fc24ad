"""``fencepost metadata``: runs a metadata service on a directory, which ZooKeeper clients can use, and backs it up.

    fencepost metadata DIR
    fencepost metadata backup FILE --metadata zk://HOST:PORT/ledgers
    fencepost metadata verify FILE
    fencepost metadata restore FILE DIR ... [--controllers ID@HOST:PORT,...]

The first word is a verb, or the directory to serve. Write ``./backup`` for a directory named like a verb.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from fencepost import errors
from fencepost.cli import arguments, output
from fencepost.cli.arguments import option
from fencepost.cli.commands import serving
from fencepost.ledger.settings import one_setting
from fencepost.metadata import service
from fencepost.metadata.member import Member
from fencepost.metadata.settings import MetadataSettings
from fencepost.quorum.identity import is_endpoint
from fencepost.text import units

VERBS = {
    "backup": "write the whole state of a serving quorum, at one zxid, to a file",
    "verify": "check every byte of a backup, and print what it is of",
    "restore": "make the directories of a new quorum that begins with a backup",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``fencepost metadata``."""
    parser.usage = (
        "fencepost metadata DIR [options]\n"
        "       fencepost metadata backup FILE --metadata URI [--timeout SECONDS] [--json]\n"
        "       fencepost metadata verify FILE [--json]\n"
        "       fencepost metadata restore FILE DIR ... [--controllers ID@HOST:PORT,...] [--json]"
    )
    parser.description = (
        "Run a durable metadata service with ZooKeeper's protocol, as a member, or the only member, of a\n"
        "quorum (KRaft, KIP-853). SIGTERM and Ctrl-C end it cleanly. Or one of these verbs:\n"
    ) + "\n".join(f"  {verb:<8}  {purpose}" for verb, purpose in VERBS.items())
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    option(
        parser,
        "words DIR",
        "the directory for its log and snapshots, created if it is missing; or a verb (backup, verify, restore) with"
        " its arguments",
        arguments.word,
        nargs="+",
    )
    option(parser, "--port N", "the port, instead of the setting clientPort; 0: any free one", serving.port_or_any)
    option(parser, "--address HOST", "the address to listen on, instead of the setting clientPortAddress")
    option(
        parser,
        "--controllers [ID@]HOST:PORT,...",
        "the ids of the members of the quorum, and where they listen to each other. Those named when all folders are"
        " empty are the first voters; others join as observers (see fencepost quorum add). By default, an empty folder"
        " becomes a quorum of one, at a free port of 127.0.0.1 that it keeps, and any other stays in its quorum. For"
        " backup: members to ask, one that runs is enough. For restore: a member for each DIR, in this order",
        members,
    )
    option(
        parser,
        "--id ID",
        "the id of this member; not needed with a single controller, or for a folder that has an id",
        arguments.number,
    )
    option(
        parser,
        "--kafka-port N",
        "the port at which it also answers Kafka's tools, such as kafka-metadata-quorum.sh with"
        " --bootstrap-controller, at the host of this controller; they may add and remove voters",
        arguments.port,
    )
    option(
        parser,
        "--auto-join",
        "become a voter whenever this member is none and has caught up, in place of a replica of its host whose disk"
        " was lost (Kafka's controller.quorum.auto.join.enable)",
    )
    option(
        parser,
        "--listen HOST:PORT",
        "where it listens to the other members, if they reach it at another endpoint, through a proxy or a"
        " forwarded port",
        lambda text: endpoint(text, "0.0.0.0:9093"),
    )
    option(
        parser,
        "--http-port N",
        "the port of /live, /ready and /metrics (the setting metricsProvider.httpPort)",
        arguments.port,
    )
    option(parser, "--trace DIR", "write a trace to a folder", Path)
    option(parser, "--settings FILE", "a TOML file of settings; options override them", Path)
    option(parser, "--set NAME=VALUE ...", "one setting, as in the file (repeatable)")
    option(parser, "--verbose", "log information too, not only warnings and errors")
    backing = parser.add_argument_group("backup, verify, restore")
    option(
        backing,
        "--metadata URI",
        "for backup: the service, zk://HOST:PORT[,HOST:PORT]/ledgers, which is asked for its members if --controllers"
        " does not name any; by default that of FENCEPOST_METADATA",
        default=os.environ.get("FENCEPOST_METADATA"),
    )
    option(
        backing, "--timeout SECONDS", "give up a backup when nothing is done for this long (30)", units.seconds, 30.0
    )
    option(backing, "--json", "print JSON")
    parser.epilog = serving.settings_help(MetadataSettings)


def run(args: argparse.Namespace) -> int:
    """Run the command: serve until a signal arrives, or run a verb. Returns the exit code."""
    verb, *rest = args.words
    if verb in VERBS:
        if not rest:
            raise errors.OptionError(
                f"metadata {verb} takes a FILE; a service in ./{verb} is run by fencepost metadata ./{verb}"
            )
        from fencepost.cli.commands import backup

        if verb == "restore":
            args.controllers = with_ids(args.controllers)
        return backup.run(args, verb, *rest)
    if rest:
        raise errors.OptionError(f"{verb} is not a verb ({', '.join(VERBS)}), and a service has one directory")
    return _serve(args, Path(verb))


def _serve(args: argparse.Namespace, directory: Path) -> int:
    options = serving.from_options(
        args, port="clientPort", address="clientPortAddress", http_port="metricsProvider.httpPort"
    )
    settings = MetadataSettings.read(args.settings, dict(map(one_setting, args.set)) | options)
    serving.log_to_standard_error(args.verbose, settings.log_format, "metadata")
    service.run(directory, settings, _say, args.trace, _quorum(args))
    return errors.HOLDS


def _say(member: Member) -> None:
    me, secure = member.host.me, member.secure_address
    there = [_address(member.address)] if member.address != secure else []
    if secure is not None:
        there.append(f"{_address(secure)} under TLS")
    output.announce(f"metadata service {' and '.join(there)} (controller {me.key.host_id}@{me.endpoint}) serves")


def _address(of: tuple[str, int]) -> str:
    host, port = of
    return f"zk://[{host}]:{port}" if ":" in host else f"zk://{host}:{port}"


def endpoint(text: str, example: str = "127.0.0.1:9093") -> str:
    """Parse an endpoint, ``HOST:PORT``."""
    if not is_endpoint(text):
        raise argparse.ArgumentTypeError(f"{text} is not an endpoint: give HOST:PORT, such as {example}")
    return text


def controllers(text: str) -> dict[int, str]:
    """Parse members of a quorum, ``ID@HOST:PORT,...``."""
    found: dict[int, str] = {}
    for each in text.split(","):
        number, _, place = each.partition("@")
        if not number.isdecimal() or not is_endpoint(place):
            raise argparse.ArgumentTypeError(f"{each} is not a controller: give ID@HOST:PORT, such as 1@127.0.0.1:9093")
        if int(number) in found:
            raise argparse.ArgumentTypeError(f"two controllers have the id {number}")
        found[int(number)] = place
    return found


def members(text: str) -> dict[int, str] | list[str]:
    """Parse members of a quorum with their ids, or only their endpoints."""
    return controllers(text) if "@" in text else [endpoint(each) for each in text.split(",")]


def with_ids(given: dict[int, str] | list[str] | None) -> dict[int, str]:
    """The members of ``--controllers``, which must have ids. Raises :class:`fencepost.OptionError`."""
    if isinstance(given, list):
        raise errors.OptionError(f"{given[0]} is not a controller: give ID@HOST:PORT, such as 1@127.0.0.1:9093")
    return given or {}


def _quorum(args: argparse.Namespace) -> service.Quorum:
    hosts = with_ids(args.controllers)
    if args.listen is not None and not hosts:
        raise errors.OptionError("--listen needs --controllers, which say where the others reach this member")
    host_id = args.id
    if host_id is None and hosts:
        if len(hosts) > 1:
            raise errors.OptionError("--controllers names several members: give --id to say which one this is")
        (host_id,) = hosts
    if hosts and host_id not in hosts:
        raise errors.OptionError(f"--id {host_id}: no controller has this id")
    return service.Quorum(host_id, hosts, args.listen or "", args.kafka_port, args.auto_join)
