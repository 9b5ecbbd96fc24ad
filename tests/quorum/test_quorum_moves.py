"""Simulated quorums whose hosts restart at other endpoints. All promises hold, and voters name the new endpoints."""

from __future__ import annotations

import pytest

from fencepost.quorum.identity import ReplicaKey, VoterSet
from fencepost.quorum.messages import Request
from fencepost.quorum.simulation.case import drawn
from fencepost.quorum.simulation.cluster import Cluster
from fencepost.quorum.simulation.host import SimHost

SEEDS = range(25)


class Moving(Cluster):
    """Crashed hosts restart at another endpoint, as long as a majority of every configuration keeps its endpoints."""

    moves = 0

    def _in_place(self, voters: VoterSet) -> set[ReplicaKey]:
        return {
            node.key
            for node in voters.nodes
            for host in self.hosts
            if (host.key, host.endpoint) == (node.key, node.endpoint)
        }

    def _survives(self, voters: VoterSet, lost: ReplicaKey | None = None) -> bool:
        return 2 * len(self._in_place(voters) - {lost}) > len(voters)

    def _start_later(self, host: SimHost) -> None:
        if self.faulty and self._may_lose(host):
            self.moves += 1
            del self.by_endpoint[host.endpoint]
            host.endpoint = f"h{host.host_id}:{1 + self.moves}"
            self.by_endpoint[host.endpoint] = host
            self.endpoints = tuple(each.endpoint for each in self.hosts)
        super()._start_later(host)

    def send(self, source: SimHost, endpoint: str, request: Request) -> None:
        if endpoint in self.by_endpoint:
            super().send(source, endpoint, request)
        else:
            source.unreachable(endpoint)

    def _all_in_place(self, voters: VoterSet) -> bool:
        return self._in_place(voters) == {key for key in voters.keys if self._is_intact(key)}

    def _has_finished(self) -> bool:
        return super()._has_finished() and all(self._all_in_place(host.replica.voters) for host in self.hosts)


@pytest.fixture(scope="module")
def moved() -> list[int]:
    """The number of moves of each seed."""
    return []


@pytest.mark.parametrize("seed", SEEDS)
def test_voters_that_move_are_found(seed: int, moved: list[int]) -> None:
    cluster = Moving(drawn(seed))
    outcome = cluster.run()
    assert not outcome.promise, f"{outcome.details}: {[(host.key, host.endpoint) for host in cluster.hosts]}"
    moved.append(cluster.moves)


def test_hosts_have_moved(moved: list[int]) -> None:
    assert len(moved) < len(SEEDS) or sum(moved) > 2 * len(SEEDS)
