"""Fixtures for tests of the server."""

from __future__ import annotations

from typing import Any

import pytest
import uvloop
from ledger.bookie.serving import HOW

from fencepost.ledger.kernels import bookie as loops


@pytest.fixture(params=["rows", "plain", "uvloop"])
def every_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the test with compiled loops, without them, and on uvloop, as real bookies run."""
    monkeypatch.setitem(HOW, "loops", None if request.param == "plain" else loops)
    monkeypatch.setitem(HOW, "loop_factory", uvloop.new_event_loop if request.param == "uvloop" else None)
    return request.param
