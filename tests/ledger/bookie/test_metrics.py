"""Metrics: BookKeeper's names, served over HTTP, with quantiles accurate to the width of a bucket."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import urllib.request
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger.bookie.serving import add, entry, run, serving
from patience import PATIENCE
from prometheus_client.parser import text_string_to_metric_families

from fencepost.ledger import messages as m
from fencepost.ledger.bookie import metrics as module
from fencepost.ledger.bookie.metrics import Latency, Metrics, serve
from fencepost.ledger.rules.codes import Code


def values(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """The served values, by names and labels."""
    end, port = serve(metrics, "127.0.0.1", 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
            text = response.read().decode()
    finally:
        end()
    families = text_string_to_metric_families(text)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for each in families
        for sample in each.samples
    }


def test_what_a_bookie_did_is_served(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            served.server.metrics.gauges["bookie_SERVER_STATUS"] = lambda: 1
            client = await served.client()
            client.send(*(add(1, entry_id) for entry_id in range(100)))
            for _ in range(100):
                await client.receive()
            assert (await client.ask(m.ReadEntry(1, 3))).code is Code.OK
            assert (await client.ask(m.ReadEntry(1, 100))).code is Code.NO_ENTRY
            found = await asyncio.to_thread(values, served.server.metrics)
        success = ("success", "true")
        assert found["bookkeeper_server_ADD_ENTRY_REQUEST_count", (success,)] == 100
        assert found["bookkeeper_server_ADD_ENTRY_REQUEST_sum", (success,)] > 0
        assert found["bookkeeper_server_ADD_ENTRY_REQUEST", (("quantile", "0.99"), success)] > 0
        assert found["bookkeeper_server_READ_ENTRY_REQUEST_count", (success,)] == 2
        assert found["bookkeeper_server_requests_total", (("operation", "READ_ENTRY"), ("success", "false"))] == 1
        assert found["bookie_WRITE_BYTES", ()] > 100 * 40
        assert found["bookie_journal_JOURNAL_SYNC_count", (success,)] >= 1
        assert found["bookie_READ_BYTES", ()] == len(entry(1, 3))
        assert found["bookie_SERVER_STATUS", ()] == 1

    run(main())


@given(st.lists(st.floats(1e-6, 100), min_size=1), st.sampled_from([0.5, 0.99, 1.0]))
def test_a_quantile_is_no_further_off_than_its_bucket_is_wide(seconds: list[float], share: float) -> None:
    latency = Latency()
    for each in seconds:
        latency.observe(each)
    exact = sorted(seconds)[math.ceil(share * len(seconds)) - 1] * 1000
    assert exact * 0.99 <= latency.quantile(share) <= max(exact, 0.001) * 2 ** (1 / 4) * 1.01
    assert latency.count == len(seconds) and math.isclose(latency.sum, sum(seconds) * 1000)


def test_without_anything_observed_there_is_no_quantile() -> None:
    assert math.isnan(Latency().quantile(0.5))


def test_strangers_neither_fill_the_log_of_a_bookie_nor_keep_others_from_its_metrics(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.2)
    end, port = serve(Metrics(), "127.0.0.1", 0)
    try:
        for request in (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", b"\0" * 70_000, b"GET"):
            with socket.create_connection(("127.0.0.1", port)) as stranger:
                stranger.sendall(request)
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
        for each in silent:
            with contextlib.suppress(ConnectionError):
                assert each.recv(1) == b""  # closed at once, or when it has been silent for too long
            each.close()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
            assert answer.status == 200
    finally:
        end()
    assert capfd.readouterr() == ("", "")
