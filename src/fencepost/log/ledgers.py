"""The ledgers of a log: the options that create them, and the time of a ledger's last entry."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from fencepost.ledger.client.client import LedgerClient
from fencepost.ledger.errors import StoreError
from fencepost.ledger.rules.metadata import OF_LOG
from fencepost.log.chain import Chain
from fencepost.log.entries import time_of
from fencepost.log.errors import LogFormatError

NUMBERS = ("ensemble", "write_quorum", "ack_quorum")
DIGEST = "digest"


def options_of(name: str, chain: Chain) -> dict[str, Any]:
    """The options of :meth:`.LedgerClient.create_ledger` for a ledger of this log. Raises :class:`LogFormatError`."""
    kept = dict(chain.settings)
    try:
        options: dict[str, Any] = {number: int(kept[number]) for number in NUMBERS}
        options[DIGEST] = kept[DIGEST].decode()
    except (KeyError, ValueError):
        raise LogFormatError(f"the settings of the log {name} are not those of a log: {kept!r}") from None
    options["custom_metadata"] = {OF_LOG: name.encode()}
    return options


async def time_of_last_entry(store: LedgerClient, ledger: int, last: int, password: bytes) -> int:
    """The time in the header of the last entry of a closed ledger of a log, in milliseconds since 1970; 0 if the ledger
    is empty or the entry cannot be read.
    """
    if last >= 0:
        with suppress(StoreError):
            async with store.open_ledger(ledger, password=password) as reader:
                return time_of(await reader.read_entry(last))
    return 0
