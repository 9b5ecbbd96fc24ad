"""The views of a session for the page, as plain data: numbers, text, and the same HTML as in the report of a check."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from html import escape
from typing import Any

from fencepost.behaviours import Step, Trace
from fencepost.behaviours.formatting import ARROW, briefly
from fencepost.explorer.find import Finding
from fencepost.explorer.session import Action, Evaluation, Node, Offer, Session
from fencepost.language.seam import Model
from fencepost.language.values import constant_text, show
from fencepost.report.cards import Card, Row, cards
from fencepost.report.diagram import diagram
from fencepost.report.html import breakable, happening_html
from fencepost.report.svg import draw
from fencepost.report.text import choices, happenings

BLOCK = 20
"""A long diagram is drawn in parts of three blocks. This is the number of steps in a block."""

MAX_RUNS = 60
"""The most changes of one expression, or of one invariant, that are shown."""

EFFECT = 40
"""The most characters shown of one effect of a step. Names of fields are left out first."""

LONG = 26
"""A value with more characters than this gets its own line."""


def about(protocol: Model) -> dict[str, Any]:
    """The data that do not change: the protocol and its constants."""
    return {
        "protocol": protocol.name,
        "constants": [[name, constant_text(value)] for name, value in protocol.constants.items()],
        "variables": list(protocol.shapes),
    }


def view(
    session: Session,
    tip: Node,
    at: Node,
    *,
    known: int = 0,
    drawn: str = "",
    watched: Mapping[str, list[Evaluation] | str] | None = None,
) -> dict[str, Any]:
    """Everything that the page shows at ``at``, a state on the line of ``tip``.

    ``known``: the number of states of this line that the page already has in its history. ``drawn``: the key of the
    diagram that it has. ``watched``: the values of each watched expression along the line, or why it is not evaluated.
    """
    line = tip.line
    loop = session.loop(tip)
    actions = session.enabled(at)
    return {
        "tip": tip.number,
        "at": at.number,
        "place": at.depth,
        "length": len(line),
        "path": session.path(tip),
        "loop": loop,
        "again": None if at.repeats is None else f"The same state as {_after(at.repeats)}.",
        "known": known,
        "items": [_item(session, node) for node in line[known:]],
        "diagram": _diagram(session, tip, at, drawn),
        "state": "".join(map(_card, cards(at.state, at.parent.state if at.parent else None))),
        "actors": _by_actor(actions),
        "stuck": not any(o.step.changes and not o.cut for action in actions for o in action.offers),
        "judged": _judged(session, line, at),
        "sought": _sought(session, line, at),
        "temporal": [{"name": one.name, "doc": one.doc, "when": one.when} for one in session.temporal(tip)],
        "watches": [_watched(text, found, at) for text, found in (watched or {}).items()],
    }


# -- the history ------------------------------------------------------------------------------------------------------


def _item(session: Session, node: Node) -> dict[str, Any]:
    siblings = list(node.parent.children.values()) if node.parent is not None else session.starts
    return {
        "node": node.number,
        "by": node.step.by if node.step is not None else None,
        "title": node.step.title if node.step is not None else "initial state",
        "broken": session.broken(node),
        "nothing": node.step is not None and not node.step.changes,
        "branches": [sibling.number for sibling in siblings] if len(siblings) > 1 else [],
    }


def _after(number: int) -> str:
    return f"after step {number}" if number else "the initial one"


# -- the diagram ------------------------------------------------------------------------------------------------------


def _diagram(session: Session, tip: Node, at: Node, drawn: str) -> dict[str, Any] | None:
    """The part of the diagram around a step; None if the page already has it."""
    first = max(0, (at.depth - 1) // BLOCK * BLOCK - BLOCK)
    last = min(tip.depth, first + 3 * BLOCK)
    trace = session.trace(tip, first, last)
    key = f"{tip.line[last].number}:{first}:{trace.loop}"
    if key == drawn:
        return None
    picture = draw(diagram(trace, first))
    return {"key": key, "heads": picture.heads, "body": picture.body, "first": first, "last": last}


# -- what can be done -------------------------------------------------------------------------------------------------


def _by_actor(actions: Iterable[Action]) -> list[dict[str, Any]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for action in actions:
        labels = [_label(offer.step) for offer in action.offers]
        if len(set(labels)) < len(labels):
            labels = [", ".join(map(show, offer.step.choices)) for offer in action.offers]
        offers = [_offer(offer, label) for offer, label in zip(action.offers, labels, strict=True)]
        found.setdefault(action.by or "", []).append(
            {
                "title": action.title,
                "html": breakable(action.title),
                "doc": action.doc,
                "offers": offers,
                "error": action.error,
            }
        )
    return [{"by": by, "actions": those} for by, those in found.items()]


def _offer(offer: Offer, label: str) -> dict[str, Any]:
    number, taken = offer.move
    return {
        "move": [number, *taken],
        "label": label,
        "effects": _effects(offer.step),
        "nothing": not offer.step.changes,
        "cut": offer.cut,
    }


def _label(step: Step) -> str:
    """The choices of a step, in words: messages received, delivered and lost, and all other choices."""
    if not step.choices:
        return ""
    sends = [event for event in step.events if event.kind == "send"]
    lost = [event for event in sends if event.lost]
    parts = [
        f"{e.text} from {show(e.source)}" for e in step.events if e.kind == "receive" and e.passed[0] in step.choices
    ]
    parts += choices(step)
    if any(choice in ("delivered", "lost") for choice in step.choices):
        if not lost:
            parts.append("all delivered" if len(sends) > 1 else "delivered")
        elif len(lost) == len(sends):
            parts.append("all lost" if len(sends) > 1 else "lost")
        else:
            parts.append("lost to " + ", ".join(show(event.dest) for event in lost))
    return ", ".join(parts)


def _effects(step: Step) -> str:
    """The effects of a step, line by line."""
    before = step.state  # only events and changes are shown, which do not depend on messages in flight
    alone = Trace(step.state.store.protocol, before, (step,))
    found = [replace(h, text=briefly(h.text, EFFECT, cut=True)) for h in happenings(alone, 1, []) if h.what != "chose"]
    return "".join(f"<li>{happening_html(h)}</li>" for h in found) or "<li>nothing changes</li>"


# -- the state --------------------------------------------------------------------------------------------------------


def _card(card: Card) -> str:
    rows, group = [], ""
    counts = Counter(map(_group, card.rows))
    for row in card.rows:
        inner = "" if card.network or counts[_group(row)] < 2 else _group(row)
        if inner != group and inner:
            rows.append(f'<tr class="group"><th colspan="2" scope="rowgroup">{breakable(inner)}</th></tr>')
        group = inner
        rows.append(_row(row, inner))
    mark = " changed" if any(row.changed for row in card.rows) else ""
    kind = " network" if card.network else ""
    name = escape(card.name)
    return (
        f'<section class="card{mark}{kind}" data-card="{name}"><h3>{breakable(card.name)}</h3>'
        f"<table><tbody>{''.join(rows)}</tbody></table></section>"
    )


def _group(row: Row) -> str:
    """The record, or the entry of a map, that a part of the state belongs to."""
    return row.label.partition(".")[0] if "." in row.label else ""


def _row(row: Row, group: str) -> str:
    label = row.label.removeprefix(f"{group}.") if group else row.label
    text = "gone" if row.text is None else row.text
    is_long = len(text) + len(row.before or "") * row.changed > LONG
    spent = text.startswith("processed: ") and "\n" not in text
    style = ["changed"] * row.changed + ["inner"] * bool(group) + ["long"] * is_long + ["spent"] * spent
    value = _change(row.before, text) if row.changed else escape(text)
    return f'<tr class="{" ".join(style)}"><th scope="row">{breakable(label)}</th><td>{value}</td></tr>'


def _change(before: str | None, after: str) -> str:
    """The value before and after a step. Of multi-line values, only the lines that differ are marked."""
    if before is None:
        return f"<ins>{escape(after)}</ins>"
    if "\n" not in before or "\n" not in after:
        return f"<del>{escape(before)}</del>{ARROW}<ins>{escape(after)}</ins>"
    old, new = before.split("\n"), after.split("\n")
    lines: list[str] = []
    for what, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if what == "equal":
            lines += map(escape, new[k:m])
        else:
            lines += [_marked("del", line) for line in old[i:j]] + [_marked("ins", line) for line in new[k:m]]
    return "\n".join(lines)


def _marked(tag: str, line: str) -> str:
    text = line.lstrip()
    return f"{line[: len(line) - len(text)]}<{tag}>{escape(text)}</{tag}>"


# -- what is true -----------------------------------------------------------------------------------------------------


def _judged(session: Session, line: Sequence[Node], at: Node) -> list[dict[str, Any]]:
    judged = [{j.name: j for j in session.judge(node)} for node in line]
    found = []
    for one in session.judge(at):
        false = [number for number, those in enumerate(judged) if not those[one.name].holds]
        found.append(
            {
                "name": one.name,
                "doc": one.doc,
                "holds": one.holds,
                "error": one.error,
                "html": breakable(" ".join([one.name, *(b for b in one.bindings if b)])),
                "false": _intervals(false)[:MAX_RUNS],
            }
        )
    return found


def _sought(session: Session, line: Sequence[Node], at: Node) -> list[dict[str, Any]]:
    sought = [{s.name: s for s in session.sought(node)} for node in line]
    return [
        {
            "name": one.name,
            "doc": one.doc,
            "here": bool(one.bindings),
            "html": breakable(" ".join([one.name, *(b for b in one.bindings if b)])),
            "true": _intervals(n for n, those in enumerate(sought) if those[one.name].bindings)[:MAX_RUNS],
        }
        for one in session.sought(at)
    ]


def _intervals(numbers: Iterable[int]) -> list[list[int]]:
    """The intervals [first, last] of ascending numbers."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found


def _watched(text: str, evaluations: list[Evaluation] | str, at: Node) -> dict[str, Any]:
    if isinstance(evaluations, str):
        return {"text": text, "error": evaluations, "now": "", "runs": []}
    runs: list[dict[str, Any]] = []
    place = 0
    for one, group in itertools.groupby(evaluations):
        count = len(list(group))
        runs.append({"from": place, "to": place + count - 1, "value": one.text, "false": one.false})
        place += count
    return {"text": text, "error": None, "now": evaluations[at.depth].text, "runs": runs[:MAX_RUNS]}


# -- a search ---------------------------------------------------------------------------------------------------------


def search_view(finding: Finding | None) -> dict[str, Any] | None:
    """The progress of a search, or None."""
    if finding is None:
        return None
    return {
        "running": finding.running,
        "said": finding.said,
        "distinct": finding.distinct,
        "depth": finding.depth,
        "seconds": round(finding.seconds, 1),
        "found": finding.path is not None,
    }
