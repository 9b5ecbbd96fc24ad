"""Answers to the requests of Kafka's tools, with Kafka's terms and errors.

Every member answers for the whole quorum, and forwards to the leader what only that can do. So a member names itself as
the controller, as Kafka's brokers do, and need not know where others listen for Kafka's protocol. DescribeQuorum
reports the leader.

A client retries after NOT_LEADER_OR_FOLLOWER. So a change gets this answer only if nothing of it was done.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fencepost.quorum.driver.admin import RETRY_PAUSE
from fencepost.quorum.driver.host import QuorumHost
from fencepost.quorum.driver.links import LinkError
from fencepost.quorum.identity import Node, ReplicaKey, host_and_port
from fencepost.quorum.kafka.messages import (
    ADD_RAFT_VOTER,
    API_VERSIONS,
    APIS,
    DESCRIBE_CLUSTER,
    DESCRIBE_QUORUM,
    REMOVE_RAFT_VOTER,
    Request,
)
from fencepost.quorum.kafka.schema import ZERO_UUID
from fencepost.quorum.messages import (
    AddVoter,
    Answer,
    AnyRequest,
    DescribeQuorum,
    DescribeQuorumResponse,
    RemoveVoter,
    ReplicaProgress,
)
from fencepost.quorum.rules import PASSING, Error

LISTENER = "CONTROLLER"
"""The listener name of a member's endpoint, as in a Kafka controller."""
TOPIC = "__cluster_metadata"
"""The topic whose only partition is the log."""

PATIENCE = 10.0
"""The most seconds to wait until the leader has made a change; the request may ask for fewer. Kafka's clients wait
three times as long.
"""
_DESCRIBED = 2.0
"""The most seconds to wait for a description. A leader that takes longer does not lead any more."""

Body = dict[str, Any]


class Code(enum.IntEnum):
    """Kafka's error codes."""

    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    UNSUPPORTED_VERSION = 35
    INVALID_REQUEST = 42
    INCONSISTENT_CLUSTER_ID = 104
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127


CODES: Mapping[Error, Code] = {
    Error.NONE: Code.NONE,
    Error.NOT_LEADER: Code.NOT_LEADER_OR_FOLLOWER,
    Error.ALREADY_MEMBER: Code.DUPLICATE_VOTER,
    Error.NOT_MEMBER: Code.VOTER_NOT_FOUND,
    Error.LAST_VOTER: Code.INVALID_REQUEST,
    Error.RECONFIG_IN_PROGRESS: Code.REQUEST_TIMED_OUT,
    Error.LEADER_NOT_READY: Code.REQUEST_TIMED_OUT,
    Error.NOT_CAUGHT_UP: Code.REQUEST_TIMED_OUT,
    Error.TIMED_OUT: Code.REQUEST_TIMED_OUT,
    Error.INVALID_REQUEST: Code.INVALID_REQUEST,
}
"""Kafka's error code for each refusal of a leader."""


class _Refused(Exception):
    """A request is refused: the error code, the reason, and whether the refusal is temporary."""

    def __init__(self, code: Code, reason: str, passes: bool = False) -> None:
        super().__init__(reason)
        self.code = code
        self.passes = passes


class Answers:
    """The answers of one member. Clients of Kafka's protocol reach it at ``address``, a host and a port."""

    def __init__(self, host: QuorumHost, address: tuple[str, int], patience: float = PATIENCE) -> None:
        self.host = host
        self.address = address
        self.patience = patience
        self._by_key: dict[int, Callable[[Request], Awaitable[Body]]] = {
            API_VERSIONS.key: self._api_versions,
            DESCRIBE_CLUSTER.key: self._describe_cluster,
            DESCRIBE_QUORUM.key: self._describe_quorum,
            ADD_RAFT_VOTER.key: partial(self._answered, self._add),
            REMOVE_RAFT_VOTER.key: partial(self._answered, self._remove),
        }

    async def to(self, request: Request) -> tuple[int, Body]:
        """The version of the answer, and the answer."""
        if not request.is_known:
            newest = {"ApiKey": API_VERSIONS.key, "MinVersion": API_VERSIONS.oldest, "MaxVersion": API_VERSIONS.newest}
            return 0, {"ErrorCode": Code.UNSUPPORTED_VERSION, "ApiKeys": [newest]}
        return request.version, await self._by_key[request.api.key](request)

    # -- ApiVersions and DescribeCluster -------------------------------------------------------------------------------

    async def _api_versions(self, request: Request) -> Body:
        # Members have directory ids, and voters change: that is version 1 of KRaft.
        feature = {"Name": "kraft.version", "MinVersion": 1, "MaxVersion": 1}
        return {
            "ApiKeys": [
                {"ApiKey": api.key, "MinVersion": api.oldest, "MaxVersion": api.newest} for api in APIS.values()
            ],
            "SupportedFeatures": [feature],
        }

    async def _describe_cluster(self, request: Request) -> Body:
        of = request.body["EndpointType"]
        if of not in (1, 2):
            return {
                "ErrorCode": Code.UNSUPPORTED_ENDPOINT_TYPE,
                "ErrorMessage": f"there are no endpoints of the type {of}",
            }
        if of == 1:
            reason = "brokers were asked for, and this is a controller: use --bootstrap-controller"
            return {"ErrorCode": Code.MISMATCHED_ENDPOINT_TYPE, "ErrorMessage": reason}
        (host, port), number = self.address, self.host.me.key.host_id
        return {
            "EndpointType": 2,
            "ClusterId": self.host.meta.cluster_id,
            "ControllerId": number,
            "Brokers": [{"BrokerId": number, "Host": host, "Port": port}],
        }

    # -- DescribeQuorum ------------------------------------------------------------------------------------------------

    async def _describe_quorum(self, request: Request) -> Body:
        if request.body["Topics"] != [{"TopicName": TOPIC, "Partitions": [{"PartitionIndex": 0}]}]:
            return {"Topics": [_unknown(topic) for topic in request.body["Topics"]]}
        partition: Body = {"PartitionIndex": 0, "ErrorMessage": None}
        answer: Body = {"ErrorMessage": None, "Topics": [{"TopicName": TOPIC, "Partitions": [partition]}]}
        try:
            quorum = await self._standing()
        except _Refused as refused:
            partition |= {
                "ErrorCode": refused.code,
                "ErrorMessage": str(refused),
                "LeaderId": -1,
                "LeaderEpoch": -1,
                "HighWatermark": -1,
            }
            return answer
        partition |= {
            "LeaderId": quorum.source.host_id,
            "LeaderEpoch": quorum.epoch,
            "HighWatermark": quorum.high_watermark,
            "CurrentVoters": _states(quorum.voters),
            "Observers": _states(quorum.observers),
        }
        answer["Nodes"] = [_node(each) for each in quorum.voters]
        return answer

    async def _standing(self) -> DescribeQuorumResponse:
        """The quorum as its leader sees it."""
        try:
            async with asyncio.timeout(_DESCRIBED):
                quorum = await self.host.ask_leader(DescribeQuorum())
        except TimeoutError as error:
            raise _Refused(Code.NOT_LEADER_OR_FOLLOWER, "the leader does not answer") from error
        except LinkError as error:
            raise _Refused(Code.NOT_LEADER_OR_FOLLOWER, f"the leader cannot be asked: {error}") from error
        if not isinstance(quorum, DescribeQuorumResponse) or quorum.error is not Error.NONE:
            raise _Refused(Code.NOT_LEADER_OR_FOLLOWER, "the leader has just changed")
        return quorum

    # -- AddRaftVoter and RemoveRaftVoter ------------------------------------------------------------------------------

    async def _answered(self, change: Callable[[Body], Awaitable[None]], request: Request) -> Body:
        """Make a change once that is possible. In KIP-853 a change waits for the previous one, for the first record of
        a new leader, and for a new voter to catch up.
        """
        patience = min(self.patience, max(0, request.body.get("TimeoutMs", 1 << 31)) / 1_000)
        clock = asyncio.get_running_loop().time
        end = clock() + patience
        while True:
            try:
                async with asyncio.timeout_at(end):
                    await change(request.body)
            except _Refused as refused:
                if refused.passes and clock() + RETRY_PAUSE < end:
                    await asyncio.sleep(RETRY_PAUSE)
                    continue
                return {"ErrorCode": refused.code, "ErrorMessage": str(refused)}
            except TimeoutError:
                reason = f"{patience:g} seconds were not enough: the change may yet be made"
                return {"ErrorCode": Code.REQUEST_TIMED_OUT, "ErrorMessage": reason}
            return {"ErrorMessage": None}

    async def _add(self, body: Body) -> None:
        key = self._voter(body)
        endpoint = _endpoint(body["Listeners"])
        quorum = await self._standing()
        there = next((each.key for each in quorum.voters if each.key.host_id == key.host_id), None)
        if there is not None:
            raise _Refused(Code.DUPLICATE_VOTER, f"{there} is a voter already")
        try:
            who = (await self.host.links.identify(endpoint)).node.key
        except LinkError as error:
            raise _Refused(Code.REQUEST_TIMED_OUT, f"the new voter does not answer at its endpoint: {error}") from error
        if who != key:
            raise _Refused(Code.INVALID_REQUEST, f"at {endpoint} is {who}, and not {key}")
        await self._change(AddVoter(Node(key, endpoint), body["AckWhenCommitted"]))

    async def _remove(self, body: Body) -> None:
        key = self._voter(body)
        quorum = await self._standing()
        if key not in [each.key for each in quorum.voters]:
            voters = ", ".join(str(each.key) for each in quorum.voters)
            raise _Refused(Code.VOTER_NOT_FOUND, f"{key} is none of the voters {voters}")
        await self._change(RemoveVoter(key))

    def _voter(self, body: Body) -> ReplicaKey:
        """The replica to add or remove."""
        mine = self.host.meta.cluster_id
        if body["ClusterId"] not in (None, mine):
            raise _Refused(Code.INCONSISTENT_CLUSTER_ID, f"this is the cluster {mine}, and not {body['ClusterId']}")
        if body["VoterId"] < 0 or body["VoterDirectoryId"] == ZERO_UUID:
            raise _Refused(Code.INVALID_REQUEST, "a voter has an id from 0 on, and the id of a directory")
        return ReplicaKey(body["VoterId"], body["VoterDirectoryId"])

    async def _change(self, request: AnyRequest) -> None:
        try:
            answer: Answer = await self.host.ask_leader(request)
        except LinkError as error:
            raise _Refused(
                Code.REQUEST_TIMED_OUT, f"the leader is gone, and the change may yet be made: {error}"
            ) from error
        if answer.error is not Error.NONE:
            code = CODES.get(answer.error, Code.INVALID_REQUEST)
            raise _Refused(code, answer.error.value, passes=answer.error in PASSING)


def _unknown(topic: Body) -> Body:
    reason = f"the only topic is {TOPIC}, with the partition 0, which is asked for alone"
    failed = {"ErrorCode": Code.UNKNOWN_TOPIC_OR_PARTITION, "ErrorMessage": reason}
    partitions = [failed | {"PartitionIndex": each["PartitionIndex"]} for each in topic["Partitions"]]
    return {"TopicName": topic["TopicName"], "Partitions": partitions}


def _states(replicas: Sequence[ReplicaProgress]) -> list[Body]:
    return [
        {
            "ReplicaId": each.key.host_id,
            "ReplicaDirectoryId": each.key.directory_id,
            "LogEndOffset": each.end_offset,
            "LastFetchTimestamp": each.fetched_at,
            "LastCaughtUpTimestamp": each.caught_up_at,
        }
        for each in replicas
    ]


def _node(replica: ReplicaProgress) -> Body:
    host, port = host_and_port(replica.endpoint)
    return {
        "NodeId": replica.key.host_id,
        "Listeners": [{"Name": LISTENER, "Host": host, "Port": port}],
    }


def _endpoint(listeners: Sequence[Body]) -> str:
    """The endpoint of a new voter for members."""
    for each in listeners:
        if each["Name"] == LISTENER and each["Host"] and each["Port"]:
            host = each["Host"]
            return f"[{host}]:{each['Port']}" if ":" in host else f"{host}:{each['Port']}"
    raise _Refused(Code.INVALID_REQUEST, f"the new voter has no listener of the name {LISTENER}")
