"""``fencepost ledger``: creates, writes, reads, follows, recovers, shows, lists, deletes, exports and imports
ledgers.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import fencepost
from fencepost.cli import arguments
from fencepost.cli.arguments import option
from fencepost.cli.commands import client, streams
from fencepost.errors import OptionError, naming_extra
from fencepost.files.storage import Storage, open_storage
from fencepost.ledger.archive.exporting import Moved, export
from fencepost.ledger.archive.importing import import_all, ledgers_in, new_numbers
from fencepost.ledger.client.client import LedgerClient, must_be_of_log
from fencepost.ledger.client.reading import LedgerEntry
from fencepost.ledger.client.replica_map import draw, holdings
from fencepost.ledger.rules.metadata import IMPORTING, RESERVED, LedgerMetadata, LedgerStatus
from fencepost.text.numbers import plural

_EXAMPLES = """\
examples:
  id=$(fencepost ledger create --metadata zk://127.0.0.1:2181/ledgers)
  seq 1000 | fencepost ledger append $id --metadata zk://127.0.0.1:2181/ledgers
  fencepost ledger read $id --metadata zk://127.0.0.1:2181/ledgers
The environment variable FENCEPOST_METADATA is the default of --metadata."""


# -- what is typed ----------------------------------------------------------------------------------------------------


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``fencepost ledger``."""
    parser.description = (
        "Create, write and read ledgers. A ledger is a numbered sequence of entries on several bookies, with one"
        " writer."
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EXAMPLES
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=arguments.Parser)

    def action(name: str, purpose: str, ledger: str = "LEDGER", secret: bool = True) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = commands.add_parser(name, help=purpose, description=purpose, allow_abbrev=False)
        if ledger:
            made.add_argument(
                "ledger",
                metavar=ledger.strip("[]"),
                type=arguments.number,
                nargs="?" if ledger[0] == "[" else None,
                help="the number of a ledger",
            )
        client.client_options(made, "the ledger's password" if secret else "")
        return made

    _create_options(
        action("create", "create a ledger for the first client that appends to it, and print its number", "")
    )
    appending = action(
        "append", "append entries from standard input, and close the ledger; without LEDGER, create one", "[LEDGER]"
    )
    _create_options(appending)
    streams.format_option(appending)
    option(appending, "--in-flight N", "the most entries in flight (1000)", arguments.count, 1000)
    reading = action("read", "write entries to standard output, up to the last confirmed one")
    streams.format_option(reading)
    option(reading, "--first N", "the first entry (0)", arguments.number, 0)
    option(reading, "--last N", "the last entry; by default the last confirmed one", arguments.number)
    tailing = action("tail", "write entries to standard output as they are confirmed, until the ledger is closed")
    streams.format_option(tailing)
    option(tailing, "--first N", "the first entry (0)", arguments.number, 0)
    action("recover", "close a ledger whose writer is gone; a writer that still lives is fenced off")
    action("show", "show the fragments of a ledger, and the bookies of each entry")
    listing = action("list", "list the numbers of all ledgers", "", secret=False)
    option(listing, "--long", "also their status, size and ensembles")
    deleting = action("delete", "delete ledgers permanently", "", secret=False)
    option(deleting, "ledgers LEDGER", "numbers of ledgers", arguments.number, nargs="+")
    option(
        deleting,
        "--of-log LOG",
        "delete ledgers of this log, which then misses their entries (fencepost log trim deletes old ones properly)",
    )
    client.yes_option(deleting)
    exporting = action("export", "write closed ledgers to a folder, or to an object store", "", secret=False)
    option(exporting, "ledgers LEDGER", "numbers of ledgers; by default all", arguments.number, nargs="*")
    option(
        exporting,
        "target TARGET",
        f"the folder, which is empty or has an export of this cluster; {_URLS}",
        arguments.place,
    )
    option(
        exporting,
        "--recover",
        "close the ledgers that are open, as ledger recover does; a writer that still lives is fenced off",
    )
    importing = action("import", "bring exported ledgers into this cluster", "", secret=False)
    option(importing, "source SOURCE", f"the folder of an export; {_URLS}", arguments.place)
    option(importing, "ledgers LEDGER", "numbers of ledgers in the export; by default all", arguments.number, nargs="*")
    option(
        importing,
        "--new-ids FILE",
        "give each ledger a new number, and write them to FILE; with the same FILE, an interrupted import goes on",
        Path,
    )


_URLS = "a path, or a URL such as s3://BUCKET/PATH, gs:// or hdfs://, which needs pyarrow"


def _create_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a new ledger")
    client.quorum_options(group, "its entries", None)
    option(group, "--custom KEY=VALUE ...", "custom metadata (repeatable)", _custom)
    option(group, "--id N", "its number; by default the next one", arguments.number, dest="number")


def _custom(text: str) -> tuple[str, bytes]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    try:
        key.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"the key {key!r} is no UTF-8") from None
    return key, os.fsencode(value)


def run(args: argparse.Namespace) -> int:
    """Run the command. Returns the exit code."""
    action: Callable[[LedgerClient, argparse.Namespace], Coroutine[Any, Any, None]] = globals()[f"_{args.action}"]
    return client.on_store(action, args)


def _new(args: argparse.Namespace) -> dict[str, Any]:
    """The settings of a new ledger."""
    return {
        **client.quorums(args),
        "password": client.password(args),
        "custom_metadata": dict(args.custom),
        "ledger": args.number,
    }


# -- create and append ------------------------------------------------------------------------------------------------


async def _create(store: LedgerClient, args: argparse.Namespace) -> None:
    ledger = await store.reserve_ledger(**_new(args))
    client.say(args, {"ledger": ledger}, str(ledger))


async def _append(store: LedgerClient, args: argparse.Namespace) -> None:
    if args.ledger is None:
        opening = store.create_ledger(**_new(args), in_flight=args.in_flight)
    else:
        if args.digest or args.custom or args.number is not None:
            raise OptionError("--digest, --custom and --id are for a new ledger, but LEDGER names an existing one")
        opening = store.adopt_ledger(args.ledger, password=client.password(args), in_flight=args.in_flight)
    counted = streams.Counted(args.format)
    with counted.explained(lambda confirmed, sent: _acknowledged(ledger.id, confirmed - 1, sent)):
        async with opening as ledger:
            if args.ledger is None:
                streams.inform(f"appending to ledger {ledger.id}")
            await counted.append_to(ledger, lambda: ledger.last_add_confirmed + 1)
    entries = ledger.last_add_confirmed + 1
    document = {"ledger": ledger.id, "entries": entries, "bytes": counted.bytes}
    client.say(
        args,
        document,
        f"ledger {ledger.id}: {plural(entries, 'entry', 'entries')}, {plural(counted.bytes, 'byte')}, closed",
    )


def _acknowledged(ledger: int, last: int, read: int) -> str:
    sent = f"of {read:,} that were read"
    if last < 0:
        return f"ledger {ledger}: no entry {sent} is acknowledged; some may still be in the ledger"
    return f"ledger {ledger}: entries 0 to {last:,} {sent} are acknowledged; those after may be in the ledger or not"


# -- read and tail ----------------------------------------------------------------------------------------------------


async def _read(store: LedgerClient, args: argparse.Namespace) -> None:
    async with store.open_ledger(args.ledger, password=client.password(args)) as reader:
        last = await reader.read_last_add_confirmed() if args.last is None else args.last
        await _write_out(reader.read(args.first, last), args, last - args.first + 1)


async def _tail(store: LedgerClient, args: argparse.Namespace) -> None:
    async with store.open_ledger(args.ledger, password=client.password(args)) as reader:
        await _write_out(reader.tail(args.first), args, None)


async def _write_out(entries: AsyncIterator[LedgerEntry], args: argparse.Namespace, of: int | None) -> None:
    """Write entries to standard output until all are written or its reader is gone. Entries that arrive together are
    written together.
    """
    out = streams.Output()
    shown = streams.shown_as(args, _as_json)
    count = size = 0
    with streams.progress() as line, streams.reporting(lambda: line.report(count, size, count / of if of else None)):
        async for entry in entries:
            count += 1
            size += len(entry.data)
            if not out.put(shown(entry)):
                break
    out.flush()


def _as_json(entry: LedgerEntry) -> bytes:
    return json.dumps({"entry": entry.id, **streams.text_or_base64("data", "base64", entry.data)}).encode() + b"\n"


# -- recover, show, list and delete -----------------------------------------------------------------------------------


async def _recover(store: LedgerClient, args: argparse.Namespace) -> None:
    with streams.progress() as line:
        metadata = await store.recover_ledger(
            args.ledger, password=client.password(args), progress=lambda found: line.report(found + 1, None, None)
        )
    count = plural(metadata.last_entry + 1, "entry", "entries")
    text = f"ledger {args.ledger}: {count}, {plural(metadata.length, 'byte')}, closed"
    client.say(args, _as_object(args.ledger, metadata), text)


async def _show(store: LedgerClient, args: argparse.Namespace) -> None:
    metadata = await store.ledger_metadata(args.ledger)
    last = metadata.last_entry
    if metadata.status is not LedgerStatus.CLOSED:
        async with store.open_ledger(args.ledger, password=client.password(args)) as reader:
            metadata, last = reader.metadata, await reader.read_last_add_confirmed()
    held = await holdings(store, args.ledger, metadata, last)
    bookies = {each.bookie: each.runs for each in held}
    document = {**_as_object(args.ledger, metadata), "last_add_confirmed": last, "bookies": bookies}
    client.say(args, document, draw(args.ledger, metadata, held, last, shutil.get_terminal_size((100, 24)).columns))


async def _list(store: LedgerClient, args: argparse.Namespace) -> None:
    if not args.long:
        async for ledger in store.list_ledgers():
            client.say(args, {"ledger": ledger}, str(ledger))
        return
    async for ledger in store.list_ledgers():
        with contextlib.suppress(fencepost.NoSuchLedgerError):  # deleted meanwhile
            metadata = await store.ledger_metadata(ledger)
            client.say(args, _as_object(ledger, metadata), _as_row(ledger, metadata))


def _as_row(ledger: int, metadata: LedgerMetadata) -> str:
    is_closed = metadata.status is LedgerStatus.CLOSED
    status = "reserved" if RESERVED in metadata.custom_metadata else metadata.status.value
    status = "importing" if IMPORTING in dict(metadata.custom_metadata) else status
    entries, length = metadata.last_entry + 1, metadata.length
    of_entries, of_bytes = "entry" if entries == 1 else "entries", "byte" if length == 1 else "bytes"
    size = f"{entries:>12,} {of_entries:<7} {length:>16,} {of_bytes:<5}" if is_closed else " " * 43
    ensembles = " | ".join(" ".join(fragment.ensemble) for fragment in metadata.fragments)
    return f"{ledger:>10}  {status:<11} {size}  {ensembles}"


def _as_object(ledger: int, metadata: LedgerMetadata) -> dict[str, Any]:
    is_closed = metadata.status is LedgerStatus.CLOSED
    return {
        "ledger": ledger,
        "status": metadata.status.value,
        "ensemble": metadata.ensemble_size,
        "write_quorum": metadata.write_quorum,
        "ack_quorum": metadata.ack_quorum,
        "digest": metadata.digest_type.name.lower(),
        "last_entry": metadata.last_entry if is_closed else None,
        "length": metadata.length if is_closed else None,
        "fragments": [{"first_entry": each.first_entry_id, "bookies": [*each.ensemble]} for each in metadata.fragments],
        "custom": {key: value.decode(errors="backslashreplace") for key, value in metadata.custom_metadata},
    }


async def _delete(store: LedgerClient, args: argparse.Namespace) -> None:
    ledgers = [*dict.fromkeys(args.ledgers)]
    for ledger in ledgers:  # before deleting any
        must_be_of_log(ledger, await store.ledger_metadata(ledger), args.of_log)
    some = f"ledger {ledgers[0]}" if len(ledgers) == 1 else f"{len(ledgers):,} ledgers"
    await client.confirm(args, f"deleting {some}{f' of the log {args.of_log}' if args.of_log else ''}")
    for ledger in ledgers:
        await store.delete_ledger(ledger, of_log=args.of_log)
        client.say(args, {"deleted": ledger}, f"ledger {ledger} is deleted")


# -- export and import ------------------------------------------------------------------------------------------------


def _storage(place: Path | str) -> Storage:
    with naming_extra(f"{place}", "query"):
        return open_storage(place)


@contextlib.contextmanager
def _counting(of: int) -> Iterator[Callable[[int, int], None]]:
    """A progress line of entries, for a function that takes how many more are done, and their bytes. ``of``: all."""
    count = size = 0

    def report(entries: int, more: int) -> None:
        nonlocal count, size
        count, size = count + entries, size + more

    with streams.progress() as line, streams.reporting(lambda: line.report(count, size, count / of if of else None)):
        yield report


def _say_moved(args: argparse.Namespace, moved: Moved, done: str) -> None:
    number = f", as ledger {moved.number}" if moved.number != moved.ledger else ""
    document = {"ledger": moved.ledger, "number": moved.number, "entries": moved.entries, "length": moved.bytes}
    client.say(
        args,
        {**document, "was_there": moved.was_there},
        f"ledger {moved.ledger}: {plural(moved.entries, 'entry', 'entries')}, {plural(moved.bytes, 'byte')},"
        f" {'there already' if moved.was_there else done}{number}",
    )


async def _export(store: LedgerClient, args: argparse.Namespace) -> None:
    ledgers = args.ledgers or [ledger async for ledger in store.list_ledgers()]
    with _counting(0) as report:
        done = await export(store, ledgers, _storage(args.target), recover=args.recover, report=report)
    for each in done:
        _say_moved(args, each, "exported")


async def _import(store: LedgerClient, args: argparse.Namespace) -> None:
    source = _storage(args.source)
    ledgers = await asyncio.to_thread(ledgers_in, source, args.ledgers)
    numbers: dict[int, int] = {}
    if args.new_ids is not None:
        numbers = await new_numbers(store, ledgers, Storage(str(args.new_ids.absolute().parent)), args.new_ids.name)
    with _counting(sum(manifest.last_entry + 1 for manifest, _ in ledgers.values())) as report:
        await import_all(
            store, source, ledgers, numbers, report=report, done=lambda moved: _say_moved(args, moved, "imported")
        )
