"""A walk that was kept as a page answers as the explorer does, and asks nobody."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

import pytest
from docs.documents import EXAMPLES
from explorer.browser import MISSING, Browser

import fencepost
from fencepost.cli.main import main
from fencepost.explorer.session import Session
from fencepost.explorer.still import html
from fencepost.explorer.views import view
from fencepost.language.loading import load


@pytest.fixture(scope="module")
def session() -> Session:
    return Session(load(str(EXAMPLES / "lost_update.py"))())


@pytest.fixture(scope="module")
def page(session: Session) -> str:
    trace = fencepost.check(session.protocol).must_violate("no_update_is_lost")
    return html(session, session.graft(trace))


def answers(page: str) -> dict[str, Any]:
    packed = re.search(r'id="answers">([^<]*)<', page)
    assert packed is not None
    found: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed[1])))
    return found


def test_it_has_every_state_of_the_walk_and_every_step_beside_it(session: Session, page: str) -> None:
    kept = answers(page)
    line = session.node(int(kept["first"])).end.line
    assert len(line) == 5
    for node in line:
        offered = [offer for action in session.enabled(node) for offer in action.offers]
        for offer in offered:
            number, taken = offer.move
            there = kept["steps"][f"{node.number}:{','.join(map(str, (number, *taken)))}"]
            assert there == session.child(node, offer.move).number
            assert str(there) in kept["views"]
    assert len(kept["views"]) == len({*kept["steps"].values(), line[0].number})


def test_what_it_shows_is_what_the_explorer_shows(session: Session, page: str) -> None:
    kept = answers(page)
    for number, shown in kept["views"].items():
        real = json.loads(json.dumps(view(session, session.node(shown["tip"]), session.node(int(number)))))
        assert kept["diagrams"][shown["diagram"]] == real["diagram"]
        for one in (real, shown):
            del one["diagram"]
            for item in one["items"]:
                del item["branches"]
        assert shown == real


def test_it_loads_nothing(page: str) -> None:
    assert not re.findall(r'(?:src|href)="(?!")[^"]+"', page.partition('id="answers"')[0])
    assert "default-src 'none'" in page


def test_it_is_of_a_walk(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["explore", "ledger-chaining", "--html", str(tmp_path / "page.html")]) == 151
    assert "--html is of a walk: name it with --trace or --path" in capsys.readouterr().err
    assert main(["explore", "ledger-chaining", "--html", str(tmp_path), "--path", ""]) == 151


@pytest.mark.skipif(MISSING is not None, reason=f"there is no {MISSING}")
def test_it_is_walked_in_a_browser(page: str, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(page)
    (tmp_path / "profile").mkdir()
    browser = Browser(tmp_path / "profile")
    try:
        browser.open((tmp_path / "page.html").as_uri())
        browser.press("End")
        assert browser.run("return document.querySelectorAll('#history .broken').length") == 1
        assert browser.run("return document.querySelector('#where').textContent") == "step 4 of 4"
        browser.press("Home")
        browser.click("#next > div:last-child .offer")  # of c2; the walk begins with c1
        beside = browser.run("return location.hash")
        browser.click("#next .offer", settles=False)
        browser.until("document.querySelector('#message.wrong')")
        assert "fencepost explore" in browser.run("return document.querySelector('#message').textContent")
        browser.open(f"{(tmp_path / 'page.html').as_uri()}{beside}")
        assert browser.run("return location.hash") == beside
    finally:
        browser.close()
