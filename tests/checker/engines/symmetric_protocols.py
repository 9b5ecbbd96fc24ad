"""Small random protocols whose nodes are alike: no action or property singles one out.

As in `random_protocols`, a protocol is Python source. States hold model values in every way: as keys of a ``per_key``,
of tables and of maps, in sets, tuples, records and messages, and at the ends of channels and connections.
"""

from __future__ import annotations

import random

from checker.engines.random_protocols import RandomProtocol

HEADER = """
class Seen(Record):
    by: Any = None
    count: int = 0

class M(Message):
    x: int = 0
    about: Any = None

class P(Protocol):
    nodes: Any = model_values('n', {nodes}, symmetric=True)
    cell: Any = per_key(nodes, 0)
    pair: Any = per_key(nodes, per_key(nodes, False))
    seen: Any = state(Seen)
    last: Any = state(Map())
    chief: Any = state(None)
    group: Any = state(frozenset())
    queue: Any = state(())
    log: Any = table()
    net: Any = network({{M: (nodes, nodes)}}, {flags})
"""

NUMBERS = (
    "0", "1", "2",
    "{s}.cell[n]", "{s}.cell[m]", "sum({s}.cell.values())", "sum(c == 1 for c in {s}.cell.values())",
    "int({s}.pair[n][m])", "sum({s}.pair[n].values())",
    "{s}.seen.count", "int({s}.seen.by == n)", "int({s}.seen.by is None)",
    "{s}.last.get(n, 0)", "len({s}.last)",
    "int({s}.chief == n)", "int({s}.chief is None)", "({s}.cell[{s}.chief] if {s}.chief else 0)",
    "len({s}.group)", "int(n in {s}.group)",
    "len({s}.queue)", "int({s}.queue[-1:] == (n,))",
    "len({s}.log)", "{s}.log.get(n, 0)",
    "len({s}.net.in_flight(M, n, m))", "int({s}.net.is_known(M(0, n), m, n))", "int({s}.net.connected(n, m))",
)  # fmt: skip
"""Conditions on a state ``{s}`` and the nodes ``n`` and ``m``."""

STEPS = (
    "self.cell[n] = ({e}) % 3", "self.cell[m] = (self.cell[m] + 1) % 2", "self.cell[n] = one_of((0, 1, ({e}) % 3))",
    "self.pair[n][m] = not self.pair[n][m]", "self.pair[m][n] = ({e}) == 1",
    "self.seen = Seen(n, ({e}) % 2)", "self.seen.by = one_of((None, *self.nodes))",
    "self.last = self.last.set(n, ({e}) % 2)", "self.last = self.last.without(m)",
    "self.chief = n", "self.chief = None", "self.chief = one_of(self.nodes)",
    "self.group ^= {{n}}", "self.group = one_of(subsets(self.nodes, 1))", "self.group |= {{m}}",
    "self.queue = (*self.queue, n)[-2:]", "self.queue = self.queue[1:]",
    "self.log[n] = ({e}) % 2", "self.log[m] = 1",
    "self.net.send(M(({e}) % 2, n), n, m)", "self.net.send_all([(M(0), o) for o in self.nodes if o != n], n)",
    "got = self.net.receive(M, to=n); self.cell[n] = got.message.x; self.seen.by = got.message.about",
    "self.net.receive(M, source=n, to=m)", "self.net.forget_lost(M, n, m)",
    "require(n != m); self.net.{cut}(n, m)",
)  # fmt: skip

STARTS = ("", "", "self.chief = self.nodes[0]", "self.chief = one_of(self.nodes)", "self.cell[self.nodes[-1]] = 1")
"""Initial states. They may single a node out: states reached from one node are images of those reached from another.
"""


def symmetric(seed: int, nodes: int = 3) -> RandomProtocol:
    """The random symmetric protocol of ``seed``."""
    draw = random.Random(seed)

    flags = [f for f in ("lossy", "once", "remember", "ordered", "can_be_cut") if draw.random() < 0.4]
    cuts = "can_be_cut" in flags
    numbers = [text for text in NUMBERS if cuts or "connected(" not in text]
    steps = [text for text in STEPS if cuts or "{cut}" not in text]

    def condition(state: str) -> str:
        one, other = (draw.choice(numbers).format(s=state) for _ in range(2))
        first = f"{one} {draw.choice(('==', '!=', '<', '>='))} {other}"
        return first if draw.random() < 0.6 else f"({first} {draw.choice(('and', 'or'))} {condition(state)})"

    def step() -> str:
        number = draw.choice(numbers).format(s="self")
        return draw.choice(steps).format(e=number, cut=draw.choice(("cut", "heal", "drop")))

    def method(decorator: str, name: str, arguments: str, body: list[str]) -> list[str]:
        return [f"    @{decorator}", f"    def {name}(self{arguments}):", *(f"        {line}" for line in body)]

    lines = HEADER.format(nodes=nodes, flags=", ".join(f"{f}=True" for f in flags)).splitlines()
    start = draw.choice(STARTS)
    if start:
        lines += method("initial", "start", "", [start])
    for a in range(draw.randint(2, 4)):
        body = [step() for _ in range(draw.randint(1, 2))]
        if draw.random() < 0.6:
            body.insert(draw.randint(0, len(body)), f"require({condition('self')})")
        lines += method("action(n=nodes, m=nodes)", f"a{a}", ", n, m", body)
    for kind, most in (("invariant", 2), ("constraint", 1), ("step_invariant", 1), ("step_constraint", 1)):
        for i in range(draw.randint(0, most)):
            stepwise = kind.startswith("step")
            test = condition("after" if stepwise else "self")
            if stepwise or draw.random() < 0.7:
                test += f" or {condition('self')} or {condition('self')}"
            if kind.endswith("constraint"):  # a constraint has no parameters
                result = [f"return all({test} for n in self.nodes for m in self.nodes)"]
                lines += method(kind, f"{kind}{i}", ", after" * stepwise, result)
            else:
                lines += method(
                    f"{kind}(n=nodes, m=nodes)", f"{kind}{i}", ", after" * stepwise + ", n, m", [f"return {test}"]
                )
                if not stepwise:
                    lines += method("sometimes(n=nodes, m=nodes)", f"sometimes{i}", ", n, m", [f"return not ({test})"])
    return RandomProtocol("\n".join(lines) + "\n")
