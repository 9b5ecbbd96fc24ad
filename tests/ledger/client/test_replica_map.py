"""The replica map of a ledger."""

from __future__ import annotations

import pytest
from ledger.client.standins import Cluster

from fencepost.ledger.client.replica_map import PROBED, Holding, draw, holdings
from fencepost.ledger.messages import ListEntries
from fencepost.ledger.rules.ensembles import Fragment
from fencepost.ledger.rules.metadata import LedgerMetadata, closed

TWO = LedgerMetadata(2, 2, 2, (Fragment(0, ("x:1", "y:1")), Fragment(60, ("x:1", "z:1"))))


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("  b")]


def test_a_ledger_with_a_hole_and_a_silent_bookie() -> None:
    held = [Holding("x:1", ((0, 9), (50, 99))), Holding("y:1", ((0, 59),)), Holding("z:1", None)]
    text = draw(7, closed(TWO, 99, 12345), held, 99, 54)
    assert (
        text.splitlines()[0]
        == "ledger 7   closed   100 entries   12,345 bytes   ensemble 2, write quorum 2, ack quorum 2   crc32"
    )
    assert "  fragment 1   entries 0 to 59                  b1 b2" in text
    assert "  fragment 2   entries 60 to 99                 b1 b3" in text
    picture = {row.split()[0]: row.split("  ")[3] for row in rows(text)}
    assert set(picture["b1"][4:10]) == {"·"} and picture["b1"][0] == "█" and picture["b1"][-1] == "█"
    assert picture["b2"].startswith("█████") and rows(text)[1].rstrip().endswith(" 60")
    assert rows(text)[2].split()[2].strip("?") == "" and rows(text)[2].endswith("  does not say")
    assert "Fewer than 2 copies are known of: 10 to 49, 60 to 99." in text
    assert "Without an answer: z:1." in text
    assert max(map(len, rows(text))) <= 70


@pytest.mark.parametrize("last", [-1, 0, 5])
def test_small_ledgers_are_drawn_whole(last: int) -> None:
    runs = ((0, last),) if last >= 0 else ()
    plain = LedgerMetadata(1, 1, 1, (Fragment(0, ("x:1",)),))
    text = draw(1, closed(plain, last, 3), [Holding("x:1", runs)], last, 80)
    if last < 0:
        assert "It has no entries." in text
    else:
        assert rows(text) == [f"  b1  x:1  {'█' * (last + 1)}  {last + 1}"] and "Every entry has 1 copy." in text


def test_a_bookie_of_a_striped_ledger_lacks_nothing_that_is_not_its_part() -> None:
    striped = LedgerMetadata(3, 2, 2, (Fragment(0, ("x:1", "y:1", "z:1")),))
    held = [
        Holding(f"{name}:1", tuple((e, e) for e in range(6) if place in ((e) % 3, (e + 1) % 3)))
        for place, name in enumerate("xyz")
    ]
    text = draw(1, closed(striped, 5, 3), held, 5, 80)
    assert [row.split("  ")[3] for row in rows(text)] == ["█ ██ █", "██ ██", " ██ ██"]
    assert "Every entry has 2 copies." in text


async def test_bookies_are_asked_and_those_that_do_not_list_are_probed(cluster: Cluster) -> None:
    store = await cluster.connect(request_timeout=0.5)
    async with store.create_ledger() as ledger:
        await ledger.append_many([b"x"] * 1000)
    first, second, third = ledger.metadata.fragments[0].ensemble
    cluster.bookies[first].swallow = lambda request: type(request) is ListEntries
    for entry_id in range(300, 400):
        del cluster.bookies[first].entries[ledger.id, entry_id]
        del cluster.bookies[second].entries[ledger.id, entry_id]
    await cluster.kill(third)
    held = {each.bookie: each for each in await holdings(store, ledger.id, ledger.metadata, 999)}
    assert held[second].runs == ((0, 299), (400, 999)) and not held[second].is_probed
    assert held[third].runs is None
    probed = held[first]
    assert probed.is_probed and probed.runs is not None and len(probed.runs) == 2
    (start, end), (again, last) = probed.runs
    assert start == 0 and last == 999 and 290 <= end <= 299 and 400 <= again <= 410
    assert f"Asked for some {PROBED}" in draw(ledger.id, ledger.metadata, [*held.values()], 999, 80)
