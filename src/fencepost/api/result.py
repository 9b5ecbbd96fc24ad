"""The result of a check: its findings, assertions for tests, and reports."""

from __future__ import annotations

from collections.abc import Callable

from fencepost.behaviours import Trace
from fencepost.checker.findings import Findings, Witness
from fencepost.text.notebook import framed


class Unexpected(AssertionError):
    """A test has not found what it must. Its text is the whole report. ``to_html`` makes the page of it, if any."""

    def __init__(self, report: str, to_html: Callable[[], str] | None) -> None:
        super().__init__(report)
        self.to_html = to_html


class Result(Findings):
    """The result of a check: its :class:`Findings`. Its text is the report that the command line prints."""

    def must_hold(self) -> Result:
        """For tests: returns the result if everything holds, else raises AssertionError with the whole report."""
        if not self.holds:
            raise Unexpected(str(self), self.to_html)
        return self

    def must_violate(self, name: str) -> Trace:
        """For tests: the counterexample to ``name``. Raises AssertionError with the report if there is none."""
        for violation in self.violations:
            if violation.name == name and violation.trace is not None:
                return violation.trace
        raise Unexpected(f"{name} is not violated\n{self}", self.to_html)

    def must_reach(self, name: str) -> Trace:
        """For tests: a behaviour that reaches a state in which ``name`` (with its parameters) is true. Raises
        AssertionError with the report if there is none.
        """
        for witness in self.witnesses:
            if witness.name == name:
                return witness.trace
        raise Unexpected(f"{name} is not reached\n{self}", self.to_html)

    def __str__(self) -> str:
        from fencepost.report.text import story

        return story(self)

    def to_html(self) -> str:
        """The page of ``fencepost check --html``: the verdict, and every behaviour with its sequence diagram."""
        from fencepost.report.html import html

        return html(self)

    def to_json(self, *, indent: int = 2) -> str:
        """The document of ``fencepost check --json``; ``indent`` 0 puts it on one line."""
        from fencepost.report.json import to_json

        return to_json(self, indent=indent)

    def _repr_html_(self) -> str:
        """The page, in a notebook."""
        return framed(self.to_html())


def _page_of(trace: Trace) -> str:
    from fencepost.report.html import behaviour_html

    return behaviour_html(trace)


Trace._page = _page_of


def witnessed(trace: Trace, condition: str) -> Result:
    """The result for a behaviour that leads to a state with ``condition``, so that it is shown as a counterexample
    is.
    """
    return Result(
        protocol=trace.protocol, engine="states", complete=False, distinct_states=0, generated_states=0,
        depth=len(trace), queue=0,
        seconds=0.0, peak_memory_bytes=0, actions=[], witnesses=[Witness(condition, trace)], reached=True,
    )  # fmt: skip
