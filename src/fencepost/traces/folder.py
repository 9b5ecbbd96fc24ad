"""A folder of traces and the names of its files.

``RUN@NODE@INCARNATION@PART.parquet`` holds events in order, part by part. Other Parquet files may lie beside them.
``_spool`` holds ``.spool`` files of the same names: a writer is still writing them, or was killed. ``_run`` holds the
name of the current run, for writers that name none. ``_share`` holds a number, if not all subjects are traced. Readers
of Parquet folders skip names that begin with an underscore or a dot.
"""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import NamedTuple

from fencepost.traces.event import TraceError

SPOOL, RUN, SHARE = "_spool", "_run", "_share"
LONGEST_NAME = 80
"""The longest name of a run or a node in characters, after escaping."""

_ODD = re.compile(r"[^A-Za-z0-9._-]")


class Name(NamedTuple):
    """The name of a file of one incarnation: ``stem`` is the run and the node."""

    stem: str
    incarnation: int
    part: int

    def __str__(self) -> str:
        return f"{self.stem}@{self.incarnation}@{self.part:06}"


def parsed(file_name: str) -> Name | None:
    """The parsed name of a file, without its suffix; None if it is not a file of a trace."""
    parts = file_name.rpartition(".")[0].rsplit("@", 2)
    if len(parts) == 3 and parts[1].isdecimal() and parts[2].isdecimal():
        return Name(parts[0], int(parts[1]), int(parts[2]))
    return None


def stem_of(run: str, node: str) -> str:
    """How the file names of a node in a run begin. Raises :class:`TraceError` for names that are empty or too long."""
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
        """Create the folder if it is missing. Raises :class:`TraceError` on failure."""
        try:
            self.spool.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TraceError(f"traces cannot be written to {self.directory}: {error.strerror}") from error

    def run(self) -> str:
        """The name of the current run. The first caller draws it. Raises :class:`TraceError` if it cannot be read or
        written.
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
                except FileExistsError:  # another process was faster
                    pass
                finally:
                    mine.unlink()
            run = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise TraceError(f"the name of the run, {path}, cannot be had: {error}") from error
        if not run:
            raise TraceError(f"{path} is empty: write the name of the run there, or remove it")
        return run

    def share(self) -> int:
        """Of how many subjects that are numbers one is traced: those that this number divides. 1 if no file says
        otherwise. Raises :class:`TraceError` if the file cannot be read, or has no positive number.
        """
        path = self.directory / SHARE
        try:
            text = path.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return 1
        except (OSError, UnicodeDecodeError) as error:
            raise TraceError(f"the share of subjects to trace, {path}, cannot be had: {error}") from error
        if not text.isdecimal() or len(text) > 18 or not int(text):
            raise TraceError(f"{path} has {text[:40]!r}: write a number there, such as 16 to trace one ledger of 16")
        return int(text)

    def incarnations(self, stem: str) -> set[int]:
        """The incarnations of a node in a run that have files."""
        # Spools first: a spool is removed only after its Parquet file exists.
        names = [*os.listdir(self.spool), *os.listdir(self.directory)]
        return {name.incarnation for name in map(parsed, names) if name is not None and name.stem == stem}

    def spool_path(self, name: Name) -> Path:
        """The file of a part while it is written."""
        return self.spool / f"{name}.spool"

    def parquet_path(self, name: Name) -> Path:
        """The file of a part once it is finished."""
        return self.directory / f"{name}.parquet"
