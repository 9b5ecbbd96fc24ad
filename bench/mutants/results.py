"""Results of mutants in a file, a line each. The last line about a mutant counts."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from bench.mutants.judging import Notice
from bench.mutants.mutate import Mutant
from bench.mutants.protocols import Subject


@dataclass(frozen=True)
class Row:
    """A mutant and who noticed it. ``digest``: of the source of its protocol when it was run. ``by_all``: whether all
    looked at it, and not only the first configurations.
    """

    protocol: str
    name: str
    kind: str
    by: str
    how: str
    digest: str
    by_all: bool = False


def digest_of(subject: Subject) -> str:
    """Of the sources of a protocol."""
    text = "".join(text for _, text in subject.sources())
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


class Results:
    """The results in a file, which need not be there yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[tuple[str, str], Row] = {}
        self._digests: dict[str, str] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                row = Row(**json.loads(line))
                self.rows[row.protocol, row.name] = row

    def _digest(self, subject: Subject) -> str:
        if subject.name not in self._digests:
            self._digests[subject.name] = digest_of(subject)
        return self._digests[subject.name]

    def row(self, subject: Subject, mutant: Mutant) -> Row | None:
        """What is known of a mutant. One that was noticed stays so; what nothing noticed counts as long as the protocol
        has not changed.
        """
        row = self.rows.get((subject.name, mutant.name))
        return None if row is None or (row.by == "nothing" and row.digest != self._digest(subject)) else row

    def add(self, subject: Subject, mutant: Mutant, notice: Notice, by_all: bool) -> None:
        """Write a result down."""
        row = Row(subject.name, mutant.name, mutant.kind, notice.by, notice.how, self._digest(subject), by_all)
        self.rows[row.protocol, row.name] = row
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(row.__dict__) + "\n")
