"""Writes what the commands in the documents print today into the documents: python tests/docs/refresh.py [PAGE ...]

A command that stands alone gets its whole output. One that is followed by lines gets the paragraphs that begin with the same words as
the paragraphs there; ``...`` stays, for what is left out.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from docs.documents import blocks, documents, run, selected


def refresh(document: Path) -> None:
    """Run every command of ``document`` and put its output there."""
    text = document.read_text()
    for block in blocks(document, "console"):
        print(block, flush=True)
        fresh = [f"$ {command.line}\n{selected(printed, command.output)}" for command, printed in run(block)]
        text = text.replace(f"```console\n{block.text}```", f"```console\n{''.join(fresh)}```", 1)
    document.write_text(text)


if __name__ == "__main__":
    for page in map(Path, sys.argv[1:]) if sys.argv[1:] else documents():
        refresh(page)
