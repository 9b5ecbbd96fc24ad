"""A cluster of stand-ins. The tests choose whether the loops of the client are loaded."""

from __future__ import annotations

import pytest
from ledger.client.standins import Cluster

from fencepost.ledger.client.loops import LOOPS


@pytest.fixture(autouse=True)
def _loops_as_the_test_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use no loops, and load none in the meantime."""
    monkeypatch.setattr(LOOPS, "module", None)
    monkeypatch.setattr(LOOPS, "carried", lambda entries: None)


@pytest.fixture
def cluster() -> Cluster:
    """Three bookies, and a metadata service."""
    return Cluster(3)
