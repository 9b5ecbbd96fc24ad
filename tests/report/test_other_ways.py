"""What a rejection says of the other ways to get as far as it got."""

from __future__ import annotations

from fencepost.report import validation
from fencepost.traces.validation.outcome import Alternative, Outcome


def refusal(reason: str) -> list[Alternative]:
    return [Alternative("n", 1, 1, "acts", "acts()", reason, "", "")]


def test_the_same_refusals_are_told_once() -> None:
    others = [refusal("this"), refusal("that"), refusal("that"), refusal("this")]
    outcome = Outcome("r", "s", False, refusals=refusal("this"), other_fronts=others, more_fronts=2)
    text = validation.text([outcome], "validate", 1.0)
    assert (text.count("this"), text.count("that"), text.count("In another way")) == (1, 1, 1)
    assert "Nor can any in 5 other ways to get so far." in text
