"""A writer, two recoverers and a reader, with messages in any order, lost answers and killed bookies: no confirmed
entry is lost.
"""

from __future__ import annotations

from itertools import islice
from random import Random
from typing import Any

import pytest
from ledger.roles.connected import Cluster
from ledger.singly import singly

from fencepost.ledger.entries import Digests
from fencepost.ledger.roles import interface as i
from fencepost.ledger.roles.reader import Reader, ReaderSettings
from fencepost.ledger.roles.recoverer import Recoverer, RecovererSettings
from fencepost.ledger.roles.writer import Writer, WriterSettings
from fencepost.ledger.rules.ensembles import write_set
from fencepost.ledger.rules.metadata import DigestType, LedgerStatus
from fencepost.ledger.rules.protections import ALL, Protections

STEPS = 5000
FROM_AFAR = (i.RequestArrived, i.AddsArrived, i.ReadsArrived, i.Received, i.Unanswered, i.AddsAnswered, i.ReadsAnswered)


class AnyOrder(Cluster):
    """A cluster whose next step is random: an event of any role, a timer, a lost message or answer, a bookie killed or
    restarted.
    """

    def __init__(self, bookies: str, random: Random, protections: Protections) -> None:
        super().__init__(bookies, protections)
        self.random = random
        self.drop = lambda source, target, message: random.random() < 0.03
        self.kills = 0

    def run(self) -> None:
        """Do nothing: every step is drawn."""

    def carry_out(self, role: Any, effect: Any) -> None:
        kind = type(effect)
        if kind in (i.LookUp, i.LookUpReads, i.Journal):
            super().carry_out(role, effect)
            return
        if kind in (i.CreateMetadata, i.WriteMetadata) and self.random.random() < 0.1:
            if self.random.random() < 0.5:
                self.lose_metadata_answers = 1
            else:
                self.events.append((role, i.MetadataAnswer(effect.txn, i.Outcome.UNKNOWN)))
                return
        super().carry_out(role, effect)

    def step(self) -> bool:
        """Take one step. Returns False if none is left."""
        if self.random.random() < 0.006 and self.kills and not self.down:
            self.kills -= 1
            name = self.random.choice(sorted(self.bookies))
            self.down.add(name)
            lost: list[Any] = [event for role, event in self.events if role is self.bookies[name]]
            self.events.extend(
                (self.clients[event.connection], self.unanswered_by(txn, name))
                for event in lost
                for txn in self.txns_of(event)
            )
            self.unanswered(name)
            self.tell_bookies()
        elif self.down and self.random.random() < 0.01:
            name = self.down.pop()
            self.bookies[name].waiting.clear()
            self.restart(name)
            self.tell_bookies()
        if self.events and (not self.timers or self.random.random() < 0.97):
            # The role that is drawn takes its oldest event, or any message from another process. A journal and a
            # service keep their order.
            at = self.random.randrange(len(self.events))
            role, event = self.events[at]
            if type(event) not in FROM_AFAR:
                at = next(
                    n for n, (other, kept) in enumerate(self.events) if other is role and type(kept) is type(event)
                )
            role, event = self.events[at]
            del self.events[at]
            if not self.is_dead(role):
                self.happen(role, event)
            return True
        if self.timers:
            self.wait()
            return True
        return False

    def is_dead(self, role: Any) -> bool:
        return any(role is bookie for name, bookie in self.bookies.items() if name in self.down) or (
            hasattr(role, "ledgers") and all(role is not bookie for bookie in self.bookies.values())
        )

    def unanswered(self, name: str) -> None:
        """Connections to a killed bookie break, and the clients that wait for its answers learn it."""
        bookie = self.bookies[name]
        answers: Any = (answer for _, reply in bookie.waiting for answer in singly(reply))
        polls = (poll for each in bookie.ledgers.values() for poll in each.polls.values())
        asked = [(one.connection, one.txn) for one in (*answers, *bookie.lookups.values(), *polls)]
        asked += [(connection, self.looked_up[bookie, number]) for number, (connection, _) in bookie.reads.items()]
        self.events.extend((self.clients[connection], self.unanswered_by(txn, name)) for connection, txn in asked)

    def txns_of(self, event: Any) -> list[int]:
        """The numbers of the requests in an event."""
        if type(event) is i.AddsArrived:
            return [txn for adds in event.adds for txn, _ in adds.requests]  # type: ignore[attr-defined]
        if type(event) is i.ReadsArrived:
            return [self.asked.pop(id(event))[0]]
        return [event.txn] if type(event) is i.RequestArrived else []

    def tell_bookies(self) -> None:
        bookies = [b for b in self.bookies if b not in self.down]
        self.random.shuffle(bookies)
        self.events.extend((client, i.BookiesChanged(tuple(bookies))) for client in self.clients)


def life_of_a_ledger(seed: int, protections: Protections = ALL, batches: tuple[int, ...] = (1,) * 12) -> list[str]:
    """The faults of the result. Raises if the run does not end. ``batches``: numbers of entries appended together."""
    random = Random(seed)
    size, write_quorum, ack_quorum = random.choice([(3, 3, 2), (3, 2, 2), (2, 2, 1), (3, 3, 3), (4, 3, 2)])
    cluster = AnyOrder("abcdef"[: size + random.randrange(3)], random, protections)
    settings = WriterSettings(
        size,
        write_quorum,
        ack_quorum,
        in_flight_limit=4,
        creation_token=seed,
        explicit_lac_interval=random.choice([0, 50]),
    )
    writer = cluster.add(Writer(1, settings, protections))
    recoverers = [cluster.add(Recoverer(1, RecovererSettings(in_flight_limit=3), protections)) for _ in range(2)]
    reader = cluster.add(Reader(1, ReaderSettings(), protections))
    while cluster.events:
        cluster.step()
    created = cluster.call(writer, "create")
    while created not in cluster.results:
        assert cluster.step()
    cluster.kills = 3
    entries = iter(range(12))
    for size in batches:
        cluster.give(writer, i.Append(next(cluster.tokens), [b"entry %d" % n for n in islice(entries, size)]))
    opened = cluster.call(reader, "open")
    tails: dict[int, int] = {}
    recovers: list[int] = []
    closes: list[int] = []
    for step in range(STEPS):
        if not tails and opened in cluster.results and not cluster.results[opened].error:
            tails = {cluster.call(reader, "tail", entry_id): entry_id for entry_id in range(14)}
        if step == 150 and random.random() < 0.7:
            recovers.append(cluster.call(recoverers[0], "recover"))
        if step == random.choice([150, 250]):
            recovers.append(cluster.call(recoverers[1], "recover"))
        if step == random.choice([100, 300]):
            closes.append(cluster.call(writer, "close"))
        metadata, _ = cluster.metadata[1]
        if step > 300 and all(token in cluster.results for token in (*recovers, *closes)):
            if metadata.status is LedgerStatus.CLOSED:
                break
            recovers.append(cluster.call(random.choice(recoverers), "recover"))
        cluster.step()
    else:
        raise AssertionError(f"seed {seed}: the ledger is never closed")
    readings: dict[int, tuple[int, int]] = {}
    """For each awaited entry, the token of the wait and that of the following read."""
    for _ in range(STEPS):
        for token, entry_id in tails.items():
            known = cluster.results.get(token)
            if known is not None and known.value is True and entry_id not in readings:
                readings[entry_id] = token, cluster.read(reader, entry_id, singly=entry_id % 2 == 0)
        if all(each in cluster.results for each in (*tails, *(read for _, read in readings.values()))):
            break
        cluster.step()
    for entry_id, (token, read) in readings.items():
        del tails[token]
        tails[read] = entry_id
    return wrong(cluster, tails)


def wrong(cluster: AnyOrder, tails: dict[int, int]) -> list[str]:
    faults = []
    metadata, _ = cluster.metadata[1]
    if cluster.confirmed != sorted(set(cluster.confirmed)):
        faults.append(f"told to be confirmed: {cluster.confirmed}")
    confirmed = cluster.confirmed[-1] + 1 if cluster.confirmed else 0
    if confirmed > metadata.last_entry + 1:
        faults.append(f"{confirmed} were confirmed, the ledger ends at {metadata.last_entry}")
    digests, length = Digests(DigestType.CRC32, b""), 0
    for entry_id in range(metadata.last_entry + 1):
        fragment = [each for each in metadata.fragments if each.first_entry_id <= entry_id][-1]
        holders = write_set(entry_id, fragment.ensemble, metadata.write_quorum)
        bodies = [cluster.entries[b][1, entry_id] for b in holders if (1, entry_id) in cluster.entries[b]]
        entries = [digests.open_entry(body, 1, entry_id) for body in bodies]
        if len(bodies) < metadata.ack_quorum or {e and e.data for e in entries} != {b"entry %d" % entry_id}:
            faults.append(f"entry {entry_id} on {holders}: {entries}")
        length += len(b"entry %d" % entry_id)
    if metadata.length != length:
        faults.append(f"length {metadata.length} of {length}")
    for token, entry_id in tails.items():
        result = cluster.results.get(token)
        expected = b"entry %d" % entry_id if entry_id <= metadata.last_entry else None
        if result is None:
            faults.append(f"the reader never hears of entry {entry_id}")
        elif not result.error and result.value != expected:
            faults.append(f"the reader was told of entry {entry_id}: {result}")
        elif result.error not in (i.Error.NONE, i.Error.READ_FAILED):
            faults.append(f"the reader was told of entry {entry_id}: {result}")
    return faults


@pytest.mark.parametrize("tens", range(6))
def test_nothing_that_was_confirmed_is_lost(tens: int) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        assert life_of_a_ledger(seed) == [], seed


@pytest.mark.parametrize("tens", range(3))
def test_nothing_that_was_confirmed_by_the_batch_is_lost(tens: int) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        batches = tuple(Random(seed).choices((1, 2, 3, 5), k=7))
        assert life_of_a_ledger(seed, batches=batches) == [], seed
