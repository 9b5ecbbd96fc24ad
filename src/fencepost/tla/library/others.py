"""The modules VectorClocks, Quorum and Json, and those that reach outside the specification, which are refused."""

from __future__ import annotations

import json
from typing import Any

from fencepost.language.values import ModelValue
from fencepost.tla.library.definitions import Module, Unary, explicit, integer, sequence, written_out
from fencepost.tla.library.functions import FUNCTIONS
from fencepost.tla.library.numbers import NATURALS
from fencepost.tla.library.sequences import SEQUENCES
from fencepost.tla.sets import Subsets, filtered, intersection, subset
from fencepost.tla.values import (
    EvaluationError,
    FunctionValue,
    Sequence,
    SetValue,
    Value,
    set_of,
    show,
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


VECTOR_CLOCKS.refuse("TLC gives an order that depends on its hash table", CausalOrder=(0, 1, 1, 1))

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


# -- Json --------------------------------------------------------------------------------------------------------------

JSON = Module("Json")
JSON.refuse("a specification reads no files", JsonDeserialize=1, ndJsonDeserialize=1)
JSON.refuse("a specification writes no files", JsonSerialize=2, ndJsonSerialize=2)


@JSON.operator("ToJson", "ToJsonArray")
def to_json(value: Value) -> str:
    return json.dumps(_plain(value), separators=(",", ":"), ensure_ascii=False)


@JSON.operator("ToJsonObject")
def to_json_object(value: Value) -> str:
    whole = value.explicit() if isinstance(value, FunctionValue) else value
    if isinstance(whole, Sequence):
        numbered = {str(place): _plain(each) for place, each in enumerate(whole.values)}
        return json.dumps(numbered, separators=(",", ":"), ensure_ascii=False)
    return to_json(value)


def _plain(value: Value) -> Any:
    if isinstance(value, SetValue):
        return [_plain(each) for each in value.members()]
    if isinstance(value, FunctionValue):
        whole = value.explicit()
        if isinstance(whole, Sequence) and whole.values:
            return [_plain(each) for each in whole.values]
        return {_name(argument): _plain(each) for argument, each in whole.items()} if whole.size() else []
    return value.name if isinstance(value, ModelValue) else value


def _name(argument: Value) -> str:
    return argument if type(argument) is str else show(argument)


# -- refused -----------------------------------------------------------------------------------------------------------

_FILES = "a specification reads and writes no files"
_CHANCE = "a step depends on the state alone, and not on chance"

RANDOMIZATION = Module("Randomization")
RANDOMIZATION.refuse(_CHANCE, RandomSubset=2, RandomSetOfSubsets=3, TestRandomSetOfSubsets=3)

CSV = Module("CSV")
CSV.refuse(_FILES, CSVWrite=3, CSVWriteRecord=4, CSVRead=3, CSVRecords=1)

IO_UTILS = Module("IOUtils")
IO_UTILS.refuse(_FILES, IOSerialize=3, IODeserialize=2, Serialize=3, Deserialize=2)
IO_UTILS.refuse("a specification runs no commands", IOExec=1, IOEnvExec=2, IOExecTemplate=2, IOEnvExecTemplate=3)
IO_UTILS.refuse("set a constant with -D, or in the configuration", IOEnv=0)


@IO_UTILS.operator("atoi")
def to_integer(text: Value) -> int:
    try:
        return int(text) if type(text) is str else integer(text, "atoi")
    except ValueError:
        raise EvaluationError(f"atoi: {shown(text)} is not a number") from None


@IO_UTILS.operator("zeroPadN")
def padded(value: Value, width: Value) -> str:
    return show(value).rjust(integer(width, "zeroPadN"), "0")


STATISTICS = Module("Statistics", NATURALS)
STATISTICS.refuse("it needs real numbers", ChiSquare=3)

GRAPH_VIZ = Module("GraphViz")
GRAPH_VIZ.refuse("Fencepost draws behaviours itself (--html)", DotDiGraph=3)

SVG = Module("SVG")
SVG.refuse("Fencepost draws behaviours itself (--html)", Line=5, Circle=4, Rect=5, Text=4, Image=6, Group=2, Svg=2)
SVG.refuse("Fencepost draws behaviours itself (--html)", SVGDoc=6, SVGElem=4, SVGElemToString=1, SVGSerialize=3)
SVG.refuse("Fencepost draws behaviours itself (--html)", NodeOfRingNetwork=5, NodesOfDirectedMultiGraph=3)
SVG.refuse("Fencepost draws behaviours itself (--html)", PointOnLine=3)
