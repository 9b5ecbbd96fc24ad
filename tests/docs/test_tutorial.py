"""The tutorial as a reader types it: every listing runs with the imports of this and earlier listings."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from textwrap import indent
from typing import Any

import pytest
from docs.documents import DOCS, EXAMPLES, Block, blocks

from fencepost import Protocol

LISTINGS = blocks(DOCS / "check/tutorial.md", "python")


@pytest.fixture
def in_examples(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Files beside each other, as in the tutorial."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    known = set(sys.modules)
    yield
    for name in set(sys.modules) - known:
        del sys.modules[name]


def is_part_of_a_class(listing: Block) -> bool:
    """Whether a listing is to be put into a class that is there: it declares something of a protocol, and is no class
    itself.
    """
    return re.match(r"@|\w+(: [\w\[\], ]+)? = ", listing.text) is not None


@pytest.mark.usefixtures("in_examples")
def test_every_listing_runs() -> None:
    typed: dict[str, Any] = {}
    protocol: type[Protocol] | None = None
    for listing in LISTINGS:
        try:
            if is_part_of_a_class(listing):
                assert protocol is not None
                # In the class, its other members have their names too.
                members = {name: member for owner in reversed(protocol.__mro__) for name, member in vars(owner).items()}
                source = f"class Changed({protocol.__name__}):\n{indent(listing.text, '    ')}"
                exec(compile(source, str(listing), "exec", dont_inherit=True), members | typed)
                continue
            if listing.text.startswith(("import", "from")) and "# ..." not in listing.text:
                typed = {"__name__": f"listing_{listing.line}"}  # a new file
            exec(compile(listing.text, str(listing), "exec", dont_inherit=True), typed)
            made = [v for v in typed.values() if isinstance(v, type) and issubclass(v, Protocol) and v is not Protocol]
            protocol = made[-1] if made else protocol
        except Exception as error:
            pytest.fail(f"the listing at {listing} does not run: {error!r}")


def test_a_listing_without_its_imports_would_be_found() -> None:
    first = LISTINGS[0].text
    with pytest.raises(NameError):
        exec(first[first.index("class") :], {})
