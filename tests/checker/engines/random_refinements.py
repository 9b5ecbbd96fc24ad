"""Small random pairs of protocols with mappings, as Python source. The second protocol keeps the state of the first in
another form.

Both have the same actions, written with accessors (``get_x``, ``set_x``, ...) that each protocol defines for its own
state. The second also has actions that change nothing visible to the first, and perhaps a fault. Brute force decides
whether the fault is visible.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import hypothesis.strategies as st
from checker.engines import brute
from checker.engines.brute import Row, tag

import fencepost
from fencepost import Protocol
from fencepost.language.context import Slot

PRELUDE = """
class Cell(Record):
    a: Any = 0
    b: Any = 0

class Wide(Record):
    a: Any = 0
    b: Any = 0
    extra: Any = 0

class Note(Message):
    n: int

class Letter(Message):
    text: int
    stamp: int
"""


@dataclass(frozen=True)
class Pair:
    """The source of two protocols: ``Other``, and ``P``, which refines ``Other``."""

    source: str

    def build(self) -> Protocol:
        """An instance of the refining protocol."""
        scope: dict[str, Any] = {n: getattr(fencepost, n) for n in fencepost.__all__} | {
            "Any": Any,
            "__name__": __name__,
        }
        exec(compile(self.source, "<random refinement>", "exec", dont_inherit=True), scope)
        protocol: Protocol = scope["P"]()
        return protocol

    def __repr__(self) -> str:
        return "\n" + self.source


T = TypeVar("T")


class _Writer:
    def __init__(self, between: Callable[[int, int], int]) -> None:
        self.int = between
        self.other: list[str] = []
        self.mine: list[str] = []
        self.mapping: list[str] = []
        self.quiet: list[list[str]] = []

    def pick(self, options: Sequence[T]) -> T:
        return options[self.int(0, len(options) - 1)]

    def both(self, lines: list[str]) -> None:
        self.other += lines
        self.mine += lines

    def accessors(self, into: list[str], name: str, given: str, get: str, put: list[str]) -> None:
        into += [
            f"def get_{name}(self{given}):",
            f"    return {get}",
            f"def set_{name}(self{given}, v):",
            *(f"    {line}" for line in put),
        ]

    # -- how the second protocol keeps what the first one does ---------------------------------------------------------

    def x(self) -> None:
        start = self.pick((0, 0, 2))
        self.other.append(f"x: Any = state({start})")
        self.accessors(self.other, "x", "", "self.x", ["self.x = v"])
        how = self.pick(("same", "renamed", "split", "either", "in a record"))
        wrong = start if self.int(0, 9) else 1
        if how == "same":
            self.mine.append(f"x: Any = state({wrong})")
            self.accessors(self.mine, "x", "", "self.x", ["self.x = v"])
        elif how == "renamed":
            self.mine.append(f"y: Any = state({wrong})")
            self.accessors(self.mine, "x", "", "self.y", ["self.y = v"])
            self.mapping.append("'x': 'y'")
        elif how == "split":
            self.mine += [f"hi: Any = state({wrong // 2})", f"lo: Any = state({wrong % 2})"]
            self.accessors(self.mine, "x", "", "2 * self.hi + self.lo", ["self.hi, self.lo = divmod(v, 2)"])
            self.mapping.append("'x': lambda self: self.get_x()")
        elif how == "either":
            self.mine += [f"one: Any = state({wrong})", f"two: Any = state({wrong})", "which: Any = state(False)"]
            get = "self.two if self.which else self.one"
            self.accessors(self.mine, "x", "", get, ["if self.which:", "    self.two = v", "else:", "    self.one = v"])
            self.mapping.append("'x': lambda self: self.get_x()")
            turn = [
                "if self.which:",
                "    self.one = self.two",
                "else:",
                "    self.two = self.one",
                "self.which = not self.which",
            ]
            self.quiet.append(turn if self.int(0, 5) else turn[-1:])
            # Later reads need this although nothing reads it yet.
            self.quiet.append(
                ["if self.which:", "    self.one = (self.one + 1) % 3", "else:", "    self.two = (self.two + 1) % 3"]
            )
        else:
            self.mine.append(f"kept: Wide = state(Wide(b={wrong}))")
            self.accessors(self.mine, "x", "", "self.kept.b", ["self.kept.b = v"])
            self.mapping.append("'x': 'kept.b'")
            self.quiet.append(["self.kept.extra = (self.kept.extra + 1) % 2"])

    def cells(self) -> None:
        self.other.append("cell: Any = per_key(nodes, Cell)")
        for f in "ab":
            self.accessors(self.other, f, ", n", f"self.cell[n].{f}", [f"self.cell[n].{f} = v"])
        how = self.pick(("same", "wide", "field", "whole"))
        if how in ("same", "wide"):
            name = "cell" if how == "same" or self.int(0, 1) else "box"
            self.mine.append(f"{name}: Any = per_key(nodes, {'Cell' if how == 'same' else 'Wide'})")
            for f in "ab":
                self.accessors(self.mine, f, ", n", f"self.{name}[n].{f}", [f"self.{name}[n].{f} = v"])
            if name == "box":
                self.mapping.append("'cell': 'box'")
            if how == "wide":
                self.quiet.append([f"self.{name}[n].extra = 1 - self.{name}[n].extra"])
            return
        self.mine += ["first: Any = per_key(nodes, 0)", "second: Any = per_key(nodes, 0)"]
        for f, name in (("a", "first"), ("b", "second")):
            self.accessors(self.mine, f, ", n", f"self.{name}[n]", [f"self.{name}[n] = v"])
        if how == "field":
            self.mapping += ["'cell.a': 'first'", "'cell.b': lambda self, n: self.get_b(n)"]
        else:
            self.mapping.append("'cell': lambda self, n: Cell(a=self.get_a(n), b=self.get_b(n))")

    def table(self) -> None:
        start = self.pick(("", "{0: 1}"))
        self.other.append(f"t: Any = table({start})")
        self.accessors(
            self.other,
            "t",
            ", k",
            "self.t.get(k)",
            ["if v is not None:", "    self.t[k] = v", "elif k in self.t:", "    del self.t[k]"],
        )
        if self.int(0, 1):
            self.mine.append(f"t: Any = table({start})")
            self.accessors(
                self.mine,
                "t",
                ", k",
                "self.t.get(k)",
                ["if v is not None:", "    self.t[k] = v", "elif k in self.t:", "    del self.t[k]"],
            )
            return
        self.mine += [f"t0: Any = state({1 if start else None})", "t1: Any = state(None)"]
        self.accessors(
            self.mine, "t", ", k", "self.t1 if k else self.t0", ["if k:", "    self.t1 = v", "else:", "    self.t0 = v"]
        )
        self.mapping.append("'t': lambda self: {k: self.get_t(k) for k in (0, 1) if self.get_t(k) is not None}")

    def net(self) -> None:
        rules = ", ".join(f"{rule}={self.pick((True, False))}" for rule in ("lossy", "once", "ordered", "remember"))
        ways = [
            "def tell(self, v, n):",
            "    self.net.send({new}, n, hub)",
            "def take(self, n):",
            "    return self.net.receive({kind}, to=hub, source=n).message.{field}",
        ]
        declared = "net: Network = network({{{kind}: (nodes, hub)}}, {rules})"

        def keep(into: list[str], kind: str, new: str, field: str) -> None:
            into.append(declared.format(kind=kind, rules=rules))
            into += [line.format(new=new, kind=kind, field=field) for line in ways]

        keep(self.other, "Note", "Note(v)", "n")
        if self.int(0, 1):
            keep(self.mine, "Note", "Note(v)", "n")
        else:
            keep(self.mine, "Letter", "Letter(v, 7)", "text")
            self.mapping.append("'net': {Letter: (Note, lambda m: Note(m.text), lambda m: Letter(m.n, 7))}")

    # -- what they do --------------------------------------------------------------------------------------------------

    def number(self) -> str:
        return self.pick(self.reads + [str(self.int(0, 3))])

    def change(self) -> str:
        what, most = self.pick(self.writes)
        return what.format(
            f"({self.number()} + {self.number()}) % {most}"
            if self.int(0, 1)
            else f"one_of(({self.int(0, 1)}, {self.number()}))"
        )

    def action(self) -> list[str]:
        lines = [f"require({self.number()} != {self.int(0, 3)})"] if self.int(0, 2) else []
        return lines + [self.change() for _ in range(self.int(1, 2))]

    def faulty(self, lines: list[str]) -> list[str]:
        kind = self.int(0, 2)
        if kind == 0 and lines[0].startswith("require"):
            return lines[1:] or ["pass"]
        if kind == 1:
            return [*lines, self.change()]
        return [*lines[:-1], self.change()]

    def write(self) -> Pair:
        self.both(["nodes: Any = model_values('n', 2)"])
        self.reads, self.writes = [], []
        parts: list[tuple[Callable[[], None], list[str], list[tuple[str, int]]]] = [
            (self.x, ["self.get_x()"], [("self.set_x({})", 4)]),
            (self.cells, ["self.get_a(n)", "self.get_b(n)"], [("self.set_a(n, {})", 2), ("self.set_b(n, {})", 2)]),
            (
                self.table,
                ["(self.get_t(0) or 0)"],
                [("self.set_t(0, {} or None)", 3), ("self.set_t(1, {} or None)", 2)],
            ),
            (
                self.net,
                ["(self.take(n) if self.get_x() % 2 else 1)"],
                [("self.tell({}, n)", 2), ("self.set_x(self.take(n) + 0 * {})", 2)],
            ),
        ]
        for place, (declare, reads, writes) in enumerate(parts):
            if place == 0 or self.int(0, 2) == 0:
                declare()
                self.reads += reads
                self.writes += writes
        for number in range(self.int(1, 3)):
            lines = self.action()
            for into, fault in ((self.other, False), (self.mine, self.int(0, 4) == 0)):
                name = f"a{number}" if into is self.other or self.int(0, 3) else f"b{number}"
                body = self.faulty(lines) if fault else lines
                into += [
                    f"@action(n=nodes)\ndef {name}(self, n):".replace("\n", "\n    ").split("\n")[0],
                    f"def {name}(self, n):",
                    *(f"    {line}" for line in body),
                ]
        for number, lines in enumerate(self.quiet):
            self.mine += ["@action(n=nodes)", f"def quiet{number}(self, n):", *(f"    {line}" for line in lines)]
        if self.int(0, 3) == 0:
            for into in (self.other, self.mine):
                into += ["@initial", "def start(self):", f"    self.set_x(one_of(({self.int(0, 1)}, 3)))"]
        self.mine.append(f"refined: Any = refines(Other, {{{', '.join(self.mapping)}}})")
        lines = [PRELUDE, "hub = ModelValue('hub')", "class Other(Protocol):", *(f"    {line}" for line in self.other)]
        return Pair("\n".join([*lines, "class P(Protocol):", *(f"    {line}" for line in self.mine)]) + "\n")


@st.composite
def pairs(draw: Any) -> Pair:
    """A random pair of protocols."""
    return _Writer(lambda low, high: int(draw(st.integers(low, high)))).write()


def seeded(seed: int) -> Pair:
    """The random pair of ``seed``. Unlike Hypothesis', these are evenly distributed."""
    return _Writer(random.Random(seed).randint).write()


# -- brute force ------------------------------------------------------------------------------------------------------


def mapped(protocol: Protocol, other: Protocol, row: Row) -> Row:
    """The state of the other protocol that a state maps to. The accessors assign all of it anew."""
    cursor, into = brute._Cursor(row, ()), brute._Cursor(Row({}), ())
    mine: Any = protocol.bound_to(cursor)
    its: Any = other.bound_to(into)
    its.set_x(mine.get_x())
    if hasattr(type(its), "get_a"):
        for n in mine.nodes:
            its.set_a(n, mine.get_a(n))
            its.set_b(n, mine.get_b(n))
    if hasattr(type(its), "get_t"):
        for k in (0, 1):
            its.set_t(k, mine.get_t(k))
    held = dict(into.held)
    for slot, value in row.held.values():
        if slot.path[0] == "net":
            path, told = tuple(map(as_notes, slot.path)), as_notes(value)
            held[tag(path)] = (Slot(path, slot.default), told)
    return Row(held)


def as_notes(thing: Any) -> Any:
    """A part of the network's state, with each letter replaced by its note."""
    scope = getattr(thing, "__module__", None)
    if isinstance(thing, type):
        return NOTES[0] if thing.__name__ == "Letter" else thing
    if isinstance(thing, tuple):
        return tuple(map(as_notes, thing))
    if isinstance(thing, fencepost.Message) and type(thing).__name__ == "Letter":
        assert scope is not None
        return NOTES[0](thing.text)  # type: ignore[attr-defined]
    if isinstance(thing, frozenset):
        return frozenset(map(as_notes, thing))
    if isinstance(thing, fencepost.Map):
        return fencepost.Map({as_notes(k): v for k, v in thing.items()})
    return thing


NOTES: list[Any] = []
"""The class of notes of the current pair."""


def others(other: Protocol, row: Row) -> Iterator[Row]:
    """The successors of a state of the other protocol."""
    for declared in other.declared("action"):
        for parameters in declared.parameters(other):
            for _, after in brute.runs(other, declared.function, row, **parameters):
                yield after


def shortest(protocol: Protocol, cap: int) -> tuple[int | None, int]:
    """The number of states in the shortest behaviour that is not one of the other protocol, or None; and the number of
    reachable states.

    Past ``cap`` states no further level is begun, and the first number is -1.
    """
    declared: Any = protocol.declared("refinement")[0]
    other = declared.other()
    NOTES[:] = [kind for shape in other.shapes.values() for kind in getattr(shape, "routes", ())]
    setups = protocol.declared("initial")
    level = [row for _, row in brute.runs(protocol, setups[0].function, Row({}))] if setups else [Row({})]
    begins = other.declared("initial")
    starts = {row.key for _, row in brute.runs(other, begins[0].function, Row({}))} if begins else {Row({}).key}
    found = {row.key for row in level}
    if any(mapped(protocol, other, row).key not in starts for row in level):
        return 1, len(found)
    known: dict[Any, set[Any]] = {}
    depth = 1
    while level:
        if len(found) > cap:
            return -1, len(found)
        following = []
        broken = False
        for row in level:
            before = mapped(protocol, other, row)
            for _declared in protocol.declared("action"):
                for parameters in _declared.parameters(protocol):
                    for _, after in brute.runs(protocol, _declared.function, row, **parameters):
                        then = mapped(protocol, other, after).key
                        if then != before.key:
                            if before.key not in known:
                                known[before.key] = {one.key for one in others(other, before)}
                            broken = broken or then not in known[before.key]
                        if after.key not in found:
                            found.add(after.key)
                            following.append(after)
        depth += 1
        if broken:
            return depth, len(found)
        level = following
    return None, len(found)
