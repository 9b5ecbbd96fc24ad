"""Work in a child process that is ended when it takes too much time or memory, or when nobody waits for it any more."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from fencepost.errors import SystemFailure
from fencepost.text import numbers

EVERY = 0.05
"""Seconds between two looks at the memory of the child and its own children. No limit of the system serves instead:
engines reserve much more than they occupy.
"""

LARGEST = 1 << 20
"""The most bytes of an answer that are read."""


@dataclass(frozen=True)
class Bounds:
    """The most ``seconds`` and bytes of ``memory`` of one piece of work. It is asked to end a little earlier."""

    seconds: float
    memory: int


async def work(asked: dict[str, Any], root: Path, bounds: Bounds) -> dict[str, str]:
    """What :mod:`fencepost.cli.mcp.work` answers: a ``text``, or an ``error``. A reached limit is a text.

    The child runs in ``root``. Raises :class:`fencepost.errors.SystemFailure` if it ends without an answer.
    """
    command = [sys.executable, "-m", "fencepost.cli.mcp.work"]
    process = await anyio.open_process(
        command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=root, start_new_session=True
    )
    assert process.stdin is not None and process.stdout is not None
    received, too_much = b"", False
    try:
        with anyio.move_on_after(bounds.seconds) as in_time:
            async with anyio.create_task_group() as tasks:

                async def watch() -> None:
                    nonlocal too_much
                    while not too_much:
                        await anyio.sleep(EVERY)
                        too_much = occupies(process.pid, bounds.memory)
                    in_time.cancel()

                tasks.start_soon(watch)
                told = {
                    **asked,
                    "until": time.monotonic() + bounds.seconds,
                    "memory": bounds.memory,
                    "parent": os.getpid(),
                }
                # Its standard input stays open as long as this process waits.
                await process.stdin.send(json.dumps(told).encode() + b"\n")
                async for chunk in process.stdout:
                    received += chunk[: LARGEST - len(received)]
                await process.wait()
                tasks.cancel_scope.cancel()
    except (BrokenPipeError, anyio.BrokenResourceError):  # it died before it was asked
        pass
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with anyio.CancelScope(shield=True):
            await process.aclose()
    if too_much:
        return {"text": stopped(f"memory limit of {numbers.size(bounds.memory)}")}
    if in_time.cancelled_caught:
        return {"text": stopped(f"time limit of {numbers.seconds(bounds.seconds)}")}
    try:
        answer: dict[str, str] = json.loads(received)
        return answer
    except ValueError:
        raise SystemFailure(f"the work ended without an answer, with exit code {process.returncode}") from None


def stopped(limit: str) -> str:
    """The answer where a limit was reached."""
    return f"NOT COMPLETE\nThe {limit} was reached, and the work was ended. Nothing is known: take a smaller one."


def occupies(pid: int, memory: int) -> bool:
    """Whether a process and its descendants occupy more than this number of bytes, what they share counted once. Only
    Linux tells; elsewhere False.
    """
    family = [pid]
    for each in family:  # which grows
        with contextlib.suppress(OSError, ValueError):
            for task in os.listdir(f"/proc/{each}/task"):
                family += map(int, Path(f"/proc/{each}/task/{task}/children").read_text().split())
    # The first counts shared memory several times, and is the faster one.
    return all(sum(map(told, family)) > memory for told in (_resident, _proportional))


def _resident(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _proportional(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
    return 0
