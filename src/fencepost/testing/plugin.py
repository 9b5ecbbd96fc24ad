"""The plugin for pytest: tests that check a protocol, drive a system along it, and validate its traces.

A failure is the story that ``fencepost check`` prints, and a page beside the report of the tests.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fencepost.api.result import Result, Unexpected
from fencepost.errors import FencepostError
from fencepost.testing.decorator import CONFIG, Checked, as_expected
from fencepost.text import units

if TYPE_CHECKING:  # pytest loads this module wherever Fencepost is installed, and what is not needed takes time
    from fencepost.testing.driving import Driven
    from fencepost.testing.recording import Recording

_RECORDING = pytest.StashKey["Recording"]()
_NOTE = "fencepost"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("fencepost")
    group.addoption(
        "--fencepost-budget",
        metavar="TIME",
        type=_budget,
        help="the most time of each check and each drive, such as 30s; by default there is no limit",
    )
    group.addoption(
        "--fencepost-pages",
        metavar="DIR",
        type=Path,
        help="where to write the pages of failures; by default beside the report of --junitxml or --html, else in"
        " pytest's cache",
    )


def _budget(text: str) -> float:
    try:
        return units.seconds(text)
    except argparse.ArgumentTypeError as error:
        raise pytest.UsageError(f"--fencepost-budget: {error}") from None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each configuration."""
    what = getattr(metafunc.function, "fencepost", None)
    if isinstance(what, Checked):
        metafunc.parametrize(CONFIG, what.configs, ids=[config or "default" for config in what.configs])


@contextmanager
def _in_one_line() -> Iterator[None]:
    """Errors that are explained to a user need no traceback."""
    try:
        yield
    except FencepostError as error:
        raise Unexpected(str(error), None) from None


@pytest.fixture
def fencepost_check(request: pytest.FixtureRequest) -> Callable[..., Result]:
    """Checks a protocol: ``fencepost_check(Protocol, config, **options)``. The verdict must be the expected one. The
    test is skipped if the check is not complete within the budget.
    """
    budget = request.config.getoption("--fencepost-budget")

    def undecided(result: Result) -> None:
        if budget is not None and result.limit is not None:
            pytest.skip(f"not decided within {budget:g} s: {result.distinct_states:,} states hold so far")

    def run(protocol: Any, config: str | None = None, **options: Any) -> Result:
        with _in_one_line():
            return as_expected(protocol, config, undecided, **({"timeout": budget} if budget else {}) | options)

    return run


@pytest.fixture
def fencepost_drive(request: pytest.FixtureRequest) -> Callable[..., Driven]:
    """Drives a system, which must follow: ``fencepost_drive(Protocol, System, **options)``, as
    :func:`fencepost.testing.drive`.
    """
    from fencepost.testing.driving import drive
    from fencepost.testing.report import headline

    budget = request.config.getoption("--fencepost-budget")

    def run(protocol: Any, system: Callable[[], Any], **options: Any) -> Driven:
        with _in_one_line():
            driven = drive(protocol, system, **{"seconds": budget} | options)
        if driven.limits and not driven.covered and driven.shown is None:
            pytest.skip(f"nothing was driven: ended by {driven.limits[0]}")
        driven.must_follow()
        if driven.limits:
            request.node.user_properties.append((_NOTE, headline(driven)))
        return driven

    return run


@pytest.fixture
def fencepost_trace(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Recording]:
    """Makes trace writers: ``fencepost_trace(Conformance, node="server")``. At the end of the test their events must be
    a behaviour of the protocol.
    """
    from fencepost.testing.recording import Recording

    recording = request.node.stash[_RECORDING] = Recording(tmp_path / "traces")
    yield recording
    recording.close()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Validate what the test recorded, and fail with the story alone."""
    try:
        found = yield
        recording = pyfuncitem.stash.get(_RECORDING, None)
        if recording is not None:
            recording.must_conform()
        return found
    except Unexpected as error:
        page = _page(pyfuncitem, error)
        story = str(error).rstrip("\n") + (f"\n\nAs a page: {page}" if page is not None else "")
        raise pytest.fail.Exception(story, pytrace=False) from None


def _page(item: pytest.Function, error: Unexpected) -> Path | None:
    """The page of a failure, written."""
    if error.to_html is None:
        return None
    config = item.config
    folder: Path | None = config.getoption("--fencepost-pages")
    report = getattr(config.option, "htmlpath", None) or getattr(config.option, "xmlpath", None)
    if folder is None and report is not None:
        folder = Path(report).parent
    if folder is None:
        folder = config.cache.mkdir("fencepost") if getattr(config, "cache", None) is not None else None
    if folder is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / (re.sub(r"[^\w.-]+", "-", item.nodeid).strip("-") + ".html")
    page.write_text(error.to_html(), encoding="utf-8")
    here = config.invocation_params.dir
    return page.relative_to(here) if page.is_relative_to(here) else page


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say which drives a limit ended."""
    notes = [
        (report.nodeid, note)
        for report in terminalreporter.stats.get("passed", ())
        for name, note in report.user_properties
        if name == _NOTE
    ]
    if notes:
        terminalreporter.section("fencepost")
        for nodeid, note in notes:
            terminalreporter.line(f"{nodeid}: {note}")
