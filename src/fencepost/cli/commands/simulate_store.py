"""``fencepost simulate-store``: runs clusters of the ledger store under seeded faults, on virtual time."""

from __future__ import annotations

import argparse
import contextlib

from fencepost import errors
from fencepost.checker.engines.resources import cores
from fencepost.cli import output
from fencepost.cli.arguments import option
from fencepost.cli.commands import simulating
from fencepost.errors import OptionError
from fencepost.ledger.rules.protections import ALL
from fencepost.ledger.simulation import report
from fencepost.ledger.simulation.case import PROFILES, drawn, with_settings
from fencepost.ledger.simulation.cluster import Outcome
from fencepost.ledger.simulation.judge import PROMISES
from fencepost.ledger.simulation.shrink import shrunk
from fencepost.ledger.simulation.story import Story
from fencepost.ledger.simulation.workload import Campaign, simulate
from fencepost.simulation.seeds import Tally
from fencepost.text import numbers


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``fencepost simulate-store``."""
    what = parser.add_argument_group("what is simulated")
    simulating.add(what, "seeds", run="run")
    option(
        what,
        "--profile NAME",
        "what may go wrong: calm, network, crashes, disks, races, everything (the default), beyond,"
        " no-journal, placed or windows",
        default="everything",
    )
    simulating.add(what, "without", simulated="ledger")
    option(what, "--promise NAME ...", "check only this promise (repeatable)")
    simulating.add(what, "jobs")
    one = parser.add_argument_group("one run")
    simulating.add(one, "replay")
    option(
        one,
        "-D NAME=VALUE ...",
        "with --replay: set a value that the seed would choose, such as entries=3 (repeatable)",
        dest="define",
    )
    shown = parser.add_argument_group("results")
    simulating.add(shown, "json", "trace", runs="runs")
    option(shown, "--sequence FILE", "with --replay: the run as a sequence diagram (sequencediagram.org)")
    option(shown, "--html FILE", "with --replay: the run as one page with its sequence diagram")


def run(args: argparse.Namespace) -> int:
    """Run the seeds, or replay one of them."""
    if args.profile not in PROFILES:
        raise OptionError(f"--profile {args.profile}: there are {', '.join(PROFILES)}")
    protections = simulating.protections_without(args.without, ALL)
    for name in ("sequence", "html"):
        if getattr(args, name) is not None and args.replay is None:
            raise OptionError(f"--{name} shows one run: give --replay SEED too")
    output.check_files(args, "json", "sequence", "html")
    if args.replay is None and args.define:
        raise OptionError("-D sets what one seed would choose: give --replay SEED too")
    for name in args.promise:
        if name not in PROMISES:
            raise OptionError(f"--promise {name}: there is no such promise: there are {', '.join(PROMISES)}")
    jobs, promises = args.jobs or cores(), tuple(args.promise)
    campaign = Campaign(args.seeds, protections, jobs, args.trace, args.profile, promises)
    if args.replay is not None:
        return _replay(args, campaign)
    tally = simulating.run(campaign)
    smallest = None
    if tally.failed is not None and not tally.interrupted:
        with contextlib.suppress(KeyboardInterrupt):
            smallest = shrunk(tally.failed.outcome)
    failed = None if tally.failed is None else report.outcome_data(tally.failed.outcome)
    document = simulating.data(tally, failed, hashed="trace_hash", promises=[*promises])
    document = {"profile": args.profile, **document, "smallest": smallest and report.outcome_data(smallest)}
    output.show(args, _story(tally, campaign, smallest), document)
    return simulating.exit_code(tally)


def _story(tally: Tally[Outcome], campaign: Campaign, smallest: Outcome | None) -> str:
    """A campaign as plain text; ``smallest``: the shrunk failing run."""
    about = f"simulate-store  profile {campaign.profile}, {simulating.seeds_of(campaign)}"
    about += simulating.off(campaign.protections)
    if campaign.promises:
        about += f", held to {', '.join(campaign.promises)}"
    again = []
    if tally.failed is not None:
        failed = tally.failed.outcome
        again.append(f"  {report.replay_command(failed.case)}")
        if smallest is not None and smallest.case != failed.case:
            assert smallest.violation is not None
            events = numbers.plural(smallest.events, "event")
            again += [
                f"A smaller one, of {events} where that has {numbers.count(failed.events)}:",
                f"  {report.replay_command(smallest.case)}",
                f"  {smallest.violation.what}",
            ]
    name, count, remark = simulating.row(tally, "events")
    pace = numbers.rate(tally.counts["events"] / (tally.seconds or 1e-9))
    return simulating.story(tally, about, again, [(name, count, f"{remark}, {pace}")], hashed="trace hash")


def _replay(args: argparse.Namespace, campaign: Campaign) -> int:
    """Run one seed, and show its events."""
    settings = {}
    for text in args.define:
        name, equals, value = text.partition("=")
        if not equals:
            raise OptionError(f"-D {text}: give a name and a value, such as entries=3")
        settings[name] = value
    story = Story()
    case = with_settings(drawn(args.replay, args.profile, campaign.protections, campaign.promises), settings)
    with simulating.traced_replay(args, campaign) as trace:
        outcome = simulate(case, story, trace)
    output.show(args, report.replay_text(outcome, story), report.outcome_data(outcome))
    for name, draw in (("sequence", report.sequence), ("html", report.html)):
        path = getattr(args, name)
        if path is not None:
            output.write_lines(name, path, [draw(outcome, story)])
    return errors.HOLDS if outcome.violation is None else errors.SAFETY_VIOLATED
