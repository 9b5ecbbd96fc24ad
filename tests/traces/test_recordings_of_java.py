"""Recordings of defects of BookKeeper, made by ``python -m interop.defects`` with its releases: the table of
``docs/protocols/bookkeeper-java.md`` has what validation says of them.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from fencepost.traces.validation.outcome import Outcome
from interop import defects, jars
from interop.clients import Refused
from interop.departures import play
from interop.processes import DidNotStart
from interop.validation import verdicts

HERE = Path(__file__).parent / "bookkeeper"
PAGE = Path(__file__).parents[2] / "docs" / "protocols" / "bookkeeper-java.md"
ROW = re.compile(r"\| ([\d.]+)(?: †)? \| (\d[^|]*?) \| (accepted|rejected) \| (?:`(\w+)`)? *\|")


class Row(NamedTuple):
    """A row of the table."""

    release: str
    defect: str
    verdict: str
    step: str


def rows() -> list[Row]:
    """The table, row by row."""
    return [Row(*found.groups("")) for found in ROW.finditer(PAGE.read_text())]


def said(found: dict[int, Outcome]) -> tuple[str, str]:
    """The worst verdict, and the first refused step."""
    refused = [outcome for outcome in found.values() if outcome.refusals]
    if not refused:
        assert all(outcome.accepted for outcome in found.values())
        return "accepted", ""
    (outcome,) = refused
    return outcome.verdict, outcome.refusals[0].step.partition("(")[0]


def test_the_table_has_each_recording() -> None:
    named = sorted(f"{row.release}-{row.defect}" for row in rows())
    assert named == sorted(path.stem for path in HERE.glob("*.parquet"))
    assert {row.defect for row in rows()} == set(defects.SCENARIOS)


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.release}-{row.defect}")
def test_the_table_is_what_validation_says(row: Row) -> None:
    assert said(verdicts(HERE / f"{row.release}-{row.defect}.parquet")) == (row.verdict, row.step)


@pytest.mark.campaign
@pytest.mark.skipif(not (shutil.which("javac") and shutil.which("mvn")), reason="needs a JDK and Maven")
@pytest.mark.parametrize("defect", defects.SCENARIOS)
def test_the_defects_are_there(defect: str, tmp_path: Path) -> None:
    """On a slow machine a message may come too late for a defect to happen, so it may be tried again."""
    (row,) = [row for row in rows() if (row.release, row.defect) == (jars.RELEASE, defect)]
    jars.fetch()
    for attempt in range(3):
        try:
            _, found = play(defects.SCENARIOS[defect], tmp_path / str(attempt))
        except (DidNotStart, Refused, TimeoutError):
            continue
        if said(found) == (row.verdict, row.step):
            return
    pytest.fail(f"the recordings of {defect} are not {row.verdict} at {row.step}")
