"""The configuration of a model, as TLC reads it from a ``.cfg`` file.

A value is a number, a string, ``TRUE``, ``FALSE``, or a set of values. Any other name is a model value. As in TLC, the
last assignment to a constant wins, and a name after ``SYMMETRY`` or another section for one name is not repeated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from fencepost.language.values import ModelValue
from fencepost.text.plain import meant
from fencepost.tla.ast import Place
from fencepost.tla.errors import ConfigurationError, SpecificationError
from fencepost.tla.operators import SPELLINGS, name_of
from fencepost.tla.source import Lines

Value = int | bool | str | ModelValue | tuple["Value", ...]
"""The value of a constant. A tuple is a set: its elements in the order of the file, repeated ones too."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A name in a section."""

    name: str
    place: Place


@dataclass(frozen=True, slots=True)
class Assigned:
    """``name = value``, or one line ``name(arguments) = value`` of an operator's table. ``module`` is the one whose
    definition it replaces, in ``name = [module] value``, or ``""``.
    """

    name: str
    arguments: tuple[Value, ...]
    value: Value
    module: str
    place: Place


@dataclass(frozen=True, slots=True)
class Replaced:
    """``name <- by`` or ``name <- [module] by``. ``module`` is ``""`` for the root module."""

    name: str
    by: Entry
    module: str
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A configuration. Its fields are the sections of the file. ``deadlock`` is None where the file does not say."""

    file: str
    constants: tuple[Assigned, ...] = ()
    replacements: tuple[Replaced, ...] = ()
    init: Entry | None = None
    next: Entry | None = None
    specification: Entry | None = None
    invariants: tuple[Entry, ...] = ()
    properties: tuple[Entry, ...] = ()
    constraints: tuple[Entry, ...] = ()
    action_constraints: tuple[Entry, ...] = ()
    symmetry: Entry | None = None
    view: Entry | None = None
    alias: Entry | None = None
    deadlock: bool | None = None
    postconditions: tuple[Entry, ...] = ()
    periodic: Entry | None = None
    reward: Entry | None = None
    possible: tuple[Entry, ...] = ()


def read(text: bytes, file: str) -> Config:
    """The configuration in a file.

    Raises :class:`ConfigurationError` for what TLC would not take, with its place.
    """
    return _Reader(text, file).config()


_SINGLE = {
    "INIT": "init",
    "NEXT": "next",
    "SPECIFICATION": "specification",
    "SYMMETRY": "symmetry",
    "VIEW": "view",
    "ALIAS": "alias",
    "_PERIODIC": "periodic",
    "_RL_REWARD": "reward",
}
_MANY = {
    "INVARIANT": "invariants",
    "INVARIANTS": "invariants",
    "PROPERTY": "properties",
    "PROPERTIES": "properties",
    "CONSTRAINT": "constraints",
    "CONSTRAINTS": "constraints",
    "ACTION_CONSTRAINT": "action_constraints",
    "ACTION_CONSTRAINTS": "action_constraints",
    "POSTCONDITION": "postconditions",
    "POSTCONDITIONS": "postconditions",
    "_POSSIBLE": "possible",
}
_CONSTANTS = ("CONSTANT", "CONSTANTS")
_DEADLOCK = "CHECK_DEADLOCK"
SECTIONS = (*_CONSTANTS, *_SINGLE, *_MANY, _DEADLOCK)
"""The words that begin a section. No constant or property of a configuration can have such a name."""

_MARKS = sorted({"<-", "<<", ">>", "==", "[", "]", "{", "}", "(", ")", ",", "!", *SPELLINGS}, key=len, reverse=True)
_TOKEN = re.compile(
    rf"""(?P<blank>\s+|\\\*[^\n]*)|(?P<comment>\(\*)|(?P<string>"[^"\n]*")|(?P<open>")|(?P<number>\d+(?!\w))
    |(?P<name>\w+)|(?P<mark>{"|".join(map(re.escape, _MARKS))})|(?P<other>.)""",
    re.VERBOSE | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    place: Place

    def __str__(self) -> str:
        return f'"{self.text}"' if self.text else "the end of the file"


class _Reader:
    def __init__(self, content: bytes, file: str) -> None:
        self._lines = Lines(content, file, ConfigurationError)
        self._tokens = [*self._scan(), _Token("end", "", self._lines.end())]
        self._at = 0
        self._single: dict[str, Entry] = {}
        self._many: dict[str, list[Entry]] = {}
        self._constants: list[Assigned] = []
        self._replacements: dict[tuple[str, str], Replaced] = {}
        self._models: dict[str, ModelValue] = {}
        self._deadlock: bool | None = None

    def config(self) -> Config:
        while self._next.kind != "end":
            self._section(self._take())
        self._check_specification()
        return Config(
            file=self._lines.file,
            constants=tuple(self._last_assignments()),
            replacements=tuple(self._replacements.values()),
            deadlock=self._deadlock,
            **self._single,  # type: ignore[arg-type]
            **{name: tuple(entries) for name, entries in self._many.items()},  # type: ignore[arg-type]
        )

    # -- tokens --------------------------------------------------------------------------------------------------------

    def _scan(self) -> Iterator[_Token]:
        text, at = self._lines.text, 0
        while token := _TOKEN.match(text, at):
            at = token.end()
            kind = str(token.lastgroup)
            if kind == "comment":
                at = self._lines.end_of_comment(token.start())
            elif kind == "open":
                raise self._wrong("this string has no end", self._lines.place(token.start(), at))
            elif kind != "blank":
                yield _Token(kind, token.group(), self._lines.place(token.start(), at))

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._next
        self._at += token.kind != "end"
        return token

    def _accept(self, text: str) -> bool:
        found = self._next.text == text
        self._at += found
        return found

    def _expect(self, text: str, what: str = "") -> None:
        if not self._accept(text):
            raise self._expected(what or f'"{text}"', self._next)

    def _name(self, what: str, hint: str = "") -> Entry:
        token = self._take()
        if token.kind == "name" and token.text not in SECTIONS:
            return Entry(token.text, token.place)
        raise self._expected(what, token, hint if token.kind in ("mark", "number", "string") else "")

    def _wrong(self, message: str, place: Place) -> SpecificationError:
        return ConfigurationError(message, place)

    def _expected(self, what: str, found: _Token, hint: str = "") -> SpecificationError:
        return self._wrong(f"expected {what}, found {found}{hint}", found.place)

    # -- sections ------------------------------------------------------------------------------------------------------

    def _section(self, word: _Token) -> None:
        if word.text in _SINGLE:
            self._one_name(word)
        elif word.text in _MANY:
            self._names(word)
        elif word.text in _CONSTANTS:
            self._constants_of_section()
        elif word.text == _DEADLOCK:
            self._check_deadlock(word)
        elif word.kind == "mark":
            raise self._expected("the name of a section", word, _NAMED)
        else:
            raise self._expected("the name of a section", word, f": {meant(word.text, SECTIONS, 'there are')}")

    def _one_name(self, word: _Token) -> None:
        field = _SINGLE[word.text]
        entry = self._name(f"a name after {word.text}", _NAMED)
        if before := self._single.get(field):
            raise self._wrong(f"{word.text} is given twice, first in line {before.place.line}", word.place)
        self._single[field] = entry

    def _names(self, word: _Token) -> None:
        entries = self._many.setdefault(_MANY[word.text], [])
        while not self._is_at_section():
            if self._next.text == ",":
                raise self._wrong(f"names after {word.text} have blanks between them, no commas", self._next.place)
            entries.append(self._name(f"a name after {word.text}", _NAMED))

    def _is_at_section(self) -> bool:
        return self._next.kind == "end" or self._next.text in SECTIONS

    def _check_deadlock(self, word: _Token) -> None:
        token = self._take()
        if token.text not in ("TRUE", "FALSE"):
            raise self._expected(f"TRUE or FALSE after {word.text}", token)
        if self._deadlock is not None:
            raise self._wrong(f"{word.text} is given twice", word.place)
        self._deadlock = token.text == "TRUE"

    def _check_specification(self) -> None:
        other = self._single.get("init") or self._single.get("next")
        if "specification" in self._single and other:
            raise self._wrong("give either SPECIFICATION, or INIT and NEXT, not both", other.place)

    # -- constants -----------------------------------------------------------------------------------------------------

    def _constants_of_section(self) -> None:
        while not self._is_at_section():
            name = self._constant()
            if self._accept("<-"):
                self._replacement(name)
            else:
                self._assignment(name)

    def _constant(self) -> Entry:
        token = self._take()
        if token.kind != "name" and token.text not in SPELLINGS:
            hint = ": a set is written in braces, as in {a, b}" if token.text == "," else ""
            raise self._expected("the name of a constant", token, hint)
        name = name_of(token.text)
        while self._accept("!"):
            name += "!" + self._name('a name after "!"').name
        return Entry(name, token.place)

    def _replacement(self, name: Entry) -> None:
        module = self._module("")
        by = self._take()
        if by.kind == "end" or (by.kind != "name" and by.text not in SPELLINGS):
            hint = (
                f": a value is assigned with =, as in {name.name} = {by.text}"
                if by.kind in ("number", "string")
                else _NAMED
                if by.kind == "mark"
                else ""
            )
            raise self._expected('the name of a definition after "<-"', by, hint)
        replaced = Replaced(name.name, Entry(name_of(by.text), by.place), module, name.place)
        self._replacements[module, name.name] = replaced

    def _module(self, hint: str) -> str:
        if not self._accept("["):
            return ""
        module = self._name('the name of a module after "["').name
        if self._next.text != "]":
            raise self._expected('"]"', self._next, hint)
        self._take()
        return module

    def _assignment(self, name: Entry) -> None:
        arguments = self._list(")") if self._accept("(") else ()
        self._expect("=", f'"=" or "<-" after {name.name}')
        module = self._module(_DEFINED)
        self._constants.append(Assigned(name.name, arguments, self._value(), module, name.place))
        if self._next.text in SPELLINGS and self._tokens[self._at + 1].text not in ("=", "<-", "("):
            raise self._wrong(f"the value of {name.name} cannot be an expression{_DEFINED}", self._next.place)

    def _list(self, end: str) -> tuple[Value, ...]:
        values = [self._value()]
        while self._accept(","):
            values.append(self._value())
        self._expect(end, f'"," or "{end}"')
        return tuple(values)

    def _value(self) -> Value:
        token = self._take()
        match token.kind, token.text:
            case _, "{":
                return () if self._accept("}") else self._list("}")
            case _, "-":
                return -self._number(self._take())
            case "number", _:
                return self._number(token)
            case "string", text:
                return text[1:-1]
            case "name", "TRUE" | "FALSE":
                return token.text == "TRUE"
            case "name", text if text not in SECTIONS:
                return self._models.setdefault(text, ModelValue(text, len(self._models)))
        raise self._expected("a value", token, _HINTS.get(token.text, ""))

    def _number(self, token: _Token) -> int:
        if token.kind != "number":
            raise self._expected('a number after "-"', token)
        if len(token.text) > 4000:
            raise self._wrong(f"a number of {len(token.text)} digits is too long", token.place)
        return int(token.text)

    def _last_assignments(self) -> Iterator[Assigned]:
        """An operator's table keeps all of its lines. Of two other assignments to a constant, the last counts."""
        last = {(each.module, each.name): each for each in self._constants}
        for each in self._constants:
            counts = last[each.module, each.name]
            if len(each.arguments) != len(counts.arguments):
                raise self._wrong(f"{each.name} has another number of arguments before", counts.place)
            if each.arguments or counts is each:
                yield each


_DEFINED = ': define it in a module, and write "<-" with the name of the definition in place of "="'
_NAMED = ": define it in a module, and write the name of the definition here"
_HINTS = dict.fromkeys(("<<", "[", "(", "SUBSET", "..", "\\"), _DEFINED)
