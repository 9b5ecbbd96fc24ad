"""A file stays until the one that replaces it is durable."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fencepost import SystemFailure
from fencepost.files.storage import Storage


def test_a_file_is_durable_before_it_replaces_another_and_its_name_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def synced(file: int) -> None:
        fsync(file)
        done.append(("synced", os.path.basename(os.readlink(f"/proc/self/fd/{file}"))))

    def replaced(fresh: str, name: str) -> None:
        replace(fresh, name)
        done.append(("replaced", os.path.basename(name)))

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    Storage(str(tmp_path)).replace("manifest", b"new")
    assert done == [("synced", "manifest.new"), ("replaced", "manifest"), ("synced", tmp_path.name)]
    assert (tmp_path / "manifest").read_bytes() == b"new"


def test_what_can_not_be_replaced_is_left_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: str) -> None:
        raise OSError(28, "No space left on device")

    storage = Storage(str(tmp_path))
    storage.replace("manifest", b"old")
    monkeypatch.setattr(os, "replace", refuses)
    with pytest.raises(SystemFailure, match="manifest cannot be written: No space left on device"):
        storage.replace("manifest", b"new")
    assert os.listdir(tmp_path) == ["manifest"] and storage.load("manifest") == b"old"
