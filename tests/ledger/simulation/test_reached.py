"""The events and effects of the roles of the ledger store: the simulator reaches all of them."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.ledger.roles import interface, repair
from fencepost.ledger.simulation.case import PROFILES, drawn
from fencepost.ledger.simulation.environment import StoreEnvironment
from fencepost.ledger.simulation.workload import simulate
from fencepost.simulation.trace import SimTrace


def kinds() -> set[str]:
    """The names of all events and effects."""
    return {
        name
        for module in (interface, repair)
        for name, kind in vars(module).items()
        if isinstance(kind, type) and issubclass(kind, (interface.Event, interface.Effect))
    } - {"Event", "Effect"}


@pytest.mark.campaign
def test_the_simulator_reaches_all(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: set[str] = set()
    receive = StoreEnvironment.receive

    def noted(self: StoreEnvironment, who: str, role: Any, event: interface.Event) -> list[interface.Effect]:
        effects = receive(self, who, role, event)
        reached.update(type(each).__name__ for each in (event, *effects))
        return effects

    monkeypatch.setattr(StoreEnvironment, "receive", noted)
    for profile in PROFILES:
        for seed in range(1, 25):
            simulate(drawn(seed, profile), trace=SimTrace(lambda *event: None))
            if kinds() <= reached:
                return
    assert kinds() <= reached
