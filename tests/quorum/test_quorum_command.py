"""``fencepost metadata --controllers`` and ``fencepost quorum``, as processes."""

from __future__ import annotations

import json
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import patience
import pytest
from kazoo.client import KazooClient
from kazoo.retry import KazooRetry
from quorum.hosts import free_ports
from quorum.test_members import certainly

from bench.quorum.processes import Processes
from fencepost.cli import main as cli
from fencepost.quorum.kafka.messages import DESCRIBE_CLUSTER, decode_response, encode_request

Quorum = Callable[..., tuple[int, str, str]]


@pytest.fixture
def quorum(capsys: pytest.CaptureFixture[str]) -> Quorum:
    """Runs ``fencepost quorum`` in this process. Gives its exit code, output and error output."""

    def ran(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(["quorum", *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return ran


def test_members_are_killed_wiped_removed_and_added(processes: Callable[..., Processes], quorum: Quorum) -> None:
    members = processes(3)
    members.start()
    client = members.client()
    client.create("/mine", b"", ephemeral=True)
    code, out, _ = quorum("status", "--controllers", members.controllers, "--json")
    status = json.loads(out)
    assert code == 0 and [each["id"] for each in status["voters"]] == [1, 2, 3] and not status["observers"]
    times = {each["id"]: (each["last_caught_up_timestamp"], each["last_fetch_timestamp"]) for each in status["voters"]}
    assert 0 < times[status["leader_id"]][0] == times[status["leader_id"]][1] >= max(map(max, times.values()))
    leader = status["leader_id"]
    for each in range(20):
        certainly(client, f"/{each}")
    members.kill(leader)
    certainly(client, "/without the leader")
    members.wipe(leader)
    members.start(leader)
    code, out, err = quorum("add", members.endpoints[leader], "--controllers", members.controllers)
    assert code != 0 and "a replica of this host is a voter" in err and err.count("\n") == 1
    assert quorum("remove", str(leader), "--controllers", members.controllers)[0] == 0
    code, out, _ = quorum("add", members.endpoints[leader], "--controllers", members.controllers, "--json")
    assert code == 0 and json.loads(out)["added"].startswith(f"{leader}-")
    code, out, _ = quorum("status", "--controllers", members.endpoints[leader])
    assert code == 0 and len([line for line in out.splitlines() if " follower   " in line and "127.0.0.1" in line]) == 2
    client.sync("/")
    assert {str(each) for each in range(20)} | {"mine", "without the leader"} <= set(client.get_children("/"))
    client.stop()
    client.close()
    assert [members.kill(member, signal.SIGTERM) for member in list(members.running)] == [0, 0, 0]


def test_a_member_answers_by_kafkas_protocol_where_it_is_told_to(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    members = Processes(tmp_path, 1, ["--kafka-port", str(port)])
    members.start()
    try:
        with socket.create_connection(("127.0.0.1", port), patience.PATIENCE) as connection:
            asked = encode_request(DESCRIBE_CLUSTER, 1, 1, "test", {"EndpointType": 2})
            connection.sendall(struct.pack(">i", len(asked)) + asked)
            stream = connection.makefile("rb")
            (length,) = struct.unpack(">i", stream.read(4))
            _, found = decode_response(DESCRIBE_CLUSTER, 1, stream.read(length))
        assert found["ClusterId"] == members.ask("status")["cluster_id"]
        assert [(each["BrokerId"], each["Port"]) for each in found["Brokers"]] == [(1, port)]
        assert members.kill(1, signal.SIGTERM) == 0
    finally:
        members.close()


def test_members_join_by_themselves_if_they_are_to(tmp_path: Path) -> None:
    members = Processes(tmp_path, 3, ["--auto-join"])
    members.start()
    try:
        before = members.ask("status")
        lost = next(each["id"] for each in before["voters"] if each["id"] != before["leader_id"])
        members.kill(lost)
        members.wipe(lost)
        members.start(lost)
        directory = (tmp_path / str(lost) / "meta.properties").read_text().partition("directory.id=")[2][:22]
        end = time.monotonic() + patience.PATIENCE
        while directory not in [each["directory_id"] for each in members.ask("status")["voters"]]:
            assert time.monotonic() < end
            time.sleep(0.1)
    finally:
        members.close()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["metadata", "x", "--controllers", "1@h"], "1@h is not a controller"),
        (["metadata", "x", "--controllers", "1@h:1,1@h:2"], "two controllers have the id 1"),
        (["metadata", "x", "--controllers", "1@h:1,2@h:2"], "give --id to say which one this is"),
        (["metadata", "x", "--controllers", "1@h:1", "--id", "2"], "--id 2: no controller has this id"),
        (["metadata", "x", "--id", "-2"], "--id: -2 is too small: give at least 0"),
        (["metadata", "x", "--kafka-port", "0"], "0 is too small"),
        (["metadata", "x", "--listen", "h:1"], "--listen needs --controllers"),
        (["metadata", "x", "--controllers", "1@h:1", "--listen", "here"], "here is not an endpoint"),
        (["quorum", "status", "--controllers", "here"], "here is not an endpoint"),
        (["quorum", "remove", "x", "--controllers", "h:1"], "x is not a replica"),
        (
            ["quorum", "status", "--controllers", "127.0.0.1:1", "--timeout", "0.2"],
            "0.2 seconds were not enough: 127.0.0.1:1",
        ),
        (["quorum", "add", "127.0.0.1:1", "--controllers", "127.0.0.1:1"], "no replica of a quorum answers"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    arguments: list[str],
    complaint: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) != 0
    said = capsys.readouterr().err
    assert complaint in said and "Traceback" not in said


@pytest.mark.campaign
def test_one_service_grows_to_three_while_it_serves(tmp_path: Path, quorum: Quorum) -> None:
    processes: dict[int, subprocess.Popen[str]] = {}
    ports: dict[int, int] = {}

    def start(member: int, *options: str) -> str:
        command = [sys.executable, "-m", "fencepost", "metadata", str(tmp_path / str(member)), "--port", "0", *options]
        processes[member] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        output = processes[member].stdout
        assert output is not None
        line = output.readline()
        found = re.fullmatch(
            rf"metadata service zk://127\.0\.0\.1:(\d+) \(controller {member}@(127\.0\.0\.1:\d+)\) serves\n", line
        )
        assert found is not None, line
        ports[member] = int(found[1])
        return found[2]

    try:
        endpoint = start(1)
        retry = KazooRetry(max_tries=-1, delay=0.02, max_delay=0.1)
        client = KazooClient(f"127.0.0.1:{ports[1]}", timeout=20, connection_retry=retry, command_retry=retry)
        client.start(patience.PATIENCE)
        client.create("/mine", b"", ephemeral=True)
        session = client.client_id[0]
        for member in (2, 3):
            joining = start(
                member, "--id", str(member), "--controllers", f"1@{endpoint},{member}@127.0.0.1:{free_ports(1)[0]}"
            )
            assert quorum("add", joining, "--controllers", endpoint)[0] == 0
            certainly(client, f"/{member}")
        client.set_hosts(f"127.0.0.1:{ports[2]},127.0.0.1:{ports[3]}")
        processes[1].kill()
        certainly(client, "/without the first")
        assert client.client_id[0] == session and {"mine", "2", "3", "without the first"} <= set(
            client.get_children("/")
        )
        # Without options it restarts at its old endpoint, and learns of the others from its folder.
        processes[1].wait()
        assert start(1) == endpoint
        _, out, _ = quorum("status", "--controllers", endpoint, "--json")
        assert [each["id"] for each in json.loads(out)["voters"]] == [1, 2, 3]
        client.stop()
        client.close()
    finally:
        for each in processes.values():
            each.kill()
            each.communicate()
