"""Fencepost's client, asked over standard input and answering on standard output, as the Java client is by
``Exam.java``.

Requests are carried out at the same time, so that one can wait for entries that another writes.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

import fencepost
from fencepost.ledger.client.client import LedgerClient
from fencepost.ledger.client.reader import LedgerReader
from fencepost.ledger.client.writer import LedgerWriter
from fencepost.ledger.metadata.client import MetadataClient
from interop import load

NAMES = {
    "NoSuchLedgerError": "NoSuchLedgerExistsException",
    "DigestMismatchError": "DigestMatchException",
    "IllegalOperationError": "IllegalOpException",
}
"""Exceptions whose names are not BookKeeper's with another ending."""
DIGESTS = {"CRC32C": "crc32c", "CRC32": "crc32", "MAC": "hmac", "DUMMY": "dummy"}

Given = dict[str, Any]


class Exam:
    """The connections and open ledgers, by number."""

    def __init__(self) -> None:
        self.stores: dict[int, LedgerClient] = {}
        self.ledgers: dict[int, tuple[LedgerClient, Given, LedgerWriter | LedgerReader]] = {}
        self.many: dict[int, list[LedgerWriter]] = {}
        """Ledgers that were created together, by the number of the connection."""
        self.explicit_lac_intervals: dict[int, float] = {}
        """In seconds, by the number of the connection."""
        self.number = 0
        self.operations: dict[str, Callable[[Given], Awaitable[Any]]] = {
            name: getattr(self, name)
            for name in (
                "initialise connect disconnect create open append force close read tail lac read_lac length metadata"
                " list delete load_writes load_reads load_scans many_create many_writes many_tails"
            ).split()
        }

    def _numbered(self) -> int:
        self.number += 1
        return self.number

    def _store(self, given: Given) -> LedgerClient:
        return self.stores[given["client"]]

    def _writer(self, given: Given) -> LedgerWriter:
        writer = self.ledgers[given["handle"]][2]
        assert isinstance(writer, LedgerWriter)
        return writer

    async def _reader(self, given: Given) -> LedgerReader:
        """The open reader; for a handle that writes, another one that reads the same ledger."""
        store, opened, handle = self.ledgers[given["handle"]]
        if isinstance(handle, LedgerReader):
            return handle
        return await store.open_ledger(handle.id, password=opened.get("password", ""))

    async def initialise(self, given: Given) -> None:
        """Make the znodes of a new cluster."""
        async with await MetadataClient.connect(given["uri"]) as metadata:
            await metadata.initialise()

    async def connect(self, given: Given) -> int:
        """Of the Java client's settings there is one here, which is that of a ledger; ``trace`` is a folder of
        traces.
        """
        number = self._numbered()
        self.stores[number] = await fencepost.connect(given["uri"], trace=given.get("settings", {}).get("trace"))
        self.explicit_lac_intervals[number] = given.get("settings", {}).get("explicitLacInterval", 0) / 1000
        return number

    async def disconnect(self, given: Given) -> None:
        await self.stores.pop(given["client"]).close()

    def _opened(self, given: Given, handle: LedgerWriter | LedgerReader) -> dict[str, int]:
        number = self._numbered()
        self.ledgers[number] = (self._store(given), given, handle)
        return {"handle": number, "ledger": handle.id}

    async def create(self, given: Given) -> dict[str, int]:
        return self._opened(
            given,
            await self._store(given).create_ledger(
                ensemble=given.get("ensemble", 3),
                write_quorum=given.get("write_quorum", 3),
                ack_quorum=given.get("ack_quorum", 2),
                digest=DIGESTS[given.get("digest", "CRC32C")],
                password=given.get("password", ""),
                custom_metadata={name: value.encode() for name, value in given.get("custom_metadata", {}).items()},
                deferred_sync=given.get("deferred_sync", False),
                explicit_lac_interval=self.explicit_lac_intervals[given["client"]],
                **{name: given[name] for name in ("in_flight", "in_flight_bytes") if name in given},
            ),
        )

    async def open(self, given: Given) -> dict[str, int]:
        opened = await self._store(given).open_ledger(
            given["ledger"],
            recover=given.get("recover", True),
            password=given.get("password", ""),
            digest=DIGESTS[given["digest"]] if "digest" in given else None,
            **{name: given[name] for name in ("prefetch", "prefetch_bytes") if name in given},
        )
        return self._opened(given, opened)

    async def append(self, given: Given) -> list[int]:
        return await self._writer(given).append_many(base64.b64decode(entry) for entry in given["entries"])

    async def force(self, given: Given) -> None:
        await self._writer(given).force()

    async def close(self, given: Given) -> None:
        await self.ledgers[given["handle"]][2].close()

    async def read(self, given: Given) -> list[Any]:
        reader = await self._reader(given)
        return [_told(entry) async for entry in reader.read(given["first"], given["last"])]

    async def tail(self, given: Given) -> list[Any]:
        """Entries from ``first`` on until there are ``count``."""
        found: list[Any] = []
        async for entry in (await self._reader(given)).tail(given["first"]):
            found.append(_told(entry))
            if len(found) == given["count"]:
                break
        return found

    async def lac(self, given: Given) -> int:
        return self.ledgers[given["handle"]][2].last_add_confirmed

    async def read_lac(self, given: Given) -> int:
        return await (await self._reader(given)).read_last_add_confirmed()

    async def length(self, given: Given) -> int:
        handle = self.ledgers[given["handle"]][2]
        return handle.length if isinstance(handle, LedgerWriter) else handle.metadata.length

    async def metadata(self, given: Given) -> dict[str, Any]:
        found = await self._store(given).ledger_metadata(given["ledger"])
        return {
            "state": found.status.name,
            "ensemble": found.ensemble_size,
            "write_quorum": found.write_quorum,
            "ack_quorum": found.ack_quorum,
            "last_entry": found.last_entry,
            "length": found.length,
            "digest": next(name for name, own in DIGESTS.items() if own == found.digest_type.name.lower()),
            "ensembles": {str(fragment.first_entry_id): list(fragment.ensemble) for fragment in found.fragments},
            "custom_metadata": {name: value.decode() for name, value in found.custom_metadata},
        }

    async def list(self, given: Given) -> list[int]:
        return [ledger async for ledger in self._store(given).list_ledgers()]

    async def delete(self, given: Given) -> None:
        await self._store(given).delete_ledger(given["ledger"])

    async def load_writes(self, given: Given) -> dict[str, float]:
        return await load.writes(self._writer(given), given["size"], given["in_flight"], given["seconds"])

    async def load_reads(self, given: Given) -> dict[str, float]:
        return await load.reads(await self._reader(given), given["in_flight"], given["seconds"])

    async def load_scans(self, given: Given) -> dict[str, float]:
        return await load.scans(await self._reader(given), given["in_flight"], given["seconds"])

    async def many_create(self, given: Given) -> dict[str, Any]:
        writers, seconds = await load.create_many(
            self._store(given), given["ledgers"], self.explicit_lac_intervals[given["client"]]
        )
        self.many[given["client"]] = writers
        return {"ledgers": [writer.id for writer in writers], "seconds": seconds}

    async def many_writes(self, given: Given) -> dict[str, float]:
        return await load.write_many(self.many[given["client"]], given["size"], given["period"], given["seconds"])

    async def many_tails(self, given: Given) -> dict[str, float]:
        return await load.tail_many(self._store(given), given["ledgers"], given["seconds"])


def _told(entry: fencepost.ledger.client.reading.LedgerEntry) -> tuple[int, None, str]:
    """An entry as it is sent. The Java client also sends the length of the ledger up to the entry."""
    return entry.id, None, base64.b64encode(entry.data).decode()


async def _answer(exam: Exam, request: Given) -> None:
    answer: dict[str, Any] = {"id": request["id"]}
    try:
        answer["result"] = await exam.operations[request["do"]](request)
    except Exception as error:
        name = type(error).__name__
        answer |= {"error": NAMES.get(name, name.removesuffix("Error") + "Exception"), "message": str(error)}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


async def serve() -> None:
    """Answer until standard input ends."""
    requests = asyncio.StreamReader(limit=1 << 27)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(requests), sys.stdin)
    exam = Exam()
    running: set[asyncio.Task[None]] = set()
    while line := await requests.readline():
        task = asyncio.create_task(_answer(exam, json.loads(line)))
        running.add(task)
        task.add_done_callback(running.discard)


if __name__ == "__main__":
    uvloop.run(serve())
