"""Many runs: one for each seed, in several processes, up to the first that breaks a promise."""

from __future__ import annotations

import hashlib
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context

from fencepost.store.rules.protections import ALL, Protections
from fencepost.store.sim.case import DEFAULT, drawn
from fencepost.store.sim.cluster import Outcome
from fencepost.store.sim.run import simulate

CHUNK = 20
"""Seeds that a process takes at a time."""


@dataclass(frozen=True)
class Campaign:
    """The seeds of a profile, and who is to run them."""

    seeds: range
    profile: str = DEFAULT
    protections: Protections = ALL
    jobs: int = 1


@dataclass
class Tally:
    """What came of a campaign. ``failed`` is the run of the lowest seed that broke a promise; no seed after it counts.

    ``seeds`` were run, with so many ``events`` in so many ``virtual`` microseconds; ``trace_hash`` is of all their hashes. ``seconds``
    is how long that took, ``interrupted`` whether it was ended early.
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
        with _chunks(campaign) as chunks:
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


@contextmanager
def _chunks(campaign: Campaign) -> Iterator[Iterator[Chunk]]:
    """The chunks of a campaign in the order of their seeds."""
    # The first ones are small, so that a fault that is found at once is told at once.
    starts = [*campaign.seeds[:CHUNK:4], *campaign.seeds[CHUNK::CHUNK]]
    stops = [*starts[1:], campaign.seeds.stop]
    tasks = [(campaign.profile, campaign.protections, start, stop) for start, stop in zip(starts, stops, strict=True)]
    if campaign.jobs == 1:
        yield (_run_chunk(*task) for task in tasks)
        return
    # A fresh interpreter for each: nothing of this process is shared with it.
    pool = ProcessPoolExecutor(campaign.jobs, mp_context=get_context("spawn"), initializer=_ignore_interrupts)
    try:
        yield _in_order(pool, tasks, 3 * campaign.jobs)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _in_order(pool: ProcessPoolExecutor, tasks: list[tuple[str, Protections, int, int]], ahead: int) -> Iterator[Chunk]:
    waiting: deque[Future[Chunk]] = deque()
    for task in tasks:
        waiting.append(pool.submit(_run_chunk, *task))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _run_chunk(profile: str, protections: Protections, start: int, stop: int) -> Chunk:
    chunk = Chunk([])
    for seed in range(start, stop):
        outcome = simulate(drawn(seed, profile, protections))
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
