"""Byte streams between simulated processes, like TCP, for code that runs on their loops.

Bytes in one direction arrive in order or not at all. A stream breaks with everything in flight on it; one side may not
notice (a half-open connection). Bytes sent to a restarted machine are answered by a reset.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from itertools import count
from random import Random
from typing import Any

from fencepost.simulation.links import Links
from fencepost.simulation.loop import SimLoop
from fencepost.simulation.schedule import Schedule

Factory = Callable[[], asyncio.BaseProtocol]
Heard = Callable[[str, str, bytes], None]
"""Receives arriving bytes: from which process, at which process, and the bytes."""


class ProcessLoop(SimLoop):
    """The loop of a process, with the name by which others reach it."""

    def __init__(self, streams: Streams, name: str) -> None:
        super().__init__(streams.schedule)
        self.streams = streams
        self.name = name
        streams.current[name] = self
        streams.loops.append(self)

    async def create_connection(
        self, factory: Factory, host: str, port: int, **options: Any
    ) -> tuple[asyncio.Transport, Any]:
        """See :class:`asyncio.AbstractEventLoop`."""
        opening = self.create_future()
        self.streams.connect(self, factory, (host, port), opening)
        transport, protocol = await opening
        return transport, protocol

    def end(self, noticed: bool) -> None:
        """The process is gone. Its peers notice at once, or not at all (power loss)."""
        self.has_ended = True
        self.streams.lose_all(self.name, noticed)


class Streams(Links):
    """All streams of a run."""

    def __init__(self, schedule: Schedule, random: Random, slow: float, heard: Heard) -> None:
        super().__init__(schedule, random, slow)
        self.heard = heard
        self.current: dict[str, ProcessLoop] = {}
        """The latest process of each name."""
        self.loops: list[ProcessLoop] = []
        """The loops of all processes ever started, including dead ones."""
        self.listeners: dict[tuple[str, int], tuple[ProcessLoop, Factory]] = {}
        self.streams: dict[int, Stream] = {}
        self._numbers = count(1)

    def listen(self, loop: ProcessLoop, port: int, factory: Factory) -> None:
        """Accept connections for a process on a port."""
        self.listeners[loop.name, port] = loop, factory

    def connect(self, loop: ProcessLoop, factory: Factory, address: tuple[str, int], opening: Any) -> None:
        """Open a stream; ``opening`` gets its transport and protocol."""
        at = self.arrival(loop.name, address[0], 0)
        self.schedule.at(at, self._arrive, loop, factory, address, opening)

    def _arrive(self, loop: ProcessLoop, factory: Factory, address: tuple[str, int], opening: Any) -> None:
        server, serve = self.listeners.get(address, (None, None))
        if server is None or serve is None or server.has_ended:
            at = self.arrival(address[0], loop.name, 0)
            self.schedule.at(at, loop.does, _fail, opening, ConnectionRefusedError("connection refused"))
            return
        stream = Stream(self, next(self._numbers), loop, server)
        self.streams[stream.number] = stream
        server.does(stream.answering.begin, serve)
        at = stream.answering.arrives = self.arrival(server.name, loop.name, 0)
        self.schedule.at(at, self._established, stream, factory, opening)

    def _established(self, stream: Stream, factory: Factory, opening: Any) -> None:
        if stream.is_broken:
            stream.asking.loop.does(_fail, opening, ConnectionResetError("connection reset"))
        elif stream.asking.loop.has_ended or opening.done():
            self.lose(stream, noticed=True)
        else:
            stream.asking.loop.does(stream.asking.begin, factory, opening)

    def lose(self, stream: Stream, noticed: bool) -> None:
        """Break a stream: bytes in flight and sent later are lost. Both sides notice, or neither does."""
        stream.is_broken = True
        self.streams.pop(stream.number, None)
        if noticed:
            for end in stream.ends:
                at = self.arrival(end.peer.loop.name, end.loop.name, 0)
                self.schedule.at(at, end.lost, ConnectionResetError("connection reset"))

    def lose_all(self, name: str, noticed: bool) -> None:
        """Break all streams of a process."""
        for stream in [*self.streams.values()]:
            if name in (stream.asking.loop.name, stream.answering.loop.name):
                self.lose(stream, noticed)


class Stream:
    """One stream, from the process that opened it to the other."""

    __slots__ = ("answering", "asking", "ends", "is_broken", "number")

    def __init__(self, streams: Streams, number: int, asking: ProcessLoop, answering: ProcessLoop) -> None:
        self.number = number
        self.is_broken = False
        self.asking = SimTransport(streams, self, asking)
        self.answering = SimTransport(streams, self, answering)
        self.asking.peer, self.answering.peer = self.answering, self.asking
        self.ends = self.asking, self.answering


class SimTransport(asyncio.Transport):
    """One end of a stream. ``arrives``: the arrival time of the latest bytes sent."""

    peer: SimTransport

    def __init__(self, streams: Streams, stream: Stream, loop: ProcessLoop) -> None:
        super().__init__()
        self.streams = streams
        self.stream = stream
        self.loop = loop
        self.arrives = 0
        self.protocol: Any = None
        self.is_over = False
        self._is_paused = False
        self._held: deque[bytes] = deque()

    def begin(self, factory: Factory, opening: asyncio.Future[Any] | None = None) -> None:
        """The stream is established."""
        if opening is not None and opening.done():  # the caller has given up
            self.close()
            return
        self.protocol = factory()
        self.protocol.connection_made(self)
        if opening is not None:
            opening.set_result((self, self.protocol))

    # -- arrivals ------------------------------------------------------------------------------------------------------

    def _receive(self, data: bytes) -> None:
        if self.stream.is_broken or self.is_over or self.loop.has_ended:
            return
        self.streams.heard(self.peer.loop.name, self.loop.name, data)
        if self._is_paused or self._held:
            self._held.append(data)
        else:
            self.loop.does(self._deliver, data)

    def _deliver(self, data: bytes) -> None:
        if self.is_over:  # closed while the process was paused
            return
        if not isinstance(self.protocol, asyncio.BufferedProtocol):
            self.protocol.data_received(data)
            return
        while data and not self.is_over:
            buffer: Any = self.protocol.get_buffer(len(data))
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            data = data[size:]
            self.protocol.buffer_updated(size)

    def lost(self, error: Exception | None = None) -> None:
        """The stream is gone."""
        if not self.is_over:
            self.is_over = True
            self.loop.does(self._notify_lost, error)

    def _notify_lost(self, error: Exception | None) -> None:
        if self.protocol is not None:
            self.protocol.connection_lost(error)

    # -- the interface of asyncio transports ---------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See :class:`asyncio.Transport`, as for all below."""
        if self.is_over or self.loop.has_ended:
            return
        if self.stream.is_broken:
            self._reset_if_restarted()
        else:
            self._send(self.peer._receive, bytes(data))

    def _reset_if_restarted(self) -> None:
        """If the peer has restarted, it resets the unknown stream."""
        name = self.peer.loop.name
        if self.peer.loop.has_ended and not self.streams.current[name].has_ended:
            at = self.streams.arrival(name, self.loop.name, 0)
            self.streams.schedule.at(at, self.lost, ConnectionResetError("connection reset"))

    def _send(self, call: Callable[..., None], *arguments: Any) -> None:
        self.arrives = self.streams.arrival(self.loop.name, self.peer.loop.name, self.arrives)
        self.streams.schedule.at(self.arrives, call, *arguments)

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if self.is_over or self.loop.has_ended:
            return
        self.is_over = True
        if not self.stream.is_broken:
            self._send(self.peer.lost)
            self.streams.streams.pop(self.stream.number, None)
        self.loop.call_soon(self._notify_lost, None)

    abort = close

    def is_closing(self) -> bool:
        return self.is_over

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        of = {"peername": self.peer.loop.name, "sockname": self.loop.name}.get(name)
        return default if of is None else (of, self.stream.number)

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self.loop.call_soon(self._deliver_held)

    def _deliver_held(self) -> None:
        while self._held and not self._is_paused and not self.is_over:
            self._deliver(self._held.popleft())

    def get_protocol(self) -> Any:
        return self.protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol


def _fail(opening: asyncio.Future[Any], error: Exception) -> None:
    if not opening.done():
        opening.set_exception(error)
