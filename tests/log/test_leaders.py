"""Leaders of one log that all believe they lead, in a world of late and lost answers, crashes, pauses and elections."""

from __future__ import annotations

import pytest

from fencepost.ledger.roles.interface import Effect, Event, Outcome, TimerFired
from fencepost.log.roles import leader as role
from fencepost.log.roles.leader import DeleteLedger, Leader, Reason
from fencepost.log.rules import ALL, Attaching, Protections, Status
from fencepost.log.simulation.environment import Broken
from fencepost.log.simulation.world import World

SEEDS = 500
"""The seeds for which a test has time. 10,000 take a minute or two."""

SEEDS_OF_FAULTS = 60


def test_what_is_acknowledged_is_in_the_log_once_and_in_order() -> None:
    seen: set[object] = set()
    acknowledged = 0
    for seed in range(SEEDS):
        try:
            world = World(seed).run()
        except Broken as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        seen |= world.seen | world.happened
        acknowledged += len(world.acknowledged)
    assert acknowledged > 20 * SEEDS
    assert seen >= set(Status) | {Outcome.BAD_VERSION, DeleteLedger, *Reason} - {
        Reason.NO_LOG,
        Reason.NO_LEDGER,
        Reason.NO_ROOM,
    }
    assert seen >= {*Attaching}
    assert {(Reason.FENCED, True), (Reason.FENCED, False), (Reason.NOT_ELECTED, False), (Reason.NO_ROOM, True)} <= seen


def test_a_seed_makes_the_same_world_again() -> None:
    first, second = World(7).run(), World(7).run()
    assert first.acknowledged == second.acknowledged and first.failed == second.failed
    assert first.chain == second.chain and first.now == second.now


def is_found(protections: Protections = ALL, seeds: int = SEEDS_OF_FAULTS) -> str:
    for seed in range(seeds):
        try:
            World(seed, protections).run()
        except (Broken, ValueError) as error:
            return str(error)
    return ""


@pytest.mark.parametrize("name", Protections._fields)
def test_without_a_protection_the_log_breaks(name: str) -> None:
    assert is_found(Protections(**{name: False}))


def test_a_leader_that_believes_answers_to_what_it_has_given_up_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leader, "_next", lambda self: 1)
    assert is_found()


def test_a_leader_that_deletes_what_may_be_in_the_chain_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(role, "never_chained", lambda seen, ledger, found: True)
    assert "was deleted as one that is not in it" in is_found(seeds=SEEDS)


def test_a_leader_that_does_not_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leader, "_consider_rolling", lambda self, now, effects: None)
    assert is_found()


def test_a_leader_that_does_not_begin_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An old leader closed its ledger. If it waits for another election, nobody appends."""
    fired = Leader._fired

    def waits(self: Leader, event: TimerFired, now: int, effects: list[Effect]) -> None:
        if event.key[0] != "begin":
            fired(self, event, now, effects)

    timer: type[Event] = TimerFired
    monkeypatch.setitem(role._EVENTS, timer, waits)
    assert "is elected and cannot append" in is_found(seeds=SEEDS)
