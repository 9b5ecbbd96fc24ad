import asyncio

import fencepost
from fencepost import LedgerFencedError


async def main() -> None:
    async with (
        fencepost.connect("zk://127.0.0.1:2181/ledgers") as one,
        fencepost.connect("zk://127.0.0.1:2181/ledgers") as other,
    ):
        ledger = await one.create_ledger()
        await ledger.append(b"before")
        # the other takes over: it fences the first, and closes
        async with other.open_ledger(ledger.id, recover=True) as reader:
            print("the ledger ends at entry", reader.last_add_confirmed)
        try:
            await ledger.append(b"after")
        except LedgerFencedError as error:
            print(type(error).__name__)


asyncio.run(main())
