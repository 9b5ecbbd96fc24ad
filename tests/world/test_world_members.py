"""Members of the metadata service on virtual time."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Coroutine
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.ledger.metadata.session import ZooKeeperSession
from fencepost.simulation.interposed import interposed
from fencepost.simulation.streams import SimTransport
from fencepost.world.case import drawn
from fencepost.world.process import Process
from fencepost.world.world import World


def ran(world: World, program: Coroutine[Any, Any, None], until: int) -> World:
    """Run members, and a client that does something meanwhile."""
    with interposed(world.schedule, "members"):
        for member in world.quorum.members:
            member.start()
        Process(world, "client", lambda: program).start()
        world.schedule.go_on(until)
        for loop in world.streams.loops:
            loop.abandon()
    return world


def test_clients_that_leave_before_there_is_a_leader_do_no_harm() -> None:
    """They wanted sessions, and the leader has nothing to put into the log for them."""

    async def come_and_go() -> None:
        owner: Any = None  # there is nothing to notify it of
        sessions = [ZooKeeperSession([(f"h{number}", 2181)], 1.0, owner) for number in (1, 2, 3)]
        for session in sessions:
            session.start()
        await asyncio.sleep(0.05)
        for session in sessions:
            await session.stop()

    world = ran(World(replace(drawn(16), rates=(), slow=0.0, loss=0.0)), come_and_go(), 1_000_000)
    assert world.error is None
    assert any(member.replica.leads for member in world.quorum.members)


def test_what_a_stopped_process_was_about_to_do_is_left_without_complaint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    complaints: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)

    async def waits() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(100)

    world = World(replace(drawn(16), rates=()))
    with interposed(world.schedule, "stopped"):
        process = Process(world, "client", waits)
        process.start()
        world.schedule.go_on(1_000)
        assert process.loop is not None
        process.loop.stop(2_000)
        for loop in world.streams.loops:
            loop.abandon()
    del world, process, loop
    gc.collect()
    assert not complaints


def test_what_came_for_a_connection_that_was_closed_meanwhile_is_given_to_nobody() -> None:
    """The process was stopped, and closes it before it looks at what came."""
    given: list[bytes] = []
    transport: Any = SimTransport(SimpleNamespace(), SimpleNamespace(is_broken=True), SimpleNamespace())  # type: ignore
    transport.loop = SimpleNamespace(has_ended=False, call_soon=lambda *call: None)
    transport.protocol = SimpleNamespace(data_received=given.append)
    transport._deliver(b"one")
    transport.close()
    transport._deliver(b"two")
    assert given == [b"one"]
