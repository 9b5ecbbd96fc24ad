"""What of the tests goes to one worker: a file, or all that need a session of Spark, as each worker would start its
own.
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


@cache
def work_unit(file: str) -> str:
    """Where a file of tests belongs."""
    return SPARK if WITH_SESSION.search((Path(__file__).parents[1] / file).read_text()) else file


class OneSession(LoadFileScheduling):
    """One worker has the session. It begins with it, as that takes longest."""

    def _split_scope(self, nodeid: str) -> str:
        return work_unit(super()._split_scope(nodeid))

    def _assign_work_unit(self, node: Any) -> None:
        if SPARK in self.workqueue:
            self.workqueue.move_to_end(SPARK, last=False)
        super()._assign_work_unit(node)
