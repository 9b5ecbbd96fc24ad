"""Fixtures for servers and clients. They end with their test."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from metadata.servers import Serve, Server
from metadata.zkclient import Client, Connect


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts a server with settings by ZooKeeper's names, on ``tmp_path`` unless a folder is given."""
    servers: list[Server] = []

    def start(files: Any = None, **settings: Any) -> Server:
        servers.append(Server(tmp_path / "data" if files is None else files, **settings))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connects to a server and opens a session."""
    clients: list[Client] = []

    def opened(server: Server, timeout: int = 30_000, **arguments: Any) -> Client:
        clients.append(Client(server.port))
        clients[-1].connect(timeout, **arguments)
        return clients[-1]

    yield opened
    for client in clients:
        client.drop()


@pytest.fixture
def start() -> Iterator[Callable[..., tuple[subprocess.Popen[str], int]]]:
    """Starts the command, ``by`` another one, and waits until it serves. Gives the process and its port."""
    processes: list[subprocess.Popen[str]] = []

    def started(*arguments: str, by: Sequence[str] = ()) -> tuple[subprocess.Popen[str], int]:
        command = [*by, sys.executable, "-m", "fencepost", "metadata", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.fullmatch(
            r"metadata service zk://127\.0\.0\.1:(\d+) \(controller 1@127\.0\.0\.1:\d+\) serves\n", line
        )
        assert found is not None, line + process.communicate()[1]
        return process, int(found[1])

    yield started
    for process in processes:
        process.kill()
        process.communicate()
