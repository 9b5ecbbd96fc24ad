"""``fencepost simulate-world``: runs whole systems under seeded faults, on virtual time."""

from __future__ import annotations

import argparse
from typing import Any

from fencepost.cli.commands import simulating
from fencepost.simulation.seeds import Run
from fencepost.text import numbers
from fencepost.world.world import NONE, PROMISES, Campaign, NoProtections, Outcome, run_of, simulate

COMMAND = "simulate-world"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``fencepost simulate-world``."""
    parser.description = (
        "Run whole systems under seeded faults, on virtual time: a replicated metadata service, bookies, writers and"
        " readers of ledgers and logs, and auto-recovery."
    )
    simulating.add(parser.add_argument_group("what is simulated"), "seeds", "jobs", "replay", run="world")
    simulating.add(parser.add_argument_group("results"), "json", "trace", runs="worlds")
    parser.set_defaults(without=[])


def run(args: argparse.Namespace) -> int:
    """Run the seeds, or one of them."""
    return simulating.run_campaign(args, COMMAND, Campaign, NONE, _replay, _data, (0, 0, 0, 1))


def _replay(args: argparse.Namespace, campaign: Campaign) -> int:
    lines: list[str] = []

    def add_line(now: int, who: str, what: str) -> None:
        lines.append(f"{now / 1000:>10.3f} ms  {who:<11} {what}")

    seen = run_of(simulate(args.replay, add_line))
    broken = f"{seen.promise}: {PROMISES.get(seen.promise, 'a promise of the quorum')}"
    counted = ", ".join(numbers.plural(seen.counts[name], name.removesuffix("s")) for name in ("events", "ledgers"))
    document = _data(seen, campaign.protections)
    return simulating.show_replay(args, COMMAND, campaign, seen, lines, broken, counted, document)


def _data(seen: Run[Outcome], protections: NoProtections) -> dict[str, Any]:
    """One world as JSON data."""
    case = seen.outcome.case
    return {
        "seed": seen.seed,
        "members": case.members,
        "bookies": case.bookies,
        "ensemble": case.ensemble,
        "write_quorum": case.write_quorum,
        "ack_quorum": case.ack_quorum,
        "logs": case.logs,
        "faults": dict(case.rates),
        "violation": {"promise": seen.promise, "what": seen.what} if seen.promise else None,
        **seen.counts,
        "virtual_seconds": seen.time / 1e6,
        "hash": seen.hash,
        "replay": simulating.replay_command(COMMAND, seen.seed, protections),
    }
