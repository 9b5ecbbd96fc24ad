"""Traces of real drivers in this process: decisions of the role, and when they are durable and sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from patience import eventually
from quorum.hosts import TestCluster, free_ports

from fencepost.protocols.quorum.conformance import QuorumConformance
from fencepost.quorum.driver.host import QuorumHost
from fencepost.quorum.driver.node import QuorumNode
from fencepost.traces.validation.conformance import Event
from fencepost.traces.validation.validate import Validator
from fencepost.traces.validation.verdict import Verdict

Traced = Callable[[Callable[[TestCluster], Awaitable[None]]], Awaitable[list[Event]]]


@pytest.fixture
def traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Traced:
    """Runs a coroutine on three hosts. Gives their events."""
    events: list[Event] = []
    starts: dict[str, int] = {}
    begin = QuorumHost.begin

    def begun(self: QuorumHost, *arguments: Any) -> QuorumNode:
        node = f"metadata-{self.me.key.host_id}"
        incarnation = starts[node] = starts.get(node, 0) + 1

        def emit(action: str, subject: str, fields: dict[str, Any]) -> None:
            told = msgspec.json.decode(msgspec.json.encode(fields))
            events.append(Event(node, incarnation, len(events), action, subject, told))

        self.emit = emit
        return begin(self, *arguments)

    async def ran(test: Callable[[TestCluster], Awaitable[None]]) -> list[Event]:
        async with TestCluster(tmp_path) as cluster:
            await cluster.start()
            await test(cluster)
        return sorted(events, key=lambda event: (event.node, event.incarnation, event.seq))

    monkeypatch.setattr(QuorumHost, "begin", begun)
    return ran


def validated(events: list[Event]) -> Verdict:
    assert events[0].subject is not None
    return Validator(QuorumConformance).validate(events[0].subject, events)


async def _propose(cluster: TestCluster) -> None:
    await cluster.propose(b"record")


async def test_a_driver_that_stores_what_it_decides_before_it_answers_is_accepted(traced: Traced) -> None:
    verdict = validated(await traced(_propose))
    assert verdict.accepted, [(each.event, str(each.why)) for each in verdict.refusals]


async def test_a_driver_that_stores_its_election_state_later_than_it_answers_is_told(
    traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = QuorumNode._store_election
    monkeypatch.setattr(
        QuorumNode, "_store_election", lambda self, effect: self._loop.call_later(0.02, original, self, effect) and None
    )
    verdict = validated(await traced(_propose))
    assert not verdict.accepted
    assert any(
        each.event.action == "speak" and "self.stores_before_speaking" in str(each.why) for each in verdict.refusals
    ), [(each.event, str(each.why)) for each in verdict.refusals]


async def test_a_voter_that_has_moved_is_accepted(traced: Traced) -> None:
    async def test(cluster: TestCluster) -> None:
        leader = await cluster.leader()
        moved = next(each for each in cluster.running if each is not leader)
        await moved.kill()
        cluster.endpoints[moved.host_id] = f"127.0.0.1:{free_ports(1)[0]}"
        await moved.start()

        def is_known() -> bool:
            return any(node.endpoint == cluster.endpoints[moved.host_id] for node in leader.node.replica.voters.nodes)

        await eventually(is_known, "the new endpoint")
        await cluster.propose(b"record")

    events = await traced(test)
    verdict = validated(events)
    assert verdict.accepted, [(each.event, str(each.why)) for each in verdict.refusals]
    assert "accept_update_voter_request" in {event.action for event in events}
