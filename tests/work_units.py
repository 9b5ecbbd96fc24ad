"""What of the tests goes to one worker: a file, or all that need a session of Spark, as each worker would start its
own. Where tests take long, each goes by itself.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadFileScheduling

WITH_SESSION = re.compile(r"^def \w+\(.*\bspark: |usefixtures\(.*\"spark\"", re.MULTILINE)
"""A test or a fixture that asks for a session."""
SPARK = "all with a session of Spark"
BY_TEST = {"tests/docs/test_store_pages.py"}
"""Files of which each test goes to any worker: it takes half a minute or longer, and shares nothing with the others."""


@cache
def work_unit(file: str) -> str:
    """Where a file of tests belongs."""
    return SPARK if WITH_SESSION.search((Path(__file__).parents[1] / file).read_text()) else file


class OneSession(LoadFileScheduling):  # type: ignore[misc]
    """One worker has the session. It begins with it, as that takes longest."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return nodeid if file in BY_TEST else work_unit(file)

    def _assign_work_unit(self, node: Any) -> None:
        if SPARK in self.workqueue:
            self.workqueue.move_to_end(SPARK, last=False)
        super()._assign_work_unit(node)
