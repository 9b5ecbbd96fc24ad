"""The folder of traces: which files are in it, and whose they are.

``RUN@NODE@INCARNATION@PART.parquet`` are events in their order, a part after the other; other Parquet files may lie
beside them. ``_spool`` holds the same by ``.spool`` as long as they are written, or their writer was killed. ``_run``
is the name of the run that goes on, for writers that are given none. Whoever reads folders of Parquet passes over names
that begin with an underscore or a dot.
"""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import NamedTuple

from fencepost.traces.event import TraceError

SPOOL, RUN = "_spool", "_run"
LONGEST_NAME = 80
"""Characters of the name of a run or a node, once those that file names cannot have are written otherwise."""

_ODD = re.compile(r"[^A-Za-z0-9._-]")


class Name(NamedTuple):
    """The name of a file of one incarnation: ``stem`` tells run and node."""

    stem: str
    incarnation: int
    part: int

    def __str__(self) -> str:
        return f"{self.stem}@{self.incarnation}@{self.part:06}"


def parsed(file_name: str) -> Name | None:
    """The name of a file, without what follows the last dot; None if it is named by others."""
    parts = file_name.rpartition(".")[0].rsplit("@", 2)
    if len(parts) == 3 and parts[1].isdecimal() and parts[2].isdecimal():
        return Name(parts[0], int(parts[1]), int(parts[2]))
    return None


def stem_of(run: str, node: str) -> str:
    """How the files of a node in a run begin. Raises :class:`TraceError` for names that are empty or too long."""
    quoted = []
    for what, name in (("run", run), ("node", node)):
        if not isinstance(name, str) or not name:
            raise TraceError(f"the name of the {what} is {name!r}: give a text")
        text = _ODD.sub(
            lambda found: "".join(f"~{byte:02x}" for byte in found[0].encode("utf-8", "surrogatepass")), name
        )
        text = f"~2e{text[1:]}" if text.startswith(".") else f"~5f{text[1:]}" if text.startswith("_") else text
        if len(text) > LONGEST_NAME:
            raise TraceError(
                f"the name of the {what}, {name}, is too long: give at most {LONGEST_NAME} letters and digits"
            )
        quoted.append(text)
    return "@".join(quoted)


class Folder:
    """A folder of traces."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self.spool = self.directory / SPOOL

    def make(self) -> None:
        """Make it if it is not there. Raises :class:`TraceError` if that is not possible."""
        try:
            self.spool.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TraceError(f"traces cannot be written to {self.directory}: {error.strerror}") from error

    def run(self) -> str:
        """The name of the run that goes on in it: the first who asks names it. Raises :class:`TraceError` if that
        cannot be read or written.
        """
        path = self.directory / RUN
        try:
            if not path.exists():
                mine = self.directory / f".{RUN}.{secrets.token_hex(8)}"
                mine.write_text(
                    f"{_ODD.sub('-', self.directory.absolute().name)[:40] or 'run'}-{secrets.token_hex(4)}\n",
                    encoding="utf-8",
                )
                try:
                    os.link(mine, path)
                except FileExistsError:  # somebody else was faster
                    pass
                finally:
                    mine.unlink()
            run = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise TraceError(f"the name of the run, {path}, cannot be had: {error}") from error
        if not run:
            raise TraceError(f"{path} is empty: write the name of the run there, or remove it")
        return run

    def incarnations(self, stem: str) -> set[int]:
        """Those of a node in a run of which there are files."""
        # Spools first: one that is not there any more has become a Parquet file before it was removed.
        names = [*os.listdir(self.spool), *os.listdir(self.directory)]
        return {name.incarnation for name in map(parsed, names) if name is not None and name.stem == stem}

    def spool_path(self, name: Name) -> Path:
        """Where the events of a part are while they are written."""
        return self.spool / f"{name}.spool"

    def parquet_path(self, name: Name) -> Path:
        """Where they are in the end."""
        return self.directory / f"{name}.parquet"
