"""What it takes to go on with a search on Spark after its driver was killed: a manifest that names files.

``manifest.json`` is replaced in one step. It names the pieces of one level, the runs of every target, and the compiled
tables, which are kept as they are: what they number keeps its number, so pieces and runs stay valid. A file that it
does not name does not count.

The manifest has the digest of each file, which the task that wrote it has told, and its own. A search that goes on
reads all of them once before it believes anything.
"""

from __future__ import annotations

import msgspec

from fencepost.digest import digest, is_sealed
from fencepost.engines.checkpoint import Saved, header
from fencepost.errors import SystemFailure
from fencepost.spark.level import Piece, Run, Shape
from fencepost.spark.notes import Note
from fencepost.states.writer import Mark
from fencepost.storage import Storage

FORMAT = 3
NAME = "manifest.json"


class Manifest(Saved, kw_only=True):
    """Everything about a search at the end of a level, and where its states are. ``table``: the one that they are also
    written to.
    """

    engine: str
    level: int
    queue: int
    shapes: list[Shape]
    pieces: list[Piece]
    runs: list[list[Run]]
    tables: str
    tables_digest: str
    table: Mark | None = None
    notes: list[list[Note]] = []

    @property
    def files(self) -> dict[str, str]:
        """The files that must stay, with their digests."""
        found = {self.tables: self.tables_digest}
        found |= {piece.file: piece.digest for piece in self.pieces}
        found |= {run.file: run.digest for runs in self.runs for run in runs}
        for level in self.notes:
            for note in level:
                found |= note.files
        return found


def refused(storage: Storage, why: str) -> SystemFailure:
    """A checkpoint that can not be gone on from."""
    return SystemFailure(f"the checkpoint in {storage.place} {why}; start again without {{resume}}", "resume")


def read(storage: Storage) -> Manifest:
    """The manifest in a storage. Raises :class:`fencepost.SystemFailure` if there is none, or it is none of ours."""
    content = storage.load(NAME)
    if content is None:
        raise SystemFailure(f"{storage.place} holds no complete checkpoint (there is no {NAME} in it)")
    engine, version = header(content)
    if version is not None and engine != "spark":
        raise refused(storage, "was written by the embedded engine: go on with that one")
    if version not in (None, FORMAT):
        raise refused(storage, f"was written by another version of Fencepost (format {version}, not {FORMAT})")
    if not is_sealed(content):
        raise refused(storage, f"is damaged: {NAME} is not what was written")
    try:
        return msgspec.json.decode(content, type=Manifest)
    except msgspec.MsgspecError as error:
        raise refused(storage, f"is damaged: {error}") from None


def tables(storage: Storage, manifest: Manifest) -> dict[str, object]:
    """The compiled tables that a manifest names."""
    content = storage.load(manifest.tables)
    if content is None or digest(content) != manifest.tables_digest:
        raise refused(storage, f"is damaged: {manifest.tables} is not what was written")
    kept: dict[str, object] = msgspec.msgpack.decode(content)
    return kept
