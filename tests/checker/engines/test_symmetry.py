"""States that differ only by a permutation of members count as one, against orbits counted in the whole space."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from campaigns import THOROUGH, campaign_if
from checker.engines import brute
from checker.engines.compare import by_embedded, by_reference, disagreement
from checker.engines.symmetric_protocols import symmetric

from fencepost import (
    Map,
    ModelValue,
    NotAProtocol,
    OptionError,
    PerKey,
    Protocol,
    Record,
    Result,
    SystemFailure,
    action,
    assumption,
    check,
    constant,
    initial,
    invariant,
    leads_to,
    model_values,
    per_key,
    require,
    state,
    step_invariant,
    table,
    view,
)
from fencepost.api.check import collision_probability
from fencepost.language.contents import permute
from fencepost.language.loading import shipped
from fencepost.language.values import Set
from fencepost.semantics import Stepper, Symmetry, symmetry

SEEDS = range(1_000) if THOROUGH else [11, 13, 21, 27, 37, 51, 58, 65, 74, 81, 86, 90]

# -- orbits, counted separately ---------------------------------------------------------------------------------------


def exchanged(tag: Any, swap: Mapping[str, str]) -> Any:
    """A slot's path or value in the form of `brute`, with model values permuted."""
    if isinstance(tag, frozenset):
        return frozenset(exchanged(part, swap) for part in tag)
    if not isinstance(tag, tuple):
        return tag
    if len(tag) == 2 and tag[0] == "model":
        return ("model", swap.get(tag[1], tag[1]))
    parts = tuple(exchanged(part, swap) for part in tag)
    # A connection is the same from both ends.
    return (*parts[:-2], *sorted(parts[-2:])) if ("str", "connected") in parts else parts


def orbits(space: brute.Space, *sets: list[str]) -> int:
    """The number of classes of states when the members of each set are alike."""
    seen: set[Any] = set()
    classes = 0
    for key in space.states:
        if key not in seen:
            classes += 1
            seen.update(exchanged(key, swap) for swap in swaps(*sets))
    return classes


def swaps(*sets: list[str]) -> Iterator[dict[str, str]]:
    if not sets:
        yield {}
        return
    for rest in swaps(*sets[1:]):
        for images in permutations(sets[0]):
            yield {**rest, **dict(zip(sets[0], images, strict=True))}


def lengths(got: dict[str, Any], what: str = "found") -> dict[str, int]:
    """The number of states of each counterexample or witness."""
    return {name: len(path) + 1 for _, name, _, path in got[what]}


def classes(reached: dict[str, int]) -> dict[str, int]:
    """The same for each class of bindings: its two nodes are equal, or not."""

    def kind(title: str) -> str:
        name, n, m = title.replace("(n=", ",").replace(" m=", "").rstrip(")").split(",")
        return f"{name} {'of one' if n == m else 'of two'}"

    return {kind(title): min(n for t, n in reached.items() if kind(t) == kind(title)) for title in reached}


def compare(protocol: Protocol, space: brute.Space, names: list[str], **options: Any) -> None:
    limit = None if space.complete else space.depth
    asked: dict[str, Any] = {"symmetry": True, "keep_going": True, "deadlock": True, "max_depth": limit, **options}
    expected = by_reference(protocol, **asked)
    assert expected["distinct"] == orbits(space, names)
    assert lengths(expected) == space.broken
    witnesses = lengths(expected, "witnesses")
    assert classes(witnesses) == classes(space.reached) and len(witnesses) == len(classes(witnesses))
    for workers in (1, 2):
        assert disagreement(expected, by_embedded(protocol, workers=workers, **asked)) is None


@pytest.mark.parametrize("seed", [*SEEDS[:4], *campaign_if(bool, SEEDS[4:])])
def test_what_is_counted_are_orbits(seed: int) -> None:
    protocol = symmetric(seed).build()
    space = brute.explore(protocol, keep_going=True, deadlock=True, max_depth=5, cap=100)
    compare(protocol, space, ["n1", "n2", "n3"], bits=128 if seed % 2 else 64)


@pytest.mark.parametrize(("seed", "nodes"), [(13, 2), (81, 4), *campaign_if(bool, [(11, 4), (37, 5)])])
def test_more_members_and_fewer(seed: int, nodes: int) -> None:
    protocol = symmetric(seed, nodes).build()
    space = brute.explore(protocol, keep_going=True, deadlock=True, max_depth=4, cap=50)
    compare(protocol, space, [f"n{i + 1}" for i in range(nodes)])


@pytest.mark.parametrize("seed", [13, 37, 58])
def test_keys_are_the_same_for_all_of_an_orbit_and_for_nothing_else(seed: int) -> None:
    stepper = Stepper(symmetric(seed).build())
    symmetry = Symmetry(stepper, True)
    rows = {s.ids for s in stepper.initial_states()}
    for _ in range(3):
        rows |= {stepper.apply(r, o) for r in rows for a in stepper.of_kind("action") for o in stepper.outcomes(a, r)}
    rows = set(sorted(rows)[:60])
    classes: dict[frozenset[tuple[int, ...]], int] = {}
    for row in rows:
        images = frozenset(symmetry.permuted(row, g) for g in range(6))
        assert row in images
        assert {symmetry.key(image) for image in images} == {symmetry.key(row)}
        assert classes.setdefault(images, symmetry.key(row)) == symmetry.key(row)
        for g in range(6):
            assert symmetry.permuted(row, g) in {symmetry.permuted(image, 0) for image in images}
    assert len(set(classes.values())) == len(classes) > 5


def test_values_are_permuted_wherever_they_hold_a_name() -> None:
    class Pair(Record):
        one: Any
        other: Any

    a, b, c = (ModelValue(n, i) for i, n in enumerate("abc"))
    value = (a, frozenset({a, c}), Map({a: 1, b: Pair(a, ("a", b))}), Pair(None, True), 1, "b")
    image = permute(value, {a: b, b: a})
    assert image == (b, frozenset({b, c}), Map({b: 1, a: Pair(b, ("a", a))}), Pair(None, True), 1, "b")
    assert [type(part) for part in image] == [ModelValue, Set, Map, Pair, int, str]
    assert permute(image, {a: b, b: a}) == value


# -- two constants at once --------------------------------------------------------------------------------------------


class Shop(Protocol):
    """Clients take tickets from clerks. All are alike unless ``partial``."""

    clients: tuple[ModelValue, ...] = model_values("c", 3, symmetric=True)
    clerks: tuple[ModelValue, ...] = model_values(
        "k", 2, symmetric=lambda self: f"{self.clerks[0]} works faster" if self.partial else ""
    )
    partial: bool = constant(False)
    served: PerKey[ModelValue, ModelValue | None] = per_key(clients, None)
    waiting: tuple[ModelValue, ...] = state(())

    @action(c=clients)
    def comes(self, c: ModelValue) -> None:
        require(self.served[c] is None and c not in self.waiting)
        self.waiting = (*self.waiting, c)

    @action(k=clerks)
    def serves(self, k: ModelValue) -> None:
        require(len(self.waiting) > 0 and (not self.partial or k == self.clerks[0]))
        self.served[self.waiting[0]] = k
        self.waiting = self.waiting[1:]

    @action(c=clients)
    def leaves(self, c: ModelValue) -> None:
        require(self.served[c] is not None)
        self.served[c] = None


def test_of_two_constants_both_are_permuted_or_one_is() -> None:
    clients, clerks = ["c1", "c2", "c3"], ["k1", "k2"]
    space = brute.explore(Shop())
    for asked, sets in ((True, (clients, clerks)), (["clients"], (clients,)), (("clerks",), (clerks,))):
        expected = by_reference(Shop(), symmetry=asked)
        assert expected["distinct"] == orbits(space, *sets)
        for bits in (64, 128):
            assert (
                disagreement(expected, by_embedded(Shop(), symmetry=asked, bits=bits, workers=2)) is None or bits == 128
            )
    assert len({orbits(space), orbits(space, clients), orbits(space, clients, clerks)}) == 3


def test_in_a_configuration_where_one_constant_is_not_symmetric_the_other_can_be_asked_for() -> None:
    with pytest.raises(
        OptionError, match=r"clerks are not symmetric in this configuration: k1 works faster \(symmetry=clients"
    ):
        check(Shop(partial=True), symmetry=True)
    result = check(Shop(partial=True), symmetry=["clients"], checking=True)
    assert (result.symmetry, result.distinct_states) == (
        ("clients",),
        orbits(brute.explore(Shop(partial=True)), ["c1", "c2", "c3"]),
    )


# -- counterexamples --------------------------------------------------------------------------------------------------


class Election(Protocol):
    """Nodes wake up and one is elected. ``flaw`` turns on something that singles a node out."""

    nodes: tuple[ModelValue, ...] = model_values("n", 3, symmetric=True)
    flaw: str = constant("")
    awake: PerKey[ModelValue, bool] = per_key(nodes, False)
    chief: ModelValue | None = state(None)

    @initial
    def starts(self) -> None:
        if self.flaw == "initial":
            self.awake[self.nodes[1]] = True

    @action(n=nodes)
    def wakes(self, n: ModelValue) -> None:
        require(not self.awake[n])
        require(self.flaw != "action" or n == self.nodes[0] or self.awake[self.nodes[0]])
        self.awake[n] = True

    @action(n=nodes)
    def is_elected(self, n: ModelValue) -> None:
        require(self.awake[n] and self.chief is None)
        self.chief = n

    @invariant
    def the_last_one_never_leads(self) -> bool:
        return self.flaw != "invariant" or self.chief != self.nodes[-1]

    @step_invariant
    def the_first_one_is_not_elected(self, after: Election) -> bool:
        return self.flaw != "step" or after.chief != self.nodes[0]

    @invariant
    def never_all_awake_without_a_chief(self) -> bool:
        return self.flaw != "" or self.chief is not None or not all(self.awake.values())


@pytest.mark.parametrize("engine", ["embedded", "reference"])
def test_a_counterexample_is_a_real_behaviour_and_as_short_as_without_symmetry(engine: str) -> None:
    traces = [
        check(Election(), engine=engine, workers=1, symmetry=s).must_violate("never_all_awake_without_a_chief")
        for s in (False, True)
    ]
    assert [len(t) for t in traces] == [4, 4]
    names = [step.parameters["n"].name for step in traces[1].steps]
    assert sorted(names) == ["n1", "n2", "n3"]


def test_initial_states_may_single_one_out() -> None:
    space = brute.explore(Election(flaw="initial"))
    expected = by_reference(Election(flaw="initial"), symmetry=True, checking=True)
    assert expected["complete"] and expected["distinct"] == orbits(space, ["n1", "n2", "n3"])
    assert disagreement(expected, by_embedded(Election(flaw="initial"), symmetry=True, checking=True)) is None


# -- checking mode ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["embedded", "reference"])
@pytest.mark.parametrize(
    ("flaw", "told"),
    [
        ("action", "action wakes tells n1 and n2 apart, although nodes are declared symmetric"),
        (
            "invariant",
            "invariant the_last_one_never_leads tells n1, n2 and n3 apart, although nodes are declared symmetric",
        ),
        (
            "step",
            "step invariant the_first_one_is_not_elected tells n1 and n3 apart, although nodes are declared symmetric",
        ),
    ],
)
def test_checking_finds_what_tells_members_apart(engine: str, flaw: str, told: str) -> None:
    result = check(Election(flaw=flaw), engine=engine, symmetry=True, checking=True, workers=1, keep_going=True)
    assert str(result.error) == told
    assert result.exit_code == 75


@pytest.mark.parametrize("seed", [11, *campaign_if(bool, [37, 74])])
def test_checking_finds_nothing_in_what_is_symmetric(seed: int) -> None:
    protocol = symmetric(seed).build()
    asked: dict[str, Any] = {"symmetry": True, "max_depth": 3, "keep_going": True}
    for explore in (by_embedded, by_reference):
        assert disagreement(explore(protocol, **asked), explore(protocol, checking=True, **asked)) is None


# -- views ------------------------------------------------------------------------------------------------------------


class Timed(Election):
    """Every election leaves a value behind that nothing reads."""

    asked: PerKey[ModelValue, int] = per_key(Election.nodes, 0)
    last: ModelValue | None = state(None)

    @action(n=Election.nodes)
    def asks(self, n: ModelValue) -> None:
        require(self.awake[n] and self.asked[n] < 2)
        self.asked[n] += 1
        self.last = n

    @action(n=Election.nodes)
    def sleeps(self, n: ModelValue) -> None:
        require(self.awake[n] and self.chief != n)
        self.awake[n] = False


class Picking(Timed):
    @view
    def seen(self) -> Any:
        return self.awake, self.chief, self.last


class Computing(Timed):
    @view
    def seen(self) -> Any:
        return frozenset(n for n in self.nodes if self.awake[n]), self.chief, self.last, sum(self.asked.values()) // 9


class Favouring(Timed):
    @view
    def seen(self) -> Any:
        return self.chief, tuple(self.awake[n] for n in self.nodes[1:]), len(self.nodes)


@pytest.mark.parametrize("most", [720, 1])
@pytest.mark.parametrize("protocol", [Picking(flaw="some"), Computing(flaw="some")], ids=lambda p: type(p).__name__)
def test_a_state_is_as_symmetric_as_its_view(protocol: Protocol, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Orbits of the view are counted."""
    monkeypatch.setattr(symmetry, "MAX_PERMUTATIONS", most)
    space = brute.explore(protocol)
    for bits in (64, 128):
        expected = by_reference(protocol, symmetry=True, bits=bits)
        assert expected["distinct"] == orbits(space, ["n1", "n2", "n3"]) < space.distinct
        assert disagreement(expected, by_embedded(protocol, symmetry=True, bits=bits, workers=2)) is None
    assert check(protocol, symmetry=True).distinct_states == expected["distinct"]


@pytest.mark.parametrize("engine", ["embedded", "reference"])
def test_checking_finds_a_view_that_tells_members_apart(engine: str) -> None:
    result = check(Favouring(flaw="some"), engine=engine, symmetry=True, checking=True, workers=1)
    assert str(result.error) == "view seen tells n2 and n3 apart, although nodes are declared symmetric"
    for protocol in (Picking(flaw="some"), Computing(flaw="some")):
        assert check(protocol, engine=engine, symmetry=True, checking=True, workers=1, max_depth=4).error is None


# -- refusals ---------------------------------------------------------------------------------------------------------


class Plain(Protocol):
    nodes: tuple[ModelValue, ...] = model_values("n", 2)
    others: tuple[ModelValue, ...] = model_values("o", 2)

    @action(n=nodes)
    def nothing(self, n: ModelValue) -> None:
        pass


class Partial(Election):
    @view
    def seen(self) -> Any:
        return self.awake[self.nodes[0]]


class Living(Election):
    @leads_to
    def somebody_leads(self) -> tuple[bool, bool]:
        return True, self.chief is not None


class Favoured(Election):
    favourite: tuple[ModelValue, ...] = constant((ModelValue("n1"),))


class Uneven(Election):
    first: PerKey[ModelValue, int] = per_key(lambda p: p.nodes[:1], 0)


class Stocked(Election):
    stock: Any = table({ModelValue("n2"): 1})


class Wordless(Election):
    nodes: tuple[ModelValue, ...] = model_values("n", 2, symmetric=lambda self: True)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    ("protocol", "asked", "told"),
    [
        (Plain(), True, "no constant of plain is declared symmetric"),
        (Election(), ["others"], "election has no symmetric constant named others"),
        (Election(nodes=63), True, "symmetry takes at most 62 members of nodes: give fewer"),
        (Partial(), True, "n1 and n2 are told apart by the view seen"),
        (
            Living(),
            True,
            "symmetry and the temporal property somebody_leads do not go together.*check with invariants",
        ),
        (Favoured(), True, "n1 and n2 are told apart by the constant favourite"),
        (Uneven(), True, "n1 and n2 are told apart by how first.n1 is declared"),
        (Stocked(), True, "n1 and n2 are told apart by how stock.* is declared"),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, Protocol) else None,
)
def test_what_can_not_be_reduced_is_refused(protocol: Protocol, asked: Any, told: str) -> None:
    for engine in ("auto", "embedded", "reference"):
        with pytest.raises(OptionError, match=told) as refused:
            check(protocol, engine=engine, symmetry=asked)
        assert "\n" not in str(refused.value)


def test_a_temporal_property_that_is_not_asked_for_is_no_obstacle() -> None:
    result = check(Living(), invariants=["the_last_one_never_leads"], symmetry=True)
    assert result.holds and result.symmetry == ("nodes",)


def test_a_declaration_answers_with_a_text() -> None:
    with pytest.raises(NotAProtocol, match="nodes is declared symmetric by returned True"):
        check(Wordless(), symmetry=True)


def test_without_being_asked_nothing_is_reduced() -> None:
    result = check(Shop())
    assert result.distinct_states == brute.explore(Shop()).distinct
    assert result.symmetry == () and "symmetry" not in str(result)


# -- results ----------------------------------------------------------------------------------------------------------


def test_the_story_says_what_was_counted() -> None:
    text = str(check(Shop(), symmetry=True))
    count = orbits(brute.explore(Shop()), ["c1", "c2", "c3"], ["k1", "k2"])
    assert f"in all {count} reachable states up to symmetry of clients and clerks" in text
    assert "a second, up to symmetry of clients and clerks" in text


def test_seconds_are_those_that_the_user_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    """They include the trial, tables and replay, and not only the engine's own."""
    before = time.monotonic()

    class Slow(Election):
        @assumption
        def takes_its_time(self) -> bool:
            time.sleep(0.3)
            return True

    for engine in ("auto", "embedded", "reference"):
        result = check(Slow(), engine=engine, symmetry=True, workers=1)
        assert result.violations and 0.3 <= result.seconds <= time.monotonic() - before


def test_the_least_of_many_fingerprints_collide_more() -> None:
    assert collision_probability(3_000, 1_000, 64, 6) == pytest.approx(
        36 / 11 * collision_probability(3_000, 1_000, 64)
    )


# -- checkpoints ------------------------------------------------------------------------------------------------------


def figures(result: Result) -> tuple[object, ...]:
    return (
        result.verdict,
        result.complete,
        result.distinct_states,
        result.generated_states,
        result.depth,
        result.actions,
    )


@pytest.mark.parametrize("bits", [64, 128])
def test_a_resumed_search_ends_as_if_nothing_had_happened(tmp_path: Path, bits: int) -> None:
    protocol = shipped("ledger-chaining")(clients=3, next_ledger_limit=3)
    asked: dict[str, Any] = {"engine": "embedded", "symmetry": True, "bits": bits}
    whole = check(protocol, workers=2, **asked)
    first = check(protocol, workers=1, max_depth=12, checkpoint=tmp_path / "saved", **asked)
    assert not first.complete
    assert figures(check(protocol, workers=2, resume=tmp_path / "saved", **asked)) == figures(whole)


def test_a_checkpoint_is_refused_with_another_symmetry(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    asked: dict[str, Any] = {"engine": "embedded", "workers": 1}
    check(Shop(), symmetry=["clients"], max_depth=3, checkpoint=saved, **asked)
    for other in (False, True):
        result = check(Shop(), symmetry=other, resume=saved, **asked)
        assert isinstance(result.failure, SystemFailure)
        assert "was made with symmetry clients; give symmetry clients again" in str(result.failure)


# -- the shipped protocols --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "constants", "sets", "depth"),
    [
        ("ledger-chaining", {"clients": 2, "next_ledger_limit": 2}, ["c1 c2"], None),
        ("ledger-chaining", {"clients": 3, "next_ledger_limit": 3}, ["c1 c2 c3"], 8),
        ("bookkeeper-4.13", {"recovery_reads_fence": True}, ["b1 b2 b3"], 4),
        *campaign_if(
            bool,
            [
                ("bookkeeper-4.13", {"bookies": 2, "write_quorum": 2, "ack_quorum": 1}, ["b1 b2"], 6),
                ("bookkeeper-limbo", {}, ["b1 b2", "c1 c2"], 5),
                ("bookkeeper-boot", {"bookies": 3}, ["b1 b2 b3"], 5),
                ("bookkeeper-boot", {"bookies": 2, "recoverers": 2}, ["b1 b2", "r1 r2"], 6),
            ],
        ),
    ],
)
def test_shipped_protocols_are_as_symmetric_as_they_say(
    name: str, constants: Any, sets: list[str], depth: int | None
) -> None:
    protocol = shipped(name)(**constants)
    space = brute.explore(protocol, max_depth=depth)
    for result in (
        check(protocol, engine=engine, workers=1, symmetry=True, max_depth=depth)
        for engine in ("embedded", "reference")
    ):
        assert result.distinct_states == orbits(space, *(members.split() for members in sets))
    assert result.distinct_states < space.distinct * 0.7


def test_bookies_are_alike_only_where_there_is_one_ensemble() -> None:
    protocol = shipped("bookkeeper-4.13")(bookies=3, write_quorum=2)
    with pytest.raises(
        OptionError, match="bookies are not symmetric in this configuration: an ensemble is chosen in the order"
    ):
        check(protocol, symmetry=True)


@pytest.mark.campaign
def test_shipped_protocols_pass_their_own_check() -> None:
    for name, config, depth in (
        ("ledger-chaining", "published", 6),
        ("bookkeeper-4.13", "fixed", 3),
        ("bookkeeper-limbo", "protected", 3),
        ("bookkeeper-boot", "small", 3),
    ):
        result = check(shipped(name).configured(config), symmetry=True, checking=True, workers=1, max_depth=depth)
        assert result.error is None and result.failure is None
