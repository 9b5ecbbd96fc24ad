"""Small random specifications, as modules with their configurations. When a test fails, it prints both texts, which can
be checked as files.

Every expression has a kind, and each variable holds values of one kind. Numbers stay below :data:`MOST`, bags and
sequences are short, and what a set may contain is little. So every state space is finite, and few evaluations fail.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tla.layouts import Example

MOST = 3
"""A number in a state is below this."""

LONGEST = 2
"""The most elements of a sequence."""

T = TypeVar("T")

AND, OR, ALL, SOME = "/\\", "\\/", "\\A", "\\E"

WORDS = ("ask", "vote", "done")
FIELDS = ("at", "by", "of")


# -- kinds of values ---------------------------------------------------------------------------------------------------


class Kind:
    """What a value is like."""


@dataclass(frozen=True)
class Number(Kind):
    """A number. Those in a state are below :data:`MOST`."""


@dataclass(frozen=True)
class Truth(Kind):
    """TRUE or FALSE."""


@dataclass(frozen=True)
class Word(Kind):
    """A string."""


@dataclass(frozen=True)
class Node(Kind):
    """A model value."""


@dataclass(frozen=True)
class Record(Kind):
    """A record with these fields."""

    fields: tuple[tuple[str, Kind], ...]


@dataclass(frozen=True)
class Message(Kind):
    """A record of one of two sorts, which its field ``type`` tells apart."""

    sorts: tuple[tuple[str, Record], ...]


@dataclass(frozen=True)
class Tuple(Kind):
    """A tuple of these."""

    parts: tuple[Kind, ...]


@dataclass(frozen=True)
class Set(Kind):
    """A set."""

    of: Kind


@dataclass(frozen=True)
class Function(Kind):
    """A function. Its domain is Node, or the numbers from 0 or 1 on, or some strings."""

    domain: str
    key: Kind
    of: Kind


@dataclass(frozen=True)
class Bag(Kind):
    """A function from some values to numbers."""

    of: Kind


@dataclass(frozen=True)
class Row(Kind):
    """A sequence."""

    of: Kind


@dataclass(frozen=True)
class Maybe(Kind):
    """A value, or the model value Nil."""

    of: Kind


NUMBER, TRUTH, WORD, NODE = Number(), Truth(), Word(), Node()
DOMAINS = (("Node", NODE), ("Node", NODE), ("1..2", NUMBER), ("0..1", NUMBER), ('{"ask", "done"}', WORD))

KEYS: dict[str, tuple[str, ...]] = {"1..2": ("1", "2"), "0..1": ("0", "1"), '{"ask", "done"}': ('"ask"', '"done"')}
"""What a key of a function may be written as."""


def every(kind: Kind) -> str:
    """The set of all values of a kind that a state may hold."""
    match kind:
        case Number():
            return f"(0..{MOST - 1})"
        case Truth():
            return "BOOLEAN"
        case Word():
            return f"{{{', '.join(map(quoted, WORDS))}}}"
        case Node():
            return "Node"
        case Record(fields):
            return f"[{', '.join(f'{name} : {every(of)}' for name, of in fields)}]"
        case Message(sorts):
            return "(" + " \\cup ".join(f"[type : {{{quoted(name)}}}, {every(of)[1:]}" for name, of in sorts) + ")"
        case Tuple(parts):
            return "(" + " \\X ".join(f"({every(of)})" for of in parts) + ")"
        case Set(of):
            return f"(SUBSET {every(of)})"
        case Function(domain, _, of):
            return f"[{domain} -> {every(of)}]"
        case Bag(of):
            return f"(UNION {{[d -> 0..{MOST - 1}] : d \\in SUBSET {every(of)}}})"
        case Row(of):
            return f"(UNION {{[1..l -> {every(of)}] : l \\in 0..{LONGEST}}})"
        case Maybe(of):
            return f"({every(of)} \\cup {{Nil}})"
    raise AssertionError(kind)


def size(kind: Kind) -> int:
    """How many values of a kind a state may hold."""
    match kind:
        case Number() | Word():
            return MOST
        case Truth() | Node():
            return 2
        case Record(fields):
            return product(size(of) for _, of in fields)
        case Message(sorts):
            return sum(size(of) for _, of in sorts)
        case Tuple(parts):
            return product(map(size, parts))
        case Set(of):
            return int(2 ** size(of))
        case Function(_, _, of):
            return size(of) ** 2
        case Bag(of):
            return int((MOST + 1) ** size(of))
        case Row(of):
            return sum(size(of) ** length for length in range(LONGEST + 1))
        case Maybe(of):
            return size(of) + 1
    raise AssertionError(kind)


def product(numbers: Any) -> int:
    """The product of some numbers."""
    found = 1
    for each in numbers:
        found *= each
    return found


def quoted(text: str) -> str:
    """A string of TLA+."""
    return f'"{text}"'


@dataclass(frozen=True)
class Seen:
    """What can be read: an expression, and the kind of its value."""

    text: str
    kind: Kind


Scope = tuple[Seen, ...]


# -- the writer --------------------------------------------------------------------------------------------------------


class _Writer:
    """Writes one specification."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.is_symmetric = self._chance(6)
        self.names = 0
        self.variables: list[Seen] = []
        self.operators: list[tuple[str, tuple[Kind, ...], Kind]] = []

    def between(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def pick(self, options: Sequence[T]) -> T:
        return options[self.between(0, len(options) - 1)]

    def _chance(self, of: int) -> bool:
        return self.between(1, of) == 1

    def name(self, letter: str) -> str:
        self.names += 1
        return f"{letter}{self.names}"

    # -- kinds --------------------------------------------------------------------------------------------------------

    def simple(self) -> Kind:
        return self.pick((NUMBER, NUMBER, TRUTH, WORD, NODE, NODE))

    def record(self, most: int = 2) -> Record:
        names = sorted(self._random.sample(FIELDS, self.between(1, most)))
        return Record(tuple((name, self.simple()) for name in names))

    def element(self) -> Kind:
        """The kind of what sets and bags contain."""
        while True:
            kind: Kind = self.pick(
                (NUMBER, NODE, self.record(), self.record(), self.message(), self.message(), self.pair())
            )
            if self._chance(12):
                kind = Set(self.pick((NODE, NUMBER)))
            if self._chance(12):
                kind = Maybe(self.record())
            if size(kind) <= 6:
                return kind

    def message(self) -> Message:
        sorts = self._random.sample(WORDS, 2)
        return Message(tuple((name, self.record()) for name in sorts))

    def pair(self) -> Tuple:
        return Tuple((self.simple(), self.simple()))

    def kind(self, depth: int = 0) -> Kind:
        kinds = ("set", "set", "set", "bag", "bag", "function", "function", "row", "maybe", "simple", "record", "pair")
        match self.pick(kinds if depth < 2 else ("set", "simple", "record", "maybe", "simple")):
            case "set":
                return Set(self.element())
            case "bag":
                return Bag(self.element())
            case "function":
                domain, key = self.pick(DOMAINS)
                return Function(domain, key, self.kind(depth + 1))
            case "row":
                return Row(self.pick((NUMBER, NODE, self.record(1), self.pair())))
            case "maybe":
                return Maybe(self.pick((NUMBER, self.record(), self.record(), Set(NODE), self.pair())))
            case "record":
                return Record((*self.record(1).fields, ("zone", self.kind(2))))
            case "pair":
                return Tuple((self.simple(), self.kind(2)))
        return self.simple()

    # -- what can be read ---------------------------------------------------------------------------------------------

    def paths(self, scope: Scope) -> Iterator[Seen]:
        """What is in scope, and its parts. A key is drawn anew each time."""
        waiting = list(scope)
        while waiting:
            seen = waiting.pop()
            yield seen
            text, kind = seen.text, seen.kind
            match kind:
                case Record(fields):
                    waiting += [Seen(f"{text}.{name}", of) for name, of in fields]
                case Tuple(parts):
                    waiting += [Seen(f"{text}[{number}]", of) for number, of in enumerate(parts, 1)]
                case Function(domain, _, of):
                    key = self.key(domain, scope)
                    if key is not None:
                        waiting.append(Seen(f"{text}[{key}]", of))
                case Message(_):
                    waiting.append(Seen(f"{text}.type", WORD))

    def key(self, domain: str, scope: Scope) -> str | None:
        """An argument in the domain of a function. None if there is no way to name one."""
        if domain != "Node":
            return str(self.pick(KEYS[domain]))
        names = [each.text for each in scope if each.kind == NODE and each.text.isalnum()]
        if names and self.between(0, 4):
            return str(self.pick(names))
        return None if self.is_symmetric else self.pick(("One", "Other"))

    def path(self, kind: Kind, scope: Scope) -> str | None:
        """A part of what is in scope, of this kind."""
        found = [each.text for each in self.paths(scope) if each.kind == kind]
        return self.pick(found) if found else None

    # -- expressions --------------------------------------------------------------------------------------------------

    def value(self, kind: Kind, scope: Scope, depth: int = 0) -> str:
        """An expression of a kind. Its value may lie in a state."""
        known = self.path(kind, scope)
        if known is not None and self.between(0, 3 if depth < 2 else 8):
            return known
        if depth < 3 and self._chance(10):
            condition = self.truth(scope, depth + 1)
            return (
                f"(IF {condition} THEN {self.value(kind, scope, depth + 1)} ELSE {self.value(kind, scope, depth + 1)})"
            )
        if depth < 2 and self._chance(14):
            given = self.simple()
            name = self.name("l")
            inside = self.value(kind, (*scope, Seen(name, given)), depth + 1)
            return f"(LET {name} == {self.value(given, scope, depth + 1)} IN {inside})"
        match kind:
            case Number():
                return (
                    f"(({self.number(scope, depth + 1)}) % {MOST})"
                    if self.between(0, 1)
                    else str(self.between(0, MOST - 1))
                )
            case Truth():
                return f"({self.truth(scope, depth + 1)})" if self.between(0, 1) else self.pick(("TRUE", "FALSE"))
            case Word():
                return quoted(self.pick(WORDS))
            case Node():
                return self.node(scope)
            case Record(fields):
                return self.fields_of(fields, scope, depth)
            case Message(sorts):
                name, of = self.pick(sorts)
                return self.fields_of(of.fields, scope, depth, f"type |-> {quoted(name)}, ")
            case Tuple(parts):
                return f"<<{', '.join(self.value(of, scope, depth + 1) for of in parts)}>>"
            case Set(_):
                return self.set_of(kind, scope, depth)
            case Function(domain, key, of):
                name = self.name("k")
                inside = self.value(of, (*scope, Seen(name, key if domain == "Node" else Number())), depth + 1)
                if domain not in ("Node", "1..2", "0..1"):
                    inside = self.value(of, scope, depth + 1)
                return f"[{name} \\in {domain} |-> {inside}]"
            case Bag(_):
                return self.bag(kind, scope, depth)
            case Row(_):
                return self.row(kind, scope, depth)
            case Maybe(of):
                return "Nil" if self.between(0, 1) else self.value(of, scope, depth + 1)
        raise AssertionError(kind)

    def fields_of(self, fields: Any, scope: Scope, depth: int, first: str = "") -> str:
        return f"[{first}{', '.join(f'{name} |-> {self.value(of, scope, depth + 1)}' for name, of in fields)}]"

    def node(self, scope: Scope) -> str:
        """A model value. With symmetry, one that is in scope."""
        known = [each.text for each in self.paths(scope) if each.kind == NODE]
        if known and (self.is_symmetric or self.between(0, 3)):
            return str(self.pick(known))
        return "Nil" if self.is_symmetric else str(self.pick(("One", "Other")))

    def number(self, scope: Scope, depth: int) -> str:
        """A number of any size."""
        kinds = ["path", "path", "path", "constant", "size", "size", "length", "bag", "choose"]
        kinds += ["sum", "if", "operator"] if depth < 3 else []
        match self.pick(kinds):
            case "size":
                of = self.some(Set, scope)
                if of is not None and self.between(0, 1) and depth < 3:
                    return f"Cardinality({self.filtered(of, scope, depth)})"
                if of is not None:
                    return f"Cardinality({of.text})"
            case "length":
                of = self.some(Row, scope)
                if of is not None:
                    return f"Len({of.text})"
            case "bag":
                of = self.some(Bag, scope)
                if of is not None and isinstance(of.kind, Bag):
                    if self._chance(3):
                        return f"Cardinality(DOMAIN {of.text})"
                    if not self.is_symmetric and self._chance(3):
                        return f"Total({of.text}, DOMAIN {of.text})"
                    member = self.value(of.kind.of, scope, depth + 1)
                    return f"Held({of.text}, {member})"
            case "choose":
                of = self.some(Set, scope)
                if of is not None and isinstance(of.kind, Set) and not self.is_symmetric:
                    name = self.name("c")
                    inside = self.number((*scope, Seen(name, of.kind.of)), depth + 2)
                    if depth < 2 and self.between(0, 1):
                        of = replace(of, text=self.filtered(of, scope, depth + 1))
                    return f"(IF {of.text} = {{}} THEN 0 ELSE LET {name} == {self.chosen(of)} IN {inside})"
            case "sum":
                return f"({self.number(scope, depth + 1)} + {self.number(scope, depth + 1)})"
            case "if":
                one, other = self.number(scope, depth + 1), self.number(scope, depth + 1)
                return f"(IF {self.truth(scope, depth + 1)} THEN {one} ELSE {other})"
            case "operator":
                called = self.called(NUMBER, scope, depth)
                if called is not None:
                    return called
            case "path":
                known = self.path(NUMBER, scope)
                if known is not None:
                    return known
        return str(self.between(0, 2))

    def chosen(self, of: Seen) -> str:
        """A member of a set, the same one each time."""
        name = self.name("c")
        return f"CHOOSE {name} \\in {of.text} : TRUE"

    def called(self, kind: Kind, scope: Scope, depth: int) -> str | None:
        """A call of an operator of the module."""
        known = [each for each in self.operators if each[2] == kind]
        if not known:
            return None
        name, parameters, _ = self.pick(known)
        arguments = [self.value(each, scope, depth + 1) for each in parameters]
        return f"{name}({', '.join(arguments)})" if arguments else str(name)

    def some(self, kind: type[Kind], scope: Scope) -> Seen | None:
        """A part of what is in scope, of a kind like this."""
        found = [each for each in self.paths(scope) if isinstance(each.kind, kind)]
        return self.pick(found) if found else None

    # -- sets ---------------------------------------------------------------------------------------------------------

    def set_of(self, kind: Set, scope: Scope, depth: int) -> str:
        """A set. Most are made of one that is in scope."""
        known = self.path(kind, scope)
        member = self.value(kind.of, scope, depth + 1)
        if known is None or depth > 2:
            if size(kind.of) <= 4 and self._chance(4):
                return f"({every(kind.of)})"
            return "{}" if self._chance(3) else f"{{{member}}}"
        of = Seen(known, kind)
        match self.pick(
            ("add", "add", "add", "remove", "remove", "filter", "filter", "both", "none", "two", "keys", "all")
        ):
            case "add":
                return f"({known} \\cup {{{member}}})"
            case "remove":
                return f"({known} \\ {{{member}}})"
            case "filter":
                return self.filtered(of, scope, depth)
            case "both":
                operator = self.pick(("\\cup", "\\cap", "\\"))
                return f"({known} {operator} {self.value(kind, scope, depth + 1)})"
            case "two":
                return f"(({known} \\ {{{member}}}) \\cup {{{self.value(kind.of, scope, depth + 1)}}})"
            case "keys":
                bag = self.path(Bag(kind.of), scope)
                return f"({known} \\cup DOMAIN {bag})" if bag is not None else f"{{{member}}}"
            case "all":
                name = self.name("m")
                inside = self.value(kind.of, (*scope, Seen(name, kind.of)), depth + 1)
                if self.between(0, 1):
                    return f"{{{inside} : {name} \\in {known}}}"
                return f"UNION {{{{{name}, {inside}}} : {name} \\in {known}}}"
        return "{}"

    def filtered(self, of: Seen, scope: Scope, depth: int) -> str:
        """The members of a set for which something is true."""
        assert isinstance(of.kind, Set)
        name = self.name("m")
        return f"{{{name} \\in {of.text} : {self.of_member(Seen(name, of.kind.of), scope, depth + 1)}}}"

    def of_member(self, member: Seen, scope: Scope, depth: int) -> str:
        """A condition on a member of a set."""
        inner = (*scope, member)
        operator = self.pick((AND, AND, OR))
        if isinstance(member.kind, Message):
            name, of = self.pick(member.kind.sorts)
            inner = (*scope, member, *(Seen(f"{member.text}.{field}", kind) for field, kind in of.fields))
            if self._chance(3):
                return f"{member.text}.type = {quoted(name)}"
            inside = self.about(inner, inner[len(scope) :], depth + 1)
            # An action goes through both sides of a disjunction, and the second has no value for the other sort.
            return f"({member.text}.type = {quoted(name)} {'=>' if operator == OR else AND} {inside})"
        if isinstance(member.kind, Maybe):
            given = Seen(member.text, member.kind.of)
            return f"({member.text} # Nil /\\ {self.about((*scope, given), (given,), depth + 1)})"
        one = self.about(inner, (member,), depth + 1)
        return one if self.between(0, 1) else f"({one} {operator} {self.truth(inner, depth + 1)})"

    def about(self, scope: Scope, of: Scope, depth: int) -> str:
        """A condition that reads one of these."""
        seen = self.pick([*self.paths(of)])
        return self.compared(seen, scope, depth)

    def compared(self, seen: Seen, scope: Scope, depth: int) -> str:
        """A condition on something that is in scope."""
        text, kind = seen.text, seen.kind
        match kind:
            case Number():
                operator = self.pick(("=", "#", "<", ">", "<=", ">="))
                return f"{text} {operator} {self.number(scope, depth + 1)}"
            case Truth():
                return self.pick((text, f"~{text}"))
            case Set(of):
                return self.about_set(text, of, scope, depth)
            case Bag(of):
                name = self.name("b")
                inner = (*scope, Seen(name, of), Seen(f"{text}[{name}]", NUMBER))
                quantifier = self.pick((SOME, ALL))
                if self.between(0, 1):
                    return f"({quantifier} {name} \\in DOMAIN {text} : {self.of_member(Seen(name, of), scope, depth)})"
                inside = self.compared(Seen(f"{text}[{name}]", NUMBER), inner, depth + 1)
                return f"({quantifier} {name} \\in DOMAIN {text} : {inside})"
            case Row(of):
                if self.between(0, 1):
                    return f"{text} {self.pick(('=', '#'))} <<>>"
                inside = self.compared(Seen(f"Head({text})", of), scope, depth + 1)
                return f"({text} # <<>> /\\ {inside})"
            case Maybe(of):
                if self.between(0, 1):
                    return f"{text} {self.pick(('=', '#'))} Nil"
                return f"({text} # Nil /\\ {self.compared(Seen(text, of), scope, depth + 1)})"
        operator = self.pick(("=", "#"))
        return f"{text} {operator} {self.another(text, kind, scope, depth)}"

    def another(self, text: str, kind: Kind, scope: Scope, depth: int) -> str:
        """A value to compare with."""
        others = tuple(each for each in scope if each.text != text)
        found = (self.value(kind, others, depth + 1) for _ in range(4))
        return next((each for each in found if each != text), f"({text})")

    def about_set(self, text: str, of: Kind, scope: Scope, depth: int) -> str:
        name = self.name("m")
        if depth > 3:
            return f"{text} {self.pick(('=', '#'))} {{}}"
        match self.pick(("some", "some", "every", "has", "has", "within", "equal", "empty", "two", "power", "chosen")):
            case "some":
                return f"(\\E {name} \\in {text} : {self.of_member(Seen(name, of), scope, depth)})"
            case "every":
                return f"(\\A {name} \\in {text} : {self.of_member(Seen(name, of), scope, depth)})"
            case "has":
                operator = self.pick(("\\in", "\\notin"))
                return f"{self.value(of, scope, depth + 1)} {operator} {text}"
            case "within":
                return f"{text} \\subseteq {self.another(text, Set(of), scope, depth)}"
            case "equal":
                return f"{text} {self.pick(('=', '#'))} {self.another(text, Set(of), scope, depth)}"
            case "two":
                other = self.name("m")
                inside = self.of_member(Seen(name, of), (*scope, Seen(other, of)), depth + 1)
                quantifier = self.pick((SOME, ALL))
                return f"({quantifier} {name}, {other} \\in {text} : {name} = {other} \\/ {inside})"
            case "power":
                return f"{text} \\in SUBSET {self.another(text, Set(of), scope, depth)}"
            case "chosen":
                if not self.is_symmetric:
                    inside = self.of_member(Seen(name, of), scope, depth)
                    return f"({text} # {{}} /\\ LET {name} == {self.chosen(Seen(text, Set(of)))} IN {inside})"
        return f"{text} {self.pick(('=', '#'))} {{}}"

    # -- bags and sequences -------------------------------------------------------------------------------------------

    def bag(self, kind: Bag, scope: Scope, depth: int) -> str:
        """A bag. Most are made of one that is in scope."""
        known = self.path(kind, scope)
        member = self.value(kind.of, scope, depth + 1)
        if known is None or depth > 2:
            return "[x \\in {} |-> 0]" if self.between(0, 1) else f"({member} :> 1)"
        name = self.name("b")
        inner = (*scope, Seen(name, kind.of), Seen(f"{known}[{name}]", NUMBER))
        held = f"{known}[{name}]"
        match self.pick(
            ("put", "put", "put", "take", "merge", "except", "rule", "rule", "fewer", "more", "filter", "none")
        ):
            case "put":
                return f"Put({known}, {member})"
            case "take":
                return f"Take({known}, {member})"
            case "merge":
                pair = f"({member} :> {self.between(0, MOST - 1)})"
                return f"({known} @@ {pair})" if self.between(0, 1) else f"({pair} @@ {known})"
            case "except":
                return f"[{known} EXCEPT ![{member}] = (@ + 1) % {MOST}]"
            case "rule":
                condition = self.of_member(Seen(name, kind.of), scope, depth)
                if self.between(0, 1):
                    condition = f"{held} > 0 /\\ {condition}"
                new = self.value(NUMBER, inner, depth + 1)
                one, other = (new, held) if self.between(0, 2) else (held, new)
                return f"[{name} \\in DOMAIN {known} |-> IF {condition} THEN {one} ELSE {other}]"
            case "fewer":
                return f"[{name} \\in DOMAIN {known} \\ {{{member}}} |-> {held}]"
            case "more":
                new = str(self.between(0, MOST - 1))
                inside = f"IF {name} \\in DOMAIN {known} THEN {held} ELSE {new}"
                return f"[{name} \\in DOMAIN {known} \\cup {{{member}}} |-> {inside}]"
            case "filter":
                kept = self.filtered(Seen(f"DOMAIN {known}", Set(kind.of)), scope, depth)
                return f"[{name} \\in {kept} |-> {held}]"
        return "[x \\in {} |-> 0]"

    def row(self, kind: Row, scope: Scope, depth: int) -> str:
        """A sequence. Most are made of one that is in scope."""
        known = self.path(kind, scope)
        element = self.value(kind.of, scope, depth + 1)
        if known is None or depth > 2:
            return "<<>>" if self.between(0, 1) else f"<<{element}>>"
        match self.pick(("append", "append", "tail", "part", "join", "change", "select", "none")):
            case "append":
                return f"(IF Len({known}) < {LONGEST} THEN Append({known}, {element}) ELSE {known})"
            case "tail":
                return f"(IF {known} = <<>> THEN <<{element}>> ELSE Tail({known}))"
            case "part":
                return f"SubSeq({known}, {self.between(1, 2)}, Len({known}))"
            case "join":
                return f"SubSeq(<<{element}>> \\o {known}, 1, Least(Len({known}) + 1, {LONGEST}))"
            case "change":
                name = self.name("i")
                return f"[{name} \\in DOMAIN {known} |-> IF {name} = 1 THEN {element} ELSE {known}[{name}]]"
            case "select":
                name = self.name("e")
                inside = self.compared(Seen(name, kind.of), (*scope, Seen(name, kind.of)), depth + 2)
                return f"SelectSeq({known}, LAMBDA {name} : {inside})"
        return "<<>>"

    # -- formulas -----------------------------------------------------------------------------------------------------

    def truth(self, scope: Scope, depth: int = 0) -> str:
        """A condition."""
        kinds = ["about"] * 6
        kinds += ["and", "or", "not", "implies", "each", "some", "operator", "case", "let"] if depth < 3 else []
        match self.pick(kinds):
            case "and":
                return f"({self.truth(scope, depth + 1)} /\\ {self.truth(scope, depth + 1)})"
            case "or":
                return f"({self.truth(scope, depth + 1)} \\/ {self.truth(scope, depth + 1)})"
            case "not":
                return f"~({self.truth(scope, depth + 1)})"
            case "implies":
                return f"({self.truth(scope, depth + 1)} => {self.truth(scope, depth + 1)})"
            case "each" | "some" as quantifier:
                domain, key = self.pick((("Node", NODE), ("Node", NODE), (f"0..{MOST - 1}", NUMBER)))
                name = self.name("n")
                inside = self.truth((*scope, Seen(name, key)), depth + 1)
                return f"({ALL if quantifier == 'each' else SOME} {name} \\in {domain} : {inside})"
            case "operator":
                called = self.called(TRUTH, scope, depth)
                if called is not None:
                    return called
            case "case":
                parts = [f"{self.truth(scope, depth + 1)} -> {self.truth(scope, depth + 2)}" for _ in range(2)]
                return f"(CASE {' [] '.join(parts)} [] OTHER -> {self.truth(scope, depth + 1)})"
            case "let":
                kind, name = self.simple(), self.name("D")
                given = self.name("x")
                inside = self.truth((*scope, Seen(given, kind)), depth + 2)
                return f"(LET {name}({given}) == {inside} IN {name}({self.value(kind, scope, depth + 1)}))"
        seen = list(self.paths(scope))
        return self.compared(self.pick(seen), scope, depth) if seen else "TRUE"

    # -- actions ------------------------------------------------------------------------------------------------------

    def assigned(self, variable: Seen, scope: Scope) -> str:
        """A conjunct that gives a variable its next value."""
        kind = variable.kind
        if size(kind) <= 16 and self._chance(8):
            return f"{variable.text}' \\in {every(kind)}"
        if isinstance(kind, Set) and size(kind) <= 64 and self._chance(10):
            return f"{variable.text}' \\in SUBSET {variable.text}"
        if isinstance(kind, Set) and self._chance(12):
            return f"{variable.text}' \\in {{{self.value(kind, scope, 1)}, {self.value(kind, scope, 1)}}}"
        return f"{variable.text}' = {self.changed(variable, scope)}"

    def changed(self, variable: Seen, scope: Scope) -> str:
        """A new value of a variable. Most are made of the one that it has."""
        text, kind = variable.text, variable.kind
        inner = tuple(each for each in scope if each.text != "@")
        if isinstance(kind, Set | Bag | Row) and self.between(0, 5):
            own = (*(each for each in scope if each.kind != kind), variable)
            return (
                self.set_of(kind, own, 0)
                if isinstance(kind, Set)
                else (self.bag(kind, own, 0) if isinstance(kind, Bag) else self.row(kind, own, 0))
            )
        if isinstance(kind, Number):
            return self.pick((f"(({text} + 1) % {MOST})", f"({self.number(scope, 1)}) % {MOST}"))
        parts = [*self.updates(kind, inner)]
        if parts and self.between(0, 5):
            changing = dict(self.pick(parts) for _ in range(self.pick((1, 1, 1, 2))))
            changes = [f"!{at} = {self.changed(Seen('@', of), (*inner, Seen('@', of)))}" for at, of in changing.items()]
            return f"[{text} EXCEPT {', '.join(changes)}]"
        return self.value(kind, scope)

    def updates(self, kind: Kind, scope: Scope, before: str = "") -> Iterator[tuple[str, Kind]]:
        """What EXCEPT may change in a value."""
        match kind:
            case Record(fields):
                found = [(f"{before}.{name}", of) for name, of in fields]
            case Tuple(parts):
                found = [(f"{before}[{number}]", of) for number, of in enumerate(parts, 1)]
            case Function(domain, _, of):
                key = self.key(domain, scope)
                found = [] if key is None else [(f"{before}[{key}]", of)]
            case _:
                found = []
        for at, of in found:
            yield at, of
            yield from self.updates(of, scope, at)

    def block(self, scope: Scope, variables: Sequence[Seen], depth: int = 0) -> str:
        """A conjunction that gives each variable a next value. Few of them change."""
        guards = [self.guard(scope) for _ in range(self.pick((0, 0, 1) if depth else (0, 1, 1)))]
        if depth < 2:
            kind = self.pick(("plain", "plain", "plain", "member", "member", "either", "if", "node", "let", "subset"))
        else:
            kind = "plain"
        of = self.some(Set, scope)
        bag = self.some(Bag, scope)
        if bag is not None and isinstance(bag.kind, Bag) and (of is None or self._chance(2)):
            of = Seen(f"DOMAIN {bag.text}", Set(bag.kind.of))
        if kind == "member" and of is not None and isinstance(of.kind, Set) and "'" not in of.text:
            name = self.name("m")
            member = Seen(name, of.kind.of)
            inner: Scope = (*scope, member)
            if isinstance(member.kind, Message):
                sort, fields = self.pick(member.kind.sorts)
                inner = (*inner, *(Seen(f"{name}.{field}", kind) for field, kind in fields.fields))
                inside = self.block(inner, variables, depth + 1)
                guards.append(f"(\\E {name} \\in {of.text} : {name}.type = {quoted(sort)} /\\ {inside})")
            else:
                condition = self.of_member(member, scope, 1) if self.between(0, 2) else "TRUE"
                inside = self.block(inner, variables, depth + 1)
                guards.append(f"(\\E {name} \\in {of.text} : {condition} /\\ {inside})")
        elif kind == "subset" and of is not None and isinstance(of.kind, Set) and size(of.kind) <= 64:
            name = self.name("s")
            inside = self.block((*scope, Seen(name, of.kind)), variables, depth + 1)
            guards.append(f"(\\E {name} \\in SUBSET {of.text} : {inside})")
        elif kind == "node":
            domain, key = self.pick((("Node", NODE), ("0..1", NUMBER), ("BOOLEAN", TRUTH)))
            name = self.name("n")
            inside = self.block((*scope, Seen(name, key)), variables, depth + 1)
            guards.append(f"(\\E {name} \\in {domain} : {inside})")
        elif kind == "either":
            one, other = (self.block(scope, variables, depth + 1) for _ in range(2))
            guards.append(f"({one} \\/ {other})")
        elif kind == "if":
            one, other = (self.block(scope, variables, depth + 1) for _ in range(2))
            guards.append(f"(IF {self.truth(scope, 1)} THEN {one} ELSE {other})")
        elif kind == "let":
            given, name = self.pick(self.variables).kind, self.name("l")
            inside = self.block((*scope, Seen(name, given)), variables, depth + 1)
            guards.append(f"(LET {name} == {self.value(given, scope, 1)} IN {inside})")
        else:
            guards += self.assignments(scope, variables)
        return "(" + " /\\ ".join(guards) + ")"

    def guard(self, scope: Scope) -> str:
        """A condition of an action. Many are weak, so that there are steps."""
        parts = [self.truth(scope, 2) for _ in range(self.pick((1, 2, 3)))]
        if self._chance(4):
            return " \\/ ".join(parts).join("()")  # each is a way of its own
        return " => ".join([*(f"(~{each.join('()')}" for each in parts[:-1]), parts[-1]]).join("()") + ")" * len(
            parts[:-1]
        )

    def assignments(self, scope: Scope, variables: Sequence[Seen]) -> list[str]:
        changing = self._random.sample(list(variables), min(len(variables), self.pick((1, 1, 1, 2, 2, 3))))
        staying = [each.text for each in variables if each not in changing]
        found, inner = [], scope
        for each in changing:
            found.append(self.assigned(each, inner))
            if self._chance(3):
                # The new value is read from now on, too.
                inner = (*inner, Seen(f"{each.text}'", each.kind))
        if inner != scope and self._chance(2):
            found.append(self.guard(inner))
        if self._chance(10) and len(changing) == 1:
            # The second value is a condition.
            found.append(f"{changing[0].text}' = {self.changed(changing[0], scope)}")
        if staying and self._chance(3):
            found.insert(0, f"UNCHANGED <<{', '.join(staying)}>>")
        elif staying:
            found += (
                [f"UNCHANGED {each}" for each in staying]
                if self._chance(3)
                else [f"UNCHANGED <<{', '.join(staying)}>>"]
            )
        return found

    # -- the specification --------------------------------------------------------------------------------------------

    def start(self, variable: Seen) -> str:
        kind = variable.kind
        if size(kind) <= 8 and self._chance(5):
            return f"{variable.text} \\in {every(kind)}"
        return f"{variable.text} = {self.first(kind)}"

    def first(self, kind: Kind) -> str:
        match kind:
            case Set(of):
                return "{}" if self.between(0, 3) else f"{{{self.first(of)}}}"
            case Bag(_):
                return self.pick(("<<>>", "[x \\in {} |-> 0]"))
            case Row(_):
                return "<<>>"
            case Maybe(of):
                return "Nil" if self.between(0, 3) else self.first(of)
            case Function(domain, _, of):
                return f"[{self.name('k')} \\in {domain} |-> {self.first(of)}]"
            case Record(fields):
                return f"[{', '.join(f'{name} |-> {self.first(of)}' for name, of in fields)}]"
            case Tuple(parts):
                return f"<<{', '.join(map(self.first, parts))}>>"
            case Number():
                return "0"
            case Word():
                return quoted(WORDS[0])
            case Truth():
                return "FALSE"
        return self.value(kind, ())

    def operator(self, letter: str, kind: Kind) -> str:
        name = self.name(letter)
        parameters = tuple(self.pick((NODE, NUMBER, self.pick(self.variables).kind)) for _ in range(self.between(0, 2)))
        scope = (*self.variables, *(Seen(f"p{n}", each) for n, each in enumerate(parameters, 1)))
        inside = self.truth(scope, 1) if kind == TRUTH else self.number(scope, 1)
        self.operators.append((name, parameters, kind))
        signature = f"({', '.join(f'p{n}' for n, _ in enumerate(parameters, 1))})" if parameters else ""
        return f"{name}{signature} == {inside}"

    def invariant(self) -> str:
        """Most are true: a disjunction is weaker than each of its parts."""
        scope = tuple(self.variables)
        parts = []
        for _ in range(self.between(1, 3)):
            one = self.truth(scope)
            others = [self.truth(scope, 1) for _ in range(self.between(1, 3))]
            sets = [(each, each.kind) for each in self.paths(scope) if isinstance(each.kind, Set)]
            match self.pick(("or", "or", "each", "members", "pairs", "type", "same", "same", "same", "bag")):
                case "each":
                    name = self.name("n")
                    inner = (*scope, Seen(name, NODE))
                    body = " \\/ ".join(self.truth(inner, 1) for _ in range(3))
                    parts.append(f"(\\A {name} \\in Node : {body})")
                case "members" if sets:
                    (of, kind), name = self.pick(sets), self.name("m")
                    body = " \\/ ".join(self.of_member(Seen(name, kind.of), scope, 1) for _ in range(3))
                    parts.append(f"(\\A {name} \\in {of.text} : {body})")
                case "pairs" if sets:
                    (of, kind), one, other = self.pick(sets), self.name("m"), self.name("m")
                    inner = (*scope, Seen(other, kind.of))
                    body = " \\/ ".join(self.of_member(Seen(one, kind.of), inner, 2) for _ in range(3))
                    parts.append(f"(\\A {one}, {other} \\in {of.text} : {body})")
                case "type":
                    seen = self.pick(self.variables)
                    if size(seen.kind) <= 300:
                        parts.append(f"{seen.text} \\in {every(seen.kind)}")
                        if isinstance(seen.kind, Set) and self.between(0, 1):
                            parts.append(f"{seen.text} \\subseteq {every(seen.kind.of)}")
                case "same" if sets:
                    parts.append(self.alike(self.pick(sets)[0], scope))
                case "bag":
                    bag = self.some(Bag, scope)
                    if bag is not None:
                        parts.append(f"(\\A b \\in DOMAIN {bag.text} : {bag.text}[b] \\in 0..{MOST - 1})")
                case _:
                    parts.append("(" + " \\/ ".join((one, *others)) + ")")
        return " /\\ ".join(parts) or "TRUE"

    def alike(self, of: Seen, scope: Scope) -> str:
        """A formula that is true of every state, and says one thing in two ways."""
        assert isinstance(of.kind, Set)
        name = self.name("m")
        condition = self.of_member(Seen(name, of.kind.of), scope, 1)
        those, others = (f"{{{name} \\in {of.text} : {each}}}" for each in (condition, f"~({condition})"))
        return self.pick(
            (
                f"((\\A {name} \\in {of.text} : {condition}) <=> {others} = {{}})",
                f"((\\E {name} \\in {of.text} : {condition}) <=> {those} # {{}})",
                f"Cardinality({those}) + Cardinality({others}) = Cardinality({of.text})",
                f"{those} \\cup {others} = {of.text}",
                f"{of.text} \\ {those} = {others}",
                f"((\\A {name} \\in {of.text} : {condition}) <=> ({of.text} \\subseteq {those}))",
            )
        )

    def step(self) -> str:
        """A condition on a step. Most are true of it."""
        after = tuple(Seen(f"{each.text}'", each.kind) for each in self.variables)
        scope = (*self.variables, *after)
        parts = [self.truth(scope, 1) for _ in range(self.between(2, 3))]
        return " \\/ ".join(parts)

    def write(self) -> Example:
        """The specification."""
        self.variables = [Seen(self.name("v"), self.kind()) for _ in range(self.between(1, 3))]
        if not any(isinstance(each.kind, Set | Bag) for each in self.variables):
            self.variables.append(Seen(self.name("v"), self.pick((Set, Bag))(self.element())))
        names = ", ".join(each.text for each in self.variables)
        lines = [f"CONSTANTS Node, Nil\nVARIABLES {names}\nvars == <<{names}>>", HELPERS]
        lines += [self.operator("P", self.pick((TRUTH, NUMBER))) for _ in range(self.between(0, 2))]
        lines.append("Init == " + " /\\ ".join(map(self.start, self.variables)))
        following = []
        for _ in range(self.between(1, 4)):
            name = self.name("A")
            given = self._random.sample(PARAMETERS, self.pick((0, 1, 1, 1, 2)))
            scope = (*self.variables, *(Seen(letter, key) for letter, _, key in given))
            signature = f"({', '.join(letter for letter, _, _ in given)})" if given else ""
            lines.append(f"{name}{signature} == {self.block(scope, self.variables)}")
            following.append(called_for(name, signature, given))
        for variable in self.variables:
            if self.between(0, 3):
                name, given = self.name("A"), self._random.sample(PARAMETERS[:1], self.between(0, 1))
                signature = "(n)" if given else ""
                lines.append(f"{name}{signature} == {self.growth(variable, bool(given))}")
                following.append(called_for(name, signature, given))
        lines.append("Next == " + " \\/ ".join(following))
        lines.append("Spec == Init /\\ [][Next]_vars")
        return Example(
            "\n".join(["---- MODULE Spec ----", HEADER, *lines, *self.judged(), "===="]), self.config, (0, 0, 0)
        )

    def growth(self, variable: Seen, has_node: bool) -> str:
        """An action that gives a variable more values, so that there are states."""
        scope = (*self.variables, *((Seen("n", NODE),) if has_node else ()))
        parts = [Seen("", variable.kind), *(Seen(at, of) for at, of in self.updates(variable.kind, scope))]
        small = [each for each in parts if isinstance(each.kind, Set | Bag | Row) or size(each.kind) <= 12]
        at = self.pick(small or parts)
        text = f"{variable.text}{at.text}" if not at.text else "@"
        name, kind = self.name("e"), at.kind
        match kind:
            case Set(of):
                operator = self.pick(("\\cup", "\\cup", "\\"))
                options, new = every(of), f"{text} {operator} {{{name}}}"
            case Bag(of):
                options, new = every(of), f"{self.pick(('Put', 'Put', 'Take'))}({text}, {name})"
            case Row(of):
                options, new = every(of), f"(IF Len({text}) < {LONGEST} THEN Append({text}, {name}) ELSE <<>>)"
            case _:
                options, new = (every(kind), name) if size(kind) <= 12 else (f"{{{self.value(kind, scope)}}}", name)
        if at.text:
            new = f"[{variable.text} EXCEPT !{at.text} = {new}]"
        staying = [each.text for each in self.variables if each is not variable]
        member = Seen(name, kind.of if isinstance(kind, Set | Bag | Row) else kind)
        guard = f"({self.truth((*scope, member), 2)} \\/ {self.guard(scope)}) /\\ " if self._chance(3) else ""
        kept = f" /\\ UNCHANGED <<{', '.join(staying)}>>" if staying else ""
        return f"\\E {name} \\in {options} : {guard}{variable.text}' = {new}{kept}"

    def judged(self) -> list[str]:
        """Definitions of what is judged, and the configuration."""
        lines = []
        config = ["CONSTANTS Node = {n1, n2} Nil = Nil", "SPECIFICATION Spec"]
        config.append("CHECK_DEADLOCK " + ("FALSE" if self.between(0, 3) else "TRUE"))
        for _ in range(self.between(1, 3)):
            name = self.name("Inv")
            lines.append(f"{name} == {self.invariant()}")
            config.append(f"INVARIANT {name}")
        scope = tuple(self.variables)
        if self._chance(4):
            lines.append("Bound == " + " \\/ ".join(self.truth(scope, 2) for _ in range(self.between(2, 4))))
            config.append("CONSTRAINT Bound")
        if self._chance(6):
            lines.append(f"StepBound == {self.step()}")
            config.append("ACTION_CONSTRAINT StepBound")
        if not self.is_symmetric:
            for _ in range(self.pick((0, 0, 1))):
                name = self.name("Steps")
                lines.append(f"{name} == [][{self.step()}]_{self.pick(('vars', self.pick(self.variables).text))}")
                config.append(f"PROPERTY {name}")
            if self._chance(8):
                lines.append(f"Always == []({self.invariant()})")
                config.append("PROPERTY Always")
        else:
            lines.append("Symmetric == Permutations(Node)")
            config.append("SYMMETRY Symmetric")
        self.config = "\n".join(config) + "\n"
        return lines


PARAMETERS: tuple[tuple[str, str, Kind], ...] = (
    ("n", "Node", NODE),
    ("k", f"0..{MOST - 1}", NUMBER),
    ("w", '{"ask", "vote"}', WORD),
    ("t", "BOOLEAN", TRUTH),
)
"""Names of parameters of actions, what they range over, and their kinds."""


def called_for(name: str, signature: str, given: Sequence[tuple[str, str, Kind]]) -> str:
    """An action for all values of its parameters."""
    if not given:
        return name
    bounds = ", ".join(f"{letter} \\in {domain}" for letter, domain, _ in given)
    return f"(\\E {bounds} : {name}{signature})"


HEADER = "EXTENDS Naturals, Sequences, FiniteSets, TLC"

HELPERS = rf"""One == CHOOSE n \in Node : TRUE
Other == CHOOSE n \in Node : n # One
Least(a, b) == IF a < b THEN a ELSE b
Held(b, m) == IF m \in DOMAIN b THEN b[m] ELSE 0
Put(b, m) == IF m \in DOMAIN b THEN [b EXCEPT ![m] = IF @ < {MOST - 1} THEN @ + 1 ELSE @] ELSE b @@ (m :> 1)
Take(b, m) == IF Held(b, m) > 0 THEN [b EXCEPT ![m] = @ - 1] ELSE b
RECURSIVE Total(_, _)
Total(b, s) == IF s = {{}} THEN 0 ELSE LET x == CHOOSE x \in s : TRUE IN b[x] + Total(b, s \ {{x}})"""


def seeded(seed: int) -> Example:
    """The random specification of ``seed``."""
    return _Writer(seed).write()


def is_symmetric(example: Example) -> bool:
    """Whether some states are explored in place of others."""
    return "SYMMETRY" in example.config
