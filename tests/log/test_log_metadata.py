"""The nodes of logs in a metadata service: conditional changes, and the election."""

from __future__ import annotations

from functools import partial

import pytest
from log.standing_logs import Standing
from patience import eventually

from fencepost.errors import OptionError
from fencepost.ledger.errors import BadVersionError
from fencepost.ledger.metadata.session import Session
from fencepost.log.chain import ID, Chain
from fencepost.log.errors import LogExistsError, NoSuchLogError
from fencepost.log.metadata import Attempt, Election, LogNodes, Pending, names

ONE, TWO = Chain(), Chain().appended(7, 5)


async def test_the_list_of_ledgers_is_changed_on_its_version_alone(bare: Standing) -> None:
    client = (await bare.connect()).metadata
    nodes = LogNodes(client, "orders")
    with pytest.raises(NoSuchLogError, match="there is no log orders"):
        await nodes.read()
    for refused in (
        nodes.stand("me"),
        nodes.create_cursor("c", b""),
        nodes.create_trim([1]),
        nodes.create_pending("nightly", Pending(1, 1, 0)),
        nodes.create_attempt(Attempt(1, 1, "folder", 0)),
    ):
        with pytest.raises(NoSuchLogError):
            await refused
    assert await names(client) == [], "nothing brings back a log that was deleted meanwhile"
    await nodes.create(ONE)
    with pytest.raises(LogExistsError):
        await nodes.create(ONE)
    assert await names(client) == ["orders"]
    changes: list[str] = []
    assert await nodes.read(changes.append) == (ONE, 0)
    assert await nodes.write(TWO, 0) == 1
    await eventually(lambda: changes == ["logs/orders"], "the change to be told")
    with pytest.raises(BadVersionError, match="the log orders was changed by somebody else"):
        await nodes.write(ONE, 0)
    assert await nodes.write(TWO, 0) == 1, "what is there already was done by a request whose answer was lost"
    assert await nodes.write(ONE, 1) == 2
    with pytest.raises(BadVersionError):
        await nodes.write(TWO, 0)


@pytest.mark.parametrize("name", ["", "a/b", ".", "..", ".hidden", "a b", "ä", "x" * 201])
def test_names_are_plain(name: str) -> None:
    with pytest.raises(OptionError, match="no name of a log"):
        LogNodes(None, name)  # type: ignore[arg-type]


async def test_cursors_are_kept_beside_the_log(bare: Standing) -> None:
    nodes = LogNodes((await bare.connect()).metadata, "orders")
    await nodes.create(ONE)
    assert await nodes.read_cursor("c") is None and await nodes.cursors() == []
    assert await nodes.create_cursor("c", b"1") and not await nodes.create_cursor("c", b"2")
    assert await nodes.create_cursor("a", b"")
    assert await nodes.cursors() == ["a", "c"]
    assert await nodes.write_cursor("c", b"3", 0, ONE) == 1
    with pytest.raises(BadVersionError, match="the cursor c of the log orders"):
        await nodes.write_cursor("c", b"4", 0, ONE)
    await nodes.delete_cursor("c")
    await nodes.delete_cursor("c")
    assert await nodes.cursors() == ["a"]


async def test_a_log_of_the_same_name_is_another_one(bare: Standing) -> None:
    """Its versions begin at 0 again. Nobody who knows the list of the first one changes or deletes the second one."""
    first, second = (Chain(settings=((ID, number),)) for number in (b"1" * 16, b"2" * 16))
    nodes = LogNodes((await bare.connect()).metadata, "orders")
    await nodes.create(first)
    await nodes.create(first)  # again, as if the answer had been lost
    with pytest.raises(LogExistsError):
        await nodes.create(second)
    await nodes.create_cursor("c", b"1")
    assert await nodes.write(first.appended(7, 5), 0) == 1
    assert await nodes.write_cursor("c", b"2", 0, first) == 1
    assert await nodes.delete(first)
    assert await nodes.delete(first), "it is gone already"
    await nodes.create(second)
    await nodes.create_cursor("c", b"3")
    with pytest.raises(BadVersionError):
        await nodes.write(first.appended(8, 5), 0)
    with pytest.raises(BadVersionError):
        await nodes.write_cursor("c", b"4", 0, first)
    with pytest.raises(NoSuchLogError):
        await nodes.must_still_be(first)
    assert await nodes.delete(first), "it is gone already"
    assert await nodes.must_still_be(second) == second
    node = await nodes.read_cursor("c")
    assert node is not None and (node.data, node.version) == (b"3", 0)
    assert await nodes.write(second.appended(9, 5), 0) == 1
    assert await nodes.write_cursor("c", b"4", 0, second) == 1


async def test_one_is_elected_and_the_next_when_it_resigns(bare: Standing) -> None:
    clients = [(await bare.connect()).metadata for _ in range(2)]
    await LogNodes(clients[0], "orders").create(ONE)
    told: list[tuple[int, bool]] = []
    woken: set[int] = set()

    def tell(number: int, elected: bool) -> None:
        told.append((number, elected))

    def wake(number: int, path: str) -> None:
        woken.add(number)

    standing = [
        Election(LogNodes(clients[number // 2], "orders"), f"w{number}", partial(tell, number)) for number in range(4)
    ]
    for number, each in enumerate(standing):
        await each.stand(partial(wake, number))
    assert told == [(0, True)] and {each.leader for each in standing} == {standing[0].id}
    # Each client has a connection of its own, so the events may come after the answer.
    await standing[0].resign()
    await eventually(lambda: {1, 2, 3} <= woken, "all who wait to be woken")
    for each in reversed(standing[1:]):
        await each.stand(lambda path: None)
    assert told == [(0, True), (0, False), (3, True)]
    await standing[2].resign()
    assert await standing[3].stand(lambda path: None), "only a leader's own node goes when it resigns"
    clients[1].session_changed(Session.EXPIRED)
    assert told[-1] == (3, False) and clients[1].session is Session.EXPIRED
