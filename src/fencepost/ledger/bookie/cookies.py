"""Cookie files: the same text, BookKeeper's format with the token in a comment, in a bookie's directories and in its
znode.

The directories also hold the records of how a bookie runs (:mod:`fencepost.ledger.rules.boot`).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from fencepost.errors import SystemFailure
from fencepost.files import regular
from fencepost.files.folders import make_folder, private
from fencepost.files.storage import sync_folder
from fencepost.ledger.errors import NoSuchCookieError
from fencepost.ledger.metadata.client import MetadataClient
from fencepost.ledger.protobuf import message_classes
from fencepost.ledger.rules.boot import CLEAN_END, Run
from fencepost.ledger.rules.cookies import Boot, Cookie, Decision, Stamped

CURRENT = "current"
"""The subfolder of a directory that holds everything of a bookie."""

VERSION = "VERSION"
"""The file with the cookie, in that folder."""

LOCK = "LOCK"
"""The file that locks a storage against other processes."""

FIRST_START = "FIRST_START"
"""A file in the same folder, from before the cookie is stamped until the storage has files of its own."""

RUNNING = "RUNNING"
"""A file in the directory of entries, from before the cookie is stamped. It says how the bookie runs, or that it has
shut down cleanly and with which journal file, and whether entries may be missing. It is always replaced as a whole, and
never removed.
"""

REPAIR = "REPAIR"
"""A file in every directory from before phase one of a repair until the end of phase two. In a directory without a
cookie it shows that the repair has written all files there.
"""

LAYOUT_VERSION = 5
"""The version of BookKeeper's cookies. Versions before 4 did not use protobuf."""

_COOKIE = message_classes(
    "cookies",
    {
        "CookieFormat": {
            "bookieHost": (1, "required string"),
            "journalDir": (2, "required string"),
            "ledgerDirs": (3, "required string"),
            "instanceId": (4, "optional string"),
            "indexDirs": (5, "optional string"),
        }
    },
)["CookieFormat"]

_TOKEN = "# token: "

JAVA_FILES: Mapping[bytes, str] = {b"BKLG": "the journal", b"BKLO": "entry logs"}
"""The first bytes of a Java bookie's files, and what such a file is. Fencepost's files have other formats."""


def to_bytes(cookie: Cookie) -> bytes:
    """The bytes of a cookie."""
    fields: dict[str, Any] = {
        "bookieHost": cookie.bookie_id,
        "journalDir": ",".join(cookie.journal_directories),
        "ledgerDirs": _counted(cookie.ledger_directories),
    }
    if cookie.instance_id:
        fields["instanceId"] = cookie.instance_id
    if cookie.index_directories:
        fields["indexDirs"] = _counted(cookie.index_directories)
    text: str = text_format.MessageToString(_COOKIE(**fields))
    token = f"{_TOKEN}{cookie.token}\n" if cookie.token else ""
    return f"{LAYOUT_VERSION}\n{text}{token}".encode()


def from_bytes(data: bytes) -> Cookie:
    """Parse a cookie. Raises ``ValueError`` for other bytes, and :class:`SystemFailure` for a cookie of a later
    version.
    """
    version, _, text = data.decode("utf-8", "replace").partition("\n")
    if not version.strip().isdecimal() or int(version) < 4:
        raise ValueError(f"it has the version {version.strip()[:20]!r}, and not {LAYOUT_VERSION}")
    if int(version) > LAYOUT_VERSION:
        raise SystemFailure(
            f"the bookie's cookie has the version {int(version)}, and this one reads {LAYOUT_VERSION}: it was written"
            " by a later version; run the bookie with that"
        )
    message = _COOKIE()
    try:
        text_format.Parse(text, message, allow_unknown_field=True)
    except text_format.ParseError as error:
        raise ValueError(f"it is no text of a protobuf message: {error}") from error
    return Cookie(
        bookie_id=message.bookieHost,
        journal_directories=tuple(message.journalDir.split(",")),
        ledger_directories=_uncounted(message.ledgerDirs),
        index_directories=_uncounted(message.indexDirs) if message.indexDirs else (),
        instance_id=message.instanceId,
        token=next((line.removeprefix(_TOKEN) for line in text.splitlines() if line.startswith(_TOKEN)), ""),
    )


def is_kept(cookie: Cookie) -> bool:
    """Whether the bytes of a cookie give it again. The format separates directories by commas and tabs."""
    try:
        return from_bytes(to_bytes(cookie)) == cookie
    except ValueError:  # also for names that are no UTF-8
        return False


def draw_token() -> str:
    """A token that no other cookie has."""
    return secrets.token_hex(16)


def _counted(directories: Sequence[str]) -> str:
    return "\t".join([str(len(directories)), *directories])


def _uncounted(text: str) -> tuple[str, ...]:
    count, *directories = text.split("\t")
    if count != str(len(directories)):
        raise ValueError(f"it counts {count[:20]} directories and names {len(directories)}")
    return tuple(directories)


def token_of(in_metadata: Cookie | None, stamped: Sequence[Stamped]) -> str:
    """The token for a bookie's cookies: the one in the metadata. At the first start, the one of an interrupted first
    start, or a new one.
    """
    if in_metadata is not None:
        return in_metadata.token
    return next((each.cookie.token for each in stamped if each.cookie is not None), "") or draw_token()


async def in_metadata(client: MetadataClient, bookie_id: str) -> Cookie | None:
    """The cookie of a bookie in the metadata; None if there is none. Raises :class:`SystemFailure` if it is damaged."""
    try:
        return from_bytes((await client.read_cookie(bookie_id))[0])
    except NoSuchCookieError:
        return None
    except ValueError as error:
        raise SystemFailure(f"the cookie of the bookie {bookie_id} in the metadata is damaged: {error}") from error


# -- in directories ---------------------------------------------------------------------------------------------------


def read(directory: str) -> Stamped:
    """A directory and its cookie. Raises :class:`SystemFailure` if it cannot be read, or holds files of a Java
    bookie.
    """
    current = Path(directory, CURRENT)
    cookie, others = None, False
    try:
        names = sorted(os.listdir(current)) if current.exists() else []
        for name in names:
            if name == VERSION:
                cookie = from_bytes(regular.content(current / name))
                continue
            others = others or name not in (LOCK, FIRST_START, RUNNING, REPAIR, f"{VERSION}.new")
            _refuse_java(current / name)
    except OSError as error:
        raise SystemFailure(f"{error.filename or current} of the bookie cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise SystemFailure(
            f"the cookie {current / VERSION} is damaged: {error}; write back the one in the metadata"
        ) from error
    return Stamped(path=directory, cookie=cookie, is_empty=not others, is_under_repair=REPAIR in names)


def _refuse_java(path: Path) -> None:
    if path.is_file() and path.name != VERSION:
        with open(path, "rb") as file:
            found = JAVA_FILES.get(file.read(4))
        if found is not None:
            raise SystemFailure(
                f"{path.parent.parent} holds {found} of a Java bookie, whose files Fencepost does not read: give an"
                " empty directory, and let the cluster copy the entries"
            )


def stamp(directory: str, cookie: Cookie, is_first_start: bool = True) -> None:
    """Write a cookie into a directory durably, and whether this is its first start. Raises :class:`SystemFailure` on
    failure.
    """
    if is_first_start:
        _record(directory, FIRST_START)
    _record(directory, VERSION, to_bytes(cookie))


def is_first_start(directory: str) -> bool:
    """Whether no start of a bookie has yet created storage files in a directory."""
    return Path(directory, CURRENT, FIRST_START).exists()


def end_first_start(directory: str) -> None:
    """Record that the storage has files in a directory. Raises :class:`SystemFailure` on failure."""
    _remove(directory, FIRST_START)


def run_of(directory: str, last_journal: int) -> Run | None:
    """How the bookie runs or ran, or that it has shut down cleanly, from its directory of entries. None if the record
    is missing or was altered.

    Every start begins a new journal file. A record of a clean shutdown that names another file than ``last_journal`` is
    an old copy, and does not count.
    """
    return _run_records(last_journal).get(_run_record(directory).removesuffix(_LACKS))


def may_lack(directory: str) -> bool:
    """Whether the record of how the bookie runs says that entries may be missing."""
    return _run_record(directory).endswith(_LACKS)


def record_run(directory: str, run: Run, last_journal: int, may_lack: bool = False) -> None:
    """Record durably, in the directory of entries, how the bookie runs or that it has shut down cleanly, and whether
    entries may be missing. Raises :class:`SystemFailure` on failure.
    """
    text = next(text for text, recorded in _run_records(last_journal).items() if recorded == run)
    _record(directory, RUNNING, text + _LACKS if may_lack else text)


def _run_record(directory: str) -> bytes:
    try:
        return regular.content(Path(directory, CURRENT, RUNNING))
    except OSError:
        return b""


def begin_repair(directory: str) -> None:
    """Record durably that entries may be missing, and that the repair writes all files in a directory from now on.
    Raises :class:`SystemFailure`.
    """
    _record(directory, REPAIR)


def end_repair(directory: str) -> None:
    """Record that no entry is missing any more. Raises :class:`SystemFailure` on failure."""
    _remove(directory, REPAIR)


def _run_records(last_journal: int) -> dict[bytes, Run]:
    return {
        b"adds are in the journal\n": Run(journals_adds=True),
        b"adds may be in memory alone\n": Run(journals_adds=False),
        b"ended cleanly with journal %d\n" % last_journal: CLEAN_END,
    }


_LACKS = b"entries may be missing\n"


def _record(directory: str, name: str, data: bytes = b"") -> None:
    """Replace a file of a directory atomically and durably. Creates the directory if needed."""
    current = Path(directory, CURRENT)
    try:
        make_folder(current)
        temporary = current / f"{VERSION}.new"
        with open(temporary, "wb", opener=private) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, current / name)
        for folder in (current, current.parent, current.parent.parent):
            sync_folder(folder)
    except OSError as error:
        raise SystemFailure(f"{current / name} cannot be written: {error.strerror}") from error


def _remove(directory: str, name: str) -> None:
    """Remove a file of a directory durably, if it exists."""
    current = Path(directory, CURRENT)
    try:
        (current / name).unlink(missing_ok=True)
        sync_folder(current)
    except OSError as error:
        raise SystemFailure(f"{current / name} cannot be removed: {error.strerror}") from error


# -- messages ---------------------------------------------------------------------------------------------------------


def refusal(decision: Decision, own: Cookie) -> str:
    """Why a bookie does not start, and what to do about it, in one line."""
    where = decision.path or "the metadata"
    found = decision.found
    if decision.boot is Boot.NOT_EMPTY:
        return f"{where} is not empty and has no cookie: give an empty directory to a new bookie"
    assert found is not None
    if decision.boot is Boot.OTHER_CLUSTER:
        return (
            f"the cookie in {where} is of the cluster {found.instance_id or 'without an id'}, and the metadata service"
            f" has {own.instance_id or 'one without an id'}: give the metadata service with which the bookie was made,"
            " or an empty directory"
        )
    if decision.boot is Boot.OTHER_BOOKIE:
        return (
            f"the cookie in {where} is of the bookie {found.bookie_id}, and this one is {own.bookie_id}: "
            "give it the port, address or id that it had, or an empty directory"
        )
    if decision.boot is Boot.OTHER_DIRECTORIES:
        had = ", ".join((*found.journal_directories, *found.ledger_directories, *found.index_directories))
        given = ", ".join((*own.journal_directories, *own.ledger_directories, *own.index_directories))
        return (
            f"by its cookie in {where} the bookie has the directories {had}, and it is given {given}: give those that"
            " it had"
        )
    if decision.boot is Boot.OTHER_TIME:
        return (
            f"the cookie in {where} is of another time than those of the other directories: it was away while the"
            " bookie was repaired, or is an old copy; bring the right directory, or set"
            " dataIntegrityStampMissingCookies to have what is missing copied from other bookies"
        )
    if decision.boot is Boot.DIRECTORY_LOST:
        return (
            f"the bookie {own.bookie_id} has been here before and {where} has no cookie: its entries there are lost or"
            " not mounted; bring the directory back, or set dataIntegrityStampMissingCookies to have them copied from"
            " other bookies"
        )
    return (
        f"{where} holds entries of the bookie {own.bookie_id}, whose cookie is not in the metadata: it was removed from"
        " the cluster; give an empty directory"
    )
