"""Connections of Kafka's clients, with limits. A connection's requests are answered in order, as in Kafka."""

from __future__ import annotations

import asyncio
import logging
import struct

from fencepost.connections.limit import ConnectionLimit
from fencepost.connections.tls import Listener
from fencepost.errors import SystemFailure
from fencepost.quorum.driver.host import QuorumHost
from fencepost.quorum.identity import host_and_port
from fencepost.quorum.kafka.answers import Answers
from fencepost.quorum.kafka.messages import decode_request, encode_response
from fencepost.quorum.kafka.schema import Malformed

_logger = logging.getLogger(__name__)

MAX_FRAME = 64 << 10
"""The most bytes of a request; valid ones are much smaller. A connection that announces more is closed."""
MAX_CONNECTIONS = 64
"""The most connections. A new one takes the slot of the one that has been silent longest."""
FIRST_FRAME = 5.0
"""Seconds without a first request after which a connection is closed."""
IDLE = 600.0
"""Seconds without another request, or with an unread answer, after which a connection is closed."""

_LENGTH = struct.Struct(">i")


class KafkaListener:
    """Listens for Kafka's protocol at the host of a member's endpoint, from :meth:`listen` to :meth:`close`. It uses
    the TLS of the quorum, if there is any, since its clients may change the voters.
    """

    def __init__(
        self,
        host: QuorumHost,
        *,
        max_frame: int = MAX_FRAME,
        max_connections: int = MAX_CONNECTIONS,
        idle: float = IDLE,
        first_frame: float = FIRST_FRAME,
    ) -> None:
        self.host = host
        self.max_frame = max_frame
        self.idle = idle
        self.first_frame = first_frame
        self._answers: Answers | None = None
        self._server: asyncio.Server | Listener | None = None
        self._connections: ConnectionLimit[asyncio.Task[None]] = ConnectionLimit(max_connections, asyncio.Task.cancel)

    async def listen(self, port: int) -> tuple[str, int]:
        """Listen at a port, 0 being any free one. Returns the host and port for clients. Raises
        :class:`fencepost.errors.SystemFailure`.
        """
        (name, _), tls = host_and_port(self.host.me.endpoint), self.host.links.tls
        try:
            if tls is not None and tls.server is not None:
                self._server = await Listener(tls.server, self._stream, self.first_frame).listen(name, port)
            else:
                self._server = await asyncio.get_running_loop().create_server(self._stream, name, port)
        except OSError as error:
            raise SystemFailure(
                f"cannot listen for Kafka's protocol on {name}:{port}: {error.strerror or error}"
            ) from error
        address = name, self._server.sockets[0].getsockname()[1]
        self._answers = Answers(self.host, address)
        return address

    async def close(self) -> None:
        """Accept no more connections, and close the existing ones."""
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _stream(self) -> asyncio.Protocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(), self._connected)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        peer = ":".join(map(str, (writer.get_extra_info("peername") or ("", 0))[:2]))
        try:
            self._connections.admit(task)
            await self._serve(reader, writer, task)
        except Malformed as error:
            _logger.warning("a connection of Kafka's protocol from %s is closed: it %s", peer, error)
        except TimeoutError:
            _logger.info("a connection of Kafka's protocol from %s is closed: it was idle", peer)
        except (OSError, EOFError, asyncio.CancelledError):
            pass  # the client is gone, or the member stops
        finally:
            self._connections.remove(task)
            writer.transport.abort()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, task: asyncio.Task[None]
    ) -> None:
        assert self._answers is not None
        patience = self.first_frame
        while True:
            async with asyncio.timeout(patience):
                (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
                if not 0 <= length <= self.max_frame:
                    raise Malformed(f"announced a frame of {length:,} bytes, and the limit is {self.max_frame:,}")
                data = await reader.readexactly(length)
            self._connections.touch(task)
            patience = self.idle
            request = decode_request(data)
            version, body = await self._answers.to(request)
            answer = encode_response(request.api, version, request.correlation, body)
            writer.write(_LENGTH.pack(len(answer)) + answer)
            async with asyncio.timeout(self.idle):
                await writer.drain()
