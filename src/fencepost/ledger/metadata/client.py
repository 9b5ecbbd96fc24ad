"""The client of the metadata service: ledgers, bookies, cookies and ids in a ZooKeeper tree, in the layout of
BookKeeper.

An operation has exactly one outcome. After a lost connection, an expired session or a timeout, it fails with
:class:`OutcomeUnknownError`, and a later answer is dropped. When a session expires, a new one is opened and listeners
are notified.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Self

import msgspec
from kazoo import exceptions
from kazoo.protocol.serialization import CheckVersion, Delete, SetData

from fencepost.connections.tls import Tls
from fencepost.connections.users import CREDENTIALS, Credentials
from fencepost.ledger import errors
from fencepost.ledger.client_configuration import ClientConfiguration
from fencepost.ledger.metadata import paths, racks, registration, serialization
from fencepost.ledger.metadata.address import Address, parse
from fencepost.ledger.metadata.ids import LedgerIds
from fencepost.ledger.metadata.registration import BookieServiceInfo
from fencepost.ledger.metadata.session import Session, ZooKeeperSession, creation
from fencepost.ledger.rules.metadata import LedgerMetadata
from fencepost.ledger.rules.placement import Placement, Policy

_LOST = (
    exceptions.ConnectionLoss,
    exceptions.SessionExpiredError,
    exceptions.ConnectionClosedError,
    exceptions.OperationTimeoutError,
    exceptions.SessionMovedError,
)
"""kazoo's errors that leave the outcome of an operation unknown."""

_LAYOUTS = "org.apache.bookkeeper.meta."
_HIERARCHICAL = "HierarchicalLedgerManagerFactory"
_LONG_HIERARCHICAL = "LongHierarchicalLedgerManagerFactory"

_ANY_VERSION = -1

PATIENT = 1.0
"""Seconds without a session after which the reason is logged while connecting."""

LARGEST_NODE = 1_000_000
"""The largest node, in bytes. A metadata service accepts requests of 1 MiB by default."""

Watch = tuple[Callable[..., None], *tuple[Any, ...]]
"""A function and its arguments."""

_log = logging.getLogger("fencepost.ledger.metadata")
_user_log = logging.getLogger("fencepost.ledgers")  # visible unless logging is configured otherwise
# Clients retry, so the reasons of failures are logged only on request. Only the ``fencepost.ledgers`` log is visible.
logging.getLogger("fencepost.ledger").addHandler(logging.NullHandler())


class LedgerInService(msgspec.Struct, frozen=True):
    """A ledger's metadata, their version for updates, and their creation time in milliseconds since 1970."""

    metadata: LedgerMetadata
    version: int
    created: int = 0


class Bookies(msgspec.Struct, frozen=True):
    """The ids of the registered bookies, writable and read-only; the racks of all bookies that have one, and the groups
    of all that are in some.
    """

    writable: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    racks: tuple[tuple[str, str], ...] = ()
    groups: tuple[tuple[str, str], ...] = ()

    def placement(self, policy: Policy) -> Placement:
        """Where entries are placed by a policy."""
        return Placement(policy, self.racks, self.groups)


class Registered(msgspec.Struct, frozen=True):
    """A bookie's registration: its path, its version, and its contents; None if it holds only the bookie's id."""

    path: str
    version: int
    info: BookieServiceInfo | None


class Node(msgspec.Struct, frozen=True):
    """A node: its data, its version, and the session that owns it, 0 if it is not ephemeral."""

    data: bytes
    version: int
    owner: int = 0


class MetadataClient:
    """A session with the metadata service of one cluster. Create it with :meth:`connect`, and :meth:`close` it.

    Every coroutine raises :class:`MetadataServiceError` if the service refuses the operation, and its subclass
    :class:`OutcomeUnknownError` if the answer was lost. Reads and idempotent writes are retried until
    ``operation_timeout``. Creating, replacing and deleting a ledger are tried once.
    """

    def __init__(
        self,
        address: Address,
        session_timeout: float,
        operation_timeout: float,
        tls: Tls | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self.address = address
        self.credentials = credentials
        self.session_timeout = session_timeout
        self.operation_timeout = operation_timeout
        self.loop = asyncio.get_running_loop()
        self.session = Session.DISCONNECTED
        self._listeners: list[Callable[[Session], None]] = []
        self._watches: dict[str, dict[Watch, None]] = {}
        """The callbacks to call when the node at a path may have changed."""
        self._long_paths = False
        self._is_closed = False
        self._is_refused = False
        self._connected = asyncio.Event()
        self._zookeeper = self._new_session(tls)
        self._ids = LedgerIds(self)

    def _new_session(self, tls: Tls | None) -> ZooKeeperSession:
        """The session, not started."""
        return ZooKeeperSession(self.address.servers, self.session_timeout, self, tls, self.credentials)

    # -- the session ---------------------------------------------------------------------------------------------------

    @classmethod
    async def connect(
        cls,
        uri: str,
        *,
        session_timeout: float = 10.0,
        connect_timeout: float = 15.0,
        operation_timeout: float = 30.0,
        tls: Tls | None = None,
        credentials: Credentials | None = None,
    ) -> Self:
        """Open a session with the service at ``uri``, see :mod:`.address`. Times are in seconds. ``tls``: by default
        that of the environment's :class:`fencepost.ledger.client_configuration.ClientConfiguration`. ``credentials``:
        the user for SASL, by default from :meth:`fencepost.connections.users.Credentials.read`. After :data:`PATIENT`
        seconds without a session, the reason is logged.

        The cluster need not exist yet, see :meth:`initialise`. Raises :class:`fencepost.OptionError` for a malformed
        address, :class:`MetadataServiceError` if the service does not answer, and :class:`UnknownLayoutError` if the
        ledgers have another layout than BookKeeper's hierarchical one.
        """
        configured = ClientConfiguration.of_environment()
        tls = tls or (configured.tls() if configured.metadata_tls else None)
        client = cls(parse(uri), session_timeout, operation_timeout, tls, credentials or Credentials.read())
        try:
            client._zookeeper.start()
            async with asyncio.timeout(connect_timeout):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PATIENT):
                        await client._connected.wait()
                if not client._connected.is_set():
                    _user_log.warning(
                        "the metadata service at %s %s; trying for %g s more",
                        client.address.hosts,
                        await client._refusal(),
                        connect_timeout - PATIENT,
                    )
                    await client._connected.wait()
            if client._is_refused and client.credentials is not None:
                raise errors.MetadataServiceError(
                    f"the metadata service at {client.address.hosts} does not let {client.credentials.user} in: is the"
                    " password right, and is the user known there?"
                )
            await client._read_layout()
        except BaseException as error:
            await client.close()
            if isinstance(error, TimeoutError):
                raise errors.MetadataServiceError(
                    f"no metadata service answers at {client.address.hosts} within {connect_timeout:g} s"
                ) from None
            raise
        return client

    def login_refused(self) -> None:
        """See :class:`.session.Owner`."""
        self._is_refused = True
        self._connected.set()

    async def _refusal(self) -> str:
        """Why there is no session with any of its servers, in words."""
        for host, _, port in (each.rpartition(":") for each in self.address.hosts.split(",")):
            try:
                async with asyncio.timeout(PATIENT):
                    _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
                writer.close()
                return "does not answer"
            except ConnectionRefusedError:
                continue
            except socket.gaierror:
                return f"cannot be reached: there is no host {host}"
            except (OSError, ValueError):
                return "does not answer"
        return "refuses connections"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the session, which deletes its ephemeral nodes at once."""
        if self._is_closed:
            return
        self._is_closed = True
        await self._zookeeper.stop()

    def listen(self, callback: Callable[[Session], None]) -> Callable[[], None]:
        """Call ``callback`` when the session's state changes. Returns a function that ends this."""
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)

    @property
    def session_id(self) -> int | None:
        """The session's number; None if there is none."""
        client_id = self._zookeeper.client_id
        return None if client_id is None else client_id[0]

    # -- the cluster ---------------------------------------------------------------------------------------------------

    async def initialise(self) -> str:
        """Create a new cluster, like ``bookkeeper shell initnewcluster``. Returns its instance id. Raises
        :class:`ClusterExistsError`.
        """
        instance_id = str(uuid.uuid4())
        layout = f"2\n{_LAYOUTS}{self.address.layout or _HIERARCHICAL}:1"
        parent = self.address.root.rpartition("/")[0]
        if parent:
            await self._make_path(parent)
        nodes = [
            creation(self.address.root),
            creation(self._path(paths.AVAILABLE)),
            creation(self._path(paths.READ_ONLY)),
            creation(self._path(paths.INSTANCE_ID), instance_id.encode()),
            creation(self._path(paths.LAYOUT), layout.encode()),
        ]
        results = await self._once("a new cluster", self._zookeeper.multi, nodes)
        if any(isinstance(result, exceptions.NodeExistsError) for result in results):
            raise errors.ClusterExistsError(f"there is a cluster at {self.address} already")
        failed = next((result for result in results if isinstance(result, Exception)), None)
        if failed is not None:
            raise self._refused("a new cluster", failed)
        await self._read_layout()
        return instance_id

    async def sync(self) -> None:
        """Wait until later reads see every earlier write of any client: a server of a quorum may lag."""
        await self._retry(self._zookeeper.sync, self.address.root)

    async def is_initialised(self) -> bool:
        """Whether there is a cluster at this address."""
        return await self._retry(self._zookeeper.exists, self._path(paths.LAYOUT)) is not None

    async def instance_id(self) -> str:
        """The cluster's id, drawn at its creation and stored in bookies' cookies. Raises :class:`NoClusterError`."""
        try:
            data, _ = await self._retry(self._zookeeper.get, self._path(paths.INSTANCE_ID))
        except exceptions.NoNodeError:
            raise errors.NoClusterError(
                f"there is no cluster at {self.address}: make one, or correct the address"
            ) from None
        return str(data.decode())

    async def _read_layout(self) -> None:
        try:
            data, _ = await self._retry(self._zookeeper.get, self._path(paths.LAYOUT))
        except exceptions.NoNodeError:
            return
        version, _, manager = data.decode(errors="replace").partition("\n")
        layout = manager.strip().partition(":")[0].removeprefix(_LAYOUTS)
        if version not in ("1", "2") or layout not in (
            _HIERARCHICAL,
            _LONG_HIERARCHICAL,
            "hierarchical",
            "longhierarchical",
        ):
            raise errors.UnknownLayoutError(
                f"the ledgers at {self.address} are laid out by {layout or version!r}, and only {_HIERARCHICAL} is"
                " known"
            )
        if self.address.layout not in (None, layout):
            raise errors.UnknownLayoutError(
                f"the ledgers at {self.address} are laid out by {layout}, not by {self.address.layout}"
            )
        self._long_paths = layout in (_LONG_HIERARCHICAL, "longhierarchical")

    # -- ledgers -------------------------------------------------------------------------------------------------------

    async def create_ledger(self, ledger: int, metadata: LedgerMetadata) -> int:
        """Create a ledger's metadata, and return their version. Raises :class:`LedgerExistsError`."""
        path, data = self._ledger_path(ledger), self._serialised(ledger, metadata)
        while True:
            try:
                await self._once(f"ledger {ledger}", self._zookeeper.create, path, data)
                return 0
            except exceptions.NodeExistsError:
                raise errors.LedgerExistsError(f"ledger {ledger} exists already") from None
            except exceptions.NoNodeError:
                if not await self.is_initialised():
                    raise errors.NoClusterError(f"there is no cluster at {self.address}") from None
                await self._make_path(path.rpartition("/")[0])

    async def read_ledger(self, ledger: int, watch: Callable[[int], None] | None = None) -> LedgerInService:
        """A ledger's metadata and their version. ``watch`` is called once with the ledger, when the metadata have
        changed or may have changed.

        They may have changed if the connection was lost. Raises :class:`NoSuchLedgerError`, and
        :class:`UnknownLayoutError` if the metadata cannot be read.
        """
        try:
            watched = (watch, ledger) if watch is not None else None
            data, stat = await self._retry(self._zookeeper.get, self._ledger_path(ledger), watch=watched)
        except exceptions.NoNodeError:
            raise errors.NoSuchLedgerError(f"there is no ledger {ledger}") from None
        try:
            return LedgerInService(serialization.from_bytes(data), stat.version, stat.ctime)
        except serialization.MetadataFormatError as error:
            raise errors.UnknownLayoutError(
                f"the metadata of ledger {ledger} are damaged or foreign: {error}"
            ) from error

    async def write_ledger(self, ledger: int, metadata: LedgerMetadata, version: int) -> int:
        """Replace a ledger's metadata if they still have this version, and return the next version. Raises
        :class:`BadVersionError` if they do not, and :class:`NoSuchLedgerError`.
        """
        data = self._serialised(ledger, metadata)
        try:
            stat = await self._once(f"ledger {ledger}", self._zookeeper.set, self._ledger_path(ledger), data, version)
        except exceptions.BadVersionError:
            raise errors.BadVersionError(f"the metadata of ledger {ledger} were changed by somebody else") from None
        except exceptions.NoNodeError:
            raise errors.NoSuchLedgerError(f"there is no ledger {ledger}") from None
        return int(stat.version)

    async def delete_ledger(self, ledger: int, version: int = _ANY_VERSION) -> None:
        """Delete a ledger's metadata, by default of any version. Bookies then remove its entries. Raises like
        :meth:`write_ledger`.
        """
        path = self._ledger_path(ledger)
        try:
            await self._once(f"ledger {ledger}", self._zookeeper.delete, path, version)
        except exceptions.BadVersionError:
            raise errors.BadVersionError(f"the metadata of ledger {ledger} were changed by somebody else") from None
        except exceptions.NoNodeError:
            raise errors.NoSuchLedgerError(f"there is no ledger {ledger}") from None
        # Empty parent nodes go too, as with Java's client. A failure here is harmless.
        with contextlib.suppress(exceptions.KazooException, errors.MetadataServiceError):
            while (path := path.rpartition("/")[0]) != self.address.root:
                await self._once(path, self._zookeeper.delete, path)

    async def ledgers(self) -> AsyncIterator[int]:
        """The ids of all ledgers, in order. Those created or deleted meanwhile may or may not be included."""
        try:
            tops = await self._retry(self._zookeeper.get_children, self.address.root)
        except exceptions.NoNodeError:
            raise errors.NoClusterError(f"there is no cluster at {self.address}") from None
        tops = sorted((each for each in tops if paths.TOP.fullmatch(each)), key=lambda each: (len(each), each))
        for top in tops:
            async for path in self._leaves(top, 2 if len(top) == 2 else 4):
                ledger = paths.ledger_of(path)
                if ledger is not None:
                    yield ledger

    async def all_metadata(self, at_once: int = 100) -> AsyncIterator[tuple[int, LedgerMetadata]]:
        """All ledgers with their metadata, in order, read in batches of ``at_once``."""
        some: list[int] = []
        async for ledger in self.ledgers():
            some.append(ledger)
            if len(some) == at_once:
                for found in await self._read_some(some):
                    yield found
                some.clear()
        for found in await self._read_some(some):
            yield found

    async def missing(self, ledgers: Iterable[int], at_once: int = 64) -> tuple[int, ...]:
        """Those of some ledgers that do not exist, in the given order. One request covers up to 10,000 neighbouring
        ids; ``at_once`` requests run concurrently.
        """
        places = {ledger: paths.ledger_path(ledger, self._long_paths).rpartition("/") for ledger in ledgers}
        folders, there = sorted({folder for folder, _, _ in places.values()}), set[tuple[str, str]]()
        for some in range(0, len(folders), at_once):
            asked = folders[some : some + at_once]
            for folder, names in zip(asked, await asyncio.gather(*map(self.names_in, asked)), strict=True):
                there.update((folder, name) for name in names or ())
        return tuple(ledger for ledger, (folder, _, name) in places.items() if (folder, name) not in there)

    async def _read_some(self, ledgers: Sequence[int]) -> list[tuple[int, LedgerMetadata]]:
        async def read(ledger: int) -> tuple[int, LedgerMetadata] | None:
            try:
                return ledger, (await self.read_ledger(ledger)).metadata
            except errors.NoSuchLedgerError:  # deleted meanwhile
                return None

        return [found for found in await asyncio.gather(*map(read, ledgers)) if found is not None]

    async def _leaves(self, path: str, depth: int) -> AsyncIterator[str]:
        if depth == 0:
            yield path
            return
        with contextlib.suppress(exceptions.NoNodeError):
            for child in sorted(await self._retry(self._zookeeper.get_children, self._path(path))):
                async for leaf in self._leaves(f"{path}/{child}", depth - 1):
                    yield leaf

    async def new_ledger_id(self) -> int:
        """An id that no ledger has had, see :mod:`.ids`."""
        return await self._ids.next()

    async def numbers(self, folder: str, count: int) -> list[int]:
        """The next ``count`` numbers of a folder, in order, from sequential nodes, which are deleted again. Fewer if it
        has come to 2^31 - 1, as ZooKeeper goes on with negative ones. Numbers whose answer is lost are skipped.

        Raises :class:`NoClusterError`, and :class:`MetadataServiceError`.
        """
        prefix = self._path(f"{folder}/ID-")
        drawing = [creation(prefix, b"", True, True)] * count
        made = await self._retry(self._zookeeper.multi, drawing)
        while any(isinstance(each, exceptions.NoNodeError) for each in made):
            if not await self.is_initialised():
                raise errors.NoClusterError(f"there is no cluster at {self.address}")
            await self._make_path(self._path(folder))
            made = await self._retry(self._zookeeper.multi, drawing)
        failed = next((each for each in made if isinstance(each, Exception)), None)
        if failed is not None:
            raise self._refused(folder, failed)
        # Nobody waits for this: if it is lost, they go with the session.
        deleting = self._zookeeper.multi([Delete(path, _ANY_VERSION) for path in made])
        deleting.add_done_callback(lambda done: done.cancelled() or done.exception())
        texts = [path.removeprefix(prefix) for path in made]
        return [int(text) for text in texts if text.isdecimal()]

    # -- bookies -------------------------------------------------------------------------------------------------------

    async def bookies(self) -> Bookies:
        """The registered bookies. Raises :class:`NoClusterError`."""
        return await self._read_bookies(None)

    async def watch_bookies(self, callback: Callable[[Bookies], None]) -> Callable[[], None]:
        """Call ``callback`` with the bookies now and after each change, until the returned function is called."""
        watching = _BookieWatch(self, callback)
        await watching.read()
        return watching.stop

    async def _read_bookies(self, watch: Watch | None) -> Bookies:
        try:
            writable = await self._retry(self._zookeeper.get_children, self._path(paths.AVAILABLE), watch=watch)
        except exceptions.NoNodeError:
            raise errors.NoClusterError(f"there is no cluster at {self.address}") from None
        try:
            read_only = await self._retry(self._zookeeper.get_children, self._path(paths.READ_ONLY), watch=watch)
        except exceptions.NoNodeError:
            read_only = []
        return Bookies(
            tuple(sorted(set(writable) - {"readonly"})), tuple(sorted(read_only)), *await self._read_racks(watch)
        )

    async def _read_racks(self, watch: Watch | None) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
        """The racks and the groups of bookies."""
        path = self._path(paths.RACKS)
        if await self._retry(self._zookeeper.exists, path, watch=watch) is None:
            return (), ()
        with contextlib.suppress(exceptions.NoNodeError):
            data, _ = await self._retry(self._zookeeper.get, path)
            try:
                mapping = racks.from_bytes(data)
                return tuple(sorted(racks.racks_of(mapping).items())), racks.groups_of(mapping)
            except ValueError as error:
                _user_log.error("no bookie has a rack now, as %s has something else: %s", path, error)
        return (), ()

    async def set_rack(self, bookie: str, rack: str | None, group: str | None = None) -> None:
        """Set the rack of a bookie, or with None remove it, and perhaps its group, for all clients; see
        :func:`.racks.with_rack`. Raises :class:`UnknownLayoutError` if the existing racks cannot be read.
        """
        while True:
            node, before = await self._mapping()
            after = racks.with_rack(before, bookie, rack, group)
            if after == before:
                return
            if node is None:
                if await self.create_node(paths.RACKS, racks.to_bytes(after)) is not None:
                    return
            elif await self.write_node(paths.RACKS, racks.to_bytes(after), node.version):
                return

    async def racks_of_bookies(self) -> dict[str, str]:
        """The rack of each bookie that has one. Raises :class:`UnknownLayoutError` if they cannot be read: clients then
        go on without.
        """
        return racks.racks_of((await self._mapping())[1])

    async def _mapping(self) -> tuple[Node | None, racks.Mapping]:
        node = await self.read_node(paths.RACKS)
        try:
            return node, racks.from_bytes(b"" if node is None else node.data)
        except ValueError as error:
            raise errors.UnknownLayoutError(f"{self._path(paths.RACKS)}: {error}") from error

    async def bookie_info(self, bookie: str) -> BookieServiceInfo | None:
        """A bookie's registration; None if it is not registered, or only by its id. Raises ``ValueError`` if it cannot
        be read.
        """
        for folder in (paths.AVAILABLE, paths.READ_ONLY):
            with contextlib.suppress(exceptions.NoNodeError):
                data, _ = await self._retry(self._zookeeper.get, self._path(f"{folder}/{bookie}"))
                return registration.from_bytes(data) if data else None
        return None

    async def read_registration(self, bookie: str, watch: Callable[[str], None]) -> Registered | None:
        """A bookie's registration with its version; None if it is not registered. ``watch`` is called once with the
        bookie, when this has changed or may have changed.

        Raises ``ValueError`` if it cannot be read.
        """
        for folder in (paths.AVAILABLE, paths.READ_ONLY):
            path = self._path(f"{folder}/{bookie}")
            if await self._retry(self._zookeeper.exists, path, watch=(watch, bookie)) is None:
                continue
            with contextlib.suppress(exceptions.NoNodeError):
                data, stat = await self._retry(self._zookeeper.get, path)
                return Registered(path, stat.version, registration.from_bytes(data) if data else None)
        return None

    async def replace_registration(self, registered: Registered, info: BookieServiceInfo) -> None:
        """Replace a bookie's registration, for the life of its own session. Raises :class:`BadVersionError` if it has
        changed meanwhile.
        """
        try:
            await self._once(
                registered.path, self._zookeeper.set, registered.path, registration.to_bytes(info), registered.version
            )
        except (exceptions.BadVersionError, exceptions.NoNodeError):
            raise errors.BadVersionError(f"the registration {registered.path} was changed by somebody else") from None

    async def register_bookie(
        self, bookie: str, info: BookieServiceInfo, read_only: bool = False, replace: bool = False
    ) -> None:
        """Register a bookie for the life of this session, as writable or as read-only, and remove the other
        registration.

        If another session has registered it, this waits for that session's end, up to one session timeout, and then
        raises :class:`BookieExistsError`. ``replace`` deletes the other registration instead: use it only if that
        session's process is known to be gone.
        """
        folder, other = (paths.READ_ONLY, paths.AVAILABLE) if read_only else (paths.AVAILABLE, paths.READ_ONLY)
        path, data = self._path(f"{folder}/{bookie}"), registration.to_bytes(info)
        end = math.inf
        while True:
            try:
                await self._retry(self._zookeeper.create, path, data, True)
                break
            except exceptions.NoNodeError:
                if not await self.is_initialised():
                    raise errors.NoClusterError(f"there is no cluster at {self.address}") from None
                await self._make_path(self._path(folder))
            except exceptions.NodeExistsError:
                if not replace:  # the time before the first answer does not count
                    end = min(end, self.loop.time() + self.session_timeout * 1.5)
                if await self._is_registered(path, data, replace):
                    break
                if self.loop.time() > end:
                    raise errors.BookieExistsError(
                        f"another process is registered as the bookie {bookie}, and its session does not expire"
                    ) from None
        with contextlib.suppress(exceptions.NoNodeError):
            await self._retry(self._zookeeper.delete, self._path(f"{other}/{bookie}"))

    async def _is_registered(self, path: str, data: bytes, replace: bool) -> bool:
        """Whether a registration belongs to this session. Another session's is deleted, or awaited for a while."""
        gone = asyncio.Event()
        stat = await self._retry(self._zookeeper.exists, path, watch=(gone.set,))
        if stat is None:
            return False
        with contextlib.suppress(exceptions.NoNodeError):
            if stat.ephemeralOwner == self.session_id:
                await self._retry(self._zookeeper.set, path, data)
                return True
            if replace:
                await self._retry(self._zookeeper.delete, path)
                return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.session_timeout / 4):
                await gone.wait()
        return False

    async def unregister_bookie(self, bookie: str) -> None:
        """Remove a bookie's registration, if it has one."""
        for folder in (paths.AVAILABLE, paths.READ_ONLY):
            with contextlib.suppress(exceptions.NoNodeError):
                await self._retry(self._zookeeper.delete, self._path(f"{folder}/{bookie}"))

    # -- cookies -------------------------------------------------------------------------------------------------------

    async def read_cookie(self, bookie: str) -> tuple[bytes, int]:
        """A bookie's cookie, as bytes, and its version. Raises :class:`NoSuchCookieError`."""
        try:
            data, stat = await self._retry(self._zookeeper.get, self._path(f"{paths.COOKIES}/{bookie}"))
        except exceptions.NoNodeError:
            raise errors.NoSuchCookieError(f"the metadata service has no cookie of the bookie {bookie}") from None
        return data, stat.version

    async def write_cookie(self, bookie: str, data: bytes, version: int | None = None) -> int:
        """Create a bookie's cookie, or replace the one with ``version``; returns its new version.

        Raises :class:`CookieExistsError`, :class:`NoSuchCookieError` or :class:`BadVersionError`.
        """
        path, what = self._path(f"{paths.COOKIES}/{bookie}"), f"the cookie of the bookie {bookie}"
        try:
            if version is not None:
                return int((await self._once(what, self._zookeeper.set, path, data, version)).version)
            await self._make_path(self._path(paths.COOKIES))
            await self._once(what, self._zookeeper.create, path, data)
            return 0
        except exceptions.NodeExistsError:
            raise errors.CookieExistsError(f"the metadata service has {what} already") from None
        except exceptions.NoNodeError:
            raise errors.NoSuchCookieError(f"the metadata service does not have {what}") from None
        except exceptions.BadVersionError:
            raise errors.BadVersionError(f"{what} was changed by somebody else") from None

    async def delete_cookie(self, bookie: str, version: int = _ANY_VERSION) -> None:
        """Delete a bookie's cookie. Raises like :meth:`write_cookie`."""
        path, what = self._path(f"{paths.COOKIES}/{bookie}"), f"the cookie of the bookie {bookie}"
        try:
            await self._once(what, self._zookeeper.delete, path, version)
        except exceptions.NoNodeError:
            raise errors.NoSuchCookieError(f"the metadata service does not have {what}") from None
        except exceptions.BadVersionError:
            raise errors.BadVersionError(f"{what} was changed by somebody else") from None

    # -- nodes by their paths ------------------------------------------------------------------------------------------

    async def names_in(self, below: str, watch: Callable[[str], None] | None = None) -> list[str] | None:
        """The names of a node's children; None if the node does not exist. ``below``: its path relative to the root, ""
        for the root.

        ``watch`` is called once with ``below`` when they have changed or may have changed; never if the node does not
        exist.
        """
        path = self._path(below) if below else self.address.root
        try:
            watched = (watch, below) if watch is not None else None
            names: list[str] = await self._retry(self._zookeeper.get_children, path, watch=watched)
            return names
        except exceptions.NoNodeError:
            return None

    async def read_node(self, below: str, watch: Callable[[str], None] | None = None) -> Node | None:
        """A node by its path relative to the root; None if it does not exist. ``watch`` is called once with the path,
        when the node was created, changed or deleted, or may have been.
        """
        path = self._path(below)
        if watch is not None and await self._retry(self._zookeeper.exists, path, watch=(watch, below)) is None:
            return None
        try:
            data, stat = await self._retry(self._zookeeper.get, path)
        except exceptions.NoNodeError:
            return None
        return Node(data, stat.version, stat.ephemeralOwner)

    async def create_node(
        self, below: str, data: bytes = b"", *, inside: str = "", ephemeral: bool = False, sequential: bool = False
    ) -> str | None:
        """Create a node and its missing parents. Returns its path; None if it exists. After a lost answer the request
        is repeated: then an existing node may be its own, and a ``sequential`` node may be created twice.

        ``inside``: a node above it that is not created. Raises ``LookupError`` if that is missing.
        """
        path = self._path(below)
        while True:
            try:
                made = await self._retry(self._zookeeper.create, path, data, ephemeral, sequential)
                return str(made).removeprefix(f"{self.address.root}/")
            except exceptions.NodeExistsError:
                return None
            except exceptions.NoNodeError:  # another client may have deleted an empty parent
                if not await self.is_initialised():
                    raise errors.NoClusterError(f"there is no cluster at {self.address}") from None
                await self._make_path(path.rpartition("/")[0], self._path(inside))

    async def create_nodes(self, nodes: Sequence[tuple[str, bytes]]) -> bool:
        """Create nodes, all or none; return False if one exists. The missing parents of the first one are created, too.
        After a lost answer the request is repeated: then those that exist may be its own.
        """

        creating = [creation(self._path(below), data) for below, data in nodes]
        while True:
            failed = await self._together(creating)
            if not isinstance(failed, exceptions.NoNodeError):
                return self._is_done(nodes[0][0], failed, exceptions.NodeExistsError)
            if not await self.is_initialised():
                raise errors.NoClusterError(f"there is no cluster at {self.address}")
            await self._make_path(self._path(nodes[0][0]).rpartition("/")[0])

    async def write_node(self, below: str, data: bytes, version: int = _ANY_VERSION, *, beside: str = "") -> bool:
        """Replace a node's data if it has this version, and the node ``beside`` exists; returns whether it did. After a
        lost answer it may return False for a write that succeeded.
        """

        if beside:
            check = CheckVersion(self._path(beside), _ANY_VERSION)
            failed = await self._together([check, SetData(self._path(below), data, version)])
            return self._is_done(below, failed, exceptions.BadVersionError, exceptions.NoNodeError)
        try:
            await self._retry(self._zookeeper.set, self._path(below), data, version)
        except (exceptions.BadVersionError, exceptions.NoNodeError):
            return False
        return True

    async def delete_node(self, below: str, version: int = _ANY_VERSION) -> bool:
        """Delete a node if it has this version and no children; returns whether it is gone."""
        try:
            await self._retry(self._zookeeper.delete, self._path(below), version)
        except exceptions.NoNodeError:
            return True
        except (exceptions.BadVersionError, exceptions.NotEmptyError):
            return False
        return True

    async def delete_nodes(self, *belows: str, beside: str = "") -> bool:
        """Delete nodes, all or none, if they have no other children; returns whether they are gone, or the node
        ``beside``.
        """

        deleting: list[Any] = [Delete(self._path(below), _ANY_VERSION) for below in belows]
        if beside:
            deleting.insert(0, CheckVersion(self._path(beside), _ANY_VERSION))
        failed = await self._together(deleting)
        return isinstance(failed, exceptions.NoNodeError) or self._is_done(belows[0], failed, exceptions.NotEmptyError)

    async def _together(self, operations: Sequence[Any]) -> Exception | None:
        """Do these, all or nothing; return what failed."""
        others = (exceptions.RolledBackError, exceptions.RuntimeInconsistency)
        done = await self._retry(self._zookeeper.multi, operations)
        return next((each for each in done if isinstance(each, Exception) and not isinstance(each, others)), None)

    def _is_done(self, below: str, failed: Exception | None, *expected: type[Exception]) -> bool:
        if failed is not None and not isinstance(failed, expected):
            raise self._refused(below, failed)
        return failed is None

    # -- requests ------------------------------------------------------------------------------------------------------

    def _path(self, below: str) -> str:
        if below == paths.RACKS:
            return f"{self.address.root.rpartition('/')[0]}/{below.rpartition('/')[2]}"
        return f"{self.address.root}/{below}"

    def _ledger_path(self, ledger: int) -> str:
        try:
            return self._path(paths.ledger_path(ledger, self._long_paths))
        except ValueError as error:
            raise errors.NoSuchLedgerError(str(error)) from None

    def _serialised(self, ledger: int, metadata: LedgerMetadata) -> bytes:
        """Serialise metadata, and check their size: the service drops the connection of a client that sends more."""
        data = serialization.to_bytes(metadata)
        if len(data) > LARGEST_NODE:
            raise errors.MetadataServiceError(
                f"the metadata of ledger {ledger} have {len(data):,} bytes: a metadata service takes {LARGEST_NODE:,}"
            )
        return data

    async def _make_path(self, path: str, inside: str = "") -> None:
        """Create a node and its missing parents. Raises ``LookupError`` if ``inside`` is one of them."""
        missing = [path]
        while missing:
            if missing[-1] == inside:
                raise LookupError(inside)
            try:
                await self._retry(self._zookeeper.create, missing[-1])
                missing.pop()
            except exceptions.NodeExistsError:
                missing.pop()
            except exceptions.NoNodeError:
                missing.append(missing[-1].rpartition("/")[0])

    async def _once(self, what: str, operation: Callable[..., Any], *arguments: Any) -> Any:
        """Run an operation once. Raises kazoo's errors about the state of nodes, and ours for all others."""
        try:
            async with asyncio.timeout(self.operation_timeout):
                return await operation(*arguments)
        except (*_LOST, TimeoutError):
            raise errors.OutcomeUnknownError(
                f"the metadata service at {self.address.hosts} did not answer: whether {what} was changed is not known"
            ) from None
        except (
            exceptions.NoNodeError,
            exceptions.NodeExistsError,
            exceptions.BadVersionError,
            exceptions.NotEmptyError,
        ):
            raise
        except exceptions.KazooException as error:
            raise self._refused(what, error) from None

    async def _retry(self, operation: Callable[..., Any], *arguments: Any, watch: Watch | None = None) -> Any:
        """Run an idempotent operation, and repeat it until it is answered or the time is over."""
        what = arguments[0] if isinstance(arguments[0], str) else arguments[0][0].path
        asked = (*arguments, True) if watch is not None else arguments
        end = self.loop.time() + self.operation_timeout
        while True:
            if watch is not None:
                self._watches.setdefault(what, {})[watch] = None
            try:
                return await self._once(what, operation, *asked)
            except errors.OutcomeUnknownError:
                if self._is_closed or self.loop.time() > end:
                    raise errors.OutcomeUnknownError(
                        f"the metadata service at {self.address.hosts} did not answer for {self.operation_timeout:g} s"
                    ) from None
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(end):
                        await self._connected.wait()

    def _refused(self, what: str, error: Exception) -> errors.MetadataServiceError:
        if isinstance(error, exceptions.SessionClosedRequireSaslError):
            return errors.MetadataServiceError(
                f"the metadata service at {self.address.hosts} requires authentication: name a file with"
                f" user:password in {CREDENTIALS}"
            )
        reason = str(error) or type(error).__name__.removesuffix("Error")
        return errors.MetadataServiceError(f"the metadata service at {self.address.hosts} refused {what}: {reason}")

    def session_changed(self, state: Session) -> None:
        """See :class:`.session.Owner`."""
        if self._is_closed:
            return
        self.session = state
        if state is Session.CONNECTED:
            self._connected.set()
        else:
            self._connected.clear()
        for listener in [*self._listeners]:
            listener(state)

    def watch_fired(self, path: str | None) -> None:
        """Call the watches of a node, or all watches if there is no path."""
        changed = [path] if path is not None else [*self._watches]
        for each in changed:
            for callback, *arguments in self._watches.pop(each, {}):
                callback(*arguments)


class _BookieWatch:
    """Reads the bookies after each change, one read at a time."""

    def __init__(self, client: MetadataClient, callback: Callable[[Bookies], None]) -> None:
        self.client = client
        self.callback = callback
        self.known: Bookies | None = None
        self.reading: asyncio.Task[None] | None = None
        self.has_changed = False
        self.is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True
        if self.reading is not None:
            self.reading.cancel()

    async def read(self) -> None:
        """Read the bookies, and report them if they have changed."""
        self.has_changed = False
        bookies = await self.client._read_bookies((self._changed,))
        if bookies != self.known and not self.is_stopped:
            self.known = bookies
            self.callback(bookies)

    def _changed(self) -> None:
        self.has_changed = True
        if self.reading is None and not self.is_stopped and not self.client._is_closed:
            self.reading = self.client.loop.create_task(self._read_again())

    async def _read_again(self) -> None:
        try:
            while self.has_changed:
                try:
                    await self.read()
                except Exception as error:  # retry after any error: the watcher must not miss bookies
                    if self.client._is_closed:
                        return
                    _log.warning("the bookies cannot be read, retrying: %s", error)
                    self.has_changed = True
                    await asyncio.sleep(1)
        finally:
            self.reading = None
