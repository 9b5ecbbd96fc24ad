"""The simulator's page lists every event and effect of the store's roles, and whether it is explored, which
`test_store_roles.py` tests.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ledger.simulation.test_reached import kinds

from fencepost.ledger.roles import interface
from fencepost.ledger.roles.bookie import Bookie
from fencepost.ledger.roles.reader import Reader
from fencepost.ledger.roles.recoverer import Recoverer
from fencepost.ledger.roles.writer import Writer


def listed() -> dict[str, bool]:
    """The events and effects on the page, and whether it calls them explored."""
    page = (Path(__file__).parents[3] / "docs" / "run/simulator.md").read_text()
    section = page[page.index("## What it reaches") :].split("\n## ")[0]
    rows = [line.split("|") for line in section.splitlines() if line.startswith("| `")]
    return {name: row[3].strip() == "yes" for row in rows for name in re.findall(r"`(\w+)`", row[1])}


@contextlib.contextmanager
def noted(names: set[str]) -> Iterator[None]:
    """Add the names of all events and effects of roles that run meanwhile."""
    with pytest.MonkeyPatch.context() as patched:
        for kind in (Writer, Recoverer, Reader, Bookie):
            patched.setattr(kind, "receive", _noting(kind.receive, names))
        yield


def _noting(receive: Callable[..., list[interface.Effect]], names: set[str]) -> Callable[..., list[interface.Effect]]:
    def noting(self: Any, event: interface.Event, now: int) -> list[interface.Effect]:
        effects = receive(self, event, now)
        names.update(type(each).__name__ for each in (event, *effects))
        return effects

    return noting


def test_the_page_has_all_events_and_effects() -> None:
    assert listed().keys() == kinds()
