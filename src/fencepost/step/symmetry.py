"""Symmetry: states that differ only in who is who, taken for one.

A protocol declares of a constant that its members are alike (``model_values(..., symmetric=True)``). A permutation of them then
takes reachable steps to steps and keeps what properties say, so of all states that permutations take to each other, an **orbit**,
it is enough to explore one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from copy import copy

from fencepost.errors import NotAProtocol, OptionError, ProtocolRaised
from fencepost.spec.context import Slot
from fencepost.spec.protocol import TEMPORAL, Protocol, Symmetric, _unknown
from fencepost.spec.values import ModelValue, Value, encode, model_values_in, permute
from fencepost.step.recorder import PROPERTIES, STEP_PROPERTIES, Root, Stepper
from fencepost.step.state import LOW, State, content_hash

MAX_PERMUTATIONS = 5_040
"""The most permutations by which states are reduced: those of seven members."""

VERIFIED = 24
"""How many images of a state checking mode compares it with."""

Swap = Mapping[ModelValue, ModelValue]
"""A permutation: which model value stands for which; those that stay themselves are left out."""


class Symmetry:
    """The permutations of constants that were declared symmetric, and the key of each orbit.

    ``asked`` names the constants; True stands for all that are declared. ``permutations``: every one, the identity first.

    Raises :class:`fencepost.OptionError` where the reduction would not be sound: a constant that is not declared symmetric, or not in
    this configuration; members that other constants or initial values tell apart; temporal properties; a view.
    """

    def __init__(self, stepper: Stepper, asked: bool | Sequence[str]) -> None:
        protocol = stepper.protocol
        self.store = stepper.store
        self.names = _chosen(protocol, asked)
        # Two constants may have the same members.
        members = list({frozenset(protocol.constants[name]): protocol.constants[name] for name in self.names}.values())
        _refuse_what_is_lost(stepper)
        for a, b in (pair for m in members for pair in itertools.pairwise(m)):
            self._refuse_what_tells_apart({a: b, b: a})
        size = math.prod(math.factorial(len(m)) for m in members)
        if size > MAX_PERMUTATIONS:
            raise OptionError(
                f"{listed(self.names)} can be permuted in {size:,} ways, and symmetry takes at most {MAX_PERMUTATIONS:,}: "
                "give fewer members"
            )
        self.permutations: list[Swap] = [
            {old: new for old, new in zip(itertools.chain(*members), itertools.chain(*images), strict=True) if old != new}
            for images in itertools.product(*(itertools.permutations(m) for m in members))
        ]
        self._moved = frozenset(itertools.chain(*members))
        self._images: dict[tuple[int, int, int], tuple[int, int]] = {}
        # Steps that are compared were watched when they were recorded.
        self._stepper = copy(stepper)
        self._stepper.checking = False
        self._turns = itertools.cycle(range(1, size))

    # -- images of states ---------------------------------------------------------------------------------------------

    def permuted(self, ids: Sequence[int], g: int) -> tuple[int, ...]:
        """The row that permutation ``g`` takes a row to. What it holds is interned."""
        images = [self._image(g, index, number) for index, number in enumerate(ids) if number]
        row = [0] * len(self.store.slots)
        for index, number in images:
            row[index] = number
        return self.store.normal(row)

    def _image(self, g: int, index: int, number: int) -> tuple[int, int]:
        known = self._images.get((g, index, number))
        if known is None:
            swap, slot = self.permutations[g], self.store.slots[index]
            place = self.store.slot(Slot(self._path(slot, swap), permute(slot.default, swap), constant=False))
            value = permute(self.store.values[index][number], swap)
            known = self._images[g, index, number] = place, self.store.intern(place, value)
        return known

    def _path(self, slot: Slot, swap: Swap) -> tuple[Value, ...]:
        return self.store.protocol.shapes[slot.path[0]].permuted(slot.path, swap)

    def key(self, ids: Sequence[int]) -> int:
        """What the orbit of a row is known by: the least of its fingerprints, by their low halves first, then scattered."""
        images = (self.store.fingerprint(self.permuted(ids, g)) for g in range(len(self.permutations)))
        low, high = min((fingerprint & LOW, fingerprint >> 64) for fingerprint in images)
        return high << 64 | scattered(low)

    def hashes(self, index: int, number: int) -> list[int]:
        """For every permutation, what the image of a slot with this value adds to a fingerprint (128 bits)."""
        if not number:
            return [0] * len(self.permutations)
        slot, value = self.store.slots[index], self.store.values[index][number]
        # Permutations that agree on what stands here are many more than images.
        here = [m for m in dict.fromkeys(model_values_in((slot.path, value))) if m in self._moved]
        known: dict[tuple[ModelValue, ...], int] = {}
        found = []
        for swap in self.permutations:
            image = tuple(swap.get(m, m) for m in here)
            if image not in known:
                known[image] = content_hash(self._path(slot, swap), encode(permute(value, swap)))
            found.append(known[image])
        return found

    def alike(self, roots: Sequence[Root]) -> list[Root]:
        """For each root the first of those that permutations take it to: of the same property, for parameters that are images of its own."""
        numbers = {(r.name, encode(tuple(r.parameters.values()))): n for n, r in enumerate(roots)}
        first = list(range(len(roots)))
        # Swaps of neighbours generate all permutations, so what they connect is an orbit.
        members = [self.store.protocol.constants[name] for name in self.names]
        swaps = [{a: b, b: a} for some in members for a, b in itertools.pairwise(some)]
        for number, root in enumerate(roots):
            todo = [number] if first[number] == number else []
            while todo:
                given = tuple(roots[todo.pop()].parameters.values())
                for swap in swaps:
                    image = numbers.get((root.name, encode(permute(given, swap))), number)
                    if first[image] == image > number:
                        first[image] = number
                        todo.append(image)
        return [roots[number] for number in first]

    # -- checking mode ------------------------------------------------------------------------------------------------

    def verify(self, ids: Sequence[int]) -> None:
        """Raises :class:`fencepost.ProtocolRaised` if an action or a property tells a state from its images, of which it takes the next
        few in turn.
        """
        steps = self._steps(ids)
        for g in itertools.islice(self._turns, VERIFIED):
            image = self.permuted(ids, g)
            expected = {self.permuted(after, g): name for after, name in steps.items()}
            found = self._steps(image)
            apart = self._broken(PROPERTIES, ids) ^ self._broken(PROPERTIES, image)
            apart |= {(expected | found)[row] for row in expected.keys() ^ found.keys()}
            for after in () if apart else steps:
                there = self._broken(STEP_PROPERTIES, image, self.permuted(after, g))
                apart |= self._broken(STEP_PROPERTIES, ids, after) ^ there
            if apart:
                root = next(r for r in self._stepper.roots if r.name in apart)
                moved = self.permutations[g]
                constants = [n for n in self.names if not moved.keys().isdisjoint(self.store.protocol.constants[n])]
                raise ProtocolRaised(
                    f"{root.kind.replace('_', ' ')} {root.name} tells {listed([m.name for m in moved])} apart, although "
                    f"{listed(constants)} are declared symmetric",
                    where=root.name,
                    state=State(self.store, ids),
                )

    def _steps(self, ids: Sequence[int]) -> dict[tuple[int, ...], str]:
        """The rows that steps lead to, each with the name of an action that leads there."""
        stepper = self._stepper
        actions = stepper.of_kind("action")
        return {stepper.apply(ids, outcome): root.name for root in actions for outcome in stepper.outcomes(root, ids)}

    def _broken(self, kinds: tuple[str, ...], *rows: Sequence[int]) -> set[str]:
        """The properties of these kinds that are false of a state, or of a step."""
        return {root.name for root in self._stepper.of_kind(*kinds) if self._stepper.outcomes(root, *rows)}

    # -- refusals -----------------------------------------------------------------------------------------------------

    def _refuse_what_tells_apart(self, swap: Swap) -> None:
        """Raises if constants, or what the variables are declared with, are not the same once two members change places."""
        protocol = self.store.protocol
        cannot = f"{listed(self.names)} can not be reduced by symmetry: {' and '.join(m.name for m in swap)} are told apart by"
        for name, value in protocol.constants.items():
            image = permute(value, swap)
            if protocol._declared_constants[name].prefix is not None:
                value, image = frozenset(value), frozenset(image)
            if encode(image) != encode(value):
                raise OptionError(f"{cannot} the constant {name}")
        declared = {slot.path: slot for name, shape in protocol.shapes.items() for slot in shape.slots((name,))}
        for slot in declared.values():
            counterpart = declared.get(self._path(slot, swap))
            if counterpart is None or encode(counterpart.default) != encode(permute(slot.default, swap)):
                raise OptionError(f"{cannot} how {slot.name} is declared")


def _refuse_what_is_lost(stepper: Stepper) -> None:
    """Raises for what the states that are kept can not tell."""
    for root in stepper.of_kind(*TEMPORAL):
        raise OptionError(
            f"symmetry and the temporal property {root.name} do not go together: a path through representatives is no behaviour; "
            "name the invariants to check with --invariant"
        )
    for view in stepper.protocol.declared("view"):
        raise OptionError(f"symmetry and the view {view.name} do not go together: use one of them")


def _chosen(protocol: Protocol, asked: bool | Sequence[str]) -> tuple[str, ...]:
    """The constants that were asked for, in the order of declaration. Raises unless all are declared symmetric, and are so here."""
    declared = {n: c.symmetric for n, c in protocol._declared_constants.items() if c.symmetric is not False}
    if not declared:
        raise OptionError(f"no constant of {protocol.name} is declared symmetric (model_values(..., symmetric=True))")
    for name in () if isinstance(asked, bool) else asked:
        if name not in declared:
            raise OptionError(_unknown("symmetric constant", name, declared, protocol.name))
    names = tuple(n for n in declared if isinstance(asked, bool) or n in asked)
    for name in names:
        reason = _reason(name, declared[name], protocol)
        if reason:
            others = [n for n in names if n != name]
            hint = f" (--symmetry={','.join(others)} leaves them out)" if others else ""
            raise OptionError(f"{name} are not symmetric in this configuration: {reason}{hint}")
    return names


def _reason(name: str, symmetric: Symmetric, protocol: Protocol) -> str:
    """Why a constant is not symmetric in this configuration; empty if it is."""
    if isinstance(symmetric, bool):
        return ""
    try:
        reason = symmetric(protocol)
    except Exception as error:
        raise NotAProtocol(f"what constant {name} is declared symmetric by raised {type(error).__name__}: {error}") from error
    if not isinstance(reason, str):
        raise NotAProtocol(
            f"what constant {name} is declared symmetric by returned {reason!r}: it returns an empty text where the members are "
            "alike, else the reason why they are not"
        )
    return reason


def listed(names: Sequence[str]) -> str:
    """``bookies``, ``bookies and clients``, ``a, b and c``."""
    return " and ".join([*([", ".join(names[:-1])] if names[1:] else []), *names[-1:]])


def scattered(low: int) -> int:
    """A bijection of 64 bits, the finaliser of splitmix64. The least of many fingerprints are small, and keys must not be: owners, places
    in tables and the sort go by them as evenly distributed."""
    low = ((low ^ (low >> 30)) * 0xBF58476D1CE4E5B9) & LOW
    low = ((low ^ (low >> 27)) * 0x94D049BB133111EB) & LOW
    return low ^ (low >> 31)
