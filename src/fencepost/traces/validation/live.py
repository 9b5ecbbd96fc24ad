"""Validates traces in this process while they are written."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from fencepost.traces.event import TraceEvent
from fencepost.traces.validation.outcome import Explain, Outcome
from fencepost.traces.validation.tail import Tail
from fencepost.traces.validation.traces import decoded
from fencepost.traces.validation.validate import Validator
from fencepost.traces.validation.watch import Limits, Watch

PAUSE = 0.1
"""Seconds between two polls of the folders."""

Reporter = Callable[[list[Outcome]], None]
"""Called with verdicts as they become certain."""


@dataclass
class LiveRuns:
    """Runs under validation, each with a :class:`fencepost.traces.validation.watch.Watch`. ``runs``, ``subjects``: the
    ones to validate; empty for all.
    """

    validator: Validator
    limits: Limits
    explain: Explain | None
    runs: Collection[str] = ()
    subjects: Collection[str] = ()
    watches: dict[str, Watch] = field(default_factory=dict)

    def feed(self, events: Iterable[TraceEvent], now: float) -> None:
        """Take events of any run."""
        is_known = re.compile(self.validator.conformance.subjects, re.DOTALL).fullmatch
        is_wanted = self.subjects.__contains__ if self.subjects else is_known
        by_run: dict[str, list[TraceEvent]] = {}
        for event in events:
            is_heeded = event.action in self.validator.conformance.heeds
            is_ours = is_heeded or event.subject is None or is_wanted(event.subject)
            if is_ours and (not self.runs or event.run in self.runs):
                by_run.setdefault(event.run, []).append(event)
        for run, some in by_run.items():
            watch = self.watches.get(run)
            if watch is None:
                watch = self.watches[run] = Watch(self.validator, run, self.limits, explain=self.explain)
            watch.feed(map(decoded, some), now)

    def look(self, now: float) -> list[Outcome]:
        """The verdicts that are certain by now."""
        return [outcome for watch in self.watches.values() for outcome in watch.look(now)]

    def finish(self, now: float) -> list[Outcome]:
        """The verdicts of all that is left."""
        return [outcome for watch in self.watches.values() for outcome in watch.finish(now)]


def follow(tail: Tail, following: LiveRuns, until: Callable[[], bool], report: Reporter) -> None:
    """Poll folders and report verdicts, until ``until`` returns True or KeyboardInterrupt. Reports the remaining
    verdicts at the end.
    """
    now = time.monotonic()
    try:
        while not until():
            following.feed(tail.poll(), now)
            found = following.look(now)
            if found:
                report(found)
            time.sleep(PAUSE)
            now = time.monotonic()
    except KeyboardInterrupt:
        pass
    following.feed(tail.poll(), now)
    report(following.look(now) + following.finish(now))
