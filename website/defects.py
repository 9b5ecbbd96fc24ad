"""Pages of the shipped defects: the explorer's page of each counterexample, which needs no server."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import fencepost
from fencepost.explorer.session import Session
from fencepost.explorer.still import html
from fencepost.language.loading import load

SHOWN = (
    ("bookkeeper-4.13", "defect-1-small"),
    ("bookkeeper-4.13", "defect-1-by-delay"),
    ("bookkeeper-4.13", "defect-2-one-entry"),
    ("bookkeeper", "hasty-negatives"),
    ("bookkeeper", "reads-move-on"),
    ("bookkeeper", "fragments-at-once"),
    ("bookkeeper-limbo", "scenario-1"),
    ("bookkeeper-limbo", "scenario-2"),
    ("bookkeeper-boot", "marked-late"),
    ("bookkeeper-boot", "too-many-crashes"),
    ("kraft-kip-853", "removed-follower-rejected"),
    ("quorum", "voted-twice"),
    ("log", "not-fenced"),
    ("running-quorum", "spoken-early"),
)
"""Protocols and their configurations that violate a property: those that are found within seconds."""

HEAD = """# Defects, step by step

Each of these is the shortest way to a violated property that the checker finds: the explorer's page of it, which needs
no installation. Walk with the arrow keys. The steps beside the walk can be taken, too; beyond them goes
[`fencepost explore`](../docs/check/explorer.md). The key `?` shows all keys.
"""


def defects(folder: Path) -> str:
    """Write the page of each to a new folder. Returns the page that lists them, in Markdown."""
    folder.mkdir()
    text = HEAD
    for name, those in groupby(SHOWN, key=lambda shown: shown[0]):
        protocol = load(name)
        text += f"\n## `{name}`\n\n| | | states | |\n|---|---|---|---|\n"
        for _, configuration in those:
            result = fencepost.check(protocol, configuration=configuration)
            violation = result.violations[0]
            assert violation.trace is not None
            file = f"{name}-{configuration}.html"
            session = Session(violation.trace.protocol)
            (folder / file).write_text(html(session, session.graft(violation.trace)), encoding="utf-8")
            what = protocol.configurations[configuration].doc
            text += f'| <a href="{file}">{configuration}</a> | {what} | {len(violation.trace)} | `{violation.name}` |\n'
    return text
