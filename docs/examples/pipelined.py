import asyncio

import fencepost


async def main() -> None:
    async with fencepost.connect("zk://127.0.0.1:2181/ledgers") as store:
        async with store.create_ledger(ensemble=3, write_quorum=3, ack_quorum=2) as ledger:
            ids = await ledger.append_many(b"entry %d" % n for n in range(10_000))
        print("confirmed up to entry", ids[-1])


asyncio.run(main())
