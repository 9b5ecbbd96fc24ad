"""The case of one run: its seed, the sizes that the seed chooses, and the faults that may happen.

Each purpose has its own random stream, so that one fault more or less does not change the other draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from zlib import crc32

from fencepost.errors import OptionError
from fencepost.ledger.rules.placement import POLICY, Placement, Policy, Quorums, Unplaced, chosen
from fencepost.ledger.rules.protections import ALL, Protections
from fencepost.ledger.simulation.judge import Asked

HORIZON = 400_000
"""Microseconds after which no more faults happen."""

DEADLINE = 10 * HORIZON
"""The latest time at which a ledger that can be closed must be closed and read."""

NETWORK = ("delays", "breaks", "half_open", "partitions")
CRASHES = ("bookie_crashes", "power_failures", "client_crashes", "lost_answers", "expired_sessions")
DISKS = ("slow_disks", "failed_syncs", "bit_rot", "full_disks", "wiped_disks")
CLIENTS = ("races", "impostors")
BOOTS = ("clean_restarts", "lost_directories", "boot_crashes", "lost_marks")
WINDOWS = ("power_after_adds", "kills_after_fences")
EVERYTHING = (*NETWORK, *CRASHES, *DISKS, *CLIENTS)
FAULTS = (*EVERYTHING, *BOOTS, *WINDOWS)
"""The kinds of faults."""


@dataclass(frozen=True)
class Profile:
    """A campaign: the kinds of faults that may happen, whether the protocol tolerates them, and whether each seed
    samples them. ``repairs``: bookies may run without adds in the journal, and repair themselves. ``is_placed``: a
    placement is enforced.
    """

    name: str
    doc: str
    faults: tuple[str, ...]
    tolerated: bool = True
    sampled: bool = True
    repairs: bool = False
    is_placed: bool = False


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("calm", "nothing goes wrong", ()),
        Profile("network", "messages are slow, connections break, the network is parted", (*NETWORK, "races")),
        Profile("crashes", "bookies and clients crash, sessions expire", (*CRASHES, "races")),
        Profile(
            "disks",
            "power fails, disks are slow, full, damaged, wiped, or fail to sync",
            ("power_failures", *DISKS, "races"),
        ),
        Profile(
            "races",
            "several clients recover the ledger of a writer that lives, bookies crash meanwhile, and one client has"
            " another key",
            ("delays", "breaks", "partitions", "bookie_crashes", "lost_answers", "races", "impostors"),
        ),
        Profile("everything", "any of all that the protocol tolerates", EVERYTHING),
        Profile(
            "beyond",
            "more disks are wiped and damaged than the protocol tolerates: the store must refuse, and not lie",
            EVERYTHING,
            tolerated=False,
        ),
        Profile(
            "no-journal",
            "bookies run without their adds in the journal, now and then, crash anywhere, lose directories and marks,"
            " and repair themselves",
            (*NETWORK, *CRASHES, "slow_disks", "races", *BOOTS),
            repairs=True,
        ),
        Profile(
            "placed",
            "bookies are in racks, zones, regions or groups that entries must be in, and crash",
            (*NETWORK, *CRASHES, "slow_disks", "races"),
            is_placed=True,
        ),
        Profile(
            "windows",
            "power fails just after bookies were sent adds, and bookies are killed just after they were fenced",
            (*WINDOWS, "races"),
            sampled=False,
        ),
    )
}

DEFAULT = "everything"

PLACED = ("none", "racks", "zones", "regions", "groups")
"""What is enforced of the placement: that entries are in two racks, in two zones, that every ack quorum is in two
regions, or that all bookies are of some groups.
"""


@dataclass(frozen=True)
class Case:
    """One run. ``left_out``: numbers of scheduled faults to skip. ``promises``: those to check; all if empty.
    ``placed``: what is enforced of the placement; the bookies are in that many ``places``, in turn.
    """

    seed: int
    profile: str = DEFAULT
    faults: tuple[str, ...] = ()
    entries: int = 10
    bookies: int = 5
    ensemble: int = 3
    write_quorum: int = 3
    ack_quorum: int = 2
    recoverers: int = 1
    readers: int = 1
    placed: str = "none"
    places: int = 1
    left_out: tuple[int, ...] = ()
    protections: Protections = ALL
    promises: tuple[str, ...] = ()

    @property
    def tolerated(self) -> bool:
        """Whether the damage stays within what the protocol tolerates."""
        return PROFILES[self.profile].tolerated

    def moments(self) -> list[int]:
        """The times in microseconds around which most things happen: coinciding faults are the worst."""
        random = self.stream("moments").random
        return [20_000 + int(random() * (HORIZON - 50_000)) for _ in range(1 + int(random() * 3))]

    @property
    def placement(self) -> Placement:
        """The placement of every client."""
        return placement_of(self.placed, self.places, self.bookies)

    def stream(self, name: str) -> Random:
        """The random numbers for one purpose."""
        return Random(self.seed << 32 | crc32(f"{self.profile} {name}".encode()))


SETTINGS = (
    "faults",
    "entries",
    "bookies",
    "ensemble",
    "write_quorum",
    "ack_quorum",
    "recoverers",
    "readers",
    "placed",
    "places",
    "left_out",
)
"""The settings of a case that a user can set."""


def drawn(seed: int, profile: str = DEFAULT, protections: Protections = ALL, promises: tuple[str, ...] = ()) -> Case:
    """The case of a seed in a profile. Raises :class:`fencepost.OptionError` for an unknown profile."""
    if profile not in PROFILES:
        raise OptionError(f"there is no profile {profile}: there are {', '.join(PROFILES)}")
    kinds = PROFILES[profile]
    blank = Case(seed, profile)
    random = blank.stream("sizes").random
    chances = blank.stream("faults").random
    faults = tuple(kind for kind in kinds.faults if not kinds.sampled or chances() < 0.6)
    write_quorum = (2, 3, 3, 3, 4)[int(random() * 5)]
    ack_quorum = max(1 + (random() < 0.9), write_quorum - int(random() * 2.2))
    ack_quorum = min(ack_quorum, write_quorum)
    ensemble = write_quorum + (random() < 0.3)
    placed, places, more = "none", 1, 0
    if kinds.is_placed:
        draws = blank.stream("placement").random
        placed = PLACED[1 + int(draws() * 4)]
        placed = "zones" if placed == "regions" and ack_quorum < 2 else placed
        more = int(draws() * 4) + (placed == "groups")
        # The fewest places that do, or one more for every bookie of an ensemble, where any two can be apart.
        places = fewest(placed, ensemble, (write_quorum, ack_quorum)) if draws() < 0.7 else max(3, ensemble)
    return Case(
        seed,
        profile,
        faults,
        entries=2 + int(random() * random() * 200),
        bookies=ensemble + ack_quorum - 1 + int(random() * 2) + more,
        ensemble=ensemble,
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        recoverers=(2 + int(random() * 3) if "races" in faults else int(random() * 2)),
        readers=int(random() * 4),
        placed=placed,
        places=places,
        protections=protections,
        promises=promises,
    )


def placement_of(placed: str, places: int, bookies: int) -> Placement:
    """The placement of clients: what is enforced, and where each bookie is. The first one is of a foreign
    group, and others are of none.
    """
    names = [f"b{number}" for number in range(1, bookies + 1)]
    policy = {
        "racks": Policy(enforce_min_num_racks_per_write_quorum=True),
        "zones": Policy(min_num_zones_per_write_quorum=2),
        "regions": Policy(repp_regions_to_write=tuple(f"p{place}" for place in range(places))),
        "groups": Policy(isolation_bookie_groups=("own",), secondary_isolation_bookie_groups=("spare",)),
    }.get(placed, POLICY)
    if placed == "none":
        return Placement(policy)
    path = "/p{}" if placed == "racks" else "/p{}/{}"
    racks = {name: path.format(number % places, name) for number, name in enumerate(names)}
    groups: dict[str, str] = {}
    if placed == "groups":
        own = ["other", *(("own", "own", "spare", "")[number % 4] for number in range(1, bookies))]
        groups = {name: group for name, group in zip(names, own, strict=True) if group}
        racks = {name: racks[name] for name in groups}  # where Pulsar's node has the racks, each has a group
    return Placement(policy, tuple(racks.items()), tuple(groups.items()))


def fewest(placed: str, ensemble: int, quorums: Quorums) -> int:
    """The fewest places that suffice for an ensemble, with enough bookies in each."""
    bookies = [f"b{number}" for number in range(1, 9 * ensemble)]
    every = (placement_of(placed, places, len(bookies)) for places in range(1, 9))
    return next(
        n for n, each in enumerate(every, 1) if not isinstance(chosen(bookies, ensemble, quorums, each), Unplaced)
    )


def asked_of(placed: str, placement: Placement) -> Asked | None:
    """What a judge holds a placement to; None if nothing is enforced."""
    least = {placed: 2} if placed in ("racks", "zones", "regions") else {}
    others = frozenset(bookie for bookie, group in placement.groups if group == "other")
    return Asked(dict(placement.racks), **least, others=others) if placed != "none" else None


def near(moments: list[int], random: Callable[[], float]) -> int:
    """A time close to one of some moments, or sometimes anywhere before the horizon."""
    if random() < 0.3:
        return 2_000 + int(random() * (HORIZON - 2_000))
    moment = moments[int(random() * len(moments))]
    spread = (2_000, 8_000, 40_000)[int(random() * 3)]
    return max(2_000, moment + int((random() - 0.4) * spread))


def with_settings(case: Case, settings: dict[str, str]) -> Case:
    """A case with some settings replaced. Raises :class:`fencepost.OptionError` if they are invalid."""
    changed: dict[str, object] = {}
    for name, text in settings.items():
        if name not in SETTINGS:
            raise OptionError(f"-D {name}: a case has no {name}, it has {', '.join(SETTINGS)}")
        parts = tuple(part for part in text.split(",") if part)
        if name == "faults":
            unknown = [part for part in parts if part not in FAULTS]
            if unknown:
                raise OptionError(f"-D faults: there is no fault {unknown[0]}, there are {', '.join(FAULTS)}")
            changed[name] = parts
        elif name == "placed":
            if text not in PLACED:
                raise OptionError(f"-D placed: there is no placement {text}, there are {', '.join(PLACED)}")
            changed[name] = text
        elif name == "left_out":
            changed[name] = tuple(_number(name, part) for part in parts)
        else:
            changed[name] = _number(name, text)
    made = replace(case, **changed)  # type: ignore[arg-type]
    if not 1 <= made.ack_quorum <= made.write_quorum <= made.ensemble <= made.bookies:
        raise OptionError(
            "-D: an ack quorum is at most a write quorum, that is at most the ensemble, and that at most all bookies, "
            f"but they are {made.ack_quorum}, {made.write_quorum}, {made.ensemble} and {made.bookies}"
        )
    if made.places < 1:
        raise OptionError("-D places: bookies are in 1 place at least")
    if max(made.entries, made.bookies, made.recoverers, made.readers, made.places) > 1000:
        raise OptionError("-D: give no number above 1000")
    return made


def settings_of(case: Case) -> dict[str, str]:
    """The settings in which ``case`` differs from the case of its seed."""
    plain = drawn(case.seed, case.profile)
    found = {}
    for name in SETTINGS:
        value = getattr(case, name)
        if value != getattr(plain, name):
            found[name] = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return found


def _number(name: str, text: str) -> int:
    if not text.isdecimal():
        raise OptionError(f"-D {name}: {text!r} is not a whole number")
    return int(text)
