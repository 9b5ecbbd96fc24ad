"""The reference pages of the store are complete: they list the settings, errors, metrics and formats of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs.documents import DOCS, ROOT
from docs.generated import FORMATS, SETTINGS, tables, with_tables

from fencepost.errors import FencepostError
from fencepost.ledger import errors
from fencepost.ledger.client.settings import ClientSettings
from fencepost.ledger.disk import journal, records, sections
from fencepost.log import errors as log_errors
from fencepost.metadata import snapshot, tree


@pytest.mark.parametrize("page", tables(), ids=lambda page: page.name)
def test_the_tables_are_those_of_the_code(page: Path) -> None:
    assert with_tables(page) == page.read_text(), f"run tests/docs/refresh.py {page.relative_to(ROOT)}"


def test_every_setting_of_a_client_is_described() -> None:
    section = SETTINGS.read_text().split("## Of a client")[1].split("\n## ")[0]
    rows = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(ClientSettings.__struct_fields__)


def test_every_error_is_described() -> None:
    section = (DOCS / "run/promises.md").read_text().split("\n## Errors")[1].split("\n## ")[0]
    rows = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]
    classes = {
        name for name, error in vars(errors).items() if isinstance(error, type) and issubclass(error, FencepostError)
    }
    described = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert described == classes - {"FencepostError", "StoreError", "Refusal"}


def test_every_error_of_logs_is_described() -> None:
    section = (DOCS / "run/logs.md").read_text().split("\n## Errors")[1]
    rows = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == {*log_errors.__all__}


def test_what_the_page_on_formats_says_in_words_is_so() -> None:
    page = FORMATS.read_text()
    for magic in (journal._FILE_MAGIC, sections._FILE_MAGIC, sections._SECTION_MAGIC):
        assert magic.decode() in page
    assert [kind.__name__ for kind in records.KINDS] == [
        "EntryAdded",
        "MasterKeyLearnt",
        "LedgerFenced",
        "LacWritten",
        "LimboChanged",
    ]
    assert f"at most {sections.RUN} entries" in page and f"up to {snapshot._CHUNK}" in page
    assert ", ".join(tree.Node.__struct_fields__[2:]) in page
    assert sections.Contents.__struct_fields__ == ("journal_start", "logs", "runs", "states", "forgotten")
