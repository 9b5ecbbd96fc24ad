"""Cookies: which bookie may start on which directories, and what a refused one says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.errors import SystemFailure
from fencepost.files.folders import Lock
from fencepost.ledger.bookie import cookies
from fencepost.ledger.rules.cookies import Boot, Cookie, Stamped, may_boot

OWN = Cookie(bookie_id="127.0.0.1:3181", journal_directories=("/j",), ledger_directories=("/l",), instance_id="cluster")
OTHER = OWN.replace(bookie_id="127.0.0.1:3182")


def directories(*found: Cookie | None, is_empty: bool = False) -> list[Stamped]:
    return [Stamped(path=f"/{place}", cookie=cookie, is_empty=is_empty) for place, cookie in enumerate(found)]


@pytest.mark.parametrize(
    ("in_metadata", "found", "is_empty", "boot"),
    [
        (OWN, (OWN, OWN), False, Boot.READY),
        (OWN, (OWN, OWN), True, Boot.READY),
        (None, (None, None), True, Boot.STAMP),
        (None, (OWN, None), True, Boot.STAMP),
        (None, (None, None), False, Boot.NOT_EMPTY),
        (None, (OWN, None), False, Boot.NOT_EMPTY),
        (None, (OWN, OWN), False, Boot.MISSING_IN_METADATA),
        (OWN, (OWN, None), False, Boot.DIRECTORY_LOST),
        (OWN, (None, None), True, Boot.DIRECTORY_LOST),
        (OWN, (OWN, OTHER), False, Boot.OTHER_BOOKIE),
        (OTHER, (OWN, OWN), False, Boot.OTHER_BOOKIE),
        (None, (OTHER, None), True, Boot.OTHER_BOOKIE),
        (OWN, (OWN, OWN.replace(instance_id="")), False, Boot.OTHER_CLUSTER),
        (OWN.replace(ledger_directories=("/l", "/m")), (OWN, OWN), False, Boot.OTHER_DIRECTORIES),
        (OWN, (OWN, OWN.replace(token="before")), False, Boot.OTHER_TIME),
    ],
)
def test_a_bookie_starts_where_all_cookies_are_its_own(
    in_metadata: Cookie | None, found: tuple[Cookie | None, ...], is_empty: bool, boot: Boot
) -> None:
    decision = may_boot(OWN, in_metadata, directories(*found, is_empty=is_empty))
    assert decision.boot is boot
    if boot not in (Boot.READY, Boot.STAMP):
        told = cookies.refusal(decision, OWN)
        assert ("\n" not in told and "give" in told) or "bring" in told


def test_a_cookie_is_written_as_bookkeeper_writes_it() -> None:
    cookie = OWN.replace(ledger_directories=("/l", "/m"), index_directories=("/i",))
    assert (
        cookies.to_bytes(cookie)
        == b'5\nbookieHost: "127.0.0.1:3181"\njournalDir: "/j"\nledgerDirs: "2\\t/l\\t/m"\ninstanceId:'
        b' "cluster"\nindexDirs: "1\\t/i"\n'
    )


paths = st.lists(
    st.text(st.characters(exclude_characters="\t,", exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=3
).map(tuple)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), paths, paths, st.sampled_from(["", "an-id"]))
def test_a_cookie_is_read_as_it_was_written(
    bookie_id: str, journals: tuple[str, ...], ledgers: tuple[str, ...], instance_id: str
) -> None:
    cookie = Cookie(
        bookie_id=bookie_id, journal_directories=journals, ledger_directories=ledgers, instance_id=instance_id
    )
    assert cookies.from_bytes(cookies.to_bytes(cookie)) == cookie


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"3\na\nb\nc\n",
        b"5\nbookieHost: 7",
        b"5\n",
        b'5\nbookieHost: "a"\njournalDir: "b"\nledgerDirs: "2\\tc"',
        b"\xff\xfe",
    ],
)
def test_bytes_that_are_no_cookie_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="it "):
        cookies.from_bytes(data)


def test_a_cookie_of_a_later_version_is_refused_as_that() -> None:
    later = cookies.to_bytes(OWN).replace(b"5\n", b"6\n", 1)
    with pytest.raises(SystemFailure, match="has the version 6, .* written by a later version"):
        cookies.from_bytes(later)


def test_a_stamped_directory_has_its_cookie(tmp_path: Path) -> None:
    directory = str(tmp_path / "ledgers")
    assert cookies.read(directory) == Stamped(path=directory, cookie=None, is_empty=True)
    cookies.stamp(directory, OWN)
    assert cookies.read(directory) == Stamped(path=directory, cookie=OWN, is_empty=True)
    (tmp_path / "ledgers" / "current" / "something").write_bytes(b"x")
    assert not cookies.read(directory).is_empty


@pytest.mark.parametrize("file", ["VERSION", "RUNNING", "LOCK"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path, file: str) -> None:
    cookies.stamp(str(tmp_path), OWN)
    current = tmp_path / "current"
    (current / file).unlink(missing_ok=True)
    os.mkfifo(current / file)
    if file == "RUNNING":
        assert cookies.run_of(str(tmp_path), 1) is None
    elif file == "VERSION":
        with pytest.raises(
            SystemFailure, match="current/VERSION of the bookie cannot be read: it is a device or a pipe"
        ):
            cookies.read(str(tmp_path))
    else:
        with pytest.raises(OSError, match="LOCK"):
            Lock(str(current))


def test_a_damaged_cookie_and_files_of_a_java_bookie_are_said_in_one_line(tmp_path: Path) -> None:
    cookies.stamp(str(tmp_path), OWN)
    (tmp_path / "current" / "VERSION").write_bytes(b"5\ngarbage")
    with pytest.raises(SystemFailure, match="VERSION is damaged"):
        cookies.read(str(tmp_path))
    cookies.stamp(str(tmp_path), OWN)
    (tmp_path / "current" / "18c2.txn").write_bytes(b"BKLG\0\0\0\6")
    with pytest.raises(SystemFailure, match="holds the journal of a Java bookie"):
        cookies.read(str(tmp_path))
