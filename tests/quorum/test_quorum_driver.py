"""Replicas with sockets, clocks and disks. Committed records survive whatever happens to hosts."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from patience import eventually
from quorum.hosts import TestCluster, free_ports, replaced

from fencepost.errors import SystemFailure
from fencepost.files.folders import OsFiles
from fencepost.quorum.driver import node as driver
from fencepost.quorum.driver.admin import Administrator
from fencepost.quorum.driver.fetches import FetchTimes
from fencepost.quorum.driver.frames import Ask, Call, Frame, FrameError, FrameReader, Hello, Welcome, encode
from fencepost.quorum.driver.host import QuorumHost
from fencepost.quorum.driver.links import LinkError, Links
from fencepost.quorum.driver.proposals import NotLeader, OutcomeUnknown
from fencepost.quorum.files.election import read_election
from fencepost.quorum.identity import Node, ReplicaKey
from fencepost.quorum.log import OffsetAndEpoch
from fencepost.quorum.messages import (
    AddVoter,
    BeginQuorum,
    DescribeQuorum,
    DescribeQuorumResponse,
    EndQuorum,
    Fetch,
    FetchSnapshot,
    RemoveVoter,
    ReplicaProgress,
    UpdateVoter,
    Vote,
)
from fencepost.quorum.roles.interface import Commit, ElectionState, Reply, Resign, StoreState
from fencepost.quorum.rules import Error


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


async def ask(cluster: TestCluster, request: Any) -> Any:
    """Send a request to the leader."""
    host = await cluster.leader()
    return await host.host.links.ask(host.host.me.endpoint, request)


async def test_three_hosts_make_a_cluster_and_have_the_same_records(cluster: TestCluster) -> None:
    await cluster.start()
    assert {each.host.meta.cluster_id for each in cluster.running} == {cluster[1].host.meta.cluster_id}
    await asyncio.gather(*(cluster.propose(each) for each in numbered(0, 200)))
    await eventually(lambda: all(len(each.machine.records) == 200 for each in cluster.running), "records")
    assert cluster[1].machine.records == cluster[2].machine.records == cluster[3].machine.records
    assert sorted(cluster[1].machine.records) == sorted(numbered(0, 200))
    leader = await cluster.leader()
    follower = next(each for each in cluster.running if each is not leader)
    try:
        await follower.node.propose([b"no"])
    except NotLeader:
        pass
    else:
        assert b"no" in leader.machine.records or follower.node.leads  # it may lead by now
    assert await follower.host.links.call(leader.host.me.endpoint, b"abc") == b"cba"


async def test_what_was_committed_outlives_its_leaders(cluster: TestCluster) -> None:
    await cluster.start()
    acknowledged = []
    for round_ in range(4):
        for each in numbered(round_ * 10, round_ * 10 + 10):
            await cluster.propose(each)
            acknowledged.append(each)
        leader = await cluster.leader()
        await leader.kill()
        await cluster.propose(b"without %d" % round_)
        acknowledged.append(b"without %d" % round_)
        await leader.start()
    await eventually(lambda: len({tuple(each.machine.records) for each in cluster.running}) == 1, "equal logs")
    assert [each for each in dict.fromkeys(cluster[1].machine.records) if each in acknowledged] == acknowledged


async def test_everything_is_there_when_all_start_again(cluster: TestCluster) -> None:
    await cluster.start()
    await cluster.propose(*numbered(0, 50))
    await cluster.have(numbered(0, 50))
    epochs = {}
    for each in cluster.running:
        replica = each.node.replica
        epochs[each.host_id] = replica.epoch, replica.voted
        await each.kill()
        stored = read_election(OsFiles(str(each.path)))
        assert (stored.epoch, stored.voted) == epochs[each.host_id]
    assert any(voted is not None for _, voted in epochs.values())
    await cluster.start()
    await cluster.have(numbered(0, 50))


async def test_a_vote_is_stored_before_it_is_given(lone: TestCluster) -> None:
    await lone.start()
    node = (await lone.leader()).node
    vote = ElectionState(node.replica.epoch + 5, node.me.key, None)
    stored: list[Any] = []
    node._carry_out[Reply] = lambda effect: stored.append(read_election(node.files))
    node._effects += [StoreState(vote), Reply(0, None)]  # type: ignore[arg-type]
    node._blocked = False
    node._run()
    assert stored[:1] == [vote]
    del node._carry_out[Reply]


async def test_nothing_is_acknowledged_before_the_disk_has_it_and_what_waits_is_one_group(lone: TestCluster) -> None:
    await lone.start(1)
    await lone.propose(b"first")
    node = lone[1].node
    await eventually(lambda: not node._syncing, "the disk to rest")
    free, groups, write = threading.Event(), [], node.log.write

    def slow(writes: Any) -> None:
        free.wait()
        groups.append(len(writes))
        write(writes)

    node.log.write = slow
    futures = [node.propose([each]) for each in numbered(0, 40)]
    await eventually(lambda: node._syncing, "the disk to begin")
    futures += [node.propose([each]) for each in numbered(40, 80)]
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert not any(each.done() for each in futures) and lone[1].machine.records == [b"first"]
    free.set()
    ends = [end.offset for end in await asyncio.gather(*futures)]
    assert ends == list(range(ends[0], ends[0] + 80)) and groups == [1, 1]
    assert lone[1].machine.records == [b"first", *numbered(0, 80)]


async def test_a_group_gathers_for_some_turns_if_the_last_one_was_of_several_records(
    lone: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "_REST", 60.0)
    await lone.start(1)
    await lone.propose(b"first")
    node = lone[1].node
    groups, write = [], node.log.write

    def seen(writes: Any) -> None:
        groups.append([record for each in writes for record in each.held.batch.records])
        write(writes)

    node.log.write = seen
    for several in (False, True, False):
        before = [b"before"] * (2 if several else 1)
        await node.propose(before)
        await eventually(lambda: not node._syncing, "the disk to rest")
        futures = [node.propose([b"one"])]
        await asyncio.sleep(0)
        futures.append(node.propose([b"two"]))
        await asyncio.gather(*futures)
        assert groups == [before, *([[b"one", b"two"]] if several else [[b"one"], [b"two"]])]
        groups.clear()
        await node.propose([b"single"])
        groups.clear()


async def test_a_leader_that_ends_cleanly_hands_over_at_once(cluster: TestCluster) -> None:
    cluster.settings = replaced(
        cluster.settings, fetch_timeout=60_000_000, fetch_max_wait=1_000_000, request_timeout=60_000_000
    )
    await cluster.start()
    await cluster.propose(b"a")
    leader = await cluster.leader()
    await leader.stop()
    await cluster.propose(b"b")
    await cluster.have([b"a", b"b"])


async def test_a_follower_that_was_away_too_long_gets_the_snapshot(tmp_path: Path) -> None:
    async with TestCluster(tmp_path, snapshot_records=50, piece=100) as cluster:
        await cluster.start()
        await cluster.propose(b"first")
        await cluster.have([b"first"])
        leader = await cluster.leader()
        away = next(each for each in cluster.running if each is not leader)
        await away.kill()
        for each in numbered(0, 300):
            await cluster.propose(each + b"." * 100)
        leader = await cluster.leader()
        await eventually(lambda: leader.node.replica.log.start_offset > 100, "a snapshot")
        await away.start()
        await cluster.have(leader.machine.records)
        assert len(away.machine.records) == 301
        await away.kill()
        await away.start()
        await cluster.have(leader.machine.records)


async def test_one_host_grows_to_three_while_it_serves(cluster: TestCluster) -> None:
    cluster.endpoints, all_endpoints = {1: cluster.endpoints[1]}, cluster.endpoints
    await cluster.start(1)
    await cluster.propose(*numbered(0, 20))
    cluster.endpoints = all_endpoints
    for host_id in (2, 3):
        await cluster.start(host_id)
        new = cluster[host_id]
        assert not new.node.replica.is_voter
        while (answer := await ask(cluster, AddVoter(new.host.me))).error is not Error.NONE:
            assert answer.error in (Error.NOT_CAUGHT_UP, Error.RECONFIG_IN_PROGRESS, Error.LEADER_NOT_READY), answer
            await asyncio.sleep(0.01)
    await cluster.have(numbered(0, 20))
    await cluster[1].kill()
    await cluster.propose(b"without the first")
    described = await ask(cluster, DescribeQuorum())
    assert [each.key.host_id for each in described.voters] == [1, 2, 3] and not described.observers


async def test_a_host_whose_disk_was_lost_is_another_replica(cluster: TestCluster) -> None:
    await cluster.start()
    await cluster.propose(*numbered(0, 20))
    leader = await cluster.leader()
    lost = next(each for each in cluster.running if each is not leader)
    before = lost.host.me
    await lost.kill()
    lost.wipe()
    await lost.start()
    after = lost.host.me
    assert before.key.host_id == after.key.host_id and before.key.directory_id != after.key.directory_id
    await cluster.have(numbered(0, 20))
    assert not lost.node.replica.is_voter
    assert (await ask(cluster, AddVoter(after))).error is Error.ALREADY_MEMBER
    assert (await ask(cluster, RemoveVoter(before.key))).error is Error.NONE
    while (answer := await ask(cluster, AddVoter(after))).error is not Error.NONE:
        assert answer.error is Error.NOT_CAUGHT_UP
        await asyncio.sleep(0.01)
    await eventually(lambda: lost.node.replica.is_voter, "the new voter")
    await leader.kill()
    await cluster.propose(b"with the new one")
    await cluster.have([*numbered(0, 20), b"with the new one"])


async def test_a_voter_that_is_started_at_another_endpoint_is_found_there(cluster: TestCluster) -> None:
    cluster.settings = replaced(cluster.settings, join_retry=20_000)
    await cluster.start()
    await cluster.propose(*numbered(0, 5))
    leader = await cluster.leader()
    moved = next(each for each in cluster.running if each is not leader)
    await moved.kill()
    before = cluster.endpoints[moved.host_id]
    cluster.endpoints = {**cluster.endpoints, moved.host_id: f"127.0.0.1:{free_ports(1)[0]}"}
    await moved.start()
    await eventually(lambda: moved.host.me in leader.node.replica.voters.nodes, "the new endpoint")
    assert moved.host.me.endpoint != before
    await eventually(
        lambda: all(each.node.replica.voters == leader.node.replica.voters for each in cluster.running), "it everywhere"
    )
    described = await ask(cluster, DescribeQuorum())
    assert {each.key.host_id: each.endpoint for each in described.voters} == cluster.endpoints
    # A new leader finds it there.
    await leader.kill()
    await cluster.propose(b"on")
    await cluster.have([*numbered(0, 5), b"on"])


async def test_observers_that_may_join_by_themselves_do_also_in_place_of_a_lost_disk(cluster: TestCluster) -> None:
    cluster.settings = replaced(cluster.settings, auto_join=True, join_retry=20_000)
    endpoints, cluster.endpoints = cluster.endpoints, {1: cluster.endpoints[1]}
    await cluster.start(1)
    await cluster.propose(*numbered(0, 5))
    cluster.endpoints = endpoints
    await cluster.start(2, 3)
    await eventually(lambda: all(each.node.replica.is_voter for each in cluster.running), "three voters")
    await eventually(lambda: len(cluster[1].node.replica.voters) == 3, "three voters")
    leader = await cluster.leader()
    lost = next(each for each in cluster.running if each is not leader)
    await lost.kill()
    lost.wipe()
    await lost.start()
    await eventually(lambda: lost.node.replica.is_voter, "the new replica")
    await cluster.have(numbered(0, 5))


async def test_a_leader_tells_when_others_fetched_and_had_all(cluster: TestCluster) -> None:
    await cluster.start()
    await cluster.propose(*numbered(0, 5))
    leader = await cluster.leader()

    async def progress() -> dict[int, Any]:
        return {each.key.host_id: each for each in (await ask(cluster, DescribeQuorum())).voters}

    while any(each.caught_up_at < 0 for each in (await progress()).values()):
        await asyncio.sleep(0.01)
    found = await progress()
    now = time.time() * 1000
    assert all(0 < each.caught_up_at <= each.fetched_at <= now for each in found.values())
    assert found[leader.host_id].fetched_at == max(each.fetched_at for each in found.values())
    away = next(each for each in cluster.running if each is not leader)
    await away.kill()
    last = (await progress())[away.host_id]
    await cluster.propose(b"on")
    await asyncio.sleep(0.01)
    assert (await progress())[away.host_id] == last


def test_times_of_fetches_are_of_one_epoch() -> None:
    now = 1_000
    times = FetchTimes(lambda: now)
    key, leader = ReplicaKey(2, "b"), ReplicaKey(1, "a")

    def known_times(epoch: int = 3) -> tuple[tuple[int, int], ...]:
        voters = (ReplicaProgress(leader, "h:1", 9), ReplicaProgress(key, "h:2", 9))
        found = times.with_times(DescribeQuorumResponse(leader, epoch, None, Error.NONE, 9, voters))
        return tuple((each.fetched_at, each.caught_up_at) for each in found.voters)

    def fetched(offset: int, end: int, epoch: int = 3) -> None:
        times.record(Fetch(epoch, key, OffsetAndEpoch(offset, 1)), end)

    assert known_times() == ((1_000, 1_000), (-1, -1))
    fetched(4, 9)
    assert known_times() == ((1_000, 1_000), (1_000, -1))
    now = 2_000
    fetched(8, 12)  # it lacks records that the leader had at 1,000
    assert known_times()[1] == (2_000, -1)
    now = 3_000
    fetched(12, 15)  # it has all records that the leader had at 2,000
    assert known_times()[1] == (3_000, 2_000)
    now = 4_000
    fetched(15, 15)
    assert known_times() == ((4_000, 4_000), (4_000, 4_000))
    now = 5_000
    fetched(15, 99)
    now = 6_000
    fetched(20, 99)
    assert known_times()[1] == (6_000, 4_000)
    assert known_times(epoch=4)[1] == (-1, -1)
    fetched(1, 9, epoch=4)
    assert known_times(epoch=4)[1] == (6_000, -1)


async def test_proposals_of_a_leader_without_followers_are_not_acknowledged(cluster: TestCluster) -> None:
    await cluster.start()
    leader = await cluster.leader()
    others = [each for each in cluster.running if each is not leader]
    for each in others:
        await each.kill()
    with pytest.raises((OutcomeUnknown, NotLeader)):
        await leader.node.propose([b"alone"])
    assert leader.machine.records == []
    await others[0].start()
    await cluster.propose(b"after")
    assert leader.machine.records[-1] == b"after"


async def test_a_disk_that_fails_ends_the_replica_alone(cluster: TestCluster) -> None:
    await cluster.start()
    leader = await cluster.leader()

    def fails(writes: Any) -> None:
        raise OSError(28, "No space left on device")

    follower = next(each for each in cluster.running if each is not leader)
    await follower.kill()  # two followers could commit without the disk of the leader
    leader.node.log.write = fails
    with pytest.raises((OutcomeUnknown, NotLeader)):
        await leader.node.propose([b"lost"])
    await eventually(lambda: isinstance(leader.machine.failure, OSError), "the end of the replica")
    await leader.host.links.close()
    leader.host = None
    await follower.start()
    await cluster.propose(b"kept")


async def test_replicas_of_other_clusters_are_refused(cluster: TestCluster, caplog: pytest.LogCaptureFixture) -> None:
    await cluster.start()
    host = cluster[1].host
    host.links.hello = lambda: ("another", host.meta.key)
    with pytest.raises(LinkError, match="it is of the cluster another"):
        await host.links.call(cluster[2].host.me.endpoint, b"")
    host.links.hello = lambda: (None, None)
    assert isinstance(await host.links.ask(cluster[2].host.me.endpoint, DescribeQuorum()), msgspec.Struct)
    with pytest.raises(LinkError):  # administrators may not call state machines
        await host.links.call(cluster[2].host.me.endpoint, b"")


async def test_a_folder_is_one_hosts(tmp_path: Path) -> None:
    files = OsFiles(str(tmp_path))
    QuorumHost(files, 1, {1: "127.0.0.1:1"})
    with pytest.raises(SystemFailure, match="host 1, and not of 2"):
        QuorumHost(files, 2, {2: "127.0.0.1:1"})
    with pytest.raises(SystemFailure, match="not among the controllers"):
        QuorumHost(files, 3, {2: "127.0.0.1:1"})


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\0",
        b"\xff\xff\xff\xff",
        b"\0\0\0\2\2\xc0",
        b"\0\0\0\2\1\xc0",
        encode(Ask(1, DescribeQuorum())),
        encode(Call(1, b"")),
        encode(Hello()) + encode(Hello()),
        encode(Hello()) + encode(Welcome(Node(ReplicaKey(1, "a"), "b"))),
    ],
)
async def test_hostile_bytes_end_their_connection_alone(lone: TestCluster, data: bytes) -> None:
    await lone.start(1)
    host, _, port = lone[1].host.me.endpoint.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    try:
        async with asyncio.timeout(60):
            await reader.read()
    except ConnectionError:
        pass
    writer.close()
    await lone.propose(b"still")


async def test_a_log_that_is_said_to_end_within_a_batch_ends_nobody(lone: TestCluster) -> None:
    await lone.start(1)
    await lone.propose(b"a", b"b", b"c")
    node = lone[1].node
    end, epoch = node.replica.log.end_offset, node.replica.epoch
    stranger = ReplicaKey(9, "stranger")
    links = Links(lone[1].host, lambda: (node.meta.cluster_id, stranger))
    fetch = Fetch(epoch, stranger, OffsetAndEpoch(end - 2, epoch))
    answer = await links.ask(lone[1].host.me.endpoint, fetch)
    assert answer.error is Error.INVALID_REQUEST
    await links.close()
    # A leader that believes such a voter commits a part of the batch. Nothing of the batch is applied yet.
    node.applied = end - 3
    node._commit(Commit(end - 1))
    assert node.applied == end - 3
    node._commit(Commit(end))
    assert node.applied == end
    await lone.propose(b"still")


async def connected(cluster: TestCluster, *frames: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first host and send frames."""
    host, _, port = cluster[1].host.me.endpoint.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"".join(map(encode, frames)))
    return reader, writer


async def ends(reader: asyncio.StreamReader) -> bool:
    """Whether the other side closes a connection."""
    async with asyncio.timeout(60):
        try:
            while await reader.read(1 << 16):
                pass
        except ConnectionError:
            pass
    return True


async def test_connections_that_say_nothing_are_closed_and_keep_nobody_out(lone: TestCluster) -> None:
    await lone.start(1)
    links = lone[1].host.links
    links.first_frame = 0.5
    silent = [await connected(lone) for _ in range(links.strangers.limit + 20)]
    administrator = Administrator([lone[1].host.me.endpoint], 30.0)
    await administrator.describe()
    assert len(links.strangers) <= links.strangers.limit
    for reader, writer in silent:
        assert await ends(reader)
        writer.close()
    await administrator.describe()
    await administrator.close()
    assert not links.strangers


async def test_each_kind_of_connections_has_its_own_places(lone: TestCluster) -> None:
    await lone.start(1)
    host = lone[1].host
    links, cluster_id = host.links, host.meta.cluster_id
    greeted = [Hello()] * 80
    greeted += [Hello(cluster_id, ReplicaKey(9, "observer"))] * 300 + [Hello(cluster_id, host.me.key)] * 20
    there = [await connected(lone, hello) for hello in greeted]
    await eventually(lambda: len(links.of_replicas[host.me.key]) == 4, "places")
    assert (len(links.administrators), len(links.observers)) == (64, 256)
    administrator = Administrator([host.me.endpoint], 30.0)
    assert (await administrator.describe())[0] == cluster_id
    await administrator.close()
    for _, writer in there:
        writer.close()
    await eventually(lambda: not links.incoming and not links.of_replicas, "the end of connections")


@pytest.mark.parametrize(
    "asked",
    [
        lambda me: BeginQuorum(9, Node(ReplicaKey(2, "d"), "h:1"), me),
        lambda me: Vote(9, ReplicaKey(2, "d"), me, OffsetAndEpoch(0, 0)),
        lambda me: EndQuorum(9, ReplicaKey(2, "d"), ()),
        lambda me: Fetch(1, ReplicaKey(2, "d"), OffsetAndEpoch(0, 0)),
        lambda me: FetchSnapshot(1, ReplicaKey(2, "d"), OffsetAndEpoch(0, 0), 0),
        lambda me: UpdateVoter(1, Node(ReplicaKey(2, "d"), "h:1")),
    ],
)
@pytest.mark.parametrize("is_administrator", [True, False])
async def test_nobody_speaks_for_another_replica(
    lone: TestCluster, asked: Callable[[ReplicaKey], Any], is_administrator: bool, caplog: pytest.LogCaptureFixture
) -> None:
    await lone.start(1)
    host = lone[1].host
    epoch = host.node.replica.epoch
    hello = Hello() if is_administrator else Hello(host.meta.cluster_id, ReplicaKey(3, "d"))
    reader, writer = await connected(lone, hello, Ask(1, asked(host.me.key)))
    assert await ends(reader)
    writer.close()
    assert host.node.replica.epoch == epoch
    await lone.propose(b"still")
    assert "of 2-d, another replica" in caplog.text


async def test_strangers_send_short_frames_only(lone: TestCluster, caplog: pytest.LogCaptureFixture) -> None:
    await lone.start(1)
    for frames in ([], [Hello()]):
        reader, writer = await connected(lone, *frames)
        writer.write((65_537).to_bytes(4))
        assert await ends(reader)
        writer.close()
    reader, writer = await connected(lone, Hello(None, ReplicaKey(3, "d")))
    assert await ends(reader)
    writer.close()
    assert caplog.text.count("and the limit is 65,536") == 2
    assert "it names its replica, but not its cluster" in caplog.text


async def test_a_defect_ends_the_replica_and_not_a_part_of_it(
    lone: TestCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await lone.start(1)
    node = await lone.leader()
    node.node.replica.receive = lambda event: {}["no such thing"]  # type: ignore[index]
    node.node.deliver(Resign())
    assert isinstance(node.machine.failure, KeyError)
    assert node.node.stopped


def test_frames_come_in_any_pieces() -> None:
    frames: list[Frame] = [Hello("c", ReplicaKey(1, "d")), Ask(3, DescribeQuorum()), Call(4, b"x" * 500)]
    data = b"".join(map(encode, frames))
    for size in (1, 2, 3, 7, 100, 1_000):
        reader = FrameReader(1_000)
        found = [frame for at in range(0, len(data), size) for frame in reader.feed(data[at : at + size])]
        assert found == frames
    with pytest.raises(FrameError, match="the limit is 100"):
        list(FrameReader(100).feed(data))
