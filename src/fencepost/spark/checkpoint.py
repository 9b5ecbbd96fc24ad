"""The checkpoint of a search on Spark, from which the search is resumed after its driver was killed: a manifest that
names files.

``manifest.json`` is replaced in one step. The manifest names the frontier files of one level, the visited runs of every
owner, and the compiled tables, which are kept as they are: the values that the tables number keep their numbers, so
rows and runs stay valid. A file that the manifest does not name does not count.

The manifest has the digest of each file, which the task that wrote the file has reported, and its own. A resumed search
reads all files once before it goes on.
"""

from __future__ import annotations

import msgspec

from fencepost.checker.engines.checkpoint import NAME, Saved, header, refused
from fencepost.errors import SystemFailure
from fencepost.files.digest import digest, is_sealed
from fencepost.files.storage import Storage
from fencepost.spark.level import FrontierFile, RowLayout, Run
from fencepost.spark.recording import RecordFile
from fencepost.states.writer import Mark

FORMAT = 4


class Manifest(Saved, kw_only=True):
    """Everything about a search at the end of a level, and the files of its states. ``table``: the table that the
    states are also written to; ``recording``: the files of each level's steps, for liveness.
    """

    engine: str
    level: int
    layouts: list[RowLayout] = msgspec.field(name="shapes")
    frontier: list[FrontierFile] = msgspec.field(name="pieces")
    runs: list[list[Run]]
    tables: str
    tables_digest: str
    table: Mark | None = None
    recording: list[list[RecordFile]] = msgspec.field(name="notes", default_factory=list)

    @property
    def files(self) -> dict[str, str]:
        """The files that must stay, with their digests."""
        found = {self.tables: self.tables_digest}
        found |= {file.file: file.digest for file in self.frontier}
        found |= {run.file: run.digest for runs in self.runs for run in runs}
        for level in self.recording:
            for record in level:
                found |= record.files
        return found


def read(storage: Storage) -> Manifest:
    """The manifest in a storage. Raises :class:`fencepost.SystemFailure` if there is none, or none of this engine."""
    content = storage.load(NAME)
    if content is None:
        raise SystemFailure(f"{storage.place} holds no complete checkpoint (there is no {NAME} in it)")
    engine, version = header(content)
    if version is not None and engine != "spark":
        raise refused(storage.place, "was written by the embedded engine: go on with that one")
    if version not in (None, FORMAT):
        raise refused(storage.place, f"was written by another version of Fencepost (format {version}, not {FORMAT})")
    if not is_sealed(content):
        raise refused(storage.place, f"is damaged: {NAME} is not what was written")
    try:
        return msgspec.json.decode(content, type=Manifest)
    except msgspec.MsgspecError as error:
        raise refused(storage.place, f"is damaged: {error}") from None


def tables(storage: Storage, manifest: Manifest) -> dict[str, object]:
    """The compiled tables that a manifest names."""
    content = storage.load(manifest.tables)
    if content is None or digest(content) != manifest.tables_digest:
        raise refused(storage.place, f"is damaged: {manifest.tables} is not what was written")
    kept: dict[str, object] = msgspec.msgpack.decode(content)
    return kept
