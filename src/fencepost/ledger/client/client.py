"""The client of the store: it creates, opens, lists and deletes ledgers."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from fencepost.errors import OptionError
from fencepost.ledger.client import arguments
from fencepost.ledger.client.calls import Calls
from fencepost.ledger.client.driver import Driver
from fencepost.ledger.client.reader import LedgerReader
from fencepost.ledger.client.settings import ClientSettings
from fencepost.ledger.client.writer import LedgerWriter, strange
from fencepost.ledger.errors import (
    DigestMismatchError,
    IllegalOperationError,
    LedgerExistsError,
    NotEnoughBookiesError,
    StoreError,
)
from fencepost.ledger.messages import NO_ENTRY_YET, Request, Response
from fencepost.ledger.metadata.client import Bookies, MetadataClient
from fencepost.ledger.roles.reader import ReaderSettings
from fencepost.ledger.roles.recoverer import Recoverer, RecovererSettings
from fencepost.ledger.roles.writer import WriterSettings
from fencepost.ledger.rules.ensembles import are_quorums
from fencepost.ledger.rules.metadata import IMPORTING, OF_LOG, DigestType, LedgerMetadata
from fencepost.ledger.rules.placement import Policy, Unplaced, told, unmet
from fencepost.traces import TraceWriter

_log = logging.getLogger("fencepost.ledgers")

TRIES = 100
"""The most ids tried for a new ledger while bookies already know each id."""


H = TypeVar("H", bound=AbstractAsyncContextManager[Any])


class Opening(Generic[H]):
    """A handle to open: ``await`` it, or use ``async with``, which closes the handle at the end."""

    def __init__(self, opened: Callable[[], Awaitable[H]]) -> None:
        self._open = opened
        self._handle: H | None = None

    def __await__(self) -> Generator[Any, None, H]:
        return self._open().__await__()

    async def opened(self) -> H:
        """Open the handle."""
        return await self._open()

    async def __aenter__(self) -> H:
        self._handle = await self._open()
        await self._handle.__aenter__()
        return self._handle

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._handle is not None
        await self._handle.__aexit__(kind, error, traceback)


class LedgerClient:
    """The ledgers of a cluster: its bookies and its metadata service.

    :func:`fencepost.connect` gives a :class:`fencepost.Client`, which also has logs.
    """

    writers: type[LedgerWriter] = LedgerWriter
    """The class of the handles of written ledgers."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        """Carries out the operations, and writes this client's trace if there is one."""

    @classmethod
    async def connect(cls, uri: str, settings: ClientSettings, trace: str | Path | None = None) -> Self:
        """See :func:`fencepost.connect`."""
        metadata = await MetadataClient.connect(
            uri,
            session_timeout=settings.session_timeout,
            connect_timeout=settings.connect_timeout,
            operation_timeout=settings.metadata_timeout,
        )
        tracing = None
        try:
            await metadata.instance_id()
            if trace is not None:
                tracing = TraceWriter(trace, node=f"client-{secrets.token_hex(4)}", started={"kind": "client"})
            return cls(await Driver.start(metadata, settings, tracing))
        except BaseException:
            await metadata.close()
            if tracing is not None:
                tracing.close()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the session and all connections. Open ledgers stay open. The next client that opens one with ``recover``
        recovers it.
        """
        await self.driver.close()

    @property
    def metadata(self) -> MetadataClient:
        """The session with the metadata service. Raises as :meth:`.Driver.must_work` does."""
        self.driver.must_work()
        return self.driver.metadata

    @property
    def policy(self) -> Policy:
        """The racks, zones and regions that each entry must be in, and which bookies are taken."""
        return self.driver.settings.placement

    # -- ledgers -------------------------------------------------------------------------------------------------------

    def create_ledger(
        self,
        *,
        ensemble: int = 3,
        write_quorum: int | None = None,
        ack_quorum: int | None = None,
        digest: DigestType | str = DigestType.CRC32C,
        password: bytes | str = b"",
        custom_metadata: Mapping[str, bytes] | None = None,
        ledger: int | None = None,
        deferred_sync: bool = False,
        explicit_lac_interval: float = 0.1,
        in_flight: int = 1000,
        in_flight_bytes: int = 64 * 1024 * 1024,
    ) -> Opening[LedgerWriter]:
        """Create a ledger. ``async with store.create_ledger() as ledger`` closes it at the end; with ``await`` the
        caller closes it.

        Each entry goes to ``write_quorum`` bookies of ``ensemble`` (by default to all of them). It is confirmed once
        ``ack_quorum`` of them have it (by default a majority). ``digest``: ``crc32c``, ``crc32``, ``hmac`` or
        ``dummy``. Only ``hmac`` protects from clients without the password. ``ledger``: its id, by default the next
        free one. Never reuse the id of a deleted ledger: bookies may still have its entries. ``deferred_sync``: entries
        are confirmed before they are durable; call ``force``. ``explicit_lac_interval``: how many seconds until readers
        learn the last add confirmed when no later entry carries it; 0: never. ``in_flight`` and ``in_flight_bytes``:
        the most entries and bytes in flight.

        Raises :class:`NotEnoughBookiesError`, :class:`LedgerExistsError` and :class:`fencepost.OptionError`. Raises
        :class:`UnauthorizedAccessError` if a bookie already knows the id ``ledger``: somebody wrote to it or fenced it
        before. If no id was given, the client logs a warning and takes the next id instead.
        """
        settings = writer_settings(
            ensemble,
            write_quorum,
            ack_quorum,
            digest,
            password,
            custom_metadata,
            in_flight,
            in_flight_bytes,
            deferred_sync,
            explicit_lac_interval,
        )

        ledger = None if ledger is None else arguments.ledger_id(ledger)

        async def create() -> LedgerWriter:
            return await self._created(settings, ledger, in_flight_bytes)

        return Opening(create)

    async def reserve_ledger(
        self,
        *,
        ensemble: int = 3,
        write_quorum: int | None = None,
        ack_quorum: int | None = None,
        digest: DigestType | str = DigestType.CRC32C,
        password: bytes | str = b"",
        custom_metadata: Mapping[str, bytes] | None = None,
        ledger: int | None = None,
    ) -> int:
        """Create a ledger without a writer. The first client that adopts it becomes its writer. Gives the ledger's id.

        Arguments and exceptions are those of :meth:`create_ledger`.
        """
        settings = writer_settings(ensemble, write_quorum, ack_quorum, digest, password, custom_metadata, reserves=True)
        ledger = None if ledger is None else arguments.ledger_id(ledger)
        writer = await self._created(settings, ledger, 1)
        writer.release()
        return writer.id

    def adopt_ledger(
        self,
        ledger: int,
        *,
        password: bytes | str = b"",
        explicit_lac_interval: float = 0.1,
        in_flight: int = 1000,
        in_flight_bytes: int = 64 * 1024 * 1024,
    ) -> Opening[LedgerWriter]:
        """Become the writer of a reserved ledger, as if this client had created it. Only one client can adopt a ledger,
        once.

        Raises :class:`NoSuchLedgerError`, :class:`UnauthorizedAccessError`, :class:`LedgerClosedError`, and
        :class:`LedgerExistsError` if the ledger already has a writer.
        """

        ledger = arguments.ledger_id(ledger)

        async def adopt() -> LedgerWriter:
            known = await self.ledger_metadata(ledger)
            settings = writer_settings(
                known.ensemble_size,
                known.write_quorum,
                known.ack_quorum,
                known.digest_type,
                password,
                None,
                in_flight,
                in_flight_bytes,
                False,
                explicit_lac_interval,
            )
            writer = self.writers(self.driver, ledger, settings, in_flight_bytes)
            try:
                await writer.begin("adopt")
            except LedgerExistsError:
                raise LedgerExistsError(
                    f"ledger {ledger} has a writer already: only a ledger that is reserved is adopted"
                ) from None
            return writer

        return Opening(adopt)

    async def _created(self, settings: WriterSettings, ledger: int | None, in_flight_bytes: int) -> LedgerWriter:
        refused = 0
        while True:
            number = await self.metadata.new_ledger_id() if ledger is None else ledger
            writer = self.writers(self.driver, number, settings, in_flight_bytes)
            try:
                await writer.begin("create")
            except LedgerExistsError:  # the caller of another client chose this id
                if ledger is not None:
                    raise
                continue
            except NotEnoughBookiesError as error:
                bookies = self.driver.bookies
                there, read_only = len(bookies.writable), len(bookies.read_only)
                raise too_few(number, settings.ensemble_size, there, read_only, self.policy, error.why) from None
            bookie = await writer.known_to()
            if bookie is None:
                return writer
            writer.release()
            with suppress(StoreError):
                await self.metadata.delete_ledger(number, version=0)
            refused += 1
            if ledger is not None or refused == TRIES:
                raise strange(number, bookie)
            _log.warning("%s", strange(number, bookie, "the next id is taken"))

    def open_ledger(
        self,
        ledger: int,
        *,
        recover: bool = False,
        password: bytes | str = b"",
        digest: DigestType | str | None = None,
        prefetch: int = 1000,
        prefetch_bytes: int = 16 * 1024 * 1024,
        confirmed: int = NO_ENTRY_YET,
    ) -> Opening[LedgerReader]:
        """Open a ledger for reading. ``recover``: first close it, and fence off a client that still writes it.

        ``digest``: the type the caller expects, if any; the metadata have the real one. ``prefetch`` and
        ``prefetch_bytes``: how many entries and bytes to request ahead. ``confirmed``: an entry that the caller knows
        to be confirmed, for example from another reader. Entries up to it can be read, and the bookies are not asked
        for the last add confirmed.

        Raises :class:`NoSuchLedgerError`, :class:`UnauthorizedAccessError`, :class:`DigestMismatchError`, and with
        ``recover`` everything that :meth:`recover_ledger` raises.
        """

        ledger, key = arguments.ledger_id(ledger), arguments.password(password)
        wanted = None if digest is None else _digest(digest)
        prefetch = arguments.whole("prefetch", prefetch, 1)
        prefetch_bytes = arguments.whole("prefetch_bytes", prefetch_bytes, 1)
        confirmed = arguments.whole("confirmed", confirmed, NO_ENTRY_YET)

        async def opened() -> LedgerReader:
            if recover:
                await self.recover_ledger(ledger, password=key)
            settings = self.driver.settings
            reader = LedgerReader(
                self.driver,
                ledger,
                ReaderSettings(
                    key,
                    int(settings.speculation_delay * 1_000_000),
                    int(settings.poll_wait * 1_000_000),
                    lac=confirmed,
                ),
                prefetch,
                prefetch_bytes,
            )
            await reader.open()
            if wanted is not None and wanted is not reader.metadata.digest_type:
                await reader.close()
                actual = reader.metadata.digest_type.name.lower()
                raise DigestMismatchError(f"ledger {ledger} has the digest {actual}, not {wanted.name.lower()}")
            return reader

        return Opening(opened)

    async def recover_ledger(
        self, ledger: int, *, password: bytes | str = b"", progress: Callable[[int], None] | None = None
    ) -> LedgerMetadata:
        """Close a ledger whose writer is gone, or is presumed gone. Gives its metadata. A client that still writes it
        is fenced off.

        ``progress`` is called ten times a second with the last entry found so far.

        The ledger keeps all confirmed entries. A closed ledger is left unchanged. Raises :class:`NoSuchLedgerError` or
        :class:`UnauthorizedAccessError`, and :class:`IllegalOperationError` for one that is being imported. Raises
        :class:`LedgerRecoveryError`, :class:`NotEnoughBookiesError` or :class:`DataUnknownError` if recovery is not
        possible now.
        """
        ledger = arguments.ledger_id(ledger)
        if IMPORTING in dict((await self.ledger_metadata(ledger)).custom_metadata):
            raise IllegalOperationError(
                f"ledger {ledger} is not imported to its end: complete the import, or delete it"
            )
        settings = RecovererSettings(arguments.password(password), self.driver.settings.recovery_in_flight)
        role = Recoverer(ledger, settings, traces=self.driver.trace is not None)
        calls = Calls(self.driver, ledger, role)
        try:
            recovering = calls.start("recover")
            while progress is not None and not recovering.done():
                progress(role.found)
                await asyncio.wait((recovering,), timeout=0.1)
            metadata: LedgerMetadata = await self.driver.patiently(recovering)
            return metadata
        finally:
            calls.close()

    async def list_ledgers(self) -> AsyncIterator[int]:
        """The ids of all ledgers, in order."""
        async for ledger in self.metadata.ledgers():
            yield ledger

    async def ledger_metadata(self, ledger: int) -> LedgerMetadata:
        """The metadata of a ledger. Raises :class:`NoSuchLedgerError`."""
        return (await self.metadata.read_ledger(arguments.ledger_id(ledger))).metadata

    async def delete_ledger(self, ledger: int, *, of_log: str | None = None) -> None:
        """Delete a ledger, in any state. Its bookies free the space when they next compare with the metadata.

        A log deletes its own ledgers when it is trimmed or deleted. ``of_log``: delete a ledger of this log anyway. If
        the log still uses the ledger, its entries are then missing from the log.

        Raises :class:`NoSuchLedgerError`, and :class:`IllegalOperationError` for a ledger of a log other than
        ``of_log``.
        """
        must_be_of_log(ledger, await self.ledger_metadata(ledger), of_log)
        await self.metadata.delete_ledger(ledger)

    async def ask(self, bookie: str, request: Request) -> Response | None:
        """Send a request of the wire protocol to one bookie. Gives its answer, None if there is none."""
        return await self.driver.ask(bookie, request)

    async def bookies(self) -> Bookies:
        """The registered bookies: the writable ones and the read-only ones."""
        return await self.metadata.bookies()


def writer_settings(
    ensemble: int,
    write_quorum: int | None,
    ack_quorum: int | None,
    digest: DigestType | str,
    password: bytes | str,
    custom_metadata: Mapping[str, bytes] | None,
    in_flight: int = 1,
    in_flight_bytes: int = 1,
    deferred_sync: bool = False,
    explicit_lac_interval: float = 0.1,
    reserves: bool = False,
) -> WriterSettings:
    """The settings for the writer of a new ledger, from the arguments of :meth:`LedgerClient.create_ledger`.

    Raises :class:`fencepost.OptionError`.
    """
    ensemble = arguments.whole("ensemble", ensemble, 1)
    write_quorum = ensemble if write_quorum is None else arguments.whole("write_quorum", write_quorum, 1)
    ack_quorum = write_quorum // 2 + 1 if ack_quorum is None else arguments.whole("ack_quorum", ack_quorum, 1)
    if not are_quorums(ensemble, write_quorum, ack_quorum):
        raise OptionError(
            f"ensemble {ensemble}, write_quorum {write_quorum}, ack_quorum {ack_quorum}: an ack quorum is at least 1"
            " and at most the write quorum, and that at most the ensemble"
        )
    arguments.whole("in_flight_bytes", in_flight_bytes, 1)
    return WriterSettings(
        ensemble,
        write_quorum,
        ack_quorum,
        arguments.password(password),
        _digest(digest),
        arguments.custom_metadata(custom_metadata),
        random.SystemRandom().getrandbits(63),
        arguments.whole("in_flight", in_flight, 1),
        bool(deferred_sync),
        int(arguments.seconds("explicit_lac_interval", explicit_lac_interval) * 1_000_000),
        reserves=reserves,
    )


def too_few(
    ledger: int,
    ensemble_size: int,
    there: int,
    read_only: int,
    policy: Policy,
    why: Unplaced,
    instead: str = "ask for a smaller ensemble",
) -> NotEnoughBookiesError:
    """The error if there is no ensemble for a ledger. ``there``: how many could be taken. ``read_only``: how many more
    would have to be writable. ``instead``: what else helps.
    """
    if why is Unplaced.TOO_FEW:
        besides = f", besides {read_only} that {'is' if read_only == 1 else 'are'} read-only" if read_only else ""
        return NotEnoughBookiesError(
            f"ledger {ledger} needs {ensemble_size} bookies to write to, and there are {there}{besides}: start more, or"
            f" {instead}"
        )
    return NotEnoughBookiesError(
        f"ledger {ledger} cannot be placed on {ensemble_size} of the {there} writable bookies with {unmet(policy)}:"
        f" {told(why)}; start bookies in other racks, or set racks (fencepost bookie rack)",
        why,
    )


def must_be_of_log(ledger: int, metadata: LedgerMetadata, log: str | None) -> None:
    """Raise :class:`IllegalOperationError` unless the ledger belongs to this log, or with None to no log."""
    owner = dict(metadata.custom_metadata).get(OF_LOG)
    actual = None if owner is None else owner.decode(errors="backslashreplace")
    if actual == log:
        return
    if actual is None:
        raise IllegalOperationError(f"ledger {ledger} is not of the log {log}, nor of any other")
    raise IllegalOperationError(
        f"ledger {ledger} is of the log {actual}, where its entries would be missing: trim or delete the log, or give"
        f" {{of_log}} with the name of the log",
        "of_log",
    )


def _digest(digest: DigestType | str) -> DigestType:
    if isinstance(digest, DigestType):
        return digest
    try:
        return DigestType[digest.upper()]
    except (AttributeError, KeyError):
        known = ", ".join(each.name.lower() for each in DigestType)
        raise OptionError(f"digest {digest!r}: there is {known}") from None
