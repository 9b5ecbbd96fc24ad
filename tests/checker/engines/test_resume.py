"""A resumed search gives the results of an uninterrupted one: with every option, at every level of small spaces."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from campaigns import campaign_if
from checker.engines.compare import by_embedded, disagreement
from checker.engines.random_protocols import seeded
from checker.engines.random_refinements import seeded as refining

from fencepost import (
    EmbeddedOptions,
    ModelValue,
    PerKey,
    Protocol,
    SystemFailure,
    action,
    check,
    invariant,
    model_values,
    per_key,
    require,
    sometimes,
    state,
)
from fencepost.checker.engines import checkpoint
from fencepost.checker.engines.checkpoint import locked
from fencepost.checker.engines.options import FREE
from fencepost.language.loading import shipped

EXAMPLES = Path(__file__).parents[3] / "docs/examples"


class Grid(Protocol):
    """Steps to the right and up. ``stuck`` where both have ended."""

    right: int = state(0)
    up: int = state(0)

    @action
    def step(self) -> None:
        require(self.right < 3)
        self.right += 1

    @action
    def climb(self) -> None:
        require(self.up < 3)
        self.up += 1


class Harmed(Grid):
    @invariant
    def below(self) -> bool:
        return self.right + self.up < 4

    @invariant
    def left(self) -> bool:
        return self.right < 3


class Raising(Grid):
    """An action raises in some states of a level."""

    @action
    def breaks(self) -> None:
        require(self.right == 2 and self.up > 1)
        raise ValueError("not here")


class RaisingProperty(Grid):
    @invariant
    def breaks(self) -> bool:
        return 12 // (4 - self.right - self.up) > 0


class Sought(Grid):
    @sometimes
    def corner(self) -> bool:
        return (self.right, self.up) == (1, 2)

    @sometimes
    def low(self) -> bool:
        return self.right == 1


class Alike(Protocol):
    """Symmetric members that move one by one."""

    members: Any = model_values("m", 3, symmetric=True)
    at: PerKey[ModelValue, int] = per_key(members, 0)

    @action(m=members)
    def go(self, m: Any) -> None:
        require(self.at[m] < 2)
        self.at[m] += 1

    @invariant
    def not_all(self) -> bool:
        return sum(self.at.values()) < 5


SPACES: dict[str, tuple[Callable[[], Protocol], dict[str, Any]]] = {
    "deadlock": (Grid, {"deadlock": True}),
    "violation": (Harmed, {}),
    "violations": (Harmed, {"keep_going": True, "bits": 128}),
    "raised": (Raising, {"keep_going": True, "deadlock": True}),
    "raised in a property": (RaisingProperty, {"checking": True}),
    "witnesses": (Sought, {}),
    "symmetry": (Alike, {"symmetry": True}),
    "view": (seeded(6).build, {"workers": 2}),
    "constraints and steps": (seeded(1).build, {"keep_going": True}),
    "messages": (seeded(34).build, {"deadlock": True, "keep_going": True}),
    "refinement": (refining(3).build, {"max_depth": 5}),
    "shipped": (shipped("ledger-chaining"), {"max_depth": 6}),
}
"""Each space with its options."""
EVERYDAY = ("violation", "messages")


@contextmanager
def every_save(writer: type, save: str, folder: Path) -> Iterator[list[Path]]:
    """Keeps the checkpoint of a folder after each save, as a kill would leave it."""
    copies: list[Path] = []
    saved = getattr(writer, save)

    def copying(self: Any, *given: Any) -> None:
        saved(self, *given)
        if (folder / "manifest.json").exists():
            copies.append(folder.with_name(f"{folder.name}-{len(copies)}"))
            shutil.copytree(folder, copies[-1])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, save, copying)
        yield copies


def resumed(build: Callable[[], Protocol], place: Path, **options: Any) -> dict[str, Any]:
    return by_embedded(build(), resume=place, **{"checkpoint_every": 0.0, **options})


@pytest.mark.parametrize("name", campaign_if(lambda name: name not in EVERYDAY, SPACES))
def test_at_every_level_as_without_a_break(name: str, tmp_path: Path) -> None:
    build, options = SPACES[name]
    whole = by_embedded(build(), **options)
    least = {n: by_embedded(build(), **{**options, "max_depth": n}) for n in range(1, whole["depth"] + 2)}
    with every_save(checkpoint.Writer, "save", tmp_path / "killed") as copies:
        by_embedded(build(), **options, checkpoint=tmp_path / "killed", checkpoint_every=0.0)
    assert len(copies) >= whole["depth"] - 2  # none for the initial states, nor for a level that raised
    for depth, copy in enumerate(copies, 2):
        assert disagreement(whole, resumed(build, copy, **options)) is None, f"killed after level {depth}"
    for depth in range(1, whole["depth"]):
        place = tmp_path / f"limited-{depth}"
        at_limit = by_embedded(build(), **{**options, "max_depth": depth}, checkpoint=place)
        assert disagreement(least[depth], at_limit) is None
        # One level further, and from there to the end.
        further = resumed(build, place, **{**options, "max_depth": depth + 1})
        assert disagreement(least[depth + 1], further) is None, f"from level {depth} to {depth + 1}"
        assert disagreement(whole, resumed(build, place, **options)) is None, f"from level {depth} + 1 to the end"


CHANGED: dict[str, Any] = {
    "workers": 2,
    "max_memory": 1 << 40,
    "timeout": 1000.0,
    "deadlock": True,
    "keep_going": True,
    "checking": True,
    "max_states": 1000,
    "max_depth": 6,
    "bits": 128,
    "symmetry": True,
    "states": "elsewhere",
    "edges": True,
    "checkpoint": "elsewhere",
    "resume": "elsewhere",
    "checkpoint_every": 7.0,
}
"""Each option with a value other than its default."""
OF_FOLDERS = {"states", "edges", "checkpoint", "resume"}
REFUSED = {
    "deadlock": ("was made without deadlock; leave out deadlock,", "was made with deadlock; give deadlock again,"),
    "keep_going": (None, "was made with keep_going; give keep_going again,"),
    "checking": ("was made without checking; leave out checking,", "was made with checking; give checking again,"),
    "bits": ("was made with bits 64; give bits 64 again,", "was made with bits 128; give bits 128 again,"),
    "symmetry": (
        "was made without symmetry; leave out symmetry,",
        "was made with symmetry members; give symmetry members again,",
    ),
}
"""The error for an option that is added to a resumed search, and for one that is left out, or None."""


@pytest.mark.parametrize("option", [name for name in CHANGED if name not in OF_FOLDERS])
def test_each_option_added_or_left_out(option: str, tmp_path: Path) -> None:
    with_it = {option: CHANGED[option]}
    for before, after, why in zip(({}, with_it), (with_it, {}), REFUSED.get(option, (None, None)), strict=True):
        place = tmp_path / f"saved-{len(before)}"
        by_embedded(Alike(), max_depth=4, checkpoint=place, **{n: v for n, v in before.items() if n != "max_depth"})
        if why is None:
            assert disagreement(by_embedded(Alike(), **after), resumed(Alike, place, **after)) is None
            continue
        content = {file.name: file.read_bytes() for file in place.iterdir()}
        with pytest.raises(SystemFailure) as refusal:
            raise check(Alike(), engine="embedded", resume=place, **after).failure or AssertionError
        said = str(refusal.value)
        assert said == f"the checkpoint in {place} {why} or start again without resume"
        assert {file.name: file.read_bytes() for file in place.iterdir()} == content


def test_every_option_says_whether_it_may_change() -> None:
    # A reduced search has no checkpoints.
    assert {*CHANGED, "reduce"} == {each.name for each in fields(EmbeddedOptions)}
    assert {each.name for each in fields(EmbeddedOptions) if each.metadata != FREE} == set(REFUSED)


def test_other_properties_are_named(tmp_path: Path) -> None:
    by_embedded(Harmed(), max_depth=3, checkpoint=tmp_path)
    refusal = check(Harmed(), engine="embedded", resume=tmp_path, invariants=["left"]).failure
    assert f"in {tmp_path} judges below too; choose the same with invariants, or" in str(refusal)


@pytest.mark.parametrize("protocol", [Grid, Harmed, Sought])
def test_limits_below_what_is_saved_are_refused(protocol: type[Protocol], tmp_path: Path) -> None:
    """A search with such a limit would have ended earlier."""
    by_embedded(protocol(), max_depth=4, checkpoint=tmp_path / "limited", checkpoint_every=0.0, keep_going=True)
    by_embedded(protocol(), checkpoint=tmp_path / "whole", checkpoint_every=1e9, keep_going=True)
    refusals: list[tuple[str, dict[str, Any], str]] = [
        ("limited", {"max_depth": 3}, "has 4 levels already; give max_depth 4 or more"),
        ("limited", {"max_states": 6}, "has 6 states before its last level; give max_states 7 or more"),
        ("whole", {"max_depth": 7}, "has 8 levels already; give max_depth 8 or more"),
        ("whole", {"max_states": 16}, "has 16 states before its last level; give max_states 17 or more"),
    ]
    for place, refused, why in refusals:
        with pytest.raises(SystemFailure, match=why):
            raise (
                check(protocol(), engine="embedded", resume=tmp_path / place, keep_going=True, **refused).failure
                or AssertionError
            )
    limits: list[dict[str, Any]] = [{"max_depth": 4}, {"max_states": 7}, {"max_states": 14}]
    for limit in limits:
        expected = by_embedded(protocol(), keep_going=True, **limit)
        assert disagreement(expected, resumed(protocol, tmp_path / "limited", keep_going=True, **limit)) is None


def test_a_search_that_wrote_states_goes_on_past_its_witnesses(tmp_path: Path) -> None:
    written = by_embedded(Sought(), states=tmp_path / "states")
    by_embedded(Sought(), states=tmp_path / "again", checkpoint=tmp_path / "saved", max_depth=5)
    assert disagreement(written, resumed(Sought, tmp_path / "saved")) is None


class TestOneSearchAtATime:
    def test_a_second_one_is_refused(self, tmp_path: Path) -> None:
        by_embedded(Grid(), max_depth=3, checkpoint=tmp_path / "saved")
        for held, wanted in (("resume", "resume"), ("checkpoint", "resume"), ("checkpoint", "checkpoint")):
            place = tmp_path / ("saved" if held == "resume" else wanted)
            said = f"the checkpoint in {place} is in use by another search: wait until that has ended, or end it"
            holder: dict[str, Any] = {held: place}
            seeker: dict[str, Any] = {wanted: place}
            with locked(EmbeddedOptions(**holder)), pytest.raises(SystemFailure, match=said):
                check(Grid(), engine="embedded", **seeker)
        with locked(EmbeddedOptions(resume=tmp_path / "saved")):
            words = ["check", "two_phase.py", "--resume", str(tmp_path / "saved")]
            done = subprocess.run(
                [sys.executable, "-m", "fencepost", *words], cwd=EXAMPLES, capture_output=True, text=True, check=False
            )
        assert done.returncode == 153 and done.stderr.count("\n") == 1 and "is in use by another" in done.stderr
        assert disagreement(by_embedded(Grid()), resumed(Grid, tmp_path / "saved")) is None

    def test_a_search_that_was_killed_keeps_nobody_out(self, tmp_path: Path) -> None:
        holding = (
            "import os, signal\nfrom fencepost import EmbeddedOptions\n"
            "from fencepost.checker.engines.checkpoint import locked\n"
            f"with locked(EmbeddedOptions(checkpoint={str(tmp_path)!r})): os.kill(os.getpid(), signal.SIGKILL)"
        )
        assert subprocess.run([sys.executable, "-c", holding], check=False).returncode == -9
        assert (tmp_path / "LOCK").exists()
        by_embedded(Grid(), checkpoint=tmp_path)

    def test_what_is_no_checkpoint_is_left_as_it_is(self, tmp_path: Path) -> None:
        with pytest.raises(SystemFailure, match="holds no complete checkpoint"):
            resumed(Grid, tmp_path)
        assert list(tmp_path.iterdir()) == []
