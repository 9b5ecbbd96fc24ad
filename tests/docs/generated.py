"""The tables in pages of the store that are made from the code: settings, and the bytes of formats.

A table stands between ``<!-- NAME -->`` and ``<!-- end -->``. The bytes of a format are those of a ``struct.Struct``,
and what they are is said by the comment on its line.
"""

from __future__ import annotations

import importlib
import re
import struct
from collections.abc import Callable
from pathlib import Path

from docs.documents import DOCS

from fencepost.ledger.autorecovery import settings as of_autorecovery
from fencepost.ledger.bookie import settings as of_bookie
from fencepost.ledger.settings import Setting, described
from fencepost.metadata.settings import MetadataSettings
from fencepost.monitoring import table
from fencepost.monitoring.metrics import Metric

MONITORING = DOCS / "run/monitoring.md"
SETTINGS = DOCS / "run/settings.md"
FORMATS = DOCS / "run/formats.md"

STRUCTS = {
    "first sector of a journal file": ("fencepost.ledger.disk.journal", "_FILE"),
    "group of a journal": ("fencepost.ledger.disk.journal", "_GROUP"),
    "record of an entry": ("fencepost.ledger.disk.records", "_ENTRY"),
    "first sector of an entry log": ("fencepost.ledger.disk.sections", "_FILE"),
    "section of an entry log": ("fencepost.ledger.disk.sections", "_SECTION"),
    "entry in an entry log": ("fencepost.ledger.disk.sections", "_ENTRY"),
    "row of a run": ("fencepost.ledger.disk.sections", "_RUN"),
}
"""The formats by the names of their tables: a module, and the name of the struct in it."""

METRICS = {
    "every part": table.PROCESS,
    "bookie": table.BOOKIE,
    "autorecovery": table.AUTORECOVERY,
    "metadata": table.METADATA,
    "quorum": table.QUORUM,
}
"""The metrics by the names of their tables."""

UNCOMMENTED = {"record of an entry": "kind (0), ledger, entry id, LAC; then the body"}
"""Descriptions of fields without a comment in the code."""


def tables() -> dict[Path, dict[str, Callable[[], str]]]:
    """The tables of each page. Auto-recovery's table omits what the bookie's has."""
    of_the_bookie = described(of_bookie.BookieSettings)
    return {
        MONITORING: {f"metrics of {name}": lambda name=name: _metrics(METRICS[name]) for name in METRICS},  # type: ignore[misc]
        SETTINGS: {
            "settings of bookie": lambda: _settings(of_the_bookie),
            "settings of autorecovery": lambda: _settings(
                [each for each in described(of_autorecovery.AutoRecoverySettings) if each not in of_the_bookie]
            ),
            "settings of metadata": lambda: _settings(described(MetadataSettings)),
        },
        FORMATS: {name: lambda name=name: _bytes(name) for name in STRUCTS},  # type: ignore[misc]
    }


def with_tables(page: Path) -> str:
    """A page with the current tables."""
    text = page.read_text()
    for name, made in tables().get(page, {}).items():
        head, begun, rest = text.partition(f"<!-- {name} -->\n")
        _, ended, tail = rest.partition("<!-- end -->")
        assert begun and ended, f"{page.name} has no place for {name}"
        text = f"{head}{begun}\n{made()}\n\n{ended}{tail}"
    return text


def _settings(settings: list[Setting]) -> str:
    rows = [
        f"| `{each.name}` | `{each.default}` | {each.unit} | {each.reload or 'no'} | {each.purpose} |"
        for each in settings
    ]
    return "\n".join(["| setting | by default | unit | reloaded | |", "|---|---|---|---|---|", *rows])


def _metrics(metrics: tuple[Metric, ...]) -> str:
    rows = []
    for each in metrics:
        labels = f"; labels: {', '.join(f'`{label}`' for label in each.labels)}" if each.labels else ""
        rows.append(f"| `{each.name}` | {each.kind} | {each.unit} | {each.help}{labels} |")
    return "\n".join(["| metric | type | unit | |", "|---|---|---|---|", *rows])


def _bytes(name: str) -> str:
    module = importlib.import_module(STRUCTS[name][0])
    line = re.search(
        rf'((?:^# .*\n)*)^{STRUCTS[name][1]} = struct\.Struct\("(.*?)"\)(?:  # (.*))?$',
        Path(str(module.__file__)).read_text(),
        re.MULTILINE,
    )
    assert line is not None, f"{name} is no struct of {module.__name__} any more"
    sizes = [struct.calcsize(f">{part}") for part in re.findall(r"\d*[a-zA-Z]", line[2])]
    comment = line[3] or " ".join(part.removeprefix("# ") for part in line[1].splitlines())
    fields, _, around = (UNCOMMENTED.get(name) or comment).partition("; ")
    words = fields.split(", ")
    assert len(words) == len(sizes), f"{name}: {words} are not {len(sizes)}"
    rows, offset = [], 0
    if around.endswith("before it"):
        rows.append(("0", "4", "CRC32C of all that follows, the body included"))
        offset = 4
    for word, size in zip(words, sizes, strict=True):
        rows.append((str(offset), str(size), word))
        offset += size
    if around == "then a checksum":
        rows.append((str(offset), "4", "CRC32C of all above"))
    elif around.startswith("then"):
        rows.append((str(offset), "", around.removeprefix("then ")))
    return "\n".join(["| offset | bytes | |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)])
