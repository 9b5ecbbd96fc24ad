import asyncio

import fencepost
from fencepost.log import EARLIEST


async def main() -> None:
    async with fencepost.connect("zk://127.0.0.1:2181/ledgers") as store:
        log = store.log("greetings")
        await log.create()
        async with log.writer(ledger_entries=2) as writer:
            for word in (b"hello", b"log", b"of", b"many", b"ledgers"):
                position = await writer.append(word)
                print(position, word)
        async for entry in log.reader(at=EARLIEST, follow=False):
            print(entry.position, entry.data)


asyncio.run(main())
