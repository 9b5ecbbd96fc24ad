"""``fencepost simulate-quorum``: runs whole quorums under seeded faults, on virtual time."""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from fencepost import arguments, errors, numbers, output
from fencepost.engines.resources import cores
from fencepost.errors import OptionError
from fencepost.progress import Seeds
from fencepost.quorum.rules import ALL, Protections
from fencepost.quorum.sim import campaign
from fencepost.quorum.sim.cluster import Outcome
from fencepost.quorum.sim.run import simulate
from fencepost.tracing import RunsFile


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be typed after ``fencepost simulate-quorum``."""
    parser.description = "Run whole quorums under seeded faults, on virtual time."
    what = parser.add_argument_group("what is simulated")
    what.add_argument(
        "--seeds",
        metavar="A..B",
        type=arguments.seeds,
        default=range(1, 1001),
        help="the seeds, one quorum for each; by default 1..1000",
    )
    what.add_argument(
        "--without",
        metavar="PROTECTION",
        action="append",
        default=[],
        help="switch a protection of the quorum off (repeatable)",
    )
    what.add_argument("--jobs", metavar="N", type=arguments.workers, help="processes; by default one for each core")
    what.add_argument("--replay", metavar="SEED", type=arguments.number, help="run one seed, and tell it step by step")
    results = parser.add_argument_group("results")
    results.add_argument(
        "--json",
        metavar="FILE",
        nargs="?",
        const="-",
        help="the result as JSON; by default to standard output, which then has nothing else on it",
    )
    results.add_argument(
        "--trace", metavar="DIR", type=Path, help="write traces of all runs to a folder of traces (docs/traces.md)"
    )


def run(given: argparse.Namespace) -> int:
    """Run the seeds, or one of them."""
    protections = _without(given.without)
    if given.json not in (None, "-"):
        output.must_be_writable("json", given.json)
    if given.replay is not None:
        return _replay(given, protections)
    asked = campaign.Campaign(given.seeds, protections, given.jobs or cores(), given.trace)
    with _progress() as report:
        tally = campaign.run(asked, lambda so_far: report(so_far.seeds, so_far.committed, len(given.seeds)))
    _tell(given, _story(tally), _data(tally))
    if tally.failed is not None:
        return errors.SAFETY_VIOLATED
    return errors.INTERRUPTED if tally.interrupted else errors.HOLDS


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int, int, int], None]]:
    """Where a campaign reports to: a live line if somebody is watching."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda done, committed, of: None
        return
    with Seeds(sys.stderr) as line:
        yield line.report


def _without(names: Sequence[str]) -> Protections:
    for name in names:
        if name not in ALL._fields:
            near = get_close_matches(name, ALL._fields, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(ALL._fields)}"
            raise OptionError(f"--without {name}: there is no such protection: {hint}")
    return ALL.replace(**dict.fromkeys(names, False))


def _replay(given: argparse.Namespace, protections: Protections) -> int:
    lines: list[str] = []

    def tell(now: int, where: str, what: str) -> None:
        lines.append(f"{now / 1000:>10.3f} ms  {where:<9} {what}")

    outcome = simulate(given.replay, protections, tell)
    if given.trace is not None:
        name = f"{campaign.run_name(protections, given.replay)}-replayed"
        with RunsFile(given.trace / f"{name}.parquet") as file:
            simulate(given.replay, protections, trace=campaign.traced(file, name))
    verdict = (
        [f"VIOLATED  {outcome.promise}", _details(outcome)] if outcome.promise else ["HELD  no promise was broken"]
    )
    case = outcome.case
    hosts = f"{numbers.plural(case.hosts, 'host')}, of which {case.voters} voted in the beginning"
    lines += ["", *verdict, f"simulate-quorum  seed {case.seed}{_off(protections)}", f"{hosts}; {_end(outcome)}"]
    _tell(given, "\n".join(lines), _outcome_data(outcome, protections))
    return errors.SAFETY_VIOLATED if outcome.promise else errors.HOLDS


# -- what is told -----------------------------------------------------------------------------------------------------


def replay_command(seed: int, protections: Protections) -> str:
    """The command that runs a seed again and tells it step by step."""
    words = ["fencepost", "simulate-quorum", "--replay", str(seed)]
    for name in _names_off(protections):
        words += ["--without", name]
    return shlex.join(words)


def _names_off(protections: Protections) -> list[str]:
    return [name for name in ALL._fields if not getattr(protections, name)]


def _off(protections: Protections) -> str:
    names = _names_off(protections)
    return f", without {', '.join(names)}" if names else ""


def _details(outcome: Outcome) -> str:
    return outcome.details.removeprefix(f"{outcome.promise}: ")


def _end(outcome: Outcome) -> str:
    records = f"{numbers.plural(outcome.committed, 'record')} committed"
    return f"{records} in {numbers.seconds(outcome.virtual / 1e6)} of virtual time, hash {campaign.hash_of(outcome)}"


def _story(tally: campaign.Tally) -> str:
    asked, lines = tally.campaign, list[str]()
    if tally.failed is not None:
        lines += [f"VIOLATED  {tally.failed.promise}, by seed {tally.failed.case.seed}", _details(tally.failed)]
    else:
        verdict = "INTERRUPTED" if tally.interrupted else "HELD"
        lines.append(f"{verdict}  no promise was broken in {numbers.plural(tally.seeds, 'seed')}")
    lines += [f"simulate-quorum  seeds {asked.seeds.start}..{asked.seeds.stop - 1}{_off(asked.protections)}", ""]
    if tally.failed is not None:
        command = replay_command(tally.failed.case.seed, asked.protections)
        lines += ["To see it step by step:", f"  {command}", ""]
    some = max(tally.seeds, 1)
    rows = [
        ("seeds", numbers.count(tally.seeds), numbers.rate(tally.seeds / (tally.seconds or 1e-9))),
        ("committed", numbers.count(tally.committed), f"{tally.committed / some:,.0f} a seed"),
        ("epochs", numbers.count(tally.epochs), f"{tally.epochs / some:,.1f} a seed"),
        ("virtual time", numbers.seconds(tally.virtual / 1e6), ""),
        ("hash", tally.hash, ""),
        ("time", numbers.seconds(tally.seconds), numbers.plural(asked.jobs, "job")),
    ]
    width = max(len(value) for _, value, _ in rows)
    return "\n".join([*lines, *(f"  {name:<14}{value:<{width}}  {remark}".rstrip() for name, value, remark in rows)])


def _data(tally: campaign.Tally) -> dict[str, Any]:
    asked = tally.campaign
    return {
        "seeds": [asked.seeds.start, asked.seeds.stop - 1],
        "without": _names_off(asked.protections),
        "verdict": "violated" if tally.failed is not None else "interrupted" if tally.interrupted else "held",
        "seeds_run": tally.seeds,
        "committed": tally.committed,
        "epochs": tally.epochs,
        "virtual_seconds": tally.virtual / 1e6,
        "hash": tally.hash,
        "jobs": asked.jobs,
        "seconds": tally.seconds,
        "failed": None if tally.failed is None else _outcome_data(tally.failed, asked.protections),
    }


def _outcome_data(outcome: Outcome, protections: Protections) -> dict[str, Any]:
    violation = {"promise": outcome.promise, "details": _details(outcome)} if outcome.promise else None
    return {
        "seed": outcome.case.seed,
        "without": _names_off(protections),
        "hosts": outcome.case.hosts,
        "voters": outcome.case.voters,
        "violation": violation,
        "committed": outcome.committed,
        "acknowledged": outcome.acknowledged,
        "epochs": outcome.epochs,
        "crashes": outcome.crashes,
        "lost_disks": outcome.wipes,
        "changes_of_voters": outcome.changes,
        "virtual_seconds": outcome.virtual / 1e6,
        "hash": campaign.hash_of(outcome),
        "replay": replay_command(outcome.case.seed, protections),
    }


def _tell(given: argparse.Namespace, text: str, document: dict[str, Any]) -> None:
    if given.json is not None:
        output.write_lines("json", given.json, iter([json.dumps(document, indent=2), "\n"]))
    if given.json != "-":
        output.say(text)
