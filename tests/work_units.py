"""How tests are divided among workers. A worker takes a file, or all files that need a Spark session, since each worker
would start its own. Slow tests go to workers one at a time, and slow files go first.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadFileScheduling

WITH_SESSION = re.compile(r"^def \w+\(.*\bspark: |usefixtures\(.*\"spark\"", re.MULTILINE)
"""A test or a fixture that uses the session."""
SPARK = "all with a session of Spark"
FIRST = (
    SPARK,
    "tests/protocols/store/test_store_roles.py",
    "tests/spark/test_on_cluster.py",
    "tests/docs/test_examples.py",
    "tests/ledger/autorecovery/test_autorecovery.py",
    "tests/quorum/test_quorum_replicas.py",
    "tests/protocols/test_bookkeeper_boot.py",
    "tests/protocols/test_mutants.py",
)
"""The units that take a minute or longer, the longest first. Workers begin with them, so that no worker is left alone
with one at the end.
"""
BY_TEST = {"tests/docs/test_store_pages.py"}
"""Files whose tests go to workers one at a time: each takes half a minute or longer and shares nothing with the others.
"""


@cache
def work_unit(file: str) -> str:
    """The unit of work of a test file."""
    return SPARK if WITH_SESSION.search((Path(__file__).parents[1] / file).read_text()) else file


class OneSession(LoadFileScheduling):  # type: ignore[misc]
    """One worker gets all tests of the session."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return nodeid if file in BY_TEST else work_unit(file)

    def _assign_work_unit(self, node: Any) -> None:
        for unit in reversed(FIRST):
            if unit in self.workqueue:
                self.workqueue.move_to_end(unit, last=False)
        super()._assign_work_unit(node)
