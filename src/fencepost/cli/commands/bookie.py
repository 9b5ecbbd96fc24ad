"""``fencepost bookie``: runs, inspects and maintains bookies.

    fencepost bookie DIR --metadata zk://HOST:PORT/ledgers
    fencepost bookie inspect DIR
    fencepost bookie cookie show|validate|fix DIR --metadata zk://HOST:PORT/ledgers
    fencepost bookie cookie delete BOOKIE --metadata zk://HOST:PORT/ledgers
    fencepost bookie recover|decommission BOOKIE --metadata zk://HOST:PORT/ledgers
    fencepost bookie safe-to-stop BOOKIE --metadata zk://HOST:PORT/ledgers
    fencepost bookie rack BOOKIE [RACK] --metadata zk://HOST:PORT/ledgers
    fencepost bookie list [under-replicated|misplaced] --metadata zk://HOST:PORT/ledgers

The first word is a verb, or the directory of the bookie to run. Write ``./inspect`` for a directory named like a verb.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fencepost import errors
from fencepost.cli import arguments, output
from fencepost.cli.arguments import option
from fencepost.cli.commands import serving
from fencepost.connections.loop import loop_factory
from fencepost.errors import OptionError, SystemFailure
from fencepost.ledger.bookie.settings import BookieSettings
from fencepost.ledger.settings import one_setting

if TYPE_CHECKING:
    from fencepost.ledger.disk.inspect import Inspection
    from fencepost.ledger.rules.cookies import Cookie

VERBS = {
    "inspect": "list the contents of a bookie's directory and check them; the bookie may be running",
    "cookie": "show, validate, fix or delete the cookies of a bookie",
    "recover": "copy the entries of a lost bookie to others",
    "decommission": "copy the entries of a stopped bookie to others, and remove it from the cluster",
    "safe-to-stop": "say whether a bookie may stop; the exit code is 1 if ledgers need it",
    "rack": "show, set or remove the rack of a bookie",
    "list": "list the bookies, or the ledgers that are under-replicated or misplaced",
}

TAKES = {"run": "one directory", "inspect": "one directory", "cookie": "show, validate, fix or delete, and what about"}
"""What a verb takes; the others take a bookie."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.usage = (
        "fencepost bookie DIR --metadata URI [options]\n"
        "       fencepost bookie inspect DIR [--verify] [--json]\n"
        "       fencepost bookie cookie show|validate DIR --metadata URI [--json]\n"
        "       fencepost bookie cookie fix DIR --metadata URI [--dry-run]\n"
        "       fencepost bookie cookie delete BOOKIE --metadata URI [--dry-run] [--force]\n"
        "       fencepost bookie recover|decommission BOOKIE --metadata URI [--dry-run]\n"
        "       fencepost bookie safe-to-stop BOOKIE --metadata URI [--json]\n"
        "       fencepost bookie rack BOOKIE [/RACK | /ZONE/RACK] --metadata URI [--group NAME] [--remove]\n"
        "       fencepost bookie list [under-replicated | misplaced] --metadata URI [--json]"
    )
    parser.description = "Run a bookie, or one of these verbs:\n" + "\n".join(
        f"  {verb:<12}  {purpose}" for verb, purpose in VERBS.items()
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    option(
        parser,
        "words DIR",
        "the directory of the bookie to run, or a verb (inspect, cookie, recover, decommission, safe-to-stop,"
        " rack, list) with its arguments",
        arguments.word,
        nargs="+",
    )
    running = parser.add_argument_group("running a bookie")
    option(running, "--metadata URI", "the metadata service: zk://HOST:PORT[,HOST:PORT]/ledgers")
    option(
        running,
        "--port N",
        "the port; 0: any free one at the first start, and the same one afterwards (3181)",
        serving.port_or_any,
    )
    option(
        running,
        "--http-port N",
        "the port of /live, /ready and /metrics (the setting prometheusStatsHttpPort)",
        arguments.port,
    )
    option(running, "--trace DIR", "write a trace to a folder")
    option(running, "--settings FILE", "a TOML file of settings; options override them")
    option(running, "--set NAME=VALUE ...", "one setting, as in the file (repeatable)")
    option(running, "--verbose", "log information too, not only warnings and errors")
    looking = parser.add_argument_group("inspect")
    option(looking, "--verify", "read every entry and check its checksum")
    option(looking, "--json", "print JSON; also for cookie show, cookie validate, safe-to-stop and list")
    mending = parser.add_argument_group("cookie, recover, decommission")
    option(mending, "--dry-run", "only print what would be done, and lost")
    option(mending, "--force", "delete a cookie although ledgers still have entries on the bookie")
    placing = parser.add_argument_group("rack")
    option(placing, "--group NAME", "with a rack: also put the bookie into this group, and no other")
    option(placing, "--remove", "remove the rack, and the bookie from its groups")
    parser.epilog = serving.settings_help(BookieSettings)


def run(args: argparse.Namespace) -> int:
    """Run the command. Returns the exit code."""
    verb, *rest = args.words if args.words[0] in VERBS else ("run", *args.words)
    if verb not in ("run", "inspect") and (rest or verb == "list"):
        from fencepost.cli.commands import operator

        args.metadata = args.metadata or os.environ.get("FENCEPOST_METADATA")
        return operator.run(args, _settings(args), verb, *rest)
    if len(rest) != 1:
        if verb == "run" and len(rest) > 1:
            raise OptionError(
                f"{rest[0]} is not a verb ({', '.join(VERBS)}), and a bookie has one directory: give only one"
            )
        raise OptionError(
            f"fencepost bookie {verb} takes {TAKES.get(verb, 'one bookie')}"
            + (f"; a bookie in ./{verb} is run by fencepost bookie ./{verb}" if not rest else "")
        )
    return _inspect(args, rest[0]) if verb == "inspect" else _serve(args, rest[0])


def _settings(args: argparse.Namespace) -> BookieSettings:
    options = serving.from_options(
        args,
        metadata="metadataServiceUri",
        port="bookiePort",
        trace="traceDirectory",
        http_port="prometheusStatsHttpPort",
    )
    return BookieSettings.read(args.settings, dict(map(one_setting, args.set)) | options)


def _serve(args: argparse.Namespace, directory: str) -> int:
    settings = _settings(args)
    serving.log_to_standard_error(args.verbose, settings.log_format, "bookie")
    from fencepost.ledger.bookie.process import serve

    def ready(bookie_id: str) -> None:
        gc.freeze()  # existing objects are long-lived: exclude them from garbage collection
        output.announce(f"bookie {bookie_id} serves")

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serve(directory, settings, ready))
    return errors.HOLDS


def _inspect(args: argparse.Namespace, directory: str) -> int:
    """Print the contents of a bookie. The exit code says whether they are intact."""
    from fencepost.ledger.bookie import cookies
    from fencepost.ledger.bookie.directories import Directories
    from fencepost.ledger.disk.inspect import inspect

    directories = Directories.of(directory, BookieSettings.read(args.settings, dict(map(one_setting, args.set))))
    stamped = directories.stamped()
    cookie = next((each.cookie for each in stamped if each.cookie is not None), None)
    if cookie is None:
        raise SystemFailure(
            f"{directory} is no directory of a bookie: no cookie is in {' or '.join(dict.fromkeys(directories))}"
        )
    journal, ledgers = (str(Path(each, cookies.CURRENT)) for each in directories)
    inspection = inspect(journal, ledgers, args.verify)
    problems = [f"{each.path} has no cookie" for each in stamped if each.cookie is None] + inspection.problems
    if args.json:
        document = {
            "bookie": cookie.bookie_id,
            "cluster": cookie.instance_id,
            **msgspec.to_builtins(inspection),
            "problems": problems,
        }
        output.say(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
    else:
        output.say("\n".join(_lines(cookie, inspection, args.verify)))
    for problem in problems:
        output.complain(problem, None, False)
    return errors.SYSTEM_FAILED if problems else errors.HOLDS


def _lines(cookie: Cookie, inspection: Inspection, verified: bool) -> Iterator[str]:
    yield f"bookie {cookie.bookie_id} of the cluster {cookie.instance_id}"
    for journal in inspection.journals:
        needed = "" if journal.needed else ", no longer needed"
        yield (
            f"journal {journal.name}: {journal.records:,} records, {journal.bytes:,} bytes, its end is"
            f" {journal.ending}{needed}"
        )
    for log in inspection.entry_logs:
        yield (
            f"entry log {log.name}: {log.entries:,} entries in {log.sections:,} sections, {log.bytes:,} bytes,"
            f" {log.garbage:.0%} garbage"
        )
    for ledger in inspection.ledgers:
        state = "".join(f", {word}" for word, holds in (("fenced", ledger.fenced), ("in limbo", ledger.limbo)) if holds)
        span = f" from {ledger.first_entry} to {ledger.last_entry}" if ledger.entries else ""
        yield (
            f"ledger {ledger.ledger}: {ledger.entries:,} entries{span}, {ledger.in_journal:,} of them in the journal"
            f" alone, LAC {ledger.lac}{state}"
        )
    if verified:
        yield f"{inspection.verified:,} entries were compared with their checksums"
