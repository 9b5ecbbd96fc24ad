"""What a replica keeps on disk through power losses at any moment, torn tails and flipped bits."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from fencepost.files.folders import SECTOR, OsFiles
from fencepost.ledger.disk.journal import Damage
from fencepost.quorum.files import directory, snapshots
from fencepost.quorum.files.directory import META, Meta, join_cluster, open_replica, read_meta, write_meta
from fencepost.quorum.files.election import STATE, read_election, store_election
from fencepost.quorum.files.log import ReplicatedLog
from fencepost.quorum.identity import Node, ReplicaKey, VoterSet
from fencepost.quorum.log import Batch, OffsetAndEpoch, Snapshot, VotersRecord
from fencepost.quorum.roles.interface import ElectionState
from fencepost.simulation.disk import PowerLoss, SimDisk

ME = Node(ReplicaKey(1, "AdisksAdisksAdisksAdis"), "127.0.0.1:9191")
VOTERS = VoterSet.of([ME, Node(ReplicaKey(2, "Bdisk"), "127.0.0.1:9192")])
META_OF_ME = Meta(ME.key, "cluster")


class Model:
    """A plain log beside the one on disk: all batches, and the state required after a power loss."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.batches: list[Batch] = []
        self.start = OffsetAndEpoch(0, 0)
        self.durable = 0
        self.election = self.next_election = ElectionState()
        self.snapshot = Snapshot(OffsetAndEpoch(0, 0), VOTERS)
        self.most = [0] * 3
        """How often a log was truncated, reset, and shortened at its beginning."""
        self.kept_start, self.kept = self.start, self.batches
        self.under_way: list[tuple[str, Any]] = []
        """Changes that may or may not be on the disk, in order."""

    @property
    def end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.batches[-1].end_offset, self.batches[-1].epoch) if self.batches else self.start

    def check(self, contents: directory.Contents) -> None:
        """The disk has everything durable, and a prefix of the changes that were under way."""
        found = contents.log.read(contents.log.start.offset)
        end = contents.snapshot.end
        assert contents.log.start.offset <= end.offset <= contents.log.end.offset
        assert contents.log.epoch_ahead_of(end.offset) == end.epoch
        assert contents.election in (self.election, self.next_election)
        self.election = self.next_election = contents.election
        possible = [(self.kept_start, self.kept)]
        start, batches = self.kept_start, self.kept
        for kind, value in self.under_way:
            if kind == "append":
                batches = [*batches, value]
            elif kind == "truncate":
                batches = [batch for batch in batches if batch.end_offset <= value]
            else:
                start, batches = value, []
            possible.append((start, batches))
        for start, batches in possible:
            end = OffsetAndEpoch(batches[-1].end_offset, batches[-1].epoch) if batches else start
            if end == contents.log.end and batches[len(batches) - len(found) :] == found:
                break
        else:
            # A snapshot was installed, and its log was not reset yet.
            assert self.under_way and contents.log.end == contents.snapshot.end and not found, (found, possible)
            start, batches = contents.snapshot.end, []
        self.batches, self.start = list(batches), start
        assert contents.snapshot.end.offset >= self.snapshot.end.offset
        assert contents.state == [b"%d" % contents.snapshot.end.offset] * bool(contents.snapshot.end.offset)
        self.keep()

    def keep(self) -> None:
        """All changes are durable."""
        self.kept_start, self.kept = self.start, list(self.batches)
        self.under_way = []

    def know(self, disk: SimDisk, epoch: int) -> None:
        """An epoch is stored before any record of it."""
        if epoch > self.election.epoch:
            voted, leader = self.random.choice((None, ME.key)), self.random.choice((None, ME))
            self.next_election = ElectionState(epoch, voted, leader)
            store_election(disk, self.next_election)
            self.election = self.next_election

    def live(self, disk: SimDisk) -> None:
        """Run a process until it ends."""
        random = self.random
        if read_meta(disk) is None or not (read_meta(disk) or META_OF_ME).cluster_id:
            if read_meta(disk) is None:
                write_meta(disk, Meta(ME.key))
            join_cluster(disk, META_OF_ME, self.snapshot, unit=SECTOR)
            self.keep()
        contents = open_replica(
            disk, META_OF_ME, unit=SECTOR, cache=random.choice((0, 500, 1 << 20)), segment=random.choice((1, 3_000))
        )
        self.check(contents)
        log = contents.log
        for _ in range(random.randrange(1, 30)):
            dice = random.random()
            if dice < 0.5:
                epoch = self.end.epoch + (random.random() < 0.2) or 1
                self.know(disk, epoch)
                records = tuple(random.randbytes(random.randrange(600)) for _ in range(random.randrange(1, 4)))
                control = VotersRecord(VOTERS) if random.random() < 0.1 else None
                batch = Batch(self.end.offset, epoch, () if control else records, control)
                self.under_way.append(("append", batch))
                self.batches.append(batch)
                log.append([batch])
            elif dice < 0.6 and self.batches:
                # Records in a snapshot are committed, and never truncated.
                cut = random.choice(self.batches).base_offset
                if cut >= max(self.start.offset, log.start.offset, contents.snapshot.end.offset):
                    self.under_way.append(("truncate", cut))
                    self.batches = [batch for batch in self.batches if batch.end_offset <= cut]
                    log.truncate(cut)
                    self.most[0] += 1
            elif dice < 0.63:
                end = OffsetAndEpoch(self.end.offset + random.randrange(1, 50), self.end.epoch + 1)
                self.know(disk, end.epoch)
                fetched = snapshots.Fetched(disk, end)
                data = b"".join(snapshots.groups(Snapshot(end, VOTERS), [[b"%d" % end.offset]]))
                fetched.write(0, data[:100])
                fetched.write(100, data[100:])
                self.under_way.append(("reset", end))
                contents.snapshot = fetched.install()[0]
                self.start, self.batches = end, []
                log.reset(end)
                self.most[1] += 1
            elif dice < 0.7:
                self.know(disk, self.election.epoch + 1)
            elif dice < 0.75 and self.batches:
                batch = random.choice(self.batches)
                if batch.end_offset > contents.snapshot.end.offset and not log.has_unsynced:
                    snapshot = Snapshot(OffsetAndEpoch(batch.end_offset, batch.epoch), VOTERS)
                    for _ in snapshots.write_snapshot(disk, snapshot, [[b"%d" % batch.end_offset]]):
                        pass
                    snapshots.purge_snapshots(disk, 1)
                    contents.snapshot = self.snapshot = snapshot
                    self.most[2] += log.start != OffsetAndEpoch(0, 0)
                    log.remove_files(log.delete_before(batch.end_offset))
            elif dice < 0.9:
                log.write(log.take())
                log.written()
                assert log.stored_end == self.end == log.end
                self.keep()
                self.snapshot = contents.snapshot
            else:
                log.rest()
            assert log.end == self.end
            expected = [batch for batch in self.batches if batch.base_offset >= log.start.offset]
            assert log.read(log.start.offset) == expected
            stored = log.stored_end
            assert log.start.offset <= stored.offset <= log.end.offset and stored.epoch == log.epoch_ahead_of(
                stored.offset
            )


@pytest.mark.parametrize("seed", range(20))
def test_whatever_was_synced_is_there_after_any_loss_of_power(seed: int) -> None:
    random = Random(seed)
    disk, model = SimDisk(), Model(random)
    for _ in range(12):
        disk.left = random.randrange(1, 200)
        try:
            model.live(disk)
        except PowerLoss:
            disk.lose_power(random)
    disk.left = 1 << 60
    model.live(disk)


def filled(path: Any, groups: int = 3) -> OsFiles:
    """A folder with a log of ``groups`` groups of one batch each."""
    files = OsFiles(str(path))
    join_cluster(files, META_OF_ME, Snapshot(OffsetAndEpoch(0, 0), VOTERS), unit=SECTOR)
    log = open_replica(files, META_OF_ME, unit=SECTOR).log
    store_election(files, ElectionState(1))
    for number in range(groups):
        log.append([Batch(2 * number, 1, (b"a" * 300, b"b" * 500))])
        log.write(log.take())
        log.written()
    return files


def test_what_is_stored_is_said_of_the_log_as_it_is_now(tmp_path: Path) -> None:
    log = ReplicatedLog.create(OsFiles(str(tmp_path)), OffsetAndEpoch(0, 0), unit=SECTOR)
    log.append([Batch(0, 1, (b"a", b"b")), Batch(2, 1, (b"c", b"d"))])
    assert log.stored_end == OffsetAndEpoch(0, 0)
    writes = log.take()
    log.truncate(2)
    log.append([Batch(2, 2, (b"e", b"f", b"g"))])
    log.write(writes)
    assert log.written() == OffsetAndEpoch(2, 1) and log.end == OffsetAndEpoch(5, 2) and log.has_unsynced
    log.write(log.take())
    assert log.written() == OffsetAndEpoch(5, 2) and not log.has_unsynced
    log.reset(OffsetAndEpoch(3, 3))  # everything before it is in a durable snapshot
    assert log.stored_end == log.start == log.end == OffsetAndEpoch(3, 3)
    log.append([Batch(3, 3, (b"h", b"i"))])
    assert log.stored_end == OffsetAndEpoch(3, 3)
    log.write(log.take())
    assert log.written() == OffsetAndEpoch(5, 3)


def test_a_tail_that_was_torn_at_any_byte_is_cut_off(tmp_path: Path) -> None:
    files = filled(tmp_path)
    name = max(name for name in files.names() if name.endswith(".journal"))
    data = (tmp_path / name).read_bytes()
    last = data.rindex(b"FPJG")  # the last group
    for length in range(last, len(data), 11):
        (tmp_path / name).write_bytes(data[:length] + bytes(len(data) - length))
        log = ReplicatedLog.open(OsFiles(str(tmp_path)), unit=SECTOR)
        whole = length >= len(data.rstrip(b"\0"))
        assert log.end == OffsetAndEpoch(6 if whole else 4, 1), length
        for each in files.names():
            if each > name and each.endswith(".journal"):
                files.remove(each)
    (tmp_path / name).write_bytes(data)
    assert ReplicatedLog.open(files, unit=SECTOR).end == OffsetAndEpoch(6, 1)


def test_damage_in_the_middle_is_refused(tmp_path: Path) -> None:
    files = filled(tmp_path)
    expected = ReplicatedLog.open(files, unit=SECTOR).read(0)
    path = max(path for path in tmp_path.glob("*.journal") if b"aaa" in path.read_bytes()[: 6 * SECTOR])
    data = path.read_bytes()
    refused = 0
    for at in range(0, len(data), 97):
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        try:
            assert ReplicatedLog.open(files, unit=SECTOR).read(0) == expected  # where nothing was written
        except Damage:
            refused += 1
    assert refused > 10


def test_a_batch_that_the_disk_gives_back_changed_is_refused(tmp_path: Path) -> None:
    files = filled(tmp_path)
    log = ReplicatedLog.open(files, unit=SECTOR, cache=0)
    assert len(log.read(0)) == 3 and len(log.read(2, most_bytes=900)) == 1
    name = sorted(name for name in files.names() if name.endswith(".journal"))[1]
    data = (tmp_path / name).read_bytes()
    at = data.index(b"aaa")
    (tmp_path / name).write_bytes(data[:at] + b"A" + data[at + 1 :])
    with pytest.raises(Damage, match="another checksum"):
        log.read(0)


@pytest.mark.parametrize("what", [META, STATE])
def test_every_byte_of_identity_and_vote_counts(tmp_path: Path, what: str) -> None:
    files = filled(tmp_path)
    store_election(files, ElectionState(7, ME.key, ME))
    assert read_election(files) == ElectionState(7, ME.key, ME) and read_meta(files) == META_OF_ME
    data = (tmp_path / what).read_bytes()
    for place in range(len(data) - 1):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        (tmp_path / what).write_bytes(flipped)
        with pytest.raises(Damage):
            read_meta(files) if what == META else read_election(files)
    (tmp_path / what).unlink()
    with pytest.raises(Damage):
        read_meta(files)
        read_election(files)


def test_a_snapshot_counts_only_as_a_whole(tmp_path: Path) -> None:
    files = OsFiles(str(tmp_path))
    snapshot = Snapshot(OffsetAndEpoch(70, 3), VOTERS)
    for _ in snapshots.write_snapshot(files, snapshot, [[b"one", b"two"], [b"three"]]):
        pass
    path = tmp_path / snapshots.name_of(snapshot.end)
    data = path.read_bytes()
    assert snapshots.read_snapshot(data, snapshot.end) == (snapshot, [b"one", b"two", b"three"])
    for length in range(0, len(data), 13):
        with pytest.raises(Damage):
            snapshots.read_snapshot(data[:length], snapshot.end)
    for at in range(0, len(data), 29):
        with pytest.raises(Damage):
            snapshots.read_snapshot(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], snapshot.end)
    with pytest.raises(Damage):
        snapshots.read_snapshot(data, OffsetAndEpoch(71, 3))


def test_an_older_snapshot_serves_if_the_log_goes_back_so_far(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = filled(tmp_path)
    newer = Snapshot(OffsetAndEpoch(4, 1), VOTERS)
    for _ in snapshots.write_snapshot(files, newer, [[b"4"]]):
        pass
    assert open_replica(files, META_OF_ME).snapshot == newer
    path = tmp_path / snapshots.name_of(newer.end)
    path.write_bytes(path.read_bytes()[:-SECTOR])
    found = open_replica(files, META_OF_ME)
    assert found.snapshot.end == OffsetAndEpoch(0, 0) and found.log.end == OffsetAndEpoch(6, 1)
    assert found.index.voters == VOTERS and "an older one" in caplog.text
    (tmp_path / snapshots.name_of(OffsetAndEpoch(0, 0))).unlink()
    with pytest.raises(Damage):
        open_replica(files, META_OF_ME)


@pytest.mark.parametrize("what", [".journal", META, STATE, ".checkpoint"])
def test_what_is_missing_is_said(tmp_path: Path, what: str) -> None:
    files = filled(tmp_path)
    for name in files.names():
        if name.endswith(what):
            files.remove(name)
    with pytest.raises(Damage, match="missing"):
        read_meta(files)
        open_replica(files, META_OF_ME)


def test_a_vote_that_is_older_than_the_log_is_refused(tmp_path: Path) -> None:
    """It is an older copy. A member that uses it could vote twice in an epoch."""
    files = filled(tmp_path)
    store_election(files, ElectionState(0))
    with pytest.raises(Damage, match=f"{STATE} is an older copy"):
        open_replica(files, META_OF_ME)


def test_every_empty_folder_is_another_replica() -> None:
    drawn = {directory.draw_id() for _ in range(1_000)}
    assert (
        len(drawn) == 1_000
        and {len(each) for each in drawn} == {22}
        and not any(each.startswith("-") for each in drawn)
    )
