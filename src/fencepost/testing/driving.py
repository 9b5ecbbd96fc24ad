"""Drives a system of a user's along behaviours of its protocol."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from fencepost.api.check import model_of
from fencepost.api.result import Unexpected
from fencepost.errors import OptionError
from fencepost.language.protocol import Protocol
from fencepost.language.seam import Model, language_of
from fencepost.testing.findings import Findings
from fencepost.testing.graph import Graph, Move, Sample, Tour
from fencepost.testing.report import page, story
from fencepost.testing.shrink import Shown, shrunk
from fencepost.testing.system import Adapter, Behaviour
from fencepost.testing.walk import Difference, Edge

TRANSITIONS, PAIRS = "transitions", "pairs"

MOST_SECONDS = 10
"""The most seconds in which a behaviour is shortened."""

LONGEST = 100
"""The most steps of a behaviour, unless the way to something takes more."""


class Driven(Findings):
    """The result of driving a system: its :class:`Findings`. Its text is the report."""

    def must_follow(self) -> Driven:
        """For tests: returns the result if the system follows, else raises AssertionError with the whole report."""
        if not self.follows:
            raise Unexpected(str(self), None if self.shown is None else self.to_html)
        return self

    def __str__(self) -> str:
        return story(self)

    def to_html(self) -> str:
        """The behaviour that shows the difference, as a page."""
        return page(self)


def drive(
    protocol: Model | type[Protocol] | str,
    system: Callable[[], Any],
    *,
    configuration: str | None = None,
    constants: Mapping[str, Any] | None = None,
    cover: str = TRANSITIONS,
    sample: int | None = None,
    seed: int = 0,
    seconds: float | None = None,
    transitions: int = 100_000,
    behaviours: int | None = None,
) -> Driven:
    """Drive ``system`` along behaviours of ``protocol``, up to the first difference, and shorten that.

    ``protocol``, ``configuration``, ``constants``: as for :func:`fencepost.check`.

    ``system`` makes a fresh system in an initial state, usually as a class. What it makes has

    - a method for each action, plain or ``async``, which takes the action's parameters. Where it also takes ``choices``
      or ``after``, it gets the chosen options and the state after the step, and has to bring that about. Otherwise the
      system may take any outcome of the action.
    - ``observe()``, which gives some variables of the protocol as a dictionary. With ``expected(state)`` they are
      compared with what that gives for a state, and may have names of their own.
    - ``leaves_out``, if there are actions that cannot be driven: their names.
    - ``refuses``, if calls must be refused in states where their action is not enabled: the exception, by action.
    - ``close()``, if something is to be done at the end of a behaviour.

    Clocks, random numbers and asyncio's timers, tasks and streams are simulated, so that a behaviour depends on
    ``seed`` alone.

    ``cover``: ``transitions``, each at least once; or ``pairs``, each after each that it can follow. ``sample``: this
    number of random behaviours instead, of up to 100 steps, in which rare actions are preferred. Limits: ``seconds``,
    ``transitions`` that are explored, and ``behaviours``.

    Raises :class:`fencepost.OptionError` for a system that lacks something, and for options out of range; and as
    :func:`fencepost.check` if the protocol is at fault.
    """
    if cover not in (TRANSITIONS, PAIRS):
        raise OptionError(f"cover is {cover!r}: give {TRANSITIONS!r} or {PAIRS!r}")
    for name, given in (("sample", sample), ("transitions", transitions), ("behaviours", behaviours)):
        if given is not None and given < 1:
            raise OptionError(f"{name} is {given}: give 1 or more")
    began = time.perf_counter()

    def is_over() -> bool:
        return seconds is not None and time.perf_counter() - began > seconds

    model = model_of(protocol, configuration, constants or {})
    with language_of(model).running(model):
        graph = Graph(model, transitions, is_over)
        adapter = Adapter(system, graph)
        driven = Driven(graph, adapter, cover if sample is None else f"{sample:,} behaviours", seed)
        if graph.is_cut and not is_over():
            driven.limits.append(f"{transitions:,} transitions explored")
        _Driver(driven, cover == PAIRS, sample, behaviours, seconds, is_over).drive()
        driven.seconds = time.perf_counter() - began
        if driven.shown is not None:

            def is_enough() -> bool:
                return is_over() or time.perf_counter() - began > driven.seconds + MOST_SECONDS

            driven.shown, driven.repeats, driven.is_shortest = shrunk(adapter, graph, seed, driven.shown, is_enough)
    return driven


class _Driver:
    """Drives one behaviour after the other, until all that is wanted was driven."""

    def __init__(
        self,
        driven: Driven,
        pairs: bool,
        sample: int | None,
        behaviours: int | None,
        seconds: float | None,
        is_over: Callable[[], bool],
    ) -> None:
        self.driven = driven
        self.graph = driven.graph
        self.pairs = pairs
        self.sample = sample
        self.most = behaviours
        self.seconds = seconds
        self.is_over = is_over
        self.chooser: Tour | Sample | None = None
        self.refused = set[int]()
        """The states in which calls were refused."""

    def drive(self) -> None:
        """Drive all. The result is in what was given."""
        while self.driven.behaviours != self.sample and not (isinstance(self.chooser, Tour) and not self.chooser.left):
            if self.is_over():
                self.driven.limits.append(f"{self.seconds:g} seconds")
                break
            if self.driven.behaviours == self.most:
                self.driven.limits.append(f"{self.most:,} behaviours")
                break
            with Behaviour(self.driven.adapter, self.graph, self.driven.seed) as behaviour:
                try:
                    is_going_on = self._behave(behaviour)
                except Difference as difference:
                    self.driven.shown = Shown(tuple(behaviour.moves), behaviour.trace, difference)
                    is_going_on = False
            self.driven.behaviours += bool(behaviour.moves)
            self.driven.steps += behaviour.length
            if not is_going_on:
                break
        if isinstance(self.chooser, Tour):
            self.driven.wanted, self.driven.left = self.chooser.count, self.chooser.left
            self.driven.given_up = self.chooser.given_up

    def _behave(self, behaviour: Behaviour) -> bool:
        """Drive one behaviour. Returns whether it had a step. Raises :class:`Difference`."""
        behaviour.begin()
        if self.chooser is None:
            left_out = self.driven.adapter.left_out
            self.chooser = (
                Tour(self.graph, behaviour.state, left_out, self.pairs)
                if self.sample is None
                else Sample(self.graph, left_out, self.driven.seed)
            )
        self._refuse(behaviour)
        last: Edge | None = None
        while way := self.chooser.way(behaviour.state, last):
            if behaviour.length and behaviour.length + len(way) > LONGEST:
                break
            for edge in way:
                before = behaviour.state
                taken = behaviour.take(self.graph.move(edge))
                if behaviour.is_ambiguous:
                    self.driven.ambiguous += 1
                    self.chooser.missed(before, last, edge)
                    return True
                assert taken is not None, "a transition of the graph is enabled where it begins"
                if taken in self.graph.edges.get(before, ()):  # and not beyond what was explored
                    self.driven.covered.add(taken)
                self.chooser.taken(before, last, taken)
                self._refuse(behaviour)
                if taken != edge:
                    self.chooser.missed(before, last, edge)
                last = taken
                if self.is_over():
                    return True
                if taken != edge:
                    break
        return bool(behaviour.length)

    def _refuse(self, behaviour: Behaviour) -> None:
        """Make the calls that must be refused in a state, when it is first reached."""
        state = behaviour.state
        if state not in self.refused:
            self.refused.add(state)
            for root in self.graph.refused(state, self.driven.adapter.refuses):
                behaviour.take(Move(root, is_refused=True))
                self.driven.refusals += 1
