"""``python -m interop.pulsar_load``: messages through Pulsar's broker on our cluster, while a bookie is killed each
minute.

One producer sends at a fixed rate. One consumer gets and acknowledges what comes meanwhile, and another one gets all of
it in the end. Ends with status 1 unless both got every message in order, by SHA-256, and with 2 if Java or Maven is
missing.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from interop import jars
from interop.clients import Refused
from interop.clusters import FENCEPOST, QUORUM
from interop.processes import DidNotStart, clean_up_when_ended
from interop.pulsar_broker import SECONDS, SIZE, Pulsar, matches

KILLED = 60
"""Seconds from one kill to the next."""
DOWN = 15
"""Seconds that a killed bookie stays away."""


def _line(began: float, text: str) -> None:
    print(f"{time.monotonic() - began:>7.0f} s  {text}", flush=True)


def load(pulsar: Pulsar, minutes: float, rate: int) -> None:
    """Send and receive, and kill a bookie each minute. Raises ``AssertionError`` if a consumer did not get all."""
    topic, numbers = pulsar.topic(), range(int(60 * minutes * rate))
    began = time.monotonic()
    sending = pulsar.produce(topic, numbers, rate=rate)
    coming = pulsar.consume(topic, "meanwhile", numbers)
    kills = 0
    while not sending.done():
        bookie = pulsar.cluster.bookies[kills % len(pulsar.cluster.bookies)]
        bookie.server.kill()
        kills += 1
        _line(began, f"killed {bookie.id}: {pulsar.broker.added(topic)} entries, {_ledgers(pulsar, topic)} ledgers")
        time.sleep(DOWN)
        bookie.server.start()
        while not sending.done() and time.monotonic() - began < kills * KILLED:
            time.sleep(1)
    _line(began, f"{sending.result()} messages of {SIZE} bytes are acknowledged, {kills} kills")
    _told(began, "meanwhile", coming.result(SECONDS), numbers)
    _told(began, "in the end", pulsar.consume(topic, "in the end", numbers).result(10 * SECONDS), numbers)


def _ledgers(pulsar: Pulsar, topic: str) -> int:
    return len(pulsar.about(topic, "internalStats")["ledgers"])


def _told(began: float, name: str, found: dict[str, Any], numbers: range) -> None:
    _line(began, f"{name}: {found['count']} messages came, {found['again']} of them again, SHA-256 {found['digest']}")
    matches(found, numbers)


def main() -> int:
    """Run the load; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m interop.pulsar_load", description=__doc__.split("\n\n")[1])
    parser.add_argument("--minutes", type=float, default=10, help="how long to send (10)")
    parser.add_argument("--rate", type=int, default=500, help="messages a second (500)")
    parser.add_argument("--metadata", choices=(FENCEPOST, QUORUM), default=FENCEPOST, help="one member, or three")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave data and logs in this new folder")
    given = parser.parse_args()
    clean_up_when_ended()
    try:
        jars.fetch_pulsar()
    except jars.Unavailable as missing:
        print(f"interop: {missing}", file=sys.stderr)
        return 2
    folder = given.keep or Path(tempfile.mkdtemp(prefix="fencepost-interop-"))
    pulsar = Pulsar(given.metadata, folder / "pulsar")
    try:
        pulsar.start()
        load(pulsar, given.minutes, given.rate)
    except (AssertionError, Refused, DidNotStart, TimeoutError) as failure:
        print(f"failed: {failure or 'no answer in time'}")
        return 1
    finally:
        pulsar.end()
        if given.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    print("nothing is lost")
    return 0


if __name__ == "__main__":
    sys.exit(main())
