"""Campaigns of a simulator: one run per seed, in several processes, up to the first broken promise."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from fencepost.simulation.processes import in_processes
from fencepost.simulation.trace import SimTrace
from fencepost.traces import RunsFile

T = TypeVar("T")

CHUNK = 20
"""Seeds per task of a process."""

TRACED_CHUNK = 200
"""Seeds per task if they are traced, in one file."""


@dataclass(frozen=True)
class Run(Generic[T]):
    """The summary of a run: its ``seed``, the ``hash`` of all its events, its ``time`` in virtual microseconds, and
    ``counts`` to add up. ``promise`` is the broken promise and ``what`` the reason; both are empty if none was broken.
    ``outcome``: the simulator's full result.
    """

    seed: int
    hash: str
    time: int
    counts: Mapping[str, int]
    promise: str
    what: str
    outcome: T


@dataclass(frozen=True)
class Campaign(Generic[T]):
    """The seeds of a campaign, the active protections, and the number of processes. ``traces``: a folder for the traces
    of all runs, named ``NAME-seed-N``. ``counted``: the names of a run's counts. Each simulator defines its runs in a
    subclass.
    """

    seeds: range
    protections: Any
    jobs: int = 1
    traces: Path | None = None
    counted: ClassVar[tuple[str, ...]]

    @property
    def name(self) -> str:
        """The first word of the runs' names in traces."""
        raise NotImplementedError

    def simulated(self, seed: int, trace: SimTrace | None) -> Run[T]:
        """Run one seed to its end."""
        raise NotImplementedError

    def packed(self, run: Run[T]) -> bytes:
        """The bytes that a run adds to the hash of its campaign."""
        return bytes.fromhex(run.hash)

    def run_name(self, seed: int) -> str:
        """The name of a seed's run in traces."""
        without = "".join(f"-without-{name}" for name in without_of(self.protections))
        return f"{self.name}{without}-seed-{seed}"

    def runs(self, start: int, stop: int, file: RunsFile | None) -> Iterator[Run[T]]:
        """Run the seeds up to the first broken promise; trace them to ``file`` if given."""
        for seed in range(start, stop):
            run = self.simulated(seed, None if file is None else traced(file, self.run_name(seed)))
            yield run
            if run.promise:
                return


@dataclass
class Tally(Generic[T]):
    """The result of a campaign. ``failed``: the run of the lowest seed that broke a promise. Later seeds do not count.

    ``seeds``: the number of runs. ``virtual``: their total virtual microseconds. ``counts``: their total counts.
    ``hash``: the hash of their hashes. ``seconds``: the elapsed time. ``interrupted``: whether it was stopped early.
    """

    campaign: Campaign[T]
    counts: Counter[str]
    seeds: int = 0
    virtual: int = 0
    seconds: float = 0.0
    failed: Run[T] | None = None
    interrupted: bool = False
    hash: str = ""


def without_of(protections: Any) -> list[str]:
    """The disabled protections."""
    return [name for name in protections._fields if not getattr(protections, name)]


def run(campaign: Campaign[T], report: Callable[[Tally[T]], None] = lambda tally: None) -> Tally[T]:
    """Run the seeds. The result does not depend on the number of jobs. Ctrl-C stops early and keeps the results so
    far.
    """
    tally = Tally(campaign, Counter(dict.fromkeys(campaign.counted, 0)))
    whole = hashlib.blake2b(digest_size=8)
    started = time.monotonic()
    try:
        with in_processes(_run_chunk, _tasks(campaign), campaign.jobs) as chunks:
            for chunk in chunks:
                for run in chunk:
                    tally.seeds += 1
                    tally.counts.update(run.counts)
                    tally.virtual += run.time
                    whole.update(campaign.packed(run))
                    tally.failed = run if run.promise else None
                tally.seconds = time.monotonic() - started
                report(tally)
                if tally.failed is not None:
                    break
    except KeyboardInterrupt:
        tally.interrupted = True
    tally.seconds = time.monotonic() - started
    tally.hash = whole.hexdigest()
    return tally


def _tasks(campaign: Campaign[T]) -> list[tuple[Campaign[T], int, int]]:
    """The seeds of a campaign in chunks, in order."""
    # The first chunks are small, so that an immediate failure is reported at once.
    starts = [*campaign.seeds[:CHUNK:4], *campaign.seeds[CHUNK::CHUNK]]
    if campaign.traces is not None:
        starts = [*campaign.seeds[::TRACED_CHUNK]]
    stops = [*starts[1:], campaign.seeds.stop]
    return [(campaign, start, stop) for start, stop in zip(starts, stops, strict=True)]


def _run_chunk(campaign: Campaign[T], start: int, stop: int) -> list[Run[T]]:
    if campaign.traces is None:
        return [*campaign.runs(start, stop, None)]
    with RunsFile(campaign.traces / f"{campaign.run_name(start)}-to-{stop - 1}.parquet") as file:
        return [*campaign.runs(start, stop, file)]


def traced(file: RunsFile, run: str) -> SimTrace:
    """A trace for one run, for a file of many runs."""

    def emit(
        node: str,
        incarnation: int,
        seq: int,
        action: str,
        subject: str | None,
        parameters: Mapping[str, Any],
        actor: str = "",
    ) -> None:
        file.emit(run, node, incarnation, seq, action, subject, parameters, actor=actor)

    return SimTrace(emit)
