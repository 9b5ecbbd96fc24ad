"""The result of a run, as text and as JSON data."""

from __future__ import annotations

import shlex
from html import escape
from typing import Any

from fencepost.ledger.simulation.case import DEFAULT, PROFILES, SETTINGS, Case, settings_of
from fencepost.ledger.simulation.cluster import Outcome
from fencepost.ledger.simulation.judge import PROMISES
from fencepost.ledger.simulation.story import Story
from fencepost.report.sequence import written
from fencepost.report.svg import STYLE, draw
from fencepost.simulation.seeds import without_of
from fencepost.text import numbers


def replay_command(case: Case) -> str:
    """The command that replays a case step by step."""
    words = ["fencepost", "simulate-store", "--replay", str(case.seed)]
    if case.profile != DEFAULT:
        words += ["--profile", case.profile]
    for name in without_of(case.protections):
        words += ["--without", name]
    for promise in case.promises:
        words += ["--promise", promise]
    for name, value in settings_of(case).items():
        words += ["-D", f"{name}={value}"]
    return shlex.join(words)


def outcome_data(outcome: Outcome) -> dict[str, Any]:
    """A run as JSON data."""
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
    """A case as JSON data."""
    settings = {name: getattr(case, name) for name in SETTINGS}
    return {
        "seed": case.seed,
        "profile": case.profile,
        **settings,
        "without": without_of(case.protections),
        "promises": list(case.promises),
    }


def replay_text(outcome: Outcome, story: Story) -> str:
    """A run step by step, with its result."""
    return "\n".join([*story.text(), "", *verdict_of(outcome)])


def verdict_of(outcome: Outcome) -> list[str]:
    """The result of a run, and its case."""
    case, violation = outcome.case, outcome.violation
    unsaid = (*(("left_out",) if not case.left_out else ()), *(("placed", "places") if case.placed == "none" else ()))
    settings = "  ".join(f"{name}={_shown(getattr(case, name))}" for name in SETTINGS if name not in unsaid)
    lines = (
        ["HELD  no promise was broken"]
        if violation is None
        else [f"VIOLATED  {violation.promise}: {PROMISES[violation.promise]}", violation.what]
    )
    lines += [f"simulate-store  seed {case.seed}, profile {case.profile}: {PROFILES[case.profile].doc}", settings]
    off = without_of(case.protections)
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
    """A run as a sequence diagram for sequencediagram.org."""
    return written(story.diagram(), None if outcome.violation is None else outcome.violation.what)


def html(outcome: Outcome, story: Story) -> str:
    """A run as one self-contained page with its sequence diagram."""
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
