"""What clients know for sure, each in a file of its own, a line of JSON for each fact.

A line is written in one piece before the client does anything else. It needs no sync: a client is killed, the machine
is not.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Facts:
    """Where a client writes what it knows."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, fact: str, **values: Any) -> None:
        """Write one down."""
        os.write(self._file, json.dumps({"fact": fact, **values, "at": round(time.time(), 3)}).encode() + b"\n")


class Tail:
    """The facts in a directory as they come: each is given once, a line that is not whole yet is not given."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[Path, int] = {}

    def new(self) -> Iterator[dict[str, Any]]:
        """All that came since the last time, with the name of the client."""
        for path in sorted(self._directory.glob("*.facts")):
            with open(path, "rb") as file:
                file.seek(self._read.get(path, 0))
                lines = file.read()
            whole = lines[: lines.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            for line in whole.splitlines():
                yield {"by": path.stem, **json.loads(line)}
