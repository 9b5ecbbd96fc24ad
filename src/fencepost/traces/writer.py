"""The writer of traces.

An event is encoded and copied into memory-mapped pages, without a system call. Full spools are converted to Parquet
when the writer is closed. If there are many, a thread converts the oldest while the process runs, with pauses so that
it does not slow the process down.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from zlib import crc32

import msgspec

from fencepost.errors import OptionError, naming_extra
from fencepost.files import locks
from fencepost.traces.event import ENDED, STARTED, STOPPED, TraceError, named
from fencepost.traces.folder import Folder, Name, stem_of
from fencepost.traces.spool import HEAD, Contents, Origin, Row, Segment

SEGMENT = 4 << 20
"""Bytes of a spool."""
EVENT_LIMIT = 1 << 20
"""The largest event in bytes."""
SIZE_LIMIT = 4 << 30
"""The most bytes that one incarnation may write."""
RESERVE = 4_096
"""Bytes at the end of a spool that are reserved for the trace's last events."""
REASON = 300
"""The longest reason for a stop, in characters."""

KEPT = 16
"""Full spools that may wait until the writer is closed. With more, the oldest is converted to Parquet."""
_BATCH = 256
"""Events that the thread converts between two pauses."""
_PAUSE = 0.001
"""The length of a pause in seconds."""

NOTHING: dict[str, Any] = {}
"""No parameters."""

_log = logging.getLogger("fencepost.traces")

json_of = msgspec.json.Encoder(enc_hook=repr).encode
_encode = msgspec.msgpack.Encoder().encode
_pack_head = HEAD.pack_into
_HEAD = HEAD.size


class TraceWriter:
    """Writes the events of one process to a folder of traces.

    ``node`` is the name of the process. ``run`` is the name of the execution of the whole system; by default it is the
    folder's current run, which the first writer there named. A process that starts again with the same names is the
    next incarnation. The first event is ``started``, with the parameters ``started``; :meth:`close` writes ``ended``.
    If the folder says that a share of the subjects is traced, the events of others are left out.

    The constructor raises :class:`TraceError` if the folder cannot be written to. No other method raises. If an event
    cannot be written, its number is missing in the trace. After a full disk or ``size_limit`` bytes nothing more is
    written: the trace ends with ``trace_stopped`` and the reason. Any thread may emit. A child process after
    ``os.fork`` writes nothing.
    """

    def __init__(
        self,
        directory: str | Path,
        run: str | None = None,
        *,
        node: str,
        started: dict[str, Any] = NOTHING,
        size_limit: int = SIZE_LIMIT,
        event_limit: int = EVENT_LIMIT,
        segment: int = SEGMENT,
    ) -> None:
        if event_limit < 1 or segment < event_limit + 2 * RESERVE or size_limit < segment:
            raise OptionError(
                f"event_limit {event_limit}, segment {segment}, size_limit {size_limit}: a segment has room for the"
                f" largest event and {2 * RESERVE} bytes, and a trace for a segment"
            )
        self.folder = Folder(directory)
        self.folder.make()
        self.run = self.folder.run() if run is None else run
        self.share = self.folder.share()
        self.node = node
        self.seq = 0
        """The number of the last event, written or not."""
        self.stopped = ""
        """Why writing stopped; empty while the writer writes."""
        self._stem = stem_of(self.run, node)
        self._event_limit = event_limit
        self._size = segment
        self._left = size_limit - segment
        self._lock = threading.Lock()
        self._is_on = True
        self._is_closed = False
        self._worker: _Worker | None = None
        self._ahead: Segment | None = None
        self._making = threading.Lock()
        self._stopped_at = 0
        self._segment, self.incarnation = self._first()
        self._memory = self._segment.memory
        self._end, self._room = self._segment.end, segment - RESERVE
        self._part = 1
        _writers.add(self)
        self.emit(STARTED, parameters=started)

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def emit(
        self,
        action: str,
        subject: str | int | None = None,
        parameters: dict[str, Any] = NOTHING,
        state: dict[str, Any] | None = None,
        actor: str = "",
    ) -> None:
        """Record that ``actor`` performed ``action`` on ``subject``. Values must be JSON values.

        Call it where the action takes effect. Once it returns, the event survives a crash of the process, but not a
        loss of power.
        """
        if self.share > 1 and subject is not None and _is_left_out(subject, self.share):
            return
        with self._lock:
            self.seq = seq = self.seq + 1
            if not self._is_on:
                return
            try:
                if type(subject) is int:
                    subject = str(subject)
                payload = _encode(
                    (seq, actor, action, subject, json_of(parameters), None if state is None else json_of(state))
                )
                start = self._end + _HEAD
                end = start + len(payload)
                if end > self._room or len(payload) > self._event_limit:
                    if not self._make_room(len(payload), action):
                        return
                    start = self._end + _HEAD
                    end = start + len(payload)
                memory = self._memory
                memory[start:end] = payload
                _pack_head(memory, self._end, len(payload), crc32(payload))
                self._end = end
            except Exception as error:
                _log.warning("event %d, %s, is missing in the trace of %s: %s", seq, action, self._named(), error)

    def close(self, parameters: dict[str, Any] = NOTHING) -> None:
        """Write ``ended``, convert the spools to Parquet, and stop writing. A second call does nothing."""
        with self._lock:
            if self._is_closed:
                return
            self._is_on, self._is_closed = False, True
            if self.stopped:
                parameters = {**parameters, "lost": self.seq - self._stopped_at + 1, "error": self.stopped}
            self.seq += 1
            self._put_last(ENDED, parameters)
            self._segment.end = self._end
        _writers.discard(self)
        if self._worker is not None:
            self._worker.finish()
        if self._ahead is not None:
            self._ahead.close(remove=True)
        _pack_segment(self.folder, self._segment)

    # -- spools -------------------------------------------------------------------------------------------------------

    def _first(self) -> tuple[Segment, int]:
        """The first spool of the node's next incarnation. The process that creates the file owns the number."""
        try:
            there = self.folder.incarnations(self._stem)
            for incarnation in count(max(there, default=0) + 1):
                name = Name(self._stem, incarnation, 1)
                try:
                    segment = Segment(
                        self.folder.spool_path(name), Origin(self.run, self.node, incarnation, 1), self._size
                    )
                except FileExistsError:
                    continue
                if not self.folder.parquet_path(name).exists():
                    return segment, incarnation
                segment.close(remove=True)  # another process started and ended meanwhile
        except OSError as error:
            raise TraceError(
                f"traces cannot be written to {self.folder.directory}: {error.strerror or error}"
            ) from error
        raise AssertionError("numbers do not end")

    def _make_room(self, size: int, action: str) -> bool:
        """Switch to the next spool if needed. Returns whether the payload fits now."""
        if size > self._event_limit:
            _log.warning(
                "event %d, %s, is missing in the trace of %s: it has %d bytes, and the limit is %d",
                self.seq,
                action,
                self._named(),
                size,
                self._event_limit,
            )
            return False
        if self._end + _HEAD + size <= self._room:
            return True
        if self._left < self._size:
            self._stop("it has reached its limit of bytes")
            return False
        before = self._segment
        try:
            with self._making:
                segment, self._ahead = self._ahead or self._next(), None
                self._part += 1
        except OSError as error:
            self._stop(f"its file of frames cannot be made: {error.strerror or error}")
            return False
        before.end = self._end
        self._left -= self._size
        self._segment, self._memory, self._end = segment, segment.memory, segment.end
        if self._worker is None:
            self._worker = _Worker(self.folder, self._prepare)
        self._worker.pack(before)
        return True

    def _next(self) -> Segment:
        part = self._part + 1
        name = Name(self._stem, self.incarnation, part)
        return Segment(self.folder.spool_path(name), Origin(self.run, self.node, self.incarnation, part), self._size)

    def _prepare(self) -> None:
        """Create the next spool ahead of time. Runs in the thread. A failure is not reported here: it recurs, and is
        reported, when the spool is needed.
        """
        with contextlib.suppress(OSError), self._making:
            if self._ahead is None and not self._is_closed and self._left >= self._size:
                self._ahead = self._next()

    # -- the end of the trace -----------------------------------------------------------------------------------------

    def _stop(self, reason: str) -> None:
        """Stop writing. A ``trace_stopped`` event takes the number of the event that was not written, so readers
        notice.
        """
        self._is_on = False
        self.stopped = reason[:REASON]
        self._stopped_at = self.seq
        _log.error("the trace of %s stops with event %d: %s", self._named(), self.seq, reason)
        self._put_last(STOPPED, {"reason": self.stopped})

    def _put_last(self, action: str, parameters: dict[str, Any]) -> None:
        """Write an event into the reserve. It has room for the stop and the end of a trace."""
        try:
            payload = _encode((self.seq, "", action, None, json_of(parameters), None))
            if self._end + _HEAD + len(payload) > self._size:
                payload = _encode((self.seq, "", action, None, b"{}", None))
            self._segment.end = self._end
            self._segment.put(payload)
            self._end = self._segment.end
        except Exception as error:
            _log.warning("the end of the trace of %s is missing: %s", self._named(), error)

    def _abandon(self) -> None:
        """Stop writing in a forked child: the trace belongs to the parent."""
        self._is_on, self._is_closed = False, True
        self._lock = threading.Lock()  # another thread may have held the old one during the fork

    def _named(self) -> str:
        return named(self.run, self.node, self.incarnation)


def _is_left_out(subject: str | int, share: int) -> bool:
    """Whether a subject is a number that the share does not divide."""
    if isinstance(subject, str):
        return subject.isdecimal() and int(subject) % share != 0
    return subject % share != 0


_writers: weakref.WeakSet[TraceWriter] = weakref.WeakSet()


def _abandon_all() -> None:
    for writer in _writers:
        writer._abandon()


os.register_at_fork(after_in_child=_abandon_all)


class _Worker:
    """A thread that converts full spools to Parquet. It calls ``prepare`` before each."""

    def __init__(self, folder: Folder, prepare: Callable[[], None]) -> None:
        self._folder = folder
        self._prepare = prepare
        self._segments: SimpleQueue[Segment | None] = SimpleQueue()
        self._pause = _PAUSE
        self._thread = threading.Thread(target=self._work, name="trace", daemon=True)
        self._thread.start()

    def pack(self, segment: Segment) -> None:
        """Queue a spool for conversion."""
        self._segments.put(segment)

    def finish(self) -> None:
        """Convert the rest without pauses, and wait for it."""
        self._pause = 0.0
        self._segments.put(None)
        self._thread.join()

    def _work(self) -> None:
        waiting: deque[Segment] = deque()
        while (segment := self._segments.get()) is not None:
            self._prepare()
            segment.finish()
            waiting.append(segment)
            if len(waiting) > KEPT:
                _pack_segment(self._folder, waiting.popleft(), self._rest)
        for segment in waiting:
            _pack_segment(self._folder, segment)

    def _rest(self) -> None:
        if self._pause:
            time.sleep(self._pause)


# -- Parquet ----------------------------------------------------------------------------------------------------------


def _pack_segment(folder: Folder, segment: Segment, rest: Callable[[], None] = lambda: None) -> None:
    """Convert a spool to Parquet and remove it. If that fails, the spool stays."""
    is_packed = False
    try:
        _convert(folder, Contents(segment.path), rest)
        is_packed = True
    except OptionError:
        _log.info("%s stays as it is: there is no PyArrow", segment.path)
    except Exception as error:
        _log.warning("no Parquet file is made of %s: %s", segment.path, error)
    segment.close(remove=is_packed)


def _convert(folder: Folder, contents: Contents, rest: Callable[[], None] = lambda: None) -> None:
    with naming_extra("writing traces as Parquet", "query"):
        from fencepost.traces import parquet
    origin = contents.origin
    if origin is not None:
        name = Name(stem_of(origin.run, origin.node), origin.incarnation, origin.part)
        parquet.write(folder.parquet_path(name), origin, _batches(contents, rest))


def _batches(contents: Contents, rest: Callable[[], None]) -> Iterator[list[Row]]:
    rows = contents.rows()
    while some := list(islice(rows, _BATCH)):
        yield some
        rest()


def pack(directory: str | Path) -> int:
    """Convert the spools that killed processes left in a folder of traces to Parquet. Returns their number. Spools of
    live processes stay.

    Raises :class:`TraceError` for a spool that is damaged or cannot be read, and :class:`fencepost.OptionError`
    without PyArrow.
    """
    folder, packed = Folder(directory), 0
    for path in sorted(folder.spool.glob("*.spool")):
        try:
            file = os.open(path, os.O_RDWR)
        except FileNotFoundError:  # its writer has ended meanwhile
            continue
        except OSError as error:
            raise TraceError(f"{path} cannot be read: {error.strerror}") from error
        try:
            locks.lock(file, wait=False)
            if not path.exists():
                continue
            contents = Contents(path)
            if contents.origin is None:  # its writer has not locked it yet, or was killed before
                continue
            _convert(folder, contents)
            path.unlink()
            packed += 1
        except BlockingIOError:  # its writer lives
            continue
        except OSError as error:
            raise TraceError(f"no Parquet file can be made of {path}: {error.strerror or error}") from error
        finally:
            os.close(file)
    return packed
