"""Many worlds of one log: one for each seed, in several processes, up to the first that breaks a promise."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fencepost.log.rules import ALL, Protections
from fencepost.log.sim.environment import Broken
from fencepost.log.sim.world import World
from fencepost.store.sim.campaign import in_processes
from fencepost.store.sim.trace import SimTrace
from fencepost.tracing import RunsFile

CHUNK = 50
"""Seeds that a process takes at a time."""

TRACED_CHUNK = 200
"""The same where they are traced: those are in one file."""


@dataclass(frozen=True)
class Campaign:
    """The seeds, the protections that are on, and how many processes there are. ``traces``: a folder for traces of all
    worlds, ``logs-seed-N``.
    """

    seeds: range
    protections: Protections = ALL
    jobs: int = 1
    traces: Path | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of a seed. ``promise`` and ``what``: the promise that was broken, and how; empty if none was. ``time``:
    virtual microseconds.
    """

    seed: int
    hash: str
    appends: int
    time: int
    promise: str = ""
    what: str = ""


@dataclass
class Tally:
    """What came of a campaign. ``failed`` is the world of the lowest seed that broke a promise; no seed after it
    counts.
    """

    campaign: Campaign
    seeds: int = 0
    appends: int = 0
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
    starts = [*campaign.seeds[:: CHUNK if campaign.traces is None else TRACED_CHUNK]]
    tasks = [(campaign, start, stop) for start, stop in zip(starts, [*starts[1:], campaign.seeds.stop], strict=True)]
    try:
        with in_processes(_run_chunk, tasks, campaign.jobs) as chunks:
            for chunk in chunks:
                for outcome in chunk:
                    tally.seeds += 1
                    tally.appends += outcome.appends
                    tally.virtual += outcome.time
                    whole.update(bytes.fromhex(outcome.hash))
                    if outcome.promise:
                        tally.failed = outcome
                        break
                tally.seconds = time.monotonic() - started
                report(tally)
                if tally.failed is not None:
                    break
    except KeyboardInterrupt:
        tally.interrupted = True
    tally.seconds = time.monotonic() - started
    tally.hash = whole.hexdigest()
    return tally


def _run_chunk(campaign: Campaign, start: int, stop: int) -> list[Outcome]:
    """The outcomes of some seeds, up to the first that breaks a promise."""
    if campaign.traces is None:
        return _run_seeds(campaign, start, stop, None)
    with RunsFile(campaign.traces / f"{run_name(campaign.protections, start)}-to-{stop - 1}.parquet") as file:
        return _run_seeds(campaign, start, stop, file)


def _run_seeds(campaign: Campaign, start: int, stop: int, file: RunsFile | None) -> list[Outcome]:
    outcomes = []
    for seed in range(start, stop):
        trace = None if file is None else traced(file, run_name(campaign.protections, seed))
        outcomes.append(simulated(World(seed, campaign.protections, trace)))
        if outcomes[-1].promise:
            break
    return outcomes


def run_name(protections: Protections, seed: int) -> str:
    """The name of the run of a seed in traces."""
    without = "".join(f"-without-{name}" for name in ALL._fields if not getattr(protections, name))
    return f"logs{without}-seed-{seed}"


def traced(file: RunsFile, run: str) -> SimTrace:
    """What a world is to be given to be traced in a file of many."""

    def emit(
        node: str, incarnation: int, seq: int, action: str, subject: str | None, parameters: Mapping[str, Any]
    ) -> None:
        file.emit(run, node, incarnation, seq, action, subject, parameters)

    return SimTrace(emit)


def simulated(world: World) -> Outcome:
    """Run a world to its end. The same seed has the same outcome in every process."""
    promise = what = ""
    try:
        world.run()
    except Broken as broken:
        promise, what = broken.promise, broken.what
    except Exception as error:
        promise, what = "sanity", f"{type(error).__name__}: {error}"
    told = (sorted(world.acknowledged.items()), sorted(world.failed.items()), world.chain, world.now, promise)
    return Outcome(
        world.seed,
        hashlib.blake2b(repr(told).encode(), digest_size=8).hexdigest(),
        len(world.appends),
        world.now,
        promise,
        what,
    )
