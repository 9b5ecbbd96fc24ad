"""``fencepost warm``: what it says. What it compiles is tested with the engines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from cli.commandline import Ran

from fencepost.checker.engines.ahead import Ahead, Cache
from fencepost.cli.commands import warm

Run = Callable[..., Ran]


@pytest.fixture(autouse=True)
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands in for the compiler: parts are compiled at once, unless there is a file that says that they cannot be."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kept"))
    program = (
        "import sys; from pathlib import Path; from fencepost.checker.engines.ahead import Cache\n"
        f"if Path({str(tmp_path / 'broken')!r}).exists(): raise SystemExit('no compiler')\n"
        "for part in sys.argv[1:]: Cache().note(part)"
    )

    def compiling(parts: Sequence[str]) -> Ahead:
        return Ahead(parts, [sys.executable, "-c", program])

    monkeypatch.setattr(warm, "Ahead", compiling)


def test_says_where_the_loops_are_and_compiles_them_once(here: Run, tmp_path: Path) -> None:
    first, again = here("warm"), here("warm")
    assert (first.code, again.code) == (0, 0)
    assert first.out.startswith(f"the loops are compiled, in {tmp_path / 'kept'}: ")
    assert again.out == f"the loops are compiled already, in {tmp_path / 'kept'}\n"
    assert (first.err, again.err) == ("compiling the loops\n", "")


def test_what_cannot_be_compiled_is_an_error(here: Run, tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    ran = here("warm")
    assert ran.code == 153 and ran.out == ""
    assert "the loops cannot be compiled: " in ran.err and ran.err.endswith("fencepost.checker.engines.warm says why\n")
    assert Cache().missing(["tables"])


def test_a_folder_that_cannot_be_written_is_an_error(
    here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))
    ran = here("warm")
    assert ran.code == 153
    assert ran.complaint == (
        f"{tmp_path / 'file'} cannot be written: set NUMBA_CACHE_DIR to a folder for the compiled loops"
    )
