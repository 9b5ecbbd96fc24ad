"""``fencepost simulate-quorum``: runs whole quorums under seeded faults, on virtual time."""

from __future__ import annotations

import argparse
from typing import Any

from fencepost.cli.commands import simulating
from fencepost.quorum.rules import ALL, Protections
from fencepost.quorum.simulation.cluster import Campaign, Outcome, run_of, simulate
from fencepost.simulation.seeds import Run, without_of
from fencepost.text import numbers

COMMAND = "simulate-quorum"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``fencepost simulate-quorum``."""
    parser.description = "Run whole quorums under seeded faults, on virtual time."
    what = parser.add_argument_group("what is simulated")
    simulating.add(what, "seeds", "without", "jobs", "replay", run="quorum", simulated="quorum")
    simulating.add(parser.add_argument_group("results"), "json", "trace", runs="runs")


def run(args: argparse.Namespace) -> int:
    """Run the seeds, or one of them."""
    return simulating.run_campaign(args, COMMAND, Campaign, ALL, _replay, _data, (0, 1))


def _replay(args: argparse.Namespace, campaign: Campaign) -> int:
    lines: list[str] = []

    def add_line(now: int, where: str, what: str) -> None:
        lines.append(f"{now / 1000:>10.3f} ms  {where:<9} {what}")

    seen = run_of(simulate(args.replay, campaign.protections, add_line))
    case = seen.outcome.case
    hosts = f"{numbers.plural(case.hosts, 'host')}, of which {case.voters} voted in the beginning"
    records = f"{numbers.plural(seen.counts['committed'], 'record')} committed"
    document = _data(seen, campaign.protections)
    return simulating.show_replay(args, COMMAND, campaign, seen, lines, seen.promise, f"{hosts}; {records}", document)


def _data(seen: Run[Outcome], protections: Protections) -> dict[str, Any]:
    """One run as JSON data."""
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
        "failed_disks": outcome.failures,
        "changes_of_voters": outcome.changes,
        "virtual_seconds": seen.time / 1e6,
        "hash": seen.hash,
        "replay": simulating.replay_command(COMMAND, seen.seed, protections),
    }
