"""The parts of the store benchmark that make load and take time, without servers."""

from __future__ import annotations

import asyncio
import importlib.util
from array import array
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench.ledger import __main__ as command
from bench.ledger import compare, flood, limit, staged, stages
from bench.ledger.cells import Cell
from bench.ledger.sides import OURS, Side
from fencepost.ledger.client.reading import EntryBatch
from fencepost.ledger.messages import AddEntry, AddEntryResponse, ReadEntryResponse
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.wire import v2, v3
from fencepost.ledger.wire.frames import Frames
from interop import load
from interop.clients import Refused

# -- what the limit and the flood send ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [100, 1024, 65_536])
def test_the_limit_has_the_messages_of_the_store(size: int) -> None:
    request, answer = limit.messages("adds", size)
    assert size < request < size + 120 and answer < 60
    request, answer = limit.messages("reads", size)
    assert size < answer < size + 120 and request < 60


def test_the_limit_is_measured(tmp_path: Path) -> None:
    cell = limit.measure("reads", 100, 64, 0.05, tmp_path)
    assert cell.rate > 0 and cell.p50 <= cell.p99 and cell.client_cpu > 0
    assert limit.copy(1 << 20)["rate"] > 0


@pytest.mark.parametrize("codec", [v2, v3])
@pytest.mark.parametrize("first", [flood.FIRST, 0x0765_4321, flood.LAST - flood.BLOCK])
def test_frames_of_a_flood_are_those_of_the_codec(first: int, codec: Any) -> None:
    frames = flood.Frames(77 + flood.LEDGER, 100, codec)
    frames.number_from(first)
    payloads = Frames().feed(frames.block.tobytes())
    assert len(payloads) == flood.BLOCK
    for number in (0, 1, 127, 128, flood.BLOCK - 1):
        txn, request = codec.decode_request(payloads[number])
        assert type(request) is AddEntry
        entry_id = first + number
        assert (request.ledger, request.entry_id, request.lac) == (77 + flood.LEDGER, entry_id, entry_id - 1)
        assert codec is v2 or txn == entry_id
        assert frames.block[number].tobytes() == codec.encode_request(txn, request), "canonical"
        assert int.from_bytes(request.body[8:16], "big") == entry_id
        assert int.from_bytes(request.body[24:32], "big") == (entry_id - flood.FIRST + 1) * 100


@pytest.mark.parametrize("codec", [v2, v3])
def test_an_answer_other_than_yes_ends_a_flood(codec: Any) -> None:
    frames = flood.Frames(flood.LEDGER, 100, codec)

    def answers(*codes: Code) -> Any:
        made = [
            codec.encode_response(flood.FIRST + n, AddEntryResponse(flood.LEDGER, flood.FIRST + n, code))
            for n, code in enumerate(codes)
        ]
        return np.frombuffer(b"".join(made), np.uint8)

    yes = answers(*[Code.OK] * 300)
    assert len(yes) == 300 * frames.answer_size
    frames.check(yes)
    damaged = yes.copy()
    damaged[5] ^= 1
    with pytest.raises(SystemExit):
        frames.check(damaged)
    with pytest.raises((SystemExit, ValueError)):
        frames.check(answers(Code.OK, Code.FENCED))


def test_answers_to_reads_are_of_the_size_that_is_told() -> None:
    _, answer = limit.messages("reads", 100)
    body = bytes(limit.OVERHEAD + 100)
    response = v3.encode_response(
        limit.TYPICAL, ReadEntryResponse(1, limit.TYPICAL, Code.OK, body=body, lac=limit.TYPICAL)
    )
    assert len(response) == answer and v3.decode_response(response[4:])[0] == limit.TYPICAL


# -- load -------------------------------------------------------------------------------------------------------------


class Ledger:
    """A ledger that confirms after a moment, and records the most entries in flight."""

    def __init__(self, in_flight: int) -> None:
        self.limit = asyncio.Semaphore(in_flight)
        self.most = self.now = self.entries = 0

    async def append(self, data: bytes) -> int:
        async with self.limit:
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0.001)
            self.now -= 1
            self.entries += 1
            return self.entries - 1

    async def append_many(self, entries: Iterable[bytes]) -> list[int]:
        tasks = []
        for data in entries:
            tasks.append(asyncio.ensure_future(self.append(data)))
            if len(tasks) % 100 == 0:
                await asyncio.wait(tasks[-100:])
        return await asyncio.gather(*tasks)

    def submit(self, data: bytes) -> Any:
        return asyncio.ensure_future(self.append(data))

    async def read_last_add_confirmed(self) -> int:
        return 9

    async def read_entry(self, entry: int) -> bytes:
        assert 0 <= entry <= 9
        await self.append(b"")
        return b"entry"

    async def read_batches(self, first: int, last: int) -> AsyncIterator[Any]:
        for entry in range(first, last + 1, 2):
            await asyncio.sleep(0)
            yield EntryBatch(entry, memoryview(b"entryentry"), memoryview(array("q", (0, 5, 10))))


@pytest.mark.parametrize("in_flight", [1, 100])
async def test_loads_count_what_they_do(in_flight: int) -> None:
    ledger: Any = Ledger(in_flight)
    done = await load.writes(ledger, 10, in_flight, 0.1)
    assert done["entries"] == ledger.entries > 0 and ledger.most <= in_flight
    assert done["seconds"] >= 0.1 and 0 < done["p50"] <= done["p99"] and done["samples"] > 0
    assert in_flight > 1 or done["samples"] == done["entries"]
    ledger = Ledger(1000)
    done = await load.reads(ledger, in_flight, 0.1)
    assert done["entries"] == ledger.entries > 0 and ledger.most == in_flight
    done = await load.scans(ledger, in_flight, 0.05)
    assert done["bytes"] == 5 * done["entries"] > 0 and done["entries"] % 2 == 0


# -- stages -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("of", "stage"), [(of, stage) for of, each in stages.STAGES.items() for stage in each])
def test_every_stage_has_functions(of: str, stage: str) -> None:
    """If one is renamed or replaced, this fails and says where to write the new name."""
    places = stages.STAGES[of][stage]
    modules = [importlib.util.find_spec(place.partition(":")[0]) for place in places]
    if None in modules:
        pytest.skip("its loops are not there")
    if stage == staged.RECEIVE and staged.found(places[0].replace("get_buffer", "data_received")) is not None:
        pytest.skip("the event loop has the buffer")
    assert [place for place in places if staged.found(place) is None] == []


def test_time_is_that_of_the_innermost_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]
    monkeypatch.setattr(staged, "cpu_clock", lambda: now[0])
    monkeypatch.setattr(staged, "wall_clock", lambda: 10 * now[0])
    monkeypatch.setattr(staged.Clock, "every", [])
    monkeypatch.setattr(staged, "_clock", staged.Clock())

    def spend(cpu: int, then: Any = None) -> None:
        now[0] += cpu
        if then is not None:
            then()
            now[0] += cpu

    inner = staged.watched(lambda: spend(7), "inner")
    outer = staged.watched(lambda: spend(5, inner), "outer")

    def failing() -> None:
        spend(1)
        raise KeyError

    fails = staged.watched(failing, "fails")
    spend(3)
    outer()
    with pytest.raises(KeyError):
        fails()
    spend(2)
    get = staged.before_receiving(lambda self, size: spend(1))
    updated = staged.after_receiving(lambda self, size: spend(4))
    get(None, 1)
    spend(50)
    updated(None, 1)
    staged._clock.turn_to(staged._clock.current)
    counters = staged._clock.counters
    assert {name: (each.cpu, each.calls) for name, each in counters.items()} == {
        staged.REST: (3 + 2 + 1 + 4, 0), "outer": (10, 1), "inner": (7, 1), "fails": (1, 1), staged.RECEIVE: (50, 1),
    }  # fmt: skip
    assert counters["inner"].wall == 70


# -- the command line -------------------------------------------------------------------------------------------------


def test_the_command_line() -> None:
    given = command.arguments([])
    assert given.part == list(command.PARTS) and given.size == [100, 1024, 65_536] and given.rounds == 3
    given = command.arguments(["--soak", "5"])
    assert given.part == [] and given.soak == 5
    given = command.arguments(["flood", "scan", "--quick", "--setting", "journalSyncData=false"])
    assert given.part == ["flood", "scan"] and given.setting == {"journalSyncData": "false"} and given.size == [1024]
    for words in (["nothing"], ["--setting", "one"], ["--size", "5"]):
        with pytest.raises(SystemExit):
            command.arguments(words)


# -- what is kept ------------------------------------------------------------------------------------------------------


def test_what_was_measured_is_kept_when_a_side_fails(tmp_path: Path) -> None:
    class Full:
        """A side whose bookies accept only entries of 100 bytes."""

        name = "full"

        def ledger(self, size: int, in_flight: int) -> Any:
            if size > 100:
                raise Refused("NotEnoughBookiesException", "no room")
            return SimpleNamespace(close=lambda: None)

        def measure(self, ledger: Any, operation: str, size: int, in_flight: int, seconds: float) -> Cell:
            return Cell(self.name, operation, size, in_flight, 10, seconds, 1.0, 2.0, 3.0, 4.0)

    everything: list[Cell] = []
    medians: list[Cell] = []
    plan = compare.Plan(sizes=(100, 1024), in_flight=(1,), operations=("adds",), rounds=2, limit=False)
    with pytest.raises(Refused, match="no room"):
        compare.compare(plan, [Full()], tmp_path, everything, medians)  # type: ignore[list-item]
    assert (len(everything), [cell.what for cell in medians]) == (2, [("adds", 100, 1)])


def test_a_warm_up_that_fails_is_tried_again_and_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    side = Side(OURS, tmp_path)
    fails = [Refused("NotEnoughBookies", ""), Refused("NotEnoughBookies", "")]

    ledger: Any = "ledger"

    def settle(_: object, seconds: float) -> tuple[Any, float, float]:
        if fails:
            raise fails.pop()
        return ledger, seconds, 9.0

    monkeypatch.setattr(Side, "_settle", settle)
    assert side.settle(3) == (ledger, 3, 9.0)
    said = capsys.readouterr().out
    assert said == "Fencepost: the warm-up failed and is tried again: NotEnoughBookies\n" * 2
    fails += [Refused("NotEnoughBookies", "")] * 3
    with pytest.raises(Refused):
        side.settle(3)
