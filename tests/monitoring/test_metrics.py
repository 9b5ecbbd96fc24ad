"""Metrics: Prometheus's own parser reads them, with quantiles and buckets as an exact account has them."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger.bookie.serving import add, entry, serving
from prometheus_client.parser import text_string_to_metric_families

from fencepost.ledger import messages as m
from fencepost.ledger.rules.codes import Code
from fencepost.monitoring.metrics import BOUNDS, Latency, Metric, Metrics
from fencepost.monitoring.table import PARTS

Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def values(metrics: Metrics) -> Values:
    """The values as Prometheus's parser reads them, by names and labels. It gives every counter the suffix ``_total``,
    which some here do not have.
    """
    return {
        (
            sample.name if sample.name in metrics.table else sample.name.removesuffix("_total"),
            tuple(sorted(sample.labels.items())),
        ): sample.value
        for each in text_string_to_metric_families(metrics.text())
        for sample in each.samples
    }


async def test_what_a_bookie_did_is_served(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        served.server.metrics.gauges["bookie_SERVER_STATUS"] = lambda: 1
        client = await served.client()
        client.send(*(add(1, entry_id) for entry_id in range(100)))
        for _ in range(100):
            await client.receive()
        assert (await client.ask(m.ReadEntry(1, 3))).code is Code.OK
        assert (await client.ask(m.ReadEntry(1, 100))).code is Code.NO_ENTRY
        found = values(served.server.metrics)
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


TABLE = (
    Metric("hops", "counter", "hops", "hops"),
    Metric("lengths", "gauge", "m", "lengths", ("name",)),
    Metric("walks", "histogram", "seconds", "walks", ("kind",)),
)


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.floats(0, 20) | st.sampled_from(BOUNDS))))
def test_buckets_count_what_is_within_their_bounds(walks: list[tuple[str, float]]) -> None:
    metrics = Metrics("test", TABLE)
    for kind, seconds in walks:
        metrics.observe("walks", kind, seconds)
    found = values(metrics)
    for kind in {kind for kind, _ in walks}:
        taken = [seconds for each, seconds in walks if each == kind]
        for bound in (*BOUNDS, math.inf):
            le = "+Inf" if bound == math.inf else str(bound)
            assert found["walks_bucket", (("kind", kind), ("le", le))] == sum(each <= bound for each in taken)
        assert found["walks_count", (("kind", kind),)] == len(taken)
        assert math.isclose(found["walks_sum", (("kind", kind),)], sum(taken), abs_tol=1e-9)


@given(st.dictionaries(st.text(), st.floats(), max_size=4), st.integers(0))
def test_every_text_is_a_label_and_every_number_a_value(lengths: dict[str, float], hops: int) -> None:
    metrics = Metrics("test", TABLE)
    metrics.add("hops", hops)
    metrics.gauges["lengths"] = lambda: {(name,): length for name, length in lengths.items()}
    found = values(metrics)
    assert found["hops", ()] == float(hops)
    for name, length in lengths.items():
        assert repr(found["lengths", (("name", name),)]) == repr(length)
    assert "NaN" in metrics.text() or not any(map(math.isnan, lengths.values()))


def test_only_what_the_table_has_can_be_counted() -> None:
    metrics = Metrics("test", TABLE)
    wrong: list[Callable[[], Any]] = [
        lambda: metrics.add("unknown"),
        lambda: metrics.add("walks"),
        lambda: metrics.took("walks", 1),
        lambda: metrics.observe("hops", "a", 1),
    ]
    for each in wrong:
        with pytest.raises(KeyError):
            each()


@pytest.mark.parametrize("part", PARTS)
def test_the_names_of_a_part_are_distinct_and_as_prometheus_has_them(part: str) -> None:
    names = [metric.name for metric in PARTS[part]]
    assert len(names) == len(set(names))
    for metric in PARTS[part]:
        assert metric.unit and metric.help and "\n" not in metric.help
        assert (
            metric.kind != "gauge"
            or not metric.name.endswith(("_total", "_count", "_sum", "_bucket"))
            or (
                metric.name.endswith("_count")  # BookKeeper's and ZooKeeper's names
            )
        )
