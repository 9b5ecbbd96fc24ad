"""Settings of the whole suite: how many examples generated tests try (many more with FENCEPOST_THOROUGH=1), which
campaigns are run, and how tests are divided among workers.
"""

import random
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import wraps
from importlib import import_module
from inspect import iscoroutinefunction
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any

import patience
import pytest
from campaigns import THOROUGH, part_of
from hypothesis import HealthCheck, settings
from object_stores import ObjectStore
from work_units import OneSession

if TYPE_CHECKING:
    from s3_server import S3Server

_QUIET = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
settings.register_profile("everyday", max_examples=60, derandomize=True, database=None, **_QUIET)  # type: ignore[arg-type]
settings.register_profile("thorough", max_examples=2_000, print_blob=True, **_QUIET)  # type: ignore[arg-type]
settings.load_profile("thorough" if THOROUGH else "everyday")


def pytest_runtest_setup() -> None:
    """Ctrl-C interrupts each test, and a request to end ends it and the processes that it forks. A shell's background
    process ignores the first, and a command that has ended may leave either handled otherwise.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """A test may be a coroutine. What it is given is entered first where that is an asynchronous context."""
    test = pyfuncitem.obj
    if not iscoroutinefunction(test):
        return

    async def within(given: dict[str, Any]) -> None:
        async with AsyncExitStack() as stack:
            for name, each in given.items():
                if isinstance(each, AbstractAsyncContextManager):
                    given[name] = await stack.enter_async_context(each)
            await test(**given)

    pyfuncitem.obj = wraps(test)(lambda **given: patience.run(within(given)))


@pytest.fixture(params=["asyncio", "uvloop"])
def every_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test on asyncio's event loop, and on uvloop's, as programs run in earnest."""
    import uvloop

    monkeypatch.setattr(patience, "LOOP_FACTORY", uvloop.new_event_loop if request.param == "uvloop" else None)


@pytest.fixture(autouse=True, scope="session")
def the_same_engine_whatever_is_compiled() -> None:
    """A check in this process waits for loops that are not compiled yet, and has the engine that it has otherwise."""
    import_module("fencepost.api.check").WHILE_COMPILING = 0  # type: ignore[attr-defined]


@pytest.fixture
def generator(monkeypatch: pytest.MonkeyPatch) -> random.Random:
    """What this thread draws from in place of the process's generator, as a server of another test draws from that."""
    own, here = random.Random(5), get_ident()

    def in_thread(mine: Callable[..., Any], theirs: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **options: (mine if get_ident() == here else theirs)(*args, **options)

    for name in random.__all__:
        if hasattr(own, name):
            monkeypatch.setattr(random, name, in_thread(getattr(own, name), getattr(random, name)))
    return own


@pytest.fixture(scope="session")
def s3_of_session() -> "Iterator[S3Server]":
    """A server that the tests share, as it takes seconds to start."""
    from s3_server import S3Server

    server = S3Server()
    yield server
    server.stop()


@pytest.fixture
def s3(s3_of_session: "S3Server", monkeypatch: pytest.MonkeyPatch) -> "Iterator[S3Server]":
    """An S3 server without faults, and its keys in the environment."""
    from s3_server import KEYS

    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    yield s3_of_session
    if not s3_of_session.is_running:
        s3_of_session.start()
    s3_of_session.work()


@pytest.fixture(params=["folder", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """A folder of an object store: a local one, and one of an S3 server."""
    if request.param == "folder":
        return ObjectStore(str(tmp_path / "objects"))
    server = request.getfixturevalue("s3")
    return ObjectStore(server.url(f"{tmp_path.parent.name}-{tmp_path.name}/logs"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--campaigns", metavar="K/N", help="of the campaigns, run the K-th of N parts alone")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not (part := config.getoption("--campaigns")):
        return
    file_of = {item: item.nodeid.partition("::")[0] for item in items if item.get_closest_marker("campaign")}
    try:
        files = part_of(part, file_of.values())
    except ValueError:
        raise pytest.UsageError(f"--campaigns is a part such as 2/4, not {part}") from None
    left_out = {item for item, file in file_of.items() if file not in files}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneSession | None:
    return OneSession(config, log) if config.getvalue("dist") == "loadfile" else None
