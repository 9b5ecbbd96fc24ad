"""The walk alone, without a page."""

from __future__ import annotations

import json

import pytest
from campaigns import campaigns_but_every
from explorer.walks import Coin, Lamp, Ticking

import fencepost
from fencepost import OptionError, SearchOptions
from fencepost.behaviours import to_itf
from fencepost.behaviours.json import behaviour
from fencepost.behaviours.reading import protocol_of, read, replayed
from fencepost.explorer.find import Finding, find_state
from fencepost.explorer.session import Node, Session
from fencepost.explorer.views import BLOCK, _change, view
from fencepost.language.loading import load
from fencepost.report.json import to_json

LIMITS = SearchOptions(workers=1, max_states=50_000)


@pytest.fixture(scope="module")
def defect() -> fencepost.Result:
    small = {"bookies": 2, "write_quorum": 2, "ack_quorum": 2, "recovery_reads_fence": False}
    return fencepost.check(load("bookkeeper-4.13")(**small), workers=1)


def taken(session: Session, *titles: str, way: int = 0) -> Node:
    """The node after the actions of these titles, in their first way to go (the last one in way ``way``)."""
    node = session.starts[0]
    for title in titles:
        (action,) = [a for a in session.enabled(node) if a.title == title]
        node = session.take(node, action.offers[way if title == titles[-1] else 0].move)
    return node


def test_enabled_actions_and_their_ways() -> None:
    session = Session(Lamp())
    start = session.starts[0]
    assert [a.title for a in session.enabled(start)] == ["press(p=p1)", "press(p=p2)"]
    on = taken(session, "press(p=p2)")
    found = {a.title: a for a in session.enabled(on)}
    assert list(found) == ["press(p=p1)", "press(p=p2)", "breaks"]
    assert [o.step.choices for o in found["breaks"].offers] == [(True,), (False,)]
    assert [a.by for a in found.values()] == ["p1", "p2", None]
    assert found["press(p=p1)"].doc == "Press the switch."


def test_a_step_taken_twice_is_one_and_another_is_a_branch() -> None:
    session = Session(Lamp())
    on = taken(session, "press(p=p1)")
    assert taken(session, "press(p=p1)") is on
    broken = taken(session, "press(p=p1)", "breaks")
    off = taken(session, "press(p=p1)", "breaks", way=1)
    assert broken is not off
    assert broken.parent is off.parent is on
    assert [n.number for n in on.end.line] == [n.number for n in off.line]
    session.visit(broken)
    assert on.end is broken
    shown = view(session, broken, broken)
    assert shown["items"][-1]["branches"] == [broken.number, off.number]
    assert shown["items"][1]["branches"] == []


def test_judged_at_every_state() -> None:
    session = Session(Lamp())
    node = taken(session, "press(p=p1)", "breaks", "counts", "counts")
    # The step invariant is broken over the step that breaks the lamp, and only there.
    assert [session.broken(n) for n in node.line] == [
        [],
        [],
        ["never_broken", "once_broken_never_on"],
        [],
        ["can_be_told"],
    ]
    shown = view(session, node, node)
    judged = {one["name"]: one for one in shown["judged"]}
    assert judged["never_broken"]["false"] == [[2, 4]]
    assert judged["once_broken_never_on"]["false"] == [[2, 2]]
    assert "nobody knows" in judged["can_be_told"]["error"]


def test_what_is_to_be_reached_is_told_where_it_is() -> None:
    session = Session(Lamp())
    node = taken(session, "press(p=p1)", "breaks", "counts", "counts")
    (one,) = view(session, node, node)["sought"]
    assert (one["name"], one["doc"], one["here"], one["true"]) == ("is_counted", "Somebody may count.", True, [[3, 4]])
    assert "(p=p1, times=2)" in one["html"].replace("<wbr>", "")
    assert view(session, node, node.line[1])["sought"][0]["here"] is False


def test_expressions_at_every_state() -> None:
    session = Session(Lamp())
    node = taken(session, "press(p=p1)", "breaks", "counts")
    told = {text: session.watch(text, node.line) for text in ("on", "1 // pressed")}
    watched = view(session, node, node.line[1], watched={**told, "endless": "it takes longer"})["watches"]
    assert [(r["from"], r["to"], r["value"], r["false"]) for r in watched[0]["runs"]] == [
        (0, 0, "False", True), (1, 1, "True", False), (2, 3, "False", True)]  # fmt: skip
    assert watched[0]["now"] == "True"
    assert [r["value"] for r in watched[1]["runs"]] == ["(ZeroDivisionError: integer division or modulo by zero)", "1"]
    assert watched[2]["error"] == "it takes longer"
    with pytest.raises(OptionError, match="unknown at column 1"):
        session.watch("nothing", [node])
    with pytest.raises(OptionError, match="Python itself"):
        session.watch("on.__class__", [node])
    assert len(session.watch("'x' * 100_000", [node])[0].text) < 3_000
    assert session.watch("10 ** 5_000", [node])[0].text.startswith("(too large for an expression")


def test_a_constraint_and_an_error_are_told_and_the_walk_goes_on() -> None:
    session = Session(Lamp(faulty=True))
    on = taken(session, "press(p=p1)")
    failing = next(a for a in session.enabled(on) if a.title == "fails")
    assert failing.offers == ()
    assert "this is not for the lamp" in (failing.error or "")
    counted = taken(session, "press(p=p1)", "breaks", "counts", "counts")
    (offer,) = session.enabled(counted)[0].offers
    assert offer.cut == "few"
    assert session.take(counted, offer.move).depth == 5
    number = session.actions.index(next(r for r in session.actions if r.name == "fails"))
    with pytest.raises(fencepost.FencepostError, match="this is not for the lamp"):
        session.take(on, (number, ()))
    shown = view(session, on, on)
    assert any(a["error"] for actor in shown["actors"] for a in actor["actions"])


def test_a_path_is_text() -> None:
    session = Session(Coin())
    heads = next(n for n in session.starts if n.state.variables()["heads"])
    node = session.take(session.take(heads, (0, ())), (0, ()))
    path = session.path(node)
    other = Session(Coin())
    again = other.follow(path)
    assert [s.title for s in other.trace(again).steps] == ["turns", "turns"]
    assert again.state.variables() == node.state.variables()
    assert other.path(again) == path
    for wrong in ("", "7", "x", "0/99", "0/0.1", "0/0.-1", "0/0:ffffff", "1/0/", "0/-1"):
        with pytest.raises(OptionError):
            other.follow(wrong)


def test_a_choice_that_there_is_not() -> None:
    session = Session(Lamp())
    on = taken(session, "press(p=p1)")
    breaks = next(number for number, root in enumerate(session.actions) if root.name == "breaks")
    for choices in ((), (2,), (-1,), (0, 0)):
        with pytest.raises(OptionError, match="cannot be taken like this after step 1"):
            session.take(on, (breaks, choices))
    assert session.take(on, (breaks, (1,))).state.variables()["broken"] is False


def test_a_link_of_other_constants_is_refused() -> None:
    one, other = Session(Lamp()), Session(load("bookkeeper-4.13")())
    with pytest.raises(OptionError, match="another version of the protocol, or with other constants"):
        other.follow(one.path(taken(one, "press(p=p1)")))


@pytest.mark.parametrize("form", ["json", "itf", "kept"])
def test_the_defect_step_by_step(defect: fencepost.Result, form: str) -> None:
    """The walk agrees with the checker: the invariant is true until the last step, and false there."""
    violation = defect.violation
    assert violation is not None
    assert violation.trace is not None
    text = {"json": lambda: to_json(defect), "itf": lambda: to_itf(violation.trace),
            "kept": lambda: json.dumps(behaviour(violation.trace))}[form]()  # fmt: skip
    written = read(text)
    protocol = protocol_of(written, load(written.protocol))
    assert protocol.constants == defect.protocol.constants
    session = Session(protocol)
    node = session.graft(replayed(written, session.stepper))
    assert [n.state.variables() for n in node.line] == [s.variables() for s in violation.trace.states]
    assert [bool(session.broken(n)) for n in node.line] == [False] * len(violation.trace.steps) + [True]
    assert violation.name in session.broken(node)
    assert session.follow(session.path(node)) is node


def test_a_lasso_shows_its_loop() -> None:
    session = Session(Coin())
    node = session.take(session.take(session.starts[0], (0, ())), (0, ()))
    assert session.loop(node) == 0
    assert session.trace(node).loop == 0
    shown = view(session, node, node)
    assert shown["loop"] == 0
    assert shown["again"] == "The same state as the initial one."
    assert "for ever" in shown["diagram"]["body"]
    for text in (json.dumps(behaviour(session.trace(node))), to_itf(session.trace(node))):
        other = Session(Coin())
        assert other.loop(other.graft(replayed(read(text), other.stepper))) == 0


def test_a_lasso_of_a_check_is_read_in_every_form() -> None:
    result = fencepost.check(Lamp(), workers=1, invariants=["shines"])
    violation = result.violation
    assert violation is not None
    assert violation.trace is not None
    for text in (to_json(result), to_itf(violation.trace)):
        session = Session(Lamp())
        node = session.graft(replayed(read(text), session.stepper))
        assert session.loop(node) == violation.trace.loop
        assert session.trace(node).loop == violation.trace.loop
        other = Session(Lamp())
        assert other.loop(other.follow(session.path(node))) == violation.trace.loop


def test_files_that_hold_no_such_behaviour(defect: fencepost.Result) -> None:
    session = Session(defect.protocol)
    for text in ("", "[]", "{}", '{"violation": null}', '{"trace": 3}', '{"states": []}', "\0"):
        with pytest.raises(OptionError):
            read(text)
    document = json.loads(to_json(defect))
    document["violation"]["trace"][3]["state"]["meta"]["version"] = 77
    with pytest.raises(OptionError, match="step 3, "):
        replayed(read(json.dumps(document)), session.stepper)
    with pytest.raises(OptionError, match="initial state"):
        replayed(read(to_json(defect)), Session(Lamp()).stepper)
    document = json.loads(to_json(defect))
    document["violation"]["loop"] = 1
    with pytest.raises(OptionError, match="does not close"):
        replayed(read(json.dumps(document)), session.stepper)


def sought(session: Session, expression: str, start: Node | None = None) -> Finding:
    return find_state(session, expression, start, LIMITS, lambda progress: None)


@pytest.mark.parametrize(
    "expression",
    [
        "self.constants.update(faulty=True)",
        "self.people.clear() or True",
        "self.press(people[0]) or True",
        "self.shapes.clear() or True",
    ],
)
def test_a_search_spoils_nothing_for_the_next(expression: str) -> None:
    session = Session(Lamp())
    before = sought(session, "broken and pressed == 1").said
    assert sought(session, expression).said.startswith("It is never true")
    assert session.protocol.constants == Lamp().constants
    assert sought(session, "broken and pressed == 1").said == before


def titles(session: Session, found: Finding) -> list[str]:
    """The titles of the steps of the path that was found."""
    assert found.path is not None
    number, moves = found.path
    node = session.node(number)
    for move in moves:
        node = session.child(node, move)
    return [n.step.title for n in node.line[1:] if n.step]


def test_find_from_here_and_from_the_start() -> None:
    session = Session(Lamp())
    on = taken(session, "press(p=p1)")
    found = sought(session, "broken and pressed == 1", on)
    assert not found.running
    assert found.said == "Found 2 steps from here: no way is shorter."
    assert titles(session, found) == ["press(p=p1)", "breaks", "counts"]
    assert len(titles(session, sought(session, "broken"))) == 2
    assert sought(session, "not on").said == "It is true in the initial state."
    assert "never true from here: all " in sought(session, "on and broken", on).said
    # What cannot be told is not what is sought.
    assert "never true" in sought(session, "1 / 0").said
    with pytest.raises(OptionError, match="unknown"):
        sought(session, "nowhere")


def test_find_looks_for_a_condition() -> None:
    for expression, said in [("pressed", "the number 0"), ("people", "a tuple"), ("len", "len itself")]:
        found = sought(Session(Lamp()), expression)
        assert found.said.startswith(f"Nothing can be found: the expression is {said}, which is neither true nor false")


def test_find_meets_what_the_protocol_raises() -> None:
    found = sought(Session(Lamp(faulty=True)), "pressed == 2")
    assert found.path is None
    assert "this is not for the lamp" in found.said


def test_find_starts_from_any_initial_state() -> None:
    session = Session(Coin())
    for start in session.starts:
        found = sought(session, f"heads != {start.state.variables()['heads']}", start)
        assert found.path is not None
        assert found.path[0] == start.number
        assert len(found.path[1]) == 1


def test_a_search_is_limited_and_can_be_stopped() -> None:
    session = Session(Ticking())
    limits = SearchOptions(workers=1, max_states=2_000)
    assert "limit of 2,000 states" in find_state(session, "False", None, limits, lambda progress: None).said

    def stop(progress: object) -> None:
        raise KeyboardInterrupt

    assert find_state(session, "False", None, SearchOptions(workers=1), stop).said.startswith("Stopped")


def test_a_long_diagram_is_drawn_in_parts() -> None:
    session = Session(Coin())
    node = session.starts[0]
    for _ in range(200):
        node = session.take(node, (0, ()))
    shown = view(session, node, node.line[100])
    part = shown["diagram"]
    assert part["last"] - part["first"] == 3 * BLOCK
    assert part["first"] < 100 < part["last"]
    assert 'data-step="100"' in part["body"]
    assert 'data-step="10"' not in part["body"]
    again = view(session, node, node.line[99], drawn=part["key"])
    assert again["diagram"] is None


@pytest.mark.parametrize("name", campaigns_but_every(3, fencepost.language.loading.SHIPPED))
def test_every_shipped_protocol_can_be_walked(name: str) -> None:
    """Along the last of what is enabled, each time: every view can be made, and the path leads back to where it was
    made.
    """
    session = Session(load(name)())
    node = session.starts[0]
    for _ in range(6):
        offers = [o for a in session.enabled(node) for o in a.offers if o.step.changes]
        if not offers:
            break
        node = session.take(node, offers[-1].move)
        shown = view(session, node, node, watched={"self": session.watch("self", node.line)})
        labels = [(a["title"], o["label"]) for actor in shown["actors"] for a in actor["actions"] for o in a["offers"]]
        assert len(set(labels)) == len(labels)
        assert shown["state"].count("<section") >= 1
    assert session.follow(session.path(node)) is node


def test_a_lasso_breaks_what_check_says_it_breaks() -> None:
    result = fencepost.check(Lamp(), workers=1, invariants=["shines"])
    assert result.violation is not None
    assert result.violation.trace is not None
    session = Session(Lamp())
    node = session.graft(result.violation.trace)
    assert [(one.name, one.when) for one in session.temporal(node)] == [("shines", "is false all along the loop")]
    # A loop in which the lamp is on does not break it, and of a walk that is no lasso nothing is said.
    on = taken(session, "press(p=p1)")
    loop = session.take(session.take(on, on.move), on.move)
    assert session.loop(loop) == 1
    assert [one.when for one in session.temporal(loop)] == [one.when for one in session.temporal(on)] == [None]


def test_of_a_long_value_the_lines_that_differ_are_marked() -> None:
    assert _change("(\n  1\n  2\n)", "(\n  1\n  <3>\n)") == "(\n  1\n  <del>2</del>\n  <ins>&lt;3&gt;</ins>\n)"
    assert _change("1", "2") == "<del>1</del> → <ins>2</ins>"
    assert _change(None, "2") == "<ins>2</ins>"
