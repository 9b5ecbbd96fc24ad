"""Many quorums: one for each seed, in several processes, up to the first that breaks a promise."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from fencepost.quorum.rules import ALL, Protections
from fencepost.quorum.sim.cluster import Outcome
from fencepost.quorum.sim.run import simulate
from fencepost.store.sim.campaign import in_processes

CHUNK = 50
"""Seeds that a process takes at a time."""


@dataclass(frozen=True)
class Campaign:
    """The seeds, the protections that are on, and how many processes there are."""

    seeds: range
    protections: Protections = ALL
    jobs: int = 1


@dataclass
class Tally:
    """What came of a campaign. ``failed`` is the run of the lowest seed that broke a promise; no seed after it counts.

    ``virtual`` is in microseconds.
    """

    campaign: Campaign
    seeds: int = 0
    committed: int = 0
    epochs: int = 0
    virtual: int = 0
    seconds: float = 0.0
    failed: Outcome | None = None
    interrupted: bool = False
    hash: str = ""


def run(campaign: Campaign, report: Callable[[Tally], None] = lambda tally: None) -> Tally:
    """Run the seeds. The tally does not depend on the number of jobs. Ctrl-C ends it with what was done by then."""
    tally = Tally(campaign)
    whole = hashlib.blake2b(digest_size=8)
    started = time.monotonic()
    starts = [*campaign.seeds[::CHUNK]]
    tasks = [(campaign, start, stop) for start, stop in zip(starts, [*starts[1:], campaign.seeds.stop], strict=True)]
    try:
        with in_processes(_run_chunk, tasks, campaign.jobs) as chunks:
            for chunk in chunks:
                for outcome in chunk:
                    tally.seeds += 1
                    tally.committed += outcome.committed
                    tally.epochs += outcome.epochs
                    tally.virtual += outcome.virtual
                    whole.update(hash_of(outcome).encode())
                    if outcome.promise:
                        tally.failed = outcome
                tally.seconds = time.monotonic() - started
                report(tally)
                if tally.failed is not None:
                    break
    except KeyboardInterrupt:
        tally.interrupted = True
    tally.seconds = time.monotonic() - started
    tally.hash = whole.hexdigest()
    return tally


def hash_of(outcome: Outcome) -> str:
    """A hash of all that came of a run."""
    return hashlib.blake2b(repr(outcome).encode(), digest_size=8).hexdigest()


def _run_chunk(campaign: Campaign, start: int, stop: int) -> list[Outcome]:
    """The outcomes of some seeds, up to the first that breaks a promise."""
    outcomes = []
    for seed in range(start, stop):
        outcomes.append(simulate(seed, campaign.protections))
        if outcomes[-1].promise:
            break
    return outcomes
