"""Racks over loopback: set and seen with commands, and regarded by clients that create, change and repair ledgers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from ledger.bookie.test_repair import bookies, until_gone
from patience import eventually

import fencepost
from fencepost.cli import main as cli
from fencepost.errors import HOLDS, SYSTEM_FAILED, WRONG_OPTIONS
from fencepost.ledger.autorecovery.process import AutoRecovery
from fencepost.ledger.autorecovery.settings import AutoRecoverySettings
from fencepost.ledger.client.settings import ClientSettings
from fencepost.ledger.errors import NotEnoughBookiesError
from fencepost.ledger.metadata import paths
from fencepost.ledger.rules.placement import Policy
from fencepost.monitoring.metrics import Metrics
from fencepost.monitoring.table import PARTS

STRICT = Policy(enforce_min_num_racks_per_write_quorum=True)


async def test_racks_decide_where_ledgers_are_and_stay(
    tmp_path: Path, service: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"{service}/clusters/one/ledgers"

    def command(*words: str) -> tuple[int, str, str]:
        code = cli.main(["bookie", *words, "--metadata", uri])
        return code, *capsys.readouterr()

    async def asked(*words: str) -> tuple[int, str, str]:
        return await asyncio.to_thread(command, *words)

    with bookies(tmp_path, uri, "zkTimeout=500", count=4) as running:
        one, two, three, four = (each.bookie_id for each in running)
        async with (
            await fencepost.connect(uri) as soft,
            await fencepost.connect(uri, ClientSettings(placement=STRICT)) as strict,
        ):
            with pytest.raises(NotEnoughBookiesError) as refused:
                await strict.create_ledger(ensemble=2)
            assert str(refused.value).partition(" ")[2].partition(" ")[2] == (
                "cannot be placed on 2 of the 4 writable bookies with minNumRacksPerWriteQuorum = 2: there is"
                " no such ensemble; start bookies in other racks, or set racks (fencepost bookie rack)"
            )
            code, told, problem = await asked("list", "misplaced")
            assert (code, told) == (HOLDS, "fragments with entries in fewer than 2 racks: 0\n")
            assert "no bookie has a rack" in problem
            others = [f"10.0.0.{n}:3181" for n in range(8)]
            await asyncio.gather(*(soft.metadata.set_rack(each, "/r") for each in others))
            assert await soft.metadata.racks_of_bookies() == dict.fromkeys(others, "/r"), "none writes over another"
            await asyncio.gather(*(soft.metadata.set_rack(each, None) for each in others))
            assert await soft.metadata.racks_of_bookies() == {}
            node = await soft.metadata.read_node(paths.RACKS)
            assert node is not None and await soft.metadata.write_node(paths.RACKS, b"rack", node.version)
            code, told, problem = await asked("list", "misplaced")
            assert (code, told) == (SYSTEM_FAILED, "") and "the racks of bookies cannot be read" in problem
            assert await soft.metadata.write_node(paths.RACKS, b"", node.version + 1)
            for bookie, rack in ((one, "/x/1"), (two, "x/1/"), (three, "/x/1"), (four, "/y/1")):
                code, told, _ = await asked("rack", bookie, rack)
                assert (code, told) == (HOLDS, f"bookie {bookie} is in /{rack.strip('/')}\n")
            code, told, _ = await asked("list", "--json")
            assert {each["bookie"]: each["rack"] for each in json.loads(told)} == {
                one: "/x/1", two: "/x/1", three: "/x/1", four: "/y/1"
            }  # fmt: skip
            code, told, _ = await asked("list")
            assert f"{four}  writable   /y/1\n" in told
            drivers = (strict.driver, soft.driver)
            await eventually(lambda: all(len(each.bookies.racks) >= 4 for each in drivers), "the racks to be seen")
            node = await soft.metadata.read_node(paths.RACKS)
            assert node is not None and json.loads(node.data)["default"][four]["rack"] == "/y/1"
            assert await soft.metadata._retry(soft.metadata._zookeeper.exists, "/clusters/one/bookies")
            for store in (soft, strict):
                for _ in range(4):
                    async with store.create_ledger(ensemble=2) as ledger:
                        await ledger.append(b"x")
                    assert four in ledger.metadata.fragments[0].ensemble
            code, told, _ = await asked("list", "misplaced")
            assert (code, told) == (HOLDS, "fragments with entries in fewer than 2 racks: 0\n")

            # The rack /y/1 goes away. With enforcement, nothing is copied into the other one.
            running[3].kill()
            await until_gone(soft, four)
            settings = tmp_path / "client.toml"
            settings.write_text("enforceMinNumRacksPerWriteQuorum = true\n")
            monkeypatch.setenv("FENCEPOST_CLIENT", str(settings))
            code, _, problem = await asked("recover", four)
            assert code == SYSTEM_FAILED and "as minNumRacksPerWriteQuorum = 2 must be met" in problem
            monkeypatch.delenv("FENCEPOST_CLIENT")
            code, told, _ = await asked("recover", four)
            assert code == HOLDS and "and 8 fragments have another bookie now" in told
            code, told, _ = await asked("list", "misplaced")
            assert told.endswith("fragments with entries in fewer than 2 racks: 8\n")
            code, told, _ = await asked("list", "misplaced", "--json")
            assert [(each["racks"], each["first_entry"]) for each in json.loads(told)] == [(1, 0)] * 8

            # The bookie three moves to another rack: the auditor finds what can be better, and workers move it.
            await asked("rack", three, "/z/1")
            recovery = AutoRecoverySettings(
                auditor_periodic_placement_policy_check_interval=1,
                repaired_placement_policy_not_adhering_bookie_enabled=True,
            )
            counts = Metrics("autorecovery", PARTS["autorecovery"])
            repairs = AutoRecovery(soft, "here", recovery, counts)
            await repairs.prepare()
            repairing = asyncio.create_task(repairs.run())

            async def are_in_two_racks() -> bool:
                return "fewer than 2 racks: 0" in (await asked("list", "misplaced"))[1]

            await eventually(are_in_two_racks, "entries to be in two racks")
            repairing.cancel()
            await asyncio.gather(repairing, return_exceptions=True)
            async for each in soft.list_ledgers():
                metadata = await soft.ledger_metadata(each)
                assert three in metadata.fragments[0].ensemble
                async with await soft.open_ledger(each) as reader:
                    assert [entry.data async for entry in reader.read(0, 0)] == [b"x"]


def test_racks_that_are_none_and_a_node_that_has_something_else(
    service: str, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = f"{service}/clusters/two/ledgers"

    def command(*words: str) -> tuple[int, str, str]:
        code = cli.main(["bookie", *words, "--metadata", uri])
        return code, *capsys.readouterr()

    async def initialise(data: bytes) -> None:
        from fencepost.ledger.metadata.client import MetadataClient

        async with await MetadataClient.connect(uri) as client:
            if not await client.is_initialised():
                await client.initialise()
            if not data:
                return
            await client.create_node(paths.RACKS, data)
            assert await client.write_node(paths.RACKS, data)
            assert (await client.bookies()).racks == ()

    asyncio.run(initialise(b""))
    for words in (("b:1", "/a/b/c"), ("b:1", "/"), ("b:1", "/a", "--remove")):
        code, _, problem = command("rack", *words)
        assert code == WRONG_OPTIONS and "give one rack, /RACK, /ZONE/RACK or /REGION/RACK, or --remove" in problem
    assert command("rack", "b:1", "a") == (
        HOLDS,
        "bookie b:1 is in /a\n",
        "fencepost: the cluster has no bookie b:1 yet\n",
    )
    assert command("rack", "b:1")[1] == "bookie b:1 is in /a\n"
    assert command("rack", "b:1", "/b/c", "--group", "red")[1] == "bookie b:1 is in /b/c, group red\n"
    assert command("rack", "b:1", "/b")[1] == "bookie b:1 is in /b, group red\n"
    for wrong in (["b:1", "--group", "red"], ["b:1", "/a", "--group", "red,blue"], ["b:1", "/a", "--group", ""]):
        code, _, problem = command("rack", *wrong)
        assert code == WRONG_OPTIONS and "give a rack too, and one name without commas" in problem
    assert command("rack", "b:1", "--remove")[1] == "bookie b:1 has no rack\n"
    code, _, problem = command("rack", "b:1", "/a", "/b")
    assert code == WRONG_OPTIONS and "takes one bookie, and perhaps one rack" in problem
    asyncio.run(initialise(b"[]"))
    code, _, problem = command("rack", "b:1", "/a")
    assert code == SYSTEM_FAILED and "/clusters/two/bookies: the racks of bookies cannot be read" in problem
