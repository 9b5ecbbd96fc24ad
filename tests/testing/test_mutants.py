"""Mutants of a small system are found by driving it."""

from __future__ import annotations

import pytest

from bench.driven import by_drive, by_hypothesis
from bench.driven.__main__ import mutants
from bench.driven.shared_lock import SharedLock

LATE = {f"{line}: self._grant()  →  pass" for line in (45, 55)}
"""Those that a hundred examples of Hypothesis do not find."""


def test_both_ways_accept_the_system() -> None:
    assert by_drive.run(SharedLock)[0] == by_drive.run(SharedLock, cover="pairs")[0] == 0
    assert by_hypothesis.run(SharedLock, 10)[0] == 0


@pytest.mark.parametrize("cover", ["transitions", "pairs"])
def test_mutants_are_found(cover: str) -> None:
    every = [*mutants()]
    assert len(every) == 55
    late = [kind for said, kind in every if said in LATE]
    assert len(late) == 2
    assert sorted(by_drive.run(kind, cover=cover)[0] for kind in late) == [3, 4]
    for said, kind in every[:12:3]:
        assert by_drive.run(kind, cover=cover)[0], said
