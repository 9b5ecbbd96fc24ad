"""The reference pages of the store are complete: settings, errors, metrics and formats are those of the code."""

from __future__ import annotations

import re

from docs.documents import DOCS, ROOT
from docs.settings_tables import PAGE, with_tables

from fencepost.errors import FencepostError
from fencepost.store import errors
from fencepost.store.client.settings import ClientSettings


def test_the_tables_of_settings_are_those_of_the_code() -> None:
    assert with_tables(PAGE.read_text()) == PAGE.read_text(), "run tests/docs/refresh.py docs/store-operations.md"


def test_every_setting_of_a_client_is_described() -> None:
    section = PAGE.read_text().split("### Of a client")[1].split("\n## ")[0]
    rows = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(ClientSettings.__struct_fields__)


def test_every_error_is_described() -> None:
    section = (DOCS / "store.md").read_text().split("\n## Errors")[1].split("\n## ")[0]
    rows = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]
    classes = {name for name, error in vars(errors).items() if isinstance(error, type) and issubclass(error, FencepostError)}
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == classes - {"FencepostError", "StoreError"}


def test_every_metric_is_described() -> None:
    sources = (ROOT / "src" / "fencepost" / "store" / "bookie").glob("*.py")
    names = {name for source in sources for name in re.findall(r'"((?:bookie|bookkeeper_server)_\w+)"', source.read_text())}
    section = PAGE.read_text().split("\n## Health and metrics")[1].split("\n## ")[0]
    described = {name.removesuffix("_total") for name in re.findall(r"`((?:bookie|bookkeeper_server)_\w+)`", section)}
    assert described == names
