"""The metadata service's four-letter words, which it answers without a session, for figures on itself and bookies."""

from __future__ import annotations

import asyncio
import re

from fencepost.ledger.cluster.ports import HOST

_REGISTERED = re.compile(r"^\t/ledgers/available/(readonly/)?([^/\s]+)$", re.MULTILINE)


async def ask(port: int, word: str, patience: float, host: str = HOST) -> str | None:
    """A port's answer to a word, possibly empty. None if nobody accepts the connection, or the answer is not complete
    within ``patience`` seconds.
    """
    try:
        async with asyncio.timeout(patience):
            reader, writer = await asyncio.open_connection(host.strip("[]"), port)
            try:
                writer.write(word.encode())
                return (await reader.read() if word else b"").decode(errors="replace")
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return None


def registered(dump: str | None) -> dict[str, bool] | None:
    """The bookies in an answer to ``dump``, and whether each is read-only. None for any other answer."""
    if dump is None or not dump.startswith("SessionTracker dump:"):
        return None
    return {bookie: bool(read_only) for read_only, bookie in _REGISTERED.findall(dump)}
