"""A result as one HTML page: the verdict, a sequence diagram, and every step with the whole state after it.

The page is self-contained: it loads no file, font or script. Without JavaScript it shows every step, the diagram and
the last state.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from fencepost.behaviours import Trace
from fencepost.behaviours.evidence import Evidence, looked_at
from fencepost.behaviours.formatting import kind_of
from fencepost.behaviours.json import dumps
from fencepost.behaviours.messages import channels, passages
from fencepost.behaviours.refinement import refuted, why
from fencepost.checker.findings import Findings, Violation
from fencepost.language.context import Slot
from fencepost.language.values import Value, constant_text
from fencepost.report.cards import SHOWN, slot_label, slot_text
from fencepost.report.diagram import diagram
from fencepost.report.explore_command import explore_command
from fencepost.report.svg import STYLE, draw
from fencepost.report.text import (
    Happening,
    and_so_on,
    counterexample,
    fairness,
    happenings,
    refutation,
    set_up,
    statistics,
)
from fencepost.report.verdict import Verdict, never_taken, reached, verdict, violated
from fencepost.semantics import State
from fencepost.text import numbers

_HERE = Path(__file__).parent
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def html(result: Findings) -> str:
    """The page."""
    found = verdict(result)
    behaviours = list(_behaviours(result))
    title = f"{found.word.lower()} {found.subject}".strip() + f" · {result.protocol.name}"
    return _page(title, _header(result, found), behaviours, _numbers(result) + _error_state(result))


def behaviour_html(trace: Trace, found: Verdict | None = None) -> str:
    """The page of a single behaviour, with the verdict that it shows."""
    title = f"{trace.protocol.name}: a behaviour of {numbers.plural(len(trace), 'state')}"
    what = _what(trace.protocol.name, trace.protocol.constants)
    header = f"<header>\n{what}</header>\n" if found is None else f"{_verdict(found)}{what}</header>\n"
    return _page(title, header, [Behaviour(title, trace)])


def _page(title: str, header: str, behaviours: list[Behaviour], below: str = "") -> str:
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n',
        f"<title>{escape(title)}</title>\n<style>{STYLE}{_file('palette.css')}{_file('page.css')}</style>\n</head>\n<body>\n",
        header,
        "<main>\n",
        _choice(behaviours),
        *(_behaviour(b, place, len(behaviours) > 1) for place, b in enumerate(behaviours)),
        below,
        "</main>\n",
        f"<script>{_file('page.js')}</script>\n" if behaviours else "",
        "</body>\n</html>\n",
    ]
    return "".join(parts)


@dataclass
class Behaviour:
    """A behaviour to show: its name, sentences about it, the evidence of a violated property, and why a lasso is
    fair.
    """

    name: str
    trace: Trace
    sentences: tuple[str, ...] = ()
    evidence: Evidence | None = None
    fair: Sequence[tuple[str, str]] = ()
    violation: Violation | None = None


def _behaviours(result: Findings) -> Iterator[Behaviour]:
    for violation in result.violations:
        if violation.trace is not None:
            yield _violating(result, violation, violation.trace)
    for witness in result.witnesses:
        seen = looked_at(witness.trace, "sometimes", witness.name)
        yield Behaviour(witness.name, witness.trace, reached(result, witness).sentences, seen)
    if result.error_trace is not None:
        yield Behaviour(f"{result.error.where if result.error else ''} raised", result.error_trace)


def _violating(result: Findings, violation: Violation, trace: Trace) -> Behaviour:
    seen = looked_at(trace, violation.kind, violation.name)
    fair = fairness(violation.fairness, trace.loop) if trace.loop is not None else []
    return Behaviour(violation.name, trace, violated(result, violation).sentences, seen, fair, violation)


# -- the top of the page ----------------------------------------------------------------------------------------------


def _header(result: Findings, found: Verdict) -> str:
    tiles = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in (
            ("distinct states" + " up to symmetry" * bool(result.symmetry), numbers.count(result.distinct_states)),
            ("generated", numbers.count(result.generated_states)),
            ("depth", numbers.count(result.depth)),
            ("time", numbers.seconds(result.seconds)),
            ("rate", numbers.rate(result.states_per_second)),
        )
    )
    return (
        _verdict(found)
        + _what(result.protocol.name, result.constants)
        + (f'<dl class="tiles">{tiles}</dl>\n' if result.engine != "states" else "")
        + "</header>\n"
    )


def _verdict(found: Verdict) -> str:
    """The beginning of the header: a verdict and what explains it."""
    subject = f' <span class="subject">{breakable(found.subject)}</span>' if found.subject else ""
    tags = ["pre" if s.startswith(" ") else "p" for s in found.sentences]
    sentences = "".join(f"<{tag}>{escape(s)}</{tag}>" for tag, s in zip(tags, found.sentences, strict=True))
    return (
        f'<header class="{found.tone}">\n<h1><span class="word">{escape(found.word)}</span>{subject}</h1>\n'
        f'<div class="why">{sentences}</div>\n'
    )


def _what(name: str, constants: Mapping[str, Value]) -> str:
    """A protocol and its constants."""
    items = "".join(
        f"<li><span>{escape(n)}</span>=<b>{escape(constant_text(v))}</b></li>" for n, v in constants.items()
    )
    return f'<div class="what"><b>{escape(name)}</b><ul class="constants">{items}</ul></div>\n'


def _choice(behaviours: list[Behaviour]) -> str:
    if len(behaviours) < 2:
        return ""
    buttons = "".join(
        f'<button type="button" data-behaviour="{place}" aria-pressed="{"true" if place == 0 else "false"}">'
        f"{breakable(b.name)} <small>{numbers.plural(len(b.trace), 'state')}</small></button>"
        for place, b in enumerate(behaviours)
    )
    return f'<nav class="choice" aria-label="Behaviours">{buttons}</nav>\n'


# -- a behaviour ------------------------------------------------------------------------------------------------------


def _behaviour(behaviour: Behaviour, place: int, one_of_many: bool) -> str:
    trace = behaviour.trace
    picture = draw(diagram(trace))
    table = state_table(trace, behaviour.evidence)
    last = len(trace.steps)
    data = escape_script(dumps({"values": table.values, "deltas": table.deltas}))
    label = escape(f"{behaviour.name}: {numbers.plural(len(trace), 'state')}")
    said = "".join(f"<p>{escape(s)}</p>" for s in behaviour.sentences) if one_of_many else ""
    about = f'<div class="about"><h2>{breakable(behaviour.name)}</h2>{said}</div>\n' if one_of_many else ""
    command = explore_command(trace)
    onward = (
        '<details class="onward"><summary>Walk on from any step of'
        f" it</summary><code>{escape(command)}</code></details>\n"
        if command is not None
        else ""
    )
    return (
        f'<section class="behaviour" id="behaviour-{place}" aria-label="{label}">\n{about}'
        '<div class="bar"><div class="tabs" role="group" aria-label="Show">'
        '<button type="button" data-tab="steps" aria-pressed="true">Steps</button>'
        '<button type="button" data-tab="diagram" aria-pressed="false">Diagram</button>'
        '<button type="button" data-tab="state" aria-pressed="false">State</button></div>'
        '<div class="walk"><button type="button" data-go="-1" aria-label="Previous step">←</button>'
        f'<output class="where" aria-live="polite">step {last} of {last}</output>'
        '<button type="button" data-go="1" aria-label="Next step">→</button></div>'
        '<span class="keys">arrow keys walk through the steps</span></div>\n'
        '<div class="panels">\n'
        f'<ol class="steps panel" data-panel="steps" start="0">{_steps(trace)}</ol>\n'
        '<div class="diagram panel" data-panel="diagram" tabindex="0" role="group" aria-label="Sequence diagram">'
        f'<div class="heads">{picture.heads}</div>{picture.body}</div>\n'
        f'<div class="state panel" data-panel="state">{table.html}</div>\n'
        f"</div>\n{_fair(behaviour)}{_refuted(behaviour)}{onward}"
        f'<script type="application/json" class="data">{data}</script>\n'
        "</section>\n"
    )


def _fair(behaviour: Behaviour) -> str:
    """An explanation of a lasso, and why its loop is fair."""
    if behaviour.trace.loop is None:
        return ""
    reasons = f"<p>The loop is fair:</p><ul>{_listed(behaviour.fair)}</ul>" if behaviour.fair else ""
    return f'<div class="fair"><p>{escape(counterexample(behaviour.trace, behaviour.violation))}.</p>{reasons}</div>\n'


def _refuted(behaviour: Behaviour) -> str:
    """Why the last step is not a step of the refined protocol."""
    violation = behaviour.violation
    found = (
        refuted(behaviour.trace, violation.name) if violation is not None and violation.kind == "refinement" else None
    )
    if found is None:
        return ""
    heading, differences = refutation(found, behaviour.name)
    near = [(near.title, why(found, near)) for near in found.nearest]
    nearest = f"<p>The nearest actions of {escape(found.other.name)}:</p><ul>{_listed(near)}</ul>" if near else ""
    return f'<div class="fair"><p>{escape(heading)}:</p><ul>{_listed(differences)}</ul>{nearest}</div>\n'


def _listed(rows: Sequence[tuple[str, str]]) -> str:
    return "".join(f"<li><b>{breakable(what)}</b> {escape(how)}</li>" for what, how in rows)


def _steps(trace: Trace) -> str:
    found = passages(trace)
    first = "".join(f"<li>{happening_html(h)}</li>" for h in set_up(trace))
    items = [_step(0, None, "initial state", first)]
    for number, step in enumerate(trace.steps, 1):
        loops = trace.loop is not None and number > trace.loop
        rows = [f"<li>{happening_html(h)}</li>" for h in happenings(trace, number, found)] or [
            "<li>nothing changes</li>"
        ]
        items.append(_step(number, step.by, step.title, "".join(rows), loops, step.place))
    if trace.loop is not None:
        said = f'<p class="again">{escape(and_so_on(trace, trace.loop))}</p></li>'
        items[-1] = said.join(items[-1].rsplit("</li>", 1))
    return "".join(items)


def _step(number: int, by: str | None, title: str, rows: str, loops: bool = False, place: str = "") -> str:
    mark = ' class="loops"' if loops else ""
    who = f'<span class="actor">{escape(by)}</span> ' if by else ""
    stands = f' <i class="after">{escape(place)}</i>' if place else ""
    return (
        f'<li value="{number}" data-step="{number}"{mark}><button type="button"><span class="number">{number}</span>'
        f' {who}<span class="title">{breakable(title)}</span>{stands}</button><ul>{rows}</ul></li>\n'
    )


def happening_html(happening: Happening) -> str:
    """One effect of a step."""
    style = happening.style.replace(" ", "-")
    after = f' <i class="after">{escape(happening.after)}</i>' if happening.after else ""
    what = f'<span class="what {style}">{breakable(" ".join(happening.what.split()))}</span> '
    return f'{what}<span class="how">{escape(happening.text)}</span>{after}'


# -- the state --------------------------------------------------------------------------------------------------------


@dataclass
class StateTable:
    """The state as rows of a table. ``values``: the texts of the initial state by row (None: the row is hidden).
    ``deltas``: for each step, the texts that it changes. ``html`` shows the last state.
    """

    html: str
    values: list[str | None]
    deltas: list[dict[str, str | None]]
    slots: list[Slot]


def state_table(trace: Trace, evidence: Evidence | None = None) -> StateTable:
    """The states of a behaviour as one table with fixed rows, so that stepping through it shows the changes."""
    protocol = trace.protocol
    seen_in = [(state, channels(state)) for state in trace.states]
    slots = [
        slot
        for slot, _ in trace.states[-1].slots()
        if kind_of(protocol, slot) in SHOWN
        and (kind_of(protocol, slot) == "value" or any(slot_text(slot, *seen) is not None for seen in seen_in))
    ]
    # A slot that appeared late stands with its variable.
    order = {name: i for i, name in enumerate(protocol.shapes)}
    slots.sort(key=lambda slot: order.get(slot.path[0], len(order)))
    texts = [[slot_text(slot, *seen) for slot in slots] for seen in seen_in]
    deltas = [
        {str(row): after[row] for row in range(len(slots)) if after[row] != before[row]}
        for before, after in itertools.pairwise(texts)
    ]
    seen = {slot.path for slot, _ in evidence.slots} if evidence is not None else set()
    groups: dict[str, list[int]] = {}
    for row, slot in enumerate(slots):
        groups.setdefault(slot.path[0], []).append(row)
    body = []
    for name, rows in groups.items():
        alone = len(rows) == 1 and len(slots[rows[0]].path) == 1
        heading = "" if alone else f'<tr class="group"><th colspan="2" scope="rowgroup">{breakable(name)}</th></tr>'
        inner = "".join(_state_row(slots[r], r, texts[-1][r], slots[r].path in seen, alone) for r in rows)
        body.append(f"<tbody>{heading}{inner}</tbody>")
    caption = '<caption><span class="of">The last state</span></caption>'
    toggle = '<label class="only"><input type="checkbox"> only what changed</label>'
    name = breakable(evidence.title) if evidence is not None else ""
    key = f'<p class="key"><span class="mark">●</span> looked at by {name}</p>' if seen else ""
    return StateTable(f"{toggle}<table>{caption}{''.join(body)}</table>{key}", texts[0], deltas, slots)


def _state_row(slot: Slot, row: int, text: str | None, seen: bool, alone: bool) -> str:
    mark = ' <span class="mark" title="looked at by what is violated">●</span>' if seen else ""
    hidden = " hidden" if text is None else ""
    label = slot.path[0] if alone else slot_label(slot.path[1:])
    style = ["alone"] * alone + ["long"] * (len(text or "") > 24)
    kind = f' class="{" ".join(style)}"' if style else ""
    return (
        f'<tr data-row="{row}"{kind}{hidden}><th scope="row">{breakable(label)}{mark}</th>'
        f"<td>{escape(text or '')}</td></tr>"
    )


def _error_state(result: Findings) -> str:
    """The state in which the protocol raised, if it is known and no behaviour leads to it."""
    state = getattr(result.error, "state", None)
    if not isinstance(state, State) or result.error_trace is not None:
        return ""
    table = state_table(Trace(result.protocol, state, ()))
    return (
        '<section class="numbers"><h2>The state it was raised in</h2><div class="state'
        f' panel">{table.html}</div></section>\n'
    )


# -- statistics and coverage ------------------------------------------------------------------------------------------


def _numbers(result: Findings) -> str:
    if not result.generated_states:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td class="figure">{escape(value)}</td><td'
        f' class="remark">{escape(remark)}</td></tr>'
        for name, value, remark in statistics(result)
    )
    found = f'<section class="numbers">\n<div><h2>Statistics</h2><table class="statistics">{rows}</table></div>\n'
    if result.actions:
        found += f"<div><h2>Actions</h2>{_coverage(result)}</div>\n"
    return found + "</section>\n"


def _coverage(result: Findings) -> str:
    most = max((a.taken for a in result.actions), default=0) or 1
    rows = []
    for action in result.actions:
        share = f"{100 * action.taken / most:.1f}"
        figures = (
            f'<td class="figure">{numbers.count(action.taken)}</td><td'
            f' class="figure">{numbers.count(action.new_states)}</td><td class="share"><svg viewBox="0 0 100 8"'
            f' preserveAspectRatio="none" aria-hidden="true"><rect width="{share}" height="8"/></svg></td>'
            if action.taken
            else f'<td class="figure">0</td><td class="figure">0</td><td class="flag">{never_taken(result)}</td>'
        )
        rows.append(
            f'<tr{"" if action.taken else " class=never"}><th scope="row">{breakable(action.name)}</th>{figures}</tr>'
        )
    head = '<thead><tr><th scope="col">action</th><th scope="col" class="figure">taken</th>'
    head += '<th scope="col" class="figure">new states</th><th></th></tr></thead>'
    return f'<table class="coverage">{head}<tbody>{"".join(rows)}</tbody></table>'


# -- text -------------------------------------------------------------------------------------------------------------


def breakable(text: str) -> str:
    """Escaped text, with break opportunities in long names for narrow screens."""
    return escape(text).replace("_", "_<wbr>").replace(".", ".<wbr>")


def escape_script(text: str) -> str:
    """JSON escaped for a script element, so that it cannot close the element."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _file(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")
