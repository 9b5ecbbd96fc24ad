"""The metadata of ledgers as a recorder sees them, on a metadata service of their own: every version, or which ones it
missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from ledger.processes import Process
from ledger.recording.recording import Listed
from patience import eventually

from fencepost.ledger.metadata.client import MetadataClient
from fencepost.ledger.recording.ledgers import Ledgers
from fencepost.ledger.rules.ensembles import Fragment
from fencepost.ledger.rules.metadata import LedgerMetadata, closed, marked_in_recovery

METADATA = LedgerMetadata(3, 3, 2, (Fragment(0, ("b1", "b2", "b3")),), creation_token=5)
TOLD = {
    "state": "OPEN",
    "fragments": [[0, ["b1", "b2", "b3"]]],
    "last_entry": -1,
    "ensemble_size": 3,
    "write_quorum": 3,
    "ack_quorum": 2,
}


class Following:
    """The followed ledgers, the trace, and a client that changes the ledgers."""

    def __init__(self, ledgers: Ledgers, trace: Listed, client: MetadataClient) -> None:
        self.ledgers = ledgers
        self.trace = trace
        self.client = client

    def of(self, ledger: int) -> list[tuple[str, Any]]:
        """The events of a ledger in the trace: each action, and the version or versions."""
        found = []
        for event in self.trace.events:
            if event.subject == str(ledger):
                parameters = event.parameters
                found.append(
                    (
                        event.action.removeprefix("metadata_"),
                        parameters.get("version", (parameters.get("first"), parameters.get("last"))),
                    )
                )
        return found

    async def until(self, ledger: int, *events: tuple[str, Any]) -> None:
        """Wait until the trace has exactly these events of a ledger."""
        await eventually(lambda: len(self.of(ledger)) >= len(events), f"{events} of ledger {ledger}")
        assert self.of(ledger) == [*events]


@asynccontextmanager
async def following(uri: str, *before: int, **options: Any) -> AsyncIterator[Following]:
    """A separate cluster in which some ledgers exist already."""
    async with await MetadataClient.connect(uri) as client, await MetadataClient.connect(uri) as own:
        await client.initialise()
        for ledger in before:
            await client.create_ledger(ledger, METADATA)
        trace = Listed()
        ledgers = Ledgers(own, trace, **options)
        await ledgers.begin()
        try:
            yield Following(ledgers, trace, client)
        finally:
            await ledgers.close()


async def test_every_version_of_a_new_ledger_is_seen(service: str) -> None:
    async with following(f"{service}/every/ledgers") as f:
        for ledger in (3, 4, 2**33):
            await f.client.create_ledger(ledger, METADATA)
            await f.until(ledger, ("seen", 0))
        assert f.trace.events[0][1:] == ("3", {"version": 0, "metadata": TOLD, "new": True}, "metadata")
        await f.client.write_ledger(3, marked_in_recovery(METADATA), 0)
        await f.until(3, ("seen", 0), ("seen", 1))
        await f.client.write_ledger(3, closed(METADATA, 9, 1000), 1)
        await f.until(3, ("seen", 0), ("seen", 1), ("seen", 2))
        metadata = [event.parameters["metadata"] for event in f.trace.events if event.subject == "3"]
        assert [(each["state"], each["last_entry"]) for each in metadata] == [
            ("OPEN", -1),
            ("IN_RECOVERY", -1),
            ("CLOSED", 9),
        ]
        await f.client.delete_ledger(3)
        await f.until(3, ("seen", 0), ("seen", 1), ("seen", 2), ("gone", 2))
        assert (f.ledgers.seen, f.ledgers.missed) == (5, 0)


async def test_a_ledger_that_was_there_is_followed_from_its_first_message_on(service: str) -> None:
    async with following(f"{service}/old/ledgers", 5, 6) as f:
        await f.client.write_ledger(5, marked_in_recovery(METADATA), 0)
        await f.client.create_ledger(7, METADATA)
        await f.until(7, ("seen", 0))
        assert f.of(5) == []
        for _ in range(3):
            f.ledgers.noticed(5)
        await f.until(5, ("seen", 1))
        await f.client.write_ledger(5, closed(METADATA, 9, 1000), 1)
        await f.until(5, ("seen", 1), ("seen", 2))
        assert f.of(6) == []


async def test_versions_that_were_missed_are_told(service: str) -> None:
    async with following(f"{service}/missed/ledgers") as f:
        await f.client.create_ledger(3, METADATA)
        await f.until(3, ("seen", 0))
        read, held = f.ledgers.client.read_ledger, asyncio.Event()

        async def late(ledger: int, watch: Any = None) -> Any:
            await held.wait()
            return await read(ledger, watch)

        f.ledgers.client.read_ledger = late  # type: ignore[method-assign]
        for version in range(3):
            await f.client.write_ledger(3, marked_in_recovery(METADATA), version)
        await f.client.create_ledger(4, METADATA)
        await f.client.write_ledger(4, marked_in_recovery(METADATA), 0)
        f.ledgers.noticed(4)  # before its node is seen: it was not there at the beginning
        held.set()
        await f.until(3, ("seen", 0), ("missed", (1, 2)), ("seen", 3))
        await f.until(4, ("missed", (0, 0)), ("seen", 1))
        assert (f.ledgers.seen, f.ledgers.missed) == (3, 3)


async def test_a_ledger_that_is_not_there_is_told_once_and_seen_when_it_comes(service: str) -> None:
    async with following(f"{service}/none/ledgers", 1) as f:
        f.ledgers.noticed(9)
        await f.until(9, ("gone", None))
        f.ledgers.noticed(9)
        await f.client.create_ledger(9, METADATA)
        await f.until(9, ("gone", None), ("seen", 0))
        await f.client.delete_ledger(9)
        await f.until(9, ("gone", None), ("seen", 0), ("gone", 0))
        await f.client.create_ledger(9, METADATA)
        await f.until(9, ("gone", None), ("seen", 0), ("gone", 0), ("seen", 0))


async def test_metadata_that_can_not_be_read_are_told(service: str) -> None:
    async with following(f"{service}/foreign/ledgers", 1) as f:
        await f.client._retry(f.client._zookeeper.set, f.client._ledger_path(1), b"nonsense")
        f.ledgers.noticed(1)
        await eventually(lambda: f.of(1), "the ledger")
        assert f.trace.actions == ["metadata_unreadable"]
        assert "damaged or foreign" in f.trace.events[0].parameters["reason"]


async def test_there_are_limits_and_they_are_told(service: str, caplog: pytest.LogCaptureFixture) -> None:
    async with following(f"{service}/limits/ledgers", *range(5), most=2, most_names=6) as f:
        for ledger in range(4):
            f.ledgers.noticed(ledger)
        await eventually(lambda: len(f.trace.events) == 4, "the ledgers")
        assert f.trace.actions.count("new_ledgers_unwatched") == f.trace.actions.count("metadata_unfollowed") == 1
        seen = [event.subject for event in f.trace.events if event.action == "metadata_seen"]
        assert sorted(map(str, seen)) == ["0", "1"]
    assert "each is followed from the first message about it on" in caplog.text
    assert "ledger 2 and later ones are not followed" in caplog.text


async def test_ledgers_are_followed_through_a_restart_of_the_service(tmp_path: Path) -> None:
    process = Process(tmp_path, "metadata", str(tmp_path / "metadata"), "--port", "0")
    uri = f"{process.told.split()[2]}/ledgers"
    try:
        async with following(uri) as f:
            await f.client.create_ledger(3, METADATA)
            await f.until(3, ("seen", 0))
            process.kill()
            process = Process(
                tmp_path, "metadata", str(tmp_path / "metadata"), "--port", uri.split(":")[2].split("/")[0]
            )
            await f.client.write_ledger(3, marked_in_recovery(METADATA), (await f.client.read_ledger(3)).version)
            await f.until(3, ("seen", 0), ("seen", 1))
            await f.client.create_ledger(4, METADATA)
            await f.until(4, ("seen", 0))
    finally:
        process.end()
