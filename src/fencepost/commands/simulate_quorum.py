"""``fencepost simulate-quorum``: runs whole quorums under seeded faults, on virtual time."""

from __future__ import annotations

import argparse
from typing import Any

from fencepost import errors, numbers
from fencepost.commands import simulating
from fencepost.engines.resources import cores
from fencepost.quorum.rules import ALL, Protections
from fencepost.quorum.sim.cluster import Campaign, Outcome, run_of, simulate
from fencepost.store.sim.seeds import Run, traced, without_of
from fencepost.tracing import RunsFile

COMMAND = "simulate-quorum"


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be typed after ``fencepost simulate-quorum``."""
    parser.description = "Run whole quorums under seeded faults, on virtual time."
    what = parser.add_argument_group("what is simulated")
    simulating.add(what, "seeds", "without", "jobs", "replay", run="quorum", simulated="quorum")
    simulating.add(parser.add_argument_group("results"), "json", "trace", runs="runs")


def run(given: argparse.Namespace) -> int:
    """Run the seeds, or one of them."""
    protections = simulating.protections_without(given.without, ALL)
    simulating.must_be_writable(given)
    campaign = Campaign(given.seeds, protections, given.jobs or cores(), given.trace)
    if given.replay is not None:
        return _replay(given, campaign)
    return simulating.run_campaign(given, COMMAND, campaign, lambda seen: _data(seen, protections), (0, 1))


def _replay(given: argparse.Namespace, campaign: Campaign) -> int:
    lines: list[str] = []

    def tell(now: int, where: str, what: str) -> None:
        lines.append(f"{now / 1000:>10.3f} ms  {where:<9} {what}")

    seen = run_of(simulate(given.replay, campaign.protections, tell))
    if given.trace is not None:
        name = f"{campaign.run_name(given.replay)}-replayed"
        with RunsFile(given.trace / f"{name}.parquet") as file:
            campaign.simulated(given.replay, traced(file, name))
    verdict = [f"VIOLATED  {seen.promise}", seen.what] if seen.promise else ["HELD  no promise was broken"]
    case = seen.outcome.case
    hosts = f"{numbers.plural(case.hosts, 'host')}, of which {case.voters} voted in the beginning"
    records = f"{numbers.plural(seen.counts['committed'], 'record')} committed"
    end = f"{records} in {numbers.seconds(seen.time / 1e6)} of virtual time, hash {seen.hash}"
    lines += ["", *verdict, f"{COMMAND}  seed {seen.seed}{simulating.off(campaign.protections)}", f"{hosts}; {end}"]
    simulating.tell(given, "\n".join(lines), _data(seen, campaign.protections))
    return errors.SAFETY_VIOLATED if seen.promise else errors.HOLDS


def _data(seen: Run[Outcome], protections: Protections) -> dict[str, Any]:
    """One run for programs."""
    outcome = seen.outcome
    return {
        "seed": seen.seed,
        "without": without_of(protections),
        "hosts": outcome.case.hosts,
        "voters": outcome.case.voters,
        "violation": {"promise": seen.promise, "details": seen.what} if seen.promise else None,
        "committed": outcome.committed,
        "acknowledged": outcome.acknowledged,
        "epochs": outcome.epochs,
        "crashes": outcome.crashes,
        "lost_disks": outcome.wipes,
        "changes_of_voters": outcome.changes,
        "virtual_seconds": seen.time / 1e6,
        "hash": seen.hash,
        "replay": simulating.replay_command(COMMAND, seen.seed, protections),
    }
