"""The tables of settings in the page on operations, as the classes of settings have them."""

from __future__ import annotations

from pathlib import Path

from docs.documents import DOCS

from fencepost.metadata_service import settings as of_metadata
from fencepost.store.bookie import settings as of_bookie

PAGE = DOCS / "store-operations.md"


def tables() -> dict[str, str]:
    """The tables by the command that they are for."""
    return {"bookie": _table(of_bookie.descriptions()), "metadata": _table(of_metadata.descriptions())}


def _table(settings: list[tuple[str, str, str]]) -> str:
    rows = [f"| `{name}` | `{default}` | {purpose} |" for name, default, purpose in settings]
    return "\n".join(["| setting | by default | |", "|---|---|---|", *rows])


def with_tables(text: str) -> str:
    """The page with the tables as they are now."""
    for name, table in tables().items():
        head, begun, rest = text.partition(f"<!-- settings of {name} -->\n")
        _, ended, tail = rest.partition("<!-- end -->")
        assert begun and ended, f"the page has no place for the settings of {name}"
        text = f"{head}{begun}\n{table}\n\n{ended}{tail}"
    return text


def refresh(page: Path = PAGE) -> None:
    """Write the tables into the page."""
    page.write_text(with_tables(page.read_text()))
