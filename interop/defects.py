"""``python -m interop.defects``: defects of BookKeeper that were reported to it, each made to happen, recorded and
validated.

As in ``interop.departures``, each scenario has a cluster of its own: Java's client and bookies on ZooKeeper, and the
recorder between. ``docs/protocols/bookkeeper-java.md`` has the findings, by release.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from functools import partial

from interop import jars
from interop.cases import entries
from interop.clients import Ledger, Refused, encoded
from interop.clusters import Bookie, java_uri
from interop.departures import PATIENCE, Scenarios, Stage, Staged, main, quietly
from interop.processes import DidNotStart, Server, free_port


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


def two_handles(stage: Stage) -> str:
    """A ledger gets its first entry and is recovered at the same time. A debugger has two threads of the bookie take
    steps in an order that they seldom have: both find that the ledger has no handle yet, the add finds no fence, the
    ledger is fenced, and the entry is stored.
    """
    (bookie,), port = stage.cluster.bookies, free_port()
    bookie.server.kill()
    debugged = f"-agentlib:jdwp=transport=dt_socket,server=y,suspend=n,quiet=y,address=127.0.0.1:{port}"
    bookie.server.command.insert(1, debugged)
    stage.cluster.restart([bookie])
    one_copy = {"ensemble": 1, "write_quorum": 1, "ack_quorum": 1}
    writer, other = stage.connect(addEntryTimeout=PATIENCE), stage.connect(readEntryTimeout=PATIENCE)
    writer.create(**one_copy).append(b"loads the classes")
    ledger = writer.create(**one_copy)
    command = jars.java("-cp", jars.class_path("exam"), "interop.TwoHandles", str(port), heap=64)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as debugger:
        assert debugger.stdout is not None
        if debugger.stdout.readline() != "ready\n":
            raise DidNotStart("the debugger did not reach the bookie")
        adding = ledger.begin("append", entries=encoded((b"first",)))
        opening = stage.process.begin("open", client=other.number, ledger=ledger.id)
        came = debugger.stdout.readline().strip()
        if not came:
            raise DidNotStart("the debugger has lost the threads of the bookie")
        last = Ledger(stage.process, **opening.result(PATIENCE)).call("lac")
    acknowledged = quietly(partial(adding.result, PATIENCE)) is not None
    return f"the add {came}; acknowledged: {'yes' if acknowledged else 'no'}; the ledger is closed at {last}"


def an_empty_bookie_speaks_first(stage: Stage, at_once: bool = False) -> str:
    """A bookie loses its disk and its cookie, and is started again with its old id. A client recovers a ledger, all of
    whose entries are on all three bookies, and the two others answer late.

    ``at_once``: the entries were in flight together, so that no LAC was ever sent.
    """
    writer, other = stage.connect(), stage.connect()
    ledger = writer.create(ensemble=3, write_quorum=3, ack_quorum=3)
    for bodies in [entries(10)] if at_once else [[body] for body in entries(10)]:
        ledger.append(*bodies)
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
    "2612, no LAC sent": Staged(partial(an_empty_bookie_speaks_first, at_once=True)),
    "4194": Staged(copies_that_stay_behind, bookies=5),
    "4651": Staged(a_change_that_entries_miss, faults=["cut request add entry=0"]),
    "4701": Staged(two_handles, bookies=1),
}

if __name__ == "__main__":
    sys.exit(main("interop.defects", __doc__, SCENARIOS))
