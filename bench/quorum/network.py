"""A proxy for the traffic between members, which can be held up for each pair of members and each direction.

A member's endpoint is a port of this process; the member itself listens elsewhere. The first frame of a connection
names its sender, so the proxy knows both ends. Delayed bytes are not lost: they arrive when the cut is healed, as if
the network had resent them, or the connection breaks then. Administrators, and members that belong to no cluster yet,
are never cut off.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from fencepost.quorum.driver.frames import FrameError, FrameReader, Hello

T = TypeVar("T")

Pair = tuple[int, int]
"""From whom to whom bytes go."""

NOBODY = 0

_CHUNK = 1 << 16


class Network:
    """Proxies in front of members, on a loop in a thread of their own."""

    def __init__(self) -> None:
        self._cuts: set[Pair] = set()
        self._loop = asyncio.new_event_loop()
        self._changed = asyncio.Event()
        self._held: set[asyncio.StreamWriter] = set()
        self._open: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._thread.start()

    def _do(self, call: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result(60)

    def listen(self, ports: Mapping[int, tuple[int, int]]) -> None:
        """Stand in for members, by their ids: the port where others reach each, and the one where it listens."""

        async def listening() -> None:
            for member, (port, behind) in ports.items():

                def taken(reader: Any, writer: Any, member: int = member, behind: int = behind) -> None:
                    task = self._loop.create_task(self._serve(member, behind, reader, writer))
                    self._open.add(task)
                    task.add_done_callback(self._open.discard)

                await asyncio.start_server(taken, "127.0.0.1", port)

        self._do(listening())

    def cut(self, pairs: Iterable[Pair]) -> None:
        """Hold up what goes from the first to the second of each pair."""

        async def done() -> None:
            self._cuts.update(pairs)

        self._do(done())

    def heal(self, pairs: Iterable[Pair] | None = None, breaks: bool = False) -> None:
        """Let through what was held up, of some pairs or of all; ``breaks``: or break the connections in which
        something was.
        """

        async def done() -> None:
            self._cuts -= self._cuts.copy() if pairs is None else set(pairs)
            if breaks:
                for writer in self._held:
                    writer.transport.abort()
            self._changed.set()
            self._changed = asyncio.Event()

        self._do(done())

    async def _serve(self, to: int, behind: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            first = await reader.readexactly(4)
            first += await reader.readexactly(int.from_bytes(first))
            source = _source(first)
            await self._passes((source, to), writer)
            other, behind_it = await asyncio.open_connection("127.0.0.1", behind)
            writers.append(behind_it)
            behind_it.write(first)
            ways = [self._pump(reader, behind_it, (source, to)), self._pump(other, writer, (to, source))]
            await asyncio.wait([asyncio.ensure_future(way) for way in ways], return_when=asyncio.FIRST_COMPLETED)
        except (OSError, asyncio.IncompleteReadError, FrameError):
            pass
        finally:
            for each in writers:
                each.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pair: Pair) -> None:
        with contextlib.suppress(OSError):
            while True:
                data = await reader.read(_CHUNK)
                await self._passes(pair, writer)
                if not data:
                    return
                writer.write(data)
                await writer.drain()

    async def _passes(self, pair: Pair, writer: asyncio.StreamWriter) -> None:
        """Return when nothing holds up what goes this way."""
        while pair in self._cuts:
            self._held.add(writer)
            try:
                await self._changed.wait()
            finally:
                self._held.discard(writer)

    def close(self) -> None:
        """End all."""

        async def ended() -> None:
            for task in list(self._open):
                task.cancel()
            await asyncio.sleep(0)

        self._do(ended())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


def _source(frame: bytes) -> int:
    """The member that opens a connection with this frame."""
    for each in FrameReader(1 << 20).feed(frame):
        if isinstance(each, Hello) and each.replica is not None:
            return each.replica.host_id
    return NOBODY
