"""The page of questions to state spaces: its answers are those of the commands, and its plots show them."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from campaigns import campaign_if
from docs.documents import EXAMPLES, same, selected
from docs.gallery import IMAGES, PAGE, answers, plots, questions
from states.tables import written

import fencepost.spark
from fencepost.language.loading import shipped

Nth = Callable[[int], str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gallery")


@pytest.fixture(scope="module")
def answer(spark: Any, folder: Path) -> Nth:
    """The n-th answer. Questions are asked when needed, in the order of the page, since they build on each other."""
    coming, told = answers(folder), list[str]()

    def nth(number: int) -> str:
        while len(told) <= number:
            told.append(next(coming))
        return told[number]

    return nth


@pytest.mark.parametrize(
    "number",
    campaign_if(lambda number: number > 4, range(len(questions()))),
    ids=lambda number: str(questions()[number].block),
)
def test_the_answer_is_that_of_the_page(number: int, answer: Nth) -> None:
    shown = questions()[number].output
    assert shown.strip(), "nothing is shown; run tests/docs/refresh.py docs/check/questions.md"
    assert same(shown) == same(selected(answer(number), shown)), (
        "if it is right, run tests/docs/refresh.py docs/check/questions.md"
    )


@pytest.mark.campaign
def test_plots_show_the_answers(answer: Nth, folder: Path) -> None:
    answer(len(questions()) - 1)
    page = PAGE.read_text()
    for name, drawn in plots(folder).items():
        assert f"(../images/{name})" in page
        assert (IMAGES / name).read_text() == drawn, (
            f"if it is right, run tests/docs/refresh.py docs/check/questions.md ({name})"
        )


@pytest.mark.campaign
def test_where_no_message_is_lost_it_is_never_too_late(spark: Any, tmp_path: Path) -> None:
    """As the page says, which blames the losses."""
    as_in_fixed: dict[str, Any] = {"bookies": 2, "write_quorum": 2, "ack_quorum": 2, "recovery_reads_fence": True}
    with_hope = runpy.run_path(str(EXAMPLES / "too_late.py"))["with_hope"]
    space = written(shipped("bookkeeper-4.13")(**as_in_fixed, message_loss=False), tmp_path / "space").directory
    assert with_hope(fencepost.spark.states(spark, space), fencepost.spark.edges(spark, space)).hope.all()
