"""What the commands that run simulators share: their options, their progress, and how a campaign is shown."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from fencepost import arguments, errors, numbers, output
from fencepost.errors import OptionError
from fencepost.progress import Seeds
from fencepost.spec.values import Record
from fencepost.store.sim import seeds
from fencepost.store.sim.seeds import Campaign, Run, Tally, without_of
from fencepost.trace.json import dumps

T = TypeVar("T")
P = TypeVar("P", bound=Record)

Row = tuple[str, str, str]
"""A line of the table of a campaign: a name, a value and a remark."""

OPTIONS: dict[str, dict[str, Any]] = {
    "seeds": {
        "metavar": "A..B",
        "type": arguments.seeds,
        "default": range(1, 1001),
        "help": "the seeds, one {run} for each; by default 1..1000",
    },
    "without": {
        "metavar": "PROTECTION",
        "action": "append",
        "default": [],
        "help": "switch a protection of the {simulated} off (repeatable)",
    },
    "jobs": {"metavar": "N", "type": arguments.workers, "help": "processes; by default one for each core"},
    "replay": {"metavar": "SEED", "type": arguments.number, "help": "run one seed, and tell it step by step"},
    "json": {
        "metavar": "FILE",
        "nargs": "?",
        "const": "-",
        "help": "the result as JSON; by default to standard output, which then has nothing else on it",
    },
    "trace": {
        "metavar": "DIR",
        "type": Path,
        "help": "write traces of all {runs} to a folder of traces (docs/traces.md)",
    },
}
"""The options that all of them have."""


def add(group: argparse._ActionsContainer, *names: str, **words: str) -> None:
    """Let options be typed, with ``words`` in their descriptions."""
    for name in names:
        group.add_argument(f"--{name}", **{**OPTIONS[name], "help": OPTIONS[name]["help"].format(**words)})


def protections_without(names: Sequence[str], every: P) -> P:
    """All protections but those. Raises :class:`fencepost.OptionError` for a name that is none."""
    for name in names:
        if name not in every._fields:
            near = get_close_matches(name, every._fields, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(every._fields)}"
            raise OptionError(f"--without {name}: there is no such protection: {hint}")
    return every.replace(**dict.fromkeys(names, False))


def off(protections: Any) -> str:
    """The protections that are off, as the end of a line."""
    names = without_of(protections)
    return f", without {', '.join(names)}" if names else ""


def replay_command(command: str, seed: int, protections: Any) -> str:
    """The command that runs a seed again and tells it step by step."""
    words = ["fencepost", command, "--replay", str(seed)]
    for name in without_of(protections):
        words += ["--without", name]
    return shlex.join(words)


def run(campaign: Campaign[T]) -> Tally[T]:
    """Run a campaign, with a live line if standard error is a terminal: it shows the first of the counts."""
    shown = campaign.counted[0]
    with _progress() as report:
        return seeds.run(campaign, lambda tally: report(tally.seeds, tally.counts[shown], len(campaign.seeds)))


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int, int, int], None]]:
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda done, counted, of: None
        return
    with Seeds(sys.stderr) as line:
        yield line.report


def story(tally: Tally[T], about: str, again: Sequence[str], rows: Sequence[Row], hashed: str = "hash") -> str:
    """A campaign in plain text: what it came to, what it was ``about``, the lines of how its failure is seen ``again``,
    and a table of its ``rows``.
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
    """The line of a count: how much it is, and how much for a seed."""
    count = tally.counts[name]
    return name, numbers.count(count), f"{count / max(tally.seeds, 1):,.{digits}f} a seed"


def seeds_of(campaign: Campaign[T]) -> str:
    """The seeds of a campaign as they are typed."""
    return f"seeds {campaign.seeds.start}..{campaign.seeds.stop - 1}"


def data(tally: Tally[T], failed: Mapping[str, Any] | None, hashed: str = "hash", **more: Any) -> dict[str, Any]:
    """A campaign for programs. ``failed`` is the run that failed; ``more`` is what it was held to."""
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
    given: argparse.Namespace,
    command: str,
    campaign: Campaign[T],
    shown: Callable[[Run[T]], dict[str, Any]],
    digits: Sequence[int],
) -> int:
    """Run a campaign and show what came of it; gives the exit code. ``shown`` is a run for programs, with the command
    that replays it; ``digits`` are those behind the point of each count for a seed.
    """
    tally = run(campaign)
    failed = None if tally.failed is None else shown(tally.failed)
    about = f"{command}  {seeds_of(campaign)}{off(campaign.protections)}"
    rows = [row(tally, name, after) for name, after in zip(campaign.counted, digits, strict=True)]
    tell(given, story(tally, about, [f"  {failed['replay']}"] if failed else [], rows), data(tally, failed))
    return exit_code(tally)


def tell(given: argparse.Namespace, text: str, document: Mapping[str, Any]) -> None:
    """Show a result as text, as JSON or as both."""
    if given.json is not None:
        output.write_lines("json", given.json, iter([dumps(document, indent=2), "\n"]))
    if given.json != "-":
        output.say(text)


def must_be_writable(given: argparse.Namespace) -> None:
    """Raises unless the file for JSON can be written."""
    if given.json not in (None, "-"):
        output.must_be_writable("json", given.json)


def exit_code(tally: Tally[T]) -> int:
    """The exit code for a campaign."""
    if tally.failed is not None:
        return errors.SAFETY_VIOLATED
    return errors.INTERRUPTED if tally.interrupted else errors.HOLDS
