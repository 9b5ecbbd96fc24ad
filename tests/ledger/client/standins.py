"""Stand-ins for the peers of a client: bookies that serve the role over loopback from memory, and a metadata service in
the process.

A test injects faults: it stops a bookie, restarts it with its durable state, or makes it ignore requests or answer them
with a code.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from itertools import chain
from typing import Any

import msgspec
from ledger.singly import asked, found, replayed, singly

from fencepost.ledger import errors
from fencepost.ledger.client.client import LedgerClient
from fencepost.ledger.client.driver import Driver
from fencepost.ledger.client.settings import ClientSettings
from fencepost.ledger.messages import (
    AddEntry,
    AddEntryResponse,
    ReadEntry,
    ReadEntryResponse,
    StartTls,
    StartTlsResponse,
)
from fencepost.ledger.metadata.address import parse
from fencepost.ledger.metadata.client import Bookies, LedgerInService
from fencepost.ledger.metadata.registration import BookieServiceInfo, Endpoint
from fencepost.ledger.metadata.session import Session
from fencepost.ledger.records import EntryAdded
from fencepost.ledger.roles import interface as i
from fencepost.ledger.roles.bookie import Bookie
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.metadata import LedgerMetadata
from fencepost.ledger.wire.frames import Frames
from fencepost.ledger.wire.v3 import decode_request, encode_response

QUICK = ClientSettings(
    request_timeout=1.0,
    connect_timeout=5.0,
    quarantine=60.0,
    metadata_timeout=1.0,
    speculation_delay=0.02,
    poll_wait=0.2,
)
"""Settings of a client that gives up soon."""


class StandInBookie:
    """A bookie. ``swallow``: which requests it never answers. ``codes``: the codes it answers adds with instead of
    taking them. ``refuses_reads``: whether a read is refused as one too many.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.role = Bookie()
        self.records: list[Any] = []
        self.entries: dict[tuple[int, int], bytes] = {}
        self.swallow: Callable[[Any], bool] = lambda request: False
        self.code_for_adds: Code | None = None
        self.refuses_reads: Callable[[ReadEntry], bool] = lambda request: False
        self.asked: list[Any] = []
        self.read: Any = None
        """The request that the role is handling, with its number."""
        self.tls: Any = None
        self.server: asyncio.Server | None = None
        self.connections: dict[int, asyncio.StreamWriter] = {}
        self.port = 0

    async def start(self) -> None:
        """Listen. Where it listened before, a connection of somebody else may have the port for a while."""
        async with asyncio.timeout(30):
            while self.server is None:
                try:
                    self.server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
                except OSError:
                    await asyncio.sleep(0.05)
        self.port = self.server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop at once."""
        if self.server is not None:
            self.server.close()
            for writer in [*self.connections.values()]:
                writer.transport.abort()
            self.connections.clear()
            await self.server.wait_closed()
            self.server = None

    async def restart(self) -> None:
        """Restart with the durable state, which here is everything."""
        await self.stop()
        records, self.records, self.role = self.records, [], Bookie()
        for record in records:
            self.role.receive(replayed(record), 0)
        self.records = records
        await self.start()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = max(self.connections, default=0) + 1
        self.connections[number] = writer
        frames = Frames()
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            while data := await reader.read(65536):
                for payload in frames.feed(data):
                    txn, request = decode_request(payload)
                    if type(request) is StartTls:
                        if self.tls is None:
                            writer.write(encode_response(txn, StartTlsResponse(Code.BAD_REQUEST)))
                        else:
                            writer.write(encode_response(txn, StartTlsResponse(Code.OK)))
                            await writer.start_tls(self.tls)
                        continue
                    self.asked.append(request)
                    if self.swallow(request):
                        continue
                    if type(request) is AddEntry and self.code_for_adds is not None:
                        refusal = AddEntryResponse(request.ledger, request.entry_id, self.code_for_adds)
                        writer.write(encode_response(txn, refusal))
                        continue
                    if type(request) is ReadEntry and self.refuses_reads(request):
                        refused = ReadEntryResponse(request.ledger, request.entry_id, Code.TOO_MANY_REQUESTS)
                        writer.write(encode_response(txn, refused))
                        continue
                    self.read = txn, request
                    self._carry_out(self.role.receive(asked(number, txn, request), 0))
        self.connections.pop(number, None)

    def _carry_out(self, effects: list[Any]) -> None:
        for effect in chain.from_iterable(map(singly, effects)):
            if type(effect) is i.Answer:
                writer = self.connections.get(effect.connection)
                if writer is not None and not writer.is_closing():
                    writer.write(encode_response(effect.txn, effect.response))
            elif type(effect) is i.Journal:
                self.records.append(effect.record)
                if type(effect.record) is EntryAdded:
                    self.entries[effect.record.ledger, effect.record.entry_id] = effect.record.body
                self._carry_out(self.role.receive(i.JournalSynced(effect.position), 0))
            elif type(effect) is i.LookUpReads:
                txn, request = self.read
                body = self.entries.get((request.ledger, request.entry_id))
                code = Code.NO_ENTRY if body is None else Code.OK
                read = txn, request.entry_id, body
                self._carry_out(self.role.receive(found(effect, request.ledger, code, read), 0))
            elif type(effect) is i.LookUp:
                ids = [entry_id for ledger, entry_id in self.entries if ledger == effect.ledger]
                wanted = max(ids, default=-1) if effect.entry_id == -1 else effect.entry_id
                body = self.entries.get((effect.ledger, wanted))
                code = Code.NO_ENTRY if body is None else Code.OK
                self._carry_out(self.role.receive(i.Found(effect.number, code, wanted, body), 0))
            elif type(effect) is i.FindRuns:
                ids = sorted(entry_id for ledger, entry_id in self.entries if ledger == effect.ledger)
                runs: list[list[int]] = []
                for entry_id in ids:
                    if runs and runs[-1][1] == entry_id - 1:
                        runs[-1][1] = entry_id
                    else:
                        runs.append([entry_id, entry_id])
                self._carry_out(
                    self.role.receive(i.RunsFound(effect.number, Code.OK, tuple((a, b) for a, b in runs)), 0)
                )
            elif type(effect) is i.SetTimer:
                loop = asyncio.get_running_loop()
                loop.call_later(effect.delay / 1_000_000, self._fire, effect.key)

    def _fire(self, key: Any) -> None:
        self._carry_out(self.role.receive(i.TimerFired(key), 0))


class StandInMetadata:
    """A metadata service in the process, with the interface of the metadata client. ``lose``: the number of answers to
    writes that are lost.
    """

    def __init__(self) -> None:
        self.address = parse("zk://127.0.0.1:1/ledgers")
        self.ledgers_there: dict[int, tuple[LedgerMetadata, int]] = {}
        self.watches: dict[int, set[Any]] = {}
        self.bookie_listeners: list[Any] = []
        self.session_listeners: list[Any] = []
        self.infos: dict[str, BookieServiceInfo | None] = {}
        self.registered = Bookies()
        self.lose = 0
        self.is_reachable = True
        self.ids = iter(range(1 << 30))

    def listen(self, callback: Any) -> Callable[[], None]:
        self.session_listeners.append(callback)
        return lambda: self.session_listeners.remove(callback)

    def session(self, session: Session) -> None:
        """Set the state of the session."""
        self.is_reachable = session is Session.CONNECTED
        for listener in [*self.session_listeners]:
            listener(session)

    async def close(self) -> None:
        """Nothing to close."""

    async def instance_id(self) -> str:
        return "standin"

    async def new_ledger_id(self) -> int:
        return next(self.ids)

    def _reached(self) -> None:
        if not self.is_reachable:
            raise errors.OutcomeUnknownError("the connection is lost")

    async def create_ledger(self, ledger: int, metadata: LedgerMetadata) -> int:
        self._reached()
        if ledger in self.ledgers_there:
            raise errors.LedgerExistsError(f"ledger {ledger} exists already")
        return self._change(ledger, metadata, 0)

    async def read_ledger(self, ledger: int, watch: Any = None) -> LedgerInService:
        self._reached()
        if ledger not in self.ledgers_there:
            raise errors.NoSuchLedgerError(f"there is no ledger {ledger}")
        if watch is not None:
            self.watches.setdefault(ledger, set()).add(watch)
        return LedgerInService(*self.ledgers_there[ledger])

    async def write_ledger(self, ledger: int, metadata: LedgerMetadata, version: int) -> int:
        known = (await self.read_ledger(ledger)).version
        if known != version:
            raise errors.BadVersionError(f"the metadata of ledger {ledger} were changed by somebody else")
        return self._change(ledger, metadata, version + 1)

    def _change(self, ledger: int, metadata: LedgerMetadata, version: int) -> int:
        self.ledgers_there[ledger] = metadata, version
        self._tell(ledger)
        if self.lose:
            self.lose -= 1
            raise errors.OutcomeUnknownError("the answer is lost")
        return version

    def _tell(self, ledger: int) -> None:
        for watch in self.watches.pop(ledger, set()):
            asyncio.get_running_loop().call_soon(watch, ledger)

    async def delete_ledger(self, ledger: int, version: int = -1) -> None:
        if self.ledgers_there.pop(ledger, None) is None:
            raise errors.NoSuchLedgerError(f"there is no ledger {ledger}")
        self._tell(ledger)

    async def ledgers(self) -> AsyncIterator[int]:
        for ledger in sorted(self.ledgers_there):
            yield ledger

    async def bookies(self) -> Bookies:
        return self.registered

    async def watch_bookies(self, callback: Any) -> Callable[[], None]:
        self.bookie_listeners.append(callback)
        callback(self.registered)
        return lambda: self.bookie_listeners.remove(callback)

    async def bookie_info(self, bookie: str) -> BookieServiceInfo | None:
        return self.infos.get(bookie)

    def register(self, writable: tuple[str, ...], read_only: tuple[str, ...] = ()) -> None:
        """Register these bookies and no others."""
        self.registered = Bookies(writable, read_only)
        for listener in [*self.bookie_listeners]:
            listener(self.registered)


class Cluster:
    """Bookies b1, b2, ..., a metadata service, and clients."""

    def __init__(self, bookies: int) -> None:
        self.metadata = StandInMetadata()
        self.bookies = {name: StandInBookie(name) for name in (f"b{number}" for number in range(1, bookies + 1))}
        self.stores: list[LedgerClient] = []

    async def __aenter__(self) -> Cluster:
        for bookie in self.bookies.values():
            await bookie.start()
            self.metadata.infos[bookie.name] = BookieServiceInfo((Endpoint("bookie", "127.0.0.1", bookie.port),))
        self.metadata.register(tuple(self.bookies))
        return self

    async def __aexit__(self, *_: object) -> None:
        for store in self.stores:
            await store.close()
        for bookie in self.bookies.values():
            await bookie.stop()

    async def connect(self, **settings: Any) -> LedgerClient:
        """A client."""
        made = msgspec.structs.replace(QUICK, **settings)
        store = LedgerClient(await Driver.start(self.metadata, made))  # type: ignore[arg-type]
        self.stores.append(store)
        return store

    async def kill(self, name: str, registered: bool = False) -> None:
        """Stop a bookie. Its registration ends too, unless it remains ``registered``."""
        await self.bookies[name].stop()
        if not registered:
            self.metadata.register(tuple(each for each in self.metadata.registered.writable if each != name))
