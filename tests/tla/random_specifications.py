"""Random specifications in TLA+, one for each seed.

They use what lazy evaluation, layouts and universes depend on: sets of records that grow and shrink, bags, sequences,
nested records, values that come in two kinds, choices among members, quantifiers over them, primed variables, and
definitions that read the state. They are well-typed, so that nearly all have an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

CONFIG = "CONSTANTS Node = {n1, n2} Nil = Nil\nINIT Init\nNEXT Next\nCONSTRAINT Small\nCHECK_DEADLOCK FALSE\n"


@dataclass(frozen=True)
class Names:
    """The names that an expression may use: those of nodes, of messages, and the variables that are primed already."""

    nodes: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    primed: tuple[str, ...] = ()


KINDS = {
    "count": ("count = 0", "count \\in 0..2"),
    "rank": ("rank = [k \\in Node |-> 0]", "rank \\in [Node -> 0..2]"),
    "msgs": ("msgs = {}", "msgs \\subseteq Message"),
    "bag": ("bag = <<>>", "\\A m \\in DOMAIN bag : m \\in Message /\\ bag[m] \\in 0..2"),
    "queue": ("queue = <<>>", "Len(queue) <= 2"),
    "seen": ("seen = {}", "seen \\subseteq Node"),
    "peer": ("peer = [k \\in Node |-> [at |-> 0, met |-> {}]]", "peer \\in [Node -> [at : 0..2, met : SUBSET Node]]"),
    "last": ("last = Nil", "last = Nil \\/ last.n \\in 0..2"),
}
"""Each variable with its initial value, and what is always true of it."""


class Writer:
    """Writes one specification."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.variables = self.random.sample(list(KINDS), self.random.randint(2, 4))
        if not {"msgs", "bag", "peer"} & set(self.variables):
            self.variables.append(self.random.choice(["msgs", "bag"]))
        self._number = 0
        self._has_busy = False

    def any_of(self, *writers: Callable[[], str]) -> str:
        return self.random.choice(writers)()

    def fresh(self, text: str) -> str:
        self._number += 1
        return f"{text}{self._number}"

    def has(self, *variables: str) -> bool:
        return any(each in self.variables for each in variables)

    def read(self, variable: str, names: Names) -> str:
        return f"{variable}'" if variable in names.primed and self.random.random() < 0.6 else variable

    # -- expressions --------------------------------------------------------------------------------------------------

    def node(self, names: Names) -> str:
        known = [*names.nodes, *(f"{each}.from" for each in names.messages)]
        if known and self.random.random() < 0.9:
            return self.random.choice(known)
        return "(CHOOSE k \\in Node : TRUE)"

    def number(self, names: Names, depth: int = 2) -> str:
        """A number from 0 to 2, or a little more."""
        found: list[Callable[[], str]] = [lambda: str(self.random.randint(0, 2))]
        found += [lambda: f"{self.random.choice(names.messages)}.n"] * (2 if names.messages else 0)
        if self.has("count"):
            found.append(lambda: self.read("count", names))
        if self.has("rank"):
            found.append(lambda: f"{self.read('rank', names)}[{self.node(names)}]")
        if self.has("queue"):
            found.append(lambda: f"Len({self.read('queue', names)})")
        if self.has("peer"):
            found.append(lambda: f"{self.read('peer', names)}[{self.node(names)}].at")
        if depth:
            found.append(lambda: f"Cardinality({self.nodes(names, depth - 1)})")
            found.append(
                lambda: f"(IF {self.truth(names, depth - 1)} THEN {self.number(names, 0)} ELSE {self.number(names, 0)})"
            )
            if self.has("msgs", "bag"):
                found.append(lambda: f"(Cardinality({self.messages(names, depth - 1)}) % 3)")
        return self.any_of(*found)

    def nodes(self, names: Names, depth: int = 2) -> str:
        """A set of nodes."""
        found: list[Callable[[], str]] = [lambda: "Node", lambda: f"{{{self.node(names)}}}", lambda: "{}"]
        if self.has("seen"):
            found += [lambda: self.read("seen", names)] * 2
        if self.has("peer"):
            found.append(lambda: f"{self.read('peer', names)}[{self.node(names)}].met")
        if depth:
            operator = self.random.choice(["\\cup", "\\cap", "\\"])
            found += [lambda: f"({self.nodes(names, 0)} {operator} {self.nodes(names, 0)})"] * 3
            found.append(lambda: self.filtered("Node", names, depth - 1))
            if self.has("msgs", "bag"):
                found.append(lambda: f"{{m.from : m \\in {self.messages(names, depth - 1)}}}")
                found.append(lambda: "Busy" if self._has_busy else "{}")
        return self.any_of(*found)

    def filtered(self, of: str, names: Names, depth: int) -> str:
        name = self.fresh("k")
        return f"{{{name} \\in {of} : {self.truth(replace(names, nodes=(*names.nodes, name)), depth)}}}"

    def stored(self, names: Names) -> str:
        """The messages that lie in a variable."""
        known = [f"DOMAIN {self.read('bag', names)}"] if self.has("bag") else []
        known += [self.read("msgs", names)] * 2 if self.has("msgs") else []
        return self.random.choice(known)

    def messages(self, names: Names, depth: int = 1) -> str:
        """A set of messages."""
        found: list[Callable[[], str]] = [lambda: self.stored(names)]
        if depth:
            name = self.fresh("m")
            inner = replace(names, messages=(*names.messages, name))
            found.append(lambda: f"{{{name} \\in {self.stored(names)} : {self.about(inner, name, depth - 1)}}}")
            found.append(lambda: f"({self.stored(names)} \\cup {{{self.message(names)}}})")
            found.append(lambda: f"({self.stored(names)} \\ {{{self.message(names)}}})")
        return self.any_of(*found)

    def message(self, names: Names) -> str:
        kind = self.random.choice(["ask", "tell"])
        return f'[type |-> "{kind}", from |-> {self.node(names)}, n |-> {self.number(names, 0)} % 3]'

    def about(self, names: Names, message: str, depth: int) -> str:
        """A condition on a message, with its kind or without, before or after the rest."""
        parts = [self.truth(names, depth)]
        if self.random.random() < 0.7:
            kind = f'{message}.type = "{self.random.choice(["ask", "tell"])}"'
            parts.insert(self.random.randint(0, 1), kind)
        return " /\\ ".join(f"({each})" for each in parts)

    def truth(self, names: Names, depth: int = 2) -> str:
        found: list[Callable[[], str]] = [
            lambda: f"{self.number(names, 0)} {self.random.choice(['<', '<=', '=', '#'])} {self.number(names, depth)}",
            lambda: f"{self.node(names)} \\in {self.nodes(names, depth)}",
            lambda: f"{self.nodes(names, 0)} {self.random.choice(['=', '#'])} {self.nodes(names, depth)}",
            lambda: f"{self.nodes(names, 0)} \\subseteq {self.nodes(names, depth)}",
        ]
        if self.has("last"):
            last = self.read("last", names)
            found.append(lambda: f"{last} = Nil")
            found.append(lambda: f"({last} # Nil /\\ {last}.n < {self.number(names, 0)})")
        if self.has("queue"):
            queue = self.read("queue", names)
            found.append(lambda: f"({queue} # <<>> /\\ Head({queue}) = {self.number(names, 0)})")
        if self.has("msgs", "bag"):
            found.append(lambda: f"{self.message(names)} \\in {self.messages(names, 0)}")
            found.append(lambda: f"{self.messages(names, 0)} {self.random.choice(['=', '#'])} {{}}")
        if self.has("bag"):
            found.append(lambda: "(\\E b \\in DOMAIN bag : bag[b] > 0)")
        if depth:
            found += [lambda: self.joined(names, depth - 1)] * 2
            found += [lambda: self.quantified(names, depth - 1)] * 2
            found.append(lambda: f"~({self.truth(names, depth - 1)})")
        return self.any_of(*found)

    def joined(self, names: Names, depth: int) -> str:
        operator = self.random.choice(["/\\", "/\\", "\\/", "=>"])
        return f"(({self.truth(names, depth)}) {operator} ({self.truth(names, depth)}))"

    def quantified(self, names: Names, depth: int) -> str:
        quantifier = self.random.choice(["\\E", "\\A"])
        if not self.has("msgs", "bag") or self.random.random() < 0.4:
            name = self.fresh("k")
            body = self.truth(replace(names, nodes=(*names.nodes, name)), depth)
            return f"({quantifier} {name} \\in {self.random.choice(['Node', self.nodes(names, 1)])} : {body})"
        name, other = self.fresh("m"), self.fresh("m")
        if self.random.random() < 0.3:
            inner = replace(names, messages=(*names.messages, name, other))
            return f"({quantifier} {name}, {other} \\in {self.stored(names)} : {self.about(inner, name, depth)})"
        inner = replace(names, messages=(*names.messages, name))
        return f"({quantifier} {name} \\in {self.messages(names, 1)} : {self.about(inner, name, depth)})"

    # -- actions ------------------------------------------------------------------------------------------------------

    def action(self, name: str) -> str:
        names = Names(nodes=("self",))
        is_free = name == "A0"  # so that there are some steps
        parts = [self.truth(names) for _ in range(0 if is_free else self.random.choice([0, 0, 1, 2]))]
        taken = ""
        if not is_free and self.has("msgs", "bag") and self.random.random() < 0.5:
            taken = self.fresh("m")
            parts.append(f'{taken}.type = "{self.random.choice(["ask", "tell"])}"')
            names = replace(names, messages=(taken,))
            parts += [self.truth(names, 1)] * self.random.randint(0, 1)
        most = 1 if is_free else min(3, len(self.variables))
        changed = self.random.sample(self.variables, self.random.randint(1, most))
        for variable in changed:
            parts.append(self.update(variable, names))
            names = replace(names, primed=(*names.primed, variable))
        if not is_free and self.random.random() < 0.15:
            parts.append(self.truth(names, 1))
        kept = [each for each in self.variables if each not in changed]
        if kept:
            parts.append(f"UNCHANGED <<{', '.join(kept)}>>")
        lines = "\n".join(f"  /\\ {each}" for each in parts)
        of = f"\\E {taken} \\in {self.stored(Names(nodes=('self',)))} :\n" if taken else "\n"
        return f"{name}(self) == {of}{lines}"

    def update(self, variable: str, names: Names) -> str:
        return self.any_of(*getattr(self, f"_{variable}")(names))

    def _count(self, names: Names) -> Sequence[Callable[[], str]]:
        return (
            lambda: f"count' = {self.number(names)} % 3",
            lambda: f"count' \\in {{0, {self.number(names)} % 3}}",
            lambda: f"(count' = (count + 1) % 3 \\/ (({self.truth(names, 1)}) /\\ count' = 0))",
        )

    def _rank(self, names: Names) -> Sequence[Callable[[], str]]:
        return (
            lambda: f"rank' = [rank EXCEPT ![{self.node(names)}] = (@ + 1) % 3]",
            lambda: f"rank' = [rank EXCEPT ![{self.node(names)}] = {self.number(names)} % 3]",
            lambda: f"rank' = [k \\in Node |-> IF k \\in {self.nodes(names)} THEN 0 ELSE rank[k]]",
        )

    def _msgs(self, names: Names) -> Sequence[Callable[[], str]]:
        taken = names.messages[:1] or (self.message(names),)
        return (
            lambda: f"msgs' = msgs \\cup {{{self.message(names)}}}",
            lambda: f"msgs' = (msgs \\ {{{taken[0]}}}) \\cup {{{self.message(names)}}}",
            lambda: f"msgs' = msgs \\ {{{taken[0]}}}",
            lambda: f"msgs' = {{e \\in msgs : {self.about(replace(names, messages=('e',)), 'e', 1)}}}",
        )

    def _bag(self, names: Names) -> Sequence[Callable[[], str]]:
        return (
            lambda: f"bag' = Put(bag, {self.message(names)})",
            lambda: f"bag' = Put(Clear(bag, {self.message(names)}), {self.message(names)})",
            lambda: (
                "bag' = [e \\in DOMAIN bag |-> IF "
                f"{self.about(replace(names, messages=('e',)), 'e', 1)} THEN 0 ELSE bag[e]]"
            ),
        )

    def _queue(self, names: Names) -> Sequence[Callable[[], str]]:
        add = f"Append(queue, {self.number(names)} % 3)"
        return (
            lambda: f"queue' = IF Len(queue) < 2 THEN {add} ELSE Tail(queue)",
            lambda: f"(Len(queue) < 2 /\\ queue' = {add})",
            lambda: "(queue # <<>> /\\ queue' = SubSeq(queue, 2, Len(queue)))",
        )

    def _seen(self, names: Names) -> Sequence[Callable[[], str]]:
        return (
            lambda: f"seen' = {self.nodes(names)}",
            lambda: f"seen' = seen \\cup {{{self.node(names)}}}",
            lambda: "seen' \\in SUBSET seen",
        )

    def _peer(self, names: Names) -> Sequence[Callable[[], str]]:
        at = self.node(names)
        return (
            lambda: f"peer' = [peer EXCEPT ![{at}].at = (@ + 1) % 3]",
            lambda: f"peer' = [peer EXCEPT ![{at}] = [at |-> {self.number(names)} % 3, met |-> {self.nodes(names)}]]",
            lambda: f"peer' = [peer EXCEPT ![{at}].met = @ \\cup {self.nodes(names)}, ![{at}].at = 0]",
        )

    def _last(self, names: Names) -> Sequence[Callable[[], str]]:
        return (
            lambda: f"last' = IF last = Nil THEN [n |-> {self.number(names)} % 3] ELSE Nil",
            lambda: f"last' \\in {{Nil, [n |-> {self.number(names)} % 3]}}",
        )

    def judged(self) -> str:
        """An invariant. Most are true in many states."""
        names = Names(nodes=("self",))
        found = f"({self.truth(names)} /\\ {self.truth(names)}) => {self.truth(names)}"
        return f"\\A self \\in Node : {found}"

    # -- the whole ----------------------------------------------------------------------------------------------------

    def write(self) -> tuple[str, str]:
        """The text of the module and of its configuration."""
        initial = {each: KINDS[each][0] for each in self.variables}
        if "msgs" in initial and self.random.random() < 0.5:
            initial["msgs"] = 'msgs = {[type |-> "ask", from |-> k, n |-> 0] : k \\in Node}'
        small = [f"Cardinality({each}) <= 3" for each in ("msgs", "DOMAIN bag") if self.has(each.split()[-1])]
        definitions = []
        if self.has("msgs", "bag") and self.random.random() < 0.7:
            definitions.append(f"Busy == {{m.from : m \\in {self.messages(Names())}}}")
            self._has_busy = True
        actions = [self.action(f"A{number}") for number in range(self.random.randint(2, 4))]
        judged = [self.judged() for _ in range(2)]
        steps = ["\\E self \\in Node : " + " \\/ ".join(f"A{n}(self)" for n in range(len(actions)))]
        lines = [
            "---- MODULE Spec ----",
            "EXTENDS Naturals, FiniteSets, Sequences, TLC",
            "CONSTANTS Node, Nil",
            f"VARIABLES {', '.join(self.variables)}",
            'Message == [type : {"ask", "tell"}, from : Node, n : 0..2]',
            "Put(f, m) == IF m \\in DOMAIN f THEN [f EXCEPT ![m] = (@ + 1) % 3] ELSE f @@ (m :> 1)",
            "Clear(f, m) == IF m \\in DOMAIN f THEN [f EXCEPT ![m] = 0] ELSE f",
            *definitions,
            *actions,
            "Init == " + " /\\ ".join(initial.values()),
            f"Next == {steps[0]}",
            "TypeOK == " + " /\\ ".join(f"({KINDS[each][1]})" for each in self.variables),
            "Small == " + (" /\\ ".join(small) or "TRUE"),
            *(f"Judged{number} == {each}" for number, each in enumerate(judged)),
            "====",
        ]
        return "\n".join(lines) + "\n", CONFIG + "INVARIANTS TypeOK Judged0 Judged1\n"


def seeded(seed: int) -> tuple[str, str]:
    """The module and the configuration of a seed."""
    return Writer(seed).write()
