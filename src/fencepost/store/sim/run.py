"""One run of the simulator."""

from __future__ import annotations

from fencepost.store.sim.case import Case
from fencepost.store.sim.cluster import Cluster, Outcome
from fencepost.store.sim.story import Story
from fencepost.store.sim.workload import Workload


def simulate(case: Case, story: Story | None = None) -> Outcome:
    """Run a case to its end. The same case has the same outcome in every process; ``story`` takes down what happens."""
    cluster = Cluster(case, story)
    workload = Workload(cluster)
    return cluster.run(workload.finished)
