"""Exports and imports of ledgers, with a stand-in for the store and all kinds of storage."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost.errors import OptionError, SystemFailure
from fencepost.files.storage import Remote, Storage
from fencepost.ledger.archive import exporting, importing, layout
from fencepost.ledger.archive.exporting import Moved, export
from fencepost.ledger.archive.importing import import_all, ledgers_in, new_numbers
from fencepost.ledger.entries import Digests, Entry
from fencepost.ledger.errors import (
    BadVersionError,
    LedgerExistsError,
    NoSuchLedgerError,
    NotEnoughBookiesError,
    ReadError,
    Refusal,
    WriteError,
)
from fencepost.ledger.messages import AddEntry, AddEntryResponse, ReadEntry, ReadEntryResponse
from fencepost.ledger.metadata.client import Bookies, LedgerInService
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.ensembles import Fragment, fragment_of, write_set
from fencepost.ledger.rules.metadata import (
    IMPORTING,
    NOT_CLOSED,
    DigestType,
    LedgerMetadata,
    LedgerStatus,
    closed,
    marked_in_recovery,
)
from fencepost.ledger.rules.placement import POLICY, Placement, Policy
from fencepost.ledger.rules.replication import misplaced

S = LedgerStatus


class Cut(Exception):
    """The process ends here."""


class Store:
    """A store with dictionaries as bookies. It is its own metadata client."""

    def __init__(self, cluster: str, names: str = "abcde") -> None:
        self.cluster = cluster
        self.ledgers: dict[int, LedgerInService] = {}
        self.stored: dict[str, dict[tuple[int, int], bytes]] = {name: {} for name in names}
        self.down: set[str] = set()
        self.metadata = self
        self.policy = POLICY
        self.racks: tuple[tuple[str, str], ...] = ()
        self.numbers = itertools.count(100)
        self.left = -1
        """The operations before the process ends; negative: it does not."""
        self.before: Callable[[Any], None] = lambda request: None

    def _step(self, request: Any) -> None:
        self.before(request)
        if self.left == 0:
            raise Cut
        self.left -= 1

    def fill(self, ledger: int, count: int, digest: DigestType = DigestType.CRC32C, **more: Any) -> list[bytes]:
        """A closed ledger with some entries, in two fragments."""
        chosen, password = random.Random(ledger), more.get("password", b"")
        names = sorted(self.stored)
        fragments = [Fragment(0, tuple(names[:3]))] + [Fragment(count // 2, tuple(names[1:4]))] * (count > 3)
        metadata = LedgerMetadata(3, 2, 2, tuple(fragments), digest_type=digest, **more)
        entries, length = [chosen.randbytes(chosen.randrange(200)) for _ in range(count)], 0
        for entry_id, data in enumerate(entries):
            length += len(data)
            body = Digests(digest, password).entry_body(Entry(ledger, entry_id, entry_id - 1, length, data))
            for bookie in write_set(entry_id, fragment_of(fragments, entry_id).ensemble, 2):
                self.stored[bookie][ledger, entry_id] = body
        self.ledgers[ledger] = LedgerInService(closed(metadata, count - 1, length), 3)
        return entries

    async def instance_id(self) -> str:
        return self.cluster

    async def new_ledger_id(self) -> int:
        self._step(None)
        return next(self.numbers)

    async def missing(self, ledgers: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(each for each in ledgers if each not in self.ledgers)

    async def read_ledger(self, ledger: int) -> LedgerInService:
        if ledger not in self.ledgers:
            raise NoSuchLedgerError(f"there is no ledger {ledger}")
        return self.ledgers[ledger]

    async def ledger_metadata(self, ledger: int) -> LedgerMetadata:
        return (await self.read_ledger(ledger)).metadata

    async def create_ledger(self, ledger: int, metadata: LedgerMetadata) -> int:
        self._step(metadata)
        if ledger in self.ledgers:
            raise LedgerExistsError("it exists")
        self.ledgers[ledger] = LedgerInService(metadata, 0)
        return 0

    async def write_ledger(self, ledger: int, metadata: LedgerMetadata, version: int) -> int:
        self._step(metadata)
        if self.ledgers[ledger].version != version:
            raise BadVersionError("changed")
        self.ledgers[ledger] = LedgerInService(metadata, version + 1)
        return version + 1

    async def recover_ledger(self, ledger: int, password: bytes = b"") -> LedgerMetadata:
        """Close it at the entry before the first that is missing."""
        metadata, version = self.ledgers[ledger].metadata, self.ledgers[ledger].version
        ids = {entry_id for held in self.stored.values() for of, entry_id in held if of == ledger}
        last = next(each for each in itertools.count() if each not in ids) - 1
        self.ledgers[ledger] = LedgerInService(closed(metadata, last, 1), version + 1)
        return self.ledgers[ledger].metadata

    @property
    def driver(self) -> Store:
        return self

    def mixed(self, bookies: list[str]) -> list[str]:
        return random.sample(bookies, len(bookies))

    async def bookies(self) -> Bookies:
        return Bookies(tuple(sorted(self.stored.keys() - self.down)), racks=self.racks)

    async def ask(self, bookie: str, request: Any) -> Any:
        self._step(request)
        await asyncio.sleep(0)
        if bookie in self.down:
            return None
        held = self.stored[bookie]
        if isinstance(request, AddEntry):
            assert request.recovery
            held[request.ledger, request.entry_id] = request.body
            return AddEntryResponse(request.ledger, request.entry_id, Code.OK)
        assert isinstance(request, ReadEntry)
        known = any(of == request.ledger for of, _ in held)
        body = held.get((request.ledger, request.entry_id))
        code = Code.OK if body is not None else Code.NO_ENTRY if known else Code.NO_LEDGER
        return ReadEntryResponse(request.ledger, request.entry_id, code, body=body)

    def entries(self, ledger: int) -> list[bytes]:
        """The entries of a closed ledger, which every bookie of a write set must have."""
        metadata, found = self.ledgers[ledger].metadata, []
        assert metadata.status is S.CLOSED and IMPORTING not in dict(metadata.custom_metadata)
        digests = Digests(metadata.digest_type, metadata.password or b"")
        for entry_id in range(metadata.last_entry + 1):
            ensemble = fragment_of(metadata.fragments, entry_id).ensemble
            copies = {
                self.stored[each][ledger, entry_id] for each in write_set(entry_id, ensemble, metadata.write_quorum)
            }
            (body,) = copies
            entry = digests.open_entry(body, ledger, entry_id)
            assert entry is not None
            found.append(entry.data)
        assert sum(map(len, found)) == metadata.length
        return found


def exported(store: Store, target: Storage, *ledgers: int, **more: Any) -> list[Moved]:
    return asyncio.run(export(store, ledgers or [*store.ledgers], target, **more))  # type: ignore[arg-type]


def imported(store: Store, source: Storage, *ledgers: int, numbers: dict[int, int] | None = None) -> list[Moved]:
    done: list[Moved] = []
    found = ledgers_in(source, ledgers)
    asyncio.run(import_all(store, source, found, numbers or {}, done=done.append))  # type: ignore[arg-type]
    return done


KINDS = ("folder", "file://", "local", "subtree", "mock")


@pytest.fixture(params=KINDS)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """An empty place for an export, of each kind."""
    from pyarrow import fs

    place = str(tmp_path / "export")
    match request.param:
        case "folder":
            return Storage(place)
        case "file://":
            return Remote(f"file://{place}")
        case "local":
            return Remote(place, fs.LocalFileSystem())
        case "subtree":
            return Remote("export", fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()))
    return Remote("bucket/export", fs._MockFileSystem())


@pytest.fixture
def folder(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path / "export"))


def filled() -> tuple[Store, dict[int, list[bytes]]]:
    store = Store("one")
    contents = {
        1: store.fill(1, 40, custom_metadata=(("a", b"\x00\xff"), ("log", b"mine")), creation_time=7),
        2: store.fill(2, 3, DigestType.HMAC, password=b"secret"),
        5: store.fill(5, 0, DigestType.CRC32),
        9: store.fill(9, 1, DigestType.DUMMY),
    }
    return store, contents


def same(old: LedgerMetadata, new: LedgerMetadata) -> bool:
    """Whether two ledgers differ in nothing but their bookies and who created them."""
    return old == new.replace(fragments=old.fragments, creation_token=old.creation_token)


# -- there and back --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 500, 1 << 20])
def test_ledgers_come_back_as_they_were(storage: Storage, most: int) -> None:
    store, contents = filled()
    moved = exported(store, storage, most=most)
    assert [(each.ledger, each.entries, each.bytes) for each in moved] == [
        (ledger, len(entries), sum(map(len, entries))) for ledger, entries in contents.items()
    ]
    new = Store("two", "uvwxyz")
    assert [each.was_there for each in imported(new, storage)] == [False] * 4
    for ledger, entries in contents.items():
        assert new.entries(ledger) == entries
        assert same(store.ledgers[ledger].metadata, new.ledgers[ledger].metadata)
        for held in new.stored.values():  # byte for byte
            for (of, entry_id), body in held.items():
                if of == ledger:
                    assert any(each.get((of, entry_id)) == body for each in store.stored.values())
    before = dict(new.ledgers)
    assert all(each.was_there for each in imported(new, storage)) and new.ledgers == before
    assert all(each.was_there for each in imported(store, storage))


def test_new_numbers_are_kept_for_the_next_time(folder: Storage, tmp_path: Path) -> None:
    store, contents = filled()
    exported(store, folder)
    found = ledgers_in(folder)
    here = Storage(str(tmp_path))
    store.numbers = itertools.count(4)  # 5 is taken
    numbers = asyncio.run(new_numbers(store, found, here, "numbers"))  # type: ignore[arg-type]
    assert len({*numbers.values()} | {*contents}) == 8
    imported(store, folder, numbers=numbers)
    for ledger, entries in contents.items():
        assert store.entries(numbers[ledger]) == entries == store.entries(ledger)
    assert asyncio.run(new_numbers(store, found, here, "numbers")) == numbers  # type: ignore[arg-type]
    assert all(each.was_there for each in imported(store, folder, numbers=numbers))
    with pytest.raises(SystemFailure, match="is of imports into the cluster one, not two"):
        asyncio.run(new_numbers(Store("two"), found, here, "numbers"))  # type: ignore[arg-type]
    other = {1: (found[1][0], "another digest")}
    with pytest.raises(SystemFailure, match="is of imports from another export"):
        asyncio.run(new_numbers(store, other, here, "numbers"))  # type: ignore[arg-type]
    (tmp_path / "numbers").write_text('{"cluster": "one"}')
    with pytest.raises(SystemFailure, match="is no file of new numbers"):
        asyncio.run(new_numbers(store, found, here, "numbers"))  # type: ignore[arg-type]


def test_some_ledgers_of_an_export(folder: Storage) -> None:
    store, contents = filled()
    exported(store, folder, 1, 2)
    assert [each.was_there for each in exported(store, folder, 2, 9)] == [True, False]
    assert [*ledgers_in(folder)] == [1, 2, 9]
    new = Store("two")
    assert [each.ledger for each in imported(new, folder, 9, 1)] == [1, 9] and new.entries(1) == contents[1]
    with pytest.raises(OptionError, match="does not have ledger 5"):
        ledgers_in(folder, [5])


# -- what is refused -------------------------------------------------------------------------------------------------


def test_open_ledgers_are_refused_before_anything_is_written_or_recovered_if_wanted(folder: Storage) -> None:
    store, _ = filled()
    whole = store.ledgers[9].metadata
    for status in (S.OPEN, S.IN_RECOVERY):
        store.ledgers[9] = LedgerInService(whole.replace(status=status, last_entry=NOT_CLOSED, length=0), 0)
        with pytest.raises(Refusal, match="ledger 9 is not closed: close it, or give --recover"):
            exported(store, folder)
        assert not folder.sizes()
    store.stored["a"][9, 0] = Digests(DigestType.DUMMY, b"").entry_body(Entry(9, 0, -1, 1, b"x"))
    store.stored["b"][9, 0] = store.stored["a"][9, 0]
    assert [each.entries for each in exported(store, folder, 9, recover=True)] == [1]


def test_another_ledger_of_the_number_is_left_alone(folder: Storage) -> None:
    store, contents = filled()
    exported(store, folder)
    new = Store("two")
    new.fill(1, 4)
    with pytest.raises(LedgerExistsError, match="ledger 1 exists, and is another one: delete it, or import under new"):
        imported(new, folder, 1)
    # One that differs in a byte of an entry only.
    twin, _ = filled()
    digests = Digests(DigestType.CRC32C, b"")
    for held in twin.stored.values():
        if (1, 30) in held:
            entry = digests.open_entry(held[1, 30], 1)
            assert entry is not None
            held[1, 30] = digests.entry_body(Entry(1, 30, entry.lac, entry.length, entry.data[:-1] + b"?"))
    with pytest.raises(LedgerExistsError, match="ledger 1 exists, and its entry 30 is another"):
        imported(twin, folder, 1)


def test_a_number_that_bookies_still_know_is_refused(folder: Storage) -> None:
    store, _ = filled()
    exported(store, folder)
    del store.ledgers[1]
    for name in store.stored:
        if not any(of == 1 for of, _ in store.stored[name]):
            store.stored[name][1, 99] = b"old"
    with pytest.raises(Refusal, match="bookie . still has a deleted ledger 1: import under new numbers"):
        imported(store, folder, 1)
    assert 1 not in store.ledgers


def test_folders_and_clusters_are_not_mixed_up(folder: Storage, tmp_path: Path) -> None:
    store, _ = filled()
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "note").write_text("")
    with pytest.raises(SystemFailure, match="is no folder of exports, it has note"):
        exported(store, folder)
    (tmp_path / "export" / "note").unlink()
    exported(store, folder)
    other = Store("two")
    other.fill(1, 3)
    with pytest.raises(SystemFailure, match="has an export of the cluster one, and this is two"):
        exported(other, folder)
    with pytest.raises(SystemFailure, match="has no complete export: export.json is missing"):
        ledgers_in(Storage(str(tmp_path)))


def test_files_are_for_owner_and_group_alone(folder: Storage, tmp_path: Path) -> None:
    exported(filled()[0], folder)
    assert {each.stat().st_mode & 0o137 for each in (tmp_path / "export").iterdir()} == {0}


def damages(files: dict[str, bytes]) -> list[Callable[[Path, random.Random], None]]:
    def some(chosen: random.Random) -> str:
        return chosen.choice(sorted(files))

    def flip(path: Path, chosen: random.Random) -> None:
        name = some(chosen)
        data = bytearray(files[name])
        data[chosen.randrange(len(data))] ^= 1 << chosen.randrange(8)
        (path / name).write_bytes(data)

    def cut(path: Path, chosen: random.Random) -> None:
        name = some(chosen)
        (path / name).write_bytes(files[name][: chosen.randrange(len(files[name]))])

    def lose(path: Path, chosen: random.Random) -> None:
        (path / some(chosen)).unlink()

    def swap(path: Path, chosen: random.Random) -> None:
        one, other = chosen.sample(sorted(files), 2)
        (path / one).write_bytes(files[other])
        (path / other).write_bytes(files[one])

    def lengthen(path: Path, chosen: random.Random) -> None:
        name = some(chosen)
        (path / name).write_bytes(files[name] + chosen.randbytes(9))

    return [flip, cut, lose, swap, lengthen]


@pytest.mark.parametrize("seed", range(30))
def test_damaged_exports_are_refused_and_no_ledger_looks_whole(seed: int, tmp_path: Path) -> None:
    store, contents = filled()
    place = tmp_path / "export"
    exported(store, Storage(str(place)), most=2_000)
    files = {each.name: each.read_bytes() for each in place.iterdir()}
    damages(files)[seed % 5](place, random.Random(seed))
    new = Store("two")
    with pytest.raises(SystemFailure) as caught:
        imported(new, Storage(str(place)))
    assert str(place) in str(caught.value) and "\n" not in str(caught.value)
    for ledger in new.ledgers:
        whole = new.ledgers[ledger].metadata.status is S.CLOSED
        assert not whole or new.entries(ledger) == contents[ledger]


def test_every_byte_of_an_export_is_covered(folder: Storage, tmp_path: Path) -> None:
    store = Store("one")
    store.fill(2, 3, DigestType.DUMMY)
    exported(store, folder)
    for file in (tmp_path / "export").iterdir():
        data = bytearray(file.read_bytes())
        for at in range(len(data)):
            data[at] ^= 1 << at % 8
            file.write_bytes(data)
            with pytest.raises(SystemFailure):
                imported(Store("two"), folder)
            data[at] ^= 1 << at % 8
        file.write_bytes(data)
    imported(Store("two"), folder)


def test_a_sealed_manifest_that_contradicts_itself_is_refused(folder: Storage) -> None:
    store = Store("one")
    store.fill(2, 3)
    exported(store, folder, most=1)
    import msgspec

    manifest, _ = ledgers_in(folder)[2]
    for wrong in (
        {"chunks": manifest.chunks[:2]},
        {"chunks": manifest.chunks[1:]},
        {"last_entry": 7},
        {"digest_type": "md5"},
        {"format": 2},
    ):
        content = layout.encoded(msgspec.structs.replace(manifest, **wrong))
        layout.put(folder, "ledger-2.json", content)
        index = layout.Index(cluster="one", ledgers={2: layout.digest(content)})  # type: ignore[attr-defined]
        layout.put(folder, "export.json", layout.encoded(index))
        with pytest.raises(SystemFailure, match="contradicts itself|has the format 2, and this version reads 1"):
            ledgers_in(folder)


# -- what goes wrong on the way ----------------------------------------------------------------------------------------


def test_an_export_that_is_killed_anywhere_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: Storage
) -> None:
    store, _ = filled()
    put = layout.put
    exported(store, folder, most=1_000)
    whole = {name: folder.load(name) for name in folder.names()}
    for number in itertools.count():
        left, target = [number], Storage(str(tmp_path / f"killed {number}"))

        def cut(storage: Storage, name: str, content: bytes, left: list[int] = left) -> None:
            if left[0] == 0:
                Path(storage.place).mkdir(exist_ok=True)
                (Path(storage.place) / f"{name}.new").write_bytes(content[:9])
                raise Cut
            left[0] -= 1
            put(storage, name, content)

        monkeypatch.setattr(layout, "put", cut)
        try:
            exported(store, target, most=1_000)
        except Cut:
            with pytest.raises(SystemFailure, match="has no complete export"):
                ledgers_in(target)
            monkeypatch.setattr(layout, "put", put)
            exported(store, target, most=1_000)
        else:
            break
        assert {name: target.load(name) for name in target.names()} == whole
    assert number == len(whole) > 8


def test_an_import_that_is_killed_anywhere_leaves_nothing_that_looks_whole_and_goes_on(folder: Storage) -> None:
    store = Store("one")
    contents = {1: store.fill(1, 12), 2: store.fill(2, 5, DigestType.HMAC, password=b"p")}
    exported(store, folder, most=500)
    for number in itertools.count():
        new = Store("two")
        new.left = number
        try:
            imported(new, folder)
        except Cut:
            pass
        else:
            break
        for ledger, found in new.ledgers.items():
            if found.metadata.status is S.CLOSED:
                assert new.entries(ledger) == contents[ledger]
            else:
                assert IMPORTING in dict(found.metadata.custom_metadata)
                if number % 2:  # somebody who knows no mark recovers it
                    asyncio.run(new.recover_ledger(ledger))
        new.left = -1
        imported(new, folder)
        assert {ledger: new.entries(ledger) for ledger in new.ledgers} == contents
    assert number > 30


def lose_a_bookie(store: Store) -> None:
    """Have a bookie of ledger 1 fail after some requests."""
    asked = itertools.count(1)

    def fails(request: Any) -> None:
        if next(asked) == 40:
            store.down.add(store.ledgers[1].metadata.fragments[0].ensemble[1])

    store.before = fails


def test_a_bookie_that_fails_is_replaced_from_its_chunk_on(folder: Storage) -> None:
    store, contents = filled()
    exported(store, folder, most=1_000)
    new = Store("two", "uvwxyz")

    lose_a_bookie(new)
    imported(new, folder)
    assert new.down and len(new.ledgers[1].metadata.fragments) == 2
    assert {ledger: new.entries(ledger) for ledger in contents} == contents
    few = Store("three", "abc")
    few.down.add("b")
    with pytest.raises(NotEnoughBookiesError, match="needs 3 bookies to write to, and there are 2: start more"):
        imported(few, folder)


def test_an_import_is_spread_over_racks_also_where_a_bookie_fails(folder: Storage) -> None:
    store, contents = filled()
    exported(store, folder, most=1_000)
    new = Store("two", "uvwxyz")
    new.racks = tuple((b, f"/{rack}") for b, rack in zip("uvwxyz", "AABBCC", strict=True))
    new.policy = Policy(min_num_racks_per_write_quorum=3, enforce_min_num_racks_per_write_quorum=True)

    lose_a_bookie(new)
    imported(new, folder)
    assert {ledger: new.entries(ledger) for ledger in contents} == contents
    assert len(new.ledgers[1].metadata.fragments) == 2
    placement = Placement(new.policy.replace(min_num_racks_per_write_quorum=2), new.racks)
    for each in new.ledgers.values():
        assert not misplaced(each.metadata, placement)
    few = Store("three", "uvwx")
    few.racks, few.policy = new.racks, new.policy.replace(min_num_racks_per_write_quorum=2)
    few.down |= {*"wx"}
    few.stored["t"] = {}
    with pytest.raises(
        NotEnoughBookiesError,
        match="on 3 of the 3 writable bookies with min.*: there is no such ensemble; start",
    ):
        imported(few, folder)


def test_a_bookie_that_fails_and_is_not_replaced_is_found_out(folder: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: an answer that is no success counts as one."""
    store, _ = filled()
    exported(store, folder, most=1_000)

    async def careless(self: Any, entry_id: int, request: Any, ensemble: Any, failed: set[str]) -> None:
        for bookie in write_set(entry_id, ensemble, self.manifest.write_quorum):
            await self.store.ask(bookie, request)

    monkeypatch.setattr(importing._Import, "_put", careless)
    with pytest.raises((KeyError, AssertionError)):
        test_a_bookie_that_fails_is_replaced_from_its_chunk_on(folder)


def test_of_two_imports_at_once_one_or_both_complete_it(folder: Storage) -> None:
    store, contents = filled()
    exported(store, folder, most=1_000)
    for seed in range(10):
        new = Store("two", "uvwxyz")

        async def both(new: Store = new, seed: int = seed) -> Any:
            async def late(turns: int) -> None:
                for _ in range(turns):
                    await asyncio.sleep(0)
                await import_all(new, folder, ledgers_in(folder, [1]), {})  # type: ignore[arg-type]

            return await asyncio.gather(late(0), late(seed * 5), return_exceptions=True)

        outcomes = asyncio.run(both())
        assert all(each is None or isinstance(each, Refusal) for each in outcomes)
        imported(new, folder, 1)
        assert new.entries(1) == contents[1]


def test_a_ledger_that_others_change_meanwhile_is_not_closed_over_them(folder: Storage) -> None:
    store, contents = filled()
    exported(store, folder, most=1_000)
    new = Store("two")

    def recovered(request: Any) -> None:
        if isinstance(request, AddEntry) and request.entry_id == 30 and new.ledgers[1].version == 0:
            new.ledgers[1] = LedgerInService(marked_in_recovery(new.ledgers[1].metadata), 1)

    new.before = recovered
    with pytest.raises(Refusal, match="ledger 1 was changed by somebody else while it was imported: run the import"):
        imported(new, folder, 1)
    imported(new, folder, 1)
    assert new.entries(1) == contents[1]


def test_an_entry_without_an_intact_copy_ends_the_export(folder: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "_AHEAD", 10)
    store, _ = filled()
    for held in store.stored.values():
        if (1, 7) in held:
            held[1, 7] = held[1, 7][:-1] + b"?" if held[1, 7][-1:] != b"?" else held[1, 7][:-1] + b"!"
    with pytest.raises(ReadError, match="entry 7 of ledger 1 cannot be had from any bookie now"):
        exported(store, folder)
    store, contents = filled()
    bookie = next(name for name, held in store.stored.items() if (1, 7) in held)
    store.stored[bookie][1, 7] = b"damaged"
    exported(store, folder)
    new = Store("two")
    imported(new, folder)
    assert new.entries(1) == contents[1]


def test_metadata_that_disagree_with_the_entries_end_the_export(folder: Storage) -> None:
    store, _ = filled()
    found = store.ledgers[1]
    store.ledgers[1] = LedgerInService(found.metadata.replace(length=1), found.version)
    with pytest.raises(ReadError, match="have .* bytes of data, and its metadata say 1"):
        exported(store, folder, 1)


def test_another_password_at_the_bookies_ends_the_import(folder: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = filled()
    exported(store, folder)
    new, ask = Store("two"), Store.ask

    async def strict(self: Store, bookie: str, request: Any) -> Any:
        answer = await ask(self, bookie, request)
        if isinstance(request, AddEntry):
            return AddEntryResponse(request.ledger, request.entry_id, Code.UNAUTHORIZED)
        return answer

    monkeypatch.setattr(Store, "ask", strict)
    with pytest.raises(WriteError, match="knows ledger 1 by another password"):
        imported(new, folder, 1)


async def test_memory_is_bounded_while_one_entry_is_late(folder: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers wait when much waits for an earlier entry."""
    monkeypatch.setattr(exporting, "_AHEAD", 3_000)
    store = Store("one")
    store.fill(1, 1_000)
    seen: set[int] = set()
    late = asyncio.Event()
    ask = Store.ask

    async def slow(self: Store, bookie: str, request: Any) -> Any:
        if request.entry_id == 5:
            await late.wait()
        seen.add(request.entry_id)
        return await ask(self, bookie, request)

    monkeypatch.setattr(Store, "ask", slow)
    running = asyncio.ensure_future(export(store, [1], folder))  # type: ignore[arg-type]
    before = -1
    while before != len(seen) or not seen:
        before = len(seen)
        for _ in range(2_000):
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
    assert 5 not in seen and len(seen) < 200
    late.set()
    await running
    assert len(seen) == 1_000
