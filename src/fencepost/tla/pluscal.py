"""PlusCal: whether the translation in a file is that of the algorithm beside it.

TLC checks a translation, not the algorithm. The translator writes two checksums: one of the lines of the translation,
and one of its own tree of the algorithm (for a ``--fair algorithm``, of the word ``fair``). The first is compared here.
The tree is the translator's own. So in place of the second, the labels and numbers of the algorithm are looked for in
the translation.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

from fencepost.tla.ast import Place
from fencepost.tla.source import Lines

_ALGORITHM = re.compile(r"--(?:fair\s+)?algorithm\s+\w+")
_BEGIN = re.compile(r"BEGIN +TRANSLATION(?P<rest>.*)")
_END = re.compile(r"END +TRANSLATION")
_CHECKSUM = re.compile(r'ch(?:ec)?ksum\(tla\+?\)\s*=\s*"(?P<sum>[0-9a-f]*)"', re.IGNORECASE)
_COMMENT = re.compile(r"\\\*[^\n]*|\(\*.*?\*\)", re.DOTALL)
_MACRO = re.compile(r"\bmacro\b.*?(?=\bmacro\b|\bprocedure\b|\bprocess\b|\bbegin\b|\Z)", re.DOTALL)
_LABEL = re.compile(r"^\s*(\w+)\s*:(?![=:>])", re.MULTILINE)
_NUMBER = re.compile(r'(?<![\w"])\d+(?![\w"])')
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A PlusCal algorithm. ``place`` is where it begins. ``stale`` says in one line why its translation seems to be
    another's, or is ``""``.
    """

    place: Place
    is_translated: bool
    stale: str = ""


def algorithm(text: bytes, file: str) -> Algorithm | None:
    """The first algorithm in the text of a file, or None if there is none.

    Raises :class:`SpecificationError` if the text is not UTF-8.
    """
    lines = Lines(text, file)
    begun = _ALGORITHM.search(lines.text)
    if begun is None:
        return None
    place = lines.place(*begun.span())
    first = _BEGIN.search(lines.text)
    last = first and _END.search(lines.text, first.end())
    if first is None or last is None:
        return Algorithm(place, is_translated=False)
    translation = lines.text[first.end() : last.start()].split("\n")[1:-1]
    stale = _edited(first, "".join(translation)) or _missing(lines.text[begun.end() :], "\n".join(translation))
    return Algorithm(place, is_translated=True, stale=f"{place}: {stale}" if stale else "")


def _edited(first: re.Match[str], translation: str) -> str:
    checksum = _CHECKSUM.search(first["rest"])
    found = zlib.crc32(translation.encode())
    if checksum is None or int(checksum["sum"] or "0", 16) == found:
        return ""
    return "the translation of the algorithm was changed by hand since: translate it again"


def _missing(algorithm: str, translation: str) -> str:
    """Labels become actions, but for those of processes that need no ``pc``. Numbers stay."""
    code = _MACRO.sub(" ", _enclosed(_COMMENT.sub(" ", algorithm)))
    there = set(_WORD.findall(_COMMENT.sub(" ", translation)))
    labels = _LABEL.findall(code) if "pc" in there else []
    for word in (*labels, *_NUMBER.findall(code)):
        if word not in there:
            return f"the algorithm has {word}, and its translation does not: translate it again"
    return ""


def _enclosed(text: str) -> str:
    """The algorithm, up to its last brace or to ``end algorithm``."""
    if ended := re.search(r"\bend\s+algorithm\b", text):
        return text[: ended.start()]
    depth = 0
    for brace in re.finditer(r"[{}]", text):
        depth += 1 if brace.group() == "{" else -1
        if not depth:
            return text[: brace.start()]
    return ""
