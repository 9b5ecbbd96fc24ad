"""Fixtures for tests of the recorder."""

from __future__ import annotations

import pytest
from ledger.bookie import serving


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bookies take one message at a time, and no loops are compiled."""
    monkeypatch.setattr(serving, "LOOPS", None)
