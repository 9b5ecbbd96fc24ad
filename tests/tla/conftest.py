"""Fixtures for tests of TLA+."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fencepost.tla import layout


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets how many evaluations there are before the layout is chosen, so that members appear during the search. Sets
    and maps are taken apart.
    """

    def look(most: int) -> None:
        monkeypatch.setattr(layout, "FIRST_LOOK", most)
        monkeypatch.setattr(layout, "NEAR", max(2, most // 20))
        monkeypatch.setattr(layout, "FEW", 0)

    return look
