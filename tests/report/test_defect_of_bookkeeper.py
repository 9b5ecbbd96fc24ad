"""The data loss of the BookKeeper 4.13 protocol in every output format: the behaviour that its authors drew by hand."""

from __future__ import annotations

import json

import pytest
from report.behaviours import follow

from fencepost import Result, Trace, Violation
from fencepost.behaviours import evaluate, to_itf
from fencepost.protocols.bookkeeper.v4_13 import BookKeeper413
from fencepost.report.html import html
from fencepost.report.json import to_json
from fencepost.report.sequence import sequence
from fencepost.report.text import story

DELIVERED, LOST = "delivered", "lost"


@pytest.fixture(scope="module")
def trace() -> Trace:
    """Two bookies are fenced, and the fence of the third is lost. It answers the read with no entry, and then takes the
    entry.
    """
    return follow(
        BookKeeper413(),
        [
            "w1_creates_ledger",
            ("w2_place_in_recovery", (DELIVERED, DELIVERED, LOST)),
            ("w1_sends_add_entry_requests", (LOST, DELIVERED, DELIVERED)),
            ("bookie_sends_fencing_read_lac_response(b=b1)", (DELIVERED,)),
            "w2_receives_fencing_read_lac_response(b=b1)",
            ("bookie_sends_add_confirmed_response(b=b2, w=w1)", (DELIVERED,)),
            ("bookie_sends_fencing_read_lac_response(b=b2)", (DELIVERED,)),
            "w2_receives_fencing_read_lac_response(b=b2)",
            "w1_receives_add_confirmed_response(b=b2)",
            ("w2_sends_read_requests", (DELIVERED, DELIVERED, DELIVERED)),
            ("bookie_sends_read_response(b=b1)", (DELIVERED,)),
            ("bookie_sends_read_response(b=b3)", (DELIVERED,)),
            "w2_receives_non_final_read(b=b1)",
            "w2_receives_non_final_read(b=b3)",
            ("bookie_sends_read_response(b=b2)", (DELIVERED,)),
            "w2_completes_read_with_no_such_entry(b=b2)",
            ("bookie_sends_add_confirmed_response(b=b3, w=w1)", (DELIVERED,)),
            "w2_closes_ledger",
            "w1_receives_add_confirmed_response(b=b3)",
        ],
    )


@pytest.fixture(scope="module")
def result(trace: Trace) -> Result:
    found = Violation("invariant", "no_divergence_between_writer_and_meta_data", trace)
    return Result(trace.protocol, "reference", False, 9, 9, len(trace), 1, 1.0, 1 << 20, [], [found])


def test_it_is_a_violation_of_twenty_states(trace: Trace) -> None:
    """The shortest has 20 states, as TLC says; this one is as short."""
    assert len(trace) == 20
    held = evaluate("self.no_divergence_between_writer_and_meta_data()", trace)
    assert [e.value for e in held] == [True] * 19 + [False]


def test_the_sequence_diagram(trace: Trace) -> None:
    """The messages in the order of the diagram in the published readme: sender, receiver, and whether it is lost."""
    told = sequence(trace)
    assert [line for line in told.splitlines() if line.startswith("participant")] == [
        f"participant {name}" for name in ("w1", "w2", "b1", "b2", "b3", "zk")
    ]
    arrows = [line for line in told.splitlines() if not line.startswith(("participant", "note"))]
    assert [line.partition("(")[0].partition(r"\n")[0] for line in arrows] == [
        "w1->zk: meta.status: None → OPEN",
        "w2->zk: meta.status: OPEN → IN_RECOVERY",
        "w2--xb3: FenceRequest",
        "w1--xb1: AddEntryRequest",
        "w2->b1: FenceRequest",
        "b1->w2: FenceResponse",
        "w1->b2: AddEntryRequest",
        "w2->b2: FenceRequest",
        "b2->w2: FenceResponse",
        "b2->w1: AddEntryResponse",
        "w2->b1: ReadRequest",
        "w2->b3: ReadRequest",
        "b1->w2: ReadResponse",
        "b3->w2: ReadResponse",
        "w2->b2: ReadRequest",
        "b2->w2: ReadResponse",
        "w1->b3: AddEntryRequest",
        "w2->zk: meta.status: IN_RECOVERY → CLOSED",
        "b3->w1: AddEntryResponse",
    ]


def test_the_story(result: Result) -> None:
    told = story(result, width=80).splitlines()
    assert max(map(len, told)) <= 80
    start = told.index("no_divergence_between_writer_and_meta_data is false; it looked at:")
    assert told[start + 1 : start + 4] == [
        "    meta.status      CLOSED",
        "    w1.lac           1",
        "    meta.last_entry  0",
    ]
    assert " 17  b3  bookie_sends_add_confirmed_response(b=b3, w=w1)" in told
    assert "         lost      w2 → b3  FenceRequest" in told
    # Some do not fit with the names of all fields, so all are shown without those of entries. With enough room, none
    # is.
    assert "         lost      w1 → b1  AddEntryRequest(entry=Entry(1, 1), lac=0)" in told
    wide = story(result, width=120).splitlines()
    assert "         lost      w1 → b1  AddEntryRequest(entry=Entry(id=1, data=1), lac=0)" in wide


def test_every_other_writer(result: Result, trace: Trace) -> None:
    assert [s["action"] for s in json.loads(to_json(result))["violation"]["trace"]][1:] == [
        s.action for s in trace.steps
    ]
    last = json.loads(to_itf(trace))["states"][-1]
    assert last["meta"]["status"] == "CLOSED"
    assert last["meta"]["last_entry"] == {"#bigint": "0"}
    assert last["w1"]["lac"] == {"#bigint": "1"}
    page = html(result)
    assert len(page) < 200_000
    sent = sum(event.kind == "send" for step in trace.steps for event in step.events)
    # Three changes of the metadata are arrows too; the lines of an arrow are one group, its text another.
    assert page.count('<g class="arrow') == 2 * (sent + 3)
