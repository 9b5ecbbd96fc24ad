"""One run of the simulator."""

from __future__ import annotations

from fencepost.store.sim.case import Case
from fencepost.store.sim.cluster import Cluster, Outcome
from fencepost.store.sim.story import Story
from fencepost.store.sim.trace import SimTrace
from fencepost.store.sim.workload import Workload


def simulate(case: Case, story: Story | None = None, trace: SimTrace | None = None) -> Outcome:
    """Run a case to its end. The same case has the same outcome in every process; ``story`` takes down what happens,
    and ``trace`` what the processes tell of themselves, which changes nothing.
    """
    cluster = Cluster(case, story, trace)
    workload = Workload(cluster)
    return cluster.run(workload.finished)
