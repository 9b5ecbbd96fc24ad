"""Settings of the whole suite: how many examples generated tests try (many more with FENCEPOST_THOROUGH=1), which
campaigns are run, and how tests are divided among workers.
"""

import os
import signal
from importlib import import_module
from typing import Any

import pytest
from campaigns import part_of
from hypothesis import HealthCheck, settings
from work_units import OneSession

_QUIET = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
settings.register_profile("everyday", max_examples=60, derandomize=True, database=None, **_QUIET)  # type: ignore[arg-type]
settings.register_profile("thorough", max_examples=2_000, print_blob=True, **_QUIET)  # type: ignore[arg-type]
settings.load_profile("thorough" if os.environ.get("FENCEPOST_THOROUGH") else "everyday")


def pytest_runtest_setup() -> None:
    """Ctrl-C interrupts each test, and a request to end ends it and the processes that it forks. A shell's background
    process ignores the first, and a command that has ended may leave either handled otherwise.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


@pytest.fixture(autouse=True, scope="session")
def the_same_engine_whatever_is_compiled() -> None:
    """A check in this process waits for loops that are not compiled yet, and has the engine that it has otherwise."""
    import_module("fencepost.api.check").WHILE_COMPILING = 0  # type: ignore[attr-defined]


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
