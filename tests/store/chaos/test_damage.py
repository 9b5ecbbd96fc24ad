"""Damaged directories of real processes: what does not start says why in one line, and what serves never serves
anything wrong.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3]))

from bench.chaos.damage import (
    REFUSED,
    SERVED,
    Prepared,
    files_of,
    flipped,
    of_bookie,
    of_metadata,
    prepared,
)


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepared(tmp_path_factory.mktemp("damage"))


def harm(pattern: str, do: Callable[[Path], None]) -> Callable[[Path], None]:
    """Does something to the newest file whose path ends so."""
    return lambda directory: do(directory / max(path for path in files_of(directory) if str(path).endswith(pattern)))


def middle(path: Path) -> None:
    """Flip a bit in the middle of what was written to a file."""
    flipped(path, len(path.read_bytes().rstrip(b"\0")) // 2 * 8)


def cut(path: Path) -> None:
    """Cut a file in the middle of what was written to it."""
    os.truncate(path, len(path.read_bytes().rstrip(b"\0")) // 2)


@pytest.mark.parametrize(
    ("pattern", "do", "comes"),
    [
        (".journal", middle, REFUSED),
        (".journal", cut, REFUSED),
        (".journal", Path.unlink, REFUSED),
        (".log", middle, SERVED),
        (".log", Path.unlink, REFUSED),
        ("ledgers/current/VERSION", Path.unlink, REFUSED),
    ],
)
def test_a_damaged_bookie(case: Prepared, pattern: str, do: Callable[[Path], None], comes: str) -> None:
    assert of_bookie(case, harm(pattern, do)) == (comes, "")


@pytest.mark.parametrize("do", [middle, cut, Path.unlink])
def test_a_damaged_metadata_service(case: Prepared, do: Callable[[Path], None]) -> None:
    def newest_that_matters(directory: Path) -> None:
        do(
            max(
                (directory / path for path in files_of(directory) if path.suffix == ".journal"),
                key=lambda path: path.stat().st_size,
            )
        )

    assert of_metadata(case, newest_that_matters) == (REFUSED, "")
