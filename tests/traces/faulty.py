"""Runs of a store with a fault that only its trace shows."""

from __future__ import annotations

from typing import Any

import pytest
from ledger.simulation.test_planted import Planted, plant
from traces.traced import run

from fencepost.ledger.disk.ledger_store import LedgerStore
from fencepost.ledger.roles import bookie, recoverer
from fencepost.ledger.rules import adding, recovery
from fencepost.ledger.rules import metadata as life
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.simulation.case import Case
from fencepost.ledger.simulation.judge import Judge, Violation
from fencepost.traces.validation.conformance import Event

_JUDGES = (
    "acknowledged",
    "answered",
    "knows",
    "restarted",
    "metadata_written",
    "read",
    "learnt_lac",
    "missing",
    "ended",
    "past_end",
)


def without_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run continues whatever the judge of the simulator finds, so only its trace shows the fault."""
    for name in _JUDGES:
        original = getattr(Judge, name)

        def silent(*arguments: Any, original: Any = original) -> None:
            try:
                original(*arguments)
            except Violation:
                return

        monkeypatch.setattr(Judge, name, silent)


def faulty(case: Case, fault: Planted | None = None) -> list[Event]:
    """The trace of a case, perhaps with a fault in a role. The fault is removed afterwards, because the protocol uses
    the same rules.
    """
    with pytest.MonkeyPatch.context() as monkeypatch:
        without_judge(monkeypatch)
        if fault is not None:
            plant(fault, monkeypatch)
        return run(case)[1]


def _leaves_limbo_at_once(original: Any, self: Any, event: Any, effects: list[Any]) -> None:
    original(self, event, effects)
    if event.operation == "enter limbo":
        self.ledgers[event.arguments[0]].limbo = False


def _lacks_entry_1(original: Any, self: Any, ledger: int, entry_id: int, ahead: bool = True) -> Any:
    return (Code.NO_ENTRY, entry_id, None) if entry_id == 1 else original(self, ledger, entry_id, ahead)


MORE = [
    Planted("entries carry a LAC that is one too high", adding, "lac_of_owner", lambda f, confirmed, *a: confirmed + 1),
    Planted(
        "recovery reads do not ask to be fenced",
        recoverer.Recoverer,
        "_send",
        lambda f, self, b, entry, fence, effects: f(self, b, entry, fence and entry < 0, effects),
    ),
    Planted("a ledger leaves limbo at once", bookie.Bookie, "_called", _leaves_limbo_at_once),
    Planted("a bookie denies an entry that it has", LedgerStore, "look_up", _lacks_entry_1),
    Planted(
        "a recovery closes the ledger on a newer version",
        life,
        "to_close_recovered",
        lambda f, status, own, *a: f(status, True, *a),
    ),
    Planted("a client forgets that its write may yet come", life, "is_stable", lambda f, *a: True),
    Planted(
        "recovery tells the LAC that it has come to",
        recovery,
        "lac_to_carry",
        lambda f, began, confirmed, *a: max(began, confirmed),
    ),
    Planted(
        "a ledger is closed one entry beyond its LAC",
        life,
        "closed",
        lambda f, metadata, last, *a: f(metadata, last + 1, *a),
    ),
]
"""Faults that the judge of the simulator may not notice, in addition to those planted for it."""
