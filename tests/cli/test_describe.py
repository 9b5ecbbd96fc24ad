"""``fencepost list`` and ``fencepost show``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli.commandline import Ran

from fencepost.language import loading
from fencepost.language.protocol import constants_of
from fencepost.language.values import ModelValue, Set
from fencepost.report.describe import constant_text, listing

Run = Callable[..., Ran]

EVERYTHING = '''
from __future__ import annotations
import enum
from fencepost import *

class Status(enum.Enum):
    IDLE = 1
    BUSY = 2

class Node(Record):
    """What a node knows.

    Not shown."""
    status: Status = Status.IDLE
    seen: frozenset[int] = frozenset()

class Ping(Message):
    n: int

class Everything(Protocol):
    """All there is, see :meth:`tick`.

    With ``two`` paragraphs."""

    name = "all-of-it"
    nodes: tuple[ModelValue, ...] = model_values("n", 2, "who takes part")
    client: tuple[ModelValue, ...] = model_values("c", ["cl"])
    lossy: bool = constant(False, "whether messages are lost")
    status: Status = constant(Status.BUSY)

    node: PerKey[ModelValue, Node] = per_key(nodes, Node)
    votes: Table[int, int] = table()
    leader: ModelValue | None = state(None, held_by="store")
    network: Network = network({Ping: (client, nodes)}, lossy=lossy, once=True)

    configurations = {"broken": configuration("dull", lossy=True, nodes=3, doc="loses things")}

    @initial
    def begin(self):
        """A leader there is."""
        self.leader = self.nodes[0]

    @action(n=nodes, k=(1, 2))
    def tick(self, n, k):
        """Time goes by."""

    @action(n=lambda p: p.nodes[:1], by="store")
    def elect(self, n):
        """Somebody leads."""

    @action
    def wait(self):
        pass

    @invariant(b=nodes)
    def dull(self, b):
        """Nothing happens."""
        return True

    @invariant(when=lambda p: p.lossy)
    def lossy_only(self):
        return True

    @step_invariant
    def onward(self, after):
        """Never back."""
        return True

    @constraint
    def bound(self):
        """Not too far."""
        return True

    @step_constraint
    def step_bound(self, after):
        return True

    @assumption
    def sane(self):
        return True

    @view
    def seen(self):
        return self.leader
'''

SHOWN = """\
all-of-it
  All there is, see tick.
  With two paragraphs.

Constants (-D NAME=VALUE)
  nodes = n1,n2
      set of model values: their number, or their names (n1,n2)
      who takes part
  client = cl
      set of model values: their number, or their names (c1,c2)
  lossy = false
      true or false
      whether messages are lost
  status = BUSY
      one of IDLE, BUSY

Variables
  node: PerKey[ModelValue, Node]
      for each of nodes
      Node(status, seen)
      What a node knows.
  votes: Table[int, int]
  leader: ModelValue | None = None   (held by store)
  network: Network
      Ping(n): from client to nodes
      lossy if lossy, once

Initial state
  begin
      A leader there is.

Actions
  tick(n of nodes, k of {1, 2})   by n
      Time goes by.
  elect(n of (computed))   by store
      Somebody leads.
  wait

Assumptions
  sane

State constraints
  bound
      Not too far.

Step constraints
  step_bound

Invariants
  dull(b of nodes)
      Nothing happens.
  lossy_only   (off here; --invariant turns it on)

Step invariants
  onward
      Never back.

View
  seen

Configurations (--config NAME)
  broken
      violates dull
      lossy=true, nodes=3
      loses things
"""


def test_show_tells_everything_that_is_declared(here: Run, tmp_path: Path) -> None:
    (tmp_path / "everything.py").write_text(EVERYTHING)
    ran = here("show", "everything.py")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == SHOWN


def test_show_without_any_docstring(here: Run, tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(
        "from fencepost import *\nclass P(Protocol):\n    n = state(0)\n    @action\n    def go(self): pass\n"
    )
    assert here("show", "p.py").out == "p\n\nVariables\n  n = 0\n\nActions\n  go\n"


def test_list_has_a_line_for_each_protocol_and_each_configuration(
    here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "everything.py").write_text(EVERYTHING)
    ours = {"counter": loading.load("counter.py"), "all-of-it": loading.load("everything.py")}
    monkeypatch.setattr(loading, "SHIPPED", ours)
    monkeypatch.setattr(loading, "load", ours.__getitem__)
    ran = here("list")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        "counter: Counts up to a limit.\n"
        "    small       holds                two steps\n"
        "    broken      violates never_five\n"
        "    wrong       violates never_five\n"
        "    surprising  holds\n"
        "all-of-it: All there is, see tick.\n"
        "    broken  violates dull  loses things\n"
    )


def test_every_shipped_protocol_is_listed_and_can_be_shown(here: Run) -> None:
    listed = here("list").out
    for name in loading.SHIPPED:
        assert f"{name}: " in f"\n{listed}"
        shown = here("show", name)
        assert (shown.code, shown.err) == (0, "")
        assert shown.out.startswith(f"{name}\n")
        for declared in loading.load(name).declared("action"):
            assert f"\n  {declared.name}" in shown.out
        assert max(map(len, shown.out.splitlines())) <= 120


@pytest.mark.parametrize("name", ["nodes", "lossy", "status"])
def test_a_default_that_is_shown_can_be_typed(here: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / "everything.py").write_text(EVERYTHING)
    protocol = loading.load("everything.py")
    default = constants_of(protocol)[name].default
    assert loading.configured(protocol, None, [f"{name}={constant_text(default)}"]).constants[name] == default


def test_constants_as_they_are_typed() -> None:
    assert constant_text((ModelValue("b1"), ModelValue("b2", 1))) == "b1,b2"
    assert constant_text(Set({2, 1})) == "1,2"
    assert constant_text(True) == "true"
    assert constant_text("text") == "text"


def test_a_list_fits_into_a_terminal() -> None:
    ours = [(name, loading.load(name)) for name in loading.SHIPPED]
    for width in (60, 80, 110):
        assert max(map(len, listing(ours, width).splitlines())) <= width
    assert "".join(listing(ours, 80).split()) == "".join(listing(ours).split())
