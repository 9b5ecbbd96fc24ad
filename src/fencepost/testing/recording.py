"""Traces that are recorded in a test and validated at its end."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from fencepost.api.result import Unexpected
from fencepost.report import validation
from fencepost.report.html import behaviour_html
from fencepost.report.text import WIDTH
from fencepost.report.verdict import BAD, Verdict
from fencepost.traces import TraceWriter, read
from fencepost.traces.validation import Conformance, registry
from fencepost.traces.validation import verdict as verdicts
from fencepost.traces.validation.behaviour import behaviour_of
from fencepost.traces.validation.outcome import Outcome, judged
from fencepost.traces.validation.traces import Traces
from fencepost.traces.validation.validate import Validator

LAST = 12
"""The steps that are shown before a rejection."""


class Recording:
    """Writers of traces in a folder, by the conformance that their events must fulfil."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writers: dict[type[Conformance], list[TraceWriter]] = {}

    def __call__(self, conformance: type[Conformance] | str, *, node: str = "test") -> TraceWriter:
        """A writer for the events of one process, ``node``. They must be a behaviour of the protocol of
        ``conformance``: a class, a shipped name, ``FILE.py`` or ``FILE.py:NAME``.
        """
        found = registry.resolve(conformance) if isinstance(conformance, str) else conformance
        writers = self._writers.setdefault(found, [])
        writers.append(TraceWriter(self.folder / found.name, run="test", node=node))
        return writers[-1]

    def close(self) -> None:
        """Close all writers."""
        for writers in self._writers.values():
            for writer in writers:
                writer.close()

    def must_conform(self) -> None:
        """Close the writers and validate what they wrote. Raises :class:`Unexpected` unless all is accepted."""
        self.close()
        for conformance in self._writers:
            _must_conform(self.folder / conformance.name, conformance)


def _must_conform(folder: Path, conformance: type[Conformance]) -> None:
    began = time.monotonic()
    traces = Traces(read(folder), subjects=(), kind=conformance.subjects, heeds=conformance.heeds)
    validator, explain = Validator(conformance), validation.explaining(LAST, WIDTH)
    found: list[verdicts.Verdict] = []
    outcomes: list[Outcome] = []
    for run, subject in traces.names():
        events = partial(traces.events, (run, subject))
        outcomes.append(judged(validator, run, subject, events, None, explain, found.append))
        if not outcomes[-1].accepted:
            what = f"the trace of this test, by {conformance.__name__}"
            report = validation.text(outcomes[-1:], what, time.monotonic() - began)
            last = found[-1] if found and found[-1].subject == subject else None
            raise Unexpected(report, partial(_page, last, outcomes[-1]) if last and last.replayer else None)


def _page(verdict: verdicts.Verdict, outcome: Outcome) -> str:
    assert verdict.replayer is not None
    trace = behaviour_of(verdict.replayer, verdict.start, verdict.path, len(verdict.path))
    sentence = "\n".join(f" {line}" for line in validation.how_far(outcome).splitlines())
    return behaviour_html(trace, Verdict(outcome.verdict.upper(), f"subject {outcome.subject}", (sentence,), BAD))
