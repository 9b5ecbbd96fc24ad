"""The fate of every message."""

from __future__ import annotations

from collections import Counter

import pytest
from report.behaviours import Parcel, Post, follow, wander
from report.small_ledger import SmallLedger

from fencepost import ModelValue, Network, Protocol, Trace, action, model_values, network
from fencepost.behaviours.formatting import kind_of
from fencepost.behaviours.messages import At, passages
from fencepost.language.values import show


def fates(trace: Trace) -> list[tuple[str, str, str, int, str, int | None]]:
    return [(p.source, p.dest, p.text, p.sent.step, p.fate, p.ended.step if p.ended else None) for p in passages(trace)]


def test_received_lost_and_timed_out() -> None:
    trace = follow(
        SmallLedger(lossy=True),
        [
            ("recoverer_starts(w=w2)", ("lost", "delivered")),
            ("writer_adds_the_entry", ("delivered", "lost")),
            "recoverer_times_out(w=w2, b=b1)",
            ("bookie_is_fenced(b=b2)", ("delivered",)),
        ],
    )
    assert fates(trace) == [
        ("w2", "b1", "Fence()", 1, "timed out", 3),
        ("w2", "b2", "Fence()", 1, "received", 4),
        ("w1", "b1", "AddEntry(entry=1)", 2, "in flight", None),
        ("w1", "b2", "AddEntry(entry=1)", 2, "lost", None),
        ("b2", "w2", "Fenced()", 4, "in flight", None),
    ]


def test_in_flight_from_the_start_sent_again_and_dropped() -> None:
    trace = follow(
        Post(),
        [
            ("send(source=h2, dest=h1)", ("1",)),
            ("send(source=h2, dest=h1)", ("1",)),
            ("send(source=h1, dest=h2)", ("2",)),
            ("receive(dest=h2)", ("h1", "Parcel(number=0)")),
            "cut",
            ("send(source=h1, dest=h1)", ("1",)),
            ("send(source=h1, dest=h2)", ("1",)),
        ],
    )
    assert fates(trace) == [
        ("h1", "h2", "Parcel(number=0)", 0, "received", 4),
        ("h2", "h1", "Parcel(number=1)", 1, "dropped", 5),
        ("h2", "h1", "Parcel(number=1)", 2, "sent again", 2),
        ("h1", "h2", "Parcel(number=2)", 3, "dropped", 5),
        ("h1", "h1", "Parcel(number=1)", 6, "in flight", None),
        ("h1", "h2", "Parcel(number=1)", 7, "lost", None),
    ]


class Copies(Protocol):
    ends: tuple[ModelValue, ...] = model_values("e", 2)
    network: Network = network({Parcel: (ends, ends)}, duplicates=True)

    @action
    def send(self) -> None:
        self.network.send(Parcel(1), *self.ends)

    @action
    def receive(self) -> None:
        self.network.receive(Parcel, to=self.ends[1], source=self.ends[0])


def test_of_equal_messages_the_oldest_is_received() -> None:
    trace = follow(Copies(), ["send", "send", "receive", "send", "receive"])
    assert [(p.sent.step, p.fate, p.ended.step if p.ended else None) for p in passages(trace)] == [
        (1, "received", 3),
        (2, "received", 5),
        (4, "in flight", None),
    ]


@pytest.mark.parametrize(
    "protocol", [SmallLedger(lossy=True), SmallLedger(), Post()], ids=["lossy", "reliable", "post"]
)
def test_every_message_has_one_fate(protocol: Protocol) -> None:
    """Fates are derived from events alone. They must add up to the channels of the last state."""
    for seed in range(12):
        trace = wander(protocol, seed)
        found = passages(trace)
        flying = Counter(p.key for p in found if p.fate == "in flight")
        held: Counter[tuple[str, str, str]] = Counter()
        for slot, value in trace.states[-1].slots():
            if kind_of(protocol, slot) == "in flight":
                source, dest = slot.path[-2:]
                for message in value:
                    held[(show(source), show(dest), show(message))] += 1
        assert flying == held
        received = [p for p in found if p.fate == "received"]
        assert len({(p.ended.step, p.ended.event) for p in received if p.ended}) == len(received)
        assert len(received) == sum(e.kind == "receive" for step in trace.steps for e in step.events)
        assert all(p.sent.step < p.ended.step for p in received if p.ended)
        sends = [
            At(n, i) for n, step in enumerate(trace.steps, 1) for i, e in enumerate(step.events) if e.kind == "send"
        ]
        assert [p.sent for p in found if p.sent.step] == sends
