"""The manifest of a written state space: its protocol, its columns, its files, and whether it is complete."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from fencepost.checker.engines.checkpoint import encoded_constants, names_of
from fencepost.errors import SystemFailure
from fencepost.files.storage import Storage, open_storage
from fencepost.language import loading
from fencepost.language.decoding import decode
from fencepost.language.seam import Model, language_of
from fencepost.language.values import constant_text
from fencepost.semantics.state import ValueTable
from fencepost.states.kinds import Kind
from fencepost.version import VERSION

SCHEMA = 3
"""The version of the format of the files."""

NAME = "manifest.json"

FIXED = {"fingerprint": "int", "depth": "int", "parent": "int", "action": "text", "parameters": "text"}
"""The columns of ``states`` that every protocol has, with their kinds. The parts of the state follow."""

EDGES = {"source": "int", "target": "int", "action": "text", "parameters": "text"}
"""The columns of ``edges``."""


class About(msgspec.Struct, kw_only=True):
    """The part that is known before the search. It is also in the metadata of every file.

    ``home`` is the argument with which :func:`fencepost.language.loading.find` loads the protocol. ``source`` is a
    digest of its file. ``constants`` are encoded. ``shown`` has them as text. ``words``: see
    :meth:`fencepost.language.seam.Language.words`.
    """

    schema: int
    fencepost: str
    protocol: str
    home: str
    source: str
    constants: dict[str, str]
    shown: dict[str, str]
    words: list[str] = []


class File(msgspec.Struct, frozen=True):
    """A file of a table. ``digest`` is the digest of its bytes: see :mod:`fencepost.files.digest`."""

    name: str
    rows: int
    bytes: int
    digest: str


class Manifest(About, kw_only=True):
    """The whole manifest. ``columns``: the kind of each column of ``states`` (see `kinds`). ``files``: the files of
    each table.

    ``edges``: their number, or None if they were not requested. Unless ``complete``, ``ended`` says what ended the
    search.
    """

    complete: bool
    ended: str | None
    states: int
    edges: int | None
    depth: int
    columns: dict[str, Kind]
    files: dict[str, list[File]]


def about(protocol: Model) -> dict[str, Any]:
    """The fields of :class:`About` for a protocol."""
    return {
        "schema": SCHEMA,
        "fencepost": VERSION,
        "protocol": protocol.name,
        "home": language_of(protocol).home(protocol),
        "source": language_of(protocol).digest(protocol),
        "constants": encoded_constants(protocol),
        "shown": {name: constant_text(value) for name, value in protocol.constants.items()},
        "words": language_of(protocol).words(protocol),
    }


_MADE = "(fencepost check PROTOCOL --states {} makes one)"


class StateSpace:
    """A state space in a directory, or at a URL.

    Raises :class:`fencepost.SystemFailure` if there is none that this version of Fencepost can read.
    """

    def __init__(self, directory: Path | str) -> None:
        self.directory = directory
        self._compared: set[str] = set()
        if os.path.isfile(directory):
            raise SystemFailure(f"{directory} is a file, and no folder of a state space {_MADE.format('FOLDER')}")
        content = open_storage(directory).load(NAME)
        if content is None:
            raise SystemFailure(f"{directory} holds no state space: there is no {NAME} in it {_MADE.format(directory)}")
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
        constants = "  ".join(f"{name}={value}" for name, value in self.manifest.shown.items())
        return f"{self.manifest.protocol}  {constants}".strip()

    @property
    def parts(self) -> dict[str, Kind]:
        """The columns that are parts of the state, with their kinds."""
        return {name: kind for name, kind in self.manifest.columns.items() if name not in FIXED}

    def files(self, table: str) -> list[str]:
        """The listed files of ``states`` or ``edges``. The paths are absolute, since Spark keeps the working directory
        of its start.

        Raises :class:`fencepost.SystemFailure` if one is missing or damaged. Local files are compared by digest. At a
        URL only sizes are compared, since Spark verifies the checksum of every page that it reads.
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
        """Verify the digests of files, once for each table."""
        if table in self._compared:
            return
        with ThreadPoolExecutor(os.cpu_count()) as threads:  # computing a digest releases the GIL
            for file, digest in zip(files, threads.map(lambda file: storage.digest(file.name), files), strict=True):
                if digest != file.digest:
                    raise self._damaged(table, file, "is not what was written")
        self._compared.add(table)

    def _damaged(self, table: str, file: File, what: str) -> SystemFailure:
        return SystemFailure(f"{self.directory} is damaged: {table}/{file.name} {what}; check again")

    def dataset(self, table: str) -> Any:
        """``states`` or ``edges`` as a data set of pyarrow. Raises as :meth:`files` does."""
        from pyarrow import dataset

        files, folder = open_storage(self.directory).below(table).arrow()
        names = [f"{folder}/{name.rpartition('/')[2]}" for name in self.files(table)]
        return dataset.dataset(names, format="parquet", filesystem=files)

    def protocol(self) -> Model:
        """The explored protocol, with its constants.

        Raises :class:`fencepost.SystemFailure` if its file has been removed or changed.
        """
        kept = self.manifest
        if not kept.home:
            raise SystemFailure(
                f"{self.directory} is of {kept.protocol}, which was defined in no file, so nothing can be replayed"
            )
        loaded = loading.find(kept.home)
        unset = loading.given(kept.words) if kept.words else loaded.configured()
        if language_of(unset).digest(unset) != kept.source:
            where = kept.home.partition(".py:")[0] + ".py" if ".py:" in kept.home else kept.home
            raise SystemFailure(
                f"the source of {kept.protocol} in {where} has changed since {self.directory} was written: check it"
                " again with {states}",
                "states",
            )
        if kept.words:
            return unset
        named = names_of(ValueTable(unset))
        return loaded.configured(**{name: decode(bytes.fromhex(code), named) for name, code in kept.constants.items()})


def constants_that_differ(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """The names of the constants whose values differ between two state spaces."""
    return [name for name in {**one, **other} if one.get(name) != other.get(name)]
