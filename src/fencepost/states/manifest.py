"""The manifest of a state space that was written: of which protocol it is, what its columns are, whether it is
whole.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from fencepost.behaviours.words import constant_text
from fencepost.checker.engines.checkpoint import encoded_constants, names_of
from fencepost.errors import SystemFailure
from fencepost.files.storage import Storage, open_storage
from fencepost.language import loading
from fencepost.language.decoding import decode
from fencepost.language.loading import SHIPPED
from fencepost.language.protocol import Protocol
from fencepost.language.source import source_digest
from fencepost.semantics.state import ValueTable
from fencepost.states.kinds import Kind
from fencepost.version import VERSION

SCHEMA = 3
"""The version of what the files hold and how."""

NAME = "manifest.json"

FIXED = {"fingerprint": "int", "depth": "int", "parent": "int", "action": "text", "parameters": "text"}
"""The columns of ``states`` that every protocol has, each with its kind; then come the parts of the state."""

EDGES = {"source": "int", "target": "int", "action": "text", "parameters": "text"}
"""The columns of ``edges``."""


class About(msgspec.Struct):
    """The part that is known before anything is explored; it is in the metadata of every file too.

    ``home`` is what :func:`fencepost.language.loading.load` finds the protocol by, ``source`` a digest of its file,
    ``constants`` are encoded, and ``shown`` are the same for people.
    """

    schema: int
    fencepost: str
    protocol: str
    home: str
    source: str
    constants: dict[str, str]
    shown: dict[str, str]


class File(msgspec.Struct, frozen=True):
    """A file of a table. ``digest`` is that of its bytes; see :mod:`fencepost.files.digest`."""

    name: str
    rows: int
    bytes: int
    digest: str


class Manifest(About):
    """The whole manifest. ``columns``: the kind of each column of ``states``; see `kinds`. ``files``: those of each
    table.

    ``edges`` is how many there are, None if they were not asked for. Unless ``complete``, ``ended`` says what ended the
    search.
    """

    complete: bool
    ended: str | None
    states: int
    edges: int | None
    depth: int
    columns: dict[str, Kind]
    files: dict[str, list[File]]


def about(protocol: Protocol) -> dict[str, Any]:
    """The fields of :class:`About` for a protocol."""
    return {
        "schema": SCHEMA,
        "fencepost": VERSION,
        "protocol": protocol.name,
        "home": _locator(type(protocol)),
        "source": source_digest(protocol),
        "constants": encoded_constants(protocol),
        "shown": {name: constant_text(value) for name, value in protocol.constants.items()},
    }


def _locator(protocol: type[Protocol]) -> str:
    if SHIPPED.get(protocol.name) == f"{protocol.__module__}:{protocol.__qualname__}":
        return protocol.name
    try:
        return f"{os.path.abspath(inspect.getfile(protocol))}:{protocol.__qualname__}"
    except (OSError, TypeError):
        return ""


class StateSpace:
    """A state space in a directory, or at a URL.

    Raises :class:`fencepost.SystemFailure` if there is none, or none that this version of Fencepost can read.
    """

    def __init__(self, directory: Path | str) -> None:
        self.directory = directory
        self._compared: set[str] = set()
        content = open_storage(directory).load(NAME)
        if content is None:
            raise SystemFailure(
                f"{directory} holds no state space: there is no {NAME} in it (fencepost check PROTOCOL --states"
                f" {directory} makes one)"
            )
        try:
            held = json.loads(content)
            schema = held.get("schema")
            if schema != SCHEMA:
                raise SystemFailure(
                    f"{directory} was written by another version of Fencepost (schema {schema}, not {SCHEMA}): check"
                    " again"
                )
            self.manifest = msgspec.convert(held, Manifest)
        except (ValueError, AttributeError, msgspec.MsgspecError) as error:
            raise SystemFailure(f"{directory}/{NAME} is no manifest of a state space: {error}") from None

    @property
    def title(self) -> str:
        """The protocol with its constants, for people."""
        given = "  ".join(f"{name}={value}" for name, value in self.manifest.shown.items())
        return f"{self.manifest.protocol}  {given}".strip()

    @property
    def parts(self) -> dict[str, Kind]:
        """The columns that are parts of the state, each with its kind."""
        return {name: kind for name, kind in self.manifest.columns.items() if name not in FIXED}

    def files(self, table: str) -> list[str]:
        """The files of ``states`` or ``edges``, and no others that may be there: absolute, since Spark stays in the
        directory that it was started in.

        Raises :class:`fencepost.SystemFailure` if one is missing, or is not what was written: on this machine to the
        byte. At a URL only sizes are looked at, since Spark compares the checksum of every page that it reads.
        """
        storage = open_storage(self.directory).below(table)
        files = self.manifest.files.get(table, [])
        sizes = storage.sizes()
        for file in files:
            if sizes.get(file.name) != file.bytes:
                raise self._damaged(table, file, "is not what was written" if file.name in sizes else "is missing")
        if not storage.is_remote:
            self._compare(storage, table, files)
        return [f"{storage.place}/{file.name}" for file in files]

    def _compare(self, storage: Storage, table: str, files: Sequence[File]) -> None:
        """Compare the digests of files, once for each table."""
        if table in self._compared:
            return
        with ThreadPoolExecutor(os.cpu_count()) as threads:  # a digest leaves Python to the others
            for file, found in zip(files, threads.map(lambda file: storage.digest(file.name), files), strict=True):
                if found != file.digest:
                    raise self._damaged(table, file, "is not what was written")
        self._compared.add(table)

    def _damaged(self, table: str, file: File, what: str) -> SystemFailure:
        return SystemFailure(f"{self.directory} is damaged: {table}/{file.name} {what}; check again")

    def dataset(self, table: str) -> Any:
        """``states`` or ``edges`` as a data set of pyarrow's. Raises as :meth:`files`."""
        from pyarrow import dataset

        files, folder = open_storage(self.directory).below(table).arrow()
        names = [f"{folder}/{name.rpartition('/')[2]}" for name in self.files(table)]
        return dataset.dataset(names, format="parquet", filesystem=files)

    def protocol(self) -> Protocol:
        """The protocol that was explored, with its constants.

        Raises :class:`fencepost.SystemFailure` if its file is gone or has changed since.
        """
        kept = self.manifest
        if not kept.home:
            raise SystemFailure(
                f"{self.directory} is of {kept.protocol}, which was defined in no file, so nothing can be replayed"
            )
        cls = loading.load(kept.home)
        if source_digest(cls()) != kept.source:
            where = kept.home.partition(".py:")[0] + ".py" if ".py:" in kept.home else kept.home
            raise SystemFailure(
                f"the source of {kept.protocol} in {where} has changed since {self.directory} was written: check it"
                " again with {states}",
                "states",
            )
        named = names_of(ValueTable(cls()))
        return cls(**{name: decode(bytes.fromhex(code), named) for name, code in kept.constants.items()})


def constants_that_differ(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """The names of the constants that two state spaces do not share."""
    return [name for name in {**one, **other} if one.get(name) != other.get(name)]
