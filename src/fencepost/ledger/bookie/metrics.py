"""Metrics with BookKeeper's names, in Prometheus format.

Counters are plain numbers, which the server updates once per batch. Everything else is computed when metrics are
requested. Latencies are in milliseconds, as summaries with quantiles over the whole life of the process, like
BookKeeper's.
"""

from __future__ import annotations

import itertools
import logging
import math
import socket
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from fencepost.errors import SystemFailure
from fencepost.ledger import messages as m

if TYPE_CHECKING:
    from prometheus_client.core import Metric  # slow to import, so imported when metrics are requested

_logger = logging.getLogger(__name__)

OPERATIONS: dict[type[Any], str] = {
    m.AddEntryResponse: "ADD_ENTRY",
    m.ReadEntryResponse: "READ_ENTRY",
    m.BatchReadResponse: "BATCH_READ_ENTRY",
    m.ReadLacResponse: "READ_LAC",
    m.WriteLacResponse: "WRITE_LAC",
    m.ForceLedgerResponse: "FORCE_LEDGER",
    m.ListEntriesResponse: "GET_LIST_OF_ENTRIES_OF_LEDGER",
    m.GetBookieInfoResponse: "GET_BOOKIE_INFO",
}
"""BookKeeper's names of operations, by the types of their responses."""

OF_STORAGE = {"journal sync": "bookie_journal_JOURNAL_SYNC", "checkpoint": "bookie_flush"}
"""BookKeeper's names of the operations of the storage."""

QUANTILES = (0.5, 0.75, 0.95, 0.99, 0.999, 0.9999, 1.0)

_PER_OCTAVE = 4
_LOWEST = -10 * _PER_OCTAVE
"""Latencies are kept in buckets, four per doubling, from about a microsecond up."""

_BUCKETS = 30 * _PER_OCTAVE


class Latency:
    """The latencies of one operation."""

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0.0
        self.buckets = [0] * _BUCKETS

    def observe(self, seconds: float, count: int = 1) -> None:
        """Add a duration, counted ``count`` times."""
        milliseconds = seconds * 1000
        self.count += count
        self.sum += milliseconds * count
        place = int(math.log2(milliseconds) * _PER_OCTAVE) - _LOWEST if milliseconds > 0.001 else 0
        self.buckets[min(max(place, 0), _BUCKETS - 1)] += count

    def quantile(self, share: float) -> float:
        """The milliseconds within which this share of all operations finished, rounded up to the end of a bucket. NaN
        without any.
        """
        if not self.count:
            return math.nan
        done = itertools.accumulate(self.buckets)
        place = next(place for place, so_far in enumerate(done) if so_far and so_far >= share * self.count)
        return float(2 ** ((place + 1 + _LOWEST) / _PER_OCTAVE))


class Metrics:
    """The metrics of a bookie. ``gauges`` are evaluated when metrics are requested."""

    def __init__(self) -> None:
        self.answered: defaultdict[type[Any], int] = defaultdict(int)
        self.refused: defaultdict[type[Any], int] = defaultdict(int)
        """Answers by the type of the response: ``answered`` has all, ``refused`` those with a code other than OK."""
        self.latencies: defaultdict[tuple[str, bool], Latency] = defaultdict(Latency)
        """By the name of an operation, and whether it succeeded."""
        self.counters: defaultdict[str, int] = defaultdict(int)
        self.gauges: dict[str, Callable[[], float]] = {}

    def took(self, name: str, seconds: float, count: int = 1, success: bool = True) -> None:
        """An operation took this long, ``count`` times."""
        self.latencies[name, success].observe(seconds, count)

    def storage_took(self, what: str, seconds: float) -> None:
        """An operation of the storage took this long."""
        self.took(OF_STORAGE[what], seconds)

    def add(self, name: str, number: int) -> None:
        """Increase a counter."""
        self.counters[name] += number

    def collect(self) -> Iterator[Metric]:
        """For Prometheus: all metrics, with their current values."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

        answered = CounterMetricFamily(
            "bookkeeper_server_requests", "answers by operation", labels=["operation", "success"]
        )
        for kind, count in list(self.answered.items()):
            name, refused = OPERATIONS.get(kind, kind.__name__), self.refused[kind]
            answered.add_metric([name, _label(True)], count - refused)
            answered.add_metric([name, _label(False)], refused)
        yield answered
        summaries: dict[str, Metric] = {}
        for (name, success), latency in list(self.latencies.items()):
            summary = summaries.setdefault(name, Metric(name, "milliseconds", "summary"))
            label = {"success": _label(success)}
            for share in QUANTILES:
                summary.add_sample(name, {**label, "quantile": str(share)}, latency.quantile(share))
            summary.add_sample(f"{name}_count", label, latency.count)
            summary.add_sample(f"{name}_sum", label, latency.sum)
        yield from summaries.values()
        for name, number in list(self.counters.items()):
            # BookKeeper's counters have no suffix. Dashboards read these names.
            yield GaugeMetricFamily(name, name, value=number)
        for name, value in list(self.gauges.items()):
            yield GaugeMetricFamily(name, name, value=value())

    def describe(self) -> Iterable[Metric]:
        """For Prometheus: no metrics are declared in advance."""
        return ()


MOST_AT_ONCE = 16
"""The most requests for metrics answered at a time. The connection of one more is closed."""

PATIENCE = 10.0
"""Seconds that a client of metrics may stay silent."""


class _MetricsServer(ThreadingHTTPServer):
    """Serves a few requests for metrics at a time, and ignores invalid requests."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0][0]
        self._slots = threading.BoundedSemaphore(MOST_AT_ONCE)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        _logger.info("a request for metrics from %s is not answered: %r", client_address[0], sys.exception())


def serve(metrics: Metrics, address: str, port: int) -> tuple[Callable[[], None], int]:
    """Serve metrics over HTTP, in threads. Gives a function that stops the server, and the port. Raises
    :class:`fencepost.errors.SystemFailure` if the port is in use.
    """
    from prometheus_client import CollectorRegistry, MetricsHandler

    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    handler: Any = MetricsHandler.factory(registry)
    handler.timeout = PATIENCE
    try:
        server = _MetricsServer((address, port), handler)
    except OSError as error:
        raise SystemFailure(f"metrics cannot be served on {address}:{port}: {error.strerror}") from error
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return end, server.server_port


def _label(success: bool) -> str:
    return "true" if success else "false"
