"""Small random protocols, as Python source. When a test fails, the source that Hypothesis prints can be pasted into a
file and run.

Every cell of the state has a small domain of values. Expressions work on the index of a value in its domain. So any
expression can be written to any cell, and every state space is finite, except that a network with duplicates can resend
a message without end. Explore those to a depth.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import hypothesis.strategies as st

import fencepost
from fencepost import Protocol, one_of, require

DOMAINS = (
    "(0, 1)",
    "(0, 1, 2)",
    "(0, 1, 2, 3)",
    "(False, True)",
    "(0, True, 1.0, '1')",
    "(None, 'a', 'b')",
    "((), (0,), (0, 0))",
    "(frozenset(), frozenset({0}), frozenset({0, 'a'}))",
)
KEYS = tuple(d for d in DOMAINS if "True, 1.0" not in d)
"""Values without pairs that are equal in Python, such as True and 1.0: a table takes those for one key."""

HEADER = "nodes: Any = model_values('n', 2)"


def rank(domain: tuple[Any, ...], value: Any) -> int:
    """The index of a value in its domain. 1, 1.0 and True have different indexes."""
    for place, known in enumerate(domain):
        if known == value and isinstance(value, type(known)):  # sets come back as fencepost's own class
            return place
    raise AssertionError(f"{value!r} is not in {domain!r}")


@dataclass(frozen=True)
class RandomProtocol:
    """A protocol's source. ``sound_view``: the view, if any, hides only what nothing depends on."""

    source: str
    has_view: bool = False
    sound_view: bool = True

    def build(self) -> Protocol:
        """An instance of the protocol."""
        scope: dict[str, Any] = {n: getattr(fencepost, n) for n in fencepost.__all__} | {
            "Any": Any,
            "rank": rank,
            "one_of": one_of,
            "require": require,
            "__name__": __name__,
        }
        exec(compile(self.source, "<random protocol>", "exec", dont_inherit=True), scope)
        protocol: Protocol = scope["P"]()
        return protocol

    def __repr__(self) -> str:
        return "\n" + self.source


@dataclass(frozen=True)
class Cell:
    """A cell as actions write it, with ``{s}`` for the state and ``{n}`` for a node, and the name of its domain."""

    path: str
    domain: str


class _Writer:
    """Draws one protocol. ``between`` draws an integer from a range, both ends included."""

    def __init__(
        self, between: Callable[[int, int], int], sound_view: bool, large: bool = False, temporal: bool = False
    ) -> None:
        self.int = between
        self.large = large
        self.temporal = temporal
        self.sound_view = sound_view
        self.classes: list[str] = []
        self.body: list[str] = [HEADER]
        self.cells: list[Cell] = []
        self.tables: list[tuple[str, str, str]] = []
        self.variables: list[str] = []
        self.network: list[str] | None = None
        self.records = 0

    def flag(self) -> bool:
        return bool(self.int(0, 1))

    def pick(self, options: Any) -> Any:
        return options[self.int(0, len(options) - 1)]

    # -- the state ----------------------------------------------------------------------------------------------------

    def domain(self, domains: tuple[str, ...] = DOMAINS) -> str:
        name = f"D{sum(line.startswith('D') for line in self.classes)}"
        self.classes.append(f"{name} = {self.pick(domains)}")
        return name

    def record(self, path: str) -> str:
        name = f"R{self.records}"
        self.records += 1
        nested = self.pick((None, None, None, "record", "per_key"))
        inner = self.record(path + ".inner") if nested == "record" else None
        # Inner classes are drawn first, so that they are defined first.
        lines = []
        for f in range(self.int(1, 2)):
            domain = self.domain()
            lines.append(f"    f{f}: Any = {domain}[0]")
            self.cells.append(Cell(f"{path}.f{f}", domain))
        if inner is not None:
            lines.append(f"    inner: {inner} = {inner}()")
        if nested == "per_key":
            domain = self.domain()
            lines.append(f"    by_node: Any = per_key(lambda p: p.nodes, {domain}[0])")
            self.cells.append(Cell(f"{path}.by_node[{{n}}]", domain))
        self.classes += [f"class {name}(Record):", *lines]
        return name

    def variable(self) -> None:
        name = f"v{len(self.variables)}"
        self.variables.append(name)
        kind = self.pick(("plain", "plain", "record", "per_key", "per_key", "table"))
        if kind == "plain":
            domain = self.domain()
            self.body.append(f"{name}: Any = state({domain}[0])")
            self.cells.append(Cell(f"{{s}}.{name}", domain))
        elif kind == "record":
            self.body.append(f"{name}: Any = state({self.record(f'{{s}}.{name}')})")
        elif kind == "per_key":
            path = f"{{s}}.{name}[{{n}}]"
            if self.flag():
                element = self.record(path)
            else:
                domain = self.domain()
                element = f"{domain}[0]"
                self.cells.append(Cell(path, domain))
            self.body.append(f"{name}: Any = per_key(nodes, {element})")
        else:
            keys, values = self.domain(KEYS), self.domain()
            initial = f"{{{keys}[0]: {values}[0]}}" if self.flag() else ""
            self.body.append(f"{name}: Any = table({initial})")
            self.tables.append((f"{{s}}.{name}", keys, values))

    def net(self) -> None:
        flags = [f for f in ("lossy", "once", "duplicates", "remember", "ordered", "can_be_cut") if self.int(0, 2) == 0]
        self.network = flags
        settings = [f"{f}=True" for f in flags] + ["timeouts=False"] * (self.int(0, 3) == 0)
        kinds = ["M", "N"][: self.int(1, 2)]
        for kind in kinds:
            self.classes += [f"class {kind}(Message):", "    x: int = 0"]
        routes = ", ".join(f"{kind}: (nodes, nodes)" for kind in kinds)
        self.body.append(f"net: Any = network({{{routes}}}, {', '.join(settings)})")
        self.kinds = kinds
        self.variables.append("net")

    # -- expressions --------------------------------------------------------------------------------------------------

    def node(self, parametric: bool) -> str:
        return str(self.pick(("n", "n", "{c}.nodes[0]") if parametric else ("{c}.nodes[0]", "{c}.nodes[1]")))

    def spell(self, path: str, s: str, parametric: bool) -> str:
        return path.replace("{s}", s).replace("{n}", self.node(parametric)).replace("{c}", "self")

    def read(self, s: str, parametric: bool) -> str:
        kind = self.pick(("cell",) * 6 + ("table", "net"))
        if kind == "table" and self.tables:
            path, keys, values = self.pick(self.tables)
            path = path.replace("{s}", s)
            return str(
                self.pick(
                    (f"len({path})", f"int({keys}[0] in {path})", f"sum(rank({values}, v) for v in {path}.values())")
                )
            )
        if kind == "net" and self.network is not None:
            a, b = (self.pick(("self.nodes[0]", "self.nodes[1]")) for _ in "ab")
            what, kind = self.pick(("in_flight", "lost", "is_known")), self.pick(self.kinds)
            if what == "is_known":
                return f"int({s}.net.is_known({kind}({self.int(0, 1)}), {a}, {b}))"
            return f"len({s}.net.{what}({kind}, {a}, {b}))"
        if not self.cells:
            return "0"
        cell = self.pick(self.cells)
        return f"rank({cell.domain}, {self.spell(cell.path, s, parametric)})"

    def number(self, s: str, parametric: bool, names: list[str], depth: int = 0) -> str:
        kind = self.pick(
            ("constant", "read", "read", "read", "name", "sum", "if") if depth < 2 else ("constant", "read")
        )
        if kind == "name" and names:
            return str(self.pick(names))
        if kind == "sum":
            return f"({self.number(s, parametric, names, depth + 1)} + {self.number(s, parametric, names, depth + 1)})"
        if kind == "if":
            one, other = self.number(s, parametric, names, depth + 1), self.number(s, parametric, names, depth + 1)
            return f"({one} if {self.condition(s, parametric, names, depth + 1)} else {other})"
        return self.read(s, parametric) if kind != "constant" else str(self.int(0, 3))

    def condition(self, s: str, parametric: bool, names: list[str], depth: int = 0) -> str:
        kind = self.pick(("==", "!=", "<", "and", "or", "not") if depth < 2 else ("==", "!=", "<"))
        if kind in ("and", "or"):
            one, other = (
                self.condition(s, parametric, names, depth + 1),
                self.condition(s, parametric, names, depth + 1),
            )
            return f"({one} {kind} {other})"
        if kind == "not":
            return f"not ({self.condition(s, parametric, names, depth + 1)})"
        one = self.number(s, parametric, names, depth + 1) if self.int(0, 2) == 0 else self.read(s, parametric)
        other = self.pick(("0", "1", "2", "3", "read"))
        return f"{one} {kind} {self.read(s, parametric) if other == 'read' else other}"

    # -- statements ---------------------------------------------------------------------------------------------------

    def block(self, parametric: bool, names: list[str], indent: str, length: int, depth: int = 0) -> list[str]:
        lines: list[str] = []
        for _ in range(length):
            lines += [indent + line for line in self.statement(parametric, names, depth)]
        return lines or [indent + "pass"]

    def statement(self, parametric: bool, names: list[str], depth: int) -> list[str]:
        kinds = ["require", "write", "write", "write", "choose"]
        kinds += ["if"] if depth < 1 else []
        kinds += ["table"] if self.tables else []
        kinds += ["net", "net"] if self.network is not None else []
        kind = self.pick(kinds)

        def number() -> str:
            return self.number("self", parametric, names)

        def condition() -> str:
            return self.condition("self", parametric, names)

        if kind == "require":
            return [f"require({condition()})"]
        if kind == "choose":
            options = self.pick(("(0, 1)", "(0, 1, 2)", "[1, 0, 0]", "range", "where", "set"))
            if options == "range":
                options = f"range(({number()}) % 4)"
            elif options == "where":
                options = f"[i for i in (2, 1, 0) if {self.condition('self', parametric, [*names, 'i'])}]"
            elif options == "set":
                options = f"frozenset({{1, {number()}}})"
            name = f"c{len(names)}"
            line = f"{name} = one_of({options})"
            names.append(name)
            return [line]
        if kind == "if":
            # A variable chosen inside a branch is undefined after it.
            then = self.block(parametric, list(names), "    ", self.int(1, 2), depth + 1)
            other = self.block(parametric, list(names), "    ", self.int(1, 2), depth + 1) if self.flag() else []
            return [f"if {condition()}:", *then, *(["else:", *other] if other else [])]
        if kind == "table":
            path, keys, values = self.pick(self.tables)
            table = path.replace("{s}", "self")
            key = f"{keys}[({number()}) % len({keys})]"
            if self.int(0, 2) == 0:
                return [f"k = {key}", f"if k in {table}:", f"    del {table}[k]"]
            return [f"{table}[{key}] = {values}[({number()}) % len({values})]"]
        if kind == "net":
            return self.talk(parametric, names)
        if not self.cells:
            return ["pass"]
        cell = self.pick(self.cells)
        return [f"{self.spell(cell.path, 'self', parametric)} = {cell.domain}[({number()}) % len({cell.domain})]"]

    def advance(self, parametric: bool) -> list[str]:
        """Advance some cell, so that there are new states."""
        if not self.cells:
            return self.statement(parametric, [], 1)
        cell = self.pick(self.cells)
        path = self.spell(cell.path, "self", parametric)
        step = self.pick(("1", "1", "one_of((1, 2))", "one_of((0, 1))"))
        return [f"{path} = {cell.domain}[(rank({cell.domain}, {path}) + {step}) % len({cell.domain})]"]

    def talk(self, parametric: bool, names: list[str]) -> list[str]:
        ways = ["send", "send", "receive", "receive", "send_all", "forget_lost"]
        ways += ["cut", "heal", "drop"] if "can_be_cut" in (self.network or ()) else []
        way, kind = self.pick(ways), self.pick(self.kinds)
        here, there = ("self.nodes[0]", "self.nodes[1]") if self.flag() else ("self.nodes[1]", "self.nodes[0]")
        if parametric and self.flag():
            here, there = "n", "next(m for m in self.nodes if m != n)"
        number = self.number("self", parametric, names)
        if way in ("send", "receive", "forget_lost") and self.int(0, 5) == 0:
            there = here
        if way == "send":
            return [f"self.net.send({kind}(({number}) % 2), {here}, {there})"]
        if way == "send_all":
            return [f"self.net.send_all([({kind}(({number}) % 2), m) for m in self.nodes if m != {here}], {here})"]
        if way == "receive":
            name = f"e{len(names)}"
            extra = self.pick(("", f", source={there}", ", where=lambda m: m.x == 0"))
            line = f"{name} = self.net.receive({kind}, to={here}{extra})"
            names.append(f"{name}.message.x")
            return [line]
        if way == "forget_lost":
            return [f"self.net.forget_lost({kind}, {here}, {there})"]
        return [f"self.net.{way}({here}, {there})"]

    # -- the protocol -------------------------------------------------------------------------------------------------

    def method(self, decorator: str, name: str, arguments: str, lines: list[str]) -> None:
        self.body += [f"@{decorator}", f"def {name}(self{arguments}):", *("    " + line for line in lines)]

    def write(self) -> RandomProtocol:
        for _ in range(self.int(3, 5) if self.large else self.int(1, 4)):
            self.variable()
        if self.int(0, 2) == 0:
            self.net()
        view = None if self.temporal else self.pick((None, None, None, "select", "compute"))
        ghost = view is not None and self.sound_view
        if self.int(0, 3) == 0:
            lines = [*self.block(False, [], "", 1), *self.advance(False)] if self.flag() else self.advance(False)
            self.method("initial", "start", "", lines)
        actions = []
        for a in range(self.int(4, 6) if self.large else self.int(1, 4)):
            parametric = self.flag()
            lines = self.advance(parametric) if self.int(0, 3) or self.large else []
            lines = [*self.block(parametric, [], "", self.int(0, 3)), *lines]
            if ghost:
                lines.append(f"self.ghost = ({self.number('self', parametric, [])} + {a}) % 3")
            self.method("action(n=nodes)" if parametric else "action", f"a{a}", ", n" if parametric else "", lines)
            actions.append((f"a{a}", parametric))
        if self.temporal:
            self.expectations(actions)
        for kind, most in (("invariant", 2), ("constraint", 1), ("step_invariant", 1), ("step_constraint", 1)):
            if self.temporal and kind.endswith("invariant"):
                continue  # liveness is not judged after a violated one
            for i in range(self.int(0, most)):
                stepwise = kind.startswith("step")
                each = kind.endswith("invariant") and self.int(0, 2) == 0
                if stepwise and self.flag():
                    parts = [f"{self.read('after', each)} != {self.int(0, 3)}"]
                else:
                    parts = [self.condition("after" if stepwise else "self", each, [])]
                    # Mostly true: a protocol that stops at once tests nothing.
                    if self.int(0, 2):
                        parts.append(self.condition("self", each, [], 1))
                    parts.append(f"{self.read('self', each)} != {self.int(1, 2)}")
                arguments = (", after" if stepwise else "") + (", n" if each else "")
                self.method(
                    f"{kind}(n=nodes)" if each else kind, f"{kind}{i}", arguments, [f"return {' or '.join(parts)}"]
                )
                if kind == "invariant":
                    self.method(
                        "sometimes(n=nodes)" if each else "sometimes",
                        f"sometimes{i}",
                        arguments,
                        [f"return not ({' or '.join(parts)})"],
                    )
        if ghost:
            self.body.insert(1, "ghost: Any = state(0)")
        if view is not None:
            shown = self.variables if self.sound_view else [v for v in self.variables if self.flag()]
            picks = ", ".join(f"self.{v}" for v in shown) + ("," if len(shown) == 1 else "")
            extra = f" + ({self.number('self', False, [])} % 2,)" if not self.sound_view else " + ()"
            self.method("view", "seen", "", [f"return ({picks})" + (extra if view == "compute" else "")])
        body = ["    " + line for line in self.body]
        return RandomProtocol(
            "\n".join([*self.classes, "class P(Protocol):", *body]) + "\n", view is not None, self.sound_view
        )

    def expectations(self, actions: list[tuple[str, bool]]) -> None:
        """Temporal properties and fairness."""
        for i in range(self.int(1, 3)):
            kind, each = self.pick(("always_eventually", "eventually_always", "leads_to")), self.flag()
            what = self.condition("self", each, [])
            if kind == "leads_to":
                what += f", {self.condition('self', each, [])}"
            self.method(f"{kind}(n=nodes)" if each else kind, f"{kind}{i}", ", n" if each else "", [f"return {what}"])
        demands = []
        for _ in range(self.int(0, 3)):
            name, parametric = self.pick(actions)
            per = self.pick(("", ", per=()", ", per=('n',)" if parametric else ""))
            demands.append(f"{self.pick(('weak', 'weak', 'strong'))}({name}{per})")
        if self.flag():
            demands.append("weak(per=())")
        self.body.append(f"fairness: Any = ({', '.join([*demands, ''])})".replace("(, )", "()"))


@st.composite
def protocols(draw: Any, sound_view: bool = True) -> RandomProtocol:
    """A random protocol; with ``sound_view=False`` views may hide what actions and properties depend on."""
    return _Writer(lambda low, high: int(draw(st.integers(low, high))), sound_view).write()


def seeded(seed: int, sound_view: bool = True, large: bool = False, temporal: bool = False) -> RandomProtocol:
    """The random protocol of ``seed``. Unlike Hypothesis', these are evenly distributed. ``large`` ones have thousands
    of states; ``temporal`` ones temporal properties and fairness, and neither invariants nor a view.
    """
    return _Writer(random.Random(seed).randint, sound_view, large, temporal).write()


def reduced(protocol: RandomProtocol, fails: Callable[[RandomProtocol], object]) -> RandomProtocol:
    """A smaller protocol that also ``fails``: lines are left out for as long as it does."""
    lines = protocol.source.splitlines()
    size = len(lines) // 2
    while size:
        at = 0
        while at < len(lines):
            fewer = lines[:at] + lines[at + size :]
            smaller = replace(protocol, source="\n".join(fewer) + "\n")
            try:
                smaller.build()
                failing = fails(smaller)
            except Exception:
                failing = False
            if failing:
                lines = fewer
            else:
                at += 1
        size //= 2
    return replace(protocol, source="\n".join(lines) + "\n")
