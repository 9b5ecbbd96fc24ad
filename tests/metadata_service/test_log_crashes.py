"""Power that is lost at any moment, on a disk that keeps any part of what was not synced: nothing that was synced is lost."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from power_loss import FailingDisk, PowerLoss

from fencepost.metadata_service import snapshot
from fencepost.metadata_service.acl import OPEN
from fencepost.metadata_service.log import Log, encode
from fencepost.metadata_service.protocol import CREATE, Create, CreateSession, Delete, SetData
from fencepost.metadata_service.tree import Transaction, Tree


class Writer:
    """What happens to a service: entries in groups, files of the log, snapshots, clean ends."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.states: dict[int, Any] = {}
        """The znodes after each zxid that was written."""
        self.durable = 0
        self.snapshots = 0

    def live(self, disk: FailingDisk) -> None:
        """From a start to a clean end."""
        random = self.random
        log, tree = Log.open(disk, keep=random.choice((1, 2)))
        assert self.durable <= tree.zxid
        if tree.zxid:
            assert tree.nodes == self.states[tree.zxid]
        self.durable = tree.zxid
        under_way: Iterable[None] | None = None
        for _ in range(random.randrange(1, 30)):
            dice = random.random()
            if dice < 0.7:
                entries = [self.entry(tree) for _ in range(random.randrange(1, 5))]
                log.append(entries)
                self.durable = tree.zxid
            elif dice < 0.8:
                log.rest()
            elif under_way is None:
                log.roll()
                groups = snapshot.groups(tree, log.number)
                under_way = self.snapshot(log, log.number, [next(groups), *groups])
            else:
                under_way = None if next(iter(under_way), self) is self else under_way
        log.close(tree.zxid)

    def snapshot(self, log: Log, number: int, groups: list[bytes]) -> Iterable[None]:
        yield from log.write_snapshot(number, groups)
        log.purge(2)
        self.snapshots += 1

    def entry(self, tree: Tree) -> bytes:
        """The next entry, which is applied to the state."""
        random = self.random
        path = f"/{random.randrange(6)}"
        request = random.choice((Create(CREATE, path, b"x" * random.randrange(700), OPEN, 0), Delete(path, -1), SetData(path, b"y", -1)))
        if not tree.sessions:
            request = CreateSession(1_000, b"password")
        entry = Transaction(tree.zxid + 1, tree.zxid, next(iter(tree.sessions), 0), (), request)
        tree.apply(entry)
        self.states[tree.zxid] = dict(tree.nodes)
        return encode(entry)


@pytest.mark.parametrize("seed", range(60))
def test_whatever_was_synced_is_there_after_any_loss_of_power(seed):
    random = Random(seed)
    disk, writer = FailingDisk(), Writer(random)
    for _ in range(12):
        disk.left = random.randrange(1, 120)
        try:
            writer.live(disk)
        except PowerLoss:
            disk.lose_power(random)
    disk.left = 1 << 60
    writer.live(disk)
    assert writer.durable
