"""``fencepost simulate-store``: clusters of the ledger store in a simulator."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fencepost import arguments, errors, output
from fencepost.errors import OptionError

if TYPE_CHECKING:
    from fencepost.store.rules.protections import Protections


def add_options(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``fencepost simulate-store``."""
    what = parser.add_argument_group("what is simulated")
    what.add_argument(
        "--seeds",
        metavar="A..B",
        type=arguments.seeds,
        default=range(1, 1001),
        help="the seeds, one run for each; by default 1..1000",
    )
    what.add_argument(
        "--profile",
        metavar="NAME",
        default="everything",
        help="what may go wrong: calm, network, crashes, disks, races, everything, beyond or no-journal",
    )
    what.add_argument(
        "--without",
        metavar="PROTECTION",
        action="append",
        default=[],
        help="switch a protection of the ledger off (repeatable)",
    )
    what.add_argument(
        "--promise",
        metavar="NAME",
        action="append",
        default=[],
        help="hold the store to this promise alone (repeatable)",
    )
    what.add_argument("--jobs", metavar="N", type=arguments.workers, help="processes; by default one for each core")
    one = parser.add_argument_group("one run")
    one.add_argument("--replay", metavar="SEED", type=arguments.number, help="run one seed, and tell it step by step")
    one.add_argument(
        "-D",
        metavar="NAME=VALUE",
        dest="define",
        action="append",
        default=[],
        help="with --replay: set what the seed would choose, as entries=3 (repeatable)",
    )
    shown = parser.add_argument_group("results")
    shown.add_argument(
        "--json",
        metavar="FILE",
        nargs="?",
        const="-",
        help="the result as JSON; by default to standard output, which then has nothing else on it",
    )
    shown.add_argument(
        "--trace", metavar="DIR", type=Path, help="write traces of all runs to a folder of traces (docs/traces.md)"
    )
    shown.add_argument(
        "--sequence", metavar="FILE", help="with --replay: the run as a sequence diagram (sequencediagram.org)"
    )
    shown.add_argument("--html", metavar="FILE", help="with --replay: the run as one page with its sequence diagram")


def run(given: argparse.Namespace) -> int:
    """Run seeds, or one seed again."""
    from fencepost.store.sim import report
    from fencepost.store.sim.case import PROFILES

    if given.profile not in PROFILES:
        raise OptionError(f"--profile {given.profile}: there are {', '.join(PROFILES)}")
    protections = protections_without(given.without)
    for option in ("json", "sequence", "html"):
        path = getattr(given, option)
        if option != "json" and path is not None and given.replay is None:
            raise OptionError(f"--{option} shows one run: give --replay SEED too")
        if path == "-" and option != "json":
            raise OptionError(f"--{option} - is not possible: only --json can go to standard output")
        if path not in (None, "-"):
            output.must_be_writable(option, path)
    if given.replay is not None:
        return _replay(given, protections)
    if given.define:
        raise OptionError("-D sets what one seed would choose: give --replay SEED too")

    from fencepost.engines.resources import cores
    from fencepost.store.sim.campaign import Campaign, run
    from fencepost.store.sim.shrink import shrunk

    promises = _promises_of(given)
    campaign = Campaign(given.seeds, given.profile, protections, promises, given.jobs or cores(), given.trace)
    with _seeds_progress() as progress:
        tally = run(campaign, lambda so_far: progress(so_far.seeds, so_far.events, len(given.seeds)))
    smallest = None
    if tally.failed is not None and not tally.interrupted:
        with contextlib.suppress(KeyboardInterrupt):
            smallest = shrunk(tally.failed)
    _print_simulated(given, report.story_of(tally, smallest), report.data(tally, smallest))
    return report.exit_code(tally)


def _replay(given: argparse.Namespace, protections: Protections) -> int:
    """Run one seed, and show what happened in it."""
    from fencepost.store.sim import report
    from fencepost.store.sim.campaign import run_name, traced
    from fencepost.store.sim.case import drawn, with_settings
    from fencepost.store.sim.run import simulate
    from fencepost.store.sim.story import Story
    from fencepost.tracing import RunsFile

    settings = {}
    for text in given.define:
        name, equals, value = text.partition("=")
        if not equals:
            raise OptionError(f"-D {text}: give a name and a value, as entries=3")
        settings[name] = value
    story = Story()
    case = with_settings(drawn(given.replay, given.profile, protections, _promises_of(given)), settings)
    if given.trace is None:
        outcome = simulate(case, story)
    else:
        run = run_name(given.profile, protections, given.replay)
        with RunsFile(given.trace / f"{run}-replayed.parquet") as file:
            outcome = simulate(case, story, traced(file, f"{run}-replayed"))
    _print_simulated(given, report.replay_text(outcome, story), report.outcome_data(outcome))
    for option, text in (("sequence", report.sequence), ("html", report.html)):
        path = getattr(given, option)
        if path is not None:
            output.write_lines(option, path, iter([text(outcome, story)]))
    return errors.HOLDS if outcome.violation is None else errors.SAFETY_VIOLATED


def protections_without(names: Sequence[str]) -> Protections:
    """All protections but those."""
    from fencepost.store.rules.protections import ALL

    for name in names:
        if name not in ALL._fields:
            near = get_close_matches(name, ALL._fields, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(ALL._fields)}"
            raise OptionError(f"--without {name}: there is no such protection: {hint}")
    return ALL.replace(**dict.fromkeys(names, False))


def _promises_of(given: argparse.Namespace) -> tuple[str, ...]:
    """The promises that a run is held to, none for all of them."""
    from fencepost.store.sim.judge import PROMISES

    for name in given.promise:
        if name not in PROMISES:
            raise OptionError(f"--promise {name}: there is no such promise: there are {', '.join(PROMISES)}")
    return tuple(given.promise)


def _print_simulated(given: argparse.Namespace, text: str, document: dict[str, Any]) -> None:
    if given.json is not None:
        from fencepost.trace.json import dumps

        output.write_lines("json", given.json, iter([dumps(document, indent=2), "\n"]))
    if given.json != "-":
        output.say(text)


@contextlib.contextmanager
def _seeds_progress() -> Iterator[Callable[[int, int, int], None]]:
    """The function that a campaign reports to: a live line if standard error is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda done, events, of: None
        return
    from fencepost.progress import Seeds

    with Seeds(sys.stderr) as line:
        yield line.report
