"""The reader of prose reads all of it: each of these files has one phrase that it must find."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs.prose import LONGEST, ROOT, complaints, listed

WRONG = "Whoever asks is answered."
FOUND = {
    "module.py": f'"""{WRONG}"""',
    "second.py": f'class A:\n    def b(self):\n        """Short.\n\n        {WRONG}\n        """',
    "item.py": f'"""These:\n\n- short\n- {WRONG}\n"""',
    "attribute.py": f'A = 1\n"""{WRONG}"""',
    "comment.py": f"A = 1  # {WRONG}",
    "long.py": f'"""{"word " * (LONGEST + 1)}."""',
    "page.md": f"# Title\n\nShort.\n\n- {WRONG}\n",
    "known.md": "This is for ever.",
}


@pytest.mark.parametrize("name", FOUND)
def test_what_is_wrong_is_found(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(FOUND[name])
    assert len([*complaints(tmp_path / name)]) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("code.md", f"```text\n{WRONG}\n```\n\n| {WRONG} |\n\n- Item.\n\n  | {WRONG} |\n\n`{WRONG}`\n"),
        ("code.py", f'"""As in::\n\n    {WRONG}\n\nAnd more.\n"""\nA = "{WRONG}"'),
    ],
)
def test_code_and_tables_are_not_read(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert not [*complaints(tmp_path / name)]


def test_the_whole_repository_is_read() -> None:
    folders = {name.split("/")[0] for name in listed([])}
    assert {"src", "docs", "tests", "bench", "interop", "demo", "README.md", "CHANGELOG.md"} <= folders
    assert listed([ROOT / "docs" / "index.md"]) == ["docs/index.md"]
