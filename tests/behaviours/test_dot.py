"""The Graphviz graph, read back, is the state space that an independent walk finds."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass, field

import pytest
from patience import PATIENCE
from report.behaviours import follow
from report.small_ledger import SmallLedger

import fencepost
from fencepost import (
    ModelValue,
    OptionError,
    Protocol,
    action,
    constant,
    constraint,
    initial,
    model_values,
    one_of,
    require,
    state,
)
from fencepost.behaviours import to_dot


class Clock(Protocol):
    """Two independent hands: nine states, eighteen steps, and one state outside."""

    hands: tuple[ModelValue, ...] = model_values("h", 2)
    limit: int = constant(2)
    label: str = state('"quoted" \\ text')
    one: int = state(0)
    two: int = state(0)

    @action
    def first(self) -> None:
        self.one = (self.one + 1) % (self.limit + 1)

    @action(h=hands)
    def second(self, h: ModelValue) -> None:
        require(self.two < self.limit or h == self.hands[1])
        self.two = (self.two + 1) % (self.limit + 1)

    @constraint
    def not_both(self) -> bool:
        return (self.one, self.two) != (2, 2)


@dataclass
class Graph:
    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    edges: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)


def read_dot(text: str) -> Graph:
    """A reader of the parts of DOT that are written."""
    graph, lines = Graph(), text.splitlines()
    assert re.fullmatch(r'digraph "(?:[^"\\]|\\.)*" \{', lines[0])
    assert lines[-1] == "}"
    attribute = r'(\w+)=("(?:[^"\\]|\\.)*"|[\w.]+)'
    for line in lines[1:-1]:
        found = re.fullmatch(rf"  (\w+)(?: -> (\w+))? \[({attribute}(?:, {attribute})*)\];", line)
        assert found, line
        attributes = {name: value.strip('"') for name, value in re.findall(attribute, found[3])}
        if found[2]:
            graph.edges.append((found[1], found[2], attributes))
        elif found[1] not in ("node", "edge"):
            graph.nodes[found[1]] = attributes
    return graph


def test_states_steps_and_labels() -> None:
    graph = read_dot(to_dot(Clock()))
    states = {(one, two) for one in range(3) for two in range(3)}
    assert len(graph.nodes) == len(states)

    def place(name: str) -> tuple[int, int]:
        label = graph.nodes[name]["label"]
        if label == "initial state":
            return 0, 0
        held = dict(part.split(" = ") for part in label.split("\\n"))
        assert set(held) <= {"one", "two"}  # only differences from the initial state
        return int(held.get("one", 0)), int(held.get("two", 0))

    assert {place(name) for name in graph.nodes} == states
    expected = set()
    for one, two in states - {(2, 2)}:
        expected.add(((one, two), ((one + 1) % 3, two), "first"))
        titles = ["second(h=h1)", "second(h=h2)"] if two < 2 else ["second(h=h2)"]
        expected |= {((one, two), (one, (two + 1) % 3), title) for title in titles}
    drawn = [(place(a), place(b), title) for a, b, at in graph.edges for title in at["label"].split("\\n")]
    assert len(drawn) == len(set(drawn))
    assert set(drawn) == expected
    dashed = {place(name) for name, at in graph.nodes.items() if "dashed" in at["style"]}
    assert dashed == {(2, 2)}
    assert not any("color" in at for at in graph.nodes.values())


def test_the_behaviour_is_red_and_nothing_else_is() -> None:
    trace = follow(Clock(), ["first", "second(h=h2)", "first", "first"])
    graph = read_dot(to_dot(Clock(), trace))
    red = [(a, b, at["label"]) for a, b, at in graph.edges if at.get("color") == "red"]
    assert sorted(title for _, _, title in red) == ["first", "first", "first", "second(h=h2)"]
    assert {n for n, at in graph.nodes.items() if at.get("color") == "red"} == {n for a, b, _ in red for n in (a, b)}
    filled = [at["label"] for at in graph.nodes.values() if "filled" in at["style"]]
    assert filled == ["two = 1"]
    # The other step between the same states keeps its own black line.
    assert ("second(h=h1)", None) in {(at["label"], at.get("color")) for _, _, at in graph.edges}


def test_as_many_states_as_the_checker_counts() -> None:
    protocol = SmallLedger(recovery_reads_fence=True)
    result = fencepost.check(protocol, engine="reference")
    graph = read_dot(to_dot(protocol))
    assert len(graph.nodes) == result.distinct_states
    titles = [title for _, _, at in graph.edges for title in at["label"].split("\\n")]
    assert {t.partition("(")[0] for t in titles} == {a.name for a in result.actions if a.taken}


class Several(Protocol):
    at: int = state(0)

    @initial
    def somewhere(self) -> None:
        self.at = one_of((0, 1, 5))

    @action
    def move(self) -> None:
        require(self.at < 2)
        self.at += 1


def test_every_initial_state_is_marked() -> None:
    graph = read_dot(to_dot(Several()))
    assert sorted(at["label"] for at in graph.nodes.values() if "penwidth" in at) == [
        "at = 1",
        "at = 5",
        "initial state",
    ]
    assert len(graph.nodes) == 4


def test_too_many_states_are_refused() -> None:
    assert len(read_dot(to_dot(Clock(), limit=9)).nodes) == 9
    with pytest.raises(OptionError, match="clock has more than 8 states with these constants, too many for a graph"):
        to_dot(Clock(), limit=8)


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_reads_it() -> None:
    text = to_dot(Clock(), follow(Clock(), ["first"]))
    plain = subprocess.run(
        ["dot", "-Tplain"], input=text, capture_output=True, text=True, check=True, timeout=PATIENCE
    ).stdout
    assert len(re.findall(r"^node ", plain, re.MULTILINE)) == 9
    assert len(re.findall(r"^edge ", plain, re.MULTILINE)) == len(read_dot(text).edges)
