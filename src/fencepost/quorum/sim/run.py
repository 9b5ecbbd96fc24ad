"""One run of the simulator."""

from __future__ import annotations

from fencepost.quorum.rules import ALL, Protections
from fencepost.quorum.sim.case import Case, drawn
from fencepost.quorum.sim.cluster import Cluster, Outcome
from fencepost.quorum.sim.story import Tell
from fencepost.store.sim.trace import SimTrace


def simulate(
    case: Case | int, protections: Protections = ALL, tell: Tell | None = None, trace: SimTrace | None = None
) -> Outcome:
    """Run a case, or the one that a seed draws, to its end. ``tell`` hears every step, and ``trace`` what the hosts
    write into a trace. The same case has the same outcome in every process, traced or not.
    """
    return Cluster(drawn(case) if isinstance(case, int) else case, protections, tell, trace).run()
