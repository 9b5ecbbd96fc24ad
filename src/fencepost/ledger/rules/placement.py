"""Placement: which bookies an ensemble takes, so that each entry is in several racks and zones.

A bookie's rack is a path, ``/rack`` or ``/zone/rack``. The minimums have the names of BookKeeper's settings. Its
``RackawareEnsemblePlacementPolicy`` and ``ZoneawareEnsemblePlacementPolicy`` choose bookie after bookie, and give up
although an ensemble may exist. The rules here search, and so find one if there is one. They draw no random numbers:
bookies come in order of preference.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from fencepost.language.values import Record
from fencepost.ledger.rules.ensembles import write_set

B = TypeVar("B")

DEFAULT_RACK = "/default-rack"
"""The rack of bookies without one, as BookKeeper names it."""

STEPS = 2_000
"""The most steps of a search. It then ends with the best ensemble so far, or as if there were none."""


INFINITE = float("inf")


class Policy(Record):
    """The racks and zones that the bookies of a write set must be in, at least. A larger number than the write quorum
    means as many as its bookies. 1: it does not matter.

    ``enforce_min_num_racks_per_write_quorum`` and ``enforce_strict_zoneaware_placement``: whether there is no ensemble
    rather than one in fewer. If so, bookies without a rack (a zone) are not taken.
    ``desired_num_zones_per_write_quorum`` is never enforced.
    """

    min_num_racks_per_write_quorum: int = 2
    enforce_min_num_racks_per_write_quorum: bool = False
    min_num_zones_per_write_quorum: int = 1
    desired_num_zones_per_write_quorum: int = 1
    enforce_strict_zoneaware_placement: bool = True


POLICY = Policy()
"""BookKeeper's defaults, without zones."""


class Placement(Record):
    """A policy, and the rack of each bookie that has one, as pairs."""

    policy: Policy = POLICY
    racks: tuple[tuple[Any, str], ...] = ()


ANYWHERE = Placement()
"""No bookie has a rack."""


def rack(text: str) -> str | None:
    """A rack as written by somebody, as ``/rack`` or ``/zone/rack``; None if it is empty."""
    parts = [part.strip() for part in text.split("/") if part.strip()]
    return f"/{'/'.join(parts)}" if parts else None


class Site(NamedTuple):
    """Where a bookie is. ``zone``: empty unless the rack is ``/zone/rack``."""

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
    """The minimum of racks, that of zones, and the desired number of zones."""

    def weight(number: int, is_enforced: bool) -> float:
        return INFINITE if is_enforced and number > 1 else 1_000

    racks, zones = policy.min_num_racks_per_write_quorum, policy.min_num_zones_per_write_quorum
    return (
        _Least(0, DEFAULT_RACK, racks, weight(racks, policy.enforce_min_num_racks_per_write_quorum)),
        _Least(1, "", zones, weight(zones, policy.enforce_strict_zoneaware_placement)),
        _Least(1, "", policy.desired_num_zones_per_write_quorum, 1),
    )


def _write_sets(size: int, write_quorum: int) -> list[Sequence[int]]:
    """The places of the bookies that each entry is sent to."""
    places = tuple(range(size))
    if write_quorum >= size:
        return [places]
    return [tuple(write_set(entry_id, places, write_quorum)) for entry_id in range(size)]


# -- whether an ensemble is as it should be ----------------------------------------------------------------------------


class Spread(NamedTuple):
    """How far an ensemble is spread: the racks and the zones of the write set that is in the fewest, and how many racks
    and zones all write sets lack to the minimum.
    """

    racks: int
    zones: int
    lacking: int


def spread(ensemble: Sequence[Any], write_quorum: int, placement: Placement) -> Spread:
    """How far an ensemble is spread. Racks and zones that are not known count as one, or as none if that is
    enforced. Nothing is lacking to a minimum that is not enforced where an entry is in all racks (zones) that there
    are.
    """
    known = dict(placement.racks)
    sites = [_site(known.get(each, DEFAULT_RACK)) for each in ensemble]
    everywhere = {*map(_site, known.values()), *sites}
    asked = [
        (least, least.number if least.weight == INFINITE else min(least.number, len(least.counted(everywhere))))
        for least in _minimums(placement.policy)[:2]
    ]
    found = [
        [(len(least.counted(sites[place] for place in places)), min(number, len(places))) for least, number in asked]
        for places in _write_sets(len(ensemble), write_quorum)
    ]
    return Spread(
        min(in_racks for (in_racks, _), _ in found),
        min(in_zones for _, (in_zones, _) in found),
        sum(max(0, number - there) for each in found for there, number in each),
    )


def unmet(policy: Policy) -> str:
    """What an enforced placement asks for, in words; empty if nothing is enforced."""
    names = ("minNumRacksPerWriteQuorum", "minNumZonesPerWriteQuorum")
    return " and ".join(
        f"{name} = {least.number}"
        for name, least in zip(names, _minimums(policy)[:2], strict=True)
        if least.weight == INFINITE
    )


# -- the choice --------------------------------------------------------------------------------------------------------


def preferred(candidates: Iterable[B], suspects: Collection[B]) -> list[B]:
    """The candidates for an ensemble in order of preference: those that have failed this client before come last."""
    return sorted(candidates, key=lambda b: b in suspects)


def chosen(
    candidates: Iterable[B],
    size: int,
    write_quorum: int = 1,
    placement: Placement = ANYWHERE,
    suspects: Collection[B] = (),
) -> tuple[B, ...] | None:
    """The ensemble of a new ledger: the first candidates that suffice for the placement, or come nearest to it. None if
    there are too few, or if the placement is enforced and cannot be met.

    ``suspects``: candidates that have failed this client before. They are taken only if the others do not do.
    """
    return _filled([(None,) * size], candidates, write_quorum, placement, suspects)


def replaced(
    ensemble: Sequence[B],
    failed: Collection[B],
    candidates: Iterable[B],
    write_quorum: int = 1,
    placement: Placement = ANYWHERE,
    suspects: Collection[B] = (),
) -> tuple[B, ...] | None:
    """The ensemble with each failed bookie replaced by a candidate, as :func:`chosen` chooses. The others keep their
    positions, and so their entries.

    An entry is afterwards in as many racks and zones as the minimum, if it was so before. If not, because racks were
    set later, it is in as many as the other bookies of its write set allow.
    """
    some = [b for b in candidates if b not in failed and b not in ensemble]
    return _filled([_without(ensemble, failed)], some, write_quorum, placement, suspects)


def replacement(
    ensemble: Sequence[B],
    lost: B,
    gone: Collection[B],
    candidates: Iterable[B],
    write_quorum: int = 1,
    placement: Placement = ANYWHERE,
) -> B | None:
    """The bookie to replace a lost one; None if there is none, or if the placement is enforced and cannot be met.

    ``gone``: all lost bookies, which are replaced one after the other, or come back. So the placement must be met with
    those that are left to replace, and leave a way to replace them too if there is one.
    """
    some = [b for b in candidates if b not in gone and b not in ensemble]
    alone = _without(ensemble, (lost,))
    found = _filled([_without(ensemble, {*gone, lost}), alone], some, write_quorum, placement)
    found = found or _filled([alone], some, write_quorum, placement)
    return None if found is None else found[ensemble.index(lost)]


def move(ensemble: Sequence[B], candidates: Iterable[B], write_quorum: int, placement: Placement) -> tuple[B, B] | None:
    """A bookie of an ensemble, and the candidate that should take its place so that less is lacking to the placement;
    None if no single one helps.
    """
    some = [b for b in dict.fromkeys(candidates) if b not in ensemble]
    least, best = spread(ensemble, write_quorum, placement).lacking, None
    for old in ensemble:
        changed = _filled([_without(ensemble, (old,))], some, write_quorum, placement)
        if changed is None:
            continue
        lacking = spread(changed, write_quorum, placement).lacking
        if lacking < least:
            least, best = lacking, (old, changed[ensemble.index(old)])
    return best


def _without(ensemble: Sequence[B], failed: Collection[B]) -> tuple[B | None, ...]:
    return tuple(None if b in failed else b for b in ensemble)


def _filled(
    views: Sequence[Sequence[B | None]],
    candidates: Iterable[B],
    write_quorum: int,
    placement: Placement,
    suspects: Collection[B] = (),
) -> tuple[B, ...] | None:
    """An ensemble in which every None of the first view is replaced by a candidate. The minimums hold for the write
    sets of each view with those of its own that are replaced.
    """
    every = preferred(dict.fromkeys(candidates), suspects)
    trusted = [b for b in every if b not in suspects]
    found = _Search(views, trusted, write_quorum, placement).best()
    if found is None and len(trusted) < len(every):
        found = _Search(views, every, write_quorum, placement).best()
    return found


class _Search:
    """A search for the first ensemble, in the order of candidates, that lacks least. Bookies at the same site are
    interchangeable, and so are sites that nothing tells apart.
    """

    def __init__(
        self, views: Sequence[Sequence[Any]], candidates: Sequence[Any], write_quorum: int, placement: Placement
    ) -> None:
        known = dict(placement.racks)
        minimums = [least for least in _minimums(placement.policy) if least.number > 1]
        self.ensemble = [*views[0]]
        self.empty = [place for place, b in enumerate(self.ensemble) if b is None]
        self.members: dict[Site, list[tuple[int, Any]]] = {}
        """The candidates at each site, each with its rank."""
        for rank, b in enumerate(candidates):
            site = _site(known.get(b, DEFAULT_RACK))
            if all(site[least.of] != least.unknown for least in minimums if least.weight == INFINITE):
                self.members.setdefault(site, []).append((rank, b))
        self.used = dict.fromkeys(self.members, 0)
        self.sites: list[Site | None] = [None] * len(self.ensemble)
        """The site of each bookie that was placed."""
        kept = [[None if b is None else _site(known.get(b, DEFAULT_RACK)) for b in view] for view in views]
        self.kept = {site for view in kept for site in view if site is not None}
        self.costs: list[Callable[[], float]] = [
            self._cost(view, places, least)
            for view in kept
            for places in _write_sets(len(view), write_quorum)
            for least in minimums
            if any(view[place] is None for place in places)
        ]
        self.with_zones = any(least.of == 1 for least in minimums)
        self.steps = 0
        self.found: tuple[Any, ...] | None = None
        self.lacks = INFINITE

    def best(self) -> tuple[Any, ...] | None:
        """The ensemble; None if there is none."""
        if sum(map(len, self.members.values())) >= len(self.empty):
            self._place(0)
        return self.found

    def _cost(self, view: Sequence[Site | None], places: Sequence[int], least: _Least) -> Callable[[], float]:
        """What one write set of a view lacks at least, however the empty places are filled.

        It need not be in more than its kept bookies allow, nor, unless that is enforced, in more than there are.
        """
        kept = least.counted(site for place in places if (site := view[place]) is not None)
        open_places = [place for place in places if view[place] is None]
        number = min(least.number, len(kept) + len(open_places))
        if least.weight < INFINITE:
            number = min(number, len(kept | least.counted(self.members)))

        def lacks() -> float:
            placed = [site for place in open_places if (site := self.sites[place]) is not None]
            missing = number - len(kept | least.counted(placed)) - (len(open_places) - len(placed))
            return missing * least.weight if missing > 0 else 0

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
            tried.add(alike)
            self.ensemble[place] = self.members[site][self.used[site]][1]
            self.sites[place] = site
            self.used[site] += 1
            self._place(done + 1)
            self.used[site] -= 1
            self.sites[place] = None
            if self.lacks == 0 or self.steps >= STEPS:
                return

    def _alike(self, site: Site) -> Any:
        """The same for sites that nothing tells apart, as no bookie of the ensemble is there."""
        if self.used[site] or site in self.kept:
            return site
        return (site.zone if self.with_zones else "", len(self.members[site]))
