"""The campaign that kills what copies a log: what it looks for is found, and a short one finds nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from patience import until

from bench import exactly_once
from bench.exactly_once import (
    FROM,
    OF_WRITES,
    TASK,
    TO,
    VICTIMS,
    Campaign,
    Prefix,
    kinds,
    of_write,
    row,
    session_of,
    transformed,
)
from fencepost.log.chain import End, Position


class Logs:
    """Two logs in memory, with three entries in a ledger."""

    def __init__(self) -> None:
        self.data: dict[str, list[bytes]] = {FROM: [], TO: []}

    def read(self, name: str, at: Position | End) -> Iterator[Any]:
        """What a reader without ``follow`` gives."""
        first = 3 * at.ledger + at.entry if isinstance(at, Position) else 0
        for number in range(first, len(self.data[name])):
            yield SimpleNamespace(position=Position(*divmod(number, 3)), data=self.data[name][number])


ENTRIES = [b"%d" % number for number in range(10)]
COPY = [*map(transformed, ENTRIES)]


def test_a_log_is_compared_as_it_grows() -> None:
    logs = Logs()
    prefix = Prefix(logs.read)
    for original, made in ((4, 2), (4, 4), (5, 7), (10, 7), (10, 10)):  # the third: an end that is not confirmed yet
        logs.data = {FROM: ENTRIES[:original], TO: COPY[:made]}
        prefix.look()
        assert (prefix.compared, prefix.problem) == (min(original, made), None)


@pytest.mark.parametrize(
    "wrong",
    [[*COPY[:5], *COPY[6:]], [*COPY[:5], *COPY[4:]], [*COPY[:4], COPY[5], COPY[4], *COPY[6:]], ENTRIES],
    ids=["gap", "double", "order", "not transformed"],
)
def test_what_is_no_prefix_is_told(wrong: list[bytes]) -> None:
    logs = Logs()
    prefix = Prefix(logs.read)
    for count in range(1, 10):
        logs.data = {FROM: ENTRIES, TO: wrong[:count]}
        prefix.look()
    assert prefix.problem is not None


def test_a_write_is_there_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactly_once, "ROWS", 10)
    rows = [*map(row, range(30))]
    assert of_write(rows[:20], 2) is None and of_write(rows, 2) is None
    assert of_write(rows[:20], 2, may_be_more=False) is None and of_write(rows, 2, may_be_more=False) is not None
    for wrong in (rows[:25], rows[:10], [*rows, *rows[20:]], [*rows[:19], rows[20]], [*rows[:18], rows[19], rows[18]]):
        assert of_write(wrong, 2) is not None


def test_a_process_that_runs_a_task_is_not_the_one_that_forks_it_and_may_outlive_it() -> None:
    forks = "import os, sys; pid = os.fork(); print(os.getpid(), pid, flush=True) if pid else None; sys.stdin.read()"
    above = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {forks!r}, *sys.argv[1:]]); sys.stdin.read()"
    )
    command = [sys.executable, "-c", above, "pyspark.daemon", "pyspark.worker"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True) as process:
        assert process.stdin is not None and process.stdout is not None
        daemon, forked = map(int, process.stdout.readline().split())
        until(lambda: kinds([process.pid]) == {TASK: [forked]}, "the process to be found")
        os.kill(daemon, signal.SIGKILL)
        until(lambda: daemon not in session_of(process.pid), "the daemon to be gone")
        assert kinds([process.pid]) == {TASK: [forked]}
        process.stdin.close()


@pytest.mark.campaign
def test_each_kind_of_process_is_killed_and_each_row_is_there_once(tmp_path: Path) -> None:
    writes = len(OF_WRITES)
    outcome = Campaign(tmp_path, kills=len(VICTIMS), writes=writes, minutes=0, seed=1, rate=200).run()
    assert outcome["faults"] == []
    assert outcome["kills"] == dict.fromkeys(VICTIMS, 1)
    assert outcome["kills in batch queries"] == dict.fromkeys(OF_WRITES, 1)
    assert outcome["entries in a"] == outcome["entries in b"] >= outcome["acknowledged"] > 0
    assert outcome["rows of batch queries"] == writes * exactly_once.ROWS
