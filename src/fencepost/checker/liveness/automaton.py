"""An automaton that accepts the behaviours for which a formula is true.

It is a generalized Büchi automaton with its labels and its acceptance on transitions, made by expansion (Couvreur,
"On-the-fly verification of linear temporal logic", 1999). A state is a set of formulas that are true there. A
transition says what must be true now, and which formulas are true after the next step. For each ``eventually`` there is
a set of accepting transitions: those that do not put it off. A run is accepted if it takes a transition of each of
these sets again and again.

A leaf is a fact of the graph: a state in which something is true, or a step that is of some sort. The formulas are
blind to a behaviour that stays in a state. Such a step is of no sort.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from fencepost.errors import NotAProtocol
from fencepost.language import temporal
from fencepost.language.temporal import Formula, Leaf

MOST_WAYS = 1 << 10
"""The most transitions out of one state of an automaton."""
MOST_STATES = 1 << 10
"""The most states of an automaton."""

Fact = tuple[str, int]
"""A leaf in the graph: ``true`` and the number of a predicate, ``enabled`` or ``stepped`` and a bit."""
Literal = tuple[Fact, bool]
"""A fact, or its negation."""


class Transition(NamedTuple):
    """Where ``label`` is true, to the state ``target``. ``accepting``: the numbers of the acceptance sets it is in."""

    label: frozenset[Literal]
    target: int
    accepting: frozenset[int]


@dataclass(frozen=True)
class Automaton:
    """Its states are numbered from 0, the initial one. There is at least one of the ``sets`` of accepting transitions,
    so a run that ends is not accepted.
    """

    transitions: tuple[tuple[Transition, ...], ...]
    sets: int


class Normal(NamedTuple):
    """A formula in negation normal form, made by :class:`Forms`. ``parts`` are numbers of formulas."""

    kind: str
    parts: tuple[int, ...] = ()
    literal: Literal | None = None


class Way(NamedTuple):
    """One way to make a formula true: what is true now (``label``), what is true after the next step, and the
    ``eventually`` formulas that are put off.
    """

    label: frozenset[Literal]
    after: frozenset[int]
    put_off: frozenset[int]


class Forms:
    """Formulas in negation normal form, each with a number. Equal ones have one number."""

    TRUE, FALSE = 0, 1

    def __init__(self) -> None:
        self.known = [Normal("true"), Normal("false")]
        self._numbers = {form: number for number, form in enumerate(self.known)}
        self._ways: dict[int, tuple[Way, ...]] = {}
        self._stronger: dict[tuple[int, int], bool] = {}

    def number(self, form: Normal) -> int:
        found = self._numbers.setdefault(form, len(self.known))
        if found == len(self.known):
            self.known.append(form)
        return found

    # -- making -------------------------------------------------------------------------------------------------------

    def normal(self, formula: Formula, negated: bool, fact: Callable[[Leaf], Fact]) -> int:
        """The number of a formula, or of its negation."""
        if isinstance(formula, Leaf):
            return self.number(Normal("literal", (), (fact(formula), not negated)))
        if isinstance(formula, temporal.Truth):
            return self.TRUE if formula.value is not negated else self.FALSE
        if isinstance(formula, temporal.Not):
            return self.normal(formula.parts[0], not negated, fact)
        parts = [self.normal(part, negated, fact) for part in formula.parts]
        if isinstance(formula, (temporal.And, temporal.Or)):
            return self.joined("and" if isinstance(formula, temporal.And) is not negated else "or", parts)
        return self.modal("always" if isinstance(formula, temporal.Always) is not negated else "eventually", parts[0])

    def joined(self, kind: str, parts: Iterable[int]) -> int:
        """A conjunction or a disjunction, without parts that others make needless."""
        neutral, absorbing = (self.TRUE, self.FALSE) if kind == "and" else (self.FALSE, self.TRUE)
        flat: set[int] = set()
        for part in parts:
            flat |= set(self.known[part].parts) if self.known[part].kind == kind else {part}
        flat.discard(neutral)
        if absorbing in flat or any(self._opposite(part) in flat for part in flat):
            return absorbing
        kept = self.without_needless(flat, weaker=kind == "and")
        if len(kept) < 2:
            return next(iter(kept), neutral)
        return self.number(Normal(kind, tuple(sorted(kept))))

    def _opposite(self, number: int) -> int:
        literal = self.known[number].literal
        if literal is None:
            return -1
        return self._numbers.get(Normal("literal", (), (literal[0], not literal[1])), -1)

    def without_needless(self, parts: Iterable[int], weaker: bool) -> frozenset[int]:
        """Parts of a conjunction without those that follow from another, or of a disjunction (not ``weaker``) without
        those from which another follows.
        """
        kept: list[int] = []
        for part in sorted(parts):
            pairs = [(other, part) if weaker else (part, other) for other in kept]
            if not any(self.follows(*pair) for pair in pairs):
                kept = [other for other in kept if not self.follows(*((part, other) if weaker else (other, part)))]
                kept.append(part)
        return frozenset(kept)

    def modal(self, kind: str, part: int) -> int:
        """``always`` or ``eventually``, with the operators inside it brought outside where that makes fewer states."""
        form = self.known[part]
        through, other = ("and", "or") if kind == "always" else ("or", "and")
        if form.kind in (kind, "true", "false") or self.is_suspended(part):
            return part
        if form.kind == through:
            return self.joined(through, [self.modal(kind, each) for each in form.parts])
        if form.kind == other:
            outside = [each for each in form.parts if self.is_suspended(each)]
            if outside:
                inside = self.joined(other, [each for each in form.parts if each not in outside])
                return self.joined(other, [*outside, self.modal(kind, inside)])
        return self.number(Normal(kind, (part,)))

    def is_suspended(self, number: int) -> bool:
        """Whether a formula is true now if, and only if, it is true after any number of steps."""
        form = self.known[number]
        if form.kind in ("and", "or"):
            return all(map(self.is_suspended, form.parts))
        if form.kind not in ("always", "eventually"):
            return False
        inner = self.known[form.parts[0]]
        return inner.kind in ("always", "eventually") and inner.kind != form.kind

    # -- comparing ----------------------------------------------------------------------------------------------------

    def follows(self, one: int, other: int) -> bool:
        """Whether ``other`` follows from ``one``, as far as their form tells."""
        if one == other or one == self.FALSE or other == self.TRUE:
            return True
        known = self._stronger.get((one, other))
        if known is None:
            known = self._stronger[one, other] = self._follows(one, other)
        return known

    def _follows(self, one: int, other: int) -> bool:
        strong, weak = self.known[one], self.known[other]
        if strong.kind == "or":
            return all(self.follows(part, other) for part in strong.parts)
        if weak.kind == "and":
            return all(self.follows(one, part) for part in weak.parts)
        if strong.kind == "and" and any(self.follows(part, other) for part in strong.parts):
            return True
        if weak.kind == "or" and any(self.follows(one, part) for part in weak.parts):
            return True
        if weak.kind == "eventually" and self.follows(one, weak.parts[0]):
            return True
        if strong.kind == "always" and self.follows(strong.parts[0], other):
            return True
        both = strong.kind == weak.kind and strong.kind in ("always", "eventually")
        return both and self.follows(strong.parts[0], weak.parts[0])

    # -- expanding ----------------------------------------------------------------------------------------------------

    def ways(self, number: int) -> tuple[Way, ...]:
        """The ways to make a formula true."""
        found = self._ways.get(number)
        if found is None:
            found = self._ways[number] = tuple(least(self._expanded(number)))
        return found

    def _expanded(self, number: int) -> Iterator[Way]:
        form, nothing = self.known[number], frozenset[int]()
        if form.kind == "true":
            yield Way(frozenset(), nothing, nothing)
        elif form.literal is not None:
            yield Way(frozenset([form.literal]), nothing, nothing)
        elif form.kind == "and":
            yield from self.together(form.parts)
        elif form.kind == "or":
            for part in form.parts:
                yield from self.ways(part)
        elif form.kind == "always":
            for way in self.ways(form.parts[0]):
                yield way._replace(after=way.after | {number})
        elif form.kind == "eventually":
            yield from self.ways(form.parts[0])
            yield Way(frozenset(), frozenset([number]), frozenset([number]))

    def together(self, parts: Iterable[int]) -> list[Way]:
        """The ways to make several formulas true."""
        ways = [Way(frozenset(), frozenset(), frozenset())]
        for part in parts:
            found = (_both(one, other) for one in ways for other in self.ways(part))
            ways = least(way for way in found if _is_possible(way.label))
        return ways


def _both(one: Way, other: Way) -> Way:
    return Way(one.label | other.label, one.after | other.after, one.put_off | other.put_off)


def _is_possible(label: frozenset[Literal]) -> bool:
    return not any((fact, not positive) in label for fact, positive in label)


def least(ways: Iterable[Way]) -> list[Way]:
    """Ways without those that ask for more than another one does.

    Raises :class:`fencepost.NotAProtocol` if there are too many.
    """
    kept: list[Way] = []
    for way in dict.fromkeys(ways):
        if any(all(a <= b for a, b in zip(other, way, strict=True)) for other in kept):
            continue
        kept = [other for other in kept if not all(a <= b for a, b in zip(way, other, strict=True))]
        kept.append(way)
        if len(kept) > MOST_WAYS:
            raise NotAProtocol(f"a formula has more than {MOST_WAYS:,} ways to be true: state it as several properties")
    return kept


def automaton(formula: Formula, negated: bool, fact: Callable[[Leaf], Fact]) -> Automaton:
    """The automaton of a formula, or of its negation. ``fact``: what each leaf is in the graph.

    Raises :class:`fencepost.NotAProtocol` if it would be too large.
    """
    forms = Forms()
    whole = forms.normal(formula, negated, fact)
    first = frozenset(forms.known[whole].parts if forms.known[whole].kind == "and" else (whole,))
    numbers, states = {first: 0}, [first]
    expanded: list[list[tuple[Way, int]]] = []
    for state in states:
        expanded.append([])
        for way in forms.together(sorted(state)):
            after = forms.without_needless(way.after - {Forms.TRUE}, weaker=True)
            if after not in numbers:
                numbers[after] = len(states)
                states.append(after)
            expanded[-1].append((way, numbers[after]))
        if len(states) > MOST_STATES:
            raise NotAProtocol(f"a formula needs more than {MOST_STATES:,} states: state it as several properties")
    put_off = sorted({number for ways in expanded for way, _ in ways for number in way.put_off})
    everywhere = frozenset(range(max(1, len(put_off))))
    transitions = [
        frozenset(
            Transition(way.label, to, everywhere - {put_off.index(number) for number in way.put_off})
            for way, to in ways
        )
        for ways in expanded
    ]
    return Automaton(merged(transitions), len(everywhere))


def merged(transitions: list[frozenset[Transition]]) -> tuple[tuple[Transition, ...], ...]:
    """The transitions of an automaton in which states that accept the same by their form are one, and from which those
    to states without any are gone.
    """
    alive = list(transitions)
    while (left := [frozenset(t for t in out if alive[t.target]) for out in alive]) != alive:
        alive = left
    classes, count = [0] * len(alive), 1
    while True:
        numbers: dict[frozenset[Transition], int] = {}
        among = [frozenset(t._replace(target=classes[t.target]) for t in out) for out in alive]
        classes = [numbers.setdefault(out, len(numbers)) for out in among]
        if len(numbers) == count:
            firsts = [classes.index(number) for number in range(count)]
            return tuple(
                tuple(sorted({t._replace(target=classes[t.target]) for t in alive[first]}, key=_order))
                for first in firsts
            )
        count = len(numbers)


def _order(transition: Transition) -> tuple[int, list[Literal], list[int]]:
    return transition.target, sorted(transition.label), sorted(transition.accepting)
