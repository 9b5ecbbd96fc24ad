"""Fixtures for the tests of all engines."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn off the comparison with processes of other hash seeds in checking mode. `cli/test_checking` tests it."""
    monkeypatch.setattr("fencepost.checker.engines.hashseeds.SEEDS", ())
    monkeypatch.setattr("fencepost.checker.engines.hashseeds.STATES", 5)
