"""The verdicts of trace validation, as text and as data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from fencepost.report.diagram import diagram
from fencepost.report.junit import ERROR, FAILURE, SKIPPED, Case
from fencepost.report.sequence import MERMAID, written
from fencepost.report.tables import aligned
from fencepost.report.text import steps_story
from fencepost.text import numbers
from fencepost.traces.validation.behaviour import behaviour_of, end_of, shown_of
from fencepost.traces.validation.outcome import (
    ACCEPTED,
    NOT_COVERED,
    NOT_FINISHED,
    RAISED,
    REJECTED,
    Alternative,
    Explain,
    Objected,
    Outcome,
)
from fencepost.traces.validation.verdict import Verdict

MOST_OBJECTIONS = 3
"""The most objections that are shown."""

MOST_FRONTS = 3
"""The most other ways to get as far that are shown."""

_NUMBERS = re.compile(r"(?<!\w)-?\d+")
"""In a sentence, numbers: objections that differ in these alone are counted together."""

MOST_ROWS = 20
"""The most traces in a table; with more, only those not accepted are listed."""


def explaining(last: int, width: int) -> Explain:
    """A function that shows the ``last`` steps of a trace, as text of at most ``width`` columns and as a sequence
    diagram in two formats.
    """

    def explain(verdict: Verdict) -> tuple[str, str, str]:
        if verdict.replayer is None or not verdict.last or not (verdict.refusals or verdict.problem):
            return "", "", ""
        start, path = end_of(verdict, last)
        trace = behaviour_of(verdict.replayer, start, path, last)
        names = {value: " ".join(name.split()) for value, name in verdict.names.items() if name != value}
        text = steps_story(trace, width=width)
        words = set(re.findall(r"\w+", " ".join([text, *(r.step.title for r in verdict.refusals)])))
        named = [f"{value} is {name}" for value, name in names.items() if value in words]
        legend = f"\nThere {', '.join(named)}.\n" if named else ""
        shown = shown_of(path, last)
        hidden = [str(number) for number, place in enumerate(shown, 1) if path[place][0] is None]
        if hidden:
            legend += f"\nThe trace does not report {'step' if len(hidden) == 1 else 'steps'} {', '.join(hidden)}.\n"
        heading = f"What led there: the last {numbers.plural(len(trace.steps), 'step')} that changed something"
        ended = (
            "; ".join(f"{r.step.title} {r.why.reason}" for r in verdict.refusals[:3]) or verdict.problem or "accepted"
        )
        drawn = diagram(trace)
        in_mermaid = written(drawn, ended, names, MERMAID) if drawn.lifelines else ""
        return f"{heading}\n\n{text}{legend}", written(drawn, ended, names), in_mermaid

    return explain


def text(outcomes: Sequence[Outcome], what: str, seconds: float) -> str:
    """All outcomes: the verdict, the figures, a table of traces, and how far the first rejected trace got. ``what``: a
    line about what was validated.
    """
    rejected = [outcome for outcome in outcomes if outcome.verdict == REJECTED]
    uncovered = [outcome for outcome in outcomes if outcome.verdict == NOT_COVERED]
    traces, steps = len(outcomes), sum(outcome.steps for outcome in outcomes)
    raised = [outcome for outcome in outcomes if outcome.verdict == RAISED]
    unfinished = [outcome for outcome in outcomes if outcome.verdict == NOT_FINISHED]
    unfinished.sort(key=lambda outcome: outcome.accepted)  # those with a step that waits come first
    worst = rejected or raised or uncovered or unfinished or outcomes
    verdict = worst[0].verdict.upper() if worst else "NOTHING"
    many = (
        f"{len(worst):,} of {numbers.plural(traces, 'trace')}"
        if len(worst) < traces
        else numbers.plural(traces, "trace")
    )
    verdict = f"{verdict}  {many}"
    events = sum(outcome.events for outcome in outcomes)
    hidden = sum(outcome.hidden for outcome in outcomes)
    rate = numbers.rate(steps / seconds) if seconds > 0 else "0 a second"
    figures = [
        ("events", numbers.count(events)),
        ("steps", f"{numbers.count(steps)}{f' and {numbers.count(hidden)} hidden' if hidden else ''}   {rate}"),
        ("time", numbers.seconds(seconds)),
    ]
    parts = [f"{verdict}\n{what}", "\n".join(f"  {name:<8}{figure}" for name, figure in figures)]
    if traces > 1:
        shown = outcomes if traces <= MOST_ROWS else [*rejected, *raised, *uncovered, *unfinished][:MOST_ROWS]
        if shown:
            parts.append(table(shown))
        left = Counter(outcome.verdict for outcome in outcomes)
        left.subtract(outcome.verdict for outcome in shown)
        more = [f"{count:,} {verdict}" for verdict, count in left.items() if count]
        if more:
            parts.append(f"{'More' if shown else 'All'}: {', '.join(more)}. --json FILE has each.")
    if len(worst) > 1 and not worst[0].accepted:
        parts.append(reasons([outcome for outcome in worst if not outcome.accepted]))
    if worst and not worst[0].accepted:
        first = worst[0]
        heading = [f"Run {first.run}, subject {first.subject or 'none'}:"] if traces > 1 else []
        parts.append("\n".join([*heading, how_far(first)]))
        if first.story:
            parts.append(first.story.rstrip("\n"))
    return "\n\n".join(parts)


def line(outcome: Outcome) -> str:
    """An outcome on one line."""
    figures = f"{numbers.plural(outcome.events, 'event')}, {numbers.plural(outcome.steps, 'step')}"
    return f"{outcome.verdict.upper()}  run {outcome.run}, subject {outcome.subject or 'none'}: {figures}"


def table(outcomes: Sequence[Outcome]) -> str:
    """A row for each trace."""
    rows = [(o.run, o.subject, o.events, o.steps, o.verdict, _ended(o)) for o in outcomes]
    return aligned(("run", "subject", "events", "steps", "verdict", "how far"), rows)


def _ended(outcome: Outcome) -> str:
    if outcome.accepted:
        return "to the end" if outcome.finished else numbers.plural(outcome.taken, "step")
    if outcome.problem:
        return "not at all" if not outcome.taken else numbers.plural(outcome.taken, "step")
    percent = outcome.taken * 100 // max(1, outcome.steps)
    return f"{numbers.plural(outcome.taken, 'step')}, {percent} %"


def reasons(rejected: Sequence[Outcome]) -> str:
    """Why traces are not accepted, the most frequent reasons first. A trace with several refused steps counts for
    each.
    """
    counted: Counter[str] = Counter()
    for outcome in rejected:
        counted.update(sorted({_objected(o) for o in outcome.objections} | {_reason(r) for r in outcome.refusals}))
        if not outcome.objections and not outcome.refusals:
            counted[_shortened(outcome.problem)] += 1
    rows = [(count, reason) for reason, count in counted.most_common(8)]
    lines = [f"  {numbers.plural(count, 'trace')}: {reason}" for count, reason in rows]
    if len(counted) > len(rows):
        lines.append(f"  and {numbers.plural(len(counted) - len(rows), 'other reason')}")
    why = "What was raised" if rejected[0].raised else f"Why they are {rejected[0].verdict}"
    return "\n".join([f"{why}:", *lines])


def _objected(objection: Objected) -> str:
    return f"{objection.event}: {_shortened(_NUMBERS.sub('N', objection.why))}"


def _reason(refusal: Alternative) -> str:
    where = f" at {refusal.where}: {refusal.asked}" if refusal.where else ""
    return f"{refusal.event} {_shortened(refusal.reason)}{where}"


def how_far(outcome: Outcome) -> str:
    """What a monitor objects to, how far a trace got, and all steps that could have come next."""
    if not outcome.objections:
        return _how_far(outcome)
    lines = ["The monitor, which shares no rule with the system, objects to these:"]
    for o in outcome.objections[:MOST_OBJECTIONS]:
        lines += [f"\n  {o.event}  (node {o.node}, incarnation {o.incarnation}, event {o.seq})", f"    {o.why}"]
    more = len(outcome.objections) - MOST_OBJECTIONS
    if more > 0:
        lines.append(f"\n  and {numbers.plural(more, 'other')}")
    if outcome.problem or outcome.refusals:
        return "\n".join([*lines, "", _how_far(outcome)])
    return "\n".join([*lines, f"\nThe replay takes {numbers.plural(outcome.steps, 'step')}, all that the trace has."])


def _how_far(outcome: Outcome) -> str:
    if outcome.problem and not outcome.undecided:
        if outcome.raised:
            return f"That says nothing about the system: {outcome.problem}."
        what = "It cannot be followed" if outcome.covered else "The conformance does not cover it"
        return f"{what}: {outcome.problem}."
    hidden = f", with {numbers.plural(outcome.hidden, 'hidden step')}" if outcome.hidden else ""
    lines = [f"It is not known whether it is a behaviour: {outcome.problem}.\n"] if outcome.undecided else []
    lines.append(
        f"The protocol takes {outcome.taken:,} of {numbers.plural(outcome.steps, 'step')}{hidden}. Then none of these"
        " can be taken:"
    )
    lines += _refused(outcome.refusals)
    others = list[Sequence[Alternative]]()
    for front in outcome.other_fronts:
        if front != outcome.refusals and front not in others and len(others) < MOST_FRONTS:
            others.append(front)
            lines += ["\nIn another way to get so far, these cannot be taken:", *_refused(front)]
    more = outcome.more_fronts + len(outcome.other_fronts) - len(others)
    if more:
        lines.append(
            f"\nNor can any in {numbers.plural(more, 'other way')} to get so far. --json FILE has more of them."
        )
    return "\n".join(lines)


def _refused(refusals: Sequence[Alternative]) -> list[str]:
    lines = []
    for r in refusals:
        lines.append(
            f"\n  {r.step}  (node {r.node}, incarnation {r.incarnation}, event"
            f" {r.seq}{f', {r.event}' if not r.step.startswith(r.event) else ''})"
        )
        lines.append(f"    {r.reason}{f', which {r.where} refuses:' if r.where else ''}")
        if r.asked:
            lines.append(f"      {r.asked}")
    return lines


def _shortened(reason: str, most: int = 120) -> str:
    return reason if len(reason) <= most else reason[: most - 1] + "…"


def cases(outcomes: Sequence[Outcome]) -> list[Case]:
    """A test for each trace. One that had not ended, and is a behaviour so far, is skipped."""
    became = {REJECTED: FAILURE, RAISED: ERROR, NOT_COVERED: ERROR}
    found = []
    for outcome in outcomes:
        name = f"run {outcome.run}, subject {outcome.subject or 'none'}"
        if outcome.verdict == ACCEPTED:
            found.append(Case(name))
            continue
        how = ERROR if outcome.undecided else became.get(outcome.verdict, SKIPPED)
        why = how_far(outcome) if how != SKIPPED else ""
        found.append(Case(name, how, line(outcome), f"{why}\n\n{outcome.story}".strip()))
    return found


def data(outcomes: Sequence[Outcome], protocol: str, conformance: str, seconds: float) -> dict[str, Any]:
    """All outcomes as JSON data."""
    return {
        "protocol": protocol,
        "conformance": conformance,
        "accepted": bool(outcomes) and all(outcome.verdict == ACCEPTED for outcome in outcomes),
        "traces": len(outcomes),
        "rejected": sum(outcome.verdict == REJECTED for outcome in outcomes),
        "raised": sum(outcome.verdict == RAISED for outcome in outcomes),
        "not_covered": sum(outcome.verdict == NOT_COVERED for outcome in outcomes),
        "events": sum(outcome.events for outcome in outcomes),
        "steps": sum(outcome.steps for outcome in outcomes),
        "seconds": round(seconds, 3),
        "verdicts": [{"verdict": outcome.verdict, **msgspec.to_builtins(outcome)} for outcome in outcomes],
    }
