"""``fencepost metadata``: a metadata service on a directory, which clients of ZooKeeper can use."""

from __future__ import annotations

import argparse
import logging
import textwrap
from pathlib import Path
from typing import Any

from fencepost import arguments, errors, output
from fencepost.metadata_service import service
from fencepost.metadata_service.settings import Settings, descriptions


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be typed after ``fencepost metadata``."""
    parser.description = (
        "Run a metadata service: ZooKeeper's protocol, durable, on one node or as a member of a quorum. SIGTERM and Ctrl-C end it cleanly."
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("directory", metavar="DIR", type=Path, help="where it keeps its log and snapshots; made if it is missing")
    parser.add_argument("--port", metavar="N", type=_port, help="the port, instead of the setting clientPort; 0: any free one")
    parser.add_argument("--address", metavar="HOST", help="the address to listen on, instead of the setting clientPortAddress")
    parser.add_argument(
        "--controllers",
        metavar="ID@HOST:PORT,...",
        type=controllers,
        help="be a member of a quorum (KRaft, KIP-853): the ids of its members, and where they listen to each other; those that are all given"
        " when all folders are empty are its first voters; others join as observers (fencepost quorum add)",
    )
    parser.add_argument("--id", metavar="ID", type=int, help="which of the controllers this one is; not needed if there is one")
    parser.add_argument("--trace", metavar="DIR", type=Path, help="write a trace of what it does to a folder of traces (docs/traces.md)")
    parser.add_argument("--settings", metavar="FILE", type=Path, help="a TOML file of settings")
    parser.add_argument("--verbose", action="store_true", help="log what happens, not only what is wrong")
    parser.epilog = "settings:\n" + "\n".join(
        f"  {name} = {default}\n{textwrap.indent(textwrap.fill(purpose, 100), '      ')}" for name, default, purpose in descriptions()
    )


def run(given: argparse.Namespace) -> int:
    """Serve until a signal comes."""
    over: dict[str, Any] = {}
    if given.port is not None:
        over["clientPort"] = given.port
    if given.address is not None:
        over["clientPortAddress"] = given.address
    settings = Settings.read(given.settings, over)
    logging.basicConfig(
        level=logging.INFO if given.verbose else logging.WARNING, format="%(asctime)s %(levelname)s %(message)s"
    )
    service.run(given.directory, settings, _say, given.trace, _quorum(given))
    return errors.HOLDS


def _say(address: str, port: int) -> None:
    host = f"[{address}]" if ":" in address else address
    output.say(f"metadata service zk://{host}:{port} serves")


def _port(text: str) -> int:
    return 0 if text == "0" else arguments.port(text)


def controllers(text: str) -> dict[int, str]:
    """Members of a quorum as they are typed: ``ID@HOST:PORT,...``."""
    found: dict[int, str] = {}
    for each in text.split(","):
        number, _, endpoint = each.partition("@")
        host, _, port = endpoint.rpartition(":")
        if not number.isdecimal() or not host or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise argparse.ArgumentTypeError(f"{each} is no controller: ID@HOST:PORT is, as 1@127.0.0.1:9093")
        if int(number) in found:
            raise argparse.ArgumentTypeError(f"two controllers have the id {number}")
        found[int(number)] = endpoint
    return found


def _quorum(given: argparse.Namespace) -> service.Quorum | None:
    hosts: dict[int, str] | None = given.controllers
    if hosts is None:
        if given.id is not None:
            raise errors.OptionError("an id is that of one of the controllers, and none are given")
        return None
    host_id = given.id
    if host_id is None:
        if len(hosts) > 1:
            raise errors.OptionError("of several controllers, the id says which one this is")
        (host_id,) = hosts
    if host_id not in hosts:
        raise errors.OptionError(f"the id {host_id} is that of none of the controllers")
    return service.Quorum(host_id, hosts)
