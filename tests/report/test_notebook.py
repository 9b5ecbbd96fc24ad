"""How results, behaviours and states display themselves in a notebook and as text."""

from __future__ import annotations

import html
import json
import re

import fencepost
from fencepost import Protocol, action, invariant, state
from fencepost.report.html import html as page


class Marked(Protocol):
    text: str = state("")

    @action
    def mark(self) -> None:
        self.text = "<b>&"

    @invariant
    def unmarked(self) -> bool:
        return self.text == ""


def framed(shown: str) -> str:
    """The page within a frame that may run only its own script."""
    found = re.fullmatch(r'<iframe sandbox="allow-scripts" style="[^"]*" srcdoc="([^"]*)"></iframe>', shown)
    assert found is not None
    return html.unescape(found[1])


def test_a_result_shows_its_page() -> None:
    result = fencepost.check(Marked(), engine="reference")
    assert result.to_html() == page(result) == framed(result._repr_html_())
    assert "VIOLATED" in result.to_html() and "<svg" in result.to_html()
    document = json.loads(result.to_json())
    assert document["verdict"] == "unmarked"
    assert json.loads(result.to_json(indent=0)) == document and "\n" not in result.to_json(indent=0)


def test_a_behaviour_shows_its_sequence_diagram() -> None:
    trace = fencepost.check(Marked(), engine="reference").must_violate("unmarked")
    shown = framed(trace._repr_html_() or "")
    assert "<title>marked: a behaviour of 2 states</title>" in shown and "<svg" in shown
    assert "VIOLATED" not in shown and "<b>&" not in shown


def test_a_state_shows_its_variables() -> None:
    trace = fencepost.check(Marked(), engine="reference").must_violate("unmarked")
    shown = trace.states[-1]._repr_html_()
    assert "A state of marked" in shown and "<code>&#x27;&lt;b&gt;&amp;&#x27;</code>" in shown
