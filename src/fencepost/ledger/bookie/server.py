"""The driver of a bookie's role: sockets and storage on one event loop.

Everything that arrives in one read of a socket is one batch. Compiled loops turn its frames into rows. Consecutive adds
become one event of the role, one block of journal records, and, once durable, one block of answers. Other messages are
decoded and passed to the role one at a time, in order, and so are all messages until the loops are compiled
(:mod:`fencepost.ledger.kernels.ready`). Each connection's answers go back in one write. The journal, and look-ups that
need the disk, run in threads, which report to the loop once per group. No entry has a task, future or timer of its own.

Every connection is limited. The server does not read from a connection that has too much in flight or does not take its
answers. It closes a connection, with a line in the log, that sends an invalid message, stops in the middle of one, or
takes no answer for too long. An add that is too large is answered, but not stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import starmap
from types import ModuleType
from typing import Any

import numpy as np

from fencepost.connections.sasl import SaslError
from fencepost.connections.sasl import Server as SaslServer
from fencepost.connections.tls import Tls, upgrade
from fencepost.connections.users import REALM, Users
from fencepost.ledger.bookie.batches import LARGE, Batches
from fencepost.ledger.bookie.inbox import ROOM, Inbox, Memory, address_of
from fencepost.ledger.bookie.lookups import Look, PlainRead, failed_event, find, found_event, size_of
from fencepost.ledger.bookie.metrics import Metrics
from fencepost.ledger.bookie.settings import BookieSettings
from fencepost.ledger.disk.storage import Storage
from fencepost.ledger.kernels.entries import EntryRows
from fencepost.ledger.kernels.requests import ReadBatch, ReadResults, no_results, read_results
from fencepost.ledger.kernels.results import CODE, MISS, LookupResults
from fencepost.ledger.messages import (
    NO_ENTRY_YET,
    SASL,
    SASL_NAME,
    AddEntry,
    AddEntryResponse,
    Auth,
    AuthResponse,
    ReadEntryResponse,
    Request,
    StartTls,
    StartTlsResponse,
)
from fencepost.ledger.records import Record, recovered
from fencepost.ledger.roles.bookie import Bookie
from fencepost.ledger.roles.interface import (
    AddsArrived,
    Answer,
    AnswerAdds,
    AnswerReads,
    Call,
    ConnectionClosed,
    Effect,
    Event,
    FindRuns,
    Forget,
    Journal,
    JournalAdds,
    JournalFailed,
    JournalSynced,
    LookUp,
    LookUpBatch,
    LookUpReads,
    Measure,
    ReadsArrived,
    Replayed,
    RequestArrived,
    Result,
    SetTimer,
    Stop,
    TimerFired,
    Trace,
)
from fencepost.ledger.roles.requests import AddRequests, FoundRequests, is_plain_read
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.flow import is_crowded, reads_on, waits_for_others
from fencepost.ledger.wire import is_version_2, v2, v3
from fencepost.ledger.wire.frames import HEAD_SIZE, LENGTH_SIZE, RefusedError, WireError, length_of, refused_length
from fencepost.traces import TraceWriter

_OK = Code.OK

LOOK_UPS_PER_JOB = 256
"""The most look-ups in one job of a thread."""

OF_STORAGE = "fencepost.ledger.kernels.cache"
LOOPS = ("fencepost.ledger.kernels.bookie", OF_STORAGE)
"""The modules of compiled loops: for a server, and for its storage."""

WORTH = 2_000
"""The compiled loops are loaded once this many messages have been taken one at a time."""

LOOK_UPS_AT_ONCE = 1_024
"""The most look-ups in memory that the event loop does in one go."""

FEW_ADDS, FEW_READS = 3, 4
"""Fewer consecutive adds than this, or fewer reads per ledger, are taken one by one. Rows would be slower."""

AT_ONCE = 1 << 20
"""The most bytes of answers made for a connection in one go. Then other connections have their turn, and memory is
reused while it is cached.
"""

SWEEP = 1.0
"""Seconds between two checks for connections to close."""

BACKLOG = 1_024
"""Connections that the operating system queues until they are accepted."""

LARGEST_SKIPPED = 64 << 20
"""An add that is too large, up to this size in bytes, is discarded and answered. A larger one closes the connection."""

_SHORT = 128
"""A size in bytes that no frame of a read exceeds."""

_log = logging.getLogger(__name__)


class Server:
    """One bookie: its role, its storage and its connections.

    :meth:`open` takes the storage, whose threads then call :meth:`synced`, :meth:`failed` and :meth:`busy`. ``on_stop``
    is called once, with the reason, when the bookie cannot continue. It then answers nothing more. ``loops``:
    :mod:`fencepost.ledger.kernels.bookie` once it is compiled; None before, while every message is decoded separately.
    ``load_loops`` is called once, when loading pays, and must call :meth:`use`. ``trace`` records the bookie's actions.
    Its creator closes it.
    """

    def __init__(
        self,
        role: Bookie,
        settings: BookieSettings,
        metrics: Metrics,
        on_stop: Callable[[str], None],
        tls: Tls | None = None,
        users: Users | None = None,
        loops: Any = None,
        load_loops: Callable[[], None] = lambda: None,
        trace: TraceWriter | None = None,
    ) -> None:
        self.trace = trace
        self._names: dict[int, str] = {}
        """The names of connections in the trace."""
        self.loops = loops
        self.load_loops = load_loops
        self._taken = 0
        """The number of messages taken one at a time."""
        self.memory = Memory(ROOM)
        """The receive buffer shared by all connections."""
        self.role = role
        self.settings = settings
        self.metrics = metrics
        self.on_stop = on_stop
        self.tls = tls
        self.users = users
        self.loop = asyncio.get_running_loop()
        self.connections: dict[int, Connection] = {}
        self.in_flight_bytes = 0
        """Bytes of adds that are not durable, and of incomplete messages."""
        self.crowded = False
        """Whether all connections together have too much in flight."""
        self.is_busy = False
        """Whether the storage has no room for entries now."""
        self.stopped = False
        self.closing = False
        self._accepted = 0
        self._tokens = 0
        self._calls: dict[int, asyncio.Future[Result]] = {}
        self._unsynced: deque[tuple[int, Connection, int, int, float]] = deque()
        """For each batch with records: the position of its last record, its connection, its bytes, its adds, and its
        time of arrival.
        """
        self._records: list[tuple[int, Record | EntryRows]] = []
        """Records not yet passed to the storage."""
        self._rows: Batches | None = None
        """The working memory of the loops, once they are compiled."""
        self._touched: dict[Connection, None] = {}
        """Connections with unwritten answers."""
        self._reason = ""
        self._listening: asyncio.Server | None = None
        self._sweeping: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._readers = ThreadPoolExecutor(settings.num_read_worker_threads, "read")
        self._handlers: dict[type[Effect], Callable[[Any], None]] = {
            Journal: lambda effect: self._records.append((effect.position, effect.record)),
            JournalAdds: self._journal_adds,
            Answer: self._answer,
            AnswerAdds: self._answer_adds,
            AnswerReads: self._answer_reads,
            LookUp: self._look,
            LookUpBatch: self._look,
            FindRuns: self._look,
            Measure: self._look,
            SetTimer: self._set_timer,
            Forget: self._forget,
            Result: self._result,
            Stop: self._stop,
            Trace: self.trace_effect,
        }

    # -- start and end ------------------------------------------------------------------------------------------------

    def open(self, storage: Storage) -> int:
        """Replay the storage's records into the role, then start the storage. Gives the number of records."""
        self.storage = storage
        records = 0
        for record in storage.records():
            self.role.receive(Replayed(record), 0)
            records += 1
        if self.trace is not None:
            for ledger, fields in recovered(storage.unproven()).items():
                self.trace.emit("bookie_recovers", ledger, fields)
        storage.start()
        return records

    def use(self, modules: Sequence[ModuleType]) -> None:
        """Switch to compiled loops (:data:`LOOPS`). Any thread may call this."""
        self._call_on_loop(setattr, self, "loops", modules[0])

    @property
    def is_listening(self) -> bool:
        """Whether clients can connect."""
        return self._listening is not None and not self.closing

    async def listen(self, bound: socket.socket) -> None:
        """Accept connections on a bound socket. :meth:`close` closes it."""
        self._listening = await self.loop.create_server(lambda: Connection(self), sock=bound, backlog=BACKLOG)
        self._sweeping = self.loop.call_later(SWEEP, self._sweep)

    async def close(self, patience: float = 2.0) -> None:
        """Refuse new connections and requests, answer those in progress for at most ``patience`` seconds, then
        close.
        """
        self.closing = True
        if self._listening is not None:
            self._listening.close()
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connection in self.connections.values():
            connection.read_on(False)
        end = self.loop.time() + patience
        while self._unsynced and not self.stopped and self.loop.time() < end:
            await asyncio.sleep(0.01)
        for connection in [*self.connections.values()]:
            connection.transport.close()
        for task in self._tasks:
            task.cancel()
        self._readers.shutdown(wait=True, cancel_futures=True)

    # -- reports of the storage, from its threads ---------------------------------------------------------------------

    def synced(self, position: int) -> None:
        """All records up to a position are durable."""
        if self.trace is not None:  # not later, on the loop: after a kill, the journal may prove this sync
            self.trace.emit("journal_synced", parameters={"position": position})
        self.loop.call_soon_threadsafe(self._synced, position)

    def failed(self, reason: str) -> None:
        """The storage cannot continue."""
        self.loop.call_soon_threadsafe(self._failed, reason)

    def busy(self, is_busy: bool) -> None:
        """The storage has no room for entries, or has room again."""
        self.loop.call_soon_threadsafe(self._busy, is_busy)

    def _synced(self, position: int) -> None:
        if self.stopped:
            return
        self._deliver(JournalSynced(position))
        unsynced, metrics, now = self._unsynced, self.metrics, self.loop.time()
        while unsynced and unsynced[0][0] <= position:
            _, connection, size, adds, since = unsynced.popleft()
            connection.bytes -= size
            self.in_flight_bytes -= size
            metrics.took("bookkeeper_server_ADD_ENTRY_REQUEST", now - since, adds)
            metrics.add("bookie_WRITE_BYTES", size)
            self._touched[connection] = None
        self._flush()
        self.regulate_all()

    def _failed(self, reason: str) -> None:
        self._reason = reason
        self._deliver(JournalFailed())

    def _busy(self, is_busy: bool) -> None:
        if is_busy != self.is_busy:
            self.is_busy = is_busy
            for connection in self.connections.values():
                self.regulate(connection)

    # -- events -------------------------------------------------------------------------------------------------------

    def take(self, connection: Connection, memory: Memory, stop: int) -> None:
        """Take the complete messages that have arrived over a connection. Keeps the start of the next one."""
        if self.stopped or self.closing:
            return
        view, start = memory.view, 0
        length = length_of(view, start, stop)
        if (
            LENGTH_SIZE + length <= stop
            and 0 < length
            and connection.codec is v3
            and is_version_2(bytes(view[LENGTH_SIZE : LENGTH_SIZE + 1]))
        ):
            if connection.in_flight:
                connection.close("it changes to version 2 in the midst of requests")
                return
            connection.codec = v2
        connection.adds, before = 0, self.role.position
        connection.has_spoken = connection.has_spoken or 0 < LENGTH_SIZE + length <= stop
        if self.loops is None or not connection.is_admitted:
            taken = self._take_frames(connection, memory, stop)
        elif LENGTH_SIZE + length == stop:  # one message alone costs less without rows
            taken = self._take_one(connection, memory, stop)
        else:
            taken = self._take_rows(connection, memory, stop)
        position = self.role.position
        if position != before:
            self._unsynced.append((position, connection, taken, connection.adds, self.loop.time()))
            connection.bytes += taken
            connection.writes = True
            self.in_flight_bytes += taken
        if not connection.is_closed:
            self._hold(connection, memory, taken, stop)
        if taken:
            self._touched[connection] = None
            self._flush()
        self.regulate_all()

    def _hold(self, connection: Connection, memory: Memory, start: int, stop: int) -> None:
        """Keep the start of an incomplete message."""
        inbox = connection.inbox
        before = inbox.held
        length = length_of(memory.view, start, stop)
        inbox.keep(memory, start, stop, LENGTH_SIZE + length)
        if inbox.held != before:
            if start or not before:
                connection.began = connection.heard
            self.in_flight_bytes += inbox.held - before

    def _take_one(self, connection: Connection, memory: Memory, stop: int) -> int:
        """Like :meth:`_take_frames`, for one message. The loops decode a plain read faster than the codecs."""
        if stop > _SHORT:
            return self._take_frames(connection, memory, stop)
        loops, table = self.loops, self._batches().table
        count, _, _ = loops.parse(
            memory.array, 0, stop, self.settings.netty_max_frame_size_bytes, connection.codec.VERSION, table
        )
        if not count or table.item(0, loops.KIND) != loops.READ:
            return self._take_frames(connection, memory, stop)
        _, txn, ledger, entry_id = table[0, :4].tolist()
        self._ask_to_read(connection, txn, ledger, entry_id)
        return stop

    def _take_frames(self, connection: Connection, memory: Memory, stop: int) -> int:
        """Decode and take messages one by one. Gives the start of the first incomplete one."""
        view, limit, start = memory.view, self.settings.netty_max_frame_size_bytes, 0
        before = self._taken
        while stop - start >= LENGTH_SIZE:
            length = length_of(view, start, stop)
            if not 0 < length <= limit:
                start, refused_at = self._refuse(connection, memory, start, stop), start
                if start == refused_at:
                    break
                continue
            end = start + LENGTH_SIZE + length
            if end > stop or not self._take_message(connection, bytes(view[start + LENGTH_SIZE : end]), end == stop):
                break
            start = end
            self._taken += 1
        if self.loops is None and before < WORTH <= self._taken:
            self.load_loops()
        return start

    def _refuse(self, connection: Connection, memory: Memory, start: int, stop: int) -> int:
        """Refuse a message that is too large. An add is answered with a code that makes its writer fail. After any
        other code, or a closed connection, BookKeeper's client would replace the bookie by another, and so on forever.
        Any other message closes the connection. Gives the offset to continue at, or ``start`` if more must arrive first
        or the connection is closed.
        """
        view, first = memory.view, start + LENGTH_SIZE
        length = length_of(view, start, stop)
        error = refused_length(length, self.settings.netty_max_frame_size_bytes)
        if connection.is_admitted and 0 < length <= LARGEST_SKIPPED:
            if stop < first + HEAD_SIZE:
                return start
            head = bytes(view[first : first + HEAD_SIZE])
            codec = v2 if is_version_2(head) else connection.codec
            add = codec.decode_add_head(head)
            if add is not None:
                txn, ledger, entry_id = add
                _log.warning("entry %d of ledger %d from %s is refused: %s", entry_id, ledger, connection.peer, error)
                answer = AddEntryResponse(ledger, entry_id, Code.UNAUTHORIZED)
                connection.answers.append(codec.encode_response(txn, answer))
                end = first + length
                connection.inbox.skips, connection.began = max(0, end - stop), connection.heard
                return min(end, stop)
        connection.close(str(error))
        return start

    def _take_message(self, connection: Connection, payload: bytes, is_last: bool) -> bool:
        """Decode and take a message. Gives whether to go on with the next one."""
        try:
            txn, request = connection.codec.decode_request(payload)
        except RefusedError as error:
            _log.debug("connection from %s: %s", connection.peer, error)
            connection.answers.append(error.answer)
            return True
        except WireError as error:
            connection.close(str(error))
            return False
        if type(request) is StartTls and self.tls is not None:
            self._start_tls(connection, txn, is_last)
            return is_last
        if not connection.is_admitted:
            return self._take_unadmitted(connection, txn, request)
        self._ask(connection, txn, request)
        return True

    def _take_unadmitted(self, connection: Connection, txn: int, request: Request) -> bool:
        """Take a message of a connection that is not served yet. Gives whether to go on with the next one."""
        refusal = connection.codec.refusal(txn, request, Code.UNAUTHORIZED)
        if type(request) is Auth and self.users is not None and connection.user is None:
            try:
                answer = self._authenticate(connection, self.users, request)
            except SaslError as error:
                connection.turn_away(refusal, f"it is not authenticated: {error}")
                return False
            connection.answers.append(connection.codec.encode_response(txn, AuthResponse(Code.OK, SASL, answer)))
            return True
        lacks_tls = self.settings.requires_tls and not connection.is_secure
        lacks = "start TLS (tlsRequired)" if lacks_tls else "authenticate (saslUsers)"
        connection.turn_away(refusal, f"it does not {lacks}")
        return False

    def _authenticate(self, connection: Connection, users: Users, request: Auth) -> bytes:
        """The next token for a client that authenticates. Raises :class:`SaslError`."""
        if request.plugin != SASL:
            raise SaslError(f"it speaks {request.plugin[:100]!r}, and this bookie {SASL!r}")
        if connection.sasl is None:
            connection.sasl = SaslServer(SASL_NAME, SASL_NAME, REALM, secrets.token_hex(16), users.secret_of)
        token = connection.sasl.step(request.payload)
        connection.user = connection.sasl.user
        self._admit(connection)
        return token

    def _admit(self, connection: Connection) -> None:
        """Serve a connection from now on, if it has TLS and a user where required."""
        is_secure = connection.is_secure and not connection.is_upgrading
        connection.is_admitted = (is_secure or not self.settings.requires_tls) and (
            connection.user is not None or self.users is None
        )

    def _ask(self, connection: Connection, txn: int, request: Request) -> None:
        """Pass a request to the role."""
        if type(request) is AddEntry:
            connection.adds += 1
            connection.in_flight += 1
            self._deliver(AddsArrived(connection.number, (AddRequests(((txn, request),)),)))
        elif is_plain_read(request):
            self._ask_to_read(connection, txn, request.ledger, request.entry_id)  # type: ignore[union-attr]
        else:
            connection.in_flight += 1
            self._deliver(RequestArrived(connection.number, txn, request))

    def _ask_to_read(self, connection: Connection, txn: int, ledger: int, entry_id: int) -> None:
        """Pass one plain read to the role."""
        connection.in_flight += 1
        for effect in self.role.receive(ReadsArrived(connection.number, 1), self._now()):
            assert type(effect) is LookUpReads
            if effect.count:
                connection.looks.append(PlainRead(effect.number, ledger, entry_id, txn))
                self._touched[connection] = None
            else:
                too_many = FoundRequests(ledger, ((txn, entry_id, None),))
                self._answer_reads(AnswerReads(connection.number, too_many, Code.TOO_MANY_REQUESTS, NO_ENTRY_YET))

    def _journal_adds(self, effect: JournalAdds) -> None:
        """Store entries that did not come as rows."""
        records = [record for adds in effect.adds for record in adds.records()]  # type: ignore[attr-defined]
        self._records += enumerate(records, effect.position - len(records) + 1)

    # -- events from rows ---------------------------------------------------------------------------------------------

    def _take_rows(self, connection: Connection, memory: Memory, stop: int) -> int:
        """Like :meth:`_take_frames`, but consecutive adds are one event, and so are consecutive plain reads."""
        loops, rows, start = self.loops, self._batches(), 0
        table, limit = rows.table, self.settings.netty_max_frame_size_bytes
        while True:
            count, after, outcome = loops.parse(memory.array, start, stop, limit, connection.codec.VERSION, table)
            row = 0
            while row < count:
                end = loops.stretch(table, row, count)
                kind = table[row, loops.KIND]
                if kind == loops.ADD and end - row >= FEW_ADDS:
                    self._take_adds(connection, memory, rows, row, end)
                elif kind == loops.READ and (
                    loops.is_one_ledger(table, row, end)
                    or end - row >= FEW_READS * len(np.unique(table[row:end, loops.LEDGER]))
                ):
                    self._take_reads(connection, rows, row, end)
                else:
                    for at, size in table[row:end, loops.FRAME : loops.FRAME_SIZE + 1].tolist():
                        if not self._take_message(connection, bytes(memory.view[at : at + size]), at + size == stop):
                            return start
                row = end
            start = int(after)
            if outcome == loops.REFUSED:
                start = self._refuse(connection, memory, start, stop)
            if outcome == loops.PARTIAL or start == stop or (outcome == loops.REFUSED and start == after):
                return start

    def _take_adds(self, connection: Connection, memory: Memory, rows: Batches, first: int, stop: int) -> None:
        """Pass consecutive adds to the role, grouped by ledger."""
        handlers = self._handlers
        connection.adds += stop - first
        connection.in_flight += stop - first
        for arrived in rows.adds(memory, first, stop):
            for effect in self.role.receive(AddsArrived(connection.number, arrived.adds), self._now()):
                if type(effect) is JournalAdds:
                    self._records.append((effect.position, arrived.entries(effect.adds)))
                else:
                    handlers[type(effect)](effect)

    def _answer_adds(self, answer: AnswerAdds) -> None:
        count = sum(map(len, answer.adds))
        self.metrics.answered[AddEntryResponse] += count
        if answer.code is not _OK:
            self.metrics.refused[AddEntryResponse] += count
        connection = self.connections.get(answer.connection)
        if connection is None:
            return
        connection.in_flight -= count
        self._touched[connection] = None
        codec = connection.codec
        if type(answer.adds[0]) is AddRequests:
            for adds in answer.adds:
                connection.answers += starmap(codec.encode_response, adds.responses(answer.code))  # type: ignore[attr-defined]
        else:
            connection.answers.append(self._batches().answers_to_adds(answer.adds, answer.code, codec))

    def _take_reads(self, connection: Connection, rows: Batches, first: int, stop: int) -> None:
        """Pass consecutive plain reads to the role."""
        requests = rows.reads(first, stop)
        connection.in_flight += stop - first
        for effect in self.role.receive(ReadsArrived(connection.number, stop - first), self._now()):
            assert type(effect) is LookUpReads
            reads, others = ReadBatch(effect.number, requests[: effect.count]), ReadBatch(0, requests[effect.count :])
            if len(reads):
                connection.looks.append(reads)
            if len(others):
                found = no_results(others, Code.TOO_MANY_REQUESTS)
                too_many = read_results(others.requests, np.arange(len(others)), found)
                self._answer_reads(AnswerReads(connection.number, too_many, Code.TOO_MANY_REQUESTS, NO_ENTRY_YET))

    def _look_up_rows(self, connection: Connection, reads: ReadBatch, room: int) -> tuple[int, int]:
        """Look up reads in memory until ``room`` bytes are filled. Puts the rest back, and leaves those that need the
        disk to a thread. Gives the number and the bytes of entries found.
        """
        some = ReadBatch(reads.number, reads.requests[:LOOK_UPS_AT_ONCE])
        found = self.storage.rows_now(some.ledgers, some.entry_ids, room)
        stop = self.loops.fitting(found.table, room)
        if stop < len(some):
            some, found = ReadBatch(reads.number, some.requests[:stop]), found.first(stop)
        if len(some) < len(reads):
            connection.looks.appendleft(ReadBatch(reads.number, reads.requests[len(some) :]))
        missing, size = self._deliver_found(some, found)
        if missing:
            rows = np.flatnonzero(found.table[:, CODE] == MISS)
            connection.misses.append(ReadBatch(reads.number, some.requests[rows]))
        return len(some) - missing, size

    def _deliver_found(self, reads: ReadBatch, found: LookupResults) -> tuple[int, int]:
        """Pass the results of reads to the role. Gives the number of missing entries, and the bytes of the others."""
        events, missing, size = self._batches().found(reads, found)
        for event in events:
            self._deliver(event)
        return missing, size

    def _answer_reads(self, answer: AnswerReads) -> None:
        reads, count, is_ok = answer.reads, len(answer.reads), answer.code is _OK
        self.metrics.answered[ReadEntryResponse] += count
        if not is_ok:
            self.metrics.refused[ReadEntryResponse] += count
        connection = self.connections.get(answer.connection)
        if connection is None:
            return
        connection.in_flight -= count
        self._touched[connection] = None
        codec = connection.codec
        if type(reads) is FoundRequests:
            connection.answers += starmap(codec.encode_response, reads.responses(answer.code, answer.lac))
        else:
            assert type(reads) is ReadResults
            connection.answers += self._batches().answers_to_reads(reads, answer.code, answer.lac, codec)

    def _batches(self) -> Batches:
        if self._rows is None:
            self._rows = Batches(self.loops)
        return self._rows

    def call(self, operation: str, *arguments: Any) -> asyncio.Future[Result]:
        """Call an operation of the role. The future has its result."""
        self._tokens += 1
        future: asyncio.Future[Result] = self.loop.create_future()
        self._calls[self._tokens] = future
        self._deliver(Call(self._tokens, operation, arguments))
        self._flush()
        return future

    def _deliver(self, event: Event) -> None:
        """Deliver an event to the role, and carry out the effects."""
        handlers = self._handlers
        for effect in self.role.receive(event, self._now()):
            handlers[type(effect)](effect)

    def _now(self) -> int:
        return int(self.loop.time() * 1_000_000)

    # -- effects of the role ------------------------------------------------------------------------------------------

    def _answer(self, answer: Answer) -> None:
        response = answer.response
        metrics, kind = self.metrics, type(response)
        metrics.answered[kind] += 1
        if response.code is not _OK:
            metrics.refused[kind] += 1
        connection = self.connections.get(answer.connection)
        if connection is not None:
            connection.in_flight -= 1
            connection.answers.append(connection.codec.encode_response(answer.txn, response))
            self._touched[connection] = None

    def _set_timer(self, timer: SetTimer) -> None:
        self.loop.call_later(timer.delay / 1_000_000, self._timer_fired, timer.key)

    def _timer_fired(self, key: Any) -> None:
        self._deliver(TimerFired(key))
        self._flush()

    def _forget(self, forget: Forget) -> None:
        self._hand_over()
        self.storage.forget(forget.ledger)

    def _hand_over(self) -> None:
        """Pass pending records to the storage."""
        if self._records:
            self.storage.take(self._records)
            self._records.clear()

    def trace_effect(self, effect: Trace) -> None:
        fields, trace = effect.fields, self.trace
        assert trace is not None
        if effect.connection is not None:
            fields = {**fields, "connection": self._names.get(effect.connection, "")}
        trace.emit(effect.action, effect.ledger, fields)

    def _result(self, result: Result) -> None:
        future = self._calls.pop(result.token)
        if not future.done():
            future.set_result(result)

    def _stop(self, stop: Stop) -> None:
        self.stopped = True
        self.on_stop(self._reason or stop.reason)

    # -- look-ups -----------------------------------------------------------------------------------------------------

    def _look(self, look: Look) -> None:
        connection = self.connections.get(self.role.lookups[look.number].connection)
        if connection is None:
            # The client is gone, but the role counts the look-up until it has a result.
            self.loop.call_soon(self._deliver, failed_event(look))
            return
        connection.looks.append(look)
        self._touched[connection] = None

    def _look_up(self, connection: Connection) -> None:
        """Do the look-ups of a connection, as fast as it takes the answers. Entries in memory are found at once, all
        others in a thread.
        """
        looks, look_up_now, found = connection.looks, self.storage.look_up_now, 0
        receive, handlers, microseconds = self.role.receive, self._handlers, self._now()
        room = self.settings.write_buffer_bytes_per_connection - connection.transport.get_write_buffer_size()
        room = before = min(room, AT_ONCE)
        while looks and room > 0:
            look = looks.popleft()
            if type(look) is ReadBatch:
                count, size = self._look_up_rows(connection, look, room)
                room -= size
                found += count
                continue
            is_one = type(look) is PlainRead or type(look) is LookUp
            body = look_up_now(look.ledger, look.entry_id) if is_one and look.entry_id >= 0 else None  # type: ignore[union-attr]
            if body is None:
                connection.misses.append(look)
            else:
                room -= len(body)
                found += 1
                event = found_event(look, _OK, body)  # type: ignore[arg-type]
                for effect in receive(event, microseconds):
                    handlers[type(effect)](effect)
        if found:
            self.metrics.took("bookkeeper_server_READ_ENTRY_REQUEST", self.loop.time() - connection.heard, found)
            self.metrics.add("bookie_READ_BYTES", before - room)
        if connection.misses and not connection.has_job and room > 0:
            connection.has_job = True
            job = _job_of(connection.misses)
            since = self.loop.time()
            self._readers.submit(self._job, job, room).add_done_callback(
                lambda done: self._call_on_loop(self._job_done, connection, job, since, done)
            )

    def _job(self, looks: list[Look], most: int) -> list[Event] | LookupResults:
        """In a thread: look up entries, until ``most`` bytes are filled."""
        found: list[Event] = []
        for look in looks:
            if type(look) is ReadBatch:
                return self._read_rows(look, most)
            try:
                found.append(find(self.storage, look))  # type: ignore[arg-type]
            # A fault of the disk or of the code. It must fail only this request.
            except Exception as error:
                _log.error("a look-up fails: %s: %s: %s", look, type(error).__name__, error)
                found.append(failed_event(look))
            most -= size_of(found[-1])
            if most <= 0:
                break
        return found

    def _read_rows(self, reads: ReadBatch, most: int) -> LookupResults:
        try:
            return self.storage.read_rows(reads.ledgers, reads.entry_ids, most)
        except Exception as error:  # as above
            _log.error("a look-up of %d entries fails: %s: %s", len(reads), type(error).__name__, error)
            return no_results(reads, Code.IO_ERROR)

    def _job_done(
        self, connection: Connection, job: list[Look], since: float, done: Future[list[Event] | LookupResults]
    ) -> None:
        connection.has_job = False
        if done.cancelled() or self.stopped:
            return
        found = done.result()
        self.metrics.took("bookkeeper_server_READ_ENTRY_REQUEST", self.loop.time() - since, len(found))
        if type(found) is LookupResults:
            (reads,) = job
            assert type(reads) is ReadBatch
            if len(found) < len(reads):
                connection.misses.appendleft(ReadBatch(reads.number, reads.requests[len(found) :]))
            _, size = self._deliver_found(ReadBatch(reads.number, reads.requests[: len(found)]), found)
            self.metrics.add("bookie_READ_BYTES", size)
        else:
            connection.misses.extendleft(reversed(job[len(found) :]))
            self.metrics.add("bookie_READ_BYTES", sum(map(size_of, found)))  # type: ignore[arg-type]
            for event in found:
                self._deliver(event)  # type: ignore[arg-type]
        self._touched[connection] = None
        self._flush()

    def _call_on_loop(self, call: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(call, *arguments)

    # -- writing ------------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Pass pending records to the storage, and write each connection's answers in one write."""
        self._hand_over()
        touched = self._touched
        while touched:
            connection, _ = touched.popitem()
            if connection.is_closed:
                self._abandon(connection)
                continue
            if connection.looks or connection.misses:
                self._look_up(connection)
                touched.pop(connection, None)
            if connection.answers:
                answers, connection.answers = connection.answers, []
                if len(answers) == 1:
                    connection.transport.write(answers[0])
                elif sum(map(len, answers)) >= len(answers) * LARGE // 4:
                    connection.transport.writelines(answers)
                else:
                    connection.transport.write(b"".join(answers))
                if (connection.looks or connection.misses) and not connection.has_job and not connection.is_blocked:
                    self.loop.call_soon(self.go_on, connection)
            self.regulate(connection)

    def go_on(self, connection: Connection) -> None:
        """A connection has taken answers: continue its look-ups."""
        self._touched[connection] = None
        self._flush()

    def _abandon(self, connection: Connection) -> None:
        """Drop the work of a connection that is gone."""
        for look in (*connection.looks, *connection.misses):
            self._deliver(failed_event(look))
        connection.looks.clear()
        connection.misses.clear()
        connection.answers.clear()

    # -- connections --------------------------------------------------------------------------------------------------

    def connected(self, connection: Connection) -> int:
        """Accept a connection. Gives its number, 0 if there are too many."""
        if self.closing or self.stopped:
            return 0
        if len(self.connections) >= self.settings.max_connections and not self._make_room():
            _log.warning(
                "a connection from %s is refused: there are %d (maxConnections)", connection.peer, len(self.connections)
            )
            return 0
        self._accepted += 1
        self.connections[self._accepted] = connection
        if self.trace is not None:
            self._names[self._accepted] = connection.peer
        return self._accepted

    def _make_room(self) -> bool:
        """Close the connection that has been idle longest, preferring those that have not been served yet. Gives
        whether there was one.
        """
        idle = [each for each in self.connections.values() if not each.in_flight]
        longest = min(idle, key=lambda each: (each.is_served, each.heard), default=None)
        if longest is None or (
            longest.is_served and self.loop.time() - longest.heard < self.settings.idle_connection_ms / 1000
        ):
            return False
        longest.close(f"there are {len(self.connections)} (maxConnections), and it is idle for the longest time")
        return True

    def disconnected(self, connection: Connection) -> None:
        """A connection is gone."""
        self.in_flight_bytes -= connection.held
        connection.inbox.held = 0
        self.regulate_all()
        if not connection.in_flight:  # otherwise later answers are traced too
            self._names.pop(connection.number, None)
        if self.connections.pop(connection.number, None) is not None and not self.stopped:
            if connection.in_flight:
                self._deliver(ConnectionClosed(connection.number))
            self._abandon(connection)
            self._flush()

    def limit_writing(self, connection: Connection) -> None:
        """Have the transport call back once unsent answers reach half of the connection's limit."""
        connection.transport.set_write_buffer_limits(self.settings.write_buffer_bytes_per_connection // 2)

    def regulate(self, connection: Connection) -> None:
        """Start or stop reading from a connection, by what it and all connections have in flight."""
        settings, is_reading = self.settings, connection.is_reading
        connection.read_on(
            not self.closing
            and not connection.is_blocked
            and reads_on(connection.in_flight, settings.max_requests_per_connection, is_reading)
            and reads_on(connection.bytes, settings.max_bytes_per_connection, is_reading)
            and not waits_for_others(connection.bytes + connection.held, self.crowded)
            and not (self.is_busy and connection.writes)
        )

    def regulate_all(self) -> None:
        """Update all connections if the total in flight has crossed its limit."""
        crowded = is_crowded(self.in_flight_bytes, self.settings.max_bytes_in_flight, self.crowded)
        if crowded != self.crowded:
            self.crowded = crowded
            for connection in self.connections.values():
                self.regulate(connection)

    def _sweep(self) -> None:
        """Close connections that stay silent, stop in the middle of a message, or take no answers."""
        self._sweeping = self.loop.call_later(SWEEP, self._sweep)
        now, settings = self.loop.time(), self.settings
        for connection in [*self.connections.values()]:
            if connection.is_blocked:
                left = connection.transport.get_write_buffer_size()
                if left < connection.left:
                    connection.left, connection.blocked_since = left, now
                elif now - connection.blocked_since > settings.wait_timeout_on_response_backpressure_ms / 1000:
                    connection.close(
                        f"it has taken none of {left:,} bytes of answers (waitTimeoutOnResponseBackpressureMs)"
                    )
            elif not connection.is_served and now - connection.since > settings.frame_timeout_ms / 1000:
                connection.close("it has said nothing that is served (frameTimeoutMs)")
            elif (
                (connection.held or connection.inbox.skips)
                and (connection.is_reading or self.crowded)
                and now - connection.began > settings.frame_timeout_ms / 1000
            ):
                some = f"{connection.held:,} bytes" if connection.held else "a part"
                connection.close(f"it has sent {some} of a message and not the rest (frameTimeoutMs)")

    # -- TLS ----------------------------------------------------------------------------------------------------------

    def _start_tls(self, connection: Connection, txn: int, is_last: bool) -> None:
        """Start TLS, unless anything else is in progress. Bytes sent in plain text must not be taken for bytes sent
        under TLS.
        """
        if not is_last or connection.in_flight or connection.is_secure:
            connection.close("it asks for TLS in the midst of other requests")
            return
        connection.is_secure = connection.is_upgrading = True
        connection.answers.append(connection.codec.encode_response(txn, StartTlsResponse(Code.OK)))
        connection.write()
        task = self.loop.create_task(self._shake_hands(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _shake_hands(self, connection: Connection) -> None:
        assert self.tls is not None

        def agreed(transport: asyncio.Transport) -> Connection:
            connection.transport = transport
            connection.is_upgrading = False
            self._admit(connection)
            self.limit_writing(connection)
            return connection

        try:
            await upgrade(connection.transport, agreed, self.tls.context, server_side=True)
        except (OSError, EOFError) as error:
            connection.close(f"TLS is not agreed on: {error or type(error).__name__}")
            connection.connection_lost(None)
            return
        self.regulate(connection)


class Connection(asyncio.BufferedProtocol):
    """One client's connection. ``peer``: its address, for the log."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.number = 0
        self.codec: Any = v3
        self.inbox = Inbox(server.memory)
        self.answers: list[bytes | memoryview] = []
        self.looks: deque[Look] = deque()
        """Look-ups still to do."""
        self.misses: deque[Look] = deque()
        """Look-ups still to do in a thread."""
        self.has_job = False
        """Whether a thread is doing look-ups for it."""
        self.in_flight = 0
        """Requests without an answer."""
        self.bytes = 0
        """Bytes of adds that are not durable."""
        self.writes = False
        """Whether it has sent anything that is stored."""
        self.is_reading = True
        self.is_blocked = False
        """Whether the client does not take its answers."""
        self.blocked_since = 0.0
        self.left = 0
        """Bytes of unsent answers when the client last took some."""
        self.is_secure = False
        self.is_upgrading = False
        self.sasl: SaslServer | None = None
        self.user: str | None = None
        """The authenticated user."""
        self.is_admitted = not server.settings.requires_tls and server.users is None
        """Whether it is served."""
        self.has_spoken = False
        """Whether a complete message came."""
        self.is_closed = False
        self.heard = self.since = server.loop.time()
        """When it sent something last, and when it was made."""
        self.began = 0.0
        """When the incomplete message began to arrive, or when the server began to read again."""
        self.adds = 0
        """The number of adds that came with the last read of the socket."""

    @property
    def is_served(self) -> bool:
        """Whether it has sent a request and is admitted."""
        return self.has_spoken and self.is_admitted

    @property
    def held(self) -> int:
        """Bytes of the incomplete message."""
        return self.inbox.held

    def connection_made(self, transport: Any) -> None:
        self.transport: asyncio.Transport = transport
        self.peer = address_of(transport)
        self.number = self.server.connected(self)
        if not self.number:
            self.is_closed = True
            transport.abort()
            return
        self.server.limit_writing(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.inbox.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self.is_closed:
            return
        self.heard = self.server.loop.time()
        memory, stop = self.inbox.arrived(nbytes)
        if stop:
            self.server.take(self, memory, stop)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closed = True
        self.server.disconnected(self)

    def pause_writing(self) -> None:
        self.is_blocked, self.blocked_since = True, self.server.loop.time()
        self.left = self.transport.get_write_buffer_size()
        self.server.regulate(self)

    def resume_writing(self) -> None:
        self.is_blocked = False
        self.server.go_on(self)

    def read_on(self, wanted: bool) -> None:
        """Read from the socket, or leave bytes to the operating system so that the client is slowed down."""
        if wanted is not self.is_reading and not self.is_closed and not self.is_upgrading:
            self.is_reading = wanted
            if wanted:
                if not self.server.crowded:
                    self.began = self.server.loop.time()
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def write(self) -> None:
        """Write all answers."""
        answers, self.answers = self.answers, []
        self.transport.write(b"".join(answers))

    def turn_away(self, answer: bytes, reason: str) -> None:
        """Answer, log the reason and close the connection."""
        self.is_closed = True
        _log.warning("the connection from %s is closed: %s", self.peer, reason)
        self.answers.append(answer)
        self.write()
        self.transport.close()

    def close(self, reason: str) -> None:
        """Log the reason and close the connection at once, without sending pending answers. One that was turned away
        may still have some: then its reason is known.
        """
        if not self.is_closed:
            self.is_closed = True
            _log.warning("the connection from %s is closed: %s", self.peer, reason)
        self.transport.abort()


def _job_of(misses: deque[Look]) -> list[Look]:
    """The next look-ups for a thread: reads that arrived together, or some look-ups of other kinds."""
    job = [misses.popleft()]
    while type(job[0]) is not ReadBatch and misses and type(misses[0]) is not ReadBatch and len(job) < LOOK_UPS_PER_JOB:
        job.append(misses.popleft())
    return job
