"""Driving the roles of the store on Spark gives the result of one process: every transition, and the same sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fencepost import Options, check
from fencepost.ledger.rules.protections import ALL
from fencepost.protocols.store.store import Store
from fencepost.spark import driving
from fencepost.spark import driving_store as on_spark
from fencepost.testing.store import table
from fencepost.testing.walk import DriveResult

CONSTANTS: dict[str, Any] = {
    "bookies": 1,
    "write_quorum": 1,
    "ack_quorum": 1,
    "message_loss": False,
    "metadata_lags": False,
    "send_limit": 2,
    "inflight_limit": 2,
}


def counted(found: DriveResult) -> Any:
    """The counts that do not depend on which process drives what."""
    return (
        found.covered,
        found.skipped,
        found.kinds,
        found.failed,
        found.unreached,
        found.beyond,
        [each.way for each in found.found],
    )


@pytest.mark.campaign
@pytest.mark.parametrize("off", [(), ("fenced_bookies_refuse",)], ids=str)
def test_every_transition(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, off: tuple[str, ...]) -> None:
    check(Store(**CONSTANTS), states=tmp_path / "states", edges=True, options=Options(workers=1))
    monkeypatch.setattr(driving, "MOST_TOP", 50)
    monkeypatch.setattr(driving, "TASK_EDGES", 500)
    protections, space = ALL.replace(**dict.fromkeys(off, False)), table.opened(str(tmp_path / "states"))
    here, there = table.every_transition(space, protections), on_spark.every_transition(spark, space, protections)
    assert counted(here) == counted(there)
    assert bool(here.differing) is bool(off)
    assert here.covered.total() + here.differing + here.beyond == space.manifest.edges


@pytest.mark.campaign
def test_a_sample(spark: Any, tmp_path: Path) -> None:
    check(Store(**CONSTANTS), states=tmp_path / "states", options=Options(workers=1))
    space = table.opened(str(tmp_path / "states"))
    assert counted(table.sample(space, 30, 5)) == counted(on_spark.sample(spark, space, 30, 5))
