"""Damaged files of real processes: a process that does not start says why in one line, and one that serves never serves
anything wrong.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from campaigns import campaign_if

from bench.chaos.damage import done, files_of
from bench.chaos.victims import REFUSED, SERVED, VICTIMS, WHOLE, Victim


@pytest.fixture(scope="module")
def victims(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Victim]:
    """The victims with these names, each prepared once."""
    made: dict[str, Victim] = {}

    def of(name: str) -> Victim:
        if name not in made:
            made[name] = VICTIMS[name][1](tmp_path_factory.mktemp("damage") / name)
        return made[name]

    return of


def damage(victim: Victim, file: str, way: str) -> tuple[str, list[str]]:
    """Damage the newest file of the last folder whose path ends in ``file``, and start the victim on it."""
    victim.restore()
    folder = victim.folders[-1]
    name = max(path for path in files_of(victim.live / folder) if str(path).endswith(file))
    done(random.Random(7), way, victim.live / folder / name, victim.before / folder / name)
    return victim.start(folder)


@pytest.mark.parametrize(
    ("name", "file", "way", "comes"),
    [
        ("journal-killed", ".journal", "flipped", REFUSED),
        ("journal-killed", ".log", "flipped", SERVED),
        ("metadata", "quorum-state", "cut", REFUSED),
        ("metadata", ".journal", "flipped", REFUSED),
        *campaign_if(
            bool,
            [
                ("journal-killed", "RUNNING", "older", WHOLE),
                ("memory-killed", "RUNNING", "older", SERVED),
                ("memory-killed", "RUNNING", "removed", SERVED),
                ("memory-killed", "journal/current/VERSION", "cut", REFUSED),
                *(("metadata", "meta.properties", way, REFUSED) for way in ("removed", "emptied", "cut")),
                *(("metadata", "quorum-state", way, REFUSED) for way in ("removed", "emptied", "older")),
            ],
        ),
    ],
)
def test_damage(victims: Callable[[str], Victim], name: str, file: str, way: str, comes: str) -> None:
    assert damage(victims(name), file, way) == (comes, [])
