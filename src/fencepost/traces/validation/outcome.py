"""The outcome of one trace as plain data, to send, store and print: a verdict without its protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from fencepost.errors import FencepostError, SystemFailure
from fencepost.semantics.authors import brief
from fencepost.traces.event import TraceError
from fencepost.traces.validation.conformance import Event
from fencepost.traces.validation.validate import Validator
from fencepost.traces.validation.verdict import Refusal, Verdict

ACCEPTED, NOT_FINISHED, REJECTED, NOT_COVERED = "accepted", "not finished", "rejected", "not covered"
RAISED = "raised"
"""The verdicts. Accepted: the trace is a behaviour of the protocol. Not finished: it is one so far, and validation
ended before the trace did, or it is not known whether it is one. Rejected: it is not a behaviour. Not covered: the
conformance cannot map an event of it. Raised: the Python of the conformance or of the protocol raised, which says
nothing about the system.
"""


class Alternative(msgspec.Struct):
    """A step that could have come next, the event that reports it, why it was refused, and the author's line that
    refuses it.
    """

    node: str
    incarnation: int
    seq: int
    event: str
    step: str
    reason: str
    where: str
    asked: str


class Objected(msgspec.Struct):
    """An event that a monitor objects to, and the reason."""

    node: str
    incarnation: int
    seq: int
    event: str
    why: str


class Outcome(msgspec.Struct):
    """The verdict on the trace of one subject in one run.

    ``taken``: how many of its ``steps`` were replayed. ``skipped``: how many were left out, since the system may have
    ignored them. ``problem``: why the trace could not be replayed at all. ``raised``: whether the conformance or the
    protocol raised. ``refusals``: all steps that could have come next; each was refused. ``story``: the last steps
    before, in words; ``sequence`` and ``mermaid``: as a sequence diagram, for
    sequencediagram.org and Mermaid; all empty unless requested. ``finished``: whether the trace
    came to its end. ``objections``: of the conformance's monitor; with any, it is not accepted. ``protocol``: the
    name of the protocol, if the replay began.
    """

    run: str
    subject: str
    accepted: bool
    covered: bool = True
    events: int = 0
    steps: int = 0
    taken: int = 0
    skipped: int = 0
    problem: str = ""
    raised: bool = False
    refusals: list[Alternative] = []
    story: str = ""
    sequence: str = ""
    finished: bool = True
    protocol: str = ""
    hidden: int = 0
    undecided: bool = False
    other_fronts: list[list[Alternative]] = []
    more_fronts: int = 0
    objections: list[Objected] = []
    mermaid: str = ""

    @property
    def verdict(self) -> str:
        """``accepted``, ``not finished``, ``raised``, ``rejected`` or ``not covered``."""
        if not self.finished or self.undecided:
            return NOT_FINISHED
        if self.raised:
            return RAISED
        return ACCEPTED if self.accepted else REJECTED if self.covered else NOT_COVERED


Explain = Callable[[Verdict], tuple[str, str, str]]
"""Renders the last steps of a verdict: the story, and the sequence diagram for sequencediagram.org and for Mermaid."""

Observer = Callable[[Verdict], None]
"""Called with each verdict."""


def judged(
    validator: Validator, run: str, subject: str, events: Callable[[], Sequence[Event]], shuffle: int | None = None,
    explain: Explain | None = None,
    on_verdict: Observer | None = None,
) -> Outcome:  # fmt: skip
    """Validate one trace. Exceptions of the conformance become the ``problem`` of this trace, so that other traces are
    still validated. Raises :class:`fencepost.traces.TraceError` for events that are damaged.

    ``explain``: called for a trace that is not accepted; ``on_verdict``: called for every trace.
    """
    if not subject:
        return Outcome(
            run, "", False, covered=False, events=len(events()), problem="no event of the run is about any subject"
        )
    try:
        verdict = validator.validate(subject, events(), shuffle)
    except (MemoryError, SystemFailure, TraceError):
        raise
    except (Exception, SystemExit) as error:
        said = str(error) if isinstance(error, FencepostError) else f"the conformance raised {brief(error)}"
        return Outcome(run, subject, False, problem=said, raised=True)
    if on_verdict is not None:
        on_verdict(verdict)
    return outcome_of(verdict, run, explain if not verdict.accepted else None)


def outcome_of(verdict: Verdict, run: str, explain: Explain | None = None) -> Outcome:
    """The outcome of a verdict."""
    story, sequence, mermaid = explain(verdict) if explain is not None else ("", "", "")
    return Outcome(
        run, verdict.subject, verdict.accepted, verdict.covered, verdict.events, verdict.steps, verdict.taken,
        verdict.skipped, verdict.problem,
        refusals=_alternatives(verdict.refusals), story=story, sequence=sequence, mermaid=mermaid,
        protocol=verdict.replayer.protocol.name if verdict.replayer is not None else "",
        hidden=verdict.hidden, undecided=verdict.undecided,
        other_fronts=[_alternatives(front.refusals) for front in verdict.fronts[1:]], more_fronts=verdict.more_fronts,
        objections=[
            Objected(o.event.node, o.event.incarnation, o.event.seq, o.event.action, o.why) for o in verdict.objections
        ],
    )  # fmt: skip


def _alternatives(refusals: Sequence[Refusal]) -> list[Alternative]:
    return [
        Alternative(
            r.event.node, r.event.incarnation, r.event.seq, r.event.action, r.step.title, r.why.reason, r.why.where,
            r.why.asked
        )
        for r in refusals
    ]  # fmt: skip
