"""A model of the lock, and a stateful test that compares the two."""

from __future__ import annotations

import contextlib
import io
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from bench.driven.shared_lock import Refused, SharedLock

CLIENTS = st.sampled_from(["c1", "c2", "c3"])


class Machine(RuleBasedStateMachine):
    """The system and the model, side by side."""

    kind = SharedLock
    steps = 0
    last = 0

    def __init__(self) -> None:
        super().__init__()
        self.lock = self.kind()
        self.readers: set[str] = set()
        self.writer: str | None = None
        self.queue: list[tuple[str, bool]] = []
        Machine.last = 0

    @rule(who=CLIENTS, writes=st.booleans())
    def asks(self, who: str, writes: bool) -> None:
        waits = who in [waiter for waiter, _ in self.queue]
        if self.call(self.lock.write if writes else self.lock.read, who, not waits and not self.holds(who)):
            self.queue.append((who, writes))
            self.grant()

    @rule(who=CLIENTS)
    def releases(self, who: str) -> None:
        if self.call(self.lock.release, who, self.holds(who)):
            self.writer = None
            self.readers.discard(who)
            self.grant()

    @rule(who=CLIENTS)
    def leaves(self, who: str) -> None:
        if self.call(self.lock.leave, who, who in [waiter for waiter, _ in self.queue]):
            self.queue = [each for each in self.queue if each[0] != who]
            self.grant()

    @rule(who=CLIENTS)
    def downgrades(self, who: str) -> None:
        if self.call(self.lock.downgrade, who, who == self.writer):
            self.writer, self.readers = None, {who}
            self.grant()

    def holds(self, who: str) -> bool:
        return who == self.writer or who in self.readers

    def grant(self) -> None:
        while self.queue and self.writer is None and not (self.queue[0][1] and self.readers):
            who, writes = self.queue.pop(0)
            if writes:
                self.writer = who
            else:
                self.readers.add(who)

    def call(self, function: Any, who: str, is_allowed: bool) -> bool:
        Machine.steps += 1
        Machine.last += 1
        try:
            function(who)
        except Refused:
            assert not is_allowed
            return False
        assert is_allowed
        return True

    @invariant()
    def agrees(self) -> None:
        assert (self.lock.readers, self.lock.writer) == (self.readers, self.writer)


def run(kind: type[SharedLock], examples: int = 100) -> tuple[int, int]:
    """Test a lock. Returns the calls of the example that fails, 0 if none does, and all that were made."""
    machine = type("Machine", (Machine,), {"kind": kind})
    Machine.steps = 0
    quiet = settings(
        max_examples=examples, database=None, deadline=None, derandomize=True,
        suppress_health_check=list(HealthCheck), phases=(Phase.generate, Phase.shrink),
    )  # fmt: skip
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            run_state_machine_as_test(machine, settings=quiet)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return max(1, Machine.last), Machine.steps
    return 0, Machine.steps
