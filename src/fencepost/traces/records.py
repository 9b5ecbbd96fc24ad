"""Reads the records of files that other systems wrote: lines of JSON, OpenTelemetry's JSON, CSV and Parquet.

A record is a dict: an object of JSON, a log record, a span or an event of a span of OpenTelemetry, or a row with the
names of its columns. Files are read piece by piece.
"""

from __future__ import annotations

import csv
import gzip
import os
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

_COMPARED = 64
"""Bytes at the end of what was read that are compared when it is read on."""

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


def grows(path: Path) -> bool:
    """Whether records can be added to a file while it is read: it has lines of JSON, and is not compressed."""
    return path.name.endswith(LINES)


class Growing:
    """A file of lines of JSON to which records are added."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = self._number = 0
        self._file: tuple[int, int] | None = None
        self._end = b""
        """The last bytes that were read: they are still there if the file is the same."""

    def new(self) -> Iterator[Placed]:
        """The records of the lines that were added. The last line counts once its end is there.

        Raises :class:`TraceError` as :func:`records`, and if the file was replaced, cut or written over.
        """
        try:
            regular.require(self._path)
            with open(self._path, "rb") as file:
                self._require_same(file)
                for line in _lines(self._path, file, self._number):
                    if not line.endswith(b"\n"):
                        return
                    self._number += 1
                    self._read = file.tell()
                    self._end = line[-_COMPARED:]
                    yield from _of_line(f"{self._path}:{self._number}", line)
        except OSError as error:
            raise TraceError(f"{self._path} cannot be read: {error.strerror or error}") from error

    def _require_same(self, file: IO[bytes]) -> None:
        """Raises unless the file begins with what was read. Leaves it where that ends."""
        found = os.fstat(file.fileno())
        self._file = self._file or (found.st_dev, found.st_ino)
        file.seek(self._read - len(self._end))
        if self._file != (found.st_dev, found.st_ino) or file.read(len(self._end)) != self._end:
            raise TraceError(
                f"{self._path} is not the file that it was, or was cut: records can be followed where lines are added"
            )


def _lines(path: Path, file: IO[bytes], number: int = 0) -> Iterator[bytes]:
    """The lines from where a file stands, after ``number`` lines."""
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
        if not may_be_one:
            yield from _of_line(f"{path}:{number}", line)
            continue
        if not line.strip():
            continue
        try:
            found = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            yield from _document(path, line + file.read(LONGEST + 1 - len(line)), number)
            return
        if isinstance(found, list):
            yield from _elements(path, found)
        else:
            yield from _of_object(f"{path}:{number}", found)
        may_be_one = False


def _of_line(where: str, line: bytes) -> Iterator[Placed]:
    """The records of a line of JSON; of an empty one, none."""
    if not line.strip():
        return
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(f"{where}: it is no JSON: {error}") from error
    yield from _of_object(where, found)


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
