"""Memory that is freed is there for what is taken next, without a page fault."""

from __future__ import annotations

import subprocess
import sys

TAKE = """
import resource, numpy
from fencepost.store.memory import keep_what_is_freed

kept = keep_what_is_freed()

def take():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [numpy.ones(1 << 20, numpy.uint8) for _ in range(32)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

first = take()
print(int(kept), first, take())
"""


def test_blocks_that_are_taken_again_cost_no_page_faults() -> None:
    made = subprocess.run([sys.executable, "-c", TAKE], capture_output=True, text=True, check=True)
    kept, first, again = map(int, made.stdout.split())
    if kept:
        assert first > 1_000 and again < first / 10
