"""The store as it runs, within small bounds: what must hold does, and each protection is needed for it."""

from __future__ import annotations

import pytest

from fencepost import Options, check
from fencepost.store.checked.running import RunningStore
from fencepost.store.checked.store import SWITCHES

HOLDS = sorted(name for name, each in RunningStore.configurations.items() if each.expect == "holds")
VIOLATED = sorted(name for name, each in RunningStore.configurations.items() if each.expect != "holds")


@pytest.mark.parametrize("name", HOLDS)
def test_it_holds(name: str) -> None:
    configuration = RunningStore.configurations[name]
    result = check(RunningStore(**configuration.constants), options=Options(workers=1)).must_hold()
    assert result.distinct_states > 100
    assert result.complete


@pytest.mark.parametrize("name", VIOLATED)
def test_without_a_protection_it_does_not(name: str) -> None:
    configuration = RunningStore.configurations[name]
    check(RunningStore(**configuration.constants), options=Options(workers=1)).must_violate(configuration.expect)


def test_every_protection_is_needed_but_one() -> None:
    """That a recovery tells the LAC that it began with shows only in what readers believe, of whom there are none here: see test_dirty_reads."""
    off = {
        switch
        for name in VIOLATED
        for switch in SWITCHES
        if RunningStore.configurations[name].constants.get(switch) is False
    }
    assert {*SWITCHES} - off == {"recovery_freezes_lac"}
