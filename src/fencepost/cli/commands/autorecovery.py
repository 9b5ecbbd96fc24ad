"""``fencepost autorecovery``: copies the entries of lost bookies to others, automatically.

fencepost autorecovery --metadata zk://HOST:PORT/ledgers
fencepost autorecovery status|enable|disable --metadata zk://HOST:PORT/ledgers
"""

from __future__ import annotations

import argparse
import asyncio
import os

import msgspec

from fencepost import errors
from fencepost.cli import arguments, output
from fencepost.cli.arguments import option
from fencepost.cli.commands import serving
from fencepost.connections.loop import loop_factory
from fencepost.errors import OptionError
from fencepost.ledger.autorecovery.settings import AutoRecoverySettings
from fencepost.ledger.settings import one_setting

VERBS = ("run", "status", "enable", "disable")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Copy the entries of lost bookies to others, automatically. Several processes share the work.\n"
        "SIGTERM and Ctrl-C end it cleanly."
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    option(
        parser,
        "verb",
        "run it here (the default), print its status, or enable or disable it on all processes",
        default="run",
        nargs="?",
        choices=VERBS,
    )
    option(parser, "--metadata URI", "the metadata service: zk://HOST:PORT[,HOST:PORT]/ledgers")
    option(
        parser,
        "--http-port N",
        "the port of /live, /ready and /metrics (the setting prometheusStatsHttpPort)",
        arguments.port,
    )
    option(parser, "--settings FILE", "a TOML file of settings; options override them")
    option(parser, "--set NAME=VALUE ...", "one setting, as in the file (repeatable)")
    option(parser, "--json", "print the status as JSON")
    option(parser, "--verbose", "log information too, not only warnings and errors")
    parser.epilog = serving.settings_help(AutoRecoverySettings)


def run(args: argparse.Namespace) -> int:
    """Run the command. Returns the exit code."""
    if args.verb != "run":
        args.metadata = args.metadata or os.environ.get("FENCEPOST_METADATA")
    options = serving.from_options(args, metadata="metadataServiceUri", http_port="prometheusStatsHttpPort")
    over = dict(map(one_setting, args.set)) | options
    settings = AutoRecoverySettings.read(args.settings, over)
    serving.log_to_standard_error(args.verbose, settings.log_format, "autorecovery")
    from fencepost.ledger.autorecovery.process import serve

    def ready(name: str) -> None:
        output.announce(f"auto-recovery {name} runs")

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        if args.verb == "run":
            runner.run(serve(settings, ready))
        else:
            runner.run(_about(args, settings))
    return errors.HOLDS


async def _about(args: argparse.Namespace, settings: AutoRecoverySettings) -> None:
    from fencepost.ledger.metadata.client import MetadataClient
    from fencepost.ledger.metadata.underreplication import UnderReplication

    if not settings.metadata_service_uri:
        raise OptionError(
            f"autorecovery {args.verb} needs the metadata service: give --metadata zk://HOST:PORT/ledgers, or set"
            " FENCEPOST_METADATA or metadataServiceUri"
        )
    async with await MetadataClient.connect(settings.metadata_service_uri) as client:
        await client.instance_id()
        nodes = UnderReplication(client, "")
        if args.verb == "enable":
            await nodes.enable()
        elif args.verb == "disable":
            await nodes.disable()
        count = 0
        async for _ in nodes.all():
            count += 1
        document = {"auditor": await nodes.auditor(), "enabled": await nodes.is_enabled(), "under_replicated": count}
    if args.json:
        output.say(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
        return
    works = "enabled" if document["enabled"] else "disabled"
    auditor = f"{document['auditor']} is the auditor" if document["auditor"] is not None else "there is no auditor"
    output.say(f"auto-recovery is {works}, {auditor}, under-replicated ledgers: {count:,}")
