"""Random specifications: however one is laid out and evaluated, it has the states of the plain explorer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from campaigns import campaign_if
from checker.engines.test_evaluators import take_part
from tla import files
from tla.random_specifications import seeded

from fencepost import Result, check
from fencepost.language.loading import configured, find
from fencepost.language.seam import Model
from fencepost.tla import layout
from fencepost.tla.places import Leaf, MapPlace, Members, Place, SetPlace
from fencepost.tla.places import Path as Slots
from fencepost.tla.values import FunctionValue, SetValue, Value

SEEDS = 2_000 if os.environ.get("FENCEPOST_THOROUGH") else 100
PARTS = 20
DEPTH = 6
"""The levels that are explored. Later ones have thousands of states."""

Forced = Callable[[pytest.MonkeyPatch, int], dict[str, Any]]
"""Prepares a way to explore, for a seed, and gives the options for it."""


def few_looks(patch: pytest.MonkeyPatch, seed: int) -> dict[str, Any]:
    """Most members appear during the search."""
    most = (20, 60, 200)[seed % 3]
    patch.setattr(layout, "FIRST_LOOK", most)
    patch.setattr(layout, "NEAR", most // 10)
    patch.setattr(layout, "FEW", 0)
    return {"engine": ("auto", "embedded")[seed % 2], "workers": 1 + seed // 2 % 2}


def any_places(patch: pytest.MonkeyPatch, seed: int) -> dict[str, Any]:
    """Each part of the state is held in a way that is drawn, with some of its members settled."""
    random, usual = Random(seed), layout.place

    def place(path: Slots, values: list[Value], is_coarse: bool = False) -> Place:
        drawn = random.randrange(4)
        sets = [each.explicit() for each in values if isinstance(each, SetValue)]
        maps = [each.explicit() for each in values if isinstance(each, FunctionValue)]
        if drawn == 0:
            return Leaf(path)
        if drawn == 1 and (sets or maps):
            made: Members = SetPlace(path) if sets else MapPlace(path)
            members = {member for each in sets or [of.domain().explicit() for of in maps] for member in each.items}
            known = layout.in_any_order(members)
            made.settle(random.sample(known, random.randint(0, len(known))))
            return made
        return usual(path, values, is_coarse)

    patch.setattr(layout, "place", place)
    return {"engine": "embedded", "workers": 1}


def strictly(patch: pytest.MonkeyPatch, seed: int) -> dict[str, Any]:
    """Every evaluation is compared with one in TLC's order."""
    patch.setattr("fencepost.checker.engines.hashseeds.SEEDS", ())
    patch.setattr("fencepost.checker.engines.hashseeds.STATES", 5)
    return {"engine": "embedded", "checking": True, "workers": 1}


def in_processes(patch: pytest.MonkeyPatch, seed: int) -> dict[str, Any]:
    """Other processes evaluate."""
    few_looks(patch, seed)
    take_part(patch)
    return {"engine": "embedded", "workers": 2}


WAYS: dict[str, tuple[Forced, int]] = {
    "few looks": (few_looks, 1),
    "any places": (any_places, 1),
    "strictly": (strictly, 4),
    "in processes": (in_processes, 4),
}
"""Each way, and of how many seeds one is explored in this way."""


def model_of(folder: Path, seed: int) -> Model:
    text, config = seeded(seed)
    path = files.written(folder, text)
    path.with_suffix(".cfg").write_text(config)
    return configured(find(str(path)), None, [])


def answer(result: Result) -> dict[str, Any]:
    """What may not depend on how a specification is explored. Where an evaluation fails, only that."""
    if result.error is not None:
        return {"fails": True}
    return {
        "states": (result.distinct_states, result.generated_states, result.depth),
        "violated": sorted((each.name, each.trace and len(each.trace.states)) for each in result.violations),
    }


@contextmanager
def prepared(way: str, seed: int) -> Iterator[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        yield WAYS[way][0](patch, seed)


def difference(folder: Path, seed: int, expected: dict[str, Any], way: str) -> str | None:
    with prepared(way, seed) as options:
        found = answer(check(model_of(folder, seed), max_depth=DEPTH, keep_going=True, **options))
    return None if found == expected else f"seed {seed}, {way}: {found}, and plainly {expected}"


@pytest.mark.parametrize("part", campaign_if(bool, range(PARTS)))
def test_random_specifications(tmp_path: Path, part: int) -> None:
    found, failing = [], 0
    for seed in range(part, SEEDS, PARTS):
        expected = answer(check(model_of(tmp_path, seed), engine="reference", max_depth=DEPTH, keep_going=True))
        failing += "fails" in expected
        for way, (_, every) in WAYS.items():
            if seed // PARTS % every == 0:
                found.append(difference(tmp_path, seed, expected, way))
    assert not [each for each in found if each is not None]
    assert failing * 10 < SEEDS // PARTS, "most have an answer"
