"""What the driver of a client does for roles and callers."""

from __future__ import annotations

import asyncio
from typing import Any

from ledger.client.standins import Cluster

from fencepost.ledger.client.driver import Driver
from fencepost.ledger.messages import NO_ENTRY_YET, ReadEntry
from fencepost.ledger.roles.interface import SetTimer, TimerFired


class StandInDriver:
    """What :meth:`Driver.set_timer` needs of a driver."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._together: dict[Any, Any] = {}
        self._fire_together = lambda turn: Driver._fire_together(self, turn)  # type: ignore[arg-type]


async def test_timers_with_slack_fire_together_and_none_before_its_delay() -> None:
    driver, fired = StandInDriver(), list[tuple[int, float]]()
    time, handles = driver.loop.time, list[asyncio.TimerHandle]()
    call_at = driver.loop.call_at

    def called_at(when: float, *arguments: Any, **options: Any) -> asyncio.TimerHandle:
        handles.append(call_at(when, *arguments, **options))
        return handles[-1]

    driver.loop.call_at = called_at  # type: ignore
    due = []
    for number in range(20):
        due.append(time() + 0.05)

        def deliver(event: TimerFired) -> None:
            fired.append((event.key, time()))

        Driver.set_timer(driver, SetTimer(number, 50_000, slack=40_000), deliver)  # type: ignore[arg-type]
    del driver.loop.call_at
    assert len(handles) <= 2, "they are due within two multiples of the slack"
    while len(fired) < 20:
        await asyncio.sleep(0.001)
    assert [number for number, _ in fired] == [*range(20)] and not driver._together
    assert all(at >= due[number] for number, at in fired)


async def test_of_several_bookies_that_are_asked_those_count_that_answer_in_time() -> None:
    async with Cluster(2) as cluster:
        driver = (await cluster.connect()).driver
        first, second, *_ = cluster.bookies
        request = ReadEntry(1, NO_ENTRY_YET)
        assert set(await driver.ask_all((first, "nobody:1", second), request)) == {first, second}
        assert await driver.ask_all((first, second), request, 0) == {}, "nobody answers at once"
        assert await driver.ask("nobody:1", request) is None
