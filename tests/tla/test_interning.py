"""TLC's order of strings. What is expected is the table of strings of a run of TLC, in the order of its numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.language.values import ModelValue
from fencepost.tla import interning, library, modules, syntax
from fencepost.tla.library.words import UNITS, Unit

ROOT = r"""
This text is no part of the module.
---- MODULE Root ----
\* comment zzcomment
EXTENDS Naturals, Used
CONSTANT Mv, Other
VARIABLE zvar, avar
(* block "instring" (* inner *) more *)
Foo(par, q) == LET loc == "zstr" IN [fieldb |-> loc, fielda |-> par, type |-> "astr"]
Bar == \E bound \in {"m", "k"} : bound # "z"
Both == {<<"body", each>> : each \in {"bound"}}
Init == zvar = Foo(1, 2) /\ avar = {"late", "early", "b", "a"}
Next == UNCHANGED <<zvar, avar>>
Fair == WF_zvar(Next) /\ [][Next]_avar
THEOREM Thm == Init
  <1>7. QED BY DEF Init
====
after == "after"
"""
USED = r"""
---- MODULE Used ----
EXTENDS Sequences
LOCAL INSTANCE Inside
S2Op == "s2"
S2Fun == Len(<<"early">>)
====
"""
INSIDE = r"""
---- MODULE Inside ----
EXTENDS TLC
S3Op == "s3"
====
"""


def units(*texts: str) -> dict[str, Unit]:
    modules = [syntax.parse(text.encode(), "file.tla")[0] for text in texts]
    read = {each.name: interning.unit_of(each, text) for each, text in zip(modules, texts, strict=True)}
    return {**UNITS, **read}


def test_strings_are_in_the_order_in_which_tlc_meets_them() -> None:
    configured = (ModelValue("mvz"), (ModelValue("mva"), 5, ("cfgstr",)))
    met = interning.interned(configured, "Root", units(ROOT, USED, INSIDE))
    place = {each: number for number, each in enumerate(met)}
    expected = "mvz mva cfgstr STRING FALSE Root EXTENDS Naturals Used CONSTANT Mv zvar avar Foo par q LET loc IN"
    expected += " fieldb fielda type Bar bound Both each Init 1 2 Next WF_ Nat a b n Sequences LOCAL Inside S2Op Len"
    expected += " Seq s t SubSeq m TLC S3Op FiniteSets Print Cardinality s3 s2 early zstr astr k z body late"
    assert sorted(expected.split(), key=place.__getitem__) == expected.split()
    assert "7" not in place and "after" not in place and "zzcomment" not in place and "instring" not in place


def test_files_are_read_with_extended_modules_before_instantiated_ones() -> None:
    modules = units(ROOT, USED, INSIDE)
    assert interning.loading_order("Root", modules) == (
        "Root",
        "Naturals",
        "Used",
        "Sequences",
        "Inside",
        "TLC",
        "FiniteSets",
    )
    assert interning.analysis_order("Root", modules)[-3:] == ("Inside", "Used", "Root")


@pytest.mark.parametrize("module", library.modules())
def test_every_module_of_the_library_has_its_words(module: str) -> None:
    unit = UNITS[module]
    for name, definition in (library.exports(module) or {}).items():
        if definition.module == module and name.isidentifier():
            assert name in unit.words
    for used in (*unit.extends, *unit.instances):
        assert used in UNITS


def test_a_loaded_specification_gives_its_strings(tmp_path: Path) -> None:
    for name, text in (("Root", ROOT), ("Used", USED), ("Inside", INSIDE)):
        (tmp_path / f"{name}.tla").write_text(text)
    configured = (ModelValue("mvz"),)
    loaded = interning.strings_of(modules.load(tmp_path / "Root.tla"), configured)
    assert loaded == interning.interned(configured, "Root", units(ROOT, USED, INSIDE))
