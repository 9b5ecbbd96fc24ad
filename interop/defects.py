"""``python -m interop.defects``: defects of BookKeeper that were reported to it, each made to happen, recorded and
validated.

As in ``interop.departures``, each scenario has a cluster of its own: Java's client and bookies on ZooKeeper, and the
recorder between. ``docs/protocols/bookkeeper-java.md`` has the findings, by release.
"""

from __future__ import annotations

import shutil
import sys
import time
from concurrent.futures import Future
from typing import Any

from interop.cases import entries
from interop.clients import Ledger, Refused, encoded
from interop.clusters import Bookie
from interop.departures import PATIENCE, Scenarios, Stage, main, quietly
from interop.processes import Server


def _ensemble(stage: Stage, ids: list[str]) -> list[Bookie]:
    return [stage.cluster.bookie(each) for each in ids]


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
    opened = reader.open(ledger.id)
    last = opened.call("lac")
    lost = [entry for entry in range(last + 1) if quietly(lambda entry=entry: opened.read(entry, entry)) is None]  # type: ignore[misc]
    return f"ack quorum 2, one bookie of {len(ensemble)} is gone: of entries 0 to {last}, those that cannot be read: {lost}"


SCENARIOS: Scenarios = {
    "4194": (copies_that_stay_behind, {}, 5),
}

if __name__ == "__main__":
    sys.exit(main("interop.defects", __doc__, SCENARIOS))
