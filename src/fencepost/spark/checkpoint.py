"""The checkpoint of a search on Spark: a manifest that names files. A search whose driver was killed resumes from it.

``manifest.json`` is replaced atomically. It names the frontier files of one level, the visited runs of every owner, and
the compiled tables. The tables keep the numbers of all values, so rows and runs stay valid. Files that the manifest
does not name are ignored.

The manifest has its own digest and the digest of each file, as reported by the task that wrote it. A resumed search
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

FORMAT = 6


class Manifest(Saved, kw_only=True):
    """Everything about a search at the end of a level, and the files of its states. ``table``: the table to which the
    states are written too. ``recording``: the files with the steps of each level, for liveness.
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
        """The files to keep, with their digests."""
        found = {self.tables: self.tables_digest}
        found |= {file.file: file.digest for file in self.frontier}
        found |= {run.file: run.digest for runs in self.runs for run in runs}
        for level in self.recording:
            for record in level:
                found |= record.files
        return found


def read(storage: Storage) -> Manifest:
    """Read the manifest of a storage. Raises :class:`fencepost.SystemFailure` if it has none of this engine."""
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
