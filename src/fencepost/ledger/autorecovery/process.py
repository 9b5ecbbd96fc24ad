"""Runs auto-recovery, in a process of its own or beside a bookie. Also the election: among all auto-recovery processes
of a cluster, Fencepost's and BookKeeper's, one is the auditor.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
from collections.abc import Awaitable, Callable

from fencepost.errors import OptionError
from fencepost.ledger.autorecovery.auditor import Auditor
from fencepost.ledger.autorecovery.settings import AutoRecoverySettings, RecoverySettings
from fencepost.ledger.autorecovery.tasks import Change, until_one_ends
from fencepost.ledger.autorecovery.worker import Worker
from fencepost.ledger.client.client import LedgerClient
from fencepost.ledger.client.settings import ClientSettings
from fencepost.ledger.errors import StoreError
from fencepost.ledger.metadata.session import Session
from fencepost.ledger.metadata.underreplication import UnderReplication
from fencepost.ledger.shutdown import set_at_signals
from fencepost.monitoring import http
from fencepost.monitoring.metrics import Metrics
from fencepost.monitoring.table import PARTS

_log = logging.getLogger("fencepost.ledger.autorecovery")


async def serve(settings: AutoRecoverySettings, ready: Callable[[str], None]) -> None:
    """Run auto-recovery until SIGTERM or SIGINT. A second signal ends the process at once. ``ready`` is called with the
    name of this process when it starts.

    Raises :class:`fencepost.FencepostError` if it cannot start.
    """
    if not settings.metadata_service_uri:
        raise OptionError(
            "auto-recovery needs a metadata service: give --metadata zk://HOST:PORT/ledgers, or set metadataServiceUri"
        )
    name = settings.bookie_id or socket.gethostname()
    counts = Metrics("autorecovery", PARTS["autorecovery"])
    recovery: AutoRecovery | None = None
    ended = asyncio.Event()
    set_at_signals(ended)

    def why_not_ready() -> str:
        has_session = recovery is not None and recovery.has_session
        return "" if has_session else "auto-recovery has no session with the metadata service"

    with http.serve(counts, why_not_ready, settings.prometheus_stats_http_address, settings.prometheus_stats_http_port):
        async with await _connected(settings.metadata_service_uri, settings.zk_timeout) as store:
            recovery = AutoRecovery(store, name, settings, counts)
            await recovery.prepare()
            ready(name)
            await until_one_ends(recovery.run(), ended.wait())


async def beside(uri: str, zk_timeout: int, name: str, settings: RecoverySettings, counts: Metrics) -> None:
    """Run auto-recovery in a bookie's process until cancelled, in a session of its own. Failures are retried."""
    while True:
        try:
            async with await _connected(uri, zk_timeout) as store:
                recovery = AutoRecovery(store, name, settings, counts)
                await recovery.prepare()
                await recovery.run()
        except StoreError as error:
            _log.error("auto-recovery does not begin: %s", error)
        await asyncio.sleep(settings.rw_rereplicate_backoff_ms / 1000)


class AutoRecovery:
    """The election, the auditor and the replication worker of one process."""

    def __init__(self, store: LedgerClient, name: str, settings: RecoverySettings, counts: Metrics) -> None:
        self._store = store
        self._settings = settings
        self._nodes = UnderReplication(store.metadata, name)
        self._worker = Worker(store, self._nodes, settings, counts)
        auditor = Auditor(store, self._nodes, settings, counts)
        self._election = Election(self._nodes, auditor.run)
        copied = self._worker.copied
        counts.gauges |= {
            "auditor_elected": lambda: self._election.is_auditor,
            "auditor_NUM_LEDGERS_NOT_ADHERING_TO_PLACEMENT_POLICY": lambda: auditor.misplaced,
            "replication_worker_NUM_ENTRIES_WRITTEN": lambda: copied.entries,
            "replication_worker_NUM_BYTES_WRITTEN": lambda: copied.bytes,
            "replication_worker_ledgers_locked": lambda: len(self._nodes.held),
        }

    @property
    def has_session(self) -> bool:
        """Whether the session with the metadata service is up."""
        return self._store.metadata.session is Session.CONNECTED

    async def prepare(self) -> None:
        """Create the permanent nodes. Raises :class:`StoreError`."""
        await self._store.metadata.instance_id()  # fails if there is no cluster
        await self._nodes.prepare()

    async def run(self) -> None:
        """Run until cancelled. When the session expires, locks and votes are gone, and everything starts over."""
        while True:
            expired = asyncio.Event()
            stop = self._store.metadata.listen(functools.partial(_report, expired))
            try:
                await until_one_ends(self._election.run(), self._worker.run(), expired.wait())
                _log.warning("the session with the metadata service has expired, and auto-recovery begins anew")
            except StoreError as error:
                _log.warning("auto-recovery waits: %s", error)
                await asyncio.sleep(self._settings.rw_rereplicate_backoff_ms / 1000)
            finally:
                stop()


def _report(expired: asyncio.Event, session: Session) -> None:
    if session is Session.EXPIRED:
        expired.set()


async def _connected(uri: str, zk_timeout: int) -> LedgerClient:
    return await LedgerClient.connect(uri, ClientSettings.of_environment(session_timeout=zk_timeout / 1000))


class Election:
    """Stands for election as auditor, and audits while elected."""

    def __init__(self, nodes: UnderReplication, audit: Callable[[], Awaitable[None]]) -> None:
        self.is_auditor = False
        self._nodes = nodes
        self._audit = audit
        self._vote = ""

    async def run(self) -> None:
        """Stand for election, and audit whenever elected, until cancelled. Raises :class:`StoreError` if the metadata
        service fails.
        """
        while True:
            changed = Change()
            try:
                is_elected = bool(self._vote) and await self._nodes.is_elected(self._vote, changed.notice)
            except ValueError:  # the vote is gone: the session expired, or somebody deleted it
                self._vote = ""
            if not self._vote:
                self._vote = await self._nodes.vote()
                continue
            if not is_elected:
                await changed.wait()
                continue
            _log.info("%s is the auditor", self._nodes.name)
            self.is_auditor = True
            try:
                await until_one_ends(self._audit(), self._is_over())
            finally:
                self.is_auditor = False
            _log.warning("%s is the auditor no more", self._nodes.name)

    async def _is_over(self) -> None:
        """Wait until the vote is no longer the first."""
        while True:
            changed = Change()
            try:
                if not await self._nodes.is_elected(self._vote, changed.notice):
                    return
            except ValueError:
                return
            await changed.wait()
