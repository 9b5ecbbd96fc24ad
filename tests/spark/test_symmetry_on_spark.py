"""Symmetry on Spark: the reference engine's orbits, verdicts and counterexamples, in many small tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from campaigns import campaign_if
from checker.engines import brute
from checker.engines.compare import by_embedded, by_reference, disagreement
from checker.engines.symmetric_protocols import symmetric
from checker.engines.test_symmetry import Picking, Shop, orbits
from spark.test_levels import by_spark

from fencepost import ModelValue, PerKey, Protocol, action, check, invariant, model_values, per_key, require, state
from fencepost.checker.engines.options import SparkOptions
from fencepost.language.loading import shipped
from fencepost.semantics import Stepper, symmetry
from fencepost.spark import engine

pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.parametrize("seed", [11, 13, 27, 58, *campaign_if(bool, range(100, 120))])
@pytest.mark.parametrize("most", [720, 1])
def test_agrees_on_random_protocols(seed: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By comparing all permutations, and by canonical labellings."""
    monkeypatch.setattr(symmetry, "MAX_PERMUTATIONS", most)
    protocol = symmetric(seed).build()
    space = brute.explore(protocol, keep_going=True, deadlock=True, max_depth=5, cap=100)
    asked: dict[str, Any] = {
        "symmetry": True,
        "keep_going": True,
        "deadlock": True,
        "max_depth": None if space.complete else space.depth,
        "bits": (64, 128)[seed % 2],
    }
    got = by_spark(protocol, **asked)
    assert disagreement(by_reference(protocol, **asked), got) is None
    assert got["distinct"] == orbits(space, ["n1", "n2", "n3"])
    assert {name: len(path) + 1 for _, name, _, path in got["found"]} == space.broken


@pytest.mark.parametrize("bits", [64, 128])
def test_a_search_goes_on_from_a_checkpoint(bits: int, tmp_path: Path) -> None:
    """It is as long as one without a break, and its counterexamples lead back through both parts."""

    def build() -> Protocol:
        return symmetric(37).build()

    asked: dict[str, Any] = {"symmetry": True, "keep_going": True, "deadlock": True, "bits": bits}
    by_spark(build(), **asked, max_depth=4, checkpoint=tmp_path / "saved")
    resumed = by_spark(build(), **asked, max_depth=6, resume=tmp_path / "saved")
    assert disagreement(by_reference(build(), **asked, max_depth=6), resumed) is None


class Ring(Protocol):
    """Members pass things on. Eight of them have more permutations than are tried one by one."""

    members: tuple[ModelValue, ...] = model_values("m", 8, symmetric=True)
    held: PerKey[ModelValue, int] = per_key(members, 0)
    last: ModelValue | None = state(None)

    @action(m=members)
    def takes(self, m: ModelValue) -> None:
        require(self.held[m] < 2)
        self.held[m] += 1
        self.last = m

    @action(m=members, n=members)
    def passes(self, m: ModelValue, n: ModelValue) -> None:
        require(self.last == m and self.held[n] < 2)
        self.held[m] -= 1
        self.held[n] += 1
        self.last = n

    @invariant
    def never_all_twice(self) -> bool:
        return sum(self.held.values()) < 12 or self.last is None


def test_many_members_are_labelled() -> None:
    expected = by_embedded(Ring(), symmetry=True)
    assert expected["found"] and by_spark(Ring(), symmetry=True, handover=20) == expected


@pytest.mark.parametrize("most", [720, 1])
def test_what_is_counted_more_than_once_is_told(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symmetry, "MAX_PERMUTATIONS", most)
    monkeypatch.setattr("fencepost.semantics.labelling.MOST_LABELLINGS", 1)
    found = engine.explore(Stepper(Ties()), SparkOptions(workers=1, handover=0, symmetry=True))
    assert found.symmetry is not None and found.symmetry.exact == (most > 1)


class Ties(Protocol):
    """Members follow each other. In a ring of them all look alike, and no two can be exchanged."""

    members: tuple[ModelValue, ...] = model_values("m", 4, symmetric=True)
    follows: PerKey[ModelValue, ModelValue | None] = per_key(members, None)

    @action(m=members, n=members)
    def follow(self, m: ModelValue, n: ModelValue) -> None:
        require(self.follows[m] is None and n not in self.follows.values() and m != n)
        self.follows[m] = n


def test_a_shipped_protocol() -> None:
    options: dict[str, Any] = {"symmetry": True, "max_depth": 12}
    expected = by_embedded(shipped("ledger-chaining")(), **options)
    assert by_spark(shipped("ledger-chaining")(), handover=100, **options) == expected


def test_two_constants_a_view_and_a_report() -> None:
    for protocol in (Shop(), Picking(flaw="some")):
        expected = by_reference(protocol, symmetry=True)
        assert disagreement(expected, by_spark(protocol, symmetry=True)) is None
    result = check(Shop(), engine="spark", handover=2, workers=1, symmetry=["clients"])
    assert result.engine == "spark" and result.symmetry == ("clients",) and result.exact
    assert result.distinct_states == orbits(brute.explore(Shop()), ["c1", "c2", "c3"])
