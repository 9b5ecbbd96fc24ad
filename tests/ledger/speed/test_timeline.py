"""The timeline of threads, from what ``perf script`` prints."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading

import pytest

from bench.ledger.timeline import (
    CORE,
    DISK,
    RUNS,
    SLEEPS,
    Span,
    Unrecorded,
    drawn,
    perf,
    shares_of,
    spans_of,
    threads_of,
)
from fencepost.ledger.disk.workers import WOKEN, Threads, Work

PRINTED = """\
 1.000000000: sched:sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=python next_pid=7 next_prio=120
 1.010000000: sched:sched_switch: prev_comm=python prev_pid=7 prev_prio=120 prev_state=D ==> next_comm=my prog next_pid=8 next_prio=120
 1.030000000: sched:sched_wakeup: comm=python pid=7 prio=120 target_cpu=001
 1.031000000: sched:sched_wakeup: comm=python pid=7 prio=120 target_cpu=001
 1.040000000: sched:sched_switch: prev_comm=my prog prev_pid=8 prev_prio=120 prev_state=S ==> next_comm=python next_pid=7 next_prio=120
 1.070000000: sched:sched_switch: prev_comm=python prev_pid=7 prev_prio=120 prev_state=R+ ==> next_comm=swapper/0 next_pid=0 next_prio=120
 1.100000000: sched:sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=my prog next_pid=8 next_prio=120
""".splitlines()  # noqa: E501


def test_what_threads_do_is_read_from_the_kernels_switches() -> None:
    found = spans_of(PRINTED, [7, 8])
    assert found[7] == [Span(RUNS, 1.0, 1.01), Span(DISK, 1.01, 1.03), Span(CORE, 1.03, 1.04), Span(RUNS, 1.04, 1.07)]
    assert found[8] == [Span(RUNS, 1.01, 1.04), Span(SLEEPS, 1.04, 1.1)]
    assert shares_of(found[7]) == pytest.approx({RUNS: 4 / 7, CORE: 1 / 7, DISK: 2 / 7, SLEEPS: 0})
    assert shares_of([])[RUNS] == 0


def test_the_picture_has_what_threads_do_between_two_moments() -> None:
    picture = drawn({"one & all": spans_of(PRINTED, [7])[7]}, begin=1.005, seconds=0.05)
    assert [picture.count(f'class="{kind}"') for kind in ("one", "two", "three")] == [3, 2, 2]
    assert "one &amp; all" in picture


def test_the_threads_of_a_bookies_storage_have_their_names() -> None:
    started = threading.Semaphore(0)

    def work() -> Work[None]:
        started.release()
        yield WOKEN

    # Threads of another test's bookies may not have ended yet.
    others = threads_of({"bookie": os.getpid()})
    workers = [Threads().begin("journal", work(), print) for _ in range(2)]
    for _ in workers:
        assert started.acquire(timeout=60)
    names = threads_of({"bookie": os.getpid()})
    for worker in workers:
        worker.wake()
        worker.join()
    assert names[os.getpid()] == "bookie, loop" and len({*names.values()}) == len(names)
    assert sum(name.startswith("bookie, journal") for thread, name in names.items() if thread not in others) == 2


def test_where_perf_may_not_record_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(Unrecorded, match="^perf is not installed$"):
        perf("record")
    monkeypatch.setattr(shutil, "which", lambda name: name)
    failed = subprocess.CompletedProcess((), 1, "", "no\n way")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(Unrecorded, match="^perf record failed: no way$"):
        perf("record")
