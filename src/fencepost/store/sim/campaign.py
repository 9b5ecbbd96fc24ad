"""Many runs: one for each seed, in several processes, up to the first that breaks a promise."""

from __future__ import annotations

import hashlib
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

from fencepost.store.rules.protections import ALL, Protections
from fencepost.store.sim.case import DEFAULT, drawn
from fencepost.store.sim.cluster import Outcome
from fencepost.store.sim.run import simulate
from fencepost.store.sim.trace import SimTrace
from fencepost.tracing import RunsFile

T = TypeVar("T")

CHUNK = 20
"""Seeds that a process takes at a time."""

TRACED_CHUNK = 200
"""The same where they are traced: those are in one file."""


@dataclass(frozen=True)
class Campaign:
    """The seeds of a profile, what they are held to (everything, if there are no ``promises``), and who is to run them.
    ``traces``: a folder for traces of all runs, ``PROFILE-seed-N``.
    """

    seeds: range
    profile: str = DEFAULT
    protections: Protections = ALL
    promises: tuple[str, ...] = ()
    jobs: int = 1
    traces: Path | None = None


@dataclass
class Tally:
    """What came of a campaign. ``failed`` is the run of the lowest seed that broke a promise; no seed after it counts.

    ``seeds`` were run, with so many ``events`` in so many ``virtual`` microseconds; ``trace_hash`` is of all their
    hashes. ``seconds`` is how long that took, ``interrupted`` whether it was ended early.
    """

    campaign: Campaign
    seeds: int = 0
    events: int = 0
    virtual: int = 0
    seconds: float = 0.0
    failed: Outcome | None = None
    interrupted: bool = False
    trace_hash: str = ""


@dataclass
class Chunk:
    """What came of a few seeds in their order, up to the first that failed."""

    hashes: list[str]
    events: int = 0
    virtual: int = 0
    failed: Outcome | None = None


def run(campaign: Campaign, report: Callable[[Tally], None] = lambda tally: None) -> Tally:
    """Run the seeds. The tally does not depend on the number of jobs. Ctrl-C ends it with what was done by then."""
    tally = Tally(campaign)
    whole = hashlib.blake2b(digest_size=8)
    started = time.monotonic()
    try:
        with in_processes(_run_chunk, _tasks(campaign), campaign.jobs) as chunks:
            for chunk in chunks:
                tally.seeds += len(chunk.hashes)
                tally.events += chunk.events
                tally.virtual += chunk.virtual
                tally.seconds = time.monotonic() - started
                for one in chunk.hashes:
                    whole.update(bytes.fromhex(one))
                report(tally)
                if chunk.failed is not None:
                    tally.failed = chunk.failed
                    break
    except KeyboardInterrupt:
        tally.interrupted = True
    tally.seconds = time.monotonic() - started
    tally.trace_hash = whole.hexdigest()
    return tally


def _tasks(campaign: Campaign) -> list[tuple[Campaign, int, int]]:
    """The seeds of a campaign in chunks, in their order."""
    # The first ones are small, so that a fault that is found at once is told at once.
    starts = [*campaign.seeds[:CHUNK:4], *campaign.seeds[CHUNK::CHUNK]]
    if campaign.traces is not None:
        starts = [*campaign.seeds[::TRACED_CHUNK]]
    stops = [*starts[1:], campaign.seeds.stop]
    return [(campaign, start, stop) for start, stop in zip(starts, stops, strict=True)]


@contextmanager
def in_processes(does: Callable[..., T], tasks: Sequence[tuple[Any, ...]], jobs: int) -> Iterator[Iterator[T]]:
    """What a function of a module gives for tasks, in their order, from so many processes; one is this process."""
    if jobs == 1:
        yield (does(*task) for task in tasks)
        return
    # A fresh interpreter for each: nothing of this process is shared with it.
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_ignore_interrupts)
    try:
        yield _in_order(pool, does, tasks, 3 * jobs)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _in_order(
    pool: ProcessPoolExecutor, does: Callable[..., T], tasks: Sequence[tuple[Any, ...]], ahead: int
) -> Iterator[T]:
    waiting: deque[Future[T]] = deque()
    for task in tasks:
        waiting.append(pool.submit(does, *task))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _run_chunk(campaign: Campaign, start: int, stop: int) -> Chunk:
    if campaign.traces is None:
        return _run_seeds(campaign, start, stop, None)
    name = f"{run_name(campaign.profile, campaign.protections, start)}-to-{stop - 1}.parquet"
    with RunsFile(campaign.traces / name) as file:
        return _run_seeds(campaign, start, stop, file)


def run_name(profile: str, protections: Protections, seed: int) -> str:
    """The name of the run of a seed in traces."""
    without = "".join(f"-without-{name}" for name in ALL._fields if not getattr(protections, name))
    return f"{profile}{without}-seed-{seed}"


def traced(file: RunsFile, run: str) -> SimTrace:
    """What a run is to be given to be traced in a file of many."""

    def emit(
        node: str, incarnation: int, seq: int, action: str, subject: str | None, parameters: Mapping[str, Any]
    ) -> None:
        file.emit(run, node, incarnation, seq, action, subject, parameters)

    return SimTrace(emit)


def _run_seeds(campaign: Campaign, start: int, stop: int, file: RunsFile | None) -> Chunk:
    chunk, profile, protections = Chunk([]), campaign.profile, campaign.protections
    for seed in range(start, stop):
        trace = None if file is None else traced(file, run_name(profile, protections, seed))
        outcome = simulate(drawn(seed, profile, protections, campaign.promises), trace=trace)
        chunk.hashes.append(outcome.trace_hash)
        chunk.events += outcome.events
        chunk.virtual += outcome.time
        if outcome.violation is not None:
            chunk.failed = outcome
            break
    return chunk


def _ignore_interrupts() -> None:
    """Ctrl-C reaches all processes of a terminal: the one that started the others ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
