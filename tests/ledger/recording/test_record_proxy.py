"""The proxy between a client and a bookie: what it forwards, what it records, and which faults it injects."""

from __future__ import annotations

import asyncio
import json
import os
import struct
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger.bookie.serving import KEY, add, entry, serving
from ledger.recording.recording import Listed, peer, proxying
from patience import PATIENCE, eventually, run

from fencepost.errors import SystemFailure
from fencepost.ledger import messages as m
from fencepost.ledger.recording import proxy as of_proxy
from fencepost.ledger.recording.observer import request_of
from fencepost.ledger.recording.proxy import bind
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.wire import schema, v2, v3
from fencepost.ledger.wire.frames import frame


def recorded(trace: Listed, action: str, *names: str) -> list[tuple[Any, ...]]:
    """Some of the parameters of events."""
    return [tuple(parameters.get(name) for name in names) for parameters in trace.of(action)]


# -- what is told -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("every_loop")
async def test_messages_pass_and_are_told_in_version_3(tmp_path: Path) -> None:
    noticed: list[int] = []
    async with serving(tmp_path) as bookie, proxying(bookie.port, noticed=noticed.append) as stand:
        client = await stand.client()
        assert (await client.ask(add(7, 0, b"abc"))).code is Code.OK
        assert (await client.ask(add(7, 1, b"abcd", lac=0, recovery=True))).code is Code.OK
        assert (await client.ask(m.ReadEntry(7, 1))).body == entry(7, 1, b"abcd", 0)
        assert (await client.ask(m.ReadEntry(7, 5))).code is Code.NO_ENTRY
        assert (
            await client.ask(m.WriteLac(7, 1, b"\0" * 7 + b"\x07" + b"\0" * 7 + b"\x01" + b"\0" * 8, KEY))
        ).code is Code.OK
        assert (await client.ask(m.ReadLac(7))).code is Code.OK
        assert (await client.ask(m.ForceLedger(7))).code is Code.OK
        assert (await client.ask(m.ListEntries(7))).runs == ((0, 1),)
        assert (await client.ask(m.ReadEntry(7, -1, True, KEY))).code is Code.OK
        assert (await client.ask(add(7, 2))).code is Code.FENCED
        assert (await client.ask(m.GetBookieInfo())).code is Code.OK
        assert (await client.ask(m.Auth("AuthDisabledPlugin", b"secret"))).code is Code.OK
        await client.close()
        await eventually(lambda: "connection_ended" in stand.trace.actions, "the end of the connection")
    trace, common = stand.trace, {"protocol": 3, "bookie": "b1", "connection": trace_label(stand.trace)}
    assert trace.actions == ["connected", *["request_passed", "response_passed"] * 12, "connection_ended"]
    assert [event.subject for event in trace.events] == [None, *["7"] * 20, *[None] * 5]
    assert set(noticed) == {7}
    asked = [{name: value for name, value in each.items() if name != "size"} for each in trace.of("request_passed")]
    add_of = {"kind": "add", "deferred_sync": False}
    assert asked[:2] == [
        {**common, **add_of, "number": 1, "entry": 0, "recovery": False, "lac": -1, "length": 3},
        {**common, **add_of, "number": 2, "entry": 1, "recovery": True, "lac": 0, "length": 8},
    ]
    assert asked[2] == {**common, "kind": "read", "number": 3, "entry": 1, "fence": False}
    assert asked[4] == {**common, "kind": "write_lac", "number": 5, "lac": 1}
    assert asked[5] == {**common, "kind": "read_lac", "number": 6}
    assert asked[8] == {**common, "kind": "read", "number": 9, "entry": -1, "fence": True}
    answered = [{name: value for name, value in each.items() if name != "size"} for each in trace.of("response_passed")]
    assert answered[0] == {**common, "kind": "add", "number": 1, "entry": 0, "code": "OK", "recovery": False}
    assert answered[1]["recovery"] is True
    read = {"kind": "read", "fence": False, "max_lac": 0}
    assert answered[2] == {**common, **read, "number": 3, "entry": 1, "code": "OK", "found": 1, "lac": 0, "length": 8}
    assert (answered[3]["code"], answered[3]["found"], answered[3]["lac"]) == ("NO_ENTRY", None, None)
    assert answered[4] == {**common, "kind": "write_lac", "number": 5, "code": "OK"}
    assert (answered[5]["lac"], answered[5]["last_entry"], answered[5]["last_entry_lac"]) == (1, 1, 0)
    assert answered[6] == {**common, "kind": "force", "number": 7, "code": "OK"}
    assert (answered[7]["entries"], answered[7]["runs"]) == ([[0, 1]], 1)
    assert (answered[8]["entry"], answered[8]["found"], answered[8]["fence"]) == (-1, 1, True)
    assert (answered[9]["kind"], answered[9]["code"]) == ("add", "FENCED")
    assert answered[10]["kind"] == "bookie_info" and answered[10]["total"] is not None
    assert answered[11]["plugin"] == "AuthDisabledPlugin"
    assert "secret" not in json.dumps(trace.events) and KEY.decode() not in json.dumps(trace.events)
    assert recorded(trace, "connection_ended", "by", "error") == [("client", None)]


def trace_label(trace: Listed) -> str:
    label: str = trace.of("connected")[0]["connection"]
    return label


async def test_messages_pass_and_are_told_in_version_2(tmp_path: Path) -> None:
    async with serving(tmp_path) as bookie, proxying(bookie.port) as stand:
        client = await stand.client(v2)
        assert (await client.ask(add(7, 0, b"abc"))).code is Code.OK
        assert (await client.ask(add(7, 1, b"abcd", recovery=True))).code is Code.OK
        assert (await client.ask(m.ReadEntry(7, -1, True, KEY))).body == entry(7, 1, b"abcd", 0)
        assert (await client.ask(m.BatchRead(7, 0, 5, 1000))).bodies == (entry(7, 0, b"abc"), entry(7, 1, b"abcd"))
        assert (await client.ask(m.ReadEntry(9, 0))).code is Code.NO_LEDGER
        await client.close()
    trace = stand.trace
    assert recorded(trace, "request_passed", "protocol", "kind", "number", "entry", "recovery", "fence", "lac") == [
        (2, "add", None, 0, False, None, -1),
        (2, "add", None, 1, True, None, 0),
        (2, "read", None, -1, None, True, None),
        (2, "batch_read", 4, 0, None, False, None),
        (2, "read", None, 0, None, False, None),
    ]
    assert recorded(
        trace, "response_passed", "kind", "number", "entry", "code", "recovery", "fence", "found", "entries", "lac"
    ) == [
        ("add", None, 0, "OK", False, None, None, None, None),
        ("add", None, 1, "OK", True, None, None, None, None),
        ("read", None, -1, "OK", None, True, 1, None, 0),
        ("batch_read", 4, 0, "OK", None, False, None, [[0, 1]], 0),
        ("read", None, 0, "NO_LEDGER", None, False, None, None, None),
    ]


async def test_a_connection_is_told_with_both_its_labels_and_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_proxy, "LOOKING", PATIENCE)
    async with peer() as server, proxying(server.port) as stand:
        _, writer = await stand.connection()
        await eventually(lambda: server.writers and stand.trace.actions, "the connection onward")
        (connected,) = stand.trace.of("connected")
        assert connected["connection"] == "{}:{}".format(*writer.get_extra_info("sockname"))
        assert connected["onward"] == "{}:{}".format(*server.writers[0].get_extra_info("peername"))
        assert connected["process"] in (os.getpid(), None) and (
            connected["process"] or not os.path.exists("/proc/net/tcp")
        )
        writer.close()


async def test_no_connection_waits_for_who_its_client_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[Any] = []
    found = threading.Event()

    def search(client: Any, own: Any) -> int:
        searched.append(client)
        found.wait(PATIENCE)
        return 1

    monkeypatch.setattr(of_proxy, "process_of", search)
    monkeypatch.setattr(of_proxy, "LOOKING", 0.01)
    monkeypatch.setattr(of_proxy, "LOOKS", 2)
    try:
        async with serving(tmp_path) as bookie, proxying(bookie.port) as stand:
            for number in range(5):
                client = await stand.client()
                assert (await client.ask(add(7, number))).code is Code.OK
                await client.close()
            assert len(searched) == 2
            assert recorded(stand.trace, "connected", "process") == [(None,)] * 5
    finally:
        found.set()


async def test_a_response_that_names_no_ledger_is_told_with_that_of_its_request(tmp_path: Path) -> None:
    refusal = schema.Response(status=Code.TOO_MANY_REQUESTS.value)
    refusal.header.version, refusal.header.operation, refusal.header.txnId = 3, v3.ADD_ENTRY, 1
    async with peer() as server, proxying(server.port) as stand:
        server.answers = lambda data: frame(refusal.SerializeToString()) * 2
        client = await stand.client()
        client.send(add(7, 5, recovery=True))
        await eventually(lambda: stand.proxy.counts.responses == 2, "the responses")
        first, second = [event for event in stand.trace.events if event.action == "response_passed"]
        assert (first.subject, first.parameters["entry"], first.parameters["recovery"]) == ("7", 5, True)
        assert first.parameters["code"] == "TOO_MANY_REQUESTS" and "unasked" not in first.parameters
        assert second.subject is None and second.parameters["unasked"] is True
        await client.close()


async def test_tls_is_refused_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(tmp_path) as bookie, proxying(bookie.port) as stand:
        for _ in range(2):
            client = await stand.client()
            assert (await client.ask(m.StartTls())).code is Code.BAD_REQUEST
            assert (await client.ask(add(7, 0))).code is Code.OK
            await client.close()
        assert stand.trace.actions.count("tls_refused") == 2
        assert recorded(stand.trace, "request_passed", "kind") == [("add",)] * 2
    assert caplog.text.count("switch TLS off in the clients") == 1


# -- bytes ------------------------------------------------------------------------------------------------------------

MESSAGES = [
    v3.encode_request(1, add(7, 0)),
    v3.encode_request(2, m.ReadEntry(7, 0, True, KEY)),
    v2.encode_request(0, add(7, 1)),
    v3.encode_request(3, add(7, 2, b"x" * 3_000)),
    frame(b"\x0anonsense"),
    frame(b"\x02\x63\0\0" + b"z" * 40),
    frame(b"\xff"),
]


@given(
    st.lists(st.sampled_from(MESSAGES) | st.binary(min_size=1, max_size=30), max_size=12),
    st.lists(st.integers(1, 400), max_size=30),
)
def test_bytes_are_passed_on_as_they_came_however_they_arrive(parts: list[bytes], cuts: list[int]) -> None:
    data = b"".join(parts)

    async def main() -> None:
        async with peer() as server, proxying(server.port, limit=2_000) as stand:
            reader, writer = await stand.connection()
            start = 0
            for size in [*cuts, len(data)]:
                writer.write(data[start : start + size])
                start += size
                await asyncio.sleep(0)
            writer.write_eof()
            await eventually(lambda: server.ended, "the end")
            assert bytes(server.arrived) == data
            writer.close()

    run(main())


@given(st.binary(min_size=1, max_size=200))
def test_any_answer_is_passed_on(data: bytes) -> None:
    async def main() -> None:
        async with peer() as server, proxying(server.port) as stand:
            reader, writer = await stand.connection()
            await eventually(lambda: server.writers, "the connection onward")
            server.writers[0].write(data)
            server.writers[0].write_eof()
            assert await reader.read(-1) == data
            writer.close()

    run(main())


@given(st.binary(max_size=120))
def test_no_payload_upsets_the_observer(payload: bytes) -> None:
    from fencepost.ledger.recording.observer import response_of
    from fencepost.ledger.wire.frames import WireError

    for observe in (request_of, response_of):
        try:
            json.dumps(observe(payload))
        except WireError:
            pass


@pytest.mark.usefixtures("every_loop")
async def test_what_is_no_message_is_told(tmp_path: Path) -> None:
    async with peer() as server, proxying(server.port, limit=1_000) as stand:
        _, writer = await stand.connection()
        good, large = v3.encode_request(1, add(7, 0)), v3.encode_request(2, add(7, 1, b"x" * 2_000))
        writer.write(good + frame(b"\x0anonsense") + good + large + good)
        await eventually(lambda: len(server.arrived) == len(good) * 3 + 13 + len(large), "the bytes")
        writer.write(good)
        writer.close()
        await eventually(lambda: "connection_ended" in stand.trace.actions, "the end")
        assert stand.trace.actions == [
            "connected",
            "request_passed",
            "unparsed_passed",
            "request_passed",
            "unparsed_passed",
            "connection_ended",
        ]
        first, second = stand.trace.of("unparsed_passed")
        assert (first["direction"], first["size"]) == ("request", 9) and "is no request of version 3" in first["reason"]
        assert "later messages are not recognised" in second["reason"]


async def test_a_message_that_ends_in_the_middle_is_passed_on_and_told(tmp_path: Path) -> None:
    async with peer() as server, proxying(server.port) as stand:
        _, writer = await stand.connection()
        writer.write(v3.encode_request(1, add(7, 0))[:-1])
        await eventually(lambda: stand.trace.actions, "the connection onward")
        writer.close()
        await eventually(lambda: server.ended, "the end")
        assert bytes(server.arrived) == v3.encode_request(1, add(7, 0))[:-1]
        assert [each["reason"] for each in stand.trace.of("unparsed_passed")] == ["it ends in the middle of a message"]


@pytest.mark.usefixtures("every_loop")
async def test_a_side_that_does_not_read_stops_the_other_from_being_read() -> None:
    async with peer() as server, proxying(server.port) as stand:
        server.reads.clear()
        _, writer = await stand.connection()
        message = v3.encode_request(1, add(7, 0, b"x" * 60_000))
        count = 1_000  # far more than the buffers of sockets take
        writer.write(message * count)
        await eventually(
            lambda: stand.proxy.links and all(link.server._is_full for link in stand.proxy.links), "full buffers"
        )
        (link,) = stand.proxy.links
        before = -1
        while before != stand.proxy.counts.requests:  # what was read at once
            before = stand.proxy.counts.requests
            await asyncio.sleep(0.02)
        assert before < count and writer.transport.get_write_buffer_size() > 0
        assert link.server.transport.get_write_buffer_size() + len(link.client._held) <= 3 << 20
        server.reads.set()
        await eventually(lambda: len(server.arrived) == count * len(message), "all of it")
        assert stand.proxy.counts.requests == count
        writer.close()


# -- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("every_loop")
async def test_a_dropped_request_does_not_reach_the_bookie(tmp_path: Path) -> None:
    async with serving(tmp_path) as bookie, proxying(bookie.port, "drop request add after=1") as stand:
        client = await stand.client()
        client.send(add(7, 0), add(7, 1), add(7, 2))
        assert [(await client.receive())[0] for _ in range(2)] == [1, 3]
        assert (await client.ask(m.ListEntries(7))).runs == ((0, 0), (2, 2))
        assert recorded(stand.trace, "message_dropped", "direction", "rule", "kind", "entry", "bookie") == [
            ("request", 1, "add", 1, "b1")
        ]
        assert recorded(stand.trace, "request_passed", "entry")[:2] == [(0,), (2,)]
        await client.close()


async def test_a_dropped_response_was_an_answer_all_the_same(tmp_path: Path) -> None:
    async with serving(tmp_path) as bookie, proxying(bookie.port, "drop response add entry=1") as stand:
        client = await stand.client()
        client.send(add(7, 0), add(7, 1), add(7, 2))
        assert [(await client.receive())[0] for _ in range(2)] == [1, 3]
        assert (await client.ask(m.ListEntries(7))).runs == ((0, 2),)
        (dropped,) = stand.trace.of("message_dropped")
        assert (dropped["direction"], dropped["code"], dropped["recovery"]) == ("response", "OK", False)
        assert not any(link.asked for link in stand.proxy.links)
        await client.close()


@pytest.mark.usefixtures("every_loop")
async def test_a_delayed_message_holds_up_those_after_it(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as bookie,
        proxying(bookie.port, "delay request add entry=1 by=80ms", "delay response add entry=0 by=50ms") as stand,
    ):
        client = await stand.client()
        began = asyncio.get_running_loop().time()
        client.send(add(7, 0), add(7, 1), add(7, 2))
        assert [(await client.receive())[0] for _ in range(3)] == [1, 2, 3]
        assert asyncio.get_running_loop().time() - began >= 0.07  # clocks of loops are coarse
        assert recorded(stand.trace, "message_delayed", "direction", "entry", "by") == [
            ("request", 1, 0.08),
            ("response", 0, 0.05),
        ]
        assert recorded(stand.trace, "request_passed", "entry") == [(0,), (1,), (2,)]
        assert recorded(stand.trace, "response_passed", "entry") == [(0,), (1,), (2,)]
        await client.close()


async def test_what_waits_still_arrives_when_the_client_has_ended() -> None:
    async with peer() as server, proxying(server.port, "delay request add by=100ms") as stand:
        _, writer = await stand.connection()
        data = v3.encode_request(1, add(7, 0)) + v3.encode_request(2, add(7, 1)) + b"\0\0"
        writer.write(data)
        await eventually(lambda: "message_delayed" in stand.trace.actions, "the delay")
        writer.close()
        await eventually(lambda: server.ended, "the end")
        assert bytes(server.arrived) == data
        assert stand.trace.actions[-4:] == ["request_passed", "request_passed", "unparsed_passed", "connection_ended"]


@pytest.mark.usefixtures("every_loop")
async def test_a_connection_is_cut_on_both_sides_in_place_of_the_message(tmp_path: Path) -> None:
    async with serving(tmp_path) as bookie, proxying(bookie.port, "cut response add after=1") as stand:
        client = await stand.client()
        assert (await client.ask(add(7, 0))).code is Code.OK
        client.send(add(7, 1))
        assert await client.is_closed()
        await eventually(lambda: not bookie.server.connections, "the end of the bookie's connection")
        assert stand.trace.actions[-2:] == ["connection_cut", "connection_ended"]
        assert recorded(stand.trace, "connection_cut", "direction", "kind", "entry", "rule") == [
            ("response", "add", 1, 1)
        ]
        assert recorded(stand.trace, "connection_ended", "by") == [("fault",)]
        again = await stand.client()
        assert (await again.ask(m.ListEntries(7))).runs == ((0, 1),)
        await again.close()


# -- connections ------------------------------------------------------------------------------------------------------


async def test_a_bookie_that_is_not_there_is_told() -> None:
    with bind("127.0.0.1", 0) as nobody:
        async with proxying(nobody.getsockname()[1]) as stand:
            reader, writer = await stand.connection()
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
            assert recorded(stand.trace, "connection_refused", "error", "bookie") == [("Connection refused", "b1")]
            assert not stand.proxy.links
            writer.close()


async def test_no_more_connections_are_passed_on_than_the_limit(tmp_path: Path) -> None:
    async with serving(tmp_path) as bookie, proxying(bookie.port, connections=1) as stand:
        client = await stand.client()
        await client.ask(add(7, 0))
        other = await stand.client()
        assert await other.is_closed()
        assert recorded(stand.trace, "connection_refused", "error") == [("more than 1 connections",)]
        await client.ask(add(7, 1))
        await client.close()
        await eventually(lambda: not stand.proxy.links, "the end")
        third = await stand.client()
        await third.ask(add(7, 2))
        await third.close()


async def test_a_bookie_that_ends_ends_the_connection_of_its_client(tmp_path: Path) -> None:
    async with serving(tmp_path) as bookie:
        async with proxying(bookie.port) as stand:
            client = await stand.client()
            await client.ask(add(7, 0))
            await bookie.server.close()
            assert await client.is_closed()
            assert recorded(stand.trace, "connection_ended", "by") == [("bookie",)]


async def test_parts_of_messages_take_no_more_memory_than_all_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_proxy, "MOST_HELD", 1_000_000)
    async with serving(tmp_path) as bookie, proxying(bookie.port) as stand:
        client = await stand.client()
        await client.ask(add(7, 0))
        hostile = [await stand.client() for _ in range(20)]
        for each in hostile:
            each.writer.write(v3.encode_request(1, add(8, 0, bytes(300_000)))[:-1])
        await eventually(lambda: len(stand.proxy.links) <= 4, "the end of most of them")
        assert sum(link.held for link in stand.proxy.links) <= 1_000_000
        await client.ask(add(7, 1))
        for each in (client, *hostile):
            await each.close()
        await eventually(lambda: not stand.proxy.links, "the end")


async def test_requests_without_an_answer_take_no_more_than_their_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_proxy, "UNANSWERED", 10)
    async with peer() as server, proxying(server.port) as stand:
        client = await stand.client()
        client.send(*(add(7, number) for number in range(50)))
        await eventually(lambda: stand.proxy.counts.requests == 50, "the requests")
        (link,) = stand.proxy.links
        assert len(link.asked) == 10 and ("add", 50) in link.asked
        await client.close()


def test_a_port_that_is_taken_is_told() -> None:
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SystemFailure, match=f"the proxy cannot listen on 127.0.0.1:{port}: .*; give another port"):
            bind("127.0.0.1", port)


async def test_the_end_of_the_proxy_is_told_of_every_connection(tmp_path: Path) -> None:
    async with peer() as server:
        async with proxying(server.port) as stand:
            writers = [(await stand.connection())[1] for _ in range(3)]
            await eventually(lambda: len(stand.trace.of("connected")) == 3, "the connections")
        assert recorded(stand.trace, "connection_ended", "by") == [("proxy",)] * 3
        for writer in writers:
            writer.close()


def test_a_header_is_only_looked_at_when_it_is_there() -> None:
    short = struct.pack(">qqq", 7, 0, -1)
    assert request_of(v3.encode_request(1, m.AddEntry(7, 0, -1, short, KEY))[4:]).fields["length"] is None
