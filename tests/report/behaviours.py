"""Behaviours for tests: scripted ones, so that the expected text can be written down, and random walks."""

from __future__ import annotations

import random
from collections.abc import Sequence

from fencepost import (
    Message,
    ModelValue,
    Network,
    Protocol,
    Trace,
    action,
    initial,
    invariant,
    model_values,
    network,
    one_of,
    require,
    state,
)
from fencepost.behaviours import replay
from fencepost.language.values import show
from fencepost.semantics import Stepper

Script = Sequence[str | tuple[str, tuple[str, ...]]]
"""The titles of steps, each alone or with its choices as they are shown."""


def follow(protocol: Protocol, script: Script) -> Trace:
    """The behaviour along a script."""
    stepper = Stepper(protocol)
    start = stepper.initial_states()[0]
    ids, path = start.ids, []
    for entry in script:
        title, chosen = (entry, None) if isinstance(entry, str) else entry
        root = next(r for r in stepper.roots if r.title == title)
        outcomes = stepper.outcomes(root, ids)
        fitting = [o for o in outcomes if chosen is None or tuple(show(c).strip("'") for c in o.labels) == chosen]
        assert len(fitting) == 1, f"{title}: {len(fitting)} of {[o.labels for o in outcomes]} fit"
        path.append((root.index, fitting[0].choices))
        ids = stepper.apply(ids, fitting[0])
    return replay(stepper, start, path)


def wander(protocol: Protocol, seed: int, steps: int = 25) -> Trace:
    """A random behaviour of at most ``steps`` steps."""
    stepper, chance = Stepper(protocol), random.Random(seed)
    start = stepper.initial_states()[0]
    ids, path = start.ids, []
    for _ in range(steps):
        possible = [(r, o) for r in stepper.of_kind("action") for o in stepper.outcomes(r, ids)]
        if not possible:
            break
        root, outcome = chance.choice(possible)
        path.append((root.index, outcome.choices))
        ids = stepper.apply(ids, outcome)
    return replay(stepper, start, path)


class Parcel(Message):
    number: int


class Post(Protocol):
    """What the small ledger lacks: a parcel under way from the start, copies, connections that are cut, parcels to
    oneself.
    """

    houses: tuple[ModelValue, ...] = model_values("h", 2)
    box: frozenset[int] = state(frozenset(), held_by="post office")
    network: Network = network({Parcel: (houses, houses)}, duplicates=False, can_be_cut=True)

    @initial
    def one_is_under_way(self) -> None:
        self.network.send(Parcel(0), self.houses[0], self.houses[1])

    @action(source=houses, dest=houses)
    def send(self, source: ModelValue, dest: ModelValue) -> None:
        self.network.send(Parcel(one_of((1, 2))), source, dest)

    @action(dest=houses)
    def receive(self, dest: ModelValue) -> None:
        source = one_of(self.houses)
        parcel = self.network.receive(Parcel, to=dest, source=source)
        self.box |= {parcel.message.number}

    @action
    def cut(self) -> None:
        require(self.network.connected(*self.houses))
        self.network.cut(*self.houses)

    @action
    def heal(self) -> None:
        require(not self.network.connected(*self.houses))
        self.network.heal(*self.houses)

    @invariant
    def few_arrive(self) -> bool:
        return len(self.box) < 2
