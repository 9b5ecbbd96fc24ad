"""Refinement on Spark: the reference engine's answer, and resumed searches that know what was planned next."""

from __future__ import annotations

from pathlib import Path

import pytest
from checker.engines.compare import by_embedded, by_reference, disagreement
from checker.engines.random_refinements import seeded
from checker.engines.test_refinement import SMALL, Computed, Digits
from spark.test_levels import by_spark

pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.parametrize("seed", [1, 4, 28, 62])
def test_agrees_on_random_pairs(seed: int) -> None:
    pair = seeded(seed)
    found = disagreement(by_reference(pair.build(), keep_going=True), by_spark(pair.build(), keep_going=True))
    assert found is None, f"{found}\n{pair!r}"


def test_the_same_counterexample() -> None:
    assert by_spark(Digits(most=25)) == by_embedded(Digits(most=25))


def test_a_resumed_search_reads_in_the_same_order(tmp_path: Path) -> None:
    by_spark(Computed(**SMALL), handover=20, max_depth=14, checkpoint=tmp_path / "saved")
    resumed = by_spark(Computed(**SMALL), handover=20, max_depth=18, resume=tmp_path / "saved")
    assert disagreement(by_embedded(Computed(**SMALL), max_depth=18), resumed) is None
