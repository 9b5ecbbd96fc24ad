"""One state as cards: which process holds what, what changed, and nothing left out."""

from __future__ import annotations

from report.behaviours import Post, follow

from fencepost import Protocol, action, model_values, per_key, state
from fencepost.behaviours import Trace
from fencepost.behaviours.replay import taken
from fencepost.language.loading import load
from fencepost.report.cards import SHARED, cards
from fencepost.report.diagram import diagram
from fencepost.report.svg import draw
from fencepost.semantics import Stepper


class Office(Protocol):
    """Something held by each, by one, and by nobody."""

    clerks = model_values("k", 2)
    desk = per_key(clerks, 0)
    tray = per_key(clerks, frozenset())
    safe: int = state(0, held_by="k2")
    clock: int = state(0)

    @action(k=clerks)
    def works(self, k: object) -> None:
        self.desk[k] += 1
        self.clock += 1


def test_everybody_has_one_card() -> None:
    stepper = Stepper(Office())
    (before,) = stepper.initial_states()
    (root, _) = stepper.of_kind("action")
    (outcome,) = stepper.outcomes(root, before.ids)
    after = taken(stepper, before, root, outcome).state
    found = {card.name: {row.label: row for row in card.rows} for card in cards(after, before)}
    assert {name: list(rows) for name, rows in found.items()} == {
        "k1": ["desk", "tray"],
        "k2": ["desk", "tray", "safe"],
        SHARED: ["clock"],
    }
    assert [(r.text, r.before) for rows in found.values() for r in rows.values() if r.changed] == [
        ("1", "0"),
        ("1", "0"),
    ]
    assert not any(row.changed for card in cards(before) for row in card.rows)


def test_a_network_has_a_card_of_its_own_and_what_is_gone_is_told() -> None:
    trace = follow(Post(), [("send(source=h1, dest=h2)", ("2",)), "cut"])
    last = cards(trace.states[-1], trace.states[-2])
    assert last[-1].network
    assert [row.text for row in last[-1].rows if row.changed] == [None, "cut"]  # cutting drops what is in flight
    assert last[-1].rows[0].before == "in flight: Parcel(number=0), Parcel(number=2)"


def test_the_cards_of_a_ledger() -> None:
    stepper = Stepper(load("bookkeeper-4.13")())
    found = cards(stepper.initial_states()[0])
    assert [card.name for card in found] == ["zk", "b1", "b2", "b3", "w1", "w2"]
    assert [row.label for row in found[1].rows] == ["entries", "fenced", "lac"]


def test_the_rest_of_a_behaviour_keeps_its_numbers() -> None:
    whole = follow(Post(), [("send(source=h1, dest=h2)", ("2",)), "cut", "heal"])
    rest = Trace(whole.protocol, whole.states[1], whole.steps[1:])
    drawn = diagram(rest, 1)
    assert [m.number for m in drawn.moments] == [1, 2, 3]
    assert drawn.moments[0].title == "in flight after step 1"
    assert "sent before step 2" in draw(drawn).body
    assert "in flight from the start" not in draw(drawn).body
    assert {p.step for a in drawn.arrows for p in (a.leaves,)} >= {1}
    assert diagram(whole, 0) == diagram(whole)
