"""The visited part of a state space, computed the plain way: table rows as Python objects, one state after another."""

from __future__ import annotations

from random import Random
from typing import Any

from fencepost.states.manifest import StateSpace
from fencepost.traces.validation.space_coverage import MOST_UNVISITED, Visit, Visited


def ways(space: StateSpace) -> list[Visit]:
    """All steps in the table."""
    if space.manifest.edges is not None:
        rows = space.dataset("edges").to_table().to_pylist()
        return [(row["source"], row["target"], row["action"], row["parameters"]) for row in rows]
    rows = space.dataset("states").to_table().to_pylist()
    return [
        (row["parent"], row["fingerprint"], row["action"], row["parameters"])
        for row in rows
        if row["parent"] is not None
    ]


def walked(space: StateSpace, seed: int, walks: int, length: int) -> Visited:
    """The states and steps that some random walks visit."""
    rows = space.dataset("states").to_table(["fingerprint", "parent"]).to_pylist()
    out: dict[int, list[Visit]] = {}
    for way in ways(space):
        out.setdefault(way[0], []).append(way)
    random, visited = Random(seed), Visited(walks + 1, walks)
    for _ in range(walks):
        state = random.choice([row["fingerprint"] for row in rows if row["parent"] is None])
        visited.states.add(state)
        for _ in range(length):
            if state not in out:
                break
            way = random.choice(out[state])
            state = way[1]
            visited.states.add(state)
            visited.steps.add(way)
    return visited


def plain(space: StateSpace, visited: Visited, most: int = MOST_UNVISITED) -> dict[str, Any]:
    """The numbers of :class:`fencepost.traces.validation.space_coverage.SpaceCoverage`."""
    rows = space.dataset("states").to_table(["fingerprint", "depth", "parent"]).to_pylist()
    depth = {row["fingerprint"]: row["depth"] for row in rows}
    steps = ways(space)
    levels: dict[int, list[int]] = {}
    for state, level in depth.items():
        counts = levels.setdefault(level, [0, 0])
        counts[0] += 1
        counts[1] += state in visited.states
    anywhere = {step[2:] for step in visited.steps}
    actions: dict[str, list[int]] = {}
    for label in {step[2:] for step in steps}:
        counts = actions.setdefault(label[0], [0, 0, 0, 0])
        some = [step for step in steps if step[2:] == label]
        for place, count in enumerate((1, label in anywhere, len(some), sum(step in visited.steps for step in some))):
            counts[place] += count
    # The number of steps from the visited states to each state.
    distance = {state: 0 for state in depth if state in visited.states}
    at = 0
    while at <= len(depth):
        beyond = [target for source, target, *_ in steps if distance.get(source) == at and target in depth]
        if at == 0:
            beyond += [row["fingerprint"] for row in rows if row["parent"] is None]
        for state in beyond:
            distance.setdefault(state, at + 1)
        at += 1
    best: dict[tuple[str, ...], tuple[Any, ...]] = {}
    for step in steps:
        source, target = step[:2]
        label = step[2:]
        elsewhere = label in anywhere
        if step in visited.steps or target not in depth or source not in distance or (elsewhere and distance[source]):
            continue
        found = (elsewhere, distance[source] + 1, depth[target], target, *label)
        best[label] = min(best.get(label, found), found)
    never = [
        (d, action, parameters, e, target, level)
        for e, d, level, target, action, parameters in sorted(best.values())[:most]
    ]
    return {
        "traces": visited.traces,
        "fitting": visited.fitting,
        "states": len(depth),
        "visited": len(visited.states & depth.keys()),
        "steps": space.manifest.edges,
        "taken": sum(counts[3] for counts in actions.values()) if space.manifest.edges is not None else 0,
        "levels": [(level, *levels[level]) for level in sorted(levels)],
        "actions": [(action, *actions[action]) for action in sorted(actions)],
        "never": never,
    }
