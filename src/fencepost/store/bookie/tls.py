"""TLS on a connection of the wire protocol: it begins in the clear, and goes on under TLS after a START_TLS and the
answer to it.

Both sides use :func:`upgrade`; each has its own context, as BookKeeper's ``TLSContextFactory`` has with keys in PEM.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

from fencepost.errors import OptionError

HANDSHAKE = 10.0
"""Seconds after which a handshake that does not end is given up."""


def server_context(
    certificate: str, key: str, password_file: str = "", trusted: str = "", client_authentication: bool = False
) -> ssl.SSLContext:
    """The context of a bookie, from files in PEM. Raises :class:`fencepost.OptionError` for files that can not be
    used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(certificate, lambda: context.load_cert_chain(certificate, key, _password(password_file)))
    if trusted:
        _load(trusted, lambda: context.load_verify_locations(trusted))
    if client_authentication:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def upgrade(
    loop: asyncio.AbstractEventLoop,
    transport: asyncio.Transport,
    protocol: asyncio.BaseProtocol,
    context: ssl.SSLContext,
    *,
    server_side: bool,
    server_hostname: str | None = None,
) -> asyncio.Transport:
    """Go on under TLS; the transport from now on. Nothing may be written to the old one meanwhile.

    Raises ``OSError`` (``ssl.SSLError`` is one) or ``EOFError`` if TLS is not agreed on.
    """
    upgraded = await loop.start_tls(
        transport,
        protocol,
        context,
        server_side=server_side,
        server_hostname=server_hostname,
        ssl_handshake_timeout=HANDSHAKE,
    )
    if upgraded is None:
        raise ConnectionError("the connection was lost during the handshake")
    return upgraded


def _password(file: str) -> str:
    """The password of a key. Without one it is empty, so that nobody is asked for it."""
    if not file:
        return ""
    try:
        return Path(file).read_text().strip()
    except OSError as error:
        raise OptionError(f"the password in {file} can not be read: {error.strerror}") from error


def _load(file: str, load: Callable[[], object]) -> None:
    try:
        load()
    except ssl.SSLError as error:
        raise OptionError(f"{file} can not be used for TLS: {error.reason or error}") from error
    except OSError as error:
        raise OptionError(f"{file} can not be read for TLS: {error.strerror}") from error
