"""A whole cluster on virtual time: bookies, clients, a network and a metadata service, all of whose chances come from
one seed.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from fencepost.schedule import Schedule
from fencepost.spec.values import Record, show
from fencepost.store.entries import Digests
from fencepost.store.records import EntryAdded
from fencepost.store.roles.interface import Effect, Event, Role
from fencepost.store.rules.cookies import Cookie
from fencepost.store.rules.metadata import DigestType
from fencepost.store.sim.bookie import BookieProcess
from fencepost.store.sim.boots import BootingBookie
from fencepost.store.sim.case import DEADLINE, HORIZON, PROFILES, Case
from fencepost.store.sim.client import ClientProcess
from fencepost.store.sim.disk import CAPACITY
from fencepost.store.sim.faults import SLOW_MESSAGES, UNSTEADY, Faults
from fencepost.store.sim.judge import Judge, Violation
from fencepost.store.sim.metadata import SimMetadata
from fencepost.store.sim.network import SimNetwork
from fencepost.store.sim.story import Story
from fencepost.store.sim.trace import SimTrace
from fencepost.store.sim.wire import VERSION_2

LIMIT = 40_000
"""Events after which a run is given up: something goes round in circles."""


def _plain(value: Any) -> Any:
    """What of an event is no plain value, as one."""
    if isinstance(value, Record):
        return show(value)
    if isinstance(value, enum.Enum):
        return value.name
    raise TypeError(f"{type(value).__name__} has no canonical bytes")


_ENCODE = msgspec.msgpack.Encoder(enc_hook=_plain, order="deterministic").encode


@dataclass(frozen=True)
class Outcome:
    """What became of a run: the violation, None if there was none; its length, in events and virtual microseconds; and
    the hash of all that happened in it.
    """

    case: Case
    violation: Violation | None
    events: int
    time: int
    trace_hash: str


class Cluster:
    """All processes of a run, and what is between them."""

    network_name = "network"

    def __init__(self, case: Case, story: Story | None = None, trace: SimTrace | None = None) -> None:
        self.case = case
        self.story = story
        self.trace = trace
        self.schedule = Schedule()
        self.judge = Judge(case.promises)
        self.digests = Digests(DigestType.CRC32, b"")  # until there is a ledger
        self.events = 0
        self._hash = hashlib.blake2b(digest_size=8)
        self.clients: list[ClientProcess] = []
        slow = SLOW_MESSAGES if "delays" in case.faults else 0.0
        unsteady = UNSTEADY if "lost_answers" in case.faults else 0.0
        version_2 = case.stream("wire").random() < VERSION_2
        self.network = SimNetwork(self.schedule, case.stream("network"), story, slow, version_2, trace)
        self.metadata = SimMetadata(
            self.schedule, case.stream("metadata"), self.judge, story, case.protections, unsteady, trace
        )
        self._restarts = case.stream("restarts").random
        self.cookies: dict[str, Cookie] = {}
        """Those of bookies in the metadata."""
        kind = BootingBookie if PROFILES[case.profile].repairs else BookieProcess
        self.bookies: dict[str, BookieProcess] = {}
        for number in range(1, case.bookies + 1):
            name = f"b{number}"
            bookie = self.bookies[name] = self.network.servers[name] = kind(name, self, case.stream(name))
            bookie.start()
        self.faults = Faults(self)
        self.schedule.at(HORIZON, self._heal)

    @property
    def traces(self) -> bool:
        """Whether roles are to say what they do."""
        return self.trace is not None

    # -- what processes use -------------------------------------------------------------------------------------------

    def receive(self, who: str, role: Role, event: Event) -> list[Effect]:
        """Give a role an event: this is all that ever happens to one."""
        now = self.schedule.now
        self.events += 1
        self._hash.update(_ENCODE((now, who, type(event).__name__, event)))
        if self.story is not None:
            self.story.happens(now, who, event)
        try:
            effects = role.receive(event, now)
        except Exception as error:
            raise Violation("sanity", f"{who} raises {type(error).__name__}: {error}") from error
        if self.story is not None:
            self.story.became(who, vars(role), effects)
        return effects

    def note(self, who: str, what: str) -> None:
        """Something happened that no role was told of."""
        self._hash.update(_ENCODE((self.schedule.now, who, what)))
        if self.story is not None:
            self.story.happens(self.schedule.now, who, what)
            self.story.tells(what)

    def entry_durable(self, bookie: str, record: EntryAdded) -> None:
        """An entry is on the disk of a bookie."""
        entry = self.digests.open_entry(record.body, record.ledger, record.entry_id)
        if entry is not None:
            self.judge.stored(bookie, record.ledger, record.entry_id, entry.data)

    def bookie_gone(self, bookie: BookieProcess) -> None:
        """A bookie is not there any more. The metadata service notices that after a while, and somebody starts it
        again.
        """
        if self.story is not None:
            self.story.restarted(bookie.name)
        self.schedule.after(1_000 + int(self._restarts() * 20_000), self._unregister, bookie, bookie.starts)
        delay = 1_000 + int(self._restarts() ** 3 * 150_000)
        self.schedule.after(delay if self.schedule.now < HORIZON else 1_000, self._start, bookie)

    def _unregister(self, bookie: BookieProcess, starts: int) -> None:
        if bookie.starts == starts:
            self.metadata.unregister(bookie.name)

    def _start(self, bookie: BookieProcess) -> None:
        bookie.start()
        if not bookie.alive:
            self.metadata.unregister(bookie.name)
            if not bookie.refuses:  # there is no room on its disk yet
                self.schedule.after(20_000, self._start, bookie)

    def is_repaired(self) -> bool:
        """Whether all repairs of bookies are done."""
        return not any(bookie.is_under_repair for bookie in self.bookies.values())

    # -- a run --------------------------------------------------------------------------------------------------------

    def run(self, finished: Callable[[], bool]) -> Outcome:
        """Go on until ``finished()`` is true, or something is violated."""
        violation = None
        step = self.schedule.step
        try:
            while not finished():
                if not step():
                    raise Violation("liveness", "nothing happens any more, and the ledger is not closed and read")
                if self.events > LIMIT or self.schedule.now > DEADLINE:
                    after = f"after {self.events:,} events and {self.schedule.now / 1e6:.1f} s of virtual time"
                    raise Violation("liveness", f"{after} the ledger is not closed and read")
        except Violation as found:
            if not self.judge.holds_to(found.promise):
                return Outcome(self.case, None, self.events, self.schedule.now, self._hash.hexdigest())
            violation = found
            if self.story is not None:
                self.story.tells(f"VIOLATED  {found}")
        return Outcome(self.case, violation, self.events, self.schedule.now, self._hash.hexdigest())

    def _heal(self) -> None:
        """All faults are over: what is down comes back, and nothing is slow, full or lost any more."""
        self.note(self.network_name, "all faults are over")
        self.network.heal()
        self.metadata.heal()
        for bookie in self.bookies.values():
            bookie.slow, bookie.failing_syncs, bookie.disk.free = 1, 0, CAPACITY
            if not bookie.alive:
                self._start(bookie)
