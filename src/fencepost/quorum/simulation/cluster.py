"""A simulated quorum: hosts, network, clients, an administrator, and faults. A campaign has one for each seed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, ClassVar

from fencepost.quorum.identity import Node, ReplicaKey, VoterSet
from fencepost.quorum.messages import AddVoter, RemoveVoter, Response
from fencepost.quorum.rules import ALL, Protections
from fencepost.quorum.simulation.case import DEADLINE, FAULTY, Case, drawn
from fencepost.quorum.simulation.host import Hosts, Report, SimHost
from fencepost.quorum.simulation.judge import Violation
from fencepost.simulation import seeds
from fencepost.simulation.disk import CAPACITY
from fencepost.simulation.loop import SimLoop
from fencepost.simulation.schedule import unlogged
from fencepost.simulation.trace import SimTrace

SECOND = 1_000_000


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run. ``promise``: the broken promise, or empty. ``digest``: a hash of everything committed."""

    case: Case
    promise: str
    details: str
    digest: str
    events: int
    messages: int
    virtual: int
    epochs: int
    committed: int
    acknowledged: int
    changes: int
    wipes: int
    crashes: int
    failures: int


class Cluster(Hosts):
    """One run. Roles run with these ``protections``; tests leave some out to see that the judge notices. ``report``
    receives every step, and ``trace`` what the hosts trace.
    """

    def __init__(
        self, case: Case, protections: Protections = ALL, report: Report | None = None, trace: SimTrace | None = None
    ) -> None:
        super().__init__(case, protections, report, trace)
        self.changes = 0
        self.faulty = True
        self.final = b""  # the record that ends the run
        self.final_end = 0
        self._tokens = 0
        self.hosts = [
            SimHost(self, number, 1 + case.skew * (2 * self.random() - 1)) for number in range(1, case.hosts + 1)
        ]
        self.by_endpoint.update((host.endpoint, host) for host in self.hosts)
        self.join(self.hosts[: case.voters])

    # -- running -------------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Run to the end, or to the first broken promise."""
        promise = details = ""
        try:
            for host in self.hosts:
                self.schedule.at(int(self.random() * 20_000), host.start)
            for rate, call in (
                (self.case.proposals, self._propose),
                (self.case.crashes, self._crash),
                (self.case.wipes, self._wipe),
                (self.case.full_disks, self._fill),
                (self.case.failed_syncs, self._fail_sync),
                (self.case.rot, self._rot),
                (self.case.partitions, self._part),
                (self.case.changes, self._change_voters),
            ):
                if rate:
                    self._again(rate, call)
            self.schedule.at(FAULTY, self._heal)
            while self.schedule.now < DEADLINE and not self._has_finished() and self.schedule.step():
                pass
            if not self._has_finished():
                raise Violation("after the faults, records are committed everywhere", self._standing())
            self.judge.at_the_end()
        except Violation as violation:
            promise, details = violation.promise, str(violation)
        except Exception as error:
            promise = "no role raises an exception"
            details = f"{promise}: {type(error).__name__}: {error}"
        return Outcome(
            self.case,
            promise,
            details,
            self.judge.chained.get(self.judge.end.offset, b"").hex(),
            self.events,
            self.network.sent,
            self.schedule.now,
            len(self.judge.leaders),
            self.judge.end.offset,
            len(self.judge.acknowledged),
            self.changes,
            self.wipes,
            self.crashes,
            self.failures,
        )

    def _again(self, rate: float, call: Any) -> None:
        """Call something at random times, ``rate`` times a second on average, until the faults end."""

        def now() -> None:
            if self.faulty:
                call()
                self._again(rate, call)

        self.schedule.after(int(2 * self.random() * SECOND / rate), now)

    def _has_finished(self) -> bool:
        return self.final_end > 0 and all(
            host.alive and host.applied >= self.final_end and host.applied == self.judge.end.offset
            for host in self.hosts
        )

    def _standing(self) -> str:
        return "; ".join(
            f"{host.key} {'up' if host.alive else 'down'} {host.replica.state.value} {host.replica.epoch}"
            f" {host.replica.log.end} applied {host.applied} voters {','.join(map(str, host.replica.voters.nodes))}"
            for host in self.hosts
        )

    def _heal(self) -> None:
        """End all faults, and repair what they did."""
        self.faulty = False
        self.network.heal()
        self.slow_syncs = 0.0
        self.happened("network", "heals: nothing goes wrong from now on")
        for host in self.hosts:
            host.disk.heal()
            if not host.alive:
                host.start()
        self._repair()
        self.schedule.after(100_000, self._propose_final)

    def _repair(self) -> None:
        """Have the administrator remove voters whose replica is gone."""
        if self.final_end:
            return
        for host in self.hosts:
            if host.replica.leads:
                gone = sorted(key for key in host.replica.voters.keys if not self._is_intact(key))
                if gone:
                    self._administer(host, RemoveVoter(gone[0]))
        self.schedule.after(50_000, self._repair)

    def acknowledged(self, record: bytes, end_offset: int) -> None:
        """See :class:`Hosts`."""
        self.judge.acknowledged[record] = end_offset
        self.happened("client", f"hears that {record.split()[0].decode()} is committed, ahead of {end_offset}")
        if record == self.final:
            self.final_end = end_offset

    # -- clients and administrators ------------------------------------------------------------------------------------

    def _propose(self) -> None:
        """Have a client of a host that believes it leads append some records."""
        leaders = [host for host in self.hosts if host.alive and host.replica.leads]
        if leaders:
            self._propose_to(leaders[int(self.random() * len(leaders))])

    def _propose_to(self, host: SimHost) -> bytes:
        self._tokens += 1
        count = 1 + int(self.random() * 2.5)
        records = tuple(b"r%d.%d" % (self._tokens, number) for number in range(count))
        if self.random() < 0.2:  # more than a disk sector
            records = (*records[:-1], records[-1] + b" " * int(self.random() * 1_500))
        self.judge.proposed.update(records)
        host.propose(records)
        return records[-1]

    def _propose_final(self) -> None:
        if self.final_end:
            return
        for host in self.hosts:
            if host.replica.leads:
                self.final = self._propose_to(host)
        self.schedule.after(50_000, self._propose_final)

    def _change_voters(self) -> None:
        """Have an administrator remove a voter, or add one unless voters ask for it themselves. It asks the leader, or
        another host.
        """
        alive = [host for host in self.hosts if host.alive]
        leaders = [host for host in alive if host.replica.leads]
        if not alive:
            return
        asked = alive[int(self.random() * len(alive))]
        if leaders and self.random() < 0.8:
            asked = leaders[int(self.random() * len(leaders))]
        voters = asked.replica.voters
        gone = sorted(key for key in voters.keys if not self._is_intact(key))
        others = [host for host in alive if not voters.has_host(host.host_id)]
        if gone and self.random() < 0.6:
            self._administer(asked, RemoveVoter(gone[0], self.random() < 0.5))
        elif others and not self.case.settings.auto_join and self.random() < 0.7:
            host = others[int(self.random() * len(others))]
            self._administer(asked, AddVoter(Node(host.key, host.endpoint), self.random() < 0.5))
        elif len(voters) > 1:
            node = voters.nodes[int(self.random() * len(voters))]
            self._administer(asked, RemoveVoter(node.key, self.random() < 0.5))

    def _administer(self, host: SimHost, request: AddVoter | RemoveVoter) -> None:
        if host.alive and self.may_change(host, request):
            if isinstance(request, AddVoter):
                self.happened(host.endpoint, f"is asked to add voter {request.voter.key}")
            else:
                self.happened(host.endpoint, f"is asked to remove voter {request.voter}")
            host.request_received(request, self._answered)

    def _answered(self, response: Response) -> None:
        self.changes += not response.error.value

    def _is_intact(self, key: ReplicaKey) -> bool:
        """Return whether a replica's disk still exists."""
        return any(host.key == key for host in self.hosts)

    def _survives(self, voters: VoterSet, lost: ReplicaKey | None = None) -> bool:
        """Return whether a majority of a configuration's disks still exists."""
        intact = [key for key in voters.keys if key != lost and self._is_intact(key)]
        return 2 * len(intact) > len(voters)

    def may_change(self, host: SimHost, request: Any) -> bool:
        """See :class:`.Hosts`: administrators make no request that leaves no viable configuration."""
        voters = host.replica.voters
        if isinstance(request, RemoveVoter) and request.voter in voters:
            return len(voters) == 1 or self._survives(voters.without(request.voter))
        if isinstance(request, AddVoter) and not voters.has_host(request.voter.key.host_id):
            return self._survives(voters.having(request.voter))
        return True

    # -- faults --------------------------------------------------------------------------------------------------------

    def _some_host(self) -> SimHost:
        """A random host; one that believes it leads is more likely."""
        leaders = [host for host in self.hosts if host.alive and host.replica.leads]
        among = leaders if leaders and self.random() < 0.4 else self.hosts
        return among[int(self.random() * len(among))]

    def _crash(self) -> None:
        host = self._some_host()
        if host.alive:
            host.disk.left = int(self.random() * 24)  # within a write, or between two
            self.schedule.after(int(100_000 * self.random() ** 2), self._crash_now, host, host.loop)

    def _crash_now(self, host: SimHost, loop: SimLoop) -> None:
        if self.faulty and not loop.has_ended:
            host.crash()

    def ended(self, host: SimHost) -> None:
        """See :class:`Hosts`."""
        self._start_later(host)

    def _start_later(self, host: SimHost) -> None:
        def start() -> None:
            if not host.alive:
                host.start()

        self.schedule.after(int(1_000 + 400_000 * self.random() ** 2), start)

    def _wipe(self) -> None:
        """A disk is lost, and the host goes on with an empty one."""
        host = self._some_host()
        if host.alive and self._may_lose(host):
            host.lose_disk()

    def _may_lose(self, host: SimHost) -> bool:
        """Return whether every configuration that may still count keeps a majority if a host loses its disk."""
        return all(self._survives(voters, host.key) for other in self.hosts for voters in other.configurations)

    def _rot(self) -> None:
        """A host crashes, and a bit on its disk is flipped."""
        host = self._some_host()
        if host.alive and host.disk.free > CAPACITY // 2 and self._may_lose(host):
            host.crash()
            host.damage()
            host.start()

    def _fill(self) -> None:
        """A disk is almost full for a while."""
        disk = self._some_host().disk
        disk.free = int(self.random() * 8_000)
        self.schedule.after(int(self.random() * 200_000), setattr, disk, "free", CAPACITY)

    def _fail_sync(self) -> None:
        """The next sync of a disk fails."""
        host = self._some_host()
        host.disk.fails = host.dice

    def _part(self) -> None:
        """For a while some hosts cannot reach others, in one direction or both."""
        side = {host.endpoint for host in self.hosts if self.random() < 0.5}
        if self.random() < 0.4:
            side = {self._some_host().endpoint}
        both = self.random() < 0.7
        cut = {
            (one.endpoint, other.endpoint)
            for one in self.hosts
            for other in self.hosts
            if (one.endpoint in side) != (other.endpoint in side) and (both or one.endpoint in side)
        }
        self.network.cut = cut
        ways = "between {} and the others" if both else "on the way from {} to the others"
        self.happened("network", f"is cut {ways.format(' '.join(sorted(side)) or 'nobody')}")

        def over() -> None:
            if self.network.cut is cut:
                self.network.cut = set()

        self.schedule.after(int(10_000 + 600_000 * self.random() ** 2), over)


def simulate(
    case: Case | int, protections: Protections = ALL, report: Report | None = None, trace: SimTrace | None = None
) -> Outcome:
    """Run a case, or the case of a seed, to its end. ``report`` receives every step, and ``trace`` what the hosts
    trace. A case has the same outcome in every process, traced or not.
    """
    cluster = Cluster(drawn(case) if isinstance(case, int) else case, protections, report, trace)
    with unlogged():
        return cluster.run()


@dataclass(frozen=True)
class Campaign(seeds.Campaign[Outcome]):
    """A campaign of quorums, one for each seed."""

    protections: Protections = ALL
    counted: ClassVar[tuple[str, ...]] = ("committed", "epochs")
    name: ClassVar[str] = "quorums"

    def simulated(self, seed: int, trace: SimTrace | None) -> seeds.Run[Outcome]:
        """See :class:`.seeds.Campaign`."""
        return run_of(simulate(seed, self.protections, trace=trace))

    def packed(self, run: seeds.Run[Outcome]) -> bytes:
        """See :class:`.seeds.Campaign`."""
        return run.hash.encode()


def run_of(outcome: Outcome) -> seeds.Run[Outcome]:
    """The part of a run that a campaign stores."""
    hashed = hashlib.blake2b(repr(outcome).encode(), digest_size=8).hexdigest()
    counts = {"committed": outcome.committed, "epochs": outcome.epochs}
    what = outcome.details.removeprefix(f"{outcome.promise}: ")
    return seeds.Run(outcome.case.seed, hashed, outcome.virtual, counts, outcome.promise, what, outcome)
