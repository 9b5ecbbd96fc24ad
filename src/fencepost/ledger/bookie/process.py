"""A bookie's process, from start to end: cookies, storage, server, registration, garbage collection, metrics."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import gc
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine
from types import ModuleType
from typing import Any, TypeVar

import msgspec

from fencepost.connections.open_files import connections_within
from fencepost.connections.tls import Tls
from fencepost.connections.users import CREDENTIALS, Credentials, Users
from fencepost.errors import OptionError, SystemFailure
from fencepost.ledger.autorecovery import process as autorecovery
from fencepost.ledger.bookie import cookies
from fencepost.ledger.bookie.directories import Directories, advertised, bind
from fencepost.ledger.bookie.garbage import collect
from fencepost.ledger.bookie.identity import identify, stamp_anew, stamp_first
from fencepost.ledger.bookie.metrics import Metrics
from fencepost.ledger.bookie.registration import UNREGISTERED, Registration
from fencepost.ledger.bookie.repair import Repair
from fencepost.ledger.bookie.server import LOOPS, OF_STORAGE, Server
from fencepost.ledger.bookie.settings import BookieSettings
from fencepost.ledger.client_configuration import ENVIRONMENT, ClientConfiguration
from fencepost.ledger.disk.settings import MIB
from fencepost.ledger.disk.storage import Storage
from fencepost.ledger.errors import ClusterExistsError, MetadataServiceError
from fencepost.ledger.kernels import ready as loops
from fencepost.ledger.metadata.client import MetadataClient
from fencepost.ledger.metadata.registration import BookieServiceInfo, Endpoint
from fencepost.ledger.roles.bookie import Bookie
from fencepost.ledger.rules.boot import CLEAN_END, Run, Step, steps_of_boot
from fencepost.ledger.rules.cookies import Boot, Cookie
from fencepost.ledger.shutdown import Shutdown
from fencepost.monitoring import http
from fencepost.traces import TraceWriter

T = TypeVar("T")

SPARE_FILES = 256
"""Open files that a bookie needs besides its connections: for entry logs (``OPEN_LOGS``), the journal, HTTP, sessions
with the metadata service, and connections to bookies that it repairs from.
"""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Options of the C library's ``mallopt``: free bytes that it keeps, and the size from which memory is mapped alone."""
_LARGEST_OPTION = (1 << 31) - 1

_log = logging.getLogger("fencepost.ledger.bookie")


async def serve(
    directory: str, settings: BookieSettings, ready: Callable[[str], None], storage_of: Callable[..., Storage] = Storage
) -> None:
    """Run a bookie until SIGTERM or SIGINT. A second signal ends the process at once. ``ready`` is called with the
    bookie's id once it serves.

    Raises :class:`fencepost.FencepostError` if it cannot start or continue. Everything that it has confirmed is then on
    its disks.
    """
    if not settings.metadata_service_uri:
        raise OptionError(
            "a bookie needs a metadata service: give --metadata zk://HOST:PORT/ledgers, or set metadataServiceUri"
        )
    most = connections_within(settings.max_connections, SPARE_FILES, "a bookie", "maxConnections", _log)
    settings = msgspec.structs.replace(settings, max_connections=most)
    tls, users = settings.tls(), settings.users()
    if settings.requires_tls and ClientConfiguration.of_environment().tls() is None:
        _log.warning(
            "this bookie cannot repair from bookies that require TLS, as it does: name a file by %s", ENVIRONMENT
        )
    if users is not None and Credentials.read() is None:
        _log.warning(
            "this bookie cannot repair from bookies that know users, as it does: name a file by %s", CREDENTIALS
        )
    directories = Directories.of(directory, settings)
    ended = _Shutdown()
    health = _Health()
    with (
        health.served(settings),
        contextlib.closing(bind(settings, directories.stamped())) as bound,
    ):
        try:
            client = await _connected(settings, directories, ended)
        except _AskedToEnd:
            return
        async with client:
            address = advertised(settings, bound)
            bookie_id = settings.bookie_id or "{}:{}".format(*address)
            repairs = settings.data_integrity_stamp_missing_cookies
            cookie = await _check_cookies(client, directories, bookie_id, repairs)
            process = _Process(
                settings, tls, users, directories, client, bookie_id, address, cookie, ended, health.metrics
            )
            health.registration = process.registration
            await process.take_storage(storage_of)
            try:
                records = await process.boot(bound)
                _log.info("bookie %s serves, with %d records of its ledgers and journal", process.bookie_id, records)
                process.begin_tasks()
                ready(process.bookie_id)
                if loops.is_required():
                    process.server.load_loops()
                await ended.wait()
                _log.info("bookie %s ends", process.bookie_id)
            except _AskedToEnd:
                _log.info("bookie %s ends, and has not served", process.bookie_id)
            finally:
                await process.end()
    ended.check()


class _Health:
    """What a bookie says of itself from its start on."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.registration: Registration | None = None

    def served(self, settings: BookieSettings) -> contextlib.AbstractContextManager[object]:
        """Serve it over HTTP, if that is configured. Raises :class:`SystemFailure`."""
        address, port = settings.prometheus_stats_http_address, settings.prometheus_stats_http_port
        return http.serve(self.metrics, self.why_not_ready, address, port)

    def why_not_ready(self) -> str:
        """Why the bookie does not serve. A read-only one does."""
        if self.registration is None:
            return "the bookie has no session with the metadata service yet"
        if not self.registration.server.is_listening:
            return "the bookie starts"
        return "the bookie is not registered" if self.registration.status == UNREGISTERED else ""


class _Process:
    """The parts of a bookie with a metadata session, from opening the storage until the end.

    ``cookie``: the one to stamp once all ledgers are marked, if a directory was lost.
    """

    def __init__(
        self,
        settings: BookieSettings,
        tls: Tls | None,
        users: Users | None,
        directories: Directories,
        client: MetadataClient,
        bookie_id: str,
        address: tuple[str, int],
        cookie: Cookie | None,
        ended: _Shutdown,
        counts: Metrics,
    ) -> None:
        """Create all parts but the storage. Nothing is served yet."""
        self.settings = settings
        self.directories = directories
        self.client = client
        self.bookie_id = bookie_id
        self.cookie = cookie
        self.ended = ended
        self.last_run = directories.last_run
        if cookie is None and self.last_run is None:
            _log.warning(
                "%s/%s/%s is missing, damaged or an older copy, and does not say that the last run has ended cleanly",
                directories.ledgers,
                cookies.CURRENT,
                cookies.RUNNING,
            )
        self.counts = counts
        self.trace: TraceWriter | None = None
        if settings.trace_directory:
            self.trace = TraceWriter(settings.trace_directory, node=bookie_id, started={"kind": "bookie"})
        role = Bookie(limits=settings.of_role(), traces=self.trace is not None)
        self.server = server = Server(role, settings, self.counts, ended.fail, tls, users, trace=self.trace)
        server.load_loops = lambda: loops.begin(LOOPS, functools.partial(_use, server))
        endpoint = Endpoint("bookie", *address, extensions=("tls",) if tls is not None else ())
        self.registration = Registration(client, bookie_id, BookieServiceInfo((endpoint,)), server, ended.fail)
        self.tasks: list[asyncio.Task[None]] = []
        self.has_begun_run = False

    async def take_storage(self, storage_of: Callable[..., Storage]) -> None:
        """Create the storage, without opening it. Raises :class:`SystemFailure`."""
        self.storage = await asyncio.to_thread(
            storage_of,
            self.directories.of_storage(self.settings),
            synced=self.server.synced,
            failed=self.server.failed,
            busy=self.server.busy,
            full=self.registration.full,
            took=self.counts.storage_took,
            compiled=lambda: loops.is_loaded(OF_STORAGE),
            has_lost_files=self.cookie is not None,
        )
        self.repair = Repair(self.server, self.storage, self.client, self.bookie_id, self.directories, self.settings)

    async def boot(self, bound: socket.socket) -> int:
        """Take the steps of a boot in order, until the bookie serves. Gives the number of records it has."""
        records = 0
        for step in steps_of_boot(has_lost_directory=self.cookie is not None, last_run=self.last_run):
            if step is Step.BEGIN_REPAIR:
                self.repair.begin()
            elif step is Step.OPEN_STORAGE:
                records = _open(self.server, self.storage, self.directories)
            elif step is Step.MARK_LEDGERS:
                await _patiently(self.repair.mark_ledgers, self.ended)
            elif step is Step.STAMP_COOKIES:
                assert self.cookie is not None
                if self.trace is not None:
                    self.trace.emit("bookie_stamps_cookies")
                await stamp_anew(self.client, self.directories, self.cookie)
            elif step is Step.NOTE_RUN:
                self._begin_run()
            else:
                await self._listen(bound)
        return records

    def _begin_run(self) -> None:
        """Record in the directories how this run uses the journal."""
        run = Run(journals_adds=self.settings.journal_write_data and self.settings.journal_sync_data)
        with self.storage.room_for_small_file():
            self.directories.record_run(run, self.directories.may_lack)
        self.has_begun_run = True
        if self.trace is not None:
            self.trace.emit("bookie_notes_run", None, {"journals_adds": run.journals_adds})

    async def _listen(self, bound: socket.socket) -> None:
        """Accept connections, and register."""
        self.counts.gauges |= self._gauges()
        await self.server.listen(bound)
        await self.registration.begin(self.settings.force_read_only_bookie)

    def _gauges(self) -> dict[str, Callable[[], float]]:
        server, repair = self.server, self.repair
        return {
            "bookie_SERVER_STATUS": lambda: self.registration.status,
            "bookie_ledgers_count": lambda: len(server.role.ledgers),
            "bookkeeper_server_ADD_ENTRY_IN_PROGRESS": lambda: server.role.adds_under_way,
            "bookkeeper_server_READ_ENTRY_IN_PROGRESS": lambda: len(server.role.lookups) + server.role.reads_under_way,
            "bookie_repair_ledgers_in_limbo": lambda: repair.limbo,
            "bookie_repair_ledgers_left": lambda: repair.progress.ledgers,
            "bookie_repair_entries_copied": lambda: repair.progress.entries,
            "bookie_repair_entries_lacking": lambda: repair.progress.lacking,
            "bookkeeper_server_connections": lambda: len(server.connections),
            "bookkeeper_server_in_flight_bytes": lambda: server.in_flight_bytes,
            "fencepost_bookie_disk_usage": lambda: self.storage.usage,
        }

    def begin_tasks(self) -> None:
        """Start the background work: registration, garbage collection, auto-recovery and the bookie's own repair."""
        settings = self.settings
        self._begin_task(self.registration.keep(), self.ended.done)
        self._begin_task(collect(self.server, self.storage, self.client, settings), self.ended.done)
        if settings.auto_recovery_daemon_enabled:
            beside = autorecovery.beside(
                settings.metadata_service_uri, settings.zk_timeout, self.bookie_id, settings, self.counts
            )
            self._begin_task(beside, self.ended.done)
        if self.directories.may_lack:
            self._begin_task(self.repair.run(), self.ended.repaired)

    def _begin_task(self, work: Coroutine[Any, Any, None], done: Callable[[asyncio.Task[None]], None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(done)
        self.tasks.append(task)

    async def end(self) -> None:
        """Stop all parts, the storage last."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.registration.end()
        await self.server.close()
        # A start that was interrupted has begun a journal file. A clean end before it still counts.
        is_clean = self.has_begun_run or self.last_run == CLEAN_END
        if await asyncio.to_thread(self.storage.close) and is_clean:
            with self.storage.room_for_small_file():
                self.directories.record_run(CLEAN_END, self.directories.may_lack)
        elif self.has_begun_run:
            _log.warning("bookie %s ends, and has not written all of its memory to entry logs", self.bookie_id)
        if self.trace is not None:
            await asyncio.to_thread(self.trace.close, self.ended.reason_fields)


def _use(server: Server, modules: list[ModuleType]) -> None:
    """Switch a bookie to compiled loops."""
    if gc.get_freeze_count():
        gc.freeze()  # the compiler's many objects stay, so the garbage collector need not visit them
    server.use(modules)


def _open(server: Server, storage: Storage, directories: Directories) -> int:
    """Open a bookie's storage. Gives the number of records. Raises :class:`SystemFailure`."""
    if not (storage.has_journal or directories.may_lack or any(map(cookies.is_first_start, directories))):
        raise SystemFailure(
            f"{directories.journal} has the bookie's cookie, and no journal: it is lost; bring it back, or empty the"
            " directory and set dataIntegrityStampMissingCookies to have what is missing copied from other bookies"
        )
    records = server.open(storage)
    _trim_memory()
    _keep_memory(2 * storage.settings.write_cache_max_size_mb * MIB)
    for directory in dict.fromkeys(directories):
        cookies.end_first_start(directory)
    return records


def _trim_memory() -> None:
    """Return the memory used to read entry logs and journal to the operating system. The C library would keep it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _keep_memory(size: float) -> None:
    """Have the C library keep up to ``size`` bytes that entries no longer use, for the next ones. Memory that is
    fetched anew from the operating system takes longer to fill than to copy.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_TRIM_THRESHOLD, min(int(size), _LARGEST_OPTION))
        set_option(_MMAP_THRESHOLD, 32 * MIB)


async def _connected(settings: BookieSettings, directories: Directories, ended: _Shutdown) -> MetadataClient:
    """Connect to the metadata service. Raises :class:`_AskedToEnd` if the bookie is asked to end first.

    A bookie that has been in a cluster waits for the service indefinitely, because after a power failure everything
    starts at once. For a new bookie the address may be wrong, so this raises :class:`MetadataServiceError`.
    """
    connect = functools.partial(
        MetadataClient.connect, settings.metadata_service_uri, session_timeout=settings.zk_timeout / 1000
    )
    return await _patiently(connect, ended, waits=any(each.cookie is not None for each in directories.stamped()))


class _AskedToEnd(Exception):
    """The bookie was asked to end before it served."""


class _Shutdown(Shutdown):
    """Why a bookie ends: a signal, or a part that cannot continue."""

    def __init__(self) -> None:
        super().__init__()
        self._reason = ""

    @property
    def reason_fields(self) -> dict[str, Any]:
        """The fields of a trace's last event: the error, if there is one."""
        error = self._reason or (f"{type(self._error).__name__}: {self._error}" if self._error is not None else "")
        return {"error": error} if error else {}

    def check(self) -> None:
        """Raise the error that ended the bookie, if there is one."""
        super().check()
        if self._reason:
            raise SystemFailure(f"the bookie has stopped, and confirms nothing more: {self._reason}")

    def fail(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._event.set()

    def done(self, task: asyncio.Task[None]) -> None:
        """A part of the bookie ended unexpectedly."""
        if not task.cancelled():
            self._error = self._error or task.exception()
            self._event.set()

    def repaired(self, task: asyncio.Task[None]) -> None:
        """The bookie's repair ended. Only a failure ends the bookie."""
        if not task.cancelled() and task.exception() is not None:
            self.done(task)


async def _check_cookies(
    client: MetadataClient, directories: Directories, bookie_id: str, repairs: bool
) -> Cookie | None:
    """Raise unless the directories belong to the bookie. At the first start, stamp them.

    A new bookie creates the cluster if there is none; one that has been in a cluster never does. If the bookie
    ``repairs`` itself and has lost a directory, gives the cookie to stamp once all ledgers are marked.
    """
    if (
        all(each.cookie is None and each.is_empty for each in directories.stamped())
        and not await client.is_initialised()
    ):
        with contextlib.suppress(ClusterExistsError):  # another bookie was faster
            _log.warning("the cluster %s is new", await client.initialise())
    found = await identify(client, directories, bookie_id)
    if found.decision.boot is Boot.STAMP:
        _log.info("bookie %s starts for the first time", bookie_id)
        await stamp_first(client, directories, found.own)
        return None
    problem = found.problem()
    if not problem:
        return None
    if repairs and found.may_be_repaired:
        _log.warning("the bookie repairs itself: %s", problem)
        return found.own.replace(token=cookies.draw_token())
    raise SystemFailure(f"the bookie does not start: {problem}")


async def _patiently(work: Callable[[], Awaitable[T]], ended: _Shutdown, waits: bool = True) -> T:
    """Do something that needs the metadata service. If it ``waits``, retry until the service is reachable. Raises
    :class:`_AskedToEnd` if the bookie is asked to end meanwhile.
    """
    over = asyncio.create_task(ended.wait())
    try:
        while True:
            working = asyncio.ensure_future(work())
            await asyncio.wait({working, over}, return_when=asyncio.FIRST_COMPLETED)
            if over.done():
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)
                raise _AskedToEnd
            try:
                return working.result()
            except MetadataServiceError as error:
                if not waits:
                    raise
                _log.warning("%s: the bookie waits for it", error)
    finally:
        over.cancel()
