"""Checkpoints: what it takes to go on after the process was killed, in a directory.

``fingerprints.bin`` and ``links.bin`` only ever grow, level by level. ``frontier-N.bin`` holds the rows of one whole level, and
``manifest.json``, replaced in one step, says which frontier is valid and how much of the other two: whatever was written after
it is ignored. Compiled tries are not kept: they grow again from the rows that are expanded.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from enum import Enum, Flag
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import msgspec
import numpy as np

from fencepost.compiler.layout import unpacked
from fencepost.compiler.tables import Array
from fencepost.errors import SystemFailure
from fencepost.spec.context import Slot
from fencepost.spec.protocol import Declared, Protocol
from fencepost.spec.values import ModelValue, Record, Value, decode, encode, full_name, model_values_in
from fencepost.step.state import Store
from fencepost.step.symmetry import listed

FORMAT = 4


class SlotEntry(msgspec.Struct):
    """A slot by its path, with the values it has held. ``constant``: it exists in every state, so that the protocol has it."""

    name: str
    values: list[str]
    path: str
    constant: bool


class Subject(msgspec.Struct):
    """What a checkpoint is a checkpoint of."""

    format: int
    protocol: str
    constants: dict[str, str]
    source: str
    properties: list[str]
    bits: int

    def difference(self, protocol: Protocol, properties: list[str], bits: int) -> str | None:
        """Why a run with these can not go on from it, as the rest of a sentence; None if it can."""
        if self.protocol != protocol.name:
            return f"is of the protocol {self.protocol}, not of {protocol.name}"
        constants = encoded_constants(protocol)
        for name in sorted(set(constants) | set(self.constants)):
            if constants.get(name) != self.constants.get(name):
                return f"was made with another value of the constant {name}"
        if self.source != source_digest(protocol):
            return f"is of another version of {protocol.name}: its file has changed since"
        if self.properties != properties:
            return "was made with other invariants"
        if self.bits != bits:
            return f"was made with {self.bits}-bit fingerprints, not {bits}"
        return None


class Manifest(Subject):
    """Everything about an exploration at the end of a level but its states."""

    depth: int
    distinct: int
    generated: int
    taken: list[int]
    new: list[int]
    seconds: float
    levels: list[int]
    frontier: str
    frontier_size: int
    frontier_digest: str
    words: int
    places: list[int]
    slots: list[SlotEntry]
    outcomes: list[tuple[int, list[int]]]
    found: list[tuple[str, str, int, list[int]]]
    reported: list[str]
    symmetry: list[str]


def encoded_constants(protocol: Protocol) -> dict[str, str]:
    """The constants of a protocol as a manifest keeps them."""
    return {name: encode(value).hex() for name, value in protocol.constants.items()}


def source_digest(protocol: Protocol) -> str:
    """A digest of the files that define a protocol: another version of them may number its steps differently."""
    found: dict[str, bytes] = {}
    for module in _modules(protocol):
        try:
            found[str(module.__file__)] = Path(str(module.__file__)).read_bytes()
        except OSError:
            found[str(module.__file__)] = b""
    texts = b"".join(found[file] for file in sorted(found)) or repr(type(protocol)).encode()
    return hashlib.blake2b(texts, digest_size=16).hexdigest()


def _modules(protocol: Protocol) -> list[ModuleType]:
    """The modules of a protocol's class and of the classes it varies, and those beside them that these take something from."""
    found: dict[str, ModuleType] = {}
    waiting = [sys.modules.get(owner.__module__) for owner in _owners(protocol)]
    while waiting:
        module = waiting.pop(0)
        file = getattr(module, "__file__", None)
        if module is None or file is None or file in found:
            continue
        found[file] = module
        beside = Path(file).parent
        for value in list(vars(module).values()):
            source = value if inspect.ismodule(value) else sys.modules.get(str(getattr(value, "__module__", None)))
            if Path(getattr(source, "__file__", None) or "/").parent == beside:
                waiting.append(source)
    return list(found.values())


def _owners(protocol: Protocol) -> list[type]:
    """A protocol's class and those it varies."""
    return [owner for owner in type(protocol).__mro__ if owner not in Protocol.__mro__]


class Writer:
    """A checkpoint directory being written. Raises :class:`fencepost.SystemFailure` when the disk does not take it."""

    def __init__(self, directory: Path, kept: Manifest | None) -> None:
        self.directory = directory
        self.levels: list[int] = list(kept.levels) if kept else []
        self.number = 0
        with self._disk():
            directory.mkdir(parents=True, exist_ok=True)
            if kept is None:
                if (directory / "manifest.json").exists():
                    raise SystemFailure(
                        f"{directory} holds a checkpoint already: go on from it with --resume {directory}, or name an empty one"
                    )
                mode = "wb"
            else:
                mode = "r+b"
                self.number = int(kept.frontier.split("-")[1].split(".")[0])
            self.fingerprints = open(directory / "fingerprints.bin", mode)
            self.links = open(directory / "links.bin", mode)
            if kept is not None:
                self.fingerprints.truncate(sum(kept.levels) * (kept.bits // 8))
                self.links.truncate(sum(kept.levels) * 8)
                self.fingerprints.seek(0, os.SEEK_END)
                self.links.seek(0, os.SEEK_END)

    def _disk(self) -> Any:
        return _Disk(self.directory)

    def add_level(self, fingerprints: list[Array], links: Array) -> None:
        """The fingerprints (arrays of 64-bit halves, low ones first in pairs) and links of one more level."""
        with self._disk():
            for part in fingerprints:
                self.fingerprints.write(part.tobytes())
            self.links.write(links.tobytes())
        self.levels.append(len(links))

    def save(self, manifest: Manifest, rows: Callable[[], Iterator[tuple[Array, Array]]]) -> None:
        """Make the last ``manifest.levels`` what a resumed run goes on from. ``rows``: blocks of (numbers, rows)."""
        self.number += 1
        name = f"frontier-{self.number}.bin"
        with self._disk():
            digest = hashlib.blake2b(digest_size=16)
            with open(self.directory / name, "wb") as file:
                for numbers, block in rows():
                    for part in (numbers.tobytes(), block.tobytes()):
                        file.write(part)
                        digest.update(part)
                file.flush()
                os.fsync(file.fileno())
            for log in (self.fingerprints, self.links):
                log.flush()
                os.fsync(log.fileno())
            manifest.frontier, manifest.frontier_digest = name, digest.hexdigest()
            fresh = self.directory / "manifest.new"
            with open(fresh, "wb") as file:
                file.write(msgspec.json.encode(manifest))
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, self.directory / "manifest.json")
            for stale in self.directory.glob("frontier-*.bin"):
                if stale.name != name:
                    stale.unlink()

    def close(self) -> None:
        """Close the files; what was saved stays, and what a full disk does not take was not."""
        for log in (self.fingerprints, self.links):
            with suppress(OSError):
                log.close()


class _Disk:
    """Turns what the disk refuses into one line."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, OSError):
            raise SystemFailure(
                f"the checkpoint in {self.directory} can not be written: {error.strerror or error}; the last complete one is kept"
            ) from error


BLOCK_ROWS = 1 << 16
"""Rows of a frontier are kept in blocks of this many: their numbers, then their words."""


class Reader:
    """A checkpoint directory being read.

    Raises :class:`fencepost.SystemFailure` if it is no checkpoint, damaged, truncated, or of another protocol or version.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        path = directory / "manifest.json"
        try:
            self.manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
        except FileNotFoundError:
            raise SystemFailure(f"{directory} holds no complete checkpoint (there is no manifest.json in it)") from None
        except OSError as error:
            raise SystemFailure(f"{path} can not be read: {error.strerror or error}") from None
        except msgspec.MsgspecError as error:
            version = _format_of(path)
            if version not in (None, FORMAT):
                raise self._wrong(f"was written by another version of Fencepost (format {version}, not {FORMAT})") from None
            raise self._wrong(f"is damaged: {error}") from None
        if self.manifest.format != FORMAT:
            raise self._wrong(f"was written by another version of Fencepost (format {self.manifest.format}, not {FORMAT})")

    def _wrong(self, what: str) -> SystemFailure:
        return SystemFailure(f"the checkpoint in {self.directory} {what}; start again without --resume")

    def verify(self, protocol: Protocol, properties: list[str], bits: int, symmetry: list[str]) -> None:
        """Refuse to go on with another protocol, other constants, other properties, other fingerprints or another symmetry."""
        kept = self.manifest
        difference = kept.difference(protocol, properties, bits)
        if difference is not None:
            raise self._wrong(difference)
        if kept.symmetry != symmetry:
            raise self._wrong(f"was made with symmetry of {listed(kept.symmetry) or 'nothing'}, not of {listed(symmetry) or 'nothing'}")

    def fingerprints(self) -> Iterator[Array]:
        """The fingerprints of all states, in blocks."""
        yield from self._blocks("fingerprints.bin", sum(self.manifest.levels) * (self.manifest.bits // 64), np.uint64)

    def links(self) -> Iterator[Array]:
        """The links of each level."""
        begin = 0
        for size in self.manifest.levels:
            yield from self._blocks("links.bin", size, np.int64, begin, max(size, 1))
            begin += size

    def _blocks(self, name: str, count: int, dtype: Any, begin: int = 0, block: int = 1 << 20) -> Iterator[Array]:
        try:
            with open(self.directory / name, "rb") as file:
                file.seek(begin * 8)
                while count:
                    part = np.fromfile(file, dtype, min(block, count))
                    if not len(part):
                        raise self._wrong(f"is damaged: {name} is truncated")
                    count -= len(part)
                    yield part
        except OSError as error:
            raise self._wrong(f"is damaged: {name}: {error.strerror or error}") from None

    def frontier(self) -> Iterator[tuple[Array, Array]]:
        """The states of the last level, one column a slot, with their numbers in it, in blocks."""
        kept = self.manifest
        places = np.array(kept.places, np.int32)
        digest = hashlib.blake2b(digest_size=16)
        left = kept.frontier_size
        try:
            with open(self.directory / kept.frontier, "rb") as file:
                while left:
                    n = min(BLOCK_ROWS, left)
                    raw_numbers, raw_rows = file.read(8 * n), file.read(8 * n * kept.words)
                    digest.update(raw_numbers)
                    digest.update(raw_rows)
                    if len(raw_numbers) + len(raw_rows) < 8 * n * (1 + kept.words):
                        raise self._wrong(f"is damaged: {kept.frontier} is truncated")
                    rows = np.frombuffer(raw_rows, np.uint64).reshape(n, kept.words)
                    yield np.frombuffer(raw_numbers, np.int64), unpacked(rows, places)
                    left -= n
        except OSError as error:
            raise self._wrong(f"is damaged: {kept.frontier}: {error.strerror or error}") from None
        if digest.hexdigest() != kept.frontier_digest:
            raise self._wrong(f"is damaged: {kept.frontier} is not what was written")

    def restore(self, store: Store) -> list[tuple[int, list[int]]]:
        """For each column of the frontier: its slot in ``store`` and the number there of each of its values."""
        try:
            return restore_slots(store, self.manifest.slots)
        except (ValueError, KeyError, TypeError) as error:
            raise self._wrong(f"does not fit this version of the protocol: {error}") from None


def _format_of(path: Path) -> int | None:
    try:
        held = msgspec.json.decode(path.read_bytes())
        return int(held["format"])
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError, OSError):
        return None


def slot_entries(store: Store) -> list[SlotEntry]:
    """The slots of a store as a manifest keeps them."""
    entries = []
    for slot, values in zip(store.slots, store.values, strict=True):
        path = encode(_written(slot.path)).hex()
        entries.append(SlotEntry(slot.name, [encode(v).hex() for v in values], path, slot.constant))
    return entries


def _written(path: tuple[Any, ...]) -> Value:
    """The path of a slot as a value: for each part whether it is a class, such as a kind of message, which is then written by its name."""
    return tuple((isinstance(part, type), full_name(part) if isinstance(part, type) else part) for part in path)


def restore_slots(store: Store, entries: Sequence[SlotEntry]) -> list[tuple[int, list[int]]]:
    """For each of a manifest's slots: its number in ``store`` and the number there of each of its values; what is missing is added.

    Raises ValueError, KeyError or TypeError if they are not of this protocol.
    """
    named = names_of(store)
    constant = {encode(_written(slot.path)).hex(): slot for slot in store.slots if slot.constant}
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


def names_of(store: Store) -> Callable[[str, str], Any]:
    """Finds the model values, enum members and classes of a protocol by the names by which they are encoded."""
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
        if kind == "r":
            return class_named(name)
        enum, _, member = name.rpartition(".")
        cls = class_named(enum)
        return cls(int(member)) if issubclass(cls, Flag) else cls[member]

    return named


def _class_named(protocol: Protocol, name: str) -> type:
    """The class that a protocol means by a full name. A process may have loaded the same file twice: it is the one that the protocol's own
    methods see, or else its modules. Raises ValueError if there is none.
    """
    module, _, qualified = name.rpartition(":")
    outer, *inner = qualified.split(".")
    loaded = sys.modules.get(module)
    for seen in (*_globals(protocol), *map(vars, _modules(protocol)), vars(loaded) if loaded is not None else {}):
        cls: Any = seen.get(outer)
        for part in inner:
            cls = getattr(cls, part, None)
        if isinstance(cls, type) and full_name(cls) == name:
            return cls
    found = [c for base in (Record, Enum) for c in _below(base) if full_name(c) == name]
    if not found:
        raise ValueError(f"there is no class {name}")
    return found[-1]


def _globals(protocol: Protocol) -> Iterator[dict[str, Any]]:
    """What the methods of a protocol see around them, class by class."""
    for owner in _owners(protocol):
        functions = (member.function if isinstance(member, Declared) else member for member in vars(owner).values())
        yield from (function.__globals__ for function in functions if isinstance(function, FunctionType))


def _below(base: type) -> Iterator[type]:
    cls: type
    for cls in type.__subclasses__(base):
        yield cls
        yield from _below(cls)
