"""The nodes of auto-recovery, compared with what BookKeeper 4.17 wrote, and shared by several sessions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from patience import eventually

from fencepost.ledger.errors import NoClusterError, UnknownLayoutError
from fencepost.ledger.metadata.client import MetadataClient
from fencepost.ledger.metadata.paths import LAST_ID, ledger_of_folder, lock_path, under_replicated_path
from fencepost.ledger.metadata.underreplication import UnderReplicated, UnderReplication, from_text, to_text

# -- formats ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ledger", "path"),
    [
        (6, "0000/0000/0000/0006/urL0000000006"),
        (0x123456789ABCDEF0, "1234/5678/9abc/def0/urL1311768467463790320"),
        (LAST_ID, "7fff/ffff/ffff/ffff/urL9223372036854775807"),
    ],
)
def test_an_ledger_of_folder_is_where_bookkeeper_has_it(ledger: int, path: str) -> None:
    assert under_replicated_path(ledger) == f"underreplication/ledgers/{path}"
    assert lock_path(ledger) == f"underreplication/locks/{path.rpartition('/')[2]}"


@given(st.integers(0, LAST_ID))
def test_a_folder_tells_its_ledger(ledger: int) -> None:
    assert ledger_of_folder(under_replicated_path(ledger).rpartition("/")[0]) == ledger


@pytest.mark.parametrize(
    "path", ["0000", "0000/0000/0000/000x", "0000/0000/0000/0000/0000", "0000/0000/0000/0000/urL0000000000"]
)
def test_other_paths_are_no_ledgers(path: str) -> None:
    assert ledger_of_folder(f"underreplication/ledgers/{path}") is None
    assert ledger_of_folder(path) is None


@pytest.mark.parametrize(
    ("kind", "fields", "text"),
    [
        ("LedgerRereplicationLayoutFormat", {"type": "BASIC", "version": 1}, b'type: "BASIC"\nversion: 1\n'),
        (
            "UnderreplicatedLedgerFormat",
            {"replica": ["bk1"], "ctime": 1795303699698},
            b'replica: "bk1"\nctime: 1795303699698\n',
        ),
        ("UnderreplicatedLedgerFormat", {"replica": ["a:1", "b:2"]}, b'replica: "a:1"\nreplica: "b:2"\n'),
        ("LockDataFormat", {"bookieId": "localhost"}, b'bookieId: "localhost"\n'),
        ("AuditorVoteFormat", {"bookieId": "127.0.0.1:31900"}, b'bookieId: "127.0.0.1:31900"\n'),
    ],
)
def test_texts_are_those_of_bookkeeper(kind: str, fields: dict[str, object], text: bytes) -> None:
    assert to_text(kind, **fields) == text
    message = from_text(kind, text)
    assert {
        name: [*getattr(message, name)] if name == "replica" else getattr(message, name) for name in fields
    } == fields


@given(st.lists(st.text()))
def test_any_names_come_back_from_a_text(names: list[str]) -> None:
    try:
        text = to_text("UnderreplicatedLedgerFormat", replica=names)
    except UnicodeEncodeError:  # half a character
        return
    assert [*from_text("UnderreplicatedLedgerFormat", text).replica] == names


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        from_text("UnderreplicatedLedgerFormat", data)


# -- in the metadata service ------------------------------------------------------------------------------------------


@asynccontextmanager
async def session(uri: str, name: str, makes: bool = False) -> AsyncIterator[UnderReplication]:
    async with await MetadataClient.connect(uri, session_timeout=4) as client:
        if makes:
            await client.initialise()
        nodes = UnderReplication(client, name)
        await nodes.prepare()
        yield nodes


def ignored(_: str) -> None:
    """What has changed is asked for."""


async def test_there_must_be_a_cluster(service: str) -> None:
    with pytest.raises(NoClusterError):
        async with session(f"{service}/none", "one"):
            pass


async def test_another_layout_is_refused(service: str) -> None:
    async with session(f"{service}/layout", "one", makes=True) as nodes:
        await nodes.client.write_node("underreplication/LAYOUT", b'type: "BASIC"\nversion: 2\n')
        with pytest.raises(UnknownLayoutError, match="only BASIC, version 1"):
            await nodes.prepare()


async def test_a_ledger_is_published_once_and_its_missing_are_joined(service: str) -> None:
    async with session(f"{service}/published", "one", makes=True) as nodes:
        assert await nodes.publish(70_000, frozenset("b"), 1)
        assert not await nodes.publish(70_000, frozenset("b"), 2)
        assert await nodes.publish(70_000, frozenset("ba"), 3)
        assert await nodes.publish(5, frozenset("c"), 4)
        assert [each async for each in nodes.all()] == [
            UnderReplicated(5, ("c",), 4, 0), UnderReplicated(70_000, ("b", "a"), 3, 1)
        ]  # fmt: skip
        node = await nodes.client.read_node("underreplication/ledgers/0000/0000/0001/1170/urL0000070000")
        assert node is not None and node.data == b'replica: "b"\nreplica: "a"\nctime: 3\n'


async def test_only_one_has_the_lock_and_it_goes_with_the_session(service: str) -> None:
    uri = f"{service}/locked"
    async with session(uri, "one", makes=True) as one:
        await one.publish(1, frozenset("b"), 1)
        changed = asyncio.Event()
        async with session(uri, "two") as two:
            taken = await two.take(ignored)
            assert taken is not None and taken.ledger == 1
            assert await two.take(ignored) is None and await one.take(lambda _: changed.set()) is None
            assert await one.worker_of(1) == "two"
            await one.release(1)  # it is not its own
            assert await one.worker_of(1) == "two"
        await eventually(changed.is_set, "to be told that the lock is gone")
        again = await one.take(ignored)
        assert again is not None and again.ledger == 1
        await one.release(1)
        assert await one.worker_of(1) is None


async def test_many_take_what_there_is_each_ledger_once(service: str) -> None:
    uri = f"{service}/contended"
    async with session(uri, "one", makes=True) as one, session(uri, "two") as two, session(uri, "three") as three:
        ledgers = {*range(20), *range(100_000, 100_020)}
        for ledger in ledgers:
            await one.publish(ledger, frozenset("b"), 1)
        taken: list[int] = []

        async def take(nodes: UnderReplication) -> None:
            while (found := await nodes.take(ignored)) is not None:
                taken.append(found.ledger)

        await asyncio.gather(*map(take, (one, two, three)))
        assert sorted(taken) == sorted(ledgers)
        for nodes in (one, two, three):
            for ledger in [*nodes.held]:
                found = await nodes.read(ledger)
                assert found is not None and await nodes.replicated(found)
        assert await one.client.names_in("underreplication/ledgers") == []
        assert await one.client.names_in("underreplication/locks") == []


async def test_an_empty_folder_is_no_ledger_until_it_is_published(service: str) -> None:
    """Somebody has ended between two of its steps. Nobody takes it, or is led to look again and again."""
    async with session(f"{service}/empty", "one", makes=True) as nodes:
        await nodes.client.create_node(under_replicated_path(1).rpartition("/")[0])
        changed = asyncio.Event()
        assert await nodes.take(lambda _: changed.set()) is None
        await asyncio.sleep(0.2)
        assert not changed.is_set() and [each async for each in nodes.all()] == []
        await nodes.publish(1, frozenset("b"), 1)
        await eventually(changed.is_set, "the word that it is published")
        assert await nodes.take(ignored) is not None


async def test_a_ledger_that_was_reported_anew_is_not_done(service: str) -> None:
    async with session(f"{service}/anew", "one", makes=True) as nodes:
        await nodes.publish(1, frozenset("b"), 1)
        taken = await nodes.take(ignored)
        assert taken is not None
        await nodes.publish(1, frozenset("c"), 2)
        assert not await nodes.replicated(taken)
        again = await nodes.take(ignored)
        assert again is not None and again.missing == ("b", "c")
        assert await nodes.replicated(again)
        assert [each async for each in nodes.all()] == []


async def test_a_locked_ledger_that_misses_the_same_bookie_again_is_not_done(service: str) -> None:
    """The bookie was back when the worker looked, and was lost again before the worker removed the mark."""
    async with session(f"{service}/again", "one", makes=True) as nodes:
        await nodes.publish(1, frozenset("b"), 1)
        taken = await nodes.take(ignored)
        assert taken is not None
        assert not await nodes.publish(1, frozenset("b"), 2)
        assert not await nodes.replicated(taken)
        assert [each async for each in nodes.all()] == [UnderReplicated(1, ("b",), 1, 1)]
        assert not await nodes.publish(1, frozenset("b"), 3)  # nobody has it, so it stays as it is
        again = await nodes.take(ignored)
        assert again is not None and again.version == 1
        assert await nodes.replicated(again)


async def test_the_oldest_vote_is_the_auditor(service: str) -> None:
    uri = f"{service}/elected"
    async with session(uri, "two", makes=True) as two:
        async with session(uri, "one") as one:
            assert await one.auditor() is None
            first, second = await one.vote(), await two.vote()
            over = asyncio.Event()
            assert await one.is_elected(first, ignored)
            assert not await two.is_elected(second, lambda _: over.set())
            assert await two.auditor() == "one"
            node = await two.client.read_node("underreplication/auditorelection")
            assert node is not None and node.data == b'bookieId: "one"\n'
        await eventually(over.is_set, "to be told that the auditor is gone")
        assert await two.is_elected(second, ignored) and await two.auditor() == "two"
        await two.withdraw(second)
        with pytest.raises(ValueError, match="is gone"):
            await two.is_elected(second, ignored)


async def test_a_vote_of_ones_own_whose_answer_was_lost_is_in_nobodys_way(service: str) -> None:
    """It was cast once more after somebody else had voted, who would wait for the first one."""
    uri = f"{service}/twice"
    async with session(uri, "one", makes=True) as one, session(uri, "two") as two:
        await one.vote()
        second, third = await two.vote(), await one.vote()
        assert await two.is_elected(second, ignored) and not await one.is_elected(third, ignored)
        assert await one.client.names_in("underreplication/auditorelection") == [second, third]


async def test_what_an_operator_sets_is_heard_of(service: str) -> None:
    uri = f"{service}/set"
    async with session(uri, "one", makes=True) as one, session(uri, "two") as two:
        changed = asyncio.Event()

        def told(_: str) -> None:
            changed.set()

        assert await one.is_enabled(told)
        await two.disable()
        await eventually(changed.is_set, "the word that it is disabled")
        changed.clear()
        assert not await one.is_enabled(told)
        await two.enable()
        await eventually(changed.is_set, "the word that it is enabled")
        changed.clear()
        assert await one.recovery_delay(30, told) == (30, 0)
        assert await two.recovery_delay(60, ignored) == (30, 0)
        await two.set_recovery_delay(5)
        await eventually(changed.is_set, "the word of another delay")
        assert await one.recovery_delay(30, ignored) == (5, 1)
        assert await one.checked() is None
        await one.set_checked(1795303699873)
        assert await two.checked() == 1795303699873
        node = await one.client.read_node("underreplication/checkallledgersctime")
        assert node is not None and node.data == b"\x08\xa1\xeb\xc1\x83\xa04"


async def test_what_can_not_be_read_is_named_and_left_to_its_lock(service: str) -> None:
    async with session(f"{service}/damaged", "one", makes=True) as nodes:
        await nodes.client.create_node(under_replicated_path(7), b"{")
        with pytest.raises(UnknownLayoutError, match="ledger 7 cannot be read"):
            await nodes.take(ignored)
        assert await nodes.take(ignored) is None
