"""Many ledgers at once: one client writes thousands of them, each slowly, while another one follows some."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from bench.ledger.figures import table
from bench.ledger.sides import KINDS, OURS, Side
from bench.ledger.usage import cpu, status_bytes

SIZE = 1024
FOLLOWED = 10
"""One of this number of ledgers is followed."""
PERIOD = 10.0
"""Seconds from one entry of a ledger to the next."""


def run(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure, print and give what was measured."""
    found = []
    for number, name in enumerate(given.side):
        settings = given.setting if KINDS[name][1] == KINDS[OURS][1] else given.java_setting
        side = Side(name, folder / f"many-{number}", settings, heap=given.heap)
        try:
            side.start(clients=2)
            side.settle(given.warm_up / 2)
            found.append({"side": name} | _measured(side, given.ledgers, given.seconds))
        finally:
            side.end()
    head = (
        f"{given.ledgers:,} ledgers, one of {FOLLOWED} followed", "created a second", "KiB a ledger, client / a bookie",
        "KiB a tail", "adds a second", "p50 / p99 ms", "CPU us an entry, client / bookies", "CPU us an entry of a tail",
    )  # fmt: skip
    rows = [
        (
            each["side"],
            f"{each['created']:,.0f}",
            f"{each['client_memory'] / 1024:.1f} / {each['bookie_memory'] / 1024:.1f}",
            f"{each['tail_memory'] / 1024:.1f}",
            f"{each['adds']:,.0f}",
            f"{each['p50']:.1f} / {each['p99']:.1f}",
            f"{each['client_cpu']:.0f} / {each['bookies_cpu']:.0f}",
            f"{each['tail_cpu']:.0f}",
        )
        for each in found
    ]
    print(table(head, rows), flush=True)
    return {"many": found}


def _measured(side: Side, ledgers: int, seconds: float) -> dict[str, Any]:
    writer, follower = (process.pid for process in side.processes)
    client, other = side.clients
    before = _resident(writer, *side.bookies)
    made = client.call("many_create", ledgers=ledgers)
    client.call("many_writes", size=SIZE, period=PERIOD, seconds=PERIOD)
    more = [now - then for now, then in zip(_resident(writer, *side.bookies), before, strict=True)]

    tails = made["ledgers"][::FOLLOWED]
    (alone,) = _resident(follower)
    other.call("many_tails", ledgers=tails[:1], seconds=1)
    following = other.begin("many_tails", ledgers=tails, seconds=seconds + PERIOD)
    client.call("many_writes", size=SIZE, period=PERIOD, seconds=PERIOD / 2)
    used = [cpu(pids) for pids in ([writer], side.bookies, [follower])]
    began = time.monotonic()
    done = client.call("many_writes", size=SIZE, period=PERIOD, seconds=seconds)
    parts = [cpu(pids).since(then) for pids, then in zip(([writer], side.bookies, [follower]), used, strict=True)]
    took = time.monotonic() - began
    tail_memory = _resident(follower)[0] - alone
    followed = following.result()
    arrived = followed["entries"] * took / followed["seconds"]
    return {
        "created": ledgers / made["seconds"],
        "client_memory": more[0] / ledgers,
        "bookie_memory": sum(more[1:]) / len(more[1:]) / ledgers,
        "tail_memory": tail_memory / len(tails),
        "adds": done["entries"] / done["seconds"], "p50": done["p50"], "p99": done["p99"],
        "client_cpu": parts[0].total * 1e6 / done["entries"], "bookies_cpu": parts[1].total * 1e6 / done["entries"],
        "followed": followed["entries"], "tail_cpu": parts[2].total * 1e6 / arrived if arrived else 0.0,
    }  # fmt: skip


def _resident(*pids: int) -> list[int]:
    return [status_bytes(pid, "VmRSS")[0] for pid in pids]
