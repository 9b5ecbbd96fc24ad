"""The faults of a world: each kind happens repeatedly, until everything is healed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from fencepost.simulation.disk import CAPACITY
from fencepost.world.case import BEGIN
from fencepost.world.environment import Surroundings

T = TypeVar("T")

SECOND = 1_000_000


class Faults:
    """Applies the faults to a world, each kind at the rate of the case."""

    def __init__(self, world: Surroundings) -> None:
        self.world = world
        self.random = world.plan.stream("faults").random
        for kind, rate in world.plan.rates:
            self._again(kind, BEGIN + int(2 * self.random() * SECOND / rate), rate)

    def _again(self, kind: str, time: int, rate: float) -> None:
        self.world.schedule.at(time, self._happen, kind, rate)

    def _happen(self, kind: str, rate: float) -> None:
        if not self.world.has_healed:
            getattr(self, kind)()
            self._again(kind, self.world.schedule.now + int(2 * self.random() * SECOND / rate), rate)

    # -- processes -----------------------------------------------------------------------------------------------------

    def bookie_crashes(self) -> None:
        """A bookie is killed and restarted."""
        bookie = self._one([each for each in self.world.bookies.processes.values() if each.alive])
        if bookie is not None:
            bookie.crash(power=False)

    def power_failures(self) -> None:
        """Machines of some bookies lose power, perhaps all."""
        share = (0.3, 0.6, 1.0)[int(self.random() * 3)]
        for bookie in [*self.world.bookies.processes.values()]:
            if self.random() < share:
                bookie.crash(power=True)

    def member_crashes(self) -> None:
        """A member of the metadata service dies while writing; preferably the leader."""
        members = [each for each in self.world.quorum.members if each.alive]
        leading = [each for each in members if each.replica.leads]
        member = self._one(leading if self.random() < 0.4 else members)
        if member is not None:
            member.disk.left = int(self.random() * 24)
            self.world.schedule.after(int(100_000 * self.random() ** 2), self._end_member, member, member.loop)

    def _end_member(self, member: object, loop: object) -> None:
        for each in self.world.quorum.members:
            if each is member and each.alive and each.loop is loop and not self.world.has_healed:
                each.crash()

    def client_crashes(self) -> None:
        """A client dies and is restarted."""
        client = self._one([each for each in self.world.processes if each.alive])
        if client is not None:
            client.crash(power=self.random() < 0.3)
            self.world.schedule.after(int(self.random() ** 2 * 500_000), client.start)

    def pauses(self) -> None:
        """A client or a member of the metadata service is paused for a while."""
        processes: list[Any] = [*self.world.processes, *self.world.quorum.members]
        process = self._one([each for each in processes if each.alive])
        if process is not None:
            until = self.world.schedule.now + int(10_000 + 1_500_000 * self.random() ** 2)
            self.world.happened(process.name, f"is stopped until {until / 1000:.3f} ms")
            process.loop.stop(until)

    def lost_bookies(self) -> None:
        """A bookie's machine is gone forever, if the case still allows it."""
        world = self.world
        bookie = self._one([each for each in world.bookies.processes.values() if each.name not in world.gone])
        if bookie is not None and len(world.gone) < world.plan.lost:
            world.gone.add(bookie.name)
            world.happened(bookie.name, "is gone for good")
            bookie.crash(power=True)

    def expired_sessions(self) -> None:
        """A session with the metadata service expires early."""
        self._expire(self._one([*self.world.sessions.values()]))

    def _expire(self, name: str | None) -> None:
        """Expire the sessions of a process, if there is a leader to do so."""
        leading = self.world.quorum.leading
        if leading is None or not leading.host.alive or leading.node is None or not leading.node.leads:
            return
        for session in [*leading.tree.sessions]:
            if self.world.sessions.get(session) == name:
                self.world.happened(name or "nobody", "session expires")
                leading.host.loop.does(leading.expire, session)

    # -- the network ---------------------------------------------------------------------------------------------------

    def partitions(self) -> None:
        """Some processes are cut off from the others for a while, in one direction or both."""
        world = self.world
        names = [*world.streams.current]
        away = {name for name in names if self.random() < 0.3}
        both = self.random() < 0.7
        until = world.schedule.now + int(10_000 + 800_000 * self.random() ** 2)
        world.happened(
            "network", f"{', '.join(sorted(away)) or 'nobody'} parted from the others until {until / 1000:.3f} ms"
        )
        for name in names:
            for other in names:
                if name in away and other not in away:
                    world.streams.clog(name, other, until)
                    if both:
                        world.streams.clog(other, name, until)
        endpoints = world.quorum.endpoints
        cut = {
            (one, other)
            for one in endpoints
            for other in endpoints
            if (_name(one) in away) != (_name(other) in away) and (both or _name(one) in away)
        }
        world.quorum.network.cut = cut
        world.schedule.at(until, self._join, cut)

    def _join(self, cut: set[tuple[str, str]]) -> None:
        if self.world.quorum.network.cut is cut:
            self.world.quorum.network.cut = set()

    def cut_off_clients(self) -> None:
        """A client reaches its bookies but not the metadata service; its session may expire already."""
        world = self.world
        clients = [each for each in world.processes if each.alive]
        leaders = {history.leader for history in world.histories}
        leading = [each for each in clients if each.name in leaders]
        client = self._one(leading if leading and self.random() < 0.7 else clients)
        if client is not None:
            until = world.schedule.now + int(300_000 + 2_200_000 * self.random())
            world.happened(client.name, f"does not reach the metadata service until {until / 1000:.3f} ms")
            for member in world.quorum.members:
                world.streams.clog(client.name, member.name, until)
                world.streams.clog(member.name, client.name, until)
            if self.random() < 0.6:
                self._expire(client.name)

    def breaks(self, noticed: bool = True) -> None:
        """Connections break."""
        streams = self.world.streams
        for stream in [*streams.streams.values()]:
            if self.random() < 0.3:
                streams.lose(stream, noticed)
        self.world.happened("network", f"connections break{'' if noticed else ', unnoticed'}")

    def half_open(self) -> None:
        """Connections break, and nobody notices."""
        self.breaks(noticed=False)

    # -- disks ---------------------------------------------------------------------------------------------------------

    def slow_disks(self) -> None:
        """A bookie's disk is slow for a while."""
        bookie = self._one([*self.world.bookies.processes.values()])
        if bookie is not None:
            self.world.happened(bookie.name, "disk is slow")
            bookie.slow = 10 + int(self.random() * 90)
            self.world.schedule.after(int(self.random() * 400_000), setattr, bookie, "slow", 1)

    def full_disks(self) -> None:
        """A disk has little or no space for a while."""
        machines: list[Any] = [*self.world.bookies.processes.values(), *self.world.quorum.members]
        who = self._one(machines)
        if who is not None:
            self.world.happened(who.name, "disk is nearly full")
            disk = who.disk
            disk.free = int(self.random() * 8_000)
            self.world.schedule.after(int(self.random() * 400_000), setattr, disk, "free", CAPACITY)

    def failed_syncs(self) -> None:
        """The next sync of a disk fails."""
        bookies = [*self.world.bookies.processes.values()]
        if self.random() < 0.5:
            bookie = self._one(bookies)
            if bookie is not None:
                bookie.disk.fails = bookie.dice
        else:
            member = self._one([*self.world.quorum.members])
            if member is not None:
                member.disk.fails = member.dice

    def _one(self, some: Sequence[T]) -> T | None:
        return some[int(self.random() * len(some))] if some else None


def _name(endpoint: str) -> str:
    return endpoint.partition(":")[0]
