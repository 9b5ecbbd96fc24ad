"""Shrinks a failing case: fewer kinds of faults, faults, entries, clients and bookies, while it still fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fencepost.ledger.simulation.case import Case
from fencepost.ledger.simulation.cluster import Outcome
from fencepost.ledger.simulation.faults import planned
from fencepost.ledger.simulation.workload import simulate

MOST_RUNS = 400
"""The most runs to try."""


def shrunk(failed: Outcome) -> Outcome:
    """The smallest case found that breaks the same promise. Unless it ran out of tries, no case one step smaller breaks
    it.
    """
    assert failed.violation is not None
    smallest, runs = failed, 0
    again = True
    while again:
        again = False
        for case in _smaller(smallest.case):
            if runs == MOST_RUNS:
                return smallest
            runs += 1
            outcome = simulate(case)
            if outcome.violation is not None and outcome.violation.promise == failed.violation.promise:
                smallest, again = outcome, True
                break
    return smallest


def _smaller(case: Case) -> Iterator[Case]:
    """Cases that are one step smaller, the largest reductions first."""
    for kind in case.faults:
        yield replace(case, faults=tuple(other for other in case.faults if other != kind))
    for entries in sorted({1, case.entries // 2, case.entries - 1}):
        if 1 <= entries < case.entries:
            yield replace(case, entries=entries)
    for number in sorted({0, case.recoverers - 1}):
        if 0 <= number < case.recoverers:
            yield replace(case, recoverers=number)
    if case.readers:
        yield replace(case, readers=0)
    sizes = (case.ensemble, case.write_quorum, case.ack_quorum)
    for ensemble, write_quorum, ack_quorum in ((2, 2, 1), (2, 2, 2), (3, 3, 2), (case.write_quorum, *sizes[1:])):
        if (ensemble, write_quorum, ack_quorum) < sizes:
            bookies = min(case.bookies, ensemble + ack_quorum - 1)
            yield replace(case, ensemble=ensemble, write_quorum=write_quorum, ack_quorum=ack_quorum, bookies=bookies)
    if case.bookies > case.ensemble:
        yield replace(case, bookies=case.bookies - 1)
    for fault in planned(case):
        yield replace(case, left_out=tuple(sorted((*case.left_out, fault.number))))
