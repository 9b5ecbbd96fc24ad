"""Random protocols of processes that mostly mind their own business, so that a partial order reduction has something to
leave out. They have cycles, dead ends, shared variables and messages that wait for others.
"""

from __future__ import annotations

import random

from checker.engines.random_protocols import RandomProtocol

MOST_PLACES = 4


def loose(seed: int) -> RandomProtocol:
    """The random protocol of ``seed``."""
    pick = random.Random(seed)
    processes, shared = pick.randint(2, 4), pick.randint(1, 3)
    body = [f"p{i}: Any = state(0)" for i in range(processes)] + [f"x{i}: Any = state(0)" for i in range(shared)]
    for process in range(processes):
        places = pick.randint(2, MOST_PLACES)
        for number in range(places + pick.randint(-1, 1)):
            place = number % places
            body += ["@action", f"def a{process}_{number}(self):", f"    require(self.p{process} == {place})"]
            if pick.random() < 0.3:
                body.append(f"    require(self.{_part(pick, processes, shared)} {pick.choice(('==', '!='))} 1)")
            onwards = (place + 1) % places if pick.random() < 0.7 else pick.randrange(places)
            if pick.random() < 0.2:
                body.append(f"    self.p{process} = one_of(({onwards}, {pick.randrange(places)}))")
            else:
                body.append(f"    self.p{process} = {onwards}")
            if pick.random() < 0.25:
                variable = f"self.x{pick.randrange(shared)}"
                body.append(f"    {variable} = {pick.choice(('0', '1', '1', f'1 - {variable}'))}")
    for number in range(pick.randint(0, 2)):
        parts = [f"self.{_part(pick, processes, shared)} == {pick.randint(0, 2)}" for _ in range(pick.randint(1, 3))]
        body += ["@invariant", f"def i{number}(self):", f"    return not ({' and '.join(parts)})"]
        body += ["@sometimes", f"def s{number}(self):", f"    return {' and '.join(reversed(parts))}"]
    return RandomProtocol("\n".join(["class P(Protocol):", *("    " + line for line in body)]) + "\n")


def _part(pick: random.Random, processes: int, shared: int) -> str:
    return f"p{pick.randrange(processes)}" if pick.random() < 0.4 else f"x{pick.randrange(shared)}"


def without_limits(protocol: RandomProtocol) -> RandomProtocol:
    """The protocol without what a partial order reduction refuses: constraints, step properties and views."""
    kept, skips = [], False
    for line in protocol.source.splitlines():
        if not line.startswith("     "):
            skips = line.startswith(("    @constraint", "    @step_", "    @view")) or (
                skips and line.startswith("    def ")
            )
        if not skips:
            kept.append(line)
    return RandomProtocol("\n".join(kept) + "\n")
