"""A canonical labelling of the members of symmetric constants, for groups with too many permutations to try.

In a state, each **member** gets a number. If a permutation maps one state to another, replacing members by their
numbers makes the two equal. The method is McKay's for the canonical form of a graph. Members are **coloured**, those of
one constant alike. A member's **signature** is what the state says of it, with the other members known only by their
colours. Signatures split colours until none splits any more (**refinement**). Members that still share a colour may be
interchangeable, which exchanging neighbours shows. Then any order will do. Otherwise each of them is tried as the first
of its colour, and the numbering with the least hash is taken. Two trials with the same hash reveal a permutation that
leaves the state unchanged, so the rest of one of them can be skipped.

The hash of a state is a sum over its **terms**, one for each slot that does not hold its default. A term is a program
for a stack machine: constants, members, ordered and unordered groups. The compiled loops (`canonical`) do the same
arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise

from fencepost.language.values import Foreign, Map, ModelValue, Record, Value, encode, full_name

MASK = (1 << 64) - 1

MOST_MEMBERS = 62
"""The members of a term are bits of one word."""
MOST_LABELLINGS = 500
"""The most labellings of one state that are compared. If there are more, the least of these is taken, and an orbit may
be counted twice.
"""
MOST_OPERANDS = 1 << 16
"""The size of the compiled machine's stack."""

CONSTANT, MEMBER, ORDERED, UNORDERED = range(4)
"""The kinds of instructions, in the low two bits. The bits above hold a member's number, or the number of operands to
join. The two halves of a constant follow its instruction.
"""
KIND_BITS = 2

STAR = MOST_MEMBERS + 1
"""The colour of the member whose signature is computed."""

LANES = (0x243F6A8885A308D3, 0x13198A2E03707344)
"""The initial values of the two halves of a hash: digits of pi."""
COLOUR, GROUP = 0x9E3779B97F4A7C15, 0xA4093822299F31D1


def mixed(word: int) -> int:
    """A bijection of 64 bits, the finaliser of splitmix64."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
    return word ^ (word >> 31)


@dataclass(slots=True)
class Term:
    """One slot with one value: its program (empty if a view hides it), and the members in it. ``known``: its hashes, by
    the colours of these members.
    """

    members: tuple[int, ...]
    program: list[int]
    known: tuple[dict[tuple[int, ...], int], dict[tuple[int, ...], int]] = field(default_factory=lambda: ({}, {}))

    def hashed(self, colours: Sequence[int], lane: int) -> int:
        """The hash under a colouring. Two terms have equal hashes exactly if replacing members by colours makes them
        equal.
        """
        key = tuple([colours[m] for m in self.members])
        known = self.known[lane].get(key)
        if known is None:
            known = self.known[lane][key] = self._run(colours, lane)
        return known

    def _run(self, colours: Sequence[int], lane: int) -> int:
        stack: list[int] = []
        words = iter(self.program)
        for word in words:
            kind, operand = word & ((1 << KIND_BITS) - 1), word >> KIND_BITS
            if kind == CONSTANT:
                halves = next(words), next(words)
                stack.append(halves[lane])
            elif kind == MEMBER:
                stack.append(mixed((LANES[lane] + (colours[operand] + 1) * COLOUR) & MASK))
            else:
                operands = stack[len(stack) - operand :]
                del stack[len(stack) - operand :]
                total = LANES[lane]
                for part in operands:
                    total = mixed(total ^ part) if kind == ORDERED else (total + mixed(part ^ GROUP)) & MASK
                stack.append(mixed(total ^ kind))
        return stack[0] if stack else 0


class Labelling:
    """Numbers the members of symmetric constants, and computes the key of an orbit from terms.

    ``classes``: the members of each constant. ``colours``: the initial colour of each member, which is the number of
    the first member of its class.
    """

    def __init__(self, classes: Sequence[Sequence[ModelValue]]) -> None:
        self.members = [member for members in classes for member in members]
        self.colours = [self.members.index(members[0]) for members in classes for _ in members]
        self._number = {member: number for number, member in enumerate(self.members)}

    def term(self, value: Value) -> Term:
        """The term of a value."""
        program: list[int] = []
        members: set[int] = set()
        if not self._compile(value, program, members):
            program = _constant(encode(value))
        return Term(tuple(sorted(members)), program)

    def _compile(self, value: Value, program: list[int], members: set[int]) -> bool:
        """Append the program of a value. If the value has no member, append nothing and return False."""
        if isinstance(value, Foreign):
            python = value.python()
            value = Map(python) if isinstance(python, dict) else python
        if isinstance(value, ModelValue):
            number = self._number.get(value)
            if number is None:
                return False
            members.add(number)
            program.append(number << KIND_BITS | MEMBER)
            return True
        if isinstance(value, (frozenset, Map)):
            parts = list(value.items()) if isinstance(value, Map) else list(value)
            kind, name = UNORDERED, b"map" if isinstance(value, Map) else b"set"
        elif isinstance(value, tuple):
            parts, kind, name = list(value), ORDERED, b"tuple"
        elif isinstance(value, Record):
            parts, kind, name = [getattr(value, n) for n in value._fields], ORDERED, full_name(type(value)).encode()
        else:
            return False
        body: list[int] = []
        inside = False
        for part in parts:
            if self._compile(part, body, members):
                inside = True
            else:
                body += _constant(encode(part))
        if inside:
            program += [
                *_constant(name + b" of %d" % len(parts)),
                *body,
                len(parts) << KIND_BITS | kind,
                2 << KIND_BITS | ORDERED,
            ]
        return inside

    def least(self, terms: Sequence[Term]) -> tuple[int, int, bool]:
        """The least hash of all canonical labellings of a state as (low half, high half, whether all of them were
        compared).
        """
        return _Search(self.colours, terms).run()


def _constant(content: bytes) -> list[int]:
    digest = blake2b(content, digest_size=16).digest()
    return [CONSTANT, int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")]


@dataclass(slots=True)
class _Choice:
    """A colour whose members are tried in turn as its first. ``seen``: the first hash of each trial."""

    colours: list[int]
    cell: list[int]
    at: int = 0
    fresh: bool = True
    seen: set[int] = field(default_factory=set)

    def colouring(self) -> list[int]:
        first = self.cell[self.at]
        return [c + 1 if m in self.cell and m != first else c for m, c in enumerate(self.colours)]


class _Search:
    """The search for the least labelling of one state."""

    def __init__(self, colours: list[int], terms: Sequence[Term]) -> None:
        self.start = colours
        self.count = len(colours)
        self.terms = [term for term in terms if term.members]
        self.fixed = [sum(t.hashed((), lane) for t in terms if not t.members) for lane in range(2)]
        self.of_member: list[list[Term]] = [[t for t in self.terms if m in t.members] for m in range(self.count)]

    def run(self) -> tuple[int, int, bool]:
        choices: list[_Choice] = []
        hashes: list[tuple[int, int]] = []
        colours = self._refined(self.start)
        while True:
            cell, numbers = self._undecided(colours)
            if cell:
                choices.append(_Choice(colours, cell))
                colours = self._refined(choices[-1].colouring())
                continue
            hashes.append(self._hash(numbers))
            for depth, choice in enumerate(choices):
                if choice.fresh:
                    choice.fresh = False
                    if hashes[-1][0] in choice.seen:
                        del choices[depth + 1 :]
                        break
                    choice.seen.add(hashes[-1][0])
            while choices and choices[-1].at + 1 == len(choices[-1].cell):
                choices.pop()
            if not choices or len(hashes) == MOST_LABELLINGS:
                return *min(hashes), not choices
            choices[-1].at += 1
            choices[-1].fresh = True
            colours = self._refined(choices[-1].colouring())

    def _refined(self, colours: list[int]) -> list[int]:
        """Split colours by signatures until none splits any more. A colour is the number of members with a smaller
        colour.
        """
        while True:
            sizes = [colours.count(colour) for colour in colours]
            signatures = [self._signature(m, colours) if sizes[m] > 1 else 0 for m in range(self.count)]
            split = [
                colour + sum(colours[m] == colour and signatures[m] < signature for m in range(self.count))
                for colour, signature in zip(colours, signatures, strict=True)
            ]
            if split == colours:
                return colours
            colours = split

    def _signature(self, member: int, colours: list[int]) -> int:
        starred = [*colours]
        starred[member] = STAR
        return sum([term.hashed(starred, 0) for term in self.of_member[member]]) & MASK

    def _undecided(self, colours: list[int]) -> tuple[list[int], list[int]]:
        """The members of the first colour that are not interchangeable ([] if all are), and a numbering that follows
        the colours.
        """
        numbers = [c + colours[:m].count(c) for m, c in enumerate(colours)]
        for colour in range(self.count):
            cell = [m for m in range(self.count) if colours[m] == colour]
            if not all(self._interchangeable(a, b, numbers) for a, b in pairwise(cell)):
                return cell, numbers
        return [], numbers

    def _interchangeable(self, a: int, b: int, numbers: list[int]) -> bool:
        terms = [t for t in self.terms if a in t.members or b in t.members]
        exchanged = [*numbers]
        exchanged[a], exchanged[b] = numbers[b], numbers[a]
        return (sum([t.hashed(numbers, 0) for t in terms]) - sum([t.hashed(exchanged, 0) for t in terms])) & MASK == 0

    def _hash(self, numbers: list[int]) -> tuple[int, int]:
        low, high = (sum([t.hashed(numbers, lane) for t in self.terms], self.fixed[lane]) & MASK for lane in range(2))
        return low, high
