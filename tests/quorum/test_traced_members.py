"""Traces of member processes that are killed, wiped, removed and added are behaviours of `running-quorum`."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from quorum.test_members import certainly

from bench.quorum.processes import Processes
from fencepost.protocols.quorum.conformance import QuorumConformance
from fencepost.traces import read
from fencepost.traces.validation.traces import Traces
from fencepost.traces.validation.validate import Validator
from fencepost.traces.validation.verdict import Verdict


def judged(folder: Path) -> tuple[Verdict, set[str]]:
    """The verdict on the only trace of a folder, and the actions in it."""
    traces = Traces(read(folder, check=False), kind=QuorumConformance.subjects)
    (name,) = traces.names()
    events = traces.events(name)
    return Validator(QuorumConformance).validate(name[1], events), {event.action for event in events}


def test_members_that_are_killed_wiped_removed_and_added_are_accepted(
    processes: Callable[..., Processes], tmp_path: Path
) -> None:
    members = processes(3, "--trace", str(tmp_path / "traces"))
    members.start()
    client = members.client()
    for each in range(20):
        client.create(f"/{each}", b"")
    leader = members.leader()
    members.kill(leader)
    certainly(client, "/without the leader")
    members.start(leader)
    certainly(client, "/with it")
    wiped = next(each for each in members.running if each != members.leader())
    members.ask("remove", str(wiped))
    members.kill(wiped)
    members.wipe(wiped)
    members.start(wiped)
    members.ask("add", members.endpoints[wiped])
    certainly(client, "/with another disk")
    leader = members.leader()
    assert members.kill(leader, signal.SIGTERM) == 0
    certainly(client, "/with the third leader")
    members.start(leader)
    client.stop()
    client.close()
    for member in list(members.running):
        members.kill(member)
    verdict, actions = judged(tmp_path / "traces")
    assert verdict.accepted, (verdict.problem, [(each.event, str(each.why)) for each in verdict.refusals])
    assert actions >= {
        "accept_add_voter_request",
        "accept_remove_voter_request",
        "check_quorum_resign",
        "become_leader",
    }
    assert list(verdict.names.values()) and verdict.taken > 200


@pytest.mark.campaign
def test_a_quorum_of_one_that_grows_is_accepted(processes: Callable[..., Processes], tmp_path: Path) -> None:
    members = processes(2, "--trace", str(tmp_path / "traces"))
    command = [
        sys.executable,
        "-m",
        "fencepost",
        "metadata",
        str(tmp_path / "1"),
        "--port",
        str(members.ports[1]),
        *members.settings,
    ]
    for _ in range(2):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
            assert service.stdout is not None
            line = service.stdout.readline()
            service.kill()
    members.endpoints[1] = line.partition("controller 1@")[2].partition(")")[0]
    members.start(1)
    members.start(2)
    members.ask("add", members.endpoints[2])
    client = members.client()
    client.create("/after", b"")
    client.stop()
    client.close()
    assert [members.kill(member, signal.SIGTERM) for member in (1, 2)] == [0, 0]
    verdict, actions = judged(tmp_path / "traces")
    assert verdict.accepted, (verdict.problem, [(each.event, str(each.why)) for each in verdict.refusals])
    assert "accept_add_voter_request" in actions and set(verdict.names) == {"r1", "r2"}
