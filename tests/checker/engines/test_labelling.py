"""Canonical labellings against orbits that are counted one by one. They are forced even where every permutation could
be tried.
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest
from campaigns import THOROUGH, campaign_if
from checker.engines import brute
from checker.engines.compare import by_embedded, by_reference, disagreement
from checker.engines.symmetric_protocols import symmetric
from checker.engines.test_symmetry import Shop, figures, lengths, orbits

from fencepost import (
    ModelValue,
    PerKey,
    Protocol,
    Table,
    action,
    check,
    initial,
    invariant,
    model_values,
    one_of,
    per_key,
    require,
    state,
    subsets,
    table,
)
from fencepost.language.contents import permute
from fencepost.language.loading import shipped
from fencepost.language.values import Map, Set
from fencepost.semantics import Stepper, Symmetry, labelling, symmetry
from fencepost.semantics.labelling import Labelling

SEEDS = range(1_000) if THOROUGH else [13, 21, 27, 37, 58, 81]


@pytest.fixture(autouse=True)
def labelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symmetry, "MAX_PERMUTATIONS", 1)


# -- graphs with hard canonical forms ---------------------------------------------------------------------------------

NODES = [ModelValue(f"n{i}", i) for i in range(8)]


def least(edges: Any, count: int, named: Any = ()) -> tuple[int, int, bool]:
    """The key of a directed graph on the first ``count`` nodes: a term for each edge, and one for the set ``named``."""
    naming = Labelling([NODES[:count]])
    return naming.least([naming.term((("edge", a, b), True)) for a, b in edges] + [naming.term(("named", Set(named)))])


def test_graphs_have_one_key_exactly_if_they_are_the_same_up_to_names() -> None:
    """Every directed graph on three nodes, and every undirected one on four."""
    pairs = list(itertools.permutations(NODES[:3], 2))
    directed = [frozenset(chosen) for n in range(7) for chosen in itertools.combinations(pairs, n)]
    two_ways = [frozenset({(a, b), (b, a)}) for a, b in itertools.combinations(NODES[:4], 2)]
    undirected = [frozenset().union(*chosen) for n in range(7) for chosen in itertools.combinations(two_ways, n)]
    for graphs, count, classes in ((directed, 3, 16), (undirected, 4, 11)):
        keys = {graph: least(graph, count) for graph in graphs}
        assert all(exact for _, _, exact in keys.values())
        assert len(set(keys.values())) == classes
        for swap in (dict(zip(NODES[:count], image, strict=True)) for image in itertools.permutations(NODES[:count])):
            for graph in graphs:
                assert keys[frozenset((swap[a], swap[b]) for a, b in graph)] == keys[graph]


def test_what_refinement_can_not_tell_apart_is_told_apart_all_the_same() -> None:
    """Two rings of four, and one of eight. All nodes look alike in both."""
    two = [(NODES[i], NODES[i // 4 * 4 + (i + 1) % 4]) for i in range(8)]
    one = [(NODES[i], NODES[(i + 1) % 8]) for i in range(8)]
    draw = random.Random(1)
    keys: list[Any] = []
    for ring in (two, one):
        images = [dict(zip(NODES, draw.sample(NODES, 8), strict=True)) for _ in range(10)]
        found = {least([(swap[a], swap[b]) for a, b in ring], 8) for swap in images}
        assert len(found) == 1
        keys += found
    assert keys[0] != keys[1] and keys[0][2] and keys[1][2]


def test_a_labelling_counts_how_often_something_stands_in_a_set() -> None:
    """Members of one colour stay different members."""
    naming = Labelling([NODES[:4]])
    a, b, c, d = NODES[:4]
    values = [
        Map({a: 1, b: 2}),
        Map({a: 1, b: 1}),
        Set({a, b}),
        Set({a}),
        (a, b),
        (a, a),
        Set({(a, b), (b, a)}),
        Set({(a, b), (c, d)}),
    ]
    keys = [naming.least([naming.term(value)]) for value in values]
    assert len(set(keys)) == len(keys)
    for value, key in zip(values, keys, strict=True):
        for image in itertools.permutations(NODES[:4]):
            assert naming.least([naming.term(permute(value, dict(zip(NODES, image, strict=False))))]) == key


def test_where_there_are_too_many_labellings_the_answer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = [(NODES[i], NODES[i // 4 * 4 + (i + 1) % 4]) for i in range(8)]
    monkeypatch.setattr(labelling, "MOST_LABELLINGS", 3)
    assert not least(ring, 8)[2]
    assert least(ring[:1], 8)[2]


# -- protocols --------------------------------------------------------------------------------------------------------


def compare(protocol: Protocol, space: brute.Space, *sets: list[str], **options: Any) -> None:
    limit = None if space.complete else space.depth
    asked = {"symmetry": True, "keep_going": True, "deadlock": True, "max_depth": limit, **options}
    expected = by_reference(protocol, **asked)
    assert expected["distinct"] == orbits(space, *sets)
    assert lengths(expected) == space.broken
    for workers in (1, 2):
        assert disagreement(expected, by_embedded(protocol, workers=workers, **asked)) is None


@pytest.mark.parametrize("seed", campaign_if(lambda seed: seed in (13, 21, 27, 37), SEEDS))
def test_what_is_counted_are_orbits(seed: int) -> None:
    protocol = symmetric(seed).build()
    space = brute.explore(protocol, keep_going=True, deadlock=True, max_depth=5, cap=60)
    compare(protocol, space, ["n1", "n2", "n3"], bits=128 if seed % 2 else 64)


@pytest.mark.parametrize(("seed", "nodes"), [(13, 2), (81, 4), (11, 4), (37, 4)])
def test_more_members_and_fewer(seed: int, nodes: int) -> None:
    protocol = symmetric(seed, nodes).build()
    space = brute.explore(protocol, keep_going=True, deadlock=True, max_depth=4, cap=40)
    compare(protocol, space, [f"n{i + 1}" for i in range(nodes)])


@pytest.mark.campaign
def test_of_two_constants_both_are_labelled_or_one_is() -> None:
    clients, clerks = ["c1", "c2", "c3"], ["k1", "k2"]
    space = brute.explore(Shop())
    compare(Shop(), space, clients, clerks)
    compare(Shop(), space, clients, symmetry=["clients"])
    compare(Shop(), space, clerks, symmetry=("clerks",), bits=128)


@pytest.mark.parametrize(
    ("name", "constants", "sets", "depth"),
    [
        ("ledger-chaining", {"clients": 2, "next_ledger_limit": 2}, ["c1 c2"], None),
        ("bookkeeper-limbo", {}, ["b1 b2", "c1 c2"], 4),
        *campaign_if(bool, [("bookkeeper-boot", {"bookies": 2, "recoverers": 2}, ["b1 b2", "r1 r2"], 5)]),
    ],
)
def test_shipped_protocols(name: str, constants: Any, sets: list[str], depth: int | None) -> None:
    protocol = shipped(name)(**constants)
    space = brute.explore(protocol, max_depth=depth)
    for engine in ("embedded", "reference"):
        result = check(protocol, engine=engine, workers=1, symmetry=True, max_depth=depth)
        assert result.exact and result.distinct_states == orbits(space, *(members.split() for members in sets))


@pytest.mark.parametrize("bits", [128, *campaign_if(bool, [64])])
def test_a_resumed_search_ends_as_if_nothing_had_happened(tmp_path: Path, bits: int) -> None:
    protocol = shipped("ledger-chaining")(clients=3, next_ledger_limit=2)
    asked: dict[str, Any] = {"engine": "embedded", "symmetry": True, "bits": bits}
    whole = check(protocol, workers=2, **asked)
    check(protocol, workers=1, max_depth=10, checkpoint=tmp_path / "saved", **asked)
    assert figures(check(protocol, workers=2, resume=tmp_path / "saved", **asked)) == figures(whole)


class Friends(Protocol):
    """Each member may name a friend once. The final states have rings, so labellings need a search."""

    people: tuple[ModelValue, ...] = model_values("p", 4, symmetric=True)
    friend: Table[ModelValue, ModelValue] = table()

    @action(p=people, q=people)
    def befriends(self, p: ModelValue, q: ModelValue) -> None:
        require(p not in self.friend)
        self.friend[p] = q


def test_maps_of_a_set_into_itself_are_counted_up_to_names() -> None:
    """Partial maps included."""
    result = check(Friends(), engine="reference", symmetry=True)
    space = brute.explore(Friends())
    assert result.exact and result.distinct_states == orbits(space, ["p1", "p2", "p3", "p4"]) == 45


class Rings(Protocol):
    """Two states up to names: rings of three and of four, and one ring of seven, in any order. Refinement cannot
    distinguish them.
    """

    people: tuple[ModelValue, ...] = model_values("p", 7, symmetric=True)
    friend: Table[ModelValue, ModelValue] = table()

    @initial
    def some_order(self) -> None:
        order = one_of(list(itertools.permutations(self.people))[::500])
        for i in range(3):
            self.friend[order[i]] = order[(i + 1) % 3]
        for i in range(4):
            self.friend[order[3 + i]] = order[3 + (i + 1) % 4]

    @action(p=people, q=people)
    def joins(self, p: ModelValue, q: ModelValue) -> None:
        require(self._ring(p) == 3 and self._ring(q) == 4)
        self.friend[p], self.friend[q] = self.friend[q], self.friend[p]

    def _ring(self, p: ModelValue) -> int:
        return next(n for n in range(1, 8) if self._after(p, n) == p)

    def _after(self, p: ModelValue, steps: int) -> ModelValue:
        return p if steps == 0 else self._after(self.friend[p], steps - 1)


@pytest.mark.parametrize("engine", ["reference", *campaign_if(bool, ["embedded"])])
def test_keys_never_join_two_orbits_even_where_labellings_are_cut_short(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = check(Rings(), engine=engine, symmetry=True, workers=1)
    assert whole.exact and whole.distinct_states == 2 and "at most" not in str(whole)
    monkeypatch.setattr(labelling, "MOST_LABELLINGS", 1)
    short = check(Rings(), engine=engine, symmetry=True, workers=1)
    assert not short.exact and short.distinct_states > 2
    assert "reachable states up to symmetry of people (at most: some were counted more than once)" in " ".join(
        str(short).split()
    )


# -- many members -----------------------------------------------------------------------------------------------------


class Crowd(Protocol):
    """Members wake, request votes, and are elected by a recorded majority."""

    nodes: tuple[ModelValue, ...] = model_values("n", 9, symmetric=True)
    phase: PerKey[ModelValue, int] = per_key(nodes, 0)
    votes: frozenset[ModelValue] = state(frozenset())
    chief: ModelValue | None = state(None)

    @initial
    def starts(self) -> None:
        self.votes = one_of(subsets(self.nodes, 1))

    @action(n=nodes)
    def steps(self, n: ModelValue) -> None:
        require(self.phase[n] < 2)
        self.phase[n] += 1

    @action(n=nodes)
    def votes_for(self, n: ModelValue) -> None:
        require(self.phase[n] == 1 and n not in self.votes)
        self.votes |= {n}

    @action(n=nodes)
    def is_elected(self, n: ModelValue) -> None:
        require(self.phase[n] == 2 and self.chief is None and len(self.votes) > 4)
        self.chief = n

    @invariant
    def the_chief_is_ready(self) -> bool:
        return self.chief is None or self.phase[self.chief] == 2


def census(count: int) -> int:
    """The states of a crowd up to names, counted by the kinds of members: phase, and whether it votes."""
    found = 0
    kinds = [(phase, voting) for phase in range(3) for voting in (False, True)]
    for members in itertools.combinations_with_replacement(kinds, count):
        # The first voters may be in any phase. The others were in phase 1 once.
        voters = sum(voting for _, voting in members)
        if voters < 1 or sum(phase == 0 and voting for phase, voting in members) > 1:
            continue
        found += 1
        if voters > 4:
            found += len({kind for kind in members if kind[0] == 2})
    return found


@pytest.mark.parametrize("engine", ["auto", "embedded"])
def test_nine_members_are_answered_at_once(engine: str) -> None:
    result = check(Crowd(), engine=engine, symmetry=True, workers=1).must_hold()
    assert result.exact and result.distinct_states == census(9)


@pytest.mark.campaign
def test_checking_takes_a_sample_of_the_permutations() -> None:
    assert check(symmetric(37, 4).build(), symmetry=True, checking=True, workers=1, max_depth=3).error is None
    stepper = Stepper(Crowd())
    found = Symmetry(stepper, True)
    assert found.size == 362_880 and len(found.permutations) < 2_000
