"""The judge of a campaign reports every error that clients of a quorum can see, and accepts a correct quorum."""

from __future__ import annotations

import pytest

from bench.quorum.clients import Ephemeral, Record, Seen, Wrote
from bench.quorum.histories import ANY, DONE, Call
from bench.quorum.judge import judge

PATH = "/shared/0"
THERE = {"/own": ["0-1"], "/order": ["0-2-0", "0-2-1"], "/lines": ["n0000000000", "n0000000001"]}


@pytest.fixture
def records() -> list[Record]:
    """A correct history of two clients. The first writes, the second reads. An ephemeral ends with its session."""
    one, other = Record(), Record()
    one.calls[PATH] = [Call(1, 2, "write", "a", ANY, 1, "one"), Call(3, 4, "write", "b", ANY, 2, "one")]
    one.wrote = [Wrote(1, 2, PATH, ("a", 1), 11, 1), Wrote(3, 4, PATH, ("b", 2), 13, 1)]
    other.calls[PATH] = [
        Call(2.5, 2.6, "read", "", ANY, ("a", 1), "other"),
        Call(5, 6, "read", "", ANY, ("b", 2), "other"),
    ]
    other.seen = [
        Seen(2.5, 2.6, PATH, ("a", 1), 11, 11, True, 2),
        Seen(4.5, 4.6, PATH, ("a", 1), 11, 12, False, 2),
        Seen(5, 6, PATH, ("b", 2), 13, 14, True, 2),
    ]
    one.created = ["/own/0-1"]
    one.orders = [("0-2-", 4, 2)]
    one.lines = [("/lines/n0000000000", 1, 2), ("/lines/n0000000001", 3, 4)]
    one.ephemerals = [Ephemeral("/ephemerals/0", 7, since=1, alive=5, closing=8)]
    other.absent = [(2, 3, "/ephemerals/0", 7), (9, 10, "/ephemerals/0", 0)]
    return [one, other]


def test_what_may_be_is_not_wrong(records: list[Record]) -> None:
    assert judge(records, THERE) == []


def test_a_write_that_was_acknowledged_and_is_not_read_is_wrong(records: list[Record]) -> None:
    records[1].calls[PATH][1] = Call(5, 6, "read", "", ANY, ("a", 1), "other")
    assert any("is not linearizable" in each for each in judge(records, THERE))


def test_a_create_that_is_done_though_it_is_there_is_wrong(records: list[Record]) -> None:
    records[0].calls[PATH].append(Call(7, 8, "create", "c", ANY, DONE, "one"))
    assert any("is not linearizable" in each for each in judge(records, THERE))


def test_a_sync_that_is_behind_what_was_answered_is_wrong(records: list[Record]) -> None:
    records[1].seen[2] = Seen(5, 6, PATH, ("a", 1), 11, 12, True, 2)
    assert any(
        "a read behind a sync of /shared/0 has zxid 12, and began after 13 was answered" in each
        for each in judge(records, THERE)
    )


def test_a_change_that_comes_before_what_was_answered_is_wrong(records: list[Record]) -> None:
    records[0].wrote[1] = Wrote(3, 4, PATH, ("b", 2), 10, 1)
    assert any("a change of /shared/0 has zxid 10" in each for each in judge(records, THERE))


def test_two_changes_with_one_zxid_are_wrong(records: list[Record]) -> None:
    records[0].wrote.append(Wrote(4.1, 4.2, "/shared/1", ("c", 1), 13, 1))
    assert any("two changes have zxid 13" in each for each in judge(records, THERE))


def test_a_read_that_is_not_of_its_zxid_is_wrong(records: list[Record]) -> None:
    records[1].seen[1] = Seen(4.5, 4.6, PATH, ("a", 1), 11, 13, False, 2)
    assert any("was of zxid 11 at zxid 13, and was changed at 13" in each for each in judge(records, THERE))


def test_two_values_of_one_zxid_are_wrong(records: list[Record]) -> None:
    records[1].seen[1] = Seen(4.5, 4.6, PATH, ("x", 1), 11, 12, False, 2)
    assert any("for one, and" in each for each in judge(records, THERE))


def test_a_shared_znode_that_is_gone_is_wrong(records: list[Record]) -> None:
    records[1].seen[1] = Seen(4.5, 4.6, PATH, None, 0, 12, False, 2)
    assert any("was not there" in each for each in judge(records, THERE))


@pytest.mark.parametrize(
    ("folder", "names", "what"),
    [
        ("/own", [], "LOST: 1 acknowledged znodes of client 0"),
        ("/order", ["0-2-0"], "LOST: of /order/0-2-"),
        ("/order", ["0-2-0", "0-2-1", "0-2-3"], "were sent in their order"),
        ("/lines", ["n0000000000"], "LOST: 1 acknowledged sequential"),
    ],
)
def test_what_is_lost_is_wrong(records: list[Record], folder: str, names: list[str], what: str) -> None:
    assert any(what in each for each in judge(records, {**THERE, folder: names}))


def test_sequential_znodes_are_numbered_in_their_order_and_once(records: list[Record]) -> None:
    records[0].lines.reverse()
    assert judge(records, THERE) == []
    records[1].lines = [("/lines/n0000000000", 5, 6)]
    found = judge(records, THERE)
    assert any("have the same name" in each for each in found) and any("was asked for after" in each for each in found)


@pytest.mark.parametrize("owner", [0, 8])
def test_an_ephemeral_that_is_gone_while_its_session_lives_is_wrong(records: list[Record], owner: int) -> None:
    records[1].absent.append((3, 4, "/ephemerals/0", owner))
    assert any("its session 0x7 was there later" in each for each in judge(records, THERE))


def test_an_ephemeral_that_is_gone_when_nobody_knows_of_its_session_is_not_wrong(records: list[Record]) -> None:
    records[1].absent += [(4, 5.5, "/ephemerals/0", 0), (0.5, 0.9, "/ephemerals/0", 0)]
    assert judge(records, THERE) == []


def test_what_a_client_has_found_wrong_is_wrong(records: list[Record]) -> None:
    records[1].wrong.append("a session was over too early")
    assert judge(records, THERE) == ["a session was over too early"]
