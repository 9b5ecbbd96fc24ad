"""HTTP of a part: what it answers, and what clients cannot do to it."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import PATIENCE

from fencepost.errors import SystemFailure
from fencepost.monitoring import http as module
from fencepost.monitoring.http import Answers, HttpServer, serve
from fencepost.monitoring.metrics import Metrics
from fencepost.monitoring.table import PROCESS


class Part:
    """A part with a loop in a thread, and its HTTP."""

    def __init__(self) -> None:
        self.reason = ""
        self.turns = 0
        self.loop = asyncio.new_event_loop()
        self.metrics = Metrics("test", PROCESS)
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

        async def begin() -> HttpServer:
            return HttpServer(Answers(self.metrics, self.why_not_ready), "127.0.0.1", 0)

        self.server = asyncio.run_coroutine_threadsafe(begin(), self.loop).result(PATIENCE)

    def why_not_ready(self) -> str:
        assert threading.current_thread() is self._thread, "evaluated elsewhere than on the loop of the part"
        self.turns += 1
        return self.reason

    def get(self, path: str, method: str = "GET") -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=PATIENCE)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def fresh(self, path: str) -> tuple[int, str]:
        """An answer that is none of before."""
        time.sleep(module.FRESH)
        return self.get(path)

    def raw(self, request: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=PATIENCE) as client:
            with contextlib.suppress(ConnectionError):
                client.sendall(request)
                client.shutdown(socket.SHUT_WR)
            answer = b""
            with contextlib.suppress(ConnectionError):
                while some := client.recv(1 << 16):
                    answer += some
            return answer

    def close(self) -> None:
        self.server.close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[Part]:
    part = Part()
    yield part
    part.close()


@pytest.fixture
def part() -> Iterator[Part]:
    part = Part()
    yield part
    part.close()


def test_a_part_says_whether_it_lives_and_serves(part: Part) -> None:
    assert part.get("/live")[0] == part.get("/ready")[0] == 200
    part.reason = "it has lost its leader"
    assert part.fresh("/ready") == (503, "it has lost its leader\n")
    status, text = part.fresh("/metrics")
    assert status == 200 and "\nfencepost_ready 0.0\n" in text and "process_open_fds" in text
    part.reason = ""
    assert part.fresh("/ready?verbose=1") == (200, "ready\n")
    assert "\nfencepost_ready 1.0\n" in part.fresh("/metrics")[1]


def test_only_get_is_answered_and_only_what_there_is(shared: Part) -> None:
    assert shared.get("/")[0] == shared.get("/metrics/x")[0] == 404
    assert shared.get("/ready", "POST")[0] == shared.get("/metrics", "DELETE")[0] == 405
    assert b"Allow: GET\r\n" in shared.raw(b"PUT /live HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc")
    assert shared.raw(b"GET /live\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert shared.raw(b"GET /" + b"x" * module.LARGEST).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize(
    ("hosts", "status"),
    [
        (b"Host: localhost:8000\r\n", 200),
        (b"host:127.0.0.1\r\n", 200),
        (b"HOST: [::1]:8000\r\n", 200),
        (b"", 200),
        (b"Host: evil.example:8000\r\n", 421),
        (b"Host: 127.0.0.1.evil.example\r\n", 421),
        (b"Host: localhost\r\nHost: evil.example\r\n", 421),
        (b"Host: \r\n", 421),
        (b"Host: [::1\r\n", 421),
    ],
)
def test_no_other_name_than_that_of_this_machine_leads_to_it(shared: Part, hosts: bytes, status: int) -> None:
    answer = shared.raw(b"GET /metrics HTTP/1.1\r\n" + hosts + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 %d " % status) and (b"fencepost_ready" in answer) == (status == 200)


def test_a_port_for_other_machines_has_any_name(part: Part) -> None:
    part.server._is_local = False
    assert part.raw(b"GET /live HTTP/1.1\r\nHost: bookie-1.example\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def test_a_part_that_is_stuck_is_not_alive(part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TURNS_WITHIN", 0.2)
    go_on, stuck = threading.Event(), threading.Event()

    def be_stuck() -> None:
        stuck.set()
        go_on.wait(PATIENCE)

    part.loop.call_soon_threadsafe(be_stuck)
    stuck.wait(PATIENCE)
    assert [part.get(path)[0] for path in ("/live", "/ready", "/metrics")] == [503] * 3
    go_on.set()
    assert part.fresh("/live")[0] == 200


def test_a_loop_that_has_ended_is_not_alive(part: Part) -> None:
    part.loop.call_soon_threadsafe(part.loop.stop)
    part._thread.join()
    part.loop.close()
    assert part.get("/live") == (503, "the loop has ended\n")
    part.server.close()
    part.loop = asyncio.new_event_loop()
    part._thread = threading.Thread(target=part.loop.run_forever, daemon=True)
    part._thread.start()
    part.server = HttpServer(part.server._answers, "127.0.0.1", 0)


def test_a_fault_in_a_gauge_is_answered_and_ends_nothing(part: Part, caplog: pytest.LogCaptureFixture) -> None:
    part.metrics.gauges["process_open_fds"] = lambda: 1 / 0
    assert part.get("/metrics")[0] == 500 and "ZeroDivisionError" in caplog.text
    assert part.get("/ready")[0] == 200


def test_however_many_ask_the_part_is_asked_seldom(part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FRESH", 600.0)
    assert {part.get("/ready") for _ in range(50)} == {(200, "ready\n")}
    assert part.turns == 1


def test_silent_clients_are_replaced_by_others_and_closed_in_time(part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = [socket.create_connection(("127.0.0.1", part.server.port)) for _ in range(3 * module.MOST_AT_ONCE)]
    for each in silent[::2]:
        each.sendall(b"GET /ready HTTP/1.1\r\n")  # and never the rest
    assert part.get("/ready")[0] == 200
    assert len(part.server._connections) <= module.MOST_AT_ONCE
    for each in silent:
        each.close()
    monkeypatch.setattr(module, "PATIENCE", 0.1)
    with socket.create_connection(("127.0.0.1", part.server.port), timeout=PATIENCE) as slow:
        slow.sendall(b"GET /ready HTTP/1.1\r\n")
        with contextlib.suppress(ConnectionError):
            assert slow.recv(1) == b""


def test_a_client_that_reads_nothing_is_closed_in_time(part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.2)
    part.metrics.gauges["fencepost_build_info"] = lambda: {(f"{number}" * 1_000, ""): 1 for number in range(20_000)}
    with socket.create_connection(("127.0.0.1", part.server.port), timeout=PATIENCE) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        end = time.monotonic() + PATIENCE
        while not part.server._connections:
            assert time.monotonic() < end
        while part.server._connections:
            assert time.monotonic() < end
            time.sleep(0.02)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from([b"GET ", b"/live", b" HTTP/1.1", b"\r\n", b"\r\n\r\n", b"\0", b"\xff", b"POST "]) |
                st.binary(max_size=40), max_size=8))  # fmt: skip
def test_whatever_comes_gets_an_answer_of_http_or_none(shared: Part, pieces: list[bytes]) -> None:
    answer = shared.raw(b"".join(pieces))
    assert answer == b"" or answer.startswith(b"HTTP/1.1 ")
    assert shared.get("/live")[0] == 200


async def test_a_port_that_is_taken_is_named(shared: Part) -> None:
    with pytest.raises(SystemFailure, match=rf"cannot be served on 127.0.0.1:{shared.server.port}: "):
        with serve(Metrics("test", PROCESS), lambda: "", "127.0.0.1", shared.server.port):
            raise AssertionError("it listens on a port that is taken")


async def test_nothing_is_served_unless_a_port_is_given() -> None:
    with serve(Metrics("test", PROCESS), lambda: "", "127.0.0.1", 0) as server:
        assert server is None
