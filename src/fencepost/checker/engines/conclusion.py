"""The end of a search: judges its temporal properties, and completes the table of its states."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencepost.checker.engines.interface import Exploration, Found, TableWriter
from fencepost.checker.engines.resources import memory_limit, peak_memory, resident_memory
from fencepost.checker.engines.search import Search
from fencepost.errors import ProtocolRaised, SystemFailure
from fencepost.language.seam import language_of
from fencepost.semantics import Stepper
from fencepost.text import numbers

if TYPE_CHECKING:
    from fencepost.checker.liveness.graph import Property, Recording, Terms
    from fencepost.checker.liveness.judge import Lasso


def conclude(search: Search) -> Exploration:
    """Judge the temporal properties on the graph of a complete search, and complete its table of states."""
    result = search.result
    # An executor refers to its search, so everything visited would stay in memory until the next garbage collection.
    del search.executor
    ended = (result.limit, result.found, result.failure, result.interrupted, result.raised)
    may_be_empty = language_of(search.stepper.protocol).counts_as_tlc
    if not result.distinct and not any(ended) and not may_be_empty:
        result.raised = without_states(search.stepper)
    if result.complete and result.distinct and not result.found and search.recording is not None:
        judge(search, search.recording)
    search.recording = None
    if search.table is not None:
        complete(search, search.table)
    return result


def without_states(stepper: Stepper) -> ProtocolRaised:
    """The error of a protocol without any state to explore. Nothing is claimed to hold of no state."""
    initial = stepper.protocol.declared("initial")
    if not stepper.initial_states(1):
        name = initial[0].name
        return ProtocolRaised(
            f"initial state {name} refuses every way through its choices: no state is reachable", where=name
        )
    names = " and ".join(constraint.name for constraint in stepper.protocol.declared("constraint"))
    return ProtocolRaised(f"every initial state is outside the constraint {names}: no state is explored", where=names)


def complete(search: Search, table: TableWriter) -> None:
    """Complete the table. If the machine failed, or the user interrupts it, remove the table except for what a search
    can go on with.
    """
    result = search.result

    def report_written(written: int, of: int) -> None:
        search.report_doing(f"writing states: {written:,} of {of:,}")

    if result.failure is None:
        ended = result.limit or ("it was interrupted" if result.interrupted else None)
        if ended is None and result.raised is not None:
            ended = f"{result.raised.where} raised"
        if ended is None and result.found and not result.complete:
            ended = f"{result.found[0].name} is violated"
        try:
            result.table = table.finish(result.complete, ended, report_written)
            return
        except SystemFailure as error:
            result.failure = error
        except KeyboardInterrupt:
            result.interrupted = True
    table.discard()


class Verdicts:
    """The shortest lasso that violates each property, and why the others could not be judged.

    All bindings of one property share its name.
    """

    def __init__(self, search: Search, terms: Terms) -> None:
        self.search = search
        self.terms = terms
        self.lassos: dict[str, Lasso] = {}
        self.unjudged: dict[str, str] = {}

    def take(self, property: Property, lasso: Lasso | None) -> None:
        """Record the verdict on a property: the shortest lasso that violates it, or None."""
        known = self.lassos.get(property.name)
        if lasso is not None and (known is None or lasso.length < known.length):
            self.lassos[property.name] = lasso

    def leave_open(self, property: Property, why: str) -> None:
        """Record that a property could not be judged."""
        self.unjudged.setdefault(property.name, why)

    def report(self) -> None:
        """Add the verdicts to the result of the search."""
        self.report_violations()
        result = self.search.result
        open_ = {name: why for name, why in self.unjudged.items() if name not in self.lassos}
        result.unjudged = next(iter(open_.values()), None)
        names = dict.fromkeys(property.name for property in self.terms.properties)
        result.judged = tuple(name for name in names if name not in open_)

    def report_violations(self) -> None:
        """Add only the violations, for a judgement that did not finish."""
        from fencepost.checker.liveness.replayed import replayed

        for name, lasso in self.lassos.items():
            way = replayed(self.search.stepper, self.terms, lasso)
            violation = Found(lasso.of.kind, name, way.initial, way.path, lasso.loop, way.fairness)
            self.search.result.found.append(violation)


def judge(search: Search, recording: Recording) -> None:
    """Judge the temporal properties on the recorded graph. If a limit is reached, none of them has a verdict."""
    from fencepost.checker.liveness import product  # imports SciPy, which is slow
    from fencepost.checker.liveness.judge import violation

    result, options = search.result, search.options
    limit = memory_limit(options.max_memory)
    verdicts = Verdicts(search, recording.terms)
    try:
        search.report_doing("judging liveness")
        if resident_memory() + recording.needs > limit:
            raise SystemFailure(
                f"the memory limit of {numbers.size(limit)} has no room for a graph of {recording.steps:,} steps"
            )
        graph = recording.graph()
        for property in verdicts.terms.properties:
            search.report_doing("judging liveness")
            if search.stepper.deadline.expired(options.timeout):
                raise SystemFailure(f"the time limit of {options.timeout:g} seconds was reached")
            if property.refuting is None:
                verdicts.take(property, violation(graph, property))
            else:
                room = limit - resident_memory()
                verdicts.take(property, product.violation(graph, property, room))
    except SystemFailure as error:
        result.unjudged = str(error)
    except MemoryError:
        result.unjudged = "out of memory"
    except KeyboardInterrupt:
        result.interrupted = True
    else:
        verdicts.report()
    result.seconds = search.seconds
    result.peak_memory = max(result.peak_memory, peak_memory())
