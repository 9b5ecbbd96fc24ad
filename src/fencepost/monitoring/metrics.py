"""The metrics of one part, in Prometheus's text format.

Counters are plain numbers, which the part updates as it goes. Gauges are evaluated when metrics are requested. Only the
thread of the part's loop reads and writes them. A name that is not in the part's table is a ``KeyError``.
"""

from __future__ import annotations

import itertools
import math
import os
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from fencepost.version import VERSION

T = TypeVar("T")

Kind: TypeAlias = Literal["counter", "gauge", "summary", "histogram"]

Value: TypeAlias = float | Mapping[tuple[str, ...], float]
"""The value of a gauge, or its values by those of the labels."""


@dataclass(frozen=True)
class Metric:
    """The definition of a metric. ``labels``: the names of its labels, besides ``quantile`` and ``le``."""

    name: str
    kind: Kind
    unit: str
    help: str
    labels: tuple[str, ...] = ()


QUANTILES = (0.5, 0.75, 0.95, 0.99, 0.999, 0.9999, 1.0)

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The upper bounds of a histogram's buckets, in seconds."""

_PER_OCTAVE = 4
_LOWEST = -10 * _PER_OCTAVE
"""Latencies are kept in buckets, four per doubling, from about a microsecond up."""

_BUCKETS = 30 * _PER_OCTAVE


class Latency:
    """The latencies of one operation, for quantiles over the whole life of the process, like BookKeeper's."""

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


class Histogram:
    """The durations of one operation by :data:`BOUNDS`, which Prometheus can add up over processes."""

    def __init__(self) -> None:
        self.sum = 0.0
        self.buckets = [0] * (len(BOUNDS) + 1)

    def observe(self, seconds: float) -> None:
        """Add a duration."""
        self.sum += seconds
        self.buckets[bisect_left(BOUNDS, seconds)] += 1


class Metrics:
    """The metrics of a part with this ``table``, and of its process. ``part``: what it is, for
    ``fencepost_build_info``.
    """

    def __init__(self, part: str, table: Iterable[Metric]) -> None:
        self.table = {metric.name: metric for metric in table}
        self.counters: dict[str, int] = {
            name: 0 for name, metric in self.table.items() if metric.kind == "counter" and not metric.labels
        }
        self.gauges: dict[str, Callable[[], Value]] = {"fencepost_build_info": lambda: {(part, VERSION): 1}}
        """The functions that give the values of gauges, and of counters that somebody else counts."""
        if os.path.isdir("/proc/self/fd"):
            self.gauges |= _OF_PROCESS
        self._latencies = self._by_label("summary", Latency)
        self._histograms = self._by_label("histogram", Histogram)

    def _by_label(self, kind: Kind, make: Callable[[], T]) -> dict[str, defaultdict[str, T]]:
        """What is observed, by the names of all metrics of a kind, and by the label."""
        return {name: defaultdict(make) for name, metric in self.table.items() if metric.kind == kind}

    def took(self, name: str, seconds: float, count: int = 1, success: bool = True) -> None:
        """An operation of a summary took this long, ``count`` times."""
        self._latencies[name]["true" if success else "false"].observe(seconds, count)

    def observe(self, name: str, label: str, seconds: float) -> None:
        """An operation of a histogram took this long."""
        self._histograms[name][label].observe(seconds)

    def add(self, name: str, number: int = 1) -> None:
        """Increase a counter."""
        self.counters[name] += number

    def text(self) -> str:
        """All metrics with their current values, in Prometheus's text format. One that this process does not have, such
        as those of a leader on a follower, is left out.
        """
        return "".join(f"{line}\n" for metric in self.table.values() for line in self._lines(metric))

    def _lines(self, metric: Metric) -> Iterator[str]:
        samples = list(self._samples(metric))
        if samples:
            yield f"# HELP {metric.name} {metric.help}"
            yield f"# TYPE {metric.name} {metric.kind}"
            yield from samples

    def _samples(self, metric: Metric) -> Iterator[str]:
        name, labels = metric.name, metric.labels
        if metric.kind == "summary":
            for label, latency in self._latencies[name].items():
                for share in QUANTILES:
                    yield _sample(name, (*labels, "quantile"), (label, str(share)), latency.quantile(share))
                yield _sample(f"{name}_sum", labels, (label,), latency.sum)
                yield _sample(f"{name}_count", labels, (label,), latency.count)
        elif metric.kind == "histogram":
            for label, histogram in self._histograms[name].items():
                bounds = [*map(str, BOUNDS), "+Inf"]
                for bound, so_far in zip(bounds, itertools.accumulate(histogram.buckets), strict=True):
                    yield _sample(f"{name}_bucket", (*labels, "le"), (label, bound), so_far)
                yield _sample(f"{name}_sum", labels, (label,), histogram.sum)
                yield _sample(f"{name}_count", labels, (label,), sum(histogram.buckets))
        elif name in self.gauges:
            value = self.gauges[name]()
            for values, number in value.items() if isinstance(value, Mapping) else [((), value)]:
                yield _sample(name, labels, values, number)
        elif name in self.counters:
            yield _sample(name, (), (), self.counters[name])


def _sample(name: str, labels: Sequence[str], values: Sequence[str], number: float) -> str:
    pairs = ",".join(f'{label}="{_escaped(value)}"' for label, value in zip(labels, values, strict=True))
    value = "NaN" if math.isnan(number) else repr(float(number))
    return f"{name}{{{pairs}}} {value}" if pairs else f"{name} {value}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# -- the process, with the names of Prometheus's own clients -----------------------------------------------------------


def _resident() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _most_files() -> float:
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return math.inf if soft == resource.RLIM_INFINITY else soft


_STARTED = time.time()

_OF_PROCESS: dict[str, Callable[[], Value]] = {
    "process_cpu_seconds_total": time.process_time,
    "process_resident_memory_bytes": _resident,
    "process_open_fds": lambda: len(os.listdir("/proc/self/fd")),
    "process_max_fds": _most_files,
    "process_start_time_seconds": lambda: _STARTED,
}
