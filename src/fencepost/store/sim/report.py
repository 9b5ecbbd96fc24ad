"""The result of a campaign or of a replay, as text and as data for programs."""

from __future__ import annotations

import shlex
from html import escape
from typing import Any

from fencepost import numbers
from fencepost.errors import HOLDS, INTERRUPTED, SAFETY_VIOLATED
from fencepost.report.sequence import written
from fencepost.report.svg import STYLE, draw
from fencepost.store.rules.protections import ALL, Protections
from fencepost.store.sim.campaign import Tally
from fencepost.store.sim.case import DEFAULT, PROFILES, SETTINGS, Case, settings_of
from fencepost.store.sim.cluster import Outcome
from fencepost.store.sim.judge import PROMISES
from fencepost.store.sim.story import Story


def exit_code(tally: Tally) -> int:
    """The exit code for a campaign."""
    if tally.failed is not None:
        return SAFETY_VIOLATED
    return INTERRUPTED if tally.interrupted else HOLDS


def replay_command(case: Case) -> str:
    """The command that runs a case again and tells it step by step."""
    words = ["fencepost", "simulate-store", "--replay", str(case.seed)]
    if case.profile != DEFAULT:
        words += ["--profile", case.profile]
    for name in without(case.protections):
        words += ["--without", name]
    for promise in case.promises:
        words += ["--promise", promise]
    for name, value in settings_of(case).items():
        words += ["-D", f"{name}={value}"]
    return shlex.join(words)


def without(protections: Protections) -> list[str]:
    """The protections that are off."""
    return [name for name in Protections._fields if getattr(protections, name) != getattr(ALL, name)]


def story_of(tally: Tally, smallest: Outcome | None = None) -> str:
    """A campaign in plain text; ``smallest`` is the shrunk run of the one that failed."""
    campaign = tally.campaign
    what = f"simulate-store  profile {campaign.profile}, seeds {campaign.seeds.start}..{campaign.seeds.stop - 1}"
    off = without(campaign.protections)
    if off:
        what += f", without {', '.join(off)}"
    if campaign.promises:
        what += f", held to {', '.join(campaign.promises)}"
    lines = []
    if tally.failed is not None:
        assert tally.failed.violation is not None
        lines += [
            f"VIOLATED  {tally.failed.violation.promise}, by seed {tally.failed.case.seed}",
            tally.failed.violation.what,
        ]
    elif tally.interrupted:
        lines.append(f"INTERRUPTED  no promise was broken in {numbers.plural(tally.seeds, 'seed')}")
    else:
        lines.append(f"HELD  no promise was broken in {numbers.plural(tally.seeds, 'seed')}")
    lines += [what, ""]
    if tally.failed is not None:
        lines += ["To see it step by step:", f"  {replay_command(tally.failed.case)}"]
        if smallest is not None and smallest.case != tally.failed.case:
            assert smallest.violation is not None
            lines += [
                (
                    f"A smaller one, of {numbers.plural(smallest.events, 'event')} where that has"
                    f" {numbers.count(tally.failed.events)}:"
                ),
                f"  {replay_command(smallest.case)}",
                f"  {smallest.violation.what}",
            ]
        lines.append("")
    seconds = tally.seconds or 1e-9
    rows = [
        ("seeds", numbers.count(tally.seeds), numbers.rate(tally.seeds / seconds)),
        (
            "events",
            numbers.count(tally.events),
            f"{tally.events / max(tally.seeds, 1):,.0f} a seed, {numbers.rate(tally.events / seconds)}",
        ),
        ("virtual time", numbers.seconds(tally.virtual / 1e6), ""),
        ("trace hash", tally.trace_hash, ""),
        ("time", numbers.seconds(tally.seconds), numbers.plural(campaign.jobs, "job")),
    ]
    width = max(len(value) for _, value, _ in rows)
    lines += [f"  {name:<14}{value:<{width}}  {remark}".rstrip() for name, value, remark in rows]
    return "\n".join(lines)


def data(tally: Tally, smallest: Outcome | None = None) -> dict[str, Any]:
    """A campaign for programs."""
    campaign = tally.campaign
    return {
        "profile": campaign.profile,
        "seeds": [campaign.seeds.start, campaign.seeds.stop - 1],
        "without": without(campaign.protections),
        "promises": list(campaign.promises),
        "verdict": "violated" if tally.failed is not None else "interrupted" if tally.interrupted else "held",
        "seeds_run": tally.seeds,
        "events": tally.events,
        "virtual_seconds": tally.virtual / 1e6,
        "trace_hash": tally.trace_hash,
        "jobs": campaign.jobs,
        "seconds": tally.seconds,
        "failed": None if tally.failed is None else outcome_data(tally.failed),
        "smallest": None if smallest is None else outcome_data(smallest),
    }


def outcome_data(outcome: Outcome) -> dict[str, Any]:
    """One run for programs."""
    violation = outcome.violation
    return {
        "case": case_data(outcome.case),
        "violation": None if violation is None else {"promise": violation.promise, "what": violation.what},
        "events": outcome.events,
        "virtual_seconds": outcome.time / 1e6,
        "trace_hash": outcome.trace_hash,
        "replay": replay_command(outcome.case),
    }


def case_data(case: Case) -> dict[str, Any]:
    """A case for programs."""
    settings = {name: getattr(case, name) for name in SETTINGS}
    return {
        "seed": case.seed,
        "profile": case.profile,
        **settings,
        "without": without(case.protections),
        "promises": list(case.promises),
    }


def replay_text(outcome: Outcome, story: Story) -> str:
    """A run step by step, and its end."""
    return "\n".join([*story.text(), "", *verdict_of(outcome)])


def verdict_of(outcome: Outcome) -> list[str]:
    """The outcome of a run, and its case."""
    case, violation = outcome.case, outcome.violation
    settings = "  ".join(
        f"{name}={_shown(getattr(case, name))}" for name in SETTINGS if name != "left_out" or case.left_out
    )
    lines = (
        ["HELD  no promise was broken"]
        if violation is None
        else [f"VIOLATED  {violation.promise}: {PROMISES[violation.promise]}", violation.what]
    )
    lines += [f"simulate-store  seed {case.seed}, profile {case.profile}: {PROFILES[case.profile].doc}", settings]
    off = without(case.protections)
    if off:
        lines.append(f"without {', '.join(off)}")
    if case.promises:
        lines.append(f"held to {', '.join(case.promises)}")
    events = numbers.plural(outcome.events, "event")
    return [
        *lines,
        f"{events} in {numbers.seconds(outcome.time / 1e6)} of virtual time, trace hash {outcome.trace_hash}",
    ]


def _shown(value: object) -> str:
    return (",".join(map(str, value)) or "none") if isinstance(value, tuple) else str(value)


def sequence(outcome: Outcome, story: Story) -> str:
    """A run as a sequence diagram of sequencediagram.org."""
    return written(story.diagram(), None if outcome.violation is None else outcome.violation.what)


def html(outcome: Outcome, story: Story) -> str:
    """A run as one page, with its sequence diagram. It loads nothing from anywhere."""
    picture = draw(story.diagram())
    title = escape(verdict_of(outcome)[0])
    about = "".join(f"<p>{escape(line)}</p>\n" for line in verdict_of(outcome)[1:])
    page_style = "body { font: 14px sans-serif; margin: 24px; } .heads { position: sticky; top: 0; }"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{title}</title>\n<style>{page_style}{STYLE}</style>\n</head>\n"
        f"<body>\n<h1>{title}</h1>\n{about}"
        f'<div class="fp"><div class="heads">{picture.heads}</div>{picture.body}</div>\n</body>\n</html>\n'
    )
