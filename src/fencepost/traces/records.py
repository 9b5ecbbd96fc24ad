"""Reads the records of files that other systems wrote: lines of JSON, OpenTelemetry's JSON, CSV and Parquet.

A record is a dict: an object of JSON, a log record, a span or an event of a span of OpenTelemetry, or a row with the
names of its columns. Files are read piece by piece.
"""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, TypeAlias

import msgspec

from fencepost.errors import naming_extra
from fencepost.files import regular
from fencepost.traces import otlp
from fencepost.traces.event import TraceError

LONGEST = 64 << 20
"""Bytes of the longest line, and of the longest file that is one document of JSON. They are held in memory."""

LINES, DOCUMENT, TABLE, COMPRESSED = (".ndjson", ".jsonl"), ".json", ".csv", ".gz"
ENDINGS = (*LINES, DOCUMENT, TABLE)
"""The endings of files of text with records. Each may be followed by :data:`COMPRESSED`."""

Placed: TypeAlias = tuple[str, dict[str, Any] | None]
"""A record after its place, ``FILE:LINE`` or ``FILE, row N``. None: there is something that has no record."""

_MARK = b"\xef\xbb\xbf"
"""Some programs begin a file of UTF-8 with it."""


def ending(path: Path) -> str:
    """The ending that says that a file has records; empty if its name has none."""
    name = path.name.removesuffix(COMPRESSED)
    return next((each for each in ENDINGS if name.endswith(each)), "")


def stem(path: Path) -> str:
    """The name of a file of records without its endings."""
    return path.name.removesuffix(COMPRESSED).removesuffix(ending(path) or path.suffix)


def records(path: Path) -> Iterator[Placed]:
    """The records of a file, in its order. The ending says what it is; without a known one, it is Parquet.

    Raises :class:`TraceError` if the file cannot be read or is damaged, and :class:`fencepost.OptionError` for Parquet
    without PyArrow.
    """
    try:
        regular.require(path)
        kind = ending(path)
        if not kind:
            yield from _table(path)
            return
        opened: Any = gzip.open if path.name.endswith(COMPRESSED) else open
        with opened(path, "rb") as file:
            if kind == TABLE:
                yield from _rows(path, file)
            else:
                yield from _objects(path, file, kind == DOCUMENT)
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _lines(path: Path, file: IO[bytes]) -> Iterator[bytes]:
    number = 0
    while line := file.readline(LONGEST + 1):
        number += 1
        if len(line) > LONGEST:
            raise TraceError(f"{path}:{number}: the line is longer than {LONGEST >> 20} MiB")
        yield line.removeprefix(_MARK) if number == 1 else line


# -- JSON -------------------------------------------------------------------------------------------------------------


def _objects(path: Path, file: IO[bytes], may_be_one: bool) -> Iterator[Placed]:
    """The objects of lines. ``may_be_one``: the file may be one document over many lines, or an array of objects."""
    lines = _lines(path, file)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if may_be_one:
                yield from _document(path, line + file.read(LONGEST + 1 - len(line)), number)
                return
            raise TraceError(f"{path}:{number}: it is no JSON: {error}") from error
        if may_be_one and isinstance(found, list):
            yield from _elements(path, found)
        else:
            yield from _of_object(f"{path}:{number}", found)
        may_be_one = False


def _document(path: Path, text: bytes, line: int) -> Iterator[Placed]:
    """The records of a document that begins at ``line``."""
    if len(text) > LONGEST:
        raise TraceError(f"{path} is one document of JSON, and longer than {LONGEST >> 20} MiB: write a line a record")
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        at = re.search(r"\(byte (\d+)\)", str(error))
        line += text.count(b"\n", 0, int(at[1])) if at else text.rstrip().count(b"\n")
        raise TraceError(f"{path}:{line}: it is no JSON: {error}") from error
    if isinstance(found, list):
        yield from _elements(path, found)
    else:
        yield from _of_object(f"{path}:{line}", found)


def _elements(path: Path, found: Sequence[Any]) -> Iterator[Placed]:
    for number, each in enumerate(found, 1):
        yield from _of_object(f"{path}, element {number}", each)


def _of_object(where: str, found: Any) -> Iterator[Placed]:
    if not isinstance(found, dict):
        raise TraceError(f"{where}: there is no object of JSON, {{...}}")
    if not otlp.is_otlp(found):
        yield where, found
        return
    count = 0
    try:
        for record in otlp.records(found):
            count += 1
            yield where, record
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{where}: it is no OTLP: {error}") from error
    if not count:
        yield where, None


# -- tables -----------------------------------------------------------------------------------------------------------


def _rows(path: Path, file: IO[bytes]) -> Iterator[Placed]:
    """The rows of a CSV file, whose first line has the names of its columns. All values are texts."""
    reader = csv.reader((line.decode() for line in _lines(path, file)), strict=True)
    line = 1
    try:
        names = next(reader, [])
        if again := [name for name in names if names.count(name) > 1]:
            raise TraceError(f"{path}:1: two columns have the name {again[0]!r}")
        line = reader.line_num + 1
        for row in reader:
            if row:
                if len(row) != len(names):
                    raise TraceError(
                        f"{path}:{line}: the row has {len(row)} fields, and there are {len(names)} columns"
                    )
                yield f"{path}:{line}", dict(zip(names, row, strict=True))
            line = reader.line_num + 1
    except (csv.Error, UnicodeDecodeError) as error:
        raise TraceError(f"{path}:{line}: it is no CSV: {error}") from error


def _table(path: Path) -> Iterator[Placed]:
    with naming_extra(f"reading {path}", "query"):
        from fencepost.traces import parquet
    for number, row in enumerate(parquet.rows(path), 1):
        yield f"{path}, row {number}", row
