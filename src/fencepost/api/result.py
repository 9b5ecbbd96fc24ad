"""The answer to a check, for programs and for tests: what was found out, what tests ask of it, and the whole story."""

from __future__ import annotations

from fencepost.behaviours import Trace
from fencepost.checker.findings import Findings, Witness
from fencepost.text.notebook import framed


class Result(Findings):
    """The answer to a check: its :class:`Findings`, and for its text the story that the command line prints."""

    def must_hold(self) -> Result:
        """For tests: returns the result if everything holds, else raises AssertionError whose message is the whole
        story.
        """
        if not self.holds:
            raise AssertionError(str(self))
        return self

    def must_violate(self, name: str) -> Trace:
        """For tests: the counterexample to ``name``, or AssertionError with what was found instead."""
        for violation in self.violations:
            if violation.name == name and violation.trace is not None:
                return violation.trace
        raise AssertionError(f"{name} is not violated\n{self}")

    def must_reach(self, name: str) -> Trace:
        """For tests: the way to a state in which ``name`` (with its parameters) is true, or AssertionError with what
        was found instead.
        """
        for witness in self.witnesses:
            if witness.name == name:
                return witness.trace
        raise AssertionError(f"{name} is not reached\n{self}")

    def __str__(self) -> str:
        from fencepost.report.text import story

        return story(self)

    def to_html(self) -> str:
        """The page that ``fencepost check --html`` writes: the verdict, and every behaviour with its sequence
        diagram.
        """
        from fencepost.report.html import html

        return html(self)

    def to_json(self, *, indent: int = 2) -> str:
        """The document that ``fencepost check --json`` writes; ``indent`` 0 puts it on one line."""
        from fencepost.report.json import to_json

        return to_json(self, indent=indent)

    def _repr_html_(self) -> str:
        """In a notebook: the page."""
        return framed(self.to_html())


def _page_of(trace: Trace) -> str:
    from fencepost.report.html import behaviour_html

    return behaviour_html(trace)


Trace._page = _page_of


def witnessed(trace: Trace, condition: str) -> Result:
    """A behaviour that leads to a state which satisfies ``condition``, as a result, so that it is shown as a
    counterexample is.
    """
    return Result(
        protocol=trace.protocol, engine="states", complete=False, distinct_states=0, generated_states=0,
        depth=len(trace), queue=0,
        seconds=0.0, peak_memory_bytes=0, actions=[], witnesses=[Witness(condition, trace)], reached=True,
    )  # fmt: skip
