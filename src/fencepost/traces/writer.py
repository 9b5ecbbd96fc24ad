"""The writer of traces.

An event is encoded and copied into memory-mapped pages; nothing is asked of the operating system for it. Full files of
frames become Parquet files when the writer is closed; once there are many, in a thread that makes pauses, so that it
does not hold up the process.
"""

from __future__ import annotations

import contextlib
import fcntl
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
from fencepost.traces.event import ENDED, STARTED, STOPPED, TraceError, named
from fencepost.traces.folder import Folder, Name, stem_of
from fencepost.traces.spool import HEAD, Contents, Row, Segment, Whose

SEGMENT = 4 << 20
"""Bytes of a file of frames."""
EVENT_LIMIT = 1 << 20
"""Bytes of an event at the most."""
SIZE_LIMIT = 4 << 30
"""Bytes of the frames of one incarnation at the most."""
RESERVE = 4_096
"""Bytes at the end of a file of frames for how a trace ends."""
REASON = 300
"""Characters of a reason for which a trace ends."""

KEPT = 16
"""Full files of frames that may wait until the writer is closed; with more, the first is made Parquet."""
_BATCH = 256
"""Events that the thread takes between two pauses."""
_PAUSE = 0.001
"""Seconds of a pause."""

NOTHING: dict[str, Any] = {}
"""No parameters."""

_log = logging.getLogger("fencepost.traces")

json_of = msgspec.json.Encoder(enc_hook=repr).encode
_encode = msgspec.msgpack.Encoder().encode
_pack_head = HEAD.pack_into
_HEAD = HEAD.size


class TraceWriter:
    """Writes what one process does to a folder of traces.

    ``node`` is the name of the process. ``run`` is the name of the execution of the whole system that it is part of;
    without one, it is the run that goes on in the folder, which the first writer there has named. A process that is
    started again with the same names is the next incarnation. The first event is ``started``, with the parameters of
    that name; :meth:`close` writes ``ended``.

    The constructor raises :class:`TraceError` if the folder cannot be written to. From then on nothing is raised. An
    event that cannot be written is missing by its number, and so are all after a full disk or ``size_limit`` bytes:
    the trace then ends with ``trace_stopped`` and the reason. Any thread may emit. In a child after ``os.fork`` nothing
    is written.
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
        self.node = node
        self.seq = 0
        """The number of the last event, whether it could be written or not."""
        self.stopped = ""
        """Why nothing more is written; empty as long as it is."""
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
        """Write down that ``actor`` has done something about ``subject``; values must be such as JSON has.

        Call it where the thing takes effect. When it returns, the event outlives the process, though not the machine's
        loss of power.
        """
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
        """Write ``ended``, and make Parquet files of what there is; nothing is written any more. A second call does
        nothing.
        """
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

    # -- files of frames ----------------------------------------------------------------------------------------------

    def _first(self) -> tuple[Segment, int]:
        """The first file of the next incarnation of the node. Whoever makes it has the number."""
        try:
            there = self.folder.incarnations(self._stem)
            for incarnation in count(max(there, default=0) + 1):
                name = Name(self._stem, incarnation, 1)
                try:
                    segment = Segment(
                        self.folder.spool_path(name), Whose(self.run, self.node, incarnation, 1), self._size
                    )
                except FileExistsError:
                    continue
                if not self.folder.parquet_path(name).exists():
                    return segment, incarnation
                segment.close(remove=True)  # somebody began and ended meanwhile
        except OSError as error:
            raise TraceError(
                f"traces cannot be written to {self.folder.directory}: {error.strerror or error}"
            ) from error
        raise AssertionError("numbers do not end")

    def _make_room(self, size: int, action: str) -> bool:
        """Go on in the next file; whether there is room for a payload now."""
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
        return Segment(self.folder.spool_path(name), Whose(self.run, self.node, self.incarnation, part), self._size)

    def _prepare(self) -> None:
        """In the thread: make the file that comes next. If that fails, so it does when it is needed, and is told
        then.
        """
        with contextlib.suppress(OSError), self._making:
            if self._ahead is None and not self._is_closed and self._left >= self._size:
                self._ahead = self._next()

    # -- how it ends --------------------------------------------------------------------------------------------------

    def _stop(self, reason: str) -> None:
        """Nothing more is written. Whoever reads the trace is told by the event that takes the number of the one that
        was not written.
        """
        self._is_on = False
        self.stopped = reason[:REASON]
        self._stopped_at = self.seq
        _log.error("the trace of %s stops with event %d: %s", self._named(), self.seq, reason)
        self._put_last(STOPPED, {"reason": self.stopped})

    def _put_last(self, action: str, parameters: dict[str, Any]) -> None:
        """Write an event into the reserve, which has room for how a trace stops and how it ends."""
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
        """In a child of the process: the trace is the parent's."""
        self._is_on, self._is_closed = False, True
        self._lock = threading.Lock()  # somebody may have held it

    def _named(self) -> str:
        return named(self.run, self.node, self.incarnation)


_writers: weakref.WeakSet[TraceWriter] = weakref.WeakSet()


def _abandon_all() -> None:
    for writer in _writers:
        writer._abandon()


os.register_at_fork(after_in_child=_abandon_all)


class _Worker:
    """A thread that makes Parquet files of full files of frames. ``prepare`` is called before each."""

    def __init__(self, folder: Folder, prepare: Callable[[], None]) -> None:
        self._folder = folder
        self._prepare = prepare
        self._segments: SimpleQueue[Segment | None] = SimpleQueue()
        self._pause = _PAUSE
        self._thread = threading.Thread(target=self._work, name="trace", daemon=True)
        self._thread.start()

    def pack(self, segment: Segment) -> None:
        """Make a Parquet file of a segment, sooner or later."""
        self._segments.put(segment)

    def finish(self) -> None:
        """Wait until all is done, which is done without pauses now."""
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
    """Make a Parquet file of a segment and remove the segment; leave it if that is not possible."""
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
    whose = contents.whose
    if whose is not None:
        name = Name(stem_of(whose.run, whose.node), whose.incarnation, whose.part)
        parquet.write(folder.parquet_path(name), whose, _batches(contents, rest))


def _batches(contents: Contents, rest: Callable[[], None]) -> Iterator[list[Row]]:
    rows = contents.rows()
    while some := list(islice(rows, _BATCH)):
        yield some
        rest()


def pack(directory: str | Path) -> int:
    """Make Parquet files of the spools that killed processes have left in a folder of traces; gives their number. Those
    of processes that live stay.

    Raises :class:`TraceError` for a spool that is damaged or cannot be read, and :class:`fencepost.OptionError`
    without PyArrow.
    """
    folder, packed = Folder(directory), 0
    for path in sorted(folder.spool.glob("*.spool")):
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:  # its writer has ended meanwhile
            continue
        except OSError as error:
            raise TraceError(f"{path} cannot be read: {error.strerror}") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not path.exists():
                continue
            contents = Contents(path)
            if contents.whose is None:  # somebody makes it, and has not locked it yet, or was killed then
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
