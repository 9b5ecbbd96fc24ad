"""Files on disk belong to their owner and are readable by the group, whatever the umask of the process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.files.folders import OsFiles
from fencepost.ledger.bookie import cookies
from fencepost.ledger.cluster.supervisor import Directory


@pytest.fixture(autouse=True)
def generous() -> Iterator[None]:
    """A umask that allows everybody to read and write everything."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(path: Path) -> set[int]:
    """The modes of a folder and everything in it."""
    return {each.stat().st_mode & 0o777 for each in (path, *path.rglob("*"))}


def test_files_and_the_folders_above_them(tmp_path: Path) -> None:
    OsFiles(str(tmp_path / "a" / "b" / "c")).create("log").append(b"x")
    assert modes(tmp_path / "a") == {0o750, 0o640}


def test_cookies_and_marks_of_a_bookie(tmp_path: Path) -> None:
    cookies._record(str(tmp_path / "bookie" / "ledgers"), "VERSION", b"cookie")
    assert modes(tmp_path / "bookie") == {0o750, 0o640}


def test_the_folder_of_a_cluster(tmp_path: Path) -> None:
    Directory(tmp_path / "cluster")
    assert modes(tmp_path / "cluster") == {0o750, 0o640}


def test_folders_that_are_there_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(0o755)
    OsFiles(str(tmp_path / "there" / "new"))
    assert (tmp_path / "there").stat().st_mode & 0o777 == 0o755
