"""Validates the trace of one subject: orders its steps by causality, and replays them against a protocol."""

from __future__ import annotations

import gc
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from inspect import unwrap
from typing import Any, TypeVar

from msgspec.structs import replace

from fencepost.errors import ProtocolRaised
from fencepost.language.values import NotAValue, encode, freeze
from fencepost.traces.packed import KEPT, Chosen, Packed, Pickled
from fencepost.traces.validation.conformance import Conformance, Event, NotCovered, Objection
from fencepost.traces.validation.order import PartialOrder, are_in_lines
from fencepost.traces.validation.replay import CACHE_LIMIT, Replayer, specifications
from fencepost.traces.validation.search import MOST_TRIED, Report, Search
from fencepost.traces.validation.steps import ANY, Step
from fencepost.traces.validation.verdict import Verdict

T = TypeVar("T")


def collect_rarely() -> None:
    """Collect cyclic garbage less often in this process. The cache is long-lived, and scanning it takes a third of the
    time of a validation.
    """
    gc.set_threshold(100_000, 50, 100)


class Validator:
    """Validates traces of one conformance, one after another. Traces with the same constants share one replayer's
    cache.

    After ``cache_limit`` evaluations the least recently used replayers are dropped. This bounds memory.

    ``replayer``: a fixed one, with constants of its own. Traces must stay within its bounds. ``most_tried``: the most
    steps that are tried for one trace, to find those that it leaves out. ``report``: called now and then within a
    trace, with how many of its steps are taken, and how many it has.
    """

    def __init__(
        self,
        conformance: type[Conformance],
        replayer: Replayer | None = None,
        most_tried: int = MOST_TRIED,
        report: Report | None = None,
    ) -> None:
        self.conformance = conformance
        self.most_tried = most_tried
        self.report = report
        self.cache_limit = CACHE_LIMIT
        self._fixed = replayer
        self.replayers: dict[tuple[Any, ...], Replayer] = {}
        """By protocol and constants, the most recently used last."""

    def replayer(self, constants: dict[str, Any], conformance: type[Conformance]) -> Replayer:
        """The replayer for a conformance's protocol with these constants, or the fixed one."""
        if self._fixed is not None:
            return self._fixed
        cached = sum(replayer.evaluations for replayer in self.replayers.values())
        while cached > self.cache_limit:
            cached -= self.replayers.pop(next(iter(self.replayers))).evaluations
        made = conformance.protocol
        given = tuple(sorted(constants.items()))
        try:
            key = (made, conformance.configuration, repr(given) if isinstance(made, str) else encode(freeze(given)))
        except NotAValue:
            made(**constants)  # type: ignore[operator]  # which says what is wrong
            raise
        replayer = self.replayers.pop(key, None)
        if replayer is None:
            replayer = self._replayer_of(conformance, constants)
        self.replayers[key] = replayer
        return replayer

    def _replayer_of(self, conformance: type[Conformance], constants: Mapping[str, Any]) -> Replayer:
        made = conformance.protocol
        if not isinstance(made, str):
            return Replayer(made(**constants), cache_limit=self.cache_limit)
        specification: Replayer = specifications(made).replayer(
            made, conformance.configuration, constants, self.cache_limit
        )
        return specification

    def validate(self, subject: str, events: Sequence[Event], shuffle: int | None = None) -> Verdict:
        """Validate a trace. ``shuffle``: the seed of another order that causality allows, instead of the default."""
        if not events:
            return Verdict(subject, False, 0, 0, problem="the trace is empty")
        try:
            conformance = self.conformance.of(subject, events)
        except NotCovered as problem:
            return Verdict(subject, False, len(events), 0, problem=str(problem), covered=False)
        refuse_unless(conformance, Conformance, self.conformance, "of", "a conformance")
        shared = [event for event in events if event.subject != subject] if self.conformance.chooses() else ()
        if shared:  # where this was asked for all traces of the run, nothing was said of what is wrong with it
            all_of(Event, self.conformance.still_needed(shared), self.conformance, "still_needed")
        count = len(events)
        del events  # of a long trace, they and what the conformance knows of them take much memory
        objections = all_of(Objection, conformance.objections(), type(conformance), "objections")
        try:
            search = self._search(conformance, Verdict(subject, False, count, 0), shuffle)
            del conformance
            verdict = search.verdict
            if not verdict.problem:
                search.run()
        except NotCovered as problem:
            verdict = Verdict(subject, False, count, 0, problem=str(problem), covered=False)
        if objections:  # they hold however far the replay got
            verdict.objections = objections
            verdict.accepted, verdict.covered, verdict.undecided = False, True, False
        return verdict

    def _search(self, conformance: Conformance, verdict: Verdict, shuffle: int | None) -> Search:
        """The search for a path, for a verdict with its problem if there is no need to search."""
        replayer = verdict.replayer = self.replayer(_constants(conformance), type(conformance))
        conformance.bind(replayer.protocol)
        names = conformance.names()
        refuse_unless(names, Mapping, type(conformance), "names", "a dict of names by model value")
        verdict.names = {str(value): str(name) for value, name in names.items()}
        events = conformance.in_order()
        refuse_unless(events, Sequence, type(conformance), "in_order", "the events")
        lives = Counter[tuple[str, int]]()
        in_lines = are_in_lines(_nodes(_each(Event, events, type(conformance), "in_order"), lives))
        steps = Packed(Pickled, kept=KEPT + len(lives))
        places = array("q")
        told = Counter[Any]()
        order = PartialOrder(_told(conformance, replayer, events, steps, places, told), in_lines)
        sources = Chosen(events, places)
        verdict.steps = told.total() - told[None]
        cycle = order.cycle()
        if not verdict.steps and not _is_untouched(conformance):
            verdict.problem = "no event of the trace is a step of the protocol"
        elif cycle:
            circular = ", ".join(
                f"{sources[n].node} {sources[n].seq} {steps[n].action or sources[n].action}" for n in cycle
            )
            verdict.problem = (
                "what happened cannot be ordered, each of these comes before the next, and the last before the first:"
                f" {circular}{_hint(sources)}"
            )
        hidden = [] if verdict.problem else _hidden(conformance, replayer, told)
        return Search(replayer, steps, sources, order, verdict, hidden, self.most_tried, shuffle, self.report)


def _nodes(events: Iterable[Event], lives: Counter[tuple[str, int]]) -> Iterator[str]:
    """The node of each event. Counts the events of each incarnation."""
    for event in events:
        lives[event.node, event.incarnation] += 1
        yield event.node


def _hidden(conformance: Conformance, replayer: Replayer, told: Collection[Any]) -> list[Step]:
    """The steps that may be taken without an event. ``told``: the actions of the others."""
    found = _steps(conformance.hidden(replayer.protocol), conformance, "hidden", replayer)
    hidden = [_completed(step, replayer) for step in found]
    if type(conformance).hidden is not Conformance.hidden:
        return hidden
    return [step for step in hidden if step.action not in told]


def _told(
    conformance: Conformance,
    replayer: Replayer,
    events: Iterable[Event],
    steps: Packed[Step],
    places: array[int],
    told: Counter[Any],
) -> Iterator[tuple[str, Step]]:
    """The steps of events, each with its node. Adds them to ``steps`` without what orders them, to ``places`` the place
    of the event of each, and to ``told`` its action.
    """
    for place, event in enumerate(events):
        for step in _steps(conformance.steps(event), conformance, "steps", replayer):
            yield event.node, step
            told[step.action] += 1
            steps.append(replayer.adapted(_unordered(step)))
            places.append(place)


def _steps(found: Any, conformance: Conformance, method: str, replayer: Replayer) -> Iterator[Step]:
    """The steps that a method gives. Raises :class:`fencepost.ProtocolRaised` for one that names what cannot be."""
    for step in _each(Step, found, type(conformance), method):
        if unknown := replayer.unknown(step):
            name = f"{type(conformance).__name__}.{method}{_at(found, getattr(conformance, method))}"
            raise ProtocolRaised(f"{name} gives {step.title} with {unknown}")
        yield step


def _at(found: Any, method: Callable[..., Any]) -> str:
    """The line of the author's Python that gave the last of what was found: where a generator waits, or the method."""
    while getattr(found, "gi_yieldfrom", None) is not None:
        found = found.gi_yieldfrom
    frame, code = getattr(found, "gi_frame", None), getattr(unwrap(method), "__code__", None)
    if frame is not None:
        return f" at {frame.f_code.co_filename}:{frame.f_lineno}"
    return f" at {code.co_filename}:{code.co_firstlineno}" if code is not None else ""


def _is_untouched(conformance: Conformance) -> bool:
    found = conformance.is_untouched()
    refuse_unless(found, bool, type(conformance), "is_untouched", "True or False")
    return found


def _constants(conformance: Conformance) -> dict[str, Any]:
    """The constants for a trace, as the values that the protocol makes of lists and sets."""
    given = conformance.constants()
    refuse_unless(given, Mapping, type(conformance), "constants", "a dict of constants by name")
    if not all(isinstance(name, str) for name in given):
        raise ProtocolRaised(f"{type(conformance).__name__}.constants returns {given!r}: constants have names")
    if isinstance(conformance.protocol, str):
        return dict(given)
    return {
        name: tuple(value) if isinstance(value, list) else frozenset(value) if isinstance(value, set) else value
        for name, value in given.items()
    }


def refuse_unless(found: Any, kind: type, conformance: type[Conformance], method: str, what: str) -> None:
    """Raises :class:`fencepost.ProtocolRaised` if a method of a conformance has returned something else."""
    if not isinstance(found, kind):
        raise ProtocolRaised(
            f"{conformance.__name__}.{method} returns a value of type {type(found).__name__}: return {what}"
        )


def _each(kind: type[T], found: Any, conformance: type[Conformance], name: str) -> Iterator[T]:
    """What a method of a conformance gives, one by one. Raises :class:`fencepost.ProtocolRaised` if it is something
    else.
    """
    refuse_unless(found, Iterable, conformance, name, f"{kind.__name__}s in a list, or yield them")
    for each in found:
        if not isinstance(each, kind):
            raise ProtocolRaised(
                f"{conformance.__name__}.{name} gives a value of type {type(each).__name__}, and no {kind.__name__}"
            )
        yield each


def all_of(kind: type[T], found: Any, conformance: type[Conformance], name: str) -> list[T]:
    """All that a method of a conformance gives. Raises as :func:`refuse_unless`."""
    return list(_each(kind, found, conformance, name))


def _unordered(step: Step) -> Step:
    """A step without what orders it, which takes much memory, and is not needed once it has its place."""
    if step.receives is None and not step.sends and step.reads is None and step.writes is None:
        return step
    bare = copy(step)
    bare.receives = bare.reads = bare.writes = None
    bare.sends = ()
    return bare


def _completed(step: Step, replayer: Replayer) -> Step:
    """A hidden step with all its parameters. Those that it does not name may have any value."""
    step = replayer.adapted(replace(step, picks=step.picks or (...,)))
    action = step.action or ""
    if not action:
        raise ProtocolRaised("a hidden step has no action: name the one that the system may take")
    if action is ANY or replayer.alternatives(action):
        return step
    parameters = replayer.complete(action, step.parameters)
    replayer.declared(action, parameters)
    return replace(step, parameters=parameters)


def _hint(sources: Sequence[Event]) -> str:
    """What may be wrong where events have no order: two runs that have one name."""
    again = {event.node: event.incarnation for event in sources if event.incarnation > 1}
    if not again:
        return ""
    node, times = next(iter(again.items()))
    return (
        f". Node {node} was started {times} times: if these are runs of their own, give each another run name, or"
        " another folder"
    )
