"""Expressions along a behaviour, against the same question asked of the states themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from report.behaviours import Post, follow, wander
from report.small_ledger import SmallLedger, Status

from fencepost import Map, ModelValue, OptionError, Trace
from fencepost.spec.values import Set
from fencepost.trace import Evaluated, evaluate

B1, B2 = ModelValue("b1", 0), ModelValue("b2", 1)


@pytest.fixture(scope="module")
def trace() -> Trace:
    return follow(
        SmallLedger(),
        [
            "recoverer_starts(w=w2)",
            "writer_adds_the_entry",
            "bookie_is_fenced(b=b1)",
            "bookie_adds_the_entry(b=b2)",
            "writer_hears_of_an_add(w=w1)",
        ],
    )


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("committed", lambda s: s["committed"]),
        ("bookie[b1].fenced", lambda s: s["bookie"][B1].fenced),
        ("bookie", lambda s: s["bookie"]),
        ("recovery", lambda s: s["recovery"]),
        ("acks", lambda s: s["acks"]),
        ("network", lambda s: s["network"]),
        ("meta.status is Status.OPEN", lambda s: s["meta"].status is Status.OPEN),
        ("[b for b in bookies if bookie[b].entries]", lambda s: tuple(b for b in (B1, B2) if s["bookie"][b].entries)),
        (
            "{b: len(bookie[b].entries) for b in bookies}",
            lambda s: Map({b: len(s["bookie"][b].entries) for b in (B1, B2)}),
        ),
        ("{b2} & {b for b in bookies}", lambda s: Set({B2})),
        (
            "sum(1 for b in bookie if bookie[b].fenced) >= ack_quorum",
            lambda s: any(x.fenced for x in s["bookie"].values()),
        ),
        ("self.no_committed_entry_is_lost()", lambda s: True),
        ("(lambda n: n + committed)(1)", lambda s: 1 + s["committed"]),
        ("(x := committed) + x", lambda s: 2 * s["committed"]),
        ("  committed\n + 1 ", lambda s: s["committed"] + 1),
        ("range(committed + 1)", lambda s: tuple(range(s["committed"] + 1))),
        (
            "AddEntry(1) in network.in_flight(AddEntry, writer[0], b1)",
            lambda s: ("AddEntry", ModelValue("w1"), B1) in s["network"],
        ),
    ],
)
def test_the_value_in_every_state(trace: Trace, expression: str, expected: Callable[[Mapping[str, Any]], Any]) -> None:
    wanted = [Evaluated(expected(state.variables())) for state in trace.states]
    found = evaluate(expression, trace)
    assert found == wanted
    assert [type(e.value) for e in found] == [type(e.value) for e in wanted]


def test_every_variable_of_random_behaviours() -> None:
    for protocol in (SmallLedger(lossy=True), Post()):
        walk = wander(protocol, seed=1)
        for name in protocol.shapes:
            assert [e.value for e in evaluate(name, walk)] == [state.variables()[name] for state in walk.states]


def test_an_error_in_one_state_is_told_there(trace: Trace) -> None:
    found = evaluate("acks[1]", trace)
    assert [e.error is None for e in found] == [False, False, True, True, True, True]
    assert str(found[0]) == "(KeyError: '1 is not in acks')"
    assert str(found[-1]) == "{b2}"
    assert evaluate("1 // committed", trace)[0].error == "ZeroDivisionError: integer division or modulo by zero"


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("network.send(AddEntry(9), writer[0], b1)", "not a value: nothing can be sent here"),
        (
            "self.network.forget_lost(AddEntry, writer[0], b1) or [0 for bookie[b1].fenced in [True]]",
            "not a value: bookie.b1.fenced",
        ),
        ("bookie[b1].__setattr__('fenced', True)", None),
        ("(b for b in bookies).gi_frame", None),
        ("object", None),
        ("(b for b in bookies)", "not a value: a generator"),
        ("len", "not a value"),
        ("require(False)", "require(...) was not satisfied"),
    ],
)
def test_an_expression_only_looks(trace: Trace, expression: str, error: str | None) -> None:
    if error is None:
        with pytest.raises(OptionError):
            evaluate(expression, trace)
        return
    before = [state.variables() for state in trace.states]
    for found in evaluate(expression, trace):
        assert found.error is not None
        assert found.error.startswith(error)
    assert [state.variables() for state in trace.states] == before


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("", "an expression is needed, for example: meta"),
        ("   ", "an expression is needed, for example: meta"),
        ("committed +", "can not be read at column 12: something is missing at its end"),
        ("  committed 1", "can not be read at column 13: "),
        ("a = 3", "can not be read at column 3: "),
        ("import os", "can not be read at column 1: "),
        ("bookee[b1]", "something unknown at column 1, bookee: did you mean bookie?"),
        ("1 + open('x')", "something unknown at column 5, open"),
        ("  1 + eval('1')", "something unknown at column 7, eval"),
        ("__import__('os')", "something unknown at column 1, __import__"),
        ("enum", "something unknown at column 1, enum"),
        ("(" * 300 + ")" * 300, "can not be read at column "),
    ],
)
def test_what_can_not_be_evaluated_names_the_column(trace: Trace, expression: str, told: str) -> None:
    with pytest.raises(OptionError) as raised:
        evaluate(expression, trace)
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)
