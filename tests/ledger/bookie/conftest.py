"""Fixtures for tests of the server."""

from __future__ import annotations

import patience
import pytest
import uvloop
from ledger.bookie import serving

from fencepost.ledger.kernels import bookie as loops


@pytest.fixture(params=["rows", "plain", "uvloop"])
def every_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test with compiled loops, without them, and on uvloop, as real bookies run."""
    monkeypatch.setattr(serving, "LOOPS", None if request.param == "plain" else loops)
    monkeypatch.setattr(patience, "LOOP_FACTORY", uvloop.new_event_loop if request.param == "uvloop" else None)
