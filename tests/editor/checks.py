"""Files to check while they are written, and what a check of one says."""

from __future__ import annotations

import queue
from pathlib import Path
from typing import Any

from patience import PATIENCE

from fencepost.editor.process import Event, Job
from fencepost.editor.worker import Request

COUNTER = '''from fencepost import *


class Counter(Protocol):
    """Counts up to a limit."""

    configurations = {
        "large": configuration(limit=4),
        "small": configuration(limit=2),
    }

    limit: int = constant(3)
    count: int = state(0)

    @action
    def tick(self) -> None:
        require(self.count < self.limit)
        self.count += 1

    @action
    def jump(self) -> None:
        require(self.count > 100)
        self.count = 0

    @invariant
    def within(self) -> bool:
        return self.count <= self.limit
'''

ENDLESS = COUNTER.replace("require(self.count < self.limit)", "require(self.count >= 0)").replace(
    "return self.count <= self.limit", "return self.count >= 0"
)

SPECIFICATION = """---- MODULE Counter ----
EXTENDS Naturals
CONSTANT Limit
VARIABLE count

Init == count = 0

Tick ==
    /\\ count < Limit
    /\\ count' = count + 1

Next == Tick

Within == count <= Limit
====
"""

CONFIGURATION = "INIT Init\nNEXT Next\nINVARIANT Within\nCONSTANT Limit = 3\nCHECK_DEADLOCK FALSE\n"


def line_of(text: str, part: str) -> int:
    """The line of a text that has this part, from 1."""
    (line,) = [number for number, line in enumerate(text.splitlines(), 1) if part in line]
    return line


class Check:
    """A running check, whose events arrive in the order in which it wrote them."""

    def __init__(self, file: Path, **request: Any) -> None:
        self.heard: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.events: list[Event] = []
        self.job = Job(Request(str(file), **request), self.heard.put)

    def until(self, *kinds: str) -> Event:
        """Wait for an event of one of these kinds."""
        while True:
            event = self.heard.get(timeout=PATIENCE)
            self.events.append(event)
            if event["event"] in kinds:
                return event
            assert event["event"] != "ended", self.events

    def ask(self, line: int, column: int) -> str:
        """What is shown at a place."""
        self.job.send({"id": 0, "line": line, "column": column})
        return self.until("answer")["text"] or ""


def checked(file: Path, **request: Any) -> list[Event]:
    """All events of one check."""
    check = Check(file, **request)
    try:
        check.until("ended")
        return check.events
    finally:
        check.job.end()


def diagnostics(events: list[Event]) -> list[Event]:
    """All that a check has found."""
    return [each for event in events for each in event.get("diagnostics", ())]


def only(events: list[Event], kind: str) -> list[Event]:
    """The events of a kind."""
    return [event for event in events if event["event"] == kind]
