"""Behaviours from a table of states: every transition, or the paths to a sample of states."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from fencepost.errors import OptionError, SystemFailure
from fencepost.ledger.rules.protections import Protections
from fencepost.protocols.store.store import Store as Protocol
from fencepost.states.manifest import StateSpace
from fencepost.testing.store.driver import Driver
from fencepost.testing.walk import DriveResult, Edge, Part, drive_part

MOST = 1_000_000
"""The maximum number of transitions that one process drives. Spark drives more."""

DRIVEN = "store"
"""The protocol whose actions are those of the roles."""


def opened(directory: str, protocol: str = DRIVEN) -> StateSpace:
    """The state space to drive the roles along.

    Raises :class:`OptionError` if it is not of the protocol ``store``, and :class:`fencepost.SystemFailure` if there
    is none.
    """
    if protocol != DRIVEN:
        raise OptionError(
            f"there are no roles of {protocol}: drive {DRIVEN}, which refines bookkeeper and has the steps of the roles"
        )
    space = StateSpace(directory)
    if space.manifest.protocol != DRIVEN:
        raise OptionError(
            f"{directory} is of {space.manifest.protocol}, of which there are no roles: "
            f"fencepost check {DRIVEN} --states DIR --edges makes a table of {DRIVEN}"
        )
    return space


def protocol_of(space: StateSpace) -> Protocol:
    """The protocol that was explored. Raises :class:`fencepost.SystemFailure` if it has changed since."""
    protocol = space.protocol()
    if not isinstance(protocol, Protocol):
        raise SystemFailure(f"{space.directory} is of a copy of {DRIVEN}: check {DRIVEN} itself, by its name")
    return protocol


def must_have_edges(space: StateSpace) -> None:
    """Raise :class:`OptionError` if a table was written without its steps."""
    if space.manifest.edges is None:
        raise OptionError(
            f"{space.directory} holds no steps, so that there is no telling every transition: write them with "
            "fencepost check --states DIR --edges, or drive a sample"
        )


def ranks(fingerprints: Any, seed: int) -> Any:
    """A number for each state that depends on the seed: the states with the least are the sample. (The finaliser of
    SplitMix64.)"""
    with np.errstate(over="ignore"):
        x = np.asarray(fingerprints).astype(np.int64).view(np.uint64) + np.uint64(0x9E3779B97F4A7C15) * np.uint64(
            2 * seed + 1
        )
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


class Tree:
    """The states of a table, each with the step by which it was discovered."""

    def __init__(self, space: StateSpace) -> None:
        table = space.dataset("states").to_table(["fingerprint", "parent", "action", "parameters"])
        fingerprints = table["fingerprint"].to_numpy()
        self.order = np.argsort(fingerprints)
        self.fingerprints = fingerprints[self.order]
        self._table = table.combine_chunks().select(["parent", "action", "parameters"])
        self.over: dict[int, Edge] = {}
        """Steps that lead to a state instead of the one by which it was discovered."""

    def steps(self, states: Iterable[int]) -> list[Edge]:
        """The last steps of the paths to these states."""
        wanted = sorted(set(states))
        if not wanted:
            return []
        place = np.searchsorted(self.fingerprints, np.array(wanted, np.int64))
        found = self._table.take(self.order[place]).to_pylist()
        steps = [
            Edge(row["parent"], row["action"], row["parameters"], state)
            for state, row in zip(wanted, found, strict=True)
            if row["parent"] is not None
        ]
        return [self.over.get(edge.target, edge) for edge in steps]

    def ways(self, states: Iterable[int]) -> list[Edge]:
        """All steps of the paths to these states."""
        return ways(self.steps, states)


def ways(steps: Any, states: Iterable[int]) -> list[Edge]:
    """The steps of the paths to some states; ``steps`` gives the last ones."""
    found: dict[int, Edge] = {}
    frontier = set(states)
    while frontier:
        last = steps(frontier)
        found |= {edge.target: edge for edge in last}
        frontier = {edge.source for edge in last} - found.keys()
    return [*found.values()]


def all_edges(space: StateSpace) -> list[Edge]:
    """Every step of a table between two of its states. Raises :class:`OptionError` if it has none, or too many for
    this process."""
    must_have_edges(space)
    edges = space.manifest.edges
    if edges is not None and edges > MOST:
        raise OptionError(
            f"{space.directory} holds {edges:,} steps: more than {MOST:,} are driven on Spark (master), "
            "or drive a sample"
        )
    table = space.dataset("edges").to_table(["source", "action", "parameters", "target"])
    return list(map(Edge, *(table[name].to_pylist() for name in Edge._fields)))


def every_transition(space: StateSpace, protections: Protections | None = None) -> DriveResult:
    """Drive every transition of a table, in this process."""
    driver, tree = Driver(protocol_of(space), protections), Tree(space)
    inside = set(tree.fingerprints.tolist())
    edges = [edge for edge in all_edges(space) if edge.target in inside]
    result = drive_part(driver, Part.of(edges, tree.steps(inside)))
    return with_other_ways(driver, result, edges, tree)


def with_other_ways(driver: Driver, result: DriveResult, edges: Iterable[Edge], tree: Any) -> DriveResult:
    """Drive the transitions from unreached states by other paths, while there are any. ``edges``: at least those from
    and to unreached states.
    """
    edges = list(edges)
    while result.unreached:
        unreached = result.unreached
        others: dict[int, Edge] = {}
        for edge in edges:
            if edge.target in unreached and edge.source not in unreached and edge not in result.failed:
                others[edge.target] = min(edge, others.get(edge.target, edge))
        if not others:
            break
        tree.over |= others
        steps = [*tree.ways(edge.source for edge in others.values()), *tree.steps(unreached)]
        again = drive_part(driver, Part.of([edge for edge in edges if edge.source in unreached], steps))
        result.unreached, result.beyond = set(), 0
        result.add(again)
        if again.unreached == unreached:
            break
    return result


def sample(space: StateSpace, count: int, seed: int, protections: Protections | None = None) -> DriveResult:
    """Drive the paths to a number of states of a table that a seed chooses, in this process."""
    driver, tree = Driver(protocol_of(space), protections), Tree(space)
    chosen = tree.fingerprints[np.argsort(ranks(tree.fingerprints, seed))[:count]]
    return along(driver, tree.ways(chosen.tolist()))


def along(driver: Driver, steps: list[Edge]) -> DriveResult:
    """Drive the steps of a tree."""
    return drive_part(driver, Part.of(steps, steps))


def must_have_driven(result: DriveResult) -> None:
    """Raise :class:`fencepost.SystemFailure` if no transition was driven."""
    if not result.covered and not result.differing:
        raise SystemFailure("no transition was driven: the table holds none that the roles take")
