"""A protocol with every construct of the language passes mypy in strict mode."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli.commandline import environment
from patience import PATIENCE

AUTHORS = '''
"""A protocol with every construct of the language."""

import enum
from typing import Any

from fencepost import (
    Map, Message, ModelValue, Network, PerKey, Protocol, Record, Table, action, always_eventually, assumption,
    canonical, check, configuration, constant, constraint, eventually_always, initial, invariant, leads_to,
    model_values, network, one_of, per_key, require, state, step_constraint, step_invariant, strong, subsets, table,
    view, weak,
)


class Phase(enum.Enum):
    IDLE = 0
    BUSY = 1


class Ask(Message):
    what: int


class Told(Message):
    topic = "what"
    what: int
    by: ModelValue | None = None


class Server(Record):
    phase: Phase = Phase.IDLE
    log: tuple[int, ...] = ()
    seen: Table[int, str] = table()


class Base(Protocol):
    """All of it."""

    name = "all-of-it"
    servers = model_values("s", 2, "who serves", symmetric=True)
    clients: tuple[ModelValue, ...] = model_values("c", ["ada", "bob"])
    most: int = constant(3, "how many")
    lossy: bool = constant(False)
    sizes: frozenset[int] = constant(frozenset({1, 2}))

    server: PerKey[ModelValue, Server] = per_key(servers, Server)
    leader: ModelValue | None = state(None)
    votes: Table[ModelValue, int] = table()
    acks: frozenset[ModelValue] = state(frozenset())
    known: Map[int, str] = state(Map())
    net: Network = network({Ask: (clients, servers), Told: (servers, clients)}, lossy=lossy)

    configurations = {"default": configuration(), "wide": configuration("small", doc="more", most=5)}

    @initial
    def begin(self) -> None:
        self.leader = one_of((None, self.servers[0]))

    @action
    def idle(self) -> None:
        require(self.leader is None)
        self.leader = one_of(self.servers)

    @action(c=clients, s=servers, n=lambda p: range(p.most), by="c")
    def ask(self, c: ModelValue, s: ModelValue, n: int) -> None:
        require(self.server[s].phase is Phase.IDLE)
        self.net.send(Ask(what=n), c, s)
        self.server[s].log += (n,)
        self.server[s].seen[n] = "x"
        self.votes[s] = self.votes.get(s, 0) + 1
        if self.votes.get(c) is None and c in self.votes:
            del self.votes[c]
        self.acks |= {s}
        self.known = self.known.set(n, "y")

    @action(s=servers)
    def serve(self, s: ModelValue) -> None:
        got = self.net.receive(Ask, to=s)
        self.server[s].phase = Phase.BUSY
        self.net.send(Told(what=got.message.what), s, got.source)

    @invariant
    def small(self) -> bool:
        return all(self.votes[s] <= self.most for s in self.votes) and len(subsets(self.acks, 1)) < 9

    @invariant(s=servers, when=lambda p: p.lossy)
    def each(self, s: ModelValue) -> bool:
        return len(self.server[s].log) <= len(canonical(self.servers)) + 9

    @step_invariant
    def grows(self, after: "Base") -> bool:
        return len(after.acks) >= len(self.acks)

    @always_eventually
    def again(self) -> bool:
        return self.leader is None

    @eventually_always(s=servers)
    def at_last(self, s: ModelValue) -> bool:
        return s in self.acks

    @leads_to
    def answered(self) -> tuple[bool, bool]:
        return bool(self.acks), not self.acks

    @constraint
    def within(self) -> bool:
        return len(self.known) < 3

    @step_constraint
    def steps(self, after: "Base") -> bool:
        return after.leader is not None

    @assumption
    def some(self) -> bool:
        return self.most > 0

    @view
    def seen_from_afar(self) -> Any:
        return self.leader, self.acks

    fairness = [weak(idle), strong(ask, per=("c",))]


class Variant(Base):
    """With another fairness, and more of it."""

    fairness = [*Base.fairness, weak(Base.serve), weak(per=())]


class Unfair(Variant):
    fairness = []
    name = "unfair"
    configurations = {**Base.configurations, "more": configuration(most=1)}


def test() -> None:
    check(Base(most=2), deadlock=True).must_hold()
    trace = check(Variant, configuration="wide", constants={"most": 2}).must_violate("small")
    print(len(trace), check("bookkeeper-4.13").verdict)
'''


@pytest.mark.campaign
def test_an_authors_file_is_clean_under_strict_mypy(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "author.py").write_text(AUTHORS)
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = true\nfollow_imports_for_stubs = true\n")
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", os.devnull, "author.py"],
        cwd=tmp_path,
        env=environment(MYPYPATH=environment()["PYTHONPATH"]),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
