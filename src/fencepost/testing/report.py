"""The result of driving a system, as text and as a page."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.language.values import constant_text
from fencepost.report.html import behaviour_html
from fencepost.report.text import WIDTH, trace_story
from fencepost.report.verdict import BAD, OPEN, Verdict
from fencepost.testing.findings import Findings
from fencepost.text import numbers
from fencepost.text.numbers import plural


def verdict(driven: Findings) -> str:
    """The first line."""
    if driven.shown is not None:
        return f"DIFFERS  {driven.adapter.name} does not do what the protocol does"
    if not driven.covered:
        return "NOTHING  no transition was driven"
    so_far = " so far" if driven.limits else ""
    return f"FOLLOWS  {driven.adapter.name} does what the protocol does{so_far}"


def headline(driven: Findings) -> str:
    """How much was driven, in one line."""
    of = f"{len(driven.covered):,} of {plural(len(driven.graph.transitions), 'transition')}"
    return "; ".join([f"{verdict(driven)}: {of}", *(f"ended by {limit}" for limit in driven.limits)])


def difference(place: str, variable: str, expected: object, actual: object, who: str) -> list[str]:
    """A difference as lines: its place, its variable, and both values."""
    return [place, f"  {variable}", f"    {'protocol':<{len(who)}}  {expected}", f"    {who:<8}  {actual}"]


def figures(rows: Sequence[tuple[str, str, str]]) -> list[str]:
    """Names, figures and remarks as lines."""
    column = max(len(value) for _, value, _ in rows)
    return [f"  {name:<14}{value:<{column}}  {remark}".rstrip() for name, value, remark in rows]


def shown(driven: Findings) -> list[str]:
    """The difference, as lines."""
    if driven.shown is None:
        return []
    _, trace, found = driven.shown
    place = f"After step {len(trace.steps)}, {trace.steps[-1].title}:" if trace.steps else "At the beginning:"
    return difference(place, found.variable, found.expected, found.actual, "system")


def heading(driven: Findings) -> str:
    """What the behaviour is."""
    assert driven.shown is not None
    states = plural(len(driven.shown.trace), "state")
    if not driven.repeats:
        return f"The behaviour: {states}. Run again, it showed no difference: the system depends on something else"
    return f"{'The shortest behaviour' if driven.is_shortest else 'The shortest behaviour found'}: {states}"


def _what(driven: Findings) -> str:
    protocol = driven.graph.protocol
    return "  ".join([protocol.name, *(f"{name}={constant_text(value)}" for name, value in protocol.constants.items())])


def story(driven: Findings, width: int = WIDTH) -> str:
    """The whole result as plain text."""
    lines = [verdict(driven), _what(driven), ""]
    if driven.shown is not None:
        lines += [*shown(driven), "", heading(driven)]
        lines += [trace_story(driven.shown.trace, width=width).rstrip("\n"), ""]
    return "\n".join([*lines, *figures(_rows(driven))])


def _rows(driven: Findings) -> list[tuple[str, str, str]]:
    every = len(driven.graph.transitions)
    actions = driven.actions
    driven_actions = sum(1 for done, _ in actions.values() if done)
    rate = numbers.rate(driven.steps / (driven.seconds or 1e-9))
    rows = [
        ("behaviours", numbers.count(driven.behaviours), f"seed {driven.seed}"),
        ("steps", numbers.count(driven.steps), rate),
        ("transitions", numbers.count(len(driven.covered)), f"of {every:,}{' explored' * driven.graph.is_cut}"),
        ("actions", numbers.count(driven_actions), f"of {len(actions):,}"),
    ]
    if driven.cover == "pairs":
        rows.insert(3, ("pairs", numbers.count(driven.wanted - driven.left), f"of {driven.wanted:,}"))
    if driven.adapter.refuses:
        rows.append(("refusals", numbers.count(driven.refusals), "calls of actions that were not enabled"))
    rows.append(("time", numbers.seconds(driven.seconds), ""))
    rows += [("never driven", name, why) for name, why in never(driven)]
    if driven.ambiguous:
        remark = "behaviours ended where several states fitted: observe more, or take choices"
        rows.append(("not decided", numbers.count(driven.ambiguous), remark))
    rows += [("ended by", limit, "") for limit in driven.limits]
    return rows


def never(driven: Findings) -> list[tuple[str, str]]:
    """The actions that were never driven, and the transitions of others, each with the reason."""
    found = []
    avoided = {edge.action for edge in driven.given_up}
    for name in driven.never:
        if name in driven.adapter.left_out:
            why = "left out"
        elif not driven.actions[name][1]:
            why = "it is never enabled" if not driven.graph.is_cut else "it is not enabled in what was explored"
        elif name in avoided:
            why = "the system chooses other outcomes"
        elif driven.shown is not None:
            continue  # the difference ended the drive
        else:
            why = "the behaviours that were driven do not come to it"
        found.append((name, why))
    left = len(driven.graph.transitions) - len(driven.covered)
    left -= sum(every for name, (done, every) in driven.actions.items() if not done)
    if left and driven.shown is None:
        found.append((plural(left, "transition"), "of other actions"))
    return found


def page(driven: Findings) -> str:
    """The behaviour that shows the difference, as a page."""
    assert driven.shown is not None, "there is a page where there is a difference"
    word, _, subject = verdict(driven).partition("  ")
    sentences = ("\n".join(f" {line}" for line in shown(driven)), heading(driven) + ".")
    return behaviour_html(driven.shown.trace, Verdict(word, subject, sentences, BAD if driven.repeats else OPEN))
