"""The files that events go to as they are emitted: frames in memory-mapped pages, which the operating system keeps when
the process is killed.

A file begins with eight bytes of magic, the version in them. Then there are frames: the bytes of the payload and their
CRC-32, four bytes each, little endian, and the payload, which is MessagePack. The first frame tells whose events these
are, ``[run, node, incarnation, part]``; each other one is ``[seq, actor, action, subject, parameters, state]``,
parameters and state being bytes of JSON. Zeros follow the last frame. A frame's length is written after the payload, so
a process that is killed leaves whole frames, and at most one whose checksum is wrong, at the end.

The room for a file is taken from the disk when it is made: a full disk is an error then, and not a signal that ends the
process later.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple
from zlib import crc32

import msgspec

from fencepost.traces.event import TraceError

MAGIC = b"FPTRACE\x01"
HEAD = Struct("<II")
"""Length and checksum of a payload."""

Row = tuple[int, str, str, str | None, bytes, bytes | None]
"""The fields of a frame: seq, actor, action, subject, parameters, state."""

_ROW: msgspec.msgpack.Decoder[Row] = msgspec.msgpack.Decoder(Row)


class Whose(NamedTuple):
    """Whose events a file holds, and which part of them it is, from 1 on."""

    run: str
    node: str
    incarnation: int
    part: int


_WHOSE: msgspec.msgpack.Decoder[tuple[str, str, int, int]] = msgspec.msgpack.Decoder(tuple[str, str, int, int])


class Segment:
    """One such file, while it is written: ``memory`` up to ``end`` is in use. It is locked as long as its process lives
    or until it is closed.

    Raises ``FileExistsError`` if there is one already, and another ``OSError`` if there is no room for it.
    """

    def __init__(self, path: Path, whose: Whose, size: int) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            _take_room(self._file, size)
            self.memory = mmap.mmap(self._file, size)
        except BaseException:
            os.close(self._file)
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        self.memory[: len(MAGIC)] = MAGIC
        self.end = len(MAGIC)
        self.put(msgspec.msgpack.encode(whose))

    def put(self, payload: bytes) -> None:
        """Append a frame, for which there must be room."""
        start = self.end + HEAD.size
        end = start + len(payload)
        self.memory[start:end] = payload
        HEAD.pack_into(self.memory, self.end, len(payload), crc32(payload))
        self.end = end

    def finish(self) -> None:
        """Nothing more is put into it."""
        self.memory.close()

    def close(self, remove: bool = False) -> None:
        """Let go of the file, and remove it if that is wanted."""
        if remove:
            with contextlib.suppress(OSError):
                self.path.unlink()
        self.memory.close()
        os.close(self._file)


def _take_room(file: int, size: int) -> None:
    """Fill a file with zeros: the disk has set the bytes aside then, and the pages are in memory, which makes the first
    write to each cheap.
    """
    rest = size
    while rest:
        rest -= os.write(file, bytes(min(rest, 1 << 20)))


class Contents:
    """A file of frames to read, which its writer may still write to: whose it is, and its rows as far as they are
    whole.

    Raises :class:`TraceError` if it is none, or damaged, and ``OSError`` if it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = path.read_bytes()
        if self.data[: len(MAGIC)] != MAGIC:
            if not MAGIC.startswith(self.data[: len(MAGIC)].rstrip(b"\0")):
                raise TraceError(f"{path} is no spool of a trace, or one of another version of Fencepost")
            self.whose: Whose | None = None  # its process was killed before anything was in it
            return
        self._start, payload = self._frame(len(MAGIC))
        self.whose = None
        if payload is not None:
            try:
                self.whose = Whose(*_WHOSE.decode(payload))
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise TraceError(f"{path} is damaged: {error}") from error

    def rows(self) -> Iterator[Row]:
        """The events, in order."""
        if self.whose is None:
            return
        at = self._start
        while True:
            after, payload = self._frame(at)
            if payload is None:
                return
            try:
                yield _ROW.decode(payload)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise TraceError(f"{self.path} is damaged at byte {at}: {error}") from error
            at = after

    def _frame(self, at: int) -> tuple[int, bytes | None]:
        """Where the next frame begins, and the payload of this one; None if it is not there, or torn at the very
        end.
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
                    f"{self.path} is damaged at byte {at}: the checksum of a frame is wrong, and others follow it"
                )
            return at, None
        return end, payload
