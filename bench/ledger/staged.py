"""Starts one of our programs and measures its stages: how much CPU each takes, and how often it runs.

``python -m bench.ledger.staged STAGES SOCKET PROGRAM ...``. The functions of each stage (:mod:`bench.ledger.stages`)
are wrapped in every module that imports them. A thread has one clock, its CPU time, which is charged to the innermost
stage that the thread is in. A client that connects to the socket gets all counters so far as JSON, without a request.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.ledger.usage import cpu

cpu_clock = time.thread_time_ns
wall_clock = time.perf_counter_ns

RECEIVE = "receive from the kernel"
"""Between the moment a buffer is asked for and the moment it is filled."""
REST = "the rest: event loop, callers, sending"
"""What is in no stage, of the thread that began the program."""
BEHIND = "threads behind, the rest"
"""The same of other threads."""


class Counter:
    """What a stage has taken in one thread: nanoseconds of CPU and of time, and calls."""

    def __init__(self) -> None:
        self.cpu = self.wall = self.calls = 0


class Clock(threading.local):
    """The stages of a thread. The current one takes all time from ``cpu`` and ``wall`` on."""

    every: list[tuple[str, dict[str, Counter]]] = []
    main = threading.get_ident()

    def __init__(self) -> None:
        self.counters: dict[str, Counter] = {}
        self.rest = REST if threading.get_ident() == self.main else BEHIND
        self.current = self.of(self.rest)
        self.cpu, self.wall = cpu_clock(), wall_clock()
        self.every.append((self.rest, self.counters))

    def of(self, stage: str) -> Counter:
        """The counter of a stage."""
        found = self.counters.get(stage)
        if found is None:
            found = self.counters[stage] = Counter()
        return found

    def turn_to(self, counter: Counter) -> Counter:
        """What passes from now on is another counter's; gives the one before."""
        now, at = cpu_clock(), wall_clock()
        before = self.current
        before.cpu += now - self.cpu
        before.wall += at - self.wall
        self.cpu, self.wall, self.current = now, at, counter
        return before


_clock = Clock()


def watched(function: Callable[..., Any], stage: str) -> Callable[..., Any]:
    """The function, whose time is that of a stage."""

    @functools.wraps(function, updated=())
    def watch(*arguments: Any, **named: Any) -> Any:
        clock = _clock
        counter = clock.of(stage)
        counter.calls += 1
        before = clock.turn_to(counter)
        try:
            return function(*arguments, **named)
        finally:
            clock.turn_to(before)

    return watch


def before_receiving(function: Callable[..., Any]) -> Callable[..., Any]:
    """``get_buffer`` of a protocol: what comes after it is the kernel's."""

    @functools.wraps(function)
    def get_buffer(*arguments: Any) -> Any:
        found = function(*arguments)
        _clock.turn_to(_clock.of(RECEIVE))
        return found

    return get_buffer


def after_receiving(function: Callable[..., Any]) -> Callable[..., Any]:
    """``buffer_updated`` of a protocol."""

    @functools.wraps(function)
    def buffer_updated(*arguments: Any) -> Any:
        clock = _clock
        clock.of(RECEIVE).calls += 1
        clock.turn_to(clock.of(clock.rest))
        return function(*arguments)

    return buffer_updated


def found(place: str) -> tuple[Any, str, Any] | None:
    """What a name such as ``package.module:Class.method`` stands for: its owner, its name there, and itself. None if
    there is no such thing.
    """
    module, _, path = place.partition(":")
    try:
        owner: Any = importlib.import_module(module)
    except ModuleNotFoundError:
        return None
    *classes, name = path.split(".")
    for part in classes:
        owner = getattr(owner, part, None)
    found = getattr(owner, name, None) if owner is not None else None
    return None if found is None else (owner, name, found)


def watch_over(stages: Mapping[str, Sequence[str]]) -> list[str]:
    """Wrap the functions of all stages; gives those that are not there."""
    missing = []
    wrapped: dict[int, Any] = {}
    kept = []
    for stage, places in stages.items():
        for place in places:
            seen = found(place)
            if seen is None:
                missing.append(place)
                continue
            owner, name, function = seen
            replacement = {
                "get_buffer": before_receiving,
                "buffer_updated": after_receiving,
            }.get(name, lambda each, stage=stage: watched(each, stage))(function)
            setattr(owner, name, replacement)
            kept.append(function)
            wrapped[id(function)] = replacement
    # A module that imported a function by name still refers to the original.
    for title, module in [*sys.modules.items()]:
        if title.startswith(("fencepost.", "interop.")):
            for name, value in [*vars(module).items()]:
                if id(value) in wrapped and callable(value):
                    setattr(module, name, wrapped[id(value)])
    return missing


def tell(path: str) -> None:
    """Send the counters to every client that connects."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen()

    def serve() -> None:
        while True:
            connection, _ = listening.accept()
            with connection:
                total: dict[str, list[int]] = {}
                for _, counters in [*Clock.every]:
                    for stage, counter in [*counters.items()]:
                        sums = total.setdefault(stage, [0, 0, 0])
                        for number, value in enumerate((counter.cpu, counter.wall, counter.calls)):
                            sums[number] += value
                connection.sendall(json.dumps({"stages": total, "cpu": cpu([os.getpid()])}).encode())

    threading.Thread(target=serve, name="stages", daemon=True).start()


def main() -> None:
    """Start the program."""
    from bench.ledger import stages

    of, path, program, *words = sys.argv[1:]
    if program == "exam":
        import uvloop

        from interop import exam

        watch_over(stages.STAGES[of])
        tell(path)
        uvloop.run(exam.serve())
    else:
        from fencepost.cli import main as cli

        importlib.import_module("fencepost.cli.commands.bookie")
        importlib.import_module("fencepost.ledger.bookie.process")
        watch_over(stages.STAGES[of])
        tell(f"{path}.{os.getpid()}")
        sys.exit(cli.main(words))


if __name__ == "__main__":
    main()
