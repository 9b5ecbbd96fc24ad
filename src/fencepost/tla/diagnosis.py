"""What is wrong with a module: the first token that does not fit, and what could stand there.

The parser recovers from errors, which can take minutes, and does not explain them. So every text is read twice. The
first to read it is a recogniser that follows the grammar of *Specifying Systems* from left to right, and stops at the
first token that no module has there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fencepost.tla.ast import Place
from fencepost.tla.errors import SpecificationError
from fencepost.tla.operators import OPERATORS, RESERVED, SPELLINGS, name_of
from fencepost.tla.source import Source

_DEEPEST = 100
"""Expressions nested deeper than this are not recognised."""

_MOST_LISTS = 300

_QUANTIFIERS = frozenset(("\\A", "\\E", "\\AA", "\\EE", "\\forall", "\\exists", "∀", "∃"))
_SAME = {
    "≜": "==",
    "⟨": "<<",
    "〈": "<<",
    "⟩": ">>",
    "〉": ">>",
    "⟩_": ">>_",
    "〉_": ">>_",
    "→": "->",
    "⟶": "->",
    "←": "<-",
    "⟵": "<-",
    "↦": "|->",
    "⟼": "|->",
    "∷": "::",
}
_MARKS = {*_SAME, *_SAME.values(), "]_", *"[](){},:!._@"}
_WORDS = RESERVED - OPERATORS.keys()
_SYMBOLS = sorted(
    {*_MARKS, *_QUANTIFIERS, *(each for each in SPELLINGS if not each.isalpha())}, key=lambda each: (-len(each), each)
)
_TOKEN = re.compile(
    rf"""(?P<blank>\s+)|(?P<string>"(?:[^"\\\n]|\\[^\n])*")
    |(?P<begin>-{{4,}}\ *MODULE\b)|(?P<line>-{{4,}})|(?P<end>={{4,}})
    |(?P<step><(?:[0-9]+|[*+])>[A-Za-z0-9_]*\.*)
    |(?P<number>\\[bB][01]+|\\[oO][0-7]+|\\[hH][0-9a-fA-F]+|[0-9]*\.[0-9]+|[0-9]+(?![0-9_]*[A-Za-z]))
    |(?P<fair>[WS]F_)|(?P<name>[0-9_]*[A-Za-z][A-Za-z0-9_]*|[ℕℤℝ])
    |(?P<symbol>{"|".join(re.escape(each) + ("(?![A-Za-z])" if each[-1].isalpha() else "") for each in _SYMBOLS)})
    |(?P<bad>.)""",
    re.VERBOSE,
)
_PROOF = frozenset(("PROOF", "BY", "OBVIOUS", "OMITTED"))
_UNITS = frozenset(
    """VARIABLE VARIABLES CONSTANT CONSTANTS RECURSIVE ASSUME ASSUMPTION AXIOM THEOREM LEMMA PROPOSITION COROLLARY
    INSTANCE LOCAL USE HIDE""".split()
)


@dataclass(frozen=True, slots=True)
class _Token:
    """``text`` without Unicode's other forms of marks. ``start`` and ``end`` count in the row of `Source.rows`."""

    kind: str
    text: str
    row: int
    start: int
    end: int
    source: Source

    @property
    def column(self) -> int:
        return self.start + 1

    @property
    def place(self) -> Place:
        return self.source.place_in_row(self.row, self.start, self.end)

    def __str__(self) -> str:
        return f'"{self.text}"' if self.text else "the end of the file"


def check_syntax(source: Source) -> bool:
    """Whether the modules of a file are recognised. False if an expression is nested too deeply for that.

    Raises :class:`SpecificationError` for the first error of syntax.
    """
    tokens = _tokens(source)
    try:
        _Recogniser(tokens).file()
    except _Unexpected as error:
        raise SpecificationError(str(error), error.place) from None
    except _TooDeepError:
        _check_bullets(tokens)
        return False
    return True


def _check_bullets(tokens: list[_Token]) -> None:
    """Lists inside each other stand in different columns. The parser crashes if too many are open."""
    bullets = [token for token in tokens if name_of(token.text) in ("/\\", "\\/")]
    columns = {token.column for token in bullets}
    if len(columns) > _MOST_LISTS:
        raise SpecificationError(
            f"more than {_MOST_LISTS} lists with bullets stand inside each other", bullets[0].place
        )


def _tokens(source: Source) -> list[_Token]:
    made = [_token(source, row, match) for row, line in enumerate(source.rows) for match in _matches(line)]
    last = made[-1]
    return [*made, _Token("eof", "", last.row, last.end - 1, last.end, source)]


def _matches(line: str) -> Iterator[re.Match[str]]:
    return (match for match in _TOKEN.finditer(line) if match.lastgroup != "blank")


def _token(source: Source, row: int, match: re.Match[str]) -> _Token:
    text = _SAME.get(match[0], match[0])
    return _Token(_kind(str(match.lastgroup), text), text, row, *match.span(), source)


def _kind(group: str, text: str) -> str:
    if group == "name":
        return "operator" if text in OPERATORS else "word" if text in RESERVED else "name"
    if group == "symbol":
        return "quantifier" if text in _QUANTIFIERS else "mark" if text in _MARKS else "operator"
    return "word" if group == "fair" else group


class _TooDeepError(Exception):
    pass


class _Unexpected(Exception):
    def __init__(self, message: str, place: Place) -> None:
        super().__init__(message)
        self.place = place


class _Recogniser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._bullets: list[_Token] = []
        self._depth = 0
        self._unit = tokens[0]
        self._margin = 1

    # -- tokens --------------------------------------------------------------------------------------------------------

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    @property
    def _fixity(self) -> str:
        """Of the operator that comes next, if one does."""
        is_operator = self._next.kind == "operator" and not self._is_beyond
        return OPERATORS[name_of(self._next.text)].fixity if is_operator else ""

    @property
    def _is_beyond(self) -> bool:
        """Whether the next token ends the innermost list with bullets, as it does not stand to the right of them."""
        return bool(self._bullets) and self._next.column <= self._bullets[-1].column

    def _sees(self, *texts: str) -> bool:
        return self._next.text in texts and not self._is_beyond and self._next.kind != "string"

    def _take(self) -> _Token:
        token = self._next
        self._at += token.kind != "eof"
        return token

    def _accept(self, *texts: str) -> bool:
        found = self._sees(*texts)
        self._at += found
        return found

    def _expect(self, text: str, opened: _Token | None = None) -> None:
        if not self._accept(text):
            raise self._unexpected(_shown(text) + (f" for {_where(opened, self._next)}" if opened else ""))

    def _name(self, what: str = "a name") -> None:
        if (
            self._next.kind != "name"
            or self._is_beyond
            or (self._begins_line(self._at) and self._is_definition(self._at))
        ):
            raise self._unexpected(what)
        self._take()

    def _begins_line(self, at: int) -> bool:
        return at == 0 or self._tokens[at - 1].row < self._tokens[at].row

    def _is_definition(self, at: int) -> bool:
        """Whether a definition begins at a token, as ``==`` follows what can stand before it."""
        return self._length_of_head(at) > 0 or (
            self._text(at + 1) in ("(", "[") and self._text(self._behind_brackets(at + 1)) == "=="
        )

    def _length_of_head(self, at: int) -> int:
        """The number of tokens before ``==``, if a definition without brackets begins at a token. Otherwise 0."""
        kinds = [_kind_in_head(token) for token in self._tokens[at : at + 4]]
        return next((len(head) for head in _HEADS if kinds[: len(head) + 1] == [*head, "=="]), 0)

    def _text(self, at: int) -> str:
        return self._tokens[min(at, len(self._tokens) - 1)].text

    def _behind_brackets(self, at: int) -> int:
        """The first token behind brackets that open at a token."""
        depth = 0
        while at < len(self._tokens):
            depth += (self._text(at) in ("(", "[")) - (self._text(at) in (")", "]"))
            at += 1
            if depth <= 0:
                return at
        return at

    def _unexpected(self, what: str) -> _Unexpected:
        found = self._next
        if found.kind == "bad":
            return _Unexpected(f"{found} means nothing in TLA+{_HABITS.get(found.text, '')}", found.place)
        if self._is_reserved(what):
            return _Unexpected(f"{found.text} is a reserved word, not a name", found.place)
        if found.kind == "eof" and what.startswith(("a definition", '"===="')):
            return _Unexpected('the module has no end: a line "===="', found.place)
        return _Unexpected(f"expected {what}, found {found}{self._hint(what, found)}", found.place)

    def _is_reserved(self, what: str) -> bool:
        is_name = what.startswith(("a name", "the name")) or self._text(self._at + 1) == "=="
        return is_name and self._next.text in RESERVED and not self._is_beyond

    def _hint(self, what: str, found: _Token) -> str:
        if self._is_beyond and found.kind not in ("eof", "end"):
            return f": it must stand to the right of {_where(self._bullets[-1], found)}"
        if found.text in _HABITS and found.kind != "string" and _is_habit(what, found.text):
            return _HABITS[found.text]
        return ""

    # -- modules and units ---------------------------------------------------------------------------------------------

    def file(self) -> None:
        while self._next.kind != "eof":
            self._module()

    def _module(self) -> None:
        self._take()
        self._name("the name of the module")
        if self._next.kind != "line":
            raise self._unexpected('"----" after the name of the module')
        self._take()
        if self._accept("EXTENDS"):
            self._names("the name of a module")
        self._margin = self._next.column
        while self._next.kind != "end":
            self._unit = self._next
            self._module_unit()
        self._take()

    def _module_unit(self) -> None:
        token = self._next
        if token.kind == "begin":
            self._module()
        elif token.kind == "line":
            self._take()
        elif token.text in _UNITS and token.kind == "word":
            _UNIT_RULES[self._take().text](self)
        else:
            self._definition()

    def _names(self, what: str) -> None:
        self._many(lambda: self._name(what))
        self._check_end_of_list()

    def _check_end_of_list(self) -> None:
        if self._next.kind == "name" and not self._begins_line(self._at) and not self._is_definition(self._at):
            raise self._unexpected('"," or a definition')

    def _variables(self) -> None:
        self._names("the name of a variable")
        self._check_no_value("Init gives a variable its first value")

    def _constants(self) -> None:
        self._many(self._parameter)
        self._check_end_of_list()
        self._check_no_value("the configuration gives a constant its value")

    def _check_no_value(self, who: str) -> None:
        if self._sees("=", "==", "\\in", "∈"):
            raise _Unexpected(f"expected a definition, found {self._next}: {who}", self._next.place)

    def _assumption(self) -> None:
        self._name_of_unit()
        self._expression()

    def _name_of_unit(self) -> None:
        if self._next.kind == "name" and self._tokens[self._at + 1].text == "==":
            self._at += 2

    def _theorem(self) -> None:
        self._name_of_unit()
        if self._sees("ASSUME"):
            self._skip()
        else:
            self._expression()
            if self._sees(*_PROOF) or self._next.kind == "step":
                self._skip()

    def _skip(self) -> None:
        """Proofs are skipped: a new unit begins where one can, no further right than the last."""
        self._take()
        while not self._may_begin_unit():
            self._take()

    def _may_begin_unit(self) -> bool:
        token = self._next
        is_left = token.column <= self._unit.column and (token.kind == "name" or token.text in _UNITS)
        return token.kind in ("eof", "end", "begin", "line") or is_left

    def _local(self) -> None:
        if self._accept("INSTANCE"):
            self._instance()
        else:
            self._definition()

    def _instance(self) -> None:
        self._name("the name of a module")
        if self._accept("WITH"):
            self._many(self._substitution)

    def _substitution(self) -> None:
        if self._next.kind not in ("name", "operator"):
            raise self._unexpected("the name of a constant or a variable")
        self._take()
        self._expect("<-")
        if self._next.kind == "operator" and self._is_end_of_substitution(self._at + 1):
            self._take()
        else:
            self._argument()

    def _is_end_of_substitution(self, at: int) -> bool:
        return self._text(at) in (",", "IN") or self._begins_line(at)

    # -- definitions ---------------------------------------------------------------------------------------------------

    def _definition(self) -> None:
        self._head()
        self._expect("==")
        if self._accept("INSTANCE"):
            self._instance()
        else:
            self._expression()

    def _head(self) -> None:
        """What stands before ``==``."""
        at = self._at
        if self._is_beyond or (self._next.kind != "name" and self._fixity != "prefix"):
            raise self._no_definition()
        if length := self._length_of_head(at):
            self._at += length
        elif self._text(at + 1) in ("(", "[") and (self._begins_line(at) or self._is_definition(at)):
            self._head_with_brackets()
        else:
            raise self._stray()

    def _head_with_brackets(self) -> None:
        self._take()
        if self._accept("("):
            self._many(self._parameter)
            self._expect(")")
        elif self._accept("["):
            self._bounds()
            self._expect("]")

    def _no_definition(self) -> _Unexpected:
        opening = _OPENINGS.get(self._next.text)
        if opening and not self._is_beyond:
            return _Unexpected(f"{self._next} without {_shown(opening)} before it", self._next.place)
        return self._unexpected("a definition")

    def _stray(self) -> _Unexpected:
        """A name or an operator that begins no definition."""
        found, following = self._next, self._tokens[self._at + 1]
        if not self._begins_line(self._at) or found.column > self._margin:
            return self._unexpected("an operator or a definition")
        if following.text == "=":
            return _Unexpected(f'expected "==" in the definition of {found.text}, found "="', following.place)
        return _Unexpected(f'expected a definition, found {found}, which has no "==" behind it', found.place)

    def _parameter(self) -> None:
        if self._next.kind == "operator":
            self._take()
            self._expect("_")
        elif self._accept("_"):
            self._operator_of_parameter()
        else:
            self._name("the name of a parameter" if self._unit.kind == "name" else "a name")
            if self._accept("("):
                self._many(lambda: self._expect("_"))
                self._expect(")")

    def _operator_of_parameter(self) -> None:
        fixity = self._fixity
        if fixity not in ("infix", "postfix"):
            raise self._unexpected('an operator after "_"')
        self._take()
        if fixity == "infix":
            self._expect("_")

    def _many(self, rule: Callable[[], None]) -> None:
        rule()
        while self._accept(","):
            rule()

    # -- expressions ---------------------------------------------------------------------------------------------------

    def _expression(self) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _TooDeepError
        self._operand()
        while self._fixity == "infix":
            self._take()
            self._operand()
        self._depth -= 1

    def _operand(self) -> None:
        while self._fixity == "prefix" or self._sees("-"):
            self._take()
        self._primary()
        while self._behind():
            pass

    def _behind(self) -> bool:
        """Takes what follows an operand and belongs to it."""
        opened = self._next
        if self._accept("["):
            self._many(self._expression)
            self._expect("]", opened)
        elif self._accept("."):
            self._name("the name of a field")
        elif self._fixity == "postfix":
            self._take()
        else:
            return False
        return True

    def _primary(self) -> None:
        token = self._next
        rule = _RULES.get(token.text) if token.kind in ("mark", "word", "quantifier", "operator") else None
        if self._is_beyond or token.kind in ("eof", "end", "line", "begin", "bad"):
            raise self._unexpected("an expression")
        if token.kind == "name" and self._begins_line(self._at) and self._is_definition(self._at):
            raise self._unexpected("an expression")
        if token.kind in ("number", "string"):
            self._take()
        elif token.kind in ("name", "step") or (self._fixity and self._tokens[self._at + 1].text == "(" and not rule):
            self._named()
        elif rule:
            rule(self, self._take())
        else:
            raise self._unexpected("an expression")

    def _named(self) -> None:
        self._take()
        self._arguments()
        while self._accept("!"):
            self._selector()
        if self._accept("::"):
            self._expression()

    def _arguments(self) -> None:
        opened = self._next
        if self._accept("("):
            self._many(self._argument)
            self._expect(")", opened)

    def _selector(self) -> None:
        opened = self._next
        if self._accept("("):
            self._many(self._argument)
            self._expect(")", opened)
        elif (self._next.kind in ("name", "number", "operator") and not self._sees("=")) or self._sees(
            "<<", ">>", ":", "@"
        ):
            self._take()
            self._arguments()
        else:
            raise self._unexpected('a name after "!"')

    def _argument(self) -> None:
        if self._accept("LAMBDA"):
            self._lambda()
        elif self._next.kind == "operator" and self._tokens[self._at + 1].text in (",", ")"):
            self._take()
        else:
            self._expression()

    def _lambda(self) -> None:
        self._many(self._name)
        self._expect(":")
        self._expression()

    def _parentheses(self, opened: _Token) -> None:
        self._expression()
        self._expect(")", opened)

    def _braces(self, opened: _Token) -> None:
        if self._accept("}"):
            return
        self._many(self._expression)
        if self._accept(":"):
            self._many(self._expression)
        self._expect("}", opened)

    def _brackets(self, opened: _Token) -> None:
        self._many(self._expression)
        has_name = self._tokens[self._at - 2] is opened and self._tokens[self._at - 1].kind == "name"
        if self._accept("]_"):
            self._subscript()
            return
        if self._accept("->"):
            self._expression()
        elif self._accept("EXCEPT"):
            self._many(self._update)
        elif self._sees("|->") or (has_name and self._sees(":")):
            self._fields(self._take().text)
        else:
            raise self._unexpected(f'"|->", "->", ":", "]_" or EXCEPT in {_where(opened, self._next)}')
        self._expect("]", opened)

    def _fields(self, mark: str) -> None:
        self._expression()
        while self._accept(","):
            self._name("the name of a field")
            self._expect(mark)
            self._expression()

    def _update(self) -> None:
        self._expect("!")
        if not self._sees("[", "."):
            raise self._unexpected('"[" or "." after "!"')
        while self._sees("[", "."):
            self._behind()
        self._expect("=")
        self._expression()

    def _angles(self, opened: _Token) -> None:
        if self._accept(">>"):
            return
        self._many(self._expression)
        if self._accept(">>_"):
            self._subscript()
        else:
            self._expect(">>", opened)

    def _subscript(self) -> None:
        if self._next.kind == "name":
            self._named()
        elif self._sees("(", "<<", "{", "["):
            self._primary()
        else:
            raise self._unexpected("a name or a tuple as the subscript")

    def _fairness(self, opened: _Token) -> None:
        if self._next.kind == "name":
            self._qualified()
        else:
            self._subscript()
        self._expect("(")
        self._many(self._argument)
        self._expect(")")
        if self._accept("("):
            self._expression()
            self._expect(")")

    def _qualified(self) -> None:
        self._name()
        while self._accept("!"):
            self._name()

    def _if(self, opened: _Token) -> None:
        self._expression()
        self._expect("THEN", opened)
        self._expression()
        self._expect("ELSE", opened)
        self._expression()

    def _case(self, opened: _Token) -> None:
        while True:
            if not self._accept("OTHER"):
                self._expression()
            self._expect("->", opened)
            self._expression()
            if not self._accept("[]", "□"):
                return

    def _let(self, opened: _Token) -> None:
        outer, self._margin = self._margin, self._next.column
        while not self._accept("IN"):
            if self._accept("RECURSIVE"):
                self._constants()
            elif self._is_definition(self._at) and not self._is_beyond:
                self._definition()
            else:
                raise self._unexpected(f"IN for {_where(opened, self._next)}")
        self._margin = outer
        self._expression()

    def _choose(self, opened: _Token) -> None:
        self._bound_names()
        if self._accept("\\in", "∈"):
            self._expression()
        self._expect(":")
        self._expression()

    def _quantified(self, opened: _Token) -> None:
        self._bounds(may_have_none=True)
        self._expect(":", opened)
        self._expression()

    def _bounds(self, may_have_none: bool = False) -> None:
        self._bound_names()
        while True:
            if self._accept("\\in", "∈"):
                self._expression()
                may_have_none = False
                if not self._accept(","):
                    return
                self._bound_names()
            elif self._accept(","):
                self._bound_names()
            elif may_have_none:
                return
            else:
                raise self._unexpected("\\in")

    def _bound_names(self) -> None:
        if self._accept("<<"):
            self._many(self._name)
            self._expect(">>")
        else:
            self._name()

    def _junction(self, bullet: _Token) -> None:
        while True:
            self._bullets.append(bullet)
            self._expression()
            self._bullets.pop()
            is_bullet = self._next.column == bullet.column and name_of(self._next.text) == name_of(bullet.text)
            if not is_bullet or self._is_beyond:
                return
            self._take()

    def _at_sign(self, opened: _Token) -> None:
        pass


_HABITS = {
    "==": ': equality is "="',
    "and": ': it is written "/\\"',
    "or": ': it is written "\\/"',
    "in": ": it is written \\in",
    "=": ": what is not equal is written /=",
    ";": ": nothing ends or separates definitions",
    "'": ": a string stands between double quotation marks",
    "“": ": a string stands between straight quotation marks",
    "EXTENDS": ": it stands once, at the beginning of the module",
    "LAMBDA": ": it can only be an argument",
    ",": ": a tuple is written <<x, y>>",
}
"""What people write from habit, and what to say of it."""

_OF_EXPRESSIONS = ("'", "LAMBDA", "“")


def _is_habit(what: str, text: str) -> bool:
    if text == "=":
        return what == 'a name after "!"'
    if text == ",":
        return what == "a definition"
    return (what == "an expression") == (text in _OF_EXPRESSIONS)


_HEADS = (("name",), ("name", "postfix"), ("prefix", "name"), ("name", "infix", "name"))


def _kind_in_head(token: _Token) -> str:
    if token.kind == "operator":
        return OPERATORS[name_of(token.text)].fixity
    return token.text if token.text == "==" else token.kind


_OPENINGS = {")": "(", "]": "[", "}": "{", ">>": "<<", "ELSE": "IF", "THEN": "IF", "IN": "LET"}


def _shown(text: str) -> str:
    return text if text.isalpha() else f'"{text}"'


def _where(opened: _Token, found: _Token) -> str:
    line = opened.row + 1
    return f"the {_shown(opened.text)}" + ("" if line == found.row + 1 else f" of line {line}")


_UNIT_RULES: dict[str, Callable[[_Recogniser], None]] = {
    **dict.fromkeys(("VARIABLE", "VARIABLES"), _Recogniser._variables),
    **dict.fromkeys(("CONSTANT", "CONSTANTS", "RECURSIVE"), _Recogniser._constants),
    **dict.fromkeys(("ASSUME", "ASSUMPTION", "AXIOM"), _Recogniser._assumption),
    **dict.fromkeys(("THEOREM", "LEMMA", "PROPOSITION", "COROLLARY"), _Recogniser._theorem),
    **dict.fromkeys(("USE", "HIDE"), _Recogniser._skip),
    "INSTANCE": _Recogniser._instance,
    "LOCAL": _Recogniser._local,
}
_RULES: dict[str, Callable[[_Recogniser, _Token], None]] = {
    "(": _Recogniser._parentheses,
    "{": _Recogniser._braces,
    "[": _Recogniser._brackets,
    "<<": _Recogniser._angles,
    "@": _Recogniser._at_sign,
    "IF": _Recogniser._if,
    "CASE": _Recogniser._case,
    "LET": _Recogniser._let,
    "CHOOSE": _Recogniser._choose,
    **dict.fromkeys(("WF_", "SF_"), _Recogniser._fairness),
    **dict.fromkeys(_QUANTIFIERS, _Recogniser._quantified),
    **dict.fromkeys(("/\\", "\\/", "∧", "∨"), _Recogniser._junction),
}
