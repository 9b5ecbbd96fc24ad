"""``fencepost bookie cookie``: how an operator reads and changes cookies."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from ledger.bookie.test_repair import Killable, bookies, until_whole

import fencepost
from fencepost.cli import main as cli
from fencepost.errors import HOLDS, SYSTEM_FAILED


async def test_cookies_are_shown_validated_mended_and_deleted(
    tmp_path: Path, uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = str(tmp_path / "0")

    def cookie(*words: str) -> tuple[int, str, str]:
        code = cli.main(["bookie", "cookie", *words, "--metadata", uri])
        said = capsys.readouterr()
        assert said.err.count("\n") <= 1
        return code, said.out, said.err

    def by_hand(first: Killable) -> None:
        code, told, _ = cookie("validate", directory)
        assert (code, "its cookies agree" in told) == (HOLDS, True)
        code, _, problem = cookie("delete", first.bookie_id)
        assert (code, "is registered" in problem) == (SYSTEM_FAILED, True)
        first.end()
        shutil.rmtree(Path(directory, "ledgers"))
        code, told, _ = cookie("show", directory)
        assert code == HOLDS and told.count(first.bookie_id) == 2 and "no cookie" in told
        code, told, _ = cookie("show", directory, "--json")
        assert json.loads(told)["can_be_fixed"]
        code, _, problem = cookie("validate", directory)
        assert (code, "has no cookie" in problem) == (SYSTEM_FAILED, True)
        code, told, _ = cookie("fix", directory, "--dry-run")
        assert (
            code == HOLDS and "1 ledgers that are not closed would be" in told and "1 closed ledgers would be" in told
        )
        assert cookie("validate", directory)[0] == SYSTEM_FAILED
        assert cookie("fix", directory)[0] == HOLDS
        assert cookie("validate", directory)[0] == HOLDS

    with bookies(tmp_path, uri) as (first, _, _):
        async with await fencepost.connect(uri) as store:
            closed = await store.create_ledger()
            await closed.append_many([b"x"] * 10)
            await closed.close()
            opened = await store.create_ledger()
            await opened.append_many([b"y"] * 10)
            await asyncio.to_thread(by_hand, first)
            first.start()
            await until_whole(store, first.bookie_id, closed.id, ((0, 9),))
            await until_whole(store, first.bookie_id, opened.id, ((0, 9),))
            first.end()
        bookie_id = first.bookie_id

    def taken_out() -> None:
        code, told, _ = cookie("delete", bookie_id, "--dry-run")
        assert code == HOLDS and "2 ledgers have entries" in told
        code, _, problem = cookie("delete", bookie_id)
        assert (code, "--force" in problem) == (SYSTEM_FAILED, True)
        assert cookie("delete", bookie_id, "--force")[0] == HOLDS
        code, _, problem = cookie("fix", directory)
        assert (code, "removed from the cluster" in problem) == (SYSTEM_FAILED, True)

    await asyncio.to_thread(taken_out)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["nonsense", "x"], "there is show, validate, fix, delete"),
        (["show"], "takes one directory"),
        (["delete", "a", "b"], "takes one bookie"),
        (["show", "x"], "give --metadata"),
    ],
)
def test_what_can_not_be_understood_is_refused(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bookie", "cookie", *words]) not in (HOLDS, SYSTEM_FAILED)
    assert problem in capsys.readouterr().err
