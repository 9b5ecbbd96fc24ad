"""Spools: the files that receive events as they are emitted. Events are frames in memory-mapped pages, which the
operating system keeps when the process is killed.

A file begins with eight bytes of magic, which include the version. Frames follow. A frame is the length of the payload
and its CRC-32, four bytes each, little endian, and the payload in MessagePack. The first frame is the origin of the
events, ``[run, node, incarnation, part]``. Each later frame is ``[seq, actor, action, subject, parameters, state]``,
where parameters and state are JSON bytes. Zeros follow the last frame. The length is written after the payload, so a
killed process leaves whole frames, and at most one with a wrong checksum at the end.

The disk space of a file is allocated when the file is created. A full disk is then an error at that point, and not a
signal that kills the process later.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple
from zlib import crc32

import msgspec

from fencepost.files import locks
from fencepost.traces.event import TraceError

MAGIC = b"FPTRACE\x01"
HEAD = Struct("<II")
"""Length and checksum of a payload."""

Row = tuple[int, str, str, str | None, bytes, bytes | None]
"""The fields of an event's frame: seq, actor, action, subject, parameters, state."""

_ROW: msgspec.msgpack.Decoder[Row] = msgspec.msgpack.Decoder(Row)


class Origin(NamedTuple):
    """The process that wrote a file, and the number of the file in its incarnation, from 1."""

    run: str
    node: str
    incarnation: int
    part: int


_ORIGIN: msgspec.msgpack.Decoder[tuple[str, str, int, int]] = msgspec.msgpack.Decoder(tuple[str, str, int, int])


class Segment:
    """A spool while it is written: ``memory`` is in use up to ``end``. It is locked until it is closed or its process
    ends.

    Raises ``FileExistsError`` if the file exists, and another ``OSError`` if the disk has no space for it.
    """

    def __init__(self, path: Path, origin: Origin, size: int) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            locks.lock(self._file, wait=True)
            _allocate(self._file, size)
            self.memory = mmap.mmap(self._file, size)
        except BaseException:
            os.close(self._file)
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        self.memory[: len(MAGIC)] = MAGIC
        self.end = len(MAGIC)
        self.put(msgspec.msgpack.encode(origin))

    def put(self, payload: bytes) -> None:
        """Append a frame. The caller checks that it fits."""
        start = self.end + HEAD.size
        end = start + len(payload)
        self.memory[start:end] = payload
        HEAD.pack_into(self.memory, self.end, len(payload), crc32(payload))
        self.end = end

    def finish(self) -> None:
        """Unmap the memory. No frame may be added afterwards."""
        self.memory.close()

    def close(self, remove: bool = False) -> None:
        """Close and unlock the file, and remove it if ``remove``."""
        if remove:
            with contextlib.suppress(OSError):
                self.path.unlink()
        self.memory.close()
        os.close(self._file)


def _allocate(file: int, size: int) -> None:
    """Fill a file with zeros. This allocates its disk space and brings its pages into memory, so the first write to
    each is cheap.
    """
    rest = size
    while rest:
        rest -= os.write(file, bytes(min(rest, 1 << 20)))


_ORIGIN_WITHIN = 4_096
"""The first bytes of a file, which have its origin: the names in it are in the name of the file too."""


class Contents:
    """The contents of a spool, which its writer may still be writing: its origin, and its whole frames. ``start``: the
    byte of the frame to begin with, if not the first; ``end``: the byte after the last frame that :meth:`rows` has
    given.

    Raises :class:`TraceError` if it is not a spool or is damaged, and ``OSError`` if it cannot be read.
    """

    def __init__(self, path: Path, start: int = 0) -> None:
        self.path = path
        self.end = self._skipped = 0
        with path.open("rb") as file:
            self.data = file.read(_ORIGIN_WITHIN if start else -1)
            self._read_origin()
            if start:
                file.seek(start)
                self.data, self._start, self._skipped = file.read(), 0, start

    def _read_origin(self) -> None:
        path = self.path
        if self.data[: len(MAGIC)] != MAGIC:
            if not MAGIC.startswith(self.data[: len(MAGIC)].rstrip(b"\0")):
                raise TraceError(f"{path} is no spool of a trace, or one of another version of Fencepost")
            self.origin: Origin | None = None  # its process was killed before it wrote anything
            return
        self._start, payload = self._frame(len(MAGIC))
        self.origin = None
        if payload is not None:
            try:
                self.origin = Origin(*_ORIGIN.decode(payload))
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise TraceError(f"{path} is damaged: {error}") from error

    def rows(self) -> Iterator[Row]:
        """The events, in order."""
        if self.origin is None:
            return
        at = self._start
        while True:
            self.end = self._skipped + at
            after, payload = self._frame(at)
            if payload is None:
                return
            try:
                yield _ROW.decode(payload)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise TraceError(f"{self.path} is damaged at byte {self.end}: {error}") from error
            at = after

    def _frame(self, at: int) -> tuple[int, bytes | None]:
        """The offset of the next frame, and the payload of this one; None if there is none, or if it is the last one
        and torn.
        """
        data, size = self.data, len(self.data)
        if at + HEAD.size > size:
            return at, None
        length, checksum = HEAD.unpack_from(data, at)
        start = at + HEAD.size
        end = start + length
        if not length:
            return at, None
        payload = bytes(data[start:end])
        if end > size or crc32(payload) != checksum:
            if end + HEAD.size <= size and HEAD.unpack_from(data, end)[0]:
                raise TraceError(
                    f"{self.path} is damaged at byte {self._skipped + at}: the checksum of a frame is wrong, and others"
                    " follow it"
                )
            return at, None
        return end, payload
