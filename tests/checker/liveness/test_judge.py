"""The liveness judge against a second formulation, on random small graphs."""

from __future__ import annotations

import pytest
from campaigns import THOROUGH
from checker.liveness.graphs import Small, fair_loop, graphs, protocol, stems
from hypothesis import given, settings

from fencepost import check

KINDS = ("always_eventually", "eventually_always", "leads_to")


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20_000 if THOROUGH else 100)
@given(small=graphs())
def test_agrees_with_looking_at_every_set_of_states(kind: str, small: Small) -> None:
    expected = stems(small, kind)
    result = check(protocol(small, kind), engine="reference")
    assert result.complete
    assert [v.name for v in result.violations] == ["expected"][: len(expected)]
    if not expected:
        assert result.holds is (not small.starts <= small.outside), "no property holds of a protocol without states"
        return
    trace = result.must_violate("expected")
    states = [s.variables()["at"] for s in trace.states]
    loop = trace.loop
    assert loop == min(expected)
    assert states[loop] == states[-1] and fair_loop(small, states[loop:])
    assert states[0] in small.starts and not small.outside & set(states)
    if kind == "always_eventually":
        assert not small.p & set(states[loop:])
    elif kind == "eventually_always":
        assert not small.p >= set(states[loop:])
    else:
        assert any(s in small.p and not small.q & {*states[i:], *states[loop:]} for i, s in enumerate(states))
    assert [s.action for s in trace.steps] == [
        next(n for n in "abc" if (x, y) in small.steps[n]) for x, y in zip(states, states[1:], strict=False)
    ]
