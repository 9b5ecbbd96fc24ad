"""The page: well-formed, self-contained, legible, and true to the behaviour it shows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from campaigns import campaign_if
from patience import PATIENCE
from report.behaviours import Post, Script, follow
from report.small_ledger import SmallLedger

import fencepost
from fencepost import Options, Protocol, Result, SearchOptions, Trace, action, constant, invariant, require, state
from fencepost.behaviours.messages import passages
from fencepost.checker.findings import Violation
from fencepost.language.values import canonical, show
from fencepost.report import html as page
from fencepost.report.html import html
from fencepost.report.svg import STYLE
from fencepost.semantics import State

VOID = {"meta", "br", "wbr", "input", "img", "link", "hr"}
LEAVES = {"rect", "line", "path", "polygon", "circle"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str | None]
    children: list[Element | str] = field(default_factory=list)

    def all(self, tag: str, **attributes: str) -> list[Element]:
        found = []
        for child in self.children:
            if isinstance(child, Element):
                if child.tag == tag and all(child.attributes.get(n.rstrip("_")) == v for n, v in attributes.items()):
                    found.append(child)
                found += child.all(tag, **attributes)
        return found

    def one(self, tag: str, **attributes: str) -> Element:
        found = self.all(tag, **attributes)
        assert len(found) == 1, f"{len(found)} {tag} with {attributes}"
        return found[0]

    @property
    def text(self) -> str:
        return "".join(c if isinstance(c, str) else c.text for c in self.children)

    def has(self, kind: str) -> bool:
        return kind in (self.attributes.get("class") or "").split()


class Reader(HTMLParser):
    """Builds the tree. Fails for a tag that is not closed, not opened, or closed out of order."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({n for n, _ in attrs}) == len(attrs), f"an attribute twice in <{tag}>"
        made = Element(tag, dict(attrs))
        self.open[-1].children.append(made)
        if tag not in VOID:
            self.open.append(made)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in LEAVES, f"<{tag}/> means nothing in HTML"
        self.open[-1].children.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def read(text: str) -> Element:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert [e.tag for e in reader.open] == [""], "something is not closed"
    return reader.root


def result_of(protocol: Protocol, trace: Trace, name: str = "few_arrive") -> Result:
    return Result(
        protocol, "reference", False, 12, 34, len(trace), 5, 1.5, 1 << 20, [], [Violation("invariant", name, trace)]
    )


@pytest.fixture(scope="module")
def violated() -> Result:
    return fencepost.check(SmallLedger(), engine="reference", options=Options(keep_going=True, deadlock=True))


def page_of(which: str) -> str:
    ledger, lossy = SmallLedger(), SmallLedger(lossy=True)
    if which == "several":
        return html(fencepost.check(ledger, engine="reference", options=Options(keep_going=True, deadlock=True)))
    if which == "limit":
        return html(fencepost.check(ledger, engine="reference", options=SearchOptions(max_states=20)))
    script: Script
    if which == "lossy":
        script = [("recoverer_starts(w=w2)", ("lost", "delivered")), "recoverer_times_out(w=w2, b=b1)"]
        return html(result_of(lossy, follow(lossy, script), "no_committed_entry_is_lost"))
    if which == "post":
        script = ["cut", ("send(source=h1, dest=h1)", ("2",)), ("send(source=h1, dest=h2)", ("2",))]
        return html(result_of(Post(), follow(Post(), script)))
    if which == "initial":
        return html(result_of(Post(), follow(Post(), [])))
    protocol = {
        "violated": ledger,
        "holds": SmallLedger(bookies=1, recovery_reads_fence=True),
        "marks": Marks(),
        "raised": Marks(broken=True),
    }[which]
    return html(fencepost.check(protocol, engine="reference"))


class Marks(Protocol):
    """Text that would end a script, start a tag or open an entity."""

    name = "<marks> & 'more'"
    label: str = constant("</script><b>&amp;")
    broken: bool = constant(False)
    text: str = state("", held_by="<holder>")

    @action(by="</title>")
    def write(self) -> None:
        require(not self.text)
        self.text = "</script><!-- & \u2028 <script>"
        if self.broken:
            raise ValueError("<i>")

    @invariant
    def nothing_is_written(self) -> bool:
        """Not <even> this & that."""
        return not self.text


@pytest.mark.parametrize(
    "name", ["violated", "several", "holds", "limit", "lossy", "post", "marks", "raised", "initial"]
)
def test_well_formed_and_alone(name: str) -> None:
    text = page_of(name)
    root = read(text)
    assert text.startswith("<!doctype html>")
    assert root.one("meta", name="viewport").attributes["content"] == "width=device-width, initial-scale=1"
    ids = re.findall(r'\bid="([^"]*)"', text)
    assert len(set(ids)) == len(ids)
    policy = root.one("meta", **{"http-equiv": "Content-Security-Policy"}).attributes["content"] or ""
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy

    def nothing_is_loaded(element: Element) -> None:
        assert element.tag not in ("link", "img", "iframe", "object", "embed", "base", "image", "use")
        for attribute, value in element.attributes.items():
            assert attribute not in ("src", "href", "xlink:href", "srcset", "action", "data", "poster", "background")
            assert not attribute.startswith("on")
            assert "url(" not in (value or "")
        if element.tag == "style":
            assert not re.search(r"url\(|@import|@font-face|//", element.text)
        for child in element.children:
            if isinstance(child, Element):
                nothing_is_loaded(child)

    nothing_is_loaded(root)
    for script in root.all("script"):
        if script.attributes.get("type") == "application/json":
            assert not set("<>&") & set(script.text)  # nothing in it can end the element
            json.loads(script.text)
        else:
            assert not re.search(r"fetch|XMLHttp|import|https?:|eval|innerHTML", script.text)


def test_the_header(violated: Result) -> None:
    header = read(html(violated)).one("header")
    assert header.has("bad")
    assert header.one("h1").text == "VIOLATED no_committed_entry_is_lost"
    assert [p.text for p in header.all("p")] == [
        "A closed ledger ends at or after the last entry that the writer told its client is safe."
    ]
    constants = [li.text for li in header.one("ul", class_="constants").all("li")]
    assert constants == [
        "bookies=b1,b2",
        "writer=w1",
        "recoverer=w2",
        "ack_quorum=1",
        "recovery_reads_fence=False",
        "lossy=False",
    ]
    tiles = {d.one("dt").text: d.one("dd").text for d in header.one("dl").all("div")}
    assert tiles["distinct states"] == f"{violated.distinct_states:,}"
    assert tiles["depth"] == str(violated.depth)


def bare(text: str) -> str:
    return re.sub(r"\s", "", text)


def held(state: State, slot: Any) -> str | None:
    """The expected table cell of a slot, computed without the code under test. Blanks are left out."""
    value = state.read(slot)
    if len(slot.path) == 4 and isinstance(slot.path[1], type):
        name, kind, *ends = slot.path
        lost = [s for s, _ in state.slots() if s.path == (name, "lost", kind, *ends)]
        seen = [s for s, done in state.slots() if s.path[:2] == (name, "processed") and [*s.path[2:4]] == ends and done]
        messages = {
            "inflight": list(value),
            "lost": [m for s in lost for m in state.read(s)],
            "processed": canonical({s.path[4] for s in seen if type(s.path[4]) is kind}),
        }
        texts = {what: [bare(show(m).removesuffix("()")) for m in those] for what, those in messages.items()}
        return "".join(f"{what}:{','.join(those)}" for what, those in texts.items() if those) or None
    if slot.path[-3:-2] == ("connected",):
        return None if value else "cut"
    if not slot.constant:  # a cell of a table
        return bare(show(value[0])) if value else None
    return bare(show(value))


@pytest.mark.parametrize("which", ["ledger", "lossy", "post"])
def test_the_state_at_every_step(which: str, violated: Result) -> None:
    """The values and the differences in the page add up to the states of the behaviour, slot by slot."""
    if which == "ledger":
        result = violated
    elif which == "lossy":
        protocol = SmallLedger(lossy=True)
        script: Script = [("recoverer_starts(w=w2)", ("lost", "delivered")), "recoverer_times_out(w=w2, b=b1)"]
        result = result_of(protocol, follow(protocol, script), "no_committed_entry_is_lost")
    else:
        result = result_of(Post(), follow(Post(), ["cut", ("send(source=h1, dest=h1)", ("2",)), "heal"]))
    root = read(html(result))
    for place, violation in enumerate(result.violations):
        trace = violation.trace
        assert trace is not None
        section = root.one("section", id=f"behaviour-{place}")
        data = json.loads(section.one("script", type="application/json").text)
        slots = page.state_table(trace).slots
        assert len(data["values"]) == len(slots)
        assert len(data["deltas"]) == len(trace.steps)
        values = list(data["values"])
        for number, reached in enumerate(trace.states):
            if number:
                for row, text in data["deltas"][number - 1].items():
                    assert values[int(row)] != text
                    values[int(row)] = text
            assert [v if v is None else bare(v) for v in values] == [held(reached, s) for s in slots]
            shown = {s.path for s in slots}
            for slot, _ in reached.slots():
                if slot.path not in shown and slot.path[1:2] not in (("lost",), ("processed",)):
                    # The keys of tables, and channels that never hold anything.
                    assert isinstance(slot.path[-1], type) or held(reached, slot) is None
        # Without JavaScript the table shows the last state.
        rows = section.all("tr")
        written = {int(r.attributes["data-row"] or 0): r for r in rows if "data-row" in r.attributes}
        assert len(written) == len(slots)
        for row, text in enumerate(values):
            assert written[row].one("td").text == (text or "")
            assert ("hidden" in written[row].attributes) == (text is None)


def test_every_step_is_listed_with_its_messages(violated: Result) -> None:
    trace = violated.violations[0].trace
    assert trace is not None
    items = read(html(violated)).one("section", id="behaviour-0").one("ol").all("li")
    steps = [item for item in items if "data-step" in item.attributes]
    assert [s.one("span", class_="title").text for s in steps] == [
        "initial state",
        *(step.title for step in trace.steps),
    ]
    assert [s.one("button").one("span", class_="number").text for s in steps] == [str(n) for n in range(len(trace))]
    for item, step in zip(steps[1:], trace.steps, strict=True):
        told = [
            li
            for li in item.all("li")
            if any(w.has("sent") or w.has("received") or w.has("lost") for w in li.all("span"))
        ]
        assert len(told) == len(step.events)
        for line, event in zip(told, step.events, strict=True):
            assert event.text.removesuffix("()") in line.text
            assert f"{show(event.source)} → {show(event.dest)}" in line.text


def test_the_diagram_has_every_message(violated: Result) -> None:
    for place, violation in enumerate(violated.violations):
        assert violation.trace is not None
        diagram = read(html(violated)).one("section", id=f"behaviour-{place}").one("div", class_="diagram panel")
        groups = [g for g in diagram.all("g") if g.has("arrow") and not g.has("changed") and not g.all("text")]
        assert len(groups) == len(passages(violation.trace))
        bands = [r.attributes["data-step"] for r in diagram.all("rect") if r.has("band")]
        assert bands == [str(n) for n in range(1, len(violation.trace))]


def test_several_counterexamples_can_be_chosen(violated: Result) -> None:
    root = read(html(violated))
    assert [b.text for b in root.one("nav").all("button")] == [
        "no_committed_entry_is_lost 13 states",
        "deadlock 13 states",
    ]
    assert not read(html(fencepost.check(SmallLedger(), engine="reference"))).all("nav")


def test_what_the_invariant_looked_at_is_marked(violated: Result) -> None:
    section = read(html(violated)).one("section", id="behaviour-0")
    marked = [row.one("th").text.split()[0] for row in section.all("tr") if row.all("span", class_="mark")]
    assert marked == ["status", "last_entry", "committed"]


def test_without_a_violation_there_are_the_numbers_alone() -> None:
    result = fencepost.check(SmallLedger(bookies=1, recovery_reads_fence=True), engine="reference")
    root = read(html(result))
    assert root.one("h1").text == "HOLDS"
    assert not root.all("section", class_="behaviour")
    assert not root.all("script")
    rows = {
        r.one("th").text: [td.text for td in r.all("td")]
        for r in root.one("table", class_="coverage").one("tbody").all("tr")
    }
    assert {n: (int(c[0].replace(",", "")), int(c[1].replace(",", ""))) for n, c in rows.items()} == {
        a.name: (a.taken, a.new_states) for a in result.actions
    }
    flagged = [name for name, cells in rows.items() if cells[2] == "never taken"]
    assert flagged == [a.name for a in result.actions if not a.taken] != []


def test_what_was_raised_is_shown_with_the_way_there() -> None:
    root = read(page_of("raised"))
    assert root.one("h1").text == "RAISED write"
    assert "ValueError: <i>" in root.one("header").text
    assert root.all("section", class_="behaviour") or "The state it was raised in" in root.text


@pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed")
@pytest.mark.parametrize(("step", "width"), [(0, 1280), (12, 390), *campaign_if(bool, [(8, 1280)])])
def test_a_step_can_be_chosen(violated: Result, tmp_path: Path, step: int, width: int) -> None:
    """In a browser: the step named in the address is marked in the list and in the diagram, and its state is shown."""
    file = tmp_path / "page.html"
    file.write_text(html(violated), encoding="utf-8")
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-component-update",
    ]
    flags += ["--disable-sync", f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},900", "--dump-dom"]
    command = ["chromium", *flags, f"{file.as_uri()}#behaviour-0-step-{step}"]
    root = read(subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout)
    section = root.one("section", id="behaviour-0")
    trace = violated.violations[0].trace
    assert trace is not None
    assert section.one("output").text == (f"step {step} of 12" if step else "initial state")
    assert [li.attributes["data-step"] for li in section.all("li") if li.has("on")] == [str(step)]
    assert [r.attributes["data-step"] for r in section.all("rect") if r.has("band") and r.has("on")] == [str(step)] * (
        step > 0
    )
    slots = page.state_table(trace).slots
    expected = trace.states[step].changes(trace.states[step - 1]) if step else []
    rows = {int(r.attributes["data-row"] or 0): r for r in section.all("tr") if "data-row" in r.attributes}
    assert {slots[n].path for n, r in rows.items() if r.has("changed")} == {
        s.path for s, _, _ in expected if s in slots
    }
    for number, row in rows.items():
        after = row.all("ins")[0].text if row.has("changed") else row.one("td").text
        text = held(trace.states[step], slots[number])
        assert bare(after) == (text or "")
        assert ("hidden" in row.attributes) == (text is None)


# -- legible ----------------------------------------------------------------------------------------------------------


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_has_enough_contrast(theme: str) -> None:
    """WCAG 2 requires 4.5 to 1 for text of this size."""
    css = (Path(page.__file__).parent / "palette.css").read_text(encoding="utf-8") + STYLE

    def colours(pattern: str) -> dict[str, str]:
        return dict(
            pair
            for block in re.findall(pattern, css, re.DOTALL)
            for pair in re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)
        )

    light = colours(r"(?:^|\n)(?::root|\.fp) \{(.*?)\}")
    dark = colours(r"dark\) \{ (?::root|\.fp) \{(.*?)\}")
    assert set(dark) == set(light) >= {"ink", "paper", "fp-ink", "fp-paper"}
    palette = light if theme == "light" else dark
    for text in ("ink", "quiet", "accent", "good", "bad", "open"):
        for behind in ("paper", "on", "back"):
            assert contrast(palette[text], palette[behind]) >= 4.5, (text, behind)
    for text in ("good", "bad", "open"):
        assert contrast(palette[text], palette[f"{text}-back"]) >= 4.5, text
    for text in ("ink", "quiet", "accent", "bad"):
        for behind in ("paper", "strip", "on"):
            assert contrast(palette[f"fp-{text}"], palette[f"fp-{behind}"]) >= 4.5, (text, behind)
    assert contrast(palette["fp-ink"], palette["fp-note"]) >= 4.5
