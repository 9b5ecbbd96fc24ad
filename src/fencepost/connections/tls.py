"""TLS for servers and clients, configured by PEM files.

The files are checked for changes at each connection. So a certificate is renewed by replacing its files: existing
connections continue, and new connections use the new certificate. If the new files are unusable, that is logged and the
old ones stay in use.

On a bookie's port a connection begins in plain text, and changes to TLS after START_TLS and its answer
(:func:`upgrade`). On other ports TLS comes first (:class:`Listener`).
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import socket
import ssl
from collections.abc import Callable
from typing import Any

import msgspec

from fencepost.connections import tasks
from fencepost.errors import OptionError
from fencepost.files import regular

HANDSHAKE = 10.0
"""The timeout of a handshake in seconds."""

MOST_HANDSHAKES = 64
"""Handshakes at a time at a port on which TLS comes first. A further one ends the oldest."""

_BACKLOG = 1_024
_LONGEST_PASSWORD = 64 << 10
_REST = 0.1
"""Seconds to wait after a failed accept."""

_log = logging.getLogger("fencepost.connections.tls")


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """The PEM files of one side. ``certificate``: its own certificate with the intermediate ones. ``key``: the private
    key, which may be in the same file. ``password``: a file with the password of an encrypted key. ``trusted``: the
    certificates of the authorities that the other side's certificate is verified with. Empty: none."""

    certificate: str = ""
    key: str = ""
    password: str = ""
    trusted: str = ""


class Tls:
    """The TLS configuration of one side, TLS 1.2 or later. :attr:`context` follows changes of the files.

    ``asks``: a server accepts only clients with a certificate that it trusts. ``checks_names``: a client accepts only a
    server whose certificate names the host that it connects to. Raises :class:`fencepost.OptionError` for unusable
    files, and for a key that all users of the machine can read.
    """

    def __init__(self, files: Files, *, is_server: bool, asks: bool = False, checks_names: bool = True) -> None:
        self.files = files
        self.is_server = is_server
        self.asks = asks
        self.checks_names = checks_names
        self._stamps = self._look()
        self._context = self._make()

    @property
    def context(self) -> ssl.SSLContext:
        """The context for a new connection. Reloads the files if they have changed."""
        stamps = self._look()
        if stamps != self._stamps:
            self._stamps = stamps
            try:
                self._context = self._make()
            except OptionError as error:
                _log.error("TLS goes on with the files of before: %s", error)
            else:
                _log.info("TLS goes on with %s as it is now", self.files.certificate or self.files.trusted)
        return self._context

    def _look(self) -> list[tuple[int, ...]]:
        return [regular.stamp(file)[:3] for file in msgspec.structs.astuple(self.files)]

    def _make(self) -> ssl.SSLContext:
        files = self.files
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if self.is_server else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if files.certificate:
            key = files.key or files.certificate
            _load(key, lambda: _must_be_private(key))
            password = _password(files.password)
            _load(files.certificate, lambda: context.load_cert_chain(files.certificate, key, password))
        elif self.is_server:
            raise OptionError("TLS needs a certificate and its key")
        if files.trusted:
            _load(files.trusted, lambda: context.load_verify_locations(files.trusted))
        elif self.asks or not self.is_server:
            raise OptionError("TLS needs the certificates to trust: those of the authorities, in PEM")
        if self.is_server:
            context.verify_mode = ssl.CERT_REQUIRED if self.asks else ssl.CERT_NONE
        else:
            context.check_hostname = self.checks_names
        return context


class Listener:
    """A port on which TLS comes first. Each connection gets the current context, which ``asyncio.Server`` cannot do.
    ``make`` returns the protocol of a connection after the handshake, which may take ``patience`` seconds."""

    def __init__(self, tls: Tls, make: Callable[[], asyncio.Protocol], patience: float = HANDSHAKE) -> None:
        self.tls = tls
        self.make = make
        self.patience = patience
        self.sockets: list[socket.socket] = []
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._agreeing: dict[socket.socket, None] = {}
        """Connections whose handshake has not ended, the oldest first."""

    async def listen(self, host: str, port: int) -> Listener:
        """Start to accept connections. Raises ``OSError`` if the port cannot be bound."""
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, address in dict.fromkeys((each[0], each[4][:2]) for each in found[: None if port else 1]):
            listening = socket.create_server(address, family=family, backlog=_BACKLOG)
            listening.setblocking(False)
            self.sockets.append(listening)
            tasks.start(self._accept(listening), self._tasks)
        return self

    def close(self) -> None:
        """Stop accepting. Existing connections stay open."""
        for task in self._tasks:
            task.cancel()
        for listening in self.sockets:
            listening.close()

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                came, address = await self._loop.sock_accept(listening)
            except OSError as error:  # out of file descriptors, or the peer has closed already
                _log.warning("a connection cannot be taken: %s", error.strerror or error)
                await asyncio.sleep(_REST)
            else:
                if len(self._agreeing) >= MOST_HANDSHAKES:
                    oldest = next(iter(self._agreeing))
                    del self._agreeing[oldest]
                    with contextlib.suppress(OSError):
                        oldest.shutdown(socket.SHUT_RDWR)
                self._agreeing[came] = None
                tasks.start(self._agree(came, ":".join(map(str, address[:2]))), self._tasks)

    async def _agree(self, came: socket.socket, peer: str) -> None:
        try:
            context = self.tls.context
            await self._loop.connect_accepted_socket(self.make, came, ssl=context, ssl_handshake_timeout=self.patience)
        except (OSError, EOFError) as error:
            _log.info("a connection from %s is closed: TLS is not agreed on: %s", peer, error or type(error).__name__)
            came.close()
        finally:
            self._agreeing.pop(came, None)


class _Arriving(asyncio.Protocol):
    """Buffers data that arrives with the end of the handshake, before the caller learns that it has ended."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.has_ended = False

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, error: Exception | None) -> None:
        self.has_ended = True


async def upgrade(
    transport: asyncio.Transport,
    agreed: Callable[[asyncio.Transport], asyncio.Protocol | asyncio.BufferedProtocol],
    context: ssl.SSLContext,
    *,
    server_side: bool,
    server_hostname: str | None = None,
    patience: float = HANDSHAKE,
) -> None:
    """Change a connection to TLS. ``agreed`` is called with the new transport, and returns the protocol for it.
    Nothing may be written to the old transport meanwhile. The old protocol gets no further callbacks.

    Raises ``OSError`` (``ssl.SSLError`` is one) or ``EOFError`` if the handshake fails.
    """
    arriving = _Arriving()
    upgraded = await asyncio.get_running_loop().start_tls(
        transport,
        arriving,
        context,
        server_side=server_side,
        server_hostname=server_hostname,
        ssl_handshake_timeout=patience,
    )
    if upgraded is None:
        raise ConnectionError("the connection was lost during the handshake")
    protocol = agreed(upgraded)
    upgraded.set_protocol(protocol)
    data = memoryview(arriving.data)
    if isinstance(protocol, asyncio.BufferedProtocol):
        while data:
            buffer = protocol.get_buffer(len(data))
            count = min(len(buffer), len(data))  # type: ignore[arg-type]
            buffer[:count] = data[:count]  # type: ignore[index]
            protocol.buffer_updated(count)
            data = data[count:]
    elif data:
        protocol.data_received(bytes(data))
    if arriving.has_ended:
        protocol.connection_lost(None)


def names_host(transport: asyncio.BaseTransport, host: str) -> bool:
    """Whether the other side's certificate names a host or an address."""
    certificate: dict[str, Any] = transport.get_extra_info("peercert") or {}
    return any(_is_named(kind, name, host) for kind, name in certificate.get("subjectAltName", ()))


def _is_named(kind: str, name: str, host: str) -> bool:
    if kind == "IP Address":
        try:
            return ipaddress.ip_address(name) == ipaddress.ip_address(host)
        except ValueError:
            return False
    if kind != "DNS":
        return False
    name, host = name.lower(), host.lower()
    return name == host or (name.startswith("*.") and name[1:] == host[host.find(".") :] and "." in host)


def _password(file: str) -> str:
    """The password of a key; empty without a file, so that OpenSSL does not prompt for it."""
    if not file:
        return ""
    try:
        return regular.at_most(file, _LONGEST_PASSWORD).decode().strip()
    except OSError as error:
        raise OptionError(f"the password in {file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise OptionError(f"the password in {file} is no UTF-8") from error


def _must_be_private(key: str) -> None:
    if os.stat(key).st_mode & 0o007:
        raise OptionError(f"{key} cannot be used for TLS: everybody on this machine may use the key: chmod o-rwx it")


def _load(file: str, load: Callable[[], object]) -> None:
    try:
        load()
    except ssl.SSLError as error:
        raise OptionError(f"{file} cannot be used for TLS: {error.reason or error}") from error
    except OSError as error:
        raise OptionError(f"{file} cannot be read for TLS: {error.strerror}") from error
