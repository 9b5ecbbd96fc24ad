"""Common parts of the commands that run simulators: options, progress, and the result of a campaign."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from fencepost import errors
from fencepost.checker.engines.resources import cores
from fencepost.cli import arguments, output
from fencepost.cli.arguments import option
from fencepost.cli.progress import Seeds
from fencepost.errors import OptionError
from fencepost.language.values import Record
from fencepost.simulation import seeds
from fencepost.simulation.seeds import Campaign, Run, Tally, without_of
from fencepost.simulation.trace import SimTrace
from fencepost.text import numbers
from fencepost.traces import RunsFile

T = TypeVar("T")
P = TypeVar("P", bound=Record)
C = TypeVar("C", bound=Campaign[Any])

Row = tuple[str, str, str]
"""A line of a campaign's table: a name, a value and a remark."""

OPTIONS: dict[str, tuple[Any, ...]] = {
    "seeds": ("A..B", "the seeds, one {run} for each; by default 1..1000", arguments.seeds, range(1, 1001)),
    "without": ("PROTECTION ...", "switch off a protection of the {simulated} (repeatable)"),
    "jobs": ("N", "processes; by default one for each core", arguments.workers),
    "replay": ("SEED", "run one seed, and show it step by step", arguments.number),
    "json": ("FILE", "write the result as JSON; without FILE to standard output, with nothing else on it"),
    "trace": ("DIR", "write traces of all {runs} to a folder", Path),
}
"""The options that all simulators share."""


def add(group: argparse._ActionsContainer, *names: str, **words: str) -> None:
    """Declare options, with ``words`` filled into their descriptions."""
    for name in names:
        metavar, purpose, *value = OPTIONS[name]
        more: dict[str, Any] = {"nargs": "?", "const": "-"} if name == "json" else {}
        option(group, f"--{name} {metavar}", purpose.format(**words), *value, **more)


def protections_without(names: Sequence[str], every: P) -> P:
    """All protections except those named. Raises :class:`fencepost.OptionError` for an unknown name."""
    for name in names:
        if name not in every._fields:
            near = get_close_matches(name, every._fields, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(every._fields)}"
            raise OptionError(f"--without {name}: there is no such protection: {hint}")
    return every.replace(**dict.fromkeys(names, False))


def off(protections: Any) -> str:
    """The disabled protections, as the end of a line."""
    names = without_of(protections)
    return f", without {', '.join(names)}" if names else ""


def replay_command(command: str, seed: int, protections: Any) -> str:
    """The command that replays a seed and shows it step by step."""
    words = ["fencepost", command, "--replay", str(seed)]
    for name in without_of(protections):
        words += ["--without", name]
    return shlex.join(words)


def run(campaign: Campaign[T]) -> Tally[T]:
    """Run a campaign. If standard error is a terminal, a progress line shows the first of the counts."""
    shown = campaign.counted[0]
    with Seeds(sys.stderr) as line:
        return seeds.run(campaign, lambda tally: line.report(tally.seeds, tally.counts[shown], len(campaign.seeds)))


def story(tally: Tally[T], about: str, again: Sequence[str], rows: Sequence[Row], hashed: str = "hash") -> str:
    """A campaign as plain text: the verdict, a line on what it was ``about``, lines on how to see the failure
    ``again``, and a table of ``rows``.
    """
    if tally.failed is not None:
        lines = [f"VIOLATED  {tally.failed.promise}, by seed {tally.failed.seed}", tally.failed.what]
    else:
        verdict = "INTERRUPTED" if tally.interrupted else "HELD"
        lines = [f"{verdict}  no promise was broken in {numbers.plural(tally.seeds, 'seed')}"]
    lines += [about, ""]
    if tally.failed is not None:
        lines += ["To see it step by step:", *again, ""]
    table = [
        ("seeds", numbers.count(tally.seeds), numbers.rate(tally.seeds / (tally.seconds or 1e-9))),
        *rows,
        ("virtual time", numbers.seconds(tally.virtual / 1e6), ""),
        (hashed, tally.hash, ""),
        ("time", numbers.seconds(tally.seconds), numbers.plural(tally.campaign.jobs, "job")),
    ]
    width = max(len(value) for _, value, _ in table)
    return "\n".join([*lines, *(f"  {name:<14}{value:<{width}}  {remark}".rstrip() for name, value, remark in table)])


def row(tally: Tally[T], name: str, digits: int = 0) -> Row:
    """The line of a count: the total, and the mean per seed."""
    count = tally.counts[name]
    return name, numbers.count(count), f"{count / max(tally.seeds, 1):,.{digits}f} a seed"


def seeds_of(campaign: Campaign[T]) -> str:
    """The seeds of a campaign in the command line's syntax."""
    return f"seeds {campaign.seeds.start}..{campaign.seeds.stop - 1}"


def data(tally: Tally[T], failed: Mapping[str, Any] | None, hashed: str = "hash", **more: Any) -> dict[str, Any]:
    """A campaign as JSON data. ``failed``: the failed run; ``more``: further fields."""
    asked = tally.campaign
    return {
        "seeds": [asked.seeds.start, asked.seeds.stop - 1],
        "without": without_of(asked.protections),
        **more,
        "verdict": "violated" if tally.failed is not None else "interrupted" if tally.interrupted else "held",
        "seeds_run": tally.seeds,
        **tally.counts,
        "virtual_seconds": tally.virtual / 1e6,
        hashed: tally.hash,
        "jobs": asked.jobs,
        "seconds": tally.seconds,
        "failed": failed,
    }


def run_campaign(
    args: argparse.Namespace,
    command: str,
    campaign_of: Callable[[range, P, int, Path | None], C],
    protections: P,
    replay: Callable[[argparse.Namespace, C], int],
    shown: Callable[[Run[T], P], dict[str, Any]],
    digits: Sequence[int],
) -> int:
    """Run a campaign and show its result, or ``replay`` one seed. Returns the exit code. ``protections``: all
    protections. ``shown``: makes JSON data of a run. ``digits``: the decimals of each count per seed.
    """
    protections = protections_without(args.without, protections)
    output.check_files(args, "json")
    campaign = campaign_of(args.seeds, protections, args.jobs or cores(), args.trace)
    if args.replay is not None:
        return replay(args, campaign)
    tally = run(campaign)
    failed = None if tally.failed is None else shown(tally.failed, protections)
    about = f"{command}  {seeds_of(campaign)}{off(protections)}"
    rows = [row(tally, name, after) for name, after in zip(campaign.counted, digits, strict=True)]
    output.show(args, story(tally, about, [f"  {failed['replay']}"] if failed else [], rows), data(tally, failed))
    return exit_code(tally)


@contextlib.contextmanager
def traced_replay(args: argparse.Namespace, campaign: Campaign[T]) -> Iterator[SimTrace | None]:
    """The trace of the replayed seed; None without ``--trace``."""
    if args.trace is None:
        yield None
        return
    name = f"{campaign.run_name(args.replay)}-replayed"
    with RunsFile(args.trace / f"{name}.parquet") as file:
        yield seeds.traced(file, name)


def show_replay(
    args: argparse.Namespace,
    command: str,
    campaign: Campaign[T],
    seen: Run[T],
    events: Sequence[str],
    broken: str,
    counted: str,
    document: Mapping[str, Any],
) -> int:
    """Show the run of one seed, and trace it with ``--trace``. Returns the exit code. ``events``: lines on the run's
    events; ``broken``: the broken promise, in words; ``counted``: the figures of the run.
    """
    with traced_replay(args, campaign) as trace:
        if trace is not None:
            campaign.simulated(args.replay, trace)
    verdict = [f"VIOLATED  {broken}", seen.what] if seen.promise else ["HELD  no promise was broken"]
    about = f"{command}  seed {seen.seed}{off(campaign.protections)}"
    end = f"{counted} in {numbers.seconds(seen.time / 1e6)} of virtual time, hash {seen.hash}"
    output.show(args, "\n".join([*events, "", *verdict, about, end]), document)
    return errors.SAFETY_VIOLATED if seen.promise else errors.HOLDS


def exit_code(tally: Tally[T]) -> int:
    """The exit code of a campaign."""
    if tally.failed is not None:
        return errors.SAFETY_VIOLATED
    return errors.INTERRUPTED if tally.interrupted else errors.HOLDS
