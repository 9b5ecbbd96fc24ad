"""Holds what a recorder has seen to the checked protocol, as ``fencepost validate --protocol store`` does."""

from __future__ import annotations

from pathlib import Path

from fencepost.traces import read
from fencepost.traces.validation import registry
from fencepost.traces.validation.outcome import Outcome, judged
from fencepost.traces.validation.traces import Traces
from fencepost.traces.validation.validate import Validator


def verdicts(folder: Path) -> dict[int, Outcome]:
    """The verdict on each ledger of a recording."""
    traces, validator = Traces(read([str(folder)])), Validator(registry.shipped("store"))
    return {
        int(subject): judged(validator, run, subject, lambda name=(run, subject): traces.events(name))  # type: ignore[misc]
        for run, subject in traces.names()
        if subject
    }


def told(outcome: Outcome) -> str:
    """A verdict in a few lines: what is refused, and by which line."""
    if outcome.accepted:
        return f"accepted, {outcome.steps} steps"
    refused = [
        f"{each.step}  (event {each.seq})\n    {each.reason}, {each.where}: {each.asked}" for each in outcome.refusals
    ]
    return (
        f"{outcome.verdict} after {outcome.taken} of {outcome.steps}"
        f" steps{': ' if outcome.problem else ''}{outcome.problem}\n  " + "\n  ".join(refused)
    )
