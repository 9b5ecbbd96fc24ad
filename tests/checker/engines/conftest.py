"""What holds for the tests of all engines."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checking mode compares the first states with those of processes with other hash seeds, which `cli/test_checking`
    is about.
    """
    monkeypatch.setattr("fencepost.checker.engines.hashseeds.SEEDS", ())
    monkeypatch.setattr("fencepost.checker.engines.hashseeds.STATES", 5)
