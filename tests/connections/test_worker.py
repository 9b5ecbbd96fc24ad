"""A thread for blocking work: which thread a job runs on, and in which order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from fencepost.connections import worker
from fencepost.connections.worker import Worker

MANY = 200
"""Short jobs after which the next one is taken for short."""


class Jobs:
    """Jobs of one worker, and the thread that ran each of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = 0.0
        monkeypatch.setattr(worker, "time", SimpleNamespace(perf_counter=lambda: self.clock))
        self.loop = asyncio.get_running_loop()
        self.worker = Worker("test")
        self.ran: list[tuple[str, threading.Thread]] = []

    def job(self, name: str, seconds: float) -> Callable[[], None]:
        def run() -> None:
            self.clock += seconds
            self.ran.append((name, threading.current_thread()))

        return run

    async def short(self, name: str = "", seconds: float = worker.SHORT / 10) -> None:
        """Run a job that may be short, to its end."""
        done: asyncio.Future[BaseException | None] = self.loop.create_future()
        self.worker.submit_short(self.job(name, seconds), done.set_result)
        assert not done.done(), "a caller has to go on before it hears of the end"
        assert await done is None

    @property
    def last_was_here(self) -> bool:
        return self.ran[-1][1] is threading.current_thread()


async def test_short_jobs_run_on_the_loops_thread_until_one_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Jobs(monkeypatch)
    await jobs.short()
    assert not jobs.last_was_here, "a job is not short before others were"
    for _ in range(MANY):
        await jobs.short()
    assert jobs.last_was_here
    await jobs.short(seconds=100 * worker.SHORT)
    assert jobs.last_was_here, "nobody could know"
    for _ in range(20):
        await jobs.short()
        assert not jobs.last_was_here
    for _ in range(MANY):
        await jobs.short()
    assert jobs.last_was_here
    await jobs.worker.finish(lambda: None)


async def test_long_jobs_run_in_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Jobs(monkeypatch)
    for _ in range(MANY):
        await jobs.short(seconds=2 * worker.SHORT)
        assert not jobs.last_was_here
    await jobs.worker.finish(lambda: None)


async def test_a_short_job_does_not_overtake_the_jobs_of_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Jobs(monkeypatch)
    for _ in range(MANY):
        await jobs.short()
    held = threading.Event()

    def wait() -> None:
        held.wait()

    jobs.worker.submit(wait, lambda error: None)
    jobs.worker.submit(jobs.job("before", 0), lambda error: None)
    jobs.loop.call_later(0.01, held.set)
    await jobs.short("behind")
    assert [name for name, _ in jobs.ran[-2:]] == ["before", "behind"]
    assert not jobs.last_was_here
    await jobs.short()
    assert jobs.last_was_here
    await jobs.worker.finish(lambda: None)


async def test_a_failed_job_is_reported_by_either_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Jobs(monkeypatch)

    def fails() -> None:
        raise OSError("the disk is gone")

    for _ in range(2):
        done: asyncio.Future[BaseException | None] = jobs.loop.create_future()
        jobs.worker.submit_short(fails, done.set_result)
        assert str(await done) == "the disk is gone"
        for _ in range(MANY):
            await jobs.short()
    assert jobs.last_was_here
    await jobs.worker.finish(lambda: None)
