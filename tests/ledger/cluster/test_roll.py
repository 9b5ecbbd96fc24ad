"""``fencepost cluster roll`` restarts one bookie at a time, when no ledger needs it, and continues where it was."""

from __future__ import annotations

import asyncio
import fcntl
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from ledger.cluster.standing import cluster, part

import fencepost
from fencepost.errors import SYSTEM_FAILED, WRONG_OPTIONS
from fencepost.ledger.cluster import control

NAMES = ("1", "2", "3")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cluster of three bookies that store. Tests leave them serving."""
    directory = tmp_path_factory.mktemp("cluster") / "store"
    code, _, problem = cluster("up", str(directory), "--detach")
    assert code == 0, problem
    yield directory
    cluster("down", str(directory))


def pids(directory: Path) -> list[int]:
    return [part(directory, name)["pid"] for name in NAMES]


def left(directory: Path) -> list[str]:
    return list(json.loads((directory / "roll.json").read_text()))


def test_every_bookie_is_restarted_and_nothing_is_lost(running: Path) -> None:
    uri = control.ask(running, control.STATUS)["metadata"]
    with fencepost.connect(uri) as store, store.create_ledger(ack_quorum=2) as ledger:
        ledger.append_many([b"x"] * 10)
    before = pids(running)
    code, out, err = cluster("roll", str(running))
    assert code == 0, err
    assert not {*before} & {*pids(running)} and out.count("serves") == 4
    steps = [line.split("  ") for line in err.splitlines() if not line.startswith("waits")]
    assert [(step[0], step[2].partition(",")[0]) for step in steps] == [
        (f"bookie {name}", does) for name in NAMES for does in ("stops", "serves again")
    ]
    assert steps[-1][2] == "serves again, 3 of 3" and left(running) == []
    with fencepost.connect(uri) as store, store.open_ledger(ledger.id) as reader:
        assert [entry.data for entry in reader.read()] == [b"x"] * 10


async def test_it_stops_where_a_bookie_is_needed_and_continues_there(running: Path) -> None:
    async with await fencepost.connect(control.ask(running, control.STATUS)["metadata"]) as store:
        ledger = await store.create_ledger(ack_quorum=3)
        await ledger.append(b"x")
        before = pids(running)
        code, _, err = await asyncio.to_thread(cluster, "roll", str(running), "--timeout", "10ms")
        *_, last = err.splitlines()
        assert code == SYSTEM_FAILED and last == (
            f"fencepost: after 0.01 s, bookie {part(running, '1')['address']} must not stop: 1 of 2 ledgers that"
            f" name it need it (ledger {ledger.id}, open fragment from entry 0: no ack quorum would serve, and too"
            " few others are writable; all others of its ensemble serve): no more bookies are restarted; fencepost"
            f" cluster roll {running} continues"
        )
        assert pids(running) == before and left(running) == [*NAMES]
        await ledger.close()
    # As if it had been interrupted with bookie 3 down, and bookie 1 done.
    (running / "roll.json").write_text('["2", "3"]')
    assert cluster("stop", str(running), "3")[0] == 0
    code, out, err = await asyncio.to_thread(cluster, "roll", str(running), "--json", "--timeout", "60")
    assert code == 0, err
    assert "continues an earlier roll: 2 of 3 bookies are left\n" in err
    assert [each["state"] for each in json.loads(out)["parts"]] == ["serves"] * 4
    after = pids(running)
    assert after[0] == before[0] and {*after[1:]}.isdisjoint(before) and left(running) == []
    serves = [line.split("  ")[0] for line in err.splitlines() if "serves again" in line]
    assert serves == ["bookie 3", "bookie 2"]  # the one that is down comes first


def test_only_one_rolls_a_cluster(running: Path) -> None:
    before = pids(running)
    with open(running / "roll.json", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        code, _, err = cluster("roll", str(running))
    assert code == WRONG_OPTIONS and f"another process rolls the cluster in {running}" in err
    assert pids(running) == before


def test_a_cluster_must_run(tmp_path: Path) -> None:
    code, _, err = cluster("roll", str(tmp_path))
    assert (code, err) == (
        WRONG_OPTIONS,
        f"fencepost: no cluster runs in {tmp_path}: fencepost cluster up {tmp_path}\n",
    )
    assert [*tmp_path.iterdir()] == []


def test_a_file_that_was_not_written_as_a_whole_begins_anew(running: Path) -> None:
    (running / "roll.json").write_text('["3"')
    before = pids(running)
    assert cluster("roll", str(running))[0] == 0
    assert not {*before} & {*pids(running)}
