"""Draws a sequence diagram as SVG. Time runs down, and a message slopes from its send to its receipt.

This module does not know protocols. Colours come from the style sheet :data:`STYLE`, or from that of the page. Every
group has the numbers of its steps (``data-step``, ``data-to``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape

from fencepost.behaviours.formatting import briefly, wrap
from fencepost.behaviours.messages import DROPPED, IN_FLIGHT, LOST, RECEIVED, REPEATED, TIMED_OUT
from fencepost.report.diagram import CHANGED, Arrow, Diagram, Lifeline, Note, Point

# Units are pixels. The font is monospaced, so the width of text is known.
CHARACTER = 6.65
LINE = 14
HEAD = 38
STRIP = 24
ARROW_ROW = 28
ARRIVAL_ROW = 20
PADDING = 6
NARROWEST_GAP = 88
LABEL = 36
SHORT_LABEL = 28
"""The most characters of a message that are shown, and of one between neighbours. A tooltip shows the whole text."""
NOTE = 28
LONGEST_WORD = 34
"""The most characters on a line of a note, and of a word that is not broken."""

STYLE = """
.fp { --fp-paper: #ffffff; --fp-ink: #1c2330; --fp-quiet: #5c667a; --fp-rule: #d5dae3; --fp-strip: #f2f4f8;
  --fp-on: #e5edff; --fp-accent: #2f55d4; --fp-bad: #c4321c; --fp-warn: #a15c00; --fp-note: #fff8e1; --fp-note-rule: #e6d6a3; }
@media (prefers-color-scheme: dark) { .fp { --fp-paper: #12161e; --fp-ink: #e4e8f0; --fp-quiet: #98a2b5; --fp-rule: #333c4b;
  --fp-strip: #1a202b; --fp-on: #1f2c4d; --fp-accent: #8fabff; --fp-bad: #ff8a73; --fp-warn: #f0b458; --fp-note: #2a2618;
  --fp-note-rule: #554b2a; } }
.fp text { font: 11px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: var(--fp-ink); }
.fp .paper { fill: var(--fp-paper); }
.fp .head rect { fill: var(--fp-paper); stroke: var(--fp-ink); stroke-width: 1.2; }
.fp .head text { font-weight: 600; font-size: 12px; text-anchor: middle; }
.fp .holds rect { stroke: var(--fp-accent); stroke-dasharray: 5 3; }
.fp .life { stroke: var(--fp-rule); stroke-width: 1.5; }
.fp .band { fill: transparent; }
.fp .strip { fill: var(--fp-strip); }
.fp .title { fill: var(--fp-quiet); paint-order: stroke; stroke: var(--fp-strip); stroke-width: 3px; stroke-linejoin: round; }
.fp .title-number { font-weight: 700; fill: var(--fp-ink); }
.fp .title-actor { font-weight: 700; fill: var(--fp-accent); }
.fp .arrow line, .fp .arrow path { stroke: var(--fp-ink); stroke-width: 1.4; fill: none; }
.fp .arrow polygon { fill: var(--fp-ink); stroke: none; }
.fp .arrow text { paint-order: stroke; stroke: var(--fp-paper); stroke-width: 4px; stroke-linejoin: round; }
.fp .arrow .aside { fill: var(--fp-quiet); }
.fp .lost line, .fp .lost path { stroke: var(--fp-bad); stroke-dasharray: 5 4; }
.fp .lost .cross { stroke-dasharray: none; stroke-width: 2; }
.fp .lost text { fill: var(--fp-bad); }
.fp .flying line, .fp .flying path { stroke: var(--fp-quiet); stroke-dasharray: 2 4; }
.fp .flying circle { fill: var(--fp-paper); stroke: var(--fp-quiet); stroke-width: 1.4; }
.fp .flying text { fill: var(--fp-quiet); }
.fp .changed line { stroke: var(--fp-accent); }
.fp .changed polygon { fill: var(--fp-accent); }
.fp .changed text { fill: var(--fp-accent); }
.fp .loop path { stroke: var(--fp-accent); stroke-width: 2; fill: none; }
.fp .loop text { fill: var(--fp-accent); }
.fp .note rect { fill: var(--fp-note); stroke: var(--fp-note-rule); }
.fp .note text { text-anchor: middle; }
"""  # noqa: E501


@dataclass(frozen=True)
class Picture:
    """A drawn diagram: ``heads`` (the names of the lifelines) above ``body``, two SVG elements of the same ``width``.

    ``steps``: the top and bottom of each step's band within the body, by the step's number.
    """

    width: int
    height: int
    heads: str
    body: str
    steps: dict[int, tuple[int, int]]


def svg(diagram: Diagram) -> str:
    """The diagram as one self-contained SVG document, for light and dark mode."""
    picture = draw(diagram)
    total = picture.height + HEAD
    inner = "".join(
        f'<svg y="{top}" width="{picture.width}" height="{height}">{part}</svg>'
        for top, height, part in ((0, HEAD, _inside(picture.heads)), (HEAD, picture.height, _inside(picture.body)))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="fp" width="{picture.width}" height="{total}" '
        f'viewBox="0 0 {picture.width} {total}"><style>{STYLE}</style>'
        f'<rect class="paper" width="{picture.width}" height="{total}"/>{inner}</svg>\n'
    )


def draw(diagram: Diagram) -> Picture:
    """The diagram as two SVG elements, for a page that keeps the names in view and includes :data:`STYLE`."""
    return _Canvas(diagram).picture()


class _Canvas:
    def __init__(self, diagram: Diagram) -> None:
        self.diagram = diagram
        self.notes = {note: _wrapped(note.lines) for note in diagram.notes}
        places = {line.name: i for i, line in enumerate(diagram.lifelines)}
        far = {id(a): abs(places[a.source] - places[a.dest]) > 1 for a in diagram.arrows}
        self.messages = {id(a): _message(a, LABEL if far[id(a)] else SHORT_LABEL) for a in diagram.arrows}
        flying = "not received" if diagram.loop is None else "in flight"
        self.labels = {id(a): _label(a, self.messages[id(a)], flying) for a in diagram.arrows}
        self.x, self.width = self._columns()
        self.top: dict[Point, float] = {}
        self.bands: dict[int, tuple[int, int]] = {}
        self.height = self._rows()

    # -- layout -------------------------------------------------------------------------------------------------------

    def _columns(self) -> tuple[dict[str, float], int]:
        """The x of every lifeline, with enough distance for the texts between and over them; and the whole width."""
        names = [line.name for line in self.diagram.lifelines]
        place = {name: i for i, name in enumerate(names)}
        half = [_text_width(name) / 2 + 14 for name in names]
        spans: list[tuple[int, int, float]] = []  # left, right, least distance
        right_side = [0.0] * len(names)
        for note, lines in self.notes.items():
            if len(note.over) == 1:
                i = place[note.over[0]]
                half[i] = max(half[i], max(map(_text_width, lines)) / 2 + PADDING)
        for arrow in self.diagram.arrows:
            one, other = place[arrow.source], place[arrow.dest]
            least = max(map(_text_width, self.labels[id(arrow)])) + 22
            if one == other:
                right_side[one] = max(right_side[one], least + 30)
            else:
                spans.append((min(one, other), max(one, other), least))
        x: list[float] = []
        for i in range(len(names)):
            at = half[i] + 10 if i == 0 else x[-1] + max(NARROWEST_GAP, half[i - 1] + 12, half[i] + 12)
            at = max([at, *(x[left] + least for left, right, least in spans if right == i)])
            x.append(at)
        edges = [x[i] + max(half[i], right_side[i]) for i in range(len(names))]
        titles = [_text_width(f"{m.number}  {m.by or ''} {m.title}") + 24 for m in self.diagram.moments]
        after = _text_width(self._loop_words()) + 24
        return dict(zip(names, x, strict=True)), round(max([160, after, *(e + 10 for e in edges), *titles]))

    def _rows(self) -> int:
        heights: dict[Point, float] = {}
        for arrow in self.diagram.arrows:
            tall = ARROW_ROW + LINE * (len(self.labels[id(arrow)]) - 1)
            heights[arrow.leaves] = max(heights.get(arrow.leaves, 0), tall)
            if arrow.arrives is not None and arrow.arrives != arrow.leaves:
                tall = ARRIVAL_ROW + (LINE - 2 if _late(arrow) else 0)
                heights[arrow.arrives] = max(heights.get(arrow.arrives, 0), tall)
        for note, lines in self.notes.items():
            heights[note.at] = LINE * len(lines) + 2 * PADDING + 8
        y = 0.0
        for moment in self.diagram.moments:
            top = y
            y += STRIP
            for row in range(moment.rows):
                self.top[Point(moment.number, row)] = y
                y += heights.get(Point(moment.number, row), ARRIVAL_ROW)
            y += PADDING
            self.bands[moment.number] = (round(top), round(y))
        return round(y + 8 + (LINE + 8 if self.diagram.loop is not None else 0))

    # -- drawing ------------------------------------------------------------------------------------------------------

    def picture(self) -> Picture:
        heads = "".join(self._head(line) for line in self.diagram.lifelines)
        # Text lies over lines, so that a long arrow does not strike it out.
        body = [self._bands(), self._lives(), self._strips()]
        body += [self._arrow(arrow, self._line) for arrow in self.diagram.arrows]
        body.append(self._titles())
        body += [self._arrow(arrow, self._text) for arrow in self.diagram.arrows]
        body += [self._note(note, lines) for note, lines in self.notes.items()]
        body.append(self._loop_line())
        return Picture(
            self.width, self.height, self._element(HEAD, heads), self._element(self.height, "".join(body)), self.bands
        )

    def _loop_line(self) -> str:
        """A line along the left of the repeating steps, with a label after the last one."""
        loop = self.diagram.loop
        if loop is None:
            return ""
        bands = [band for number, band in self.bands.items() if number > loop]
        bottom = self.height - LINE - 6
        text = f'<text x="12" y="{_n(bottom + LINE)}">{self._loop_words()}</text>'
        if not bands:
            return f'<g class="loop">{text}</g>'
        path = f'<path d="M9 {bands[0][0] + 2} H3 V{_n(bottom + LINE - 4)} H10"/>'
        return f'<g class="loop">{path}{text}</g>'

    def _loop_words(self) -> str:
        """The label at the end of a lasso; empty for other behaviours."""
        loop = self.diagram.loop
        if loop is None:
            return ""
        if all(moment.number <= loop for moment in self.diagram.moments):
            return "nothing more happens, for ever"
        return f"back to {f'after step {loop}' if loop else 'the start'}, for ever"

    def _element(self, height: int, inner: str) -> str:
        return (
            f'<svg class="fp" width="{self.width}" height="{height}" viewBox="0 0 {self.width} {height}">{inner}</svg>'
        )

    def _head(self, line: Lifeline) -> str:
        x, wide = self.x[line.name], _text_width(line.name) + 26
        return (
            f'<g class="head{" holds" if line.holds else ""}"><rect x="{_n(x - wide / 2)}" y="5" width="{_n(wide)}"'
            f' height="26" rx="5"/><text x="{_n(x)}" y="22">{escape(line.name)}</text></g>'
        )

    def _lives(self) -> str:
        return "".join(
            f'<line class="life" x1="{_n(x)}" x2="{_n(x)}" y1="0" y2="{self.height}"/>' for x in self.x.values()
        )

    def _bands(self) -> str:
        return "".join(
            f'<rect class="band" data-step="{m.number}" y="{top}" width="{self.width}" height="{bottom - top}"/>'
            for m in self.diagram.moments
            for top, bottom in [self.bands[m.number]]
        )

    def _strips(self) -> str:
        return "".join(
            f'<rect class="strip" data-step="{m.number}" y="{self.bands[m.number][0]}" width="{self.width}"'
            f' height="{STRIP - 4}"/>'
            for m in self.diagram.moments
        )

    def _titles(self) -> str:
        found = []
        for moment in self.diagram.moments:
            number = (
                f'<tspan class="title-number">{moment.number}</tspan>  ' if moment.number > self.diagram.first else ""
            )
            by = f'<tspan class="title-actor">{escape(moment.by)}</tspan> ' if moment.by else ""
            found.append(
                f'<text class="title" data-step="{moment.number}" x="8" y="{self.bands[moment.number][0] + 14}" '
                f'xml:space="preserve">{number}{by}{escape(moment.title)}</text>'
            )
        return "".join(found)

    def _arrow(self, arrow: Arrow, part: Callable[[Arrow], str]) -> str:
        style = {RECEIVED: "received", CHANGED: "changed", REPEATED: "flying", IN_FLIGHT: "flying"}.get(
            arrow.fate, "lost"
        )
        to = f' data-to="{arrow.arrives.step}"' if arrow.arrives is not None else ""
        whole = f"<title>{escape(_tip(arrow, self.diagram.first))}</title>"
        return f'<g class="arrow {style}" data-step="{arrow.leaves.step}"{to}>{whole}{part(arrow)}</g>'

    def _start(self, arrow: Arrow) -> tuple[float, float, float, int]:
        """The x and y of an arrow's start, the x of its end, and its direction."""
        x1, x2 = self.x[arrow.source], self.x[arrow.dest]
        y1 = self.top[arrow.leaves] + LINE * len(self.labels[id(arrow)]) + 6
        return x1, y1, x2, 1 if x2 >= x1 else -1

    def _text(self, arrow: Arrow) -> str:
        lines = self.labels[id(arrow)]
        x1, y1, x2, way = self._start(arrow)
        x = x1 + 34 if x1 == x2 else x1 + way * 9
        found = [_words(x, y1 - 5 - LINE * (len(lines) - 1 - i), way, line) for i, line in enumerate(lines)]
        if arrow.arrives is not None and _late(arrow):
            x, way = (x2 + 34, 1) if x1 == x2 else (x2 - way * 9, -way)
            found.append(_words(x, self.top[arrow.arrives] + 21, way, self.messages[id(arrow)], "aside"))
        return "".join(found)

    def _line(self, arrow: Arrow) -> str:
        x1, y1, x2, way = self._start(arrow)
        if x1 == x2:
            return self._loop(arrow, x1, y1)
        if arrow.fate == RECEIVED and arrow.arrives is not None:
            y2 = self.top[arrow.arrives] + 8
            return _stroke(x1, y1, x2 - way, y2) + _tip_of_arrow(x1, y1, x2, y2)
        if arrow.fate in (CHANGED, REPEATED):
            return _stroke(x1, y1, x2 - way, y1) + _tip_of_arrow(x1, y1, x2, y1)
        end = x2 - way * 20
        y2 = y1 + 5
        if arrow.fate == IN_FLIGHT:
            return _stroke(x1, y1, end, y2) + f'<circle cx="{_n(end + way * 4)}" cy="{_n(y2)}" r="4"/>'
        return _stroke(x1, y1, end, y2) + _cross(end, y2)

    def _loop(self, arrow: Arrow, x: float, y: float) -> str:
        late = arrow.fate == RECEIVED and arrow.arrives is not None and arrow.arrives.step != arrow.leaves.step
        y2 = self.top[arrow.arrives] + 8 if late and arrow.arrives is not None else y + 7
        path = f'<path d="M{_n(x)} {_n(y - 5)} h26 V{_n(y2)} h-24"/>'
        return path + (
            _cross(x + 26, y2) if arrow.fate in (LOST, TIMED_OUT, DROPPED) else _tip_of_arrow(x + 26, y2, x, y2)
        )

    def _note(self, note: Note, lines: list[str]) -> str:
        y = self.top[note.at] + 2
        if len(note.over) == 1:
            middle = self.x[note.over[0]]
            wide = max(map(_text_width, lines)) + 2 * PADDING
        else:
            xs = list(self.x.values()) or [self.width / 2]
            middle = (xs[0] + xs[-1]) / 2
            wide = max([xs[-1] - xs[0] + 40, *(_text_width(line) + 2 * PADDING for line in lines)])
        tall = LINE * len(lines) + 2 * PADDING
        texts = "".join(
            f'<text x="{_n(middle)}" y="{_n(y + PADDING + 10.5 + LINE * i)}">{escape(line)}</text>'
            for i, line in enumerate(lines)
        )
        whole = f"<title>{escape(chr(10).join(note.lines))}</title>"
        rect = f'<rect x="{_n(middle - wide / 2)}" y="{_n(y)}" width="{_n(wide)}" height="{tall}" rx="4"/>'
        return f'<g class="note" data-step="{note.at.step}">{whole}{rect}{texts}</g>'


def _wrapped(lines: tuple[str, ...], most: int = 6) -> list[str]:
    """The lines of a note, wrapped. A change that needs many lines is cut (the tooltip has all of it)."""
    found: list[str] = []
    for line in lines:
        pieces = [
            part
            for piece in wrap(line, NOTE, whole=True)
            for part in wrap(piece, max(NOTE, min(len(piece), LONGEST_WORD)))
        ]
        found += pieces if len(pieces) <= most else [*pieces[: most - 1], "…"]
    return found


def _label(arrow: Arrow, message: str, flying: str) -> list[str]:
    if arrow.fate == CHANGED:
        return _wrapped(arrow.lines)
    after = {LOST: "", RECEIVED: "", IN_FLIGHT: f" ({flying})", REPEATED: " (already in flight)"}.get(
        arrow.fate, f" ({arrow.fate})"
    )
    return [message + after]


def _message(arrow: Arrow, limit: int) -> str:
    # Whether field names are left out must not depend on the length of the arrow.
    text = briefly(arrow.text.removesuffix("()"), SHORT_LABEL, cut=False)
    return briefly(text, limit if len(text) <= SHORT_LABEL else min(limit, len(text) - 1), cut=True)


def _late(arrow: Arrow) -> bool:
    """Whether a message is received so much later that its arrow is hard to trace."""
    return arrow.fate == RECEIVED and arrow.arrives is not None and arrow.arrives.step > arrow.leaves.step + 1


def _words(x: float, y: float, way: int, text: str, style: str = "") -> str:
    """Text to the right (``way`` 1) or to the left (-1) of a point."""
    anchor, kind = "start" if way > 0 else "end", f' class="{style}"' if style else ""
    return f'<text{kind} x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}">{escape(text)}</text>'


def _tip(arrow: Arrow, first: int) -> str:
    if arrow.fate == CHANGED:
        return f"{arrow.source} changes, at {arrow.dest}:\n" + "\n".join(arrow.lines)
    sent = f"sent in step {arrow.leaves.step}"
    if arrow.leaves.step == first:
        sent = f"sent before step {first + 1}" if first else "in flight from the start"
    end = f"received in step {arrow.arrives.step}" if arrow.arrives is not None else arrow.fate
    return f"{arrow.text}\n{arrow.source} → {arrow.dest}, {sent}, {end}"


def _text_width(text: str) -> float:
    return len(text) * CHARACTER


def _n(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _stroke(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}"/>'


def _cross(x: float, y: float) -> str:
    return f'<path class="cross" d="M{_n(x - 5)} {_n(y - 5)} l10 10 m0 -10 l-10 10"/>'


def _tip_of_arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    """A filled arrowhead at the second point, in the direction of the line."""
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5 or 1.0
    ux, uy = (x2 - x1) / length, (y2 - y1) / length
    base_x, base_y = x2 - 9 * ux, y2 - 9 * uy
    corners = [(x2, y2), (base_x - 4 * uy, base_y + 4 * ux), (base_x + 4 * uy, base_y - 4 * ux)]
    return f'<polygon points="{" ".join(f"{_n(x)},{_n(y)}" for x, y in corners)}"/>'


def _inside(element: str) -> str:
    return element[element.index(">") + 1 : element.rindex("</svg>")]
