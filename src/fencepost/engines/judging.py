"""The judging of temporal properties once a search is complete, and what becomes of the verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencepost.engines.interface import Found
from fencepost.engines.resources import memory_limit, peak_memory, resident_memory
from fencepost.engines.search import Search
from fencepost.errors import SystemFailure
from fencepost.liveness.graph import Property, Recording, Terms
from fencepost.liveness.lasso import replayed

if TYPE_CHECKING:
    from fencepost.liveness.judge import Lasso


class Verdicts:
    """The shortest lasso that violates each property, and why those could not be judged that were not.

    Bindings of one property share its name.
    """

    def __init__(self, search: Search, terms: Terms) -> None:
        self.search = search
        self.terms = terms
        self.lassos: dict[str, Lasso] = {}
        self.unjudged: dict[str, str] = {}

    def take(self, property: Property, lasso: Lasso | None) -> None:
        """The verdict on a property: the shortest lasso that violates it, None if none does."""
        known = self.lassos.get(property.name)
        if lasso is not None and (known is None or lasso.length < known.length):
            self.lassos[property.name] = lasso

    def leave_open(self, property: Property, why: str) -> None:
        """A property that could not be judged."""
        self.unjudged.setdefault(property.name, why)

    def report(self) -> None:
        """Make the verdicts part of what the search found."""
        self.report_violations()
        result = self.search.result
        open_ = {name: why for name, why in self.unjudged.items() if name not in self.lassos}
        result.unjudged = next(iter(open_.values()), None)
        names = dict.fromkeys(property.name for property in self.terms.properties)
        result.judged = tuple(name for name in names if name not in open_)

    def report_violations(self) -> None:
        """Make only the violations part of it: the judging did not come to its end."""
        for name, lasso in self.lassos.items():
            way = replayed(self.search.stepper, self.terms, lasso)
            violation = Found(lasso.of.kind, name, way.initial, way.path, lasso.loop, way.fairness)
            self.search.result.found.append(violation)


def judge(search: Search, recording: Recording) -> None:
    """Judge the temporal properties on the graph that was recorded. A limit leaves all of them without a verdict."""
    from fencepost.liveness.judge import violation  # SciPy takes its time to import

    result, options = search.result, search.options
    limit = memory_limit(options.max_memory)
    verdicts = Verdicts(search, recording.terms)
    try:
        search.report_doing("judging liveness")
        if resident_memory() + recording.needs > limit:
            raise SystemFailure(
                f"the memory limit of {limit:,} bytes has no room for a graph of {recording.steps:,} steps"
            )
        graph = recording.graph()
        for property in verdicts.terms.properties:
            search.report_doing("judging liveness")
            if search.stepper.deadline.expired(options.timeout):
                raise SystemFailure(f"the time limit of {options.timeout:g} seconds was reached")
            verdicts.take(property, violation(graph, property))
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
