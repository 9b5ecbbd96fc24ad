"""A whole recording of real bookies and the real client. The bookies' registrations lead the client to the proxy."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from ledger.bookie.standing_bookies import Bookie, bookie
from ledger.recording.recording import Listed
from patience import eventually

import fencepost
from fencepost.errors import OptionError
from fencepost.ledger.client.settings import ClientSettings
from fencepost.ledger.errors import LedgerFencedError
from fencepost.ledger.metadata.client import MetadataClient
from fencepost.ledger.recording.process import Recording, RecordingOptions, RecordingResult, record
from fencepost.ledger.recording.redirects import PROPERTY, _with

PATIENT = ClientSettings(request_timeout=2.0)


class Recorder:
    """A recording that runs on this event loop."""

    def __init__(self, asked: RecordingOptions) -> None:
        self.trace = Listed()
        self.recording: Recording | None = None
        self.running = asyncio.create_task(record(asked, self._open, self._ready))

    def _open(self, started: dict[str, Any]) -> Listed:
        self.trace.started = started
        return self.trace

    def _ready(self, recording: Recording) -> None:
        self.recording = recording

    async def records(self) -> Recording:
        await eventually(lambda: self.recording or self.running.done(), "the recording")
        if self.running.done():
            await self.running
        assert self.recording is not None
        return self.recording

    async def end(self) -> None:
        """End it, as a signal does."""
        self.running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.running


@contextlib.asynccontextmanager
async def recording(uri: str, **asked: Any) -> AsyncIterator[Recorder]:
    recorder = Recorder(RecordingOptions(uri, **asked))
    try:
        await recorder.records()
        yield recorder
    finally:
        await recorder.end()


@contextlib.asynccontextmanager
async def bookies(folder: Path, uri: str, count: int = 3, **settings: Any) -> AsyncIterator[list[Bookie]]:
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(bookie(folder / f"bookie{number}", uri, **settings))
            for number in range(count)
        ]


async def registration(uri: str, bookie_id: str) -> tuple[tuple[str, int], dict[str, str]]:
    """The address that clients receive, and the properties."""
    async with await MetadataClient.connect(uri) as client:
        info = await client.bookie_info(bookie_id)
        endpoint = info.rpc() if info is not None else None
        assert info is not None and endpoint is not None
        return (endpoint.host, endpoint.port), dict(info.properties)


async def test_a_ledger_that_is_written_and_recovered_is_in_the_trace(service: str, tmp_path: Path) -> None:
    uri = f"{service}/whole/ledgers"
    async with bookies(tmp_path, uri) as there, recording(uri) as recorder:
        async with fencepost.connect(uri, PATIENT) as store, fencepost.connect(uri, PATIENT) as other:
            writer = await store.create_ledger(ensemble=3, write_quorum=3, ack_quorum=2)
            for number in range(10):
                await writer.append(b"%d" % number)
            await other.recover_ledger(writer.id)
            with pytest.raises(LedgerFencedError):
                await writer.append(b"late")
            ledger = str(writer.id)
        trace = recorder.trace
        await eventually(
            lambda: len([event for event in trace.events if event.action == "metadata_seen"]) >= 3, "the metadata"
        )
        assert trace.started is not None and trace.started["kind"] == "record"
        assert {each["bookie"] for each in trace.started["bookies"]} == {each.bookie_id for each in there}
        adds = [
            each
            for event in trace.events
            if event.action == "request_passed" and (each := event.parameters)["kind"] == "add"
        ]
        own = [each for each in adds if not each["recovery"]]
        assert {each["entry"] for each in own} == set(range(11)) and {each["bookie"] for each in own} == {
            each.bookie_id for each in there
        }
        fences = [
            each
            for each in trace.of("request_passed")
            if each["kind"] == "read" and each["fence"] and each["entry"] == -1
        ]
        assert {each["bookie"] for each in fences} == {each.bookie_id for each in there}
        assert "FENCED" in {each["code"] for each in trace.of("response_passed") if each["kind"] == "add"}
        versions = [
            event.parameters
            for event in trace.events
            if event.subject == ledger and event.action.startswith("metadata_")
        ]
        known = [each["version"] for each in versions if "version" in each]
        missed = [version for each in versions if "first" in each for version in range(each["first"], each["last"] + 1)]
        assert sorted([*known, *missed]) == list(range(max(known) + 1)) and known[0] == 0
        assert versions[-1]["metadata"]["state"] == "CLOSED" and versions[-1]["metadata"]["last_entry"] == 9
        # Each request that was answered was passed before its answer.
        passed: set[tuple[Any, ...]] = set()
        for event in trace.events:
            if event.action in ("request_passed", "response_passed"):
                key = (
                    event.parameters["connection"],
                    event.parameters["bookie"],
                    event.parameters["kind"],
                    event.parameters["number"],
                )
                assert (event.action == "request_passed") == (key not in passed)
                passed.add(key)
    assert trace.ended is not None and trace.ended["requests"] == len(trace.of("request_passed"))


async def test_clients_are_led_to_the_proxy_and_back(service: str, tmp_path: Path) -> None:
    uri = f"{service}/led/ledgers"
    async with bookie(tmp_path / "b", uri) as there:
        own = ("127.0.0.1", int(there.bookie_id.rpartition(":")[2]))
        async with recording(uri, listen=(("127.0.0.1", 0),), bookies=((None, own),)) as recorder:
            ((recorded, to),) = (await recorder.records()).bookies
            assert (recorded.id, (recorded.host, recorded.port)) == (there.bookie_id, own) and to != own
            assert await registration(uri, there.bookie_id) == (to, {PROPERTY: there.bookie_id})
            redirected = {"bookie": there.bookie_id, "from": there.bookie_id, "to": f"{to[0]}:{to[1]}"}
            assert recorder.trace.of("bookie_redirected") == [redirected]
        assert await registration(uri, there.bookie_id) == (own, {})


async def test_a_bookie_that_registers_anew_is_led_to_again(service: str, tmp_path: Path) -> None:
    uri = f"{service}/anew/ledgers"
    async with bookie(tmp_path / "b", uri) as first:
        name, port = first.bookie_id, int(first.bookie_id.rpartition(":")[2])
    asked = {"listen": (("127.0.0.1", 0),), "bookies": ((name, ("127.0.0.1", port)),)}
    async with recording(uri, **asked) as recorder:  # which has no bookie yet
        ((_, to),) = (await recorder.records()).bookies
        for times in (1, 2):
            async with bookie(tmp_path / "b", uri):
                await eventually(lambda: len(recorder.trace.of("bookie_redirected")) == times, "the bookie")
                assert await registration(uri, name) == (to, {PROPERTY: name})
        async with bookie(tmp_path / "b", uri, forceReadOnlyBookie=True):
            await eventually(lambda: len(recorder.trace.of("bookie_redirected")) == 3, "the bookie, read-only")
            assert await registration(uri, name) == (to, {PROPERTY: name})


async def test_what_a_killed_proxy_has_left_is_taken_over_and_put_right(service: str, tmp_path: Path) -> None:
    uri = f"{service}/killed/ledgers"
    async with bookie(tmp_path / "b", uri) as there:
        own = ("127.0.0.1", int(there.bookie_id.rpartition(":")[2]))
        async with await MetadataClient.connect(uri) as client:
            registered = await client.read_registration(there.bookie_id, lambda bookie: None)
            assert registered is not None
            left = _with(registered, ("127.0.0.1", 9), {PROPERTY: there.bookie_id})
            await client.replace_registration(registered, left)
        async with recording(uri) as recorder:
            ((recorded, to),) = (await recorder.records()).bookies
            assert (recorded.host, recorded.port) == own
            assert await registration(uri, there.bookie_id) == (to, {PROPERTY: there.bookie_id})
        assert await registration(uri, there.bookie_id) == (own, {})


async def test_a_bookie_that_advertises_the_proxy_is_left_alone(service: str, tmp_path: Path) -> None:
    uri = f"{service}/advertised/ledgers"
    async with bookie(tmp_path / "b", uri, listeningInterface="127.0.0.1", advertisedAddress="127.0.0.2") as there:
        port = int(there.bookie_id.rpartition(":")[2])
        assert there.bookie_id == f"127.0.0.2:{port}"
        asked = {"listen": (("127.0.0.2", port),), "bookies": ((None, ("127.0.0.1", port)),)}
        async with recording(uri, **asked) as recorder:
            assert (await recorder.records()).bookies[0][0].id == there.bookie_id
            async with fencepost.connect(uri, PATIENT) as store:
                writer = await store.create_ledger(ensemble=1)
                await writer.append(b"through the proxy")
                await writer.close()
            assert [each["kind"] for each in recorder.trace.of("response_passed")][:2] == ["read", "add"]
            assert recorder.trace.of("bookie_redirected") == []
        assert await registration(uri, there.bookie_id) == (("127.0.0.2", port), {})


async def test_faults_are_told_and_survived(service: str, tmp_path: Path) -> None:
    uri = f"{service}/faults/ledgers"
    rules = (
        "drop request add bookie=1 after=5",
        "cut response add bookie=2 after=20",
        "delay response add bookie=3 after=3 by=20ms",
    )
    async with bookies(tmp_path, uri, 4), recording(uri, faults=rules, random_faults=2, seed=46) as recorder:
        async with fencepost.connect(uri, PATIENT) as store:
            writer = await store.create_ledger(ensemble=3, write_quorum=3, ack_quorum=2)
            for number in range(60):
                await writer.append(b"%d" % number)
            await writer.close()
            reader = await store.open_ledger(writer.id)
            assert [entry.data async for entry in reader.read()] == [b"%d" % number for number in range(60)]
        made = recorder.trace.of("message_dropped", "message_delayed", "connection_cut")
        assert recorder.trace.started is not None
        assert len(recorder.trace.started["faults"]) == 5 and recorder.trace.started["seed"] == 46
        assert made and all(1 <= each["rule"] <= 5 for each in made)
    assert recorder.trace.ended is not None and sum(recorder.trace.ended["acted"]) == len(made)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (
            {"listen": (("127.0.0.1", 0),)},
            "listen is given 1 times and bookie 0 times: give one address to listen on for each bookie",
        ),
        ({"listen": (("0.0.0.0", 4181),), "bookies": ((None, ("127.0.0.1", 9)),)}, "clients must be told an address"),
        (
            {"listen": (("127.0.0.1", 0),), "bookies": ((None, ("127.0.0.1", 9)),)},
            "no bookie is registered at 127.0.0.1:9: there is 127.0.0.1:",
        ),
        ({"faults": ("drop it",)}, "fault 'drop it': there is no 'it'"),
        ({"faults": ("drop request add bookie=2",)}, "there is no bookie 2: there is 1 (127.0.0.1:"),
        ({"random_faults": 1_001}, "1,001 faults are too many"),
        (
            {"listen": (("127.0.0.1", 0),) * 2, "bookies": (("b", ("127.0.0.1", 9)), ("b", ("127.0.0.1", 8)))},
            "a bookie is given twice",
        ),
    ],
)
async def test_what_can_not_be_recorded_is_told(
    service: str, tmp_path: Path, asked: dict[str, Any], reason: str
) -> None:
    uri = f"{service}/wrong/ledgers"
    async with bookie(tmp_path / "b", uri):
        recorder = Recorder(RecordingOptions(uri, **asked))
        with pytest.raises(OptionError) as told:
            await recorder.records()
        assert reason in str(told.value)


async def test_without_bookies_there_is_nothing_to_record(service: str) -> None:
    uri = f"{service}/empty/ledgers"
    async with await MetadataClient.connect(uri) as client:
        await client.initialise()
    with pytest.raises(OptionError, match="no bookie is registered at zk://.*: start bookies first"):
        await record(RecordingOptions(uri), Listed, lambda recording: None)


async def test_what_was_done_is_given(service: str, tmp_path: Path) -> None:
    uri = f"{service}/done/ledgers"
    async with bookie(tmp_path / "b", uri):
        recorder = Recorder(RecordingOptions(uri, faults=("drop request add ledger=12345",)))
        await recorder.records()
        asyncio.get_running_loop().call_soon(_terminate)
        done: RecordingResult = await recorder.running
        assert done.counts.connections == 0 and done.unused == ("drop request add ledger=12345 after=0 count=1",)


def _terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
