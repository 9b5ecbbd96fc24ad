"""The progress line at the bottom of a terminal.

    level 19   2,410,000 distinct (6.1 M/s)   9,870,112 generated   402,118 to go   312 MiB   0.4 s

It uses only text and carriage returns, so every terminal can show it. Parts that do not fit are left out.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TextIO

from fencepost.checker.engines.interface import COMPILING, Progress
from fencepost.language.seam import Model
from fencepost.report.advice import advice
from fencepost.text import numbers
from fencepost.text.numbers import duration

FIRST = 0.5
"""Seconds before the line appears: a shorter check needs none."""

NOTICED = 2.0
"""Seconds of compiling after which a line reports it even without a terminal."""

EVERY = 0.1
"""Seconds between two redraws."""

WINDOW = 3.0
"""Seconds over which a rate is measured."""

SHRINKING = 0.9
"""Remaining time is estimated once each of the last two levels is smaller than its predecessor, and the last one
smaller than this share of it.
"""


Clock = Callable[[], float]


class Estimate:
    """Estimates the remaining time of a breadth-first search from its level sizes, once they shrink.

    While level sizes shrink by a factor b, expanding the queue finds b times as many states, and so on: queue / (1 - b)
    states are still to be expanded. Level sizes rise and fall once, and b keeps falling, so the estimate is rather too
    high than too low.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._at_boundary: tuple[int, int] | None = None  # (distinct, expanded) when the level began
        self._ratios: list[float] = []

    def seen(self, progress: Progress) -> None:
        """Add one progress report."""
        if progress.depth == self._depth:
            return
        now = (progress.distinct, progress.distinct - progress.queue)
        if self._at_boundary is not None and progress.depth == self._depth + 1:
            found, expanded = now[0] - self._at_boundary[0], now[1] - self._at_boundary[1]
            self._ratios = [*self._ratios[-1:], found / expanded] if expanded > 0 else []
        else:  # several levels passed between two reports: their sizes are unknown
            self._ratios = []
        self._depth, self._at_boundary = progress.depth, now

    def seconds(self, queue: int, expanded_per_second: float) -> float | None:
        """The remaining seconds, or None if no estimate is possible."""
        if len(self._ratios) < 2 or expanded_per_second <= 0:
            return None
        before, last = self._ratios
        if before >= 1 or last >= SHRINKING or last > before:
            return None
        return queue / (1 - last) / expanded_per_second


@dataclass(frozen=True)
class _Sample:
    at: float
    distinct: int
    expanded: int


class Bottom:
    """The last line of a terminal, redrawn in place. Use it as a context manager, which clears it at the end. Draws
    nothing without a terminal.
    """

    def __init__(self, terminal: TextIO | None, clock: Clock = time.monotonic) -> None:
        self._is_watched = terminal is not None and terminal.isatty()
        self._terminal = terminal or io.StringIO()
        self._clock = clock
        self._started = clock()
        self._drawn_at = float("-inf")
        self._drawn = 0  # characters on the line now

    def __enter__(self) -> Self:
        self._outer = sys.stderr
        if self._is_watched and self._terminal is sys.stderr:  # other output goes above the line
            sys.stderr = _Above(self._terminal, self.clear)
        return self

    def __exit__(self, *_: object) -> None:
        sys.stderr = self._outer
        self.clear()

    def clear(self) -> None:
        """Clear the line until it is drawn again."""
        self._write("")

    def _is_due(self, now: float) -> bool:
        """Whether the line is due for a redraw."""
        if not self._is_watched or now - self._started < FIRST or now - self._drawn_at < EVERY:
            return False
        self._drawn_at = now
        return True

    def _write(self, text: str) -> None:
        width = max(20, _columns(self._terminal) - 1)
        text = text[:width]
        if text or self._drawn:
            # Blanks overwrite a longer line. If nothing is left, the cursor returns to the start of the line.
            self._put("\r" + text.ljust(min(self._drawn, width)) + ("" if text else "\r"))
            self._drawn = len(text)

    def _put(self, text: str) -> None:
        try:
            self._terminal.write(text)
            self._terminal.flush()
        except (OSError, ValueError):  # a closed terminal must not end the check
            pass


class _Above:
    """A stream that clears the progress line before it writes."""

    def __init__(self, stream: TextIO, clear: Callable[[], None]) -> None:
        self._stream = stream
        self._clear = clear

    def write(self, text: str) -> int:
        if text:
            self._clear()
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Seeds(Bottom):
    """Draws the progress of a simulator's campaign: call :meth:`report`."""

    def report(self, done: int, events: int, of: int) -> None:
        """Show that ``done`` of ``of`` seeds are done, with ``events`` events."""
        now = self._clock()
        if self._is_due(now):
            seconds = now - self._started
            rate = done / seconds
            left = f"   {roughly((of - done) / rate)} left" if done else ""
            self._write(
                f"{done:,} of {numbers.plural(of, 'seed')} ({per_second(rate)})   {numbers.plural(events, 'event')}"
                f"   {duration(seconds)}{left}"
            )


class TracesLine(Bottom):
    """Draws the progress of a validation of ``traces`` traces: call :meth:`report`, and within a long one
    :meth:`within`.
    """

    def __init__(self, terminal: TextIO | None, traces: int = 0, clock: Clock = time.monotonic) -> None:
        super().__init__(terminal, clock)
        self._traces = traces
        self._done = self._steps = 0
        self._samples: deque[tuple[float, int]] = deque()

    def report(self, traces: int, steps: int) -> None:
        """Count traces that are done, with their steps."""
        self._done += traces
        self._steps += steps
        self._samples.clear()
        now = self._clock()
        if self._is_due(now):
            seconds = now - self._started
            left = (self._traces - self._done) * seconds / self._done if seconds > 2 else None
            self._show(numbers.plural(self._steps, "step"), self._steps / seconds, seconds, left)

    def within(self, steps: int, of: int) -> None:
        """Show how many steps of the present trace are taken. They become fewer where steps are taken back. There is no
        estimate then, nor before the last trace, since the length of others is not known.
        """
        now = self._clock()
        if not self._is_due(now):
            return
        self._samples.append((now, steps))
        while len(self._samples) > 2 and now - self._samples[0][0] > WINDOW:
            self._samples.popleft()
        since, before = self._samples[0]
        rate = max(0.0, (steps - before) / (now - since)) if now > since else 0.0
        left = (of - steps) / rate if rate and self._done + 1 == self._traces else None
        self._show(f"{steps:,} of {numbers.plural(of, 'step')}", rate, now - self._started, left)

    def _show(self, steps: str, rate: float, seconds: float, left: float | None) -> None:
        estimate = f"   {roughly(left)} left" if left is not None else ""
        traces = f"{self._done:,} of {numbers.plural(self._traces, 'trace')}"
        self._write(f"{traces}   {steps} ({per_second(rate)})   {duration(seconds)}{estimate}")

    def doing(self, what: str) -> None:
        """Show the current work of a Spark cluster."""
        now = self._clock()
        if self._is_due(now):
            self._write(f"{what or 'waiting for Spark'}   {duration(now - self._started)}")


class Configuration(Bottom):
    """Draws the progress of the checks of a file: pass each event to :meth:`hear`."""

    _title = ""

    def hear(self, event: Mapping[str, Any]) -> None:
        """Show what a check does. Other events clear the line."""
        if event["event"] != "progress":
            self._title = event.get("title", "")
            self.clear()
        elif self._is_due(now := self._clock()):
            doing = event["doing"] or f"{event['distinct_states']:,} distinct"
            self._write(f"{self._title}   {doing}   {duration(now - self._started)}")


class Entries(Bottom):
    """Draws the progress of reading or appending entries: call :meth:`report` often."""

    def report(self, entries: int, size: int | None, share: float | None) -> None:
        """Show the number of entries, their bytes if known, and the ``share`` of the whole if known."""
        now = self._clock()
        if not self._is_due(now):
            return
        seconds = now - self._started
        parts = [f"{numbers.plural(entries, 'entry', 'entries')} ({per_second(entries / seconds)})"]
        if size is not None:
            parts.append(numbers.size(size))
        parts.append(duration(seconds))
        if share and seconds > 2:
            parts.append(f"{share:.0%}   {roughly(seconds / share - seconds)} left")
        self._write("   ".join(parts))


class Bytes(Bottom):
    """Draws the progress of a copy: call :meth:`report` often."""

    def report(self, done: int, of: int) -> None:
        """Show the bytes copied so far, of how many, and the rate."""
        now = self._clock()
        if self._is_due(now):
            rate = numbers.size(int(done / (now - self._started)))
            self._write(f"{numbers.size(done)} of {numbers.size(of)} ({rate}/s)")


class Line(Bottom):
    """Draws the progress of a check: pass :meth:`report` to :func:`fencepost.check`. Without a terminal it prints one
    line if compiling takes long.
    """

    def __init__(self, terminal: TextIO | None, protocol: Model, clock: Clock = time.monotonic) -> None:
        super().__init__(terminal, clock)
        self._protocol = protocol
        self._samples: deque[_Sample] = deque()
        self._estimate = Estimate()
        self._warned: set[str] = set()

    def report(self, progress: Progress) -> None:
        """Show the progress of the check. The engine calls it."""
        if not self._is_watched:
            if progress.doing == COMPILING and progress.seconds >= NOTICED and COMPILING not in self._warned:
                self._warned.add(COMPILING)
                self._put(f"{COMPILING}\n")
            return
        now = self._clock()
        self._estimate.seen(progress)
        for slot, values in progress.exploding:
            if slot not in self._warned:
                self._warned.add(slot)
                self._write("")
                self._put(
                    f"warning: {slot} has held {values:,} values, which slows the check down:"
                    f" {advice(self._protocol, slot)}\n"
                )
        if not self._is_due(now):
            return
        # The rate of a simulation is that of its steps.
        counted = progress.distinct if progress.walks is None else progress.generated
        # On a cluster, counts arrive only at the end of a job.
        if not progress.stage or not self._samples or counted != self._samples[-1].distinct:
            self._samples.append(_Sample(now, counted, counted - progress.queue))
        while len(self._samples) > 2 and now - self._samples[0].at > WINDOW:
            self._samples.popleft()
        self._write(self._text(progress))

    def _text(self, progress: Progress) -> str:
        if progress.doing:
            return f"{progress.doing}   {duration(progress.seconds)}"
        first, last = self._samples[0], self._samples[-1]
        span = last.at - first.at
        if span > 0:
            rate, expanding = (last.distinct - first.distinct) / span, (last.expanded - first.expanded) / span
        else:
            rate = expanding = last.distinct / progress.seconds if progress.seconds > 0 else 0.0
        if progress.walks is not None:
            return self._walked(progress, progress.walks, rate)
        left = self._estimate.seconds(progress.queue, expanding)
        parts = {
            "depth": f"level {progress.depth}",
            "distinct": f"{progress.distinct:,} distinct ({per_second(rate)})",
            "generated": f"{progress.generated:,} generated",
            "queue": f"{progress.queue:,} to go",
            "shuffled": f"{numbers.size(progress.shuffled)} shuffled" if progress.shuffled else "",
            "stage": progress.stage,
            "memory": numbers.size(progress.memory) if progress.memory else "",
            "seconds": duration(progress.seconds),
            "left": f"{roughly(left)} left" if left is not None else "",
        }
        return self._fitting(parts, ("generated", "memory", "shuffled", "stage", "depth", "seconds"))

    def _walked(self, progress: Progress, walks: int, rate: float) -> str:
        parts = {
            "walks": numbers.plural(walks, "walk"),
            "steps": f"{numbers.plural(progress.generated, 'state')} ({per_second(rate)})",
            "mean": f"{progress.generated / walks:,.0f} a walk" if walks else "",
            "distinct": f"about {progress.distinct:,} distinct",
            "stage": progress.stage,
            "memory": numbers.size(progress.memory) if progress.memory else "",
            "seconds": duration(progress.seconds),
        }
        return self._fitting(parts, ("memory", "mean", "stage", "distinct", "seconds"))

    def _fitting(self, parts: dict[str, str], dispensable: Sequence[str]) -> str:
        """The parts on one line. Drops dispensable parts until the line fits."""
        for leave_out in ("", *dispensable):
            parts.pop(leave_out, None)
            text = "   ".join(part for part in parts.values() if part)
            if len(text) < _columns(self._terminal):
                break
        return text


def _columns(terminal: TextIO) -> int:
    try:
        return os.get_terminal_size(terminal.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def per_second(rate: float) -> str:
    """``6.1 M/s``, ``12 k/s``, ``840/s``."""
    if rate >= 999_500:
        return f"{rate / 1e6:.1f} M/s"
    return f"{rate / 1e3:.0f} k/s" if rate >= 10_000 else f"{rate:,.0f}/s"


def roughly(seconds: float) -> str:
    """An estimated duration, rounded: ``a few seconds``, ``about 30 s``, ``about 4 min``, ``about 2 h``."""
    if seconds < 5:
        return "a few seconds"
    if seconds < 90:
        return f"about {max(10, round(seconds / 10) * 10)} s"
    return f"about {round(seconds / 60)} min" if seconds < 5400 else f"about {round(seconds / 3600)} h"
