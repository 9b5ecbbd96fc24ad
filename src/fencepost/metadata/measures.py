"""What a member's gauges measure: see :mod:`fencepost.monitoring.table`."""

from __future__ import annotations

from collections.abc import Callable

from fencepost.metadata.server import Service
from fencepost.monitoring.metrics import Value
from fencepost.monitoring.table import RAFT
from fencepost.quorum.driver.node import QuorumNode

_CONTROLLER = "kafka_controller_KafkaController_"


def gauges(member: Service, node: Callable[[], QuorumNode | None]) -> dict[str, Callable[[], Value]]:
    """The gauges of a member, by name. ``node``: gives its replica, once it takes part."""
    return {
        **_of_service(member),
        **{name: _of_node(node, measure) for name, measure in _OF_NODE.items()},
        "fencepost_quorum_snapshot_bytes": lambda: member.disk_sizes()[0],
        "fencepost_quorum_log_bytes": lambda: member.disk_sizes()[1],
    }


def _of_service(member: Service) -> dict[str, Callable[[], Value]]:
    return {
        "outstanding_requests": lambda: member.outstanding,
        "fencepost_metadata_outstanding_bytes": lambda: member.outstanding_bytes,
        "packets_received": lambda: member.received,
        "packets_sent": lambda: member.sent,
        "num_alive_connections": lambda: len(member.connections),
        "global_sessions": lambda: len(member.tree.sessions),
        "znode_count": lambda: len(member.tree.nodes),
        "ephemerals_count": lambda: sum(map(len, member.tree.ephemerals.values())),
        "approximate_data_size": lambda: member.tree.size,
        "watch_count": lambda: len(member.watches),
        "last_zxid": lambda: member.tree.zxid,
        "uptime": lambda: member.now() - member.started,
    }


def _of_node(node: Callable[[], QuorumNode | None], measure: Callable[[QuorumNode], Value]) -> Callable[[], Value]:
    """A measure of the replica; nothing before there is one."""

    def measured() -> Value:
        found = node()
        return {} if found is None else measure(found)

    return measured


def _state(node: QuorumNode) -> Value:
    name = node.replica.state.value
    return {(name if node.replica.is_voter else "observer",): 1}


def _leader(node: QuorumNode) -> Value:
    return -1 if node.leader is None else node.leader.key.host_id


def _vote(node: QuorumNode) -> Value:
    return -1 if node.replica.voted is None else node.replica.voted.host_id


def _observers(node: QuorumNode) -> Value:
    return sum(key not in node.replica.voters for key in node.replica.others) if node.leads else {}


def _lags(node: QuorumNode) -> Value:
    end = node.replica.log.end_offset
    return {(str(key.host_id),): end - max(0, known) for key, known in node.replica.others.items()}


_OF_NODE: dict[str, Callable[[QuorumNode], Value]] = {
    f"{RAFT}current_state": _state,
    f"{RAFT}current_leader": _leader,
    f"{RAFT}current_epoch": lambda node: node.replica.epoch,
    f"{RAFT}current_vote": _vote,
    f"{RAFT}log_end_offset": lambda node: node.replica.log.end_offset,
    f"{RAFT}log_end_epoch": lambda node: node.replica.log.last_epoch,
    f"{RAFT}high_watermark": lambda node: node.replica.high_watermark,
    f"{_CONTROLLER}LastAppliedRecordOffset": lambda node: node.applied,
    f"{RAFT}number_of_voters": lambda node: len(node.replica.voters),
    f"{RAFT}number_of_observers": _observers,
    "fencepost_quorum_follower_lag": _lags,
    "fencepost_quorum_leader_silence_seconds": lambda node: node.silence,
    "kafka_server_SnapshotEmitter_LatestSnapshotGeneratedAgeMs": lambda node: 1_000 * node.snapshot_age,
}
