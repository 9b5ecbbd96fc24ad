"""The modules VectorClocks and Quorum, and those that are refused."""

from __future__ import annotations

from fencepost.tla.library.definitions import Module, Unary, explicit, integer, natural, sequence, written_out
from fencepost.tla.library.functions import FUNCTIONS
from fencepost.tla.library.numbers import NATURALS
from fencepost.tla.library.sequences import SEQUENCES
from fencepost.tla.sets import Subsets, filtered, intersection, subset
from fencepost.tla.values import (
    EvaluationError,
    Sequence,
    SetValue,
    Value,
    set_of,
    shown,
)

# -- VectorClocks ------------------------------------------------------------------------------------------------------

VECTOR_CLOCKS = Module("VectorClocks", NATURALS, SEQUENCES, FUNCTIONS)


@VECTOR_CLOCKS.operator("IsCausalOrder")
def is_causal(log: Value, clock: Unary) -> bool:
    clocks = [dict(written_out(clock(each), "IsCausalOrder").items()) for each in sequence(log, "IsCausalOrder")]
    return all(_may_precede(clocks[j], clocks[i]) for i in range(len(clocks)) for j in range(i))


def _may_precede(one: dict[Value, Value], other: dict[Value, Value]) -> bool:
    """Whether ``one`` happened before ``other``, or neither before the other: somewhere it is behind."""
    return any(one.get(each, 0) < other.get(each, 0) for each in {**one, **other})


@VECTOR_CLOCKS.operator("CausalOrder")
def in_causal_order(log: Value, clock: Unary, node: Unary, domain: Unary) -> Sequence:
    """The events of a log, each after those that its vector clock knows of. TLC's order depends on the hashes of nodes
    where these leave a choice. Here, nodes take turns in the order of their first events in the log.
    """
    clocks: dict[Value, dict[int, tuple[Value, dict[Value, Value]]]] = {}
    for event in sequence(log, "CausalOrder"):
        at, known = node(event), clock(event)
        times = written_out(known, "CausalOrder")
        of_all = {each: times.apply(each) for each in explicit(domain(known), "CausalOrder").in_order()}
        own = natural(times.apply(at), "CausalOrder")
        if clocks.setdefault(at, {}).setdefault(own, (event, of_all))[0] is not event:
            raise EvaluationError(f"CausalOrder: {shown(at)} has two events with its clock at {own}")
    waiting = {at: sorted(of.items(), reverse=True) for at, of in clocks.items()}
    past: dict[Value, Value] = dict.fromkeys(waiting, 0)
    ordered: list[Value] = []
    while any(waiting.values()):
        before = len(ordered)
        for at, events in waiting.items():
            if events and _is_next(at, events[-1][1][1], past):
                past[at], (event, _) = events.pop()
                ordered.append(event)
        if len(ordered) == before:
            at, events = next((at, events) for at, events in waiting.items() if events)
            raise EvaluationError(
                f"CausalOrder: event {events[-1][0]} of {shown(at)} comes after one that is not there"
            )
    return Sequence(ordered)


def _is_next(at: Value, known: dict[Value, Value], past: dict[Value, Value]) -> bool:
    """Whether all events of other nodes that an event of ``at`` knows of are past."""
    return all(each == at or integer(time, "CausalOrder") <= past.get(each, 0) for each, time in known.items())


# -- Quorum ------------------------------------------------------------------------------------------------------------

QUORUM = Module("Quorum")


@QUORUM.operator("QuorumSystem")
def quorum_systems(of: Value) -> SetValue:
    subsets = Subsets(set_of(of, "QuorumSystem"))
    return filtered(Subsets(subsets), lambda each: _is_quorum_system(each, subsets))


def _is_quorum_system(system: Value, subsets: Subsets) -> bool:
    quorums = explicit(system, "QuorumSystem").in_order()
    if not quorums or any(intersection(one, other).is_empty() for one in quorums for other in quorums):
        return False
    return all(system.has(wider) for one in quorums for wider in subsets.members() if subset(one, wider))


# -- refused -----------------------------------------------------------------------------------------------------------

_CHANCE = "a step depends on the state alone, and not on chance"

RANDOMIZATION = Module("Randomization")
RANDOMIZATION.refuse(_CHANCE, RandomSubset=2, RandomSetOfSubsets=3, TestRandomSetOfSubsets=3)

STATISTICS = Module("Statistics", NATURALS)
STATISTICS.refuse("it needs real numbers", ChiSquare=3)

GRAPH_VIZ = Module("GraphViz")
GRAPH_VIZ.refuse("Fencepost draws behaviours itself (--html)", DotDiGraph=3)

SVG = Module("SVG")
SVG.refuse("Fencepost draws behaviours itself (--html)", Line=5, Circle=4, Rect=5, Text=4, Image=6, Group=2, Svg=2)
SVG.refuse("Fencepost draws behaviours itself (--html)", SVGDoc=6, SVGElem=4, SVGElemToString=1, SVGSerialize=3)
SVG.refuse("Fencepost draws behaviours itself (--html)", NodeOfRingNetwork=5, NodesOfDirectedMultiGraph=3)
SVG.refuse("Fencepost draws behaviours itself (--html)", PointOnLine=3)
