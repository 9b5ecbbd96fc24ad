"""A client's connection to one bookie. It opens when first needed, reopens after it broke, and serves the whole client.

Requests of one turn of the loop go out in one write, but the first goes at once if nothing is in flight. Responses that
arrive in one read are delivered together. Each connection numbers its own requests. A request counts as unanswered if
its answer is late or the connection breaks. Adds and reads of many entries go by rows
(:mod:`fencepost.ledger.client.pipeline`) once the compiled loops are loaded, and one by one before.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Callable, Sequence
from itertools import chain, count
from typing import Any, Protocol

from fencepost.connections import sasl
from fencepost.connections.tls import Tls, upgrade
from fencepost.connections.users import Credentials
from fencepost.ledger.client.loops import LARGE, LOOPS, AddRows
from fencepost.ledger.client.pipeline import Pipeline
from fencepost.ledger.client.settings import ClientSettings
from fencepost.ledger.errors import StoreError
from fencepost.ledger.messages import (
    NO_AUTHENTICATION,
    SASL,
    SASL_NAME,
    AddEntry,
    AddEntryResponse,
    Auth,
    AuthResponse,
    ReadEntry,
    Request,
    Response,
    StartTls,
    StartTlsResponse,
)
from fencepost.ledger.roles.interface import SendAdds
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.ensembles import is_in_write_set
from fencepost.ledger.wire.frames import WireError, cut, needed, refused_length
from fencepost.ledger.wire.v3 import decode_response, encode_request
from fencepost.traces import TraceWriter

_BUFFER, _BUFFER_LIMIT = 64 * 1024, 1024 * 1024
"""The first size of a connection's receive buffer, and its limit. Only a single frame may need a larger one."""

_LARGE = 8 * 1024
"""Frames of this many bytes are written without waiting for others."""

_log = logging.getLogger("fencepost.ledger.client")

_FAILURES = frozenset({Code.IO_ERROR, Code.READ_ONLY, Code.TOO_MANY_REQUESTS})
"""After these answers, new ensembles avoid the bookie for a while."""


class Requester(Protocol):
    """Sends requests. Each request is answered or reported as unanswered, exactly once."""

    def answered(self, txn: int, bookie: str, response: Response) -> None:
        """The bookie answered."""

    def unanswered(self, txn: int, bookie: str) -> None:
        """The bookie did not answer. It may or may not have carried out the request."""


class AddRequester(Protocol):
    """Sends adds of many entries. Each add is answered or reported as unanswered, exactly once."""

    def adds_answered(self, bookie: str, entry_ids: Sequence[int], code: Code | None) -> None:
        """The bookie gave the same answer to all of these adds, or (None) did not answer. ``entry_ids`` may be reused
        after the call.
        """


class ReadRequester(Requester, Protocol):
    """Reads many entries. Each request is answered or reported as unanswered, exactly once. A single request is
    numbered by the id of its entry. Arrays may be reused after the call. ``by_rows``: whether it takes entries by
    rows.
    """

    by_rows: bool

    def entries_read(self, bookie: str, view: Any, responses: Any, entry_ids: Any, rows: Any) -> None:
        """The bookie sent entries, not checked yet. They are in ``rows`` of ``responses``, as offsets into ``view``."""

    def entries_unanswered(self, bookie: str, entry_ids: Sequence[int]) -> None:
        """The bookie did not answer."""


class _PlainAdds:
    """Adds of many entries, sent one by one. Each is numbered by the id of its entry."""

    def __init__(self, requester: AddRequester) -> None:
        self.requester = requester

    def answered(self, txn: int, bookie: str, response: Response) -> None:
        """The bookie answered."""
        self.requester.adds_answered(bookie, (txn,), response.code)

    def unanswered(self, txn: int, bookie: str) -> None:
        """The bookie did not answer."""
        self.requester.adds_answered(bookie, (txn,), None)


class Client(Protocol):
    """The owner of a connection."""

    async def address_of(self, bookie: str) -> tuple[str, int]:
        """Host and port of a bookie. Raises ``ValueError`` or :class:`StoreError` if they are unknown."""

    def failed(self, bookie: str) -> None:
        """A bookie failed."""

    def disconnected(self, bookie: str) -> None:
        """The connection to a bookie was lost."""


_Waiting = tuple[Requester, int, float, int, bool]
"""An unanswered request: its sender, the sender's number for it, its deadline, its size in bytes, and whether it is an
add.
"""


class Connection:
    """The requests of a client to one bookie.

    A bookie answers adds in the order it received them, and other requests roughly in order. An answer shows that the
    bookie is working through the queue. A request behind it is late only once no answer has come for a whole
    ``request_timeout``, however long the queue. A request that later ones of its kind have overtaken is late a
    ``request_timeout`` after it was sent.
    """

    def __init__(self, bookie: str, client: Client, settings: ClientSettings, trace: TraceWriter | None = None) -> None:
        self.trace = trace
        self.bookie = bookie
        self.client = client
        self.settings = settings
        self.loop = asyncio.get_running_loop()
        self.txns = chain(range(1, 1 << 28), count(1 << 35))  # the numbers between are for requests by rows
        self.now = self.loop.time
        self.request_timeout = settings.request_timeout
        self.unanswered_limit = settings.unanswered_limit
        self.waiting: dict[int, _Waiting] = {}
        self.unanswered_size = 0
        self.pipeline: Pipeline | None = None
        self.outgoing: list[bytes | memoryview] = []
        """Frames to write at the end of this turn of the loop, or once connected."""
        self.link: _Link | None = None
        self.connecting: asyncio.Task[None] | None = None
        self.attempts = 0
        """Consecutive connections that failed."""
        self.heard_at = 0.0
        self.reached = [0, 0]
        """The highest request number answered, of adds at 1 and of others at 0. ``reached_at``: when."""
        self.reached_at = [0.0, 0.0]
        self.is_flushing = False
        self.sweeping: asyncio.TimerHandle | None = None
        self.sweeping_at = 0.0
        """When the next sweep is due."""
        self.is_closed = False

    # -- requests ------------------------------------------------------------------------------------------------------

    def send(self, requester: Requester, txn: int, request: Request) -> None:
        """Send a request. Its outcome is reported later, never before this method returns."""
        if self.unanswered_size > self.unanswered_limit or self.is_closed:
            self.loop.call_soon(self._give_up, requester.unanswered, txn, self.bookie)
            return
        number = next(self.txns)
        frame = encode_request(number, request)
        size = len(frame)
        deadline = self.now() + self.request_timeout
        if type(request) is ReadEntry:
            deadline += request.wait / 1_000_000
        self.waiting[number] = (requester, txn, deadline, size, type(request) is AddEntry)
        self._write([frame], size)

    def send_adds(self, requester: AddRequester, send: SendAdds) -> None:
        """Send adds. The outcome of each is reported later, never before this method returns."""
        adds, bookie = send.adds, self.bookie
        if self.unanswered_size > self.unanswered_limit or self.is_closed:
            self.loop.call_soon(self._give_up, requester.adds_answered, bookie, self._entries_of(send), None)
        elif type(adds) is AddRows and not self._pipeline().is_full(len(adds)):
            deadline = self.now() + self.request_timeout
            place = send.place, send.ensemble_size, send.write_quorum
            self._write(*self._pipeline().adds(requester, adds, *place, deadline))
        else:
            assert bookie == send.bookie
            plain = _PlainAdds(requester)
            for entry_id in self._entries_of(send):
                self.send(plain, entry_id, adds[entry_id - adds.first])

    def send_reads(self, requester: ReadRequester, ledger: int, entry_ids: Sequence[int]) -> None:
        """Request entries. The outcome of each is reported later, never before this method returns."""
        if self.unanswered_size > self.unanswered_limit or self.is_closed:
            self.loop.call_soon(self._give_up, requester.entries_unanswered, self.bookie, entry_ids)
        elif LOOPS.module is None or not requester.by_rows or self._pipeline().is_full(len(entry_ids)):
            for entry_id in entry_ids:
                self.send(requester, entry_id, ReadEntry(ledger, entry_id))
        else:
            deadline = self.now() + self.request_timeout
            frames = self._pipeline().reads(requester, ledger, entry_ids, deadline)
            self._write([frames], len(frames), at_once=True)

    def _entries_of(self, send: SendAdds) -> Sequence[int]:
        """The entries of a batch that belong on this bookie."""
        place, size, quorum = send.place, send.ensemble_size, send.write_quorum
        every = range(send.adds.first, send.adds.first + len(send.adds))
        return every if size == quorum else [each for each in every if is_in_write_set(place, each, size, quorum)]

    def _pipeline(self) -> Pipeline:
        if self.pipeline is None:
            self.pipeline = Pipeline(LOOPS.module)
        return self.pipeline

    def _write(self, frames: Sequence[bytes | memoryview], size: int, at_once: bool = False) -> None:
        """Write frames, or queue them. They are written at once if nothing is in flight to join, if they are large, or
        if ``at_once``: the caller has joined them already.
        """
        at_once = at_once or not self.unanswered_size or size >= _LARGE
        self.unanswered_size += size
        if at_once and self.link is not None and not self.outgoing:
            self.link.write(frames)
            if self.sweeping is None:
                self._sweep_later()
            return
        self.outgoing += frames
        if not self.is_flushing:
            self._flush_later()

    def _flush_later(self) -> None:
        """Write at the end of this turn of the loop, or once connected. Also start the sweep for late requests."""
        if self.link is not None:
            self.is_flushing = True
            self.loop.call_soon(self._flush)
        elif self.connecting is None:
            self.connecting = self.loop.create_task(self._connect())
        if self.sweeping is None:
            self._sweep_later()

    def _give_up(self, report: Callable[..., None], *arguments: Any) -> None:
        """Report requests as unanswered."""
        self.client.failed(self.bookie)
        report(*arguments)

    def _flush(self) -> None:
        self.is_flushing = False
        if self.link is not None and self.outgoing:
            self.link.write(self.outgoing)
            self.outgoing = []

    def take(self, data: bytearray, view: Any, start: int, stop: int, limit: int) -> int:
        """Take the complete responses in ``data[start:stop]``. Gives the offset after them. ``view``: the data as an
        array, if the loops are loaded.

        Raises :class:`WireError` for anything but responses.
        """
        self.heard_at = self.now()
        if self.pipeline is None:
            payloads, start = cut(data, start, stop, limit)
            self.received(payloads)
            return start
        loops, pipeline = self.pipeline.loops, self.pipeline
        while start < stop:
            count, start, how, row, owner, taken, size = pipeline.receive(view, start, stop, limit, self.heard_at)
            if taken:
                self._answered(pipeline, view, owner, taken, size, 0)
            if row < count:
                self._received_rows(pipeline, data, view, row, count)
            if how == loops.REFUSED:
                raise refused_length(needed(data, start, stop) - 4, limit)
            if how == loops.PARTIAL:
                break
        return start

    def _answered(self, pipeline: Pipeline, view: Any, owner: Any, taken: int, size: int, first: int) -> None:
        """Requests of one owner were answered, by responses of the same kind as ``first``."""
        self.unanswered_size -= size
        responses, loops = pipeline.responses, pipeline.loops
        if responses.item(first, loops.KIND) == loops.ADDED:
            owner.adds_answered(self.bookie, pipeline.answered[0, :taken], Code.OK)
        else:
            entry_ids, rows = pipeline.answered[:, :taken]
            owner.entries_read(self.bookie, view, responses, entry_ids, rows)

    def _received_rows(self, pipeline: Pipeline, data: bytearray, view: Any, row: int, count: int) -> None:
        """Deliver the responses in rows from ``row`` to before ``count``."""
        loops, responses = pipeline.loops, pipeline.responses
        while row < count:
            if responses[row, loops.KIND] == loops.OTHER:
                start = int(responses[row, loops.PAYLOAD])
                self.received([bytes(data[start : start + int(responses[row, loops.PAYLOAD_SIZE])])])
                row += 1
                continue
            first = row
            row, owner, taken, size = pipeline.complete(row, count, self.heard_at)
            if taken:
                self._answered(pipeline, view, owner, taken, size, first)

    def received(self, payloads: list[bytes]) -> None:
        """Deliver responses."""
        now = self.heard_at = self.now()
        waiting, bookie, client, reached = self.waiting, self.bookie, self.client, self.reached
        confirming: AddRequester | None = None
        confirmed: list[int] = []
        try:
            for payload in payloads:
                number, response = decode_response(payload)
                request = waiting.pop(number, None)
                if request is None:
                    if self.pipeline is not None:
                        self._received_of_rows(self.pipeline, number, response)
                    continue
                requester, txn, _, size, is_add = request
                self.unanswered_size -= size
                if number > reached[is_add]:
                    reached[is_add] = number
                    self.reached_at[is_add] = now
                of_batch = requester.requester if type(requester) is _PlainAdds and response.code is Code.OK else None
                if confirming is not None and of_batch is not confirming:
                    owner, confirming = confirming, None
                    owner.adds_answered(bookie, confirmed, Code.OK)
                    confirmed = []
                if response.code in _FAILURES:
                    client.failed(bookie)
                if of_batch is not None:
                    confirming = of_batch
                    confirmed.append(txn)
                else:
                    requester.answered(txn, bookie, response)
        finally:  # even if a later payload is invalid
            if confirming is not None:
                confirming.adds_answered(bookie, confirmed, Code.OK)

    def _received_of_rows(self, pipeline: Pipeline, number: int, response: Response) -> None:
        """Deliver a response to a request sent by rows that is not a plain success."""
        request = pipeline.take(number, self.heard_at)
        if request is None:
            return
        owner, entry_id, size = request
        self.unanswered_size -= size
        if response.code in _FAILURES:
            self.client.failed(self.bookie)
        if isinstance(response, AddEntryResponse):
            owner.adds_answered(self.bookie, (entry_id,), response.code)
        else:
            owner.answered(entry_id, self.bookie, response)

    def _unanswered_rows(self, stretches: list[tuple[int, int]]) -> None:
        """Requests by rows with numbers in these ranges are unanswered."""
        for first, stop in stretches:
            if self.pipeline is None:
                return
            given_up, size = self.pipeline.give_up(first, stop)
            self.unanswered_size -= size
            for owner, entry_ids, is_add in given_up:
                if is_add:
                    owner.adds_answered(self.bookie, entry_ids, None)
                else:
                    owner.entries_unanswered(self.bookie, entry_ids.tolist())

    def _sweep_later(self) -> None:
        delay = self.request_timeout / 4
        self.sweeping_at = self.now() + delay
        self.sweeping = self.loop.call_later(delay, self._sweep)

    def _sweep(self) -> None:
        """Give up late requests. Break a connection that received nothing at all, because it may be half open."""
        self.sweeping = None
        now = self.now()
        if now - self.sweeping_at > self.request_timeout / 4:
            # This process was blocked: answers may still be waiting to be read.
            self.heard_at = now
            self.reached_at = [now, now]
            if self.pipeline is not None:
                self.pipeline.reached_at = [now, now]
            self._sweep_later()
            return
        late = [(number, request) for number, request in self.waiting.items() if self._is_late(number, request, now)]
        late_rows = self.pipeline.late(now, self.request_timeout) if self.pipeline is not None else []
        is_late = bool(late or late_rows)
        if is_late and self.link is not None and now - self.heard_at >= self.request_timeout:
            self.link.abort(f"nothing came for {self.request_timeout:g} s")
        elif is_late:
            self.client.failed(self.bookie)
            self._unanswered_rows(late_rows)
            for number, (requester, txn, _, size, _) in late:
                if self.waiting.pop(number, None) is not None:
                    self.unanswered_size -= size
                    requester.unanswered(txn, self.bookie)
        is_waiting = self.waiting or (self.pipeline is not None and self.pipeline.is_waiting)
        if is_waiting and self.sweeping is None and not self.is_closed:
            self._sweep_later()

    def _is_late(self, number: int, request: _Waiting, now: float) -> bool:
        _, _, deadline, _, is_add = request
        is_in_line = number > self.reached[is_add] and self.reached_at[is_add] + self.request_timeout > now
        return deadline <= now and not is_in_line

    # -- the connection ------------------------------------------------------------------------------------------------

    async def _connect(self) -> None:
        if self.attempts:
            delay = self.settings.reconnect_delay * 2 ** min(self.attempts - 1, 16)
            await asyncio.sleep(min(delay, self.settings.reconnect_delay_limit))
        link: _Link | None = None
        try:
            async with asyncio.timeout(self.settings.connect_timeout):
                host, port = await self.client.address_of(self.bookie)
                _, link = await self.loop.create_connection(lambda: _Link(self), host, port)
                if self.settings.tls is not None:
                    await link.start_tls(host)
                if self.settings.credentials is not None:
                    await link.authenticate(self.settings.credentials)
        except (OSError, TimeoutError, ValueError, StoreError) as error:
            if link is not None:
                link.abort("it is of no use")
            self.connecting = None
            self.attempts += 1
            reason = "it does not answer" if isinstance(error, TimeoutError) else str(error)
            level = logging.WARNING if isinstance(error, PermissionError) else logging.INFO
            _log.log(level, "the bookie %s cannot be reached: %s", self.bookie, reason)
            self._break()
            return
        self.connecting = None
        if self.is_closed:
            link.abort("the client is closed")
            return
        self.attempts, self.link, self.heard_at = 0, link, self.loop.time()
        self._trace("connected", link)
        self._flush()

    def lost(self, link: _Link, reason: str) -> None:
        """A connection broke."""
        if link is self.link:
            self.link = None
            _log.info("the connection to the bookie %s broke: %s", self.bookie, reason)
            self._trace("disconnected", link)
            self._break()

    def _trace(self, what: str, link: _Link) -> None:
        """Record a connection in the trace. Its name is this end's address, which the bookie sees too."""
        if self.trace is not None:
            self.trace.emit(what, parameters={"bookie": self.bookie, "connection": link.address})

    def _break(self) -> None:
        """Fail all requests as unanswered. Roles are notified of the lost connection first.

        A writer that ends with its connection must not act on unanswered requests before it knows of the loss.
        """
        if self.is_closed:
            return
        unanswered, self.waiting = self.waiting, {}
        unanswered_rows = self.pipeline.all() if self.pipeline is not None else []
        self.outgoing = []
        self.unanswered_size -= sum(size for _, _, _, size, _ in unanswered.values())
        self.client.failed(self.bookie)
        self.client.disconnected(self.bookie)
        self._unanswered_rows(unanswered_rows)
        for requester, txn, *_ in unanswered.values():
            requester.unanswered(txn, self.bookie)

    def close(self) -> None:
        """Close the connection. Outcomes of requests are no longer reported."""
        self.is_closed = True
        self.waiting.clear()
        self.pipeline = None
        for timer in (self.connecting, self.sweeping):
            if timer is not None:
                timer.cancel()
        if self.link is not None:
            self.link.close()
            self.link = None


class _Link(asyncio.BufferedProtocol):
    """One TCP connection while it lasts. ``data[start:stop]`` has arrived and is not yet a complete frame."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.limit = connection.settings.frame_limit
        self.data = bytearray()
        self.view: Any = None
        self.start = self.stop = 0
        self._resize(_BUFFER)
        self.transport: Any = None
        self.address = ""
        """This end's address, which the bookie sees too."""
        self.answer: asyncio.Future[Response] | None = None
        self.reason = "the bookie closed it"

    def connection_made(self, transport: Any) -> None:
        """Take the transport."""
        self.transport = transport
        self.address = "{}:{}".format(*(transport.get_extra_info("sockname") or ("?", 0))[:2])
        of_socket = transport.get_extra_info("socket")
        if of_socket is not None and of_socket.family != getattr(socket, "AF_UNIX", None):
            of_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def write(self, frames: Sequence[bytes | memoryview]) -> None:
        """Write frames, or pieces of frames, at once."""
        if len(frames) == 1:
            self.transport.write(frames[0])
        elif sum(map(len, frames)) >= len(frames) * LARGE // 4:
            self.transport.writelines(frames)
        else:
            self.transport.write(b"".join(frames))

    # -- what arrives --------------------------------------------------------------------------------------------------

    def _resize(self, size: int) -> None:
        """Replace the buffer, keeping the bytes received so far."""
        before, self.data = self.data, bytearray(size)
        held = self.stop - self.start
        self.data[:held] = memoryview(before)[self.start : self.stop]
        self.start, self.stop = 0, held
        self.view = None

    def get_buffer(self, sizehint: int) -> memoryview:
        """The memory for the next bytes to arrive."""
        return memoryview(self.data)[self.stop :]

    def buffer_updated(self, nbytes: int) -> None:
        """Deliver complete responses. Bytes that are not a response break the connection."""
        self.stop += nbytes
        was_filled = self.stop == len(self.data)
        try:
            if self.answer is not None:
                payloads, self.start = cut(self.data, self.start, self.stop, self.limit)
                self._take_answer(payloads)
            else:
                if self.view is None and self.connection.pipeline is not None:
                    self.view = self.connection.pipeline.np.frombuffer(self.data, self.connection.pipeline.np.uint8)
                self.start = self.connection.take(self.data, self.view, self.start, self.stop, self.limit)
            self._make_room(was_filled)
        except WireError as error:
            self.start = self.stop = 0
            self.abort(str(error))

    def _make_room(self, was_filled: bool) -> None:
        """Make room for at least one whole frame, and for more if they arrive faster than they are taken."""
        size = len(self.data)
        if self.start == self.stop:
            self.start = self.stop = 0
            wanted = min(2 * size, _BUFFER_LIMIT) if was_filled else min(size, _BUFFER_LIMIT)
            if wanted != size:
                self._resize(wanted)
            return
        wanted = max(needed(self.data, self.start, self.stop), min(2 * size, _BUFFER_LIMIT) if was_filled else _BUFFER)
        if wanted > size:
            self._resize(wanted)
        elif was_filled or self.start + wanted > size:
            held = self.stop - self.start
            self.data[:held] = self.data[self.start : self.stop]
            self.start, self.stop = 0, held

    # -- its life ------------------------------------------------------------------------------------------------------

    def connection_lost(self, error: Exception | None) -> None:
        """Report the lost connection."""
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(ConnectionError(self.reason))
        self.connection.lost(self, str(error) if error else self.reason)

    def abort(self, reason: str) -> None:
        """Break the connection."""
        self.reason = reason
        self.transport.abort()

    def close(self) -> None:
        """Close the connection."""
        self.transport.close()

    async def ask(self, request: Request) -> Response:
        """Send a request before the connection serves others, and wait for its answer. Raises ``OSError``."""
        self.answer = self.connection.loop.create_future()
        self.transport.write(encode_request(next(self.connection.txns), request))
        try:
            return await self.answer
        finally:
            self.answer = None

    async def start_tls(self, host: str) -> None:
        """Continue under TLS. Raises ``OSError`` if the bookie does not."""
        tls = self.connection.settings.tls
        context = tls.context if isinstance(tls, Tls) else tls
        response = await self.ask(StartTls())
        if not isinstance(response, StartTlsResponse) or response.code is not Code.OK:
            raise ConnectionError("it does not speak TLS")
        assert context is not None

        def agreed(transport: asyncio.Transport) -> _Link:
            self.transport = transport
            return self

        name = host if context.check_hostname else None
        await upgrade(self.transport, agreed, context, server_side=False, server_hostname=name)

    async def authenticate(self, credentials: Credentials) -> None:
        """Authenticate by BookKeeper's SASL, unless the bookie does not require it. Raises ``OSError``."""
        user, password = credentials
        client = sasl.Client(SASL_NAME, SASL_NAME, user, password, secrets.token_hex(16))
        token = client.step(b"")
        while not client.is_complete:
            response = await self.ask(Auth(SASL, token))
            if not isinstance(response, AuthResponse) or response.code is not Code.OK:
                raise PermissionError(f"it does not know {user}, or by another password")
            if response.plugin == NO_AUTHENTICATION:
                return
            try:
                token = client.step(response.payload)
            except sasl.SaslError as error:
                raise PermissionError(str(error)) from error

    def _take_answer(self, payloads: list[bytes]) -> None:
        for payload in payloads:
            _, response = decode_response(payload)
            if self.answer is not None and not self.answer.done():
                self.answer.set_result(response)
