"""Placement: which bookies an ensemble takes, so that each entry is in several racks, zones and regions.

A bookie's rack is a path, ``/rack``, ``/zone/rack`` or ``/region/rack``: what comes first is a zone or a region, by
the settings that are used. The settings have the names of BookKeeper's and Pulsar's. BookKeeper's
``RackawareEnsemblePlacementPolicy``, ``ZoneawareEnsemblePlacementPolicy`` and ``RegionAwareEnsemblePlacementPolicy``
choose bookie after bookie, and give up although an ensemble may exist. The rules here search, and so find one if there
is one. They draw no random numbers: bookies come in order of preference.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from fencepost.language.values import Record
from fencepost.ledger.rules.ensembles import write_set

B = TypeVar("B")

DEFAULT_RACK = "/default-rack"
"""The rack of bookies without one, as BookKeeper names it."""

STEPS = 2_000
"""The most steps of a search. It then ends with the best ensemble so far, or with :attr:`Unplaced.UNKNOWN`."""

Quorums = tuple[int, int]
"""A write quorum and an ack quorum."""


INFINITE = float("inf")


class Unplaced(enum.Enum):
    """Why there is no ensemble."""

    TOO_FEW = "too few bookies"
    """There are fewer bookies than places."""
    UNMET = "unmet"
    """No ensemble of these bookies is as the policy asks."""
    UNKNOWN = "unknown"
    """The search came to its limit of :data:`STEPS` before it had found one, or tried all."""


class Policy(Record):
    """The racks, zones and regions that the bookies of a write set must be in, at least. A larger number of racks or
    zones than the write quorum means as many as its bookies. 1: it does not matter.

    ``enforce_min_num_racks_per_write_quorum`` and ``enforce_strict_zoneaware_placement``: whether there is no ensemble
    rather than one in fewer. If so, bookies without a rack (a zone) are not taken.
    ``desired_num_zones_per_write_quorum`` is never enforced.

    ``repp_regions_to_write``: the regions whose bookies are taken; write sets are spread evenly over them. Every ack
    quorum is then in ``repp_minimum_regions_for_durability`` of them: a new ensemble has to be, and a changed one too
    with ``repp_enable_durability_enforcement_in_replace``. Without regions, these two do nothing.

    ``isolation_bookie_groups``: bookies of these groups are taken. If they do not do, those of
    ``secondary_isolation_bookie_groups`` are taken too; and if those do not, the ones without a group.

    ``disk_weight_based_placement_enabled``: bookies with more free space are taken more often; see :func:`weights` for
    ``bookie_max_multiple_for_weight_based_placement``. How often clients ask for the free space, in seconds:
    ``get_bookie_info_interval_seconds``, and ``get_bookie_info_retry_interval_seconds`` if a bookie did not answer.
    """

    min_num_racks_per_write_quorum: int = 2
    enforce_min_num_racks_per_write_quorum: bool = False
    min_num_zones_per_write_quorum: int = 1
    desired_num_zones_per_write_quorum: int = 1
    enforce_strict_zoneaware_placement: bool = True
    repp_regions_to_write: tuple[str, ...] = ()
    repp_minimum_regions_for_durability: int = 2
    repp_enable_durability_enforcement_in_replace: bool = True
    isolation_bookie_groups: tuple[str, ...] = ()
    secondary_isolation_bookie_groups: tuple[str, ...] = ()
    disk_weight_based_placement_enabled: bool = False
    bookie_max_multiple_for_weight_based_placement: int = 3
    get_bookie_info_interval_seconds: int = 86_400
    get_bookie_info_retry_interval_seconds: int = 60


POLICY = Policy()
"""BookKeeper's defaults, without zones and regions."""


class Placement(Record):
    """A policy; the rack of each bookie that has one, and the groups of each bookie that is in some, as pairs."""

    policy: Policy = POLICY
    racks: tuple[tuple[Any, str], ...] = ()
    groups: tuple[tuple[Any, str], ...] = ()


ANYWHERE = Placement()
"""No bookie has a rack."""


def rack(text: str) -> str | None:
    """A rack as written by somebody, as ``/rack`` or ``/zone/rack``; None if it is empty."""
    parts = [part.strip() for part in text.split("/") if part.strip()]
    return f"/{'/'.join(parts)}" if parts else None


class Site(NamedTuple):
    """Where a bookie is. ``zone``: its zone or region; empty unless the rack is ``/zone/rack``."""

    rack: str = DEFAULT_RACK
    zone: str = ""


def _site(rack: str) -> Site:
    parts = rack.split("/")
    return Site(rack, parts[1] if len(parts) == 3 else "")


class _Least(NamedTuple):
    """A minimum: of racks or of zones, by the field of a :class:`Site`, which is ``unknown`` for a bookie without
    one. ``weight``: how bad each missing one is; infinite if it is enforced.
    """

    of: int
    unknown: str
    number: int
    weight: float

    def counted(self, sites: Iterable[Site]) -> set[str]:
        """The different racks or zones of some bookies. If the minimum is enforced, an unknown one does not count."""
        found = {site[self.of] for site in sites}
        if self.weight == INFINITE:
            found.discard(self.unknown)
        return found


def _minimums(policy: Policy) -> tuple[_Least, _Least, _Least]:
    """The minimum of racks, that of zones, and the desired number of zones or regions."""

    def weight(number: int, is_enforced: bool) -> float:
        return INFINITE if is_enforced and number > 1 else 1_000

    racks, zones = policy.min_num_racks_per_write_quorum, policy.min_num_zones_per_write_quorum
    return (
        _Least(0, DEFAULT_RACK, racks, weight(racks, policy.enforce_min_num_racks_per_write_quorum)),
        _Least(1, "", zones, weight(zones, policy.enforce_strict_zoneaware_placement)),
        _Least(1, "", max(policy.desired_num_zones_per_write_quorum, len(policy.repp_regions_to_write)), 1),
    )


def _durable(policy: Policy) -> int:
    """The number of regions that every ack quorum is to be in."""
    return max(1, policy.repp_minimum_regions_for_durability) if policy.repp_regions_to_write else 1


def _regions_of_acks(regions: Counter[str], ack_quorum: int) -> int:
    """The number of regions that every ack quorum of a write set is in. ``regions``: how many of its bookies are in
    each; those in none may be in any.
    """
    left, found = ack_quorum - regions[""], 0
    for number in sorted((number for region, number in regions.items() if region), reverse=True):
        if left <= 0:
            break
        left, found = left - number, found + 1
    return found


def _evenly(regions: Counter[str], more: int, others: Iterable[str]) -> Counter[str]:
    """The bookies in each region when ``more`` come to ``others``, each where the fewest are."""
    filled, others = Counter(regions), [*others]
    for _ in range(more if others else 0):
        filled[min(others, key=filled.__getitem__)] += 1
    return filled


def _write_sets(size: int, write_quorum: int) -> list[Sequence[int]]:
    """The places of the bookies that each entry is sent to."""
    places = tuple(range(size))
    if write_quorum >= size:
        return [places]
    return [tuple(write_set(entry_id, places, write_quorum)) for entry_id in range(size)]


# -- whether an ensemble is as it should be ----------------------------------------------------------------------------


class Spread(NamedTuple):
    """How far an ensemble is spread: the racks and the zones of the write set that is in the fewest, and how many racks
    and zones all write sets lack to the minimum. ``regions``: those that every ack quorum is in. A region that an ack
    quorum lacks counts as lacking.
    """

    racks: int
    zones: int
    regions: int
    lacking: int


def spread(ensemble: Sequence[Any], quorums: Quorums, placement: Placement) -> Spread:
    """How far an ensemble is spread. Racks and zones that are not known count as one, or as none if that is
    enforced. Nothing is lacking to a minimum that is not enforced where an entry is in all racks (zones) that there
    are.
    """
    known = dict(placement.racks)
    write_quorum, ack_quorum = quorums
    sites = [_site(known.get(each, DEFAULT_RACK)) for each in ensemble]
    everywhere = {*map(_site, known.values()), *sites}
    asked = [
        (least, least.number if least.weight == INFINITE else min(least.number, len(least.counted(everywhere))))
        for least in _minimums(placement.policy)[:2]
    ]
    durable = _durable(placement.policy)
    found = []
    for places in _write_sets(len(ensemble), write_quorum):
        some = [sites[place] for place in places]
        counts = [len(least.counted(some)) for least, _ in asked]
        regions = _regions_of_acks(Counter(site.zone for site in some), ack_quorum)
        lacking = sum(
            max(0, min(number, len(places)) - count) for (_, number), count in zip(asked, counts, strict=True)
        )
        found.append((*counts, regions, lacking + (max(0, durable - regions) if durable > 1 else 0)))
    racks, zones, regions_found, lacks = zip(*found, strict=True)
    return Spread(min(racks), min(zones), min(regions_found), sum(lacks))


def told(why: Unplaced) -> str:
    """Why there is no ensemble that meets an enforced placement, in words."""
    if why is Unplaced.UNKNOWN:
        return f"a search of {STEPS:,} steps finds none, and has not tried all"
    return "there is no such ensemble"


def unmet(policy: Policy) -> str:
    """What an enforced placement asks for, in words; empty if nothing is enforced."""
    names = ("minNumRacksPerWriteQuorum", "minNumZonesPerWriteQuorum")
    asked = [
        f"{name} = {least.number}"
        for name, least in zip(names, _minimums(policy)[:2], strict=True)
        if least.weight == INFINITE
    ]
    if policy.repp_regions_to_write:
        asked.append(f"reppRegionsToWrite = {';'.join(policy.repp_regions_to_write)}")
    if _durable(policy) > 1:
        asked.append(f"reppMinimumRegionsForDurability = {_durable(policy)}")
    if policy.isolation_bookie_groups:
        asked.append(f"isolationBookieGroups = {','.join(policy.isolation_bookie_groups)}")
    return " and ".join(asked)


# -- free space --------------------------------------------------------------------------------------------------------


def weights(free: Mapping[B, int], bookies: Sequence[B], most: int) -> list[float]:
    """How likely each bookie is to be taken, by its bytes of free space. That counts up to ``most`` times the median of
    these bookies (0: without a limit). A full bookie, or one of which nothing is known, counts as the one with the
    least space.

    As BookKeeper's ``DynamicWeightedRandomSelectionImpl`` has it.
    """
    known = [max(0, free.get(b, 0)) for b in bookies]
    least = min((space for space in known if space), default=1)
    ordered, middle = sorted(known), len(known) // 2
    limit = most * (ordered[middle] + ordered[~middle]) / 2
    return [least if not space else min(space, limit) if limit else space for space in known]


# -- the choice --------------------------------------------------------------------------------------------------------


def preferred(candidates: Iterable[B], suspects: Collection[B]) -> list[B]:
    """The candidates for an ensemble in order of preference: those that have failed this client before come last."""
    return sorted(candidates, key=lambda b: b in suspects)


def chosen(
    candidates: Iterable[B],
    size: int,
    quorums: Quorums = (1, 1),
    placement: Placement = ANYWHERE,
    suspects: Collection[B] = (),
) -> tuple[B, ...] | Unplaced:
    """The ensemble of a new ledger: the first candidates that suffice for the placement, or come nearest to it.

    ``suspects``: candidates that have failed this client before. They are taken only if the others do not do.
    """
    some = [*dict.fromkeys(candidates)]
    if len(some) >= size and _durable(placement.policy) > quorums[1]:
        return Unplaced.UNMET  # an ack quorum is in no more regions than it has bookies
    return _filled([(None,) * size], some, quorums, placement, suspects, is_new=True)


def replaced(
    ensemble: Sequence[B],
    failed: Collection[B],
    candidates: Iterable[B],
    quorums: Quorums = (1, 1),
    placement: Placement = ANYWHERE,
    suspects: Collection[B] = (),
) -> tuple[B, ...] | Unplaced:
    """The ensemble with each failed bookie replaced by a candidate, as :func:`chosen` chooses. The others keep their
    positions, and so their entries.

    An entry is afterwards in as many racks, zones and regions as the minimum, if it was so before. If not, because
    racks were set later, it is in as many as the other bookies of its write set allow.
    """
    some = [b for b in candidates if b not in failed and b not in ensemble]
    return _filled([_without(ensemble, failed)], some, quorums, placement, suspects)


def replacement(
    ensemble: Sequence[B],
    lost: B,
    gone: Collection[B],
    candidates: Iterable[B],
    quorums: Quorums = (1, 1),
    placement: Placement = ANYWHERE,
) -> B | Unplaced:
    """The bookie to replace a lost one.

    ``gone``: all lost bookies, which are replaced one after the other, or come back. So the placement must be met with
    those that are left to replace, and leave a way to replace them too if there is one.
    """
    some = [b for b in candidates if b not in gone and b not in ensemble]
    alone = _without(ensemble, (lost,))
    found = _filled([_without(ensemble, {*gone, lost}), alone], some, quorums, placement)
    if isinstance(found, Unplaced):
        found = _filled([alone], some, quorums, placement)
    return found if isinstance(found, Unplaced) else found[ensemble.index(lost)]


def move(ensemble: Sequence[B], candidates: Iterable[B], quorums: Quorums, placement: Placement) -> tuple[B, B] | None:
    """A bookie of an ensemble, and the candidate that should take its place so that less is lacking to the placement;
    None if no single one helps.
    """
    some = [b for b in dict.fromkeys(candidates) if b not in ensemble]
    least, best = spread(ensemble, quorums, placement).lacking, None
    for old in ensemble:
        changed = _filled([_without(ensemble, (old,))], some, quorums, placement)
        if isinstance(changed, Unplaced):
            continue
        lacking = spread(changed, quorums, placement).lacking
        if lacking < least:
            least, best = lacking, (old, changed[ensemble.index(old)])
    return best


def _without(ensemble: Sequence[B], failed: Collection[B]) -> tuple[B | None, ...]:
    return tuple(None if b in failed else b for b in ensemble)


def _turns(candidates: Iterable[B], placement: Placement, suspects: Collection[B]) -> list[list[B]]:
    """The candidates, in order of preference: each list is tried with those before it, if those do not do.

    Bookies of other groups are in none.
    """
    policy = placement.policy
    primary, secondary = policy.isolation_bookie_groups, policy.secondary_isolation_bookie_groups
    groups: dict[Any, set[str]] = {}
    for b, group in placement.groups if primary else ():
        groups.setdefault(b, set()).add(group)
    turns: dict[tuple[bool, bool, bool], list[B]] = {}
    for b in candidates:
        own = groups.get(b, set())
        is_primary = not own.isdisjoint(primary)
        if not primary or is_primary or not own or not own.isdisjoint(secondary):
            is_open = bool(primary) and not own
            turns.setdefault((is_open, b in suspects, bool(primary) and not is_primary), []).append(b)
    return [turns[each] for each in sorted(turns)]


def _filled(
    views: Sequence[Sequence[B | None]],
    candidates: Iterable[B],
    quorums: Quorums,
    placement: Placement,
    suspects: Collection[B] = (),
    is_new: bool = False,
) -> tuple[B, ...] | Unplaced:
    """An ensemble in which every None of the first view is replaced by a candidate. The minimums hold for the write
    sets of each view with those of its own that are replaced. ``is_new``: it is that of a new ledger.
    """
    every, number = [*dict.fromkeys(candidates)], views[0].count(None)
    failure = Unplaced.TOO_FEW if len(every) < number else Unplaced.UNMET
    has_places = _has_places(placement)
    some: list[B] = []
    for more in _turns(every, placement, suspects) or [[]]:
        some += more
        if not has_places and len(some) >= number:  # what the search below would find
            first = iter(some)
            return tuple(next(first) if b is None else b for b in views[0])
        search = _Search(views, some, quorums, placement, is_new)
        found = search.best()
        if found is not None:
            return found
        if search.is_cut_short:
            failure = Unplaced.UNKNOWN
    return failure


def _has_places(placement: Placement) -> bool:
    """Whether it matters where bookies are: some have a rack, or one that has none is not taken."""
    policy = placement.policy
    is_enforced = any(least.weight == INFINITE for least in _minimums(policy))
    return bool(placement.racks or policy.repp_regions_to_write) or is_enforced


class _Search:
    """A search for the first ensemble, in the order of candidates, that lacks least. Bookies at the same site are
    interchangeable, and so are sites that nothing tells apart.
    """

    def __init__(
        self,
        views: Sequence[Sequence[Any]],
        candidates: Sequence[Any],
        quorums: Quorums,
        placement: Placement,
        is_new: bool = False,
    ) -> None:
        known, policy = dict(placement.racks), placement.policy
        regions = policy.repp_regions_to_write
        write_quorum, self.ack_quorum = quorums
        minimums = [least for least in _minimums(policy) if least.number > 1]
        self.ensemble = [*views[0]]
        self.empty = [place for place, b in enumerate(self.ensemble) if b is None]
        self.members: dict[Site, list[tuple[int, Any]]] = {}
        """The candidates at each site, each with its rank."""
        for rank, b in enumerate(candidates):
            site = _site(known.get(b, DEFAULT_RACK))
            is_known = all(site[least.of] != least.unknown for least in minimums if least.weight == INFINITE)
            if is_known and (not regions or site.zone in regions):
                self.members.setdefault(site, []).append((rank, b))
        self.used = dict.fromkeys(self.members, 0)
        self.sites: list[Site | None] = [None] * len(self.ensemble)
        """The site of each bookie that was placed."""
        kept = [[None if b is None else _site(known.get(b, DEFAULT_RACK)) for b in view] for view in views]
        self.kept = {site for view in kept for site in view if site is not None}
        self.costs: list[Callable[[], float]] = []
        enforces = is_new or policy.repp_enable_durability_enforcement_in_replace
        for view in kept:
            for places in _write_sets(len(view), write_quorum):
                if all(view[place] is not None for place in places):
                    continue
                self.costs += (self._cost(view, places, least) for least in minimums)
                if regions:
                    self.costs.append(self._cost_of_regions(view, places, _durable(policy), enforces))
        self.with_zones = bool(regions) or any(least.of == 1 for least in minimums)
        self.steps = 0
        self.is_cut_short = False
        self.found: tuple[Any, ...] | None = None
        self.lacks = INFINITE

    def best(self) -> tuple[Any, ...] | None:
        """The ensemble; None if there is none, or ``is_cut_short``."""
        if sum(map(len, self.members.values())) >= len(self.empty):
            self._place(0)
        return self.found

    def _placed(self, places: Iterable[int]) -> list[Site]:
        return [site for place in places if (site := self.sites[place]) is not None]

    def _cost(self, view: Sequence[Site | None], places: Sequence[int], least: _Least) -> Callable[[], float]:
        """What one write set of a view lacks at least, however the empty places are filled.

        It need not be in more than its kept bookies allow, nor, unless that is enforced, in more than there are.
        """
        kept = least.counted(site for place in places if (site := view[place]) is not None)
        open_places = [place for place in places if view[place] is None]
        others = least.counted(self.members)
        number = min(least.number, len(kept) + len(open_places))
        if least.weight < INFINITE:
            number = min(number, len(kept | others))

        def lacks() -> float:
            placed = self._placed(open_places)
            there = kept | least.counted(placed)
            missing = number - len(there) - min(len(open_places) - len(placed), len(others - there))
            return missing * least.weight if missing > 0 else 0

        return lacks

    def _cost_of_regions(
        self, view: Sequence[Site | None], places: Sequence[int], durable: int, is_enforced: bool
    ) -> Callable[[], float]:
        """The regions that an ack quorum of one write set lacks at least, and how many bookies there are too many in
        one region, however the empty places are filled.
        """
        kept = Counter(site.zone for place in places if (site := view[place]) is not None)
        open_places = [place for place in places if view[place] is None]
        others = {site.zone for site in self.members}
        elsewhere = (f"/{each}" for each in range(len(open_places)))  # no region is called so
        durable = min(durable, _regions_of_acks(_evenly(kept, len(open_places), elsewhere), self.ack_quorum))
        share = -(-len(places) // max(1, len(others | {*kept})))

        def lacks() -> float:
            placed = self._placed(open_places)
            there = kept + Counter(site.zone for site in placed)
            best = _evenly(there, len(open_places) - len(placed), others)
            missing = durable - _regions_of_acks(best, self.ack_quorum)
            if missing > 0:
                return INFINITE if is_enforced else missing * 1_000
            return sum(max(0, number - max(share, kept[region])) for region, number in there.items())

        return lacks

    def _place(self, done: int) -> None:
        """Fill the places from ``done`` on, in every way that may lack less than what was found."""
        self.steps += 1
        lacks = sum(cost() for cost in self.costs)
        if lacks >= self.lacks:
            return
        if done == len(self.empty):
            self.found, self.lacks = tuple(self.ensemble), lacks
            return
        place, tried = self.empty[done], set[Any]()
        left = [site for site, members in self.members.items() if self.used[site] < len(members)]
        for site in sorted(left, key=lambda site: self.members[site][self.used[site]][0]):
            alike = self._alike(site)
            if alike in tried:
                continue
            if self.steps >= STEPS:
                self.is_cut_short = True
                return
            tried.add(alike)
            self.ensemble[place] = self.members[site][self.used[site]][1]
            self.sites[place] = site
            self.used[site] += 1
            self._place(done + 1)
            self.used[site] -= 1
            self.sites[place] = None
            if self.lacks == 0 or self.is_cut_short:
                return

    def _alike(self, site: Site) -> Any:
        """The same for sites that nothing tells apart, as no bookie of the ensemble is there."""
        if self.used[site] or site in self.kept:
            return site
        return (site.zone if self.with_zones else "", len(self.members[site]))
