"""One client's connection: the bytes that it sends, split into requests, and its answers, within limits on both."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

from fencepost.metadata_service import acl as acls
from fencepost.metadata_service import protocol
from fencepost.metadata_service.acl import Id
from fencepost.metadata_service.codes import Code
from fencepost.metadata_service.jute import INT, JuteError
from fencepost.metadata_service.protocol import Change, CloseSession, Connect, Query, Refused
from fencepost.metadata_service.reads import Asker
from fencepost.metadata_service.settings import Settings

_logger = logging.getLogger(__name__)

_WRITE_BUFFER = 1 << 20
"""Bytes that wait for a client to read them, from which on nothing more is read from it."""
_NOBODY = bytes(16)


class Service(Protocol):
    """The service, as far as a connection uses it: :class:`fencepost.metadata_service.server.Service`.

    ``received`` and ``sent`` count messages. ``unflushed`` are connections with something to write. ``words`` gives the
    answer to each four-letter word.
    """

    settings: Settings
    received: int
    sent: int
    unflushed: dict[Connection, None]
    words: Mapping[bytes, Callable[[], str]]

    def now(self) -> int: ...
    def admits(self, connection: Connection, host: str) -> bool: ...
    def lost(self, connection: Connection) -> None: ...
    def heard(self, connection: Connection) -> None: ...
    def throttles(self, connection: Connection) -> bool: ...
    def give_up_later(self, transport: asyncio.Transport) -> None: ...
    def connect(self, connection: Connection, request: Connect) -> None: ...
    def has_room(self, change: Change) -> bool: ...
    def change(self, asker: Asker[Any], xid: int, request: Change, last: bool = False) -> None: ...
    def answer(self, asker: Asker[Any], xid: int, request: Query | Code, last: bool = False) -> None: ...
    def flush(self) -> None: ...


class Connection(asyncio.Protocol):
    """One client's connection. It has a session once its connect request is answered."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.transport: asyncio.Transport | None = None
        self.address = ""
        self.session = 0
        self.timeout = 0
        self.asker: Asker[Any] = Asker(self, 0, ())
        self.waiting = 0
        """Requests in the queue."""
        self.received = 0
        self.sent = 0
        self.message_size = 0
        """Bytes of the message that is taken at the moment."""
        self.since = service.now()
        self.last_zxid = 0
        self.closing = False
        self._input = bytearray()
        self._output: list[bytes] = []
        self._output_size = 0
        self._connect: Connect | None = None
        self._full = False  # the client does not read
        self._looks_away = False

    # -- what asyncio calls -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are not registered as such
        peer = transport.get_extra_info("peername")
        host, port = (peer[0], peer[1]) if isinstance(peer, tuple) else ("", 0)
        self.address = f"{host}:{port}"
        self.asker = Asker(self, 0, (Id("ip", host),))
        self.transport.set_write_buffer_limits(high=_WRITE_BUFFER)
        if not self.service.admits(self, host):
            self.closing = True
            self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.closing = True
        self.service.lost(self)

    def data_received(self, data: bytes) -> None:
        if self.closing:
            return
        self._input += data
        self.service.heard(self)
        self.parse()
        self.service.flush()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self.parse()
        self.service.flush()

    # -- input --------------------------------------------------------------------------------------------------------

    def parse(self) -> None:
        """Take the requests that have arrived, as long as the limits let it take more."""
        data, at = self._input, 0
        limit = self.service.settings.jute_maxbuffer
        while not self.closing and len(data) - at >= 4 and not self._held():
            if not self.received and not at and (answer := self.service.words.get(bytes(data[:4]))):
                self._say(answer)
                break
            length = INT.unpack_from(data, at)[0]
            if not 0 <= length <= limit:
                self.close(f"announced a message of {length:,} bytes, and jute.maxbuffer is {limit:,}")
                break
            if len(data) - at - 4 < length:
                break
            payload = bytes(data[at + 4 : at + 4 + length])
            at += 4 + length
            self.message_size = length
            self.received += 1
            try:
                self._take(payload)
            except JuteError as error:
                self.close(f"sent what is no request: {error}")
        del data[:at]
        self._look_away(self._held())

    def _held(self) -> bool:
        """Whether nothing more is taken for now."""
        connecting = self._connect is not None and not self.session
        return self._full or connecting or self._output_size > _WRITE_BUFFER or self.service.throttles(self)

    def _look_away(self, held: bool) -> None:
        if held is self._looks_away or self.transport is None or self.transport.is_closing():
            return
        self._looks_away = held
        if held:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def _take(self, payload: bytes) -> None:
        service = self.service
        service.received += 1
        if self._connect is None:
            self._connect = protocol.read_connect(payload)
            service.connect(self, self._connect)
            return
        xid, kind = protocol.read_header(payload)
        if kind in protocol.CHANGES:
            self._take_change(xid, kind, payload)
        elif kind in protocol.QUERIES:
            try:
                query = protocol.read_query(kind, payload, 8)
            except JuteError:
                service.answer(self.asker, xid, Code.MARSHALLING_ERROR)
            else:
                service.answer(self.asker, xid, query)
        elif kind == protocol.AUTH:
            self._authenticate(xid, protocol.read_auth(payload, 8))
        else:
            service.answer(self.asker, xid, Code.UNIMPLEMENTED, last=True)

    def _take_change(self, xid: int, kind: int, payload: bytes) -> None:
        if kind == protocol.CLOSE_SESSION:
            self.service.change(self.asker, xid, CloseSession(), last=True)
            return
        try:
            change = protocol.read_change(kind, payload, 8)
        except JuteError as error:
            if kind == protocol.MULTI and not isinstance(error, protocol.NullACL):
                # as in ZooKeeper, it takes a zxid
                self.service.change(self.asker, xid, Refused(Code.MARSHALLING_ERROR))
            else:
                self.service.answer(self.asker, xid, Code.MARSHALLING_ERROR)
            return
        if self.service.has_room(change):
            self.service.change(self.asker, xid, change)
        else:
            self.service.answer(self.asker, xid, Code.QUOTA_EXCEEDED)

    def _authenticate(self, xid: int, request: protocol.Auth) -> None:
        if request.scheme == "digest" and request.credentials is not None:
            identity = acls.digest(request.credentials)
            found = [identity]
            if identity.id == self.service.settings.super_digest:
                found.append(acls.SUPER)
            ids = self.asker.ids
            self.asker = Asker(self, self.session, (*ids, *(each for each in found if each not in ids)))
        elif request.scheme != "ip":
            self.service.answer(self.asker, xid, Code.AUTH_FAILED, last=True)
            return
        self.service.answer(self.asker, xid, Code.OK)

    def _say(self, answer: Callable[[], str]) -> None:
        assert self.transport is not None
        self.received += 1
        self.transport.write(answer().encode())
        self.close()

    # -- output -------------------------------------------------------------------------------------------------------

    def established(self, session: int, timeout: int, password: bytes) -> None:
        """The session is open; answer the connect request."""
        assert self._connect is not None
        self.session, self.timeout = session, timeout
        self.asker = Asker(self, session, self.asker.ids)
        self.send(protocol.connected(timeout, session, password, self._connect.read_only))

    def refused(self) -> None:
        """There is no such session any more."""
        assert self._connect is not None
        self.send(protocol.connected(0, 0, _NOBODY, self._connect.read_only))
        self.close()

    def send(self, frame: bytes) -> None:
        """Have a frame written at the next flush."""
        if self.closing:
            return
        self._output.append(frame)
        self._output_size += len(frame)
        if self._output_size > _WRITE_BUFFER:
            self.write()
        self.sent += 1
        self.service.sent += 1
        self.service.unflushed[self] = None

    def notify(self, frame: bytes, acl: acls.ACLs) -> None:
        """Tell of an event, if the client may learn of it."""
        if acls.permits(acl, acls.READ, self.asker.ids):
            self.send(frame)

    def write(self) -> None:
        """Give all frames to the operating system, or as many as it takes."""
        if self.transport is None or self.transport.is_closing() or not self._output:
            return
        self.transport.write(b"".join(self._output))
        self._output.clear()
        self._output_size = 0
        waiting = self.transport.get_write_buffer_size()
        if waiting > self.service.settings.max_outgoing_bytes:
            self.close(f"does not read: {waiting:,} bytes wait for it", abort=True)

    def close(self, reason: str = "", abort: bool = False) -> None:
        """Close the connection once everything is written; with ``abort`` at once. The session stays."""
        if self.closing:
            return
        if reason:
            _logger.warning("the connection of %s is closed: it %s", self.address, reason)
        if self.transport is not None:
            if not abort:
                self.write()
                self.transport.close()
                if self.transport.get_write_buffer_size():
                    self.service.give_up_later(self.transport)
            else:
                self.transport.abort()
        self.closing = True
        self.service.lost(self)
