"""The model of a sequence diagram, its text for sequencediagram.org, and its drawing."""

from __future__ import annotations

import itertools
import re
from xml.etree import ElementTree

import pytest
from report.behaviours import Post, follow, wander
from report.small_ledger import SmallLedger

from fencepost import ModelValue, Protocol, Trace, action, constant, invariant, model_values, state
from fencepost.behaviours.messages import passages
from fencepost.report.diagram import Arrow, Diagram, Lifeline, Moment, Note, Point, diagram
from fencepost.report.sequence import sequence
from fencepost.report.svg import HEAD, draw, svg

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def trace() -> Trace:
    """A fence is lost and timed out, one arrives late; an entry is added behind its back."""
    return follow(
        SmallLedger(lossy=True),
        [
            ("recoverer_starts(w=w2)", ("lost", "delivered")),
            ("writer_adds_the_entry", ("delivered", "lost")),
            ("bookie_adds_the_entry(b=b1)", ("delivered",)),
            ("bookie_is_fenced(b=b2)", ("lost",)),
            "recoverer_times_out(w=w2, b=b1)",
            "writer_hears_of_an_add(w=w1)",
        ],
    )


def test_the_model(trace: Trace) -> None:
    assert diagram(trace) == Diagram(
        lifelines=(
            Lifeline("w2"),
            Lifeline("b1"),
            Lifeline("b2"),
            Lifeline("w1"),
            Lifeline("metadata store", holds=True),
        ),
        moments=(
            Moment(1, "recoverer_starts(w=w2)", "w2", 3),
            Moment(2, "writer_adds_the_entry", "w1", 3),
            Moment(3, "bookie_adds_the_entry(b=b1)", "b1", 3),
            Moment(4, "bookie_is_fenced(b=b2)", "b2", 3),
            Moment(5, "recoverer_times_out(w=w2, b=b1)", "w2", 1),
            Moment(6, "writer_hears_of_an_add(w=w1)", "w1", 2),
        ),
        arrows=(
            Arrow("w2", "metadata store", ("meta.status: OPEN → IN_RECOVERY",), "changed", Point(1, 0), Point(1, 0)),
            Arrow("w2", "b1", ("Fence()",), "timed out", Point(1, 1)),
            Arrow("w2", "b2", ("Fence()",), "received", Point(1, 2), Point(4, 0)),
            Arrow("w1", "b1", ("AddEntry(entry=1)",), "received", Point(2, 1), Point(3, 0)),
            Arrow("w1", "b2", ("AddEntry(entry=1)",), "lost", Point(2, 2)),
            Arrow("b1", "w1", ("Added(entry=1)",), "received", Point(3, 2), Point(6, 0)),
            Arrow("b2", "w2", ("Fenced()",), "lost", Point(4, 2)),
        ),
        notes=(
            Note(("w1",), ("acks.1: added {}",), Point(2, 0)),
            Note(("b1",), ("entries: added 1",), Point(3, 1)),
            Note(("b2",), ("fenced: False → True",), Point(4, 1)),
            Note(("w2",), ("timeout: Fence() to b1 was lost",), Point(5, 0)),
            Note(("w1",), ("committed: 0 → 1", "acks.1: added b1"), Point(6, 1)),
        ),
    )


def test_the_text_for_sequencediagram_org(trace: Trace) -> None:
    assert sequence(trace, "nothing is violated") == "\n".join(
        [
            "participant w2",
            "participant b1",
            "participant b2",
            "participant w1",
            'participant "metadata store" as metadata_store',
            "w2->metadata_store: meta.status: OPEN → IN_RECOVERY",
            "w2--xb1: Fence",
            "note over w1: acks.1: added {}",
            "w1--xb2: AddEntry(entry=1)",
            "w1->b1: AddEntry(entry=1)",
            "note over b1: entries: added 1",
            "w2->b2: Fence",
            "note over b2: fenced: False → True",
            "b2--xw2: Fenced",
            "w2->w2: recoverer_times_out(w=w2, b=b1)\\ntimeout: Fence() to b1 was lost",
            "b1->w1: Added(entry=1)",
            "note over w1: committed: 0 → 1\\nacks.1: added b1",
            "note over w2,metadata_store: nothing is violated",
            "",
        ]
    )


class Whiteboard(Protocol):
    """Names and texts that mean something to sequencediagram.org; a step by nobody; a step that changes nothing."""

    people: tuple[ModelValue, ...] = model_values("p", ["ann", "bob"])
    board: str = state("", held_by="the board")
    copy: str = state("", held_by="the_board")

    @action(by="the teacher")
    def write(self) -> None:
        self.board = "**x** // __y__ <z> \\"

    @action
    def wipe(self) -> None:
        self.board = ""

    @action(p=people)
    def copies(self, p: ModelValue) -> None:
        self.copy = self.board

    @action(p=people)
    def rest(self, p: ModelValue) -> None:
        pass


def test_what_needs_care_in_the_text() -> None:
    written = sequence(follow(Whiteboard(), ["write", "copies(p=ann)", "wipe", "rest(p=bob)"]))
    assert written.splitlines() == [
        'participant "the teacher" as the_teacher',
        "participant ann",
        "participant bob",
        'participant "the board" as the_board_2',
        "participant the_board",
        r"the_teacher->the_board_2: board: '' → '\**x\** \// \__y\__ <z> \\\\'",
        r"ann->the_board: copy: '' → '\**x\** \// \__y\__ <z> \\\\'",
        r"note over the_board_2: wipe\nboard: '\**x\** \// \__y\__ <z> \\\\' → ''",
        r"bob->bob: rest(p=bob)\nnothing changes",
    ]


LINE = re.compile(
    r'participant (?:\w+|"[^"]+" as \w+)'
    r"|(?P<source>\w+)(?:->|-->|--x)(?P<dest>\w+): .+"
    r"|note over (?P<over>\w+(?:,\w+)?): .+"
)


@pytest.mark.parametrize("protocol", [SmallLedger(lossy=True), Post()], ids=["ledger", "post"])
def test_random_behaviours_are_well_formed(protocol: Protocol) -> None:
    for seed in range(8):
        walk = wander(protocol, seed)
        lines = sequence(walk, "the end").splitlines()
        participants = {line.split()[-1] for line in lines if line.startswith("participant")}
        arrows = []
        for line in lines:
            found = LINE.fullmatch(line)
            assert found, line
            named = {found["source"], found["dest"], *(found["over"] or "").split(",")} - {None, ""}
            assert named <= participants
            if found["source"] and found["source"] != found["dest"]:
                arrows.append(line)
        messages = [p for p in passages(walk) if p.source != p.dest]
        changes = [a for a in diagram(walk).arrows if a.fate == "changed"]
        assert len(arrows) == len(messages) + len(changes)
        assert sum("--x" in a for a in arrows) == sum(p.fate in ("lost", "timed out", "dropped") for p in messages)


@pytest.mark.parametrize("protocol", [SmallLedger(lossy=True), Post(), Whiteboard()], ids=["ledger", "post", "board"])
def test_every_arrow_is_drawn_between_its_ends(protocol: Protocol) -> None:
    for seed in range(5):
        model = diagram(wander(protocol, seed))
        picture = draw(model)
        heads, body = ElementTree.fromstring(picture.heads), ElementTree.fromstring(picture.body)
        middles = [float(text.attrib["x"]) for text in heads.iter("text")]
        assert [text.text for text in heads.iter("text")] == [line.name for line in model.lifelines]
        assert middles == sorted(middles)
        x = {line.name: middle for line, middle in zip(model.lifelines, middles, strict=True)}

        drawn = [
            g
            for g in body.iter("g")
            if "arrow" in g.attrib["class"] and (g.find("line") is not None or g.find("path") is not None)
        ]
        assert len(drawn) == len(model.arrows)
        for group, arrow in zip(drawn, model.arrows, strict=True):
            assert group.attrib["data-step"] == str(arrow.leaves.step)
            line = group.find("line")
            if line is None:
                assert arrow.source == arrow.dest
                continue
            assert float(line.attrib["x1"]) == x[arrow.source]
            top, bottom = picture.steps[arrow.leaves.step]
            assert top < float(line.attrib["y1"]) < bottom
            arrived = arrow.arrives is not None or arrow.fate == "sent again"
            assert (abs(float(line.attrib["x2"]) - x[arrow.dest]) <= 1) == arrived
            if arrow.arrives is not None:
                top, bottom = picture.steps[arrow.arrives.step]
                assert top < float(line.attrib["y2"]) < bottom
            assert (group.find("polygon") is not None) == arrived
            crossed = any(path.attrib["class"] == "cross" for path in group.iter("path"))
            assert crossed == (arrow.fate in ("lost", "timed out", "dropped"))
        bands = [picture.steps[m.number] for m in model.moments]
        assert all(before[1] == after[0] for before, after in itertools.pairwise(bands))

        for rect in body.iter("rect"):  # nothing sticks out
            left = float(rect.attrib.get("x", 0))
            assert left >= 0
            assert left + float(rect.attrib["width"]) <= picture.width + 0.5
            assert float(rect.attrib["y"]) + float(rect.attrib["height"]) <= picture.height
        for text in body.iter("text"):
            wide = len("".join(text.itertext())) * 6.65
            start = float(text.attrib["x"])
            if text.attrib.get("text-anchor") == "end":
                start -= wide
            elif text.attrib.get("text-anchor") is None and text.attrib.get("class") != "title":
                start -= wide / 2
            assert -0.5 <= start
            assert start + wide <= picture.width + 0.5


def test_notes_do_not_reach_another_lifeline() -> None:
    for seed in range(5):
        model = diagram(wander(SmallLedger(lossy=True), seed))
        picture = draw(model)
        x = [float(text.attrib["x"]) for text in ElementTree.fromstring(picture.heads).iter("text")]
        for group in ElementTree.fromstring(picture.body).iter("g"):
            rect = group.find("rect") if group.attrib["class"] == "note" else None
            if rect is not None:
                left, right = float(rect.attrib["x"]), float(rect.attrib["x"]) + float(rect.attrib["width"])
                assert sum(left <= middle <= right for middle in x) == 1


def test_the_drawing_stands_alone(trace: Trace) -> None:
    root = ElementTree.fromstring(svg(diagram(trace)))
    assert root.tag == f"{SVG}svg"
    picture = draw(diagram(trace))
    assert root.attrib["viewBox"] == f"0 0 {picture.width} {picture.height + HEAD}"
    assert "prefers-color-scheme: dark" in "".join(style.text or "" for style in root.iter(f"{SVG}style"))
    titles = ["".join(t.itertext()).split()[-1] for t in root.iter(f"{SVG}text") if t.attrib.get("class") == "title"]
    assert titles == [step.title.split()[-1] for step in trace.steps]


class Marked(Protocol):
    text: str = state("")
    limit: int = constant(1)

    @action(by="<b>&")
    def mark(self) -> None:
        self.text = "</svg><script>&'\""

    @invariant
    def unmarked(self) -> bool:
        return not self.text


def test_marks_in_names_and_values_are_only_text() -> None:
    root = ElementTree.fromstring(svg(diagram(follow(Marked(), ["mark"]))))
    assert not list(root.iter(f"{SVG}script"))
    notes = [
        "".join(t.itertext()) for g in root.iter(f"{SVG}g") if g.attrib["class"] == "note" for t in g.iter(f"{SVG}text")
    ]
    assert "".join(notes).replace(" ", "") == """text:''→'</svg><script>&\\'"'"""


class Nobody(Protocol):
    """No actor, no message, nobody who holds anything."""

    count: int = state(0)

    @action
    def tick(self) -> None:
        self.count += 1


def test_a_behaviour_without_steps_and_without_actors() -> None:
    for trace in (follow(Marked(), []), follow(Nobody(), ["tick"])):
        model = diagram(trace)
        assert model.lifelines == ()
        ElementTree.fromstring(svg(model))
        assert sequence(trace) in ("", "\n")
