"""Modules as files, for tests."""

from __future__ import annotations

import re
from pathlib import Path

from fencepost.tla import modules


def written(folder: Path, *texts: str) -> Path:
    """Writes each text as a file that is named like its first module. The path of the first.

    A text without a header is the body of module Spec.
    """
    paths = []
    for text in texts:
        found = re.search(r"-- MODULE (\w+)", text)
        whole = text if found else f"---- MODULE Spec ----\n{text}\n===="
        path = folder / f"{found[1] if found else 'Spec'}.tla"
        path.write_text(whole)
        paths.append(path)
    return paths[0]


def loaded(folder: Path, *texts: str) -> modules.Specification:
    """The specification whose root module is the first text."""
    return modules.load(written(folder, *texts))


def module(name: str, *lines: str) -> str:
    """The text of a module."""
    return "\n".join([f"---- MODULE {name} ----", *lines, "===="])
