"""The tests of ledgers and connections again, with the compiled loops."""

from __future__ import annotations

import importlib

import pytest
from ledger.client.test_client_connections import *  # noqa: F403
from ledger.client.test_ledgers import *  # noqa: F403

from fencepost.ledger.client.loops import LOOPS


@pytest.fixture(autouse=True)
def _by_rows(_loops_as_the_test_chooses: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LOOPS, "module", importlib.import_module("fencepost.ledger.kernels.client"))
