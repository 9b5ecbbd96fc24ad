"""Fixtures for tests of the recorder."""

from __future__ import annotations

from typing import Any

import pytest
import uvloop
from ledger.bookie.serving import HOW


@pytest.fixture(params=["asyncio", "uvloop"])
def every_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The test is made on asyncio's event loop, and on uvloop's, as a recorder runs in earnest."""
    monkeypatch.setitem(HOW, "loops", None)
    monkeypatch.setitem(HOW, "loop_factory", uvloop.new_event_loop if request.param == "uvloop" else None)
    return request.param


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bookies take one message at a time, and no loops are compiled."""
    monkeypatch.setitem(HOW, "loops", None)
