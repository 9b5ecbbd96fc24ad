"""``python careless_bookie.py PROTECTION bookie DIR ...``: ``fencepost bookie`` with one protection of its boot turned
off.

Without ``run_precedes_answers`` it is killed before it has recorded how it runs, and does not check which journal the
last run ended with.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from fencepost.cli.main import main
from fencepost.ledger.bookie import cookies, process
from fencepost.ledger.bookie.directories import Directories
from fencepost.ledger.roles import repair
from fencepost.ledger.roles.bookie import Bookie
from fencepost.ledger.rules.boot import Run, Step, steps_of_boot
from fencepost.ledger.rules.protections import ALL

protection = sys.argv.pop(1)
careless = ALL.replace(**{protection: False})


def steps(**found: Any) -> tuple[Step, ...]:
    return steps_of_boot(**found, protections=careless)


def never(directory: str, run: Run, *others: Any, original: Any = cookies.record_run) -> None:
    """The bookie is killed before it writes this record."""
    if run.ended_cleanly:
        original(directory, run, *others)


process.steps_of_boot = steps  # type: ignore[attr-defined]
process.Bookie = functools.partial(Bookie, protections=careless)  # type: ignore[attr-defined,assignment]
repair.Repair = functools.partial(repair.Repair, protections=careless)  # type: ignore[assignment,misc]
if protection == "run_precedes_answers":
    cookies.record_run = never  # type: ignore[assignment]
    Directories._last_journal = 0  # type: ignore[assignment,method-assign]

if __name__ == "__main__":
    sys.exit(main())
