"""``fencepost bookie safe-to-stop`` says whether ledgers need a bookie, and which."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from ledger.bookie.test_repair import bookies, until_gone

import fencepost
from fencepost.cli import main as cli
from fencepost.errors import HOLDS, WRONG_OPTIONS
from fencepost.ledger.metadata.underreplication import UnderReplication


async def test_a_bookie_may_stop_while_no_ledger_needs_it(
    tmp_path: Path, uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(bookie: str, *words: str) -> tuple[int, str, str]:
        code = cli.main(["bookie", "safe-to-stop", bookie, *words, "--metadata", uri])
        return code, *capsys.readouterr()

    async def asked(bookie: str, *words: str) -> tuple[int, str, str]:
        return await asyncio.to_thread(command, bookie, *words)

    async def at_risk(bookie: str) -> list[tuple[Any, ...]]:
        code, told, _ = await asked(bookie, "--json")
        found = json.loads(told)
        assert code == (HOLDS if found["is_safe"] else 1) and found["is_safe"] is not bool(found["at_risk"])
        return [
            (each["ledger"], each["first_entry"], each["is_open"], each["risk"], each["away"])
            for each in found["at_risk"]
        ]

    with bookies(tmp_path, uri, "zkTimeout=500") as (first, second, third):
        async with await fencepost.connect(uri) as store:
            one, two, three = first.bookie_id, second.bookie_id, third.bookie_id
            closed = await store.create_ledger(write_quorum=3, ack_quorum=2)
            await closed.append_many([b"x"] * 5)
            await closed.close()
            assert await at_risk(one) == []
            code, told, _ = await asked(one)
            assert (code, told) == (HOLDS, f"bookie {one} may stop: 1 ledgers name it, and none needs it now\n")
            opened = await store.create_ledger(write_quorum=3, ack_quorum=3)
            await opened.append(b"y")
            assert await at_risk(one) == [(opened.id, 0, True, "unwritable", [])]
            await opened.close()
            assert await at_risk(one) == []
            # A bookie that lacks entries of a ledger does not count for that ledger.
            nodes = UnderReplication(store.metadata, "test")
            await nodes.prepare()
            await nodes.publish(closed.id, frozenset((two,)), 1)
            assert await at_risk(one) == [(closed.id, 0, False, "unreadable", [two])]
            taken = await nodes.take(lambda _: None)
            assert taken is not None and await nodes.replicated(taken)
            assert await at_risk(one) == []
            third.kill()
            await until_gone(store, three)
            assert await at_risk(one) == [(closed.id, 0, False, "unreadable", [three])]
            code, told, _ = await asked(one)
            assert code == 1 and told == (
                f"ledger {closed.id}, closed fragment from entry 0: acknowledged entries may be on no bookie that"
                f" serves; {three} cannot take its place\n"
                f"bookie {one} must not stop: 1 of 2 ledgers that name it need it\n"
            )
            code, told, _ = await asked(three)
            assert code == HOLDS and told.endswith("none needs it now; it is not registered\n")
            code, _, problem = await asked("10.0.0.1:1")
            assert code == WRONG_OPTIONS and "there is no bookie 10.0.0.1:1: fencepost bookie list" in problem
