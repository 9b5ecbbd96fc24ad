"""A search on Spark resumed at any level gives the answer of an uninterrupted search of the embedded engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from campaigns import campaign_if
from checker.engines.compare import by_embedded, disagreement
from checker.engines.test_resume import SPACES, every_save
from spark.test_levels import by_spark

from fencepost import SystemFailure
from fencepost.checker.engines.checkpoint import locked
from fencepost.checker.engines.options import SparkOptions, asked
from fencepost.spark.engine import SparkExecutor

pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.parametrize("name", ["raised", *campaign_if(bool, ["deadlock", "violations"])])
def test_at_every_level_as_without_a_break(name: str, tmp_path: Path) -> None:
    build, options = SPACES[name]
    whole = by_embedded(build(), **options)
    least = {n: by_embedded(build(), **options, max_depth=n) for n in range(1, whole["depth"] + 2)}
    with every_save(SparkExecutor, "_save", tmp_path / "killed") as copies:
        by_spark(build(), **options, checkpoint=tmp_path / "killed")
    assert copies
    for copy in copies:
        assert disagreement(whole, by_spark(build(), **options, resume=copy)) is None, copy.name
    for depth in range(4, whole["depth"]):
        place = tmp_path / f"limited-{depth}"
        at_limit = by_spark(build(), **options, max_depth=depth, checkpoint=place)
        assert disagreement(least[depth], at_limit) is None
        further = by_spark(build(), **options, max_depth=depth + 1, resume=place)
        assert disagreement(least[depth + 1], further) is None, f"from level {depth} to {depth + 1}"
        assert disagreement(whole, by_spark(build(), **options, resume=place)) is None, f"from level {depth} + 1"


def test_what_its_levels_were_asked_stays(tmp_path: Path) -> None:
    build, place = SPACES["deadlock"][0], tmp_path / "saved"
    by_spark(build(), max_depth=5, checkpoint=place)
    for option, why in (("deadlock", "made without deadlock; leave out"), ("bits", "made with bits 64; give bits 64")):
        given: dict[str, Any] = {option: 128 if option == "bits" else True}
        with pytest.raises(SystemFailure, match=why):
            by_spark(build(), resume=place, **given)
    for limit, why in (("max_depth", "levels already"), ("max_states", "states before its last level")):
        with pytest.raises(SystemFailure, match=why):
            by_spark(build(), resume=place, **{limit: 2})
    kept = set(asked(SparkOptions(), []))
    assert kept == {"deadlock", "keep_going", "checking", "bits", "symmetry"}


@pytest.mark.parametrize("url", ["", "file://"])
def test_a_second_search_is_refused(tmp_path: Path, url: str) -> None:
    build, place = SPACES["deadlock"][0], tmp_path / "saved"
    by_spark(build(), max_depth=5, checkpoint=place)
    for option in ("checkpoint", "resume"):
        with locked(SparkOptions(resume=place)), pytest.raises(SystemFailure, match="is in use by another search"):
            by_spark(build(), **{option: f"{url}{place}"})
