"""A bookie that has been in a cluster waits for the metadata service. A new one reports that nobody answers."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from fencepost.ledger.bookie import cookies, process
from fencepost.ledger.bookie.directories import Directories
from fencepost.ledger.bookie.settings import BookieSettings
from fencepost.ledger.errors import MetadataServiceError
from fencepost.ledger.metadata.client import MetadataClient

SETTINGS = BookieSettings.of({"metadataServiceUri": "zk://127.0.0.1:1/ledgers"})


class Service:
    """A stand-in for ``MetadataClient.connect``: the first ``deaf`` calls fail."""

    def __init__(self, deaf: int) -> None:
        self.deaf = deaf
        self.asked = 0

    async def __call__(self, uri: str, session_timeout: float) -> Any:
        self.asked += 1
        await asyncio.sleep(0)
        if self.asked <= self.deaf:
            raise MetadataServiceError("nobody answers")
        return self


def connected(directory: Path, service: Service, monkeypatch: pytest.MonkeyPatch, ends: bool = False) -> Any:
    async def connect() -> Any:
        ended = process._Shutdown()
        if ends:
            asyncio.get_running_loop().call_soon(ended.fail, "it is asked to end")
        return await process._connected(SETTINGS, Directories.of(str(directory), SETTINGS), ended)

    monkeypatch.setattr(MetadataClient, "connect", service)
    return asyncio.run(connect())


@pytest.fixture
def known(tmp_path: Path) -> Path:
    """The directory of a bookie that has been in a cluster."""
    directories = Directories.of(str(tmp_path), SETTINGS)
    for directory in dict.fromkeys(directories):
        cookies.stamp(directory, directories.cookie("127.0.0.1:1", "instance", "token"))
    return tmp_path


def test_a_bookie_of_a_cluster_waits(
    known: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service(deaf=3)
    with caplog.at_level(logging.WARNING):
        assert connected(known, service, monkeypatch) is service
    assert caplog.messages == ["nobody answers: the bookie waits for it"] * 3


def test_a_new_bookie_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(deaf=3)
    with pytest.raises(MetadataServiceError):
        connected(tmp_path, service, monkeypatch)
    assert service.asked == 1


def test_a_bookie_that_waits_can_be_ended(known: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(process._AskedToEnd):
        connected(known, Service(deaf=10**9), monkeypatch, ends=True)
