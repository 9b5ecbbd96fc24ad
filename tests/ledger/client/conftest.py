"""Whether the client's loops are loaded is a test's choice."""

from __future__ import annotations

import pytest

from fencepost.ledger.client.loops import LOOPS


@pytest.fixture(autouse=True)
def _loops_as_the_test_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    """No loops, and none are loaded meanwhile."""
    monkeypatch.setattr(LOOPS, "module", None)
    monkeypatch.setattr(LOOPS, "carried", lambda entries: None)
