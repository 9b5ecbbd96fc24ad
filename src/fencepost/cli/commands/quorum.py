"""``fencepost quorum``: shows and changes the voters of a quorum."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

import msgspec

from fencepost import errors
from fencepost.cli import output
from fencepost.cli.arguments import option
from fencepost.cli.commands.metadata import endpoint, members
from fencepost.ledger.client_configuration import ClientConfiguration
from fencepost.quorum.driver.admin import Administrator
from fencepost.quorum.messages import DescribeQuorumResponse, ReplicaProgress
from fencepost.text import units


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``fencepost quorum``."""
    parser.description = "Show the quorum of a replicated metadata service, and add and remove voters while it runs."
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb, purpose in (
        ("status", "print the leader, the voters and the observers, and how far their logs are"),
        ("add", "turn an observer that has caught up into a voter"),
        ("remove", "remove a voter, which may be the leader, or one whose disk was lost"),
    ):
        options = verbs.add_parser(verb, help=purpose, description=f"{purpose[:1].upper()}{purpose[1:]}.")
        if verb == "add":
            option(options, "endpoint HOST:PORT", "where the observer listens to members", endpoint)
        elif verb == "remove":
            option(
                options,
                "replica ID[-DIRECTORY]",
                "its id, and the id of its directory to tell it from a replica with the same id",
                _replica,
            )
        option(
            options,
            "--controllers [ID@]HOST:PORT,...",
            "members of the quorum; one that runs is enough",
            lambda text: _endpoints(members(text)),
            required=True,
        )
        option(options, "--timeout SECONDS", "give up after this (30)", units.seconds, 30.0)
        option(options, "--json", "print JSON")


def run(args: argparse.Namespace) -> int:
    """Run the command. Returns the exit code."""
    return asyncio.run(_run(args))


async def _run(args: argparse.Namespace) -> int:
    administrator = Administrator(args.controllers, args.timeout, ClientConfiguration.of_environment().tls())
    try:
        if args.verb == "add":
            node = await administrator.add(args.endpoint)
            output.say(msgspec.json.encode({"added": str(node.key)}).decode() if args.json else f"{node} is a voter")
        elif args.verb == "remove":
            key = await administrator.remove(*args.replica)
            output.say(
                msgspec.json.encode({"removed": str(key)}).decode() if args.json else f"{key} is no longer a voter"
            )
        else:
            _print_status(*await administrator.describe(), args.json)
    finally:
        await administrator.close()
    return errors.HOLDS


def _print_status(cluster_id: str, found: DescribeQuorumResponse, as_json: bool) -> None:
    most = max((each.end_offset for each in (*found.voters, *found.observers)), default=0)
    ends = [each.end_offset for each in found.voters]
    document: dict[str, Any] = {
        "cluster_id": cluster_id,
        "leader_id": found.source.host_id,
        "leader_epoch": found.epoch,
        "high_watermark": found.high_watermark,
        "max_follower_lag": most - max(0, min(ends, default=most)),
        "voters": [_fields(each, most) for each in found.voters],
        "observers": [_fields(each, most) for each in found.observers],
    }
    if as_json:
        output.say(msgspec.json.format(msgspec.json.encode(document)).decode())
        return
    for name, value in document.items():
        if not isinstance(value, list):
            output.say(f"{name.replace('_', ' '):<18}{value}")
    output.say("")
    output.say(f"{'replica':<32}{'':<10}{'log end':>10}{'lag':>8}  endpoint")
    for kind in ("voters", "observers"):
        for each in document[kind]:
            is_leader = each["id"] == found.source.host_id and each["directory_id"] == found.source.directory_id
            role = "leader" if is_leader else "follower" if kind == "voters" else "observer"
            end, lag = ("?", "?") if each["log_end_offset"] < 0 else (each["log_end_offset"], each["lag"])
            name = f"{each['id']}-{each['directory_id']}"
            output.say(f"{name:<32}{role:<10}{end:>10}{lag:>8}  {each['endpoint']}".rstrip())


def _fields(replica: ReplicaProgress, most: int) -> dict[str, Any]:
    return {
        "id": replica.key.host_id,
        "directory_id": replica.key.directory_id,
        "endpoint": replica.endpoint,
        "log_end_offset": replica.end_offset,
        "lag": most - max(0, replica.end_offset),
        "last_fetch_timestamp": replica.fetched_at,
        "last_caught_up_timestamp": replica.caught_up_at,
    }


def _endpoints(found: dict[int, str] | list[str]) -> list[str]:
    return found if isinstance(found, list) else list(found.values())


def _replica(text: str) -> tuple[int, str]:
    number, _, directory = text.partition("-")
    if not number.isdecimal():
        raise argparse.ArgumentTypeError(
            f"{text} is not a replica: give ID or ID-DIRECTORY, as fencepost quorum status prints them"
        )
    return int(number), directory
