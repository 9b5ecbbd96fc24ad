"""Replacing a bookie in metadata that others change, and the requests to bookies, with a stand-in for the store."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from fencepost.ledger.client.replication import Copied, Pace, has_ends, refill, replace_fragments, spread_fragments
from fencepost.ledger.entries import Digests, Entry
from fencepost.ledger.errors import BadVersionError, NotEnoughBookiesError, ReadError, WriteError
from fencepost.ledger.messages import AddEntry, AddEntryResponse, ReadEntry, ReadEntryResponse
from fencepost.ledger.metadata.client import Bookies, LedgerInService
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.ensembles import Fragment, write_set
from fencepost.ledger.rules.metadata import (
    DigestType,
    LedgerMetadata,
    LedgerStatus,
    marked_in_recovery,
    with_changed_ensemble,
)
from fencepost.ledger.rules.placement import POLICY, Policy

LEDGER = 7
DIGESTS = Digests(DigestType.CRC32C, b"")
PACE = Pace(1 << 30)


def body(entry_id: int) -> bytes:
    return DIGESTS.entry_body(Entry(LEDGER, entry_id, entry_id - 1, entry_id + 1, b"x"))


class StandIn:
    """A store of one ledger with dictionaries as bookies. It is its own metadata client."""

    def __init__(self, metadata: LedgerMetadata, entries: int, names: str = "abcde") -> None:
        self.kept = LedgerInService(metadata, 0)
        self.stored: dict[str, dict[int, bytes]] = {name: {} for name in names}
        for entry_id in range(entries):
            fragment = next(each for each in reversed(metadata.fragments) if each.first_entry_id <= entry_id)
            for bookie in write_set(entry_id, fragment.ensemble, metadata.write_quorum):
                self.stored[bookie][entry_id] = body(entry_id)
        self.down: set[str] = set()
        self.codes: dict[str, Code] = {}
        self.asked: list[tuple[str, int]] = []
        self.while_copying: Callable[[], object] = lambda: None
        self.metadata = self
        self.policy = POLICY
        self.racks: tuple[tuple[str, str], ...] = ()

    def change(self, metadata: LedgerMetadata) -> None:
        self.kept = LedgerInService(metadata, self.kept.version + 1)

    async def read_ledger(self, ledger: int) -> LedgerInService:
        return self.kept

    async def write_ledger(self, ledger: int, metadata: LedgerMetadata, version: int) -> int:
        if version != self.kept.version:
            raise BadVersionError("changed")
        self.change(metadata)
        return self.kept.version

    @property
    def driver(self) -> StandIn:
        return self

    def mixed(self, bookies: tuple[str, ...]) -> list[str]:
        return random.sample(bookies, len(bookies))

    async def bookies(self) -> Bookies:
        return Bookies(tuple(sorted(self.stored.keys() - self.down)), racks=self.racks)

    async def ask(self, bookie: str, request: Any) -> Any:
        if bookie in self.down:
            return None
        if isinstance(request, AddEntry):
            assert request.recovery
            self.while_copying()
            code = self.codes.get(bookie, Code.OK)
            if code is Code.OK:
                self.stored[bookie][request.entry_id] = bytes(request.body)
            return AddEntryResponse(LEDGER, request.entry_id, code)
        assert isinstance(request, ReadEntry)
        self.asked.append((bookie, request.entry_id))
        found = self.stored[bookie].get(request.entry_id)
        code = self.codes.get(bookie, Code.NO_ENTRY if found is None else Code.OK)
        return ReadEntryResponse(LEDGER, request.entry_id, code, body=found if code is Code.OK else None)


def ledger(*fragments: tuple[int, str], last: int = -1, write_quorum: int = 2) -> LedgerMetadata:
    status = LedgerStatus.OPEN if last < 0 else LedgerStatus.CLOSED
    made = tuple(Fragment(first, tuple(ensemble)) for first, ensemble in fragments)
    return LedgerMetadata(3, write_quorum, 2, made, status, last, digest_type=DigestType.CRC32C)


def replaced(store: StandIn, gone: str) -> int:
    return asyncio.run(replace_fragments(store, LEDGER, gone, PACE, Copied()))  # type: ignore[arg-type]


def check_whole(store: StandIn, entries: int) -> None:
    for entry_id in range(entries):
        fragment = next(each for each in reversed(store.kept.metadata.fragments) if each.first_entry_id <= entry_id)
        for bookie in write_set(entry_id, fragment.ensemble, store.kept.metadata.write_quorum):
            assert store.stored[bookie].get(entry_id) == body(entry_id), (bookie, entry_id)


def test_two_bookies_of_several_fragments_are_replaced() -> None:
    store = StandIn(ledger((0, "abc"), (10, "bcd"), (20, "cda"), last=29, write_quorum=3), 30, "abcdefg")
    store.down = {"a", "b"}
    assert replaced(store, "ab") == 4
    assert not {"a", "b"} & {bookie for fragment in store.kept.metadata.fragments for bookie in fragment.ensemble}
    check_whole(store, 30)
    assert store.kept.version == 4  # one change for each


def test_an_ensemble_that_its_writer_changes_meanwhile_is_kept() -> None:
    """The metadata are read again, and both changes are kept."""
    store = StandIn(ledger((0, "abc"), (10, "bcd")), 15)
    store.down = {"a"}

    def change() -> None:
        store.while_copying = lambda: None
        store.change(with_changed_ensemble(store.kept.metadata, ("b", "e", "d"), 14))

    store.while_copying = change
    assert replaced(store, "a") == 1
    fragments = store.kept.metadata.fragments
    assert [each.first_entry_id for each in fragments] == [0, 10, 15]
    assert fragments[2].ensemble == ("b", "e", "d") and "a" not in fragments[0].ensemble
    check_whole(store, 15)


def test_a_recovery_that_begins_meanwhile_is_left_in_peace() -> None:
    store = StandIn(ledger((0, "abc"), (10, "bcd")), 15)
    store.down = {"a"}
    store.while_copying = lambda: store.change(marked_in_recovery(store.kept.metadata))
    assert replaced(store, "a") == 0
    assert store.kept.metadata.fragments[0].ensemble == ("a", "b", "c")


def test_the_last_fragment_of_an_open_ledger_is_left_to_its_writer() -> None:
    store = StandIn(ledger((0, "abc")), 15)
    store.down = {"a"}
    assert replaced(store, "a") == 0 and store.kept.version == 0 and store.asked == []


def test_those_that_are_gone_are_asked_last() -> None:
    store = StandIn(ledger((0, "abc"), last=29, write_quorum=3), 30)
    replaced(store, "ab")
    assert "a" not in {bookie for bookie, _ in store.asked} and "b" not in {bookie for bookie, _ in store.asked}


def test_metadata_stay_if_an_entry_can_not_be_had_is_damaged_or_not_taken() -> None:
    for hurt, error in (
        (lambda store: store.down.add("b"), ReadError),
        (lambda store: store.stored["b"].update({3: b"damaged" * 9}), ReadError),
        (lambda store: store.codes.update(d=Code.IO_ERROR, e=Code.IO_ERROR), WriteError),
        (lambda store: store.down.update("de"), NotEnoughBookiesError),
    ):
        store = StandIn(ledger((0, "abc"), last=29), 30)
        store.down = {"a"}
        hurt(store)  # type: ignore[no-untyped-call]
        with pytest.raises(error):
            replaced(store, "a")
        assert store.kept.version == 0


def test_whether_a_bookie_has_what_it_should() -> None:
    metadata = ledger((0, "abc"), (10, "bcd"), last=19)

    def has(store: StandIn, place: int, bookie: str) -> bool | None:
        return asyncio.run(has_ends(store, LEDGER, metadata, place, bookie))  # type: ignore[arg-type]

    store = StandIn(metadata, 20)
    assert has(store, 0, "a") is True and store.asked == [("a", 0), ("a", 9)]
    del store.stored["a"][5]
    assert has(store, 0, "a") is True  # as BookKeeper: the first and the last
    del store.stored["a"][9]
    assert has(store, 0, "a") is False
    store.stored["b"][0] = store.stored["b"][0][:-1] + b"y"
    assert has(store, 0, "b") is False
    for code in (Code.UNKNOWN_LEDGER_STATE, Code.IO_ERROR, Code.TOO_MANY_REQUESTS):
        store.codes["c"] = code
        assert has(store, 1, "c") is None
    store.down = {"d"}
    assert has(store, 1, "d") is None
    assert asyncio.run(has_ends(store, LEDGER, ledger((0, "abc"), (10, "bcd"), last=9), 1, "d")) is True  # type: ignore[arg-type]


def test_a_bookie_is_given_what_it_lacks() -> None:
    metadata = ledger((0, "abc"), (10, "bcd"), last=19)
    store = StandIn(metadata, 20)
    store.stored["b"].clear()
    for place in (0, 1):
        asyncio.run(refill(store, LEDGER, metadata, place, "b", PACE, Copied()))  # type: ignore[arg-type]
    check_whole(store, 20)
    assert store.kept.version == 0


# -- placement ---------------------------------------------------------------------------------------------------------

STRICT = Policy(enforce_min_num_racks_per_write_quorum=True)
RACKS = tuple((b, f"/{rack}") for b, rack in zip("abcdef", "xxyyyx", strict=True))


def moved(store: StandIn) -> int:
    return asyncio.run(spread_fragments(store, LEDGER, PACE, Copied()))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(10))
def test_a_replacement_is_in_a_rack_that_suits(seed: int) -> None:
    random.seed(seed)
    store = StandIn(ledger((0, "abc"), last=9, write_quorum=3), 10, "abcdef")
    store.racks, store.down = RACKS, {"c"}
    assert replaced(store, "c") == 1
    assert store.kept.metadata.fragments[0].ensemble[2] in "de"
    check_whole(store, 10)


def test_nothing_is_replaced_if_the_placement_can_not_be_met_and_is_enforced() -> None:
    store = StandIn(ledger((0, "abc"), last=9, write_quorum=3), 10, "abcf")
    store.racks, store.down, store.policy = RACKS, {"c"}, STRICT
    message = (
        "take the place of c in ledger 7: start another one, or set racks .*, as minNumRacksPerWriteQuorum = 2 must be"
        " met: there is no such ensemble$"
    )
    with pytest.raises(NotEnoughBookiesError, match=message):
        replaced(store, "c")
    assert store.kept.version == 0
    store.policy = POLICY
    assert replaced(store, "c") == 1
    assert store.kept.metadata.fragments[0].ensemble == ("a", "b", "f")


def test_entries_move_until_they_are_in_two_racks() -> None:
    """The bookie that they move from may have the only copy that can be read."""
    store = StandIn(ledger((0, "abf"), (10, "acd"), last=19, write_quorum=3), 20, "abcdef")
    store.racks = RACKS
    for bookie in "bf":
        store.stored[bookie].clear()
    assert moved(store) == 1
    first, second = store.kept.metadata.fragments
    assert second.ensemble == ("a", "c", "d")
    assert len({*first.ensemble} & {*"abf"}) == 2 and {*first.ensemble} & {*"cde"}
    (new,) = {*first.ensemble} & {*"cde"}
    assert [store.stored[new].get(entry_id) for entry_id in range(10)] == [body(each) for each in range(10)]
    assert moved(store) == 0 and store.kept.version == 1


def test_entries_do_not_move_while_they_are_written_or_recovered_or_without_need() -> None:
    for metadata in (
        ledger((0, "abf"), write_quorum=3),
        marked_in_recovery(ledger((0, "abf"), (5, "abf"), write_quorum=3)),
        ledger((0, "abc"), last=9, write_quorum=3),
    ):
        store = StandIn(metadata, 10, "abcdef")
        store.racks = RACKS
        assert moved(store) == 0 and store.kept.version == 0
    store = StandIn(ledger((0, "abf"), last=9, write_quorum=3), 10, "abf")  # nobody is in the other rack
    store.racks = RACKS
    assert moved(store) == 0
