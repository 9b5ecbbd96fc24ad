"""``python -m interop.defects``: defects of BookKeeper that were reported to it, each made to happen, recorded and
validated.

As in ``interop.departures``, each scenario has a cluster of its own: Java's client and bookies on ZooKeeper, and the
recorder between. ``docs/protocols/bookkeeper-java.md`` has the findings, by release.
"""

from __future__ import annotations

import shutil
import sys
import time
from functools import partial

from interop.cases import entries
from interop.clients import Ledger, Refused, encoded
from interop.clusters import Bookie, java_uri
from interop.departures import PATIENCE, Scenarios, Stage, Staged, main, quietly
from interop.processes import Server

TRIES = 200


def _ensemble(stage: Stage, ids: list[str]) -> list[Bookie]:
    return [stage.cluster.bookie(each) for each in ids]


def _cannot_be_read(ledger: Ledger) -> str:
    """Which entries cannot be read though one bookie alone is gone."""
    last = ledger.call("lac")
    lost = [entry for entry in range(last + 1) if quietly(partial(ledger.read, entry, entry)) is None]
    return f"ack quorum 2, one bookie is gone: of entries 0 to {last}, those that cannot be read: {lost}"


def copies_that_stay_behind(stage: Stage) -> str:
    """Entries are striped over four bookies. The first one hangs, so entries 1 and 2, which the others have confirmed,
    wait for entry 0. The third one is killed, and while the metadata service hangs, so that its replacement takes long,
    the first one goes on.
    """
    writer, reader = stage.connect(), stage.connect()
    ledger = writer.create(ensemble=4, write_quorum=2, ack_quorum=2)
    ensemble = _ensemble(stage, writer.metadata(ledger.id)["ensembles"]["0"])
    service = stage.cluster.service
    assert isinstance(service, Server)
    ensemble[0].server.freeze()
    adding = [ledger.begin("append", entries=encoded(tuple(entries(4))))]
    time.sleep(1)
    service.freeze()
    ensemble[2].server.kill()
    adding.append(ledger.begin("append", entries=encoded(tuple(entries(3)))))
    time.sleep(1)
    ensemble[0].server.thaw()
    time.sleep(1)
    service.thaw()
    for each in adding:
        each.result(PATIENCE)
    ledger.append(*entries(3))
    ledger.close()
    ensemble[1].server.kill()
    return _cannot_be_read(reader.open(ledger.id))


def a_change_that_entries_miss(stage: Stage) -> str:
    """The client's throttle, which is there by default, holds entries back. Meanwhile a connection breaks under an
    earlier one, and so a bookie is replaced. The entries go to the old ensemble.
    """
    writer, reader = stage.connect(throttle=1), stage.connect()
    ledger = writer.create(ensemble=2, write_quorum=2, ack_quorum=2)
    ensemble = _ensemble(stage, writer.metadata(ledger.id)["ensembles"]["0"])
    adding = [ledger.begin("append", entries=encoded((body,))) for body in entries(4)]
    for each in adding:
        each.result(PATIENCE)
    ledger.append(b"tells the LAC")
    ledger.close()
    changed = _ensemble(stage, writer.metadata(ledger.id)["ensembles"]["0"])
    next(bookie for bookie in ensemble if bookie in changed).server.kill()
    return _cannot_be_read(reader.open(ledger.id))


CACHE = 1 << 19
"""Bytes of one of the two write caches of a bookie, of which there is 1 MiB together."""


def two_handles(stage: Stage) -> str:
    """The write cache of a bookie is full. It hangs while a ledger gets its first entry and another client recovers the
    ledger, and goes on: the first add and the first fence come at the same time, and the add waits for the cache. This
    is tried until both have a handle of their own.
    """
    one_copy = {"ensemble": 1, "write_quorum": 1, "ack_quorum": 1}
    writer, other = stage.connect(), stage.connect()
    (bookie,) = stage.cluster.bookies
    filler = writer.create(**one_copy)
    for tried in range(1, 1 + TRIES):
        ledger = writer.create(**one_copy)
        filler.append(bytes(CACHE - 4_000))
        bookie.server.freeze()
        adding = ledger.begin("append", entries=encoded((bytes(14_000),)))
        time.sleep(0.02)
        opening = stage.process.begin("open", client=other.number, ledger=ledger.id)
        time.sleep(0.1)
        bookie.server.thaw()
        last = Ledger(stage.process, **opening.result(PATIENCE)).call("lac")
        if quietly(partial(adding.result, PATIENCE)) is not None and last == -1:
            return f"try {tried}: entry 0 of ledger {ledger.id} was acknowledged, and the ledger is closed without it"
    return f"in {TRIES} tries no ledger was closed without an entry that was acknowledged"


def an_empty_bookie_speaks_first(stage: Stage) -> str:
    """A bookie loses its disk and its cookie, and is started again with its old id. A client recovers a ledger, all of
    whose entries are on all three bookies, and the two others answer late.
    """
    writer, other = stage.connect(), stage.connect()
    ledger = writer.create(ensemble=3, write_quorum=3, ack_quorum=3)
    for body in entries(10):
        ledger.append(body)
    lost, *others = stage.cluster.bookies
    lost.server.kill()
    for name in ("journal", "ledgers", "index"):
        shutil.rmtree(stage.cluster.folder / "bookie-1" / name)
    words = ["cookie_delete", lost.id]
    done = stage.process.call("shell", uri=java_uri(stage.cluster.uri), folder=str(stage.folder), words=words)
    if done["status"] != 0:
        raise Refused("cookie_delete", done["printed"])
    stage.cluster.restart([lost])
    time.sleep(3)
    for bookie in others:
        bookie.server.freeze()
    opening = stage.process.begin("open", client=other.number, ledger=ledger.id)
    time.sleep(2)
    for bookie in others:
        bookie.server.thaw()
    last = Ledger(stage.process, **opening.result(PATIENCE)).call("lac")
    return f"10 entries were acknowledged by 3 of 3 bookies, one of which has lost its disk: closed at {last}"


SCENARIOS: Scenarios = {
    "2612": Staged(an_empty_bookie_speaks_first),
    "4194": Staged(copies_that_stay_behind, bookies=5),
    "4651": Staged(a_change_that_entries_miss, faults=["cut request add entry=0"]),
    "4701": Staged(two_handles, {"dbStorage_writeCacheMaxSizeMb": 1, "flushInterval": 600_000}, bookies=1),
}

if __name__ == "__main__":
    sys.exit(main("interop.defects", __doc__, SCENARIOS))
