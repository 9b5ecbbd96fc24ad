"""Whether a translation is that of its algorithm."""

from __future__ import annotations

import zlib

import pytest

from fencepost.tla import pluscal

ALGORITHM = """
(* --algorithm Counter
variable x = 0;
macro Twice(n) begin x := n * 2; end macro;
begin
  Start: x := 7; \\* not 8
  Stop:+ Twice(x);
end algorithm 9 *)
"""
C_SYNTAX = """
(* --fair algorithm Counter {
variable x = 0;
{ Start: while (x < 7) { Stop: x := {1, 7} } } } 9 *)
"""
TRANSLATION = """VARIABLES pc, x

Init == x = 0 /\\ pc = "Start"
Start == x' = 7
Stop == x' = x * 2 \\cup {1}
"""


def file(algorithm: str, translation: str, checksums: str = "") -> bytes:
    return (
        f"---- MODULE A ----{algorithm}\\* BEGIN TRANSLATION{checksums}\n{translation}\\* END TRANSLATION\n====\n"
    ).encode()


def checksum(text: str) -> str:
    return f' (chksum(pcal) = "7c28162a" /\\ chksum(tla) = "{zlib.crc32(text.replace(chr(10), "").encode()):x}")'


@pytest.mark.parametrize("algorithm", [ALGORITHM, C_SYNTAX])
@pytest.mark.parametrize("checksums", ["", checksum(TRANSLATION)])
def test_a_fresh_translation_raises_no_doubt(algorithm: str, checksums: str) -> None:
    found = pluscal.algorithm(file(algorithm, TRANSLATION, checksums), "A.tla")
    assert found and found.is_translated and found.stale == ""
    assert str(found.place) == "A.tla:2:4"


def test_a_changed_translation_is_told_by_its_checksum() -> None:
    found = pluscal.algorithm(file(ALGORITHM, TRANSLATION + "\n\\* more\n", checksum(TRANSLATION)), "A.tla")
    assert found and found.stale == (
        "A.tla:2:4: the translation of the algorithm was changed by hand since: translate it again"
    )


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [(":= 7", ":= 70", "70"), ("Stop:", "Halt:", "Halt"), ("x := 7;", "x := 7; \n Next: skip;", "Next")],
)
def test_a_changed_algorithm_is_told_by_its_labels_and_numbers(old: str, new: str, what: str) -> None:
    found = pluscal.algorithm(file(ALGORITHM.replace(old, new), TRANSLATION, checksum(TRANSLATION)), "A.tla")
    assert found and found.stale == (
        f"A.tla:2:4: the algorithm has {what}, and its translation does not: translate it again"
    )


def test_an_algorithm_without_a_translation() -> None:
    found = pluscal.algorithm(f"---- MODULE A ----{ALGORITHM}====".encode(), "A.tla")
    assert found and not found.is_translated


def test_a_module_without_an_algorithm() -> None:
    assert pluscal.algorithm(b"---- MODULE A ----\n\\* no algorithm\n====", "A.tla") is None
