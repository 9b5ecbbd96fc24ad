"""Members that serve Kafka's protocol: the state of the quorum, changes of voters, Kafka's errors, and bad frames."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import struct
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import patience
import pytest
from patience import eventually
from quorum.hosts import TestCluster, TestHost, free_ports

from fencepost.errors import SystemFailure
from fencepost.files.folders import OsFiles
from fencepost.quorum.driver.host import QuorumHost
from fencepost.quorum.files.directory import Meta, draw_id
from fencepost.quorum.identity import Node
from fencepost.quorum.kafka.answers import CODES, Answers, Code
from fencepost.quorum.kafka.listener import KafkaListener
from fencepost.quorum.kafka.messages import (
    ADD_RAFT_VOTER,
    API_VERSIONS,
    APIS,
    DESCRIBE_CLUSTER,
    DESCRIBE_QUORUM,
    REMOVE_RAFT_VOTER,
    Api,
    decode_response,
    encode_request,
)
from fencepost.quorum.kafka.schema import ZERO_UUID
from fencepost.quorum.messages import AddVoter, DescribeQuorum, RemoveVoter, RemoveVoterResponse
from fencepost.quorum.rules import Error

QUORUM = {"Topics": [{"TopicName": "__cluster_metadata", "Partitions": [{"PartitionIndex": 0}]}]}


class Client:
    """A connection that speaks Kafka's protocol."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._numbers = itertools.count(1)

    async def ask(self, api: Api, version: int, body: dict[str, Any], answered_in: int | None = None) -> dict[str, Any]:
        number = next(self._numbers)
        self.send(encode_request(api, version, number, "test", body))
        return await self.answer(api, version if answered_in is None else answered_in, number)

    def send(self, data: bytes) -> None:
        self.writer.write(struct.pack(">i", len(data)) + data)

    async def answer(self, api: Api, version: int, number: int) -> dict[str, Any]:
        async with asyncio.timeout(patience.PATIENCE):
            (length,) = struct.unpack(">i", await self.reader.readexactly(4))
            found, body = decode_response(api, version, await self.reader.readexactly(length))
        assert found == number
        return body

    async def is_closed(self) -> bool:
        async with asyncio.timeout(patience.PATIENCE):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True


class Clients:
    """Listeners of hosts, and connections to them."""

    def __init__(self) -> None:
        self.listeners: list[KafkaListener] = []
        self.opened: list[Client] = []

    async def listen(self, host: TestHost, **limits: Any) -> tuple[str, int]:
        self.listeners.append(KafkaListener(host.host, **limits))
        return await self.listeners[-1].listen(0)

    async def open(self, address: tuple[str, int]) -> Client:
        self.opened.append(Client(*await asyncio.open_connection(*address)))
        return self.opened[-1]

    async def of(self, host: TestHost, **limits: Any) -> Client:
        return await self.open(await self.listen(host, **limits))

    async def __aenter__(self) -> Clients:
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in self.opened:
            each.writer.close()
        for listener in self.listeners:
            await listener.close()


@asynccontextmanager
async def led(folder: Path, count: int) -> AsyncIterator[TestCluster]:
    """A cluster that has a leader."""
    async with TestCluster(folder, count) as cluster:
        await cluster.start()
        await cluster.leader()
        yield cluster


@pytest.fixture
def cluster(tmp_path: Path) -> AbstractAsyncContextManager[TestCluster]:
    """Three hosts."""
    return led(tmp_path, 3)


@pytest.fixture
def lone(tmp_path: Path) -> AbstractAsyncContextManager[TestCluster]:
    """A host that is a cluster alone."""
    return led(tmp_path, 1)


@pytest.fixture
def clients() -> Clients:
    return Clients()


def listener(name: str, endpoint: str) -> dict[str, Any]:
    host, _, port = endpoint.rpartition(":")
    return {"Name": name, "Host": host, "Port": int(port)}


def adding(node: Node, **changes: Any) -> dict[str, Any]:
    return {
        "ClusterId": None,
        "TimeoutMs": 30_000,
        "VoterId": node.key.host_id,
        "VoterDirectoryId": node.key.directory_id,
        "Listeners": [listener("OTHER", "127.0.0.1:1"), listener("CONTROLLER", node.endpoint)],
    } | changes


def removing(node: Node, **changes: Any) -> dict[str, Any]:
    return {"ClusterId": None, "VoterId": node.key.host_id, "VoterDirectoryId": node.key.directory_id} | changes


async def observer(cluster: TestCluster, host_id: int) -> TestHost:
    """Start a host as an observer."""
    cluster.hosts.setdefault(host_id, TestHost(cluster, host_id))
    cluster.endpoints.setdefault(host_id, f"127.0.0.1:{free_ports(1)[0]}")
    await cluster.start(host_id)
    return cluster[host_id]


# -- the state of the quorum -------------------------------------------------------------------------------------------


async def test_any_member_describes_the_quorum_in_each_version(cluster: TestCluster, clients: Clients) -> None:
    await cluster.propose(b"a", b"b")
    leader, watching = await cluster.leader(), await observer(cluster, 4)
    await cluster.have([b"a", b"b"])
    end = leader.node.replica.log.end_offset

    async def ends() -> set[int]:
        status = await leader.host.ask_leader(DescribeQuorum())
        return {each.end_offset for each in (*status.voters, *status.observers)}

    while await ends() != {end}:
        await asyncio.sleep(0.01)
    keys = {each.host_id: each.host.me.key for each in cluster.running}
    for host, version in itertools.product((leader, cluster[1], cluster[2], watching), (0, 1, 2)):
        client = await clients.of(host)
        found = await client.ask(DESCRIBE_QUORUM, version, QUORUM)
        assert (found["ErrorCode"], found["ErrorMessage"] or None) == (0, None)
        ((name, (partition,)),) = [(each["TopicName"], each["Partitions"]) for each in found["Topics"]]
        assert (name, partition["PartitionIndex"], partition["ErrorCode"]) == ("__cluster_metadata", 0, 0)
        status = await host.host.ask_leader(DescribeQuorum())
        assert (partition["LeaderId"], partition["LeaderEpoch"]) == (leader.host_id, status.epoch)
        assert partition["HighWatermark"] == status.high_watermark == leader.node.replica.log.end_offset
        for name, replicas in (("CurrentVoters", status.voters), ("Observers", status.observers)):
            assert [(each["ReplicaId"], each["LogEndOffset"]) for each in partition[name]] == [
                (each.key.host_id, each.end_offset) for each in replicas
            ]
            for each in partition[name]:
                assert each["ReplicaDirectoryId"] == (
                    keys[each["ReplicaId"]].directory_id if version == 2 else ZERO_UUID
                )
                assert (each["LastFetchTimestamp"] > 0) == (version > 0)
        nodes = {each["NodeId"]: each["Listeners"] for each in found["Nodes"]}
        voters = {number: [listener("CONTROLLER", cluster.endpoints[number])] for number in (1, 2, 3)}
        assert nodes == (voters if version == 2 else {})


async def test_a_cluster_is_the_member_that_is_asked(tmp_path: Path) -> None:
    async with led(tmp_path, 2) as cluster, Clients() as clients:
        address = await clients.listen(cluster[2])
        client = await clients.open(address)
        for version in (1, 2):
            found = await client.ask(DESCRIBE_CLUSTER, version, {"EndpointType": 2})
            assert (found["ErrorCode"], found["EndpointType"], found["ClusterId"]) == (
                0,
                2,
                cluster[1].host.meta.cluster_id,
            )
            assert found["ControllerId"] == 2
            assert [(each["BrokerId"], each["Host"], each["Port"]) for each in found["Brokers"]] == [(2, *address)]
        for version, of, code in ((0, 1, 114), (1, 1, 114), (2, 1, 114), (1, 3, 115)):
            body = {"EndpointType": of} if version else {}
            found = await client.ask(DESCRIBE_CLUSTER, version, body)
            assert found["ErrorCode"] == code and found["ErrorMessage"]


async def test_versions_are_told_in_each_version_and_in_one_that_is_to_come(
    lone: TestCluster, clients: Clients
) -> None:
    client = await clients.of(lone[1])
    every = [{"ApiKey": api.key, "MinVersion": api.oldest, "MaxVersion": api.newest} for api in APIS.values()]
    for version in range(5):
        found = await client.ask(
            API_VERSIONS, version, {"ClientSoftwareName": "x", "ClientSoftwareVersion": "1"} if version >= 3 else {}
        )
        assert (found["ErrorCode"], found["ApiKeys"]) == (0, every)
        features = [{"Name": "kraft.version", "MinVersion": 1, "MaxVersion": 1}] if version >= 3 else []
        assert found["SupportedFeatures"] == features
    found = await client.ask(API_VERSIONS, 9, {"ClientSoftwareName": "x", "ClientSoftwareVersion": "1"}, answered_in=0)
    assert (found["ErrorCode"], found["ApiKeys"]) == (35, [{"ApiKey": 18, "MinVersion": 0, "MaxVersion": 4}])
    assert (await client.ask(DESCRIBE_QUORUM, 2, QUORUM))["ErrorCode"] == 0


@pytest.mark.parametrize(
    "asked",
    [
        [("other", [0])],
        [("__cluster_metadata", [1])],
        [("__cluster_metadata", [0, 1])],
        [("__cluster_metadata", [0]), ("x", [])],
    ],
)
async def test_there_is_one_partition(lone: TestCluster, clients: Clients, asked: list[tuple[str, list[int]]]) -> None:
    client = await clients.of(lone[1])
    body = {
        "Topics": [
            {"TopicName": name, "Partitions": [{"PartitionIndex": each} for each in numbers]} for name, numbers in asked
        ]
    }
    for version in (0, 2):
        found = await client.ask(DESCRIBE_QUORUM, version, body)
        partitions = [(topic["TopicName"], each) for topic in found["Topics"] for each in topic["Partitions"]]
        assert [(name, each["PartitionIndex"]) for name, each in partitions] == [
            (name, each) for name, numbers in asked for each in numbers
        ]
        assert {each["ErrorCode"] for _, each in partitions} == {3}


# -- changes -----------------------------------------------------------------------------------------------------------


async def test_voters_are_added_and_removed_by_whichever_member_is_asked(
    cluster: TestCluster, clients: Clients
) -> None:
    new = (await observer(cluster, 4)).host.me
    leader = await cluster.leader()
    asked = [await clients.of(each) for each in (*cluster.running,)]
    for number, client in enumerate(asked):
        found = await client.ask(ADD_RAFT_VOTER, number % 2, adding(new))
        assert found == {"ThrottleTimeMs": 0, "ErrorCode": 0, "ErrorMessage": None}
        assert new in leader.node.replica.voters.nodes
        found = await client.ask(ADD_RAFT_VOTER, 1, adding(new))
        assert (found["ErrorCode"], found["ErrorMessage"]) == (Code.DUPLICATE_VOTER, f"{new.key} is a voter already")
        other = msgspec.structs.replace(new, key=msgspec.structs.replace(new.key, directory_id=draw_id()))
        assert (await client.ask(ADD_RAFT_VOTER, 0, adding(other)))["ErrorCode"] == Code.DUPLICATE_VOTER
        found = await client.ask(REMOVE_RAFT_VOTER, 0, removing(other))
        assert found["ErrorCode"] == Code.VOTER_NOT_FOUND and str(new.key) in found["ErrorMessage"]
        cluster_id = cluster[1].host.meta.cluster_id
        found = await client.ask(REMOVE_RAFT_VOTER, 0, removing(new, ClusterId=cluster_id))
        assert found == {"ThrottleTimeMs": 0, "ErrorCode": 0, "ErrorMessage": None}
        assert new.key not in leader.node.replica.voters
        assert (await client.ask(REMOVE_RAFT_VOTER, 0, removing(new)))["ErrorCode"] == Code.VOTER_NOT_FOUND


async def test_who_adds_a_voter_need_not_wait_until_that_is_committed(
    lone: TestCluster, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = await observer(lone, 2)
    client = await clients.of(lone[1])
    asked = []
    of_node = lone[1].node.request_received

    def notes(request: Any, respond: Any) -> None:
        asked.append(request)
        of_node(request, respond)

    monkeypatch.setattr(lone[1].node, "request_received", notes)
    for version, body, waits in ((0, {}, True), (1, {}, True), (1, {"AckWhenCommitted": False}, False)):
        assert (await client.ask(ADD_RAFT_VOTER, version, adding(new.host.me, **body)))["ErrorCode"] == 0
        assert [each.when_committed for each in asked if isinstance(each, AddVoter)][-1] == waits
        assert (await client.ask(REMOVE_RAFT_VOTER, 0, removing(new.host.me)))["ErrorCode"] == 0


async def test_a_leader_that_was_removed_is_added_as_soon_as_it_follows_its_successor(
    cluster: TestCluster, clients: Clients
) -> None:
    """It waits for an election timeout before it looks for the leader. The request that adds it again waits too."""
    removed = await cluster.leader()
    others = [each for each in cluster.running if each is not removed]
    client = await clients.of(others[0])
    assert (await client.ask(REMOVE_RAFT_VOTER, 0, removing(removed.host.me)))["ErrorCode"] == 0
    while others[0].node.leader in (None, removed.host.me):
        await asyncio.sleep(0)
    assert removed.node.leader is None
    found = await client.ask(ADD_RAFT_VOTER, 1, adding(removed.host.me))
    assert found == {"ThrottleTimeMs": 0, "ErrorCode": 0, "ErrorMessage": None}


async def test_changes_that_are_refused(lone: TestCluster, clients: Clients, tmp_path: Path) -> None:
    new = (await observer(lone, 2)).host.me
    client = await clients.of(lone[2])
    mine = lone[1].host.meta.cluster_id
    for changes, code, reason in (
        ({"ClusterId": "another"}, Code.INCONSISTENT_CLUSTER_ID, f"this is the cluster {mine}, and not another"),
        ({"VoterId": -1}, Code.INVALID_REQUEST, "a voter has an id from 0 on"),
        ({"VoterDirectoryId": ZERO_UUID}, Code.INVALID_REQUEST, "the id of a directory"),
    ):
        for api, body in ((ADD_RAFT_VOTER, adding(new, **changes)), (REMOVE_RAFT_VOTER, removing(new, **changes))):
            found = await client.ask(api, 0, body)
            assert found["ErrorCode"] == code and reason in found["ErrorMessage"]
    nobody, one = f"127.0.0.1:{free_ports(1)[0]}", lone.endpoints[1]
    for listeners, code, reason in (
        ([], Code.INVALID_REQUEST, "no listener of the name CONTROLLER"),
        ([listener("PLAINTEXT", new.endpoint)], Code.INVALID_REQUEST, "no listener of the name CONTROLLER"),
        ([listener("CONTROLLER", "127.0.0.1:0")], Code.INVALID_REQUEST, "no listener of the name CONTROLLER"),
        ([listener("CONTROLLER", nobody)], Code.REQUEST_TIMED_OUT, f"does not answer at its endpoint: {nobody}"),
        (
            [listener("CONTROLLER", one)],
            Code.INVALID_REQUEST,
            f"at {one} is {lone[1].host.me.key}, and not {new.key}",
        ),
    ):
        found = await client.ask(ADD_RAFT_VOTER, 1, adding(new, Listeners=listeners))
        assert found["ErrorCode"] == code and reason in found["ErrorMessage"]
    found = await client.ask(REMOVE_RAFT_VOTER, 0, removing(lone[1].host.me))
    assert (found["ErrorCode"], found["ErrorMessage"]) == (Code.INVALID_REQUEST, "the last voter cannot be removed")
    # This host belongs to the cluster but never fetches.
    late = QuorumHost(
        OsFiles(str(tmp_path / "late")), 7, {1: lone.endpoints[1], 7: f"127.0.0.1:{free_ports(1)[0]}"}, lone.settings
    )
    await late.open()
    found = await client.ask(ADD_RAFT_VOTER, 1, adding(late.me, TimeoutMs=300))
    assert (found["ErrorCode"], found["ErrorMessage"]) == (Code.REQUEST_TIMED_OUT, Error.NOT_CAUGHT_UP.value)
    await late.close()
    found = await client.ask(ADD_RAFT_VOTER, 1, adding(new, TimeoutMs=0))
    assert found["ErrorCode"] == Code.REQUEST_TIMED_OUT and "0 seconds were not enough" in found["ErrorMessage"]
    assert [each.key.host_id for each in lone[1].node.replica.voters.nodes] == [1]


async def test_a_change_that_is_not_committed_is_not_acknowledged(cluster: TestCluster, clients: Clients) -> None:
    leader = await cluster.leader()
    others = [each for each in cluster.running if each is not leader]
    client = await clients.of(leader)
    clients.listeners[-1]._answers = Answers(leader.host, ("127.0.0.1", 1), patience=0.05)
    for each in others:
        await each.kill()
    gone = leader.host.meta.key
    found = await client.ask(
        REMOVE_RAFT_VOTER, 0, {"ClusterId": None, "VoterId": gone.host_id, "VoterDirectoryId": gone.directory_id}
    )
    assert (found["ErrorCode"], "may yet be made" in found["ErrorMessage"]) == (Code.REQUEST_TIMED_OUT, True)


async def test_without_a_leader_whoever_asks_is_to_ask_again(cluster: TestCluster, clients: Clients) -> None:
    leader = await cluster.leader()
    left, killed = [each for each in cluster.running if each is not leader]
    client = await clients.of(left)
    await killed.kill()
    await leader.kill()
    await eventually(lambda: left.node.leader is None, "nobody to lead")
    for version in (0, 2):
        found = await client.ask(DESCRIBE_QUORUM, version, QUORUM)
        (partition,) = found["Topics"][0]["Partitions"]
        assert (partition["ErrorCode"], partition["LeaderId"], found["ErrorCode"]) == (
            Code.NOT_LEADER_OR_FOLLOWER,
            -1,
            0,
        )
    for api, body in ((ADD_RAFT_VOTER, adding(left.host.me)), (REMOVE_RAFT_VOTER, removing(left.host.me))):
        assert (await client.ask(api, 0, body))["ErrorCode"] == Code.NOT_LEADER_OR_FOLLOWER


async def test_a_leader_that_goes_while_it_makes_a_change_leaves_that_open(
    cluster: TestCluster, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = await cluster.leader()
    asked = next(each for each in cluster.running if each is not leader)
    client = await clients.of(asked)
    voter = asked.host.me

    def goes(request: Any, respond: Any) -> None:
        if isinstance(request, RemoveVoter):
            for each in list(asked.host.links.outgoing.values()):
                each.close()
        else:
            of_node(request, respond)

    of_node = leader.node.request_received
    monkeypatch.setattr(leader.node, "request_received", goes)
    found = await client.ask(REMOVE_RAFT_VOTER, 0, removing(voter))
    assert (
        found["ErrorCode"] == Code.REQUEST_TIMED_OUT
        and "the leader is gone, and the change may yet be made" in found["ErrorMessage"]
    )

    def hands_over(request: Any, respond: Any) -> None:
        if isinstance(request, RemoveVoter):
            respond(RemoveVoterResponse(leader.host.me.key, leader.node.replica.epoch, None, Error.NOT_LEADER))
        else:
            of_node(request, respond)

    monkeypatch.setattr(leader.node, "request_received", hands_over)
    assert (await client.ask(REMOVE_RAFT_VOTER, 0, removing(voter)))["ErrorCode"] == Code.NOT_LEADER_OR_FOLLOWER


def test_what_a_leader_may_refuse_has_a_code() -> None:
    replicas = {Error.INVALID_VOTER_KEY, Error.NOT_VOTER, Error.FENCED_LEADER_EPOCH, Error.UNKNOWN_LEADER_EPOCH}
    snapshots = {Error.SNAPSHOT_NOT_FOUND, Error.POSITION_OUT_OF_RANGE}
    assert set(CODES) == set(Error) - replicas - snapshots


# -- frames ------------------------------------------------------------------------------------------------------------


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", "announced a frame of 369,295,618 bytes, and the limit is 65,536"),
        (b"\xff\xff\xff\xff", "announced a frame of -1 bytes"),
        (struct.pack(">i", 65_537), "announced a frame of 65,537 bytes"),
        (framed(b"\0\x12"), "2 bytes, which is less than a header"),
        (framed(b"\0\x03\0\x0c" + bytes(9)), "sent a request of the number 3"),
        (framed(b"\0\x37\0\x07" + bytes(9)), "sent DescribeQuorum 7"),
        (
            framed(encode_request(DESCRIBE_QUORUM, 2, 1, "x", QUORUM)[:-1]),
            "sent DescribeQuorum 2, which ends 1 bytes too early",
        ),
        (framed(encode_request(API_VERSIONS, 0, 1, "x", {}) + b"x"), "sent ApiVersions 0, which has 1 bytes too many"),
    ],
)
async def test_a_connection_with_a_bad_frame_is_closed_and_said_in_one_line(
    lone: TestCluster, clients: Clients, caplog: pytest.LogCaptureFixture, data: bytes, reason: str
) -> None:
    caplog.set_level(logging.WARNING)
    address = await clients.listen(lone[1])
    client, other = await clients.open(address), await clients.open(address)
    client.writer.write(framed(encode_request(API_VERSIONS, 0, 1, "x", {})) + data)
    assert (await client.answer(API_VERSIONS, 0, 1))["ErrorCode"] == 0
    assert await client.is_closed()
    assert (await other.ask(DESCRIBE_QUORUM, 2, QUORUM))["ErrorCode"] == 0
    said = [each.getMessage() for each in caplog.records if "Kafka" in each.getMessage()]
    assert (
        len(said) == 1
        and reason in said[0]
        and re.match(r"a connection of Kafka's protocol from 127.0.0.1:\d+ is closed: it ", said[0])
    )


async def test_requests_of_one_connection_are_answered_in_turn_however_they_are_cut(
    lone: TestCluster, clients: Clients
) -> None:
    client = await clients.of(lone[1])
    asked: list[tuple[Api, int, dict[str, Any]]]
    asked = [(DESCRIBE_QUORUM, 2, QUORUM), (API_VERSIONS, 4, {}), (DESCRIBE_CLUSTER, 1, {"EndpointType": 2})] * 3
    stream = b"".join(
        framed(encode_request(api, version, number, "x", body)) for number, (api, version, body) in enumerate(asked)
    )
    for at in range(0, len(stream), 7):
        client.writer.write(stream[at : at + 7])
        await asyncio.sleep(0)
    for number, (api, version, _) in enumerate(asked):
        assert (await client.answer(api, version, number))["ErrorCode"] == 0


async def test_connections_and_their_patience_are_limited(
    lone: TestCluster, clients: Clients, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    address = await clients.listen(lone[1], max_connections=2, max_frame=200, idle=0.2)
    first, second = [await clients.open(address) for _ in range(2)]
    for each in (first, second):
        assert (await each.ask(API_VERSIONS, 0, {}))["ErrorCode"] == 0
    assert (await first.ask(API_VERSIONS, 0, {}))["ErrorCode"] == 0
    third = await clients.open(address)
    assert (await third.ask(API_VERSIONS, 0, {}))["ErrorCode"] == 0
    assert await second.is_closed()  # it was silent longest
    first.writer.write(struct.pack(">i", 20))
    assert await first.is_closed() and await third.is_closed()
    third = await clients.open(address)
    assert (await third.ask(API_VERSIONS, 0, {}))["ErrorCode"] == 0
    third.writer.write(struct.pack(">i", 201))
    assert await third.is_closed()
    said = [
        each.getMessage().partition(" is closed: it ")[2] for each in caplog.records if "Kafka" in each.getMessage()
    ]
    assert said == ["announced a frame of 201 bytes, and the limit is 200"]


async def test_who_asks_for_nothing_is_closed_soon_and_keeps_nobody_out(lone: TestCluster, clients: Clients) -> None:
    address = await clients.listen(lone[1], first_frame=0.3)
    silent = [await clients.open(address) for _ in range(64)]
    client = await clients.open(address)
    assert (await client.ask(API_VERSIONS, 0, {}))["ErrorCode"] == 0
    for each in silent:
        assert await each.is_closed()
    assert (await client.ask(API_VERSIONS, 0, {}))["ErrorCode"] == 0


async def test_a_port_that_is_taken_is_said_and_connections_end_with_the_listener(
    lone: TestCluster, clients: Clients
) -> None:
    _, port = await clients.listen(lone[1])
    with pytest.raises(SystemFailure, match=f"cannot listen for Kafka's protocol on 127.0.0.1:{port}: .*in use"):
        await KafkaListener(lone[1].host).listen(port)
    client = await clients.open(("127.0.0.1", port))
    assert (await client.ask(API_VERSIONS, 0, {}))["ErrorCode"] == 0
    await clients.listeners.pop(0).close()
    assert await client.is_closed()
    with pytest.raises(ConnectionError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_a_member_of_no_cluster_yet_has_no_leader(tmp_path: Path) -> None:
    host = QuorumHost(OsFiles(str(tmp_path)), 1, {1: "127.0.0.1:1", 2: "127.0.0.1:2"})
    assert isinstance(host.meta, Meta)
    with pytest.raises(Exception, match="the replica takes no part"):
        await host.ask_leader(AddVoter(host.me))
    await host.close()
