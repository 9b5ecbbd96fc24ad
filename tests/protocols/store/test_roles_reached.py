"""The simulator's page lists every event and effect of the store's roles, and whether it is explored."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from fencepost import SearchOptions, check
from fencepost.ledger.roles import interface, repair
from fencepost.ledger.roles.bookie import Bookie
from fencepost.ledger.roles.reader import Reader
from fencepost.ledger.roles.recoverer import Recoverer
from fencepost.ledger.roles.writer import Writer
from fencepost.protocols.store.roles import StoreRoles


def listed() -> dict[str, bool]:
    """The events and effects on the page, and whether it calls them explored."""
    page = (Path(__file__).parents[3] / "docs" / "run/simulator.md").read_text()
    section = page[page.index("## What it reaches") :].split("\n## ")[0]
    rows = [line.split("|") for line in section.splitlines() if line.startswith("| `")]
    return {name: row[3].strip() == "yes" for row in rows for name in re.findall(r"`(\w+)`", row[1])}


def kinds() -> set[str]:
    """The names of all events and effects."""
    return {
        name
        for module in (interface, repair)
        for name, kind in vars(module).items()
        if isinstance(kind, type) and issubclass(kind, (interface.Event, interface.Effect))
    } - {"Event", "Effect"}


def test_the_page_has_all_events_and_effects() -> None:
    assert listed().keys() == kinds()


@pytest.mark.campaign
def test_what_the_page_says_is_explored_is(monkeypatch: pytest.MonkeyPatch) -> None:
    explored: set[str] = set()

    def note(kind: type[Any]) -> None:
        receive = kind.receive

        def noted(self: Any, event: interface.Event, now: int) -> list[interface.Effect]:
            effects: list[interface.Effect] = receive(self, event, now)
            explored.update(type(each).__name__ for each in (event, *effects))
            return effects

        monkeypatch.setattr(kind, "receive", noted)

    for kind in (Writer, Recoverer, Reader, Bookie):
        note(kind)
    for name in ("crash", "twice-replaced", "recovered-one-of-two", "recovered-and-replaced", "reader"):
        assert check(StoreRoles.configured(name), options=SearchOptions(workers=1)).holds
    assert explored == {name for name, is_explored in listed().items() if is_explored}
