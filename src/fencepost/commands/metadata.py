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
    parser.description = "Run a metadata service: ZooKeeper's protocol, on one node, durable. SIGTERM and Ctrl-C end it cleanly."
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("directory", metavar="DIR", type=Path, help="where it keeps its log and snapshots; made if it is missing")
    parser.add_argument("--port", metavar="N", type=_port, help="the port, instead of the setting clientPort; 0: any free one")
    parser.add_argument("--address", metavar="HOST", help="the address to listen on, instead of the setting clientPortAddress")
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
    service.run(given.directory, settings, _say, given.trace)
    return errors.HOLDS


def _say(address: str, port: int) -> None:
    host = f"[{address}]" if ":" in address else address
    output.say(f"metadata service zk://{host}:{port} serves")


def _port(text: str) -> int:
    return 0 if text == "0" else arguments.port(text)
