"""A metadata service with a log of its own.

Requests go through one queue. What has gathered in it while the disk synced is the next group: its changes become entries of the log,
written with one write and one sync, and only then is the group applied and answered, in order.

A disk that fails ends the service: nothing that was answered is lost, and what was not answered may or may not have been done.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable

from fencepost.metadata_service import log as logs
from fencepost.metadata_service import snapshot
from fencepost.metadata_service.server import Item, Service
from fencepost.metadata_service.settings import Settings
from fencepost.metadata_service.tree import Transaction, Tree
from fencepost.tracing import TraceWriter
from fencepost.worker import Worker

_REST = 0.1
"""Seconds without a change after which the last group is proven to be durable."""
_BETWEEN_GROUPS = 0.001
"""Seconds between two groups of a snapshot, in which the loop runs."""


class Standalone(Service):
    """The service, its log, and the thread that writes it."""

    def __init__(
        self,
        settings: Settings,
        log: logs.Log,
        tree: Tree,
        failed: Callable[[BaseException], None],
        trace: TraceWriter | None = None,
    ) -> None:
        super().__init__(settings, tree, failed, trace)
        self.log = log
        for session, opened in tree.sessions.items():
            self.expiry.heard(session, opened.timeout, self.now())
        self._queue: list[Item] = []
        self._syncing = False
        self._scheduled = False
        self._next_zxid = tree.zxid + 1
        self._since_snapshot = log.replayed
        self._snapshotting = False
        self._rest: asyncio.TimerHandle | None = None
        self._disk = Worker("log")
        self._snapshots = Worker("snapshot")

    async def stop(self) -> None:
        """End cleanly: what is under way is finished, and the log says where it ends."""
        self._ending = True
        while (self._queue or self._syncing or self._scheduled) and not self._stopped:
            await asyncio.sleep(0.001)
        failed = self._stopped
        self._end()
        if self._rest is not None:
            self._rest.cancel()
        await self._snapshots.finish(lambda: None)
        await self._disk.finish(lambda: None if failed else self.log.close(self.tree.zxid))

    # -- the queue ----------------------------------------------------------------------------------------------------

    @property
    def _is_behind(self) -> bool:
        return bool(self._queue) or self._syncing

    def _enqueue(self, item: Item) -> None:
        if self._stopped:
            return
        self._count(item)
        self._queue.append(item)
        if not self._scheduled and not self._syncing:
            self._scheduled = True
            self._loop.call_soon(self._next_group)

    def _next_group(self) -> None:
        self._scheduled = False
        if not self._syncing:
            self._finish(self._write())

    def _write(self) -> list[Item]:
        """Write the entries of everything in the queue. If there are none, the group can be finished after the one before it."""
        group, self._queue = self._queue, []
        now = time.time_ns() // 1_000_000
        entries = []
        for item in group:
            if item.change is not None:
                item.entry = Transaction(self._next_zxid, now, item.asker.session, item.asker.ids, item.change)
                self._next_zxid += 1
                entries.append(logs.encode(item.entry))
        if not entries:
            return group
        self._since_snapshot += len(entries)
        self._on_disk(lambda: self.log.append(entries), group)
        return []

    def _on_disk(self, work: Callable[[], None], group: list[Item]) -> None:
        """Have the log do something; when it is done, a group is durable."""
        self._syncing = True
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        self._disk.do(work, lambda error: self._synced(group, error))

    def _synced(self, group: list[Item], error: BaseException | None) -> None:
        """A group is durable, or the disk failed."""
        self._syncing = False
        if self._stopped:
            return
        if error is not None:
            self._fail(error)
            return
        without_changes = self._write()  # the disk goes on while this group is applied
        self._finish(group)
        self._finish(without_changes)
        if not self._syncing:
            self._look_at_log(bool(group))

    # -- log and snapshots --------------------------------------------------------------------------------------------

    def _look_at_log(self, written: bool) -> None:
        """While the disk has nothing to do: begin a snapshot if it is time, otherwise prove the last group once it is quiet."""
        if self._since_snapshot >= self.settings.snap_count and not self._snapshotting:
            self._since_snapshot = 0
            number = self.log.number + 1
            groups = snapshot.groups(self.tree, number)
            head = next(groups)
            self._snapshotting = self._syncing = True
            self._disk.do(self.log.roll, lambda error: self._rolled(number, itertools.chain([head], groups), error))
        elif written:
            self._rest = self._loop.call_later(_REST, self._on_disk, self.log.rest, [])

    def _rolled(self, number: int, groups: Iterable[bytes], error: BaseException | None) -> None:
        """The file of the log is there at which the snapshot is to begin: without it, the snapshot would be of no use."""
        if error is None and not self._stopped:
            self._snapshots.do(lambda: self._write_snapshot(number, groups), self._snapshot_written)
        self._synced([], error)

    def _write_snapshot(self, number: int, groups: Iterable[bytes]) -> None:
        for _ in self.log.write_snapshot(number, groups):
            if self._stopped:
                return
            time.sleep(_BETWEEN_GROUPS)
        self.log.purge(self.settings.snap_retain_count)

    def _snapshot_written(self, error: BaseException | None) -> None:
        self._snapshotting = False
        if error is not None:
            self._fail(error)
