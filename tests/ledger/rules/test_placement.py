"""Which bookies an ensemble takes: compared with every ensemble that there is, and a few by hand."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import combinations, permutations
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.ledger.rules import placement as rules
from fencepost.ledger.rules.placement import (
    DEFAULT_RACK,
    Placement,
    Policy,
    Quorums,
    Unplaced,
    chosen,
    move,
    rack,
    replaced,
    replacement,
    spread,
    unmet,
    weights,
)

NAMES = "abcdefg"
RACKS = ("/x/1", "/x/2", "/y/1", "/y/2", "/z/1", "/lone")
GROUPS = ("red", "blue", "green")
POLICIES = st.builds(
    Policy,
    min_num_racks_per_write_quorum=st.integers(1, 3),
    enforce_min_num_racks_per_write_quorum=st.booleans(),
    min_num_zones_per_write_quorum=st.integers(1, 3),
    desired_num_zones_per_write_quorum=st.integers(1, 3),
    enforce_strict_zoneaware_placement=st.booleans(),
    repp_regions_to_write=st.sampled_from([(), (), ("x", "y"), ("x", "y", "z")]),
    repp_minimum_regions_for_durability=st.integers(1, 3),
    repp_enable_durability_enforcement_in_replace=st.booleans(),
    isolation_bookie_groups=st.sampled_from([(), (), ("red",), ("red", "green")]),
    secondary_isolation_bookie_groups=st.sampled_from([(), ("blue",), ("blue", "green")]),
)
PLACEMENTS = st.builds(
    lambda policy, racks, groups: Placement(policy, tuple(sorted(racks.items())), tuple(sorted(groups))),
    POLICIES,
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from(RACKS)),
    st.sets(st.tuples(st.sampled_from(NAMES), st.sampled_from(GROUPS)), max_size=6),
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


def zone_of(b: str, placement: Placement) -> str:
    place = dict(placement.racks).get(b, "")
    return place.split("/")[1] if place.count("/") == 2 else "none"


def zones_of(bookies: Collection[str], placement: Placement, desired: bool = False) -> set[str]:
    policy = placement.policy
    enforced = policy.enforce_strict_zoneaware_placement and policy.min_num_zones_per_write_quorum > 1
    zones = {zone_of(b, placement) for b in bookies}
    return zones - {"none"} if enforced and not desired else zones


def may_be_taken(b: str, placement: Placement) -> bool:
    regions = placement.policy.repp_regions_to_write
    is_known = len(racks_of([b], placement)) == len(zones_of([b], placement)) == 1
    return is_known and (not regions or zone_of(b, placement) in regions)


def groups_of(b: str, placement: Placement) -> set[str]:
    return {group for each, group in placement.groups if each == b}


def is_of_another_group(b: str, placement: Placement) -> bool:
    policy, own = placement.policy, groups_of(b, placement)
    allowed = {*policy.isolation_bookie_groups, *policy.secondary_isolation_bookie_groups}
    return bool(policy.isolation_bookie_groups) and bool(own) and not own & allowed


def regions_of_acks(zones: Sequence[str], ack_quorum: int) -> int:
    """The fewest regions that an ack quorum is in."""
    return min(len({*some} - {"none"}) for some in combinations(zones, ack_quorum))


def required(policy: Policy) -> int:
    return policy.repp_minimum_regions_for_durability if policy.repp_regions_to_write else 1


def lacks(
    before: Sequence[str | None],
    after: Sequence[str],
    quorums: Quorums,
    placement: Placement,
    others: Collection[str] = (),
    is_new: bool = False,
) -> float:
    """What an ensemble lacks in the write sets that change; infinite if more than is inevitable, and enforced.
    ``others``: the regions of all that could be taken.
    """
    policy, total, (quorum, ack_quorum) = placement.policy, 0.0, quorums
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
        desired = max(policy.desired_num_zones_per_write_quorum, len(policy.repp_regions_to_write))
        total += max(0, min(desired, quorum) - len(zones_of(now, placement, desired=True)))
        if policy.repp_regions_to_write:
            at, before_at = ([zone_of(b, placement) for b in some] for some in (now, kept))
            best = regions_of_acks(before_at + [f"new{n}" for n in range(free)], ack_quorum)
            missing = min(required(policy), best) - regions_of_acks(at, ack_quorum)
            if missing > 0 and (is_new or policy.repp_enable_durability_enforcement_in_replace):
                return float("inf")
            if missing > 0:
                total += 1000 * missing
            share = math.ceil(quorum / len({*others, *before_at}))
            old = Counter(before_at)
            total += 0 if missing > 0 else sum(max(0, n - max(share, old[z])) for z, n in Counter(at).items())
    return total


def filled(before: Sequence[str | None], new: Sequence[str]) -> tuple[str, ...]:
    fresh = iter(new)
    return tuple(next(fresh) if b is None else b for b in before)


def slowly(
    before: Sequence[str | None], candidates: Sequence[str], quorums: Quorums, placement: Placement, is_new: bool
) -> tuple[str, ...] | None:
    """The first ensemble, in the order of candidates, that lacks least."""
    some = [b for b in candidates if b not in before and may_be_taken(b, placement)]
    others = {zone_of(b, placement) for b in some}
    every = [filled(before, new) for new in permutations(some, before.count(None))]

    def cost(each: Sequence[str]) -> float:
        return lacks(before, each, quorums, placement, others, is_new)

    found = min(every, key=cost, default=None)
    return None if found is None or cost(found) == float("inf") else found


def by_turns(
    before: Sequence[str | None],
    candidates: Sequence[str],
    suspects: Collection[str],
    quorums: Quorums,
    placement: Placement,
    is_new: bool = False,
) -> tuple[str, ...] | Unplaced:
    """Those of the groups first, and of these the trusted ones; bookies without a group last."""
    primary = placement.policy.isolation_bookie_groups

    def turn(b: str) -> int:
        own = groups_of(b, placement)
        if not primary:
            return int(b in suspects)
        if not own:
            return 4 + (b in suspects)
        return 2 * (b in suspects) + (not own & {*primary})

    there = [b for b in candidates if b not in before]
    if len(there) < before.count(None):
        return Unplaced.TOO_FEW
    if is_new and required(placement.policy) > quorums[1]:
        return Unplaced.UNMET
    open_to_us = sorted((b for b in there if not is_of_another_group(b, placement)), key=turn)
    for last in sorted({turn(b) for b in open_to_us}) or [0]:
        some = [b for b in open_to_us if turn(b) <= last]
        if (found := slowly(before, some, quorums, placement, is_new)) is not None:
            return found
    return Unplaced.UNMET


@st.composite
def sizes(draw: st.DrawFn) -> tuple[int, Quorums]:
    size = draw(st.integers(1, 4))
    write_quorum = draw(st.integers(1, size))
    return size, (write_quorum, draw(st.integers(1, write_quorum)))


@given(CANDIDATES, sizes(), PLACEMENTS, SOME)
def test_a_new_ensemble_is_the_first_of_all_that_lacks_least(
    candidates: list[str], sizes: tuple[int, Quorums], placement: Placement, suspects: frozenset[str]
) -> None:
    size, quorums = sizes
    expected = by_turns((None,) * size, candidates, suspects, quorums, placement, is_new=True)
    assert chosen(candidates, size, quorums, placement, suspects) == expected


@given(st.permutations(NAMES), CANDIDATES, sizes(), PLACEMENTS, SOME, SOME)
def test_a_changed_ensemble_is_the_first_of_all_that_lacks_least(
    names: list[str],
    candidates: list[str],
    sizes: tuple[int, Quorums],
    placement: Placement,
    failed: frozenset[str],
    suspects: frozenset[str],
) -> None:
    ensemble = tuple(names[: sizes[0]])
    before = tuple(None if b in failed else b for b in ensemble)
    some = [b for b in candidates if b not in failed and b not in ensemble]
    expected = by_turns(before, some, suspects, sizes[1], placement)
    assert replaced(ensemble, failed, candidates, sizes[1], placement, suspects) == expected


def is_strict(policy: Policy) -> bool:
    return (
        policy.enforce_min_num_racks_per_write_quorum
        and policy.enforce_strict_zoneaware_placement
        and (policy.repp_enable_durability_enforcement_in_replace or not policy.repp_regions_to_write)
    )


@given(CANDIDATES, sizes(), PLACEMENTS)
def test_a_new_ensemble_meets_what_is_enforced(
    candidates: list[str], sizes: tuple[int, Quorums], placement: Placement
) -> None:
    ensemble = chosen(candidates, *sizes, placement)
    if isinstance(ensemble, Unplaced):
        return
    minimum = required(placement.policy)
    assert minimum == 1 or spread(ensemble, sizes[1], placement).regions >= minimum
    assert not is_strict(placement.policy) or not spread(ensemble, sizes[1], placement).lacking
    assert not any(is_of_another_group(b, placement) for b in ensemble)


@given(st.permutations(NAMES), CANDIDATES, sizes(), PLACEMENTS, SOME)
def test_no_change_leaves_a_write_set_in_fewer_racks_than_the_minimum(
    names: list[str], candidates: list[str], sizes: tuple[int, Quorums], placement: Placement, failed: frozenset[str]
) -> None:
    ensemble, quorums = tuple(names[: sizes[0]]), sizes[1]
    changed = replaced(ensemble, failed, candidates, quorums, placement)
    if isinstance(changed, Unplaced) or not is_strict(placement.policy):
        return
    assert spread(ensemble, quorums, placement).lacking or not spread(changed, quorums, placement).lacking


@given(st.permutations(NAMES), CANDIDATES, sizes(), PLACEMENTS, SOME.filter(bool))
def test_a_repair_bookie_by_bookie_keeps_the_minimum_and_comes_to_its_end(
    names: list[str], candidates: list[str], sizes: tuple[int, Quorums], placement: Placement, gone: frozenset[str]
) -> None:
    """Whatever bookie comes back in between, and whichever is replaced next."""
    ensemble, quorums = tuple(names[: sizes[0]]), sizes[1]
    candidates = [b for b in candidates if b not in gone]
    policy = placement.policy
    is_met = is_strict(policy) and not spread(ensemble, quorums, placement).lacking
    plan = replaced(ensemble, gone, candidates, quorums, placement)
    lost = [b for b in ensemble if b in gone]
    while lost:
        new = replacement(ensemble, lost[0], gone, candidates, quorums, placement)
        if isinstance(new, Unplaced):
            break
        assert new in candidates and new not in ensemble and may_be_taken(new, placement)
        ensemble = tuple(new if b == lost[0] else b for b in ensemble)
        assert not is_met or not spread(ensemble, quorums, placement).lacking
        lost = lost[1:]
    enforced = policy.enforce_min_num_racks_per_write_quorum or policy.enforce_strict_zoneaware_placement
    enforced = enforced or bool(policy.repp_regions_to_write)
    assert not lost or isinstance(plan, Unplaced) or enforced


@given(st.permutations(NAMES), CANDIDATES, sizes(), PLACEMENTS)
def test_each_move_lacks_less_until_no_single_one_helps(
    names: list[str], candidates: list[str], sizes: tuple[int, Quorums], placement: Placement
) -> None:
    ensemble, quorums = tuple(names[: sizes[0]]), sizes[1]
    while (found := move(ensemble, candidates, quorums, placement)) is not None:
        old, new = found
        changed = tuple(new if b == old else b for b in ensemble)
        assert new not in ensemble and old in ensemble and new in candidates
        assert spread(changed, quorums, placement).lacking < spread(ensemble, quorums, placement).lacking
        ensemble = changed
    if quorums[0] == len(ensemble) == 2 and spread(ensemble, quorums, placement).lacking:
        allowed = [b for b in candidates if may_be_taken(b, placement) and not is_of_another_group(b, placement)]
        pairs = [(a, b) for a in ensemble for b in allowed if b not in ensemble]
        assert placement.policy.isolation_bookie_groups or all(
            spread(pair, quorums, placement).lacking for pair in pairs
        )


@given(st.permutations(NAMES), sizes(), PLACEMENTS)
def test_the_spread_is_that_of_the_worst_write_set(
    names: list[str], sizes: tuple[int, Quorums], placement: Placement
) -> None:
    ensemble, (quorum, ack_quorum), policy = tuple(names[: sizes[0]]), sizes[1], placement.policy
    sets = [[ensemble[place] for place in places] for places in write_sets(sizes[0], quorum)]
    found = spread(ensemble, sizes[1], placement)
    there = {*ensemble, *dict(placement.racks)}
    asked_racks, asked_zones = policy.min_num_racks_per_write_quorum, policy.min_num_zones_per_write_quorum
    if not policy.enforce_min_num_racks_per_write_quorum:
        asked_racks = min(asked_racks, len(racks_of(there, placement)))
    if not policy.enforce_strict_zoneaware_placement:
        asked_zones = min(asked_zones, len(zones_of(there, placement)))
    regions = [regions_of_acks([zone_of(b, placement) for b in each], ack_quorum) for each in sets]
    assert found.racks == min(len(racks_of(each, placement)) for each in sets)
    assert found.zones == min(len(zones_of(each, placement)) for each in sets)
    assert found.regions == min(regions)
    assert found.lacking == sum(
        max(0, min(asked_racks, quorum) - len(racks_of(each, placement)))
        + max(0, min(asked_zones, quorum) - len(zones_of(each, placement)))
        + (max(0, required(policy) - of_acks) if required(policy) > 1 else 0)
        for each, of_acks in zip(sets, regions, strict=True)
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
        ("AAAB", 4, 2, STRICT, Unplaced.UNMET),
        ("AABB", 4, 2, STRICT, "acbd"),
        ("AAAAB", 3, 3, {"min_num_racks_per_write_quorum": 1}, "abc"),
        ("AAAA", 3, 3, STRICT, Unplaced.UNMET),
        ("A...", 3, 3, {}, "abc"),  # the default rack is one
        ("A...", 3, 3, STRICT, Unplaced.UNMET),
        ("A..B", 2, 2, STRICT, "ad"),
        ("ABC", 3, 3, {"min_num_racks_per_write_quorum": 3, **STRICT}, "abc"),
        ("ABAB", 3, 3, {"min_num_racks_per_write_quorum": 3, **STRICT}, Unplaced.UNMET),
        ("ABAB", 2, 2, {"min_num_racks_per_write_quorum": 3, **STRICT}, "ab"),  # no more than there are bookies
        ("AAABBBCCC", 6, 3, {"min_num_racks_per_write_quorum": 3, **STRICT}, "adgbeh"),
        (
            "AAAABBCCC",
            5,
            3,
            {"min_num_racks_per_write_quorum": 3, **STRICT},
            Unplaced.UNMET,
        ),  # three racks, five places
    ],
)
def test_ensembles(racks: str, size: int, quorum: int, policy: dict[str, object], expected: str | Unplaced) -> None:
    found = chosen("abcdefghi"[: max(len(racks), 4)], size, (quorum, quorum), placed(racks, **policy))
    assert found == (tuple(expected) if isinstance(expected, str) else expected)


def test_a_drill_without_a_zone() -> None:
    """A zone is switched off: with enforcement, nothing moves into the other; without, it does, and can move back."""
    known = tuple((b, f"/{zone}/{b}") for b, zone in zip("abcdef", "xxxyyy", strict=True))
    strict = Placement(Policy(min_num_zones_per_write_quorum=2), known)
    soft = Placement(Policy(min_num_zones_per_write_quorum=2, enforce_strict_zoneaware_placement=False), known)
    assert chosen("abcdef", 3, (3, 3), strict) == ("a", "b", "d")
    assert replacement(("a", "b", "d"), "d", "def", "abc", (3, 3), strict) is Unplaced.UNMET
    assert replacement(("a", "b", "d"), "d", "def", "abc", (3, 3), soft) == "c"
    assert spread(("a", "b", "c"), (3, 3), soft) == (3, 1, 1, 1)
    assert move(("a", "b", "c"), "abcdef", (3, 3), soft) == ("a", "d")
    assert spread(("d", "b", "c"), (3, 3), soft) == (3, 2, 2, 0)


def test_nothing_is_lacking_where_there_is_one_rack_alone() -> None:
    assert spread(("a", "b"), (2, 2), placed("")) == (1, 1, 0, 0), "nobody has set a rack"
    assert spread(("a", "b"), (2, 2), placed("AA")) == (1, 1, 0, 0)
    assert spread(("a", "b"), (2, 2), placed("AAB")) == (1, 1, 0, 1), "a rack that is away is one"
    assert spread(("a", "b"), (2, 2), placed("..", **STRICT)).lacking == 2


def test_desired_zones_are_taken_if_they_are_there() -> None:
    policy = {"min_num_zones_per_write_quorum": 2, "desired_num_zones_per_write_quorum": 3}
    known = tuple((b, f"/{zone}/{b}") for b, zone in zip("abcdef", "xxyyzz", strict=True))
    placement = Placement(Policy(**policy), known)  # type: ignore[arg-type]
    assert chosen("abcdef", 3, (3, 3), placement) == ("a", "c", "e")
    assert chosen("abcd", 3, (3, 3), placement) == ("a", "b", "c")
    assert chosen("ab", 2, (2, 2), placement) is Unplaced.UNMET


def test_suspects_come_last_even_where_they_would_spread_better() -> None:
    """Otherwise a writer would take the dead bookies of a lost rack again and again."""
    soft, strict = placed("AAAB"), placed("AAAB", **STRICT)
    assert chosen("dabc", 2, (2, 2), soft, suspects="d") == ("a", "b")
    assert chosen("dabc", 2, (2, 2), strict, suspects="d") == ("a", "d")
    assert replaced("ab", "b", "dc", (2, 2), soft, suspects="d") == ("a", "c")


def test_what_was_placed_badly_before_does_not_stop_a_repair() -> None:
    """Racks were set when the ledger was there already."""
    strict = placed("AAAAB", min_num_racks_per_write_quorum=3, **STRICT)
    assert replacement("abc", "c", "c", "de", (3, 3), strict) == "e"
    assert replacement("abc", "c", "c", "d", (3, 3), strict) is Unplaced.UNMET


def test_two_lost_bookies_are_replaced_so_that_both_can_be() -> None:
    for policy in ({}, STRICT):
        placement = placed("XBSTZS", **policy)
        # a and b are lost. Both e and f could take a's place, and only e that of b, beside c: f is in c's rack.
        assert replacement("abcd", "a", "a", "ef", (2, 2), placement) == "e"
        assert replacement("abcd", "a", "ab", "ef", (2, 2), placement) == "f"
        assert replacement("fbcd", "b", "ab", "e", (2, 2), placement) == "e"
        assert replacement("abcd", "b", "ab", "fe", (2, 2), placement) == "e"


def test_a_replacement_may_live_with_lost_bookies_that_come_back() -> None:
    """It must not be in the rack of one that is replaced next."""
    strict, soft = placed("ABAB", **STRICT), placed("ABAB")
    for placement in (strict, soft):
        assert replacement("ab", "a", "ab", "dc", (2, 2), placement) == "c"
    assert replacement("ab", "a", "ab", "d", (2, 2), strict) is Unplaced.UNMET
    assert replacement("ab", "a", "ab", "d", (2, 2), soft) == "d"


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
    policy = Policy(min_num_racks_per_write_quorum=11, enforce_min_num_racks_per_write_quorum=True)
    placement = Placement(policy, tuple((b, f"/r{n % 19}") for n, b in enumerate(names)))
    search = rules._Search([(None,) * 20], names, (11, 11), placement)
    assert search.best() is None and search.is_cut_short
    assert search.steps == rules.STEPS
    assert chosen(names, 20, (11, 11), placement) is Unplaced.UNKNOWN
    lost = names[19:21]
    assert replaced(names[:20], lost, names[20:], (11, 11), placement) is not Unplaced.UNKNOWN
    soft = placement.replace(policy=policy.replace(enforce_min_num_racks_per_write_quorum=False))
    assert not isinstance(chosen(names, 20, (11, 11), soft), Unplaced)


def test_what_cannot_be_is_known_at_once() -> None:
    """More racks, or more regions, than the bookies are in: no search of many steps."""
    names = [f"b{n}" for n in range(60)]
    for policy in (
        Policy(min_num_racks_per_write_quorum=3, enforce_min_num_racks_per_write_quorum=True),
        Policy(repp_regions_to_write=("r0", "r1", "r2"), repp_minimum_regions_for_durability=3),
    ):
        placement = Placement(policy, tuple((b, f"/r{n % 2}/s") for n, b in enumerate(names)))
        search = rules._Search([(None,) * 9], names, (9, 5), placement, is_new=True)
        assert search.best() is None and search.steps == 1 and not search.is_cut_short
        assert chosen(names, 9, (9, 5), placement) is Unplaced.UNMET
    assert chosen(names[:2], 3, (3, 3), placement) is Unplaced.TOO_FEW


# -- regions -----------------------------------------------------------------------------------------------------------


def in_regions(regions: str, minimum: int = 2, enforced: bool = True, **policy: object) -> Placement:
    """Bookies a, b, c and so on in these regions, each in a rack of its own; all regions but the dot are written to."""
    names = "abcdefghijklmnopqrstuvwxyz"
    return Placement(
        Policy(
            repp_regions_to_write=tuple(sorted({*regions} - {"."})),
            repp_minimum_regions_for_durability=minimum,
            repp_enable_durability_enforcement_in_replace=enforced,
            **policy,  # type: ignore[arg-type]
        ),
        tuple((b, f"/{region}/{b}") for b, region in zip(names, regions, strict=False) if region != "."),
    )


@pytest.mark.parametrize(
    ("regions", "size", "quorums", "minimum", "expected"),
    [
        ("AAABBB", 4, (4, 3), 2, "abde"),  # two in each: any three are in both
        ("AAAB", 4, (4, 3), 2, Unplaced.UNMET),  # three of A alone could acknowledge
        ("AAAB", 4, (4, 4), 2, "abcd"),
        ("AAAB", 4, (4, 3), 1, "abcd"),
        ("AAABBBCCC", 3, (3, 2), 2, "adg"),
        ("AAABBBCCC", 5, (5, 3), 2, "abdeg"),  # evenly: two, two and one
        ("AAABBBCCC", 6, (3, 2), 2, "adgbeh"),  # each write set has one of each
        ("ABAB", 3, (3, 2), 2, Unplaced.UNMET),  # two are in one region, and enough to acknowledge
        ("ABAB", 3, (3, 3), 2, "abc"),
        ("ABC", 3, (3, 2), 3, Unplaced.UNMET),  # two bookies are in no three regions
        ("A..B", 2, (2, 2), 2, "ad"),  # bookies without a region are not taken
        ("AB", 3, (3, 3), 2, Unplaced.TOO_FEW),
    ],
)
def test_ensembles_over_regions(
    regions: str, size: int, quorums: Quorums, minimum: int, expected: str | Unplaced
) -> None:
    found = chosen("abcdefghi"[: len(regions)], size, quorums, in_regions(regions, minimum))
    assert found == (tuple(expected) if isinstance(expected, str) else expected)


def test_bookies_of_other_regions_are_not_taken() -> None:
    placement = in_regions("AABBCC")
    without = placement.replace(policy=placement.policy.replace(repp_regions_to_write=("A", "B")))
    assert chosen("efabcd", 4, (4, 3), without) == ("a", "b", "c", "d")
    assert chosen("abef", 4, (4, 3), without) is Unplaced.UNMET


def test_a_region_that_is_away_is_not_replaced_by_others_where_that_is_enforced() -> None:
    strict, soft = in_regions("AAABBB"), in_regions("AAABBB", enforced=False)
    ensemble = ("a", "b", "d", "e")
    assert spread(ensemble, (4, 3), strict).regions == 2
    assert replaced(ensemble, "de", "c", (4, 3), strict) is Unplaced.TOO_FEW
    assert replacement(ensemble, "d", "de", "c", (4, 3), strict) is Unplaced.UNMET
    assert replacement(ensemble, "d", "de", "c", (4, 3), soft) == "c"
    assert spread(("a", "b", "c", "e"), (4, 3), strict) == (4, 2, 1, 1)
    assert move(("a", "b", "c", "e"), "abcdef", (4, 3), soft) == ("a", "d")


def test_a_ledger_from_before_the_regions_is_repaired() -> None:
    """It acknowledges with one bookie, which no two regions can have."""
    placement = in_regions("AABB")
    assert chosen("abcd", 2, (2, 1), placement) is Unplaced.UNMET
    assert replacement("ab", "b", "b", "cd", (2, 1), placement) == "c"
    assert spread("ac", (2, 1), placement).lacking == 1


def test_what_is_asked_for_in_words() -> None:
    assert unmet(Policy()) == ""
    assert unmet(in_regions("AB", isolation_bookie_groups=("red",)).policy) == (
        "reppRegionsToWrite = A;B and reppMinimumRegionsForDurability = 2 and isolationBookieGroups = red"
    )


# -- groups ------------------------------------------------------------------------------------------------------------


def grouped(groups: str, primary: str, secondary: str = "", **policy: object) -> Placement:
    """Bookies a, b, c and so on in these groups, one letter each; a dot: in none."""
    known = tuple((b, group) for b, group in zip("abcdefgh", groups, strict=False) if group != ".")
    own = Policy(
        isolation_bookie_groups=tuple(primary),
        secondary_isolation_bookie_groups=tuple(secondary),
        **policy,  # type: ignore[arg-type]
    )
    return Placement(own, (), known)


@pytest.mark.parametrize(
    ("groups", "primary", "secondary", "suspects", "expected"),
    [
        ("RRRBBB", "R", "", "", "abc"),
        ("BBBRRR", "R", "", "", "def"),
        ("RRBBB", "R", "", "", Unplaced.UNMET),  # the others are of another group
        ("RRBBB", "R", "B", "", "abc"),  # two of the group, and one of the secondary one
        ("BBRBB", "R", "B", "", "cab"),
        ("RRGGB", "RB", "G", "", "abe"),
        ("RR.BB", "R", "", "", "abc"),  # bookies without a group are there for all
        ("RR.B.", "R", "B", "", "abd"),
        ("RRRBBB", "R", "B", "a", "bcd"),  # a bookie that has failed is not there
        ("RRR...", "R", "", "a", "bca"),  # but rather it than one without a group
        ("RRRBBB", "", "", "", "abc"),
        ("RRRBBB", "", "B", "", "abc"),
        ("BBBBBB", "R", "", "", Unplaced.UNMET),
    ],
)
def test_groups(groups: str, primary: str, secondary: str, suspects: str, expected: str | Unplaced) -> None:
    found = chosen("abcdef"[: len(groups)], 3, (3, 2), grouped(groups, primary, secondary), suspects)
    assert found == (tuple(expected) if isinstance(expected, str) else expected)


def test_a_bookie_of_two_groups_is_of_both() -> None:
    placement = grouped("BBB", "R")
    placement = placement.replace(groups=(*placement.groups, ("c", "R")))
    assert chosen("abc", 1, (1, 1), placement) == ("c",)
    assert replacement("cx", "x", "x", "ab", (2, 2), placement) is Unplaced.UNMET


# -- free space --------------------------------------------------------------------------------------------------------


def test_weights_are_free_space_up_to_a_multiple_of_the_median() -> None:
    free = {"a": 10, "b": 20, "c": 1000, "d": 0}
    assert weights(free, "abc", 3) == [10, 20, 60]
    assert weights(free, "abc", 0) == [10, 20, 1000]
    assert weights(free, "abcde", 3) == [10, 20, 30, 10, 10], "a full or unknown bookie counts as the fullest other"
    assert weights({}, "ab", 3) == [1, 1]
    assert weights({"a": 5}, "abcd", 3) == [5, 5, 5, 5], "no limit, as the median is nothing"


@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=9), st.integers(0, 5))
def test_every_bookie_may_be_drawn(space: list[int], most: int) -> None:
    bookies = [f"b{n}" for n in range(len(space))]
    likely = weights(dict(zip(bookies, space, strict=True)), bookies, most)
    assert all(weight > 0 for weight in likely)
    if median(space):
        assert not most or max(likely) <= max(most * median(space), min(filter(None, space)))
