"""Connections of Kafka's clients, within limits. The requests of one are answered in turn, as Kafka does."""

from __future__ import annotations

import asyncio
import logging
import struct

from fencepost.errors import SystemFailure
from fencepost.quorum.driver.host import QuorumHost
from fencepost.quorum.identity import host_and_port
from fencepost.quorum.kafka.answers import Answers
from fencepost.quorum.kafka.messages import decode_request, encode_response
from fencepost.quorum.kafka.schema import Malformed

_logger = logging.getLogger(__name__)

MAX_FRAME = 64 << 10
"""Bytes of a request: none that is answered comes near that. A connection that announces more is closed."""
MAX_CONNECTIONS = 64
"""At a time; one more is closed at once."""
IDLE = 600.0
"""Seconds without a whole request, or in which an answer is not taken, after which a connection is closed."""

_LENGTH = struct.Struct(">i")


class KafkaListener:
    """Listens for Kafka's protocol at the host of a member's endpoint, from :meth:`listen` to :meth:`close`."""

    def __init__(
        self,
        host: QuorumHost,
        *,
        max_frame: int = MAX_FRAME,
        max_connections: int = MAX_CONNECTIONS,
        idle: float = IDLE,
    ) -> None:
        self.host = host
        self.max_frame = max_frame
        self.max_connections = max_connections
        self.idle = idle
        self._answers: Answers | None = None
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def listen(self, port: int) -> tuple[str, int]:
        """Take connections, of any free port if it is 0: the host and the port that clients are given. Raises
        :class:`fencepost.errors.SystemFailure`."""
        name, _ = host_and_port(self.host.me.endpoint)
        try:
            self._server = await asyncio.start_server(self._connected, name, port)
        except OSError as error:
            raise SystemFailure(
                f"can not listen for Kafka's protocol on {name}:{port}: {error.strerror or error}"
            ) from error
        address = name, self._server.sockets[0].getsockname()[1]
        self._answers = Answers(self.host, address)
        return address

    async def close(self) -> None:
        """Take no connections any more, and close those that are there."""
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        peer = ":".join(map(str, (writer.get_extra_info("peername") or ("", 0))[:2]))
        try:
            if len(self._connections) >= self.max_connections:
                raise Malformed(f"is one more than {self.max_connections}, which is the limit")
            self._connections.add(task)
            await self._serve(reader, writer)
        except Malformed as error:
            _logger.warning("a connection of Kafka's protocol from %s is closed: it %s", peer, error)
        except TimeoutError:
            _logger.info("a connection of Kafka's protocol from %s is closed: it was idle", peer)
        except (OSError, EOFError, asyncio.CancelledError):
            pass  # whoever asked is gone, or the member ends
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._answers is not None
        while True:
            async with asyncio.timeout(self.idle):
                (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
                if not 0 <= length <= self.max_frame:
                    raise Malformed(f"announced a frame of {length:,} bytes, and the limit is {self.max_frame:,}")
                data = await reader.readexactly(length)
            request = decode_request(data)
            version, body = await self._answers.to(request)
            answer = encode_response(request.api, version, request.correlation, body)
            writer.write(_LENGTH.pack(len(answer)) + answer)
            async with asyncio.timeout(self.idle):
                await writer.drain()
