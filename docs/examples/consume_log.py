import asyncio

import fencepost


async def main() -> None:
    async with fencepost.connect("zk://127.0.0.1:2181/ledgers") as store:
        log = store.log("greetings")
        async with log.cursor("billing") as cursor:
            async for entry in cursor.read(follow=False):
                print("done with", entry.data)
                if entry.data != b"of":
                    await cursor.acknowledge(entry.position)
        async with log.cursor("billing") as cursor:
            print("all is done before", cursor.position)
            print("left:", [entry.data async for entry in cursor.read(follow=False)])


asyncio.run(main())
