"""The supported requests, their answers and headers, as in Kafka's message schemas.

The tables have the names, order, versions, tags and defaults of Kafka's JSON files (``clients``,
``common/message/*.json``), which document each field.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from fencepost.quorum.kafka.schema import Array, Field, KafkaDecoder, Kind, Malformed, Struct, Value, encode

BOOL, INT8, INT16, INT32, INT64 = Kind.BOOL, Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64
UINT16, UUID, STRING = Kind.UINT16, Kind.UUID, Kind.STRING


class Api(NamedTuple):
    """A request and its answer, in the versions from ``oldest`` to ``newest``. Versions are flexible from
    ``flexible_since`` on.
    """

    key: int
    name: str
    oldest: int
    newest: int
    flexible_since: int
    request: Struct
    response: Struct

    def is_flexible(self, version: int) -> bool:
        """Return whether a version has variable-length lengths and tagged fields."""
        return version >= self.flexible_since


API_VERSIONS = Api(
    18, "ApiVersions", 0, 4, 3,
    Struct(
        Field("ClientSoftwareName", STRING, since=3),
        Field("ClientSoftwareVersion", STRING, since=3),
    ),
    Struct(
        Field("ErrorCode", INT16),
        Field("ApiKeys", Array(Struct(
            Field("ApiKey", INT16),
            Field("MinVersion", INT16),
            Field("MaxVersion", INT16),
        ))),
        Field("ThrottleTimeMs", INT32, since=1),
        Field("SupportedFeatures", Array(Struct(
            Field("Name", STRING, since=3),
            Field("MinVersion", INT16, since=3),
            Field("MaxVersion", INT16, since=3),
        )), since=3, tag=0),
        Field("FinalizedFeaturesEpoch", INT64, since=3, tag=1, default=-1),
        Field("FinalizedFeatures", Array(Struct(
            Field("Name", STRING, since=3),
            Field("MaxVersionLevel", INT16, since=3),
            Field("MinVersionLevel", INT16, since=3),
        )), since=3, tag=2),
        Field("ZkMigrationReady", BOOL, since=3, tag=3),
    ),
)  # fmt: skip

DESCRIBE_QUORUM = Api(
    55, "DescribeQuorum", 0, 2, 0,
    Struct(
        Field("Topics", Array(Struct(
            Field("TopicName", STRING),
            Field("Partitions", Array(Struct(
                Field("PartitionIndex", INT32),
            ))),
        ))),
    ),
    Struct(
        Field("ErrorCode", INT16),
        Field("ErrorMessage", STRING, since=2, nullable=True),
        Field("Topics", Array(Struct(
            Field("TopicName", STRING),
            Field("Partitions", Array(Struct(
                Field("PartitionIndex", INT32),
                Field("ErrorCode", INT16),
                Field("ErrorMessage", STRING, since=2, nullable=True),
                Field("LeaderId", INT32),
                Field("LeaderEpoch", INT32),
                Field("HighWatermark", INT64),
                *(
                    Field(replicas, Array(Struct(
                        Field("ReplicaId", INT32),
                        Field("ReplicaDirectoryId", UUID, since=2),
                        Field("LogEndOffset", INT64),
                        Field("LastFetchTimestamp", INT64, since=1, default=-1),
                        Field("LastCaughtUpTimestamp", INT64, since=1, default=-1),
                    )))
                    for replicas in ("CurrentVoters", "Observers")
                ),
            ))),
        ))),
        Field("Nodes", Array(Struct(
            Field("NodeId", INT32, since=2),
            Field("Listeners", Array(Struct(
                Field("Name", STRING, since=2),
                Field("Host", STRING, since=2),
                Field("Port", UINT16, since=2),
            )), since=2),
        )), since=2),
    ),
)  # fmt: skip

DESCRIBE_CLUSTER = Api(
    60, "DescribeCluster", 0, 2, 0,
    Struct(
        Field("IncludeClusterAuthorizedOperations", BOOL),
        Field("EndpointType", INT8, since=1, default=1),
        Field("IncludeFencedBrokers", BOOL, since=2),
    ),
    Struct(
        Field("ThrottleTimeMs", INT32),
        Field("ErrorCode", INT16),
        Field("ErrorMessage", STRING, nullable=True, default=None),
        Field("EndpointType", INT8, since=1, default=1),
        Field("ClusterId", STRING),
        Field("ControllerId", INT32, default=-1),
        Field("Brokers", Array(Struct(
            Field("BrokerId", INT32),
            Field("Host", STRING),
            Field("Port", INT32),
            Field("Rack", STRING, nullable=True, default=None),
            Field("IsFenced", BOOL, since=2),
        ))),
        Field("ClusterAuthorizedOperations", INT32, default=-(2**31)),
    ),
)  # fmt: skip

_CHANGED = Struct(
    Field("ThrottleTimeMs", INT32),
    Field("ErrorCode", INT16),
    Field("ErrorMessage", STRING, nullable=True),
)

ADD_RAFT_VOTER = Api(
    80, "AddRaftVoter", 0, 1, 0,
    Struct(
        Field("ClusterId", STRING, nullable=True),
        Field("TimeoutMs", INT32),
        Field("VoterId", INT32),
        Field("VoterDirectoryId", UUID),
        Field("Listeners", Array(Struct(
            Field("Name", STRING),
            Field("Host", STRING),
            Field("Port", UINT16),
        ))),
        Field("AckWhenCommitted", BOOL, since=1, default=True),
    ),
    _CHANGED,
)  # fmt: skip

REMOVE_RAFT_VOTER = Api(
    81, "RemoveRaftVoter", 0, 0, 0,
    Struct(
        Field("ClusterId", STRING, nullable=True),
        Field("VoterId", INT32),
        Field("VoterDirectoryId", UUID),
    ),
    _CHANGED,
)  # fmt: skip

APIS = {api.key: api for api in (API_VERSIONS, DESCRIBE_QUORUM, DESCRIBE_CLUSTER, ADD_RAFT_VOTER, REMOVE_RAFT_VOTER)}
"""The supported requests, by Kafka's API keys."""


# -- headers -----------------------------------------------------------------------------------------------------------

_HEADER = struct.Struct(">hhi")
_REQUEST_REST = Struct(Field("ClientId", STRING, nullable=True))
_NOTHING = Struct()


class Request(NamedTuple):
    """A decoded request. ``is_known`` is false for an unsupported version of :data:`API_VERSIONS`. Its ``body`` is then
    empty, and the answer lists the supported versions.
    """

    api: Api
    version: int
    correlation: int
    client: str | None
    body: dict[str, Any]
    is_known: bool = True


def encode_request(api: Api, version: int, correlation: int, client: str | None, body: Value) -> bytes:
    """Encode a request: header and body."""
    flexible = api.is_flexible(version)
    header = _HEADER.pack(api.key, version, correlation) + encode(_REQUEST_REST, {"ClientId": client}, 1, False)
    return header + (b"\0" if flexible else b"") + encode(api.request, body, version, flexible)


def decode_request(data: bytes) -> Request:
    """Decode a request from a frame. Raises :class:`Malformed`, also for an unsupported request or version."""
    if len(data) < _HEADER.size:
        raise Malformed(f"sent a frame of {len(data)} bytes, which is less than a header")
    key, version, correlation = _HEADER.unpack_from(data)
    api = APIS.get(key)
    if api is None:
        raise Malformed(f"sent a request of the number {key}, which is not answered here")
    is_known = api.oldest <= version <= api.newest
    if not is_known and api is not API_VERSIONS:
        raise Malformed(f"sent {api.name} {version}, of which the versions {api.oldest} to {api.newest} are answered")
    reader = KafkaDecoder(data[_HEADER.size :])
    flexible = api.is_flexible(version)
    try:
        client = reader.struct(_REQUEST_REST, 1, False)["ClientId"]
        if flexible:
            reader.struct(_NOTHING, 0, True)  # the header's tagged fields, all unknown
        body: dict[str, Any] = {}
        if is_known:
            body = reader.struct(api.request, version, flexible)
            reader.end()
    except Malformed as error:
        raise Malformed(f"sent {api.name} {version}, which {error}") from error
    return Request(api, version, correlation, client, body, is_known)


def encode_response(api: Api, version: int, correlation: int, body: Value) -> bytes:
    """Encode an answer: header and body. The header of :data:`API_VERSIONS` never has tagged fields, so that clients of
    any version can read it.
    """
    flexible = api.is_flexible(version)
    header = struct.pack(">i", correlation) + (b"\0" if flexible and api is not API_VERSIONS else b"")
    return header + encode(api.response, body, version, flexible)


def decode_response(api: Api, version: int, data: bytes) -> tuple[int, dict[str, Any]]:
    """Decode an answer: the number of the request, and the body. Raises :class:`Malformed`."""
    if len(data) < 4:
        raise Malformed(f"sent a frame of {len(data)} bytes, which is less than a header")
    reader, flexible = KafkaDecoder(data[4:]), api.is_flexible(version)
    if flexible and api is not API_VERSIONS:
        reader.struct(_NOTHING, 0, True)
    body = reader.struct(api.response, version, flexible)
    reader.end()
    return struct.unpack_from(">i", data)[0], body
