"""The judge of the chaos campaign finds faults: each test shows it exactly one."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fencepost
from bench.chaos import judge as judges
from bench.chaos.facts import Facts, Tail
from bench.chaos.harm import Schedule
from bench.chaos.logs import KnownLog, Order
from bench.chaos.payload import fault, payload
from fencepost.ledger.errors import ReadError
from fencepost.ledger.rules.metadata import LedgerStatus

NONCE = 7


class Store:
    """A store with ledgers of these numbers of entries, read through ``change``."""

    def __init__(
        self, entries: dict[int, int], change: Callable[[int, int, bytes], bytes | None], behind: float = 1
    ) -> None:
        self.entries = entries
        self.change = change
        self.looks: Counter[int] = Counter()
        self.behind = behind

    async def __aenter__(self) -> Store:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def list_ledgers(self) -> AsyncIterator[int]:
        for ledger in self.entries:
            yield ledger

    async def ledger_metadata(self, ledger: int) -> Any:
        """The first look at a ledger is at a member of the quorum that is behind."""
        self.looks[ledger] += 1
        return SimpleNamespace(status=LedgerStatus.CLOSED if self.looks[ledger] > self.behind else LedgerStatus.OPEN)

    async def open_ledger(self, ledger: int, recover: bool, digest: str, password: bytes) -> Any:
        last = self.entries[ledger] - 1 - (not recover and self.looks[ledger] <= self.behind)

        async def read(first: int, last: int) -> AsyncIterator[Any]:
            for entry_id in range(first, last + 1):
                data = self.change(ledger, entry_id, payload(ledger, entry_id, NONCE))
                if data is not None:
                    yield SimpleNamespace(id=entry_id, data=data)

        async def close() -> None:
            pass

        return SimpleNamespace(id=ledger, last_add_confirmed=last, read=read, close=close)


def judged(
    monkeypatch: pytest.MonkeyPatch,
    facts: list[dict[str, Any]],
    entries: dict[int, int],
    change: Callable[[int, int, bytes], bytes | None] = lambda ledger, entry_id, data: data,
    behind: float = 1,
) -> list[str]:
    """The faults that the judge finds. ``behind``: looks at a ledger until it is closed for those who look."""
    monkeypatch.setattr(fencepost, "connect", lambda uri, trace=None: Store(entries, change, behind), raising=False)
    judge = judges.Judge()
    judge.hear({"by": "writer-1", **fact} for fact in facts)
    asyncio.run(judge.judge("zk://nowhere", lambda ledgers, entries: None))
    return judge.faults


CREATED = {"fact": "created", "ledger": 1, "nonce": NONCE, "digest": "crc32c"}
ACKNOWLEDGED = {"fact": "acknowledged", "ledger": 1, "last": 9}


def test_all_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = {"fact": "closed", "ledger": 1, "last": 11}
    assert judged(monkeypatch, [ACKNOWLEDGED, CREATED, closed], {1: 12, 2: 5}) == []


def test_an_entry_that_was_acknowledged_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = judged(monkeypatch, [CREATED, ACKNOWLEDGED], {1: 9})
    assert faults == ["LOST: ledger 1 ends at entry 8, and entries up to 9 were acknowledged or read"]


def test_an_entry_that_was_read_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    read = {"fact": "read", "ledger": 1, "last": 5, "entries": 6}
    assert len(judged(monkeypatch, [read, CREATED], {1: 5})) == 1


def test_a_ledger_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(monkeypatch, [CREATED], {}) == ["ledger 1 was created, and is not there"]


def test_a_ledger_has_two_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    recovered = {"fact": "recovered", "ledger": 1, "last": 10}
    assert judged(monkeypatch, [CREATED, ACKNOWLEDGED, recovered], {1: 12}) == [
        "ledger 1 ends at 11 for one, and at [10] for others"
    ]


def test_a_ledger_stays_open_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judges, "PATIENCE", 0.1)
    faults = judged(monkeypatch, [CREATED], {1: 12}, behind=float("inf"))
    assert faults == ["ledger 1 was recovered, and is open for another client 0.1 s later"]


def test_bytes_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def flipped(ledger: int, entry_id: int, data: bytes) -> bytes:
        return data if entry_id != 3 else data[:-1] + bytes([data[-1] ^ 1])

    assert (
        judged(monkeypatch, [CREATED], {1: 12}, flipped)
        == ["entry 3 of ledger 1 has other bytes than were written"] * 2
    )


def test_an_entry_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = judged(monkeypatch, [CREATED], {1: 12}, lambda ledger, entry_id, data: data if entry_id != 3 else None)
    assert "ledger 1 gives entry 4 where 3 is next" in faults


def test_a_ledger_can_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(ledger: int, entry_id: int, data: bytes) -> bytes:
        raise ReadError("nobody answers")

    assert judged(monkeypatch, [CREATED], {1: 1}, failing) == [
        "ledger 1 cannot be read when all is well: ReadError: nobody answers"
    ]


def test_what_a_client_found_wrong_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(monkeypatch, [{"fact": "wrong", "what": "a lie"}], {}) == ["writer-1: a lie"]


Logged = tuple[str, int, int]
"""An entry of a log: its position, its writer and its number."""

LOGGED: list[Logged] = [("1:0", 5, 0), ("1:1", 5, 1), ("2:0", 6, 0), ("2:1", 6, 1)]


def judged_log(entries: list[Logged], *facts: dict[str, Any], change: bytes = b"") -> list[str]:
    """The faults that the judge finds in a log."""

    class Reader:
        async def __aenter__(self) -> Reader:
            return self

        async def __aexit__(self, *_: object) -> None:
            pass

        async def __aiter__(self) -> AsyncIterator[Any]:
            for position, nonce, number in entries:
                yield SimpleNamespace(position=position, data=payload(0, number, nonce) + change)

    log = KnownLog()
    for fact in facts or ({"fact": "appended", "nonce": 6, "last": 1, "position": "2:1"},):
        log.hear(fact)
    opened = SimpleNamespace(reader=lambda follow: Reader())
    return asyncio.run(log.judge(SimpleNamespace(log=lambda name, password: opened)))


def test_a_log_is_judged() -> None:
    lost = "LOST: entry 1 of a writer of the log was acknowledged at 2:1, and is not there"
    assert judged_log(LOGGED) == []
    assert judged_log(LOGGED[:-1]) == [lost]
    assert judged_log([*LOGGED[:-1], ("2:1", 7, 0)]) == [lost]
    assert judged_log([*LOGGED[1:]]) == ["entry 1:1 of the log is number 1 of its writer where 0 is next"]
    assert judged_log([LOGGED[0], *LOGGED]) == ["entry 1:0 of the log is number 0 of its writer where 1 is next"]
    assert judged_log(LOGGED, change=b"x")[0] == "entry 1:0 of the log has other bytes than were written"
    appended = {"fact": "appended", "nonce": 5, "last": 1, "position": "1:1"}
    followed = {"fact": "followed", "first": "1:1", "last": "2:1", "count": 3}
    assert judged_log(LOGGED, appended, followed) == []
    assert judged_log(LOGGED, appended, {**followed, "count": 2}) == [
        "a follower of the log was given 2 entries from 1:1 to 2:1, and it has 3"
    ]
    assert judged_log(LOGGED, appended, {**followed, "last": "3:0"}) == [
        "a follower of the log was given entries 1:1 and 3:0, and one of them is not there"
    ]


def test_a_follower_in_the_middle_expects_what_follows() -> None:
    order = Order(is_whole=False)
    assert order.fault(payload(0, 3, 5), "1:3") == order.fault(payload(0, 4, 5), "1:4") == ""
    assert "is number 6 of its writer where 5 is next" in order.fault(payload(0, 6, 5), "1:6")
    assert order.fault(b"", "1:7") == "entry 1:7 of the log has no writer"


def test_an_entry_is_told_from_every_other() -> None:
    data = payload(5, 6, 7)
    assert fault(data, 5, 6, 7) == fault(data, 5, 6) == ""
    assert (
        fault(data, 5, 7) and fault(data, 6, 6) and fault(data, 5, 6, 8) and fault(data[:-1], 5, 6) and fault(b"", 5, 6)
    )
    assert max(len(payload(1, n, 2)) for n in range(2_000)) > 50_000


def test_a_line_that_is_not_whole_is_not_given(tmp_path: Path) -> None:
    facts, tail = Facts(tmp_path / "writer-1.facts"), Tail(tmp_path)
    facts.note("created", ledger=1)
    with open(tmp_path / "writer-1.facts", "a") as file:
        file.write('{"fact": "ack')
    assert [(fact["by"], fact["fact"]) for fact in tail.new()] == [("writer-1", "created")]
    with open(tmp_path / "writer-1.facts", "a") as file:
        file.write('nowledged"}\n')
    assert [fact["fact"] for fact in tail.new()] == ["acknowledged"]
    assert list(tail.new()) == []


def test_harms_follow_from_the_seed_and_spare_a_quorum() -> None:
    def drawn(seed: int) -> list[Any]:
        members = ("metadata-1", "metadata-2", "metadata-3")
        schedule, found = Schedule(seed, ["1", "2", "3", "4"], ["writer-1", "reader-1"], 1, 0.0, members), []
        choice = random.Random(1)
        hurt: set[str] = set()
        for _ in range(2_000):
            harm = schedule.next(hurt)
            found.append(harm)
            if harm is not None:
                assert harm.whom not in hurt
                hurt.add(harm.whom)
            assert len(hurt & {"1", "2", "3", "4"}) <= 1 and len(hurt & {*members}) <= 1
            if hurt and choice.random() < 0.5:
                hurt.remove(choice.choice(sorted(hurt)))
        return found

    assert drawn(1) == drawn(1) != drawn(2)
    assert {harm.how for harm in drawn(1) if harm} == {"kill", "stop", "pause"}
