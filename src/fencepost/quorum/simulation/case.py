"""The parameters of one run, drawn from its seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import msgspec

from fencepost.quorum.roles.interface import QuorumSettings

FAULTY = 2_500_000
"""Microseconds during which faults happen."""

DEADLINE = 12_000_000
"""The time by which every replica must have all committed records, and a record proposed after the faults."""

SETTINGS = QuorumSettings(
    election_timeout=100_000,
    fetch_timeout=200_000,
    election_backoff=100_000,
    request_timeout=150_000,
    retry_backoff=5_000,
    fetch_max_wait=50_000,
    join_retry=100_000,
)
"""A tenth of a real quorum's timeouts, so that much happens in little virtual time."""


@dataclass(frozen=True)
class Case:
    """The parameters of one run.

    There are ``hosts`` hosts; the first ``voters`` of them are the first voters, and the others observers. Rates are
    events in a second of virtual time; chances are for each message or sync. ``auto_join``: observers ask to become
    voters, and nobody else adds them. ``records_kept``: records to keep before a snapshot. ``snapshot_every``: records
    between snapshots. ``piece``: bytes of a snapshot in a message. ``snapshots``: how many to keep. ``fetch``: bytes of
    batches in an answer. ``cache``: bytes of batches in memory. ``segment``: bytes of a log file. ``rot``: flipped bits
    on a disk.
    """

    seed: int
    hosts: int
    voters: int
    settings: QuorumSettings
    proposals: float
    crashes: float
    wipes: float
    partitions: float
    changes: float
    loss: float
    slow_messages: float
    slow_syncs: float
    skew: float
    snapshot_every: int
    piece: int
    full_disks: float
    failed_syncs: float
    rot: float
    fetch: int
    cache: int
    segment: int
    snapshots: int


def drawn(seed: int) -> Case:
    """Draw the case of a seed: some kinds of faults, often or seldom. One case in twenty has none."""
    random = Random(seed).random

    hosts = 1 + int(random() * 5.99)
    voters = 1 + int(random() * min(hosts, 5))
    calm = random() < 0.05
    settings = msgspec.structs.replace(
        SETTINGS,
        records_kept=(0, 3, 50)[int(random() * 3)],
        auto_join=random() < 0.25,
        begin_quorum_needs_voter=random() < 0.7,
        high_watermark_wait=20_000 if seed % 10 == 7 else 0,
    )

    def some(most: float, chance: float = 0.6) -> float:
        return most * random() if not calm and random() < chance else 0.0

    return Case(
        seed=seed,
        hosts=hosts,
        voters=voters,
        settings=settings,
        proposals=20 + 130 * random(),
        crashes=some(15),
        wipes=some(4, 0.5),
        partitions=some(12),
        changes=some(12, 0.7),
        loss=some(0.1, 0.4),
        slow_messages=some(0.2, 0.5),
        slow_syncs=some(0.3, 0.5),
        skew=some(0.4, 0.5),
        snapshot_every=(10_000, 40, 12)[int(random() * 3)],
        piece=100 + int(900 * random()),
        full_disks=some(4, 0.3),
        failed_syncs=some(4, 0.3),
        rot=some(4, 0.3),
        fetch=(60, 600, 1 << 20)[int(random() * 3)],
        cache=(0, 400, 1 << 20)[int(random() * 3)],
        segment=(4_000, 20_000, 1 << 20)[int(random() * 3)],
        snapshots=1 + int(random() * 2),
    )
