"""The page in a real browser, used as a person uses it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from explorer.browser import MISSING, Browser
from explorer.serving import Page, served
from explorer.walks import Coin, Lamp, Ticking, Wide

import fencepost
from fencepost.behaviours import Trace
from fencepost.language.loading import load
from fencepost.report.json import to_json

pytestmark = pytest.mark.skipif(MISSING is not None, reason=f"{MISSING} is not installed")

ROWS = "#history li[data-place]"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("browser"))
    browser.look(1280, 800)
    yield browser
    browser.close()


@pytest.fixture(autouse=True)
def quiet(browser: Browser) -> Iterator[None]:
    """The browser must not complain in any of these tests."""
    browser.complaints()
    yield
    assert browser.complaints() == []


@pytest.fixture(scope="module")
def ledger() -> Iterator[Page]:
    with served(load("bookkeeper-4.13")(recovery_reads_fence=False)) as page:
        yield page


@pytest.fixture(scope="module")
def lamp() -> Iterator[Page]:
    with pytest.MonkeyPatch.context() as patch:
        # of a processor: who else uses the machine does not matter
        patch.setattr("fencepost.explorer.watch.SECONDS", 0.25)
        with served(Lamp()) as page:
            yield page


@pytest.fixture(scope="module")
def defect(ledger: Page) -> fencepost.Result:
    return fencepost.check(ledger.explorer.session.protocol, workers=1)


def counterexample(result: fencepost.Result) -> Trace:
    assert result.violation is not None
    assert result.violation.trace is not None
    return result.violation.trace


def place(browser: Browser) -> int:
    """The number of the step shown."""
    return int(browser.run(f"return document.querySelector('{ROWS}.on').dataset.place"))


def offered(browser: Browser, page: Page, step: fencepost.behaviours.Step) -> str:
    """What to click for a step."""
    session = page.explorer.session
    node = session.node(browser.run("return Number(document.querySelector('[data-keep]').href.match(/tip=(\\d+)/)[1])"))
    move = next(
        o.move
        for a in session.enabled(node)
        if a.title == step.title
        for o in a.offers
        if o.step.choices == step.choices
    )
    flat = [
        o.move
        for by in dict.fromkeys(a.by for a in session.enabled(node))
        for a in session.enabled(node)
        if a.by == by
        for o in a.offers
    ]
    return f"[data-offer='{flat.index(move)}']"


def test_the_defect_step_by_step_and_what_if(browser: Browser, ledger: Page, defect: fencepost.Result) -> None:
    """The invariant becomes false at the step that the checker reports. Back again, another message is lost. The link
    leads there.
    """
    trace = counterexample(defect)
    browser.open(ledger.address)
    assert browser.texts(f"{ROWS} .title") == ["initial state"]
    for number, step in enumerate(trace.steps, 1):
        assert browser.texts(f"{ROWS}.broken") == []
        browser.click(offered(browser, ledger, step))
        assert place(browser) == number
        assert step.title in browser.text(f"{ROWS}.on .title")
        changed = browser.run("return document.querySelectorAll('.card tr.changed').length")
        assert bool(changed) == bool(step.changes)
    name = defect.violations[0].name
    assert name in browser.text(f"{ROWS}.broken")
    assert browser.text("#invariants .wrong .name") == name
    assert len(browser.texts("#diagram .strip")) == len(trace.steps)
    # Back to before a message was sent, which is lost this time.
    sends = next(
        n for n, step in enumerate(trace.steps) if any(e.kind == "send" and not e.lost for e in step.events) and n > 2
    )
    browser.click(f"{ROWS}[data-place='{sends}']")
    assert place(browser) == sends
    assert len(browser.texts(ROWS)) == len(trace)
    assert browser.texts("#invariants .wrong") == []
    ways = browser.texts(".offer .way")
    lost = next(i for i, text in enumerate(ways) if "lost" in text)
    browser.run("document.querySelectorAll('.offer .way')[arguments[0]].parentElement.id = 'lost'", lost)
    browser.click("#lost")
    assert place(browser) == sends + 1
    assert len(browser.texts(ROWS)) == sends + 2
    assert browser.texts("#diagram .lost text") != []
    # Both branches are kept.
    browser.press("[")
    assert len(browser.texts(ROWS)) == len(trace)
    browser.press("]")
    assert len(browser.texts(ROWS)) == sends + 2
    link = browser.run("return location.href")
    rows = browser.texts(ROWS)
    with served(load("bookkeeper-4.13")(recovery_reads_fence=False)) as another:
        for page in (ledger, another):
            browser.open(page.address + "#" + link.partition("#")[2])
            # In another session there is nothing to tell of other branches.
            assert [r.partition("branch")[0] for r in browser.texts(ROWS)] == [r.partition("branch")[0] for r in rows]
            assert place(browser) == sends + 1


def test_a_counterexample_is_opened_and_left(
    browser: Browser, ledger: Page, defect: fencepost.Result, tmp_path: Path
) -> None:
    trace = counterexample(defect)
    file = tmp_path / "defect.json"
    file.write_text(to_json(defect))
    browser.open(ledger.address)
    browser.choose_file("#file", file)
    assert len(browser.texts(ROWS)) == len(trace)
    assert place(browser) == 0
    browser.press("End")
    assert defect.violations[0].name in browser.text(f"{ROWS}.on")
    browser.click(f"{ROWS}[data-place='4']")
    browser.press("3")
    assert place(browser) == 5
    assert browser.texts("#message") == [""] or "states" in browser.text("#message")
    file.write_text("{}")
    browser.choose_file_that_fails("#file", file)
    assert "no behaviour" in browser.text("#message")
    assert all("400 (Bad Request)" in complaint for complaint in browser.complaints())


def test_a_lasso_shows_its_loop(browser: Browser, lamp: Page, tmp_path: Path) -> None:
    result = fencepost.check(Lamp(), workers=1, invariants=["shines"], engine="reference")
    with served(Coin()) as page:
        told = page.tell("begin")
        for _ in range(3):
            told = page.tell("take", at=told["at"], move=[0])
        browser.open(page.address + "#" + told["path"])
        assert "for ever" in browser.text("#history")
        assert browser.run("return document.querySelectorAll('#diagram .loop path').length") == 1
        # After the last step of the loop comes the first of it.
        assert place(browser) == 3
        browser.press("ArrowRight")
        assert place(browser) == told["loop"] + 1
    file = tmp_path / "lasso.json"
    file.write_text(to_json(result))
    browser.open(lamp.address)
    assert browser.text("#promise").startswith("shines is about whole behaviours: judged by check")
    browser.choose_file("#file", file)
    assert "for ever" in browser.text("#history")
    assert browser.texts("#temporal .wrong .name") == ["shines"]
    # The lasso is left, and then nothing is said of it.
    browser.press("1")
    assert browser.texts("#temporal .wrong") == []


def test_what_is_to_be_reached_is_marked_where_it_is(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "witness.json"
    file.write_text(to_json(fencepost.check(Lamp(), invariants=["is_counted"], engine="reference")))
    with served(Lamp()) as page:
        browser.open(page.address)
        assert browser.texts("#sought .mark") == ["◇"] and "not on this walk" in browser.text("#sought")
        browser.choose_file("#file", file)
        browser.press("End")
        assert browser.texts("#sought .mark") == ["◆"] and "is_counted" in browser.text("#sought")
        assert "at 3" in browser.text("#sought")


def test_expressions_are_watched(browser: Browser, lamp: Page) -> None:
    browser.open(lamp.address)
    browser.press("1")
    browser.press("/", settles=False)
    browser.type("on and not broken")
    browser.press("Enter")
    assert browser.texts("#watches .now") == ["True"]
    assert browser.texts("#watches .jump") == ["0: False", "1: True"]
    browser.press("Escape", settles=False)
    browser.press("1")
    assert browser.texts("#watches .jump") == ["0: False", "1: True", "2: False"]
    assert browser.run(
        f"return [...document.querySelectorAll('{ROWS} .turn')].map(t => t.closest('li').dataset.place)"
    ) == ["1", "2"]
    browser.click("#watches .jump:nth-of-type(2)")
    assert place(browser) == 1
    browser.open(lamp.address)  # they are still there, now at the start
    browser.until("document.querySelectorAll('#watches .now').length === 1")
    browser.click("#watches .drop")
    assert browser.texts("#watches .now") == []
    browser.press("/", settles=False)
    browser.type("<b>")
    browser.press("Enter")
    assert "cannot be read" in browser.text("#watches .error")
    browser.press("Escape", settles=False)
    browser.click("#watches .drop")
    browser.press("/", settles=False)
    browser.type("max(iter(int, 1))")
    browser.press("Enter")
    assert "takes longer than" in browser.text("#watches .error")
    browser.press("Escape", settles=False)
    browser.press("ArrowRight")
    browser.click("#watches .drop")
    assert browser.texts("#watches .error") == []


def test_a_search_shows_the_way_to_what_it_finds(browser: Browser, ledger: Page) -> None:
    browser.open(ledger.address)
    browser.press("1")
    browser.run(
        "document.querySelector('#expression').value = \"meta.status is not None and meta.status.name == 'CLOSED'\""
    )
    browser.click("#find-here")
    browser.until("document.querySelector('#said').textContent.startsWith('Found')")
    assert place(browser) == len(browser.texts(ROWS)) - 1
    assert "CLOSED" in browser.text(".card.changed")
    # What is said of the way from here is said for as long as it is shown.
    assert browser.text("#said").startswith("Found")
    browser.press("Home")
    assert browser.text("#said") == ""
    browser.open(ledger.address)
    assert browser.text("#said") == ""


def test_a_number_without_a_step_is_told(browser: Browser, lamp: Page) -> None:
    browser.open(lamp.address)
    browser.press("9", settles=False)
    assert browser.text("#message") == "There is no step 9 here: the last is 2."
    assert place(browser) == 0


def test_a_search_is_stopped(browser: Browser) -> None:
    with served(Ticking()) as page:
        browser.open(page.address)
        browser.press("1", "1")
        browser.run("document.querySelector('#expression').value = 'False'")
        browser.click("#find-start", settles=False)
        browser.until("document.querySelector('#said').textContent.includes(' states, level ')")
        # The page answers while the engine works.
        browser.press("Home")
        assert place(browser) == 0
        assert not browser.run("return document.querySelector('#stop').hidden")
        browser.press("s", settles=False)
        assert browser.text("#said").startswith("Stop")  # at once, whatever the engine is doing
        browser.until("document.querySelector('#stop').hidden")
        assert browser.text("#said").startswith("Stopped")


def test_the_keyboard_alone(browser: Browser, lamp: Page) -> None:
    browser.open(lamp.address)
    browser.press("?", settles=False)
    assert browser.run("return document.querySelector('#keys').open")
    assert "one step back" in browser.text("#keys")
    browser.press("Escape", settles=False)
    browser.until("!document.querySelector('#keys').open")
    browser.press("ArrowDown", settles=False)
    assert "press(p=p2)" in browser.text(".offer.chosen")
    browser.press("Enter")
    assert browser.texts(f"{ROWS} .title") == ["initial state", "p2 press(p=p2)"]
    browser.press("3")
    assert "breaks" in browser.text(f"{ROWS}.on")
    browser.press("ArrowLeft", "ArrowLeft")
    assert place(browser) == 0
    browser.press("ArrowRight")
    browser.press("End")
    assert place(browser) == 2
    browser.press("Home")
    assert place(browser) == 0
    browser.press("/", settles=False)
    browser.type("broken and pressed == 1")
    browser.press("Control+Enter")
    browser.until("document.querySelector('#said').textContent.startsWith('Found 3 steps')")
    assert len(browser.texts(ROWS)) == 4
    browser.press("Escape", settles=False)
    browser.press("ArrowLeft")
    assert place(browser) == 2
    # Everything that can be clicked can be reached with the Tab key too.
    hidden = browser.run(
        "return [...document.querySelectorAll('button, a, summary')].filter(e => e.tabIndex < 0).map(e => e.outerHTML)"
    )
    assert hidden == []


def test_a_link_that_leads_nowhere_is_told(browser: Browser, lamp: Page) -> None:
    browser.open(lamp.address + "#0/99")
    assert "has no action number 99" in browser.text("#message")
    assert all("400 (Bad Request)" in complaint for complaint in browser.complaints())
    assert browser.texts(f"{ROWS} .title") == ["initial state"]
    browser.press("1")
    assert place(browser) == 1


def test_a_diagram_moved_sideways_keeps_its_titles(browser: Browser, ledger: Page, defect: fencepost.Result) -> None:
    session = ledger.explorer.session
    path = session.path(session.graft(counterexample(defect)))
    browser.look(390, 844)
    try:
        browser.open(f"{ledger.address}#{path}")
        browser.click(".tabs [data-tab=diagram]", settles=False)
        browser.run("document.querySelector('#diagram').scrollLeft = 120")
        browser.until(
            "[...document.querySelectorAll('#diagram .title')].every(t => Math.abs(t.getBoundingClientRect().left"
            " - document.querySelector('#diagram').getBoundingClientRect().left - 8) < 4)"
        )
    finally:
        browser.look(1280, 800)


def test_what_a_protocol_raises_is_shown(browser: Browser) -> None:
    with served(Lamp(faulty=True)) as page:
        browser.open(page.address)
        browser.press("1")
        assert "this is not for the lamp" in browser.text("#next .raised")
        browser.press("1")
        assert place(browser) == 2


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_jumps_and_nothing_overflows(browser: Browser, ledger: Page, width: int) -> None:
    """The panels stay where they are whatever is in them, and the page is never wider than the window."""
    browser.look(width, 844)
    try:
        browser.open(ledger.address)
        where = (
            "return JSON.stringify([...document.querySelectorAll('.panel, .walk button, .keep > *')].map(e =>"
            " e.getBoundingClientRect()))"
        )
        before = browser.run(where)
        for _ in range(4):
            browser.press("1")
            assert browser.run(where) == before
            assert browser.run(
                "return document.documentElement.scrollWidth <= innerWidth && document.documentElement.scrollHeight <="
                " innerHeight"
            )
        # However little there is to show, the window is filled.
        assert browser.run("return innerHeight - document.querySelector('main').getBoundingClientRect().bottom") == 0
        if width == 390:
            for tab in ("diagram", "state", "history", "judged", "next"):
                browser.click(f".tabs [data-tab={tab}]", settles=False)
                assert browser.run(
                    "return [...document.querySelectorAll('.panel')].filter(p => p.getClientRects().length).map(p =>"
                    " p.dataset.panel)"
                ) == [tab]
    finally:
        browser.look(1280, 800)


@pytest.mark.campaign
def test_a_thousand_steps_and_three_hundred_slots(browser: Browser) -> None:
    """Everything remains usable in a long session with a large state."""
    with served(Wide()) as page:
        session = page.explorer.session
        node = session.starts[0]
        for _ in range(1_000):
            node = session.take(node, (0, ()))
        browser.open(f"{page.address}#{session.path(node)}")
        assert len(browser.texts(ROWS)) == 1_001
        assert len(browser.texts("#invariants .jump")) == 1
        assert browser.run("return document.querySelectorAll('#diagram .strip').length") <= 60
        for _ in range(3):
            browser.press("1")
        assert place(browser) == 1_003
        assert browser.text(f"{ROWS}[data-place='1003'] .title") == "pen write"
        browser.press("Home")
        assert place(browser) == 0
        browser.press("End", "ArrowLeft")
        assert place(browser) == 1_002
        assert browser.run("return document.querySelectorAll('.card tr').length") >= 300
