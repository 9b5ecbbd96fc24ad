"""Which bookies an ensemble takes: compared with every ensemble that there is, and a few by hand."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.ledger.rules import placement as rules
from fencepost.ledger.rules.placement import (
    DEFAULT_RACK,
    Placement,
    Policy,
    chosen,
    move,
    rack,
    replaced,
    replacement,
    spread,
)

NAMES = "abcdefg"
RACKS = ("/x/1", "/x/2", "/y/1", "/y/2", "/z/1", "/lone")
POLICIES = st.builds(
    Policy,
    min_num_racks_per_write_quorum=st.integers(1, 3),
    enforce_min_num_racks_per_write_quorum=st.booleans(),
    min_num_zones_per_write_quorum=st.integers(1, 3),
    desired_num_zones_per_write_quorum=st.integers(1, 3),
    enforce_strict_zoneaware_placement=st.booleans(),
)
PLACEMENTS = st.builds(
    lambda policy, racks: Placement(policy, tuple(sorted(racks.items()))),
    POLICIES,
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from(RACKS)),
)
SOME = st.frozensets(st.sampled_from(NAMES))
CANDIDATES = st.permutations(NAMES).flatmap(lambda names: st.integers(0, 6).map(lambda count: names[:count]))


# -- the plain twin ----------------------------------------------------------------------------------------------------


def write_sets(size: int, quorum: int) -> list[list[int]]:
    return [[(first + n) % size for n in range(quorum)] for first in range(1 if quorum == size else size)]


def racks_of(bookies: Collection[str], placement: Placement) -> set[str]:
    known, policy = dict(placement.racks), placement.policy
    enforced = policy.enforce_min_num_racks_per_write_quorum and policy.min_num_racks_per_write_quorum > 1
    return {known.get(b, "none") for b in bookies if b in known or not enforced}


def zones_of(bookies: Collection[str], placement: Placement, desired: bool = False) -> set[str]:
    known, policy = dict(placement.racks), placement.policy
    enforced = policy.enforce_strict_zoneaware_placement and policy.min_num_zones_per_write_quorum > 1
    zones = {known[b].split("/")[1] if known.get(b, "").count("/") == 2 else "none" for b in bookies}
    return zones - {"none"} if enforced and not desired else zones


def may_be_taken(b: str, placement: Placement) -> bool:
    return len(racks_of([b], placement)) == len(zones_of([b], placement)) == 1


def lacks(before: Sequence[str | None], after: Sequence[str], quorum: int, placement: Placement) -> float:
    """What an ensemble lacks in the write sets that change; infinite if more than is inevitable, and enforced."""
    policy, total = placement.policy, 0.0
    for places in write_sets(len(after), quorum):
        kept = [b for place in places if (b := before[place]) is not None]
        free, now = quorum - len(kept), [after[place] for place in places]
        if not free:
            continue
        for found, there, number, enforced in (
            (
                len(racks_of(now, placement)),
                len(racks_of(kept, placement)),
                policy.min_num_racks_per_write_quorum,
                policy.enforce_min_num_racks_per_write_quorum,
            ),
            (
                len(zones_of(now, placement)),
                len(zones_of(kept, placement)),
                policy.min_num_zones_per_write_quorum,
                policy.enforce_strict_zoneaware_placement,
            ),
        ):
            if enforced and found < min(number, there + free):
                return float("inf")
            total += 1000 * max(0, min(number, quorum) - found)
        total += max(
            0, min(policy.desired_num_zones_per_write_quorum, quorum) - len(zones_of(now, placement, desired=True))
        )
    return total


def filled(before: Sequence[str | None], new: Sequence[str]) -> tuple[str, ...]:
    fresh = iter(new)
    return tuple(next(fresh) if b is None else b for b in before)


def slowly(
    before: Sequence[str | None], candidates: Sequence[str], quorum: int, placement: Placement
) -> tuple[str, ...] | None:
    """The first ensemble, in the order of candidates, that lacks least."""
    some = [b for b in candidates if b not in before and may_be_taken(b, placement)]
    every = [filled(before, new) for new in permutations(some, before.count(None))]
    found = min(every, key=lambda each: lacks(before, each, quorum, placement), default=None)
    return None if found is None or lacks(before, found, quorum, placement) == float("inf") else found


def trusted_first(
    before: Sequence[str | None],
    candidates: Sequence[str],
    suspects: Collection[str],
    quorum: int,
    placement: Placement,
) -> tuple[str, ...] | None:
    trusted = [b for b in candidates if b not in suspects]
    found = slowly(before, trusted, quorum, placement)
    return found or slowly(before, trusted + [b for b in candidates if b in suspects], quorum, placement)


@st.composite
def quorums(draw: st.DrawFn) -> tuple[int, int]:
    size = draw(st.integers(1, 4))
    return size, draw(st.integers(1, size))


@given(CANDIDATES, quorums(), PLACEMENTS, SOME)
def test_a_new_ensemble_is_the_first_of_all_that_lacks_least(
    candidates: list[str], sizes: tuple[int, int], placement: Placement, suspects: frozenset[str]
) -> None:
    size, quorum = sizes
    expected = trusted_first((None,) * size, candidates, suspects, quorum, placement)
    assert chosen(candidates, size, quorum, placement, suspects) == expected


@given(st.permutations(NAMES), CANDIDATES, quorums(), PLACEMENTS, SOME, SOME)
def test_a_changed_ensemble_is_the_first_of_all_that_lacks_least(
    names: list[str],
    candidates: list[str],
    sizes: tuple[int, int],
    placement: Placement,
    failed: frozenset[str],
    suspects: frozenset[str],
) -> None:
    ensemble = tuple(names[: sizes[0]])
    before = tuple(None if b in failed else b for b in ensemble)
    some = [b for b in candidates if b not in failed and b not in ensemble]
    expected = trusted_first(before, some, suspects, sizes[1], placement)
    assert replaced(ensemble, failed, candidates, sizes[1], placement, suspects) == expected


@given(st.permutations(NAMES), CANDIDATES, quorums(), PLACEMENTS, SOME)
def test_no_change_leaves_a_write_set_in_fewer_racks_than_the_minimum(
    names: list[str], candidates: list[str], sizes: tuple[int, int], placement: Placement, failed: frozenset[str]
) -> None:
    ensemble, quorum = tuple(names[: sizes[0]]), sizes[1]
    changed = replaced(ensemble, failed, candidates, quorum, placement)
    racks = placement.policy.enforce_min_num_racks_per_write_quorum
    zones = placement.policy.enforce_strict_zoneaware_placement
    if changed is None or not (racks and zones) or spread(ensemble, quorum, placement).lacking:
        return
    assert spread(changed, quorum, placement).lacking == 0


@given(st.permutations(NAMES), CANDIDATES, quorums(), PLACEMENTS, SOME.filter(bool))
def test_a_repair_bookie_by_bookie_keeps_the_minimum_and_comes_to_its_end(
    names: list[str], candidates: list[str], sizes: tuple[int, int], placement: Placement, gone: frozenset[str]
) -> None:
    """Whatever bookie comes back in between, and whichever is replaced next."""
    ensemble, quorum = tuple(names[: sizes[0]]), sizes[1]
    candidates = [b for b in candidates if b not in gone]
    policy = placement.policy
    is_strict = policy.enforce_min_num_racks_per_write_quorum and policy.enforce_strict_zoneaware_placement
    is_met = is_strict and not spread(ensemble, quorum, placement).lacking
    plan = replaced(ensemble, gone, candidates, quorum, placement)
    lost = [b for b in ensemble if b in gone]
    while lost:
        new = replacement(ensemble, lost[0], gone, candidates, quorum, placement)
        if new is None:
            break
        assert new in candidates and new not in ensemble and may_be_taken(new, placement)
        ensemble = tuple(new if b == lost[0] else b for b in ensemble)
        assert not is_met or not spread(ensemble, quorum, placement).lacking
        lost = lost[1:]
    enforced = policy.enforce_min_num_racks_per_write_quorum or policy.enforce_strict_zoneaware_placement
    assert not lost or plan is None or enforced


@given(st.permutations(NAMES), CANDIDATES, quorums(), PLACEMENTS)
def test_each_move_lacks_less_until_no_single_one_helps(
    names: list[str], candidates: list[str], sizes: tuple[int, int], placement: Placement
) -> None:
    ensemble, quorum = tuple(names[: sizes[0]]), sizes[1]
    while (found := move(ensemble, candidates, quorum, placement)) is not None:
        old, new = found
        changed = tuple(new if b == old else b for b in ensemble)
        assert new not in ensemble and old in ensemble and new in candidates
        assert spread(changed, quorum, placement).lacking < spread(ensemble, quorum, placement).lacking
        ensemble = changed
    if quorum == len(ensemble) == 2 and spread(ensemble, quorum, placement).lacking:
        pairs = [(a, b) for a in ensemble for b in candidates if b not in ensemble and may_be_taken(b, placement)]
        assert all(spread(pair, 2, placement).lacking for pair in pairs)


@given(st.permutations(NAMES), quorums(), PLACEMENTS)
def test_the_spread_is_that_of_the_worst_write_set(
    names: list[str], sizes: tuple[int, int], placement: Placement
) -> None:
    ensemble, quorum, policy = tuple(names[: sizes[0]]), sizes[1], placement.policy
    sets = [[ensemble[place] for place in places] for places in write_sets(*sizes)]
    found = spread(ensemble, quorum, placement)
    there = {*ensemble, *dict(placement.racks)}
    asked_racks, asked_zones = policy.min_num_racks_per_write_quorum, policy.min_num_zones_per_write_quorum
    if not policy.enforce_min_num_racks_per_write_quorum:
        asked_racks = min(asked_racks, len(racks_of(there, placement)))
    if not policy.enforce_strict_zoneaware_placement:
        asked_zones = min(asked_zones, len(zones_of(there, placement)))
    assert found.racks == min(len(racks_of(each, placement)) for each in sets)
    assert found.zones == min(len(zones_of(each, placement)) for each in sets)
    assert found.lacking == sum(
        max(0, min(asked_racks, quorum) - len(racks_of(each, placement)))
        + max(0, min(asked_zones, quorum) - len(zones_of(each, placement)))
        for each in sets
    )


# -- by hand -----------------------------------------------------------------------------------------------------------


def placed(racks: str, **policy: object) -> Placement:
    """Bookies a, b, c and so on in these racks, one letter each; a dot: in none."""
    known = tuple((b, f"/{each}") for b, each in zip("abcdefghijklmnopqrstuvwxyz", racks, strict=False) if each != ".")
    return Placement(Policy(**policy), known)  # type: ignore[arg-type]


STRICT = {"enforce_min_num_racks_per_write_quorum": True}


@pytest.mark.parametrize(
    ("racks", "size", "quorum", "policy", "expected"),
    [
        ("", 3, 3, {}, "abc"),  # nobody has a rack
        ("AAAB", 3, 3, {}, "abd"),
        ("AAAB", 2, 2, {}, "ad"),
        ("AAAB", 4, 2, {}, "abcd"),  # b and c are together in one write set: it cannot be helped
        ("AAAB", 4, 2, STRICT, None),
        ("AABB", 4, 2, STRICT, "acbd"),
        ("AAAAB", 3, 3, {"min_num_racks_per_write_quorum": 1}, "abc"),
        ("AAAA", 3, 3, STRICT, None),
        ("A...", 3, 3, {}, "abc"),  # the default rack is one
        ("A...", 3, 3, STRICT, None),
        ("A..B", 2, 2, STRICT, "ad"),
        ("ABC", 3, 3, {"min_num_racks_per_write_quorum": 3, **STRICT}, "abc"),
        ("ABAB", 3, 3, {"min_num_racks_per_write_quorum": 3, **STRICT}, None),
        ("ABAB", 2, 2, {"min_num_racks_per_write_quorum": 3, **STRICT}, "ab"),  # no more than there are bookies
        ("AAABBBCCC", 6, 3, {"min_num_racks_per_write_quorum": 3, **STRICT}, "adgbeh"),
        ("AAAABBCCC", 5, 3, {"min_num_racks_per_write_quorum": 3, **STRICT}, None),  # three racks, five places
    ],
)
def test_ensembles(racks: str, size: int, quorum: int, policy: dict[str, object], expected: str | None) -> None:
    found = chosen("abcdefghi"[: max(len(racks), 4)], size, quorum, placed(racks, **policy))
    assert found == (None if expected is None else tuple(expected))


def test_a_drill_without_a_zone() -> None:
    """A zone is switched off: with enforcement, nothing moves into the other; without, it does, and can move back."""
    known = tuple((b, f"/{zone}/{b}") for b, zone in zip("abcdef", "xxxyyy", strict=True))
    strict = Placement(Policy(min_num_zones_per_write_quorum=2), known)
    soft = Placement(Policy(min_num_zones_per_write_quorum=2, enforce_strict_zoneaware_placement=False), known)
    assert chosen("abcdef", 3, 3, strict) == ("a", "b", "d")
    assert replacement(("a", "b", "d"), "d", "def", "abc", 3, strict) is None
    assert replacement(("a", "b", "d"), "d", "def", "abc", 3, soft) == "c"
    assert spread(("a", "b", "c"), 3, soft) == (3, 1, 1)
    assert move(("a", "b", "c"), "abcdef", 3, soft) == ("a", "d")
    assert spread(("d", "b", "c"), 3, soft) == (3, 2, 0)


def test_nothing_is_lacking_where_there_is_one_rack_alone() -> None:
    assert spread(("a", "b"), 2, placed("")) == (1, 1, 0), "nobody has set a rack"
    assert spread(("a", "b"), 2, placed("AA")) == (1, 1, 0)
    assert spread(("a", "b"), 2, placed("AAB")) == (1, 1, 1), "a rack that is away is one"
    assert spread(("a", "b"), 2, placed("..", **STRICT)).lacking == 2


def test_desired_zones_are_taken_if_they_are_there() -> None:
    policy = {"min_num_zones_per_write_quorum": 2, "desired_num_zones_per_write_quorum": 3}
    known = tuple((b, f"/{zone}/{b}") for b, zone in zip("abcdef", "xxyyzz", strict=True))
    placement = Placement(Policy(**policy), known)  # type: ignore[arg-type]
    assert chosen("abcdef", 3, 3, placement) == ("a", "c", "e")
    assert chosen("abcd", 3, 3, placement) == ("a", "b", "c")
    assert chosen("ab", 2, 2, placement) is None


def test_suspects_come_last_even_where_they_would_spread_better() -> None:
    """Otherwise a writer would take the dead bookies of a lost rack again and again."""
    soft, strict = placed("AAAB"), placed("AAAB", **STRICT)
    assert chosen("dabc", 2, 2, soft, suspects="d") == ("a", "b")
    assert chosen("dabc", 2, 2, strict, suspects="d") == ("a", "d")
    assert replaced("ab", "b", "dc", 2, soft, suspects="d") == ("a", "c")


def test_what_was_placed_badly_before_does_not_stop_a_repair() -> None:
    """Racks were set when the ledger was there already."""
    strict = placed("AAAAB", min_num_racks_per_write_quorum=3, **STRICT)
    assert replacement("abc", "c", "c", "de", 3, strict) == "e"
    assert replacement("abc", "c", "c", "d", 3, strict) is None


def test_two_lost_bookies_are_replaced_so_that_both_can_be() -> None:
    for policy in ({}, STRICT):
        placement = placed("XBSTZS", **policy)
        # a and b are lost. Both e and f could take a's place, and only e that of b, beside c: f is in c's rack.
        assert replacement("abcd", "a", "a", "ef", 2, placement) == "e"
        assert replacement("abcd", "a", "ab", "ef", 2, placement) == "f"
        assert replacement("fbcd", "b", "ab", "e", 2, placement) == "e"
        assert replacement("abcd", "b", "ab", "fe", 2, placement) == "e"


def test_a_replacement_may_live_with_lost_bookies_that_come_back() -> None:
    """It must not be in the rack of one that is replaced next."""
    strict, soft = placed("ABAB", **STRICT), placed("ABAB")
    for placement in (strict, soft):
        assert replacement("ab", "a", "ab", "dc", 2, placement) == "c"
    assert replacement("ab", "a", "ab", "d", 2, strict) is None
    assert replacement("ab", "a", "ab", "d", 2, soft) == "d"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("/x", "/x"),
        ("x", "/x"),
        (" /x/y/ ", "/x/y"),
        ("/", None),
        ("", None),
        ("//", None),
        ("/default-rack", DEFAULT_RACK),
    ],
)
def test_racks_as_they_are_written(written: str, read: str | None) -> None:
    assert rack(written) == read


def test_a_search_has_an_end() -> None:
    """Eleven of nineteen racks in each write set of twenty bookies: there is no such ensemble, and many to try."""
    names = [f"b{n}" for n in range(40)]
    placement = Placement(
        Policy(min_num_racks_per_write_quorum=11, enforce_min_num_racks_per_write_quorum=True),
        tuple((b, f"/r{n % 19}") for n, b in enumerate(names)),
    )
    search = rules._Search([(None,) * 20], names, 11, placement)
    assert search.best() is None
    assert search.steps <= rules.STEPS + 20
    soft = placement.replace(policy=placement.policy.replace(enforce_min_num_racks_per_write_quorum=False))
    assert chosen(names, 20, 11, soft) is not None
