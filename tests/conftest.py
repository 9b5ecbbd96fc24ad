"""Settings of the whole suite: how many examples generated tests try (many more with FENCEPOST_THOROUGH=1), and how
tests are divided among workers.
"""

import os
import signal
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from work_units import OneSession

_QUIET = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
settings.register_profile("everyday", max_examples=60, derandomize=True, database=None, **_QUIET)  # type: ignore[arg-type]
settings.register_profile("thorough", max_examples=2_000, print_blob=True, **_QUIET)  # type: ignore[arg-type]
settings.load_profile("thorough" if os.environ.get("FENCEPOST_THOROUGH") else "everyday")

# A shell's background process ignores Ctrl-C, and its children would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneSession | None:
    return OneSession(config, log) if config.getvalue("dist") == "loadfile" else None
