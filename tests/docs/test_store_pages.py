"""The pages about the store show what a cluster prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from campaigns import campaign_if
from docs.documents import ROOT, same, selected
from docs.store_pages import pages, run_page, without_variety

README = ROOT / "README.md"
"""The shortest, which starts a cluster as all of them do."""


@pytest.mark.parametrize("page", campaign_if(lambda page: page != README, pages()), ids=lambda page: page.name)
def test_commands_print_what_the_page_shows(page: Path) -> None:
    for command, printed in run_page(page):
        assert command.output.strip() or not printed.strip(), (
            f"nothing is shown for {command.line}; run tests/docs/refresh.py"
        )
        shown, real = same(without_variety(command.output)), same(without_variety(selected(printed, command.output)))
        assert shown == real, f"{command.line}: if it is right, run tests/docs/refresh.py"
