import asyncio

import fencepost


async def main() -> None:
    async with fencepost.connect("zk://127.0.0.1:2181/ledgers") as store:
        log = store.log("nights")
        await log.create()
        batches = log.batches("nightly")
        for _ in range(2):  # the second run is a retry of the same batch
            parts = [batches.part(number=7) for _ in range(2)]
            await asyncio.gather(parts[0].append([b"one", b"two"]), parts[1].append([b"three"]))
            print("attached:", await batches.attach(7, [await part.close() for part in parts]))
        print([entry.data async for entry in log.reader(follow=False)])


asyncio.run(main())
