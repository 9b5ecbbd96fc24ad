"""The files of an export. It is one flat folder, local or of any file system that PyArrow reaches by URL.

- ``ledger-ID-FIRST.entries`` is a chunk: eight bytes that name the format, then the entries from FIRST on, each after
  its length in four bytes, big endian. An entry is as bookies store it, with its digest
  (:mod:`fencepost.ledger.entries`).
- ``ledger-ID.json`` is the manifest of a ledger, written when all its chunks are there: its metadata, without the
  bookies, and the size and the SHA-256 digest of each chunk.
- ``export.json`` is written last: the digest of each manifest. Without it the export is incomplete.

Both kinds of JSON are sealed with a digest of themselves. Manifests contain the passwords of ledgers, as the metadata
do.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from fencepost.errors import SystemFailure
from fencepost.files.digest import digest, is_sealed, sealed
from fencepost.files.folders import OsFiles, replace
from fencepost.files.storage import Storage, reason
from fencepost.ledger.rules.ensembles import Fragment
from fencepost.ledger.rules.metadata import DigestType, LedgerMetadata, LedgerStatus

MAGIC = b"FPENTRY1"
INDEX = "export.json"
FORMAT = 1
_LENGTH = struct.Struct(">I")
PER_ENTRY = _LENGTH.size + 32
"""The bytes of a chunk for each entry, besides its digest and its data: its length and its header."""
_OURS = re.compile(r"(export\.json|ledger-\d+(\.json|-\d{20}\.entries))(\.new)?")


class Chunk(msgspec.Struct, frozen=True):
    """A file of entries ``first`` to ``last``, its size in bytes, and its digest."""

    name: str
    first: int
    last: int
    size: int
    digest: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A closed ledger of the cluster with this instance id. Bytes are in base64."""

    format: int = FORMAT
    cluster: str
    ledger: int
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    digest_type: str
    password: bytes | None
    custom_metadata: tuple[tuple[str, bytes], ...]
    creation_time: int | None
    format_version: int
    last_entry: int
    length: int
    chunks: tuple[Chunk, ...] = ()

    @classmethod
    def of(cls, cluster: str, ledger: int, metadata: LedgerMetadata) -> Manifest:
        """The manifest of a closed ledger, without its chunks."""
        same = {name: getattr(metadata, name) for name in _SAME}
        return cls(cluster=cluster, ledger=ledger, digest_type=metadata.digest_type.name.lower(), **same)

    @property
    def digests(self) -> DigestType:
        """The digest of the entries."""
        return DigestType[self.digest_type.upper()]

    def describes(self, metadata: LedgerMetadata) -> bool:
        """Whether metadata are of this ledger, perhaps on other bookies and created at another time."""
        names = _SAME - {"creation_time", "format_version", "custom_metadata"}
        return (
            metadata.status is LedgerStatus.CLOSED
            and metadata.digest_type is self.digests
            and dict(metadata.custom_metadata) == dict(self.custom_metadata)
            and all(getattr(metadata, name) == getattr(self, name) for name in names)
        )

    @property
    def metadata(self) -> LedgerMetadata:
        """Metadata of the ledger, in which each chunk is a fragment without bookies."""
        same = {name: getattr(self, name) for name in _SAME}
        return LedgerMetadata(
            fragments=tuple(Fragment(chunk.first, ()) for chunk in self.chunks) or (Fragment(0, ()),),
            status=LedgerStatus.CLOSED,
            digest_type=self.digests,
            **same,
        )

    @property
    def problem(self) -> str:
        """What contradicts itself; empty if nothing does."""
        if self.digest_type.upper() not in DigestType.__members__:
            return f"there is no digest {self.digest_type}"
        following = 0
        for chunk in self.chunks:
            if (
                chunk.first != following
                or chunk.last < chunk.first
                or chunk.name != chunk_name(self.ledger, chunk.first)
            ):
                return f"{chunk.name} does not follow"
            following = chunk.last + 1
        if following != self.last_entry + 1:
            return f"its chunks end at entry {following - 1}, and the ledger at entry {self.last_entry}"
        return ""


_SAME = frozenset(
    {"ensemble_size", "write_quorum", "ack_quorum", "password", "custom_metadata", "creation_time", "format_version",
     "last_entry", "length"}
)  # fmt: skip
"""Fields that have the same name in metadata and manifest."""


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """The ledgers of an export, each with the digest of its manifest."""

    format: int = FORMAT
    cluster: str
    ledgers: dict[int, str]


S = TypeVar("S", Manifest, Index)


def manifest_name(ledger: int) -> str:
    """The file of a ledger's manifest."""
    return f"ledger-{ledger}.json"


def chunk_name(ledger: int, first: int) -> str:
    """The file of the entries from ``first`` on."""
    return f"ledger-{ledger}-{first:020}.entries"


# -- writing and reading files -----------------------------------------------------------------------------------------


def put(storage: Storage, name: str, content: bytes) -> None:
    """Write a file as a whole. A local one is durable, is for its owner and group alone, and replaces another one
    atomically. An object store shows a file only when it is whole.

    Raises :class:`fencepost.SystemFailure`.
    """
    if storage.is_remote:
        storage.write(name, content)
        return
    try:
        replace(OsFiles(storage.place), name, content)
    except OSError as error:
        raise SystemFailure(f"{storage.where(name)} cannot be written: {reason(error)}") from error


def encoded(document: Manifest | Index) -> bytes:
    """The content of a sealed file."""
    return sealed(msgspec.json.encode(document)) + b"\n"


def load(storage: Storage, name: str, kind: type[S]) -> tuple[S, str] | None:
    """A manifest or an index, and the digest of its file; None if it is missing.

    Raises :class:`fencepost.SystemFailure`, which names what is wrong.
    """
    content = storage.load(name)
    if content is None:
        return None
    where = storage.where(name)
    if not content.endswith(b"\n") or not is_sealed(content[:-1]):
        raise SystemFailure(f"{where} is damaged: it is not what was written")
    try:
        version = msgspec.json.decode(content, type=dict[str, msgspec.Raw]).get("format", msgspec.Raw(b"?"))
        if bytes(version) != str(FORMAT).encode():
            raise SystemFailure(f"{where} has the format {bytes(version).decode()}, and this version reads {FORMAT}")
        return msgspec.json.decode(content, type=kind), digest(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SystemFailure(f"{where} is of another kind than its name says: {error}") from error


def stranger(names: Iterable[str]) -> str | None:
    """The first file that is of no export."""
    return next((name for name in sorted(names) if not _OURS.fullmatch(name)), None)


# -- chunks ------------------------------------------------------------------------------------------------------------


class Chunks:
    """Gathers entries to chunks, and writes a chunk once it has ``most`` bytes."""

    def __init__(self, storage: Storage, ledger: int, most: int) -> None:
        self.storage = storage
        self.ledger = ledger
        self.most = most
        self.written: list[Chunk] = []
        self._parts: list[bytes] = [MAGIC]
        self._size = len(MAGIC)
        self._first = 0
        self._next = 0

    @property
    def is_full(self) -> bool:
        """Whether it is time to :meth:`flush`."""
        return self._size >= self.most

    def add(self, body: bytes) -> None:
        """Add the next entry."""
        self._parts += (_LENGTH.pack(len(body)), body)
        self._size += _LENGTH.size + len(body)
        self._next += 1

    def flush(self) -> None:
        """Write the entries that were added since the last chunk, if there are any."""
        if self._next == self._first:
            return
        content, name = b"".join(self._parts), chunk_name(self.ledger, self._first)
        put(self.storage, name, content)
        self.written.append(Chunk(name, self._first, self._next - 1, len(content), digest(content)))
        self._parts, self._size, self._first = [MAGIC], len(MAGIC), self._next


def read_chunk(storage: Storage, chunk: Chunk) -> Iterator[tuple[int, bytes]]:
    """The entries of a chunk, each with its id. Raises :class:`fencepost.SystemFailure` before the first one if any
    byte is not what was written.
    """
    where, content = storage.where(chunk.name), storage.load(chunk.name)
    if content is None:
        raise SystemFailure(f"{where} is missing")
    if len(content) != chunk.size:
        raise SystemFailure(f"{where} is damaged: it has {len(content):,} bytes, and {chunk.size:,} were written")
    if digest(content) != chunk.digest or not content.startswith(MAGIC):
        raise SystemFailure(f"{where} is damaged: it is not what was written")
    return _entries(content, chunk, where)


def _entries(content: bytes, chunk: Chunk, where: str) -> Iterator[tuple[int, bytes]]:
    at = len(MAGIC)
    for entry_id in range(chunk.first, chunk.last + 1):
        if at + _LENGTH.size > len(content):
            raise SystemFailure(f"{where} ends before entry {entry_id}")
        (length,) = _LENGTH.unpack_from(content, at)
        at += _LENGTH.size
        if at + length > len(content):
            raise SystemFailure(f"{where} ends within entry {entry_id}")
        yield entry_id, content[at : at + length]
        at += length
    if at != len(content):
        raise SystemFailure(f"{where} has {len(content) - at:,} bytes after its last entry")
