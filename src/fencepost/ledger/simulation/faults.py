"""The faults of a run: their kinds and times are drawn before it begins, and their targets when they happen.

A fault's number does not depend on which others happen, so that a case can leave it out. Damage to disks is bounded
unless the case says otherwise: in total, fewer bookies than an ack quorum lose or damage data on their disks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random

from fencepost.ledger.messages import AddEntry, Request
from fencepost.ledger.simulation.bookie import BookieProcess
from fencepost.ledger.simulation.boots import BootingBookie
from fencepost.ledger.simulation.case import FAULTS, HORIZON, WINDOWS, Case, near
from fencepost.ledger.simulation.environment import StoreEnvironment
from fencepost.simulation.disk import CAPACITY

SLOW = 100
"""How many times as long a slow disk takes."""
CHANCE, WINDOW = 0.15, 3_000
"""How likely a request crashes its bookie, and within how many microseconds."""

MOST = 8
"""More faults of one kind than any run has."""


@dataclass(frozen=True)
class Fault:
    """A fault at a time; ``random`` chooses its target."""

    number: int
    kind: str
    time: int
    random: Random


def planned(case: Case) -> list[Fault]:
    """The faults of a case, by number."""
    found, moments = [], case.moments()
    for place, kind in enumerate(FAULTS):
        if kind in case.faults and hasattr(Faults, kind):
            stream = case.stream(f"fault {kind}")
            for one in range(1 + int(stream.random() * 4)):
                number, time, seed = place * MOST + one, near(moments, stream.random), stream.getrandbits(64)
                if kind in WINDOWS:
                    time = 2_000
                if number not in case.left_out:
                    found.append(Fault(number, kind, time, Random(seed)))
    return found


class Faults:
    """Applies the faults to a cluster. ``damaged``: the bookies that have permanently lost or damaged data."""

    def __init__(self, environment: StoreEnvironment, bookies: Mapping[str, BookieProcess]) -> None:
        self.environment = environment
        self.bookies = bookies
        self.damaged: set[str] = set()
        for fault in planned(environment.case):
            environment.schedule.at(fault.time, self._happen, fault)

    def _happen(self, fault: Fault) -> None:
        if self.environment.schedule.now < HORIZON:
            getattr(self, fault.kind)(fault.random)

    # -- the network --------------------------------------------------------------------------------------------------

    def breaks(self, random: Random, noticed: bool = True) -> None:
        """Connections break, and their clients notice."""
        network = self.environment.network
        for connection in list(network.connections.values()):
            if random.random() < 0.4:
                self.environment.happened(
                    connection.client.name,
                    f"connection to {connection.server.name} breaks{'' if noticed else ', unnoticed'}",
                )
                network.lose(connection, noticed)

    def half_open(self, random: Random) -> None:
        """Connections break, and their clients do not notice."""
        self.breaks(random, noticed=False)

    def partitions(self, random: Random) -> None:
        """A partition: nothing passes between two groups of processes for a while, in one direction or both. Or single
        links are clogged.
        """
        environment = self.environment
        if random.random() < 0.4:
            for client in environment.clients:
                for bookie in self.bookies:
                    if client.alive and random.random() < 0.3:
                        until = environment.schedule.now + 1_000 + int(random.random() ** 2 * 100_000)
                        environment.happened(client.name, f"link to {bookie} is clogged until {until / 1000:.3f} ms")
                        environment.network.clog(client.name, bookie, until)
            return
        names = [bookie.name for bookie in self.bookies.values()] + [
            client.name for client in environment.clients if client.alive
        ]
        away = [name for name in names if random.random() < 0.4]
        one_way = random.random() < 0.3
        until = environment.schedule.now + 1_000 + int(random.random() ** 2 * 200_000)
        environment.happened(
            environment.network_name,
            f"{', '.join(away) or 'nobody'} parted from the others until {until / 1000:.3f}"
            f" ms{', one way' if one_way else ''}",
        )
        for name in away:
            for other in names:
                if other not in away:
                    environment.network.clog(name, other, until)
                    if not one_way:
                        environment.network.clog(other, name, until)
            if random.random() < 0.5:
                environment.metadata.clogged[name] = until

    # -- processes ----------------------------------------------------------------------------------------------------

    def bookie_crashes(self, random: Random) -> None:
        """A bookie is killed and restarted."""
        bookie = self._bookie(random)
        if bookie is not None and self.may_hurt(bookie):
            self._crash(bookie, random, power=False)

    def power_failures(self, random: Random) -> None:
        """Machines of some bookies lose power, perhaps all."""
        share = (0.3, 0.6, 1.0)[int(random.random() * 3)]
        for bookie in self.bookies.values():
            if random.random() < share and self.may_hurt(bookie):
                self._crash(bookie, random, power=True)

    def _crash(self, bookie: BookieProcess, random: Random, power: bool) -> None:
        """Crash a bookie, at once or in the middle of a later use of its disk. A booting bookie only crashes at once,
        because whether it may depends on the moment.
        """
        if random.random() < 0.4 and bookie.alive and not isinstance(bookie, BootingBookie):
            bookie.crash_within(int(random.random() * 12), power)
        else:
            bookie.crash(power)

    def power_after_adds(self, random: Random) -> None:
        """Disks are slow from now on, and some bookies lose power shortly after an add has arrived."""
        for bookie in self.bookies.values():
            bookie.slow = SLOW
        self._crash_after(lambda request: type(request) is AddEntry, random, power=True)

    def kills_after_fences(self, random: Random) -> None:
        """Some bookies are killed shortly after a read has asked them to fence a ledger."""
        self._crash_after(lambda request: getattr(request, "fence", False), random, power=False)

    def _crash_after(self, is_awaited: Callable[[Request], bool], random: Random, power: bool) -> None:
        """From now on, requests of a kind have a chance to crash their bookie some milliseconds after they arrive."""
        environment = self.environment

        def crash(bookie: BookieProcess, starts: int) -> None:
            if bookie.starts == starts and environment.schedule.now < HORIZON and self.may_hurt(bookie):
                bookie.crash(power)

        def arrived(bookie: BookieProcess, request: Request) -> None:
            if is_awaited(request) and random.random() < CHANCE:
                environment.schedule.after(int(random.random() * WINDOW), crash, bookie, bookie.starts)

        for bookie in self.bookies.values():
            bookie.on_request.append(partial(arrived, bookie))

    def client_crashes(self, random: Random) -> None:
        """A client dies."""
        clients = [client for client in self.environment.clients if client.alive]
        if clients:
            clients[int(random.random() * len(clients))].crash()

    def expired_sessions(self, random: Random) -> None:
        """A client's session with the metadata service expires."""
        clients = [client for client in self.environment.clients if client.alive]
        if clients:
            client = clients[int(random.random() * len(clients))]
            self.environment.happened(client.name, "session expires")
            self.environment.metadata.expire(client)

    # -- disks --------------------------------------------------------------------------------------------------------

    def slow_disks(self, random: Random) -> None:
        """A disk is slow for a while."""
        bookie = self._bookie(random)
        if bookie is not None:
            self.environment.happened(bookie.name, "disk is slow")
            bookie.slow = 10 + int(random.random() * 90)
            self.environment.schedule.after(int(random.random() * 200_000), setattr, bookie, "slow", 1)

    def failed_syncs(self, random: Random) -> None:
        """The next sync of a bookie fails."""
        bookie = self._bookie(random)
        if bookie is not None:
            bookie.disk.fails = random

    def full_disks(self, random: Random) -> None:
        """A disk has little or no space for a while, perhaps only its bookie's reserve; it may be slow."""
        bookie = self._bookie(random)
        if bookie is not None:
            self.environment.happened(bookie.name, "disk is nearly full")
            if random.random() < 0.5:
                bookie.slow = 1 + int(random.random() * 40)
                self.environment.schedule.after(20_000, setattr, bookie, "slow", 1)
            bookie.disk.free = int(random.random() ** 2 * 40_000)
            self.environment.schedule.after(int(random.random() * 200_000), setattr, bookie.disk, "free", CAPACITY)

    def bit_rot(self, random: Random) -> None:
        """A bit flips on a disk, which its bookie notices; or in an entry in memory, which only its readers notice."""
        bookie = self._to_damage(random)
        if bookie is None:
            return
        if random.random() < 0.25:
            entries = bookie.in_memory()
            if entries:
                self.damaged.add(bookie.name)
                bookie.flip_in_memory(*entries[int(random.random() * len(entries))], random.random())
            return
        places = bookie.places()
        if places and random.random() < 0.5:  # a live entry; otherwise any byte
            name, offset, length = places[int(random.random() * len(places))]
        else:
            files = sorted(name for name, file in bookie.disk.files.items() if file.content)
            name, offset = files[int(random.random() * len(files))], 0
            length = bookie.damageable(name)
        if length:
            self.damaged.add(bookie.name)
            bit = (offset + int(random.random() * length)) * 8 + int(random.random() * 8)
            self.environment.happened(bookie.name, f"bit {bit} of file {name} is flipped")
            bookie.disk.files[name].flip(bit)

    def wiped_disks(self, random: Random) -> None:
        """A machine is replaced by one with an empty disk."""
        bookie = self._to_damage(random)
        if bookie is not None:
            self.damaged.add(bookie.name)
            bookie.crash(power=True)
            self.environment.happened(bookie.name, "disk is wiped")
            bookie.disk.wipe()
            bookie.lost_data = True
            bookie.limbo = random.random() < 0.7

    # -- bookies that repair themselves -------------------------------------------------------------------------------

    def clean_restarts(self, random: Random) -> None:
        """A bookie is shut down cleanly and restarted."""
        bookie = self._bookie(random)
        if isinstance(bookie, BootingBookie):
            bookie.end()

    def lost_directories(self, random: Random) -> None:
        """The directory of the journal, of entries, or both are lost, at any time."""
        bookies = [b for b in self.bookies.values() if isinstance(b, BootingBookie) and self._is_within_bounds(b)]
        if bookies:
            bookie = bookies[int(random.random() * len(bookies))]
            which = (bookie.directories, bookie.directories, (bookie.of_journal,), (bookie.of_entries,))
            bookie.lose([*which[int(random.random() * len(which))]], power=random.random() < 0.5)

    def lost_marks(self, random: Random) -> None:
        """A bookie is killed, and a mark is lost: its record of how it ran, or one directory's mark that it is under
        repair. In a directory without a cookie the mark stays: without both, the bookie would refuse to start forever.
        """
        bookies = [b for b in self.bookies.values() if isinstance(b, BootingBookie) and self._is_within_bounds(b)]
        if bookies:
            bookie = bookies[int(random.random() * len(bookies))]
            marks = [(bookie.of_entries, "run")]
            if all(directory.is_under_repair for directory in bookie.directories):
                marks += ((each, "is_under_repair") for each in bookie.directories if each.cookie is not None)
            bookie.lose_mark(*marks[int(random.random() * len(marks))])

    def may_hurt(self, bookie: BookieProcess) -> bool:
        """Whether a bookie may lose its memory: if it holds nothing confirmed, or the number of bookies that lack
        something stays within bounds.
        """
        return not (isinstance(bookie, BootingBookie) and bookie.is_at_risk) or self._is_within_bounds(bookie)

    def _is_within_bounds(self, bookie: BookieProcess) -> bool:
        """Whether fewer bookies than an ack quorum lack something if this one does."""
        case, judge = self.environment.case, self.environment.judge
        lacking = {b.name for b in self.bookies.values() if b.lacking or judge.lacks(b.name)} | {bookie.name}
        return len(lacking) < case.ack_quorum or not case.tolerated

    # -- targets ------------------------------------------------------------------------------------------------------

    def _bookie(self, random: Random) -> BookieProcess | None:
        alive = [bookie for bookie in self.bookies.values() if bookie.alive]
        return alive[int(random.random() * len(alive))] if alive else None

    def _to_damage(self, random: Random) -> BookieProcess | None:
        """A bookie whose disk may be damaged, if there is one."""
        case = self.environment.case
        allowed = len(self.damaged) < case.ack_quorum - 1 or not case.tolerated
        bookies = [b for b in self.bookies.values() if b.alive and (allowed or b.name in self.damaged)]
        return bookies[int(random.random() * len(bookies))] if bookies else None
