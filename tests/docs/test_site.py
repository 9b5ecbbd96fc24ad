"""The site is made of the documents without a warning, and nothing in it leads nowhere or comes from elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs.documents import DOCS, ROOT

import fencepost
from website import build, defects


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, with the page of one defect."""
    place = tmp_path_factory.mktemp("site") / "site"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(defects, "SHOWN", defects.SHOWN[:1])
        build.build(place)
    return place


def test_it_has_every_document_and_every_public_name(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        assert (site / page.relative_to(ROOT).with_suffix(".html")).exists()
    assert (site / "index.html").exists()
    named = build.Page((site / "reference/fencepost.html").read_text()).anchors
    names = {anchor.rpartition(".")[2] for anchor in named}
    assert not [name for name in fencepost.__all__ if name not in names]


def test_a_file_of_code_and_a_defect_have_a_page(site: Path) -> None:
    assert "LostUpdate" in (site / "docs/examples/lost_update.py.html").read_text()
    assert 'id="answers"' in (site / "defects/bookkeeper-4.13-defect-1-small.html").read_text()


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ('<a href="missing.html">', "links to missing.html"),
        ('<a href="other.html#nowhere">', "links to other.html#nowhere: there is no such place"),
        ('<script src="https://example.org/a.js"></script>', "loads https://example.org/a.js from elsewhere"),
        ('<link rel="stylesheet" href="//example.org/a.css">', "loads //example.org/a.css from elsewhere"),
        ('<img src="missing.png">', "loads missing.png, which is missing"),
    ],
)
def test_what_leads_nowhere_is_found(said: str, wrong: str, tmp_path: Path) -> None:
    (tmp_path / "other.html").write_text('<p id="here"></p><a href="#here">')
    (tmp_path / "page.html").write_text(f'<a href="other.html#here">{said}<a href="https://example.org">')
    assert [*build.misled(tmp_path)] == [f"page.html {wrong}"]


def test_a_style_may_load_nothing_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text('@font-face { src: url("https://example.org/font.woff") }')
    assert [*build.misled(tmp_path)] == ["a.css loads https://example.org/font.woff from elsewhere"]


def test_a_broken_link_in_a_document_ends_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def one_page(folder: Path) -> None:
        build.put(folder / "index.md", "# Title\n\n[nowhere](missing.md)\n")
        (folder / "_defects").mkdir()

    monkeypatch.setattr(build, "lay_out", one_page)
    with pytest.raises(SystemExit):
        build.build(tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_links_to_code_lead_to_its_page() -> None:
    text, shown = build.with_links("[a](../examples/lock.py) [b](../examples) ```\n[c](x.py)", "docs/check/engine.md")
    assert "(../examples/lock.py.md)" in text and "(../examples/files.md)" in text
    assert {"docs/examples/lock.py", "docs/examples"} <= shown


def test_every_document_is_in_the_navigation() -> None:
    lines = build.navigation((ROOT / build.INDEX).read_text()).splitlines()
    assert sorted(line for line in lines if line.startswith("docs/")) == sorted(
        str(page.relative_to(ROOT)) for page in DOCS.rglob("*.md")
    )
