"""Writes what the commands in the documents print today into the documents: python tests/docs/refresh.py [PAGE ...]

A command that stands alone gets its whole output. One that is followed by lines gets the paragraphs that begin with the
same words as the paragraphs there; ``...`` stays, for what is left out. The page of questions to state spaces gets its
plots, too.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from docs.documents import Block, documents, run, selected
from docs.gallery import IMAGES, PAGE, answers, plots, questions
from docs.store_pages import pages, run_page

from docs import generated


def refresh(document: Path) -> None:
    """Run every command of ``document`` and put its output there."""
    text = document.read_text()
    fresh_blocks: dict[Block, str] = {}
    for command, printed in itertools.chain(run_page(document) if document in pages() else (), run(document)):
        print(f"{command.block}: {command.line}", flush=True)
        shown = selected(printed, command.output) if printed.strip() else ""
        fresh_blocks[command.block] = fresh_blocks.get(command.block, "") + f"$ {command.line}\n{shown}"
    for block, content in fresh_blocks.items():
        text = text.replace(f"{block.text}```", f"{content}```", 1)
    document.write_text(text)


def refresh_gallery() -> None:
    """Ask every question of the page anew, and draw its plots."""
    from fencepost.spark.cluster import Cluster

    cluster = Cluster("local[2]")
    try:
        assert cluster.session
        with tempfile.TemporaryDirectory() as folder:
            text = PAGE.read_text()
            for question, printed in zip(questions(), answers(Path(folder)), strict=True):
                print(question.block, flush=True)
                old = f"$ {question.line}\n{question.output}"
                text = text.replace(old, f"$ {question.line}\n{selected(printed, question.output)}", 1)
            PAGE.write_text(text)
            for name, drawn in plots(Path(folder)).items():
                (IMAGES / name).write_text(drawn)
    finally:
        cluster.close()


if __name__ == "__main__":
    for page in [Path(given).resolve() for given in sys.argv[1:]] or documents():
        refresh(page)
        if page == PAGE:
            refresh_gallery()
        page.write_text(generated.with_tables(page))
