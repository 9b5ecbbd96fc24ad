"""How much the generated tests try: enough for every day, and with FENCEPOST_THOROUGH=1 much more."""

import os
import signal

from hypothesis import HealthCheck, settings

_QUIET = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
settings.register_profile("everyday", max_examples=60, derandomize=True, database=None, **_QUIET)  # type: ignore[arg-type]
settings.register_profile("thorough", max_examples=2_000, print_blob=True, **_QUIET)  # type: ignore[arg-type]
settings.load_profile("thorough" if os.environ.get("FENCEPOST_THOROUGH") else "everyday")

# A process that a shell started in the background ignores Ctrl-C, and so would those that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
