"""Fixtures for tests of traces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.cli.main import main


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run ``fencepost validate``. Returns its exit code, standard output and standard error."""

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        code = main(["validate", *map(str, arguments)])
        return code, *capsys.readouterr()

    return run
