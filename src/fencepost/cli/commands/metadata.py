"""``fencepost metadata``: runs a metadata service on a directory. ZooKeeper clients can use it."""

from __future__ import annotations

import argparse
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


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``fencepost metadata``."""
    parser.description = (
        "Run a durable metadata service with ZooKeeper's protocol, as a member, or the only member, of a\n"
        "quorum (KRaft, KIP-853). SIGTERM and Ctrl-C end it cleanly."
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    option(parser, "directory DIR", "the directory for its log and snapshots; created if it is missing", Path)
    option(parser, "--port N", "the port, instead of the setting clientPort; 0: any free one", serving.port_or_any)
    option(parser, "--address HOST", "the address to listen on, instead of the setting clientPortAddress")
    option(
        parser,
        "--controllers ID@HOST:PORT,...",
        "the ids of the members of the quorum, and where they listen to each other. Those named when all folders are"
        " empty are the first voters; others join as observers (see fencepost quorum add). By default, an empty folder"
        " becomes a quorum of one, at a free port of 127.0.0.1 that it keeps, and any other stays in its quorum",
        controllers,
    )
    option(
        parser,
        "--id ID",
        "the id of this member; not needed with a single controller, or for a folder that has an id",
        int,
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
    parser.epilog = serving.settings_help(MetadataSettings)


def run(args: argparse.Namespace) -> int:
    """Serve until a signal arrives."""
    options = serving.from_options(
        args, port="clientPort", address="clientPortAddress", http_port="metricsProvider.httpPort"
    )
    settings = MetadataSettings.read(args.settings, dict(map(one_setting, args.set)) | options)
    serving.log_to_standard_error(args.verbose, settings.log_format, "metadata")
    service.run(args.directory, settings, _say, args.trace, _quorum(args))
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


def _quorum(args: argparse.Namespace) -> service.Quorum:
    hosts: dict[int, str] = args.controllers or {}
    if args.listen is not None and not hosts:
        raise errors.OptionError("--listen needs --controllers, which say where the others reach this member")
    host_id = args.id
    if host_id is not None and host_id < 0:
        raise errors.OptionError(f"--id {host_id}: an id is at least 0")
    if host_id is None and hosts:
        if len(hosts) > 1:
            raise errors.OptionError("--controllers names several members: give --id to say which one this is")
        (host_id,) = hosts
    if hosts and host_id not in hosts:
        raise errors.OptionError(f"--id {host_id}: no controller has this id")
    return service.Quorum(host_id, hosts, args.listen or "", args.kafka_port, args.auto_join)
