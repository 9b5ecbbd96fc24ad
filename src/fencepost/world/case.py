"""The case of one world: its seed, and what the seed draws."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from msgspec import structs

from fencepost.ledger.client.settings import ClientSettings
from fencepost.ledger.rules.metadata import DigestType
from fencepost.ledger.rules.placement import Placement
from fencepost.ledger.simulation import case as store
from fencepost.quorum.roles.interface import QuorumSettings
from fencepost.quorum.simulation import case as quorum

BEGIN = 800_000
"""The time of the first faults, in microseconds."""
LONGEST = 4_500_000
"""The latest end of faults, in microseconds."""
DEADLINE = 40_000_000
"""The time by which everything must be closed, read and replicated, in microseconds."""

TIMES = QuorumSettings(
    election_timeout=200_000,
    fetch_timeout=400_000,
    election_backoff=200_000,
    request_timeout=300_000,
    retry_backoff=5_000,
    fetch_max_wait=150_000,
    join_retry=200_000,
    high_watermark_wait=5_000,
)
"""The timeouts of the quorum: half of the real ones."""


PASSWORD = b"fencepost"
"""The password of all ledgers and logs."""

CLIENTS = ClientSettings(
    request_timeout=0.4,
    connect_timeout=0.5,
    reconnect_delay=0.01,
    reconnect_delay_limit=0.2,
    quarantine=0.3,
    session_timeout=0.6,
    metadata_timeout=2.0,
    speculation_delay=0.01,
    poll_wait=0.1,
    recovery_in_flight=3,
)
"""The timeouts of clients: at most a tenth of the real ones."""


@dataclass(frozen=True)
class Case:
    """One world. Rates are events per second of virtual time. ``slow``: the share of slow messages.

    Numbers of processes: ``members`` of the metadata service, ``bookies``, writers of single ledgers (``owners``),
    clients that recover these (``heirs``) or read them (``followers``), ``writers`` and ``readers`` of each of ``logs``
    logs, and auto-recovery processes (``replicators``). At most ``lost`` bookies are lost forever. Faults happen until
    ``heal``, in microseconds. ``placed`` and ``places``: as in a case of the store's simulator.
    """

    seed: int
    members: int
    bookies: int
    ensemble: int
    write_quorum: int
    ack_quorum: int
    digest: DigestType
    owners: int
    heirs: int
    followers: int
    logs: int
    writers: int
    readers: int
    replicators: int
    lost: int
    rates: tuple[tuple[str, float], ...]
    slow: float
    slow_syncs: float
    loss: float
    heal: int
    placed: str
    places: int

    @property
    def placement(self) -> Placement:
        """What is enforced of the placement, and where each bookie is."""
        return store.placement_of(self.placed, self.places, self.bookies)

    @property
    def clients(self) -> ClientSettings:
        """The settings of all clients."""
        return structs.replace(CLIENTS, placement=self.placement.policy)

    def stream(self, name: str) -> Random:
        """The random numbers for one purpose."""
        return Random(f"{self.seed} world {name}")

    @property
    def of_quorum(self) -> quorum.Case:
        """The case of the metadata service's quorum."""
        random = self.stream("quorum").random
        return quorum.Case(
            seed=self.seed,
            hosts=self.members,
            voters=self.members,
            settings=TIMES,
            proposals=0.0,
            crashes=0.0,
            wipes=0.0,
            partitions=0.0,
            changes=0.0,
            loss=self.loss,
            slow_messages=self.slow,
            slow_syncs=self.slow_syncs,
            skew=0.0,
            snapshot_every=(10_000, 200, 40)[int(random() * 3)],
            piece=500 + int(4_000 * random()),
            full_disks=0.0,
            failed_syncs=0.0,
            rot=0.0,
            fetch=(2_000, 1 << 20)[int(random() * 2)],
            cache=(0, 4_000, 1 << 20)[int(random() * 3)],
            segment=(20_000, 1 << 20)[int(random() * 2)],
            snapshots=1 + int(random() * 2),
        )

    @property
    def of_store(self) -> store.Case:
        """The case of the bookies."""
        return store.Case(
            self.seed,
            "calm",
            bookies=self.bookies,
            ensemble=self.ensemble,
            write_quorum=self.write_quorum,
            ack_quorum=self.ack_quorum,
        )


MOST = {
    "bookie_crashes": 2.0,
    "power_failures": 1.0,
    "member_crashes": 1.5,
    "client_crashes": 1.5,
    "lost_bookies": 2.0,
    "pauses": 2.0,
    "partitions": 1.5,
    "cut_off_clients": 2.0,
    "breaks": 2.0,
    "half_open": 1.5,
    "expired_sessions": 1.5,
    "slow_disks": 1.5,
    "full_disks": 0.8,
    "failed_syncs": 0.8,
}
"""The kinds of faults, with their highest rates per second."""


def drawn(seed: int) -> Case:
    """The case of a seed: some kinds of faults, frequent or rare; in one of twenty cases none."""
    random = Random(f"{seed} world").random
    calm = random() < 0.05

    def some(most: float, chance: float) -> float:
        return most * random() if random() < chance and not calm else 0.0

    write_quorum = (2, 3, 3, 3)[int(random() * 4)]
    ack_quorum = 2
    ensemble = write_quorum + (random() < 0.3)
    replicators = (0, 1, 2, 2)[int(random() * 4)]
    lost = 1 if replicators and random() < 0.7 else 0
    members = (1, 3, 3, 3)[int(random() * 4)]
    bookies = ensemble + ack_quorum + int(random() * 2)
    placed, places, draws = "none", 1, Random(f"{seed} world sites").random
    if draws() < 0.3:
        # Two bookies in each of as many places as an ensemble has bookies: if one is lost, the other can stand in.
        placed, places = store.PLACED[1 + int(draws() * 4)], max(3, ensemble)
        bookies = 2 * places
    return Case(
        seed=seed,
        members=members,
        bookies=bookies,
        ensemble=ensemble,
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        digest=(DigestType.CRC32C, DigestType.CRC32, DigestType.HMAC)[int(random() * 3)],
        owners=1 + int(random() * 2),
        heirs=int(random() * 2.5),
        followers=int(random() * 2),
        logs=int(random() * 3),
        writers=1 + int(random() * 3),
        readers=int(random() * 2),
        replicators=replicators,
        lost=lost,
        rates=tuple((kind, rate) for kind, most in MOST.items() if (rate := some(most, 0.6))),
        slow=some(0.1, 0.5),
        slow_syncs=some(0.2, 0.5),
        loss=some(0.05, 0.4),
        heal=LONGEST - int(random() * (LONGEST - 2 * BEGIN)),
        placed=placed,
        places=places,
    )
