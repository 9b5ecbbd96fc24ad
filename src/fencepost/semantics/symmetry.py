"""Symmetry reduction: states that differ only by a permutation of symmetric members count as one.

A protocol declares that the members of a constant are alike (``model_values(..., symmetric=True)``). Then a permutation
of them maps reachable steps to reachable steps and preserves properties. So it is enough to explore one state of each
**orbit**, a set of states that permutations map to each other.
"""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy

from fencepost.errors import NotAProtocol, OptionError, ProtocolRaised
from fencepost.language.constants import Symmetric
from fencepost.language.contents import Permutation, model_values_in, permute
from fencepost.language.context import Slot
from fencepost.language.protocol import unknown_name
from fencepost.language.seam import Model, language_of
from fencepost.language.values import ModelValue, Value, encode, full_name
from fencepost.semantics.authors import failure_text
from fencepost.semantics.labelling import MOST_MEMBERS, Labelling, Term, mixed
from fencepost.semantics.mapping import Side
from fencepost.semantics.recorder import Path, Recorder
from fencepost.semantics.refinement import Refinement
from fencepost.semantics.roots import PROPERTIES, STEP_PROPERTIES, Root
from fencepost.semantics.state import LOW, SEED, State, ValueTable, content_hash
from fencepost.semantics.stepper import Stepper

MAX_PERMUTATIONS = 720
"""The most permutations that are tried one by one: those of six members. Beyond that, a canonical labelling is
computed.
"""

SAMPLED = 1_000
"""The number of permutations that checking mode cycles through if there are too many."""

VERIFIED = 24
"""The number of images that checking mode compares with a state."""

Swap = Mapping[ModelValue, ModelValue]
"""A permutation, from model value to model value, without fixed points."""


class Symmetry:
    """The permutations of constants that were declared symmetric, and the key of each orbit.

    ``asked`` names the constants. True means all that are declared. ``size``: the number of permutations.
    ``permutations``: all of them, the identity first. Beyond :data:`MAX_PERMUTATIONS` it is a sample, and ``labelling``
    computes the keys. ``images``: the number of images of a state that are compared for its key, or 1 with a labelling.
    ``exact``: whether each orbit has had only one key so far.

    Raises :class:`fencepost.OptionError` if the reduction would not be sound: for a constant that is not declared
    symmetric, or not in this configuration; for members that other constants, initial values or a view distinguish, or
    a protocol that is refined.
    """

    def __init__(self, stepper: Stepper, asked: bool | Sequence[str]) -> None:
        protocol = stepper.protocol
        self.store = stepper.store
        self.names = _chosen(protocol, asked)
        # Two constants may have the same members.
        language = language_of(protocol)
        given = [language.members(protocol, name) for name in self.names]
        members = list({frozenset(each): each for each in given}.values())
        self._neighbours: list[Swap] = [{a: b, b: a} for m in members for a, b in itertools.pairwise(m)]
        for swap in [] if language.has_trusted_symmetry else self._neighbours:
            told_apart_by = _told_apart_by(protocol, swap)
            if told_apart_by:
                raise OptionError(
                    f"{listed(self.names)} cannot be reduced by symmetry: {_both(swap)} are told apart by"
                    f" {told_apart_by}"
                )
        for refinement in stepper.refinements.values():
            self._refuse_refinement(refinement)
        self.size = math.prod(math.factorial(len(m)) for m in members)
        self.labelling: Labelling | None = None
        if self.size > MAX_PERMUTATIONS:
            if sum(map(len, members)) > MOST_MEMBERS:
                raise OptionError(f"symmetry takes at most {MOST_MEMBERS} members of {listed(self.names)}: give fewer")
            self.labelling = Labelling(members)
        self.permutations: list[Swap] = [
            Permutation(
                {
                    old: new
                    for old, new in zip(itertools.chain(*members), itertools.chain(*images), strict=True)
                    if old != new
                }
            )
            for images in (
                itertools.product(*map(itertools.permutations, members))
                if self.labelling is None
                else _sampled(members)
            )
        ]
        self.images = len(self.permutations) if self.labelling is None else 1
        self.exact = True
        self._moved = frozenset(itertools.chain(*members))
        self._images: dict[tuple[int, int, int], tuple[int, int]] = {}
        self._packed: dict[tuple[int, int], tuple[int, int]] = {}
        self._blank = self._pack([SEED] * self.images)
        self._terms: dict[tuple[int, int], Term] = {}
        self._keys: dict[int, int] = {}
        # The steps to compare were already watched when they were recorded.
        self._stepper = copy(stepper)
        self._stepper.checking = False
        self._turns = itertools.cycle(range(1, len(self.permutations)))

    # -- images of states ---------------------------------------------------------------------------------------------

    def permuted(self, ids: Sequence[int], g: int) -> tuple[int, ...]:
        """The image of a row under permutation ``g``. Its values are interned."""
        images = dict(self._image(g, index, number) for index, number in enumerate(ids) if number)
        return _row(self.store, images)

    def _image(self, g: int, index: int, number: int) -> tuple[int, int]:
        known = self._images.get((g, index, number))
        if known is None:
            known = self._images[g, index, number] = _moved(self.store, self.permutations[g], index, number)
        return known

    def _path(self, slot: Slot, swap: Swap) -> tuple[Value, ...]:
        return _path(self.store.protocol, slot, swap)

    def _hidden(self, slot: Slot) -> bool:
        """Whether the view hides a slot. Raises if it hides only some of the slot's images."""
        visible = self.store.visible(slot.path)
        for swap in self._neighbours:
            if self.store.visible(self._path(slot, swap)) != visible:
                view = self.store.protocol.declared("view")[0].name
                raise OptionError(
                    f"{listed(self.names)} cannot be reduced by symmetry: {_both(swap)} are told apart by the view"
                    f" {view}"
                )
        return not visible

    @property
    def searched(self) -> int:
        """The number of keys that were computed, not taken from the cache."""
        return len(self._keys)

    # -- the keys of orbits -------------------------------------------------------------------------------------------

    def key(self, ids: Sequence[int]) -> int:
        """The key of a row's orbit: the least hash of its images or labellings, compared by low halves first, then
        scattered.
        """
        fingerprint = self.store.fingerprint(ids)
        known = self._keys.get(fingerprint)
        if known is None:
            parts = [(index, number) for index, number in enumerate(ids) if number]
            low, high = (
                self._least_image(parts) if self.labelling is None else self._least_labelling(self.labelling, parts)
            )
            known = self._keys[fingerprint] = high << 64 | mixed(low)
        return known

    def _least_labelling(self, labelling: Labelling, parts: list[tuple[int, int]]) -> tuple[int, int]:
        low, high, exact = labelling.least([self.term(*part) for part in parts])
        self.exact &= exact
        return low, high

    def term(self, index: int, number: int) -> Term:
        """The term of a slot with this value in the hash of a labelling. See `labelling`."""
        assert self.labelling is not None
        known = self._terms.get((index, number))
        if known is None:
            slot = self.store.slots[index]
            shape = self.store.protocol.shapes.get(slot.path[0])
            place = tuple(
                full_name(p) if isinstance(p, type) else p for p in (shape.place(slot.path) if shape else slot.path)
            )
            shown = (place, self.store.values[index][number])
            known = self._terms[index, number] = Term((), []) if self._hidden(slot) else self.labelling.term(shown)
        return known

    def _least_image(self, parts: list[tuple[int, int]]) -> tuple[int, int]:
        lows, highs = self._blank
        for part in parts:
            packed = self._packed.get(part)
            if packed is None:
                packed = self._packed[part] = self._pack(self.hashes(*part))
            lows ^= packed[0]
            highs ^= packed[1]
        low_halves = self._unpack(lows)
        least = min(low_halves)
        return least, min(high for low, high in zip(low_halves, self._unpack(highs), strict=True) if low == least)

    def _pack(self, hashes: list[int]) -> tuple[int, int]:
        """Pack the low halves of hashes into one long integer and the high halves into another, so that one operation
        combines all of them.
        """
        low, high = (
            int.from_bytes(b"".join((h >> shift & LOW).to_bytes(8, sys.byteorder) for h in hashes), sys.byteorder)
            for shift in (0, 64)
        )
        return low, high

    def _unpack(self, packed: int) -> list[int]:
        return memoryview(packed.to_bytes(8 * self.images, sys.byteorder)).cast("Q").tolist()

    def hashes(self, index: int, number: int) -> list[int]:
        """The 128-bit hashes of a slot with this value, one for the fingerprint of each image of a state."""
        slot, value = self.store.slots[index], self.store.values[index][number]
        if not number or self._hidden(slot):
            return [0] * self.images
        # Many permutations agree on the members here, so the distinct images are few.
        here = [m for m in dict.fromkeys(model_values_in((slot.path, value))) if m in self._moved]
        known: dict[tuple[ModelValue, ...], int] = {}
        result = []
        for swap in self.permutations[: self.images]:
            image = tuple(swap.get(m, m) for m in here)
            if image not in known:
                known[image] = content_hash(self._path(slot, swap), encode(permute(value, swap)))
            result.append(known[image])
        return result

    def alike(self, roots: Sequence[Root]) -> list[Root]:
        """For each root, the first root of the same property whose parameters are an image of its own."""
        numbers = {(r.name, encode(tuple(r.parameters.values()))): n for n, r in enumerate(roots)}
        first = list(range(len(roots)))
        for number, root in enumerate(roots):
            todo = [number] if first[number] == number else []
            while todo:
                given = tuple(roots[todo.pop()].parameters.values())
                # Swaps of neighbours generate all permutations, so a connected set is an orbit.
                for swap in self._neighbours:
                    image = numbers.get((root.name, encode(permute(given, swap))), number)
                    if first[image] == image > number:
                        first[image] = number
                        todo.append(image)
        return [roots[number] for number in first]

    # -- checking mode ------------------------------------------------------------------------------------------------

    def verify(self, ids: Sequence[int]) -> None:
        """Raises :class:`fencepost.ProtocolRaised` if an action or a property distinguishes a state from its images.
        Compares :data:`VERIFIED` images, the next in turn.
        """
        self.verify_mappings(ids)
        steps = self._steps(ids)
        for g in itertools.islice(self._turns, VERIFIED):
            image = self.permuted(ids, g)
            expected = {self.permuted(after, g): name for after, name in steps.items()}
            of_image = self._steps(image)
            if expected.keys() != of_image.keys() and self._unviewed(expected) == self._unviewed(of_image):
                view = self.store.protocol.declared("view")[0]
                raise self._asymmetric("view", view.name, self.permutations[g], ids)
            differing = self._broken(PROPERTIES, ids) ^ self._broken(PROPERTIES, image)
            differing |= {(expected | of_image)[row] for row in expected.keys() ^ of_image.keys()}
            for after in () if differing else steps:
                there = self._broken(STEP_PROPERTIES, image, self.permuted(after, g))
                differing |= self._broken(STEP_PROPERTIES, ids, after) ^ there
            if differing:
                root = next(r for r in self._stepper.roots if r.name in differing)
                raise self._asymmetric(root.kind.replace("_", " "), root.name, self.permutations[g], ids)

    def verify_mappings(self, ids: Sequence[int]) -> None:
        """Raises :class:`fencepost.ProtocolRaised` if the mapping of a refinement distinguishes members in a state: if
        the image of what it makes of the state is not what it makes of the image.
        """
        for refinement in self._stepper.refinements.values():
            mapped = self._mapped(refinement, ids)
            for g in itertools.islice(self._turns, min(VERIFIED, len(self.permutations) - 1)):
                swap = self.permutations[g]
                if _image(refinement.others, mapped, swap) != self._mapped(refinement, self.permuted(ids, g)):
                    raise self._asymmetric("the mapping of refinement", refinement.name, swap, ids)

    def _mapped(self, refinement: Refinement, ids: Sequence[int]) -> tuple[int, ...]:
        """The state of the other protocol that a state is mapped to."""
        name = f"the mapping of refinement {refinement.name}"
        with self._stepper.deadline.evaluating(name):
            try:
                return Side(refinement.mapping, Recorder(self.store, ids, (), Path(), lane=0)).row(ids)
            except Exception as error:
                raise ProtocolRaised(
                    f"{name}{failure_text(error)}", where=refinement.name, state=State(self.store, ids)
                ) from error

    def _asymmetric(self, kind: str, name: str, moved: Swap, ids: Sequence[int]) -> ProtocolRaised:
        of = language_of(self.store.protocol).members
        constants = [n for n in self.names if not moved.keys().isdisjoint(of(self.store.protocol, n))]
        return ProtocolRaised(
            f"{kind} {name} tells {listed([m.name for m in moved])} apart, although {listed(constants)} are declared"
            " symmetric",
            where=name,
            state=State(self.store, ids),
        )

    def _unviewed(self, rows: Iterable[Sequence[int]]) -> set[tuple[int, ...]]:
        """Rows without the slot of a computed view."""
        at = {index for index, slot in enumerate(self.store.slots) if slot.path[0] not in self.store.protocol.shapes}
        return {self.store.normal([0 if index in at else number for index, number in enumerate(row)]) for row in rows}

    def _steps(self, ids: Sequence[int]) -> dict[tuple[int, ...], str]:
        """The successors of a row, each with the name of an action that leads there."""
        stepper = self._stepper
        actions = stepper.of_kind("action")
        return {stepper.apply(ids, outcome): root.name for root in actions for outcome in stepper.outcomes(root, ids)}

    def _broken(self, kinds: tuple[str, ...], *rows: Sequence[int]) -> set[str]:
        """The properties of these kinds that are false in a state, or for a step."""
        return {root.name for root in self._stepper.of_kind(*kinds) if self._stepper.outcomes(root, *rows)}

    # -- refusals -----------------------------------------------------------------------------------------------------

    def _refuse_refinement(self, refinement: Refinement) -> None:
        """Raises unless the steps and the initial states of a refined protocol are symmetric too: it declares so, or
        has none of the members. That the mapping commutes with permutations is up to :meth:`verify_mappings`.
        """
        other, language = refinement.other, language_of(refinement.other)
        alike = [
            frozenset(language.members(other, name))
            for name, symmetric in language.symmetric(other).items()
            if not _reason(name, symmetric, other)
        ]
        known = frozenset(model_values_in(tuple(other.constants.values())))
        starts = [_row(refinement.others, start) for start in refinement.initial()]
        for swap in self._neighbours:
            why = ""
            if not known.isdisjoint(swap) and not any(swap.keys() <= members for members in alike):
                why = f"declares no constant with {_both(swap)} symmetric"
            elif told_apart_by := _told_apart_by(other, swap):
                why = f"tells {_both(swap)} apart by {told_apart_by}"
            elif {_image(refinement.others, start, swap) for start in starts} != set(starts):
                why = f"tells {_both(swap)} apart by its initial states"
            if why:
                raise OptionError(
                    f"{refinement.name} cannot be checked with {{symmetry}} of {listed(self.names)}: {other.name}"
                    f" {why}; leave out {{symmetry}}, or name the properties to check with {{invariants}}",
                    "symmetry", "invariants",
                )  # fmt: skip


def _both(swap: Swap) -> str:
    """The two members that a swap exchanges."""
    return " and ".join(member.name for member in swap)


def _path(protocol: Model, slot: Slot, swap: Swap) -> tuple[Value, ...]:
    # The slot of a computed view belongs to no variable.
    shape = protocol.shapes.get(slot.path[0])
    return slot.path if shape is None else shape.permuted(slot.path, swap)


def _moved(store: ValueTable, swap: Swap, index: int, number: int) -> tuple[int, int]:
    """The slot to which a permutation moves a slot's value, and the number of the value there. Both are interned."""
    slot = store.slots[index]
    place = store.slot(Slot(_path(store.protocol, slot, swap), permute(slot.default, swap), constant=False))
    return place, store.intern(place, permute(store.values[index][number], swap))


def _image(store: ValueTable, ids: Sequence[int], swap: Swap) -> tuple[int, ...]:
    """The image of a row."""
    return _row(store, dict(_moved(store, swap, index, number) for index, number in enumerate(ids) if number))


def _row(store: ValueTable, numbers: Mapping[int, int]) -> tuple[int, ...]:
    """The row with these numbers of values, by slot."""
    return store.normal([numbers.get(index, 0) for index in range(len(store.slots))])


def _told_apart_by(protocol: Model, swap: Swap) -> str:
    """The constant or the initial value that the exchange of two members changes; "" if there is none."""
    for name, value in protocol.constants.items():
        image = permute(value, swap)
        if language_of(protocol).is_unordered(protocol, name):
            value, image = frozenset(value), frozenset(image)
        if encode(image) != encode(value):
            return f"the constant {name}"
    declared = {slot.path: slot for name, shape in protocol.shapes.items() for slot in shape.slots((name,))}
    for slot in declared.values():
        counterpart = declared.get(_path(protocol, slot, swap))
        if counterpart is None or encode(counterpart.default) != encode(permute(slot.default, swap)):
            return f"how {slot.name} is declared"
    return ""


def _chosen(protocol: Model, asked: bool | Sequence[str]) -> tuple[str, ...]:
    """The selected constants, in order of declaration. Raises unless all are declared symmetric, and are so in this
    configuration.
    """
    declared = language_of(protocol).symmetric(protocol)
    if not declared:
        raise OptionError(f"no constant of {protocol.name} is declared symmetric (model_values(..., symmetric=True))")
    for name in () if isinstance(asked, bool) else asked:
        if name not in declared:
            raise OptionError(unknown_name("symmetric constant", name, declared, protocol.name))
    names = tuple(n for n in declared if isinstance(asked, bool) or n in asked)
    for name in names:
        reason = _reason(name, declared[name], protocol)
        if reason:
            others = [n for n in names if n != name]
            hint = f" ({{symmetry}}={','.join(others)} leaves them out)" if others else ""
            raise OptionError(f"{name} are not symmetric in this configuration: {reason}{hint}", "symmetry")
    return names


def _reason(name: str, symmetric: Symmetric, protocol: Model) -> str:
    """The reason why a constant is not symmetric in this configuration. "" if it is."""
    if isinstance(symmetric, bool):
        return ""
    try:
        reason = symmetric(protocol)
    except Exception as error:
        raise NotAProtocol(
            f"what constant {name} is declared symmetric by raised {type(error).__name__}: {error}"
        ) from error
    if not isinstance(reason, str):
        raise NotAProtocol(
            f"what constant {name} is declared symmetric by returned {reason!r}: it returns an empty text where the"
            " members are alike, else the reason why they are not"
        )
    return reason


def listed(names: Sequence[str]) -> str:
    """``bookies``, ``bookies and clients``, ``a, b and c``."""
    return " and ".join([*([", ".join(names[:-1])] if names[1:] else []), *names[-1:]])


def _sampled(members: Sequence[Sequence[ModelValue]]) -> Iterator[tuple[Sequence[ModelValue], ...]]:
    """Some permutations of each constant's members, the same in every run: the identity, swaps of neighbours, then
    random ones.
    """
    yield tuple(members)
    for place, mine in enumerate(members):
        for i in range(len(mine) - 1):
            yield (*members[:place], (*mine[:i], mine[i + 1], mine[i], *mine[i + 2 :]), *members[place + 1 :])
    draw = random.Random(0)
    for _ in range(SAMPLED):
        yield tuple(draw.sample(mine, len(mine)) for mine in members)
