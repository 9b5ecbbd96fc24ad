"""Functions that run in several processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import patience

from fencepost.simulation.processes import in_processes

KILLED = """
import os, signal
from fencepost.simulation.processes import in_processes

def number_and_wait(_):
    print(os.getpid(), flush=True)
    signal.pause()

if __name__ == "__main__":
    with in_processes(number_and_wait, [(0,), (1,)], 2) as done:
        list(done)
"""


def test_tasks_are_done_in_order() -> None:
    for jobs in (1, 2):
        with in_processes(divmod, [(each, 3) for each in range(9)], jobs) as done:
            assert [*done] == [divmod(each, 3) for each in range(9)]


def test_processes_end_if_the_one_that_started_them_is_killed(tmp_path: Path) -> None:
    (tmp_path / "killed.py").write_text(KILLED)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    program = subprocess.Popen(
        [sys.executable, tmp_path / "killed.py"], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert program.stdout is not None
    numbers = {int(program.stdout.readline()) for _ in range(2)}
    assert len(numbers) == 2
    program.kill()
    program.wait(patience.PATIENCE)
    try:
        for number in numbers:
            patience.until(lambda number=number: not _runs(number), "the end of a process")  # type: ignore[misc]
    finally:
        for number in filter(_runs, numbers):
            os.kill(number, signal.SIGKILL)


def _runs(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
