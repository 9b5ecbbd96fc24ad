"""The trace events of changes: which znode was written, with which version, in which transaction, by which session."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from fencepost.metadata import protocol
from fencepost.metadata.codes import Code
from fencepost.metadata.tree import Transaction

_LEDGER = re.compile(r"/(?:\d{2}/\d{4}|\d{3}/\d{4}/\d{4}/\d{4})/L\d{4}$")
"""How the paths of BookKeeper ledgers end. Their digits are the id."""
_LOG = re.compile(r"/logs/([A-Za-z0-9_-][A-Za-z0-9._-]*)$")
"""How the paths of logs end."""


def events(entry: Transaction, result: protocol.Result | None) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
    """Yield the action, subject and fields of each effect of an entry that was not refused."""
    request = entry.request
    if isinstance(request, protocol.CloseSession):
        yield (
            "expired" if request.expired else "session_closed",
            None,
            {"session": f"{entry.session:x}", "zxid": entry.zxid},
        )
    elif isinstance(request, protocol.Multi):
        if isinstance(result, protocol.MultiResult) and all(code is Code.OK for _, code, _ in result.results):
            for operation, (_, _, of_operation) in zip(request.operations, result.results, strict=True):
                yield from _event(entry, operation, of_operation)
    else:
        yield from _event(entry, request, result)


def _event(
    entry: Transaction, request: Any, result: protocol.Result | None
) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
    action = "metadata_written"
    if isinstance(request, protocol.Create) and isinstance(result, protocol.Created):
        path, version = result.path, 0
    elif isinstance(request, protocol.SetData) and isinstance(result, protocol.StatOf):
        path, version = request.path, result.stat.version
    elif isinstance(request, protocol.Delete | protocol.DeleteContainer):
        action, path, version = "metadata_deleted", request.path, -1
    else:
        return
    parameters = {"path": path, "version": version, "zxid": entry.zxid, "session": f"{entry.session:x}"}
    yield action, subject_of(path), parameters


def subject_of(path: str) -> str | None:
    """The subject of the metadata at a path: the id of a ledger in decimal, or ``log/`` and the name of a log. None for
    other paths.
    """
    log = _LOG.search(path)
    return f"log/{log[1]}" if log is not None else ledger_of(path)


def ledger_of(path: str) -> str | None:
    """The id of the ledger with metadata at a path, in decimal. None if there is none."""
    match = _LEDGER.search(path)
    return None if match is None else str(int(re.sub(r"\D", "", match[0])))
