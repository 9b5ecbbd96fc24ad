"""The library's operators, called as compiled expressions call them."""

from __future__ import annotations

import pytest

from fencepost.tla import library
from fencepost.tla.library import context
from fencepost.tla.symbols import BuiltIn
from fencepost.tla.values import EvaluationError, Sequence, Set, Value, record, show


def call(module: str, name: str, *arguments: Value) -> Value:
    exports = library.exports(module)
    assert exports is not None
    return exports[name].function(*arguments)


def test_a_module_has_what_it_extends_and_an_operator_belongs_to_one_module() -> None:
    integers, naturals = library.exports("Integers"), library.exports("Naturals")
    assert integers is not None and naturals is not None
    assert integers["+"] is naturals["+"]
    assert integers["+"].module == "Naturals"
    assert library.exports("NoSuchModule") is None


def test_an_operator_says_which_parameters_are_operators() -> None:
    symbol = BuiltIn("SortSeq", "TLC", 2)
    assert library.parameters(symbol) == (0, 2)
    assert library.is_truth(BuiltIn("PrintT", "TLC", 1)) and library.is_impure(BuiltIn("PrintT", "TLC", 1))
    assert not library.is_impure(BuiltIn("Len", "Sequences", 1))


def test_an_operator_that_is_refused_says_why() -> None:
    exports = library.exports("Randomization")
    assert exports is not None
    refused = exports["RandomSubset"]
    assert refused.parameters == (0, 0)
    assert "chance" in refused.refused
    with pytest.raises(EvaluationError, match="RandomSubset is not supported: a step depends on the state alone"):
        refused.function(1, Set([1]))


def test_modules_of_proofs_have_what_they_extend() -> None:
    assert library.exports("TLAPS") == {}
    theorems = library.exports("FiniteSetTheorems")
    assert theorems is not None and {"Cardinality", "+", "Injection"} <= theorems.keys()
    assert "Nat" in (library.exports("SequencesExtTheorems") or {})
    assert "SimplePath" in (library.exports("GraphTheorems") or {})


def test_every_refusal_has_a_reason_and_every_operator_a_name_and_a_module() -> None:
    for module in library.modules():
        for name, definition in (library.exports(module) or {}).items():
            assert definition.name == name
            assert definition.module in library.modules()


def test_printing_and_registers_belong_to_the_run() -> None:
    said: list[str] = []
    with context.using(context.Context(answers={"level": lambda: 3}, say=said.append)):
        assert call("TLC", "PrintT", "hello") is True
        assert call("TLC", "Print", "hello", 5) == 5
        assert call("TLC", "TLCSet", 1, 7) is True
        assert call("TLC", "TLCGet", 1) == 7
        assert call("TLC", "TLCGet", "level") == 3
        assert call("TLCExt", "TLCGetAndSet", 1, lambda old, more: old + more, 2, 0) == 7
        assert call("TLCExt", "TLCGetOrDefault", 1, 0) == 9
    assert said == ['"hello"', '"hello"  5']
    with pytest.raises(EvaluationError, match="TLCGet"):
        call("TLC", "TLCGet", "level")


def test_what_is_too_large_for_tlc_is_an_error() -> None:
    with pytest.raises(EvaluationError, match="does not fit in 32 bits"):
        call("Integers", "+", 2147483647, 1)
    with pytest.raises(EvaluationError, match="does not fit in 32 bits"):
        call("Integers", "^", 2, 31)


def test_an_assertion_fails_with_its_text() -> None:
    with pytest.raises(EvaluationError, match="Assert: no leader"):
        call("TLC", "Assert", False, "no leader")
    assert call("TLC", "Assert", True, "no leader") is True


def test_folds_go_in_the_order_of_the_overrides() -> None:
    def pair(one: Value, other: Value) -> Value:
        return Sequence((one, other))

    assert show(call("FiniteSetsExt", "FoldSet", pair, 0, Set([2, 1]))) == "<<2, <<1, 0>>>>"
    assert show(call("SequencesExt", "FoldLeft", pair, 0, Sequence((1, 2)))) == "<<<<0, 1>>, 2>>"
    assert show(call("SequencesExt", "FoldRight", pair, Sequence((1, 2)), 0)) == "<<1, <<2, 0>>>>"


def test_a_record_joins_another() -> None:
    assert call("TLC", "@@", record(a=1), record(a=2, b=3)) == record(a=1, b=3)
