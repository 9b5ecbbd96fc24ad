"""Checkpoints: a directory with everything that a search needs to go on after its process was killed.

``fingerprints.bin`` and ``links.bin`` only grow, level by level. ``frontier-N.bin`` holds the rows of one whole level.
``manifest.json`` is replaced atomically. It says which frontier is valid and how much of the other two files; anything
written later is ignored. Compiled tries are not saved: they grow again from the rows that are expanded.

The manifest has digests of all files and of itself. Those of the two growing files are updated with each write, so a
save reads nothing back. A resumed search checks them in the same pass that reads the files.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum, Flag
from pathlib import Path
from types import FunctionType
from typing import Any

import msgspec
import numpy as np

from fencepost.checker.compiler.arrays import Array
from fencepost.checker.compiler.layout import unpacked
from fencepost.checker.engines.interface import Found
from fencepost.checker.engines.options import SavedOptions, asked, difference
from fencepost.checker.engines.search import SavedSearch, Search
from fencepost.errors import SystemFailure
from fencepost.files.digest import Digest, digest, is_sealed, running, sealed
from fencepost.files.storage import Lock, folder_of, sync_folder
from fencepost.language.contents import model_values_in
from fencepost.language.context import Slot
from fencepost.language.declarations import Declared
from fencepost.language.decoding import decode
from fencepost.language.seam import Model, language_of
from fencepost.language.values import ModelValue, Record, Value, encode, full_name, module_of
from fencepost.semantics.state import Outgrown, ValueTable
from fencepost.semantics.symmetry import listed

FORMAT = 6

NAME = "manifest.json"

FINGERPRINTS, LINKS = "fingerprints.bin", "links.bin"

BLOCK_ROWS = 1 << 16
"""Rows of a frontier block. A block has the numbers of its states, then their words."""
BLOCK = 1 << 20
"""Fingerprints that are read at once."""


class SlotEntry(msgspec.Struct):
    """A slot by its path, with the values it has held. ``constant``: the slot exists in every state, as a part of the
    protocol.
    """

    name: str
    values: list[str]
    path: str
    constant: bool


def refused(place: Path | str, why: str, remedy: str = "", *options: str) -> SystemFailure:
    """The error for a checkpoint that cannot be resumed. ``why`` and ``remedy`` may name ``options``."""
    remedy = remedy and f"{remedy}, or "
    return SystemFailure(f"the checkpoint in {place} {why}; {remedy}start again without {{resume}}", "resume", *options)


class Saved(msgspec.Struct, kw_only=True):
    """What a checkpoint of any engine keeps of a search at the end of a level. ``asked``: its options as of
    :func:`fencepost.checker.engines.options.asked`. ``taken`` and ``new``: counts by root number. ``found``: as encoded
    by :meth:`fencepost.checker.engines.workspace.Workspace.encode`.
    """

    format: int
    protocol: str
    constants: dict[str, str]
    source: str
    properties: list[str]
    asked: dict[str, Any]
    depth: int
    distinct: int
    generated: int
    queue: int
    taken: list[int]
    new: list[int]
    seconds: float
    slots: list[SlotEntry] = []
    found: list[tuple[str, str, int, list[int]]]
    reported: list[str]
    seeks: bool
    exact: bool

    def verify(self, place: Path | str, search: Search, properties: list[str]) -> None:
        """Raise :class:`fencepost.SystemFailure` if ``search`` cannot go on from this checkpoint: it is of something
        else, its options change what a level means, or with its limits it would have ended earlier.
        """
        protocol, options = search.stepper.protocol, search.options
        assert isinstance(options, SavedOptions)
        if self.protocol != protocol.name:
            raise refused(place, f"is of the protocol {self.protocol}, not of {protocol.name}")
        constants = encoded_constants(protocol)
        for name in sorted(set(constants) | set(self.constants)):
            if constants.get(name) != self.constants.get(name):
                raise refused(place, f"was made with another value of the constant {name}")
        if self.source != language_of(protocol).digest(protocol):
            raise refused(place, f"is of another version of {protocol.name}: its source has changed since")
        if self.properties != properties:
            before, now = ({title.split("(")[0]: None for title in each} for each in (self.properties, properties))
            more, fewer = [name for name in now if name not in before], [name for name in before if name not in now]
            differs = f"does not judge {listed(more)}" if more else f"judges {listed(fewer or list(before))} too"
            raise refused(place, differs, "choose the same with {invariants}", "invariants")
        differs_in = difference(options, self.asked, search.symmetric)
        if differs_in is not None:
            raise refused(place, *differs_in)
        built = self.depth + (not self.queue)  # the last level may be empty
        if options.max_depth is not None and options.max_depth < built:
            raise refused(place, f"has {built:,} levels already", f"give {{max_depth}} {built} or more", "max_depth")
        explored = self.distinct - self.queue
        if options.max_states is not None and options.max_states <= explored:
            raise refused(
                place, f"has {explored:,} states before its last level", f"give {{max_states}} {explored + 1} or more",
                "max_states",
            )  # fmt: skip

    def kept(self, found: list[Found]) -> SavedSearch:
        """The part of it that a resumed search takes over. ``found``: its findings, decoded."""
        return SavedSearch(
            self.depth, self.distinct, self.generated, self.queue, self.seconds, dict(enumerate(self.taken)),
            dict(enumerate(self.new)), found, self.reported, self.seeks, self.exact,
        )  # fmt: skip


class Manifest(Saved, kw_only=True):
    """Everything about an exploration at the end of a level except its states. ``fingerprints`` and ``links``: the
    digests of the valid part of those files. ``frontier_blocks``: the digests of the blocks of the frontier.
    """

    levels: list[int]
    fingerprints: str = ""
    links: str = ""
    frontier: str = ""
    frontier_blocks: list[str] = []
    words: int = 0
    places: list[int] = []
    outcomes: list[tuple[int, list[int]]]


def saved(search: Search, source: str, properties: list[str], kept: SavedSearch) -> dict[str, Any]:
    """The fields of :class:`Saved` except ``format``, ``slots`` and ``found``. ``source``: the digest of the protocol's
    source when the search began. ``properties``: the titles of the checked ones.
    """
    stepper, options = search.stepper, search.options
    assert isinstance(options, SavedOptions)
    protocol, roots = stepper.protocol, range(len(stepper.roots))
    return {
        **{name: value for name, value in vars(kept).items() if name != "found"},
        "protocol": protocol.name,
        "constants": encoded_constants(protocol),
        "source": source,
        "properties": properties,
        "asked": asked(options, search.symmetric),
        "taken": [kept.taken.get(root, 0) for root in roots],
        "new": [kept.new.get(root, 0) for root in roots],
    }


@contextmanager
def locked(options: SavedOptions) -> Iterator[None]:
    """Lock the folder of a checkpoint for this search. There is no lock for a URL of another machine.

    Raises :class:`fencepost.SystemFailure` if another search holds the lock.
    """
    place = options.resume if options.resume is not None else options.checkpoint
    folder = None if place is None else folder_of(place)
    if folder is None:
        yield
        return
    try:
        if options.resume is None:
            folder.mkdir(parents=True, exist_ok=True)
        lock = Lock(folder, create=options.resume is None or (folder / NAME).exists())
    except BlockingIOError:
        raise SystemFailure(
            f"the checkpoint in {place} is in use by another search: wait until that has ended, or end it"
        ) from None
    except OSError as error:
        raise SystemFailure(f"the checkpoint in {place} cannot be locked: {error.strerror or error}") from None
    try:
        yield
    finally:
        lock.release()


def encoded_constants(protocol: Model) -> dict[str, str]:
    """The constants of a protocol in the form that a manifest has."""
    return {name: encode(value).hex() for name, value in protocol.constants.items()}


class Log:
    """A file that only grows, with a running digest of its content. ``kept``: the number of bytes to keep of an
    existing file, and their digest.
    """

    def __init__(self, path: Path, kept: tuple[int, Digest] | None) -> None:
        self._file = open(path, "wb" if kept is None else "r+b")
        self._digest = running() if kept is None else kept[1].copy()
        if kept is not None:
            self._file.truncate(kept[0])
            self._file.seek(0, os.SEEK_END)

    @property
    def digest(self) -> str:
        """The digest of everything written so far."""
        return str(self._digest.hexdigest())

    def write(self, array: Array) -> None:
        """Append an array."""
        content = np.ascontiguousarray(array).data
        self._file.write(content)
        self._digest.update(content)

    def sync(self) -> None:
        """Flush the file to the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file. Errors are ignored: data that a full disk does not take was not saved."""
        with suppress(OSError):
            self._file.close()


class Writer:
    """Writes a checkpoint directory: a new one, or one that a reader has read. Raises :class:`fencepost.SystemFailure`
    when the disk cannot be written.
    """

    def __init__(self, directory: Path, reader: CheckpointReader | None) -> None:
        self.directory = directory
        self.levels: list[int] = list(reader.manifest.levels) if reader else []
        self.number = int(reader.manifest.frontier.split("-")[1].split(".")[0]) if reader else 0
        with self._disk():
            directory.mkdir(parents=True, exist_ok=True)
            if reader is None and (directory / NAME).exists():
                raise SystemFailure(
                    f"{directory} holds a checkpoint already: go on from it with {{resume}} {directory}, or name an"
                    " empty one",
                    "resume",
                )
            self.fingerprints, self.links = (
                Log(directory / name, reader.read[name] if reader else None) for name in (FINGERPRINTS, LINKS)
            )

    @contextmanager
    def _disk(self) -> Iterator[None]:
        """Turn an error of the disk into one line."""
        try:
            yield
        except OSError as error:
            raise SystemFailure(
                f"the checkpoint in {self.directory} cannot be written: {error.strerror or error}; the last complete"
                " one is kept"
            ) from error

    def add_level(self, fingerprints: list[Array], links: Array) -> None:
        """Append one level: its fingerprints (64-bit halves, in pairs with the low one first) and its links."""
        with self._disk():
            for part in fingerprints:
                self.fingerprints.write(part)
            self.links.write(links)
        self.levels.append(len(links))

    def save(self, manifest: Manifest, rows: Callable[[], Iterator[tuple[Array, Array]]]) -> None:
        """Make the levels of ``manifest`` the point to resume from. ``rows``: blocks of (numbers, rows)."""
        self.number += 1
        name = f"frontier-{self.number}.bin"
        with self._disk():
            blocks = []
            with open(self.directory / name, "wb") as file:
                for numbers, block in rows():
                    content = (numbers.tobytes(), block.tobytes())
                    file.writelines(content)
                    blocks.append(digest(*content))
                file.flush()
                os.fsync(file.fileno())
            for log in (self.fingerprints, self.links):
                log.sync()
            manifest.fingerprints, manifest.links = self.fingerprints.digest, self.links.digest
            manifest.frontier, manifest.frontier_blocks = name, blocks
            fresh = self.directory / "manifest.new"
            with open(fresh, "wb") as file:
                file.write(sealed(msgspec.json.encode(manifest)))
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, self.directory / NAME)
            sync_folder(self.directory)  # after a power failure the old manifest could be back without its frontier
            for stale in self.directory.glob("frontier-*.bin"):
                if stale.name != name:
                    stale.unlink()

    def close(self) -> None:
        """Close the files. Saved data stays."""
        for log in (self.fingerprints, self.links):
            log.close()


class CheckpointReader:
    """Reads a checkpoint directory.

    Raises :class:`fencepost.SystemFailure` if there is none, or if it is damaged, truncated, or of another protocol or
    version.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.read: dict[str, tuple[int, Digest]] = {}
        path = directory / NAME
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise SystemFailure(f"{directory} holds no complete checkpoint (there is no {NAME} in it)") from None
        except OSError as error:
            raise SystemFailure(f"{path} cannot be read: {error.strerror or error}") from None
        engine, version = header(content)
        if engine is not None:
            raise self._wrong(f"was written by the {engine} engine: go on with that one")
        if version not in (None, FORMAT):
            raise self._wrong(f"was written by another version of Fencepost (format {version}, not {FORMAT})")
        if not is_sealed(content):
            raise self._changed(NAME)
        try:
            self.manifest = msgspec.json.decode(content, type=Manifest)
        except msgspec.MsgspecError as error:
            raise self._wrong(f"is damaged: {error}") from None

    def _wrong(self, what: str) -> SystemFailure:
        return refused(self.directory, what)

    def _changed(self, name: str) -> SystemFailure:
        return self._wrong(f"is damaged: {name} is not what was written")

    def fingerprints(self) -> Iterator[Array]:
        """The fingerprints of all states, in blocks. They are verified only after the last block."""
        left = sum(self.manifest.levels) * (self.manifest.asked["bits"] // 64)
        blocks = [BLOCK] * (left // BLOCK) + [left % BLOCK]
        yield from self._log(FINGERPRINTS, np.uint64, blocks, self.manifest.fingerprints)

    def links(self) -> Iterator[Array]:
        """The links of each level. They are verified only after the last level."""
        yield from self._log(LINKS, np.int64, self.manifest.levels, self.manifest.links)

    def _log(self, name: str, dtype: Any, blocks: Iterable[int], kept: str) -> Iterator[Array]:
        whole, size = running(), 0
        try:
            with open(self.directory / name, "rb") as file:
                for count in blocks:
                    part = np.fromfile(file, dtype, count)
                    if len(part) < count:
                        raise self._wrong(f"is damaged: {name} is truncated")
                    whole.update(part)
                    size += part.nbytes
                    yield part
        except OSError as error:
            raise self._wrong(f"is damaged: {name}: {error.strerror or error}") from None
        if whole.hexdigest() != kept:
            raise self._changed(name)
        self.read[name] = size, whole

    def frontier(self) -> Iterator[tuple[Array, Array]]:
        """Blocks of the states of the last level: their numbers in the level, and their values, one column a slot."""
        kept = self.manifest
        places = np.array(kept.places, np.int32)
        left = kept.queue
        try:
            with open(self.directory / kept.frontier, "rb") as file:
                for block in kept.frontier_blocks:
                    n = min(BLOCK_ROWS, left)
                    numbers, rows = file.read(8 * n), file.read(8 * n * kept.words)
                    if len(numbers) + len(rows) < 8 * n * (1 + kept.words):
                        raise self._wrong(f"is damaged: {kept.frontier} is truncated")
                    if digest(numbers, rows) != block:
                        raise self._changed(kept.frontier)
                    yield (
                        np.frombuffer(numbers, np.int64),
                        unpacked(np.frombuffer(rows, np.uint64).reshape(n, kept.words), places),
                    )
                    left -= n
        except OSError as error:
            raise self._wrong(f"is damaged: {kept.frontier}: {error.strerror or error}") from None

    def restore(self, store: ValueTable) -> list[tuple[int, list[int]]]:
        """For each column of the frontier, its slot in ``store`` and the number there of each of its values. Raises
        :class:`fencepost.semantics.Outgrown` for a variable that the search which wrote the checkpoint had outgrown.
        """
        kept = {entry.path for entry in self.manifest.slots if entry.constant}
        own = {_path(slot): slot for slot in store.slots if slot.constant}
        for path, slot in own.items():
            if path not in kept:
                raise self._wrong(f"holds {slot.path[0]} in parts, which the search has outgrown")
        try:
            language, named = language_of(store.protocol), names_of(store)
            for path in kept - own.keys():
                written: Any = decode(bytes.fromhex(path), named)
                if language.can_be_coarser(store.protocol, variable := written[0][1]):
                    raise Outgrown(variable)
            return restore_slots(store, self.manifest.slots)
        except (ValueError, KeyError, TypeError) as error:
            raise self._wrong(f"does not fit this version of the protocol: {error}") from None


def header(manifest: bytes) -> tuple[str | None, int | None]:
    """The engine that wrote a manifest (None for this one), and its format (None if unreadable)."""
    try:
        document = msgspec.json.decode(manifest)
        return document.get("engine"), int(document["format"])
    except (msgspec.MsgspecError, AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return None, None


def slot_entries(store: ValueTable) -> list[SlotEntry]:
    """The slots of a store in the form that a manifest has."""
    entries = []
    for slot, values in zip(store.slots, store.values, strict=True):
        entries.append(SlotEntry(slot.name, [encode(v).hex() for v in values], _path(slot), slot.constant))
    return entries


def _path(slot: Slot) -> str:
    """The path of a slot in the form that a manifest has."""
    return encode(_written(slot.path)).hex()


def _written(path: tuple[Any, ...]) -> Value:
    """The path of a slot as a value: pairs of whether the part is a class, such as a kind of message, and the part. A
    class is written by its name.
    """
    return tuple((isinstance(part, type), full_name(part) if isinstance(part, type) else part) for part in path)


def restore_slots(store: ValueTable, entries: Sequence[SlotEntry]) -> list[tuple[int, list[int]]]:
    """For each slot of a manifest, its number in ``store`` and the number there of each of its values. Adds missing
    slots and values.

    Raises ValueError, KeyError or TypeError if they do not belong to this protocol.
    """
    named = names_of(store)
    constant = {_path(slot): slot for slot in store.slots if slot.constant}
    found = []
    for entry in entries:
        values = [decode(bytes.fromhex(v), named) for v in entry.values]
        slot = constant.get(entry.path)
        if slot is None:
            if entry.constant:
                raise ValueError(f"there is no {entry.name}")
            written: Any = decode(bytes.fromhex(entry.path), named)
            path = tuple(named("r", part) if is_class else part for is_class, part in written)
            slot = Slot(path, values[0], constant=False)
        index = store.slot(slot)
        found.append((index, [store.intern(index, v) for v in values]))
    return found


def names_of(store: ValueTable) -> Callable[[str, str], Any]:
    """A function that finds model values, enum members and classes of a protocol by their encoded names, and
    decodes foreign values."""
    models: dict[str, ModelValue] = {}
    classes: dict[str, type] = {}

    def collect(value: Value) -> None:
        for model in model_values_in(value):
            models.setdefault(model.name, model)

    for constant in store.protocol.constants.values():
        collect(constant)
    for slot in store.slots:
        collect(slot.path)
        collect(slot.default)

    def class_named(name: str) -> Any:
        if name not in classes:
            classes[name] = _class_named(store.protocol, name)
        return classes[name]

    def named(kind: str, name: str) -> Any:
        if kind == "m":
            return models.get(name) or ModelValue(name)
        if kind == "w":
            return language_of(store.protocol).decoded(name.encode("latin-1"), named)
        if kind == "r":
            return class_named(name)
        enum, _, member = name.rpartition(".")
        cls = class_named(enum)
        return cls(int(member)) if issubclass(cls, Flag) else cls[member]

    return named


def _class_named(protocol: Model, name: str) -> type:
    """The class that a protocol means by a full name. If a process has loaded the same file twice, it is the class that
    the protocol and its methods see. Raises ValueError if there is none.
    """
    module, _, qualified = name.rpartition(":")
    outer, *inner = qualified.split(".")
    loaded = sys.modules.get(module_of(module))
    for seen in (*_globals(protocol), vars(loaded) if loaded is not None else {}):
        cls: Any = seen.get(outer)
        for part in inner:
            cls = getattr(cls, part, None)
        if isinstance(cls, type) and full_name(cls) == name:
            return cls
    found = [c for base in (Record, Enum) for c in _below(base) if full_name(c) == name]
    if not found:
        raise ValueError(f"there is no class {name}")
    return found[-1]


def _globals(protocol: Model) -> Iterator[dict[str, Any]]:
    """The global names that a protocol's class sees, and those of its base classes and of their methods."""
    for owner in type(protocol).__mro__:
        functions = (member.function if isinstance(member, Declared) else member for member in vars(owner).values())
        yield from (function.__globals__ for function in functions if isinstance(function, FunctionType))
        yield getattr(sys.modules.get(owner.__module__), "__dict__", {})


def _below(base: type) -> Iterator[type]:
    cls: type
    for cls in type.__subclasses__(base):
        yield cls
        yield from _below(cls)
