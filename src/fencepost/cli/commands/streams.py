"""Entries on standard input and output, for commands that append and read, with their progress."""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import os
import stat
import struct
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TypeVar

from fencepost.cli import output
from fencepost.cli.arguments import option
from fencepost.cli.progress import Bytes, Entries
from fencepost.errors import FencepostError, OptionError, SystemFailure
from fencepost.ledger.client.appender import Appender, AppendGroup, Location
from fencepost.ledger.client.reading import LedgerEntry
from fencepost.ledger.errors import StoreError
from fencepost.log.reader import LogEntry

LINES, PREFIXED = "lines", "length-prefixed"

_LENGTH = struct.Struct(">I")
_CHUNK = 256 * 1024
_LARGEST = 64 * 1024 * 1024
"""The longest line or length-prefixed entry in bytes."""


# -- entries ----------------------------------------------------------------------------------------------------------


def format_option(parser: argparse.ArgumentParser) -> None:
    """Declare the option for the format of entries on standard input or output."""
    option(
        parser,
        "--format",
        "an entry is a line without its end, or follows its length in 4 bytes, big endian (lines)",
        default=LINES,
        choices=(LINES, PREFIXED),
    )


E = TypeVar("E", LedgerEntry, LogEntry)


def shown_as(args: argparse.Namespace, as_json: Callable[[E], bytes]) -> Callable[[E], bytes]:
    """An entry in the format for standard output: a line, length-prefixed, or JSON."""
    if args.json:
        return as_json
    if args.format == LINES:
        return lambda entry: entry.data + b"\n"
    return lambda entry: _LENGTH.pack(len(entry.data)) + entry.data


def text_or_base64(text: str, otherwise: str, data: bytes) -> dict[str, str]:
    """Bytes as a JSON field: under one name as text, or under another as base64."""
    try:
        return {text: data.decode()}
    except UnicodeDecodeError:
        return {otherwise: base64.b64encode(data).decode()}


class Source:
    """Entries from standard input. A thread reads them, since reads of a pipe or a terminal block."""

    def __init__(self, format_: str) -> None:
        self.take = _take_lines if format_ == LINES else _take_prefixed
        self.format = format_
        self.loop = asyncio.get_running_loop()
        self.chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
        self.room = threading.Semaphore(8)
        self.read = 0
        with contextlib.suppress(OSError):
            status = os.fstat(0)
            self.size = status.st_size if stat.S_ISREG(status.st_mode) else 0
        threading.Thread(target=self._read, name="standard input", daemon=True).start()

    def share(self) -> float | None:
        """The share of the input that was read; None if its size is unknown."""
        return self.read / self.size if self.size else None

    def _read(self) -> None:
        while True:
            self.room.acquire()
            try:
                chunk: bytes | OSError = os.read(0, _CHUNK)
            except OSError as error:
                chunk = error
            try:
                self.loop.call_soon_threadsafe(self.chunks.put_nowait, chunk)
            except RuntimeError:  # the consumer is gone
                return
            if not chunk or isinstance(chunk, OSError):
                return

    async def batches(self) -> AsyncIterator[list[bytes]]:
        """The entries in batches, as they arrive."""
        rest = b""
        while True:
            chunk = await self.chunks.get()
            self.room.release()
            if isinstance(chunk, OSError):
                raise SystemFailure(f"standard input cannot be read: {chunk.strerror}")
            if not chunk:
                break
            self.read += len(chunk)
            entries, rest = self.take(rest + chunk)
            if entries:
                yield entries
        if rest and self.format == PREFIXED:
            raise OptionError(f"standard input ends within an entry: {len(rest):,} bytes are left over")
        if rest:
            yield [rest]


def _take_lines(data: bytes) -> tuple[list[bytes], bytes]:
    """The complete lines without their line ends, and the rest of the data."""
    *lines, rest = data.split(b"\n")
    if len(rest) > _LARGEST:
        raise OptionError(f"standard input has a line of more than {_LARGEST:,} bytes: is it made of lines?")
    return lines, rest


def _take_prefixed(data: bytes) -> tuple[list[bytes], bytes]:
    """The complete length-prefixed entries, and the rest of the data."""
    entries, place = [], 0
    while len(data) - place >= _LENGTH.size:
        (size,) = _LENGTH.unpack_from(data, place)
        if size > _LARGEST:
            raise OptionError(f"standard input says that an entry has {size:,} bytes: is it length-prefixed?")
        end = place + _LENGTH.size + size
        if end > len(data):
            break
        entries.append(data[place + _LENGTH.size : end])
        place = end
    return entries, data[place:]


class Counted:
    """Appends entries from standard input to a ledger or a log, and counts them."""

    def __init__(self, format_: str) -> None:
        self.format = format_
        self.confirmed: Callable[[], int] | None = None
        self.entries = 0
        self.bytes = 0

    async def append_to(self, writer: Appender[Location], confirmed: Callable[[], int]) -> AppendGroup[Location]:
        """Append all entries; ``confirmed`` returns the number of acknowledged ones."""
        source, group, self.confirmed = Source(self.format), writer.group(), confirmed
        with progress() as line, reporting(lambda: line.report(confirmed(), self.bytes, source.share())):
            async for entries in source.batches():
                self.entries += len(entries)
                self.bytes += sum(map(len, entries))
                if not await writer.send_some_of(group, entries):
                    break
            await group.over()
        return group

    @contextlib.contextmanager
    def explained(self, acknowledged: Callable[[int, int], str]) -> Iterator[None]:
        """If appending fails, add to the error how many of the entries read are ``acknowledged``."""
        try:
            yield
        except (FencepostError, asyncio.CancelledError) as error:
            if self.confirmed is not None:
                inform(acknowledged(self.confirmed(), self.entries))
                if isinstance(error, StoreError):
                    error.args = (f"not all could be appended: {error}",)
            raise


class Output:
    """Buffered standard output for bytes, flushed when the buffer is large or the event loop is idle."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.gathered: list[bytes] = []
        self.size = 0
        self.is_open = True
        self.timer: asyncio.TimerHandle | None = None

    def put(self, data: bytes) -> bool:
        """Write bytes. Returns False if the reader is gone."""
        self.gathered.append(data)
        self.size += len(data)
        if self.size >= _CHUNK:
            self.flush()
        elif self.timer is None:
            self.timer = self.loop.call_later(0.01, self.flush)
        return self.is_open

    def flush(self) -> None:
        """Write the buffer."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        data, self.gathered, self.size = b"".join(self.gathered), [], 0
        if data and self.is_open:
            self.is_open = output.put(data)


# -- progress ---------------------------------------------------------------------------------------------------------


def progress() -> Entries:
    """The progress line, on a terminal."""
    return Entries(sys.stderr)


def progress_of_bytes() -> Bytes:
    """The progress line of a copy, on a terminal."""
    return Bytes(sys.stderr)


@contextlib.contextmanager
def reporting(report: Callable[[], None]) -> Iterator[None]:
    """Report progress ten times a second while the block runs."""

    async def report_often() -> None:
        while True:
            await asyncio.sleep(0.1)
            report()

    reporting = asyncio.get_running_loop().create_task(report_often())
    try:
        yield
    finally:
        reporting.cancel()


def inform(text: str) -> None:
    """Write a line of information to standard error."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()
