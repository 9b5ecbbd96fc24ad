"""The operators of TLA+: their names, how they are written, and how tightly they bind.

The ranges of precedence are those of table 6 of *Specifying Systems*, as SANY has them. Where the ranges of two
operators overlap, neither binds more tightly, and an expression needs parentheses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Fixity = Literal["prefix", "infix", "postfix"]


@dataclass(frozen=True, slots=True)
class Operator:
    """``name`` is its ASCII form in the syntax tree. ``is_associative``: ``a op b op c`` is ``(a op b) op c``."""

    name: str
    fixity: Fixity
    low: int
    high: int
    is_associative: bool

    @property
    def arity(self) -> int:
        return 2 if self.fixity == "infix" else 1

    def binds_tighter(self, other: Operator) -> bool:
        return self.low > other.high


def _row(fixity: Fixity, low: int, high: int, associative: str, other: str = "") -> list[Operator]:
    made = [Operator(name, fixity, low, high, True) for name in associative.split()]
    return made + [Operator(name, fixity, low, high, False) for name in other.split()]


_ROWS = [
    *_row("prefix", 4, 4, "", "~"),
    *_row("prefix", 4, 15, "", "[] <> ENABLED UNCHANGED"),
    *_row("prefix", 10, 13, "", "SUBSET UNION DOMAIN"),
    *_row("prefix", 12, 12, "", "-."),
    *_row("postfix", 15, 15, "", "' ^+ ^* ^#"),
    *_row("infix", 1, 1, "", "=>"),
    *_row("infix", 2, 2, "", "<=> ~> -+->"),
    *_row("infix", 3, 3, r"/\ \/"),
    *_row("infix", 5, 5, "", r"= /= < > <= >= \in \notin \prec \succ \preceq \succeq \sim \simeq \ll \gg \asymp"),
    *_row("infix", 5, 5, "", r"\approx \cong \doteq \propto \subset \supset \subseteq \supseteq \sqsubset \sqsupset"),
    *_row("infix", 5, 5, "", r"\sqsubseteq \sqsupseteq |- |= -| =| := ::="),
    *_row("infix", 5, 14, r"\cdot"),
    *_row("infix", 6, 6, "@@"),
    *_row("infix", 7, 7, "", ":> <:"),
    *_row("infix", 8, 8, r"\cup \cap", "\\"),
    *_row("infix", 9, 9, "", ".. ..."),
    *_row("infix", 9, 13, r"$ $$ ?? ## \sqcap \sqcup \uplus", "!!"),
    *_row("infix", 9, 14, "", r"\wr"),
    *_row("infix", 10, 10, r"+ ++ \oplus"),
    *_row("infix", 10, 11, "| || %%", "%"),
    *_row("infix", 10, 13, r"\X"),
    *_row("infix", 11, 11, r"- -- \ominus"),
    *_row("infix", 13, 13, r"* ** & && \o \odot \otimes \star \bigcirc \bullet", r"/ // \div \oslash"),
    *_row("infix", 14, 14, "", "^ ^^"),
]

OPERATORS = {operator.name: operator for operator in _ROWS}
"""Every operator that is a symbol or a word, by its name."""

_SPELLINGS = r"""
~ \lnot \neg ¬
[] □
<> ◇ ⋄
/\ \land ∧
\/ \lor ∨
=> ⇒ ⟹
<=> \equiv ≡ ⇔ ⟺
~> ↝ ⇝
-+-> ⇸ ⥅
/= # ≠
<= \leq =< ≤
>= \geq ≥
\in ∈
\notin ∉
\prec ≺
\succ ≻
\preceq ⪯
\succeq ⪰
\sim ∼
\simeq ≃
\ll ≪
\gg ≫
\asymp ≍
\approx ≈
\cong ≅
\doteq ≐
\propto ∝
\subset ⊂
\supset ⊃
\subseteq ⊆
\supseteq ⊇
\sqsubset ⊏
\sqsupset ⊐
\sqsubseteq ⊑
\sqsupseteq ⊒
|- ⊢
|= ⊨
-| ⊣
=| ⫤
:= ≔
::= ⩴
\cdot ⋅
\cup \union ∪
\cap \intersect ∩
.. ‥
... …
?? ⁇
!! ‼
\sqcap ⊓
\sqcup ⊔
\uplus ⊎
\wr ≀
\oplus (+) ⊕
|| ‖
\X \times ×
\ominus (-) ⊖
\o \circ ∘
\odot (.) ⊙
\otimes (\X) ⊗
\star ⋆
\bigcirc ◯
\bullet ●
\div ÷
\oslash (/) ⊘
^+ ⁺
"""

SPELLINGS = frozenset(OPERATORS).union(_SPELLINGS.split())
"""Every way to write an operator."""

_NAMES = {spelling: line.split()[0] for line in _SPELLINGS.strip().splitlines() for spelling in line.split()}


def name_of(spelling: str) -> str:
    """The one name of an operator that a file spells in this way. Any other text is its own name."""
    return _NAMES.get(spelling, spelling)


LANGUAGE = {
    **{name: OPERATORS[name].arity for name in r"~ [] <> ENABLED UNCHANGED SUBSET UNION DOMAIN '".split()},
    **dict.fromkeys(r"=> <=> ~> -+-> /\ \/ = /= \in \notin \subseteq \cup \cap \ \X \cdot".split(), 2),
    **dict.fromkeys(("TRUE", "FALSE", "BOOLEAN", "STRING"), 0),
}
"""What needs no definition and no module, with its number of arguments."""

LEVELS = {"ENABLED": 1, "'": 2, "UNCHANGED": 2, r"\cdot": 2, "[]": 3, "<>": 3, "~>": 3, "-+->": 3}
"""The level of a formula with the operator, where it is not that of its arguments: 1 reads the state, 2 is an action, 3
is temporal.
"""

RESERVED = frozenset(
    """ACTION ACTIONS ASSUME ASSUMPTION AXIOM BY CASE CHOOSE CONSTANT CONSTANTS COROLLARY DEF DEFINE DEFS DOMAIN ELSE
    ENABLED EXCEPT EXTENDS HAVE HIDE IF IN INSTANCE LAMBDA LEMMA LET LOCAL MODULE NEW OBVIOUS OMITTED ONLY OTHER PICK
    PROOF PROPOSITION PROVE QED RECURSIVE SF_ STATE SUBSET SUFFICES TAKE TEMPORAL TEMPORALS THEN THEOREM UNCHANGED UNION
    USE VARIABLE VARIABLES WF_ WITH WITNESS""".split()
)
"""Words that cannot be names."""
