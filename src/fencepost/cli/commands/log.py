"""``fencepost log``: creates, writes, follows, shows, trims, offloads, seals and deletes logs."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

from fencepost.api.client import Client
from fencepost.cli import arguments
from fencepost.cli.arguments import option
from fencepost.cli.commands.client import (
    DIGESTS,
    client_options,
    confirm,
    on_store,
    password,
    quorum_options,
    quorums,
    say,
    yes_option,
)
from fencepost.cli.commands.streams import Counted, Output, format_option, progress, reporting, shown_as, text_or_base64
from fencepost.errors import OptionError
from fencepost.log.chain import EARLIEST, ID, OFFLOADS, End, Position, position_of
from fencepost.log.cursors import Acknowledged
from fencepost.log.errors import NoSuchLogError
from fencepost.log.log import GRACE, Log, LogView
from fencepost.log.metadata import names
from fencepost.log.offload import orphans
from fencepost.log.reader import LogEntry
from fencepost.text import units
from fencepost.text.numbers import plural

_EXAMPLES = """\
examples:
  fencepost log create orders --metadata zk://127.0.0.1:2181/ledgers
  seq 1000 | fencepost log append orders --metadata zk://127.0.0.1:2181/ledgers
  fencepost log tail orders --metadata zk://127.0.0.1:2181/ledgers
The environment variable FENCEPOST_METADATA is the default of --metadata."""


# -- what is typed ----------------------------------------------------------------------------------------------------


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``fencepost log``."""
    parser.description = (
        "Create, write and read logs. A log is an unbounded sequence of ledgers, with one writer at a time."
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EXAMPLES
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=arguments.Parser)

    def action(name: str, purpose: str, secret: bool = True, optional: bool = False) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = commands.add_parser(name, help=purpose, description=purpose, allow_abbrev=False)
        option(made, "log LOG", "the name of a log", nargs="?" if optional else None)
        client_options(made, "the password of the log's ledgers" if secret else "")
        return made

    creating = action("create", "create an empty log", secret=False)
    quorum_options(creating, "the entries of a ledger", DIGESTS[0])
    appending = action("append", "append entries from standard input, as the leading writer")
    format_option(appending)
    option(appending, "--in-flight N", "the most entries in flight (10,000)", arguments.count, 10_000)
    option(
        appending,
        "--wait SECONDS",
        "how long to wait for a ledger to write to, while another writer leads or there are too few bookies (30)",
        units.seconds,
        30.0,
    )
    option(
        appending,
        "--ledger-entries N",
        "the entries after which a new ledger begins; 0: any number (0)",
        arguments.number,
        0,
    )
    option(appending, "--ledger-bytes SIZE", "the bytes after which a new ledger begins (1 GiB)", units.size, 1 << 30)
    option(
        appending,
        "--ledger-seconds SECONDS",
        "the seconds after which a new ledger begins (3600)",
        units.seconds,
        3600.0,
    )
    option(appending, "--despite-missing", "append although ledgers of the log are missing, with a warning")
    tailing = action("tail", "write entries to standard output, including new ones, until the log is sealed")
    format_option(tailing)
    option(
        tailing,
        "--at PLACE",
        "where to begin: earliest, latest, LEDGER:ENTRY, or a time like 2026-11-23T04:00 (earliest)",
        _place,
        EARLIEST,
    )
    option(tailing, "--no-follow", "stop at the current end of the log")
    option(
        tailing,
        "--skip-trimmed",
        "skip trimmed entries; where a ledger is missing, warn and continue",
    )
    option(
        tailing,
        "--cursor NAME",
        "begin at a cursor, created at --at if it does not exist, and advance it past the written entries",
    )
    action(
        "show",
        "show the ledgers of a log, its leader and its cursors; without LOG, list all logs",
        secret=False,
        optional=True,
    )
    listing = commands.add_parser(
        "list", help="list the names of all logs", description="list the names of all logs", allow_abbrev=False
    )
    client_options(listing, "")
    option(listing, "--long", "also their state and the number of their ledgers")
    trimming = action("trim", "delete the oldest ledgers of a log permanently", secret=False)
    how = trimming.add_mutually_exclusive_group(required=True)
    option(
        how,
        "--before PLACE",
        "delete ledgers that end before LEDGER:ENTRY, or before a time like 2026-11-23T04:00",
        _place,
    )
    option(how, "--keep N", "delete all but the newest N ledgers", arguments.count)
    option(how, "--keep-seconds SECONDS", "delete ledgers that ended longer ago than this", units.seconds)
    option(trimming, "--keep-unread", "but keep ledgers with entries that a cursor has not read")
    offloading = action(
        "offload", "move the oldest ledgers of a log to an object store, where readers find them", False
    )
    option(
        offloading,
        "--to URL",
        "a folder of an object store, as in s3://bucket/folder, or a local one that all readers reach",
        required=True,
    )
    which = offloading.add_mutually_exclusive_group()
    option(which, "--before PLACE", "the ledgers that end before LEDGER:ENTRY, or before a time", _place)
    option(which, "--keep N", "all but the newest N ledgers (1)", arguments.count)
    option(which, "--older SECONDS", "the ledgers that ended longer ago than this", units.seconds)
    option(
        offloading,
        "--grace SECONDS",
        "how long bookies keep a ledger after it was offloaded (3600)",
        units.seconds,
        GRACE.total_seconds(),
    )
    finding = commands.add_parser(
        "orphans",
        help="list objects of an object store that no log of this cluster needs",
        description="list objects of an object store that no log of this cluster needs: what a log left that was"
        " deleted while it was offloaded",
        allow_abbrev=False,
    )
    client_options(finding, "")
    option(finding, "--to URL", "the folder that was given to offload", required=True)
    option(finding, "--remove", "remove them")
    action("seal", "seal a log: no writer can append to it any more")
    deleting = action("delete", "delete a log permanently, with its ledgers and its cursors")
    yes_option(deleting)


def _place(text: str) -> Position | End | datetime:
    """Parse a position, an end of a log, or a time (local unless it has a zone)."""
    try:
        return position_of(text)
    except OptionError:
        try:
            return datetime.fromisoformat(text).astimezone()
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a place in a log: give LEDGER:ENTRY, earliest, latest or a time like 2026-11-23T04:00"
            ) from None


def run(args: argparse.Namespace) -> int:
    """Run the command. Returns the exit code."""
    action: Callable[[Client, argparse.Namespace], Coroutine[Any, Any, None]] = globals()[f"_{args.action}"]
    return on_store(action, args)


# -- create and append ------------------------------------------------------------------------------------------------


async def _create(store: Client, args: argparse.Namespace) -> None:
    await store.log(args.log).create(**quorums(args))
    say(args, {"log": args.log}, f"log {args.log} is created")


async def _append(store: Client, args: argparse.Namespace) -> None:
    opening = store.log(args.log, password=password(args)).writer(
        ledger_entries=args.ledger_entries,
        ledger_bytes=args.ledger_bytes,
        ledger_seconds=args.ledger_seconds,
        in_flight=args.in_flight,
        wait=args.wait,
        despite_missing=args.despite_missing,
    )
    counted = Counted(args.format)
    with counted.explained(
        lambda confirmed, sent: (
            f"log {args.log}: the first {confirmed:,} of {sent:,} entries that were read are acknowledged; the rest"
            " may be in the log or not"
        )
    ):
        async with opening as writer:
            ends = (await counted.append_to(writer, lambda: writer.confirmed)).ends
    document: dict[str, Any] = {"log": args.log, "entries": counted.entries, "bytes": counted.bytes}
    if ends is not None:
        document |= {"first": str(ends[0]), "last": str(ends[1])}
    between = f", {ends[0]} to {ends[1]}" if ends is not None else ""
    say(
        args,
        document,
        f"log {args.log}: {plural(counted.entries, 'entry', 'entries')}, {plural(counted.bytes, 'byte')}{between}",
    )


# -- tail -------------------------------------------------------------------------------------------------------------


async def _tail(store: Client, args: argparse.Namespace) -> None:
    log = store.log(args.log, password=password(args))
    options: dict[str, Any] = {"follow": not args.no_follow, "on_trimmed": "skip" if args.skip_trimmed else "raise"}
    if args.cursor is None:
        async with log.reader(args.at, **options) as reader:
            await _write_out(aiter(reader), args, None)
        return
    async with log.cursor(args.cursor, at=args.at) as cursor:
        last = await _write_out(cursor.read(**options), args, cursor.acknowledge_up_to)
        if last is not None:
            await cursor.acknowledge_up_to(last)


async def _write_out(
    entries: AsyncIterator[LogEntry],
    args: argparse.Namespace,
    acknowledge: Callable[[Position], Coroutine[Any, Any, None]] | None,
) -> Position | None:
    """Write entries to standard output until all are written or its reader is gone. Returns the last written entry.

    With ``acknowledge``, acknowledges the written entries once a second.
    """
    out = Output()
    shown = shown_as(args, _as_json)
    count = size = 0
    last: Position | None = None

    async def acknowledging() -> None:
        assert acknowledge is not None
        acknowledged = None
        while True:
            await asyncio.sleep(1)
            written = last
            out.flush()
            if written is not None and written != acknowledged and out.is_open:
                await acknowledge(written)
                acknowledged = written

    task = None if acknowledge is None else asyncio.create_task(acknowledging())
    try:
        with progress() as line, reporting(lambda: line.report(count, size, None)):
            async for entry in entries:
                count += 1
                size += len(entry.data)
                if not out.put(shown(entry)):
                    return None
                last = entry.position
        out.flush()
        return last if out.is_open else None
    finally:
        if task is not None:
            task.cancel()


def _as_json(entry: LogEntry) -> bytes:
    document = {"position": str(entry.position), "time": entry.time, **text_or_base64("data", "base64", entry.data)}
    if entry.key is not None:
        document |= text_or_base64("key", "key_base64", entry.key)
    return json.dumps(document).encode() + b"\n"


# -- show, trim and seal ----------------------------------------------------------------------------------------------


async def _list(store: Client, args: argparse.Namespace) -> None:
    for name in await names(store.metadata):
        if not args.long:
            say(args, {"log": name}, name)
            continue
        with contextlib.suppress(NoSuchLogError):  # deleted meanwhile
            view = await store.log(name).show()
            missing = f"   {len(view.missing):,} missing" if view.missing else ""
            state = "sealed" if view.chain.sealed else "open"
            say(args, _as_object(view), f"{name}   {state}   {plural(len(view.chain.links), 'ledger')}{missing}")


async def _show(store: Client, args: argparse.Namespace) -> None:
    if args.log is None:
        args.long = False
        await _list(store, args)
        return
    view = await store.log(args.log).show()
    say(args, _as_object(view), _drawn(view))


def _as_object(view: LogView) -> dict[str, Any]:
    return {
        "log": view.name,
        "id": view.chain.id.hex(),
        "sealed": view.chain.sealed,
        "leader": view.leader,
        "trimmed": view.chain.trimmed,
        "ledgers": [{"ledger": link.ledger, "created": link.created} for link in view.chain.links],
        "settings": {
            name: value.decode(errors="backslashreplace")
            for name, value in view.chain.settings
            if name not in (ID, OFFLOADS)
        },
        "offloaded": [{"ledger": each.ledger, "since": each.since} for each in view.chain.offloads],
        "cursors": {
            name: {"position": str(each.before), "ranges": each.count()} for name, each in view.cursors.items()
        },
        "unremoved": [*view.unremoved],
        "missing": [*view.missing],
    }


_SHOWN = 10
"""The most ledgers that are shown: half of them the oldest, half the newest."""


def _drawn(view: LogView) -> str:
    chain, settings = view.chain, {name: value.decode(errors="replace") for name, value in view.chain.settings}
    state = "sealed" if chain.sealed else "open"
    led = f"led by {view.leader}" if view.leader is not None else "nobody leads"
    quorums = ", ".join(
        f"{name.replace('_', ' ')} {settings.get(name, '?')}" for name in ("ensemble", "write_quorum", "ack_quorum")
    )
    lines = [f"log {view.name}   {state}   {led}   {quorums}   {settings.get('digest', '?')}", ""]
    count = len(chain.links)
    trimmed = f", after {chain.trimmed:,} that were trimmed" if chain.trimmed else ""
    lines.append(f"  {plural(count, 'ledger')}{trimmed}")
    offloaded = {each.ledger for each in chain.offloads}
    if offloaded:
        lines[-1] += f", {len(offloaded):,} of them offloaded"
    at = [*range(count)] if count <= _SHOWN else [*range(_SHOWN // 2), -1, *range(count - _SHOWN // 2, count)]
    for index in at:
        if index < 0:
            lines.append("    ...")
        else:
            link = chain.links[index]
            lines.append(
                f"    {link.ledger:>10}   since {_time(link.created)}"
                f"{'' if index + 1 < count or chain.sealed else '   the last one'}"
                f"{'   missing' if link.ledger in view.missing else ''}"
                f"{'   offloaded' if link.ledger in offloaded else ''}"
            )
    if view.missing:
        lines.append(f"  {plural(len(view.missing), 'ledger is', 'ledgers are')} missing: the entries")
        lines.append(f"  {chain.gaps({*view.missing})} are gone")
    if view.unremoved:
        lines.append(f"  {len(view.unremoved):,} trimmed ledgers are not deleted yet: the next trim deletes them")
    if view.cursors:
        lines += ["", "  cursors", *(f"    {name}   {_cursor(view, each)}" for name, each in view.cursors.items())]
    return "\n".join(lines)


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _cursor(view: LogView, at: Acknowledged) -> str:
    index = view.chain.index(at.before.ledger)
    behind = (
        "its place is trimmed" if index is None else f"{len(view.chain.links) - 1 - index:,} ledgers before the last"
    )
    if not view.chain.links or (index is None and not view.chain.trimmed):
        return "at the beginning"
    ranges = f", and {at.count():,} runs of entries after it are acknowledged" if at.runs else ""
    return f"{at.before}, {behind}{ranges}"


async def _trim(store: Client, args: argparse.Namespace) -> None:
    log = store.log(args.log)
    if isinstance(args.before, End):
        raise OptionError(f"--before {args.before}: give LEDGER:ENTRY, or a time like 2026-11-23T04:00")
    keep = args.keep if args.keep_seconds is None else timedelta(seconds=args.keep_seconds)
    gone = await log.trim(before=args.before, keep=keep, keep_unread=args.keep_unread)
    text = f"log {args.log}: {plural(len(gone), 'ledger is', 'ledgers are')} deleted"
    say(args, {"log": args.log, "deleted": [*gone]}, text)


async def _offload(store: Client, args: argparse.Namespace) -> None:
    if isinstance(args.before, End):
        raise OptionError(f"--before {args.before}: give LEDGER:ENTRY, or a time like 2026-11-23T04:00")
    keep = args.keep if args.older is None else timedelta(seconds=args.older)
    count = size = 0

    def report(entries: int, more: int) -> None:
        nonlocal count, size
        count, size = count + entries, size + more

    with progress() as line, reporting(lambda: line.report(count, size, None)):
        done = await store.log(args.log).offload(
            args.to, before=args.before, keep=keep, grace=timedelta(seconds=args.grace), report=report
        )
    removed = f", {plural(done.removed, 'unused object')} removed" if done.removed else ""
    say(
        args,
        {
            "log": args.log,
            "offloaded": [*done.ledgers],
            "entries": done.entries,
            "bytes": done.bytes,
            "deleted": [*done.deleted],
            "removed": done.removed,
        },
        f"log {args.log}: {plural(len(done.ledgers), 'ledger')} copied to the object store,"
        f" {plural(len(done.deleted), 'ledger')} deleted from the bookies{removed}",
    )


async def _orphans(store: Client, args: argparse.Namespace) -> None:
    found = await orphans(store.metadata, args.to, args.remove)
    for name in found:
        say(args, {"object": name, "removed": args.remove}, name)
    if not args.json:
        say(args, {}, f"{plural(len(found), 'object')} {'removed' if args.remove else 'that no log needs'}")


async def _seal(store: Client, args: argparse.Namespace) -> None:
    log: Log = store.log(args.log, password=password(args))
    await log.seal()
    say(args, {"log": args.log, "sealed": True}, f"log {args.log} is sealed")


async def _delete(store: Client, args: argparse.Namespace) -> None:
    log: Log = store.log(args.log, password=password(args))
    has = plural(len((await log.chain()).links), "ledger")
    await confirm(args, f"deleting the log {args.log} with {has}")
    count = await log.delete()
    document = {"log": args.log, "deleted_ledgers": count}
    say(args, document, f"log {args.log} is deleted, with {plural(count, 'ledger')}")
