"""``fencepost metadata backup``, ``verify`` and ``restore``."""

from __future__ import annotations

import argparse
import asyncio
import datetime
import re
from pathlib import Path
from typing import Any

import msgspec

from fencepost import errors
from fencepost.cli import output
from fencepost.cli.commands import serving, streams
from fencepost.errors import OptionError, SystemFailure
from fencepost.ledger.client_configuration import ClientConfiguration
from fencepost.ledger.cluster import four_letter_words
from fencepost.ledger.metadata.address import parse
from fencepost.metadata import backup
from fencepost.metadata.backup import HEAD_SIZE, Backup
from fencepost.quorum.driver.admin import Administrator
from fencepost.quorum.driver.host import ANY_PORT
from fencepost.text.numbers import plural


def run(args: argparse.Namespace, verb: str, file: str, *others: str) -> int:
    """Run the command. Returns the exit code."""
    if verb == "restore":
        return _restore(args, Path(file), list(map(Path, others)))
    if others:
        raise OptionError(f"fencepost metadata {verb} takes one FILE, and {others[0]} is one argument too many")
    found = asyncio.run(_take(args, Path(file))) if verb == "backup" else backup.read(Path(file))
    _say(args, file, found)
    return errors.HOLDS


async def _take(args: argparse.Namespace, file: Path) -> Backup:
    serving.log_to_standard_error(args.verbose)
    if args.controllers:
        endpoints = args.controllers if isinstance(args.controllers, list) else list(args.controllers.values())
    elif args.metadata:
        endpoints = await _members_behind(args.metadata)
    else:
        raise OptionError(
            "metadata backup asks a member of the quorum: give --metadata zk://HOST:PORT/ledgers, or --controllers"
            " HOST:PORT, which a member prints when it serves"
        )
    administrator = Administrator(endpoints, args.timeout, ClientConfiguration.of_environment().tls())
    try:
        with streams.progress_of_bytes() as line:
            return await backup.take(administrator, file, line.report)
    finally:
        await administrator.close()


async def _members_behind(uri: str) -> list[str]:
    """Where members listen to each other and to operators, by their ports for clients."""
    address = parse(uri)
    said = await asyncio.gather(*(four_letter_words.ask(port, "conf", 5.0, host) for host, port in address.servers))
    found = [each[1] for text in said if (each := re.search(r"^controller=\d+@(\S+)$", text or "", re.MULTILINE))]
    if not found:
        raise SystemFailure(
            f"no member at {address.hosts} says where it listens to operators: give --controllers HOST:PORT"
        )
    return found


def _say(args: argparse.Namespace, file: str, found: Backup) -> None:
    head = found.head
    voters = [str(each) for each in found.voters.nodes]
    document: dict[str, Any] = {
        "file": file,
        "cluster_id": head.cluster,
        "taken": head.taken / 1000,
        "source": head.source,
        "voters": voters,
        "zxid": head.zxid,
        "znodes": head.znodes,
        "ephemerals": head.ephemerals,
        "sessions": head.sessions,
        "bytes": HEAD_SIZE + head.size,
    }
    if args.json:
        output.say(msgspec.json.format(msgspec.json.encode(document)).decode())
        return
    output.say(f"backup      {file}, {document['bytes']:,} bytes")
    output.say(f"cluster id  {head.cluster}")
    at = datetime.datetime.fromtimestamp(head.taken / 1000, datetime.UTC)
    output.say(f"taken       {at:%Y-%m-%d %H:%M:%S} UTC, by {head.source}")
    output.say(f"zxid        {head.zxid:#x}")
    output.say(
        f"znodes      {head.znodes:,}, {head.ephemerals:,} of them ephemeral, of {plural(head.sessions, 'session')}"
    )


def _restore(args: argparse.Namespace, file: Path, directories: list[Path]) -> int:
    hosts = args.controllers or ({1 if args.id is None else args.id: ANY_PORT})
    if not directories:
        raise OptionError("metadata restore takes a FILE, and a DIR for each member of the new quorum")
    if len(hosts) != len(directories):
        raise OptionError(
            f"{len(directories)} directories are for as many members: name each with its id and endpoint in"
            " --controllers ID@HOST:PORT,..."
        )
    found = backup.read(file)
    before = found.head
    voters, cluster_id = backup.restore(found, directories, hosts)
    members = [
        {
            "id": each.key.host_id,
            "directory": str(directory),
            "endpoint": "" if each.endpoint == ANY_PORT else each.endpoint,
        }
        for each, directory in zip(voters, directories, strict=True)
    ]
    ended = {"sessions": before.sessions, "ephemerals": before.ephemerals}
    if args.json:
        document = {"cluster_id": cluster_id, "zxid": found.tree.zxid, "ended": ended, "members": members}
        output.say(msgspec.json.format(msgspec.json.encode(document)).decode())
        return errors.HOLDS
    output.say(f"cluster id  {cluster_id}, which is new")
    output.say(f"zxid        {found.tree.zxid:#x}; {before.zxid:#x} in the backup")
    output.say(
        f"znodes      {len(found.tree.nodes):,}; {plural(before.sessions, 'session')} ended, with"
        f" {plural(before.ephemerals, 'ephemeral znode')}"
    )
    for each in members:
        at = f" at {each['endpoint']}" if each["endpoint"] else ""
        output.say(f"member      {each['id']}{at}: fencepost metadata {each['directory']}")
    return errors.HOLDS
