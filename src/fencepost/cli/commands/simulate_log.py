"""``fencepost simulate-log``: runs writers, readers and cursors of one log under seeded faults, on virtual time."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from fencepost.cli.commands import simulating
from fencepost.log.rules import ALL, Protections
from fencepost.log.simulation.world import PROMISES, Campaign, World, simulated
from fencepost.simulation.seeds import Run, without_of
from fencepost.simulation.trace import SimTrace
from fencepost.text import numbers

COMMAND = "simulate-log"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``fencepost simulate-log``."""
    parser.description = "Run writers, readers and cursors of one log under seeded faults, on virtual time."
    what = parser.add_argument_group("what is simulated")
    simulating.add(what, "seeds", "without", "jobs", "replay", run="world", simulated="log")
    simulating.add(parser.add_argument_group("results"), "json", "trace", runs="worlds")


def run(args: argparse.Namespace) -> int:
    """Run the seeds, or one of them."""
    return simulating.run_campaign(args, COMMAND, Campaign, ALL, _replay, _data, (0,))


def _replay(args: argparse.Namespace, campaign: Campaign) -> int:
    lines: list[str] = []
    world: World

    def add_line(
        node: str, incarnation: int, seq: int, action: str, subject: str | None, parameters: Mapping[str, Any]
    ) -> None:
        about = "  ".join(f"{name}={value}" for name, value in parameters.items())
        lines.append(
            f"{world.now / 1000 if subject is not None else 0:>10.3f} ms  {node:<9} {action:<30} {about}".rstrip()
        )

    world = World(args.replay, campaign.protections, SimTrace(add_line))
    seen = simulated(world)
    broken = f"{seen.promise}: {PROMISES.get(seen.promise)}"
    appends = numbers.plural(seen.counts["appends"], "append")
    document = _data(seen, campaign.protections)
    return simulating.show_replay(args, COMMAND, campaign, seen, lines, broken, appends, document)


def _data(seen: Run[None], protections: Protections) -> dict[str, Any]:
    """One world as JSON data."""
    return {
        "seed": seen.seed,
        "without": without_of(protections),
        "violation": {"promise": seen.promise, "what": seen.what} if seen.promise else None,
        **seen.counts,
        "virtual_seconds": seen.time / 1e6,
        "hash": seen.hash,
        "replay": simulating.replay_command(COMMAND, seen.seed, protections),
    }
