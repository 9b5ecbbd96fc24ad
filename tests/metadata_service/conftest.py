"""Servers and clients that a test gets, and that are gone after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import Server
from zkclient import Client


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts a server with settings by ZooKeeper's names, on ``tmp_path`` unless a folder is given."""
    servers: list[Server] = []

    def start(files: Any = None, **settings: Any) -> Server:
        servers.append(Server(tmp_path / "data" if files is None else files, **settings))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def connect() -> Iterator[Callable[..., Client]]:
    """Connects to a server and opens a session."""
    clients: list[Client] = []

    def opened(server: Server, timeout: int = 30_000, **arguments: Any) -> Client:
        clients.append(Client(server.port))
        clients[-1].connect(timeout, **arguments)
        return clients[-1]

    yield opened
    for client in clients:
        client.drop()
