"""When the parts of a store are ready, and what a quorum measures."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from ledger.processes import Process
from monitoring.test_metrics import values
from patience import until
from quorum.members import Members

from fencepost.ledger.cluster.ports import free_ports


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    members = Members(tmp_path, 3)
    members.start()
    yield members
    for member in list(members.running):
        members.kill(member)


def why_not(members: Members, member: int) -> str:
    async def asked() -> str:
        return members.running[member].why_not_ready()

    return str(members.do(asked()))


def test_a_member_is_ready_while_it_has_a_leader_and_follows_it(members: Members) -> None:
    until(lambda: not any(why_not(members, each) for each in (1, 2, 3)), "all to be ready")
    leader, (first, second) = members.leader, members.followers
    node = members.node(first)
    node._target, node._target_since = node.applied + 5, node._loop.time() - 1.0
    assert why_not(members, first) == ""
    node._target_since -= 2.0
    assert why_not(members, first) == "this member has not caught up with the leader"
    node._target = node.applied
    assert why_not(members, first) == ""
    members.running[leader]._decides = False
    assert why_not(members, leader) == "this member becomes the leader"
    members.kill(leader)
    members.kill(second)
    until(lambda: why_not(members, first) == "this member knows no leader that answers", "it to miss its leader")
    members.start(leader)
    until(lambda: not why_not(members, first) and not why_not(members, leader), "both to be ready again")
    known, node.replica.high_watermark = node.replica.high_watermark, 0
    assert why_not(members, first) == "this member does not know yet what is committed"
    node.replica.high_watermark = known
    members.running[first]._is_closing = True
    assert why_not(members, first) == "this member ends"
    members.running[first].node = None
    assert why_not(members, first) == "this member has no cluster yet"
    members.running[first].node = node


def test_a_quorum_is_measured(members: Members) -> None:
    leader = members.leader
    until(lambda: not any(why_not(members, each) for each in (1, 2, 3)), "all to be ready")
    raft = "kafka_server_raft_metrics"
    for member, service in members.running.items():

        async def text(member: int = member) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
            return values(members.running[member].metrics)

        found, node = members.do(text()), members.node(member)
        role = "leader" if member == leader else "follower"
        assert found[f"{raft}_current_state", (("current_state", role),)] == 1
        assert found[f"{raft}_current_leader", ()] == leader
        assert found[f"{raft}_current_epoch", ()] == node.replica.epoch
        assert found[f"{raft}_number_of_voters", ()] == 3
        assert 0 < found[f"{raft}_high_watermark", ()] <= found[f"{raft}_log_end_offset", ()]
        assert (
            found["kafka_controller_KafkaController_LastAppliedRecordOffset", ()] <= found[f"{raft}_high_watermark", ()]
        )
        assert found["kafka_controller_KafkaController_NewActiveControllersCount", ()] >= 1
        assert found["znode_count", ()] == len(service.tree.nodes)
        assert found["fsynctime_count", (("success", "true"),)] >= 1
        assert found["fencepost_quorum_log_bytes", ()] > 0
        lags = {name: value for name, value in found.items() if name[0] == "fencepost_quorum_follower_lag"}
        assert len(lags) == (2 if member == leader else 0)
        assert ((f"{raft}_number_of_observers", ()) in found) == (member == leader)


def ready(port: int) -> tuple[int, str]:
    """The answer of a part; status 0 if there is none."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready") as answer:
            return answer.status, answer.read().decode().strip()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode().strip()
    except OSError:
        return 0, ""


@contextmanager
def ended(process: Process) -> Iterator[Process]:
    try:
        yield process
    finally:
        process.kill()


def test_processes_say_when_they_serve(tmp_path: Path) -> None:
    client, of_metadata, of_bookie, of_recovery = free_ports(4)
    uri = f"zk://127.0.0.1:{client}/ledgers"
    metadata = ("metadata", str(tmp_path / "metadata"), "--port", str(client), "--http-port", str(of_metadata))
    bookie = ("bookie", str(tmp_path / "bookie"), "--metadata", uri, "--port", "0", "--http-port", str(of_bookie))
    with ExitStack() as exits:
        service = exits.enter_context(ended(Process(tmp_path, *metadata, "--set", "tickTime=50")))
        exits.enter_context(ended(Process(tmp_path, *bookie, "--set", "zkTimeout=500")))
        recovery = ("autorecovery", "--metadata", uri, "--http-port", str(of_recovery))
        exits.enter_context(ended(Process(tmp_path, *recovery)))
        assert [ready(port) for port in (of_metadata, of_bookie, of_recovery)] == [(200, "ready")] * 3
        service.kill()
        no_session = (503, "auto-recovery has no session with the metadata service")
        until(lambda: ready(of_recovery) == no_session, "auto-recovery to have no session")
        assert ready(of_metadata) == (0, "")
        exits.enter_context(ended(Process(tmp_path, *metadata, "--set", "tickTime=50")))
        until(lambda: [ready(port)[0] for port in (of_metadata, of_bookie, of_recovery)] == [200] * 3, "all to serve")
