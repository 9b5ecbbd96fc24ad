"""``fencepost metadata``: runs a metadata service on a directory. ZooKeeper clients can use it."""

from __future__ import annotations

import argparse
from pathlib import Path

from fencepost import errors
from fencepost.cli import arguments, output
from fencepost.cli.arguments import option
from fencepost.cli.commands import serving
from fencepost.metadata import service
from fencepost.metadata.member import Member
from fencepost.metadata.settings import MetadataSettings
from fencepost.quorum.identity import is_endpoint


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``fencepost metadata``."""
    parser.description = (
        "Run a metadata service: ZooKeeper's protocol, durable, as a member of a quorum (KRaft, KIP-853), be it the"
        " only one. SIGTERM and Ctrl-C end it cleanly."
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    option(parser, "directory DIR", "where it keeps its log and snapshots; made if it is missing", Path)
    option(parser, "--port N", "the port, instead of the setting clientPort; 0: any free one", serving.port_or_any)
    option(parser, "--address HOST", "the address to listen on, instead of the setting clientPortAddress")
    option(
        parser,
        "--controllers ID@HOST:PORT,...",
        "the ids of the members of the quorum, and where they listen to each other; those that are all given when"
        " all folders are empty are its first voters; others join as observers (fencepost quorum add). By default,"
        " an empty folder becomes a quorum of one, at a free port of 127.0.0.1 that it keeps, and any other is a"
        " member of the quorum that it knows",
        controllers,
    )
    option(
        parser,
        "--id ID",
        "which of the controllers this one is; not needed if there is one, or for a folder that has one",
        int,
    )
    option(
        parser,
        "--kafka-port N",
        "answer Kafka's tools, too, as kafka-metadata-quorum.sh with --bootstrap-controller: the port, at the host"
        " of this controller; they may add and remove voters",
        arguments.port,
    )
    option(
        parser,
        "--auto-join",
        "become a voter as soon as this member has caught up, whenever it is none, in place of a replica whose disk"
        " was lost (Kafka's controller.quorum.auto.join.enable)",
    )
    option(
        parser,
        "--listen HOST:PORT",
        "where it listens to the other members, if that is not the endpoint by which they reach it: there is a"
        " proxy or a forwarded port between",
        lambda text: endpoint(text, "0.0.0.0:9093"),
    )
    option(parser, "--trace DIR", "write a trace of what it does to a folder of traces", Path)
    option(parser, "--settings FILE", "a TOML file of settings", Path)
    option(parser, "--verbose", "log what happens, not only what is wrong")
    parser.epilog = serving.settings_help(MetadataSettings)


def run(args: argparse.Namespace) -> int:
    """Serve until a signal arrives."""
    over = serving.from_options(args, port="clientPort", address="clientPortAddress")
    settings = MetadataSettings.read(args.settings, over)
    serving.log_to_standard_error(args.verbose)
    service.run(args.directory, settings, _say, args.trace, _quorum(args))
    return errors.HOLDS


def _say(member: Member) -> None:
    me, secure = member.host.me, member.secure_address
    there = [_address(member.address)] if member.address != secure else []
    if secure is not None:
        there.append(f"{_address(secure)} under TLS")
    output.say(f"metadata service {' and '.join(there)} (controller {me.key.host_id}@{me.endpoint}) serves")


def _address(of: tuple[str, int]) -> str:
    host, port = of
    return f"zk://[{host}]:{port}" if ":" in host else f"zk://{host}:{port}"


def endpoint(text: str, example: str = "127.0.0.1:9093") -> str:
    """Parse an endpoint, ``HOST:PORT``."""
    if not is_endpoint(text):
        raise argparse.ArgumentTypeError(f"{text} is no endpoint: HOST:PORT is, as {example}")
    return text


def controllers(text: str) -> dict[int, str]:
    """Parse members of a quorum, ``ID@HOST:PORT,...``."""
    found: dict[int, str] = {}
    for each in text.split(","):
        number, _, place = each.partition("@")
        if not number.isdecimal() or not is_endpoint(place):
            raise argparse.ArgumentTypeError(f"{each} is no controller: ID@HOST:PORT is, as 1@127.0.0.1:9093")
        if int(number) in found:
            raise argparse.ArgumentTypeError(f"two controllers have the id {number}")
        found[int(number)] = place
    return found


def _quorum(args: argparse.Namespace) -> service.Quorum:
    hosts: dict[int, str] = args.controllers or {}
    if args.listen is not None and not hosts:
        raise errors.OptionError(
            "to listen elsewhere than where others reach this one, give the controllers, which say where that is"
        )
    host_id = args.id
    if host_id is not None and host_id < 0:
        raise errors.OptionError("an id is a number from 0 on")
    if host_id is None and hosts:
        if len(hosts) > 1:
            raise errors.OptionError("of several controllers, the id says which one this is")
        (host_id,) = hosts
    if hosts and host_id not in hosts:
        raise errors.OptionError(f"the id {host_id} is that of none of the controllers")
    return service.Quorum(host_id, hosts, args.listen or "", args.kafka_port, args.auto_join)
