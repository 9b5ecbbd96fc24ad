"""``fencepost metadata`` as a process: its output, its end, and the files that it leaves."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import patience
from metadata import zkclient as zk
from metadata.servers import state_of
from metadata.zkclient import Client, Closed

Start = Callable[..., tuple[subprocess.Popen[str], int]]


def complaint(*arguments: str) -> tuple[int, str]:
    """The exit code and the error message of a command that fails to start."""
    command = [sys.executable, "-m", "fencepost", "metadata", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience.PATIENCE)
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_it_serves_until_a_signal_and_has_everything_after_kill_9(start: Start, tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        process, port = start(path, "--port", "0")
        client = Client(port)
        client.connect(30_000)
        assert client.call([zk.CREATE, [f"/{number.name}", b"", zk.OPEN, 0]])[3] == 0
        process.send_signal(number)
        assert process.wait(patience.PATIENCE) == (-9 if number == signal.SIGKILL else 0)
        assert process.communicate() == ("", "")
        client.drop()
    _, port = start(path, "--port", "0")
    client = Client(port)
    client.connect(30_000)
    assert client.call([zk.GET_CHILDREN, ["/", False]])[4] == ["SIGINT", "SIGKILL", "SIGTERM", "zookeeper"]
    client.drop()


def test_silent_connections_take_no_files_that_the_log_needs(start: Start, tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text("snapCount = 10\n")
    few = ("sh", "-c", 'ulimit -n 800 && exec "$@" 2>/dev/null', "sh")
    process, port = start(str(tmp_path / "data"), "--port", "0", "--settings", str(settings), by=few)
    client = Client(port)
    client.connect(30_000)
    silent = [socket.create_connection(("127.0.0.1", port), patience.PATIENCE) for _ in range(850)]
    for number in range(60):
        assert client.call([zk.CREATE, [f"/{number}", b"", zk.OPEN, 0]])[3] == 0
    assert process.poll() is None
    for each in silent:
        each.close()
    client.drop()
    process.terminate()
    assert process.wait(patience.PATIENCE) == 0


def test_nothing_acknowledged_is_lost_when_it_is_killed_under_load(start: Start, tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text("snapCount = 150\n")
    created: set[str] = set()
    asked: set[str] = set()  # whose deletion was sent
    deleted: set[str] = set()
    for life in range(3):
        process, port = start(str(tmp_path / "data"), "--port", "0", "--settings", str(settings))
        client = Client(port)
        client.connect(30_000)
        there = set(client.call([zk.GET_CHILDREN, ["/", False]])[4])
        assert created - asked <= there and not deleted & there
        number = 0
        try:
            while True:
                names = [f"{life}-{number + each}" for each in range(20)]
                client.send(*[[zk.CREATE, [f"/{name}", b"x" * 100, zk.OPEN, 0]] for name in names])
                if number == 300:
                    process.kill()
                for name in names:
                    assert client.read()[3] == 0
                    created.add(name)
                number += 20
                if number % 60 == 0:
                    asked.add(names[0])
                    assert client.call([zk.DELETE, [f"/{names[0]}", -1]])[3] == 0
                    deleted.add(names[0])
        except (Closed, BrokenPipeError, ConnectionResetError):
            client.drop()
        process.wait(patience.PATIENCE)
    assert created and deleted
    there = {path[1:] for path in state_of(tmp_path / "data").nodes}
    assert created - asked <= there and not deleted & there


def test_a_port_and_a_directory_have_one_service(start: Start, tmp_path: Path) -> None:
    _, port = start(str(tmp_path / "one"), "--port", "0")
    code, said = complaint(str(tmp_path / "one"), "--port", "0")
    assert code == 153 and "is in use by another metadata service" in said
    code, said = complaint(str(tmp_path / "two"), "--port", str(port))
    assert code == 153 and f"cannot listen on 127.0.0.1:{port}" in said
    assert "Traceback" not in said


def test_damage_is_one_line(start: Start, tmp_path: Path) -> None:
    process, _ = start(str(tmp_path), "--port", "0")
    process.send_signal(signal.SIGTERM)
    process.wait(patience.PATIENCE)
    for each in tmp_path.glob("*.journal"):
        each.unlink()
    code, said = complaint(str(tmp_path), "--port", "0")
    assert code == 153 and said == f"fencepost: {tmp_path} is damaged: the log is missing\n"


def test_settings_have_zookeepers_names(start: Start, tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text('tickTime = 100\njute.maxbuffer = 2048\n4lw.commands.whitelist = ["conf"]\n')
    _, port = start(str(tmp_path / "data"), "--port", "0", "--settings", str(settings))
    connection = Client(port).socket
    connection.sendall(b"conf")
    said = b""
    while more := connection.recv(1 << 16):
        said += more
    assert (
        f"clientPort={port}\n" in said.decode()
        and "jute.maxbuffer=2048\n" in said.decode()
        and "minSessionTimeout=200\n" in said.decode()
    )
    settings.write_text("tickTme = 100\n")
    code, said_of_name = complaint(str(tmp_path / "data"), "--settings", str(settings))
    assert code == 151 and "there is no setting tickTme: did you mean tickTime?" in said_of_name
    settings.write_text("tickTime = 1\n")
    code, said_of_value = complaint(str(tmp_path / "data"), "--settings", str(settings))
    assert code == 151 and "tickTime" in said_of_value
