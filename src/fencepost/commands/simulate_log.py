"""``fencepost simulate-log``: runs worlds of writers, readers and cursors of one log under seeded faults, on virtual
time.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from fencepost import errors, numbers
from fencepost.commands import simulating
from fencepost.engines.resources import cores
from fencepost.log.rules import ALL, Protections
from fencepost.log.sim.world import PROMISES, Campaign, World, simulated
from fencepost.store.sim.seeds import Run, traced, without_of
from fencepost.store.sim.trace import SimTrace
from fencepost.tracing import RunsFile

COMMAND = "simulate-log"


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be typed after ``fencepost simulate-log``."""
    parser.description = "Run worlds of writers, readers and cursors of one log under seeded faults, on virtual time."
    what = parser.add_argument_group("what is simulated")
    simulating.add(what, "seeds", "without", "jobs", "replay", run="world", simulated="log")
    simulating.add(parser.add_argument_group("results"), "json", "trace", runs="worlds")


def run(given: argparse.Namespace) -> int:
    """Run the seeds, or one of them."""
    protections = simulating.protections_without(given.without, ALL)
    simulating.must_be_writable(given)
    campaign = Campaign(given.seeds, protections, given.jobs or cores(), given.trace)
    if given.replay is not None:
        return _replay(given, campaign)
    return simulating.run_campaign(given, COMMAND, campaign, lambda seen: _data(seen, protections), (0,))


def _replay(given: argparse.Namespace, campaign: Campaign) -> int:
    lines: list[str] = []
    world: World

    def tell(
        node: str, incarnation: int, seq: int, action: str, subject: str | None, parameters: Mapping[str, Any]
    ) -> None:
        about = "  ".join(f"{name}={value}" for name, value in parameters.items())
        lines.append(
            f"{world.now / 1000 if subject is not None else 0:>10.3f} ms  {node:<9} {action:<30} {about}".rstrip()
        )

    world = World(given.replay, campaign.protections, SimTrace(tell))
    seen = simulated(world)
    if given.trace is not None:
        name = f"{campaign.run_name(given.replay)}-replayed"
        with RunsFile(given.trace / f"{name}.parquet") as file:
            campaign.simulated(given.replay, traced(file, name))
    verdict = ["HELD  no promise was broken"]
    if seen.promise:
        verdict = [f"VIOLATED  {seen.promise}: {PROMISES[seen.promise]}", seen.what]
    appends = numbers.plural(seen.counts["appends"], "append")
    end = f"{appends} in {numbers.seconds(seen.time / 1e6)} of virtual time, hash {seen.hash}"
    lines += ["", *verdict, f"{COMMAND}  seed {seen.seed}{simulating.off(campaign.protections)}", end]
    simulating.tell(given, "\n".join(lines), _data(seen, campaign.protections))
    return errors.SAFETY_VIOLATED if seen.promise else errors.HOLDS


def _data(seen: Run[None], protections: Protections) -> dict[str, Any]:
    """One world for programs."""
    return {
        "seed": seen.seed,
        "without": without_of(protections),
        "violation": {"promise": seen.promise, "what": seen.what} if seen.promise else None,
        **seen.counts,
        "virtual_seconds": seen.time / 1e6,
        "hash": seen.hash,
        "replay": simulating.replay_command(COMMAND, seen.seed, protections),
    }
